/* DeepEP's normal mode, by the law that is fitted to its published times; without it as an all-to-all. */
#include "models/training/dispatcher.h"

static const char *const variant[2] = {"normal dispatch", "normal combine"};

static bool can(const hec_gpu *gpu) {
  return hec_gpu_fit(gpu, "dispatch", variant[0]) && hec_gpu_fit(gpu, "dispatch", variant[1]);
}

static bool suits(const hec_gpu *gpu) {
  return can(gpu) && gpu->sheet.nvlink_ranks <= 8;
}

static double part_s(const hec_gpu *gpu, const hec_dispatch_work *work, bool back) {
  return hec_law_fit_s(gpu, hec_gpu_fit(gpu, "dispatch", variant[back]), work);
}

static double seconds(const hec_training *t, double received) {
  double s = 0;
  if (!can(&t->laws->gpu))
    return hec_dispatcher_alltoall.seconds(t, received);
  for (int back = 0; back < 2; back++) {
    const hec_dispatch_work work = hec_dispatch_work_of(t, back);
    double kernel_s = part_s(&t->laws->gpu, &work, back), up_s = hec_dispatch_uplink_s(t, &work);
    s += received * (kernel_s > up_s ? kernel_s : up_s);
  }
  return s;
}

const hec_dispatcher hec_dispatcher_deepep = {.name = "deepep",
                                              .summary = "a token goes to a node once and on from there, copied by SMs",
                                              .source = "github.com/deepseek-ai/DeepEP",
                                              .megatron_type = "flex",
                                              .megatron_backend = "deepep",
                                              .copied = true,
                                              .suits = suits,
                                              .can = can,
                                              .part_s = part_s,
                                              .seconds = seconds};
