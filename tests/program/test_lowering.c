/* Lowering of random problems under every policy and schedule. Tokens computed exactly once, exchanges that mirror
 * each other, traffic counted again from scratch. And an order in which everything is there before it is used. */
#include "runtime/program/emit.h"
#include "tests/support/problem_case.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

enum { CASES = 40 };

/* The only operation of that kind and chunk, -1 if there is none; two are a failure. */
static int32_t find_chunk(const hec_test_step *step, hec_role role, bool backward, int32_t layer, int32_t micro_batch,
                          int32_t chunk) {
  int32_t found = -1;
  for (size_t i = 0; i < step->program->n_ops; i++) {
    const hec_op *op = &step->program->ops[i];
    if (op->role != role || op->backward != backward || op->layer != layer || op->micro_batch != micro_batch ||
        (op->degree > 1 && op->chunk >= 0 ? op->chunk : 0) != chunk)
      continue;
    ck_assert_msg(found < 0, "two operations \"%s\": %s", hec_role_name[role], hec_test_step_name(step));
    found = (int32_t)i;
  }
  return found;
}

/* Of a layer that is not cut, or of what its chunks have in common. */
static int32_t find_op(const hec_test_step *step, hec_role role, bool backward, int32_t layer, int32_t micro_batch) {
  return find_chunk(step, role, backward, layer, micro_batch, 0);
}

static int32_t degree_of(const hec_test_step *step, int32_t layer, int32_t micro_batch) {
  int32_t id = find_op(step, HEC_ROLE_EXPERTS, false, layer, micro_batch);
  return id >= 0 && step->program->ops[id].degree > 1 ? step->program->ops[id].degree : 1;
}

/* Rows travel once per node: who sends them on, test_nodes.c has. */
static bool by_node(const hec_test_step *step, int32_t layer, int32_t micro_batch) {
  return find_op(step, HEC_ROLE_NODE_DISPATCH, false, layer, micro_batch) >= 0;
}

static bool is_ideal(const hec_test_step *step) {
  return strcmp(step->schedule->name, "ideal") == 0;
}

/* Bytes from s to d of a layer's exchange, all chunks together, [n_ranks * n_ranks], as they travel. */
static int64_t *matrix_of(const hec_test_step *step, hec_role role, bool backward, int32_t layer, int32_t mb) {
  const hec_program *program = step->program;
  int32_t n = program->n_ranks;
  int64_t *matrix = HEC_NEW(&arena, int64_t, (size_t)n * (size_t)n);
  for (int32_t c = 0; c < degree_of(step, layer, mb); c++) {
    int32_t id = find_chunk(step, role, backward, layer, mb, c);
    for (int32_t i = 0; id >= 0 && i < program->ops[id].exchange.n_transfers; i++) {
      const hec_op *op = &program->ops[id];
      const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
      int32_t s = op->reverse ? t->destination : t->source, d = op->reverse ? t->source : t->destination;
      matrix[s * n + d] += t->bytes;
    }
  }
  return matrix;
}

/* The part of role inside nodes, of routes over relays. */
static hec_role inside_of(hec_role role) {
  return role == HEC_ROLE_DISPATCH ? HEC_ROLE_DISPATCH_INSIDE : HEC_ROLE_COMBINE_INSIDE;
}

/* What it has and what its part inside nodes has, together. */
static int64_t *both_of(const hec_test_step *step, hec_role role, bool backward, int32_t layer, int32_t mb) {
  int64_t *sum = matrix_of(step, role, backward, layer, mb);
  const int64_t *inside = matrix_of(step, inside_of(role), backward, layer, mb);
  for (int32_t i = 0; i < step->program->n_ranks * step->program->n_ranks; i++)
    sum[i] += inside[i];
  return sum;
}

/* Rows of an expert on a rank, all chunks together. Chunks of a cell differ by one row, so those of the sum by one for each
 * source. */
static int64_t rows_of(const hec_test_step *step, bool backward, int32_t layer, int32_t mb, int32_t rank,
                       int32_t expert) {
  int64_t sum = 0, min = INT64_MAX, max = 0;
  for (int32_t c = 0; c < degree_of(step, layer, mb); c++) {
    int32_t id = find_chunk(step, HEC_ROLE_EXPERTS, backward, layer, mb, c);
    ck_assert_int_ge(id, 0);
    int64_t rows = hec_test_rows(step->program, &step->program->ops[id], rank, expert);
    sum += rows;
    min = rows < min ? rows : min;
    max = rows > max ? rows : max;
  }
  ck_assert_msg(max - min <= step->program->n_ranks, "chunks of %lld to %lld rows: %s", (long long)min, (long long)max,
                hec_test_step_name(step));
  return sum;
}

static void expect_same(const hec_test_step *step, const int64_t *a, const int64_t *b, bool turned, const char *what) {
  int32_t n = step->program->n_ranks;
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++)
      ck_assert_msg(a[s * n + d] == (turned ? b[d * n + s] : b[s * n + d]), "%s: %s", what, hec_test_step_name(step));
}

/* Experts' rows sum to the load; what leaves and enters a rank is the difference between its own and its computed
 * tokens. */
static void check_tokens_once(const hec_test_step *step, int32_t layer, int32_t mb, const hec_load *load) {
  const hec_program *program = step->program;
  int32_t n = program->n_ranks;
  int64_t *computed = HEC_NEW(&arena, int64_t, n);
  for (int32_t e = 0; e < load->n_experts; e++) {
    int64_t rows = 0, wanted = 0;
    for (int32_t r = 0; r < n; r++) {
      int64_t here = rows_of(step, false, layer, mb, r, e);
      rows += here;
      computed[r] += here;
      wanted += hec_load_row(load, layer, r)[e];
    }
    ck_assert_msg(rows == wanted, "expert %d: %lld rows, load %lld: %s", e, (long long)rows, (long long)wanted,
                  hec_test_step_name(step));
  }
  int64_t token = (int64_t)step->c->problem.bytes.token;
  const int64_t *sent = both_of(step, HEC_ROLE_DISPATCH, false, layer, mb); /* relays send what they receive */
  for (int32_t r = 0; r < n && !by_node(step, layer, mb); r++) {
    int64_t balance = 0, own = 0;
    for (int32_t other = 0; other < n; other++) {
      balance += sent[other * n + r] - sent[r * n + other];
      ck_assert_int_eq(sent[r * n + other] % token, 0);
    }
    for (int32_t e = 0; e < load->n_experts; e++)
      own += hec_load_row(load, layer, r)[e];
    ck_assert_msg(own * token + balance == computed[r] * token, "rank %d: %s", r, hec_test_step_name(step));
  }
}

/* The rank over which s sends to d, by the definition of 2DH. */
static int32_t relay_of(const hec_test_step *step, int32_t layer, int32_t mb, int32_t s, int32_t d) {
  int32_t per_node = step->c->problem.cluster->devices_per_node, q = s / per_node * per_node + d % per_node;
  int32_t permute = find_op(step, HEC_ROLE_PERMUTE, false, layer, mb);
  int32_t route = permute < 0 ? 0 : step->program->ops[permute].route;
  return route > 0 && q < step->c->problem.n_ranks ? q : s;
}

/* The last micro-batch's plan is still there: its dispatch again from routing, along each pair's way. */
static void check_routing(const hec_test_step *step, int32_t layer, int32_t mb, const hec_load *load) {
  const hec_problem *problem = &step->c->problem;
  hec_routing routing = hec_routing_new(&arena, problem);
  hec_routing_make(&routing, step->policy->dispatch, problem, &hec_lowering_run(step->low)->plan, load, layer);
  const int64_t *between = matrix_of(step, HEC_ROLE_DISPATCH, false, layer, mb);
  const int64_t *inside = matrix_of(step, HEC_ROLE_DISPATCH_INSIDE, false, layer, mb);
  int32_t n = problem->n_ranks;
  int64_t *left[2] = {HEC_NEW(&arena, int64_t, n * n), HEC_NEW(&arena, int64_t, n * n)};
  for (int32_t i = 0; i < n * n; i++) {
    int64_t bytes = (int64_t)routing.pair[i] * (int64_t)problem->bytes.token;
    int32_t s = i / n, d = i % n, q = s == d ? s : relay_of(step, layer, mb, s, d);
    if (q != s)
      left[0][s * n + q] += bytes;
    if (q != d)
      left[1][q * n + d] += bytes;
  }
  for (int32_t i = 0; i < n * n && !by_node(step, layer, mb); i++) {
    ck_assert_int_eq(inside[i], left[0][i]);
    ck_assert_int_eq(between[i], left[1][i]);
  }
  for (int32_t r = 0; r < problem->n_ranks; r++)
    for (int32_t i = routing.expert_at[r]; i < routing.expert_at[r + 1]; i++)
      ck_assert_int_eq(rows_of(step, false, layer, mb, r, routing.expert[i]), routing.tokens[i]);
}

static void check_mirrors(const hec_test_step *step, int32_t layer, int32_t mb) {
  const hec_program *program = step->program;
  const int64_t *out = matrix_of(step, HEC_ROLE_DISPATCH, false, layer, mb);
  const int64_t *inside = matrix_of(step, HEC_ROLE_DISPATCH_INSIDE, false, layer, mb);
  expect_same(step, matrix_of(step, HEC_ROLE_COMBINE, false, layer, mb), out, true, "combine");
  expect_same(step, matrix_of(step, HEC_ROLE_COMBINE_INSIDE, false, layer, mb), inside, true, "combine inside");
  const int64_t *combine = matrix_of(step, HEC_ROLE_COMBINE, true, layer, mb);
  const int64_t *dispatch = matrix_of(step, HEC_ROLE_DISPATCH, true, layer, mb);
  if (!step->c->problem.train) {
    ck_assert_int_lt(find_op(step, HEC_ROLE_COMBINE, true, layer, mb), 0);
    ck_assert_int_lt(find_op(step, HEC_ROLE_EXPERTS, true, layer, mb), 0);
    return;
  }
  out = matrix_of(step, HEC_ROLE_NODE_DISPATCH, false, layer, mb);
  expect_same(step, matrix_of(step, HEC_ROLE_NODE_DISPATCH, true, layer, mb), out, true, "node dispatch");
  out = matrix_of(step, HEC_ROLE_NODE_COMBINE, false, layer, mb);
  expect_same(step, matrix_of(step, HEC_ROLE_NODE_COMBINE, true, layer, mb), out, true, "node combine");
  out = matrix_of(step, HEC_ROLE_DISPATCH, false, layer, mb);
  expect_same(step, combine, out, false, "combine backward");
  expect_same(step, dispatch, out, true, "dispatch backward");
  expect_same(step, matrix_of(step, HEC_ROLE_COMBINE_INSIDE, true, layer, mb), inside, false,
              "combine inside backward");
  expect_same(step, matrix_of(step, HEC_ROLE_DISPATCH_INSIDE, true, layer, mb), inside, true,
              "dispatch inside backward");
  for (int32_t r = 0; r < program->n_ranks; r++)
    for (int32_t e = 0; e < step->c->problem.n_experts; e++)
      ck_assert_int_eq(rows_of(step, false, layer, mb, r, e), rows_of(step, true, layer, mb, r, e));
}

static void visit_tokens(const hec_test_step *step, void *context) {
  (void)context;
  if (is_ideal(step))
    return;
  for (int32_t mb = 0; mb < step->c->n_micro_batches; mb++) {
    hec_load load = hec_test_actual_load(step, mb, &arena);
    for (int32_t l = 0; l < step->c->problem.n_layers; l++) {
      check_tokens_once(step, l, mb, &load);
      check_mirrors(step, l, mb);
      if (mb == step->c->n_micro_batches - 1)
        check_routing(step, l, mb, &load);
    }
  }
}

HEC_TEST_LOOP(tokens_once, hec_test_cases(CASES)) {
  uint64_t seed = 101 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){0}), false, visit_tokens, NULL);
}

/* Traffic from nothing but the transfers; dense gradients once an iteration. Replicas as Eq. 2 of hecate.md says, and
 * into and out of a node each gradient no oftener than its nodes must (replicas.h). */
static double replica_bytes(const hec_test_step *step, double *between) {
  const hec_plan *plan = &hec_lowering_run(step->low)->plan;
  const hec_problem *problem = &step->c->problem;
  double bytes = *between = 0;
  for (int32_t l = 0; l < plan->n_layers; l++)
    for (int32_t e = 0; e < plan->n_experts; e++) {
      hec_copies copies = hec_plan_copies(plan, l, e);
      uint64_t keepers = 1u << hec_plan_home(plan, l, e), nodes = 0;
      for (int32_t i = 0; i < copies.n; i++)
        keepers |= copies.kind[i] == HEC_COPY_RESIDENT ? 1u << copies.rank[i] : 0;
      for (int32_t r = 0; r < problem->n_ranks; r++)
        nodes |= keepers >> r & 1 ? 1u << hec_problem_node(problem, r) : 0;
      bytes += 2.0 * (__builtin_popcountll(keepers) - 1) * problem->bytes.expert_grad;
      *between += 2.0 * (__builtin_popcountll(nodes) - 1) * problem->bytes.expert_grad;
    }
  return bytes;
}

/* Bytes of replicas' gradients from node to node. */
static double replicas_between(const hec_test_step *step) {
  const hec_program *program = step->program;
  double bytes = 0;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    for (int32_t k = 0; op->kind == HEC_OP_EXCHANGE && k < op->exchange.n_transfers; k++) {
      const hec_transfer *t = &program->transfers[op->exchange.transfer_at + k];
      if (hec_role_traffic[op->role] == HEC_TRAFFIC_REPLICA &&
          hec_problem_node(&step->c->problem, t->source) != hec_problem_node(&step->c->problem, t->destination))
        bytes += (double)t->bytes;
    }
  }
  return bytes;
}

static void check_replicas(const hec_test_step *step, double counted) {
  double between, all = replica_bytes(step, &between);
  bool train = step->c->problem.train;
  ck_assert_msg(counted == (train ? all : 0), "replicas: %s", hec_test_step_name(step));
  ck_assert_msg(replicas_between(step) == (train ? between : 0), "replicas between nodes: %s",
                hec_test_step_name(step));
}

static void visit_traffic(const hec_test_step *step, void *context) {
  (void)context;
  const hec_program *program = step->program;
  const hec_problem *problem = &step->c->problem;
  double told[HEC_N_TRAFFIC], one_off[HEC_N_TRAFFIC], counted[HEC_N_TRAFFIC + 1] = {0}, dense = 0;
  hec_program_traffic(program, told, one_off);
  for (int k = 0; k < HEC_N_TRAFFIC; k++) { /* only what a change of placement costs is one-off */
    ck_assert(k == HEC_TRAFFIC_MIGRATION ? told[k] == 0 : one_off[k] == 0);
    told[k] += one_off[k];
  }
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    for (int32_t t = 0; op->kind == HEC_OP_EXCHANGE && t < op->exchange.n_transfers; t++)
      counted[hec_role_traffic[op->role]] += (double)program->transfers[op->exchange.transfer_at + t].bytes;
    dense += op->role == HEC_ROLE_DENSE_REDUCE ? op->bytes : 0;
  }
  counted[HEC_TRAFFIC_DENSE] = 2.0 * (problem->n_ranks - 1) * dense;
  for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
    ck_assert_msg(told[k] <= counted[k] * (1 + 1e-12) && told[k] >= counted[k] * (1 - 1e-12), "traffic: %s",
                  hec_test_step_name(step));
  double wanted = problem->train && problem->n_ranks > 1 ? problem->bytes.dense_grad : 0;
  ck_assert_msg(dense >= wanted * (1 - 1e-12) && dense <= wanted * (1 + 1e-12), "dense %.17g, wanted %.17g: %s", dense,
                wanted, hec_test_step_name(step));
  if (!is_ideal(step))
    check_replicas(step, counted[HEC_TRAFFIC_REPLICA]);
  if (is_ideal(step))
    for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
      ck_assert(k == HEC_TRAFFIC_DENSE || told[k] == 0);
}

HEC_TEST_LOOP(traffic_again, hec_test_cases(CASES)) {
  uint64_t seed = 301 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){0}), false, visit_traffic, NULL);
}

/* before[op]: operations that have ended on `rank` when op starts there, as sets of n_ops bytes. */
static uint8_t *order_of(const hec_program *program, int32_t rank) {
  size_t n = program->n_ops;
  uint8_t *before = HEC_NEW(&arena, uint8_t, n * n);
  int32_t last[HEC_N_LANES];
  memset(last, 0xff, sizeof last);
  for (size_t i = 0; i < n; i++) {
    const hec_op *op = &program->ops[i];
    if (!hec_program_takes_part(program, op, rank))
      continue;
    for (int32_t d = -1; d < op->n_deps; d++) {
      int32_t dep = d < 0 ? last[op->lane] : program->deps[op->dep_at + d];
      if (dep < 0 || !hec_program_takes_part(program, &program->ops[dep], rank))
        continue;
      before[i * n + (size_t)dep] = 1;
      for (size_t k = 0; k < n; k++)
        before[i * n + k] |= before[(size_t)dep * n + k];
    }
    last[op->lane] = (int32_t)i;
  }
  return before;
}

typedef struct {
  const hec_test_step *step;
  const uint8_t *before;
  int32_t rank;
} order;

/* `first` ends before `second` starts on the rank, if it takes part in both. */
static void expect_before(const order *o, int32_t first, int32_t second) {
  const hec_program *program = o->step->program;
  if (first < 0 || second < 0 || !hec_program_takes_part(program, &program->ops[first], o->rank) ||
      !hec_program_takes_part(program, &program->ops[second], o->rank))
    return;
  ck_assert_msg(o->before[(size_t)second * program->n_ops + (size_t)first],
                "operation %d (%s) may run before %d (%s) has ended: %s", second,
                hec_role_name[program->ops[second].role], first, hec_role_name[program->ops[first].role],
                hec_test_step_name(o->step));
}

static int32_t find_of(const hec_test_step *step, hec_role role, bool backward, int32_t l, int32_t mb, int32_t chunk) {
  bool each = role == HEC_ROLE_DISPATCH || role == HEC_ROLE_EXPERTS || role == HEC_ROLE_COMBINE ||
              role == HEC_ROLE_DISPATCH_INSIDE || role == HEC_ROLE_COMBINE_INSIDE;
  return find_chunk(step, role, backward, l, mb, each ? chunk : 0);
}

/* Each chunk in its own order, what they have in common (permutes, the rest of the block) before and after all of them. */
static void check_layer_order(const order *o, int32_t l, int32_t mb, int32_t chunk) {
  static const hec_role there[] = {HEC_ROLE_ATTENTION,       HEC_ROLE_GATE,           HEC_ROLE_COUNTS,
                                   HEC_ROLE_NODE_PERMUTE,    HEC_ROLE_NODE_DISPATCH,  HEC_ROLE_PERMUTE,
                                   HEC_ROLE_DISPATCH_INSIDE, HEC_ROLE_DISPATCH,       HEC_ROLE_EXPERTS,
                                   HEC_ROLE_COMBINE,         HEC_ROLE_COMBINE_INSIDE, HEC_ROLE_UNPERMUTE,
                                   HEC_ROLE_NODE_COMBINE,    HEC_ROLE_NODE_UNPERMUTE};
  static const hec_role back[] = {HEC_ROLE_NODE_UNPERMUTE, HEC_ROLE_NODE_COMBINE,    HEC_ROLE_UNPERMUTE,
                                  HEC_ROLE_COMBINE_INSIDE, HEC_ROLE_COMBINE,         HEC_ROLE_EXPERTS,
                                  HEC_ROLE_DISPATCH,       HEC_ROLE_DISPATCH_INSIDE, HEC_ROLE_PERMUTE,
                                  HEC_ROLE_NODE_DISPATCH,  HEC_ROLE_NODE_PERMUTE,    HEC_ROLE_GATE,
                                  HEC_ROLE_ATTENTION};
  for (size_t i = 0; i < sizeof there / sizeof *there; i++)
    for (size_t j = i + 1; j < sizeof there / sizeof *there; j++)
      expect_before(o, find_of(o->step, there[i], false, l, mb, chunk),
                    find_of(o->step, there[j], false, l, mb, chunk));
  for (size_t i = 0; i < sizeof back / sizeof *back; i++)
    for (size_t j = i + 1; j < sizeof back / sizeof *back; j++)
      expect_before(o, find_of(o->step, back[i], true, l, mb, chunk), find_of(o->step, back[j], true, l, mb, chunk));
  expect_before(o, find_op(o->step, HEC_ROLE_SHARED_EXPERTS, false, l, mb),
                find_op(o->step, HEC_ROLE_ATTENTION, false, l + 1, mb));
  expect_before(o, find_chunk(o->step, HEC_ROLE_EXPERTS, false, l, mb, chunk),
                find_op(o->step, HEC_ROLE_ATTENTION, false, l + 1, mb));
  expect_before(o, find_op(o->step, HEC_ROLE_ATTENTION, true, l + 1, mb),
                find_op(o->step, HEC_ROLE_UNPERMUTE, true, l, mb));
  expect_before(o, find_op(o->step, HEC_ROLE_ATTENTION, false, o->step->c->problem.n_layers - 1, mb),
                find_op(o->step, HEC_ROLE_ATTENTION, true, l, mb));
}

static bool receives(const hec_program *program, const hec_op *op, int32_t rank) {
  for (int32_t t = 0; op->kind == HEC_OP_EXCHANGE && t < op->exchange.n_transfers; t++)
    if (program->transfers[op->exchange.transfer_at + t].destination == rank)
      return true;
  return false;
}

/* Of what no layer has, the head's gradients are reduced on their own where the schedule lets them. */
static bool is_head(const order *o, const hec_op *op) {
  double head = hec_problem_head_gradients(&o->step->c->problem);
  bool beside = !o->step->schedule->cuts && !o->step->schedule->alone;
  bool apart = beside && head > 0;
  double all = hec_problem_gradients(&o->step->c->problem, -1); /* the head's are the last of them */
  ck_assert(!apart || op->allreduce.first_byte == 0 || op->allreduce.first_byte == (int64_t)(all - head));
  return apart && op->allreduce.first_byte > 0;
}

/* Everything that moves parameters or gradients, against what uses them. */
static void check_sparse_order(const order *o) {
  const hec_program *program = o->step->program;
  int32_t optimizer = find_op(o->step, HEC_ROLE_OPTIMIZER, true, -1, o->step->c->n_micro_batches - 1);
  ck_assert_int_eq(optimizer >= 0, o->step->c->problem.train);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    int32_t id = (int32_t)i, mb = op->micro_batch, l = op->layer;
    if ((op->role == HEC_ROLE_GATHER || op->role == HEC_ROLE_CALIBRATE) && receives(program, op, o->rank))
      expect_before(o, id, find_op(o->step, HEC_ROLE_EXPERTS, false, l, mb));
    if (op->role == HEC_ROLE_REGATHER && receives(program, op, o->rank))
      expect_before(o, id, find_op(o->step, HEC_ROLE_EXPERTS, true, l, mb));
    if (op->lane == HEC_LANE_GRAD && op->role != HEC_ROLE_DENSE_REDUCE)
      expect_before(o, find_chunk(o->step, HEC_ROLE_EXPERTS, true, l, mb, degree_of(o->step, l, mb) - 1), id);
    if (op->role == HEC_ROLE_DENSE_REDUCE && l >= 0)
      expect_before(o, find_op(o->step, HEC_ROLE_ATTENTION, true, l, mb), id);
    if (op->role == HEC_ROLE_DENSE_REDUCE && l < 0)
      expect_before(o, find_op(o->step, is_head(o, op) ? HEC_ROLE_HEAD : HEC_ROLE_EMBEDDING, true, -1, mb), id);
    if (op->lane == HEC_LANE_GRAD || op->role == HEC_ROLE_EXPERTS)
      expect_before(o, id, optimizer);
    for (int32_t k = 0; op->role == HEC_ROLE_MIGRATE && k < o->step->c->problem.n_layers; k++)
      if (l < 0 || l == k)
        expect_before(o, id, find_op(o->step, HEC_ROLE_EXPERTS, false, k, mb));
    for (size_t j = i + 1; op->role == HEC_ROLE_MIGRATE && j < program->n_ops; j++)
      if (hec_role_traffic[program->ops[j].role] == HEC_TRAFFIC_GATHER && (l < 0 || program->ops[j].layer == l))
        expect_before(o, id, (int32_t)j);
    if (op->role == HEC_ROLE_PLAN && l >= 0) {
      expect_before(o, find_op(o->step, HEC_ROLE_COUNTS, false, l, mb), id);
      expect_before(o, id, find_op(o->step, HEC_ROLE_DISPATCH, false, l, mb));
    }
  }
}

static void visit_order(const hec_test_step *step, void *context) {
  (void)context;
  hec_program_check(step->program);
  hec_arena_mark mark = hec_arena_save(&arena);
  for (int32_t r = 0; r < step->program->n_ranks; r += 1 + step->program->n_ranks / 4) {
    order o = {step, order_of(step->program, r), r};
    check_sparse_order(&o);
    for (int32_t mb = 0; mb < step->c->n_micro_batches; mb++)
      for (int32_t l = 0; l < step->c->problem.n_layers; l++)
        for (int32_t c = 0; c < degree_of(step, l, mb); c++)
          check_layer_order(&o, l, mb, c);
    hec_arena_rewind(&arena, mark);
  }
}

HEC_TEST_LOOP(order_holds, hec_test_cases(CASES)) {
  uint64_t seed = 501 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){0}), false, visit_order, NULL);
}

/* The head's gradients are reduced on their own, all of them once, unless the run or the schedule has them late. */
static void visit_head(const hec_test_step *step, void *context) {
  const hec_problem *p = &step->c->problem;
  bool apart = !p->head_late && !step->schedule->cuts && !step->schedule->alone;
  int32_t *n_apart = context, n = 0;
  double bytes = 0;
  for (size_t i = 0; i < step->program->n_ops; i++) {
    const hec_op *op = &step->program->ops[i];
    bool rest = op->role == HEC_ROLE_DENSE_REDUCE && op->layer < 0;
    n += rest;
    bytes += rest ? op->bytes : 0;
  }
  ck_assert_msg(n == 1 + apart, "%d reductions of what no layer has: %s", n, hec_test_step_name(step));
  ck_assert_double_eq_tol(bytes, hec_problem_gradients(p, -1), 1e-9 * bytes);
  *n_apart += apart;
}

HEC_TEST_LOOP(head_apart, 4) {
  uint64_t seed = 801;
  int32_t n_apart = 0;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  c->moe.vocabulary = 1000;
  c->problem.train = true;
  c->problem.n_ranks = 4;
  c->problem.head_late = _i % 2;
  c->turn = _i;
  hec_test_recluster(c, "2x2 nvlink=300G nic=50G flops=1T mem=40G", &arena); /* no latency: nothing is lost by two */
  for (int32_t i = 0; i < c->n_iterations * c->n_micro_batches; i++)
    c->loads[i] = hec_test_random_load(&arena, &c->problem, &seed);
  hec_test_each(c, false, visit_head, &n_apart);
  ck_assert_int_eq(n_apart > 0, _i % 2 == 0);
}

/* Under a schedule without overlap, of any two operations of a rank one ends before the other starts. And there is one
 * under which that is not so. */
static void visit_alone(const hec_test_step *step, void *context) {
  const hec_program *program = step->program;
  hec_arena_mark mark = hec_arena_save(&arena);
  int32_t *n_beside = context;
  for (int32_t r = 0; r < program->n_ranks; r += 1 + program->n_ranks / 4) {
    const uint8_t *before = order_of(program, r);
    for (size_t i = 0; i < program->n_ops; i++)
      for (size_t j = 0; j < i; j++) {
        if (before[i * program->n_ops + j] || !hec_program_takes_part(program, &program->ops[i], r) ||
            !hec_program_takes_part(program, &program->ops[j], r))
          continue;
        ck_assert_msg(!step->schedule->alone, "operation %zu (%s) may run beside %zu (%s): %s", i,
                      hec_role_name[program->ops[i].role], j, hec_role_name[program->ops[j].role],
                      hec_test_step_name(step));
        ++*n_beside;
      }
    hec_arena_rewind(&arena, mark);
  }
}

HEC_TEST_LOOP(nothing_beside, hec_test_cases(CASES)) {
  uint64_t seed = 601 + (uint64_t)_i;
  int32_t n_beside = 0;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  hec_test_each(c, false, visit_alone, &n_beside);
  ck_assert(n_beside > 0 || !c->problem.train || c->problem.n_ranks == 1);
}

typedef struct {
  uint64_t digests[4096];
  int32_t n, turn, at;
} digests;

static void visit_digest(const hec_test_step *step, void *context) {
  digests *d = context;
  uint64_t digest = hec_program_digest(step->program);
  ck_assert_int_lt(d->at, 4096);
  if (d->turn == 0)
    d->digests[d->n++] = digest;
  else
    ck_assert_msg(d->digests[d->at] == digest, "another program: %s", hec_test_step_name(step));
  d->at++;
}

HEC_TEST_LOOP(same_program_again, hec_test_cases(10)) {
  uint64_t seed = 701 + (uint64_t)_i;
  digests *d = HEC_NEW(&arena, digests, 1);
  const hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){0});
  for (; d->turn < 2; d->turn++) {
    d->at = 0;
    hec_test_each(c, false, visit_digest, d);
  }
  ck_assert_int_eq(d->at, d->n);
  ck_assert_int_gt(d->n, 0);
}
