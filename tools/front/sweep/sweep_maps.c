/* Regime maps of a sweep: over the two axes with most values (of equal ones the outer), which system that fits is
 * fastest, and by how much. Policies and schedules are what is chosen from; every combination of the other axes is a
 * map of its own. Linear in the rows. */
#include "tools/front/sweep/sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAPS_MOST = 24 };

static bool is_choice(int32_t axis) {
  return axis == HEC_AXIS_schedule || axis == HEC_AXIS_policy;
}

/* The axis with most values but `not`; -1: none has two. */
static int32_t longest_axis(const hec_sweep *s, int32_t not ) {
  int32_t best = -1;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (!is_choice(a) && a != not &&s->axis[a].n > 1 && (best < 0 || s->axis[a].n > s->axis[best].n))
      best = a;
  return best;
}

/* "" is none: of slow and skew. */
static const char *label_of(const hec_sweep_value *value) {
  return value->text[0] ? value->text : "none";
}

static int32_t place_of(const hec_sweep *s, int64_t index, int32_t axis) {
  return axis < 0 ? 0 : (int32_t)(hec_sweep_at(s, index, (hec_sweep_axis)axis) - s->axis[axis].value);
}

typedef struct {
  const hec_sweep_rows *rows;
  hec_report_maps *maps;
  hec_arena *arena;
  int32_t x, y;       /* axes; -1: none */
  const char **names; /* of systems, as they are met */
  int64_t *cells;     /* that each wins */
  int32_t n_names;
} mapper;

/* Which map a configuration is in: the mixed-radix number of its places on the other axes. */
static int64_t map_of(const mapper *m, int64_t index) {
  const hec_sweep *s = m->rows->sweep;
  int64_t number = 0;
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (!is_choice(a) && a != m->x && a != m->y)
      number = number * s->axis[a].n + place_of(s, index, a);
  return number;
}

/* What is the same in a map and not in all of them. */
static const char *describe_map(const mapper *m, int64_t index) {
  const hec_sweep *s = m->rows->sweep;
  hec_text text = {0};
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (!is_choice(a) && a != m->x && a != m->y && s->axis[a].n > 1)
      hec_text_printf(&text, "%s%s %s", text.length > 0 ? ", " : "", hec_sweep_axis_name(a),
                      label_of(hec_sweep_at(s, index, (hec_sweep_axis)a)));
  const char *copy = hec_arena_text(m->arena, text.data ? text.data : "");
  hec_text_free(&text);
  return copy;
}

static int32_t name_of(mapper *m, const char *name) {
  for (int32_t i = 0; i < m->n_names; i++)
    if (strcmp(m->names[i], name) == 0)
      return i;
  m->names[m->n_names] = hec_arena_text(m->arena, name);
  return m->n_names++;
}

/* The system of a row: its policy, with the schedule where several were asked for. */
static int32_t system_of(mapper *m, int64_t index) {
  const hec_sweep *s = m->rows->sweep;
  const char *policy = hec_sweep_at(s, index, HEC_AXIS_policy)->text;
  if (s->axis[HEC_AXIS_schedule].n == 1)
    return name_of(m, policy);
  hec_text name = {0};
  hec_text_printf(&name, "%s/%s", policy, hec_sweep_schedule(m->rows, index));
  int32_t id = name_of(m, name.data);
  hec_text_free(&name);
  return id;
}

static void take_lead(mapper *m, int64_t index, int32_t who, hec_report_cell *cell) {
  int64_t ep = hec_sweep_baseline(m->rows, index);
  cell->next = cell->who < 0 ? 0 : cell->seconds;
  cell->next_name = cell->who < 0 ? "" : cell->name;
  cell->who = who;
  cell->name = m->names[who];
  cell->seconds = m->rows->row[index]->value[HEC_SWEEP_MEDIAN];
  cell->vs_ep = hec_sweep_value_of(m->rows, index, HEC_SWEEP_VS_EP);
  cell->ep = ep < 0 ? "" : m->names[system_of(m, ep)];
}

static void add_row(mapper *m, int64_t index) {
  const hec_sweep *s = m->rows->sweep;
  const hec_sweep_row *row = m->rows->row[index];
  const hec_policy *policy = hec_sweep_policy(s, index);
  int64_t map = map_of(m, index);
  m->maps->n_rows++;
  m->maps->n_failed += row->why != NULL;
  if (map >= m->maps->n_maps || row->why)
    return;
  hec_report_cell *cell = &m->maps->maps[map].cells[place_of(s, index, m->y) * m->maps->n_x + place_of(s, index, m->x)];
  double median = row->value[HEC_SWEEP_MEDIAN];
  if (policy->reference || policy->drops || !(row->value[HEC_SWEEP_FITS] > 0))
    return;
  int32_t who = system_of(m, index);
  if (who == cell->who) /* a policy that runs under one schedule only stands there under every one asked for */
    return;
  if (cell->who < 0 || median < cell->seconds) {
    take_lead(m, index, who, cell);
  } else if (!(cell->next > 0) || median < cell->next) {
    cell->next = median;
    cell->next_name = m->names[who];
  }
}

/* Names by the cells they win, most first; those that win none are left out. */
static void order_names(mapper *m) {
  hec_report_maps *maps = m->maps;
  int32_t *rank = HEC_NEW(m->arena, int32_t, m->n_names + 1), *order = HEC_NEW(m->arena, int32_t, m->n_names + 1),
          n = 0;
  for (int32_t i = 0; i < maps->n_maps; i++)
    for (int32_t k = 0; k < maps->n_x * maps->n_y; k++)
      if (maps->maps[i].cells[k].who >= 0)
        m->cells[maps->maps[i].cells[k].who]++;
  for (int32_t i = 0; i < m->n_names; i++) {
    int32_t k = n;
    if (m->cells[i] == 0)
      continue;
    for (; k > 0 && m->cells[order[k - 1]] < m->cells[i]; k--)
      order[k] = order[k - 1];
    order[k] = i;
    n++;
  }
  const char **names = HEC_NEW(m->arena, const char *, n + 1);
  int64_t *cells = HEC_NEW(m->arena, int64_t, n + 1);
  for (int32_t i = 0; i < n; i++) {
    names[i] = m->names[order[i]];
    cells[i] = m->cells[order[i]];
    rank[order[i]] = i;
  }
  for (int32_t i = 0; i < maps->n_maps; i++)
    for (int32_t k = 0; k < maps->n_x * maps->n_y; k++)
      if (maps->maps[i].cells[k].who >= 0)
        maps->maps[i].cells[k].who = rank[maps->maps[i].cells[k].who];
  maps->names = names;
  maps->n_cells = cells;
  maps->n_names = n;
}

static const char *const *values_of(const mapper *m, int32_t axis, int32_t *n, const char **name) {
  const hec_sweep *s = m->rows->sweep;
  *n = axis < 0 ? 1 : s->axis[axis].n;
  *name = axis < 0 ? "" : hec_sweep_axis_name(axis);
  const char **values = HEC_NEW(m->arena, const char *, *n);
  for (int32_t i = 0; i < *n; i++)
    values[i] = axis < 0 ? "" : label_of(&s->axis[axis].value[i]);
  return values;
}

hec_report_maps hec_sweep_maps(const hec_sweep_rows *rows, hec_arena *arena) {
  const hec_sweep *s = rows->sweep;
  hec_report_maps maps = {0};
  int32_t n_policies = s->axis[HEC_AXIS_policy].n, n_systems = n_policies * s->axis[HEC_AXIS_schedule].n,
          n_names = n_policies * HEC_SCHEDULES_MAX; /* "best" is any of them */
  mapper m = {.rows = rows,
              .maps = &maps,
              .arena = arena,
              .x = longest_axis(s, -1),
              .names = HEC_NEW(arena, const char *, n_names),
              .cells = HEC_NEW(arena, int64_t, n_names)};
  m.y = m.x < 0 ? -1 : longest_axis(s, m.x);
  maps.x_value = values_of(&m, m.x, &maps.n_x, &maps.x_name);
  maps.y_value = values_of(&m, m.y, &maps.n_y, &maps.y_name);
  int64_t n = s->n / n_systems / maps.n_x / maps.n_y;
  maps.n_maps = n < MAPS_MOST ? (int32_t)n : (int32_t)MAPS_MOST;
  maps.n_left_out = n - maps.n_maps;
  maps.maps = HEC_NEW(arena, hec_report_map, maps.n_maps);
  for (int32_t i = 0; i < maps.n_maps; i++) {
    maps.maps[i].cells = HEC_NEW(arena, hec_report_cell, maps.n_x * maps.n_y);
    for (int32_t k = 0; k < maps.n_x * maps.n_y; k++)
      maps.maps[i].cells[k].who = -1;
  }
  for (int64_t i = 0; i < s->n; i++) {
    int64_t map = map_of(&m, i);
    if (map < maps.n_maps && !maps.maps[map].fixed)
      maps.maps[map].fixed = describe_map(&m, i);
    add_row(&m, i);
  }
  order_names(&m);
  return maps;
}

/* ---- The page ---- */

/* "not modelled by NAME: ..." of every law of the sweep; values that are the same everywhere. */
static int32_t add_assumed(const hec_sweep *s, hec_arena *arena, hec_report_fact *assumed) {
  hec_text word = {0};
  int32_t n = 0;
  for (int32_t i = 0; i < s->axis[HEC_AXIS_law].n; i++) {
    const hec_law *law = hec_law_find(s->axis[HEC_AXIS_law].value[i].text);
    if (!law)
      continue;
    word.length = 0;
    hec_text_printf(&word, "not modelled by %s", hec_law_name(law));
    assumed[n++] = (hec_report_fact){hec_arena_text(arena, word.data), hec_args_with_flags(hec_law_limits(law), arena)};
  }
  hec_text_free(&word);
  assumed[n++] =
      (hec_report_fact){"auto", "hecate-sim's own choice for each configuration; run one by itself to read it"};
  return n;
}

static const char *describe_sweep(const hec_sweep *s, hec_arena *arena) {
  hec_text text = {0};
  hec_text_printf(&text, "%" PRId64 " configurations", s->n);
  for (int32_t a = 0, n = 0; a < HEC_SWEEP_AXES; a++)
    if (s->axis[a].n > 1)
      hec_text_printf(&text, "%s%" PRId32 " %s", n++ ? " x " : ": ", s->axis[a].n, hec_sweep_axis_name(a));
  const char *copy = hec_arena_text(arena, text.data);
  hec_text_free(&text);
  return copy;
}

void hec_sweep_page(const hec_sweep_rows *rows, const char *tool, hec_text *out) {
  const hec_sweep *s = rows->sweep;
  hec_arena arena = {0};
  hec_text verdict = {0};
  hec_report_maps maps = hec_sweep_maps(rows, &arena);
  hec_report_maps_verdict(&maps, &verdict);
  hec_report_fact *assumed = HEC_NEW(&arena, hec_report_fact, s->axis[HEC_AXIS_law].n + 1), facts[HEC_SWEEP_AXES + 1];
  hec_report report = {.tool = tool, .title = "sweep", .maps = &maps, .verdict = verdict.data, .assumed = assumed};
  facts[report.n_facts++] = (hec_report_fact){"sweep", describe_sweep(s, &arena)};
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (s->axis[a].n == 1 && strcmp(s->axis[a].value[0].text, HEC_SWEEP_AUTO) != 0 && s->axis[a].value[0].text[0])
      facts[report.n_facts++] = (hec_report_fact){hec_sweep_axis_name(a), s->axis[a].value[0].text};
  report.facts = facts;
  report.n_assumed = add_assumed(s, &arena, assumed);
  for (int64_t i = 0; i < s->n; i++)
    report.synthetic = report.synthetic || (!rows->row[i]->why && rows->row[i]->value[HEC_SWEEP_SYNTHETIC] > 0);
  hec_report_write(&report, out);
  hec_text_free(&verdict);
  hec_arena_free(&arena);
}
