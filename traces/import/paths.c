/* Transitions of tokens between layers: who records the experts of every token in every layer lets us count, for layers
 * that follow each other, [expert a of the one][expert b of the other]. A recorder keeps the order of tokens within a
 * rank and micro-batch, so the i-th token of a record is the i-th of the next layer's. What was counted goes into the
 * header only when it is all there was: every layer but the first has come behind the one before it, with all its
 * tokens. n_tokens x top_k^2 additions a row. */
#include "traces/import/job.h"
#include "traces/transitions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void give_up(hec_import *job, const char *why) {
  hec_text words = {0};
  hec_text_printf(&words, "transitions between layers: %s", why);
  hec_import_note(job, "left out", words.data);
  hec_text_free(&words);
  job->no_transitions = true;
}

void hec_import_count_paths(hec_import *job, size_t s, const hec_import_row *row) {
  hec_import_slot *slot = &job->slots[s];
  size_t experts = (size_t)job->n_experts, area = experts * experts, k = (size_t)job->top_k;
  if (!row->ids_before || row->layer_before >= row->layer) /* the first layer */
    return;
  int64_t key_before = (slot->key >> 41 << 41) | row->layer_before;
  if (slot->key_before >= 0 && slot->key_before != key_before) {
    give_up(job, "layers do not always come in the same order");
    return;
  }
  if ((s + 1) > HEC_TRANSITIONS_MAX / area) {
    give_up(job, "more than the 2^25 counts that a trace may have");
    return;
  }
  size_t before = job->transitions_capacity;
  HEC_RESERVE(job->transitions, job->transitions_capacity, (s + 1) * area);
  if (job->transitions_capacity > before)
    memset(job->transitions + before, 0, (job->transitions_capacity - before) * sizeof *job->transitions);
  slot->key_before = key_before;
  slot->n_tokens += (uint64_t)row->n_tokens;
  uint64_t *table = job->transitions + s * area;
  for (int64_t t = 0; t < row->n_tokens; t++) {
    const uint32_t *from = row->ids_before + (size_t)t * k, *to = row->ids + (size_t)t * k;
    for (size_t a = 0; a < k; a++) {
      uint64_t *line = table + from[a] * experts;
      for (size_t b = 0; b < k; b++)
        line[to[b]]++;
    }
  }
}

uint64_t *hec_import_transitions(hec_import *job) {
  size_t area = (size_t)job->n_experts * (size_t)job->n_experts, at = 0;
  if (job->no_transitions || !job->format->paths || !job->settled || job->n_layers < 2)
    return NULL;
  const hec_import_slot *before = NULL;
  for (size_t i = 0; i < job->n_slots; i++) {
    const hec_import_slot *slot = &job->slots[job->order[i]];
    if (slot->dense)
      continue;
    if (before && (slot->key_before != before->key || slot->n_tokens * (uint64_t)job->top_k != slot->total)) {
      give_up(job, "not every layer's record comes behind that of the layer before, with the same tokens");
      return NULL;
    }
    before = slot;
  }
  uint64_t *all = hec_malloc((size_t)(job->n_layers - 1) * area, sizeof *all);
  bool first = true;
  for (size_t i = 0; i < job->n_slots; i++) {
    if (job->slots[job->order[i]].dense)
      continue;
    if (!first)
      memcpy(all + area * at++, job->transitions + area * (size_t)job->order[i], area * sizeof *all);
    first = false;
  }
  return all;
}
