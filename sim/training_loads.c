/* Policies over records, in parallel, a few records at a time: see training_loads.h. Memory: loads of these records for the group, and
 * of each policy its plan, its history and the rows of one rank. */
#include "sim/training_loads.h"

#include "runtime/base/pool.h"
#include "runtime/base/progress.h"
#include "runtime/plan/dispatch/dispatch.h"
#include "sim/training_moves.h"

#include <string.h>

enum { BEFORE_MAX = 5, TOGETHER_BYTES = 64 << 20 };

/* One policy at work. */
typedef struct {
  hec_arena arena;
  hec_policy_run run;
  hec_routing routing;
  hec_load rewritten;
  hec_training_moves moves;
  hec_layer_load *record; /* [records of the step][layers of the trace] */
  double *gather_s;       /* [records of the step][layers of the trace][2] */
  double first_s, each_s; /* moves before the step; within it */
  double sums_s, last_s;  /* gradients of residents: of plans that changed within the step; of the last one */
  int32_t sharded;        /* hec_training_routing */
  int32_t *copies;        /* scratch [3][n_ranks] */
  uint8_t *had;           /* [n_layers][n_experts][n_ranks] 1: a guest in the record before */
  bool gathers;
} row_run;

/* A record as a policy sees it. */
typedef struct {
  hec_load load;
  int32_t index;     /* those below n_before come before the step */
  uint64_t *offered; /* [layers of the trace] assignments, with those that a capacity drops */
  uint64_t dropped;  /* by a capacity, all layers */
} seen;

typedef struct {
  const hec_training_loads_of *of;
  hec_training_loads *loads;
  row_run *runs;  /* [n_policies] */
  int32_t *order; /* [n_policies] whoever plans longest begins first */
  seen *records;  /* [n_records] at hand */
  int32_t n_records;
  uint64_t n_offered, n_dropped; /* of the step's records */
} work;

/* Assignments that cross ranks, at the rank that sends or receives most, over the mean of an even spread. */
static double received(const hec_routing *routing, double mean) {
  int32_t n = routing->n_ranks;
  uint64_t max = 0;
  for (int32_t r = 0; r < n; r++) {
    uint64_t in = 0, out = 0;
    for (int32_t o = 0; o < n; o++) {
      in += o == r ? 0 : routing->pair[(int64_t)o * n + r];
      out += o == r ? 0 : routing->pair[(int64_t)r * n + o];
    }
    max = in > max ? in : max;
    max = out > max ? out : max;
  }
  return n > 1 && mean > 0 ? (double)max / (mean * (double)(n - 1) / (double)n) : 1;
}

/* Copies of experts at the rank that has most. Guests that the layer has had in the record before stay for both: they are kept
 * once. */
static void count_copies(row_run *one, const hec_plan *plan, int32_t layer, hec_layer_load *to) {
  int32_t *guests = one->copies, *kept = guests + plan->n_ranks, *added = kept + plan->n_ranks;
  int32_t own = plan->n_experts / plan->n_ranks;
  uint8_t *had = one->had + (int64_t)layer * plan->n_experts * plan->n_ranks;
  memset(one->copies, 0, 3 * (size_t)plan->n_ranks * sizeof *one->copies);
  for (int32_t e = 0; e < plan->n_experts; e++, had += plan->n_ranks) {
    hec_copies held = hec_plan_copies(plan, layer, e);
    kept[hec_plan_home(plan, layer, e)] += plan->n_slices == 1;
    for (int32_t i = 0; i < held.n; i++) {
      bool guest = held.kind[i] == HEC_COPY_GUEST;
      *(guest ? &guests[held.rank[i]] : &kept[held.rank[i]]) += 1;
      added[held.rank[i]] += guest && !(had[held.rank[i]] & 1);
      had[held.rank[i]] |= guest ? 2 : 0;
    }
    for (int32_t r = 0; r < plan->n_ranks; r++)
      had[r] >>= 1;
  }
  to->guests_again = plan->rematerialise;
  to->replicas = plan->slots > own ? plan->slots - own : 0;
  for (int32_t r = 0; r < plan->n_ranks; r++) {
    to->guests = guests[r] > to->guests ? guests[r] : to->guests;
    to->guests_kept = !plan->rematerialise && added[r] > to->guests_kept ? added[r] : to->guests_kept;
    to->replicas = kept[r] - own > to->replicas ? kept[r] - own : to->replicas;
  }
}

/* Of the busiest rank. Its rows are on the arena. */
static hec_layer_load load_of(const hec_routing *routing, double mean, hec_arena *arena) {
  int32_t busiest = 0;
  for (int32_t r = 1; r < routing->n_ranks; r++)
    busiest = routing->rank_tokens[r] > routing->rank_tokens[busiest] ? r : busiest;
  int32_t from = routing->expert_at[busiest], n = routing->expert_at[busiest + 1] - from;
  int32_t *rows = HEC_NEW(arena, int32_t, n + 1);
  for (int32_t i = 0; i < n; i++)
    rows[i] = (int32_t)routing->tokens[from + i];
  return (hec_layer_load){.rows = rows, .n = n, .received = received(routing, mean)};
}

static double above(double s, double hidden_s) {
  return s > hidden_s ? s - hidden_s : 0;
}

/* Of a plan that never changes and keeps experts in slices: what a rank gathers for each pass is known long before. */
static int32_t sharded_of(const hec_policy_run *run) {
  const hec_plan *plan = &run->plan;
  if (run->policy->decide || run->policy->refine || plan->n_slices == 1)
    return 0;
  int32_t n = 0;
  for (int32_t e = 0; e < plan->n_experts; e++)
    n += hec_plan_copies(plan, 0, e).n > 0;
  return n;
}

/* Decides after the gate, and says what the layer's copies cost. Those that stand before it are gathered for this micro-batch, too,
 * unless they are what the gate before this one chose. */
static void refine(row_run *one, int32_t layer, const hec_load *load, double exposed_s[2]) {
  hec_policy_run *run = &one->run;
  if (one->sharded > 0) /* the step prices them */
    return;
  double window_s = hec_problem_window_s(run->problem, layer);
  bool stand = run->policy->decide || !run->policy->refine;
  double before_s = stand ? hec_training_gather_s(&one->moves, run, layer, false) : 0, after_s = before_s;
  hec_policy_refine(run, layer, load);
  if (run->policy->refine)
    after_s = hec_training_gather_s(&one->moves, run, layer, false);
  double home_s = hec_training_gather_s(&one->moves, run, layer, true) + (run->plan.rematerialise ? after_s : 0);
  exposed_s[0] = above(before_s, window_s) + above(after_s, before_s);
  exposed_s[1] = above(home_s, 2 * window_s);
  one->gathers = one->gathers || exposed_s[0] > 0 || exposed_s[1] > 0;
}

/* Of a policy that decides once in a period the step bears its part. */
static void move(row_run *one, int32_t at) {
  if (at > 0 && one->run.plan.version != one->moves.before.version)
    one->sums_s += hec_training_replicas_s(&one->moves, &one->run);
  double s = hec_training_migration_s(&one->moves, &one->run);
  int32_t period = hec_policy_period(&one->run);
  if (one->run.policy->migrates_beside || at < 0)
    return;
  if (at == 0)
    one->first_s = s / (double)(period > 1 ? period : 1);
  else
    one->each_s += s;
}

static void plan_record(const work *w, int32_t item, const seen *record_at) {
  row_run *one = &w->runs[item];
  hec_policy_run *run = &one->run;
  const hec_load *load = &record_at->load;
  int32_t n_before = w->loads->n_before, at = record_at->index - n_before, n_layers = run->problem->n_layers;
  if (run->policy->rewrite) {
    hec_load_copy(load, &one->rewritten);
    hec_policy_rewrite(run, &one->rewritten);
    load = &one->rewritten;
  }
  run->iter = at < 0 ? 0 : 1;
  hec_policy_decide(run, run->iter, at < 0 ? record_at->index : at);
  move(one, at);
  for (int32_t l = 0; l < n_layers; l++) {
    if (at < 0) {
      hec_policy_refine(run, l, load);
      continue;
    }
    refine(one, l, load, &one->gather_s[2 * ((int64_t)at * n_layers + l)]);
    hec_routing_make(&one->routing, run->policy->dispatch, run->problem, &run->plan, load, l);
    hec_layer_load *record = &one->record[(int64_t)at * n_layers + l];
    *record = load_of(&one->routing, (double)record_at->offered[l] / (double)run->problem->n_ranks, &one->arena);
    count_copies(one, &run->plan, l, record);
    record->guests_ahead = one->sharded > 0;
    hec_series_add(&w->loads->of[item].overload, hec_routing_overload(&one->routing));
  }
  hec_policy_observe(run, load);
  if (at == w->loads->n_records - 1)
    one->last_s = hec_training_replicas_s(&one->moves, run);
}

static void plan_records(void *context, int32_t worker, int64_t item) {
  const work *w = context;
  (void)worker;
  for (int32_t i = 0; i < w->n_records; i++)
    plan_record(w, w->order[item], &w->records[i]);
}

/* A trace of one record has it before the step and in it. */
static hec_status count(const hec_training_loads_of *of, hec_trace_reader *reader, hec_training_loads *loads) {
  int32_t before_max = of->before_max > 0 ? of->before_max : BEFORE_MAX;
  int32_t before = of->warmup >= 0 ? of->warmup : before_max, n;
  int64_t groups = of->n_groups > 1 ? of->n_groups : 1, all = groups * of->n_micro;
  int32_t wanted = of->n_micro > HEC_TRAINING_RECORDS ? of->n_micro : HEC_TRAINING_RECORDS;
  wanted = all < wanted ? (int32_t)all : wanted;
  wanted = of->records > 0 && of->records < wanted ? of->records : wanted;
  HEC_TRY(hec_trace_count(reader, before + wanted, &n));
  if (of->warmup < 0 && before > n / 2)
    before = n / 2;
  if (n > 1 && before >= n)
    return hec_fail(HEC_BAD_INPUT, "`warmup`: expected less than the trace's %d records, found %d", (int)n,
                    (int)before);
  loads->seen = n == 1;
  loads->n_before = n == 1 ? 1 : before;
  loads->n_records = n == 1 ? 1 : n - before;
  loads->n_records = loads->n_records < wanted ? loads->n_records : wanted;
  groups = groups < loads->n_records ? groups : loads->n_records;
  loads->n_groups = groups < HEC_TRAINING_GROUPS ? (int32_t)groups : HEC_TRAINING_GROUPS;
  return HEC_OK;
}

static void start(work *w, hec_arena *arena) {
  const hec_problem *problem = &w->of->job->problem;
  w->runs = HEC_NEW(arena, row_run, w->of->n_policies);
  for (int32_t p = 0; p < w->of->n_policies; p++) {
    row_run *one = &w->runs[p];
    one->run = hec_policy_start(w->of->policies[p], problem, &one->arena);
    one->routing = hec_routing_new(&one->arena, problem);
    one->moves = hec_training_moves_new(&one->run, w->of->training, &one->arena);
    one->sharded = sharded_of(&one->run);
    one->copies = HEC_NEW(&one->arena, int32_t, 3 * problem->n_ranks);
    one->had = HEC_NEW(&one->arena, uint8_t, (int64_t)problem->n_layers * problem->n_experts * problem->n_ranks);
    one->record = HEC_NEW(&one->arena, hec_layer_load, (int64_t)w->loads->n_records * problem->n_layers);
    one->gather_s = HEC_NEW(&one->arena, double, (int64_t)w->loads->n_records * problem->n_layers * 2);
    if (w->of->policies[p]->rewrite)
      one->rewritten = hec_load_new(&one->arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  }
}

/* Before any policy sees the record: what is left is what ranks send. */
static void drop(double of_mean, seen *record) {
  hec_load *load = &record->load;
  double cells = (double)load->n_sources * (double)load->n_experts;
  record->dropped = 0;
  for (int32_t l = 0; l < load->n_layers; l++) {
    record->offered[l] = hec_load_layer_total(load, l);
    double exact = of_mean * (double)record->offered[l] / cells;
    uint32_t capacity = exact < (double)UINT32_MAX ? (uint32_t)exact : UINT32_MAX;
    capacity += (double)capacity < exact && capacity < UINT32_MAX;
    record->dropped += of_mean > 0 ? hec_load_cap(load, l, capacity) : 0;
  }
}

static void count_dropped(work *w, const seen *record) {
  for (int32_t l = 0; l < record->load.n_layers; l++) {
    w->n_offered += record->offered[l];
    w->loads->n_empty += record->offered[l] == 0;
  }
  w->n_dropped += record->dropped;
}

/* Record `index`, or the only one, once more; `before`: the one before. */
static hec_status read_record(work *w, hec_trace_reader *reader, hec_load_remainder *order, int32_t index,
                              const seen *before, seen *to) {
  const hec_trace_record *record;
  HEC_TRY(hec_trace_next(reader, &record));
  to->index = index;
  if (record) {
    HEC_TRY(hec_job_load(w->of->job, record, &to->load, order));
    drop(w->of->capacity, to);
  } else if (before != to) {
    hec_load_copy(&before->load, &to->load);
    memcpy(to->offered, before->offered, (size_t)to->load.n_layers * sizeof *to->offered);
    to->dropped = before->dropped;
  }
  if (index >= w->loads->n_before)
    count_dropped(w, to);
  return HEC_OK;
}

static seen *records_new(const hec_problem *p, int32_t n, hec_arena *arena) {
  seen *records = HEC_NEW(arena, seen, n);
  for (int32_t i = 0; i < n; i++)
    records[i] = (seen){.load = hec_load_new(arena, p->n_layers, p->n_ranks, p->n_experts),
                        .offered = HEC_NEW(arena, uint64_t, p->n_layers)};
  return records;
}

/* So many that threads seldom wait for the last policy; memory limits it. */
static int32_t together(const hec_problem *p, int32_t n) {
  double bytes = (double)p->n_layers * (double)p->n_ranks * (double)p->n_experts * sizeof(uint32_t);
  double fit = TOGETHER_BYTES / bytes;
  return fit >= n ? n : fit > 1 ? (int32_t)fit : 1;
}

/* Whose plans come from a planner that weighs whole layers, then the others in their order. */
static int32_t *order_of(const hec_training_loads_of *of, hec_arena *arena) {
  int32_t *order = HEC_NEW(arena, int32_t, of->n_policies), n = 0;
  for (int late = 0; late < 2; late++)
    for (int32_t p = 0; p < of->n_policies; p++)
      if ((of->policies[p]->portfolio == 0) == late)
        order[n++] = p;
  return order;
}

static hec_status plan_all(work *w, hec_trace_reader *reader, hec_pool *pool, hec_arena *scratch) {
  const hec_problem *problem = &w->of->job->problem;
  hec_load_remainder *order =
      HEC_NEW(scratch, hec_load_remainder, (size_t)problem->n_ranks * (size_t)problem->n_experts);
  int32_t n = w->loads->n_before + w->loads->n_records;
  int32_t most = together(problem, n);
  w->order = order_of(w->of, scratch);
  w->records = records_new(problem, most, scratch);
  if (!w->of->silent)
    hec_progress_stage("planning micro-batches", "records");
  for (int32_t first = 0; first < n; first += w->n_records) {
    w->n_records = n - first < most ? n - first : most;
    for (int32_t i = 0; i < w->n_records; i++)
      HEC_TRY(read_record(w, reader, order, first + i, &w->records[i > 0 ? i - 1 : 0], &w->records[i]));
    hec_pool_run(pool, &(hec_pool_job){.n = w->of->n_policies, .work = plan_records, .context = w});
    if (!w->of->silent)
      hec_progress_at((double)(first + w->n_records), (double)n, 0);
  }
  return HEC_OK;
}

/* Layers of the trace to those of the model, records to micro-batches. */
static void hand_out(const work *w, int32_t p, hec_arena *arena) {
  const hec_training_loads_of *of = w->of;
  row_run *one = &w->runs[p];
  hec_training_routing *to = &w->loads->of[p];
  int32_t n_trace = of->job->problem.n_layers, n_records = w->loads->n_records;
  for (int64_t i = 0; i < (int64_t)n_records * n_trace; i++) {
    hec_layer_load *load = &one->record[i];
    int32_t *rows = HEC_NEW(arena, int32_t, load->n + 1);
    memcpy(rows, load->rows, (size_t)load->n * sizeof *rows);
    load->rows = rows; /* the policy's own memory goes */
  }
  int64_t n = (int64_t)w->loads->n_groups * of->n_layers * of->n_micro, turn = of->n_groups > 1 ? of->n_groups : 1;
  to->loads = HEC_NEW(arena, hec_layer_load, n);
  to->gather_s = one->gathers ? HEC_NEW(arena, double, n * 2) : NULL;
  for (int64_t at = 0; at < n; at++) {
    int64_t m = at % of->n_micro, l = at / of->n_micro % of->n_layers, g = at / of->n_micro / of->n_layers;
    int64_t from = (m * turn + g) % n_records * n_trace + l * n_trace / of->n_layers;
    to->loads[at] = one->record[from];
    if (one->gathers)
      memcpy(to->gather_s + 2 * at, one->gather_s + 2 * from, 2 * sizeof(double));
  }
  to->sharded = one->sharded;
  double part = (double)of->n_layers / (double)n_trace / (double)of->n_stages,
         again = (double)of->n_micro / (double)n_records;
  to->moves_s = (one->first_s + one->each_s * again) * part;
  to->replicas_s = (one->last_s + one->sums_s * again) * part;
  double left = w->n_offered > 0 ? 1 - (double)w->n_dropped / (double)w->n_offered : 1;
  if (one->run.n_offered > 0) /* the policy drops of what a capacity has left */
    left *= 1 - (double)one->run.n_dropped / (double)one->run.n_offered;
  to->dropped_share = 1 - left;
}

hec_status hec_training_loads_make(const hec_training_loads_of *of, hec_trace_reader *reader, hec_arena *arena,
                                   hec_training_loads *loads) {
  HEC_SCOPED(hec_arena) scratch = {0};
  work w = {.of = of, .loads = loads};
  *loads = (hec_training_loads){.of = HEC_NEW(arena, hec_training_routing, of->n_policies)};
  HEC_TRY(count(of, reader, loads));
  start(&w, &scratch);
  HEC_OPENED(hec_pool) *pool = hec_pool_new(of->n_threads < of->n_policies ? of->n_threads : of->n_policies);
  hec_status status = plan_all(&w, reader, pool, &scratch);
  for (int32_t p = 0; p < of->n_policies; p++) {
    if (status == HEC_OK)
      hand_out(&w, p, arena);
    hec_policy_stop(&w.runs[p].run);
    hec_training_moves_free(&w.runs[p].moves);
    hec_arena_free(&w.runs[p].arena);
  }
  return status;
}

void hec_training_loads_free(const hec_training_loads_of *of, hec_training_loads *loads) {
  for (int32_t p = 0; loads->of && p < of->n_policies; p++)
    hec_series_free(&loads->of[p].overload);
}
