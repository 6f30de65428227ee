/* Link local on 2 to 8 ranks whose devices carry calls out late and in the worst order (queued_cpu.h). Random programs
 * (link_case.h), then everything that can go wrong. */
#include "runtime/exec/launch/world.h"
#include "tests/exec/launch_case.h"
#include "tests/exec/link_case.h"
#include "tests/support/queued_cpu.h"
#include "tests/support/test.h"

#include <string.h>

/* What every rank does on a device of its own. */
typedef struct {
  hec_rank_body *work;
  void *context;
  uint64_t seed;
} job;

static hec_status on_device(hec_rank *rank, void *context) {
  const job *j = context;
  uint64_t seed = j->seed * 64 + (uint64_t)rank->rank;
  return hec_test_on_device(rank, &hec_device_link_local, seed, j->work, j->context);
}

static hec_status work_steps(hec_rank *rank, void *context) {
  rank->serial = ((const hec_test_program *)context)->seed % 4 == 0; /* exchanges by turns */
  return hec_test_program_run(rank, context);
}

static hec_launch_options link_options(int32_t n_ranks) {
  hec_launch_options options = hec_test_options(n_ranks, true);
  options.link = &hec_device_link_local;
  return options;
}

HEC_TEST_LOOP(random_programs, HEC_TEST_RANKS_MAX - 1) {
  hec_math_open();
  for (uint64_t seed = 1; seed <= 10; seed++) {
    int32_t n_ranks = 2 + _i;
    hec_test_program *p = hec_test_program_new(seed, n_ranks, true);
    hec_launch_options options = link_options(n_ranks);
    hec_test_launch(&options, on_device, &(job){work_steps, p, seed});
    hec_test_program_free(p);
  }
}

/* The programs hold what they should: every kind, forwarding over several hops, sums of several ranks, memory that is sent
 * and then written over. */
HEC_TEST(programs_hold_everything) {
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

/* ---- What goes wrong ---- */

static hec_status work_fault(hec_rank *rank, void *context) {
  const hec_test_fault *f = context;
  hec_test_at_dispatch(rank);
  for (int i = 0; i < 3; i++)
    HEC_TRY(hec_test_circle(rank, &hec_test_good));
  if (rank->rank == f->absent && f->fails)
    return hec_rank_fail(rank, "on purpose");
  if (rank->rank == f->absent) {
    for (; hec_rank_check(rank) == HEC_OK; hec_test_pause_ns(1000000))
      hec_world_awake(rank, hec_clock_ns());
    return HEC_FAILED;
  }
  hec_test_lets_time_pass(rank);
  HEC_TRY(hec_test_circle(rank, f));
  return hec_rank_barrier(rank);
}

static const char *launch_fault(hec_test_fault *f) {
  hec_launch_options options = link_options(3);
  options.limit_s = f->fails ? HEC_TEST_FOREVER_S : HEC_TEST_PASSING_S;
  if (!f->fails)
    hec_test_miss(f->absent, false, true);
  hec_math_open();
  return hec_test_launch_fails(&options, on_device, &(job){work_fault, f, 1});
}

HEC_TEST_LOOP(a_rank_that_never_comes, 3) {
  hec_test_fault f = {.absent = _i, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  char expected[64];
  const char *text = launch_fault(&f);
  (void)snprintf(expected, sizeof expected, "waited " HEC_TEST_PASSING_TEXT " for rank %d in an exchange between devices", _i);
  ck_assert_msg(strstr(text, expected) != NULL && strstr(text, HEC_TEST_DISPATCH) != NULL, "%s", text);
}

HEC_TEST_LOOP(a_rank_that_fails, 3) {
  hec_test_fault f = {.absent = _i, .fails = true, .bytes = {{64, 64}, {64, 64}, {64, 64}}};
  char expected[128];
  const char *text = launch_fault(&f);
  (void)snprintf(expected, sizeof expected, "rank %d, in " HEC_TEST_DISPATCH ": on purpose", _i);
  ck_assert_str_eq(text, expected);
}

/* One sends too much, too little, or the same in other segments; others are in the middle of an exchange with it. */
HEC_TEST_LOOP(sizes_that_disagree, 3) {
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

/* A post without messages is nobody's business. */
static hec_status work_empty(hec_rank *rank, void *context) {
  hec_post post = {.lane = HEC_LANE_GRAD};
  (void)context;
  return rank->rank == 0 ? rank->link->exchange(rank, &post) : HEC_OK;
}

HEC_TEST(an_empty_post) {
  hec_launch_options options = link_options(2);
  hec_test_launch(&options, on_device, &(job){work_empty, NULL, 1});
}

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

HEC_TEST(a_broken_device) {
  hec_launch_options options = link_options(3);
  hec_math_open();
  hec_test_launch(&options, on_device, &(job){work_broken, NULL, 3});
}

HEC_TEST(processes_are_refused) {
  hec_launch_options options = link_options(2);
  options.threads = false;
  ck_assert_int_eq(hec_launch(&options, work_empty, NULL), HEC_BAD_INPUT);
  ck_assert_str_eq(hec_last_error(), "link local: its ranks are threads of one process");
}
