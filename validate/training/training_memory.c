/* Reading peaks out of notes, and their table: see training_memory.h. */
#include "validate/training/training.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static const double gib = 1024.0 * 1024.0 * 1024.0;

/* The number that ends right before `end`. */
static double number_before(const char *text, const char *end) {
  const char *at = end, *behind;
  double value;
  while (at > text && (isdigit((unsigned char)at[-1]) || at[-1] == '.'))
    at--;
  return at < end && hec_number_read(at, &behind, &value) && behind == end && value > 0 ? value : NAN;
}

double hec_training_gib_measured(const char *notes) {
  const char *unit = strstr(notes, " GiB"), *peak = strstr(notes, "peak ");
  if (unit)
    return number_before(notes, unit);
  unit = peak ? strstr(peak, " GB") : NULL;
  const char *number = peak ? peak + strlen("peak ") : NULL;
  return unit && unit == number + strcspn(number, " ") ? number_before(number, unit) * 1e9 / gib : NAN;
}

double hec_training_gib_predicted(const hec_training_case *c) {
  const hec_training_memory *m = &c->result.memory;
  return (strstr(c->notes, "allocated") ? m->peak : m->reserved) / gib;
}

hec_peak_band hec_training_peaks_seen(const hec_training_case *cases, int32_t n_cases, bool fsdp) {
  hec_peak_band seen = {.of = hec_peak_bands[fsdp].of};
  for (int32_t i = 0; i < n_cases; i++) {
    double measured = hec_training_gib_measured(cases[i].notes);
    if (cases[i].why_not || !isfinite(measured) || hec_peak_band_of(&cases[i].set_up) != &hec_peak_bands[fsdp])
      continue;
    double too_low = 1 - hec_training_gib_predicted(&cases[i]) / measured;
    seen.n++;
    seen.too_low = too_low > seen.too_low ? too_low : seen.too_low;
  }
  return seen;
}

void hec_training_memory_report(const hec_training_case *cases, int32_t n_cases, hec_doc *doc) {
  int32_t n = 0, predicted = 0, too_much = 0;
  for (int32_t i = 0; i < n_cases; i++) {
    predicted += !cases[i].why_not;
    n += !cases[i].why_not && isfinite(hec_training_gib_measured(cases[i].notes));
    too_much += !cases[i].why_not && !cases[i].result.memory.fits;
  }
  hec_doc_note(
      doc,
      "Peak memory of the device that needs most: allocated by tensors where the notes say so, else taken from "
      "the device. %d of %d runs are predicted not to fit, though they ran.",
      (int)too_much, (int)predicted);
  for (int fsdp = 0; fsdp < 2 && n > 0; fsdp++) {
    hec_peak_band seen = hec_training_peaks_seen(cases, n_cases, fsdp);
    hec_doc_note(doc, "Peaks of %d runs %s were predicted up to %.1f %% too low. Stated: %d, %.0f %%.", (int)seen.n,
                 seen.of, 100 * seen.too_low, (int)hec_peak_bands[fsdp].n, 100 * hec_peak_bands[fsdp].too_low);
  }
  if (n == 0)
    return;
  hec_doc_table(doc, NULL, "id | measured, GiB | predicted, GiB | error");
  for (int32_t i = 0; i < n_cases; i++) {
    double measured = hec_training_gib_measured(cases[i].notes);
    if (cases[i].why_not || !isfinite(measured))
      continue;
    double gib_predicted = hec_training_gib_predicted(&cases[i]);
    HEC_ROW(doc, HEC_SHOW(NULL, HEC_AS_IS, cases[i].id), HEC_SHOW(NULL, HEC_FIXED2, measured),
            HEC_SHOW(NULL, HEC_FIXED2, gib_predicted), HEC_SHOW(NULL, HEC_SIGNED, gib_predicted / measured - 1));
  }
  hec_doc_end(doc);
}
