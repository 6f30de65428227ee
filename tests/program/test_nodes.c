/* Token rows that travel once per node: every transfer, buffer and cell of random programs against sets counted token by
 * token. A case by hand; when the price chooses it. */
#include "runtime/plan/token_sets.h"
#include "runtime/program/emit.h"
#include "runtime/program/nodes.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

enum { RANKS = 16, NODES = 16, EXPERTS = 64 };

/* What a layer must have, counted one assignment at a time. */
typedef struct {
  int64_t tokens[RANKS][NODES], rows[RANKS][NODES]; /* of a source on another node */
  int64_t pair[RANKS][RANKS];                       /* assignments that a rank permutes, by who computes them */
  int64_t plain;                                    /* assignments that leave their node */
  int32_t cells[RANKS][RANKS][EXPERTS];             /* the same by expert */
} expected;
static expected x;
static hec_routing routing;

static void expect(const hec_test_step *step, const hec_load *load, int32_t layer) {
  const hec_problem *p = &step->c->problem;
  int32_t *ranks = HEC_NEW(&arena, int32_t, 4 * RANKS), *first = HEC_NEW(&arena, int32_t, p->n_experts);
  int32_t *order = HEC_NEW(&arena, int32_t, p->n_experts);
  uint32_t *tokens = HEC_NEW(&arena, uint32_t, 4 * RANKS);
  uint8_t *seen = HEC_NEW(&arena, uint8_t, p->tokens * NODES);
  memset(&x, 0, sizeof x);
  for (int32_t s = 0; s < p->n_ranks; s++) {
    memset(seen, 0, (size_t)p->tokens * NODES);
    hec_token_sets(&(hec_token_row){hec_load_row(load, layer, s), p->n_experts, p->tokens, layer, s}, first, order);
    for (int32_t e = 0; e < p->n_experts; e++) {
      int32_t i = 0, n = hec_routing_split(&routing, step->policy->dispatch, p, &hec_lowering_run(step->low)->plan,
                                           load, layer, s, e, ranks, tokens);
      for (int32_t k = 0; k < n; k++)
        for (uint32_t j = 0; j < tokens[k]; j++, i++) {
          int32_t node = ranks[k] / p->cluster->devices_per_node, dpn = p->cluster->devices_per_node, at = s;
          if (node != s / dpn) {
            int32_t there = p->n_ranks - node * dpn < dpn ? p->n_ranks - node * dpn : dpn;
            uint8_t *mark = &seen[(first[e] + i) % p->tokens * NODES + node];
            at = node * dpn + s % dpn % there;
            x.tokens[s][node] += *mark == 0;
            *mark = 1;
            x.rows[s][node]++;
            x.plain++;
          }
          x.pair[at][ranks[k]]++;
          x.cells[at][ranks[k]][e]++;
        }
    }
  }
}

static int32_t find(const hec_program *p, hec_role role, bool backward, int32_t layer, int32_t mb) {
  for (size_t i = 0; i < p->n_ops; i++)
    if (p->ops[i].role == role && p->ops[i].backward == backward && p->ops[i].layer == layer &&
        p->ops[i].micro_batch == mb)
      return (int32_t)i;
  return -1;
}

/* Each transfer is expected, and all that is expected is there; bytes at each end for the holds. */
static void check_leg(const hec_problem *p, const hec_program *program, const hec_op *op, int64_t weight,
                      int64_t sent[RANKS], int64_t arrived[RANKS]) {
  int64_t found[RANKS][RANKS] = {{0}}, token = (int64_t)p->bytes.token;
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
    found[t->source][t->destination] += t->bytes;
  }
  for (int32_t s = 0; s < p->n_ranks; s++)
    for (int32_t v = 0; v < p->n_nodes; v++) {
      int64_t bytes = x.tokens[s][v] * token + x.rows[s][v] * weight;
      int32_t q = hec_proxy_of(p, s, v);
      ck_assert(hec_problem_node(p, q) == v && q < p->n_ranks);
      ck_assert_int_eq(q == s ? 0 : found[s][q], bytes);
      found[s][q] = 0;
      sent[s] += bytes;
      arrived[q] += bytes;
    }
  for (int32_t s = 0; s < p->n_ranks; s++)
    for (int32_t d = 0; d < p->n_ranks; d++)
      ck_assert_int_eq(found[s][d], 0);
}

/* The hold of the tensor that is open at the operation has these bytes on every rank. */
static void check_hold(const hec_problem *p, const hec_program *program, hec_tensor tensor, int32_t id,
                       const int64_t bytes[RANKS]) {
  const hec_op *op = &program->ops[id];
  for (size_t i = 0; i < program->n_holds; i++) {
    const hec_hold *h = &program->holds[i];
    if (h->tensor != tensor || h->layer != op->layer || h->micro_batch != op->micro_batch || h->first > id ||
        h->last < id)
      continue;
    for (int32_t r = 0; r < p->n_ranks; r++)
      ck_assert_double_eq(h->bytes * program->local_bytes[h->bytes_at + r], (double)bytes[r]);
    return;
  }
  ck_abort_msg("tensor %d is not open at %d", (int)tensor, id);
}

static void check_way(const hec_problem *p, const hec_program *program, int32_t layer, int32_t mb, bool backward) {
  int32_t with = find(program, HEC_ROLE_NODE_DISPATCH, backward, layer, mb);
  int32_t alone = find(program, HEC_ROLE_NODE_COMBINE, backward, layer, mb);
  int64_t sent[2][RANKS] = {{0}}, arrived[2][RANKS] = {{0}}, token = (int64_t)p->bytes.token;
  check_leg(p, program, &program->ops[with], 4, sent[1], arrived[1]);
  check_leg(p, program, &program->ops[alone], 0, sent[0], arrived[0]);
  ck_assert(program->ops[with].reverse == backward && program->ops[alone].reverse == !backward);
  check_hold(p, program, backward ? HEC_TENSOR_NODE_RETURNED : HEC_TENSOR_NODE_SEND, with, sent[1]);
  check_hold(p, program, backward ? HEC_TENSOR_NODE_PARTIAL : HEC_TENSOR_NODE_ARRIVED, with, arrived[1]);
  check_hold(p, program, backward ? HEC_TENSOR_NODE_SEND : HEC_TENSOR_NODE_RETURNED, alone, sent[0]);
  check_hold(p, program, backward ? HEC_TENSOR_NODE_ARRIVED : HEC_TENSOR_NODE_PARTIAL, alone, arrived[0]);
  int32_t permute = find(program, HEC_ROLE_PERMUTE, backward, layer, mb);
  int64_t weights[RANKS] = {0};
  for (int32_t q = 0; q < p->n_ranks; q++) {
    for (int32_t d = 0; d < p->n_ranks; d++)
      weights[q] += 8 * x.pair[q][d];
    ck_assert_double_eq(program->local_bytes[program->ops[permute].local.bytes_at + q],
                        (double)(weights[q] / 8 * token));
  }
  check_hold(p, program, HEC_TENSOR_NODE_WEIGHTS, permute, weights);
}

static void check_inside(const hec_problem *p, const hec_program *program, int32_t layer, int32_t mb) {
  int32_t id = find(program, HEC_ROLE_DISPATCH, false, layer, mb);
  int64_t left = 0, token = (int64_t)p->bytes.token;
  for (int32_t q = 0; q < p->n_ranks; q++)
    for (int32_t d = 0; d < p->n_ranks; d++)
      left += q == d ? 0 : x.pair[q][d];
  for (int32_t i = 0; id >= 0 && i < program->ops[id].exchange.n_transfers; i++) {
    const hec_transfer *t = &program->transfers[program->ops[id].exchange.transfer_at + i];
    ck_assert_int_eq(hec_problem_node(p, t->source), hec_problem_node(p, t->destination));
    ck_assert_int_eq(t->bytes, x.pair[t->source][t->destination] * token);
    left -= x.pair[t->source][t->destination];
  }
  ck_assert_int_eq(left, 0);
  const hec_op *op = &program->ops[find(program, HEC_ROLE_PERMUTE, false, layer, mb)];
  const hec_cell *before = NULL;
  for (int32_t i = 0; i < op->n_cells; i++) {
    const hec_cell *c = &program->cells[op->cell_at + i];
    ck_assert_int_eq(c->rows, x.cells[c->source][c->rank][c->expert]);
    ck_assert_int_gt(c->rows, 0);
    x.cells[c->source][c->rank][c->expert] = 0;
    if (before)
      ck_assert(before->source < c->source || (before->source == c->source && before->expert < c->expert) ||
                (before->source == c->source && before->expert == c->expert && before->rank < c->rank));
    before = c;
  }
  static const int32_t none[RANKS][RANKS][EXPERTS];
  ck_assert(op->n_cells == 0 || memcmp(x.cells, none, sizeof none) == 0);
}

static int64_t n_on, n_spared;

static void visit(const hec_test_step *step, void *context) {
  (void)context;
  const hec_problem *p = &step->c->problem;
  if (!step->schedule->by_node)
    return;
  routing = hec_routing_new(&arena, p);
  hec_program_check(step->program);
  int32_t mb = step->c->n_micro_batches - 1; /* whose plan is still there */
  hec_load load = hec_test_actual_load(step, mb, &arena);
  for (int32_t l = 0; l < p->n_layers; l++) {
    bool on = find(step->program, HEC_ROLE_NODE_DISPATCH, false, l, mb) >= 0;
    ck_assert(!on || p->n_nodes > 1);
    n_on += on;
    if (!on)
      continue;
    hec_arena_mark mark = hec_arena_save(&arena);
    expect(step, &load, l);
    int64_t tokens = 0;
    for (int32_t s = 0; s < p->n_ranks; s++)
      for (int32_t v = 0; v < p->n_nodes; v++)
        tokens += x.tokens[s][v];
    ck_assert_int_le(tokens, x.plain);
    n_spared += x.plain - tokens;
    for (int32_t backward = 0; backward < (p->train ? 2 : 1); backward++)
      check_way(p, step->program, l, mb, backward);
    check_inside(p, step->program, l, mb);
    hec_arena_rewind(&arena, mark);
  }
}

HEC_TEST_LOOP(programs_by_definition, 8) {
  uint64_t seed = 2500 + (uint64_t)_i;
  n_on = n_spared = 0;
  for (int32_t i = 0; i < 12; i++) {
    hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = RANKS});
    c->detail = i % 2;
    c->only_schedule = "hiermoe"; /* the one that goes by nodes */
    if (c->problem.n_experts <= EXPERTS)
      hec_test_each(c, false, visit, NULL);
    hec_arena_free(&arena);
  }
  ck_assert_int_gt(n_on, 0);
  ck_assert_int_gt(n_spared, 0);
}

static const hec_program *lowered(hec_problem *p, const hec_load *load, const char *schedule, hec_lowering **low) {
  *low = hec_test_lower(p, "ep", schedule, load, &arena);
  return hec_lowering_program(*low);
}

/* Two nodes of two, four experts, each on its rank. Every token of rank 0 has experts 2 and 3, on the other node, every
 * other token its own rank's expert. 10 tokens a rank: 20 assignments of rank 0 leave its node as 10 rows with 80
 * bytes of weights. They go to rank 2, its proxy, which keeps 10 assignments and sends 10 to rank 3. */
HEC_TEST(by_hand) {
  hec_problem *p =
      hec_test_problem(&arena, "2x2 nvlink=300G@0us nic=1G@0us flops=100T mem=40G launch=0s", 4, 1, 4, 2, true);
  p->tokens = 10;
  hec_load load = hec_load_new(&arena, 1, 4, 4);
  hec_load_row(&load, 0, 0)[2] = hec_load_row(&load, 0, 0)[3] = 10;
  for (int32_t s = 1; s < 4; s++)
    hec_load_row(&load, 0, s)[s] = 20;
  HEC_OPENED(hec_lowering) *low = NULL;
  const hec_program *program = lowered(p, &load, "hiermoe", &low);
  int64_t token = (int64_t)p->bytes.token;
  for (int32_t back = 0; back < 2; back++) {
    static const hec_role roles[] = {HEC_ROLE_NODE_DISPATCH, HEC_ROLE_NODE_COMBINE, HEC_ROLE_DISPATCH,
                                     HEC_ROLE_COMBINE};
    const hec_transfer wanted[] = {{10 * token + 80, 0, 2, -1, -1},
                                   {10 * token, 0, 2, -1, -1},
                                   {10 * token, 2, 3, -1, -1},
                                   {10 * token, 2, 3, -1, -1}};
    for (int32_t i = 0; i < 4; i++) {
      const hec_op *op = &program->ops[find(program, roles[i], back, 0, 0)];
      const hec_transfer *t = &program->transfers[op->exchange.transfer_at];
      ck_assert_int_eq(op->exchange.n_transfers, 1);
      ck_assert(t->bytes == wanted[i].bytes && t->source == wanted[i].source &&
                t->destination == wanted[i].destination);
    }
  }
  const hec_op *permute = &program->ops[find(program, HEC_ROLE_PERMUTE, false, 0, 0)];
  static const int32_t assigned[] = {0, 20, 40, 20};
  for (int32_t r = 0; r < 4; r++)
    ck_assert_double_eq(program->local_bytes[permute->local.bytes_at + r], (double)(assigned[r] * token));
}

/* Top-1: no token has two experts on a node, so the program is serial's; on one node likewise. */
HEC_TEST_LOOP(as_serial_where_nothing_is_spared, 6) {
  uint64_t seed = 2700 + (uint64_t)_i;
  bool one_node = _i % 2;
  hec_problem *p = hec_test_problem(&arena,
                                    one_node ? "1x8 nvlink=300G@1us nic=1G@1us flops=100T mem=40G"
                                             : "2x4 nvlink=300G@1us nic=1G@1us flops=100T mem=40G",
                                    8, 2, 16, one_node ? 4 : 1, _i % 3 > 0);
  hec_load load = hec_load_new(&arena, 2, 8, 16);
  for (size_t i = 0; i < hec_load_cells(&load); i++) /* at most one expert a token */
    load.counts[i] = (uint32_t)hec_test_below(&seed, one_node ? 100 : (uint64_t)p->tokens / 16 + 1);
  hec_lowering *low[2];
  uint64_t serial = hec_program_digest(lowered(p, &load, "serial", &low[0]));
  ck_assert_uint_eq(hec_program_digest(lowered(p, &load, "hiermoe", &low[1])), serial);
  hec_lowering_free(low[0]);
  hec_lowering_free(low[1]);
}

/* Slow networks make it pay, fast ones do not; and gates that choose rule it out. */
HEC_TEST(chosen_by_price) {
  for (int32_t i = 0; i < 2; i++) {
    hec_problem *p = hec_test_problem(&arena,
                                      i ? "4x4 nvlink=100G@50us nic=400G@50us flops=100T mem=40G"
                                        : "4x4 nvlink=300G@2us nic=5G@2us flops=100T mem=40G",
                                      16, 2, 64, 8, true);
    hec_load load = hec_test_equal_load(p, 32, &arena);
    hec_lowering *low, *plain, *gated;
    const hec_program *program = lowered(p, &load, "hiermoe", &low);
    ck_assert_int_eq(find(program, HEC_ROLE_NODE_DISPATCH, false, 1, 0) >= 0, i == 0);
    double hiermoe_s = hec_test_seconds(p, program),
           serial_s = hec_test_seconds(p, lowered(p, &load, "serial", &plain));
    ck_assert(i == 0 ? hiermoe_s < 0.75 * serial_s : hiermoe_s >= serial_s && hiermoe_s <= serial_s);
    gated = hec_lowering_new(p, hec_policy_find("ep"), hec_schedule_find("hiermoe"), NULL, &arena);
    hec_lowering_gated(gated);
    hec_lower_iteration(gated, 0, &load, 1, 1);
    ck_assert_uint_eq(hec_program_digest(hec_lowering_program(gated)), hec_program_digest(hec_lowering_program(plain)));
    hec_lowering_free(low);
    hec_lowering_free(plain);
    hec_lowering_free(gated);
  }
}

/* The price is that of each operation by itself. So where ranks wait for each other the other way may have been faster. By
 * how much at most here, and that it gains far more than that elsewhere. */
static double max_lost, max_won;
static void race(const hec_test_step *step, void *context) {
  (void)context;
  hec_problem p = step->c->problem;
  if (!step->schedule->by_node || step->policy != hec_policy_find("ep") || p.n_nodes == 1)
    return;
  HEC_OPENED(hec_lowering) *serial =
      hec_lowering_new(&p, step->policy, hec_schedule_find("serial"), step->c->collective, &arena);
  hec_lower_iteration(serial, step->iteration, step->loads, step->c->n_micro_batches, step->c->n_micro_batches);
  double ratio = hec_test_seconds(&p, step->program) / hec_test_seconds(&p, hec_lowering_program(serial));
  max_lost = ratio > max_lost ? ratio : max_lost;
  max_won = ratio < max_won ? ratio : max_won;
}

HEC_TEST_LOOP(seldom_slower, 8) {
  uint64_t seed = 2900 + (uint64_t)_i;
  max_lost = max_won = 1;
  for (int32_t i = 0; i < 40; i++) {
    hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = RANKS});
    c->only_policy = "ep";
    hec_test_each(c, false, race, NULL);
    hec_arena_free(&arena);
  }
  ck_assert_double_lt(max_lost, 1.02);
  ck_assert_double_lt(max_won, 0.9);
}
