/* What to change when a step does not fit into memory. Single changes of recipe and layout, cheapest first, are each
 * tried with the model until one fits. */
#pragma once
#include "sim/training.h"

typedef struct {
  bool fits;       /* false: no single change does, and this one needs least */
  char change[64]; /* as options say it: "recompute=norm+act", "pp=8", "micro-batch 2"; "": nothing could be tried */
  hec_training training; /* with that change; of the job's model and laws */
  hec_training_memory memory;
  double step_s; /* under the job's loads, or as bad ones where those of another layout are not known */
} hec_training_fix;

/* Tries, in this order: norm+act, moe, full computed again; zero one and two levels up; pp, ep, tp doubled; half a
 * micro-batch. Changes that do not make a valid job are left out. So are levels above 1 with a pipeline, where
 * gradients would have to be reduced in every micro-batch. Loads under another layout are not known: then every layer
 * and micro-batch has the largest share of the job's loads. */
void hec_training_fix_find(const hec_training_job *job, hec_training_fix *fix);

/* One sentence: "ep fits: stage 0 needs 61.3 of 79.2 GiB." or "ep does not fit: stage 0 needs 101.2 of 79.2 GiB;
 * recompute=norm+act would fit with 77.1 GiB." Counted with what the allocator and libraries take. `fix`: NULL: not asked.
 * `who`: "ep". */
void hec_training_fit_say(const hec_training_memory *memory, const hec_training_fix *fix, const char *who,
                          hec_text *text);

/* It fits, but with so little to spare that fragmentation may take it: less than this share of the device. */
extern const double hec_training_tight;
bool hec_training_fit_is_tight(const hec_training_memory *memory);
