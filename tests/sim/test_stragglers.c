/* Slow ranks, slow links and start skew: a serial program by hand. (Over random problems: test_bounds.c.) */
#include "models/straggler.h"
#include "runtime/program/duration.h"
#include "tests/sim/sim_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

/* Two ranks; a row takes a nanosecond, a byte too. 4000 rows, an exchange of 1000 bytes each way, 2000 rows, back. */
static void make_serial(hec_program *p) {
  hec_program_clear(p, 2);
  HEC_RESERVE(p->shapes, p->shapes_capacity, 1);
  p->shapes[p->n_shapes++] = (hec_work_shape){.flops_per_row = 1};
  HEC_RESERVE(p->transfers, p->transfers_capacity, 2);
  p->transfers[p->n_transfers++] =
      (hec_transfer){.bytes = 1000, .source = 0, .destination = 1, .item = -1, .after = -1};
  p->transfers[p->n_transfers++] =
      (hec_transfer){.bytes = 1000, .source = 1, .destination = 0, .item = -1, .after = -1};
  hec_op work = hec_op_new(HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_EMBEDDING, -1);
  hec_op sent = hec_op_new(HEC_OP_EXCHANGE, HEC_LANE_TOKEN, HEC_ROLE_DISPATCH, -1);
  work.compute.rows = 4000;
  sent.exchange.n_transfers = 2;
  int32_t at = hec_program_add(p, work, NULL, 0);
  at = hec_program_add(p, sent, &at, 1);
  work.compute.rows = 2000;
  at = hec_program_add(p, work, &at, 1);
  sent.reverse = true;
  sent.exchange.part_at = p->ops[1].exchange.part_at;
  (void)hec_program_add(p, sent, &at, 1);
  hec_program_check(p);
}

/* Nanoseconds: when it ends; waiting of both ranks under alpha_beta, under max_min; start skew of rank 1.
 *   plain       4000 + 1000 + 2000 + 1000
 *   rank at 0.8 5000, 1000, 2500, 1000 on rank 1; rank 0 waits 1000 and 500
 *   link at 0.5 rank 0 sends for 2000 each time. By alpha_beta a rank minds its own ports: rank 1 ends 1000 earlier, twice
 *   3 us late   rank 1 from 3000 on: 7000, 8000, 10000, 11000; rank 0 waits 3000 before the first exchange
 *   all         rank 1: 3000, 8000, 10000, 12500, 14500. alpha_beta's rank 0: 4000, 8000 to 9000, 11000, 12500 to 13500, so
 *               it waits 4000 + 1500 + 1000; max_min's until 10000, 12000, then 12500 to 14500: 4000 + 500 */
static const struct {
  const char *slow, *skew;
  int64_t end, wait[2], late;
} by_hand[] = {{NULL, NULL, 8000, {0, 0}, 0},
               {"rank=1:0.8", NULL, 9500, {1500, 1500}, 0},
               {"link=port_out:device0:0.5", NULL, 10000, {2000, 0}, 0},
               {NULL, "rank=1:3us", 11000, {3000, 3000}, 3000},
               {"rank=1:0.8,link=port_in:device1:0.5", "rank=1:3us", 14500, {6500, 4500}, 3000}};

HEC_TEST_ROWS(serial_by_hand, by_hand) {
  hec_cluster cluster;
  HEC_SCOPED(hec_program) p = {0};
  HEC_SCOPED(hec_text) said = {0};
  ck_ok(hec_cluster_load("1x2 nvlink=1G@0s flops=1G eff=1 mem=1G hbm=1P tile=1 a=0s c=0s launch=0s", &arena, &cluster));
  ck_assert_msg(hec_stragglers_apply(&(hec_stragglers){by_hand[_i].slow, by_hand[_i].skew}, 2, &cluster, &arena,
                                     &cluster, &said) == HEC_OK,
                "%s", hec_last_error());
  const hec_problem problem = {.cluster = &cluster, .n_ranks = 2};
  make_serial(&p);
  for (int way = 0; way < 3; way++) {
    const hec_law *law = way == 2 ? &hec_law_max_min : &hec_law_alpha_beta;
    hec_sim_options options = {.force_engine = way == 1};
    hec_timeline t = hec_test_simulate(&problem, &p, law, options);
    ck_assert_int_eq(hec_timeline_end_ps(&t), by_hand[_i].end * 1000);
    ck_assert_int_eq(t.begin_ps[1], by_hand[_i].late * 1000);
    hec_breakdown b = hec_timeline_breakdown(&t, &p);
    ck_assert_double_eq_tol(b.wait_s, 0.5e-9 * (double)by_hand[_i].wait[way == 2], 1e-15);
    ck_assert_double_eq_tol(b.skew_s, 0.5e-9 * (double)by_hand[_i].late, 1e-15);
    hec_timeline_free(&t);
    options.on_time = true;
    t = hec_test_simulate(&problem, &p, law, options);
    ck_assert_int_eq(hec_timeline_end_ps(&t), (by_hand[_i].end - by_hand[_i].late) * 1000);
    ck_assert(hec_timeline_breakdown(&t, &p).skew_s == 0);
    hec_timeline_free(&t);
  }
}

/* Ranks on fewer cores, all beginning together. Alone 8, 2, 4 and 4 ns on 2 cores: while four compute each has half a core.
 * So the shortest ends at 4; three then share two cores until 4 + 2 * 3 / 2 = 7; the longest is alone until 11. */
HEC_TEST(shared_cores) {
  static const int64_t rows[] = {8, 2, 4, 4}, ends_ps[] = {11000, 4000, 7000, 7000};
  hec_cluster cluster;
  HEC_SCOPED(hec_program) p = {0};
  ck_ok(hec_cluster_load("1x4 nvlink=1G@0s flops=1G eff=1 mem=1G hbm=1P tile=1 a=0s c=0s launch=0s", &arena, &cluster));
  cluster.cores = 2;
  const hec_problem problem = {.cluster = &cluster, .n_ranks = 4};
  hec_program_clear(&p, 4);
  HEC_RESERVE(p.shapes, p.shapes_capacity, 1);
  p.shapes[p.n_shapes++] = (hec_work_shape){.flops_per_row = 1};
  hec_op work = hec_op_new(HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_EXPERTS, -1);
  work.compute.rows = 8;
  for (int32_t r = 0; r < 4; r++)
    cluster.devices[r].speed = 8.0 / (double)rows[r];
  for (int32_t r = 0; r < 4; r++)
    ck_assert_int_eq(hec_seconds_to_ps(hec_duration_s(&problem, &p, &work, r)), ends_ps[r]);
  cluster.cores = 4; /* a core each */
  ck_assert_int_eq(hec_seconds_to_ps(hec_duration_s(&problem, &p, &work, 0)), 8000);
}
