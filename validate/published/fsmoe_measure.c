/* FSMoE's rows (systems/fsmoe.json): times are walks of programs on its two testbeds (fsmoe_testbed.h, fsmoe_program.h), degrees
 * and gradients are the planner's, Tutel's degree is tried. Three measures:
 *
 *   fsmoe-grid       SYSTEM: Tutel's time over the system's, mean of the 1,458 layers; two_degrees: how many of 1,458 have
 *                    another degree backward than forward
 *   fsmoe-model      SYSTEM: milliseconds of `layers` layers of the set-up's shape
 *   fsmoe-operation  a2a, all_reduce, gather, scatter, experts, experts_backward, attention: milliseconds by the testbed's law */
#include "validate/published/fsmoe_grid.h"
#include "validate/published/measure.h"

#include <string.h>

enum { QUICK_STRIDE = 83 };

static const char *const system_names[] = {"deepspeed", "tutel", "tutel_improved", "lina",
                                           "no_iio",    "fsmoe", "two_degrees",    NULL};
static const char *const operation_names[] = {"a2a",     "all_reduce",       "gather",    "scatter",
                                              "experts", "experts_backward", "attention", NULL};
_Static_assert((int)HEC_N_FSMOE_SYSTEMS < (int)HEC_CELL_NUMBERS, "two_degrees is behind the systems");

typedef struct {
  hec_setup setup;
  hec_fsmoe_testbed testbed;
  double *number; /* [HEC_LAB_NUMBERS] kept under the set-up */
  bool is_new;
} request;

static hec_status open_request(hec_cell_cache *cache, hec_scope *scope, request *r) {
  HEC_TRY(hec_setup_read(scope, &hec_cell_cache_options_of(cache)->base, &r->setup));
  const char *name = r->setup.testbed ? r->setup.testbed : "";
  bool is_a = strcmp(name, "A") == 0;
  if ((!is_a && strcmp(name, "B") != 0) || r->setup.moe.n_layers < 1)
    return hec_json_error(scope->file->json, scope->open[scope->n - 1], "a testbed, A or B, and layers");
  r->testbed = is_a ? hec_fsmoe_testbed_a_of(r->setup.nodes > 0 ? r->setup.nodes : 6) : hec_fsmoe_testbed_b;
  hec_text key = {0};
  hec_text_printf(&key, "%s|", hec_scope_text(scope, "measure"));
  hec_setup_key(&r->setup, false, &key);
  r->number = hec_cell_cache_numbers(cache, key.data, &r->is_new);
  hec_text_free(&key);
  return HEC_OK;
}

static hec_status answer(const request *r, const hec_scope *scope, const char *const *names, const char *run,
                         const char *field, double *out) {
  for (int32_t i = 0; names[i] && !*run; i++)
    if (strcmp(names[i], field) == 0) {
      *out = r->number[i];
      return HEC_OK;
    }
  return hec_measure_no_such(scope, run, field);
}

static hec_fsmoe_case_study study_of(const request *r) {
  const hec_moe *moe = &r->setup.moe;
  const hec_fsmoe_shape shape = {.batch = r->setup.batch,
                                 .heads = moe->n_heads,
                                 .length = r->setup.length,
                                 .d_model = moe->d_model,
                                 .d_ffn = moe->d_ffn,
                                 .factor = r->setup.factor,
                                 .ffn = moe->n_ffn_matrices == 2 ? HEC_FSMOE_SIMPLE : HEC_FSMOE_MIXTRAL};
  return hec_fsmoe_study(&r->testbed, &shape, false);
}

hec_status hec_measure_fsmoe_grid(hec_cell_cache *cache, hec_scope *scope, const char *run, const char *field,
                                  double *out) {
  request r;
  HEC_TRY(open_request(cache, scope, &r));
  if (r.is_new) {
    hec_fsmoe_grid_options options = {
        .layers = r.setup.moe.n_layers, .stride = scope->quick ? QUICK_STRIDE : 1, .table = r.setup.attention_table};
    hec_fsmoe_grid_result grid = hec_fsmoe_grid(&r.testbed, options);
    memcpy(r.number, grid.mean, sizeof grid.mean);
    r.number[HEC_N_FSMOE_SYSTEMS] = grid.two_degrees * ((double)HEC_FSMOE_GRID / grid.n);
  }
  return answer(&r, scope, system_names, run, field, out);
}

hec_status hec_measure_fsmoe_model(hec_cell_cache *cache, hec_scope *scope, const char *run, const char *field,
                                   double *out) {
  request r;
  HEC_TRY(open_request(cache, scope, &r));
  if (r.is_new) {
    hec_fsmoe_case_study study = study_of(&r);
    hec_fsmoe_bench *bench = hec_fsmoe_bench_new(r.setup.moe.n_layers);
    for (int32_t s = 0; s < HEC_N_FSMOE_SYSTEMS; s++)
      r.number[s] = hec_fsmoe_bench_ms(bench, &study, (hec_fsmoe_system)s);
    hec_fsmoe_bench_free(bench);
  }
  return answer(&r, scope, system_names, run, field, out);
}

hec_status hec_measure_fsmoe_operation(hec_cell_cache *cache, hec_scope *scope, const char *run, const char *field,
                                       double *out) {
  request r;
  HEC_TRY(open_request(cache, scope, &r));
  hec_fsmoe_case_study s = study_of(&r);
  const hec_fsmoe_layer *forward = &s.moe[0];
  const double ms[] = {hec_fsmoe_chunk(forward->a2a, 1),
                       s.reduce.start + s.gradient * s.reduce.per_unit,
                       hec_fsmoe_chunk(forward->gather, 1),
                       hec_fsmoe_chunk(forward->scatter, 1),
                       hec_fsmoe_chunk(forward->experts, 1),
                       hec_fsmoe_chunk(s.moe[1].experts, 1),
                       s.dense[0]};
  memcpy(r.number, ms, sizeof ms);
  return answer(&r, scope, operation_names, run, field, out);
}
