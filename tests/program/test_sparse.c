/* SparseAllGather and SparseReduceScatter of real programs, interpreted with small integers.
 *
 * spAG: every (expert, slice) starts at its home. An exchange copies what its sources hold when it begins (a chained
 * transfer: what the one it forwards delivers). Whoever computes an expert must hold all of it by then, and no one
 * gets more than the plan says.
 * spRS: every rank that computed an expert starts with its own gradient. That is rows * (expert + 1), so that neither
 * a lost nor a doubled part can hide. An exchange takes the sources' sums away and the reduction adds them. In the end
 * the home of each slice has the full-batch gradient of it, and no guest has anything left. */
#include "runtime/program/emit.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

typedef struct {
  const hec_test_step *step;
  const hec_plan *plan; /* of the last micro-batch: the others are replayed by their own steps */
  int32_t n_ranks;
  int32_t n_slices; /* of the plan; of whole experts that may travel in parts: parts */
  bool parts;
  int64_t *gradient; /* [n_experts][n_slices][n_ranks] */
  uint8_t *holds;    /* [n_experts][n_slices][n_ranks] */
} oracle;

static size_t cell(const oracle *o, int32_t expert, int32_t slice, int32_t rank) {
  return ((size_t)expert * (size_t)o->n_slices + (size_t)slice) * (size_t)o->n_ranks + (size_t)rank;
}

static int32_t home(const oracle *o, int32_t layer, int32_t expert, int32_t slice) {
  size_t row = (size_t)layer * (size_t)o->plan->n_experts + (size_t)expert, n = (size_t)o->plan->n_slices;
  return o->plan->home[row * n + (o->parts ? 0 : (size_t)slice)];
}

static bool keeps(const oracle *o, int32_t layer, int32_t expert, int32_t rank) { /* a resident copy */
  hec_copies copies = hec_plan_copies(o->plan, layer, expert);
  for (int32_t i = 0; i < copies.n; i++)
    if (copies.kind[i] == HEC_COPY_RESIDENT && copies.rank[i] == rank)
      return true;
  return false;
}

/* Ranks of a node, where experts may travel in so many parts (collectives/parts.c); else 1. */
static int32_t parts_of(const hec_test_step *step) {
  const hec_problem *p = &step->c->problem;
  int32_t n = p->cluster->devices_per_node < p->n_ranks ? p->cluster->devices_per_node : p->n_ranks;
  bool may = (step->c->collective && step->c->collective->relays) || step->policy->relays;
  return may && !step->policy->sliced ? n : 1;
}

/* A transfer's item names expert and slice, or part: slices first .. end-1. A whole expert that could have travelled in parts
 * is known by its bytes. */
typedef struct {
  int32_t expert, first, end;
} carried;

static carried carried_by(const oracle *o, const hec_transfer *t, double item_bytes) {
  if (o->parts && t->bytes == (int64_t)item_bytes)
    return (carried){t->item, 0, o->n_slices};
  return (carried){t->item / o->n_slices, t->item % o->n_slices, t->item % o->n_slices + 1};
}

static void check_bytes(const oracle *o, const hec_transfer *t, const carried *c, double item_bytes) {
  int64_t whole = (int64_t)item_bytes, params = (int64_t)hec_moe_expert_params(&o->step->c->moe);
  int64_t wanted = whole / params * (params * c->end / o->n_slices - params * c->first / o->n_slices);
  ck_assert_msg(t->bytes == wanted, "%lld bytes: %s", (long long)t->bytes, hec_test_step_name(o->step));
}

static void start_gather(oracle *o, int32_t layer) {
  memset(o->holds, 0, (size_t)o->plan->n_experts * (size_t)o->n_slices * (size_t)o->n_ranks);
  for (int32_t e = 0; e < o->plan->n_experts; e++)
    for (int32_t j = 0; j < o->n_slices; j++)
      for (int32_t r = 0; r < o->n_ranks; r++)
        o->holds[cell(o, e, j, r)] = r == home(o, layer, e, j) || keeps(o, layer, e, r);
}

/* What a rank passed on for others it may get again, to keep, from a later gather of the layer. */
static void run_gather(oracle *o, const hec_op *op) {
  const hec_transfer *t = o->step->program->transfers + op->exchange.transfer_at;
  size_t n = (size_t)o->plan->n_experts * (size_t)o->n_slices * (size_t)o->n_ranks;
  uint8_t *before = HEC_NEW(&arena, uint8_t, n);
  memcpy(before, o->holds, n);
  ck_assert(!op->reverse);
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    carried c = carried_by(o, &t[i], o->step->c->problem.bytes.expert_param);
    check_bytes(o, &t[i], &c, o->step->c->problem.bytes.expert_param);
    for (int32_t slice = c.first; slice < c.end; slice++) {
      if (t[i].after >= 0) {
        const hec_transfer *forwarded = &t[t[i].after];
        ck_assert(forwarded->item == t[i].item && forwarded->destination == t[i].source);
      } else {
        ck_assert_msg(before[cell(o, c.expert, slice, t[i].source)], "rank %d sends expert %d without having it: %s",
                      t[i].source, c.expert, hec_test_step_name(o->step));
      }
      uint8_t *there = &o->holds[cell(o, c.expert, slice, t[i].destination)];
      ck_assert_msg(!*there || (o->parts && before[cell(o, c.expert, slice, t[i].destination)]),
                    "rank %d gets expert %d twice: %s", t[i].destination, c.expert, hec_test_step_name(o->step));
      *there = 1;
    }
  }
}

/* Who computes holds, and (P' of the definition) who holds is in the plan. */
static void check_gathered(const oracle *o, const hec_op *experts) {
  for (int32_t e = 0; e < o->plan->n_experts; e++)
    for (int32_t r = 0; r < o->n_ranks; r++) {
      bool computes = hec_test_rows(o->step->program, experts, r, e) > 0;
      for (int32_t j = 0; j < o->n_slices; j++) {
        bool there = o->holds[cell(o, e, j, r)];
        ck_assert_msg(there || !computes, "rank %d computes expert %d without slice %d: %s", r, e, j,
                      hec_test_step_name(o->step));
        ck_assert_msg(o->parts || !there || r == home(o, experts->layer, e, j) ||
                          hec_plan_holds(o->plan, experts->layer, e, r),
                      "rank %d got expert %d, not in the plan: %s", r, e, hec_test_step_name(o->step));
        ck_assert_msg(there || !hec_plan_holds(o->plan, experts->layer, e, r), "rank %d did not get expert %d: %s", r,
                      e, hec_test_step_name(o->step));
      }
    }
}

/* Each chunk of a layer that is cut adds its own. */
static void start_scatter(oracle *o, const hec_op *experts) {
  bool first = experts->chunk == 0;
  for (int32_t e = 0; e < o->plan->n_experts; e++)
    for (int32_t r = 0; r < o->n_ranks; r++)
      for (int32_t j = 0; j < o->n_slices; j++)
        o->gradient[cell(o, e, j, r)] =
            (first ? 0 : o->gradient[cell(o, e, j, r)]) + hec_test_rows(o->step->program, experts, r, e) * (e + 1);
}

static void run_scatter(oracle *o, const hec_op *op) {
  const hec_transfer *t = o->step->program->transfers + op->exchange.transfer_at;
  size_t n = (size_t)o->plan->n_experts * (size_t)o->n_slices * (size_t)o->n_ranks;
  int64_t *before = HEC_NEW(&arena, int64_t, n);
  memcpy(before, o->gradient, n * sizeof *before);
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    ck_assert_int_lt(t[i].after, 0);
    carried c = carried_by(o, &t[i], o->step->c->problem.bytes.expert_grad);
    check_bytes(o, &t[i], &c, o->step->c->problem.bytes.expert_grad);
    for (int32_t slice = c.first; slice < c.end; slice++) {
      int64_t part = before[cell(o, c.expert, slice, t[i].source)];
      o->gradient[cell(o, c.expert, slice, t[i].destination)] += part;
      o->gradient[cell(o, c.expert, slice, t[i].source)] -= part;
    }
  }
}

static void check_scattered(const oracle *o, int32_t layer, const hec_load *load) {
  for (int32_t e = 0; e < o->plan->n_experts; e++) {
    int64_t wanted = 0;
    for (int32_t s = 0; s < o->n_ranks; s++)
      wanted += (int64_t)hec_load_row(load, layer, s)[e] * (e + 1);
    for (int32_t j = 0; j < o->n_slices; j++) {
      int64_t kept = 0;
      for (int32_t r = 0; r < o->n_ranks; r++) {
        int64_t here = o->gradient[cell(o, e, j, r)];
        if (r == home(o, layer, e, j) || keeps(o, layer, e, r))
          kept += here; /* homes and residents; those are summed by the replicas' exchanges */
        else
          ck_assert_msg(here == 0, "rank %d keeps a gradient of expert %d: %s", r, e, hec_test_step_name(o->step));
      }
      ck_assert_msg(kept == wanted, "expert %d: gradient %lld, full batch %lld: %s", e, (long long)kept,
                    (long long)wanted, hec_test_step_name(o->step));
    }
  }
}

static void visit(const hec_test_step *step, void *context) {
  int64_t *exchanges = context;
  if (strcmp(step->schedule->name, "ideal") == 0)
    return;
  hec_arena_mark mark = hec_arena_save(&arena);
  const hec_plan *plan = &hec_lowering_run(step->low)->plan;
  const hec_program *program = step->program;
  int32_t last = step->c->n_micro_batches - 1;
  oracle o = {.step = step, .plan = plan, .n_ranks = program->n_ranks, .parts = parts_of(step) > 1};
  o.n_slices = o.parts ? parts_of(step) : plan->n_slices;
  size_t cells = (size_t)plan->n_experts * (size_t)o.n_slices * (size_t)o.n_ranks;
  o.gradient = HEC_NEW(&arena, int64_t, cells);
  o.holds = HEC_NEW(&arena, uint8_t, cells);
  hec_load load = hec_test_actual_load(step, last, &arena);
  for (int32_t layer = 0; layer < plan->n_layers; layer++) {
    bool again = false;
    start_gather(&o, layer);
    for (size_t i = 0; i < program->n_ops; i++) {
      const hec_op *op = &program->ops[i];
      if (op->layer != layer || op->micro_batch != last)
        continue;
      bool moves = op->kind == HEC_OP_EXCHANGE;
      *exchanges += moves && (op->role == HEC_ROLE_GATHER || op->role == HEC_ROLE_SCATTER);
      if (moves && op->role == HEC_ROLE_REGATHER && !again) { /* copies were dropped after forward */
        again = true;
        start_gather(&o, layer);
      }
      if (moves && hec_role_traffic[op->role] == HEC_TRAFFIC_GATHER)
        run_gather(&o, op);
      if (op->role == HEC_ROLE_EXPERTS)
        check_gathered(&o, op);
      if (op->role == HEC_ROLE_EXPERTS && op->backward)
        start_scatter(&o, op);
      if (moves && op->role == HEC_ROLE_SCATTER)
        run_scatter(&o, op);
    }
    if (step->c->problem.train)
      check_scattered(&o, layer, &load);
  }
  hec_arena_rewind(&arena, mark);
}

HEC_TEST_LOOP(gather_then_scatter, hec_test_cases(24)) {
  uint64_t seed = 101 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  int64_t exchanges = 0;
  c->collective = NULL;
  hec_test_each(c, true, visit, &exchanges);
  for (int32_t k = 0; hec_collectives[k]; k++) {
    c->collective = hec_collectives[k];
    hec_test_each(c, true, visit, &exchanges);
  }
  ck_assert(exchanges > 0 || c->problem.n_ranks == 1);
}

/* Merged per pair, the same bytes travel between the same ranks, stage by stage. */
typedef struct {
  int64_t *bytes; /* [op][s][d] of each step in turn */
  size_t n, at;
  bool fill;
} merged;

static void visit_merged(const hec_test_step *step, void *context) {
  merged *m = context;
  size_t n = (size_t)step->program->n_ranks;
  for (size_t i = 0; i < step->program->n_ops; i++) {
    const hec_op *op = &step->program->ops[i];
    if (op->kind != HEC_OP_EXCHANGE || (op->role != HEC_ROLE_GATHER && op->role != HEC_ROLE_SCATTER))
      continue;
    int64_t *here = HEC_NEW(&arena, int64_t, n * n);
    for (int32_t t = 0; t < op->exchange.n_transfers; t++) {
      const hec_transfer *x = &step->program->transfers[op->exchange.transfer_at + t];
      here[(size_t)x->source * n + (size_t)x->destination] += x->bytes;
    }
    for (size_t k = 0; k < n * n; k++) {
      ck_assert_uint_lt(m->at, m->n);
      if (m->fill)
        m->bytes[m->at] = here[k];
      else
        ck_assert_msg(m->bytes[m->at] == here[k], "%s", hec_test_step_name(step));
      m->at++;
    }
  }
}

HEC_TEST_LOOP(merging_keeps_bytes, hec_test_cases(10)) {
  uint64_t seed = 901 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = 8});
  for (int32_t k = 0; hec_collectives[k]; k++) {
    c->collective = hec_collectives[k];
    merged m = {.n = 1 << 20, .fill = true};
    m.bytes = HEC_NEW(&arena, int64_t, m.n);
    hec_test_each(c, true, visit_merged, &m);
    size_t all = m.at;
    m.at = 0;
    m.fill = false;
    hec_test_each(c, false, visit_merged, &m);
    ck_assert_uint_eq(m.at, all);
  }
}

/* Guests within m on every rank, distinct experts before the gate within t, for policies that report them. */
static void visit_limits(const hec_test_step *step, void *context) {
  (void)context;
  const hec_policy_run *run = hec_lowering_run(step->low);
  const hec_program *program = step->program;
  for (int32_t l = 0; run->t && run->m && l < run->problem->n_layers; l++) {
    if (run->t[l] < 0 || run->m[l] < 0)
      continue;
    int32_t *guests = HEC_NEW(&arena, int32_t, run->problem->n_ranks);
    for (int32_t e = 0; e < run->problem->n_experts; e++) {
      hec_copies copies = hec_plan_copies(&run->plan, l, e);
      for (int32_t i = 0; i < copies.n; i++)
        guests[copies.rank[i]] += copies.kind[i] == HEC_COPY_GUEST && copies.rank[i] != hec_plan_home(&run->plan, l, e);
    }
    for (int32_t r = 0; r < run->problem->n_ranks; r++)
      ck_assert_msg(guests[r] <= run->m[l], "rank %d has %d guests, m %d: %s", r, guests[r], run->m[l],
                    hec_test_step_name(step));
    uint64_t moved = 0; /* before the layer's counts: not under schedules that gather all guests after the gate */
    for (size_t i = 0; i < (size_t)hec_lowering_counts(step->low, l); i++)
      for (int32_t t = 0; program->ops[i].role == HEC_ROLE_GATHER && program->ops[i].kind == HEC_OP_EXCHANGE &&
                          program->ops[i].layer == l && program->ops[i].micro_batch == step->c->n_micro_batches - 1 &&
                          t < program->ops[i].exchange.n_transfers;
           t++) {
        const hec_transfer *x = &program->transfers[program->ops[i].exchange.transfer_at + t];
        bool part = x->bytes < (int64_t)run->problem->bytes.expert_param;
        moved |= UINT64_C(1) << x->item / (part ? parts_of(step) : 1);
      }
    ck_assert_msg(__builtin_popcountll(moved) <= run->t[l], "%d experts before the gate, t %d: %s",
                  __builtin_popcountll(moved), run->t[l], hec_test_step_name(step));
  }
}

HEC_TEST_LOOP(within_t_and_m, hec_test_cases(24)) {
  uint64_t seed = 1301 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){0}), true, visit_limits, NULL);
}

/* Layers that ask for the same gather as the one before, or for one that differs in a single respect: owners, receivers,
 * experts. The last collective chosen is kept, and must be taken for what it is only. */
enum { REPEATS = 7, REPEAT_EXPERTS = 4, REPEAT_RANKS = 4 };
static const struct {
  int32_t home[REPEAT_EXPERTS], guest[REPEAT_EXPERTS]; /* guest -1: none */
} repeats[REPEATS] = {{{0, 0, 1, 1}, {2, 2, 2, -1}}, {{0, 0, 1, 1}, {2, 2, 2, -1}}, {{1, 1, 0, 1}, {2, 2, 2, -1}},
                      {{1, 1, 0, 1}, {2, 3, 2, -1}}, {{1, 1, 0, 1}, {2, 3, -1, 2}}, {{1, 1, 0, 1}, {2, 3, -1, 2}},
                      {{0, 0, 1, 1}, {2, 2, 2, -1}}};

static void place_repeats(hec_policy_run *run) {
  for (int32_t l = 0; l < REPEATS; l++)
    for (int32_t e = 0; e < REPEAT_EXPERTS; e++) {
      hec_plan_set_home(&run->plan, l, e, repeats[l].home[e]);
      if (repeats[l].guest[e] >= 0)
        hec_plan_add_copy(&run->plan, l, e, repeats[l].guest[e], HEC_COPY_GUEST);
    }
}

HEC_TEST_LOOP(repeats_are_taken_for_what_they_are, 2) {
  hec_problem *problem =
      hec_test_problem(&arena, "1x4 nvlink=300G flops=312T mem=40G", REPEAT_RANKS, REPEATS, REPEAT_EXPERTS, 1, true);
  hec_policy policy = *hec_policy_find("ep");
  policy.init = place_repeats;
  hec_lowering *low =
      hec_lowering_new(problem, &policy, hec_schedule_find("hecate"), _i ? hec_collectives[0] : NULL, &arena);
  hec_load load = hec_load_new(&arena, REPEATS, REPEAT_RANKS, REPEAT_EXPERTS);
  hec_lower_iteration(low, 1, &load, 1, 1);
  const hec_program *program = hec_lowering_program(low);
  int64_t found[2][REPEATS][REPEAT_RANKS][REPEAT_RANKS] = {0};
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    bool scatter = op->role == HEC_ROLE_SCATTER;
    for (int32_t k = 0; (scatter || op->role == HEC_ROLE_GATHER) && k < op->exchange.n_transfers; k++) {
      const hec_transfer *t = &program->transfers[op->exchange.transfer_at + k];
      found[scatter][op->layer][scatter ? t->destination : t->source][scatter ? t->source : t->destination] += t->bytes;
    }
  }
  for (int32_t l = 0; l < REPEATS; l++) {
    int64_t wanted[2][REPEAT_RANKS][REPEAT_RANKS] = {0};
    for (int32_t e = 0; e < REPEAT_EXPERTS; e++)
      for (int32_t way = 0; repeats[l].guest[e] >= 0 && way < 2; way++)
        wanted[way][repeats[l].home[e]][repeats[l].guest[e]] +=
            (int64_t)(way ? problem->bytes.expert_grad : problem->bytes.expert_param);
    for (int32_t way = 0; way < 2; way++)
      for (int32_t s = 0; s < REPEAT_RANKS; s++)
        for (int32_t d = 0; d < REPEAT_RANKS; d++)
          ck_assert_int_eq(found[way][l][s][d], wanted[way][s][d]);
  }
  hec_lowering_free(low);
}
