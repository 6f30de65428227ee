/* The search and the tables. Full grid (no descent): every point's objective is kept and shown. O(grid + changes)
 * evaluations of a few hundred simulated iterations each. */
#include "validate/published/published.h"

#include "runtime/base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- inputs ---- */

hec_published_inputs hec_published_plain(void) {
  return (hec_published_inputs){.tokens = 8192, /* the presets' own, for all four models */
                                .nonmoe_scale = 1,
                                .sigma = 1, /* the generator's own */
                                .nic_share = 1,
                                .m = HEC_AUTO,
                                .t = HEC_T_PAPER};
}

static const int32_t grid_tokens[] = {4096, 6144, 8192}; /* with 16384 no set fits into the memory of cluster A */
static const double grid_nonmoe[] = {0.5, 1, 2, 4};
static const double grid_sigma[] = {1, 1.5, 2};
#define LENGTH(array) ((int32_t)(sizeof(array) / sizeof *(array)))

/* Quick: two points, that of the plain inputs first. */
static int32_t make_grid(bool quick, hec_grid_point *grid) {
  int32_t n = 0;
  for (int32_t a = 0; a < LENGTH(grid_tokens); a++)
    for (int32_t b = 0; b < LENGTH(grid_nonmoe); b++)
      for (int32_t c = 0; c < LENGTH(grid_sigma); c++) {
        hec_published_inputs inputs = hec_published_plain();
        inputs.tokens = grid_tokens[a];
        inputs.nonmoe_scale = grid_nonmoe[b];
        inputs.sigma = grid_sigma[c];
        bool keep = !quick || (inputs.tokens == 8192 && inputs.nonmoe_scale == 1 && inputs.sigma < 2);
        if (keep)
          grid[n++] = (hec_grid_point){.inputs = inputs, .objective = NAN};
      }
  HEC_ASSERT(n <= HEC_PUBLISHED_GRID_MAX);
  return n;
}

/* One input changed at a time. */
static void add_change(hec_published_table *table, const char *change, const char *input, hec_published_inputs inputs) {
  HEC_ASSERT(table->n_changes < HEC_PUBLISHED_CHANGES_MAX);
  bool sweeps = strcmp(input, "none") == 0 || strcmp(input, "drift") == 0; /* what long runs depend on most */
  table->change[table->n_changes++] =
      (hec_published_change){.change = change, .input = input, .inputs = inputs, .sweeps = sweeps};
}

#define CHANGE(field, value, text, name)                                                                               \
  do {                                                                                                                 \
    hec_published_inputs changed = table->inputs;                                                                      \
    changed.field = (value);                                                                                           \
    add_change(table, text, name, changed);                                                                            \
  } while (0)

static void make_changes(hec_published_table *table, bool quick) {
  const hec_published_inputs *base = &table->inputs;
  add_change(table, "none", "none", *base);
  CHANGE(nonmoe_scale, base->nonmoe_scale * 2, "non-MoE time x2", "nonmoe_scale");
  if (quick)
    return;
  CHANGE(nonmoe_scale, base->nonmoe_scale / 2, "non-MoE time x0.5", "nonmoe_scale");
  CHANGE(tokens, base->tokens / 2, "half the tokens", "tokens");
  CHANGE(tokens, base->tokens * 2, "twice the tokens", "tokens");
  CHANGE(sigma, base->sigma - 0.5, "skew -0.5", "skew");
  CHANGE(sigma, base->sigma + 0.5, "skew +0.5", "skew");
  CHANGE(still, true, "no drift", "drift");
  CHANGE(nic_share, 0.5, "half the NIC", "nic_share");
  CHANGE(m, 8, "m = 8", "m");
  CHANGE(t, HEC_AUTO, "t as the cost model has it", "t");
}

/* ---- evaluating ---- */

static void tell(const hec_published *p, const char *what, int32_t done, int32_t of) {
  if (p->options.progress)
    p->options.progress(what, done, of, p->options.context);
}

/* Plain expert parallelism fits everywhere. */
static bool ep_fits(hec_lab *lab, const hec_lab_models *models) {
  for (int32_t s = 0; s < HEC_N_SETTINGS; s++)
    for (int32_t i = 0; i < models->n; i++) {
      hec_lab_key key = {(hec_setting)s, models->model[i], "ep", 0, HEC_AUTO, HEC_AUTO, HEC_AUTO, false};
      if (!hec_lab_get(lab, key)->fits)
        return false;
    }
  return true;
}

/* Mean distance over the rows of the objective. */
static double objective_of(const hec_span *ours) {
  double sum = 0;
  int32_t n = 0;
  for (int32_t i = 0; i < hec_n_published_rows; i++) {
    const hec_published_row *row = &hec_published_rows[i];
    if (row->kind != HEC_ROW_NUMBER || row->sweep)
      continue;
    sum += hec_row_distance(row, ours[i]);
    n++;
  }
  return sum / n;
}

static hec_status evaluate_point(hec_published *p, hec_grid_point *point) {
  hec_lab *lab;
  hec_span ours[HEC_PUBLISHED_ROWS_MAX];
  HEC_TRY(hec_lab_new(&p->short_lab, &point->inputs, HEC_LOADS_SYNTHETIC, &lab));
  point->fits = ep_fits(lab, &p->models);
  for (int32_t i = 0; point->fits && i < hec_n_published_rows; i++)
    if (hec_published_rows[i].kind == HEC_ROW_NUMBER && !hec_published_rows[i].sweep)
      ours[i] = hec_published_rows[i].measure(lab, &p->models);
  if (point->fits)
    point->objective = objective_of(ours);
  hec_lab_free(lab);
  return HEC_OK;
}

static hec_status evaluate_change(hec_published *p, hec_published_change *change) {
  hec_lab *lab;
  HEC_TRY(hec_lab_new(&p->short_lab, &change->inputs, HEC_LOADS_SYNTHETIC, &lab));
  for (int32_t i = 0; i < hec_n_published_rows; i++) {
    const hec_published_row *row = &hec_published_rows[i];
    change->ours[i] = row->sweep && !change->sweeps ? (hec_span){NAN, NAN} : row->measure(lab, &p->models);
    change->signs_agree += !row->sweep && hec_row_verdict(row, change->ours[i]) == HEC_AGREES;
  }
  change->objective = objective_of(change->ours);
  hec_lab_free(lab);
  return HEC_OK;
}

static void note_no_fit(hec_published_table *table, const hec_lab *lab, hec_loads_kind kind) {
  for (int32_t i = 0; i < hec_lab_count(lab); i++) {
    hec_lab_key key;
    const hec_lab_cell *cell = hec_lab_at(lab, i, &key);
    if (!cell->fits && table->n_no_fit < HEC_PUBLISHED_NO_FIT_MAX)
      table->no_fit[table->n_no_fit++] = (hec_published_no_fit){kind, key, cell->peak_bytes};
  }
}

static void add_cases(const hec_published *p, hec_published_table *table, hec_lab *lab, hec_loads_kind kind) {
  static const char *const systems[] = {"fastermoe", "smartmoe", "flexmoe"};
  table->n_cases = 0;
  for (int32_t s = 0; s < HEC_N_SETTINGS; s++)
    for (int32_t i = 0; i < p->models.n; i++) {
      hec_lab_key key = {(hec_setting)s, p->models.model[i], "ep", 0, HEC_AUTO, HEC_AUTO, HEC_AUTO, false};
      hec_published_case *one = &table->cases[kind][table->n_cases++];
      const hec_lab_cell *ep = hec_lab_get(lab, key);
      *one = (hec_published_case){.setting = key.setting, .model = key.model, .best_s = INFINITY};
      one->ep_s = ep->iteration_s;
      one->ep_overload = ep->overload;
      key.policy = "ep-balanced";
      one->balanced_s = hec_lab_get(lab, key)->iteration_s;
      for (int32_t k = 0; k < LENGTH(systems); k++) {
        key.policy = systems[k];
        double seconds = hec_lab_get(lab, key)->iteration_s;
        if (seconds < one->best_s) {
          one->best_s = seconds;
          one->best = systems[k];
        }
      }
      key.policy = "hecate-published";
      const hec_lab_cell *hecate = hec_lab_get(lab, key);
      one->hecate_s = hecate->iteration_s;
      one->hecate_overload = hecate->overload;
      one->t_least = hecate->t_least;
      one->t_most = hecate->t_most;
      one->m = hecate->m_most;
    }
}

static hec_status evaluate_table(hec_published *p, hec_published_table *table, hec_loads_kind kind) {
  hec_lab *lab;
  hec_span ours[HEC_PUBLISHED_ROWS_MAX];
  HEC_TRY(hec_lab_new(&p->lab, &table->inputs, kind, &lab));
  for (int32_t i = 0; i < hec_n_published_rows; i++) {
    const hec_published_row *row = &hec_published_rows[i];
    hec_published_value *value = &table->value[kind][i];
    tell(p, table->name, (int32_t)kind * hec_n_published_rows + i, (int32_t)HEC_N_LOADS * hec_n_published_rows);
    ours[i] = row->measure(lab, &p->models);
    *value = (hec_published_value){ours[i], hec_row_distance(row, ours[i]), hec_row_verdict(row, ours[i])};
    table->agree[kind] += value->verdict == HEC_AGREES;
    table->disagree[kind] += value->verdict == HEC_DISAGREES;
  }
  table->objective[kind] = objective_of(ours);
  add_cases(p, table, lab, kind);
  note_no_fit(table, lab, kind);
  hec_lab_free(lab);
  return HEC_OK;
}

/* ---- how rows move ---- */

static double shift(hec_span from, hec_span to) {
  double low = fabs(log(to.low / from.low)), high = fabs(log(to.high / from.high));
  return isfinite(low) && isfinite(high) ? (low > high ? low : high) : 0;
}

static void follow_row(hec_published_table *table, int32_t row) {
  hec_span base = table->change[0].ours[row], all = base;
  double most = 0.005; /* smaller moves are none */
  for (int32_t i = 1; i < table->n_changes; i++) {
    hec_span ours = table->change[i].ours[row];
    double moved = shift(base, ours);
    all.low = ours.low < all.low ? ours.low : all.low;
    all.high = ours.high > all.high ? ours.high : all.high;
    if (moved > most) {
      most = moved;
      table->moved_by[row] = table->change[i].input;
    }
  }
  table->moved[row] = all;
}

static hec_status run_table(hec_published *p, hec_published_table *table) {
  HEC_TRY(evaluate_table(p, table, HEC_LOADS_SYNTHETIC));
  if (p->recorded)
    HEC_TRY(evaluate_table(p, table, HEC_LOADS_RECORDED));
  make_changes(table, p->options.quick);
  for (int32_t i = 0; i < table->n_changes; i++) {
    tell(p, "sensitivity", i, table->n_changes);
    HEC_TRY(evaluate_change(p, &table->change[i]));
  }
  for (int32_t row = 0; row < hec_n_published_rows; row++)
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
  p->n_grid = make_grid(p->options.quick, p->grid);
  for (int32_t i = 0; i < p->n_grid; i++) {
    tell(p, "grid", i, p->n_grid);
    HEC_TRY(evaluate_point(p, &p->grid[i]));
  }
  p->best = hec_grid_best(p->grid, p->n_grid);
  if (p->best < 0)
    return hec_fail(HEC_FAILED, "no set of inputs in the grid fits into the memory of the clusters");
  return HEC_OK;
}

static void set_up(hec_published *p, const hec_published_options *options, hec_loads_store *loads) {
  bool quick = options->quick;
  p->options = *options;
  p->lab = (hec_lab_options){.cluster = {options->cluster_a, options->cluster_b},
                             .n_iterations = quick ? 4 : 60,
                             .warmup = quick ? 1 : 20,
                             .n_sweep = quick ? 5 : 200,
                             .sweep_warmup = quick ? 2 : 100,
                             .loads = loads};
  p->short_lab = p->lab;
  p->short_lab.n_iterations = quick ? 3 : 18;
  p->short_lab.warmup = quick ? 1 : 12;
  p->models = (hec_lab_models){HEC_N_PUBLISHED_MODELS, {HEC_GPT_S, HEC_GPT_L, HEC_BERT, HEC_BERT_DEEP}};
  if (quick)
    p->models = (hec_lab_models){2, {HEC_GPT_S, HEC_BERT_DEEP}};
  p->recorded = hec_loads_recorded(loads);
  p->trace_stride = hec_loads_trace_stride(loads);
  hec_name_copy(p->trace_name, sizeof p->trace_name, hec_loads_trace_name(loads));
}

static hec_status run_all(hec_published *p) {
  p->table[0].name = "plain";
  p->table[0].inputs = hec_published_plain();
  HEC_TRY(run_table(p, &p->table[0]));
  HEC_TRY(search(p));
  p->table[1].name = "best";
  p->table[1].inputs = p->grid[p->best].inputs;
  return run_table(p, &p->table[1]);
}

hec_status hec_published_run(const hec_published_options *options, hec_published **out) {
  HEC_ASSERT(hec_n_published_rows <= HEC_PUBLISHED_ROWS_MAX);
  hec_loads_store *loads;
  *out = NULL;
  HEC_TRY(hec_loads_open(options->trace, options->quick ? 12 : 200, options->seed, &loads));
  hec_published *p = hec_malloc(1, sizeof *p);
  memset(p, 0, sizeof *p);
  set_up(p, options, loads);
  hec_status status = run_all(p);
  hec_loads_close(loads);
  p->lab.loads = p->short_lab.loads = NULL;
  if (status != HEC_OK) {
    hec_published_free(p);
    return status;
  }
  *out = p;
  return HEC_OK;
}

void hec_published_free(hec_published *published) {
  free(published);
}
