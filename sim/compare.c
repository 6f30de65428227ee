/* One streaming pass: read an iteration, lower and simulate it for each policy, add to its row. An iteration with
 * one-off operations is simulated twice, with and without them, so that the mean can weigh them by the stride. Beside it
 * the bound of the row's class on the same loads, once for all rows of one class. */
#include "sim/compare.h"

#include "runtime/plan/bound/bound.h"
#include "sim/law.h"

#include <inttypes.h>
#include <string.h>

/* One policy at work. */
typedef struct {
  hec_lowering *low;
  hec_sim *sim;
  hec_timeline timeline;
  const hec_schedule *schedule;
} lane;

static hec_status schedule_of(const hec_compare_options *options, int32_t p, const hec_schedule **schedule) {
  return hec_schedule_of(options->policies[p], options->schedules ? options->schedules[p] : options->schedule,
                         schedule);
}

static hec_status open_lanes(const hec_job *job, const hec_compare_options *options, hec_arena *arena, lane *lanes) {
  for (int32_t p = 0; p < options->n_policies; p++) {
    const hec_schedule *schedule;
    HEC_TRY(hec_policy_suits(options->policies[p], &job->problem));
    HEC_TRY(schedule_of(options, p, &schedule));
    lanes[p].schedule = schedule;
    lanes[p].low = hec_lowering_new(&job->problem, options->policies[p], schedule, options->collective, arena);
    lanes[p].sim = hec_sim_new(&job->problem, options->law, arena);
  }
  return HEC_OK;
}

static void close_lanes(lane *lanes, int32_t n) {
  for (int32_t p = 0; p < n; p++) {
    hec_lowering_free(lanes[p].low);
    hec_sim_free(lanes[p].sim);
    hec_timeline_free(&lanes[p].timeline);
  }
}

/* Bounds of the iteration at hand. */
typedef struct {
  hec_bound *bound;
  bool closed_form;                          /* of the law */
  hec_load rewritten;                        /* of a policy that computes something else than the gate chose */
  double known_s[HEC_N_BOUND_CLASSES][2][2]; /* by class and schedule: tokens_wait, by_node; 0: not yet */
} bounds;

static double bound_s_of(bounds *b, const lane *one, const hec_iteration *iteration) {
  const hec_policy_run *run = hec_lowering_run(one->low);
  hec_bound_class class = hec_bound_class_of(run->policy, run->problem);
  double *known_s = &b->known_s[class][one->schedule->tokens_wait][one->schedule->by_node];
  if (!run->policy->rewrite && *known_s > 0)
    return *known_s;
  hec_bound_begin(b->bound, (hec_bound_case){.class = class,
                                             .tokens_wait = one->schedule->tokens_wait,
                                             .by_node = one->schedule->by_node,
                                             .closed_form = b->closed_form,
                                             .n_micro_batches = iteration->n_micro_batches});
  for (int32_t mb = 0; mb < iteration->n_micro_batches; mb++) {
    const hec_load *load = &iteration->loads[iteration->n_loads == 1 ? 0 : mb];
    if (run->policy->rewrite) {
      hec_load_copy(load, &b->rewritten);
      hec_lowering_rewrite(one->low, &b->rewritten);
      load = &b->rewritten;
    }
    hec_bound_add(b->bound, load);
  }
  double total_s = hec_bound_end(b->bound).total_s;
  if (!run->policy->rewrite)
    *known_s = total_s;
  return total_s;
}

static hec_status simulate(lane *one, const hec_iteration *iteration, const hec_compare_options *options, bool report,
                           hec_summary_row *row) {
  hec_lower_iteration(one->low, iteration->iter, iteration->loads, iteration->n_loads, iteration->n_micro_batches);
  if (!report)
    return HEC_OK;
  const hec_program *program = hec_lowering_program(one->low);
  hec_breakdown all, ordinary;
  bool on_time = one->schedule->bound; /* a bound knows of no late rank: hec_sim_options */
  if (hec_lowering_one_off(one->low)) {
    hec_sim_run(one->sim, program, (hec_sim_options){.without_one_off = true, .on_time = on_time}, &one->timeline);
    ordinary = hec_timeline_breakdown(&one->timeline, program);
  }
  hec_sim_run(one->sim, program, (hec_sim_options){.on_time = on_time}, &one->timeline);
  if (hec_timeline_end_ps(&one->timeline) >= HEC_TIME_END_PS)
    return hec_fail(HEC_BAD_INPUT,
                    "%s, iteration %" PRId64 ": expected a simulated time below %.0f days, found a longer one; "
                    "check --cluster, --model and --tokens",
                    row->name, iteration->iter, (double)HEC_TIME_END_PS * 1e-12 / 86400);
  if (options->check) {
    hec_program_check(program);
    hec_timeline_check(&one->timeline, program);
  }
  all = hec_timeline_breakdown(&one->timeline, program);
  hec_summary_add_iteration(row, one->low, &all, hec_lowering_one_off(one->low) ? &ordinary : &all, iteration->stride);
  return HEC_OK;
}

static void add_bounds(bounds *b, const hec_iteration *iteration, lane *lanes, hec_summary *summary) {
  memset(b->known_s, 0, sizeof b->known_s);
  for (int32_t p = 0; p < summary->n_rows; p++) {
    const hec_schedule *schedule = lanes[p].schedule;
    const hec_policy_run *run = hec_lowering_run(lanes[p].low);
    if (schedule->bound) /* is one itself */
      continue;
    summary->rows[p].bound_class = hec_bound_class_name[hec_bound_class_of(run->policy, run->problem)];
    hec_series_add(&summary->rows[p].bound_s, bound_s_of(b, &lanes[p], iteration));
  }
}

static hec_status run_all(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options, lane *lanes,
                          hec_summary *summary, hec_arena *arena) {
  hec_feed *feed = hec_feed_new(job, reader);
  hec_status status = HEC_OK;
  const hec_iteration *iteration;
  const hec_problem *problem = &job->problem;
  bounds b = {.bound = hec_bound_new(problem, arena),
              .closed_form = options->law->closed_form,
              .rewritten = hec_load_new(arena, problem->n_layers, problem->n_ranks, problem->n_experts)};
  while ((status = hec_feed_next(feed, &iteration)) == HEC_OK && iteration) {
    bool report = iteration->index >= job->warmup;
    for (int32_t p = 0; status == HEC_OK && p < options->n_policies; p++)
      status = simulate(&lanes[p], iteration, options, report, &summary->rows[p]);
    if (status == HEC_OK && report)
      add_bounds(&b, iteration, lanes, summary);
    if (status != HEC_OK)
      break;
    summary->n_iterations += report;
    if (options->progress)
      options->progress(iteration->index + 1, options->progress_context);
  }
  hec_feed_free(feed);
  if (status == HEC_OK && summary->n_iterations == 0)
    status = hec_fail(HEC_BAD_INPUT, "--warmup: no iteration is left to report");
  return status;
}

hec_status hec_compare(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                       hec_arena *arena, hec_summary *summary) {
  *summary = (hec_summary){.job = job,
                           .law = hec_law_name(options->law),
                           .not_modelled = hec_law_limits(options->law),
                           .n_rows = options->n_policies,
                           .rows = HEC_NEW(arena, hec_summary_row, options->n_policies)};
  lane *lanes = HEC_NEW(arena, lane, options->n_policies);
  hec_status status = open_lanes(job, options, arena, lanes);
  for (int32_t p = 0; status == HEC_OK && p < options->n_policies; p++) {
    const hec_policy *policy = options->policies[p];
    const hec_schedule *schedule = NULL;
    status = schedule_of(options, p, &schedule);
    if (status == HEC_OK)
      summary->rows[p] = hec_summary_row_of(policy, schedule, job->problem.n_ranks, arena);
  }
  if (status == HEC_OK)
    hec_summary_tell_apart(summary, arena);
  if (status == HEC_OK)
    status = run_all(job, reader, options, lanes, summary, arena);
  close_lanes(lanes, options->n_policies);
  return status;
}

/* Runs the iteration in every lane that wants it drawn, and only lowers it in the others (their history must go on). */
static hec_status draw(const hec_job *job, const hec_iteration *iteration, const hec_compare_options *options,
                       hec_summary *summary, lane *lanes, int64_t iter, const hec_timeline_out *out, int32_t *drawn) {
  for (int32_t p = 0; p < options->n_policies; p++) {
    hec_lower_iteration(lanes[p].low, iteration->iter, iteration->loads, iteration->n_loads,
                        iteration->n_micro_batches);
    bool wanted = iter >= 0 ? iteration->iter == iter
                            : iteration->index - job->warmup == hec_summary_nearest_median(&summary->rows[p]);
    if (!wanted)
      continue;
    hec_sim_run(lanes[p].sim, hec_lowering_program(lanes[p].low),
                (hec_sim_options){.on_time = lanes[p].schedule->bound}, &lanes[p].timeline);
    HEC_TRY(hec_summary_draw(&summary->rows[p], p, iteration->iter, lanes[p].low, &lanes[p].timeline, out));
    (*drawn)++;
  }
  return HEC_OK;
}

hec_status hec_compare_timeline(const hec_job *job, hec_trace_reader *reader, const hec_compare_options *options,
                                hec_summary *summary, int64_t iter, hec_arena *arena, const hec_timeline_out *out) {
  lane *lanes = HEC_NEW(arena, lane, options->n_policies);
  HEC_TRY(open_lanes(job, options, arena, lanes));
  hec_feed *feed = hec_feed_new(job, reader);
  hec_status status = HEC_OK;
  const hec_iteration *iteration;
  int32_t drawn = 0;
  hec_timeline_begin(out);
  while (drawn < options->n_policies && (status = hec_feed_next(feed, &iteration)) == HEC_OK && iteration)
    if ((status = draw(job, iteration, options, summary, lanes, iter, out, &drawn)) != HEC_OK)
      break;
  hec_timeline_end(out);
  hec_feed_free(feed);
  close_lanes(lanes, options->n_policies);
  if (status == HEC_OK && drawn == 0)
    status = iter >= 0 ? hec_fail(HEC_BAD_INPUT, "--timeline-iter: the trace has no iteration %" PRId64, iter)
                       : hec_fail(HEC_BAD_INPUT, "the trace was changed while it was read");
  return status;
}
