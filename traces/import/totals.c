/* What records should have alike, for every token passes every MoE layer. A record's layers have as many assignments
 * (of each source rank, where rows are of sources). Recorders that drop, pad, sample or lose differ. So other numbers
 * are taken as they are, but said once, with the first that differ. Where tokens were dropped before they were counted,
 * that is how it should be. Records may be of any length, as batches of a server are. That is said too, as hecate-sim
 * takes the first record's tokens where it needs a number. O(cells) a record. */
#include "traces/import/job.h"

#include <inttypes.h>
#include <stdio.h>

/* The key of a layer of the trace. */
static int64_t key_of(const hec_import *job, int32_t layer) {
  const hec_import_slot *slot = NULL;
  for (size_t i = 0; layer >= 0; i++) {
    slot = &job->slots[job->order[i]];
    layer -= !slot->dense;
  }
  return slot->key;
}

static void say_layers(hec_import *job, int32_t layer, int32_t source, uint64_t total, uint64_t first_total) {
  char name[64], first_name[64], of[48] = "";
  HEC_SCOPED(hec_text) words = {0};
  if (job->n_sources > 1)
    (void)snprintf(of, sizeof of, " of source %d", (int)source);
  hec_text_printf(&words,
                  "layers of a step differ, first in step %" PRId64 "%s: %s has %" PRIu64
                  " assignments, %s has %" PRIu64 "; taken as recorded",
                  job->step, of, hec_import_layer_name(key_of(job, 0), first_name), first_total,
                  hec_import_layer_name(key_of(job, layer), name), total);
  hec_import_note(job, "tokens", words.data);
  job->said_layers = true;
}

static uint64_t sum(const uint32_t *counts, size_t n) {
  uint64_t total = 0;
  for (size_t i = 0; i < n; i++)
    total += counts[i];
  return total;
}

/* A token chooses top_k experts, each once. */
static void say_impossible(hec_import *job, int32_t layer, const uint32_t *counts, uint64_t total) {
  uint64_t k = (uint64_t)job->top_k, tokens = total / k;
  char name[64], words[256] = "";
  uint64_t most = 0;
  int32_t busiest = 0;
  for (int32_t e = 0; e < job->n_experts; e++) {
    uint64_t n = 0;
    for (int32_t s = 0; s < job->n_sources; s++)
      n += counts[(size_t)s * (size_t)job->n_experts + (size_t)e];
    busiest = n > most ? e : busiest;
    most = n > most ? n : most;
  }
  (void)hec_import_layer_name(key_of(job, layer), name);
  if (total % k != 0)
    (void)snprintf(words, sizeof words,
                   "%" PRIu64 " assignments of %s in step %" PRId64 " are no multiple of top-k %d: is --top-k right?",
                   total, name, job->step, (int)job->top_k);
  else if (most > tokens)
    (void)snprintf(words, sizeof words,
                   "expert %d of %s in step %" PRId64 " has %" PRIu64 " assignments of %" PRIu64
                   " tokens, more than one each: are counts and --top-k right?",
                   (int)busiest, name, job->step, most, tokens);
  if (*words)
    hec_import_note(job, "mind", words);
  job->said_impossible = *words != 0;
}

void hec_import_judge_record(hec_import *job) {
  size_t experts = (size_t)job->n_experts, sources = (size_t)job->n_sources;
  bool alike = job->counted != HEC_COUNTED_AFTER_DROP && !job->said_layers;
  uint64_t max = 0;
  for (int32_t l = 0; l < job->n_layers; l++) {
    const uint32_t *layer = job->counts + (size_t)l * sources * experts;
    uint64_t total = sum(layer, sources * experts);
    max = total > max ? total : max;
    if (job->counted != HEC_COUNTED_AFTER_DROP && !job->said_impossible)
      say_impossible(job, l, layer, total);
    for (size_t s = 0; alike && !job->said_layers && s < sources; s++) {
      uint64_t first = sum(job->counts + s * experts, experts), own = sum(layer + s * experts, experts);
      if (own != first)
        say_layers(job, l, (int32_t)s, own, first);
    }
  }
  uint64_t k = (uint64_t)job->top_k, tokens = (max + k - 1) / k;
  bool first = job->n_records == 0;
  job->first_tokens = job->first_tokens == 0 ? tokens : job->first_tokens; /* hecate-sim passes over empty ones */
  job->min_tokens = first || tokens < job->min_tokens ? tokens : job->min_tokens;
  job->max_tokens = first || tokens > job->max_tokens ? tokens : job->max_tokens;
}

void hec_import_say_tokens(hec_import *job) {
  char words[160];
  if (job->min_tokens == job->max_tokens)
    return;
  (void)snprintf(words, sizeof words,
                 "from %" PRIu64 " to %" PRIu64 " in a record, over all ranks; the first has %" PRIu64
                 ", by which hecate-sim goes (--tokens)",
                 job->min_tokens, job->max_tokens, job->first_tokens);
  hec_import_note(job, "tokens", words);
}
