/* Values are collected in the order of the axes, the last one fastest; what was varied is the outermost. */
#include "validate/published/measure.h"

#include "runtime/plan/policy.h"
#include "validate/published/scope.h"
#include "validate/stats.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { VALUES_MAX = 128, AXES_MAX = 6 };

/* ---- the fields of a cell ---- */

static double layers_of(const hec_setup_cell *cell, const hec_setup *setup) {
  double sum = 0;
  for (int32_t l = 0; l < cell->n_layers; l++)
    sum += setup->forward ? cell->forward_s[l] : cell->layer_s[l];
  return sum;
}

static double layer_of(const hec_setup_cell *cell, const hec_setup *setup) {
  return setup->layer >= 0 && setup->layer < cell->n_layers ? cell->layer_s[setup->layer] : NAN;
}

static double n_layers_of(const hec_setup_cell *cell, const hec_setup *setup) {
  (void)setup;
  return cell->n_layers;
}

/* An iteration that moves experts over one that does not. */
static double moving_of(const hec_setup_cell *cell, const hec_setup *setup) {
  (void)setup;
  double moving = (cell->iteration_s - cell->ordinary_s) * cell->n_reported;
  return cell->n_migrations > 0 ? 1 + moving / cell->n_migrations / cell->ordinary_s : 1;
}

static const struct {
  const char *name;
  size_t at;
  double (*of)(const hec_setup_cell *cell, const hec_setup *setup); /* NULL: the number at `at` */
} fields[] = {
    {"iteration", offsetof(hec_setup_cell, iteration_s), NULL},
    {"ordinary", offsetof(hec_setup_cell, ordinary_s), NULL},
    {"token", offsetof(hec_setup_cell, token_s), NULL},
    {"sparse", offsetof(hec_setup_cell, sparse_s), NULL},
    {"rearrange", offsetof(hec_setup_cell, rearrange_s), NULL},
    {"gather", offsetof(hec_setup_cell, gather_s), NULL},
    {"plan", offsetof(hec_setup_cell, plan_s), NULL},
    {"dispatch", offsetof(hec_setup_cell, dispatch_s), NULL},
    {"overload", offsetof(hec_setup_cell, overload), NULL},
    {"copies", offsetof(hec_setup_cell, copies), NULL},
    {"dropped", offsetof(hec_setup_cell, dropped), NULL},
    {"params", offsetof(hec_setup_cell, param_bytes), NULL},
    {"state", offsetof(hec_setup_cell, state_bytes), NULL},
    {"layers", 0, layers_of}, /* seconds of all MoE layers, of a forward run forward */
    {"layer", 0, layer_of},   /* of the set-up's one */
    {"n_layers", 0, n_layers_of},
    {"moving", 0, moving_of},
};

hec_status hec_measure_no_such(const hec_scope *scope, const char *run, const char *field) {
  HEC_SCOPED(hec_text) expected = {0};
  hec_text_printf(&expected, "known policies and fields (validate/published/measure.c lists them; \"%s%s%s\" is none)",
                  run, *run ? "." : "", field);
  return hec_json_error(scope->file->json, hec_scope_find(scope, "value"), expected.data);
}

hec_status hec_measure_cell(hec_cell_cache *cache, hec_scope *scope, const char *run, const hec_setup_cell **cell,
                            hec_setup *setup) {
  const hec_json_value *changes = hec_scope_named(scope, "runs", run);
  if (changes)
    hec_scope_push(scope, changes);
  const char *name = changes && hec_json_get(changes, "policy") ? hec_scope_text(scope, "policy") : run;
  const hec_policy *policy = hec_policy_find(name ? name : "");
  hec_status status = hec_setup_read(scope, &hec_cell_cache_options_of(cache)->base, setup);
  if (changes)
    hec_scope_pop(scope);
  HEC_TRY(status);
  if (!policy)
    return hec_measure_no_such(scope, run, "policy");
  if (!setup->cluster || !setup->moe.n_experts)
    return hec_json_error(scope->file->json, scope->open[scope->n - 1], "a cluster and a model, here or further out");
  setup->policy = policy->name; /* `run` may go */
  return hec_cell_cache_get(cache, setup, cell);
}

static hec_status simulated(hec_cell_cache *cache, hec_scope *scope, const char *run, const char *field, double *out) {
  const hec_setup_cell *cell;
  hec_setup setup;
  size_t i = 0, n = sizeof fields / sizeof *fields;
  while (i < n && strcmp(fields[i].name, field) != 0)
    i++;
  if (i == n || !*run)
    return hec_measure_no_such(scope, run, field);
  HEC_TRY(hec_measure_cell(cache, scope, run, &cell, &setup));
  *out = NAN;
  if (cell)
    *out = fields[i].of ? fields[i].of(cell, &setup) : *(const double *)((const char *)cell + fields[i].at);
  return HEC_OK;
}

static const struct {
  const char *name;
  hec_measure *measure;
} measures[] = {{"simulated", simulated},
                {"fsmoe-grid", hec_measure_fsmoe_grid},
                {"fsmoe-model", hec_measure_fsmoe_model},
                {"fsmoe-operation", hec_measure_fsmoe_operation}};
enum { N_MEASURES = sizeof measures / sizeof *measures };

/* ---- axes ---- */

typedef struct {
  const hec_json_value *axis[AXES_MAX];
  int32_t n;
} axes;

static hec_status add_axes(const hec_scope *scope, const char *key, axes *all) {
  const hec_json_value *list = hec_scope_find(scope, key);
  for (const hec_json_value *v = list ? hec_json_first(list) : NULL; v; v = hec_json_next(v)) {
    const hec_json_value *axis = hec_json_is_string(v) ? hec_scope_named(scope, "axes", hec_json_text(v)) : v;
    if (!axis || !hec_json_is_array(axis) || all->n == AXES_MAX)
      return hec_json_error(scope->file->json, v, "an array of objects, or the name of one in \"axes\"");
    all->axis[all->n++] = axis;
  }
  return HEC_OK;
}

typedef hec_status visit(hec_scope *scope, bool first, void *context);

/* `first`: in none of the first n_vary axes another object than the first. */
static hec_status walk(hec_scope *scope, const axes *all, int32_t k, int32_t n_vary, bool first, visit *each,
                       void *context) {
  if (k == all->n)
    return each(scope, first, context);
  const hec_json_value *begin = hec_json_first(all->axis[k]);
  for (const hec_json_value *v = begin; v; v = hec_json_next(v)) {
    bool slow = false;
    HEC_TRY(hec_json_bool_or(scope->file->json, v, "slow", false, &slow));
    if (slow && scope->quick)
      continue;
    hec_scope_push(scope, v);
    hec_status status = walk(scope, all, k + 1, n_vary, first && (k >= n_vary || v == begin), each, context);
    hec_scope_pop(scope);
    HEC_TRY(status);
  }
  return HEC_OK;
}

typedef struct {
  hec_status (*each)(hec_scope *scope, void *context);
  void *context;
} forward_to;

static hec_status call(hec_scope *scope, bool first, void *context) {
  (void)first;
  const forward_to *to = context;
  return to->each(scope, to->context);
}

hec_status hec_measure_each(hec_scope *scope, const char *key, hec_status (*each)(hec_scope *scope, void *context),
                            void *context) {
  axes all = {.n = 0};
  forward_to to = {each, context};
  HEC_TRY(add_axes(scope, key, &all));
  return walk(scope, &all, 0, 0, true, call, &to);
}

/* ---- values ---- */

typedef struct {
  hec_cell_cache *cache;
  hec_scope *scope;
  hec_measure *measure;
  const hec_json_value *formula;
  const char *absent;
  double own[VALUES_MAX], all[VALUES_MAX];
  int32_t n_own, n_all;
} collector;

static hec_status name_of(void *context, const char *run, const char *field, double *out) {
  collector *c = context;
  return c->measure(c->cache, c->scope, run, field, out);
}

/* Is the object that is innermost open left out where its data are absent? A record beyond the last always is. */
static hec_status is_optional(const hec_scope *scope, bool *optional) {
  *optional = false;
  return hec_scope_flag(scope, "optional", optional);
}

static hec_status collect(hec_scope *scope, bool first, void *context) {
  collector *c = context;
  double value;
  HEC_TRY(hec_expression(scope->file->json, c->formula, name_of, c, &value));
  const char *absent = hec_cell_cache_absent(c->cache);
  if (absent) {
    bool optional;
    HEC_TRY(is_optional(scope, &optional));
    c->absent = optional || !*absent ? c->absent : absent;
    return HEC_OK;
  }
  if (c->n_all == VALUES_MAX)
    return hec_json_error(scope->file->json, c->formula, "at most 128 values of a row");
  c->all[c->n_all++] = value;
  if (first)
    c->own[c->n_own++] = value;
  return HEC_OK;
}

/* The formula in every combination. */
static hec_status collect_all(collector *c, const hec_json_value *formula) {
  axes all = {.n = 0};
  HEC_TRY(add_axes(c->scope, "vary", &all));
  int32_t n_vary = all.n;
  HEC_TRY(add_axes(c->scope, "over", &all));
  c->formula = formula;
  return walk(c->scope, &all, 0, n_vary, true, collect, c);
}

static double spread(const double *value, int32_t n) {
  double min = hec_min(value, n);
  return min > 0 ? hec_max(value, n) / min : NAN;
}

static const struct {
  const char *name;
  double (*of)(const double *value, int32_t n);
} forms[] = {{"mean", hec_mean}, {"geo", hec_geo_mean}, {"least", hec_min}, {"most", hec_max}, {"spread", spread}};

static hec_status reduce(const hec_scope *scope, const collector *c, hec_span *out) {
  const char *as = hec_scope_text(scope, "as");
  if (c->n_own == 0)
    return hec_json_error(scope->file->json, c->formula, "at least one value of the row");
  *out = (hec_span){hec_min(c->own, c->n_own), hec_max(c->own, c->n_own)};
  for (size_t i = 0; as && i < sizeof forms / sizeof *forms; i++)
    if (strcmp(forms[i].name, as) == 0) {
      out->low = out->high = forms[i].of(c->own, c->n_own);
      return HEC_OK;
    }
  return !as || strcmp(as, "range") == 0 ? HEC_OK
                                         : hec_json_error(scope->file->json, hec_scope_find(scope, "as"),
                                                          "range, mean, geo, least, most or spread");
}

static hec_status measure_of(const hec_scope *scope, hec_measure **measure) {
  const char *name = hec_scope_text(scope, "measure");
  for (size_t i = 0; i < N_MEASURES; i++)
    if (strcmp(name ? name : "simulated", measures[i].name) == 0) {
      *measure = measures[i].measure;
      return HEC_OK;
    }
  return hec_json_error(scope->file->json, hec_scope_find(scope, "measure"),
                        "simulated, fsmoe-grid, fsmoe-model or fsmoe-operation");
}

/* Ours over what the second formula comes to. */
static hec_status divide(collector *c, hec_measured *measured) {
  const hec_json_value *by = hec_scope_find(c->scope, "by");
  hec_span under;
  if (!by || c->absent)
    return HEC_OK;
  c->n_own = c->n_all = 0;
  HEC_TRY(collect_all(c, by));
  HEC_TRY(reduce(c->scope, c, &under));
  measured->ours.low = under.low > 0 ? measured->ours.low / under.low : NAN;
  measured->ours.high = under.high > 0 ? measured->ours.high / under.high : NAN;
  return HEC_OK;
}

hec_status hec_measure_row(hec_cell_cache *cache, hec_scope *row, hec_measured *measured) {
  collector c = {.cache = cache, .scope = row};
  const hec_json_value *formula = hec_scope_find(row, "value"), *also = hec_scope_find(row, "also");
  *measured = (hec_measured){.absent = NULL};
  if (!formula)
    return hec_json_error(row->file->json, row->open[row->n - 1], "a row with a \"value\", or one that is \"skipped\"");
  HEC_TRY(measure_of(row, &c.measure));
  HEC_TRY(collect_all(&c, formula));
  if (!c.absent)
    HEC_TRY(reduce(row, &c, &measured->ours));
  for (const hec_json_value *v = also ? hec_json_first(also) : NULL; v && !c.absent; v = hec_json_next(v))
    HEC_TRY(collect_all(&c, v));
  if (!c.absent && hec_scope_text(row, "moved_by"))
    measured->moves = (hec_span){hec_min(c.all, c.n_all), hec_max(c.all, c.n_all)};
  HEC_TRY(divide(&c, measured));
  measured->absent = c.absent;
  return HEC_OK;
}

hec_status hec_measure_published(const hec_scope *row, hec_span *span) {
  const hec_json_value *value = hec_scope_find(row, "published");
  if (!value)
    return hec_json_error(row->file->json, row->open[row->n - 1], "a row with a \"published\" number");
  const hec_json_value *high = value;
  if (hec_json_is_array(value) && hec_json_length(value) == 2) {
    value = hec_json_first(value);
    high = hec_json_next(value);
  }
  HEC_TRY(hec_expression(row->file->json, value, NULL, NULL, &span->low));
  HEC_TRY(hec_expression(row->file->json, high, NULL, NULL, &span->high));
  return span->low <= span->high ? HEC_OK : hec_json_error(row->file->json, high, "an end not below the other one");
}
