/* Reads a device: see gpu.h. A sister's fits are appended where the device has no fit of the same law and variant. */
#include "models/gpu.h"

#include "models/json.h"
#include "models/preset_data.h"

#include <stdio.h>
#include <string.h>

enum { SISTERS_MAX = 4 };

static hec_status read_text(const hec_json *json, const hec_json_value *object, const char *key, hec_arena *arena,
                            const char **text) {
  HEC_TRY(hec_json_want_text(json, object, key, text));
  *text = hec_arena_text(arena, *text);
  return HEC_OK;
}

static hec_status read_sheet(const hec_json *json, const hec_json_value *root, hec_gpu_sheet *sheet) {
  static const char *const known[] = {
      "bf16",         "fp8",           "mx",       "sms", "hbm_bandwidth", "memory_bytes", "nvlink_bandwidth",
      "nvlink_ranks", "nic_bandwidth", "launch_s", NULL};
  const hec_json_value *object = hec_json_get(root, "sheet");
  if (!object || !hec_json_is_object(object))
    return hec_json_error(json, object ? object : root, "a member \"sheet\": an object");
  int64_t sms, ranks;
  HEC_TRY(hec_json_only(json, object, known));
  HEC_TRY(hec_json_want_double(json, object, "bf16", 1e9, 1e18, &sheet->flops[HEC_LAW_BF16]));
  HEC_TRY(hec_json_double_or(json, object, "fp8", 0, 1e18, 0, &sheet->flops[HEC_LAW_FP8]));
  HEC_TRY(hec_json_bool_or(json, object, "mx", false, &sheet->mx));
  HEC_TRY(hec_json_want_int(json, object, "sms", 1, 4096, &sms));
  HEC_TRY(hec_json_want_double(json, object, "hbm_bandwidth", 1e6, 1e15, &sheet->hbm_bandwidth));
  HEC_TRY(hec_json_want_double(json, object, "memory_bytes", 1, 1e18, &sheet->memory_bytes));
  HEC_TRY(hec_json_want_double(json, object, "nvlink_bandwidth", 1e6, 1e15, &sheet->nvlink_bandwidth));
  HEC_TRY(hec_json_want_double(json, object, "nic_bandwidth", 1e6, 1e15, &sheet->nic_bandwidth));
  HEC_TRY(hec_json_want_double(json, object, "launch_s", 0, 1, &sheet->launch_s));
  HEC_TRY(hec_json_want_int(json, object, "nvlink_ranks", 1, 1024, &ranks));
  sheet->sms = (int32_t)sms;
  sheet->nvlink_ranks = (int32_t)ranks;
  return HEC_OK;
}

static hec_status read_sources(const hec_json *json, const hec_json_value *root, hec_arena *arena, hec_gpu *gpu) {
  const hec_json_value *sources = hec_json_get(root, "sources");
  if (sources && (!hec_json_is_object(sources) || hec_json_length(sources) > HEC_GPU_SOURCES_MAX))
    return hec_json_error(json, sources, "an object of at most 32 texts");
  gpu->source_of = HEC_NEW(arena, const char *, HEC_GPU_SOURCES_MAX);
  gpu->sources = HEC_NEW(arena, const char *, HEC_GPU_SOURCES_MAX);
  for (const hec_json_value *v = sources ? hec_json_first(sources) : NULL; v; v = hec_json_next(v)) {
    if (!hec_json_is_string(v))
      return hec_json_error(json, v, "a text");
    gpu->source_of[gpu->n_sources] = hec_arena_text(arena, hec_json_key(v));
    gpu->sources[gpu->n_sources++] = hec_arena_text(arena, hec_json_text(v));
  }
  return HEC_OK;
}

/* A file of an older version may lack constants that its laws have got since: their terms then do nothing, as they did. */
static void leave_out(const hec_law_fit *fit, const char *constant, hec_arena *arena, hec_gpu *gpu) {
  const char *before = gpu->absent ? gpu->absent : "",
             *name = hec_arena_printf(arena, "%s %s", fit->law->name, constant);
  if (!strstr(before, name))
    gpu->absent = hec_arena_printf(arena, "%s%s%s", before, *before ? ", " : "", name);
}

static hec_status read_constants(const hec_json *json, const hec_json_value *object, hec_arena *arena, hec_gpu *gpu,
                                 hec_law_fit *fit) {
  const hec_json_value *constants = hec_json_get(object, "constants"), *assumed = hec_json_get(object, "assumed");
  const char *known[HEC_LAW_CONSTANTS_MAX + 1] = {NULL};
  for (int32_t i = 0; i < fit->law->n_constants; i++)
    known[i] = fit->law->constants[i].name;
  if (!constants)
    return hec_json_error(json, object, "\"constants\": an object with the constants of the law");
  HEC_TRY(hec_json_only(json, constants, known));
  for (int32_t i = 0; i < fit->law->n_constants; i++) {
    const double off = fit->law->constants[i].off;
    if (off < 0 || hec_json_get(constants, known[i])) {
      HEC_TRY(hec_json_want_double(json, constants, known[i], 0, 1e15, &fit->constants[i]));
      continue;
    }
    fit->constants[i] = off;
    leave_out(fit, known[i], arena, gpu);
  }
  for (const hec_json_value *v = assumed ? hec_json_first(assumed) : NULL; v; v = hec_json_next(v)) {
    int32_t i = 0;
    while (i < fit->law->n_constants &&
           (!hec_json_is_string(v) || strcmp(fit->law->constants[i].name, hec_json_text(v)) != 0))
      i++;
    if (i == fit->law->n_constants)
      return hec_json_error(json, v, "the name of a constant of the law");
    fit->assumed |= UINT32_C(1) << i;
  }
  return HEC_OK;
}

static hec_status read_fit(const hec_json *json, const hec_json_value *object, hec_arena *arena, hec_gpu *gpu) {
  static const char *const known[] = {"law",       "variant",   "rows",    "median", "p90", "noise_median",
                                      "noise_p90", "constants", "assumed", "source", NULL};
  const char *name;
  int64_t rows;
  if (gpu->n_fits == HEC_GPU_FITS_MAX)
    return hec_json_error(json, object, "at most 128 fits");
  hec_law_fit *fit = &gpu->fits[gpu->n_fits];
  *fit = (hec_law_fit){.device = gpu->name};
  HEC_TRY(hec_json_only(json, object, known));
  HEC_TRY(hec_json_want_text(json, object, "law", &name));
  fit->law = hec_cost_law_find(name);
  if (!fit->law)
    return hec_json_error(json, hec_json_get(object, "law"), "a law of models/laws/cost_law.h, such as \"gemm\"");
  HEC_TRY(read_text(json, object, "variant", arena, &fit->variant));
  if (hec_gpu_fit(gpu, name, fit->variant))
    return hec_json_error(json, hec_json_get(object, "variant"), "a variant that the device does not have already");
  HEC_TRY(read_text(json, object, "source", arena, &fit->source));
  HEC_TRY(hec_json_want_int(json, object, "rows", 0, INT32_MAX, &rows));
  fit->rows = (int32_t)rows;
  HEC_TRY(hec_json_want_double(json, object, "median", 0, 1e6, &fit->median));
  HEC_TRY(hec_json_want_double(json, object, "p90", 0, 1e6, &fit->p90));
  HEC_TRY(hec_json_double_or(json, object, "noise_median", 0, 1e6, -1, &fit->noise_median));
  HEC_TRY(hec_json_double_or(json, object, "noise_p90", 0, 1e6, -1, &fit->noise_p90));
  HEC_TRY(read_constants(json, object, arena, gpu, fit));
  gpu->n_fits++;
  return HEC_OK;
}

static hec_status load(const char *spec, int32_t depth, hec_arena *arena, hec_gpu *gpu);

/* Another memory beside the same SMs (H200 and H100, A100 with 40 and 80 GB) does not make these faster: what a law has of them in
 * HBM rates stays what it was for an SM. Of other SMs nothing is known, and HBM is the better guess: it grew as fast. */
static void keep_sms(const hec_gpu_sheet *of, const hec_gpu_sheet *sheet, hec_law_fit *fit) {
  static const double same = 1.2; /* peak of an SM: clocks differ by less, generations by more */
  double peak = sheet->flops[HEC_LAW_BF16] / sheet->sms * of->sms / of->flops[HEC_LAW_BF16];
  double rate = of->hbm_bandwidth / of->sms * sheet->sms / sheet->hbm_bandwidth;
  for (int32_t i = 0; i < fit->law->n_constants && peak < same && peak * same > 1; i++)
    if (fit->law->of_sm >> i & 1)
      fit->constants[i] *= rate;
}

/* The sister's fits, of what the device has none. */
static hec_status add_sister(const char *name, int32_t depth, hec_arena *arena, hec_gpu *gpu) {
  hec_gpu sister;
  gpu->sister = hec_arena_text(arena, name);
  HEC_TRY(load(name, depth, arena, &sister));
  for (int32_t i = 0; i < sister.n_fits && gpu->n_fits < HEC_GPU_FITS_MAX; i++) {
    if (hec_gpu_fit(gpu, sister.fits[i].law->name, sister.fits[i].variant))
      continue;
    hec_law_fit *fit = &gpu->fits[gpu->n_fits++];
    *fit = sister.fits[i];
    fit->scaled = true;
    keep_sms(&sister.sheet, &gpu->sheet, fit);
  }
  return HEC_OK;
}

static hec_status take_sister(const hec_json *json, const hec_json_value *value, int32_t depth, hec_arena *arena,
                              hec_gpu *gpu) {
  if (!hec_json_is_string(value) || !hec_gpu_known(hec_json_text(value)) || depth == SISTERS_MAX)
    return hec_json_error(json, value,
                          "the name of a device preset (hecate-sim `list` devices), with few sisters itself");
  return add_sister(hec_json_text(value), depth + 1, arena, gpu);
}

static hec_status read_root(const hec_json *json, int32_t depth, hec_arena *arena, hec_gpu *gpu) {
  static const char *const known[] = {"name", "title", "sister", "sheet", "fits", NULL};
  const hec_json_value *root = hec_json_root(json);
  if (!hec_json_is_object(root))
    return hec_json_error(json, root, "an object");
  HEC_TRY(hec_json_only(json, root, known));
  HEC_TRY(read_text(json, root, "name", arena, &gpu->name));
  HEC_TRY(read_text(json, root, "title", arena, &gpu->title));
  HEC_TRY(read_sheet(json, root, &gpu->sheet));
  const hec_json_value *fits = hec_json_get(root, "fits"), *sister = hec_json_get(root, "sister");
  HEC_TRY(read_sources(json, root, arena, gpu));
  if (fits && !hec_json_is_array(fits))
    return hec_json_error(json, fits, "an array");
  for (const hec_json_value *v = fits ? hec_json_first(fits) : NULL; v; v = hec_json_next(v))
    HEC_TRY(read_fit(json, v, arena, gpu));
  gpu->n_own = gpu->n_fits;
  return sister ? take_sister(json, sister, depth, arena, gpu) : HEC_OK;
}

static hec_status parse(const char *text, size_t length, const char *origin, int32_t depth, hec_arena *arena,
                        hec_gpu *gpu) {
  HEC_OPENED(hec_json) *json = NULL;
  *gpu = (hec_gpu){.fits = HEC_NEW(arena, hec_law_fit, HEC_GPU_FITS_MAX)};
  HEC_TRY(hec_json_parse(text, length, origin, &json));
  return read_root(json, depth, arena, gpu);
}

hec_status hec_gpu_parse(const char *text, size_t length, const char *origin, hec_arena *arena, hec_gpu *gpu) {
  return parse(text, length, origin, 0, arena, gpu);
}

static hec_status load(const char *spec, int32_t depth, hec_arena *arena, hec_gpu *gpu) {
  const hec_preset_data *preset = hec_preset_find("device", spec);
  if (preset)
    return parse(preset->text, preset->length, preset->name, depth, arena, gpu);
  HEC_OPENED(hec_json) *json = NULL;
  *gpu = (hec_gpu){.fits = HEC_NEW(arena, hec_law_fit, HEC_GPU_FITS_MAX)};
  HEC_TRY(hec_json_read(spec, &json));
  return read_root(json, depth, arena, gpu);
}

hec_status hec_gpu_load(const char *spec, hec_arena *arena, hec_gpu *gpu) {
  HEC_TRY(load(spec, 0, arena, gpu));
  gpu->spec = hec_arena_text(arena, spec);
  return HEC_OK;
}

hec_status hec_gpu_scale(const char *sister, hec_arena *arena, hec_gpu *gpu) {
  if (!hec_gpu_known(sister))
    return hec_fail(HEC_BAD_INPUT, "expected a device preset (hecate-sim `list` devices), found \"%s\"", sister);
  gpu->n_own = gpu->n_fits = 0;
  return add_sister(sister, 0, arena, gpu);
}

bool hec_gpu_known(const char *name) {
  return hec_preset_find("device", name) != NULL;
}

const hec_law_fit *hec_gpu_fit(const hec_gpu *gpu, const char *law, const char *variant) {
  for (int32_t i = 0; i < gpu->n_fits; i++)
    if (strcmp(gpu->fits[i].law->name, law) == 0 && strcmp(gpu->fits[i].variant, variant) == 0)
      return &gpu->fits[i];
  return NULL;
}

const hec_law_fit *hec_gpu_default_fit(const hec_gpu *gpu, const char *law, const char *prefix) {
  for (int32_t i = 0; i < gpu->n_fits; i++)
    if (strcmp(gpu->fits[i].law->name, law) == 0 && strncmp(gpu->fits[i].variant, prefix, strlen(prefix)) == 0)
      return &gpu->fits[i];
  return NULL;
}

/* ---- The list ---- */

static void describe_law(const hec_gpu *gpu, const hec_cost_law *law, hec_text *text) {
  for (int32_t i = 0; i < gpu->n_fits; i++) {
    const hec_law_fit *fit = &gpu->fits[i];
    if (fit->law == law)
      hec_text_printf(text, "  %-10s %-28s %s %4.1f %% / %5.1f %%%s%s\n", law->name, fit->variant,
                      fit->scaled ? "scaled  " : "measured", 100 * fit->median, 100 * fit->p90,
                      fit->scaled ? "  from " : "", fit->scaled ? fit->device : "");
  }
}

hec_status hec_gpu_list(hec_text *text) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_status status = HEC_OK;
  hec_text_printf(
      text, "GPUs, and the error of each cost law (median / 90th percentile of |predicted / measured - 1|,\n"
            "cross-validated by whole shapes). scaled: constants of the sister, shares of this data sheet's rates;\n"
            "the error is the sister's. assumed: no constants. See docs/devices.md.\n");
  for (const hec_preset_data *preset = hec_preset_table; preset->name && status == HEC_OK; preset++) {
    hec_gpu gpu;
    if (strncmp(preset->name, "device-", 7) != 0)
      continue;
    status = hec_gpu_load(preset->name + 7, &arena, &gpu);
    if (status != HEC_OK)
      break;
    const char *how = gpu.n_own > 0    ? gpu.n_own < gpu.n_fits ? "measured in part" : "measured"
                      : gpu.n_fits > 0 ? "scaled from"
                                       : "assumed: data sheet only";
    hec_text_printf(text, "%-8s %s, %s%s%s\n", gpu.name, gpu.title, how, gpu.n_own == 0 && gpu.sister ? " " : "",
                    gpu.n_own == 0 && gpu.sister ? gpu.sister : "");
    for (const hec_cost_law *const *law = hec_cost_laws; *law; law++)
      describe_law(&gpu, *law, text);
    hec_arena_free(&arena);
  }
  return status;
}
