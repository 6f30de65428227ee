/* Token rows over relays: 2DH's definition. A program of two nodes of two ranks by hand (bytes, order, times, memory).
 * What hierarchy is for (as many bytes between nodes in a G-th of the messages), and the choice. Where small messages
 * use a link badly 2DH is chosen because it is faster when simulated. Where they do not, or messages are large, it is
 * not. */
#include "runtime/plan/planners/degree.h"
#include "runtime/program/chunked.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* ---- Schedules of a fixed degree and route ---- */

static int32_t degree_now, route_now;
static void from_gate(hec_lowering *low, int32_t l) {
  low->layer[l].route = route_now;
  hec_chunked_from_gate(low, l, degree_now);
}
static const hec_schedule fixed = {.name = "fixed",
                                   .to_gate = hec_emit_to_gate,
                                   .from_gate = from_gate,
                                   .backward = hec_chunked_backward,
                                   .end = hec_chunked_end};

static hec_lowering *lower(const hec_problem *p, const char *policy, hec_load load, int32_t degree, int32_t route) {
  hec_lowering *low = hec_lowering_new(p, hec_policy_find(policy), &fixed, NULL, &arena);
  degree_now = degree;
  route_now = route;
  hec_lower_iteration(low, 0, &load, 1, 1);
  hec_program_check(hec_lowering_program(low));
  return low;
}

/* ---- The definition ---- */

HEC_TEST(relays_by_definition) {
  static const char *const lines[] = {"2x2 nvlink=1G nic=1G flops=1T mem=1G", "3x4 nvlink=1G nic=1G flops=1T mem=1G",
                                      "4x1 nvlink=1G nic=1G flops=1T mem=1G", "1x8 nvlink=1G flops=1T mem=1G"};
  ck_assert_str_eq(hec_token_routes[0]->name, "linear");
  ck_assert(hec_token_routes[0]->relay == NULL); /* what schedules get that choose none */
  for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
    for (int32_t route = 1; route < HEC_N_TOKEN_ROUTES; route++) {
      const hec_token_route *way = hec_token_routes[route];
      hec_cluster cluster;
      ck_ok(hec_cluster_load(lines[k], &arena, &cluster));
      for (int32_t n = 1; n <= cluster.n_devices; n++) {
        hec_problem *p = hec_test_problem(&arena, lines[k], n, 1, n, 1, true);
        bool any = false;
        for (int32_t s = 0; s < n; s++)
          for (int32_t d = 0; d < n; d++) {
            if (s == d)
              continue;
            int32_t q = way->relay(p, s, d);
            ck_assert(q >= 0 && q < n);
            any = any || (q != s && q != d);
            if (q != d)
              ck_assert_int_eq(way->relay(p, q, d), q); /* one relay on a way */
            if (strcmp(way->name, "2dh") != 0)
              continue;
            int32_t g = cluster.devices_per_node;
            ck_assert_int_eq(q / g, s / g);
            ck_assert(q % g == d % g || (q == s && s - s % g + d % g >= n));
          }
        ck_assert(!any || !way->applies || way->applies(p));
        ck_assert(any || n <= cluster.devices_per_node || cluster.devices_per_node == 1 || n % 4 != 0);
      }
    }
}

/* ---- Two nodes of two, by hand ---- */

/* Rows of s for the expert of d. 0 and 1 are a node, 2 and 3; the place of 0 and 2 is one, of 1 and 3 the other. */
static const uint32_t rows[4][4] = {{1, 2, 3, 5}, {7, 11, 13, 17}, {19, 23, 29, 31}, {37, 41, 43, 47}};
/* 0 -> 1 those for 1 and 3; 1 -> 0 those for 0 and 2; and so on */
static const int64_t inside[4][4] = {{0, 2 + 5, 0, 0}, {7 + 13, 0, 0, 0}, {0, 0, 0, 31 + 23}, {0, 0, 43 + 37, 0}};
/* 0 -> 2 its own and those of 1; 1 -> 3 its own and those of 0; and so on */
static const int64_t between[4][4] = {{0, 0, 3 + 13, 0}, {0, 0, 0, 17 + 5}, {19 + 37, 0, 0, 0}, {0, 41 + 23, 0, 0}};
static const int64_t rest[4] = {13, 5, 37, 23};

static void check_transfers(const hec_problem *p, const hec_program *program, const hec_op *op,
                            const int64_t wanted[4][4]) {
  int64_t found[4][4] = {{0}};
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
    found[t->source][t->destination] += t->bytes;
  }
  for (int32_t s = 0; s < 4; s++)
    for (int32_t d = 0; d < 4; d++)
      ck_assert_int_eq(found[s][d], wanted[s][d] * (int64_t)p->bytes.token);
}

/* Links without latency, 1 MB/s inside a node and 100 kB/s between nodes, rows of 128 bytes. Microseconds of the transfers
 * that a rank's ports, or its node's NIC, are busiest with. */
static double exchange_us(int32_t rank, bool in_node) {
  static const int64_t busiest_inside[4] = {20, 20, 80, 80};
  return in_node ? (double)busiest_inside[rank] * 128
                 : (double)(56 + 64) * 1280; /* one NIC: into node 0, out of node 1 */
}

HEC_TEST(two_nodes_by_hand) {
  hec_problem *p = hec_test_problem(&arena,
                                    "2x2 nvlink=1M@0s nic=100K@0s flops=1T mem=40G launch=0s a=0s c=0s "
                                    "plan=0s@0s hbm=1G",
                                    4, 1, 4, 1, true);
  ck_assert(p->bytes.token == 128);
  hec_load load = hec_test_equal_load(p, 0, &arena);
  for (int32_t s = 0; s < 4; s++)
    memcpy(hec_load_row(&load, 0, s), rows[s], sizeof rows[s]);
  HEC_OPENED(hec_lowering) *low = lower(p, "ep", load, 1, 1);
  const hec_program *program = hec_lowering_program(low);
  HEC_SCOPED(hec_timeline) timeline = hec_test_simulate(p, program, &hec_law_alpha_beta, (hec_sim_options){0});
  static const struct {
    hec_role role;
    bool backward, reverse, in_node, rests;
  } lane[] = {{HEC_ROLE_COUNTS, 0, 0, 0, 0}, {HEC_ROLE_DISPATCH_INSIDE, 0, 0, 1, 0},
              {HEC_ROLE_ALIGN, 0, 0, 0, 1},  {HEC_ROLE_DISPATCH, 0, 0, 0, 0},
              {HEC_ROLE_ALIGN, 0, 0, 0, 0},  {HEC_ROLE_COMBINE, 0, 1, 0, 0},
              {HEC_ROLE_ALIGN, 0, 1, 0, 1},  {HEC_ROLE_COMBINE_INSIDE, 0, 1, 1, 0},
              {HEC_ROLE_ALIGN, 0, 0, 0, 0},  {HEC_ROLE_COMBINE_INSIDE, 1, 0, 1, 0},
              {HEC_ROLE_ALIGN, 1, 0, 0, 1},  {HEC_ROLE_COMBINE, 1, 0, 0, 0},
              {HEC_ROLE_ALIGN, 1, 0, 0, 0},  {HEC_ROLE_DISPATCH, 1, 1, 0, 0},
              {HEC_ROLE_ALIGN, 1, 1, 0, 1},  {HEC_ROLE_DISPATCH_INSIDE, 1, 1, 1, 0},
              {HEC_ROLE_ALIGN, 1, 0, 0, 0}};
  size_t next = 0;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->lane != HEC_LANE_TOKEN)
      continue;
    ck_assert_uint_lt(next, sizeof lane / sizeof *lane);
    ck_assert_int_eq(op->role, lane[next].role);
    ck_assert_int_eq(op->backward, lane[next].backward);
    ck_assert_int_eq(op->reverse, lane[next].reverse);
    ck_assert(op->role == HEC_ROLE_COUNTS || op->route == 1);
    if (op->kind == HEC_OP_EXCHANGE)
      check_transfers(p, program, op, lane[next].in_node ? inside : between);
    for (int32_t r = 0; r < 4 && op->role != HEC_ROLE_COUNTS; r++) {
      double us = (double)(timeline.end_ps[i * 4 + (size_t)r] - timeline.begin_ps[i * 4 + (size_t)r]) * 1e-6, wanted;
      if (op->kind == HEC_OP_EXCHANGE)
        wanted = exchange_us(r, lane[next].in_node);
      else
        wanted = lane[next].rests ? (double)(2 * 128 * rest[r]) * 1e-3 : 0; /* read and written at 1 GB/s */
      ck_assert_double_eq_tol(us, wanted, 1e-5 * wanted + 1e-6);
    }
    next++;
  }
  ck_assert_uint_eq(next, sizeof lane / sizeof *lane);
  int32_t n_held = 0;
  for (size_t h = 0; h < program->n_holds; h++) {
    const hec_hold *hold = &program->holds[h];
    if (hold->tensor != HEC_TENSOR_RELAYED && hold->tensor != HEC_TENSOR_ALIGNED)
      continue;
    n_held++;
    ck_assert(hold->memory == HEC_MEMORY_BUFFER && hold->bytes == 1);
    ck_assert_int_eq(hold->last - hold->first, 1); /* an exchange and the alignment beside it */
    for (int32_t r = 0; r < 4; r++)
      ck_assert_double_eq(program->local_bytes[hold->bytes_at + r], (double)(128 * rest[r]));
  }
  ck_assert_int_eq(n_held, 2 * 4); /* there and back, forward and backward */
}

/* ---- Messages and bytes ---- */

typedef struct {
  int64_t bytes;
  int32_t messages;
} between_nodes;

/* Of the first dispatch, chunk by chunk. */
static between_nodes count(const hec_problem *p, const hec_program *program) {
  between_nodes sum = {0};
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    for (int32_t k = 0; op->role == HEC_ROLE_DISPATCH && !op->backward && k < op->exchange.n_transfers; k++) {
      const hec_transfer *t = &program->transfers[op->exchange.transfer_at + k];
      if (hec_problem_node(p, t->source) == hec_problem_node(p, t->destination))
        continue;
      sum.bytes += t->bytes;
      sum.messages++;
    }
    for (int32_t k = 0; op->role == HEC_ROLE_DISPATCH_INSIDE && k < op->exchange.n_transfers; k++)
      ck_assert_int_eq(hec_problem_node(p, program->transfers[op->exchange.transfer_at + k].source),
                       hec_problem_node(p, program->transfers[op->exchange.transfer_at + k].destination));
  }
  return sum;
}

HEC_TEST_LOOP(as_many_bytes_in_a_gth_of_the_messages, 30) {
  uint64_t seed = 31 + (uint64_t)_i;
  int32_t nodes = 2 + (int32_t)hec_test_below(&seed, 4), g = 1 + (int32_t)hec_test_below(&seed, 6);
  int32_t degree = 1 << hec_test_below(&seed, 3);
  char line[100];
  (void)snprintf(line, sizeof line, "%dx%d nvlink=10G@2us nic=1G@5us flops=10T mem=40G", nodes, g);
  hec_problem *p = hec_test_problem(&arena, line, nodes * g, 1, nodes * g, 1, false);
  hec_load load = hec_test_equal_load(p, 0, &arena);
  for (int32_t i = 0; i < p->n_ranks * p->n_experts; i++)
    load.counts[i] = (uint32_t)degree + (uint32_t)hec_test_below(&seed, 50); /* something in every chunk */
  HEC_OPENED(hec_lowering) *linear = lower(p, "ep", load, degree, 0), *over = lower(p, "ep", load, degree, 1);
  between_nodes a = count(p, hec_lowering_program(linear)), b = count(p, hec_lowering_program(over));
  ck_assert_int_eq(a.bytes, b.bytes);
  ck_assert_int_eq(a.messages, degree * p->n_ranks * g * (nodes - 1));
  ck_assert_int_eq(b.messages, degree * p->n_ranks * (nodes - 1));
  for (int32_t k = 0; hec_laws[k]; k++) /* timelines are checked */
    (void)hec_test_end_ps(p, hec_lowering_program(over), hec_laws[k], (hec_sim_options){0});
}

/* ---- The choice ---- */

static hec_problem *machine(const char *shares, const char *memory, int32_t n_ranks, uint32_t each) {
  char text[700];
  (void)snprintf(
      text, sizeof text,
      "{\"name\": \"case\", \"nodes\": %d, \"devices_per_node\": 8, \"nvlink\": {\"bandwidth\": 300e9, "
      "\"latency\": 2e-6}, \"nic\": {\"bandwidth\": 100e9, \"latency\": 5e-6%s}, \"device\": {\"flops\": 1e15, "
      "\"hbm_bandwidth\": %s, \"memory_bytes\": 80e9, \"gemm_a_s\": 0, \"gemm_c_s\": 0, \"gemm_tile\": 1, "
      "\"launch_s\": 0}}",
      n_ranks / 8, shares, memory);
  hec_cluster *cluster = HEC_NEW(&arena, hec_cluster, 1);
  hec_problem *p = HEC_NEW(&arena, hec_problem, 1);
  hec_moe *moe = HEC_NEW(&arena, hec_moe, 1);
  *moe = *hec_test_problem(&arena, "1x1 flops=1T mem=1G nvlink=1G", 1, 1, 1, 1, false)->moe;
  moe->n_experts = n_ranks;
  ck_ok(hec_cluster_parse_json(text, "case", &arena, cluster));
  ck_ok(hec_problem_make(moe, cluster, false, n_ranks, (int32_t)each * n_ranks, p));
  return p;
}

static double seconds_at(const hec_problem *p, hec_load load, int32_t degree, int32_t route) {
  HEC_OPENED(hec_lowering) *low = lower(p, "ep", load, degree, route);
  double s = hec_test_seconds(p, hec_lowering_program(low));
  return s;
}

/* After all trials: the route; asserts that the trials were all candidates, and that none is faster than what stays. */
static int32_t route_chosen(const hec_problem *p, hec_load load, const char *schedule) {
  HEC_OPENED(hec_lowering) *low = hec_lowering_new(p, hec_policy_find("ep"), hec_schedule_find(schedule), NULL, &arena);
  int32_t tried[HEC_N_TOKEN_ROUTES] = {0};
  double best_s = 1e9;
  for (int32_t i = 0; i < HEC_N_DEGREES * HEC_N_TOKEN_ROUTES; i++) {
    hec_lower_iteration(low, i, &load, 1, 1);
    const hec_token_choice *choice = hec_lowering_choice(low);
    ck_assert_int_eq(choice->n_layers, 1);
    for (int32_t k = 0; k < HEC_N_TOKEN_ROUTES; k++) {
      ck_assert_int_eq(choice->route[k], low->layer[0].route == k);
      tried[k] |= choice->route[k] ? low->layer[0].degree : 0;
    }
    double s = hec_test_seconds(p, hec_lowering_program(low));
    best_s = s < best_s ? s : best_s;
  }
  for (int32_t k = 0; k < HEC_N_TOKEN_ROUTES; k++)
    ck_assert_int_eq(tried[k], 1 | 2 | 4 | 8);
  hec_lower_iteration(low, 99, &load, 1, 1);
  ck_assert_double_eq_tol(hec_test_seconds(p, hec_lowering_program(low)), best_s, 1e-9 * best_s);
  int32_t route = low->layer[0].route;
  double same_s = seconds_at(p, load, low->layer[0].degree, route);
  double other_s = seconds_at(p, load, low->layer[0].degree, 1 - route);
  ck_assert_double_eq_tol(same_s, best_s, 1e-9 * best_s);
  ck_assert_double_lt(best_s, other_s);
  return route;
}

/* Messages below 2 MB get from a twentieth of the link's rate upwards. */
static const char *const poor_when_small = ", \"efficiency_by_bytes\": [[4096, 0.05], [65536, 0.5], [2e6, 1]]";

HEC_TEST_LOOP(hierarchy_pays_for_small_messages_of_many_ranks, 2) {
  static const char *const schedules[] = {"tutel", "tutel-improved"};
  const char *schedule = schedules[_i];
  hec_problem *small = machine(poor_when_small, "1.5e12", 128, 16); /* 16 rows of 128 bytes for each of 128 ranks */
  ck_assert_int_eq(route_chosen(small, hec_test_equal_load(small, 16, &arena), schedule), 1);
  hec_problem *large = machine(poor_when_small, "1.5e12", 128, 65536); /* 8 MB each */
  ck_assert_int_eq(route_chosen(large, hec_test_equal_load(large, 65536, &arena), schedule), 0);
  hec_problem *slow = machine(poor_when_small, "1e9", 128, 16); /* memory in which the alignment takes what is gained */
  ck_assert_int_eq(route_chosen(slow, hec_test_equal_load(slow, 16, &arena), schedule), 0);
  hec_problem *plain = machine("", "1.5e12", 128, 16); /* a link that small messages use as well */
  ck_assert_int_eq(route_chosen(plain, hec_test_equal_load(plain, 16, &arena), schedule), 0);
  /* As many rows of every rank: for each of 128 256 kB, of which eight are 2 MB. For each of 16 they are that already. */
  hec_problem *many = machine(poor_when_small, "1.5e12", 128, 2048),
              *few = machine(poor_when_small, "1.5e12", 16, 16384);
  ck_assert_int_eq(route_chosen(many, hec_test_equal_load(many, 2048, &arena), schedule), 1);
  ck_assert_int_eq(route_chosen(few, hec_test_equal_load(few, 16384, &arena), schedule), 0);
}

/* One node, or nodes of one: 2DH is the linear all-to-all, and is not tried. */
HEC_TEST(not_tried_where_it_is_alike) {
  static const char *const lines[] = {"1x4 nvlink=10G@2us flops=10T mem=40G", "4x1 nvlink=10G nic=1G flops=10T mem=40G",
                                      "4x2 nvlink=10G nic=1G flops=10T mem=40G"};
  for (int32_t k = 0; k < 3; k++) {
    hec_problem *p = hec_test_problem(&arena, lines[k], k < 2 ? 4 : 2, 1, 4, 1, true);
    hec_load load = hec_test_equal_load(p, 16, &arena);
    HEC_OPENED(hec_lowering) *low =
        hec_lowering_new(p, hec_policy_find("ep"), hec_schedule_find("tutel"), NULL, &arena);
    for (int32_t i = 0; i < HEC_N_DEGREES; i++) {
      hec_lower_iteration(low, i, &load, 1, 1);
      ck_assert_int_eq(low->layer[0].route, 0);
      ck_assert_int_eq(low->layer[0].degree, hec_degrees[i]);
    }
  }
}
