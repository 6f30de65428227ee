/* Prices measured rows with the laws of models/ and judges the result.
 *
 *   alltoall, all_gather,    one exchange of n (n - 1) messages of bytes / n (models/link_cost.h): who sends what to whom is
 *   reduce_scatter           the same in all three, and nccl-tests' size is a rank's whole buffer in all three
 *   all_reduce               hec_link_cost_allreduce: of a node of a GPU its law, else the ring
 *   GEMM m x n x k           hec_work_s of m rows, 2 n k FLOP a row, 2 n k bytes of weights (16-bit), alone: not as in a step
 *   fused MoE layer          of a GPU the grouped law; else two launches (gate and up, down), then
 *                            each expert's rows by the law without launches
 *
 * A collective costs what the law says: no kernel launch and no start of NCCL is added. So small messages come out too
 * fast on clusters that name no GPU; the required errors are of large ones. MoE rows count for the ranking, not for the error
 * of GEMMs.
 *
 * Rows whose notes call them slow are upper bounds of what the hardware takes: somebody asked why a cluster is slow. They
 * are neither hidden nor trusted: every required number is formed twice, over all rows and without those, and both must
 * hold. A bound that is below the prediction is marked, since there the law is too slow.
 *
 * Constants are the presets'. Those of a GPU's laws are fitted to tables that rows of a node and of GEMMs may be from. Between
 * nodes no source is one of the measured rows.
 * O(rows^2) for the rankings, O(ranks^2) for an exchange. */
#include "validate/hardware/hardware.h"

#include "models/compute_cost.h"
#include "models/link_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CLUSTERS_MAX = 64, FUSED_LAUNCHES = 2, WEIGHT_BYTES = 2 };

/* Which preset is the hardware of a row: the first whose text occurs in its name. */
static const struct {
  const char *text, *preset;
} known_hardware[] = {
    {"A100 PCIe", "pcie-box"},
    {"p4d.24xlarge", "p4d-24xlarge"},
    {"p3dn.24xlarge", "p3dn-24xlarge"},
    {"DGX-2", "dgx-2"},
    {"V100 nodes of 8, InfiniBand 100 Gb/s", "v100-1edr"},
    {"A100-SXM4-80GB", "a100-4hdr"},
    {"A100 SXM", "a100-4hdr"},
};
enum { N_KNOWN = sizeof known_hardware / sizeof *known_hardware };

/* Clusters by what they were loaded from. */
typedef struct {
  hec_arena *arena;
  int32_t n;
  const char *spec[CLUSTERS_MAX];
  hec_cluster cluster[CLUSTERS_MAX];
} clusters;

static const char *preset_of(const char *hardware) {
  for (int i = 0; i < N_KNOWN; i++)
    if (strstr(hardware, known_hardware[i].text))
      return known_hardware[i].preset;
  return NULL;
}

/* The reader's message, after where the description stands. */
static hec_status cluster_error(hec_status status, const char *file, const hec_hardware_row *row) {
  char why[512];
  (void)snprintf(why, sizeof why, "%s", hec_last_error());
  return hec_fail(status, "%s: [%d].cluster: %s", file, (int)row->index, why);
}

static hec_status cluster_of(clusters *known, const char *file, hec_hardware_row *row, const hec_cluster **cluster) {
  const char *spec = row->cluster[0] ? row->cluster : preset_of(row->hardware);
  if (!spec)
    return hec_fail(HEC_BAD_INPUT,
                    "%s: [%d].hardware: expected a member \"cluster\" or hardware that has a preset, found \"%.100s\"",
                    file, (int)row->index, row->hardware);
  row->cluster = spec;
  int32_t i = 0;
  while (i < known->n && strcmp(known->spec[i], spec) != 0)
    i++;
  if (i == CLUSTERS_MAX)
    return hec_fail(HEC_BAD_INPUT, "%s: [%d].cluster: expected at most %d different clusters in a file", file,
                    (int)row->index, CLUSTERS_MAX);
  if (i == known->n) {
    hec_status status = hec_cluster_load(spec, known->arena, &known->cluster[i]);
    if (status != HEC_OK)
      return cluster_error(status, file, row);
    known->spec[known->n++] = spec;
  }
  *cluster = &known->cluster[i];
  return HEC_OK;
}

/* ---- Predictions ---- */

static hec_status check_ranks(const char *file, const hec_hardware_row *row, const hec_cluster *c) {
  bool fits = row->nodes == 1
                  ? row->ranks <= c->devices_per_node
                  : row->nodes <= c->n_nodes && (int64_t)row->nodes * c->devices_per_node == (int64_t)row->ranks;
  if (fits)
    return HEC_OK;
  return hec_fail(
      HEC_BAD_INPUT, "%s: [%d].ranks: expected ranks that fill nodes of %s (%d nodes of %d), found %d on %d", file,
      (int)row->index, row->cluster, (int)c->n_nodes, (int)c->devices_per_node, (int)row->ranks, (int)row->nodes);
}

static double exchange_s(const hec_cluster *c, int32_t ranks, int64_t bytes, hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  hec_transfer *list = HEC_NEW(arena, hec_transfer, (size_t)ranks * (size_t)(ranks - 1));
  int32_t n = 0;
  for (int32_t s = 0; s < ranks; s++)
    for (int32_t d = 0; d < ranks; d++)
      if (s != d)
        list[n++] = (hec_transfer){.bytes = bytes, .source = s, .destination = d, .item = -1, .after = -1};
  hec_link_cost cost = hec_link_cost_new(c, arena);
  double seconds = hec_link_cost_exchange(&cost, list, n, false, 1);
  hec_link_cost_free(&cost);
  hec_arena_rewind(arena, mark);
  return seconds;
}

static double gemm_s(const hec_device *device, const hec_hardware_row *row) {
  double weights = (double)row->n * (double)row->k;
  hec_work_shape shape = {.kind = HEC_CURVE_NONE,
                          .flops_per_row = 2 * weights,
                          .weight_bytes = WEIGHT_BYTES * weights,
                          .n_gemms = 1,
                          .dims = {.part = HEC_WORK_GEMM,
                                   .hidden = (int32_t)row->k,
                                   .inter = (int32_t)row->n,
                                   .dtype_bytes = WEIGHT_BYTES,
                                   .times = 1}};
  return hec_work_s(device, &shape, (double)row->m) / device->in_step;
}

static void spread_evenly(const hec_hardware_row *row, int64_t *load) {
  int64_t sum = row->tokens * row->top_k;
  for (int64_t e = 0; e < row->experts; e++)
    load[e] = sum / row->experts + (e < sum % row->experts);
}

/* Whole tokens that add up: what is missing goes to the hottest in turn, what is too much is taken from the coldest. No
 * expert has a token twice: what is above `tokens` goes to the next. */
static void settle(const hec_hardware_row *row, int64_t *load) {
  int64_t missing = row->tokens * row->top_k, carried = 0;
  for (int64_t e = 0; e < row->experts; e++)
    missing -= load[e];
  for (int64_t i = 0; missing > 0; i++, missing--)
    load[i % row->experts]++;
  for (int64_t i = 0; missing < 0; i++) {
    int64_t coldest = row->experts - 1 - i % row->experts, taken = load[coldest] > 0;
    load[coldest] -= taken;
    missing += taken;
  }
  for (int64_t e = 0; e < row->experts; e++) {
    load[e] += carried;
    carried = load[e] > row->tokens ? load[e] - row->tokens : 0;
    load[e] -= carried;
  }
  HEC_ASSERT(carried == 0);
}

void hec_hardware_loads(const hec_hardware_row *row, int64_t *load) {
  if (row->alpha == 0) {
    spread_evenly(row, load);
    return;
  }
  bool few = row->tokens * row->top_k <= row->experts;
  double power = 1 - row->alpha, min = few ? 0.01 : 1, max = few ? 2 : 0.8 * (double)row->tokens;
  double low = pow(min, power), high = pow(max, power), sum = 0;
  for (int64_t e = 0; e < row->experts; e++)
    sum += pow(low + (high - low) * (1 - ((double)e + 0.5) / (double)row->experts), 1 / power);
  for (int64_t e = 0; e < row->experts; e++) {
    double share = pow(low + (high - low) * (1 - ((double)e + 0.5) / (double)row->experts), 1 / power) / sum;
    load[e] = (int64_t)(share * (double)(row->tokens * row->top_k) + 0.5);
  }
  settle(row, load);
}

/* One fused kernel for all experts: the grouped law, whatever training would run instead. */
static double gpu_moe_s(const hec_device *device, const hec_hardware_row *row, const int64_t *load) {
  const hec_gpu_laws *laws = device->gpu;
  const hec_grouped_work work = {.load = hec_grouped_load_of(load, (int32_t)row->experts),
                                 .hidden = row->hidden,
                                 .inter = row->ffn,
                                 .tokens = row->tokens,
                                 .top_k = row->top_k,
                                 .gated = true,
                                 .precision = HEC_LAW_BF16};
  return hec_law_fit_s(&laws->gpu, laws->grouped[HEC_LAW_BF16], &work);
}

static double moe_s(const hec_device *device, const hec_hardware_row *row, hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  hec_moe moe = {
      .d_model = (int32_t)row->hidden, .d_ffn = (int32_t)row->ffn, .n_ffn_matrices = 3, .dtype_bytes = WEIGHT_BYTES};
  hec_work_shape shape = hec_work_expert(&moe);
  shape.n_gemms = 0; /* one kernel for all experts */
  int64_t *load = HEC_NEW(arena, int64_t, row->experts);
  hec_hardware_loads(row, load);
  double seconds = device->gpu ? gpu_moe_s(device, row, load) : FUSED_LAUNCHES * device->gemm_a_s;
  for (int64_t e = 0; e < row->experts && !device->gpu; e++)
    seconds += hec_work_s(device, &shape, (double)load[e]);
  hec_arena_rewind(arena, mark);
  return seconds;
}

static hec_status predict(const char *file, const hec_cluster *cluster, hec_hardware_row *row, hec_arena *scratch) {
  if (row->kind == HEC_HARDWARE_GEMM) {
    row->predicted_s = gemm_s(&cluster->devices[0], row);
    return HEC_OK;
  }
  if (row->kind == HEC_HARDWARE_MOE) {
    row->predicted_s = moe_s(&cluster->devices[0], row, scratch);
    return HEC_OK;
  }
  HEC_TRY(check_ranks(file, row, cluster));
  row->predicted_s = row->kind == HEC_HARDWARE_ALL_REDUCE
                         ? hec_link_cost_allreduce(cluster, row->ranks, (double)row->bytes)
                         : exchange_s(cluster, row->ranks, row->bytes / row->ranks, scratch);
  return HEC_OK;
}

/* ---- Judgement ---- */

/* The rows of a group, by what is asked of them. */
typedef struct {
  int32_t n;
  double *predicted, *measured, *size;
} chosen;

static chosen choose(const hec_hardware *h, const char *group, bool bounds, bool only_large, hec_arena *scratch) {
  chosen c = {0, HEC_NEW(scratch, double, h->n_rows), HEC_NEW(scratch, double, h->n_rows),
              HEC_NEW(scratch, double, h->n_rows)};
  for (int32_t i = 0; i < h->n_rows; i++) {
    const hec_hardware_row *row = &h->rows[i];
    if (strcmp(row->group, group) != 0 || (row->bound && !bounds) || (only_large && !row->large))
      continue;
    c.predicted[c.n] = row->predicted_s;
    c.size[c.n] = row->bytes > 0 ? (double)row->bytes : row->flops;
    c.measured[c.n++] = row->measured_s;
  }
  return c;
}

static void judge_group(const hec_hardware *h, hec_hardware_group *group, hec_arena *scratch) {
  for (int k = 0; k < 2; k++) {
    hec_arena_mark mark = hec_arena_save(scratch);
    chosen all = choose(h, group->name, k == 0, false, scratch), large = choose(h, group->name, k == 0, true, scratch);
    group->tau[k] = hec_kendall_tau(all.predicted, all.measured, all.n);
    group->size_tau[k] = hec_kendall_tau(all.size, all.measured, all.n);
    group->error[k] = all.n > 0 ? hec_error_of(all.predicted, all.measured, all.n) : (hec_error){0};
    group->large_error[k] = large.n > 0 ? hec_error_of(large.predicted, large.measured, large.n) : (hec_error){0};
    hec_arena_rewind(scratch, mark);
  }
}

static void find_groups(hec_hardware *h) {
  h->groups = HEC_NEW(&h->arena, hec_hardware_group, h->n_rows);
  for (int32_t i = 0; i < h->n_rows; i++) {
    const hec_hardware_row *row = &h->rows[i];
    int32_t g = 0;
    while (g < h->n_groups && strcmp(h->groups[g].name, row->group) != 0)
      g++;
    h->n_groups = g == h->n_groups ? g + 1 : h->n_groups;
    hec_hardware_group *group = &h->groups[g];
    group->name = row->group;
    group->rows++;
    group->bounds += row->bound;
    group->larges += row->large;
  }
}

static void require(hec_hardware *h, hec_hardware_line line) {
  line.passed = true;
  for (int k = 0; k < 2; k++)
    line.passed = line.passed && (line.at_least ? line.value[k] >= line.limit : line.value[k] <= line.limit);
  h->passed = h->passed && line.passed;
  h->lines[h->n_lines++] = line;
}

static void judge(hec_hardware *h, hec_arena *scratch) {
  find_groups(h);
  h->lines = HEC_NEW(&h->arena, hec_hardware_line, 2 * (size_t)h->n_groups);
  h->passed = true;
  for (int32_t g = 0; g < h->n_groups; g++)
    judge_group(h, &h->groups[g], scratch);
  for (int32_t g = 0; g < h->n_groups; g++) {
    const hec_hardware_group *group = &h->groups[g];
    bool only_bounds = group->large_error[1].n == 0;
    require(h, (hec_hardware_line){.group = group->name,
                                   .what = "Kendall tau",
                                   .rows = group->rows,
                                   .value = {group->tau[0], group->tau[1]},
                                   .size = {group->size_tau[0], group->size_tau[1]},
                                   .limit = HEC_HARDWARE_TAU,
                                   .at_least = true});
    if (group->larges > 0)
      require(h, (hec_hardware_line){
                     .group = group->name,
                     .what = "median error of large rows",
                     .rows = group->larges,
                     .value = {group->large_error[0].median, group->large_error[only_bounds ? 0 : 1].median},
                     .limit = HEC_HARDWARE_ERROR});
  }
}

static hec_status price(hec_hardware *h, hec_arena *scratch) {
  clusters *known = HEC_NEW(scratch, clusters, 1);
  HEC_SCOPED(hec_arena) room = {0};
  known->arena = scratch;
  for (int32_t i = 0; i < h->n_rows; i++) {
    const hec_cluster *cluster = NULL;
    HEC_TRY(cluster_of(known, h->file, &h->rows[i], &cluster));
    HEC_TRY(predict(h->file, cluster, &h->rows[i], &room));
  }
  return HEC_OK;
}

hec_status hec_hardware_run(const char *path, hec_hardware *hardware) {
  HEC_SCOPED(hec_arena) scratch = {0};
  HEC_TRY(hec_hardware_read(path, hardware));
  HEC_TRY(price(hardware, &scratch));
  judge(hardware, &scratch);
  return HEC_OK;
}

void hec_hardware_free(hec_hardware *hardware) {
  hec_arena_free(&hardware->arena);
  *hardware = (hec_hardware){0};
}
