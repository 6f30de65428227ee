/* Checking a replay against the dense single-rank reference, on rank 0: after every step the outputs and the gradients
 * of inputs of all ranks, after the last the gradients, parameters and moments of every dense block on every rank and of
 * every expert wherever it is kept. Exact mode: bit for bit. Random mode: the relative error (Euclidean) of every tensor
 * is at most the reference's tolerance. */
#ifndef HEC_EXEC_CHECK_H
#define HEC_EXEC_CHECK_H
#include "runtime/exec/replay.h"

typedef struct hec_check hec_check;
hec_check *hec_check_new(const hec_replay *replay, hec_rank *rank);
void hec_check_free(hec_check *check);
/* Every rank calls it after step `index` with the loads that were computed. */
hec_status hec_check_step(hec_check *check, hec_exec *exec, const hec_work_state *work, int64_t index,
                          const hec_load *loads) HEC_MUST_USE;
hec_status hec_check_finish(hec_check *check, hec_exec *exec, int64_t n_steps, hec_replay_check *result) HEC_MUST_USE;

#endif
