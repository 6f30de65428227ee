/* Published tables and the cost laws: a fit finds constants again from a table made with them, whatever a few rows say. Every
 * row of a folder is predicted or has a reason; bad tables are refused by file and line. And the errors on the real tables,
 * where the shared cases are. */
#include "runtime/base/temporary.h"
#include "runtime/base/text.h"
#include "tests/support/test.h"
#include "validate/device/constants.h"
#include "validate/device/fit.h"
#include "validate/device/judge.h"
#include "validate/stats.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

HEC_TEST_ARENA(arena)

static hec_gpu load(const char *name) {
  hec_gpu gpu;
  if (hec_gpu_load(name, &arena, &gpu) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  return gpu;
}

/* ---- Fits ---- */

enum { N = 360 };

/* A table of GEMMs made with known constants; `broken` of 20 rows are four times off. */
static hec_fit_rows made_with(const hec_gpu *gpu, const double *constants, int broken) {
  const void **work = HEC_NEW(&arena, const void *, N);
  double *seconds = HEC_NEW(&arena, double, N);
  uint64_t *shape = HEC_NEW(&arena, uint64_t, N), seed = 11;
  hec_fit_rows rows = {
      .law = &hec_cost_law_gemm, .sheet = &gpu->sheet, .n = N, .work = work, .measured_s = seconds, .shape = shape};
  for (int i = 0; i < N; i++) {
    hec_gemm_work *g = HEC_NEW(&arena, hec_gemm_work, 1);
    *g = (hec_gemm_work){.m = (int64_t)1 << hec_test_below(&seed, 14),
                         .n = 128 * (1 + (int64_t)hec_test_below(&seed, 80)),
                         .k = 256 * (1 + (int64_t)hec_test_below(&seed, 40)),
                         .groups = 1};
    work[i] = g;
    shape[i] = (uint64_t)(i / 4) << 20;
    seconds[i] = rows.law->seconds(&gpu->sheet, constants, g) * (i % 20 < broken ? 4 : 1);
  }
  return rows;
}

static void start_of(const hec_cost_law *law, double *constants) {
  for (int32_t k = 0; k < law->n_constants; k++)
    constants[k] = law->constants[k].start;
}

static hec_error error_of(const hec_fit_rows *rows, const double *constants) {
  double predicted[N];
  for (int32_t i = 0; i < rows->n; i++)
    predicted[i] = rows->law->seconds(rows->sheet, constants, rows->work[i]);
  return hec_error_of(predicted, rows->measured_s, rows->n);
}

HEC_TEST_LOOP(a_fit_finds_the_constants_again, 2) {
  static const double truth[HEC_LAW_CONSTANTS_MAX] = {4e-6, 1e-6, 0.5, 0.72, 0.1, 0.8, 0.8, 0.7, 0.65, 0.7, 0.55, 3};
  hec_gpu gpu = load("a100");
  hec_fit_rows rows = made_with(&gpu, truth, _i);
  double found[HEC_LAW_CONSTANTS_MAX] = {0};
  start_of(rows.law, found);
  hec_error before = error_of(&rows, found);
  uint32_t unused = hec_law_fit_solve(&rows, 0, found);
  hec_error after = error_of(&rows, found);
  ck_assert_msg(before.median > 0.05 && after.median < 0.01, "before %g, after %g", before.median, after.median);
  ck_assert_msg(fabs(found[0] / truth[0] - 1) < 0.05 && fabs(found[3] / truth[3] - 1) < 0.03, "t0 %g, hbm %g", found[0],
                found[3]);
  ck_assert_uint_eq(unused, UINT32_C(1) << 11); /* nothing here is quantised */
  ck_assert(found[11] == rows.law->constants[11].start);
  double again[HEC_LAW_CONSTANTS_MAX] = {0};
  start_of(rows.law, again);
  (void)hec_law_fit_solve(&rows, 0, again);
  ck_assert(memcmp(found, again, sizeof found) == 0); /* the same input, the same bytes */
}

static double squares_off_start(const hec_cost_law *law, const double *constants) {
  double sum = 0;
  for (int32_t k = 0; k < law->n_constants; k++)
    sum += pow(log(constants[k] / law->constants[k].start), 2);
  return sum;
}

/* Rows of one shape do not say what all constants are: those that they leave open stay near the start. */
HEC_TEST(a_few_shapes_leave_constants_near_the_start) {
  static const double truth[HEC_LAW_CONSTANTS_MAX] = {4e-6, 1e-6, 0.5, 0.72, 0.1, 0.8, 0.8, 0.7, 0.65, 0.7, 0.55, 3};
  hec_gpu gpu = load("a100");
  const void *work[14];
  double seconds[14], off[2];
  uint64_t shape[14];
  hec_gemm_work calls[14];
  hec_fit_rows rows = {&hec_cost_law_gemm, &gpu.sheet, 14, work, seconds, shape};
  for (int many = 0; many < 2; many++) {
    double found[HEC_LAW_CONSTANTS_MAX] = {0};
    for (int i = 0; i < 14; i++) {
      calls[i] = (hec_gemm_work){.m = (int64_t)1 << i, .n = 4096, .k = 2048, .groups = 1};
      work[i] = &calls[i];
      shape[i] = (uint64_t)(many * i);
      seconds[i] = rows.law->seconds(rows.sheet, truth, work[i]);
    }
    start_of(rows.law, found);
    (void)hec_law_fit_solve(&rows, 0, found);
    off[many] = squares_off_start(rows.law, found);
    ck_assert_msg(error_of(&rows, found).median < 0.02, "error %g", error_of(&rows, found).median);
  }
  ck_assert_msg(off[0] < 0.95 * off[1], "few shapes: %g, many: %g", off[0], off[1]);
}

HEC_TEST(a_pinned_constant_stays) {
  static const double truth[HEC_LAW_CONSTANTS_MAX] = {4e-6, 1e-6, 0.5, 0.72, 0.1, 0.8, 0.8, 0.7, 0.65, 0.7, 0.55, 3};
  hec_gpu gpu = load("a100");
  hec_fit_rows rows = made_with(&gpu, truth, 0);
  double found[HEC_LAW_CONSTANTS_MAX] = {0};
  start_of(rows.law, found);
  found[2] = 0; /* no whole waves: an ablation */
  (void)hec_law_fit_solve(&rows, 1 << 2, found);
  ck_assert(found[2] == 0);
  ck_assert_msg(error_of(&rows, found).median > 0.005, "whole waves matter in a table that has them");
}

/* A kernel that computes the masked tiles is found, and one that does not is not taken for it. */
HEC_TEST_LOOP(a_switch_is_off_or_on, 2) {
  double truth[HEC_LAW_CONSTANTS_MAX] = {5e-6, 1e-6, 0.6, 80, 0.4, 0.5, 0.3, 3, _i, 3500};
  hec_gpu gpu = load("h100");
  const void *work[160];
  double seconds[160], found[HEC_LAW_CONSTANTS_MAX] = {0};
  uint64_t shape[160];
  hec_attention_work calls[160];
  hec_fit_rows rows = {&hec_cost_law_attention, &gpu.sheet, 160, work, seconds, shape};
  for (int i = 0; i < 160; i++) {
    shape[i] = (uint64_t)i;
    calls[i] = (hec_attention_work){.batch = 1 << i % 5,
                                    .seq = 512 << i / 5 % 4,
                                    .heads = 2 << i / 20,
                                    .kv_heads = 2,
                                    .head_dim = 128,
                                    .head_dim_v = 128,
                                    .causal = true};
    work[i] = &calls[i];
    seconds[i] = rows.law->seconds(rows.sheet, truth, work[i]);
  }
  start_of(rows.law, found);
  ck_assert_uint_eq(hec_law_fit_solve(&rows, 0, found), UINT32_C(1) << 7 | UINT32_C(1)
                                                                               << 9); /* no backward, no latent */
  ck_assert_msg(found[8] == _i && error_of(&rows, found).median < 0.01, "found %g, error %g", found[8],
                error_of(&rows, found).median);
}

/* Ranges of a collective, found with their ends. */
HEC_TEST(a_collective_finds_its_ranges) {
  static const double truth[HEC_LAW_CONSTANTS_MAX] = {8e-6, 0.02, 20000, 1.2e-5, 0.1, 1.5e6, 5e-5, 0.8, 2e6};
  hec_gpu gpu = load("h100");
  const void *work[44];
  double seconds[44];
  uint64_t shape[44];
  hec_collective_work sizes[44];
  hec_fit_rows rows = {&hec_cost_law_collective, &gpu.sheet, 44, work, seconds, shape};
  for (int i = 0; i < 44; i++) {
    sizes[i].bytes = 448 * (double)(1 << i / 2);
    work[i] = &sizes[i];
    shape[i] = (uint64_t)i / 2;
    seconds[i] = rows.law->seconds(rows.sheet, truth, work[i]);
  }
  double found[HEC_LAW_CONSTANTS_MAX] = {0};
  (void)hec_law_fit_solve(&rows, 0, found);
  hec_error error = error_of(&rows, found);
  ck_assert_msg(error.worst < 0.005, "worst %g", error.worst);
  ck_assert_msg(found[2] > 14336 && found[2] < 28672 && fabs(found[7] / 0.8 - 1) < 0.01, "v1 %g, b3 %g", found[2],
                found[7]);
}

/* Rows that a fit did not see are harder than rows that it saw, and with one shape there is nothing to learn from. */
HEC_TEST(cross_validation_does_not_look) {
  hec_gpu gpu = load("h100");
  const void *work[12];
  double seconds[12], predicted[12];
  uint64_t shape[12];
  hec_memory_work bytes[12];
  hec_fit_rows rows = {&hec_cost_law_memory, &gpu.sheet, 12, work, seconds, shape};
  for (int i = 0; i < 12; i++) {
    bytes[i].bytes = 1e8 * (1 + i % 3);
    work[i] = &bytes[i];
    shape[i] = i < 6 ? 1 : 2;
    seconds[i] = bytes[i].bytes / (i < 6 ? 3e12 : 1.5e12); /* two kernels that have nothing in common */
  }
  hec_law_fit_cross(&rows, predicted);
  for (int i = 0; i < 12; i++)
    ck_assert_msg(fabs(predicted[i] / (bytes[i].bytes / (i < 6 ? 1.5e12 : 3e12)) - 1) < 0.01, "row %d saw itself", i);
}

/* ---- A folder ---- */

static hec_judgement judgement;

static const char *made_up(void) {
  static char path[512];
  (void)snprintf(path, sizeof path, "%s/tests/validate/cases/gpu", HEC_SOURCE_DIR);
  return path;
}

static const hec_case *row_of(const char *file, int32_t line) {
  for (int32_t i = 0; i < judgement.cases.n; i++)
    if (judgement.cases.cases[i].line == line &&
        strcmp(hec_case_tables[judgement.cases.cases[i].table]->file, file) == 0)
      return &judgement.cases.cases[i];
  ck_abort_msg("no row %s:%d", file, (int)line);
  return NULL;
}

static void expect_reason(const char *file, int32_t line, const char *words) {
  const hec_case *c = row_of(file, line);
  ck_assert_msg(c->why_not && strstr(c->why_not, words), "%s:%d: %s", file, (int)line,
                c->why_not ? c->why_not : "predicted");
}

static double predicted_of(const char *file, int32_t line) {
  const hec_case *c = row_of(file, line);
  ck_assert_msg(!c->why_not, "%s:%d: %s", file, (int)line, c->why_not);
  return c->predicted_s;
}

HEC_TEST(every_row_is_predicted_or_has_a_reason) {
  if (hec_judge_folder(made_up(), NULL, &judgement) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  ck_assert_int_eq(judgement.cases.n, 32);
  hec_gpu h100 = load("h100");
  const hec_gemm_work gemm = {.m = 4096, .n = 4096, .k = 4096, .groups = 1};
  ck_assert(predicted_of("gemm.csv", 2) == hec_law_fit_s(&h100, hec_gpu_fit(&h100, "gemm", "bf16 trtllm"), &gemm));
  ck_assert(predicted_of("gemm.csv", 3) <= predicted_of("gemm.csv", 2)); /* h200_sxm is h200 */
  expect_reason("gemm.csv", 4, "k: expected a whole number");
  expect_reason("gemm.csv", 5, "seconds");
  expect_reason("gemm.csv", 6, "int4");
  expect_reason("gemm.csv", 7, "no preset \"toaster\"");
  expect_reason("gemm.csv", 8, "mi300x has no constants");
  ck_assert(predicted_of("gemm.csv", 10) > predicted_of("gemm.csv", 2));      /* a quoted comma, an empty line before */
  ck_assert(predicted_of("moe_ffn.csv", 3) > predicted_of("moe_ffn.csv", 2)); /* uneven loads */
  ck_assert_ptr_nonnull(strstr(row_of("moe_ffn.csv", 4)->kind, "flagged"));
  ck_assert_ptr_nonnull(strstr(row_of("moe_ffn.csv", 5)->kind, "below 64 tokens"));
  expect_reason("moe_ffn.csv", 6, "triton-sglang");
  expect_reason("moe_ffn.csv", 7, "multiple of moe_ep");
  expect_reason("moe_ffn.csv", 8, "distribution");
  /* an expert has no token twice: what it would have had goes to others, and all choices are made */
  const hec_grouped_work *skewed = row_of("moe_ffn.csv", 9)->work;
  ck_assert_double_eq_tol(skewed->load.rows, 2 * 65536, 131);
  ck_assert(skewed->load.busiest <= 65536);
  ck_assert(predicted_of("attention.csv", 3) > 2.5 * predicted_of("attention.csv", 2)); /* backward */
  expect_reason("attention.csv", 4, "deterministic");
  ck_assert(predicted_of("attention.csv", 5) > 0); /* MLA, a sister */
  expect_reason("attention.csv", 6, "heads up to 256");
  ck_assert(predicted_of("collectives.csv", 2) > 0);
  ck_assert_ptr_nonnull(strstr(row_of("collectives.csv", 3)->kind, "ranks not fitted"));
  expect_reason("collectives.csv", 4, "one NVLink domain");
  ck_assert(predicted_of("collectives.csv", 5) > 0); /* NVLink across nodes */
  expect_reason("collectives.csv", 6, "broadcast");
  expect_reason("collectives.csv", 7, "one-shot");
  ck_assert(predicted_of("deepep.csv", 2) > 0 && predicted_of("deepep.csv", 3) > 0 &&
            predicted_of("deepep.csv", 5) > 0);
  expect_reason("deepep.csv", 4, "oversubscribed");
  expect_reason("simai_ratio.csv", 2, "neither GPU nor network");
  hec_judgement_free(&judgement);
}

HEC_TEST(the_json_has_every_row) {
  HEC_SCOPED(hec_text) text = {0};
  ck_assert(hec_judge_folder(made_up(), NULL, &judgement) == HEC_OK);
  hec_doc_write(hec_judgement_report, &judgement, HEC_DOC_JSON, 0, &text);
  int rows = 0;
  for (const char *at = text.data; (at = strstr(at, "\"line\":")) != NULL; at++)
    rows++;
  ck_assert_int_eq(rows, 32);
  ck_assert_ptr_nonnull(
      strstr(text.data, "{\"kinds\":[{\"kind\":\"attention bwd\",\"gpu\":\"b200\",\"rows\":1,\"median\":"));
  ck_assert_ptr_nonnull(strstr(text.data, "{\"file\":\"gemm.csv\",\"line\":2,\"predicted_s\":"));
  ck_assert_ptr_nonnull(strstr(text.data, "{\"file\":\"gemm.csv\",\"line\":7,\"why_not\":\"gpu: no preset"));
  hec_judgement_free(&judgement);
}

HEC_TEST(bad_tables_are_refused) {
  static const struct {
    const char *name, *text, *words;
  } bad[] = {{"gemm.csv", "gpu,dtype,m,n,seconds,framework\n", "gemm.csv:1: expected a column \"k\""},
             {"gemm.csv", "gpu,dtype,m,n,k,seconds,framework\nh100,bf16,1,2\n", "gemm.csv:2: line: expected 7 fields"},
             {"gemm.csv", "", "gemm.csv:1"},
             {"notes.csv", "a,b\n1,2\n", "expected at least one of the tables"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char folder[] = "/tmp/hecate-device-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/%s", folder, bad[i].name);
    ck_assert(hec_write_file(path, bad[i].text, strlen(bad[i].text)) == HEC_OK);
    ck_assert_int_eq(hec_judge_folder(folder, NULL, &judgement), HEC_BAD_INPUT);
    ck_assert_msg(strstr(hec_last_error(), bad[i].words), "%s", hec_last_error());
    hec_judgement_free(&judgement);
    ck_assert(unlink(path) == 0 && rmdir(folder) == 0);
  }
}

/* ---- The real tables ---- */

static bool have_tables(const char *test) {
  return hec_test_wants(test, "cases/gpu/gemm.csv",
                        "that cost laws of GPUs are as accurate on published measurements as the report says");
}

/* Errors of the presets, a little above what they reach. */
static const struct {
  const char *kind, *gpu;
  double median, p90;
} bounds[] = {
    {"gemm bf16 trtllm", "h100", 0.04, 0.13},      {"gemm bf16 sglang", "a100", 0.05, 0.16},
    {"gemm bf16 trtllm", "b200", 0.055, 0.18},     {"gemm fp8 trtllm", "h100", 0.07, 0.2},
    {"gemm fp8 trtllm", "b200", 0.07, 0.2},        {"gemm fp8block trtllm", "h100", 0.07, 0.2},
    {"gemm fp8block trtllm", "b200", 0.07, 0.2},   {"moe bf16 cutlass", "h100", 0.05, 0.16},
    {"moe bf16 cutlass", "a100", 0.06, 0.17},      {"moe bf16 cutlass", "b200", 0.055, 0.19},
    {"attention forward", "h100", 0.06, 0.2},      {"attention forward", "a100", 0.06, 0.2},
    {"attention forward", "b200", 0.06, 0.2},      {"attention forward mla", "h100", 0.04, 0.14},
    {"attention forward mla", "a100", 0.03, 0.12}, {"attention forward mla", "b200", 0.05, 0.16},
    {"collective nccl", "h100", 0.03, 0.1},        {"collective nccl", "a100", 0.03, 0.1},
    {"collective nccl", "b200", 0.035, 0.12},      {"deepep normal dispatch", "h100", 0.08, 0.2},
    {"deepep normal combine", "h100", 0.08, 0.2},  {"deepep normal dispatch", "b200", 0.08, 0.2},
    {"deepep normal combine", "b200", 0.08, 0.2},
};

HEC_TEST(presets_on_the_real_tables) {
  if (!have_tables("validate.device/presets_on_the_real_tables"))
    return;
  ck_assert(hec_judge_folder(hec_test_shared_path("cases/gpu"), NULL, &judgement) == HEC_OK);
  ck_assert(judgement.n_not < judgement.cases.n / 8);
  for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
    int32_t k = 0;
    while (k < judgement.n_kinds &&
           (strcmp(judgement.kinds[k].kind, bounds[b].kind) != 0 || strcmp(judgement.kinds[k].gpu, bounds[b].gpu) != 0))
      k++;
    ck_assert_msg(k < judgement.n_kinds, "no rows of %s on %s", bounds[b].kind, bounds[b].gpu);
    const hec_judged_kind *kind = &judgement.kinds[k];
    ck_assert_msg(kind->median <= bounds[b].median && kind->p90 <= bounds[b].p90 && kind->correlation > 0.95,
                  "%s on %s: median %.3f, p90 %.3f, rank %.3f", kind->kind, kind->gpu, kind->median, kind->p90,
                  kind->correlation);
  }
  hec_judgement_free(&judgement);
}

/* A GPU that nobody measured: H100's constants on B200's data sheet. Far from the fit, near enough to choose by. */
HEC_TEST(a_sister_stands_in) {
  if (!have_tables("validate.device/a_sister_stands_in"))
    return;
  ck_assert(hec_judge_folder(hec_test_shared_path("cases/gpu"), "h100", &judgement) == HEC_OK);
  int found = 0;
  for (int32_t k = 0; k < judgement.n_kinds; k++) {
    const hec_judged_kind *kind = &judgement.kinds[k];
    if (strcmp(kind->gpu, "b200") != 0 ||
        (strcmp(kind->kind, "gemm bf16 trtllm") != 0 && strcmp(kind->kind, "moe bf16 cutlass") != 0))
      continue;
    ck_assert_msg(kind->median > 0.06 && kind->median < 0.13 && kind->correlation > 0.98, "%s: median %.3f", kind->kind,
                  kind->median);
    found++;
  }
  ck_assert_int_eq(found, 2);
  hec_judgement_free(&judgement);
  ck_assert(hec_judge_folder(hec_test_shared_path("cases/gpu"), "h1000", &judgement) == HEC_BAD_INPUT);
  hec_judgement_free(&judgement);
}

/* The committed constants are what the command finds: one law that is quick to fit. */
HEC_TEST(a_preset_is_what_the_command_finds) {
  if (!have_tables("validate.device/a_preset_is_what_the_command_finds"))
    return;
  hec_constants found;
  hec_gpu gpu = load("h100");
  const hec_constants_options options = {
      .folder = hec_test_shared_path("cases/gpu"), .device = "h100", .law = "collective", .ablate = false};
  if (hec_constants_run(&options, &found) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
  ck_assert_int_eq(found.n, 8);
  for (int32_t i = 0; i < found.n; i++) {
    const hec_law_fit *fit = &found.fits[i].fit, *preset = hec_gpu_fit(&gpu, "collective", fit->variant);
    ck_assert_ptr_nonnull(preset);
    for (int32_t k = 0; k < fit->law->n_constants; k++)
      ck_assert_msg(fabs(fit->constants[k] - preset->constants[k]) <= 1e-3 * fabs(preset->constants[k]),
                    "%s %s: %g, preset %g", fit->variant, fit->law->constants[k].name, fit->constants[k],
                    preset->constants[k]);
  }
  ck_assert_int_eq(found.gpu.n_own, gpu.n_own); /* the other laws are kept */
  hec_constants_free(&found);
}

/* (operation, ranks) without a fit, taken from a twin or from between: what users get for the others. The fit of the pair is
 * taken away, and the rows that it was fitted to are predicted without it. */
HEC_TEST(collectives_without_their_own_fit) {
  static const char *const devices[] = {"a100", "h100", "b200"}, *const taken[] = {"all_gather 4", "reduce_scatter 4"};
  enum { ROWS_MAX = 4096 };
  double *predicted = HEC_NEW(&arena, double, ROWS_MAX), *measured = HEC_NEW(&arena, double, ROWS_MAX);
  int32_t n = 0;
  HEC_SCOPED(hec_cases) cases = {0};
  if (!have_tables("validate.device/collectives_without_their_own_fit"))
    return;
  ck_assert(hec_cases_read(hec_test_shared_path("cases/gpu"), &cases) == HEC_OK);
  for (size_t d = 0; d < 3; d++)
    for (size_t t = 0; t < 2; t++) {
      hec_gpu gpu = load(devices[d]);
      hec_law_fit *fit = (hec_law_fit *)(uintptr_t)hec_gpu_fit(&gpu, "collective", taken[t]);
      ck_assert_ptr_nonnull(fit);
      fit->variant = "taken away";
      for (int32_t i = 0; i < cases.n; i++) {
        hec_case c = cases.cases[i];
        if (!c.fit || strcmp(c.law, "collective") != 0 || strcmp(c.gpu, devices[d]) != 0 ||
            strcmp(c.variant, taken[t]) != 0)
          continue;
        hec_case_predict(&gpu, &arena, &c);
        ck_assert_ptr_nonnull(strstr(c.kind, "ranks not fitted"));
        ck_assert_int_lt(n, ROWS_MAX);
        predicted[n] = c.predicted_s;
        measured[n++] = c.measured_s;
      }
    }
  hec_error error = hec_error_of(predicted, measured, n);
  ck_assert_msg(n > 200 && error.median < 0.08 && error.p90 < 0.18, "%d rows: %.3f / %.3f", (int)n, error.median,
                error.p90);
}
