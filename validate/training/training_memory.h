/* Peak memory that notes of published runs state, beside the predicted one. */
#ifndef HEC_VALIDATE_TRAINING_MEMORY_H
#define HEC_VALIDATE_TRAINING_MEMORY_H
#include "models/training/band.h"
#include "validate/doc.h"
#include "validate/training/training_case.h"

/* GiB in "peak allocated 45.63 GiB", "167.93 GiB" or "peak 46.0 GB" (1e9 bytes); NAN: none. */
double hec_training_gib_measured(const char *notes);
/* Of a predicted row: what its notes speak of, tensors alone ("allocated") or what was taken from the device. */
double hec_training_gib_predicted(const hec_training_case *c);

/* Of the peaks of runs like those of hec_peak_bands[fsdp]: how many, and how much too low the worst was predicted. */
hec_peak_band hec_training_peaks_seen(const hec_training_case *cases, int32_t n_cases, bool fsdp);

/* A short table of the rows that have one, for people; the rows of the document have the same two members. */
void hec_training_memory_report(const hec_training_case *cases, int32_t n_cases, hec_doc *doc);

#endif
