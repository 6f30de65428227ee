/* Unions of a rank's intervals, by hand and against the breakdown; the table of forms. The protobuf writer by the examples
 * of the format's description (protobuf.dev, Encoding). */
#include "runtime/base/protobuf.h"
#include "tests/program/timeline_case.h"
#include "tools/front/timelines/timeline_format.h"

#include <math.h>
#include <string.h>

static void add(hec_op_kind kind, hec_lane lane) {
  hec_role role = kind == HEC_OP_ALLREDUCE ? HEC_ROLE_DENSE_REDUCE : HEC_ROLE_ATTENTION;
  (void)hec_program_add(&program, hec_op_new(kind, lane, role, 0), NULL, 0);
}

/* compute 5-10 and 20-30, an addition on the gradient lane 25-40; communication 8-22 and 10-12 and 50-60; planning 0-70. */
HEC_TEST(by_hand) {
  hec_program_clear(&program, 1);
  add(HEC_OP_LOCAL, HEC_LANE_COMPUTE);
  add(HEC_OP_LOCAL, HEC_LANE_COMPUTE);
  add(HEC_OP_LOCAL, HEC_LANE_GRAD);
  add(HEC_OP_COUNTS, HEC_LANE_TOKEN);
  add(HEC_OP_ALLREDUCE, HEC_LANE_PARAM);
  add(HEC_OP_ALLREDUCE, HEC_LANE_GRAD);
  add(HEC_OP_PLAN, HEC_LANE_INTRA);
  hec_timeline_resize(&timeline, 7, 1);
  set(0, 0, 5, 10), set(1, 0, 20, 30), set(2, 0, 25, 40), set(3, 0, 8, 22), set(4, 0, 10, 12), set(5, 0, 50, 60);
  set(6, 0, 0, 70);
  hec_rank_time t = hec_timeline_rank_time(&timeline, &program, 0);
  ck_assert_int_eq(t.first_ps, 5);
  ck_assert_int_eq(t.last_ps, 60);
  ck_assert_int_eq(t.compute_ps, 5 + 20);
  ck_assert_int_eq(t.communication_ps, 14 + 10);
  ck_assert_int_eq(t.both_ps, 2 + 2);
  ck_assert_int_eq(t.idle_ps, 10);
}

HEC_TEST(without_events) {
  hec_program_clear(&program, 2);
  add(HEC_OP_LOCAL, HEC_LANE_COMPUTE);
  hec_timeline_resize(&timeline, 1, 2);
  set(0, 0, 3, 3), set(0, 1, 4, 9);
  hec_rank_time t = hec_timeline_rank_time(&timeline, &program, 0);
  ck_assert_int_eq(t.first_ps + t.last_ps + t.compute_ps + t.communication_ps + t.both_ps + t.idle_ps, 0);
  t = hec_timeline_rank_time(&timeline, &program, 1);
  ck_assert_int_eq(t.compute_ps, 5);
}

static uint64_t state;
static int64_t below(int64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)n);
}

/* Two ways to the same time, of random timelines without planning. What the breakdown calls waiting is, over all ranks, the
 * time from a rank's beginning to the end of the iteration that no interval covers. What is booked is covered. */
HEC_TEST_LOOP(equals_the_breakdown, 200) {
  enum { RANKS = 3, OPS = 60 };
  state = (uint64_t)_i + 1;
  hec_program_clear(&program, RANKS);
  for (int32_t i = 0; i < OPS; i++) {
    hec_lane lane = (hec_lane)below(HEC_N_LANES);
    add(lane != HEC_LANE_COMPUTE && below(3) ? HEC_OP_ALLREDUCE : HEC_OP_LOCAL, lane);
  }
  hec_timeline_resize(&timeline, OPS, RANKS);
  for (int32_t r = 0; r < RANKS; r++) {
    int64_t lane_end[HEC_N_LANES];
    timeline.late_ps[r] = below(40);
    for (int32_t lane = 0; lane < HEC_N_LANES; lane++)
      lane_end[lane] = timeline.late_ps[r];
    for (int32_t i = 0; i < OPS; i++) {
      int64_t begin = lane_end[program.ops[i].lane] + below(60), end = begin + below(50);
      set(i, r, begin, end);
      lane_end[program.ops[i].lane] = end;
    }
  }
  hec_breakdown b = hec_timeline_breakdown(&timeline, &program);
  int64_t total = hec_timeline_end_ps(&timeline), wait = 0, covered = 0;
  for (int32_t r = 0; r < RANKS; r++) {
    hec_rank_time t = hec_timeline_rank_time(&timeline, &program, r);
    int64_t busy = t.compute_ps + t.communication_ps - t.both_ps;
    ck_assert_int_eq(t.last_ps - t.first_ps, busy + t.idle_ps);
    wait += t.idle_ps + (t.first_ps - timeline.late_ps[r]) + (total - t.last_ps);
    covered += busy;
  }
  double booked = 0;
  for (int i = 0; i < HEC_N_BOOKS; i++)
    booked += b.book_s[i];
  ck_assert_double_lt(fabs(b.wait_s * RANKS * 1e12 - (double)wait), 1e-3);
  ck_assert_double_lt(fabs(booked * RANKS * 1e12 - (double)covered), 1e-3);
}

/* The optimizer is of neither pass, though it stands in the backward one; planning is the host's in every form. */
HEC_TEST(titles_and_categories) {
  static const struct {
    hec_op op;
    const char *title, *category;
  } cases[] = {
      {{.kind = HEC_OP_LOCAL, .role = HEC_ROLE_OPTIMIZER, .backward = true}, "optimizer", "kernel"},
      {{.kind = HEC_OP_COMPUTE, .role = HEC_ROLE_EXPERTS, .backward = true}, "experts backward", "kernel"},
      {{.kind = HEC_OP_EXCHANGE, .role = HEC_ROLE_DISPATCH, .chunk = 1, .degree = 4}, "dispatch 2/4", "kernel"},
      {{.kind = HEC_OP_PLAN, .role = HEC_ROLE_PLAN}, "plan", "cpu_op"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char title[HEC_OP_TITLE_BYTES];
    hec_op_title(&cases[i].op, title);
    ck_assert_str_eq(title, cases[i].title);
    ck_assert_str_eq(hec_op_category(&cases[i].op), cases[i].category);
  }
}

HEC_TEST(found_by_name) {
  for (int32_t i = 0; hec_timeline_formats[i]; i++) {
    const hec_timeline_format *f = hec_timeline_formats[i];
    ck_assert_ptr_eq(hec_timeline_format_find(f->name), f);
    ck_assert(f->add != NULL);
    ck_assert_int_eq(f->begin == NULL, hec_timeline_by_rank(f));
    ck_assert_int_eq(f->end == NULL, hec_timeline_by_rank(f));
    ck_assert_int_eq(f->append == NULL, hec_timeline_by_rank(f));
    ck_assert_int_eq(f->suffix != NULL, hec_timeline_by_rank(f));
  }
  ck_assert_str_eq(hec_timeline_formats[0]->name, "chrome");
  ck_assert_ptr_null(hec_timeline_format_find("kinet"));
}

static void check_bytes(hec_text *text, const char *wanted, size_t n) {
  ck_assert_uint_eq(text->length, n);
  ck_assert_int_eq(memcmp(text->data, wanted, n), 0);
  text->length = 0;
}

HEC_TEST(protobuf_examples) {
  HEC_SCOPED(hec_text) text = {0}, packed = {0};
  hec_protobuf_number(&text, 1, 150);
  check_bytes(&text, "\x08\x96\x01", 3);
  hec_protobuf_string(&text, 2, "testing");
  check_bytes(&text, "\x12\x07testing", 9);
  hec_protobuf_varint(&packed, 3);
  hec_protobuf_varint(&packed, 270);
  hec_protobuf_varint(&packed, 86942);
  hec_protobuf_bytes(&text, 6, packed.data, packed.length);
  check_bytes(&text, "\x32\x06\x03\x8e\x02\x9e\xa7\x05", 8);
  hec_protobuf_varint(&text, 0);
  hec_protobuf_varint(&text, 127);
  hec_protobuf_varint(&text, 128);
  check_bytes(&text, "\0\x7f\x80\x01", 4);
  hec_protobuf_varint(&text, UINT64_MAX);
  check_bytes(&text, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
  hec_protobuf_number(&text, 27, 1); /* a key of two bytes */
  check_bytes(&text, "\xd8\x01\x01", 3);
}
