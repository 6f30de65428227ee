/* Words of a sweep's page: headings of axes and their values with units, and a sentence per family on where it wins. The
 * sentences follow from the cells alone. Linear in the cells, times the axes; in the rows for what "auto" came to. */
#include "tools/front/sweep/sweep_maps.h"

#include "tools/front/page/number.h"
#include "tools/front/summary/summary_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values ---- */

static const struct {
  const char *key, *title, *one, *many; /* title of the axis; unit behind a number */
} units[] = {{"ranks", "ranks", "rank", "ranks"},
             {"tokens", "tokens per rank", "token", "tokens"},
             {"micro_batches", "micro-batches", "micro-batch", "micro-batches"},
             {"layers", "MoE layers", "layer", "layers"},
             {"ep", "ranks of an expert-parallel group", "rank", "ranks"},
             {"esp", "ranks of an expert-sharding group", "rank", "ranks"},
             {"mp", "ranks of a tensor-parallel group", "rank", "ranks"},
             {"t", "experts copied before the gate", "expert", "experts"},
             {"m", "max copies per rank", "copy", "copies"},
             {"period", "iterations between decisions", "iteration", "iterations"},
             {"slots", "expert slots per rank", "slot", "slots"},
             {"warmup", "warm-up", "iteration", "iterations"},
             {"gpus", "GPUs", "GPU", "GPUs"},
             {"global_batch", "global batch", "sequence a step", "sequences a step"},
             {"seq", "sequence length", "token a sequence", "tokens a sequence"},
             {"micro_batch", "micro-batch", "sequence a micro-batch", "sequences a micro-batch"},
             {"mtp", "multi-token prediction", "layer", "layers"}};
enum { N_UNITS = sizeof units / sizeof *units };

static int32_t unit_of(int32_t axis) {
  for (int32_t i = 0; i < N_UNITS; i++)
    if (strcmp(units[i].key, hec_sweep_axis_name(axis)) == 0)
      return i;
  return -1;
}

const char *hec_sweep_axis_title(int32_t axis) {
  int32_t unit = unit_of(axis);
  return unit < 0 ? hec_sweep_axis_name(axis) : units[unit].title;
}

static void add_number(const char *number, int32_t unit, hec_text *out) {
  hec_text_printf(out, "%s %s", number, strcmp(number, "1") == 0 ? units[unit].one : units[unit].many);
}

/* The column of what an axis came to, "ranks_used"; -1: there is none. */
static int32_t used_of(const hec_sweep_kind *kind, int32_t axis) {
  const char *name = hec_sweep_axis_name(axis);
  size_t n = strlen(name);
  for (int32_t c = 0; c < kind->n; c++)
    if (strncmp(kind->columns[c].column, name, n) == 0 && strcmp(kind->columns[c].column + n, "_used") == 0)
      return unit_of(axis) < 0 ? -1 : c;
  return -1;
}

/* " (256 tokens)", " (256 to 1024 tokens)": what a value left to the job came to, as far as rows say it. */
static void add_auto(const hec_sweep_rows *rows, int32_t axis, int32_t value, hec_text *out) {
  int32_t column = used_of(rows->sweep->kind, axis);
  double low = INFINITY, high = -INFINITY;
  for (int64_t i = 0; column >= 0 && i < rows->sweep->n; i++) {
    double used = rows->row[i]->value[column];
    if (hec_sweep_at(rows->sweep, i, (hec_sweep_axis)axis) != &rows->sweep->axis[axis].value[value] || !isfinite(used))
      continue;
    low = used < low ? used : low;
    high = used > high ? used : high;
  }
  if (low > high)
    return;
  hec_text_add(out, " (");
  if (low < high)
    hec_text_printf(out, "%s to ", hec_fixed(low, 0).text);
  add_number(hec_fixed(high, 0).text, unit_of(axis), out);
  hec_text_add(out, ")");
}

static bool has_word(const char *text, const char *word, size_t n) {
  for (const char *at = text; (at = strstr(at, " ")) != NULL;) {
    at++;
    if (strncmp(at, word, n) == 0 && (at[n] == ' ' || at[n] == 0))
      return true;
  }
  return false;
}

/* Whether all generated traces, of several, are made with it. */
static bool is_common(const hec_sweep *s, const char *word, size_t n_word) {
  int32_t n = 0;
  for (int32_t i = 0; i < s->axis[HEC_AXIS_trace].n; i++) {
    if (!s->traces[i].made)
      continue;
    if (!has_word(s->axis[HEC_AXIS_trace].value[i].text, word, n_word))
      return false;
    n++;
  }
  return n > 1;
}

/* A generated trace, "synthetic seed=7 top_k=2": the words that all of them have, or the others. */
static void add_trace(const hec_sweep *s, int32_t value, bool common, hec_text *out) {
  const char *text = s->axis[HEC_AXIS_trace].value[value].text;
  size_t n = strcspn(text, " ");
  hec_text_add_bytes(out, text, n);
  for (const char *word = text + n; *word; word += n) {
    word += 1;
    n = strcspn(word, " ");
    if (is_common(s, word, n) != common)
      continue;
    hec_text_add(out, " ");
    hec_text_add_bytes(out, word, n);
  }
}

const char *hec_sweep_common(const hec_sweep *s, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0};
  int32_t n = 0, first = 0;
  for (int32_t i = s->axis[HEC_AXIS_trace].n - 1; i >= 0; i--)
    if (s->traces[i].made) {
      first = i;
      n++;
    }
  if (n > 1)
    add_trace(s, first, true, &text);
  const char *copy = n > 1 ? hec_arena_text(arena, text.data) : NULL;
  return copy;
}

static void add_value(const hec_sweep_rows *rows, int32_t axis, int32_t value, hec_text *out) {
  const hec_sweep *s = rows->sweep;
  const hec_sweep_value *v = &s->axis[axis].value[value];
  int32_t unit = unit_of(axis);
  if (axis == HEC_AXIS_trace && s->traces[value].made)
    add_trace(s, value, false, out);
  else if (unit >= 0 && v->text[0] >= '0' && v->text[0] <= '9')
    add_number(v->text, unit, out);
  else
    hec_text_add(out, v->text[0] ? v->text : "none"); /* of slow and skew */
  if (strcmp(v->text, HEC_SWEEP_AUTO) == 0)
    add_auto(rows, axis, value, out);
}

const char *hec_sweep_label(const hec_sweep_rows *rows, int32_t axis, int32_t value, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0};
  add_value(rows, axis, value, &text);
  const char *copy = hec_arena_text(arena, text.data ? text.data : "");
  return copy;
}

void hec_sweep_add_values(const hec_sweep_rows *rows, int32_t axis, const bool *some, hec_text *out) {
  int32_t unit = unit_of(axis), n = 0, told = 0;
  for (int32_t i = 0; i < rows->sweep->axis[axis].n; i++)
    n += some[i];
  if (n == rows->sweep->axis[axis].n && n > 1) {
    hec_text_printf(out, "any %s", hec_sweep_axis_title(axis));
    return;
  }
  for (int32_t i = 0; i < rows->sweep->axis[axis].n; i++) {
    const char *text = rows->sweep->axis[axis].value[i].text;
    if (!some[i])
      continue;
    hec_text_add(out, told++ > 0 ? " or " : "");
    if (told == 1 && (unit < 0 || strcmp(text, HEC_SWEEP_AUTO) == 0))
      hec_text_printf(out, "%s ", hec_sweep_axis_title(axis));
    add_value(rows, axis, i, out);
  }
}

/* ---- The best ---- */

/* The best row of those that fit and drop nothing, or of those of the baseline alone; -1: there is none. */
static int64_t best_row(const hec_sweep_rows *rows, bool baseline) {
  const hec_sweep_kind *kind = rows->sweep->kind;
  int64_t best = -1;
  for (int64_t i = 0; kind->best >= 0 && i < rows->sweep->n; i++)
    if (hec_sweep_competes(rows, i) && !(rows->row[i]->value[kind->dropped] > 0) &&
        (!baseline || hec_sweep_policy(rows->sweep, i)->baseline) &&
        (best < 0 || rows->row[i]->value[kind->best] > rows->row[best]->value[kind->best]))
      best = i;
  return best;
}

/* ", 12095: layout ep=8, policy eplb, 1.35 s." */
static void add_best(const hec_sweep_rows *rows, int64_t best, hec_text *out) {
  const hec_sweep *s = rows->sweep;
  const hec_sweep_kind *kind = s->kind;
  hec_text_printf(out, ", %s:", hec_fixed(rows->row[best]->value[kind->best], 0).text);
  const char *between = " ";
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
    bool *one = hec_malloc((size_t)s->axis[a].n, sizeof *one);
    for (int32_t v = 0; v < s->axis[a].n; v++)
      one[v] = hec_sweep_at(s, best, (hec_sweep_axis)a) == &s->axis[a].value[v];
    if (s->axis[a].n > 1) {
      hec_text_add(out, between);
      hec_sweep_add_values(rows, a, one, out);
      between = ", ";
    }
    free(one);
  }
  hec_text_printf(out, "%s%s.\n", between, hec_seconds(rows->row[best]->value[kind->seconds]).text);
}

void hec_sweep_say_best(const hec_sweep_rows *rows, hec_text *out) {
  const hec_sweep_kind *kind = rows->sweep->kind;
  int64_t best = best_row(rows, false), ep = best_row(rows, true);
  if (best < 0)
    return;
  hec_text_printf(out, "Most %s", kind->best_of);
  add_best(rows, best, out);
  if (ep < 0 || ep == best)
    return;
  hec_text_printf(out, "That is %s times the most with plain expert parallelism",
                  hec_times(rows->row[best]->value[kind->best] / rows->row[ep]->value[kind->best]).text);
  add_best(rows, ep, out);
}

/* ---- How sure ---- */

enum { CLUSTERS_TOLD = 8 };

/* Clusters of the rows that ran, once each, up to so many; what their rates rest on. */
typedef struct {
  const char *name[CLUSTERS_TOLD], *rates[CLUSTERS_TOLD];
  int32_t n;
} told_clusters;

static void tell_cluster(const hec_sweep_rows *rows, int64_t index, told_clusters *told) {
  const char *name = rows->row[index]->cluster;
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster cluster;
  for (int32_t i = 0; i < told->n; i++)
    if (strcmp(told->name[i], name) == 0)
      return;
  if (told->n < CLUSTERS_TOLD && hec_sweep_cluster(rows, index, &arena, &cluster) == HEC_OK) {
    told->name[told->n] = name;
    told->rates[told->n++] = hec_summary_rates(&cluster);
  }
}

/* "the rates of p4d-4x8, dgx-h100 are scaled ...; those of mine are measured" */
static void say_rates(const hec_sweep_rows *rows, hec_text *out) {
  told_clusters told = {.n = 0};
  for (int64_t i = 0; i < rows->sweep->n; i++)
    if (!rows->row[i]->why)
      tell_cluster(rows, i, &told);
  const char *between = "These are predictions: the rates of ";
  for (int32_t i = 0; i < told.n; i++) {
    bool again = false;
    for (int32_t k = 0; k < i; k++)
      again = again || strcmp(told.rates[k], told.rates[i]) == 0;
    if (again)
      continue;
    hec_text_printf(out, "%s%s", between, told.name[i]);
    for (int32_t k = i + 1; k < told.n; k++)
      if (strcmp(told.rates[k], told.rates[i]) == 0)
        hec_text_printf(out, ", %s", told.name[k]);
    hec_text_printf(out, " are %s", told.rates[i]);
    between = "; those of ";
  }
  hec_text_add(out, told.n > 0 ? ".\n" : "");
}

void hec_sweep_say_trust(const hec_sweep_rows *rows, hec_text *out) {
  const hec_sweep_kind *kind = rows->sweep->kind;
  double low = INFINITY, high = 0;
  if (kind->error_factor < 0) {
    say_rates(rows, out);
    return;
  }
  for (int64_t i = 0; i < rows->sweep->n; i++)
    if (!rows->row[i]->why) {
      double factor = rows->row[i]->value[kind->error_factor];
      low = factor < low ? factor : low;
      high = factor > high ? factor : high;
    }
  if (high > low)
    hec_text_printf(
        out,
        "These are predictions: nine of ten published runs took between 1/F and F times the predicted step, "
        "with F from %.3g to %.3g by row (error_factor of the CSV; hecate-validate training).\n",
        low, high);
  else if (high > 0)
    hec_text_printf(
        out,
        "These are predictions: nine of ten published runs took between 1/%.3g and %.3g times the predicted "
        "step (hecate-validate training).\n",
        high, high);
}

/* ---- Families ---- */

enum { CONDITIONS_MAX = 2, NAMES_MAX = 3 };

static const char *const family_name[HEC_N_FAMILIES] = {"Plain expert parallelism", "Rearrangement", "FSSDP",
                                                        "The other policies"};

/* One family over all cells. */
typedef struct {
  const hec_sweep_grid *grid;
  hec_sweep_family family;
  hec_arena arena;
  int64_t *won[HEC_SWEEP_AXES], *of[HEC_SWEEP_AXES]; /* [values] cells that it wins, that anything fits in */
  int64_t n_won, n_of;
  hec_report_range vs_ep; /* where it wins and ep fits */
  bool without_ep;        /* it also wins where ep does not fit or cannot run */
  double behind;          /* at least so much more than the winner's time it takes; INFINITY: it fits nowhere */
  int64_t nearest;        /* the cell of that */
} tally;

static int32_t cells_of_map(const hec_sweep_grid *grid) {
  return grid->n_x * grid->n_y;
}

static int32_t place_of(const tally *t, int64_t cell, int32_t axis) {
  return hec_sweep_place(t->grid, cell / cells_of_map(t->grid), (int32_t)(cell % cells_of_map(t->grid)), axis);
}

static bool is_told(const tally *t, int32_t axis) {
  return !hec_sweep_is_choice(axis) && t->grid->rows->sweep->axis[axis].n > 1;
}

static void count_cell(tally *t, int64_t i) {
  const hec_sweep_cell *cell = &t->grid->cells[i];
  bool won = cell->family == t->family;
  double seconds = cell->family_s[t->family], behind = seconds > 0 ? seconds / cell->cell.seconds.low - 1 : INFINITY;
  t->n_of++;
  t->n_won += won;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (is_told(t, a)) {
      t->of[a][place_of(t, i, a)]++;
      t->won[a][place_of(t, i, a)] += won;
    }
  if (behind < t->behind) {
    t->behind = behind;
    t->nearest = i;
  }
  double gain = cell->cell.vs_ep.low;
  t->without_ep = t->without_ep || (won && cell->cell.no_ep);
  if (!won || !(gain > 0))
    return;
  t->vs_ep.low = t->vs_ep.low > 0 && t->vs_ep.low < gain ? t->vs_ep.low : gain;
  t->vs_ep.high = gain > t->vs_ep.high ? gain : t->vs_ep.high;
}

static void count(tally *t) {
  const hec_sweep *s = t->grid->rows->sweep;
  t->behind = INFINITY;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
    t->won[a] = HEC_NEW(&t->arena, int64_t, s->axis[a].n);
    t->of[a] = HEC_NEW(&t->arena, int64_t, s->axis[a].n);
  }
  for (int64_t i = 0; i < t->grid->n_combinations * cells_of_map(t->grid); i++)
    if (t->grid->cells[i].cell.who >= 0)
      count_cell(t, i);
}

/* Cells with one of the values of an axis with which the family wins somewhere; n_of: it wins with each of them. */
static int64_t reach_of(const tally *t, int32_t axis) {
  int64_t n = 0;
  for (int32_t v = 0; v < t->grid->rows->sweep->axis[axis].n; v++)
    n += t->won[axis][v] > 0 ? t->of[axis][v] : 0;
  return n;
}

/* The axes that narrow its wins down most, the narrowest first. */
static int32_t find_conditions(const tally *t, int32_t axis[CONDITIONS_MAX]) {
  int32_t n = 0;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
    if (!is_told(t, a) || reach_of(t, a) == t->n_of)
      continue;
    int32_t k = n < CONDITIONS_MAX ? n++ : CONDITIONS_MAX;
    for (; k > 0 && reach_of(t, axis[k - 1]) > reach_of(t, a); k--)
      if (k < CONDITIONS_MAX)
        axis[k] = axis[k - 1];
    if (k < CONDITIONS_MAX)
      axis[k] = a;
  }
  return n;
}

/* Cells that meet all the conditions. */
static int64_t met_by(const tally *t, const int32_t *axis, int32_t n) {
  int64_t met = 0;
  for (int64_t i = 0; i < t->grid->n_combinations * cells_of_map(t->grid); i++) {
    bool meets = t->grid->cells[i].cell.who >= 0;
    for (int32_t k = 0; meets && k < n; k++)
      meets = t->won[axis[k]][place_of(t, i, axis[k])] > 0;
    met += meets;
  }
  return met;
}

static void add_condition(tally *t, int32_t axis, hec_text *out) {
  int32_t n = t->grid->rows->sweep->axis[axis].n;
  bool *some = HEC_NEW(&t->arena, bool, n);
  for (int32_t v = 0; v < n; v++)
    some[v] = t->won[axis][v] > 0;
  hec_sweep_add_values(t->grid->rows, axis, some, out);
}

/* The value with which it wins the greatest share of cells, if some share is greater than another. */
static void add_most(tally *t, hec_text *out) {
  double best = (double)t->n_won / (double)t->n_of;
  int32_t axis = -1, value = 0;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    for (int32_t v = 0; is_told(t, a) && v < t->grid->rows->sweep->axis[a].n; v++) {
      double share = t->of[a][v] > 0 ? (double)t->won[a][v] / (double)t->of[a][v] : 0;
      if (share > best * (1 + 1e-9)) {
        best = share;
        axis = a;
        value = v;
      }
    }
  if (axis < 0)
    return;
  bool *some = HEC_NEW(&t->arena, bool, t->grid->rows->sweep->axis[axis].n);
  some[value] = true;
  hec_text_printf(out, ", among them %" PRId64 " of the %" PRId64 " with ", t->won[axis][value], t->of[axis][value]);
  hec_sweep_add_values(t->grid->rows, axis, some, out);
}

/* " (eplb, flexmoe)": policies of the family that win somewhere. */
static void add_winners(const tally *t, hec_text *out) {
  const hec_policy *seen[NAMES_MAX];
  int32_t n = 0;
  bool more = false;
  for (int64_t i = 0; i < t->grid->n_combinations * cells_of_map(t->grid); i++) {
    const hec_sweep_cell *cell = &t->grid->cells[i];
    if (cell->cell.who < 0 || cell->family != t->family)
      continue;
    int32_t k = 0;
    while (k < n && strcmp(seen[k]->name, cell->policy->name) != 0)
      k++;
    more = more || k == NAMES_MAX;
    if (k == n && n < NAMES_MAX)
      seen[n++] = cell->policy;
  }
  for (int32_t k = 0; k < n; k++)
    hec_text_printf(out, "%s%s", k ? ", " : " (", seen[k]->name);
  hec_text_add(out, more ? " and others)" : ")");
}

static void add_wins(tally *t, hec_text *out) {
  int32_t axis[CONDITIONS_MAX], n = find_conditions(t, axis);
  int64_t met = met_by(t, axis, n);
  add_winners(t, out);
  if (t->n_won == t->n_of)
    hec_text_add(out, " wins everywhere");
  else if (n == 0)
    hec_text_printf(out, " wins %" PRId64 " of %" PRId64 " cells", t->n_won, t->n_of);
  else
    hec_text_printf(out, " wins %s%" PRId64, t->n_won == met ? "all " : "", t->n_won);
  if (n > 0 && t->n_won < met)
    hec_text_printf(out, " of the %" PRId64, met);
  if (n > 0)
    hec_text_add(out, " cells with ");
  for (int32_t k = 0; k < n; k++) {
    hec_text_add(out, k ? " and " : "");
    add_condition(t, axis[k], out);
  }
  if (n > 0)
    hec_text_add(out, ", and none elsewhere");
  else if (t->n_won < t->n_of)
    add_most(t, out);
  if (t->family != HEC_FAMILY_EP && t->vs_ep.low > 0) {
    hec_number low = hec_times(t->vs_ep.low), high = hec_times(t->vs_ep.high);
    hec_text_printf(out, ": %s%s%s times as fast as ep%s", low.text, strcmp(low.text, high.text) != 0 ? " to " : "",
                    strcmp(low.text, high.text) != 0 ? high.text : "", t->without_ep ? " where ep fits" : "");
  }
  hec_text_add(out, ".\n");
}

static void add_nowhere(tally *t, hec_text *out) {
  hec_text_printf(out, " wins nowhere and comes nearest, %s behind", hec_percent(t->behind).text);
  const char *between = ", with ";
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
    if (!is_told(t, a))
      continue;
    bool *some = HEC_NEW(&t->arena, bool, t->grid->rows->sweep->axis[a].n);
    some[place_of(t, t->nearest, a)] = true;
    hec_text_add(out, between);
    hec_sweep_add_values(t->grid->rows, a, some, out);
    between = ", ";
  }
  hec_text_add(out, ".\n");
}

void hec_sweep_say_families(const hec_sweep_grid *grid, hec_text *out) {
  for (int32_t i = 0; i < 2 * HEC_N_FAMILIES; i++) { /* those that win somewhere, then the others */
    tally t = {.grid = grid, .family = (hec_sweep_family)(i % HEC_N_FAMILIES)};
    count(&t);
    bool wins = t.n_won > 0;
    if (isfinite(t.behind) && wins == (i < HEC_N_FAMILIES)) { /* some of it runs and fits */
      hec_text_add(out, family_name[t.family]);
      (wins ? add_wins : add_nowhere)(&t, out);
    }
    hec_arena_free(&t.arena);
  }
}
