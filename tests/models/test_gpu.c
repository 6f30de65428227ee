/* Devices: every preset loads and says what is measured. A sister's constants are scaled by the data sheet. Collectives that
 * were not fitted are taken from a twin or from between; bad files are refused by name. */
#include "models/gpu.h"
#include "models/preset_data.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static hec_gpu load(const char *name) {
  hec_gpu gpu;
  ck_ok(hec_gpu_load(name, &arena, &gpu));
  return gpu;
}

static void near(double found, double expected) {
  ck_assert_msg(fabs(found - expected) <= 1e-9 * expected, "expected %.12g, found %.12g", expected, found);
}

HEC_TEST(all_presets_load) {
  int n = 0, measured = 0;
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    if (strncmp(preset->name, "device-", 7) != 0)
      continue;
    hec_gpu gpu = load(preset->name + 7);
    ck_assert_str_eq(gpu.name, preset->name + 7);
    for (int32_t i = 0; i < gpu.n_fits; i++) {
      const hec_law_fit *fit = &gpu.fits[i];
      ck_assert(fit->scaled == (i >= gpu.n_own) && fit->median >= 0 && fit->p90 >= fit->median &&
                strlen(fit->source) > 10);
      ck_assert_msg(fit->median <= 0.15, "%s %s %s: a fit as bad as that is not kept", gpu.name, fit->law->name,
                    fit->variant);
      for (int32_t k = 0; k < fit->law->n_constants; k++) {
        double room = fit->scaled && fit->law->of_sm >> k & 1 ? 1.5 : 1.001; /* HBM of another A100: 1.6 to 2 TB/s */
        bool off = (fit->assumed >> k & 1) && fit->constants[k] == fit->law->constants[k].off;
        ck_assert_msg(off || (fit->constants[k] * room >= fit->law->constants[k].low &&
                              fit->constants[k] <= room * fit->law->constants[k].high),
                      "%s %s %s: %s is %g", gpu.name, fit->law->name, fit->variant, fit->law->constants[k].name,
                      fit->constants[k]);
      }
    }
    measured += gpu.n_own > 0;
    n++;
  }
  ck_assert_int_ge(n, 12);
  ck_assert_int_ge(measured, 4);
}

/* H200 is an H100 with faster memory: the same where math counts, faster where bytes do. */
/* H200 is an H100 with another memory: experts that compute do not get faster with it, experts that read weights do. Of other SMs
 * (B200) a rate in HBM rates is taken as it is. */
HEC_TEST(other_memory_leaves_the_sms_alone) {
  hec_gpu h100 = load("h100"), h200 = load("h200"), b200 = load("b200");
  hec_grouped_work work = {.hidden = 4096, .inter = 2048, .tokens = 4096, .top_k = 2, .gated = true};
  const int64_t rows[2][8] = {{2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048}, {1, 1, 1, 1, 1, 1, 1, 1}};
  for (int k = 0; k < 2; k++) {
    work.load = hec_grouped_load_of(rows[k], 8);
    double ratio = hec_law_fit_s(&h200, hec_gpu_fit(&h200, "grouped", "bf16 cutlass"), &work) /
                   hec_law_fit_s(&h100, hec_gpu_fit(&h100, "grouped", "bf16 cutlass"), &work);
    ck_assert_msg(k == 0 ? ratio > 0.9 && ratio < 1 : ratio > 0.69 && ratio < 0.8, "%g", ratio);
  }
  ck_ok(hec_gpu_scale("h100", &arena, &b200));
  const hec_law_fit *other = hec_gpu_fit(&b200, "grouped", "bf16 cutlass");
  ck_assert(other->scaled && b200.n_own == 0);
  ck_assert(other->constants[7] == hec_gpu_fit(&h100, "grouped", "bf16 cutlass")->constants[7]);
  ck_assert(hec_gpu_scale("nobody", &arena, &b200) == HEC_BAD_INPUT);
}

HEC_TEST(a_sister_is_scaled) {
  hec_gpu h100 = load("h100"), h200 = load("h200");
  const hec_law_fit *a = hec_gpu_default_fit(&h100, "gemm", "bf16"), *b = hec_gpu_default_fit(&h200, "gemm", "bf16");
  ck_assert(a && b && !a->scaled && b->scaled);
  ck_assert_str_eq(b->device, "h100");
  const hec_gemm_work math = {.m = 8192, .n = 8192, .k = 8192, .groups = 1},
                      bytes = {.m = 16, .n = 16384, .k = 16384, .groups = 1};
  double same = hec_law_fit_s(&h200, b, &math) / hec_law_fit_s(&h100, a, &math);
  double faster = hec_law_fit_s(&h200, b, &bytes) / hec_law_fit_s(&h100, a, &bytes);
  ck_assert_msg(same > 0.97 && same <= 1 && faster < 0.8 && faster > 0.65, "same %g faster %g", same, faster);
}

/* A device with fits for all-gather on 4 and all-to-all on 2 and 8, latency alone: 4, 2 and 8 us. */
static const char made_up[] =
    "{\"name\": \"x\", \"title\": \"x\", \"sheet\": {\"bf16\": 1e15, \"sms\": 100, \"hbm_bandwidth\": 1e12, "
    "\"memory_bytes\": 8e10,"
    "\"nvlink_bandwidth\": 1e11, \"nvlink_ranks\": 8, \"nic_bandwidth\": 1e10, \"launch_s\": 3e-6}, \"fits\": ["
    "{\"law\": \"collective\", \"variant\": \"all_gather 4\", \"rows\": 9, \"median\": 0, \"p90\": 0, \"source\": "
    "\"made up\", \"constants\":"
    "{\"a1\": 4e-6, \"b1\": 1, \"v1\": 0, \"a2\": 4e-6, \"b2\": 1, \"v2\": 0, \"a3\": 4e-6, \"b3\": 1, \"knee\": 0}},"
    "{\"law\": \"collective\", \"variant\": \"all_to_all 2\", \"rows\": 9, \"median\": 0, \"p90\": 0, \"source\": "
    "\"made up\", \"constants\":"
    "{\"a1\": 2e-6, \"b1\": 1, \"v1\": 0, \"a2\": 2e-6, \"b2\": 1, \"v2\": 0, \"a3\": 2e-6, \"b3\": 1, \"knee\": 0}},"
    "{\"law\": \"collective\", \"variant\": \"all_to_all 8\", \"rows\": 9, \"median\": 0, \"p90\": 0, \"source\": "
    "\"made up\", \"constants\":"
    "{\"a1\": 8e-6, \"b1\": 1, \"v1\": 0, \"a2\": 8e-6, \"b2\": 1, \"v2\": 0, \"a3\": 8e-6, \"b3\": 1, \"knee\": 0}}]}";

static hec_gpu parse(const char *text) {
  hec_gpu gpu;
  ck_ok(hec_gpu_parse(text, strlen(text), "made-up", &arena, &gpu));
  return gpu;
}

HEC_TEST(collectives_that_were_not_fitted) {
  hec_gpu gpu = parse(made_up);
  hec_collective_how how;
  near(hec_gpu_collective_s(&gpu, HEC_ALL_GATHER, 4, 4e6, &how), 4e-6 + 3e6 / 1e11);
  ck_assert_int_eq(how, HEC_COLLECTIVE_FITTED);
  near(hec_gpu_collective_s(&gpu, HEC_REDUCE_SCATTER, 4, 4e6, &how), 4e-6 + 3e6 / 1e11); /* the twin */
  ck_assert_int_eq(how, HEC_COLLECTIVE_BETWEEN);
  near(hec_gpu_collective_s(&gpu, HEC_ALL_TO_ALL, 4, 0, &how), 5e-6); /* half way between 2 and 8 in log2 */
  ck_assert_int_eq(how, HEC_COLLECTIVE_BETWEEN);
  (void)hec_gpu_collective_s(&gpu, HEC_ALL_REDUCE, 4, 4e6, &how);
  ck_assert_int_eq(how, HEC_COLLECTIVE_NONE);
}

/* Device files of users were written for laws with fewer constants. Those that a law needs stay required (bad_files). */
HEC_TEST(older_files_are_read) {
  const hec_preset_data *preset = hec_preset_find("device", "h100");
  HEC_SCOPED(hec_text) text = {0};
  const char *at = preset->text;
  for (const char *from; (from = strstr(at, "\"masked\"")) != NULL; at = strchr(from, '}')) {
    hec_text_add_bytes(&text, at, (size_t)(from - at));
    while (text.data[text.length - 1] != ',') /* masked and latent are the last two */
      text.length--;
    text.length--;
  }
  hec_text_add(&text, at);
  hec_gpu h100 = load("h100"), older = parse(text.data);
  ck_assert(!h100.absent && older.n_fits == h100.n_fits);
  ck_assert_str_eq(older.absent, "attention masked, attention latent");
  const hec_attention_work work = {
      .batch = 1, .seq = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .head_dim_v = 128, .causal = true};
  for (int32_t i = 0; i < h100.n_fits; i++)
    if (h100.fits[i].law == &hec_cost_law_attention && h100.fits[i].constants[8] == 0) /* masked */
      ck_assert(hec_law_fit_s(&older, &older.fits[i], &work) == hec_law_fit_s(&h100, &h100.fits[i], &work));
}

HEC_TEST(bad_files) {
  static const struct {
    const char *from, *to, *words;
  } damage[] = {{"\"law\": \"collective\"", "\"law\": \"collectiv\"", "fits[0].law"},
                {"\"a1\": 4e-6, ", "", "constants"},
                {"\"knee\"", "\"kne\"", "constants.kne"},
                {"\"all_to_all 2\"", "\"all_gather 4\"", "fits[1].variant"},
                {"\"sms\": 100", "\"sms\": 0", "sheet.sms"},
                {"\"sheet\"", "\"sheets\"", "sheets"},
                {"\"title\": \"x\"", "\"title\": \"x\", \"sister\": \"nobody\"", "sister"}};
  for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
    HEC_SCOPED(hec_text) text = {0};
    const char *at = strstr(made_up, damage[i].from);
    ck_assert_ptr_nonnull(at);
    hec_text_add_bytes(&text, made_up, (size_t)(at - made_up));
    hec_text_printf(&text, "%s%s", damage[i].to, at + strlen(damage[i].from));
    hec_gpu gpu;
    ck_assert_int_eq(hec_gpu_parse(text.data, text.length, "bad.json", &arena, &gpu), HEC_BAD_INPUT);
    ck_assert_msg(strstr(hec_last_error(), "bad.json:1") && strstr(hec_last_error(), damage[i].words), "%s",
                  hec_last_error());
  }
}

HEC_TEST(the_list_says_what_is_measured) {
  HEC_SCOPED(hec_text) text = {0};
  ck_ok(hec_gpu_list(&text));
  ck_assert_ptr_nonnull(strstr(text.data, "h100     NVIDIA H100 SXM5 80 GB, measured"));
  ck_assert_ptr_nonnull(strstr(text.data, "h200     NVIDIA H200 SXM 141 GB, scaled from h100"));
  ck_assert_ptr_nonnull(strstr(text.data, "assumed: data sheet only"));
}
