/* See stages.h. */
#include "tools/front/stages.h"

#include "runtime/plan/problem.h"
#include "runtime/program/job.h"
#include "tools/front/execution.h"

#include <inttypes.h>
#include <string.h>

enum { LAYERS = 4, MICRO_BATCHES_A_STAGE = 4 }; /* by default; then the bubble of 1f1b is 25 % at most */

/* ---- What is not executed ---- */

static hec_status check_sizes(const hec_layout *l) {
  const struct {
    const char *name;
    int32_t n;
  } others[] = {{"tp", l->tp}, {"cp", l->cp}, {"etp", l->etp}};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (others[i].n > 1)
      return hec_fail(HEC_BAD_INPUT,
                      "--layout: %s: expected 1 to be executed, found %d; what is executed: pp, vpp and ep, and dp, "
                      "which follows from --ranks (hecate-sim predicts the others)",
                      others[i].name, (int)others[i].n);
  return HEC_OK;
}

static hec_status choose_zero(const hec_training_args *args, hec_stages *s) {
  s->zero = args->zero > 0 ? args->zero : 0;
  return s->zero <= 1 ? HEC_OK
                      : hec_fail(HEC_BAD_INPUT,
                                 "--zero: expected 0 or 1 to be executed, found %d (hecate-sim predicts the others)",
                                 (int)s->zero);
}

static hec_status check_options(const hec_job_options *o) {
  const struct {
    bool given;
    const char *why;
  } refused[] = {
      {o->ep > 0, "--ep: means nothing beside --layout, which has ep= in it"},
      {o->esp > 1, "--esp: experts in shards are not executed in pipeline stages; leave it out"},
      {o->mp > 1, "--mp: sharded attention is not executed in pipeline stages; leave it out"},
      {o->placement != NULL, "--placement: is not executed in pipeline stages yet; leave out --layout"},
      /* "published" is what executions take unless --schedule is given, so it cannot be told from no answer. */
      {strcmp(o->schedule, "published") != 0 && strcmp(o->schedule, "serial") != 0,
       "--schedule: expected serial, which is the schedule inside a pipeline stage (--pipeline orders its pieces)"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (refused[i].given)
      return hec_fail(HEC_BAD_INPUT, "%s", refused[i].why);
  return HEC_OK;
}

/* A stage without layers would have nothing to do: embedding and head are not executed. */
static hec_status check_parts(const hec_layout *l, const hec_moe *moe) {
  int32_t n_parts = l->pp * l->vpp, first;
  for (int32_t part = 0; part < n_parts; part++)
    if (hec_layout_layers(l, moe, part, &first) == 0)
      return hec_fail(
          HEC_BAD_INPUT,
          "--layout: expected at least one layer in each of the %d virtual stages (pp x vpp) to be executed, found "
          "none in virtual stage %d; choose fewer, or more than %d --layers",
          (int)n_parts, (int)part, (int)moe->n_layers);
  return HEC_OK;
}

/* ---- Layout ---- */

static hec_status choose_schedule(const hec_training_args *args, hec_stages *s) {
  hec_layout *l = &s->layout;
  if (l->pp == 1) { /* virtual stages of one stage are one part */
    l->vpp = 1;
    l->n_given = 0;
  }
  s->schedule = args->pipeline ? hec_pipeline_find(args->pipeline) : hec_pipeline_default(l->pp, l->vpp);
  if (!s->schedule)
    return hec_table_unknown(&hec_pipeline_table, "--pipeline", args->pipeline);
  return hec_pipelined_check_schedule(s->schedule, &(hec_pipeline_shape){.n_stages = l->pp, .n_chunks = l->vpp});
}

int32_t hec_stages_layers(const hec_layout *l, int32_t usual) {
  int32_t n = 0, n_parts = l->pp == 1 ? 1 : l->pp * l->vpp;
  for (int32_t i = 0; i < l->n_given; i++)
    n += l->given[i];
  return n > 0 ? n : n_parts > usual ? n_parts : usual;
}

hec_status hec_stages_open(const hec_training_args *args, const hec_job_options *options, int32_t made,
                           hec_trace_reader *reader, hec_stages *s, hec_job_options *of_stage) {
  hec_layout *l = &s->layout;
  *s = (hec_stages){.schedule = NULL};
  HEC_TRY(hec_layout_read(args->layout, l));
  HEC_TRY(check_sizes(l));
  HEC_TRY(choose_zero(args, s));
  HEC_TRY(check_options(options));
  HEC_TRY(choose_schedule(args, s));
  int64_t fewest = (int64_t)l->pp * l->ep, ranks = made > 0 ? made : options->ranks > 0 ? options->ranks : fewest;
  if (ranks > HEC_RANKS_MAX)
    return hec_fail(HEC_BAD_INPUT, "--layout: expected at most %d ranks (pp x ep), found %" PRId64, HEC_RANKS_MAX,
                    ranks);
  *of_stage = *options;
  of_stage->executed = true;
  if (options->layers == 0) {
    int32_t n = hec_stages_layers(l, LAYERS), max = hec_trace_header_of(reader)->n_layers;
    of_stage->layers = n < max ? n : max;
  }
  HEC_SCOPED(hec_arena) arena = {0};
  hec_job shape;
  hec_status status = hec_job_make_model(of_stage, reader, &arena, &shape);
  if (status == HEC_OK)
    status = hec_layout_fit(l, (int32_t)ranks, &shape.moe);
  if (status == HEC_OK)
    status = check_parts(l, &shape.moe);
  of_stage->ranks = l->dp;
  of_stage->ep = l->ep;
  of_stage->n_stages = l->pp;
  of_stage->micro_batches = 0; /* a step has records of its own for each */
  return status;
}

hec_status hec_stages_make(const hec_job_options *options, hec_arena *arena, hec_job *job, hec_stages *s) {
  const hec_layout *l = &s->layout;
  int32_t n = options->micro_batches > 0 ? options->micro_batches : MICRO_BATCHES_A_STAGE * l->pp;
  const hec_pipeline_shape sizes = {.n_stages = l->pp, .n_chunks = l->vpp, .n_micro_batches = n};
  HEC_TRY(hec_pipeline_order_make(s->schedule, &sizes, arena, &s->order));
  int32_t *layer_at = HEC_NEW(arena, int32_t, s->order.n_parts + 1);
  for (int32_t part = 0, first; part < s->order.n_parts; part++)
    layer_at[part + 1] = layer_at[part] + hec_layout_layers(l, &job->moe, part, &first);
  s->layer_at = layer_at;
  if (s->zero)
    hec_problem_share_optimizer(&job->problem);
  hec_job_assume(job, arena, "schedule inside a stage: serial, whatever a policy was published with");
  if (options->ranks == 0)
    hec_job_assume(job, arena, "ranks: %d, as few as the layout can have; choose with --ranks", (int)l->gpus);
  if (options->layers == 0 && job->moe.n_layers < job->header.n_layers)
    hec_job_assume(job, arena, "layers: the first %d MoE layers of the trace's %d; choose with --layers",
                   (int)job->moe.n_layers, (int)job->header.n_layers);
  if (options->micro_batches == 0)
    hec_job_assume(job, arena, "micro-batches: %d, %d for each stage; choose with --micro-batches", (int)n,
                   MICRO_BATCHES_A_STAGE);
  return HEC_OK;
}

/* ---- Records, policies ---- */

hec_status hec_stages_steps(const hec_stages *s, int32_t n, hec_job *job, hec_trace_reader *reader, hec_arena *arena,
                            hec_recording *recording) {
  int32_t n_micro = s->order.shape.n_micro_batches, n_records = 0;
  hec_recording read;
  HEC_TRY(hec_recording_read(job, reader, n * n_micro, arena, &read));
  hec_load *record = HEC_NEW(arena, hec_load, read.n_steps * read.n_micro_batches);
  for (int32_t i = 0; i < read.n_steps; i++)
    for (int32_t k = 0; k < read.steps[i].n_loads; k++)
      record[n_records++] = read.steps[i].loads[k];
  hec_replay_step *steps = HEC_NEW(arena, hec_replay_step, n);
  for (int32_t i = 0; i < n; i++) {
    hec_load *loads = HEC_NEW(arena, hec_load, n_micro);
    for (int32_t mb = 0; mb < n_micro; mb++)
      loads[mb] = record[((int64_t)i * n_micro + mb) % n_records];
    steps[i] = (hec_replay_step){.iter = i, .stride = 1, .n_loads = n_micro, .loads = loads};
  }
  hec_job_note_tokens(job, read.tokens, arena);
  if (n_records < n * n_micro)
    hec_job_assume(job, arena, "records: the trace's %d, again from its start when they are used up", (int)n_records);
  *recording = (hec_recording){.steps = steps, .n_steps = n, .n_micro_batches = n_micro, .tokens = read.tokens};
  return HEC_OK;
}

hec_status hec_stages_policies(const hec_stages *s, const hec_job_options *options, hec_job *job, hec_arena *arena,
                               const hec_policy **policies, int32_t *n) {
  const hec_pipelined p = {.replay = {.problem = &job->problem}, .order = &s->order};
  bool all = strcmp(options->policy, "all") == 0;
  int32_t found = *n;
  *n = 0;
  for (int32_t i = 0; i < found; i++) {
    hec_status status = hec_pipelined_check(&p, policies[i]);
    if (status == HEC_OK)
      policies[(*n)++] = policies[i];
    else if (status != HEC_BAD_INPUT || !all)
      return status;
  }
  HEC_ASSERT(*n > 0); /* ep is among all */
  if (*n < found)
    hec_job_assume(job, arena,
                   "policies: %d of %d, those that keep one plan through a step; the others are not executed in "
                   "pipeline stages",
                   (int)*n, (int)found);
  return HEC_OK;
}
