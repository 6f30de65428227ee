/* DeepEP's normal mode, by the law that is fitted to its published times; without it as an all-to-all. */
#include "models/training/dispatcher.h"

static const char *const variant[2] = {"normal dispatch", "normal combine"};

static bool suits(const hec_gpu *gpu) {
  return hec_gpu_fit(gpu, "dispatch", variant[0]) && gpu->sheet.nvlink_ranks <= 8;
}

static double seconds(const hec_training *t, double received) {
  const hec_dispatch_work work = hec_dispatch_work_of(t);
  double s = 0;
  for (int i = 0; i < 2; i++) {
    const hec_law_fit *fit = hec_gpu_fit(&t->laws->gpu, "dispatch", variant[i]);
    if (!fit)
      return hec_dispatcher_alltoall.seconds(t, received);
    s += hec_law_fit_s(&t->laws->gpu, fit, &work);
  }
  return s * received;
}

const hec_dispatcher hec_dispatcher_deepep = {.name = "deepep",
                                              .summary = "a token goes to a node once and on from there, copied by SMs",
                                              .source = "github.com/deepseek-ai/DeepEP",
                                              .megatron_type = "flex",
                                              .megatron_backend = "deepep",
                                              .suits = suits,
                                              .seconds = seconds};
