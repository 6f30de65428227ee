/* The loads of a training run, step by step. `--record` writes them as a trace, with one source per rank and
 * transitions between layers. A checkpoint plans from them again.
 *
 * It is made before the launch, in memory and a file that the ranks share. So the caller has every finished step, also of a
 * run in which a rank died. A step is finished when rank 0 has heard from all ranks. Counts go to a file without a name:
 * memory does not grow with the run. */
#pragma once
#include "runtime/exec/launch/rank.h"
#include "runtime/exec/model/model.h"
#include "traces/trace.h"

typedef struct hec_record hec_record;

/* n_ranks * 2 * n_experts * n_experts * (n_layers - 1) counters of 8 bytes, touched where there are transitions. */
hec_status hec_record_new(const hec_model *model, int32_t n_ranks, int32_t n_micro_batches,
                          hec_record **record) HEC_MUST_USE;
void hec_record_free(hec_record *record);
int64_t hec_record_steps(const hec_record *record); /* finished */

/* In the launch. Every rank's choices of step `step` (from 1), [n_micro_batches * n_layers]. Then, when rank 0 knows that all
 * ranks have been there, the counts of all ranks [n_micro_batches]: that does something on rank 0. */
void hec_record_choices(hec_record *record, int32_t rank, int64_t step, hec_assignments *const *assignments);
hec_status hec_record_step(hec_record *record, hec_rank *rank, const hec_load *loads) HEC_MUST_USE;
/* After the last step, by every rank: what ranks of other processes counted comes to rank 0. */
hec_status hec_record_gather(hec_record *record, hec_rank *rank) HEC_MUST_USE;

/* For checkpoints. Loads of a finished step (from 0), by any rank; a step more. Transitions that a rank counted up to
 * step `step` (from 1), its newest or the one before. A copy (room: hec_record_transitions_n), and what it goes on
 * from. */
int32_t hec_record_micro_batches(const hec_record *record);
hec_load *hec_record_room(const hec_record *record, hec_arena *arena); /* [n_micro_batches] */
hec_status hec_record_read(const hec_record *record, int64_t index, hec_load *loads) HEC_MUST_USE;
hec_status hec_record_append(hec_record *record, const hec_load *loads) HEC_MUST_USE;
size_t hec_record_transitions_n(const hec_record *record);
void hec_record_transitions(const hec_record *record, int32_t rank, int64_t step, uint64_t *out);
void hec_record_set_transitions(hec_record *record, int32_t rank, int64_t step, const uint64_t *counts);

/* After the launch, where rank 0 was: the trace of all finished steps. `status` is the launch's and is returned. Where that
 * is a failure, its message then says what the trace has; without a finished step there is none. */
hec_status hec_record_end(hec_record *record, hec_status status, const char *path,
                          const hec_trace_header *header) HEC_MUST_USE;
