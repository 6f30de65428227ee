/* Transfers through shared memory: the functions of every transport whose ranks read each other's memory. Only the
 * transports' own rows include this. */
#pragma once
#include "runtime/exec/transport/transport.h"

hec_status hec_shm_prepare(const struct hec_launch_options *options, hec_world *world) HEC_MUST_USE;
hec_status hec_shm_open(hec_rank *rank) HEC_MUST_USE;
hec_status hec_shm_start(hec_rank *rank, hec_post *post) HEC_MUST_USE;
hec_status hec_shm_test(hec_rank *rank, hec_post *post, bool *done) HEC_MUST_USE;
hec_status hec_shm_wait(hec_rank *rank, int64_t until_ns) HEC_MUST_USE;
void hec_shm_close(hec_rank *rank);
