/* A policy at work, what is the same for all: start, stop, counting of units, the clock of periods. */
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"
#include "runtime/plan/quota.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Expert-parallel groups ---- */

/* Each group has a run of its own, on a problem of its own ranks. Its plan becomes part of the plan of all ranks
 * (hec_plan_join).
 *
 *   history   of the group's sources
 *   units     the largest of the groups': they plan at the same time, each for itself
 *   version   the sum of the groups'
 *   t, m      the first group's
 *
 * O(groups) runs, O(copies) to join a layer. */
struct hec_policy_groups {
  int32_t n, width;
  hec_policy_run *run;   /* [n] */
  const hec_plan **plan; /* [n] theirs */
};

/* Room for the quotas of all groups. */
static void reserve_quotas(hec_policy_run *run, const hec_policy_groups *groups) {
  if (!groups->plan[0]->quota_at)
    return;
  int32_t capacity = 0;
  for (int32_t g = 0; g < groups->n; g++)
    capacity += groups->plan[g]->quota_capacity;
  hec_quota_reserve(&run->plan, run->arena, capacity);
}

/* What the groups say of themselves, over all of them. */
static void gather(hec_policy_run *run) {
  const hec_policy_groups *groups = run->groups;
  hec_plan *plan = &run->plan;
  plan->version = run->n_offered = run->n_dropped = 0;
  for (int32_t g = 0; g < groups->n; g++) {
    const hec_policy_run *own = &groups->run[g];
    run->planned = run->planned || own->planned;
    run->units = own->units > run->units ? own->units : run->units;
    run->units_once = own->units_once > run->units_once ? own->units_once : run->units_once;
    run->n_offered += own->n_offered;
    run->n_dropped += own->n_dropped;
    plan->version += own->plan.version;
    plan->slots = own->plan.slots > plan->slots ? own->plan.slots : plan->slots;
    plan->rematerialise = plan->rematerialise || own->plan.rematerialise;
  }
  memcpy(run->t, groups->run[0].t, (size_t)plan->n_layers * sizeof *run->t);
  memcpy(run->m, groups->run[0].m, (size_t)plan->n_layers * sizeof *run->m);
  memcpy(run->note, groups->run[0].note, sizeof run->note);
}

static void groups_start(hec_policy_run *run) {
  const hec_problem *problem = run->problem;
  HEC_ASSERT(!run->policy->sliced); /* slices are on all ranks */
  hec_policy_groups *groups = HEC_NEW(run->arena, hec_policy_groups, 1);
  *groups = (hec_policy_groups){.n = problem->dp,
                                .width = problem->ep,
                                .run = HEC_NEW(run->arena, hec_policy_run, problem->dp),
                                .plan = HEC_NEW(run->arena, const hec_plan *, problem->dp)};
  for (int32_t g = 0; g < groups->n; g++) {
    hec_problem *own = HEC_NEW(run->arena, hec_problem, 1);
    *own = hec_problem_of_group(problem, g, run->arena);
    groups->run[g] = hec_policy_start_under(run->policy, own, run->hides, run->arena);
    groups->plan[g] = &groups->run[g].plan;
  }
  run->groups = groups;
  run->plan.width = groups->width;
  reserve_quotas(run, groups);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    hec_plan_join(&run->plan, layer, groups->plan);
  gather(run);
}

static void groups_stop(hec_policy_run *run) {
  for (int32_t g = 0; g < run->groups->n; g++)
    hec_policy_stop(&run->groups->run[g]);
}

static void groups_decide(hec_policy_run *run) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t g = 0; g < groups->n; g++)
    hec_policy_decide(&groups->run[g], run->iter, run->micro_batch);
  for (int32_t layer = 0; run->policy->decide && layer < run->plan.n_layers; layer++)
    hec_plan_join(&run->plan, layer, groups->plan);
  gather(run);
}

/* The load as a group sees it, good for one layer: the rows of its sources stand together. */
static hec_load load_of(const hec_policy_groups *groups, int32_t group, const hec_load *load, int32_t layer) {
  hec_load own = *load;
  size_t before = (size_t)layer * (size_t)(load->n_sources - groups->width) + (size_t)group * (size_t)groups->width;
  own.n_sources = groups->width;
  own.counts += before * (size_t)load->n_experts;
  return own;
}

static void groups_refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t g = 0; g < groups->n; g++) {
    hec_load own = load_of(groups, g, load, layer);
    hec_policy_refine(&groups->run[g], layer, &own);
  }
  if (run->policy->refine)
    hec_plan_join(&run->plan, layer, groups->plan);
  gather(run);
}

static void groups_rewrite(hec_policy_run *run, hec_load *load) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t layer = 0; layer < load->n_layers; layer++)
    for (int32_t g = 0; g < groups->n; g++) {
      hec_load own = *load;
      own.n_layers = 1;
      own.n_sources = groups->width;
      own.counts = hec_load_row(load, layer, g * groups->width);
      run->policy->rewrite(&groups->run[g], &own);
    }
  gather(run);
}

static void groups_observe(hec_policy_run *run, const hec_load *load) {
  const hec_policy_groups *groups = run->groups;
  for (int32_t g = 0; g < groups->n; g++)
    hec_history_push_sources(&groups->run[g].history, load, g * groups->width, groups->width);
}

static void groups_reshard(hec_policy_run *run) {
  for (int32_t g = 0; g < run->groups->n; g++)
    run->policy->reshard(&run->groups->run[g]);
}

/* ---- Runs ---- */

/* The problem as a policy sees it whose options say more than the problem does. */
static const hec_problem *problem_of(const hec_policy *policy, const hec_problem *problem, hec_arena *arena) {
  if (!policy->given)
    return problem;
  hec_problem *own = HEC_NEW(arena, hec_problem, 1);
  *own = *problem;
  own->t = HEC_POLICY_SAYS(policy, t) ? policy->t : own->t;
  own->m = HEC_POLICY_SAYS(policy, m) ? policy->m : own->m;
  own->slots = HEC_POLICY_SAYS(policy, slots) ? policy->slots : own->slots;
  own->period = HEC_POLICY_SAYS(policy, period) ? policy->period : own->period;
  return own;
}

hec_policy_run hec_policy_start(const hec_policy *policy, const hec_problem *problem, hec_arena *arena) {
  return hec_policy_start_under(policy, problem, (hec_hiding){0}, arena);
}

hec_policy_run hec_policy_start_under(const hec_policy *policy, const hec_problem *problem, hec_hiding hides,
                                      hec_arena *arena) {
  int32_t window = policy->window > 1 ? policy->window : 1;
  problem = problem_of(policy, problem, arena);
  hec_policy_run run = {
      .policy = policy,
      .problem = problem,
      .arena = arena,
      .history = hec_history_new(arena, window, problem->n_layers, problem->n_experts),
      .plan = hec_plan_new(arena, problem, policy->sliced ? problem->n_ranks : 1),
      .link = hec_link_cost_new(problem->cluster, arena),
      .hides = hides,
      .t = HEC_NEW(arena, int32_t, problem->n_layers),
      .m = HEC_NEW(arena, int32_t, problem->n_layers),
  };
  if (policy->by_source && (problem->dp == 1 || policy->all_ranks))
    hec_history_keep_sources(arena, &run.history, problem->n_ranks);
  for (int32_t layer = 0; layer < problem->n_layers; layer++)
    run.t[layer] = run.m[layer] = -1;
  if (problem->dp > 1 && !policy->all_ranks)
    groups_start(&run);
  else
    policy->init(&run);
  return run;
}

void hec_policy_stop(hec_policy_run *run) {
  if (run->groups)
    groups_stop(run);
  hec_link_cost_free(&run->link);
}

void hec_policy_decide(hec_policy_run *run, int64_t iter, int32_t micro_batch) {
  run->iter = iter;
  run->micro_batch = micro_batch;
  run->units = run->units_once = 0;
  run->planned = false;
  if (run->groups)
    groups_decide(run);
  else if (run->policy->decide)
    run->policy->decide(run);
}

void hec_policy_refine(hec_policy_run *run, int32_t layer, const hec_load *load) {
  run->units = run->units_once = 0;
  run->planned = false;
  if (run->groups)
    groups_refine(run, layer, load);
  else if (run->policy->refine)
    run->policy->refine(run, layer, load);
}

void hec_policy_observe(hec_policy_run *run, const hec_load *load) {
  hec_history_push(&run->history, load);
  if (run->groups)
    groups_observe(run, load);
}

void hec_policy_rewrite(hec_policy_run *run, hec_load *load) {
  if (run->policy->rewrite && run->groups)
    groups_rewrite(run, load);
  else if (run->policy->rewrite)
    run->policy->rewrite(run, load);
}

void hec_policy_reshard(hec_policy_run *run) {
  if (run->policy->reshard && run->groups)
    groups_reshard(run);
  else if (run->policy->reshard)
    run->policy->reshard(run);
}

void hec_policy_keep(hec_policy_run *run, void *data, size_t bytes) {
  HEC_ASSERT(run->n_kept < HEC_POLICY_KEPT_MAX);
  run->kept[run->n_kept].data = data;
  run->kept[run->n_kept++].bytes = bytes;
}

void hec_policy_note(hec_policy_run *run, const char *format, ...) {
  size_t length = strlen(run->note);
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(run->note + length, sizeof run->note - length, format, arguments);
  va_end(arguments);
  HEC_ASSERT(n >= 0 && (size_t)n < sizeof run->note - length);
}

int32_t hec_policy_period(const hec_policy_run *run) {
  return run->problem->period != HEC_AUTO ? run->problem->period : run->policy->period;
}

bool hec_policy_due(const hec_policy_run *run, int64_t *last) {
  int32_t period = hec_policy_period(run);
  if (period <= 0 || run->micro_batch != 0 || hec_history_length(&run->history) == 0)
    return false;
  if (*last >= 0 && run->iter - *last < period)
    return false;
  *last = run->iter;
  return true;
}

/* ---- Plans outside the run ---- */

static hec_policy_run *run_of(const hec_policy_run *run, int32_t i) {
  return i == 0 ? (hec_policy_run *)(uintptr_t)run : &run->groups->run[i - 1];
}

hec_policy_plans hec_policy_plans_new(const hec_policy_run *run, hec_arena *arena) {
  hec_policy_plans plans = {.n = run->groups ? run->groups->n + 1 : 1};
  plans.plan = HEC_NEW(arena, hec_plan, plans.n);
  for (int32_t i = 0; i < plans.n; i++) {
    const hec_policy_run *of = run_of(run, i);
    plans.plan[i] = hec_plan_new(arena, of->problem, of->plan.n_slices);
    if (of->plan.quota_at)
      hec_quota_reserve(&plans.plan[i], arena, of->plan.quota_capacity);
  }
  return plans;
}

void hec_policy_plans_read(hec_policy_plans *plans, const hec_policy_run *run) {
  for (int32_t i = 0; i < plans->n; i++)
    hec_plan_assign(&plans->plan[i], &run_of(run, i)->plan);
}

static void exchange(hec_policy_plans *plans, hec_policy_run *run) {
  for (int32_t i = 0; i < plans->n; i++) {
    hec_plan *in_force = &run_of(run, i)->plan, other = *in_force;
    *in_force = plans->plan[i];
    plans->plan[i] = other;
  }
}

void hec_policy_plans_refine(hec_policy_plans *plans, hec_policy_run *run, int32_t layer, const hec_load *load) {
  exchange(plans, run);
  hec_policy_refine(run, layer, load);
  exchange(plans, run);
}

/* ---- Saved ---- */

/* A saved run, in the numbers of this machine:
 *
 *   head      what is compared with the run that takes it up
 *   records   [n_records][n_layers][n_experts] loads of the past, oldest first: all that another policy, or another number of
 *             ranks, needs
 *   runs      of the run and each group: history, homes, copies, t and m, then what the policy keeps; raw
 */
enum { SAVED_MAGIC = 0x31434548 };

typedef struct {
  uint32_t magic;
  int32_t n_layers, n_experts, n_ranks, width, n_records;
  int64_t iter;
  uint64_t policy;     /* hash of its name */
  uint64_t runs_bytes; /* of what follows the records */
  uint64_t check;      /* hash of all that follows the head */
} saved_head;

/* One walk for counting, writing and reading. */
typedef struct {
  uint8_t *to;         /* written, unless NULL */
  const uint8_t *from; /* read, unless NULL */
  size_t at;
} saved;

static void pass(saved *s, void *data, size_t bytes) {
  if (s->to)
    memcpy(s->to + s->at, data, bytes);
  if (s->from)
    memcpy(data, s->from + s->at, bytes);
  s->at += bytes;
}

static void pass_run(saved *s, hec_policy_run *run) {
  hec_plan *plan = &run->plan;
  hec_history *history = &run->history;
  size_t rows = (size_t)plan->n_layers * (size_t)plan->n_experts, layers = (size_t)plan->n_layers;
  size_t ring = (size_t)history->window * rows;
  pass(s, &history->n_seen, sizeof history->n_seen);
  pass(s, history->totals, ring * sizeof *history->totals);
  if (history->counts)
    pass(s, history->counts, ring * (size_t)history->n_sources * sizeof *history->counts);
  pass(s, plan->home, rows * (size_t)plan->n_slices * sizeof *plan->home);
  pass(s, plan->opt_home, rows * (size_t)plan->n_slices * sizeof *plan->opt_home);
  pass(s, plan->copy_at, layers * (size_t)(plan->n_experts + 1) * sizeof *plan->copy_at);
  pass(s, plan->copy_rank, layers * (size_t)plan->copy_capacity * sizeof *plan->copy_rank);
  pass(s, plan->copy_kind, layers * (size_t)plan->copy_capacity * sizeof *plan->copy_kind);
  pass(s, &plan->version, sizeof plan->version);
  pass(s, run->t, layers * sizeof *run->t);
  pass(s, run->m, layers * sizeof *run->m);
  for (int32_t i = 0; i < run->n_kept; i++)
    pass(s, run->kept[i].data, run->kept[i].bytes);
}

static void pass_runs(saved *s, const hec_policy_run *run) {
  int32_t n = run->groups ? run->groups->n + 1 : 1;
  for (int32_t i = 0; i < n; i++)
    pass_run(s, run_of(run, i));
}

static uint64_t fnv(const void *data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
  return hash;
}

static saved_head head_of(const hec_policy_run *run) {
  saved count = {0};
  pass_runs(&count, run);
  return (saved_head){.magic = SAVED_MAGIC,
                      .n_layers = run->plan.n_layers,
                      .n_experts = run->plan.n_experts,
                      .n_ranks = run->plan.n_ranks,
                      .width = run->plan.width,
                      .n_records = hec_history_length(&run->history),
                      .iter = run->iter,
                      .policy = fnv(run->policy->name, strlen(run->policy->name)),
                      .runs_bytes = count.at};
}

size_t hec_policy_save(const hec_policy_run *run, uint8_t *out) {
  saved s = {.to = out};
  saved_head head = head_of(run);
  size_t row = (size_t)head.n_experts * sizeof *run->history.totals;
  pass(&s, &head, sizeof head);
  for (int32_t age = head.n_records - 1; age >= 0; age--)
    for (int32_t layer = 0; layer < head.n_layers; layer++)
      pass(&s, (void *)(uintptr_t)hec_history_row(&run->history, age, layer), row);
  pass_runs(&s, run);
  if (out) {
    head.check = fnv(out + sizeof head, s.at - sizeof head);
    memcpy(out, &head, sizeof head);
  }
  return s.at;
}

/* Records of the past as if every source had sent the same. */
static void replay_records(hec_policy_run *run, const saved_head *head, const uint8_t *records) {
  hec_load load = {run->plan.n_layers, run->plan.n_ranks, run->plan.n_experts, NULL};
  uint64_t total, ranks = (uint64_t)load.n_sources;
  load.counts = hec_malloc(hec_load_cells(&load), sizeof *load.counts);
  for (int32_t i = 0; i < head->n_records; i++) {
    for (int32_t layer = 0; layer < load.n_layers; layer++)
      for (int32_t e = 0; e < load.n_experts; e++, records += sizeof total) {
        memcpy(&total, records, sizeof total);
        for (int32_t s = 0; s < load.n_sources; s++)
          hec_load_row(&load, layer, s)[e] = (uint32_t)(total / ranks + ((uint64_t)s < total % ranks));
      }
    hec_policy_observe(run, &load);
  }
  free(load.counts);
}

hec_status hec_policy_restore(hec_policy_run *run, const uint8_t *data, size_t bytes, bool *same) {
  saved_head head, own = head_of(run);
  if (bytes < sizeof head || (memcpy(&head, data, sizeof head), head.magic != SAVED_MAGIC))
    return hec_fail(HEC_BAD_INPUT,
                    "restore: expected what a planner saved on a machine like this, found %zu other bytes", bytes);
  if (head.n_layers != own.n_layers || head.n_experts != own.n_experts)
    return hec_fail(HEC_BAD_INPUT,
                    "restore: expected the state of %" PRId32 " layers and %" PRId32 " experts, found %" PRId32
                    " and %" PRId32,
                    own.n_layers, own.n_experts, head.n_layers, head.n_experts);
  size_t row = (size_t)head.n_layers * (size_t)head.n_experts * sizeof(uint64_t);
  size_t runs_at = sizeof head + (head.n_records > 0 ? (size_t)head.n_records : 0) * row;
  if (head.n_records < 0 || head.iter < 0 || runs_at > bytes || bytes - runs_at != head.runs_bytes)
    return hec_fail(HEC_BAD_INPUT, "restore: expected %zu bytes, found %zu: the state was cut off",
                    runs_at + (size_t)head.runs_bytes, bytes);
  if (fnv(data + sizeof head, bytes - sizeof head) != head.check)
    return hec_fail(HEC_BAD_INPUT, "restore: the state was damaged: its check sum does not fit");
  *same = head.policy == own.policy && head.n_ranks == own.n_ranks && head.width == own.width &&
          head.runs_bytes == own.runs_bytes;
  run->iter = head.iter;
  if (*same) {
    saved s = {.from = data, .at = runs_at};
    pass_runs(&s, run);
    return HEC_OK;
  }
  replay_records(run, &head, data + sizeof head);
  hec_policy_reshard(run);
  return HEC_OK;
}
