/* Errors of published runs, rounded up: see band.h. */
#include "models/training/band.h"

const hec_band hec_bands[HEC_N_BANDS] = {
    [HEC_BAND_ANCHORED] = {"anchored", "times are relative to a measured run of the same recipe", 0.05, 1.25},
    [HEC_BAND_FABRIC] = {"fabric", "nodes are joined by something else than InfiniBand", 1.0, 3.5},
    [HEC_BAND_STATED] = {"stated", "the main settings of the recipe are stated", 0.07, 1.25},
    [HEC_BAND_ASSUMED] = {"assumed", "main settings of the recipe are not stated", 0.15, 1.8},
};

const hec_peak_band hec_peak_bands[2] = {{"without FSDP", 12, 0.01}, {"with FSDP", 5, 0.72}};

const hec_peak_band *hec_peak_band_of(const hec_training *t) {
  return &hec_peak_bands[t->recipe.zero >= 3];
}

hec_band_kind hec_band_of(const hec_training *t, bool anchored, bool recipe_stated) {
  if (anchored)
    return HEC_BAND_ANCHORED;
  if (t->recipe.fabric != HEC_FABRIC_INFINIBAND && hec_training_crosses(t))
    return HEC_BAND_FABRIC;
  return recipe_stated ? HEC_BAND_STATED : HEC_BAND_ASSUMED;
}
