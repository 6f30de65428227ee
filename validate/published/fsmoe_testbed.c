/* What the file's lines are over, and where they are from. Testbed A (6 nodes of 8 A6000, NVLink, 200 Gb/s) has the artifact's
 * constants (tools/optim.py). The paper's caption has the three betas of its collectives rotated: only the artifact's order suits
 * a 200 Gb/s network. With 2 and 4 nodes a2a and reduce have the artifact's betas; the starts are known for 6 only and kept.
 * Testbed B (8 nodes of 4 RTX 2080 Ti, PCIe, 100 Gb/s) has the caption's.
 *
 *   volumes     a2a f*B*L*M/G; gather, scatter f*B*L*M; experts f*B*L*M*H/G     G ranks a node; elements
 *   experts     A: the artifact's lines, which hold the number of products. B: the caption's line of one product, times 2
 *               or 3, and twice that backward (the paper's rule)
 *   attention   A: the artifact's lines over ops = 6BLM^2/G + 4BL^2M/G + 2BLM^2/G (the .75, .5 and .25 it has are these at
 *               G = 8), forward; the line of L = 1024 also for 2048, of which there is none (inferred). B: nothing was
 *               published but Table 2: the line through its two rows, over the same ops with G = 4 (inferred). Backward
 *               twice, as Table 2 has it within 10 %
 *               Table 2 of A gives a second line; it is 2.5 to 5 times below the artifact's. Both are kept: `table`
 *   gradients   dense ones only, experts live once: 3M^2/G with simple experts, 2.5M^2/G with Mixtral's. These give
 *               Table 2's all-reduces to 0.1 %, the artifact's own formula (4M^2/G) does not
 *   f           the grid's third value, "*", is "no drop": every token to its two experts, f = 2 (inferred: balanced) */
#include "validate/published/fsmoe_testbed.h"

#include "validate/published/scope.h"

#include <stdio.h>

/* Table 2's attention, forward, of GPT2-XL (M 1600) and Mixtral (M 4096), B 4, L 1024: ops at G = 8 and twice at G = 4. */
#define OPS_GPT (4096.0 * 1600 * (1600 + 512))
#define OPS_MIXTRAL (4096.0 * 4096 * (4096 + 512))
enum { TABLE_NODE = 8, GRID_MAX = 2048 };

hec_status hec_fsmoe_open_testbed(hec_scope *scope, const hec_setup *setup) {
  const hec_json_value *testbed = hec_scope_named(scope, "sets", setup->testbed ? setup->testbed : "");
  if (!testbed || setup->moe.n_layers < 1)
    return hec_json_error(scope->file->json, scope->open[scope->n - 1], "a testbed of \"sets\", and layers");
  hec_scope_push(scope, testbed);
  return HEC_OK;
}

static hec_status read_pair(const hec_scope *scope, const char *key, double pair[2]) {
  const hec_json *json = scope->file->json;
  const hec_json_value *both = hec_scope_find(scope, key);
  if (!both || !hec_json_is_array(both) || hec_json_length(both) != 2)
    return hec_json_error(json, both ? both : hec_json_root(json), "a testbed with its lines, two numbers each");
  HEC_TRY(hec_expression(json, hec_json_first(both), NULL, NULL, &pair[0]));
  return hec_expression(json, hec_json_next(hec_json_first(both)), NULL, NULL, &pair[1]);
}

static hec_status read_op(const hec_scope *scope, const char *key, double size, hec_fsmoe_op *op) {
  double line[2];
  HEC_TRY(read_pair(scope, key, line));
  *op = (hec_fsmoe_op){line[0], line[1] * size};
  return HEC_OK;
}

static hec_status read_attention(const hec_scope *scope, const hec_setup *setup, double ranks, double ops, double *ms) {
  char own[32];
  hec_fsmoe_op op;
  double table[2];
  (void)snprintf(own, sizeof own, "attention_%d", setup->length);
  const char *key = hec_scope_find(scope, own) ? own : "attention";
  if (!setup->attention_table && hec_scope_find(scope, key)) {
    HEC_TRY(read_op(scope, key, ops, &op));
  } else {
    HEC_TRY(read_pair(scope, "table", table));
    double rise = table[1] - table[0], scale = TABLE_NODE / ranks;
    op = (hec_fsmoe_op){table[0] - rise / (OPS_MIXTRAL - OPS_GPT) * OPS_GPT,
                        rise / ((OPS_MIXTRAL - OPS_GPT) * scale) * ops};
  }
  *ms = op.start + op.volume;
  return HEC_OK;
}

hec_status hec_fsmoe_study(const hec_scope *scope, const hec_setup *setup, hec_fsmoe_case_study *study) {
  static const char *const experts[2][2] = {{"simple", "simple_backward"}, {"mixtral", "mixtral_backward"}};
  double ranks = 1, reduce[2], attention, m = setup->moe.d_model, tokens = (double)setup->batch * setup->length;
  HEC_TRY(hec_scope_number(scope, "per_node", 1, 1e6, &ranks));
  double all = setup->factor * tokens * m, share = all / ranks;
  double ops = tokens * m * (8 * m + 4 * (double)setup->length) / ranks;
  bool mixtral = setup->moe.n_ffn_matrices != 2;
  HEC_TRY(read_pair(scope, "reduce", reduce));
  HEC_TRY(read_attention(scope, setup, ranks, ops, &attention));
  *study = (hec_fsmoe_case_study){.dense = {attention, 2 * attention},
                                  .gradient = (mixtral ? 2.5 : 3) * m * m / ranks,
                                  .reduce = {reduce[0], reduce[1]}};
  for (int32_t backward = 0; backward < 2; backward++) {
    hec_fsmoe_layer *layer = &study->moe[backward];
    HEC_TRY(read_op(scope, "a2a", share, &layer->a2a));
    HEC_TRY(read_op(scope, "gather", all, &layer->gather));
    HEC_TRY(read_op(scope, "scatter", all, &layer->scatter));
    HEC_TRY(read_op(scope, experts[mixtral][backward], share * setup->moe.d_ffn, &layer->experts));
  }
  return HEC_OK;
}

/* ---- the grid ---- */

typedef struct {
  const hec_setup *base;
  hec_fsmoe_grid *grid;
} reader;

static hec_status add_layer(hec_scope *scope, void *context) {
  reader *r = context;
  hec_setup setup;
  if (r->grid->n == GRID_MAX)
    return hec_json_error(scope->file->json, hec_scope_find(scope, "grid"), "at most 2048 layers");
  HEC_TRY(hec_setup_read(scope, r->base, &setup));
  return hec_fsmoe_study(scope, &setup, &r->grid->study[r->grid->n++]);
}

hec_status hec_fsmoe_grid_read(hec_scope *scope, const hec_setup *base, hec_arena *arena, hec_fsmoe_grid *grid) {
  *grid = (hec_fsmoe_grid){.study = HEC_NEW(arena, hec_fsmoe_case_study, GRID_MAX)};
  return hec_measure_each(scope, "grid", add_layer, &(reader){base, grid});
}

hec_status hec_fsmoe_grid_of(const char *testbed, hec_arena *arena, hec_fsmoe_grid *grid) {
  hec_system_file file;
  hec_setup setup = hec_setup_default();
  setup.testbed = testbed;
  setup.moe.n_layers = 1;
  HEC_TRY(hec_system_open(&(hec_system){.name = "fsmoe"}, &file));
  hec_scope scope = hec_scope_of(&file, false);
  hec_status status = hec_fsmoe_open_testbed(&scope, &setup);
  if (status == HEC_OK)
    status = hec_fsmoe_grid_read(&scope, &setup, arena, grid);
  hec_system_close(&file);
  return status;
}
