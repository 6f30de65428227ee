/* The walk. In id order every predecessor of (op, r) already has its end, so
 *   ready(op, r) = max(end of the lane's last operation on r, ends of the dependencies on r)
 *   compute      begin = ready,                                end = begin + duration
 *   exchange     begin = max of ready over r and its partners,  end = begin + closed form of the law
 *   collective   begin = max of ready over all ranks,           end = begin + closed form
 * One visit per (operation, rank) and two per transfer; exchanges over the same transfers are priced once. */
#include "sim/simulate.h"

#include "runtime/base/arena.h"
#include "sim/duration.h"
#include "sim/law.h"

#include <stdlib.h>
#include <string.h>

#define LAW_ROW(name) &hec_law_##name,
const hec_law *const hec_laws[] = {HEC_LAW_LIST(LAW_ROW) NULL};

const hec_law *hec_law_find(const char *name) {
  for (int32_t i = 0; hec_laws[i]; i++)
    if (strcmp(hec_laws[i]->name, name) == 0)
      return hec_laws[i];
  return NULL;
}
const char *hec_law_name(const hec_law *law) {
  return law->name;
}
const char *hec_law_summary(const hec_law *law) {
  return law->summary;
}
const char *hec_law_limits(const hec_law *law) {
  return law->limits;
}

enum { CACHE_SLOTS = 1024 };

/* Times of an exchange that was already priced in this program. */
typedef struct {
  int32_t transfer_at; /* -1: empty */
  bool reverse;
  int32_t at; /* into done_ps */
} priced;

struct hec_sim {
  const hec_problem *problem;
  const hec_law *law;
  hec_link_cost cost;
  bool uniform;           /* all devices in use are alike */
  bool walks;             /* the law is closed and nothing shares a device */
  int64_t *lane_end;      /* [HEC_N_LANES * n_ranks] */
  int64_t *ready, *begin; /* [n_ranks] */
  priced cache[CACHE_SLOTS];
  int64_t *done_ps;
  size_t n_done, done_capacity;
};

static bool same_device(const hec_device *a, const hec_device *b) {
  return a->flops == b->flops && a->flops_efficiency == b->flops_efficiency && a->hbm_bandwidth == b->hbm_bandwidth &&
         a->gemm_a_s == b->gemm_a_s && a->gemm_c_s == b->gemm_c_s && a->gemm_tile == b->gemm_tile &&
         a->launch_s == b->launch_s && a->speed == b->speed;
}

hec_sim *hec_sim_new(const hec_problem *problem, const hec_law *law, hec_arena *arena) {
  hec_sim *sim = HEC_NEW(arena, hec_sim, 1);
  sim->problem = problem;
  sim->law = law;
  sim->cost = hec_link_cost_new(problem->cluster, arena);
  sim->uniform = true;
  sim->walks = law->closed_form;
  const hec_device *devices = problem->cluster->devices;
  for (int32_t r = 0; r < problem->n_ranks; r++) {
    sim->uniform = sim->uniform && same_device(&devices[r], &devices[0]);
    sim->walks = sim->walks && devices[r].comm_share == 0;
  }
  sim->lane_end = HEC_NEW(arena, int64_t, HEC_N_LANES * problem->n_ranks);
  sim->ready = HEC_NEW(arena, int64_t, problem->n_ranks);
  sim->begin = HEC_NEW(arena, int64_t, problem->n_ranks);
  return sim;
}

void hec_sim_free(hec_sim *sim) {
  if (!sim)
    return;
  hec_link_cost_free(&sim->cost);
  free(sim->done_ps);
  sim->done_ps = NULL;
}

static void find_ready(hec_sim *sim, const hec_program *program, const hec_op *op, const hec_timeline *timeline) {
  int32_t n_ranks = program->n_ranks;
  memcpy(sim->ready, sim->lane_end + (size_t)op->lane * (size_t)n_ranks, (size_t)n_ranks * sizeof *sim->ready);
  for (int32_t d = 0; d < op->n_deps; d++) {
    const int64_t *end = timeline->end_ps + (size_t)program->deps[op->dep_at + d] * (size_t)n_ranks;
    for (int32_t r = 0; r < n_ranks; r++)
      sim->ready[r] = end[r] > sim->ready[r] ? end[r] : sim->ready[r];
  }
}

static void walk_alone(hec_sim *sim, const hec_program *program, const hec_op *op, bool free_of_charge, int64_t *begin,
                       int64_t *end) {
  int32_t n_ranks = program->n_ranks;
  bool same = sim->uniform && op->work_at < 0 && op->bytes_at < 0;
  int64_t ps = 0;
  for (int32_t r = 0; r < n_ranks; r++) {
    if (!free_of_charge && (r == 0 || !same))
      ps = hec_seconds_to_ps(hec_duration_s(sim->problem, program, op, r));
    begin[r] = sim->ready[r];
    end[r] = hec_time_after(begin[r], ps);
  }
}

/* Index into done_ps of the closed-form times of an exchange. */
static int32_t price(hec_sim *sim, const hec_program *program, const hec_op *op) {
  uint32_t hash = ((uint32_t)op->transfer_at * 2 + op->reverse) * 2654435761u;
  priced *slot = &sim->cache[hash >> 22];
  if (slot->transfer_at == op->transfer_at && slot->reverse == op->reverse)
    return slot->at;
  int32_t n_ranks = program->n_ranks;
  HEC_RESERVE(sim->done_ps, sim->done_capacity, sim->n_done + (size_t)n_ranks);
  *slot = (priced){op->transfer_at, op->reverse, (int32_t)sim->n_done};
  sim->n_done += (size_t)n_ranks;
  (void)hec_link_cost_exchange(&sim->cost, program->transfers + op->transfer_at, op->n_transfers, op->reverse,
                               op->n_chunks);
  for (int32_t r = 0; r < n_ranks; r++)
    sim->done_ps[slot->at + r] = hec_seconds_to_ps(sim->cost.done_s[r]);
  return slot->at;
}

/* start[r] = the latest of ready over r and its partners; start is ready so far. Transfers mostly stand by source, so a
 * source's own maximum stays at hand while its transfers last. */
static void meet(const hec_program *program, const hec_op *op, const int64_t *ready, int64_t *start) {
  const hec_transfer *t = program->transfers + op->transfer_at, *end = t + op->n_transfers;
  while (t != end) {
    int32_t source = t->source;
    int64_t own = ready[source], latest = start[source];
    for (; t != end && t->source == source; t++) {
      int64_t other = ready[t->destination], *begin = &start[t->destination];
      latest = other > latest ? other : latest;
      *begin = own > *begin ? own : *begin;
    }
    start[source] = latest;
  }
}

static void walk_exchange(hec_sim *sim, const hec_program *program, const hec_op *op, bool free_of_charge,
                          int64_t *begin, int64_t *end) {
  int32_t n_ranks = program->n_ranks;
  const int64_t *ready = sim->ready;
  const uint8_t *part = program->parts + op->part_at;
  int64_t *start = sim->begin;
  memcpy(start, ready, (size_t)n_ranks * sizeof *start);
  if (!free_of_charge)
    meet(program, op, ready, start);
  int32_t at = free_of_charge ? 0 : price(sim, program, op); /* may move done_ps */
  const int64_t *done = free_of_charge ? NULL : sim->done_ps + at;
  for (int32_t r = 0; r < n_ranks; r++)
    if (part[r]) {
      begin[r] = start[r];
      end[r] = hec_time_after(start[r], done ? done[r] : 0);
    }
}

static void walk_together(hec_sim *sim, const hec_program *program, const hec_op *op, bool free_of_charge,
                          int64_t *begin, int64_t *end) {
  int64_t start = 0, ps = free_of_charge ? 0 : hec_seconds_to_ps(hec_duration_collective_s(sim->problem, op));
  for (int32_t r = 0; r < program->n_ranks; r++)
    start = sim->ready[r] > start ? sim->ready[r] : start;
  for (int32_t r = 0; r < program->n_ranks; r++) {
    begin[r] = free_of_charge ? sim->ready[r] : start;
    end[r] = hec_time_after(begin[r], ps);
  }
}

static void walk(hec_sim *sim, const hec_program *program, hec_sim_options options, hec_timeline *timeline) {
  size_t n_ranks = (size_t)program->n_ranks;
  memset(sim->lane_end, 0, HEC_N_LANES * n_ranks * sizeof *sim->lane_end);
  memset(sim->cache, 0xff, sizeof sim->cache);
  sim->n_done = 0;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    int64_t *begin = timeline->begin_ps + i * n_ranks, *end = timeline->end_ps + i * n_ranks;
    bool free_of_charge = options.without_one_off && op->one_off;
    find_ready(sim, program, op, timeline);
    if (op->kind == HEC_OP_EXCHANGE)
      walk_exchange(sim, program, op, free_of_charge, begin, end);
    else if (op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS)
      walk_together(sim, program, op, free_of_charge, begin, end);
    else
      walk_alone(sim, program, op, free_of_charge, begin, end);
    int64_t *lane_end = sim->lane_end + (size_t)op->lane * n_ranks;
    for (size_t r = 0; r < n_ranks; r++)
      lane_end[r] = end[r] > lane_end[r] ? end[r] : lane_end[r];
  }
}

void hec_sim_run(hec_sim *sim, const hec_program *program, hec_sim_options options, hec_timeline *timeline) {
  hec_timeline_resize(timeline, (int32_t)program->n_ops, program->n_ranks);
  if (sim->walks && !options.force_engine)
    walk(sim, program, options, timeline);
  else
    hec_engine_run(sim->problem, sim->law, &sim->cost, program, options, timeline);
}
