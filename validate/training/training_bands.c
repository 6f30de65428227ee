/* How far published runs were from what an answer states: see training.h. */
#include "validate/training/training.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  double *off, *factor; /* |measured / predicted - 1|; the larger of that ratio and its inverse */
  size_t off_capacity, factor_capacity;
  int32_t n;
} sample;

/* `error`: predicted over measured - 1. */
static void add(sample *s, double error) {
  double ratio = 1 / (1 + error);
  HEC_RESERVE(s->off, s->off_capacity, s->n + 1);
  HEC_RESERVE(s->factor, s->factor_capacity, s->n + 1);
  s->off[s->n] = fabs(ratio - 1);
  s->factor[s->n++] = ratio > 1 ? ratio : 1 / ratio;
}

static void add_run(const hec_training_case *c, hec_band_kind kind, sample *s) {
  bool fabric = hec_band_of(&c->set_up, false, true) == HEC_BAND_FABRIC;
  if (kind == HEC_BAND_FABRIC ? fabric : !fabric)
    add(s, kind == HEC_BAND_ASSUMED ? c->default_error : c->error);
}

hec_band_seen hec_training_band_seen(const hec_training_table *table, hec_band_kind kind) {
  sample s = {0};
  hec_band_seen seen = {0};
  for (int32_t i = 0; i < table->n; i++) {
    if (kind != HEC_BAND_ANCHORED && !table->cases[i].why_not)
      add_run(&table->cases[i], kind, &s);
    for (int32_t j = 0; kind == HEC_BAND_ANCHORED && j < table->n; j++) {
      double left = hec_training_left(table, i, j);
      if (!isnan(left))
        add(&s, left);
    }
  }
  seen.n = s.n;
  for (int32_t i = 0; i < s.n; i++)
    seen.inside += s.factor[i] <= hec_bands[kind].nine ? 1.0 / s.n : 0;
  if (s.n > 0) {
    seen.half = hec_median(s.off, s.n);
    seen.nine = hec_quantile(s.factor, s.n, 0.9);
  }
  free(s.off);
  free(s.factor);
  return seen;
}

void hec_training_bands_report(const hec_training_table *table, hec_doc *doc) {
  hec_doc_note(doc, "# The band of an answer");
  hec_doc_note(doc, "Half of the runs took within +- half of the prediction, nine of ten between 1/factor and factor "
                    "times it. Stated: what hecate-sim prints.");
  hec_doc_table(doc, "bands", "where | runs or pairs | half | factor | stated half | stated factor | inside");
  for (int32_t k = 0; k < HEC_N_BANDS; k++) {
    hec_band_seen seen = hec_training_band_seen(table, (hec_band_kind)k);
    const hec_band *b = &hec_bands[k];
    HEC_ROW(doc, HEC_SHOW("where", HEC_AS_IS, b->of), HEC_KEEP("name", b->name), HEC_SHOW("runs", HEC_AS_IS, seen.n),
            HEC_SHOW("half", HEC_PERCENT, seen.n ? seen.half : NAN),
            HEC_SHOW("factor", HEC_FIXED2, seen.n ? seen.nine : NAN), HEC_SHOW("stated_half", HEC_PERCENT, b->half),
            HEC_SHOW("stated_factor", HEC_FIXED2, b->nine),
            HEC_SHOW("inside", HEC_PERCENT, seen.n ? seen.inside : NAN));
  }
  hec_doc_end(doc);
}
