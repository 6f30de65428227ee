/* See measure.h. Policies run one after the other in one launch. With `check`, each first runs one layer and one step in
 * exact mode, then the iterations in random mode, compared and measured alike. Pipeline stages have no exact mode: one layer
 * has no stages.
 *
 * The iteration to draw is known when the policy is done. Until then the events of the newest KEPT iterations are
 * held. So of a longer run the one nearest the median is drawn among the newest. */
#include "tools/run/measure.h"

#include "runtime/base/progress.h"
#include "runtime/program/job.h"
#include "tools/front/page/report.h"
#include "tools/front/timeline_files.h"
#include "tools/run/stages_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 64 };

typedef struct {
  int64_t iter;
  double seconds;
  hec_text events;
} drawing;

/* Rank 0's. */
typedef struct {
  const hec_measure *measure;
  hec_summary summary;
  hec_arena arena;
  int32_t row, n_done; /* policy at work; its iterations so far */
  drawing kept[KEPT];
  int32_t n_kept;
  hec_text timeline, failed;
  hec_stage_memory *memory; /* [policies][ranks] of pipeline stages */
} collector;

static hec_replay random_replay(const hec_measure *measure) {
  const hec_measure_options *o = measure->options;
  return (hec_replay){.problem = &o->job->problem,
                      .model = &measure->model,
                      .steps = o->recording.steps,
                      .n_steps = o->recording.n_steps,
                      .n_micro_batches = o->recording.n_micro_batches,
                      .schedule = o->schedule,
                      .collective = o->collective,
                      .virtual_time = o->execution->virtual_time,
                      .check = o->check,
                      .differ_iteration = -1};
}

static hec_pipelined pipelined_of(const hec_measure *measure) {
  const hec_stages *stages = measure->options->stages;
  return (hec_pipelined){.replay = random_replay(measure), .order = &stages->order, .layer_at = stages->layer_at};
}

static hec_status find_stage_bytes(hec_measure *measure) {
  const hec_measure_options *o = measure->options;
  hec_pipelined pipelined = pipelined_of(measure);
  for (int32_t p = 0; p < o->n_policies; p++) {
    size_t bytes;
    HEC_TRY(hec_pipelined_bytes(&pipelined, o->policies[p], &bytes));
    measure->stage_bytes = bytes > measure->stage_bytes ? bytes : measure->stage_bytes;
  }
  return HEC_OK;
}

hec_status hec_measure_open(hec_measure *measure, const hec_measure_options *options, hec_arena *arena) {
  *measure = (hec_measure){.options = options, .handover = {-1}};
  const hec_problem *p = &options->job->problem;
  uint64_t seed = options->execution->seed;
  HEC_TRY(hec_model_make(&options->job->moe, false, seed, &measure->model));
  if (options->stages)
    HEC_TRY(find_stage_bytes(measure));
  if (options->check && !options->stages) {
    measure->exact_moe = options->job->moe;
    measure->exact_moe.n_layers = measure->exact_moe.n_moe_layers = 1;
    HEC_TRY(hec_model_make(&measure->exact_moe, true, seed, &measure->exact_model));
    HEC_TRY(hec_problem_make(&measure->exact_moe, &options->job->cluster, p->train, p->n_ranks, p->tokens,
                             &measure->exact_problem));
    HEC_TRY(hec_problem_shard(&measure->exact_problem, p->esp));
    HEC_TRY(hec_problem_tensor(&measure->exact_problem, p->mp));
    hec_problem_choose_as(&measure->exact_problem, p);
    measure->exact_step = options->recording.steps[0];
    hec_load *loads = HEC_NEW(arena, hec_load, measure->exact_step.n_loads);
    for (int32_t i = 0; i < measure->exact_step.n_loads; i++) {
      loads[i] = measure->exact_step.loads[i]; /* layer 0 comes first */
      loads[i].n_layers = 1;
    }
    measure->exact_step.loads = loads;
  }
  return hec_handover_open(&measure->handover);
}

void hec_measure_close(hec_measure *measure) {
  hec_handover_close(&measure->handover);
}

static hec_replay exact_replay(const hec_measure *measure) {
  hec_replay replay = random_replay(measure);
  replay.problem = &measure->exact_problem;
  replay.model = &measure->exact_model;
  replay.steps = &measure->exact_step;
  replay.n_steps = 1;
  return replay;
}

size_t hec_measure_bytes(const hec_measure *measure) {
  const hec_measure_options *o = measure->options;
  hec_replay random = random_replay(measure), exact = exact_replay(measure);
  size_t max = 0;
  if (o->stages)
    return measure->stage_bytes;
  for (int32_t p = 0; p < o->n_policies; p++) {
    size_t bytes = hec_replay_bytes(&random, o->policies[p]);
    max = bytes > max ? bytes : max;
    bytes = o->check ? hec_replay_bytes(&exact, o->policies[p]) : 0;
    max = bytes > max ? bytes : max;
  }
  return max;
}

/* ---- While a policy runs, on rank 0 ---- */

static void keep_drawing(collector *c, const hec_replay_step *step, double seconds, const hec_lowering *low,
                         const hec_timeline *timeline) {
  int64_t wanted = c->measure->options->timeline_iter;
  if (wanted >= 0 && step->iter != wanted)
    return;
  drawing *d = &c->kept[c->n_kept++ % KEPT];
  hec_text_free(&d->events);
  const hec_timeline_out out = {c->measure->options->timelines, &d->events, hec_timeline_pack, &d->events};
  hec_timeline_begin(&out);
  d->iter = step->iter;
  d->seconds = seconds;
  hec_status status = hec_summary_draw(&c->summary.rows[c->row], c->row, step->iter, low, timeline, &out);
  HEC_ASSERT(status == HEC_OK); /* packed into memory */
}

static void done(collector *c) {
  hec_progress_doing("executing", c->summary.rows[c->row].name);
  hec_progress_at(c->row + (double)c->n_done / c->measure->options->recording.n_steps, c->measure->options->n_policies,
                  0);
}

/* Attention and gate, forward: what hides gathers. */
static void add_before(hec_summary_row *row, const hec_program *program, const hec_timeline *timeline) {
  for (int32_t i = 0; i < timeline->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->backward || (op->role != HEC_ROLE_ATTENTION && op->role != HEC_ROLE_GATE))
      continue;
    for (int32_t r = 0; r < timeline->n_ranks; r++) {
      size_t at = (size_t)i * (size_t)timeline->n_ranks + (size_t)r;
      if (timeline->begin_ps[at] < 0)
        continue;
      row->before_s += 1e-12 * (double)(timeline->end_ps[at] - timeline->begin_ps[at]);
      row->n_before += op->role == HEC_ROLE_ATTENTION;
    }
  }
}

static void measured(void *context, const hec_replayed *iteration) {
  hec_lowering *low = iteration->low;
  const hec_timeline *timeline = iteration->timeline;
  collector *c = context;
  const hec_measure_options *o = c->measure->options;
  bool report = c->n_done++ >= o->job->warmup;
  hec_breakdown all = hec_timeline_breakdown(timeline, hec_lowering_program(low));
  if (report) {
    hec_summary_add_iteration(&c->summary.rows[c->row], low, &all, &all, 1);
    add_before(&c->summary.rows[c->row], hec_lowering_program(low), timeline);
    if (hec_summary_on_devices(o->execution) && !o->execution->virtual_time)
      hec_series_add(&c->summary.rows[c->row].late, iteration->interrupted);
  }
  if (o->files && (report || o->timeline_iter >= 0))
    keep_drawing(c, iteration->step, all.total_s, low, timeline);
  done(c);
}

static void step_measured(void *context, const hec_replayed *step) {
  collector *c = context;
  hec_breakdown all = hec_timeline_breakdown(step->timeline, step->program);
  if (c->n_done++ >= c->measure->options->job->warmup)
    hec_summary_add(&c->summary.rows[c->row], &all, &all, 1);
  done(c);
}

/* The kept iteration that is drawn goes to the timeline, the others go. */
static void choose_drawing(collector *c) {
  double median = hec_summary_median(&c->summary.rows[c->row]);
  int32_t n = c->n_kept < KEPT ? c->n_kept : KEPT, best = 0;
  for (int32_t i = 1; i < n; i++) {
    double a = fabs(c->kept[i].seconds - median), b = fabs(c->kept[best].seconds - median);
    if (a < b || (a <= b && c->kept[i].iter < c->kept[best].iter))
      best = i;
  }
  if (n > 0)
    hec_timeline_append(&(hec_timeline_out){.format = c->measure->options->timelines, .text = &c->timeline},
                        &c->kept[best].events);
  for (int32_t i = 0; i < n; i++)
    hec_text_free(&c->kept[i].events);
  c->n_kept = 0;
}

static void keep_check(collector *c, const hec_replay_check *random, const hec_replay_check *exact) {
  hec_summary_row *row = &c->summary.rows[c->row];
  hec_summary_check *check = row->check = HEC_NEW(&c->arena, hec_summary_check, 1);
  bool proves = exact->bits <= HEC_FLOAT_BITS;
  *check = (hec_summary_check){.passed = random->passed && (exact->passed || !proves),
                               .worst = random->worst,
                               .tolerance = random->tolerance,
                               .compared = random->compared,
                               .exact_equal = exact->passed,
                               .exact_bits = exact->bits,
                               .exact_compared = exact->compared};
  memcpy(check->worst_at, random->worst_at, sizeof check->worst_at);
  memcpy(check->exact_worst_at, exact->worst_at, sizeof check->exact_worst_at);
  if (check->passed)
    return;
  if (!random->passed)
    hec_text_printf(&c->failed, "%s%s: %s: error %g above %g", c->failed.length ? "; " : "", row->name,
                    random->worst_at, random->worst, random->tolerance);
  else
    hec_text_printf(&c->failed, "%s%s: %s: not equal bit for bit (error %g)", c->failed.length ? "; " : "", row->name,
                    exact->worst_at, exact->worst);
}

/* ---- The launch ---- */

static hec_status run_policy(const hec_measure *measure, hec_rank *rank, int32_t row, collector *c) {
  const hec_measure_options *o = measure->options;
  hec_replay_check exact = {.passed = true}, random = {.passed = true};
  hec_replay replay = random_replay(measure), first = exact_replay(measure);
  if (o->check)
    HEC_TRY(hec_replay_run(&first, o->policies[row], rank, &exact));
  if (c) {
    c->row = row;
    c->n_done = 0;
    replay.measured = measured;
    replay.context = c;
  }
  HEC_TRY(hec_replay_run(&replay, o->policies[row], rank, &random));
  if (c && o->files)
    choose_drawing(c);
  if (c && o->check)
    keep_check(c, &random, &exact);
  return HEC_OK;
}

static hec_status run_stages(const hec_measure *measure, hec_rank *rank, int32_t row, collector *c) {
  hec_replay_check found, none = {.passed = true, .bits = HEC_FLOAT_BITS + 1};
  hec_pipelined pipelined = pipelined_of(measure);
  if (c) {
    c->row = row;
    c->n_done = 0;
    pipelined.replay.measured = step_measured;
    pipelined.replay.context = c;
    pipelined.memory = c->memory + row * rank->n_ranks;
  }
  HEC_TRY(hec_pipelined_run(&pipelined, measure->options->policies[row], rank, &found));
  if (c && measure->options->check)
    keep_check(c, &found, &none);
  return HEC_OK;
}

static hec_status open_collector(collector *c, const hec_measure *measure) {
  const hec_measure_options *o = measure->options;
  *c = (collector){.measure = measure};
  c->summary = (hec_summary){.job = o->job,
                             .tool = o->tool,
                             .trace = o->trace,
                             .law = o->law,
                             .execution = o->execution,
                             .rows = HEC_NEW(&c->arena, hec_summary_row, o->n_policies),
                             .n_rows = o->n_policies,
                             .n_iterations = o->recording.n_steps - o->job->warmup};
  for (int32_t i = o->job->warmup; i < o->recording.n_steps; i++)
    hec_series_add(&c->summary.iters, (double)o->recording.steps[i].iter);
  for (int32_t p = 0; p < o->n_policies; p++) {
    const hec_schedule *schedule;
    HEC_TRY(hec_schedule_of(o->policies[p], o->schedule, &schedule));
    c->summary.rows[p] = hec_summary_row_of(o->policies[p], schedule, o->job->problem.n_ranks, &c->arena);
    c->summary.rows[p].executed = true;
  }
  if (o->stages)
    c->memory = HEC_NEW(&c->arena, hec_stage_memory, o->n_policies * o->stages->layout.gpus);
  hec_timeline_begin(&(hec_timeline_out){.format = o->timelines, .text = &c->timeline});
  return HEC_OK;
}

static void close_collector(collector *c) {
  hec_summary_free(&c->summary);
  hec_text_free(&c->timeline);
  hec_text_free(&c->failed);
  hec_arena_free(&c->arena);
}

/* In the order in which hec_measure_take reads them. */
static hec_status hand_over(collector *c, hec_handover *to) {
  const hec_measure_options *o = c->measure->options;
  HEC_SCOPED(hec_text) json = {0}, csv = {0}, table = {0}, page = {0};
  if (o->stages)
    (o->json ? hec_stages_json : hec_stages_table)(&c->summary, o->stages, c->memory, o->json ? &json : &table);
  else
    hec_summary_json(&c->summary, &json);
  if (!o->stages)
    hec_summary_csv(&c->summary, &csv);
  if (!o->stages && !o->json)
    hec_summary_table(&c->summary, &table);
  if (o->files) {
    HEC_SCOPED(hec_report) report = hec_report_of(&c->summary, &c->arena);
    hec_report_write(&report, &page);
  }
  hec_timeline_end(&(hec_timeline_out){.format = o->timelines, .text = &c->timeline});
  hec_text_add(&c->failed, "");
  const hec_text *texts[] = {o->json ? &json : &table, &c->failed, &json, &csv, &c->timeline, &page};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    HEC_TRY(hec_handover_put(to, texts[i]));
  return HEC_OK;
}

hec_status hec_measure_body(hec_rank *rank, void *context) {
  hec_measure *measure = context;
  collector *c = rank->rank == 0 ? hec_malloc(1, sizeof *c) : NULL;
  hec_status status = c ? open_collector(c, measure) : HEC_OK;
  for (int32_t p = 0; status == HEC_OK && p < measure->options->n_policies; p++)
    status = (measure->options->stages ? run_stages : run_policy)(measure, rank, p, c);
  if (c && status == HEC_OK)
    hec_rank_at_phase(rank, 0, "keeping the results");
  if (c && status == HEC_OK)
    status = hand_over(c, &measure->handover);
  if (c)
    close_collector(c);
  free(c);
  return status;
}

hec_status hec_measure_take(hec_measure *measure, hec_measured *m) {
  hec_text *texts[] = {&m->printed, &m->failed, &m->files.json, &m->files.csv, &m->files.timeline, &m->files.page};
  HEC_TRY(hec_handover_rewind(&measure->handover));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    HEC_TRY(hec_handover_get(&measure->handover, texts[i]));
  return HEC_OK;
}

void hec_measured_free(hec_measured *m) {
  hec_text_free(&m->printed);
  hec_text_free(&m->failed);
  hec_output_free(&m->files);
}
