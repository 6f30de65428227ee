/* Sums of replicas' gradients: bytes computed by hand, and on random keepers the sum itself, each gradient once. */
#include "runtime/plan/plan.h"
#include "runtime/plan/replicas.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

enum { RANKS = 24, STEPS = 4 };

static const char two_nodes[] = "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

typedef struct {
  const hec_problem *problem;
  double sent[RANKS], nic[RANKS]; /* gradients that a rank sends, and sends to other nodes */
} bytes;

static void count(void *context, hec_replica_piece piece) {
  bytes *b = context;
  double part = 1.0 / piece.n_parts;
  b->sent[piece.source] += part;
  if (hec_problem_node(b->problem, piece.source) != hec_problem_node(b->problem, piece.destination))
    b->nic[piece.source] += part;
}

static bytes bytes_of(const hec_problem *problem, int32_t expert, const int32_t *keeper, int32_t n,
                      hec_replica_step step) {
  bytes b = {.problem = problem};
  hec_replica_pieces(problem, expert, keeper, n, step, count, &b);
  return b;
}

static void check_bytes(const double *is, const double *wanted, int32_t n) {
  for (int32_t r = 0; r < n; r++)
    ck_assert_msg(is[r] == wanted[r], "rank %d: %g gradients, not %g", r, is[r], wanted[r]);
}

/* Four keepers on node 0, two on node 1: four pieces. Inside, a rank of node 0 keeps one piece and sends three, and a rank of
 * node 1 keeps two and sends two. Between the nodes go half a gradient there and half a gradient back, an eighth for each
 * piece. Over four NICs of node 0 and two of node 1. All pairs of six keepers would send 8/6 of a gradient each way. */
HEC_TEST(by_hand) {
  const hec_problem *p = hec_test_problem(&arena, two_nodes, 8, 1, 8, 1, true);
  static const int32_t keeper[6] = {0, 1, 2, 3, 4, 5};
  static const double inside[8] = {0.75, 0.75, 0.75, 0.75, 0.5, 0.5}, none[8] = {0};
  static const double between[8] = {0.125, 0.125, 0.125, 0.125, 0.25, 0.25};
  bytes b = bytes_of(p, 0, keeper, 6, HEC_REPLICA_INSIDE);
  check_bytes(b.sent, inside, 8);
  check_bytes(b.nic, none, 8);
  b = bytes_of(p, 0, keeper, 6, HEC_REPLICA_BETWEEN);
  check_bytes(b.sent, between, 8);
  check_bytes(b.nic, between, 8);
}

/* One keeper a node: nothing inside. All on one node: nothing between. One: nothing. */
HEC_TEST(empty_steps) {
  const hec_problem *p = hec_test_problem(&arena, two_nodes, 8, 1, 8, 1, true);
  static const double none[8] = {0}, far[8] = {0, 0.5, 0, 0, 0, 0, 0, 0.5}, near[8] = {0, 0, 0, 0, 0.5, 0, 0, 0.5};
  check_bytes(bytes_of(p, 3, (const int32_t[]){1, 7}, 2, HEC_REPLICA_INSIDE).sent, none, 8);
  check_bytes(bytes_of(p, 3, (const int32_t[]){1, 7}, 2, HEC_REPLICA_BETWEEN).nic, far, 8);
  check_bytes(bytes_of(p, 3, (const int32_t[]){4, 7}, 2, HEC_REPLICA_INSIDE).sent, near, 8);
  check_bytes(bytes_of(p, 3, (const int32_t[]){4, 7}, 2, HEC_REPLICA_BETWEEN).sent, none, 8);
  for (int step = 0; step < 2; step++)
    check_bytes(bytes_of(p, 3, (const int32_t[]){5}, 1, (hec_replica_step)step).sent, none, 8);
}

/* Three pieces on two keepers: one has two of them, but not the same one for every expert. */
HEC_TEST(uneven_pieces_take_turns) {
  const hec_problem *p = hec_test_problem(&arena, two_nodes, 8, 1, 8, 1, true);
  static const int32_t keeper[5] = {0, 1, 2, 4, 5};
  bytes even = bytes_of(p, 0, keeper, 5, HEC_REPLICA_BETWEEN), odd = bytes_of(p, 1, keeper, 5, HEC_REPLICA_BETWEEN);
  ck_assert(even.nic[4] == 2.0 / 6 && even.nic[5] == 1.0 / 6);
  ck_assert(odd.nic[4] == 1.0 / 6 && odd.nic[5] == 2.0 / 6);
}

/* ---- The sum ---- */

enum { FINEST = 1024 };
typedef struct {
  uint32_t has[RANKS][FINEST]; /* of each part of a gradient: whose gradients are in it, a bit for each rank */
  int32_t n_finest;
  bool back;
  uint32_t before[RANKS][FINEST]; /* at the beginning of the step: what is sent */
} sums;

static void move(void *context, hec_replica_piece piece) {
  sums *s = context;
  ck_assert_int_eq(s->n_finest % piece.n_parts, 0);
  int32_t width = s->n_finest / piece.n_parts, source = s->back ? piece.destination : piece.source;
  int32_t destination = s->back ? piece.source : piece.destination;
  for (int32_t i = piece.part * width; i < (piece.part + 1) * width; i++) {
    if (s->back) {
      s->has[destination][i] = s->before[source][i];
      continue;
    }
    ck_assert_uint_eq(s->has[destination][i] & s->before[source][i], 0); /* nothing is added twice */
    s->has[destination][i] |= s->before[source][i];
  }
}

/* Distinct ascending ranks. */
static int32_t random_keepers(uint64_t *seed, int32_t n_ranks, int32_t *keeper) {
  int32_t n = 0;
  uint64_t one_in = 1 + hec_test_below(seed, 4);
  for (int32_t r = 0; r < n_ranks; r++)
    if (hec_test_below(seed, one_in) == 0)
      keeper[n++] = r;
  return n;
}

static int32_t finest_of(const hec_problem *p, const int32_t *keeper, int32_t n) {
  int32_t of_node[RANKS] = {0}, max = 1, nodes = 0;
  for (int32_t i = 0; i < n; i++) {
    int32_t k = ++of_node[hec_problem_node(p, keeper[i])];
    nodes += k == 1;
    max = k > max ? k : max;
  }
  return max * (nodes > 1 ? nodes : 1);
}

HEC_TEST(all_keepers_have_the_sum) {
  static const char *const clusters[] = {two_nodes, "6x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
                                         "3x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
                                         "24x1 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"};
  static const hec_replica_step steps[STEPS] = {HEC_REPLICA_INSIDE, HEC_REPLICA_BETWEEN, HEC_REPLICA_BETWEEN,
                                                HEC_REPLICA_INSIDE};
  static sums s;
  uint64_t seed = 3;
  for (int round = 0; round < 400; round++) {
    int32_t n_ranks = round % 4 == 0 ? 8 : RANKS - (int32_t)hec_test_below(&seed, 4), keeper[RANKS];
    const hec_problem *p = hec_test_problem(&arena, clusters[round % 4], n_ranks, 1, RANKS, 1, true);
    int32_t n = random_keepers(&seed, n_ranks, keeper), expert = (int32_t)hec_test_below(&seed, RANKS);
    uint32_t all = 0;
    s.n_finest = finest_of(p, keeper, n);
    ck_assert_int_le(s.n_finest, FINEST);
    for (int32_t i = 0; i < n; i++) {
      all |= 1u << keeper[i];
      for (int32_t k = 0; k < s.n_finest; k++)
        s.has[keeper[i]][k] = 1u << keeper[i];
    }
    for (int k = 0; k < STEPS; k++) {
      s.back = k >= 2;
      memcpy(s.before, s.has, sizeof s.before);
      hec_replica_pieces(p, expert, keeper, n, steps[k], move, &s);
    }
    for (int32_t i = 0; i < n; i++)
      for (int32_t k = 0; k < s.n_finest; k++)
        ck_assert_uint_eq(s.has[keeper[i]][k], all);
    hec_arena_free(&arena);
  }
}

/* Gradients that stand in a part of a rank's buffer, [ranks][parts]. */
typedef struct {
  int32_t n_parts, *from, *to; /* n_parts of the last step; before and after the step */
} standing;

static void add_standing(void *context, hec_replica_piece piece) {
  standing *s = context;
  int32_t width = s->n_parts / piece.n_parts;
  for (int32_t i = piece.part * width; i < (piece.part + 1) * width; i++)
    s->to[piece.destination * s->n_parts + i] += s->from[piece.source * s->n_parts + i];
}

/* ZeRO-1: every part of an expert is updated by one of its keepers, and that one has the sum of all gradients. */
HEC_TEST_LOOP(owners_have_the_sums, 60) {
  static const struct {
    int32_t ranks, ep;
  } shapes[] = {{8, 2}, {8, 4}, {8, 1}, {6, 2}, {7, 1}, {12, 3}, {24, 2}, {4, 4}, {20, 4}, {24, 8}};
  hec_problem *p = hec_test_problem(&arena, "6x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", shapes[_i / 6].ranks,
                                    1, 8, 1, true);
  int32_t expert = _i % 6, place = expert % shapes[_i / 6].ep, keeper[RANKS];
  ck_ok(hec_problem_group(p, shapes[_i / 6].ep));
  hec_problem_share_optimizer(p);
  for (int32_t g = 0; g < p->dp; g++)
    keeper[g] = place + g * p->ep;
  int32_t n_parts = hec_replica_own_of(p, expert, place).n_parts, seen = 0;
  size_t cells = (size_t)p->n_ranks * (size_t)n_parts;
  standing s = {n_parts, HEC_NEW(&arena, int32_t, cells), HEC_NEW(&arena, int32_t, cells)};
  for (size_t i = 0; i < cells; i++)
    s.from[i] = s.to[i] = 1;
  for (int step = 0; step < 2; step++) {
    hec_replica_pieces(p, expert, keeper, p->dp, (hec_replica_step)step, add_standing, &s);
    memcpy(s.from, s.to, cells * sizeof *s.from);
  }
  bool *updated = HEC_NEW(&arena, bool, n_parts);
  for (int32_t g = 0; g < p->dp; g++) {
    hec_replica_own own = hec_replica_own_of(p, expert, keeper[g]);
    ck_assert_int_eq(own.n_parts, n_parts);
    ck_assert_int_ge(own.n, 1);
    for (int32_t i = 0; i < own.n; i++, seen++) {
      int32_t part = own.first + i * own.stride;
      ck_assert(part < n_parts && !updated[part]);
      updated[part] = true;
      ck_assert_int_eq(s.to[keeper[g] * n_parts + part], p->dp);
    }
  }
  ck_assert_int_eq(seen, n_parts);
}
