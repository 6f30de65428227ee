/* Transports: every row of the table moves random posts (transport_case.h), in both forms of ranks. */
#include "tests/exec/launch_case.h"
#include "tests/exec/transport_case.h"
#include "tests/support/test.h"

#include <string.h>

static hec_status run_posts(hec_rank *rank, void *context) {
  return hec_transport_case_run(rank, context);
}

static void launch_posts(const char *name, int32_t n_ranks, bool threads, hec_transport_case c) {
  hec_launch_options options = hec_test_options(n_ranks, threads);
  options.transport = hec_transport_find(name);
  options.memory_bytes = (size_t)HEC_N_LANES * (48 << 20);
  options.limit_s = 60;
  hec_test_launch(&options, run_posts, &c);
}

/* ---- Cases ---- */

HEC_TEST_LOOP(random_posts, 2) {
  for (uint64_t seed = 1; seed <= 3; seed++)
    for (int32_t n_ranks = 2; n_ranks <= 8; n_ranks += n_ranks < 4 ? 1 : 2)
      launch_posts("shm", n_ranks, _i == 1, (hec_transport_case){seed, 10, 15, -1});
}

HEC_TEST_LOOP(every_kind_alone, 2) {
  for (int32_t k = 0; k < HEC_TEST_N_TRANSPORT_KINDS; k++)
    launch_posts("shm", 5, _i == 1, (hec_transport_case){77, 12, 12, k});
}

HEC_TEST_LOOP(large_messages, 2) {
  launch_posts("shm", 2, _i == 1, (hec_transport_case){5, 4, 22, HEC_TEST_SCATTERED});
  launch_posts("shm", 3, _i == 1, (hec_transport_case){6, 4, 22, HEC_TEST_TREES});
  launch_posts("shm", 3, _i == 1, (hec_transport_case){7, 4, 22, HEC_TEST_SUMS});
}

HEC_TEST_LOOP(every_transport, 2) {
  for (int i = 0; hec_transports[i]; i++) {
    ck_assert_ptr_eq(hec_transport_find(hec_transports[i]->name), hec_transports[i]);
    for (int32_t n_ranks = 2; n_ranks <= 8; n_ranks += 2)
      launch_posts(hec_transports[i]->name, n_ranks, _i == 1, (hec_transport_case){9, 8, 15, -1});
    launch_posts(hec_transports[i]->name, 5, _i == 1, (hec_transport_case){8, 8, 20, HEC_TEST_TREES});
    launch_posts(hec_transports[i]->name, 3, _i == 1, (hec_transport_case){11, 3, 22, HEC_TEST_SCATTERED});
  }
  ck_assert_ptr_null(hec_transport_find("pigeons"));
}

/* Two ends that disagree about a size say so. */
static hec_status run_disagreeing(hec_rank *rank, void *context) {
  const int64_t *bytes = context;
  hec_segment segment = {rank->memory, bytes[rank->rank]};
  hec_message message = {
      .peer = 1 - rank->rank, .n_segments = 1, .segments = &segment, .bytes = segment.bytes, .after = -1};
  hec_post post = {.sends = &message, .n_sends = 1};
  if (rank->rank == 1)
    post = (hec_post){.receives = &message, .n_receives = 1};
  HEC_TRY(hec_test_finish_post(rank, &post));
  return hec_rank_barrier(rank);
}

HEC_TEST_LOOP(sizes_that_disagree_are_noticed, 2) {
  int64_t cases[][2] = {{100, 99}, {99, 100}, {1, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int t = 0; hec_transports[t]; t++) {
      hec_launch_options options = hec_test_options(2, _i == 1);
      options.transport = hec_transports[t];
      const char *text = hec_test_launch_fails(&options, run_disagreeing, cases[i]);
      ck_assert_msg(strstr(text, "of another size") != NULL, "%s", text);
    }
  }
}
