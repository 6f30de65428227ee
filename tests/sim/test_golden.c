/* Timelines worked out by hand. Everything runs on machines where one FLOP, one byte of memory and one byte of network
 * take a nanosecond, without fixed costs. So the numbers can be followed on paper. */
#include "runtime/plan/problem.h"
#include "runtime/program/lower.h"
#include "sim/simulate.h"
#include "tests/sim/sim_case.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)
static hec_program program;
static void setup(void) {
  hec_program_clear(&program, 0);
}
static void teardown(void) {
  hec_program_free(&program);
  hec_arena_free(&arena);
}
HEC_TEST_FIXTURE(setup, teardown)

enum { NS = 1000 };
#define ROUND " flops=1G mem=1G hbm=1G eff=1 a=0s c=0s launch=0s plan=0s@0s tile=1"

/* One block, two experts, top-1, ten tokens a rank; every parameter, gradient and moment is one byte. */
static hec_problem *tiny_problem(const char *line, int32_t n_ranks, bool train) {
  hec_moe *moe = HEC_NEW(&arena, hec_moe, 1);
  *moe = *hec_test_problem(&arena, line, n_ranks, 1, 2, 1, train)->moe;
  moe->d_model = moe->d_ffn = moe->d_ffn_dense = moe->d_head = moe->seq_len = moe->tokens_per_rank = 10;
  moe->n_heads = moe->n_kv_heads = moe->dtype_bytes = 1;
  moe->grad_bytes = moe->optimizer_bytes = 1;
  moe->fused_attention = true;
  hec_cluster *cluster = HEC_NEW(&arena, hec_cluster, 1);
  hec_problem *problem = HEC_NEW(&arena, hec_problem, 1);
  ck_ok(hec_cluster_parse_line(line, &arena, cluster));
  ck_ok(hec_problem_make(moe, cluster, train, n_ranks, 10, problem));
  return problem;
}

/* On one node, with an empty program for them. */
static hec_problem *three_ranks(void) {
  hec_program_clear(&program, 3);
  return tiny_problem("1x3 nvlink=1G@1us" ROUND, 3, true);
}

typedef struct {
  int64_t begin, end; /* nanoseconds; -1: takes no part */
} span;

static void expect_spans(const hec_problem *problem, const hec_program *p, const hec_law *law, bool engine,
                         const span *wanted) {
  HEC_SCOPED(hec_timeline) t = hec_test_simulate(problem, p, law, (hec_sim_options){.force_engine = engine});
  for (int32_t i = 0; i < t.n_ops * t.n_ranks; i++) {
    int64_t begin = wanted[i].begin < 0 ? -1 : wanted[i].begin * NS, end = wanted[i].end < 0 ? -1 : wanted[i].end * NS;
    ck_assert_msg(t.begin_ps[i] == begin && t.end_ps[i] == end,
                  "%s, operation %d (%s) on rank %d: %lld-%lld ps, by hand %lld-%lld", hec_law_name(law), i / t.n_ranks,
                  hec_role_name[p->ops[i / t.n_ranks].role], i % t.n_ranks, (long long)t.begin_ps[i],
                  (long long)t.end_ps[i], (long long)begin, (long long)end);
  }
}

static void expect_everywhere(const hec_problem *problem, const hec_program *p, const span *alpha_beta,
                              const span *max_min) {
  expect_spans(problem, p, &hec_law_alpha_beta, false, alpha_beta);
  expect_spans(problem, p, &hec_law_alpha_beta, true, alpha_beta);
  expect_spans(problem, p, &hec_law_max_min, false, max_min);
}

/* Per row: attention 1200 FLOP + 140 B, gate 40 + 24, an expert 400 + 20; weights of an expert 200 B.
 * Loads: source 0 sends 3 and 7 assignments to experts 0 and 1, source 1 sends 4 and 6; a token is 10 bytes. So 70
 * bytes go 0 -> 1 and 40 bytes 1 -> 0; rank 0 computes 7 rows (2940 ns), rank 1 13 (5460 ns). Dense: 400 attention + 20
 * norms + 20 gate = 440 bytes; optimizer 4 * (440 + 200). */
HEC_TEST(whole_iteration) {
  hec_problem *problem = tiny_problem("1x2 nvlink=1G@1us" ROUND, 2, true);
  hec_load load = hec_load_new(&arena, 1, 2, 2);
  memcpy(load.counts, (uint32_t[]){3, 7, 4, 6}, 4 * sizeof(uint32_t));
  HEC_OPENED(hec_lowering) *low = hec_test_lower(problem, "ep", "serial", &load, &arena);
  static const span wanted[] = {
      {0, 13400},     {0, 13400},     /* attention: 12000 + 1400 */
      {13400, 14040}, {13400, 14040}, /* gate: 400 + 240 */
      {14040, 15048}, {14040, 15048}, /* counts: 8 bytes each way */
      {15048, 15248}, {15048, 15248}, /* permute: 100 bytes read and written */
      {15248, 16318}, {15248, 16318}, /* dispatch: 1 us + 70 bytes */
      {16318, 19258}, {16318, 21778}, /* experts */
      {21778, 22848}, {21778, 22848}, /* combine: rank 0 has waited */
      {22848, 23048}, {22848, 23048}, /* unpermute */
      {23048, 23248}, {23048, 23248}, /* and back: unpermute */
      {23248, 24318}, {23248, 24318}, /* combine */
      {24318, 30198}, {24318, 35238}, /* experts, twice */
      {35238, 36308}, {35238, 36308}, /* dispatch */
      {36308, 36508}, {36308, 36508}, /* permute */
      {36508, 37788}, {36508, 37788}, /* gate */
      {37788, 64588}, {37788, 64588}, /* attention */
      {64588, 67028}, {64588, 67028}, /* dense all-reduce: 2 us + 440 bytes */
      {67028, 69588}, {67028, 69588}, /* optimizer: 2560 bytes */
  };
  const hec_program *p = hec_lowering_program(low);
  ck_assert_uint_eq(p->n_ops * 2, sizeof wanted / sizeof *wanted);
  expect_everywhere(problem, p, wanted, wanted);
}

static hec_op row(hec_op_kind kind, hec_lane lane, hec_role role) {
  return hec_op_new(kind, lane, role, -1);
}

/* Local bytes per rank (nanoseconds, that is). */
static int32_t busy(hec_lane lane, const double *ns) {
  hec_op op = row(HEC_OP_LOCAL, lane, HEC_ROLE_PERMUTE);
  op.bytes = 1;
  op.local.bytes_at = hec_program_local_bytes(&program, program.n_ranks);
  memcpy(program.local_bytes + op.local.bytes_at, ns, (size_t)program.n_ranks * sizeof *ns);
  return hec_program_add(&program, op, NULL, 0);
}

static int32_t exchange(hec_lane lane, const hec_transfer *transfers, int32_t n, int32_t n_chunks, int32_t dep) {
  hec_op op = row(HEC_OP_EXCHANGE, lane, HEC_ROLE_GATHER);
  op.exchange.n_chunks = n_chunks;
  op.exchange.transfer_at = (int32_t)program.n_transfers;
  op.exchange.n_transfers = n;
  HEC_RESERVE(program.transfers, program.transfers_capacity, program.n_transfers + (size_t)n);
  memcpy(program.transfers + program.n_transfers, transfers, (size_t)n * sizeof *transfers);
  program.n_transfers += (size_t)n;
  return hec_program_add(&program, op, &dep, 1);
}

#define SEND(s, d, b)                                                                                                  \
  { .source = (s), .destination = (d), .bytes = (b), .item = -1, .after = -1 }

/* Ranks post at 500, 2000 and 0. Both senders go to rank 1, which is last. */
HEC_TEST(staggered_incast) {
  hec_problem *problem = three_ranks();
  int32_t wait = busy(HEC_LANE_COMPUTE, (double[]){500, 2000, 0});
  exchange(HEC_LANE_TOKEN, (hec_transfer[]){SEND(0, 1, 100), SEND(2, 1, 100)}, 2, 1, wait);
  hec_program_check(&program);
  expect_everywhere(problem, &program, (span[]){{0, 500}, {0, 2000}, {0, 0}, {2000, 3100}, {2000, 3200}, {2000, 3100}},
                    (span[]){{0, 500}, {0, 2000}, {0, 0}, {2000, 3200}, {2000, 3200}, {2000, 3200}});
}

/* The same posts; 2 -> 0 need not wait for rank 1. Under alpha_beta rank 0 begins with its last partner. */
HEC_TEST(staggered_line) {
  hec_problem *problem = three_ranks();
  int32_t wait = busy(HEC_LANE_COMPUTE, (double[]){500, 2000, 0});
  exchange(HEC_LANE_TOKEN, (hec_transfer[]){SEND(0, 1, 100), SEND(2, 0, 100)}, 2, 1, wait);
  expect_everywhere(problem, &program, (span[]){{0, 500}, {0, 2000}, {0, 0}, {2000, 3100}, {2000, 3100}, {500, 1600}},
                    (span[]){{0, 500}, {0, 2000}, {0, 0}, {500, 3100}, {2000, 3100}, {500, 1600}});
}

/* 0 -> 1 -> 2, two chunks of 50 bytes. 0 -> 1 runs 1000-1100; its first chunk is there at 1050, so 1 -> 2 runs from
 * 2050 (a latency of its own) to 2150. */
HEC_TEST(chunked_chain) {
  hec_problem *problem = three_ranks();
  hec_transfer chain[] = {SEND(0, 1, 100), SEND(1, 2, 100)};
  chain[1].after = 0;
  exchange(HEC_LANE_PARAM, chain, 2, 2, -1);
  hec_program_check(&program);
  const span wanted[] = {{0, 1100}, {0, 2150}, {0, 2150}};
  expect_everywhere(problem, &program, wanted, wanted);
}

/* The same where a message of 100 bytes reaches half of a port: it takes 200 ns, its first chunk is there after 100. */
HEC_TEST(chunked_chain_of_small_messages) {
  static const hec_link_share half[] = {{100, 0.5}, {400, 1}};
  hec_problem *problem = three_ranks();
  hec_cluster *cluster = (hec_cluster *)(uintptr_t)problem->cluster;
  cluster->sized = true;
  for (int32_t l = 0; l < cluster->n_links; l++) {
    cluster->links[l].shares = half;
    cluster->links[l].n_shares = 2;
  }
  hec_program_clear(&program, 3);
  hec_transfer chain[] = {SEND(0, 1, 100), SEND(1, 2, 100)};
  chain[1].after = 0;
  exchange(HEC_LANE_PARAM, chain, 2, 2, -1);
  const span wanted[] = {{0, 1200}, {0, 2300}, {0, 2300}};
  expect_everywhere(problem, &program, wanted, wanted);
}

/* A slow first hop (half the rate into rank 1) holds the second one up chunk by chunk under max_min. Chunks arrive at
 * 1100 and 1200. The second hop starts at 2100, and its second chunk follows at once at 2150. */
HEC_TEST(chunked_chain_behind_a_slow_link) {
  hec_problem *problem = three_ranks();
  hec_cluster *cluster = (hec_cluster *)(uintptr_t)problem->cluster;
  for (int32_t l = 0; l < cluster->n_links; l++)
    if (cluster->links[l].kind == HEC_LINK_PORT_IN && cluster->links[l].device == 1)
      cluster->links[l].bandwidth = 0.5e9;
  hec_program_clear(&program, 3);
  hec_transfer chain[] = {SEND(0, 1, 100), SEND(1, 2, 100)};
  chain[1].after = 0;
  exchange(HEC_LANE_PARAM, chain, 2, 2, -1);
  expect_spans(problem, &program, &hec_law_max_min, false, (span[]){{0, 1200}, {0, 2200}, {0, 2200}});
}

/* Two exchanges in flight at once on different lanes share rank 1's port under max_min only: 100 + 300 bytes. The first
 * runs at half rate from 1000 to 1200, the second then has 200 left and ends at 1400. */
HEC_TEST(two_lanes_share_a_port) {
  hec_problem *problem = three_ranks();
  exchange(HEC_LANE_TOKEN, (hec_transfer[]){SEND(0, 1, 100)}, 1, 1, -1);
  exchange(HEC_LANE_PARAM, (hec_transfer[]){SEND(2, 1, 300)}, 1, 1, -1);
  expect_everywhere(problem, &program, (span[]){{0, 1100}, {0, 1100}, {-1, -1}, {-1, -1}, {0, 1300}, {0, 1300}},
                    (span[]){{0, 1200}, {0, 1200}, {-1, -1}, {-1, -1}, {0, 1400}, {0, 1400}});
}

static void all_reduce(double bytes, int32_t dep) {
  hec_op op = row(HEC_OP_ALLREDUCE, HEC_LANE_GRAD, HEC_ROLE_DENSE_REDUCE);
  op.bytes = bytes;
  (void)hec_program_add(&program, op, &dep, 1);
}

/* Everybody waits for the last; 2 * 2/3 * 300 bytes after 4 latencies. */
HEC_TEST(all_reduce_one_node) {
  hec_problem *problem = three_ranks();
  all_reduce(300, busy(HEC_LANE_COMPUTE, (double[]){0, 500, 700}));
  const span wanted[] = {{0, 0}, {0, 500}, {0, 700}, {700, 5100}, {700, 5100}, {700, 5100}};
  expect_everywhere(problem, &program, wanted, wanted);
}

/* Ring 0 1 2 3 over two nodes. A piece makes six hops, of 1 and 5 us in turn: 18 us; NICs carry 2 * 3/4 * 2000 bytes.
 */
HEC_TEST(all_reduce_two_nodes) {
  hec_problem *problem = tiny_problem("2x2 nvlink=10G@1us nic=1G@5us" ROUND, 4, true);
  hec_program_clear(&program, 4);
  all_reduce(2000, -1);
  const span wanted[] = {{0, 21000}, {0, 21000}, {0, 21000}, {0, 21000}};
  expect_everywhere(problem, &program, wanted, wanted);
}

/* Communication takes a quarter of the device. Compute of 4000 ns starts at 0. An exchange is posted at 0 and lasts
 * 0-1100 on ranks 0 and 1: 825 ns of work done, 3175 left. Rank 2 computes alone. */
HEC_TEST(share_of_the_device) {
  hec_problem *problem = tiny_problem("1x3 nvlink=1G@1us sm=0.25" ROUND, 3, true);
  hec_program_clear(&program, 3);
  HEC_RESERVE(program.shapes, program.shapes_capacity, 1);
  program.shapes[program.n_shapes++] = (hec_work_shape){.flops_per_row = 1000, .n_gemms = 1};
  exchange(HEC_LANE_PARAM, (hec_transfer[]){SEND(0, 1, 100)}, 1, 1, -1);
  hec_op op = row(HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_ATTENTION);
  op.compute.rows = 4;
  (void)hec_program_add(&program, op, NULL, 0);
  const span wanted[] = {{0, 1100}, {0, 1100}, {-1, -1}, {0, 4275}, {0, 4275}, {0, 4000}};
  expect_spans(problem, &program, &hec_law_alpha_beta, false, wanted);
  expect_spans(problem, &program, &hec_law_max_min, false, wanted);
}

/* It starts and ends in the middle, twice: compute 4000 ns from 0. Exchange 0 posted at 1000 (ends 2100), exchange 1 at
 * 2500 (ends 3600); half the device. Work done by then: 1000 + 550 + 400 + 550 = 2500, the rest ends at 5100. */
HEC_TEST(share_comes_and_goes) {
  hec_problem *problem = tiny_problem("1x2 nvlink=1G@1us sm=0.5" ROUND, 2, true);
  hec_program_clear(&program, 2);
  HEC_RESERVE(program.shapes, program.shapes_capacity, 1);
  program.shapes[program.n_shapes++] = (hec_work_shape){.flops_per_row = 1000, .n_gemms = 1};
  int32_t first = busy(HEC_LANE_GRAD, (double[]){1000, 1000});
  exchange(HEC_LANE_PARAM, (hec_transfer[]){SEND(0, 1, 100)}, 1, 1, first);
  int32_t second = busy(HEC_LANE_GRAD, (double[]){1500, 1500});
  exchange(HEC_LANE_PARAM, (hec_transfer[]){SEND(1, 0, 100)}, 1, 1, second);
  hec_op op = row(HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_ATTENTION);
  op.compute.rows = 4;
  (void)hec_program_add(&program, op, NULL, 0);
  const span wanted[] = {{0, 1000},    {0, 1000},    {1000, 2100}, {1000, 2100}, {1000, 2500},
                         {1000, 2500}, {2500, 3600}, {2500, 3600}, {0, 5100},    {0, 5100}};
  expect_spans(problem, &program, &hec_law_alpha_beta, false, wanted);
  expect_spans(problem, &program, &hec_law_max_min, false, wanted);
}

/* Planning costs a + b * units; one-off operations can be left out and then wait for no one. */
HEC_TEST(planning_and_one_off) {
  hec_problem *problem = tiny_problem("1x2 nvlink=1G@1us flops=1G mem=1G hbm=1G eff=1 a=0s c=0s launch=0s "
                                      "plan=300ns@2ns tile=1",
                                      2, true);
  hec_program_clear(&program, 2);
  hec_op plan = row(HEC_OP_PLAN, HEC_LANE_COMPUTE, HEC_ROLE_PLAN);
  plan.plan.units = 50;
  plan.one_off = true;
  int32_t id = hec_program_add(&program, plan, NULL, 0);
  int32_t wait = busy(HEC_LANE_TOKEN, (double[]){0, 700});
  int32_t moved = exchange(HEC_LANE_PARAM, (hec_transfer[]){SEND(0, 1, 100)}, 1, 1, wait);
  program.ops[moved].one_off = true;
  hec_op work = row(HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_PERMUTE);
  work.bytes = 10;
  (void)hec_program_add(&program, work, (int32_t[]){id, moved}, 2);
  const span wanted[] = {{0, 400}, {0, 400}, {0, 0}, {0, 700}, {700, 1800}, {700, 1800}, {1800, 1810}, {1800, 1810}};
  expect_everywhere(problem, &program, wanted, wanted);
  static const int64_t ordinary[] = {0, 0, 0, 0, 0, 0, 0, 700, 0, 0, 700, 700, 0, 10, 700, 710};
  for (int engine = 0; engine < 2; engine++) {
    HEC_SCOPED(hec_timeline) t =
        hec_test_simulate(problem, &program, &hec_law_alpha_beta,
                          (hec_sim_options){.without_one_off = true, .force_engine = engine == 1});
    for (int32_t i = 0; i < 8; i++) {
      ck_assert_int_eq(t.begin_ps[i], ordinary[2 * i] * NS);
      ck_assert_int_eq(t.end_ps[i], ordinary[2 * i + 1] * NS);
    }
  }
}
