/* The search and the tables. Full grid (no descent): every point's objective is kept and shown. O(grid + changes)
 * evaluations of a few hundred simulated iterations each. */
#include "validate/published/published.h"

#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- inputs ---- */

/* The values of an input in "grid", or in what stands for it in quick runs. */
static const hec_json_value *values_of(const hec_published *p, const char *input) {
  const hec_json_value *grid = hec_json_get(hec_json_root(p->file.json), p->options.quick ? "quick_grid" : "grid");
  return grid ? hec_json_first(hec_json_get(grid, input)) : NULL;
}

static void make_grid(hec_published *p) {
  for (const hec_json_value *a = values_of(p, "tokens"); a; a = hec_json_next(a))
    for (const hec_json_value *b = values_of(p, "nonmoe_scale"); b; b = hec_json_next(b))
      for (const hec_json_value *c = values_of(p, "sigma"); c; c = hec_json_next(c)) {
        HEC_ASSERT(p->n_grid < HEC_PUBLISHED_GRID_MAX);
        hec_grid_point *point = &p->grid[p->n_grid++];
        *point = (hec_grid_point){.inputs = p->plain, .objective = NAN};
        hec_setup_set(&point->inputs, "tokens", hec_json_number(a));
        hec_setup_set(&point->inputs, "nonmoe_scale", hec_json_number(b));
        hec_setup_set(&point->inputs, "sigma", hec_json_number(c));
      }
}

/* One input changed at a time. "times", "plus" and "to", in this order. */
static hec_status make_change(const hec_published *p, hec_published_table *table, const hec_json_value *from) {
  const hec_json *json = p->file.json;
  const char *field;
  double times, plus, value;
  hec_published_change *change = &table->change[table->n_changes++];
  *change = (hec_published_change){.inputs = table->inputs};
  HEC_TRY(hec_json_want_text(json, from, "change", &change->change));
  HEC_TRY(hec_json_want_text(json, from, "input", &change->input));
  HEC_TRY(hec_json_bool_or(json, from, "long", false, &change->long_runs)); /* what long runs depend on most */
  if (!hec_json_get(from, "field"))
    return HEC_OK;
  HEC_TRY(hec_json_want_text(json, from, "field", &field));
  HEC_TRY(hec_json_double_or(json, from, "times", 0, 1e3, 1, &times));
  HEC_TRY(hec_json_double_or(json, from, "plus", -1e3, 1e3, 0, &plus));
  if (!hec_setup_get(&change->inputs, field, &value))
    return hec_json_error(json, hec_json_get(from, "field"), "a field of validate/published/setup.h that is a number");
  HEC_TRY(hec_json_double_or(json, from, "to", -2, 1e6, value * times + plus, &value));
  hec_setup_set(&change->inputs, field, value);
  return HEC_OK;
}

static hec_status make_changes(const hec_published *p, hec_published_table *table) {
  const hec_json_value *changes = hec_json_get(hec_json_root(p->file.json), "changes");
  for (const hec_json_value *v = changes ? hec_json_first(changes) : NULL; v; v = hec_json_next(v)) {
    bool slow;
    HEC_TRY(hec_json_bool_or(p->file.json, v, "slow", false, &slow));
    if (slow && p->options.quick)
      continue;
    if (table->n_changes == HEC_PUBLISHED_CHANGES_MAX)
      return hec_json_error(p->file.json, v, "at most 12 changes");
    HEC_TRY(make_change(p, table, v));
  }
  return HEC_OK;
}

/* ---- evaluating ---- */

static void tell(const hec_published *p, const char *what, int32_t done, int32_t of) {
  if (p->options.progress)
    p->options.progress(what, done, of, p->options.context);
}

static hec_cell_cache *open_cache(const hec_published *p, const hec_setup *inputs, hec_loads_kind kind,
                                  bool short_run) {
  const hec_setup *length = short_run ? &p->search : &p->plain;
  hec_cell_cache_options options = {.base = *inputs,
                                    .store = p->loads,
                                    .kind = kind,
                                    .cluster = {p->options.cluster_a, p->options.cluster_b},
                                    .quick = p->options.quick};
  options.base.iterations = length->iterations;
  options.base.warmup = length->warmup;
  return hec_cell_cache_new(&options);
}

/* What is done for every setting and model. */
typedef struct {
  hec_cell_cache *cache;
  hec_published_table *table; /* of add_case */
  hec_loads_kind kind;
  bool fits; /* of see_ep */
} over_cases;

static hec_status each_case(const hec_published *p, hec_status (*each)(hec_scope *scope, void *context),
                            over_cases *over) {
  hec_scope scope = hec_scope_of(&p->file, p->options.quick);
  return hec_measure_each(&scope, "cases", each, over);
}

/* Plain expert parallelism fits everywhere. */
static hec_status see_ep(hec_scope *scope, void *context) {
  over_cases *over = context;
  const hec_setup_cell *ep;
  hec_setup setup;
  HEC_TRY(hec_measure_cell(over->cache, scope, "ep", &ep, &setup));
  over->fits = over->fits && ep->fits;
  return HEC_OK;
}

/* Mean distance over the rows of the objective. */
static double objective_of(const hec_published *p, const hec_span *ours) {
  double sum = 0;
  int32_t n = 0;
  for (int32_t i = 0; i < p->n_rows; i++)
    if (p->row[i].kind == HEC_ROW_NUMBER && !p->row[i].long_run) {
      sum += hec_row_distance(&p->row[i], ours[i]);
      n++;
    }
  return sum / n;
}

static hec_status measure(const hec_published *p, hec_cell_cache *cache, int32_t i, hec_span *ours) {
  hec_scope scope = p->row[i].scope;
  hec_measured measured;
  HEC_TRY(hec_measure_row(cache, &scope, &measured));
  *ours = measured.ours;
  return HEC_OK;
}

static hec_status measure_point(const hec_published *p, hec_cell_cache *cache, hec_grid_point *point) {
  hec_span ours[HEC_PUBLISHED_ROWS_MAX];
  over_cases over = {.cache = cache, .fits = true};
  HEC_TRY(each_case(p, see_ep, &over));
  point->fits = over.fits;
  if (!point->fits)
    return HEC_OK;
  for (int32_t i = 0; i < p->n_rows; i++)
    if (p->row[i].kind == HEC_ROW_NUMBER && !p->row[i].long_run)
      HEC_TRY(measure(p, cache, i, &ours[i]));
  point->objective = objective_of(p, ours);
  return HEC_OK;
}

static hec_status evaluate_point(const hec_published *p, hec_grid_point *point) {
  HEC_OPENED(hec_cell_cache) *cache = open_cache(p, &point->inputs, HEC_LOADS_SYNTHETIC, true);
  return measure_point(p, cache, point);
}

static hec_status evaluate_change(const hec_published *p, hec_published_change *change) {
  HEC_OPENED(hec_cell_cache) *cache = open_cache(p, &change->inputs, HEC_LOADS_SYNTHETIC, true);
  hec_status status = HEC_OK;
  for (int32_t i = 0; i < p->n_rows && status == HEC_OK; i++) {
    const hec_published_row *row = &p->row[i];
    change->ours[i] = (hec_span){NAN, NAN};
    if (!row->long_run || change->long_runs)
      status = measure(p, cache, i, &change->ours[i]);
    change->signs_agree += !row->long_run && hec_row_verdict(row, change->ours[i]) == HEC_AGREES;
  }
  change->objective = objective_of(p, change->ours);
  return status;
}

static void note_no_fit(hec_published_table *table, const hec_cell_cache *cache, hec_loads_kind kind) {
  for (int32_t i = 0; i < hec_cell_cache_count(cache); i++) {
    hec_setup setup;
    const hec_setup_cell *cell = hec_cell_cache_at(cache, i, &setup);
    if (!cell->fits && table->n_no_fit < HEC_PUBLISHED_NO_FIT_MAX)
      table->no_fit[table->n_no_fit++] = (hec_published_no_fit){kind, setup, cell->peak_bytes};
  }
}

static hec_status add_case(hec_scope *scope, void *context) {
  static const char *const systems[] = {"fastermoe", "smartmoe", "flexmoe"};
  over_cases *over = context;
  const hec_setup_cell *ep, *balanced, *other, *hecate;
  hec_setup setup;
  HEC_TRY(hec_measure_cell(over->cache, scope, "ep", &ep, &setup));
  HEC_TRY(hec_measure_cell(over->cache, scope, "ep-balanced", &balanced, &setup));
  HEC_TRY(hec_measure_cell(over->cache, scope, "hecate-published", &hecate, &setup));
  HEC_ASSERT(over->table->n_cases < HEC_PUBLISHED_CASES_MAX);
  hec_published_case *one = &over->table->cases[over->kind][over->table->n_cases++];
  *one = (hec_published_case){.setting = setup.setting,
                              .model = setup.model,
                              .ep_s = ep->iteration_s,
                              .balanced_s = balanced->iteration_s,
                              .best_s = INFINITY,
                              .hecate_s = hecate->iteration_s,
                              .ep_overload = ep->overload,
                              .hecate_overload = hecate->overload,
                              .t_min = hecate->t_min,
                              .t_max = hecate->t_max,
                              .m = hecate->m_max};
  for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
    HEC_TRY(hec_measure_cell(over->cache, scope, systems[i], &other, &setup));
    if (other->iteration_s < one->best_s) {
      one->best_s = other->iteration_s;
      one->best = systems[i];
    }
  }
  return HEC_OK;
}

static hec_status measure_table(const hec_published *p, hec_published_table *table, hec_loads_kind kind,
                                hec_cell_cache *cache) {
  hec_span ours[HEC_PUBLISHED_ROWS_MAX];
  for (int32_t i = 0; i < p->n_rows; i++) {
    const hec_published_row *row = &p->row[i];
    hec_published_value *value = &table->value[kind][i];
    tell(p, table->name, (int32_t)kind * p->n_rows + i, (int32_t)HEC_N_LOADS * p->n_rows);
    HEC_TRY(measure(p, cache, i, &ours[i]));
    *value = (hec_published_value){ours[i], hec_row_distance(row, ours[i]), hec_row_verdict(row, ours[i])};
    table->agree[kind] += value->verdict == HEC_AGREES;
    table->disagree[kind] += value->verdict == HEC_DISAGREES;
  }
  table->objective[kind] = objective_of(p, ours);
  table->n_cases = 0;
  over_cases over = {.cache = cache, .table = table, .kind = kind};
  HEC_TRY(each_case(p, add_case, &over));
  note_no_fit(table, cache, kind);
  return HEC_OK;
}

static hec_status evaluate_table(const hec_published *p, hec_published_table *table, hec_loads_kind kind) {
  HEC_OPENED(hec_cell_cache) *cache = open_cache(p, &table->inputs, kind, false);
  return measure_table(p, table, kind, cache);
}

/* ---- how rows move ---- */

static double shift(hec_span from, hec_span to) {
  double low = fabs(log(to.low / from.low)), high = fabs(log(to.high / from.high));
  return isfinite(low) && isfinite(high) ? (low > high ? low : high) : 0;
}

static void follow_row(hec_published_table *table, int32_t row) {
  hec_span base = table->change[0].ours[row], all = base;
  double max = 0.005; /* smaller moves are none */
  for (int32_t i = 1; i < table->n_changes; i++) {
    hec_span ours = table->change[i].ours[row];
    double moved = shift(base, ours);
    all.low = ours.low < all.low ? ours.low : all.low;
    all.high = ours.high > all.high ? ours.high : all.high;
    if (moved > max) {
      max = moved;
      table->moved_by[row] = table->change[i].input;
    }
  }
  table->moved[row] = all;
}

static hec_status run_table(hec_published *p, hec_published_table *table) {
  HEC_TRY(evaluate_table(p, table, HEC_LOADS_SYNTHETIC));
  if (p->recorded)
    HEC_TRY(evaluate_table(p, table, HEC_LOADS_RECORDED));
  HEC_TRY(make_changes(p, table));
  for (int32_t i = 0; i < table->n_changes; i++) {
    tell(p, "sensitivity", i, table->n_changes);
    HEC_TRY(evaluate_change(p, &table->change[i]));
  }
  for (int32_t row = 0; row < p->n_rows; row++)
    follow_row(table, row);
  return HEC_OK;
}

/* ---- all ---- */

int32_t hec_grid_best(const hec_grid_point *grid, int32_t n) {
  int32_t best = -1;
  for (int32_t i = 0; i < n; i++)
    if (!isnan(grid[i].objective) && (best < 0 || grid[i].objective < grid[best].objective))
      best = i;
  return best;
}

static hec_status search(hec_published *p) {
  make_grid(p);
  for (int32_t i = 0; i < p->n_grid; i++) {
    tell(p, "grid", i, p->n_grid);
    HEC_TRY(evaluate_point(p, &p->grid[i]));
  }
  p->best = hec_grid_best(p->grid, p->n_grid);
  if (p->best < 0)
    return hec_fail(HEC_FAILED, "no set of inputs in the grid fits into the memory of the clusters");
  return HEC_OK;
}

/* An error in one of two clusters names the option that chose it. */
static hec_status check_cluster(const char *option, const char *spec) {
  static const char loaded_as[] = "`cluster` ";
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster cluster;
  char why[1024];
  hec_status status = hec_cluster_load(spec, &arena, &cluster);
  (void)snprintf(why, sizeof why, "%s", status == HEC_OK ? "" : hec_last_error());
  if (status != HEC_OK && strncmp(why, loaded_as, strlen(loaded_as)) == 0)
    status = hec_fail(status, "%s %s", option, why + strlen(loaded_as));
  if (status == HEC_OK && cluster.n_devices < 32)
    status = hec_fail(HEC_BAD_INPUT, "%s: expected at least the 32 devices of the paper, found %d", option,
                      cluster.n_devices);
  return status;
}

static hec_status run_all(hec_published *p) {
  p->table[0].name = "plain";
  p->table[0].inputs = p->plain;
  HEC_TRY(run_table(p, &p->table[0]));
  HEC_TRY(search(p));
  p->table[1].name = "best";
  p->table[1].inputs = p->grid[p->best].inputs;
  return run_table(p, &p->table[1]);
}

hec_status hec_published_run(const hec_published_options *options, hec_published **out) {
  *out = NULL;
  HEC_TRY(check_cluster("--cluster-a", options->cluster_a));
  HEC_TRY(check_cluster("--cluster-b", options->cluster_b));
  HEC_TRY(hec_published_open(options, out));
  hec_status status = run_all(*out);
  if (status != HEC_OK) {
    hec_published_free(*out);
    *out = NULL;
  }
  return status;
}
