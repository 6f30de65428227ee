/* Tokens under a dispatcher: a case by hand; rows of random programs against sets counted token by token. What an all-to-all
 * has where there is nothing to spare; chunks, fp8, seconds of kernels, and both ways of simulating. */
#include "models/gpu.h"
#include "models/straggler.h"
#include "models/training/dispatcher.h"
#include "runtime/plan/rates.h"
#include "runtime/plan/token_sets.h"
#include "runtime/program/dispatched.h"
#include "runtime/program/emit.h"
#include "runtime/program/nodes.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

enum { RANKS = 16, SMS = 24 };
static const char *const line[] = {"1x4 nvlink=300G@1us flops=100T mem=40G",
                                   "2x2 nvlink=300G@1us nic=50G@1us flops=100T mem=40G"};

static void use(hec_problem *p, const hec_dispatcher *by) {
  hec_gpu *gpu = HEC_NEW(&arena, hec_gpu, 1);
  ck_assert_int_eq(hec_gpu_load("h100", &arena, gpu), HEC_OK);
  p->dispatch = (hec_problem_dispatch){.by = by, .gpu = gpu, .sms = SMS, .row = p->bytes.token};
}

/* Bytes of all forward dispatches of a layer (micro-batch mb), by pair. */
static void sum(const hec_program *p, hec_role role, int32_t layer, int32_t mb, int64_t bytes[RANKS][RANKS]) {
  memset(bytes, 0, sizeof(int64_t) * RANKS * RANKS);
  for (size_t i = 0; i < p->n_ops; i++) {
    const hec_op *op = &p->ops[i];
    for (int32_t k = 0; op->role == role && op->layer == layer && op->micro_batch == mb && !op->backward &&
                        k < op->exchange.n_transfers;
         k++) {
      const hec_transfer *t = &p->transfers[op->exchange.transfer_at + k];
      bytes[t->source][t->destination] += t->bytes;
    }
  }
}

static const hec_op *first(const hec_program *p, hec_role role, bool backward) {
  for (size_t i = 0; i < p->n_ops; i++)
    if (p->ops[i].role == role && p->ops[i].backward == backward)
      return &p->ops[i];
  ck_abort_msg("no such operation");
}

/* Two nodes of two ranks, an expert on each. Every token of ranks 0, 2 and 3 has experts 2 and 3. Those of rank 1 have
 * 0 and 1. So no token's place is left to chance. T = 10 tokens a rank.
 *
 *   0 -> 2, its proxy        10    which forwards 10 to 3
 *   1 -> 0                   10
 *   2 -> 3                   10    and the forwarded 10
 *   3 -> 2                   10 */
static hec_problem *hand_case(hec_load *load) {
  hec_problem *p = hec_test_problem(&arena, line[1], 4, 1, 4, 2, true);
  p->tokens = 10;
  *load = hec_load_new(&arena, 1, 4, 4);
  for (int32_t s = 0; s < 4; s++)
    for (int32_t e = 0; e < 2; e++)
      hec_load_row(load, 0, s)[(s == 1 ? 0 : 2) + e] = 10;
  use(p, &hec_dispatcher_deepep);
  return p;
}

HEC_TEST(by_hand) {
  static const int64_t rows[4][4] = {{0, 0, 10, 0}, {10, 0, 0, 0}, {0, 0, 0, 20}, {0, 0, 10, 0}};
  int64_t found[RANKS][RANKS];
  hec_load load;
  hec_problem *p = hand_case(&load);
  HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", "serial", &load, &arena);
  sum(hec_lowering_program(low), HEC_ROLE_DISPATCH, 0, 0, found);
  for (int32_t s = 0; s < 4; s++)
    for (int32_t d = 0; d < 4; d++)
      ck_assert_int_eq(found[s][d], rows[s][d] * (int64_t)p->bytes.token);
}

/* Of the same: copies that a rank makes {0, 20, 40, 20} and gets {10, 10, 30, 30}, the larger over T. Tokens to, or from, the
 * other node {10, 0, 10, 0}. In seconds by the law's formula, written out. */
static const struct {
  const char *slow;
  double port[4], nic[4]; /* left of a rank's */
} by_slow[] = {
    {NULL, {1, 1, 1, 1}, {1, 1, 1, 1}},
    {"link=nic_out:node1:0.5", {1, 1, 1, 1}, {1, 1, 0.5, 0.5}},
    {"link=port_in:device1:0.25,link=nic_in:node0:0.5,link=nic_out:node0:0.8", {1, 0.25, 1, 1}, {0.5, 0.5, 1, 1}}};

HEC_TEST_ROWS(seconds_by_hand, by_slow) {
  static const double ranks[4] = {1, 2, 4, 3}, nodes[4] = {1, 0, 1, 0};
  hec_load load;
  HEC_SCOPED(hec_text) said = {0};
  hec_problem *p = hand_case(&load);
  hec_rates whole = hec_rates_of(p);
  hec_cluster slowed;
  ck_ok(hec_stragglers_apply(&(hec_stragglers){by_slow[_i].slow, NULL}, 4, p->cluster, &arena, &slowed, &said));
  p->cluster = &slowed;
  /* Planners reason with one rate, the slowest rank's. */
  ck_assert((by_slow[_i].slow != NULL) == (hec_rates_of(p).token_rank < whole.token_rank));
  const hec_gpu_sheet *sheet = &p->dispatch.gpu->sheet;
  HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", "serial", &load, &arena);
  const hec_program *program = hec_lowering_program(low);
  for (int32_t back = 0; back < 4; back++) { /* dispatch, combine; then of the backward, where they change places */
    const hec_op *op = first(program, back % 2 ? HEC_ROLE_COMBINE : HEC_ROLE_DISPATCH, back >= 2);
    bool combines = (back % 2 == 1) != (back >= 2);
    const double *c =
        hec_gpu_fit(p->dispatch.gpu, "dispatch", combines ? "normal combine" : "normal dispatch")->constants;
    ck_assert_int_eq(op->reverse, combines);
    const double *kernels_s = hec_program_kernels_s(program, op);
    ck_assert_ptr_nonnull(kernels_s);
    for (int32_t r = 0; r < 4; r++) {
      double bytes = p->bytes.token, copy = (c[2] + c[3] * ranks[r] * bytes + c[4] * nodes[r] * bytes) / SMS;
      double port = c[5] * by_slow[_i].port[r] * sheet->nvlink_bandwidth;
      double token = hec_overlap(copy, ranks[r] / 2 * bytes / port, c[7]);
      double nic = c[6] * by_slow[_i].nic[r] * sheet->nic_bandwidth;
      double work = 10 * hec_overlap(token, nodes[r] * bytes / nic, c[7]);
      double s = c[0] + c[1] * 1 + c[8] * bytes + work + sqrt(work * c[9]);
      ck_assert_double_eq_tol(kernels_s[r] / s, 1, 1e-12);
    }
  }
}

/* ---- Token by token ---- */

static int64_t expected[RANKS][RANKS], plain_far, once_far, least_far;

static void expect_source(const hec_test_step *step, const hec_load *load, int32_t layer, int32_t s,
                          hec_routing *routing) {
  const hec_problem *p = &step->c->problem;
  int32_t room = 4 * RANKS, dpn = p->cluster->devices_per_node;
  int32_t *ranks = HEC_NEW(&arena, int32_t, room), *at = HEC_NEW(&arena, int32_t, p->n_experts);
  int32_t *order = HEC_NEW(&arena, int32_t, p->n_experts);
  uint32_t *tokens = HEC_NEW(&arena, uint32_t, room);
  uint8_t *seen = HEC_NEW(&arena, uint8_t, (size_t)p->tokens * 2 * RANKS);
  int64_t most[RANKS] = {0};
  hec_token_sets(&(hec_token_row){hec_load_row(load, layer, s), p->n_experts, p->tokens, layer, s}, at, order);
  for (int32_t e = 0; e < p->n_experts; e++) {
    int32_t i = 0, n = hec_routing_split(routing, hec_lowering_run(step->low)->policy->dispatch, p,
                                         &hec_lowering_run(step->low)->plan, load, layer, s, e, ranks, tokens);
    for (int32_t k = 0; k < n; k++)
      for (uint32_t j = 0; j < tokens[k]; j++, i++) {
        int32_t d = ranks[k], v = d / dpn, q = hec_proxy_of(p, s, v);
        uint8_t *mark = &seen[(size_t)((at[e] + i) % p->tokens) * 2 * RANKS];
        if (!mark[RANKS + v] && q != s) {
          expected[s][q]++;
          once_far++;
        }
        if (!mark[d] && d != q)
          expected[q][d]++;
        mark[RANKS + v] = mark[d] = 1;
        plain_far += q != s;
        most[v] = (int64_t)j + 1 > most[v] && q != s ? (int64_t)j + 1 : most[v];
      }
  }
  for (int32_t v = 0; v < RANKS; v++) /* tokens of one expert on one rank are different ones */
    least_far += most[v] < p->tokens ? most[v] : p->tokens;
}

static int64_t n_layers, n_spared, n_cut;

static void visit(const hec_test_step *step, void *context) {
  (void)context;
  const hec_problem *p = &step->c->problem;
  if (step->schedule->bound)
    return;
  hec_routing routing = hec_routing_new(&arena, p);
  int32_t mb = step->c->n_micro_batches - 1; /* whose plan is still there */
  hec_load load = hec_test_actual_load(step, mb, &arena);
  for (int32_t l = 0; l < p->n_layers; l++) {
    int64_t found[RANKS][RANKS], token = (int64_t)p->bytes.token;
    memset(expected, 0, sizeof expected);
    plain_far = once_far = least_far = 0;
    for (int32_t s = 0; s < p->n_ranks; s++)
      expect_source(step, &load, l, s, &routing);
    sum(step->program, HEC_ROLE_DISPATCH, l, mb, found);
    for (int32_t s = 0; s < p->n_ranks; s++)
      for (int32_t d = 0; d < p->n_ranks; d++)
        ck_assert_msg(found[s][d] == expected[s][d] * token, "%s: layer %d, %d -> %d: expected %lld rows, found %lld",
                      hec_test_step_name(step), l, s, d, (long long)expected[s][d], (long long)(found[s][d] / token));
    ck_assert_int_le(once_far, plain_far);
    ck_assert_int_ge(once_far, least_far);
    n_spared += plain_far - once_far;
    n_layers++;
    n_cut += hec_lowering_choice(step->low)->degree[1] < hec_lowering_choice(step->low)->n_layers;
  }
}

/* Any policy, any schedule, whole and in chunks; the walk and the event engine agree on what kernels take. */
HEC_TEST_LOOP(programs_by_definition, 8) {
  uint64_t seed = 4100 + (uint64_t)_i;
  n_layers = n_spared = n_cut = 0;
  for (int32_t i = 0; i < 6; i++) {
    hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = RANKS});
    if (c->problem.esp > 1)
      continue;
    c->detail = false;
    use(&c->problem, i % 2 ? &hec_dispatcher_deepep : &hec_dispatcher_hybridep);
    hec_test_each(c, false, visit, NULL);
    hec_arena_free(&arena);
  }
  ck_assert_int_gt(n_layers, 0);
  ck_assert_int_gt(n_spared, 0);
  ck_assert_int_gt(n_cut, 0);
}

/* On one node, a rank for each expert: a token never has two of its experts on a rank. So rows are those of an all-to-all. */
HEC_TEST(as_alltoall_where_nothing_is_spared) {
  uint64_t seed = 4200;
  int64_t found[2][RANKS][RANKS];
  hec_problem *p = hec_test_problem(&arena, line[0], 4, 1, 4, 2, true);
  hec_load load = hec_load_new(&arena, 1, 4, 4);
  for (size_t i = 0; i < hec_load_cells(&load); i++)
    load.counts[i] = (uint32_t)hec_test_below(&seed, (uint64_t)p->tokens);
  for (int32_t i = 0; i < 2; i++) {
    if (i == 1)
      use(p, &hec_dispatcher_deepep);
    HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", "serial", &load, &arena);
    sum(hec_lowering_program(low), HEC_ROLE_DISPATCH, 0, 0, found[i]);
  }
  ck_assert_mem_eq(found[0], found[1], sizeof found[0]);
}

/* All tokens to all ranks of a group; and an all-to-all by name is that without one. */
HEC_TEST(gathers) {
  int64_t found[RANKS][RANKS];
  hec_problem *p = hec_test_problem(&arena, line[1], 4, 1, 2, 1, true); /* two groups of two ranks */
  hec_load load = hec_test_equal_load(p, 128, &arena);
  use(p, &hec_dispatcher_allgather);
  HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", "serial", &load, &arena);
  sum(hec_lowering_program(low), HEC_ROLE_DISPATCH, 0, 0, found);
  for (int32_t s = 0; s < 4; s++)
    for (int32_t d = 0; d < 4; d++)
      ck_assert_int_eq(found[s][d], s != d && s / 2 == d / 2 ? p->tokens * (int64_t)p->bytes.token : 0);
  ck_assert_int_eq(first(hec_lowering_program(low), HEC_ROLE_DISPATCH, false)->exchange.seconds, 0);
  double named_s = 0, plain_s;
  for (int32_t i = 0; i < 2; i++) {
    hec_lowering_free(low);
    plain_s = named_s;
    if (i == 0)
      use(p, &hec_dispatcher_alltoall);
    else
      p->dispatch.by = NULL;
    low = hec_test_lower(p, "ep", "serial", &load, &arena);
    named_s = hec_test_seconds(p, hec_lowering_program(low));
  }
  ck_assert_double_eq(named_s, plain_s);
}

/* fp8 shortens the way to the experts, in forward and backward, and not the way back. */
HEC_TEST_LOOP(fp8_to_the_experts, HEC_N_DISPATCHERS) {
  hec_load load;
  hec_problem *p = hand_case(&load);
  use(p, hec_dispatchers[_i]);
  p->dispatch.row = p->bytes.token / 2 + 4;
  HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", "pipemoe", &load, &arena);
  const hec_program *program = hec_lowering_program(low);
  for (int32_t back = 0; back < 2; back++) {
    const hec_op *there = first(program, back ? HEC_ROLE_COMBINE : HEC_ROLE_DISPATCH, back == 1);
    const hec_op *home = first(program, back ? HEC_ROLE_DISPATCH : HEC_ROLE_COMBINE, back == 1);
    ck_assert_double_eq(there->bytes * p->bytes.token, home->bytes * p->dispatch.row);
    ck_assert(!there->reverse && home->reverse);
  }
}

/* More SMs are never slower, fewer bytes are not either; and both ways of simulating agree under every network law. */
HEC_TEST_TABLE(simulated, hec_laws) {
  hec_load load;
  hec_problem *p = hand_case(&load);
  double before_s = 1e9;
  for (int32_t sms = 8; sms <= 24; sms += 8) {
    p->dispatch.sms = sms;
    HEC_OPENED(hec_lowering) *low = hec_test_lower(p, "ep", "serial", &load, &arena);
    double s = hec_test_seconds(p, hec_lowering_program(low));
    ck_assert_double_le(s, before_s);
    before_s = s;
    int64_t walked = hec_test_end_ps(p, hec_lowering_program(low), &hec_law_alpha_beta, (hec_sim_options){0});
    ck_assert_int_eq(walked, hec_test_end_ps(p, hec_lowering_program(low), &hec_law_alpha_beta,
                                             (hec_sim_options){.force_engine = true}));
    int64_t ps = hec_test_end_ps(p, hec_lowering_program(low), hec_laws[_i], (hec_sim_options){.force_engine = true});
    ck_assert_int_ge(ps, walked - walked / 1000); /* of the rest, which is on the network, closed forms are the least */
  }
}
