/* transitions[l][a][b]: number of (token, a among its experts in layer l, b among those in layer l + 1). Where a token
 * has k experts in every layer these are k * k pairs. So a row (l, a) sums to k times the assignments to a in layer l.
 * A column (l, b) sums to k times those to b in layer l + 1. O(T (E + pairs)) per layer and micro-batch.
 *
 * A rank may die while it counts. So it has two sets of counters, for odd and even steps. Each has the step that it is
 * complete for (0: it is being written). In step s the set of s - 2 gets what was counted in s - 1, which is
 * remembered as a list, and in s. No rank is two steps ahead of rank 0, so the set of the last finished step is always
 * whole. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "runtime/exec/train/record.h"

#include "runtime/base/arena.h"
#include "runtime/base/files.h"
#include "runtime/exec/model/gate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What a rank has for itself. */
typedef struct {
  int32_t *expert[2]; /* [T * width] experts of each token in two layers that follow each other */
  size_t expert_capacity[2];
  size_t *counted; /* [n_counted] counters that the last step raised */
  size_t n_counted, counted_capacity;
} counting;

struct hec_record {
  const hec_model *model;
  int32_t n_ranks, n_micro_batches;
  FILE *spool;   /* [n_steps][n_micro_batches][n_layers][n_ranks][n_experts] counts, read and written by place */
  counting *own; /* [n_ranks] */
  /* Shared: */
  _Atomic int64_t *n_steps;
  _Atomic int64_t *complete; /* [n_ranks][2] */
  uint64_t *counts;          /* [n_ranks][2][n_transitions] */
  size_t shared_bytes;
};

size_t hec_record_transitions_n(const hec_record *record) {
  size_t experts = (size_t)record->model->n_experts;
  return (size_t)(record->model->n_blocks - 1) * experts * experts;
}

hec_status hec_record_new(const hec_model *model, int32_t n_ranks, int32_t n_micro_batches, hec_record **made) {
  hec_record *record = *made = hec_malloc(1, sizeof *record);
  *record = (hec_record){.model = model, .n_ranks = n_ranks, .n_micro_batches = n_micro_batches};
  record->own = hec_malloc((size_t)n_ranks, sizeof *record->own);
  memset(record->own, 0, (size_t)n_ranks * sizeof *record->own);
  size_t flags = 1 + 2 * (size_t)n_ranks, counts = 2 * (size_t)n_ranks * hec_record_transitions_n(record);
  size_t bytes = (flags + counts) * sizeof(uint64_t);
  void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shared == MAP_FAILED)
    return hec_fail(HEC_FAILED, "no memory to count transitions between experts (%zu bytes)", bytes);
  record->shared_bytes = bytes;
  record->n_steps = shared;
  record->complete = record->n_steps + 1;
  record->counts = (uint64_t *)shared + flags;
  if (!(record->spool = hec_file_temporary()))
    return hec_fail(HEC_FAILED, "a temporary file for the loads cannot be made: %s", strerror(errno));
  return HEC_OK;
}

void hec_record_free(hec_record *record) {
  if (!record)
    return;
  if (record->spool)
    (void)fclose(record->spool);
  if (record->shared_bytes > 0)
    (void)munmap((void *)record->n_steps, record->shared_bytes);
  for (int32_t r = 0; r < record->n_ranks; r++) {
    free(record->own[r].expert[0]);
    free(record->own[r].expert[1]);
    free(record->own[r].counted);
  }
  free(record->own);
  free(record);
}

int64_t hec_record_steps(const hec_record *record) {
  return atomic_load(record->n_steps);
}

int32_t hec_record_micro_batches(const hec_record *record) {
  return record->n_micro_batches;
}

/* ---- Transitions ---- */

static _Atomic int64_t *complete_of(const hec_record *record, int32_t rank, int64_t step) {
  return &record->complete[2 * rank + step % 2];
}

static uint64_t *counts_of(const hec_record *record, int32_t rank, int64_t step) {
  return record->counts + (size_t)(2 * rank + step % 2) * hec_record_transitions_n(record);
}

/* Room for a token's experts in a list. */
static size_t list_width(const hec_record *record) {
  return (size_t)(record->model->gate->varies ? record->model->n_experts : record->model->top_k);
}

/* The experts of each token, ascending, -1 behind the last. */
static const int32_t *list_experts(const hec_record *record, counting *own, int which, const hec_assignments *a) {
  size_t width = list_width(record), n = width * (size_t)a->n_tokens;
  HEC_RESERVE(own->expert[which], own->expert_capacity[which], n + 1);
  int32_t *list = own->expert[which];
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
  return list;
}

/* The counters of a pair of layers, from number `first` on, raised by all tokens. */
static void count_pairs(const hec_record *record, counting *own, size_t first, int32_t n_tokens, const int32_t *from,
                        const int32_t *to) {
  size_t width = list_width(record), experts = (size_t)record->model->n_experts;
  for (int32_t t = 0; t < n_tokens; t++, from += width, to += width)
    for (size_t i = 0; i < width && from[i] >= 0; i++)
      for (size_t j = 0; j < width && to[j] >= 0; j++) {
        HEC_RESERVE(own->counted, own->counted_capacity, own->n_counted + 1);
        own->counted[own->n_counted++] = first + (size_t)from[i] * experts + (size_t)to[j];
      }
}

static void raise_counted(const counting *own, uint64_t *counts) {
  for (size_t i = 0; i < own->n_counted; i++)
    counts[own->counted[i]]++;
}

void hec_record_choices(hec_record *record, int32_t rank, int64_t step, hec_assignments *const *assignments) {
  counting *own = &record->own[rank];
  size_t experts = (size_t)record->model->n_experts;
  uint64_t *counts = counts_of(record, rank, step);
  atomic_store(complete_of(record, rank, step), 0);
  raise_counted(own, counts);
  own->n_counted = 0;
  for (int32_t mb = 0; mb < record->n_micro_batches; mb++) {
    const int32_t *from = NULL;
    for (int32_t l = 0; l < record->model->n_blocks; l++, assignments++) {
      const int32_t *to = list_experts(record, own, l % 2, *assignments);
      if (from)
        count_pairs(record, own, (size_t)(l - 1) * experts * experts, (*assignments)->n_tokens, from, to);
      from = to;
    }
  }
  raise_counted(own, counts);
  atomic_store(complete_of(record, rank, step), step);
}

void hec_record_transitions(const hec_record *record, int32_t rank, int64_t step, uint64_t *out) {
  HEC_ASSERT(atomic_load(complete_of(record, rank, step)) == step);
  memcpy(out, counts_of(record, rank, step), hec_record_transitions_n(record) * sizeof *out);
}

void hec_record_set_transitions(hec_record *record, int32_t rank, int64_t step, const uint64_t *counts) {
  for (int64_t set = 0; set < 2; set++)
    memcpy(counts_of(record, rank, step + set), counts, hec_record_transitions_n(record) * sizeof *counts);
  atomic_store(complete_of(record, rank, step), step);
}

hec_status hec_record_gather(hec_record *record, hec_rank *rank) {
  size_t n = hec_record_transitions_n(record);
  int64_t steps = hec_record_steps(record);
  if (n == 0)
    return HEC_OK;
  HEC_TRY(hec_rank_broadcast(rank, &steps, sizeof steps));
  uint64_t *all = rank->rank == 0 ? hec_malloc(n * (size_t)rank->n_ranks, sizeof *all) : NULL;
  hec_status status = hec_rank_gather(rank, counts_of(record, rank->rank, steps), n * sizeof *all, all);
  for (int32_t r = 0; status == HEC_OK && all && r < rank->n_ranks; r++) {
    memcpy(counts_of(record, r, steps), all + (size_t)r * n, n * sizeof *all);
    atomic_store(complete_of(record, r, steps), steps);
  }
  free(all);
  return status;
}

/* ---- Loads ---- */

hec_load *hec_record_room(const hec_record *record, hec_arena *arena) {
  const hec_model *m = record->model;
  hec_load *loads = HEC_NEW(arena, hec_load, record->n_micro_batches);
  for (int32_t mb = 0; mb < record->n_micro_batches; mb++)
    loads[mb] = hec_load_new(arena, m->n_blocks, record->n_ranks, m->n_experts);
  return loads;
}

static size_t load_bytes(const hec_load *load) {
  return hec_load_cells(load) * sizeof *load->counts;
}

static bool write_at(const hec_record *record, int64_t index, const hec_load *loads) {
  off_t at = (off_t)((size_t)index * (size_t)record->n_micro_batches * load_bytes(loads));
  for (int32_t mb = 0; mb < record->n_micro_batches; mb++)
    for (size_t done = 0, bytes = load_bytes(loads); done < bytes;) {
      ssize_t n = pwrite(fileno(record->spool), (const char *)loads[mb].counts + done, bytes - done, at);
      if (n < 0 && errno != EINTR)
        return false;
      done += n > 0 ? (size_t)n : 0;
      at += n > 0 ? n : 0;
    }
  return true;
}

hec_status hec_record_append(hec_record *record, const hec_load *loads) {
  if (!write_at(record, hec_record_steps(record), loads))
    return hec_fail(HEC_FAILED, "the temporary file of the loads cannot be written: %s", strerror(errno));
  atomic_fetch_add(record->n_steps, 1);
  return HEC_OK;
}

hec_status hec_record_step(hec_record *record, hec_rank *rank, const hec_load *loads) {
  return rank->rank == 0 ? hec_record_append(record, loads) : HEC_OK;
}

hec_status hec_record_read(const hec_record *record, int64_t index, hec_load *loads) {
  off_t at = (off_t)((size_t)index * (size_t)record->n_micro_batches * load_bytes(loads));
  for (int32_t mb = 0; mb < record->n_micro_batches; mb++)
    for (size_t done = 0, bytes = load_bytes(loads); done < bytes;) {
      ssize_t n = pread(fileno(record->spool), (char *)loads[mb].counts + done, bytes - done, at);
      if (n == 0 || (n < 0 && errno != EINTR))
        return hec_fail(HEC_FAILED, "the temporary file of the loads cannot be read");
      done += n > 0 ? (size_t)n : 0;
      at += n > 0 ? n : 0;
    }
  return HEC_OK;
}

/* ---- The trace ---- */

static hec_status copy_records(const hec_record *record, hec_trace_writer *writer, hec_load *loads) {
  for (int64_t i = 0; i < hec_record_steps(record); i++) {
    HEC_TRY(hec_record_read(record, i, loads));
    for (int32_t mb = 0; mb < record->n_micro_batches; mb++)
      HEC_TRY(hec_trace_write(writer, i, NULL, &loads[mb]));
  }
  return HEC_OK;
}

/* Their sum over the ranks; NULL: not of all ranks are they known. */
static uint64_t *all_transitions(const hec_record *record, hec_arena *arena) {
  size_t n = hec_record_transitions_n(record);
  int64_t steps = hec_record_steps(record);
  uint64_t *sum = HEC_NEW(arena, uint64_t, n);
  for (int32_t r = 0; r < record->n_ranks; r++) {
    if (atomic_load(complete_of(record, r, steps)) != steps)
      return NULL;
    for (size_t i = 0; i < n; i++)
      sum[i] += counts_of(record, r, steps)[i];
  }
  return sum;
}

static hec_status write_trace(const hec_record *record, const char *path, hec_trace_header header) {
  const hec_model *m = record->model;
  HEC_SCOPED(hec_arena) arena = {0};
  hec_trace_writer *writer = NULL;
  header.n_layers = m->n_blocks;
  header.n_experts = m->n_experts;
  header.top_k = m->top_k;
  header.n_sources = header.ranks = record->n_ranks;
  header.per_source = true;
  if (m->gate->drops)
    header.counted = HEC_COUNTED_AFTER_DROP;
  header.transitions = m->n_blocks > 1 ? all_transitions(record, &arena) : NULL;
  header.transitions_over = header.transitions != NULL;
  header.transitions_last = hec_record_steps(record) - 1;
  hec_load *loads = hec_record_room(record, &arena);
  hec_status status = hec_trace_create(path, &header, &writer);
  if (status == HEC_OK && (status = copy_records(record, writer, loads)) == HEC_OK)
    status = hec_trace_finish(writer);
  else
    hec_trace_abandon(writer);
  return status;
}

hec_status hec_record_end(hec_record *record, hec_status status, const char *path, const hec_trace_header *header) {
  int64_t steps = hec_record_steps(record);
  if (status == HEC_OK)
    return write_trace(record, path, *header);
  if (steps == 0)
    return status;
  HEC_SCOPED(hec_text) failure = {0};
  hec_text_add(&failure, hec_last_error());
  if (write_trace(record, path, *header) == HEC_OK)
    hec_text_printf(&failure, "; %s has the loads of the %" PRId64 " finished steps", path, steps);
  status = hec_fail(status, "%s", failure.data);
  return status;
}
