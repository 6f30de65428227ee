/* Laws against measured hardware. Rows made from the laws by hand have no error, broken laws and rankings are found,
 * upper bounds count both ways. Hostile files are refused by name. And what others measured, where the shared cases
 * are. */
#include "runtime/base/temporary.h"
#include "runtime/base/text.h"
#include "tests/support/test.h"
#include "validate/hardware/hardware.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static hec_hardware hardware;
static char path[512];

static const char *made_up(void) {
  (void)snprintf(path, sizeof path, "%s/tests/validate/cases/hardware_law.json", HEC_SOURCE_DIR);
  return path;
}

static void run(const char *file) {
  if (hec_hardware_run(file, &hardware) != HEC_OK)
    ck_abort_msg("%s", hec_last_error());
}

/* The made-up cases with every `from` replaced, in a file of its own. */
static const char *mutated(const char *from, const char *to) {
  static char text[1 << 16];
  FILE *in = fopen(made_up(), "rb");
  ck_assert(in != NULL);
  size_t n = fread(text, 1, sizeof text - 1, in);
  text[n] = '\0';
  ck_assert(fclose(in) == 0);
  HEC_SCOPED(hec_text) out = {0};
  int replaced = 0;
  const char *at = text;
  for (const char *found; (found = strstr(at, from)) != NULL; at = found + strlen(from), replaced++) {
    hec_text_add_bytes(&out, at, (size_t)(found - at));
    hec_text_add(&out, to);
  }
  hec_text_add(&out, at);
  ck_assert_int_gt(replaced, 0);
  (void)snprintf(path, sizeof path, "/tmp/hecate-hardware-%d.json", (int)getpid());
  ck_assert(hec_write_file(path, out.data, out.length) == HEC_OK);
  return path;
}

static const hec_hardware_group *group_of(const char *name) {
  for (int32_t g = 0; g < hardware.n_groups; g++)
    if (strcmp(hardware.groups[g].name, name) == 0)
      return &hardware.groups[g];
  ck_abort_msg("no group %s", name);
  return NULL;
}

static const hec_hardware_line *line_of(const char *group, const char *what) {
  for (int32_t i = 0; i < hardware.n_lines; i++)
    if (strcmp(hardware.lines[i].group, group) == 0 && strstr(hardware.lines[i].what, what))
      return &hardware.lines[i];
  ck_abort_msg("no line %s of %s", what, group);
  return NULL;
}

HEC_TEST(the_law_has_no_error_against_itself) {
  run(made_up());
  ck_assert_int_eq(hardware.n_rows, 31);
  ck_assert_int_eq(hardware.n_groups, 4);
  for (int32_t i = 0; i < hardware.n_rows; i++) {
    const hec_hardware_row *row = &hardware.rows[i];
    double error = row->predicted_s / row->measured_s - 1;
    if (strcmp(row->id, "slow") == 0)
      ck_assert(row->bound && fabs(error + 2.0 / 3) < 1e-9);
    else
      ck_assert_msg(!row->bound && fabs(error) < 1e-9, "%s: measured %g, predicted %g", row->id, row->measured_s,
                    row->predicted_s);
  }
  ck_assert(hardware.passed);
  ck_assert_int_eq(hardware.n_lines, 4 + 3); /* no large rows among the MoE layers */
  const hec_hardware_group *nodes = group_of("two_nodes");
  ck_assert(nodes->bounds == 1 && nodes->error[0].n == 9 && nodes->error[1].n == 8);
  ck_assert(nodes->error[0].worst > 0.66 && nodes->error[1].worst < 1e-9);
  ck_assert(nodes->larges == 5 && nodes->large_error[0].n == 5 && nodes->large_error[1].n == 4);
  hec_hardware_free(&hardware);
}

static const struct {
  const char *from, *to, *group, *line;
} mutations[] = {
    {"nic=10G@5us", "nic=5G@5us", "two_nodes", "median"},                     /* every message takes twice as long */
    {"nvlink=100G@1us flops", "nvlink=100G@3ms flops", "one_node", "median"}, /* a latency of another order */
    {"eff=0.5", "eff=0.9", "gemm", "median"},                                 /* a rate that these GEMMs do not reach */
    {"hbm=1000G", "hbm=1M", "gemm", "tau"}, /* only reading the weights counts: sizes of m look alike */
};

HEC_TEST_ROWS(broken_laws_fail, mutations) {
  run(mutated(mutations[_i].from, mutations[_i].to));
  ck_assert(!hardware.passed && !line_of(mutations[_i].group, mutations[_i].line)->passed);
  (void)unlink(path);
  hec_hardware_free(&hardware);
}

/* What holds only because slow rows are left out does not hold. */
HEC_TEST(bounds_count_both_ways) {
  run(mutated("2 * 3/4 of bytes / 10 GB/s", "slower than expected"));
  const hec_hardware_group *group = group_of("two_nodes");
  ck_assert(group->bounds == 5 && group->error[1].n == 4 && hardware.passed);
  hec_hardware_free(&hardware);
  run(mutated("nic=10G@5us", "nic=15G@5us")); /* a third too fast: with and without the bound */
  const hec_hardware_line *line = line_of("two_nodes", "median");
  ck_assert(!line->passed && line->value[0] > 0.3 && line->value[1] > 0.3);
  (void)unlink(path);
  hec_hardware_free(&hardware);
}

HEC_TEST(loads_are_whole_and_add_up) {
  static int64_t load[256];
  const struct {
    int64_t tokens, top_k, experts;
    double alpha;
  } cases[] = {{64, 8, 128, 1.2}, {64, 2, 8, 1.2}, {8192, 2, 8, 1.01},
               {1, 8, 128, 1.2},  {1000, 6, 7, 3}, {97, 3, 64, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hec_hardware_row row = {
        .tokens = cases[i].tokens, .top_k = cases[i].top_k, .experts = cases[i].experts, .alpha = cases[i].alpha};
    hec_hardware_loads(&row, load);
    int64_t sum = 0;
    for (int64_t e = 0; e < row.experts; e++) {
      sum += load[e];
      ck_assert(load[e] >= 0 && load[e] <= row.tokens);
      ck_assert(e == 0 || load[e] <= load[e - 1] + 1);
    }
    ck_assert_int_eq(sum, row.tokens * row.top_k);
  }
}

static const struct {
  const char *from, *to, *error;
} hostile[] = {
    {"[\n", "{\"rows\": [\n", "expected"},
    {"\"id\": \"n0alll\"", "\"id\": 7", "[0].id: expected"},
    {"\"id\": \"n0alll\", \"group\"", "\"id\": \"n0alll\", \"grup\"", "[0]: expected a member \"group\""},
    {"\"what\": \"alltoall\"", "\"what\": \"broadcast\"", "[0].what: expected alltoall"},
    {"\"ranks\": 4, \"nodes\": 1", "\"ranks\": -4, \"nodes\": 1", "[0].ranks: expected an integer from 1"},
    {"\"ranks\": 4, \"nodes\": 1", "\"ranks\": 1, \"nodes\": 1", "[0].ranks: expected 2 ranks"},
    {"\"ranks\": 4, \"nodes\": 1", "\"ranks\": 5, \"nodes\": 1", "[0].ranks: expected ranks that fill"},
    {"\"ranks\": 4, \"nodes\": 2", "\"ranks\": 4, \"nodes\": 3", "ranks: expected a multiple of \"nodes\""},
    {"\"ranks\": 4, \"nodes\": 2", "\"ranks\": 2, \"nodes\": 2", "ranks: expected ranks that fill"},
    {"\"bytes\": 65536", "\"bytes\": 1e300", "[0].bytes: expected"},
    {"\"value\": ", "\"value\": -", "[0].value: expected"},
    {"\"unit\": \"ms\"", "\"unit\": \"TFLOP/s\"", "[0].unit: expected ms, us or s"},
    {"\"cluster\": \"1x4", "\"klaster\": \"1x4", "[0].hardware: expected a member \"cluster\""},
    {"\"cluster\": \"1x4", "\"cluster\": \"1x4 x", "[0]"},
    {"\"m\": 16", "\"m\": 1.5", "shape.m: expected an integer"},
    {"\"shape\": {\"m\"", "\"shape\": {\"o\"", "shape: expected a member \"m\""},
    {"\"balanced\"", "\"power_law_0.5\"", "shape.distribution: expected"},
    {"\"top_k\": 2, \"experts\": 4", "\"top_k\": 5, \"experts\": 4", "shape.top_k: expected an integer from 1 to 4"},
    {"}\n]", "}\n] x", "expected"},
};

HEC_TEST_ROWS(hostile_files_are_refused_by_name, hostile) {
  const char *file = mutated(hostile[_i].from, hostile[_i].to);
  ck_assert_int_eq(hec_hardware_run(file, &hardware), HEC_BAD_INPUT);
  if (!strstr(hec_last_error(), hostile[_i].error))
    ck_abort_msg("expected \"%s\" in \"%s\"", hostile[_i].error, hec_last_error());
  ck_assert(strstr(hec_last_error(), "hecate-hardware-") != NULL);
  (void)unlink(path);
  hec_hardware_free(&hardware);
}

/* What is required of the measurements of others, with its numbers. A change of a law or a preset that makes them worse is
 * to be seen here. */
HEC_TEST(measured_by_others) {
  const char *cases = hec_test_wants("validate.hardware/measured_by_others", "cases/hardware/a100_v100.json",
                                     "that link and GEMM laws are as accurate on A100 and V100 as the report says");
  if (!cases)
    return;
  run(cases);
  ck_assert_int_eq(hardware.n_rows, 61);
  ck_assert_int_eq(hardware.n_groups, 4);
  ck_assert_int_eq(hardware.n_lines, 7);
  for (int32_t i = 0; i < hardware.n_lines; i++)
    ck_assert_msg(hardware.lines[i].passed, "%s, %s: %g, %g", hardware.lines[i].group, hardware.lines[i].what,
                  hardware.lines[i].value[0], hardware.lines[i].value[1]);
  ck_assert(hardware.passed);
  ck_assert_int_eq(group_of("nccl_multi_node")->bounds, 7);
  ck_assert(group_of("nccl_single_node")->large_error[0].median < 0.12);
  ck_assert(group_of("nccl_multi_node")->large_error[1].median < 0.07);
  ck_assert(group_of("gemm")->large_error[0].median < 0.12);
  /* the law orders what size alone does not, most of all between nodes */
  for (int32_t g = 0; g < hardware.n_groups; g++)
    ck_assert(hardware.groups[g].size_tau[0] < hardware.groups[g].tau[0]);
  ck_assert(group_of("nccl_multi_node")->size_tau[0] < 0.6);
  hec_hardware_free(&hardware);
}

/* The verdict is formed from the rows. What is made up here has accepted rows between nodes and no exceeded bound.
 * With a law that is too slow a bound is exceeded. */
HEC_TEST(the_verdict_names_what_is_weak) {
  HEC_SCOPED(hec_text) text = {0};
  run(made_up());
  hec_hardware_verdict(&hardware, &text);
  ck_assert_ptr_nonnull(strstr(text.data, "**7 of 7 required bounds hold**"));
  ck_assert_ptr_nonnull(strstr(text.data, "H100, H200, H800 and GB200 have no measurement here at all"));
  ck_assert_ptr_null(strstr(text.data, "Shown failure"));
  hec_hardware_free(&hardware);
  hec_text_free(&text);
  run(mutated("nic=10G@5us", "nic=3G@5us"));
  hec_hardware_verdict(&hardware, &text);
  ck_assert_ptr_null(strstr(text.data, "7 of 7"));
  ck_assert_ptr_nonnull(strstr(text.data, "Shown failure: the law is above an upper bound in slow ("));
  (void)unlink(path);
  hec_hardware_free(&hardware);
}
