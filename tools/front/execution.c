/* See execution.h. */
#include "tools/front/execution.h"

#include "runtime/base/progress.h"
#include "runtime/exec/link/device_link.h"
#include "runtime/exec/math/math.h"
#include "runtime/program/job.h"
#include "tools/front/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CPU_FLOPS_MAX 1e12 /* no core reaches more in float32: a device with more is a GPU */

hec_status hec_execution_policies(const hec_job_options *args, hec_job *job, hec_arena *arena,
                                  const hec_policy *policies[HEC_POLICIES_MAX], int32_t *n) {
  int32_t found, kept = 0;
  const hec_policy *all[HEC_POLICIES_MAX];
  HEC_TRY(hec_job_args_chosen(args, arena, all, &found));
  for (int32_t p = 0; p < found; p++) {
    const hec_schedule *schedule;
    HEC_TRY(hec_schedule_of(all[p], args->schedule, &schedule));
    if (schedule->bound) {
      hec_job_assume(job, arena, "policies: %s is left out, a bound that nothing can execute", all[p]->name);
      continue;
    }
    HEC_TRY(hec_policy_suits(all[p], &job->problem));
    policies[kept++] = all[p];
  }
  *n = kept;
  if (kept == 0)
    return hec_fail(HEC_BAD_INPUT, "--policy %s: expected a policy that can be executed, found only bounds",
                    args->policy);
  return HEC_OK;
}

hec_status hec_execution_steps(hec_job *job, hec_trace_reader *reader, int32_t wanted, bool asked, hec_arena *arena,
                               hec_recording *recording) {
  HEC_TRY(hec_recording_read(job, reader, wanted, arena, recording));
  hec_job_note_tokens(job, recording->tokens, arena);
  if (!asked || recording->n_steps < wanted)
    hec_job_assume(job, arena, "iterations: %s%" PRId32 "; choose with --steps",
                   recording->n_steps < wanted ? "all that the trace has, " : "the first ", recording->n_steps);
  return HEC_OK;
}

void hec_execution_mind(hec_execution *execution, const char *limit) {
  HEC_ASSERT(execution->summary.n_limits < HEC_EXECUTION_LIMITS_MAX);
  execution->limits[execution->summary.n_limits++] = limit;
}

/* Ranks of this machine, and what they compute with: cores or devices. */
static const char *describe_here(const hec_target *target, hec_execution *e, int32_t *ranks, int32_t *n) {
  *n = hec_machine_cores();
  if (target->backend->here)
    target->backend->here(ranks, n);
  if (target->backend->devices) {
    target->backend->devices(&e->cpu, &e->library, n);
    return "device";
  }
  hec_machine_cpu(&e->cpu);
  hec_text_add(&e->library, hec_math_library());
  return "core";
}

hec_status hec_execution_check_memory(const hec_target *target, const hec_problem *problem, int32_t ranks_here,
                                      bool check) {
  check = check && target->backend->speaks();
  if (!target->backend->device_bytes)
    return hec_machine_check_memory(problem, ranks_here, check);
  double bytes = hec_problem_bytes_without_copies(problem), max = target->backend->device_bytes(problem->n_ranks);
  if (max > 0 && bytes > max)
    return hec_fail(HEC_BAD_INPUT,
                    "a rank needs at least %.3g GB of its device's memory, its share is %.3g: choose fewer --layers or "
                    "--tokens, fewer --ranks to a device, or a smaller model",
                    bytes * 1e-9, max * 1e-9);
  return hec_machine_check_memory(problem, 0, check);
}

static const char *const precision_names[HEC_N_PRECISIONS] = {"float32", "TF32", "bfloat16"};

void hec_execution_free(hec_execution *execution) {
  hec_text_free(&execution->cpu);
  hec_text_free(&execution->library);
}

/* The stand-in for CUDA that tests use names its devices so. */
static bool emulated(const hec_target *target, const hec_execution *e) {
  return target->link && strncmp(e->cpu.data, "fake", 4) == 0;
}

void hec_execution_place(const hec_target *target, const hec_target_args *args, int32_t n_ranks, int32_t warmup,
                         hec_execution *e) {
  int32_t ranks = n_ranks, n_units;
  *e = (hec_execution){.cpu = {0}};
  const char *unit = describe_here(target, e, &ranks, &n_units);
  if (target->link)
    hec_text_printf(&e->library, ", products in %s", precision_names[target->precision]);
  e->summary = (hec_summary_execution){.backend = target->backend->name,
                                       .transport = hec_target_carrier(target),
                                       .transport_summary = hec_target_carrier_summary(target),
                                       .cpu = e->cpu.data,
                                       .blas = e->library.data,
                                       .unit = unit,
                                       .ranks_are = hec_target_ranks_are(target, args),
                                       .n_cores = n_units,
                                       .n_ranks_here = ranks,
                                       .n_warmup = warmup,
                                       .virtual_time = args->virtual,
                                       .imitates = target->transport->law != NULL,
                                       .limits = e->limits};
  if (emulated(target, e))
    hec_execution_mind(e, "the devices are emulated on the CPU: results count, times mean nothing");
  if (target->transport->mind && !target->link)
    hec_execution_mind(e, target->transport->mind);
}

void hec_execution_describe(const hec_target *target, const hec_target_args *args, const hec_job *job, bool own_cluster,
                            bool predicts, hec_execution *e) {
  hec_execution_place(target, args, hec_job_ranks(job), job->warmup, e);
  if (args->virtual) {
    hec_execution_mind(e, predicts ? "virtual time: validates compute, waiting and order, not the network"
                                   : "virtual time: measures computing and waiting; transfers are imitated");
    hec_execution_mind(
        e, target->link ? "computing is measured, one operation of one rank at a time; transfers take what the "
                          "cluster's links would"
                        : "computing is measured, one rank at a time; transfers take what the cluster's links would");
    if (own_cluster && !target->link && job->cluster.devices[0].flops >= CPU_FLOPS_MAX)
      hec_execution_mind(
          e, "computing is this CPU's, the links are the cluster's: their ratio is that of no real machine");
  }
  if (target->transport->law)
    hec_execution_mind(e, predicts ? "emulated network: validates compute, waiting and order, not the network"
                                   : "emulated network: measures computing and waiting; transfers are imitated");
  else if (!args->virtual && target->backend->transport == NULL)
    hec_execution_mind(e, "the network is this machine's memory: nothing here says how a cluster's network behaves");
  if (predicts && (target->link ? target->link->adds : target->transport->adds))
    hec_execution_mind(e, "gradients of copies are added up as they arrive: measured in that exchange, predicted as "
                          "gradient reduction");
  if (hec_summary_execution_crowded(&e->summary))
    hec_execution_mind(
        e, target->link        ? "fewer devices than ranks: a device does the work of all its ranks at once, which "
                                 "no prediction describes; see --virtual"
           : job->n_stages > 0 ? "fewer cores than ranks: ranks take turns on cores, so these times predict nothing"
                               : "fewer cores than ranks: ranks take turns on cores, so these times predict "
                                 "nothing; see --virtual");
}

void hec_execution_warn(const hec_execution *execution, const hec_target *target, bool pin, const char *advice) {
  const hec_summary_execution *e = &execution->summary;
  hec_progress_wipe();
  if (hec_summary_execution_crowded(e))
    (void)fprintf(stderr, "hecate-run: warning: times are of %" PRId32 " ranks on %" PRId32 " %s%s%s\n",
                  e->n_ranks_here, e->n_cores, e->unit, e->n_cores == 1 ? "" : "s", advice);
  if (pin && e->n_ranks_here > (target->link ? hec_machine_cores() : e->n_cores)) /* pinned are hosts */
    (void)fprintf(stderr, "hecate-run: warning: --pin has no effect: fewer cores than ranks\n");
}
