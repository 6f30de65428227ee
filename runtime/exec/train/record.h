/* Recording the loads of a training run as a hecate-trace with per-source counts (one source per rank) and transitions
 * between layers. Rank 0 spools counts to an unnamed temporary file and writes the trace at the end, because the
 * transitions stand in the header. So memory does not grow with the run, and nothing partial is left behind. */
#ifndef HEC_EXEC_RECORD_H
#define HEC_EXEC_RECORD_H
#include "runtime/exec/launch/rank.h"
#include "runtime/exec/model/model.h"
#include "traces/trace.h"

typedef struct hec_record hec_record;

/* Called by every rank. n_experts * n_experts * (n_layers - 1) counters of 8 bytes. */
hec_status hec_record_open(const hec_model *model, hec_rank *rank, hec_record **record) HEC_MUST_USE;
/* This rank's choices of one micro-batch, `assignments` [n_layers]. */
void hec_record_choices(hec_record *record, hec_assignments *const *assignments);
/* The counts of all ranks; does something on rank 0. */
hec_status hec_record_load(hec_record *record, int64_t iter, const hec_load *load) HEC_MUST_USE;
/* Called by every rank; rank 0 writes the trace. */
hec_status hec_record_write(hec_record *record, const char *path, const hec_trace_header *header) HEC_MUST_USE;
void hec_record_free(hec_record *record);

#endif
