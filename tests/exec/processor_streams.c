/* Streams: what is ordered by events only, what is not, times, and memory of the host. Every case would also pass on a
 * device that runs everything at once in order. A device (or a fake of one) that takes its freedom finds what is missing. */
#include "runtime/exec/launch/rank.h"
#include "tests/exec/processor_case.h"

#include <string.h>

enum { N = 5000 };

/* Work on every stream at the same time, of every kind that sends lists, scratch or pointers. */
START_TEST(all_at_once) {
  hec_processor *on = hec_case.on;
  hec_numbers a[HEC_STREAMS], b[HEC_STREAMS], c[HEC_STREAMS], d[HEC_STREAMS];
  for (int32_t s = 0; s < HEC_STREAMS; s++) {
    a[s] = hec_case_random(32 * 32);
    b[s] = hec_case_random(32 * 32);
    c[s] = hec_case_random(32 * 32);
    d[s] = hec_case_poisoned(32 * 32);
    for (int i = 0; i < 32 * 32; i++) { /* small integers: exact in every mode */
      a[s].x[i] = (float)((i * 7 + s) % 5 - 2);
      b[s].x[i] = (float)((i * 3 + s) % 7 - 3);
    }
    hec_case_send(a[s]);
    hec_case_send(b[s]);
  }
  for (int round = 0; round < 3; round++)
    for (int32_t s = 0; s < HEC_STREAMS; s++) {
      on->streams->select(on, s);
      hec_gemm g[2] = {
          {.m = 32, .n = 32, .k = 32, .a = a[s].at, .b = b[s].at, .c = c[s].at, .alpha = 1, .beta = round > 0},
          {.m = 32, .n = 32, .k = 32, .a = a[s].at, .b = b[s].at, .c = d[s].at, .alpha = 1}};
      on->math->gemm(on, g, 2);
      on->math->scale(on, d[s].at, 2, d[s].n);
    }
  for (int32_t s = 0; s < HEC_STREAMS; s++) {
    on->streams->select(on, s);
    float *thrice = hec_case_fetch(c[s]), *twice = hec_case_fetch(d[s]);
    for (int i = 0; i < 32 * 32; i++) {
      float sum = 0;
      for (int k = 0; k < 32; k++)
        sum += a[s].x[i / 32 * 32 + k] * b[s].x[k * 32 + i % 32];
      ck_assert(thrice[i] == 3 * sum && twice[i] == 2 * sum);
    }
  }
}
END_TEST

/* Each stream adds to what the one before it left, several rounds; events are all that orders them. */
START_TEST(events_order_streams) {
  hec_processor *on = hec_case.on;
  hec_numbers x = hec_case_random(N), sum = hec_case_random(N);
  const hec_event *before = on->streams->mark(on);
  for (int i = 0; i < 20; i++) {
    on->streams->select(on, (i * 5 + 1) % HEC_STREAMS);
    on->streams->after(on, before);
    on->math->add(on, &(hec_piece){sum.at, x.at, N}, 1);
    on->math->scale(on, x.at, -0.5F, N);
    before = on->streams->mark(on);
    hec_math_add(sum.x, x.x, N);
    hec_math_scale(x.x, -0.5F, N);
  }
  on->streams->select(on, 2);
  on->streams->after(on, before);
  hec_case_expect_bytes(sum, sum.x);
  hec_case_expect_bytes(x, x.x);
}
END_TEST

static void wait_for(const hec_event *event) {
  hec_processor *on = hec_case.on;
  int64_t until = hec_clock_ns() + 60000000000;
  while (!on->streams->reached(on, event))
    ck_assert(hec_clock_ns() < until);
}

/* The event is between what the host saw before and after, and later ones are later. */
START_TEST(times) {
  const int64_t doubt = 1000000; /* of the two clocks */
  hec_processor *on = hec_case.on;
  hec_numbers x = hec_case_random(N);
  on->streams->restart(on);
  int64_t begin = hec_clock_ns(), last = 0;
  for (int i = 0; i < 600; i++) { /* more than the first group of events */
    on->math->scale(on, x.at, 1.5F, N);
    const hec_event *event = on->streams->mark(on);
    if (i % 50 != 0)
      continue;
    wait_for(event);
    int64_t when = on->streams->when(on, event), now = hec_clock_ns();
    ck_assert_msg(when >= begin - doubt && when <= now + doubt && when >= last - 2000, "%lld not in %lld .. %lld",
                  (long long)when, (long long)begin, (long long)now);
    last = when;
    begin = now;
  }
}
END_TEST

/* Zero at the start; goes there and back on different streams, ordered by events. */
START_TEST(memory_of_the_host) {
  hec_processor *on = hec_case.on;
  float *out = on->streams->host_memory(on, N * sizeof *out), *back = on->streams->host_memory(on, N * sizeof *back);
  ck_assert(out && back);
  for (int i = 0; i < N; i++) {
    ck_assert(out[i] == 0 && back[i] == 0);
    out[i] = (float)i;
  }
  hec_numbers x = hec_case_poisoned(N);
  on->streams->select(on, 1);
  on->streams->put(on, x.at, out, N * sizeof *out);
  on->math->scale(on, x.at, 2, N);
  const hec_event *event = on->streams->mark(on);
  on->streams->select(on, 3);
  on->streams->after(on, event);
  on->streams->fetch(on, back, x.at, N * sizeof *back);
  event = on->streams->mark(on);
  wait_for(event);
  for (int i = 0; i < N; i++)
    ck_assert(back[i] == 2 * (float)i);
  on->streams->put(on, NULL, NULL, 0);
}
END_TEST

/* Lists of one round are written over by those of the next only when they were read. */
START_TEST(many_rounds) {
  enum { LIST = 300 };
  hec_processor *on = hec_case.on;
  hec_numbers a = hec_case_random(4 * LIST), c = hec_case_poisoned(LIST);
  hec_gemm list[LIST];
  for (int round = 0; round < 4; round++) {
    for (int again = 0; again < 30; again++) {
      for (int i = 0; i < LIST; i++) {
        int at = (i * 7 + again) % LIST;
        list[i] = (hec_gemm){.m = 1, .n = 1, .k = 4, .a = a.at + 4 * at, .b = a.at + 4 * at, .c = c.at + i, .alpha = 1};
        list[i].k = 4 - at % 2; /* not all alike */
      }
      on->math->gemm(on, list, LIST);
    }
    if (round % 2)
      on->streams->restart(on);
  }
  const float *now = hec_case_fetch(c);
  for (int i = 0; i < LIST; i++) {
    int at = (i * 7 + 29) % LIST;
    double sum = 0;
    for (int k = 0; k < 4 - at % 2; k++)
      sum += (double)a.x[4 * at + k] * (double)a.x[4 * at + k];
    ck_assert(((double)now[i] - sum) < 0.02 * sum + 1e-6 && ((double)now[i] - sum) > -0.02 * sum - 1e-6);
  }
}
END_TEST

TCase *hec_case_streams(void) {
  TCase *c = tcase_create("streams");
  hec_case_fixture(c);
  tcase_add_test(c, all_at_once);
  tcase_add_test(c, events_order_streams);
  tcase_add_test(c, times);
  tcase_add_test(c, memory_of_the_host);
  tcase_add_test(c, many_rounds);
  return c;
}
