/* See launch_case.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/exec/launch_case.h"
#include "tests/support/check_main.h"
#include "tests/support/queued_cpu.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>

hec_launch_options hec_test_options(int32_t n_ranks, bool threads) {
  return (hec_launch_options){
      .n_ranks = n_ranks, .threads = threads, .transport = &hec_transport_shm, .memory_bytes = 1 << 20, .limit_s = 20};
}

void hec_test_no_child_is_left(void) {
  ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
  ck_assert_int_eq(errno, ECHILD);
}

void hec_test_launch(const hec_launch_options *options, hec_rank_body *body, void *context) {
  if (hec_launch(options, body, context) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  hec_test_no_child_is_left();
}

const char *hec_test_launch_fails(const hec_launch_options *options, hec_rank_body *body, void *context) {
  ck_assert_int_eq(hec_launch(options, body, context), HEC_FAILED);
  hec_test_no_child_is_left();
  return hec_last_error();
}

hec_status hec_test_on_device(hec_rank *rank, const hec_device_link *link, uint64_t seed, hec_rank_body *work,
                              void *context) {
  rank->processor = hec_queued_cpu_new(seed);
  rank->link = link;
  hec_status status = link->open(rank);
  if (status == HEC_OK)
    status = work(rank, context);
  link->close(rank, status != HEC_OK);
  hec_queued_cpu_free(rank->processor);
  rank->processor = &hec_processor_cpu;
  return status;
}

void *hec_test_shared_page(void) {
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(page, MAP_FAILED);
  return page;
}

void hec_test_at_dispatch(hec_rank *rank) {
  hec_rank_at(rank, &(hec_place){.iteration = 12, .op = 57, .layer = 3, .role = HEC_ROLE_DISPATCH});
}
