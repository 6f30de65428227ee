/* What simulate_run.c asks a memo of timelines (hec_sim_memo, simulate.h). */
#pragma once
#include "sim/simulate.h"

typedef struct {
  uint64_t digest;
  size_t n_ops, n_transfers;
  bool without_one_off, on_time;
} hec_sim_memo_key;

hec_sim_memo_key hec_sim_memo_key_of(const hec_program *program, hec_sim_options options);
/* Copies what is there; false: nothing, `timeline` is untouched. */
bool hec_sim_memo_take(hec_sim_memo *memo, const hec_sim_memo_key *key, hec_timeline *timeline);
void hec_sim_memo_put(hec_sim_memo *memo, const hec_sim_memo_key *key, const hec_timeline *timeline);
