/* FSMoE's rows (systems/fsmoe.json): times are walks of programs on its two testbeds (fsmoe_testbed.h, fsmoe_program.h), degrees
 * and gradients are the planner's, Tutel's degree is tried. Three measures:
 *
 *   fsmoe-grid       SYSTEM: Tutel's time over the system's, mean of the 1,458 layers; two_degrees: how many of 1,458 have
 *                    another degree backward than forward
 *   fsmoe-model      SYSTEM: milliseconds of `layers` layers of the set-up's shape
 *   fsmoe-operation  a2a, all_reduce, gather, scatter, experts, experts_backward, attention: milliseconds by the testbed's law */
#include "validate/published/fsmoe_program.h"
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
  double *number; /* [HEC_CELL_NUMBERS] kept under the set-up */
  bool is_new;
} request;

/* Opens the testbed; its caller closes it. */
static hec_status open_request(hec_cell_cache *cache, hec_scope *scope, request *r) {
  HEC_TRY(hec_setup_read(scope, &hec_cell_cache_options_of(cache)->base, &r->setup));
  const char *measure = hec_scope_text(scope, "measure");
  HEC_TRY(hec_fsmoe_open_testbed(scope, &r->setup));
  HEC_SCOPED(hec_text) key = {0};
  hec_text_printf(&key, "%s|", measure);
  hec_setup_key(&r->setup, false, &key);
  r->number = hec_cell_cache_numbers(cache, key.data, &r->is_new);
  return HEC_OK;
}

static void compare_systems(const hec_fsmoe_grid *grid, int32_t layers, int32_t stride, double *number) {
  HEC_OPENED(hec_fsmoe_bench) *bench = hec_fsmoe_bench_new(layers);
  int32_t n = 0, two_degrees = 0;
  for (int32_t i = 0; i < grid->n; i += stride, n++) {
    const hec_fsmoe_case_study *study = &grid->study[i];
    double ms[HEC_N_FSMOE_SYSTEMS];
    for (int32_t s = 0; s < HEC_N_FSMOE_SYSTEMS; s++)
      ms[s] = hec_fsmoe_bench_ms(bench, study, (hec_fsmoe_system)s);
    for (int32_t s = 0; s < HEC_N_FSMOE_SYSTEMS; s++)
      number[s] += ms[HEC_FSMOE_TUTEL] / ms[s];
    two_degrees += hec_fsmoe_best(&study->moe[0], 0, HEC_FSMOE_DEGREE_MAX).degree !=
                   hec_fsmoe_best(&study->moe[1], 0, HEC_FSMOE_DEGREE_MAX).degree;
  }
  for (int32_t s = 0; s < HEC_N_FSMOE_SYSTEMS; s++)
    number[s] /= n;
  number[HEC_N_FSMOE_SYSTEMS] = two_degrees * ((double)grid->n / n);
}

static hec_status fill_grid(hec_scope *scope, request *r) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_fsmoe_grid grid;
  HEC_TRY(hec_fsmoe_grid_read(scope, &r->setup, &arena, &grid));
  compare_systems(&grid, r->setup.moe.n_layers, scope->quick ? QUICK_STRIDE : 1, r->number);
  return HEC_OK;
}

static hec_status fill_model(hec_scope *scope, request *r) {
  hec_fsmoe_case_study study;
  HEC_TRY(hec_fsmoe_study(scope, &r->setup, &study));
  HEC_OPENED(hec_fsmoe_bench) *bench = hec_fsmoe_bench_new(r->setup.moe.n_layers);
  for (int32_t s = 0; s < HEC_N_FSMOE_SYSTEMS; s++)
    r->number[s] = hec_fsmoe_bench_ms(bench, &study, (hec_fsmoe_system)s);
  return HEC_OK;
}

static hec_status fill_operation(hec_scope *scope, request *r) {
  hec_fsmoe_case_study s;
  HEC_TRY(hec_fsmoe_study(scope, &r->setup, &s));
  const hec_fsmoe_layer *forward = &s.moe[0];
  const double ms[] = {hec_fsmoe_chunk(forward->a2a, 1),
                       s.reduce.start + s.gradient * s.reduce.per_unit,
                       hec_fsmoe_chunk(forward->gather, 1),
                       hec_fsmoe_chunk(forward->scatter, 1),
                       hec_fsmoe_chunk(forward->experts, 1),
                       hec_fsmoe_chunk(s.moe[1].experts, 1),
                       s.dense[0]};
  memcpy(r->number, ms, sizeof ms);
  return HEC_OK;
}

static hec_status answer(hec_cell_cache *cache, hec_scope *scope, hec_status (*fill)(hec_scope *scope, request *r),
                         const char *const *names, const char *run, const char *field, double *out) {
  int32_t i = 0;
  request r;
  while (names[i] && strcmp(names[i], field) != 0)
    i++;
  if (!names[i] || *run)
    return hec_measure_no_such(scope, run, field);
  HEC_TRY(open_request(cache, scope, &r));
  hec_status status = r.is_new ? fill(scope, &r) : HEC_OK;
  hec_scope_pop(scope);
  *out = r.number[i];
  return status;
}

hec_status hec_measure_fsmoe_grid(hec_cell_cache *cache, hec_scope *scope, const char *run, const char *field,
                                  double *out) {
  return answer(cache, scope, fill_grid, system_names, run, field, out);
}

hec_status hec_measure_fsmoe_model(hec_cell_cache *cache, hec_scope *scope, const char *run, const char *field,
                                   double *out) {
  return answer(cache, scope, fill_model, system_names, run, field, out);
}

hec_status hec_measure_fsmoe_operation(hec_cell_cache *cache, hec_scope *scope, const char *run, const char *field,
                                       double *out) {
  return answer(cache, scope, fill_operation, operation_names, run, field, out);
}
