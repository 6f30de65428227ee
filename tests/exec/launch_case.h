/* What tests of ranks share: launches in both forms, and the proof that nothing is left behind. */
#pragma once
#include "runtime/exec/launch/rank.h"
#include "runtime/exec/link/device_link.h"

/* Options with the given ranks, 1 MiB each, shm, a limit of 100 s, before the test's own: only a hang reaches it. */
hec_launch_options hec_test_options(int32_t n_ranks, bool threads);
/* A limit for failures that must end all ranks at once: the test would run out of its own time. */
#define HEC_TEST_FOREVER_S 3600
/* Waits whose time passes by events: the clock of all ranks goes on by a quarter of the limit at each look of a rank that
 * waits for `missed`. Meanwhile every other rank must have been seen awake or ended, and `missed` too unless it stops: then it
 * must have stopped. So who is named does not depend on the machine. Ranks that are processes get a few looks of the
 * supervisor, instead of two seconds, to end by themselves. */
#define HEC_TEST_PASSING_S 1000
#define HEC_TEST_PASSING_TEXT "1e+03 s"
void hec_test_miss(int32_t missed, bool stops, bool threads); /* before the launch, whose limit is HEC_TEST_PASSING_S */
hec_launch_options hec_test_options_missing(int32_t n_ranks, bool threads, int32_t missed, bool stops);
void hec_test_lets_time_pass(hec_rank *rank); /* this rank, from now on */
void hec_test_stop(void);                     /* the missed one stops itself */
/* Launches; aborts the test with the failure's text unless all is well. No child may be left. */
void hec_test_launch(const hec_launch_options *options, hec_rank_body *body, void *context);
/* Launches what must fail and returns the text (valid until the next failure). No child may be left. */
const char *hec_test_launch_fails(const hec_launch_options *options, hec_rank_body *body, void *context);
/* The work of a rank with a device of this seed (queued_cpu.h) and a link, both ended in every case. */
hec_status hec_test_on_device(hec_rank *rank, const hec_device_link *link, uint64_t seed, hec_rank_body *work,
                              void *context) HEC_MUST_USE;
void hec_test_no_child_is_left(void); /* or the test fails */
/* A zeroed page that ranks and test share. */
void *hec_test_shared_page(void);
/* Publishes dispatch of layer 3 (operation 57, micro-batch 0, iteration 12). */
void hec_test_at_dispatch(hec_rank *rank);
#define HEC_TEST_DISPATCH "dispatch of layer 3 (operation 57, micro-batch 0, iteration 12)"
