/* Breakdown and trace events of timelines written by hand. */
#include "models/json.h"
#include "tests/program/timeline_case.h"
#include "tools/front/timelines/timeline_format.h"

#include <math.h>
#include <signal.h>
#include <string.h>

static void add(hec_lane lane, hec_role role) {
  (void)hec_program_add(&program, hec_op_new(HEC_OP_LOCAL, lane, role, 3), NULL, 0);
}

/* compute 0-10, token 5-20, param 15-40, grad 30-60, then nothing until rank 1 ends at 100. */
HEC_TEST(booked_once) {
  hec_program_clear(&program, 2);
  add(HEC_LANE_COMPUTE, HEC_ROLE_ATTENTION);
  add(HEC_LANE_TOKEN, HEC_ROLE_COUNTS);
  add(HEC_LANE_PARAM, HEC_ROLE_GATHER);
  add(HEC_LANE_GRAD, HEC_ROLE_SCATTER);
  hec_timeline_resize(&timeline, 4, 2);
  set(0, 0, 0, 10), set(1, 0, 5, 20), set(2, 0, 15, 40), set(3, 0, 30, 60);
  set(0, 1, 0, 100), set(1, 1, 0, 0), set(2, 1, 7, 7), set(3, 1, 9, 9);
  hec_timeline_check(&timeline, &program);
  hec_breakdown b = hec_timeline_breakdown(&timeline, &program);
  static const double wanted[HEC_N_BOOKS] = {
      [HEC_BOOK_COMPUTE] = 55, [HEC_BOOK_TOKEN] = 5, [HEC_BOOK_PARAM] = 10, [HEC_BOOK_GRAD] = 10};
  for (int i = 0; i < HEC_N_BOOKS; i++)
    ck_assert_double_lt(fabs(b.book_s[i] - wanted[i] * 1e-12), 1e-24);
  ck_assert_double_lt(fabs(b.wait_s - 20e-12), 1e-24);
  ck_assert_double_lt(fabs(b.total_s - 100e-12), 1e-24);
  ck_assert_double_lt(fabs(b.busy_s[HEC_LANE_GRAD] - 15e-12), 1e-24);
}

/* 64 ranks busy for 100 days: the sum over ranks does not fit 63 bits. */
HEC_TEST(sums_do_not_overflow) {
  hec_program_clear(&program, 64);
  add(HEC_LANE_COMPUTE, HEC_ROLE_ATTENTION);
  hec_timeline_resize(&timeline, 1, 64);
  int64_t days = INT64_C(100) * 86400 * 1000000000000;
  for (int32_t r = 0; r < 64; r++)
    set(0, r, 0, days);
  hec_breakdown b = hec_timeline_breakdown(&timeline, &program);
  ck_assert_double_lt(fabs(b.book_s[HEC_BOOK_COMPUTE] - 8.64e6), 1);
  ck_assert_double_lt(fabs(b.busy_s[HEC_LANE_COMPUTE] - 8.64e6), 1);
}

HEC_TEST_ABORTS(check_refuses, 4) {
  hec_program_clear(&program, 1);
  add(HEC_LANE_COMPUTE, HEC_ROLE_ATTENTION);
  add(HEC_LANE_COMPUTE, HEC_ROLE_GATE);
  hec_timeline_resize(&timeline, 2, 1);
  set(0, 0, 0, 10), set(1, 0, 10, 20);
  hec_timeline_check(&timeline, &program);
  switch (_i) {
  case 0:
    set(1, 0, 9, 20);
    break; /* lanes are in order */
  case 1:
    set(1, 0, 20, 19);
    break; /* ends before it begins */
  case 2:
    set(0, 0, -1, -1);
    break; /* everybody computes */
  default:
    timeline.n_ops = 1;
  }
  hec_timeline_check(&timeline, &program);
}

static void make_events(hec_text *out) {
  hec_program_clear(&program, 2);
  add(HEC_LANE_COMPUTE, HEC_ROLE_ATTENTION);
  add(HEC_LANE_PARAM, HEC_ROLE_REDUCE);
  HEC_RESERVE(program.transfers, program.transfers_capacity, 1);
  program.transfers[program.n_transfers++] =
      (hec_transfer){.bytes = 77, .source = 0, .destination = 1, .item = -1, .after = -1};
  (void)hec_program_add(&program,
                        (hec_op){.kind = HEC_OP_EXCHANGE,
                                 .lane = HEC_LANE_TOKEN,
                                 .role = HEC_ROLE_COMBINE,
                                 .backward = true,
                                 .reverse = true,
                                 .layer = 2,
                                 .exchange.part_at = -1,
                                 .exchange.n_transfers = 1,
                                 .exchange.n_chunks = 1},
                        NULL, 0);
  int32_t at = hec_program_local_bytes(&program, 2);
  program.local_bytes[at + 1] = 7;
  (void)hec_program_hold(&program, (hec_hold){HEC_MEMORY_PARAM, -1, -1, -1, -1, 5, HEC_TENSOR_STATE, -1, -1});
  (void)hec_program_hold(&program, (hec_hold){HEC_MEMORY_BUFFER, 0, 0, 0, at, 1, HEC_TENSOR_STATE, -1, -1});
  hec_timeline_resize(&timeline, 3, 2);
  set(0, 0, 0, 1234567), set(0, 1, 5, 12);
  set(1, 0, 3, 3), set(1, 1, 3, 4); /* no time on rank 0: not drawn */
  set(2, 0, INT64_C(2000000000499), INT64_C(2000001000501)), set(2, 1, 20, 30);
  hec_trace_events_begin(out);
  hec_trace_events_add(out, "first \"x\" \\", 100, &program, &timeline, false);
  hec_trace_events_add(out, "second", 200, &program, &timeline, true);
  hec_trace_events_end(out);
}

/* Every (operation, rank) with a length once; begins and ends are rounded to nanoseconds each; who sends and who receives is as it travels. */
HEC_TEST(events) {
  HEC_SCOPED(hec_text) out = {0};
  make_events(&out);
  HEC_OPENED(hec_json) *json = NULL;
  ck_ok(hec_json_parse(out.data, out.length, "events", &json));
  int drawn = 0, seen[2][2][3] = {{{0}}};
  const hec_json_value *e = hec_json_first(hec_json_get(hec_json_root(json), "traceEvents"));
  for (; e; e = hec_json_next(e)) {
    if (strcmp(hec_json_text(hec_json_get(e, "ph")), "X") != 0)
      continue;
    int pid = (int)hec_json_number(hec_json_get(e, "pid")),
        op = (int)hec_json_number(hec_json_get(hec_json_get(e, "args"), "op"));
    ck_assert(pid / 100 >= 1 && pid / 100 <= 2 && pid % 100 < 2 && op < 3);
    ck_assert_int_eq(seen[pid / 100 - 1][pid % 100][op]++, 0);
    drawn++;
  }
  ck_assert_int_eq(drawn, 10);
  ck_assert(seen[0][0][0] && seen[0][1][0] && !seen[0][0][1] && seen[0][1][1] && seen[1][0][2] && seen[1][1][2]);
  ck_assert_ptr_nonnull(strstr(out.data, "\"ts\":2000000.000,\"dur\":1.001"));
  ck_assert_ptr_nonnull(strstr(out.data, "\"ts\":0.000,\"dur\":1.235"));
  ck_assert_ptr_nonnull(strstr(out.data, "\"In msg nelems\":0,\"Out msg nelems\":77")); /* rank 0 receives: reversed */
}

/* Memory of the fullest rank: 5 bytes from the start, 7 more during operation 0, all gone at the end. */
HEC_TEST(memory_counter) {
  HEC_SCOPED(hec_text) out = {0};
  make_events(&out);
  HEC_OPENED(hec_json) *json = NULL;
  ck_ok(hec_json_parse(out.data, out.length, "events", &json));
  double sum[8];
  int n = 0;
  const hec_json_value *e = hec_json_first(hec_json_get(hec_json_root(json), "traceEvents"));
  for (; e; e = hec_json_next(e)) {
    if (strcmp(hec_json_text(hec_json_get(e, "ph")), "C") != 0)
      continue;
    ck_assert_int_eq((int)hec_json_number(hec_json_get(e, "pid")) % 100, 1);
    ck_assert_int_lt(n, 8);
    sum[n] = 0;
    for (const hec_json_value *v = hec_json_first(hec_json_get(e, "args")); v; v = hec_json_next(v))
      sum[n] += hec_json_number(v);
    n++;
  }
  ck_assert_int_eq(n, 8); /* twice: start, operation 0 begins, it ends, the end */
  for (int i = 0; i < 8; i += 4)
    ck_assert(sum[i] == 5 && sum[i + 1] == 12 && sum[i + 2] == 5 && sum[i + 3] == 0);
}
