/* transitions[l][a][b]: number of (token, a among its experts in layer l, b among those in layer l + 1). Where a token
 * has k experts in every layer these are k * k pairs. So a row (l, a) sums to k times the assignments to a in layer l,
 * and a column (l, b) to k times those to b in layer l + 1. O(T (E + pairs)) per layer and micro-batch. */
#include "runtime/exec/train/record.h"

#include "runtime/base/arena.h"
#include "runtime/base/files.h"
#include "runtime/exec/model/gate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hec_record {
  const hec_model *model;
  hec_rank *rank;
  FILE *spool; /* on rank 0: (iter, counts) one after the other */
  int64_t n_records, first_iter, last_iter;
  uint64_t *transitions; /* [n_layers - 1][E][E] of this rank */
  int32_t *expert[2];    /* [T * width] experts of each token in two layers that follow each other */
  size_t expert_capacity[2];
};

static size_t n_transitions(const hec_record *record) {
  size_t experts = (size_t)record->model->n_experts;
  return (size_t)(record->model->n_blocks - 1) * experts * experts;
}

hec_status hec_record_open(const hec_model *model, hec_rank *rank, hec_record **made) {
  hec_record *record = *made = hec_malloc(1, sizeof *record);
  *record = (hec_record){.model = model, .rank = rank};
  record->transitions = hec_malloc(n_transitions(record) + 1, sizeof *record->transitions);
  memset(record->transitions, 0, n_transitions(record) * sizeof *record->transitions);
  if (rank->rank == 0 && !(record->spool = hec_file_temporary()))
    return hec_rank_fail(rank, "a temporary file for the loads cannot be made: %s", strerror(errno));
  return HEC_OK;
}

void hec_record_free(hec_record *record) {
  if (!record)
    return;
  if (record->spool)
    (void)fclose(record->spool);
  free(record->transitions);
  free(record->expert[0]);
  free(record->expert[1]);
  free(record);
}

/* Room for a token's experts in a list. */
static size_t list_width(const hec_record *record) {
  return (size_t)(record->model->gate->varies ? record->model->n_experts : record->model->top_k);
}

/* The experts of each token, ascending, -1 behind the last. */
static void list_experts(hec_record *record, int which, const hec_assignments *a) {
  size_t width = list_width(record), n = width * (size_t)a->n_tokens;
  HEC_RESERVE(record->expert[which], record->expert_capacity[which], n + 1);
  int32_t *list = record->expert[which];
  memset(list, -1, n * sizeof *list);
  for (int32_t e = 0; e < record->model->n_experts; e++)
    for (int32_t j = a->expert_at[e]; j < a->expert_at[e + 1]; j++) {
      int32_t *of = list + (size_t)a->token[j] * width;
      size_t i = 0;
      while (i < width && of[i] >= 0)
        i++;
      HEC_ASSERT(i < width);
      of[i] = e;
    }
}

void hec_record_choices(hec_record *record, hec_assignments *const *assignments) {
  size_t width = list_width(record), experts = (size_t)record->model->n_experts;
  for (int32_t l = 0; l < record->model->n_blocks; l++) {
    list_experts(record, l % 2, assignments[l]);
    if (l == 0)
      continue;
    uint64_t *count = record->transitions + (size_t)(l - 1) * experts * experts;
    const int32_t *from = record->expert[(l - 1) % 2], *to = record->expert[l % 2];
    for (int32_t t = 0; t < assignments[l]->n_tokens; t++, from += width, to += width)
      for (size_t i = 0; i < width && from[i] >= 0; i++)
        for (size_t j = 0; j < width && to[j] >= 0; j++)
          count[(size_t)from[i] * experts + (size_t)to[j]]++;
  }
}

hec_status hec_record_load(hec_record *record, int64_t iter, const hec_load *load) {
  if (!record->spool)
    return HEC_OK;
  record->first_iter = record->n_records++ > 0 ? record->first_iter : iter;
  record->last_iter = iter;
  if (fwrite(&iter, sizeof iter, 1, record->spool) != 1 ||
      fwrite(load->counts, sizeof *load->counts, hec_load_cells(load), record->spool) != hec_load_cells(load))
    return hec_rank_fail(record->rank, "the temporary file of the loads cannot be written: %s", strerror(errno));
  return HEC_OK;
}

/* Sum over ranks, on rank 0. */
static hec_status add_up(hec_record *record) {
  size_t n = n_transitions(record), ranks = (size_t)record->rank->n_ranks;
  if (n == 0)
    return HEC_OK;
  uint64_t *all = record->spool ? hec_malloc(n * ranks, sizeof *all) : NULL;
  hec_status status = hec_rank_gather(record->rank, record->transitions, n * sizeof *all, all);
  for (size_t r = 1; status == HEC_OK && all && r < ranks; r++)
    for (size_t i = 0; i < n; i++)
      record->transitions[i] += all[r * n + i];
  free(all);
  return status;
}

static hec_status copy_records(hec_record *record, hec_trace_writer *writer, hec_load *load) {
  if (fflush(record->spool) != 0)
    return hec_fail(HEC_FAILED, "the temporary file of the loads cannot be written: %s", strerror(errno));
  rewind(record->spool);
  for (int64_t i = 0; i < record->n_records; i++) {
    int64_t iter;
    if (fread(&iter, sizeof iter, 1, record->spool) != 1 ||
        fread(load->counts, sizeof *load->counts, hec_load_cells(load), record->spool) != hec_load_cells(load))
      return hec_fail(HEC_FAILED, "the temporary file of the loads cannot be read");
    HEC_TRY(hec_trace_write(writer, iter, NULL, load));
  }
  return HEC_OK;
}

static hec_status write_trace(hec_record *record, const char *path, hec_trace_header header) {
  const hec_model *m = record->model;
  hec_arena arena = {0};
  hec_trace_writer *writer = NULL;
  header.n_layers = m->n_blocks;
  header.n_experts = m->n_experts;
  header.top_k = m->top_k;
  header.n_sources = header.ranks = record->rank->n_ranks;
  header.per_source = true;
  if (m->gate->drops)
    header.counted = HEC_COUNTED_AFTER_DROP;
  if (n_transitions(record) > 0 && record->n_records > 0) {
    header.transitions = record->transitions;
    header.transitions_over = true;
    header.transitions_first = record->first_iter;
    header.transitions_last = record->last_iter;
  }
  hec_load load = hec_load_new(&arena, m->n_blocks, header.n_sources, m->n_experts);
  hec_status status = hec_trace_create(path, &header, &writer);
  if (status == HEC_OK && (status = copy_records(record, writer, &load)) == HEC_OK)
    status = hec_trace_finish(writer);
  else
    hec_trace_abandon(writer);
  hec_arena_free(&arena);
  return status;
}

hec_status hec_record_write(hec_record *record, const char *path, const hec_trace_header *header) {
  hec_rank_at_phase(record->rank, record->n_records, "writing the trace");
  HEC_TRY(add_up(record));
  return record->spool ? write_trace(record, path, *header) : HEC_OK;
}
