/* From a trace's records to iterations of loads: strides, micro-batches, and how many tokens they have. */
#include "runtime/program/job.h"
#include "tests/support/job_case.h"
#include "tests/support/test.h"

#include <stdio.h>

HEC_TEST_JOB(made)

HEC_TEST(iterations_and_stride) {
  hec_test_trace t = hec_test_small_trace;
  t.records = 3;
  t.stride = 25;
  hec_test_must(hec_test_job_make(&made, t, HEC_JOB_OPTIONS));
  ck_assert(hec_test_job_said(&made, "25 iterations apart"));
  HEC_OPENED(hec_feed) *feed = hec_feed_new(&made.job, made.reader);
  const hec_iteration *it;
  for (int64_t i = 0; i < 3; i++) {
    hec_test_must(hec_feed_next(feed, &it));
    ck_assert_ptr_nonnull(it);
    ck_assert(it->index == i && it->iter == 7 + 25 * i && it->stride == 25 && it->n_loads == 1);
    ck_assert_int_eq(it->n_micro_batches, 1);
  }
  hec_test_must(hec_feed_next(feed, &it));
  ck_assert_ptr_null(it);
}
/* The range is that of the iterations so far, not of the record read ahead; records that are scaled have none. */
HEC_TEST(tokens_of_records) {
  hec_test_trace t = hec_test_small_trace;
  t.records = 6;
  t.per_iter = 2;
  hec_test_must(hec_test_job_make(&made, t, HEC_JOB_OPTIONS));
  HEC_SCOPED(hec_text) again = {0};
  HEC_OPENED(hec_trace_reader) *other = hec_test_trace_open(&t, 1, &again);
  const hec_trace_record *record;
  const hec_iteration *it;
  hec_token_range found = {0};
  int32_t min = INT32_MAX, max = 0;
  HEC_OPENED(hec_feed) *feed = hec_feed_new(&made.job, made.reader);
  for (hec_test_must(hec_feed_next(feed, &it)); it; hec_test_must(hec_feed_next(feed, &it))) {
    for (int32_t r = 0; r < t.per_iter; r++) {
      hec_test_must(hec_trace_next(other, &record));
      int32_t fullest = 0;
      for (int32_t l = 0; l < t.layers; l++) {
        int32_t total = 0;
        for (int32_t cell = 0; cell < t.sources * t.experts; cell++)
          total += (int32_t)record->load.counts[l * t.sources * t.experts + cell];
        fullest = total > fullest ? total : fullest;
      }
      int32_t tokens = (fullest + t.sources * t.top_k - 1) / (t.sources * t.top_k);
      min = tokens < min ? tokens : min;
      max = tokens > max ? tokens : max;
    }
    found = hec_feed_tokens(feed);
    ck_assert_msg(found.min == min && found.max == max, "%d to %d, wanted %d to %d", found.min, found.max, min, max);
  }
  ck_assert_int_lt(min, max);
  hec_job_note_tokens(&made.job, found, &made.arena);
  char words[96];
  (void)snprintf(words, sizeof words, "tokens per rank: %d to %d in the records; attention", min, max);
  ck_assert(hec_test_job_said(&made, words));
}
HEC_TEST_LOOP(tokens_alike_or_scaled, 2) {
  bool scaled = _i == 1;
  hec_test_trace t = hec_test_small_trace;
  t.cell = scaled ? 0 : 8;
  hec_job_options o = HEC_JOB_OPTIONS;
  o.tokens = scaled ? 64 : 0;
  hec_test_must(hec_test_job_make(&made, t, o));
  HEC_OPENED(hec_feed) *feed = hec_feed_new(&made.job, made.reader);
  const hec_iteration *it;
  do
    hec_test_must(hec_feed_next(feed, &it));
  while (it);
  ck_assert_int_eq(hec_feed_tokens(feed).min, scaled ? 0 : 32); /* 8 of each of 8 experts, two a token */
  hec_job_note_tokens(&made.job, hec_feed_tokens(feed), &made.arena);
  ck_assert(!hec_test_job_said(&made, "in the records"));
}
HEC_TEST(alone_has_stride_one) {
  hec_test_trace t = hec_test_small_trace;
  t.records = 1;
  hec_job_options o = HEC_JOB_OPTIONS;
  o.micro_batches = 3;
  hec_test_must(hec_test_job_make(&made, t, o));
  ck_assert(hec_test_job_said(&made, "repeated 3 times"));
  HEC_OPENED(hec_feed) *feed = hec_feed_new(&made.job, made.reader);
  const hec_iteration *it;
  hec_test_must(hec_feed_next(feed, &it));
  ck_assert(it && it->stride == 1 && it->n_loads == 1 && it->n_micro_batches == 3);
  hec_test_must(hec_feed_next(feed, &it));
  ck_assert_ptr_null(it);
}
HEC_TEST(records_of_one_iteration) { /* 7 records, 3 to an iteration: 3, 3, 1; loads are the records' */
  hec_test_trace t = hec_test_small_trace;
  t.records = 7;
  t.per_iter = 3;
  t.stride = 2;
  hec_job_options o = HEC_JOB_OPTIONS;
  o.micro_batches = 4;
  hec_test_must(hec_test_job_make(&made, t, o));
  hec_feed *feed = hec_feed_new(&made.job, made.reader);
  hec_text again = {0};
  hec_trace_reader *other = hec_test_trace_open(&t, 1, &again);
  const hec_trace_record *record;
  const hec_iteration *it;
  for (int32_t i = 0; i < 3; i++) {
    hec_test_must(hec_feed_next(feed, &it));
    ck_assert_ptr_nonnull(it);
    ck_assert_int_eq(it->n_loads, i < 2 ? 3 : 1);
    ck_assert_int_eq(it->n_micro_batches, i < 2 ? 3 : 4);
    ck_assert_int_eq(it->stride, 2);
    for (int32_t k = 0; k < it->n_loads; k++) {
      hec_test_must(hec_trace_next(other, &record));
      ck_assert_int_eq(record->iter, it->iter);
      ck_assert_mem_eq(record->load.counts, it->loads[k].counts, 2 * 4 * 8 * sizeof(uint32_t));
    }
  }
  hec_feed_free(feed);
  hec_trace_close(other);
  hec_text_free(&again);
}
