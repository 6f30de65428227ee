/* Random posts over any transport, whatever brings the ranks into being; every byte is verified. */
#pragma once
#include "runtime/exec/launch/rank.h"

typedef enum {
  HEC_TEST_SCATTERED,
  HEC_TEST_TREES,
  HEC_TEST_SUMS,
  HEC_TEST_CROWDS,
  HEC_TEST_N_TRANSPORT_KINDS
} hec_transport_kind;

typedef struct {
  uint64_t seed;
  int32_t n_posts;   /* per lane */
  int32_t log_bytes; /* sizes are below 2 to this */
  int32_t only;      /* a kind, -1: all */
} hec_transport_case;

/* On every rank of a launch, whose regions are shared out among the lanes: 8 MiB each are enough for log_bytes 15. */
hec_status hec_transport_case_run(hec_rank *rank, const hec_transport_case *c) HEC_MUST_USE;
/* Starts the post and waits for its end, at most the rank's limit. */
hec_status hec_test_finish_post(hec_rank *rank, hec_post *post) HEC_MUST_USE;
