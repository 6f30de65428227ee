/* A small training run for tests: launched over forked ranks, its losses brought back. */
#pragma once
#include "runtime/exec/train/train.h"

enum { HEC_TRAIN_STEPS_MAX = 256 };

typedef struct {
  int32_t ranks, tokens, micro_batches, steps, layers, experts, top_k;
  float aux;
  bool check, threads, virtual_time;
  const char *policy, *schedule; /* NULL: ep, published */
  const char *record;
  double capacity;
  bool other_text;     /* the last rank reads a text in which the letter e is another */
  int64_t double_step; /* as in hec_train, on the last rank */
  float rate;          /* 0: 0.003 */
  const char *gate;    /* NULL: softmax */
  float bias_rate;
  bool skewed;            /* a text in which few characters are most of it */
  const char *other_gate; /* of the last rank; NULL: the same */
  float other_bias;       /* likewise; 0: the same */
  int32_t esp;            /* ranks of an expert-sharding group; 0: 1 */
  int32_t period;         /* of the policy; 0: its own */
  const char *checkpoint; /* folder; NULL: none. A checkpoint that is there is gone on from */
  int64_t every;          /* steps between checkpoints; 0: only after the last */
} hec_train_wish;

typedef struct {
  int32_t n_steps;
  double loss[HEC_TRAIN_STEPS_MAX], balance_loss[HEC_TRAIN_STEPS_MAX];
  double overload[HEC_TRAIN_STEPS_MAX], expert_overload[HEC_TRAIN_STEPS_MAX];
  double dropped[HEC_TRAIN_STEPS_MAX], unrouted[HEC_TRAIN_STEPS_MAX];
  int32_t n_migrations; /* exchanges that moved experts */
  int64_t first_step;   /* of the run: numbers above begin with it */
  hec_check_result check;
} hec_train_outcome;

hec_moe hec_train_moe(hec_train_wish wish);
/* A checked run of 2 layers with 6 experts, top-2, of 64 tokens in all. */
hec_train_wish hec_train_small(int32_t ranks, int32_t steps);
/* HEC_OK: the run ended; the check may have failed. */
hec_status hec_train_launch(hec_train_wish wish, hec_train_outcome *outcome);
/* It does end, or the test fails; and its check passed; it is refused (HEC_BAD_INPUT) with these words. */
void hec_train_ends(hec_train_wish wish);
void hec_train_passes(hec_train_wish wish);
void hec_train_refused(hec_train_wish wish, const char *words);
extern hec_train_outcome hec_trained; /* what came of the last of these runs */
