/* Transitions of tokens between layers. Who records the experts of every token in every layer lets us count them. For
 * two layers that follow each other: [expert a of the one][expert b of the other]. A recorder keeps the order of
 * tokens within a rank and micro-batch. So the i-th token of a record is the i-th of the next layer's. The header gets
 * the counts only when they are complete. Then every layer but the first has come behind the one before it, with all
 * its tokens. Where a last step may be left out (format->tail), a step is counted apart and added when it is complete.
 * n_tokens x top_k^2 additions a row. */
#include "traces/import/job.h"
#include "traces/transitions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void give_up(hec_import *job, const char *why) {
  HEC_SCOPED(hec_text) words = {0};
  hec_text_printf(&words, "transitions between layers: %s", why);
  hec_import_note(job, "left out", words.data);
  job->no_transitions = true;
}

/* Experts of m tokens into a line. Inlined with the usual k as constants, whose loop then is none. */
static inline void add_line(uint32_t *line, const uint32_t *ids, const uint32_t *tokens, size_t m, size_t k) {
  for (size_t i = 0; i < m; i++) {
    const uint32_t *to = ids + tokens[i] * k;
    for (size_t b = 0; b < k; b++)
      line[to[b]]++;
  }
}

/* Tokens are sorted by their expert in the layer before (counting sort). So one line of the table is at hand at a
 * time. In the order of tokens every addition would miss the nearest cache. */
static void count_tokens(hec_import *job, const hec_import_row *row, uint32_t *table) {
  size_t experts = (size_t)job->n_experts, k = (size_t)job->top_k, n = (size_t)row->n_tokens * k;
  HEC_RESERVE(job->sorted, job->sorted_capacity, experts + 1 + n);
  uint32_t *at = job->sorted, *tokens = at + experts + 1; /* at[a + 1]: where tokens of expert a are put next */
  at[0] = 0;
  for (size_t a = 0, sum = 0; a < experts; a++) {
    at[a + 1] = (uint32_t)sum;
    sum += row->counts_before[a];
  }
  for (size_t t = 0, i = 0; t < (size_t)row->n_tokens; t++)
    for (size_t a = 0; a < k; a++, i++)
      tokens[at[row->ids_before[i] + 1]++] = (uint32_t)t;
  for (size_t a = 0, i = 0; a < experts; a++) { /* now at[a + 1]: behind the last token of a */
    uint32_t *line = table + a * experts;
    size_t m = at[a + 1] - i;
    if (k == 8)
      add_line(line, row->ids, tokens + i, m, 8);
    else if (k == 4)
      add_line(line, row->ids, tokens + i, m, 4);
    else if (k == 2)
      add_line(line, row->ids, tokens + i, m, 2);
    else
      add_line(line, row->ids, tokens + i, m, k);
    i += m;
  }
}

/* Counts are added up in 32 bits, half the memory to go through. They are moved before one could be too large: a token
 * adds at most top_k^2 to a cell. */
static void make_room(hec_import *job, size_t s, uint64_t n_tokens) {
  size_t area = (size_t)job->n_experts * (size_t)job->n_experts;
  uint64_t max = UINT32_MAX / ((uint64_t)job->top_k * (uint64_t)job->top_k);
  max = job->recent_tokens > 0 ? job->recent_tokens : max;
  hec_import_slot *slot = &job->slots[s];
  slot->n_recent += n_tokens;
  if (slot->n_recent <= max)
    return;
  size_t before = job->transitions_capacity;
  HEC_RESERVE(job->transitions, job->transitions_capacity, (s + 1) * area);
  if (job->transitions_capacity > before)
    memset(job->transitions + before, 0, (job->transitions_capacity - before) * sizeof *job->transitions);
  uint32_t *recent = job->recent + s * area;
  for (size_t i = 0; i < area; i++)
    job->transitions[s * area + i] += recent[i];
  memset(recent, 0, area * sizeof *recent);
  slot->n_recent = n_tokens;
}

/* Of a slot, zero when new. */
static uint32_t *table_of(const hec_import *job, uint32_t **tables, size_t *capacity, size_t s) {
  size_t area = (size_t)job->n_experts * (size_t)job->n_experts, before = *capacity;
  HEC_RESERVE(*tables, *capacity, (s + 1) * area);
  if (*capacity > before)
    memset(*tables + before, 0, (*capacity - before) * sizeof **tables);
  return *tables + s * area;
}

static uint32_t *recent_table(hec_import *job, size_t s, uint64_t n_tokens) {
  uint32_t *table = table_of(job, &job->recent, &job->recent_capacity, s);
  make_room(job, s, n_tokens);
  job->slots[s].n_tokens += n_tokens;
  return table;
}

/* A last step that lacks sources is left out, which is known only at its end. */
static bool may_be_left_out(const hec_import *job) {
  return job->format->tail && job->n_columns > 1;
}

void hec_import_keep_paths(hec_import *job) {
  size_t area = (size_t)job->n_experts * (size_t)job->n_experts;
  for (size_t s = 0; s < job->n_slots && !job->no_transitions; s++) {
    hec_import_slot *slot = &job->slots[s];
    if (slot->n_fresh == 0)
      continue;
    uint32_t *from = job->fresh + s * area, *to = recent_table(job, s, slot->n_fresh);
    for (size_t i = 0; i < area; i++)
      to[i] += from[i];
    memset(from, 0, area * sizeof *from);
    slot->n_fresh = 0;
  }
}

void hec_import_count_paths(hec_import *job, size_t s, const hec_import_row *row) {
  hec_import_slot *slot = &job->slots[s];
  size_t experts = (size_t)job->n_experts, area = experts * experts;
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
  uint64_t n_tokens = (uint64_t)row->n_tokens, k = (uint64_t)job->top_k;
  bool apart = may_be_left_out(job);
  if (apart && slot->n_fresh + n_tokens > UINT32_MAX / (k * k)) {
    give_up(job, "more tokens in a step than are counted in 32 bits");
    return;
  }
  slot->key_before = key_before;
  slot->n_fresh += apart ? n_tokens : 0;
  count_tokens(job, row, apart ? table_of(job, &job->fresh, &job->fresh_capacity, s) : recent_table(job, s, n_tokens));
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
    size_t from = (size_t)job->order[i] * area;
    if (job->slots[job->order[i]].dense)
      continue;
    for (size_t c = 0; c < area && !first; c++, at++)
      all[at] = (from + c < job->recent_capacity ? job->recent[from + c] : 0) +
                (from + c < job->transitions_capacity ? job->transitions[from + c] : 0);
    first = false;
  }
  return all;
}
