/* How far published runs were from their predictions, by what was known of them: the band of an answer.
 *
 *   half       half of the runs took within +- half of the predicted step
 *   nine       nine of ten took between predicted / nine and predicted x nine
 *
 * The numbers are those of `hecate-validate training` on 307 published runs, rounded up; it prints both and a test compares.
 * `anchored` is of pairs of runs of one recipe, one of them measured. `assumed` is of the same runs with the default recipe
 * in place of their own. Laws between nodes were measured on InfiniBand: over other fabrics nothing is measured. All runs of
 * this class come from two sources, so its `nine` holds them with constants from other sources alone: without the host's of
 * EFA half are within 91 %, all within a factor of 3.47. */
#pragma once
#include "models/training/groups.h"

typedef enum { HEC_BAND_ANCHORED, HEC_BAND_FABRIC, HEC_BAND_STATED, HEC_BAND_ASSUMED, HEC_N_BANDS } hec_band_kind;
typedef struct {
  const char *name, *of; /* "stated"; "the main settings of the recipe are stated" */
  double half, nine;
} hec_band;
extern const hec_band hec_bands[HEC_N_BANDS];

/* How much too low peaks of memory were predicted that published runs state: at most so much of the measured peak,
 * in n runs. Of runs with FSDP, and of others; a test compares with `hecate-validate training`, which prints every
 * peak. */
typedef struct {
  const char *of; /* "with FSDP" */
  int32_t n;
  double too_low; /* 0.2: the peak was predicted 20 % too low; rounded up */
} hec_peak_band;
extern const hec_peak_band hec_peak_bands[2]; /* [FSDP] */
const hec_peak_band *hec_peak_band_of(const hec_training *t);

hec_band_kind hec_band_of(const hec_training *t, bool anchored, bool recipe_stated);
