/* Which layout of the GPUs is fastest. Every layout that fits the model, the batch and the memory is predicted with balanced
 * routing, each with the least recomputation that fits.
 *
 *   tp, etp         1, 2, 4 and 8, inside an NVLink domain
 *   cp, pp, vpp, ep all that divide: cp for sequences of 8,192 tokens and more, vpp up to 4 and where parts are even
 *   layers of a stage even; or, where that is better, fewer on the last one, which has the head. That is found for each
 *               micro-batch, dispatcher and recomputation; near the fastest also with a layer more or less there
 *   micro-batch 1, 2, 4, and twice as much while that is faster; recomputation none, norm+act, moe, full; every
 *               dispatcher that suits the device
 *   zero        the recipe's, and FSDP (3) without a pipeline
 *
 * What the recipe states stays. A step is first predicted from a few micro-batches. In a steady pipeline with equal
 * micro-batches each further one costs what the busiest device takes for it. The best are then simulated in full. */
#pragma once
#include "sim/training.h"

typedef struct {
  const hec_training *base;              /* model, laws, recipe, seq, global batch; its layout says the GPUs */
  bool any_micro_batch;                  /* false: the base's */
  const hec_pipeline_schedule *pipeline; /* tried too; NULL: none beside 1f1b and interleaved */
  int32_t n_threads;                     /* 0: one; the result is the same */
} hec_layout_search;

typedef struct {
  hec_training training;
  const hec_pipeline_schedule *pipeline; /* NULL: 1f1b; with virtual stages interleaved */
  hec_training_result result;
  double
      floor_s; /* no placement policy is faster here: the busiest rank has the mean, as one expert, and nothing travels */
} hec_layout_choice;

typedef struct {
  int32_t n_tried, n_fit; /* layouts with all that varies beside them; those that fit into memory */
  int32_t n, n_all;
  hec_layout_choice
      *choices;           /* [n] the best of each layout, fastest first: the fastest ones, and the fastest of every ep;
                                 simulated in full */
  hec_layout_choice *all; /* [n_all] all that fit, fastest first */
  hec_layout_choice tightest; /* where nothing fits: what needs least */
} hec_layout_found;
enum { HEC_LAYOUT_CHOICES = 24 };

/* HEC_BAD_INPUT: no layout divides GPUs, model and batch. Choices are on the arena. */
hec_status hec_layout_search_run(const hec_layout_search *search, hec_arena *arena,
                                 hec_layout_found *found) HEC_MUST_USE;

/* What every micro-batch of a step has in a layer, where loads are known only about. */
typedef struct {
  const hec_layer_load *load; /* [n_moe_layers] */
  const double *gather_s;     /* [n_moe_layers][2]; NULL: none */
  int32_t sharded;            /* hec_training_job */
  double moves_s, replicas_s;
} hec_layout_loads;
/* A step under such loads, from a few of its micro-batches. NULL: balanced. False: the pipeline schedule refuses the sizes. */
bool hec_layout_predict(const hec_training *training, const hec_pipeline_schedule *pipeline,
                        const hec_layout_loads *loads, hec_training_result *result) HEC_MUST_USE;

/* The next larger recomputation of those that a search tries. False: there is none. */
bool hec_recompute_more(hec_recipe *recipe);

/* Why `slower` is slower than `best`, in words: the part of its step that grew most. */
typedef struct {
  const char *words; /* "longer pipeline bubble", ...; static */
  double seconds;    /* more than the best's */
} hec_layout_reason;
hec_layout_reason hec_layout_reason_of(const hec_layout_choice *best, const hec_layout_choice *slower);
