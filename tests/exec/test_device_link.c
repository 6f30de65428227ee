/* Link local on 2 to 8 ranks whose devices carry calls out late and in the worst order (queued_cpu.h): random programs
 * (link_case.h), then everything that can go wrong. */
#include "tests/exec/launch_case.h"
#include "tests/exec/link_case.h"
#include "tests/support/check_main.h"
#include "tests/support/queued_cpu.h"

#include <string.h>

typedef hec_status ranks_work(hec_rank *rank, void *context);

/* A rank with a device and a link; ends both in every case. */
static hec_status with_device(hec_rank *rank, ranks_work *work, void *context, uint64_t seed) {
  rank->processor = hec_queued_cpu_new(seed * 64 + (uint64_t)rank->rank);
  rank->link = &hec_device_link_local;
  hec_status status = rank->link->open(rank);
  if (status == HEC_OK)
    status = work(rank, context);
  rank->link->close(rank, status != HEC_OK);
  hec_queued_cpu_free(rank->processor);
  rank->processor = &hec_processor_cpu;
  return status;
}

static hec_status work_steps(hec_rank *rank, void *context) {
  rank->serial = ((const hec_test_program *)context)->seed % 4 == 0; /* exchanges by turns */
  return hec_test_program_run(rank, context);
}
static hec_status run_program(hec_rank *rank, void *context) {
  return with_device(rank, work_steps, context, ((const hec_test_program *)context)->seed);
}

static hec_launch_options link_options(int32_t n_ranks) {
  hec_launch_options options = hec_test_options(n_ranks, true);
  options.link = &hec_device_link_local;
  return options;
}

START_TEST(random_programs) {
  hec_math_open();
  for (uint64_t seed = 1; seed <= 10; seed++) {
    int32_t n_ranks = 2 + _i;
    hec_test_program *p = hec_test_program_new(seed, n_ranks, true);
    hec_launch_options options = link_options(n_ranks);
    hec_test_launch(&options, run_program, p);
    hec_test_program_free(p);
  }
}
END_TEST

/* The programs hold what they should: every kind, forwarding over several hops, sums of several ranks, memory that is sent
 * and then written over. */
START_TEST(programs_hold_everything) {
  int n[HEC_TEST_N_KINDS] = {0}, far = 0, shared = 0;
  hec_math_open();
  for (uint64_t seed = 1; seed <= 10; seed++) {
    hec_test_program *p = hec_test_program_new(seed, 5, true);
    for (const hec_test_step *s = p->steps; s < p->steps + p->n_steps; s++) {
      n[s->kind]++;
      for (int32_t i = 0; i < s->n_edges; i++) {
        far += s->edges[i].hop >= 2;
        shared += i > 0 && s->kind == HEC_TEST_ADDING && s->edges[i].destination == s->edges[i - 1].destination;
      }
    }
    hec_test_program_free(p);
  }
  for (int k = 0; k < HEC_TEST_N_KINDS; k++)
    ck_assert_int_ge(n[k], 5);
  ck_assert(far > 20 && shared > 50);
}
END_TEST

/* ---- What goes wrong ---- */

static hec_status work_fault(hec_rank *rank, void *context) {
  const hec_test_fault *f = context;
  hec_test_at_dispatch(rank);
  for (int i = 0; i < 3; i++)
    HEC_TRY(hec_test_circle(rank, &hec_test_good));
  if (rank->rank == f->absent && f->fails)
    return hec_rank_fail(rank, "on purpose");
  if (rank->rank == f->absent) {
    while (hec_rank_check(rank) == HEC_OK)
      hec_test_pause_ns(1000000);
    return HEC_FAILED;
  }
  HEC_TRY(hec_test_circle(rank, f));
  return hec_rank_barrier(rank);
}
static hec_status run_fault(hec_rank *rank, void *context) {
  return with_device(rank, work_fault, context, 1);
}

static const char *launch_fault(hec_test_fault *f) {
  hec_launch_options options = link_options(3);
  options.limit_s = f->fails ? 20 : 0.3;
  hec_math_open();
  return hec_test_launch_fails(&options, run_fault, f);
}

START_TEST(a_rank_that_never_comes) {
  hec_test_fault f = {.absent = _i, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  char expected[64];
  int64_t begin_ns = hec_clock_ns();
  const char *text = launch_fault(&f);
  (void)snprintf(expected, sizeof expected, "waited 0.3 s for rank %d in an exchange between devices", _i);
  ck_assert_msg(strstr(text, expected) != NULL && strstr(text, HEC_TEST_DISPATCH) != NULL, "%s", text);
  ck_assert(hec_clock_ns() - begin_ns < 5000000000);
}
END_TEST

START_TEST(a_rank_that_fails) {
  hec_test_fault f = {.absent = _i, .fails = true, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  char expected[128];
  int64_t begin_ns = hec_clock_ns();
  const char *text = launch_fault(&f);
  (void)snprintf(expected, sizeof expected, "rank %d, in " HEC_TEST_DISPATCH ": on purpose", _i);
  ck_assert_str_eq(text, expected);
  ck_assert(hec_clock_ns() - begin_ns < 5000000000);
}
END_TEST

/* One sends too much, too little, or the same in other segments; others are in the middle of an exchange with it. */
START_TEST(sizes_that_disagree) {
  static const struct {
    int64_t bytes[2];
    const char *says;
  } cases[] = {
      {{64, 60},
       "rank 0, in " HEC_TEST_DISPATCH ": rank 2 sends a message of another size than the 128 bytes expected "
       "on channel 1"},
      {{64, 68}, "rank 2 sends a message of another size than the 128 bytes expected on channel 1"},
      {{60, 68}, "rank 2 sends a message of 128 bytes in segments of other sizes than expected on channel 1"},
  };
  hec_test_fault f = {
      .absent = -1, .fails = true, .bytes = {{64, 64}, {64, 64}, {cases[_i].bytes[0], cases[_i].bytes[1]}}};
  for (int times = 0; times < 20; times++) {
    const char *text = launch_fault(&f);
    ck_assert_msg(strstr(text, cases[_i].says) != NULL, "%s", text);
  }
}
END_TEST

/* A post without messages is nobody's business. */
static hec_status work_empty(hec_rank *rank, void *context) {
  hec_post post = {.lane = HEC_LANE_GRAD};
  (void)context;
  return rank->rank == 0 ? rank->link->exchange(rank, &post) : HEC_OK;
}
static hec_status run_empty(hec_rank *rank, void *context) {
  return with_device(rank, work_empty, context, 1);
}

START_TEST(an_empty_post) {
  hec_launch_options options = link_options(2);
  hec_test_launch(&options, run_empty, NULL);
}
END_TEST

/* A device that fails ends no host's exchange: the executor finds the error. */
static hec_status work_broken(hec_rank *rank, void *context) {
  (void)context;
  for (int i = 0; i < 5; i++) {
    if (i == 2 && rank->rank == 1)
      hec_queued_cpu_break(rank->processor, "out of order");
    HEC_TRY(hec_test_circle(rank, &hec_test_good));
  }
  rank->processor->streams->restart(rank->processor);
  if ((rank->processor->streams->error(rank->processor) != NULL) != (rank->rank == 1))
    return hec_rank_fail(rank, "an error of another device");
  return hec_rank_barrier(rank);
}
static hec_status run_broken(hec_rank *rank, void *context) {
  return with_device(rank, work_broken, context, 3);
}

START_TEST(a_broken_device) {
  hec_launch_options options = link_options(3);
  hec_math_open();
  hec_test_launch(&options, run_broken, NULL);
}
END_TEST

START_TEST(processes_are_refused) {
  hec_launch_options options = link_options(2);
  options.threads = false;
  ck_assert_int_eq(hec_launch(&options, run_empty, NULL), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "link local: its ranks are threads of one process");
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("exec.device_link");
  TCase *c = tcase_create("device_link");
  tcase_set_timeout(c, 200);
  tcase_add_loop_test(c, random_programs, 0, HEC_TEST_RANKS_MOST - 1);
  tcase_add_test(c, programs_hold_everything);
  tcase_add_loop_test(c, a_rank_that_never_comes, 0, 3);
  tcase_add_loop_test(c, a_rank_that_fails, 0, 3);
  tcase_add_loop_test(c, sizes_that_disagree, 0, 3);
  tcase_add_test(c, an_empty_post);
  tcase_add_test(c, a_broken_device);
  tcase_add_test(c, processes_are_refused);
  suite_add_tcase(s, c);
  return s;
}

HEC_TEST_MAIN(suite)
