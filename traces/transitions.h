/* The header's "transitions", as a stream. Private to traces/. */
#pragma once
#include "traces/scan.h"

enum { HEC_TRANSITIONS_MAX = 1 << 25 }; /* (layers - 1) x experts x experts: 256 MiB */

typedef struct {
  int32_t pair, from, to; /* layers pair and pair + 1, expert of the one, of the other */
  uint64_t tokens;
} hec_transition;

/* What was read; sizes are those of the header where it named them before, else those of the first list. */
typedef struct {
  hec_transition *entries; /* those above 0, malloc family */
  size_t n, capacity;
  int64_t n_pairs, n_experts; /* in: as known, -1 when not; out */
  int64_t to_max;             /* highest expert that a sparse row names, -1: none */
} hec_transitions;

/* [[row x experts] x (layers - 1)]; a row is a list of counts, or an object {"expert":count} of those above 0. */
hec_status hec_transitions_scan(hec_scan *scan, hec_transitions *transitions) HEC_MUST_USE;

/* Entries into dense [n_pairs][n_experts][n_experts] zeros; an entry that comes twice in *twice, else NULL there. */
void hec_transitions_spread(const hec_transitions *transitions, uint64_t *counts, const hec_transition **twice);

/* The same as JSON, every row in the shorter form. */
void hec_transitions_print(const uint64_t *counts, int64_t n_pairs, int64_t n_experts, hec_text *text);
