/* How a job's tokens travel: --dispatcher, --dispatch-sms, --dispatch-precision (runtime/program/dispatched.h). */
#include "models/gpu_compute.h"
#include "models/training/dispatcher.h"
#include "runtime/program/job.h"
#include "tools/front/job_make.h"
#include "tools/front/options.h"

#include <inttypes.h>
#include <string.h>

/* The device with the rates of the cluster's own ports and NICs. */
static const hec_gpu *gpu_of(const hec_cluster *cluster, hec_arena *arena) {
  hec_gpu *gpu = HEC_NEW(arena, hec_gpu, 1);
  *gpu = cluster->devices[0].gpu->gpu;
  hec_cluster_take_sheet(cluster, &gpu->sheet);
  return gpu;
}

static hec_status check_kernels(const hec_job *job, const hec_dispatcher *by) {
  const hec_gpu_laws *laws = job->cluster.devices[0].gpu;
  if (laws && by->can(&laws->gpu))
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT,
                  "--dispatcher %s: expected a cluster of GPUs whose laws have its kernels, as \"4x8 gpu=h100\" "
                  "(hecate-sim --list devices), found %s%s",
                  by->name, laws ? laws->gpu.name : job->cluster.name,
                  laws ? ", for which nobody has published times" : ", which names no GPU");
}

/* Its SMs compute nothing while they copy. */
static hec_status take_sms(hec_job *job, const hec_dispatcher *by, int32_t wanted) {
  int32_t sms = wanted > 0 ? wanted : HEC_DISPATCH_SMS;
  job->problem.dispatch.sms = sms;
  if (!by->copied)
    return wanted == 0
               ? HEC_OK
               : hec_fail(HEC_BAD_INPUT, "--dispatch-sms: expected dispatcher deepep beside it, found %s", by->name);
  int32_t all = job->problem.dispatch.gpu->sheet.sms;
  if (sms >= all)
    return hec_fail(HEC_BAD_INPUT, "--dispatch-sms: expected less than the %" PRId32 " SMs of %s, found %" PRId32, all,
                    job->problem.dispatch.gpu->name, sms);
  for (int32_t i = 0; i < job->cluster.n_devices; i++) {
    hec_device *device = &job->cluster.devices[i];
    double share = (double)sms / (double)all;
    device->comm_share = device->comm_share > share ? device->comm_share : share;
  }
  return HEC_OK;
}

static void say_dispatch(hec_job *job, hec_arena *arena) {
  const hec_problem *p = &job->problem;
  const hec_dispatcher *by = p->dispatch.by;
  const char *precision = p->dispatch.row < p->bytes.token ? ", tokens in fp8 on the way to their experts" : "";
  if (!by->part_s) {
    hec_job_assume(job, arena, "dispatcher: %s (%s)%s", by->name, by->summary, precision);
    return;
  }
  hec_job_assume(
      job, arena,
      "dispatcher: %s%s; its time is its own law's on every network; which tokens share nodes is inferred from "
      "counts; planners price tokens as it carries them",
      by->name, precision);
  if (by->copied)
    hec_job_assume(job, arena,
                   "dispatcher: %" PRId32 " of %" PRId32 " SMs copy while ranks communicate (--dispatch-sms)",
                   p->dispatch.sms, p->dispatch.gpu->sheet.sms);
  if (p->ep > 4 * job->cluster.devices_per_node)
    hec_job_assume(job, arena, "dispatcher: groups of more than 4 nodes, where no law of it was fitted");
}

hec_status hec_job_choose_dispatch(const hec_job_options *options, hec_arena *arena, hec_job *job) {
  hec_problem *p = &job->problem;
  const char *name = options->dispatcher ? options->dispatcher : "alltoall", *precision = options->dispatch_precision;
  const hec_dispatcher *by = hec_table_find(hec_dispatchers, name);
  int32_t fp8 = 0;
  if (!by)
    return hec_table_unknown(&hec_dispatcher_table, "--dispatcher", name);
  if (precision)
    HEC_TRY(hec_run_option_word("--dispatch-precision", precision, &fp8));
  if (by == &hec_dispatcher_alltoall && !fp8)
    return take_sms(job, by, options->dispatch_sms);
  if (options->executed)
    return hec_fail(HEC_BAD_INPUT,
                    "--dispatcher: expected alltoall in bf16 to be executed, found %s%s (hecate-sim has it)", name,
                    fp8 ? " in fp8" : "");
  if (p->esp > 1)
    return hec_fail(HEC_BAD_INPUT, "--dispatcher %s: expected whole experts, found --esp %" PRId32, name, p->esp);
  if (fp8 && job->moe.dtype_bytes != 2)
    return hec_fail(HEC_BAD_INPUT, "--dispatch-precision fp8: expected a model in 2 bytes, found %s in %" PRId32,
                    job->moe.name, job->moe.dtype_bytes);
  p->dispatch = (hec_problem_dispatch){.by = by, .row = p->bytes.token};
  if (fp8) /* and a scale for every 128 values */
    p->dispatch.row = (double)(int64_t)(p->bytes.token / 2 * (1 + 4.0 / 128));
  if (by->part_s) {
    HEC_TRY(check_kernels(job, by));
    p->dispatch.gpu = gpu_of(&job->cluster, arena);
  }
  HEC_TRY(take_sms(job, by, options->dispatch_sms));
  say_dispatch(job, arena);
  return HEC_OK;
}
