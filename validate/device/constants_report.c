/* What a calibration says for people, and the device file that it writes. */
#include "validate/device/constants.h"
#include "validate/device/fit.h"

#include <stdio.h>

static const char *share(hec_doc *doc, double median, double p90) {
  return median < 0 ? "-" : hec_doc_text(doc, "%.1f / %.1f", 100 * median, 100 * p90);
}

static void add_row(hec_doc *doc, const hec_calibrated *result) {
  const hec_law_fit *fit = &result->fit;
  int32_t n = 0;
  for (int32_t k = 0; k < fit->law->n_constants; k++)
    n += !(fit->assumed >> k & 1);
  HEC_ROW(doc, HEC_CELL(fit->law->name), HEC_CELL(fit->variant), HEC_SHOW(NULL, HEC_AS_IS, fit->rows),
          HEC_SHOW(NULL, HEC_AS_IS, n), HEC_CELL(share(doc, fit->median, fit->p90)),
          HEC_CELL(share(doc, result->own_median, result->own_p90)),
          HEC_CELL(share(doc, fit->noise_median, fit->noise_p90)),
          HEC_CELL(result->kept ? "" : "not kept: median above 15 %, the law does not cover it"));
  for (int32_t k = 0; k < fit->law->n_constants; k++)
    if (result->without_median[k] >= 0)
      HEC_ROW(doc, HEC_CELL(""), HEC_CELL(hec_doc_text(doc, "without %s", fit->law->constants[k].name)), HEC_CELL(""),
              HEC_CELL(""), HEC_CELL(""), HEC_CELL(share(doc, result->without_median[k], result->without_p90[k])));
}

void hec_constants_report(const void *constants, hec_doc *doc) {
  const hec_constants *calibration = constants;
  hec_doc_note(doc, "%s: %s", calibration->gpu.name, calibration->gpu.title);
  hec_doc_note(doc,
               "Errors in %%: median / 90th percentile of |predicted / measured - 1|. unseen: cross-validated by whole "
               "shapes (each on its own where there are few, else %d folds). repeats: how much the same row differs "
               "between versions or frameworks.",
               HEC_FIT_FOLDS);
  hec_doc_table(doc, NULL, "law | variant | rows | constants | unseen | fitted rows | repeats |");
  for (int32_t i = 0; i < calibration->n; i++)
    add_row(doc, &calibration->fits[i]);
  hec_doc_end(doc);
}

static double four_digits(double value) {
  char text[32];
  double read = 0;
  (void)snprintf(text, sizeof text, "%.4g", value);
  return sscanf(text, "%lf", &read) == 1 ? read : value;
}

static void add_fit(hec_doc *doc, const hec_law_fit *fit) {
  hec_value constants[HEC_LAW_CONSTANTS_MAX];
  const char *assumed[HEC_LAW_CONSTANTS_MAX];
  int32_t n = fit->law->n_constants, n_assumed = 0;
  for (int32_t k = 0; k < n; k++) {
    constants[k] = HEC_KEEP(fit->law->constants[k].name, fit->constants[k]);
    if (fit->assumed >> k & 1)
      assumed[n_assumed++] = fit->law->constants[k].name;
  }
  HEC_ROW(doc, HEC_KEEP("law", fit->law->name), HEC_KEEP("variant", fit->variant), HEC_KEEP("rows", fit->rows),
          HEC_KEEP("median", four_digits(fit->median)), HEC_KEEP("p90", four_digits(fit->p90)));
  if (fit->noise_median >= 0)
    HEC_ADD(doc, HEC_KEEP("noise_median", four_digits(fit->noise_median)),
            HEC_KEEP("noise_p90", four_digits(fit->noise_p90)));
  HEC_ADD(doc, hec_value_object("constants", constants, n));
  if (n_assumed > 0)
    HEC_ADD(doc, hec_value_texts("assumed", assumed, n_assumed));
  HEC_ADD(doc, HEC_KEEP("source", fit->source));
}

void hec_constants_file(const void *constants, hec_doc *doc) {
  const hec_gpu *gpu = &((const hec_constants *)constants)->gpu;
  const hec_gpu_sheet *sheet = &gpu->sheet;
  hec_value *sources = HEC_NEW(&doc->arena, hec_value, gpu->n_sources + 1);
  HEC_ADD(doc, HEC_KEEP("name", gpu->name), HEC_KEEP("title", gpu->title));
  if (gpu->sister)
    HEC_ADD(doc, HEC_KEEP("sister", gpu->sister));
  HEC_ADD(doc, HEC_OBJECT(
                   "sheet", HEC_KEEP("bf16", sheet->flops[HEC_LAW_BF16]), HEC_KEEP("fp8", sheet->flops[HEC_LAW_FP8]),
                   HEC_KEEP("mx", sheet->mx), HEC_KEEP("sms", sheet->sms),
                   HEC_KEEP("hbm_bandwidth", sheet->hbm_bandwidth), HEC_KEEP("memory_bytes", sheet->memory_bytes),
                   HEC_KEEP("nvlink_bandwidth", sheet->nvlink_bandwidth), HEC_KEEP("nvlink_ranks", sheet->nvlink_ranks),
                   HEC_KEEP("nic_bandwidth", sheet->nic_bandwidth), HEC_KEEP("launch_s", sheet->launch_s)));
  hec_doc_table(doc, "fits", NULL);
  for (int32_t i = 0; i < gpu->n_own; i++)
    add_fit(doc, &gpu->fits[i]);
  hec_doc_end(doc);
  for (int32_t i = 0; i < gpu->n_sources; i++)
    sources[i] = HEC_KEEP(gpu->source_of[i], gpu->sources[i]);
  HEC_ADD(doc, hec_value_object("sources", sources, gpu->n_sources));
}
