/* What a calibration says for people, and the device file that it writes. */
#include "validate/device/constants.h"
#include "validate/device/fit.h"

#include <stdio.h>

static void add_share(hec_text *text, double median, double p90) {
  if (median < 0)
    hec_text_printf(text, "      -      ");
  else
    hec_text_printf(text, "%5.1f / %5.1f", 100 * median, 100 * p90);
}

static void describe_ablation(const hec_calibrated *result, hec_text *text) {
  const hec_law_fit *fit = &result->fit;
  for (int32_t k = 0; k < fit->law->n_constants; k++)
    if (result->without_median[k] >= 0) {
      hec_text_printf(text, "    without %-14s ", fit->law->constants[k].name);
      add_share(text, result->without_median[k], result->without_p90[k]);
      hec_text_printf(text, "  (with it ");
      add_share(text, result->own_median, result->own_p90);
      hec_text_printf(text, ", on the fitted rows)\n");
    }
}

void hec_constants_text(const hec_constants *calibration, hec_text *text) {
  hec_text_printf(
      text,
      "%s: %s\n\nErrors in %%: median / 90th percentile of |predicted / measured - 1|. unseen: cross-validated by\n"
      "whole shapes (each on its own where there are few, else %d folds). repeats: how much the same row differs "
      "between versions or frameworks.\n\n"
      "%-10s %-32s %5s %9s  %13s  %13s  %13s\n",
      calibration->gpu.name, calibration->gpu.title, HEC_FIT_FOLDS, "law", "variant", "rows", "constants", "unseen",
      "fitted rows", "repeats");
  for (int32_t i = 0; i < calibration->n; i++) {
    const hec_calibrated *result = &calibration->fits[i];
    int32_t n = 0;
    for (int32_t k = 0; k < result->fit.law->n_constants; k++)
      n += !(result->fit.assumed >> k & 1);
    hec_text_printf(text, "%-10s %-32s %5d %9d  ", result->fit.law->name, result->fit.variant, (int)result->fit.rows,
                    (int)n);
    add_share(text, result->fit.median, result->fit.p90);
    hec_text_printf(text, "  ");
    add_share(text, result->own_median, result->own_p90);
    hec_text_printf(text, "  ");
    add_share(text, result->fit.noise_median, result->fit.noise_p90);
    hec_text_printf(text, "%s\n", result->kept ? "" : "  not kept: median above 15 %, the law does not cover it");
    describe_ablation(result, text);
  }
}

static double four_digits(double value) {
  char text[32];
  double read = 0;
  (void)snprintf(text, sizeof text, "%.4g", value);
  return sscanf(text, "%lf", &read) == 1 ? read : value;
}

static void add_fit(const hec_law_fit *fit, hec_json_out *json) {
  hec_json_object(json, NULL);
  hec_json_string(json, "law", fit->law->name);
  hec_json_string(json, "variant", fit->variant);
  hec_json_int(json, "rows", fit->rows);
  hec_json_double(json, "median", four_digits(fit->median));
  hec_json_double(json, "p90", four_digits(fit->p90));
  if (fit->noise_median >= 0) {
    hec_json_double(json, "noise_median", four_digits(fit->noise_median));
    hec_json_double(json, "noise_p90", four_digits(fit->noise_p90));
  }
  hec_json_object(json, "constants");
  for (int32_t k = 0; k < fit->law->n_constants; k++)
    hec_json_double(json, fit->law->constants[k].name, fit->constants[k]);
  hec_json_close(json);
  if (fit->assumed) {
    hec_json_array(json, "assumed");
    for (int32_t k = 0; k < fit->law->n_constants; k++)
      if (fit->assumed >> k & 1)
        hec_json_string(json, NULL, fit->law->constants[k].name);
    hec_json_close(json);
  }
  hec_json_string(json, "source", fit->source);
  hec_json_close(json);
}

void hec_constants_json(const hec_constants *calibration, hec_text *text) {
  const hec_gpu *gpu = &calibration->gpu;
  const hec_gpu_sheet *sheet = &gpu->sheet;
  hec_json_out json = hec_json_begin(text, 2);
  hec_json_object(&json, NULL);
  hec_json_string(&json, "name", gpu->name);
  hec_json_string(&json, "title", gpu->title);
  if (gpu->sister)
    hec_json_string(&json, "sister", gpu->sister);
  hec_json_object(&json, "sheet");
  hec_json_double(&json, "bf16", sheet->flops[HEC_BF16]);
  hec_json_double(&json, "fp8", sheet->flops[HEC_FP8]);
  hec_json_int(&json, "sms", sheet->sms);
  hec_json_double(&json, "hbm_bandwidth", sheet->hbm_bandwidth);
  hec_json_double(&json, "memory_bytes", sheet->memory_bytes);
  hec_json_double(&json, "nvlink_bandwidth", sheet->nvlink_bandwidth);
  hec_json_int(&json, "nvlink_ranks", sheet->nvlink_ranks);
  hec_json_double(&json, "nic_bandwidth", sheet->nic_bandwidth);
  hec_json_double(&json, "launch_s", sheet->launch_s);
  hec_json_close(&json);
  hec_json_array(&json, "fits");
  for (int32_t i = 0; i < gpu->n_own; i++)
    add_fit(&gpu->fits[i], &json);
  hec_json_close(&json);
  hec_json_object(&json, "sources");
  for (int32_t i = 0; i < gpu->n_sources; i++)
    hec_json_string(&json, gpu->source_of[i], gpu->sources[i]);
  hec_json_close(&json);
  hec_json_close(&json);
}
