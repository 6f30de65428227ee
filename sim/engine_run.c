/* The event engine.
 *
 * Each (rank, lane) is an in-order queue; its head starts when the lane is free and the head's dependencies on that
 * rank have ended. Computing takes time on a device of capacity 1, or 1 - comm_share while a communication operation is
 * posted on the rank (its kernel holds SMs). When that changes, the seconds of work left are kept and the end is
 * rescheduled. Exchanges are the law's. Flows run in the fluid solver (double seconds since the start of the busy
 * period). Everything else is an event in a binary heap ordered by (time, sequence). When a heap event and a flow's end
 * fall on the same picosecond the flow's end goes first.
 *
 * Cost: O(log(lanes * ranks)) per event, O(dependencies) per start, plus the law's. */
#include "sim/engine.h"

#include "runtime/base/arena.h"
#include "runtime/program/walk.h"
#include "runtime/program/duration.h"
#include "sim/law.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { EVENT_END, EVENT_COMPUTE_END, EVENT_FLOW, EVENT_START } event_kind;

typedef struct {
  int64_t time_ps;
  uint64_t sequence;
  event_kind kind;
  int32_t a, b; /* END: op, rank; COMPUTE_END: rank, version; FLOW: exchange, flow; START: rank */
  double amount;
} event;

/* What the device of a rank computes. */
typedef struct {
  int32_t op;      /* -1: nothing */
  int32_t version; /* of the end event that counts */
  double left_s;   /* seconds of work at full capacity, at since_ps */
  int64_t since_ps;
} computing;

struct hec_engine {
  const hec_problem *problem;
  const hec_law *law;
  const hec_program *program;
  hec_sim_options options;
  hec_link_cost *cost;
  hec_timeline *timeline;
  hec_arena arena;
  event *heap;
  size_t n_heap, heap_capacity;
  uint64_t sequence;
  int64_t now_ps;
  int32_t *lane_op; /* [HEC_N_LANES][n of lane] ids of the lane's operations */
  int32_t lane_at[HEC_N_LANES + 1];
  int32_t *head;          /* [n_ranks * HEC_N_LANES] next position in the lane's list */
  uint8_t *busy;          /* [n_ranks * HEC_N_LANES] the head has started */
  computing *device;      /* [n_ranks] */
  int32_t *comm_active;   /* [n_ranks] communication operations posted and not ended */
  hec_exchange **running; /* [n_ops] */
  hec_fluid *fluid;
  int64_t fluid_base_ps;
};

int64_t hec_engine_now(const hec_engine *engine) {
  return engine->now_ps;
}
const hec_problem *hec_engine_problem(const hec_engine *engine) {
  return engine->problem;
}
hec_link_cost *hec_engine_link_cost(hec_engine *engine) {
  return engine->cost;
}
const hec_program *hec_engine_program(const hec_engine *engine) {
  return engine->program;
}

static bool earlier(const event *a, const event *b) {
  return a->time_ps != b->time_ps ? a->time_ps < b->time_ps : a->sequence < b->sequence;
}

static void push(hec_engine *engine, event e) {
  HEC_ASSERT(e.time_ps >= engine->now_ps);
  e.sequence = engine->sequence++;
  HEC_RESERVE(engine->heap, engine->heap_capacity, engine->n_heap + 1);
  size_t i = engine->n_heap++;
  for (; i > 0 && earlier(&e, &engine->heap[(i - 1) / 2]); i = (i - 1) / 2)
    engine->heap[i] = engine->heap[(i - 1) / 2];
  engine->heap[i] = e;
}

static event pop(hec_engine *engine) {
  event top = engine->heap[0], last = engine->heap[--engine->n_heap];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < engine->n_heap; i = child) {
    if (child + 1 < engine->n_heap && earlier(&engine->heap[child + 1], &engine->heap[child]))
      child++;
    if (!earlier(&engine->heap[child], &last))
      break;
    engine->heap[i] = engine->heap[child];
  }
  engine->heap[i] = last;
  return top;
}

static size_t cell(const hec_engine *engine, int32_t op, int32_t rank) {
  return (size_t)op * (size_t)engine->program->n_ranks + (size_t)rank;
}

/* Seconds of work still to do now, and the event that ends it at the present capacity. */
static void schedule_compute(hec_engine *engine, int32_t rank) {
  computing *device = &engine->device[rank];
  double capacity = engine->comm_active[rank] > 0 ? 1 - engine->problem->cluster->devices[rank].comm_share : 1;
  int64_t end = engine->now_ps + hec_seconds_to_ps(device->left_s / capacity);
  device->since_ps = engine->now_ps;
  push(engine, (event){.time_ps = end, .kind = EVENT_COMPUTE_END, .a = rank, .b = ++device->version});
}

static void change_comm(hec_engine *engine, int32_t rank, int32_t change) {
  double share = engine->problem->cluster->devices[rank].comm_share;
  bool before = engine->comm_active[rank] > 0;
  computing *device = &engine->device[rank];
  if (share > 0 && device->op >= 0 && before != (engine->comm_active[rank] + change > 0)) {
    double passed_s = (double)(engine->now_ps - device->since_ps) * 1e-12;
    device->left_s -= passed_s * (before ? 1 - share : 1);
    device->left_s = device->left_s > 0 ? device->left_s : 0;
    engine->comm_active[rank] += change;
    schedule_compute(engine, rank);
    return;
  }
  engine->comm_active[rank] += change;
}

static bool is_comm(const hec_op *op) {
  return op->kind == HEC_OP_EXCHANGE || op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS;
}

static void wake(hec_engine *engine, int32_t rank);

static void free_exchange(hec_engine *engine, int32_t op) {
  hec_arena arena = engine->running[op]->arena; /* in which the exchange itself is */
  hec_arena_free(&arena);
  engine->running[op] = NULL;
}

static void end_exchange(hec_engine *engine, int32_t op) {
  hec_exchange *x = engine->running[op];
  if (++x->n_ended == x->n_parts)
    free_exchange(engine, op);
}

static void finish(hec_engine *engine, int32_t op, int32_t rank) {
  const hec_op *row = &engine->program->ops[op];
  engine->timeline->end_ps[cell(engine, op, rank)] = engine->now_ps;
  if (is_comm(row) && !(row->one_off && engine->options.without_one_off)) {
    change_comm(engine, rank, -1);
    end_exchange(engine, op);
  }
  size_t lane = (size_t)rank * HEC_N_LANES + (size_t)row->lane;
  engine->busy[lane] = 0;
  engine->head[lane]++;
  wake(engine, rank);
}

static void count_flow(hec_exchange *x, int32_t rank) {
  x->flow_at[rank + 1]++;
  x->left[rank]++;
}

/* The exchange of an operation, made when its first rank posts. */
static hec_exchange *open_exchange(hec_engine *engine, int32_t id) {
  const hec_program *program = engine->program;
  const hec_op *op = &program->ops[id];
  int32_t n_ranks = program->n_ranks, n = op->kind == HEC_OP_EXCHANGE ? op->exchange.n_transfers : 0;
  hec_arena arena = {0};
  hec_exchange *x = HEC_NEW(&arena, hec_exchange, 1);
  *x = (hec_exchange){.arena = arena, .op = id, .row = op, .n_flows = n, .n_chunks = n > 0 ? op->exchange.n_chunks : 1};
  x->flow = HEC_NEW(&x->arena, hec_flow, n);
  x->flow_at = HEC_NEW(&x->arena, int32_t, n_ranks + 1);
  x->flow_of = HEC_NEW(&x->arena, int32_t, 2 * (size_t)n);
  x->left = HEC_NEW(&x->arena, int32_t, n_ranks);
  x->posted = HEC_NEW(&x->arena, uint8_t, n_ranks);
  for (int32_t i = 0; i < n; i++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
    int32_t source = op->reverse ? t->destination : t->source, destination = op->reverse ? t->source : t->destination;
    double share = hec_cluster_share_of(engine->problem->cluster, source, destination, (double)t->bytes);
    x->flow[i] = (hec_flow){.source = source,
                            .destination = destination,
                            .after = t->after,
                            .first_follower = -1,
                            .next_follower = -1,
                            .bytes = (double)t->bytes / share};
    count_flow(x, t->source);
    count_flow(x, t->destination);
  }
  for (int32_t r = 0; r < n_ranks; r++) {
    x->n_parts += op->kind != HEC_OP_EXCHANGE || x->flow_at[r + 1] > 0;
    x->flow_at[r + 1] += x->flow_at[r];
  }
  int32_t *at = HEC_NEW(&x->arena, int32_t, n_ranks);
  memcpy(at, x->flow_at, (size_t)n_ranks * sizeof *at);
  for (int32_t i = n - 1; i >= 0; i--)
    if (x->flow[i].after >= 0) { /* pushed in front, last first: followers ascend */
      x->flow[i].next_follower = x->flow[x->flow[i].after].first_follower;
      x->flow[x->flow[i].after].first_follower = i;
    }
  for (int32_t i = 0; i < n; i++) {
    x->flow_of[at[x->flow[i].source]++] = i;
    x->flow_of[at[x->flow[i].destination]++] = i;
  }
  x->law = hec_program_kernels_s(program, op) ? &hec_law_alpha_beta : engine->law;
  if (op->kind == HEC_OP_EXCHANGE)
    x->law->open(engine, x);
  return x;
}

/* Counts are small: one closed-form cost for every law. */
static void run_counts(hec_engine *engine, hec_exchange *x) {
  int64_t end = engine->now_ps +
                hec_seconds_to_ps(hec_walk_together_s(engine->problem->cluster, engine->problem->n_ranks, x->row));
  for (int32_t r = 0; r < engine->program->n_ranks; r++) {
    hec_engine_begin(engine, x, r);
    hec_engine_end(engine, x, r, end);
  }
}

static void post(hec_engine *engine, int32_t id, int32_t rank) {
  if (!engine->running[id])
    engine->running[id] = open_exchange(engine, id);
  hec_exchange *x = engine->running[id];
  change_comm(engine, rank, 1);
  x->posted[rank] = 1;
  x->n_posted++;
  if (x->row->kind == HEC_OP_EXCHANGE) {
    for (int32_t i = x->flow_at[rank]; i < x->flow_at[rank + 1]; i++) {
      hec_flow *flow = &x->flow[x->flow_of[i]];
      if (x->posted[flow->source] && x->posted[flow->destination]) {
        flow->ready = true;
        x->law->ready(engine, x, x->flow_of[i]);
      }
    }
  } else if (x->n_posted == engine->program->n_ranks) {
    if (x->row->kind == HEC_OP_COUNTS)
      run_counts(engine, x);
    else
      engine->law->allreduce(engine, x);
  }
}

static void start(hec_engine *engine, int32_t id, int32_t rank) {
  const hec_op *op = &engine->program->ops[id];
  bool free_of_charge = op->one_off && engine->options.without_one_off;
  if (is_comm(op) && !free_of_charge) {
    post(engine, id, rank);
    return;
  }
  engine->timeline->begin_ps[cell(engine, id, rank)] = engine->now_ps;
  double seconds = free_of_charge ? 0 : hec_duration_s(engine->problem, engine->program, op, rank);
  if (op->kind == HEC_OP_COMPUTE && op->lane == HEC_LANE_COMPUTE) {
    HEC_ASSERT(engine->device[rank].op < 0);
    engine->device[rank] = (computing){.op = id, .version = engine->device[rank].version, .left_s = seconds};
    schedule_compute(engine, rank);
  } else {
    push(engine,
         (event){.time_ps = engine->now_ps + hec_seconds_to_ps(seconds), .kind = EVENT_END, .a = id, .b = rank});
  }
}

static bool can_start(const hec_engine *engine, const hec_op *op, int32_t rank) {
  for (int32_t d = 0; d < op->n_deps; d++) {
    int32_t dep = engine->program->deps[op->dep_at + d];
    if (engine->timeline->end_ps[cell(engine, dep, rank)] < 0 &&
        hec_program_takes_part(engine->program, &engine->program->ops[dep], rank))
      return false;
  }
  return true;
}

/* Starts whatever can start on the rank now. */
static void wake(hec_engine *engine, int32_t rank) {
  for (int32_t lane = 0; lane < HEC_N_LANES; lane++) {
    size_t at = (size_t)rank * HEC_N_LANES + (size_t)lane;
    int32_t n = engine->lane_at[lane + 1] - engine->lane_at[lane];
    const int32_t *ops = engine->lane_op + engine->lane_at[lane];
    while (!engine->busy[at] && engine->head[at] < n &&
           !hec_program_takes_part(engine->program, &engine->program->ops[ops[engine->head[at]]], rank))
      engine->head[at]++;
    if (engine->busy[at] || engine->head[at] == n)
      continue;
    int32_t id = ops[engine->head[at]];
    if (!can_start(engine, &engine->program->ops[id], rank))
      continue;
    engine->busy[at] = 1;
    start(engine, id, rank);
  }
}

void hec_engine_begin(hec_engine *engine, hec_exchange *x, int32_t rank) {
  int64_t *begin = &engine->timeline->begin_ps[cell(engine, x->op, rank)];
  if (*begin < 0)
    *begin = engine->now_ps;
}

void hec_engine_end(hec_engine *engine, hec_exchange *x, int32_t rank, int64_t time_ps) {
  push(engine, (event){.time_ps = time_ps, .kind = EVENT_END, .a = x->op, .b = rank});
}

void hec_engine_start_flow(hec_engine *engine, hec_exchange *x, int32_t flow, double bytes, int64_t time_ps) {
  push(engine, (event){.time_ps = time_ps, .kind = EVENT_FLOW, .a = x->op, .b = flow, .amount = bytes});
}

static void begin_flow(hec_engine *engine, const event *e) {
  const hec_exchange *x = engine->running[e->a];
  const int32_t *links;
  int32_t n = hec_cluster_route(engine->problem->cluster, x->flow[e->b].source, x->flow[e->b].destination, &links);
  if (hec_fluid_count(engine->fluid) == 0) {
    hec_fluid_rebase(engine->fluid);
    engine->fluid_base_ps = engine->now_ps;
  } else {
    double now = (double)(engine->now_ps - engine->fluid_base_ps) * 1e-12;
    if (now > hec_fluid_now(engine->fluid)) { /* else one more of this instant: rates are computed after the last */
      double next = hec_fluid_next(engine->fluid);
      hec_fluid_advance(engine->fluid, now < next ? now : next);
    }
  }
  (void)hec_fluid_add(
      engine->fluid,
      &(hec_fluid_flow){
          .links = links, .n_links = n, .amount = e->amount, .cap = INFINITY, .tag = (int64_t)e->a << 32 | e->b});
}

static void handle(hec_engine *engine, const event *e) {
  switch (e->kind) {
  case EVENT_END:
    finish(engine, e->a, e->b);
    break;
  case EVENT_COMPUTE_END:
    if (engine->device[e->a].version == e->b && engine->device[e->a].op >= 0) {
      int32_t op = engine->device[e->a].op;
      engine->device[e->a].op = -1;
      finish(engine, op, e->a);
    }
    break;
  case EVENT_FLOW:
    begin_flow(engine, e);
    break;
  case EVENT_START:
    wake(engine, e->a);
    break;
  }
}

static int64_t next_flow_ps(hec_engine *engine) {
  double next = hec_fluid_next(engine->fluid);
  return next < INFINITY ? engine->fluid_base_ps + hec_seconds_to_ps(next) : INT64_MAX;
}

static void end_flows(hec_engine *engine) {
  hec_fluid_advance(engine->fluid, hec_fluid_next(engine->fluid));
  int32_t n;
  const hec_fluid_done *done = hec_fluid_pop(engine->fluid, &n);
  for (int32_t i = 0; i < n; i++)
    engine->law->flow_done(engine, engine->running[done[i].tag >> 32], (int32_t)(done[i].tag & 0xffffffff));
}

/* What has not ended when time does, ends with it. */
static void end_of_time(hec_engine *engine) {
  const hec_program *program = engine->program;
  for (int32_t op = 0; op < (int32_t)program->n_ops; op++)
    for (int32_t r = 0; r < program->n_ranks; r++) {
      int64_t *begin = &engine->timeline->begin_ps[cell(engine, op, r)];
      int64_t *end = &engine->timeline->end_ps[cell(engine, op, r)];
      if (*end >= 0 || !hec_program_takes_part(program, &program->ops[op], r))
        continue;
      *begin = *begin < 0 ? HEC_TIME_END_PS : *begin;
      *end = HEC_TIME_END_PS;
    }
}

/* Whether the next event is of this instant and no flow's end can be: rates wait until all flows of the instant are there. */
static bool goes_on_now(const hec_engine *engine) {
  double now = (double)(engine->now_ps - engine->fluid_base_ps) * 1e-12;
  return engine->n_heap > 0 && engine->heap[0].time_ps == engine->now_ps &&
         hec_fluid_none_ends_by(engine->fluid, now + 2e-12);
}

/* True when everything has run, false when time ended before. */
static bool run(hec_engine *engine) {
  for (int32_t r = 0; r < engine->program->n_ranks; r++) /* nothing else wakes a rank before it begins */
    if (engine->timeline->late_ps[r] > 0)
      push(engine, (event){.time_ps = engine->timeline->late_ps[r], .kind = EVENT_START, .a = r});
    else
      wake(engine, r);
  for (;;) {
    if (goes_on_now(engine)) {
      event e = pop(engine);
      handle(engine, &e);
      continue;
    }
    int64_t flow = next_flow_ps(engine), other = engine->n_heap > 0 ? engine->heap[0].time_ps : INT64_MAX;
    if (flow == INT64_MAX && other == INT64_MAX)
      return true;
    int64_t time = flow <= other ? flow : other;
    if (time >= HEC_TIME_END_PS)
      return false;
    engine->now_ps = time > engine->now_ps ? time : engine->now_ps;
    if (flow <= other) {
      end_flows(engine);
    } else {
      event e = pop(engine);
      handle(engine, &e);
    }
  }
}

static void index_lanes(hec_engine *engine) {
  const hec_program *program = engine->program;
  engine->lane_op = HEC_NEW(&engine->arena, int32_t, program->n_ops);
  int32_t n = 0;
  for (int32_t lane = 0; lane < HEC_N_LANES; lane++) {
    engine->lane_at[lane] = n;
    for (size_t i = 0; i < program->n_ops; i++)
      if ((int32_t)program->ops[i].lane == lane)
        engine->lane_op[n++] = (int32_t)i;
  }
  engine->lane_at[HEC_N_LANES] = n;
}

void hec_engine_run(const hec_problem *problem, const hec_law *law, hec_link_cost *cost, const hec_program *program,
                    hec_sim_options options, hec_timeline *timeline) {
  hec_engine engine = {
      .problem = problem, .law = law, .program = program, .options = options, .cost = cost, .timeline = timeline};
  size_t n_ranks = (size_t)program->n_ranks;
  engine.head = HEC_NEW(&engine.arena, int32_t, n_ranks * HEC_N_LANES);
  engine.busy = HEC_NEW(&engine.arena, uint8_t, n_ranks * HEC_N_LANES);
  engine.device = HEC_NEW(&engine.arena, computing, n_ranks);
  for (size_t r = 0; r < n_ranks; r++)
    engine.device[r].op = -1;
  for (size_t r = 0; r < n_ranks && !options.on_time; r++)
    timeline->late_ps[r] = hec_seconds_to_ps(problem->cluster->devices[r].skew_s);
  engine.comm_active = HEC_NEW(&engine.arena, int32_t, n_ranks);
  engine.running = HEC_NEW(&engine.arena, hec_exchange *, program->n_ops);
  double *capacity = HEC_NEW(&engine.arena, double, problem->cluster->n_links);
  for (int32_t l = 0; l < problem->cluster->n_links; l++)
    capacity[l] = problem->cluster->links[l].bandwidth;
  engine.fluid = hec_fluid_new(problem->cluster->n_links, capacity);
  index_lanes(&engine);
  bool complete = run(&engine);
  if (!complete)
    end_of_time(&engine);
  for (size_t i = 0; complete && i < n_ranks * HEC_N_LANES; i++) /* every queue ran empty: nothing waited for ever */
    HEC_ASSERT(engine.head[i] == engine.lane_at[i % HEC_N_LANES + 1] - engine.lane_at[i % HEC_N_LANES]);
  for (size_t op = 0; op < program->n_ops; op++)
    if (engine.running[op]) /* when time ended before */
      free_exchange(&engine, (int32_t)op);
  hec_fluid_free(engine.fluid);
  free(engine.heap);
  hec_arena_free(&engine.arena);
}
