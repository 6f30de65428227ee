/* Regime maps of a sweep: over the two axes with most values, which system that fits is fastest, and by how much. Of
 * axes with equally many values: the outer. Maps that do not differ, in who wins and in the gain, are one. Linear in
 * the rows, times the maps that are compared. */
#include "tools/front/sweep/sweep_maps.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  COMPARED_MAX = 64, /* maps that a further one is compared with */
  TOLD_MAX = 4       /* combinations that a heading names one by one */
};
static const double same = 0.05; /* gains that are less apart do not differ */

/* The axis with most values but `other`; -1: none has two. */
static int32_t longest_axis(const hec_sweep *s, int32_t other) {
  int32_t best = -1;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (!hec_sweep_is_choice(a) && a != other && s->axis[a].n > 1 && (best < 0 || s->axis[a].n > s->axis[best].n))
      best = a;
  return best;
}

static int32_t place_of(const hec_sweep *s, int64_t index, int32_t axis) {
  return axis < 0 ? 0 : (int32_t)(hec_sweep_at(s, index, (hec_sweep_axis)axis) - s->axis[axis].value);
}

static bool is_of_map(const hec_sweep_grid *grid, int32_t axis) {
  return hec_sweep_is_choice(axis) || axis == grid->x || axis == grid->y;
}

/* The mixed-radix number of a configuration's places on the axes beside the map's. */
static int64_t combination_of(const hec_sweep_grid *grid, int64_t index) {
  const hec_sweep *s = grid->rows->sweep;
  int64_t number = 0;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (!is_of_map(grid, a))
      number = number * s->axis[a].n + place_of(s, index, a);
  return number;
}

int32_t hec_sweep_place(const hec_sweep_grid *grid, int64_t combination, int32_t cell, int32_t axis) {
  const hec_sweep *s = grid->rows->sweep;
  if (axis == grid->x)
    return cell % grid->n_x;
  if (axis == grid->y)
    return cell / grid->n_x;
  for (int32_t a = HEC_SWEEP_AXES - 1; a > axis; a--)
    if (!is_of_map(grid, a))
      combination /= s->axis[a].n;
  return (int32_t)(combination % s->axis[axis].n);
}

/* ---- Who wins ---- */

bool hec_sweep_competes(const hec_sweep_rows *rows, int64_t index) {
  const hec_sweep_row *row = rows->row[index];
  const hec_policy *policy = hec_sweep_policy(rows->sweep, index);
  return !row->why && !policy->reference && !policy->drops && row->value[rows->sweep->kind->fits] > 0;
}

typedef struct {
  hec_sweep_grid *grid;
  hec_arena *arena;
  const char **names, **about; /* of systems, as they are met */
  int32_t n_names;
} mapper;

static int32_t name_of(mapper *m, const char *name, int64_t index) {
  const hec_policy *policy = hec_sweep_policy(m->grid->rows->sweep, index);
  for (int32_t i = 0; i < m->n_names; i++)
    if (strcmp(m->names[i], name) == 0)
      return i;
  m->names[m->n_names] = hec_arena_text(m->arena, name);
  m->about[m->n_names] = hec_report_about(policy->summary, policy->source, NULL, m->arena);
  return m->n_names++;
}

/* The system of a row: its policy, with the schedule where several were asked for. */
static int32_t system_of(mapper *m, int64_t index) {
  const hec_sweep *s = m->grid->rows->sweep;
  const char *policy = hec_sweep_at(s, index, HEC_AXIS_policy)->text;
  if (s->axis[HEC_AXIS_schedule].n == 1)
    return name_of(m, policy, index);
  HEC_SCOPED(hec_text) name = {0};
  hec_text_printf(&name, "%s/%s", policy, hec_sweep_schedule(m->grid->rows, index));
  int32_t id = name_of(m, name.data, index);
  return id;
}

static bool has_degrees(const hec_policy *policy) { /* FSSDP: its copies before the gate are an option */
  for (const hec_option *o = policy->options; o && o->name; o++)
    if (strcmp(o->name, "t") == 0)
      return true;
  return false;
}

static hec_sweep_family family_of(const hec_policy *policy) {
  return policy->baseline      ? HEC_FAMILY_EP
         : policy->rearranges  ? HEC_FAMILY_REARRANGEMENT
         : has_degrees(policy) ? HEC_FAMILY_FSSDP
                               : HEC_FAMILY_OTHERS;
}

static void set_next(hec_report_cell *cell, const char *name, double seconds) {
  cell->next_name = name;
  cell->over_next = (hec_report_range){seconds / cell->seconds.low, seconds / cell->seconds.low};
}

/* Why a cell is not compared with the baseline that its sweep has: what does not fit is no choice. */
static const char *without_baseline(mapper *m, int64_t index, int64_t ep) {
  const hec_sweep *s = m->grid->rows->sweep;
  if (ep >= 0)
    return hec_arena_printf(m->arena, "%s does not fit", m->names[system_of(m, ep)]);
  int64_t first = index - index % hec_sweep_policies(s);
  for (int64_t i = first; i < first + hec_sweep_policies(s); i++)
    if (hec_sweep_policy(s, i)->baseline)
      return hec_arena_printf(m->arena, "%s cannot run", m->names[system_of(m, i)]);
  return NULL;
}

static void take_lead(mapper *m, int64_t index, int32_t who, hec_report_cell *cell) {
  const hec_sweep_rows *rows = m->grid->rows;
  int64_t ep = hec_sweep_baseline(rows, index);
  double before = cell->seconds.low, median = rows->row[index]->value[rows->sweep->kind->seconds],
         vs_ep = hec_sweep_value_of(rows, index, rows->sweep->kind->vs_ep);
  const char *second = cell->who < 0 ? NULL : cell->name;
  *cell = (hec_report_cell){
      .who = who, .ran = true, .name = m->names[who], .about = m->about[who], .seconds = {median, median}};
  if (rows->sweep->axis[HEC_AXIS_schedule].n == 1)
    cell->schedule = hec_sweep_schedule(rows, index);
  if (second)
    set_next(cell, second, before);
  if (ep >= 0 && isfinite(vs_ep) && rows->row[ep]->value[rows->sweep->kind->fits] > 0) {
    cell->vs_ep = (hec_report_range){vs_ep, vs_ep};
    cell->ep = m->names[system_of(m, ep)];
  } else {
    cell->no_ep = without_baseline(m, index, ep);
  }
}

static void add_row(mapper *m, int64_t index) {
  const hec_sweep *s = m->grid->rows->sweep;
  const hec_sweep_row *row = m->grid->rows->row[index];
  const hec_policy *policy = hec_sweep_policy(s, index);
  hec_sweep_cell *at =
      &m->grid->cells[(combination_of(m->grid, index) * m->grid->n_y + place_of(s, index, m->grid->y)) * m->grid->n_x +
                      place_of(s, index, m->grid->x)];
  hec_report_cell *cell = &at->cell;
  cell->ran = cell->ran || !row->why;
  if (!hec_sweep_competes(m->grid->rows, index))
    return;
  double median = row->value[s->kind->seconds], *family_s = &at->family_s[family_of(policy)];
  *family_s = *family_s > 0 && *family_s <= median ? *family_s : median;
  int32_t who = system_of(m, index);
  if (who == cell->who) /* a policy that runs under one schedule only stands there under every one asked for */
    return;
  if (cell->who < 0 || median < cell->seconds.low) {
    take_lead(m, index, who, cell);
    at->policy = policy;
    at->family = family_of(policy);
  } else if (!(cell->over_next.low > 0) || median < cell->over_next.low * cell->seconds.low) {
    set_next(cell, m->names[who], median);
  }
}

/* Names by the cells they win, most first; those that win none are left out. */
static void order_names(mapper *m, hec_report_maps *maps) {
  const hec_sweep_grid *grid = m->grid;
  int64_t n_cells = grid->n_combinations * grid->n_y * grid->n_x, *won = HEC_NEW(m->arena, int64_t, m->n_names + 1);
  int32_t *rank = HEC_NEW(m->arena, int32_t, m->n_names + 1), *order = HEC_NEW(m->arena, int32_t, m->n_names + 1),
          n = 0;
  for (int64_t i = 0; i < n_cells; i++)
    if (grid->cells[i].cell.who >= 0)
      won[grid->cells[i].cell.who]++;
  for (int32_t i = 0; i < m->n_names; i++) {
    int32_t k = n;
    if (won[i] == 0)
      continue;
    for (; k > 0 && won[order[k - 1]] < won[i]; k--)
      order[k] = order[k - 1];
    order[k] = i;
    n++;
  }
  const char **names = HEC_NEW(m->arena, const char *, n + 1);
  int64_t *cells = HEC_NEW(m->arena, int64_t, n + 1);
  for (int32_t i = 0; i < n; i++) {
    names[i] = m->names[order[i]];
    cells[i] = won[order[i]];
    rank[order[i]] = i;
  }
  for (int64_t i = 0; i < n_cells; i++)
    if (grid->cells[i].cell.who >= 0) {
      grid->cells[i].cell.who = rank[grid->cells[i].cell.who];
      maps->n_without_ep += grid->cells[i].cell.no_ep != NULL;
    }
  maps->names = names;
  maps->n_cells = cells;
  maps->n_names = n;
}

static hec_sweep_grid make_grid(const hec_sweep_rows *rows, hec_report_maps *maps, hec_arena *arena) {
  const hec_sweep *s = rows->sweep;
  int32_t n_policies = s->axis[HEC_AXIS_policy].n, n_systems = n_policies * s->axis[HEC_AXIS_schedule].n,
          n_names = n_policies * HEC_SCHEDULES_MAX; /* "best" is any of them */
  hec_sweep_grid grid = {.rows = rows, .x = longest_axis(s, -1)};
  grid.y = grid.x < 0 ? -1 : longest_axis(s, grid.x);
  grid.n_x = grid.x < 0 ? 1 : s->axis[grid.x].n;
  grid.n_y = grid.y < 0 ? 1 : s->axis[grid.y].n;
  grid.n_combinations = s->n / n_systems / grid.n_x / grid.n_y;
  int64_t n_cells = grid.n_combinations * grid.n_x * grid.n_y;
  grid.cells = HEC_NEW(arena, hec_sweep_cell, n_cells);
  for (int64_t i = 0; i < n_cells; i++)
    grid.cells[i].cell.who = -1;
  mapper m = {&grid, arena, HEC_NEW(arena, const char *, n_names), HEC_NEW(arena, const char *, n_names), 0};
  for (int64_t i = 0; i < s->n; i++) {
    maps->n_rows++;
    maps->n_failed += rows->row[i]->why != NULL;
    add_row(&m, i);
  }
  order_names(&m, maps);
  return grid;
}

/* ---- Maps that do not differ ---- */

static hec_report_range gain_of(const hec_report_cell *cell) {
  return cell->vs_ep.low > 0 ? cell->vs_ep : cell->over_next;
}

static const char *why_not(const hec_report_cell *cell) {
  return cell->no_ep ? cell->no_ep : "";
}

static bool is_same(const hec_report_cell *a, const hec_report_cell *b) {
  double of_a = gain_of(a).low, of_b = gain_of(b).low;
  return a->who == b->who && a->ran == b->ran && (a->vs_ep.low > 0) == (b->vs_ep.low > 0) &&
         (a->over_next.low > 0) == (b->over_next.low > 0) && strcmp(why_not(a), why_not(b)) == 0 &&
         fabs(of_a - of_b) <= same * of_a;
}

static void widen(hec_report_range *range, hec_report_range by) {
  range->low = by.low < range->low ? by.low : range->low;
  range->high = by.high > range->high ? by.high : range->high;
}

static void widen_cell(hec_report_cell *cell, const hec_report_cell *by) {
  widen(&cell->seconds, by->seconds);
  widen(&cell->over_next, by->over_next);
  widen(&cell->vs_ep, by->vs_ep);
  if (cell->next_name && (!by->next_name || strcmp(cell->next_name, by->next_name) != 0))
    cell->next_name = NULL;
  if (cell->schedule && (!by->schedule || strcmp(cell->schedule, by->schedule) != 0))
    cell->schedule = NULL;
}

static const hec_sweep_cell *cells_of(const hec_sweep_grid *grid, int64_t combination) {
  return &grid->cells[combination * grid->n_x * grid->n_y];
}

/* As the first combination of the map has them: a chain of small differences joins nothing. */
static bool joins(const hec_sweep_grid *grid, int64_t first, int64_t combination) {
  for (int32_t k = 0; k < grid->n_x * grid->n_y; k++)
    if (!is_same(&cells_of(grid, first)[k].cell, &cells_of(grid, combination)[k].cell))
      return false;
  return true;
}

/* map_of: [n_combinations] which map each is part of; first: [n_combinations] of each map. How many maps. */
static int32_t group(const hec_sweep_grid *grid, int32_t *map_of, int64_t *first) {
  int32_t n = 0;
  for (int64_t c = 0; c < grid->n_combinations; c++) {
    int32_t at = 0;
    while (at < n && at < COMPARED_MAX && !joins(grid, first[at], c))
      at++;
    at = at < n && at == COMPARED_MAX ? n : at;
    if (at == n)
      first[n++] = c;
    map_of[c] = at;
  }
  return n;
}

/* What is the same in a map and not in all of them: "8 ranks, law alpha_beta or law nccl_rounds". Where its combinations are
 * no product of values, one after the other. */
static const char *describe(const hec_sweep_grid *grid, const int32_t *map_of, int32_t map, hec_arena *arena) {
  const hec_sweep *s = grid->rows->sweep;
  HEC_SCOPED(hec_text) text = {0};
  int64_t n = 0, product = 1;
  bool *some[HEC_SWEEP_AXES];
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
    int64_t n_some = 0;
    some[a] = HEC_NEW(arena, bool, s->axis[a].n);
    for (int64_t c = 0; !is_of_map(grid, a) && c < grid->n_combinations; c++)
      if (map_of[c] == map && !some[a][hec_sweep_place(grid, c, 0, a)]) {
        some[a][hec_sweep_place(grid, c, 0, a)] = true;
        n_some++;
      }
    product *= n_some > 0 ? n_some : 1;
  }
  for (int64_t c = 0; c < grid->n_combinations; c++)
    n += map_of[c] == map;
  int64_t told = 0, of = product == n ? 1 : n;
  for (int64_t c = 0; told < of && told < TOLD_MAX; c++) {
    if (product != n && map_of[c] != map)
      continue;
    hec_text_add(&text, told++ > 0 ? "; or " : "");
    const char *between = "";
    for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
      if (is_of_map(grid, a) || s->axis[a].n == 1)
        continue;
      bool *one = product == n ? some[a] : HEC_NEW(arena, bool, s->axis[a].n);
      if (product != n)
        one[hec_sweep_place(grid, c, 0, a)] = true;
      hec_text_add(&text, between);
      hec_sweep_add_values(grid->rows, a, one, &text);
      between = ", ";
    }
  }
  if (told < of)
    hec_text_printf(&text, "; or %" PRId64 " other combinations", of - told);
  const char *copy = hec_arena_text(arena, text.data ? text.data : "");
  return copy;
}

static const char *const *values_of(const hec_sweep_grid *grid, int32_t axis, int32_t n, hec_arena *arena) {
  const char **values = HEC_NEW(arena, const char *, n);
  for (int32_t i = 0; i < n; i++)
    values[i] = axis < 0 ? "" : hec_sweep_label(grid->rows, axis, i, arena);
  return values;
}

static const char *families_of(const hec_sweep_grid *grid, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0};
  hec_sweep_say_families(grid, &text);
  const char *copy = hec_arena_text(arena, text.data ? text.data : "");
  return copy;
}

hec_report_maps hec_sweep_maps(const hec_sweep_rows *rows, hec_arena *arena) {
  hec_report_maps maps = {0};
  hec_sweep_grid grid = make_grid(rows, &maps, arena);
  int32_t *map_of = HEC_NEW(arena, int32_t, grid.n_combinations), n_cells = grid.n_x * grid.n_y;
  int64_t *first = HEC_NEW(arena, int64_t, grid.n_combinations);
  maps.n_maps = group(&grid, map_of, first);
  maps.maps = HEC_NEW(arena, hec_report_map, maps.n_maps);
  for (int32_t i = 0; i < maps.n_maps; i++) {
    maps.maps[i].cells = HEC_NEW(arena, hec_report_cell, n_cells);
    for (int32_t k = 0; k < n_cells; k++)
      maps.maps[i].cells[k] = cells_of(&grid, first[i])[k].cell;
    if (i < HEC_REPORT_MAPS)
      maps.maps[i].fixed = describe(&grid, map_of, i, arena);
  }
  for (int64_t c = 0; c < grid.n_combinations; c++) {
    hec_report_map *map = &maps.maps[map_of[c]];
    map->n_joined++;
    for (int32_t k = 0; k < n_cells; k++)
      widen_cell(&map->cells[k], &cells_of(&grid, c)[k].cell);
  }
  maps.time = rows->sweep->kind->time;
  maps.of_schedules = hec_sweep_has(rows->sweep, HEC_AXIS_schedule);
  maps.x_name = grid.x < 0 ? "" : hec_sweep_axis_title(grid.x);
  maps.y_name = grid.y < 0 ? "" : hec_sweep_axis_title(grid.y);
  maps.n_x = grid.n_x;
  maps.n_y = grid.n_y;
  maps.x_value = values_of(&grid, grid.x, grid.n_x, arena);
  maps.y_value = values_of(&grid, grid.y, grid.n_y, arena);
  maps.families = families_of(&grid, arena);
  return maps;
}
