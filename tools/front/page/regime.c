/* The regime map: a table over two axes whose cells say which system wins, by how much, and its time; coloured by the gain.
 * And its verdict. */
#include "tools/front/page/chart.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CLASSES = 8, BESIDE_MAX = 4 /* columns of maps that stand beside each other */ };
static const double gain_from[CLASSES] = {0, 1 + HEC_SUMMARY_CLOSE, 1.05, 1.1, 1.25, 1.5, 2, 3};

/* Ranges of one winner over the cells it wins. */
typedef struct {
  hec_report_range ahead; /* of its speed over the next where it is ahead; 0: nowhere */
  int64_t n_close;        /* cells in which another is as good as equally fast */
} margin;

static bool is_close(double over_next) {
  return over_next > 0 && over_next - 1 <= HEC_SUMMARY_CLOSE;
}

static margin margin_of(const hec_report_maps *maps, int32_t who) {
  margin m = {{0, 0}, 0};
  for (int32_t i = 0; i < maps->n_maps; i++)
    for (int32_t k = 0; k < maps->n_x * maps->n_y; k++) {
      const hec_report_cell *cell = &maps->maps[i].cells[k];
      const hec_report_range over = cell->over_next;
      if (cell->who != who || !(over.low > 0))
        continue;
      if (is_close(over.low))
        m.n_close += maps->maps[i].n_joined;
      if (is_close(over.high))
        continue;
      m.ahead.low = m.ahead.low > 0 && m.ahead.low < over.low ? m.ahead.low : over.low;
      m.ahead.high = over.high > m.ahead.high ? over.high : m.ahead.high;
    }
  return m;
}

static int64_t combinations_of(const hec_report_maps *maps) {
  int64_t n = 0;
  for (int32_t i = 0; i < maps->n_maps; i++)
    n += maps->maps[i].n_joined;
  return n;
}

/* Cells in which something runs and fits. */
static int64_t won_of(const hec_report_maps *maps) {
  int64_t n = 0;
  for (int32_t i = 0; i < maps->n_names; i++)
    n += maps->n_cells[i];
  return n;
}

/* Cells without a winner: which are too large, which are no configuration at all. */
static void add_empty(const hec_report_maps *maps, hec_text *out) {
  int64_t n_ran = 0, n = 0;
  for (int32_t i = 0; i < maps->n_maps; i++)
    for (int32_t k = 0; k < maps->n_x * maps->n_y; k++)
      if (maps->maps[i].cells[k].who < 0) {
        n_ran += maps->maps[i].cells[k].ran ? maps->maps[i].n_joined : 0;
        n += maps->maps[i].n_joined;
      }
  if (n_ran > 0)
    hec_text_printf(out, "In %" PRId64 " more cell%s nothing fits into memory.\n", n_ran, n_ran == 1 ? "" : "s");
  if (n > n_ran)
    hec_text_printf(out, "In %" PRId64 " more cell%s nothing can run: the CSV says why.\n", n - n_ran,
                    n - n_ran == 1 ? "" : "s");
}

/* "1.04", "1.04 to 1.61" */
static void add_range(hec_number low, hec_number high, hec_text *out) {
  hec_text_add(out, low.text);
  if (strcmp(low.text, high.text) != 0)
    hec_text_printf(out, " to %s", high.text);
}

void hec_report_maps_verdict(const hec_report_maps *maps, hec_text *out) {
  int64_t won = won_of(maps);
  if (maps->n_names == 0) {
    hec_text_add(out, "No system runs and fits anywhere in this sweep.\n");
    return;
  }
  margin m = margin_of(maps, 0);
  hec_text_printf(out, "Fastest that fits and drops nothing: %s in %" PRId64 " of %" PRId64 " cells", maps->names[0],
                  maps->n_cells[0], won);
  if (m.ahead.high > 0) {
    hec_text_add(out, ", ");
    add_range(hec_times(m.ahead.low), hec_times(m.ahead.high), out);
    hec_text_add(out, " times as fast as the next");
  }
  if (m.n_close > 0 && m.n_close == maps->n_cells[0])
    hec_text_add(out, ", everywhere within 0.5 % of the next");
  else if (m.n_close > 0)
    hec_text_printf(out, "%s in %" PRId64 " of them within 0.5 %% of the next", m.ahead.high > 0 ? ";" : ",",
                    m.n_close);
  hec_text_add(out, ".\n");
  hec_text_add(out, maps->families ? maps->families : "");
  if (maps->n_without_ep > 0)
    hec_text_printf(out,
                    "In %" PRId64 " of the %" PRId64
                    " cells ep does not fit or cannot run: gains there are over the next that fits.\n",
                    maps->n_without_ep, won);
  add_empty(maps, out);
}

static void add_heading(const char *text, const char *scope, hec_text *out) {
  hec_text_printf(out, "<th scope=\"%s\">", scope);
  hec_page_add(text, out);
  hec_text_add(out, "</th>");
}

/* Coloured by the gain over ep; where no ep ran, over the next. */
static int32_t class_of(const hec_report_cell *cell) {
  double gain = cell->vs_ep.low > 0 ? cell->vs_ep.low : cell->over_next.low;
  int32_t c = 0;
  while (c + 1 < CLASSES && gain >= gain_from[c + 1])
    c++;
  return c;
}

static void add_cell(const hec_report_maps *maps, const hec_report_cell *cell, hec_text *out) {
  if (cell->who < 0) {
    hec_text_printf(out, "<td><b>-</b><small>%s</small></td>", cell->ran ? "nothing fits" : "cannot run");
    return;
  }
  hec_text_printf(out, "<td class=\"g%" PRId32 "\">", class_of(cell));
  hec_page_name(&(hec_page_item){cell->who, cell->name, cell->about}, out);
  if (cell->schedule && cell->schedule[0]) {
    hec_text_printf(out, "<small>%s ", maps->of_schedules ? "schedule" : "pipeline");
    hec_page_add(cell->schedule, out);
    hec_text_add(out, "</small>");
  }
  if (cell->vs_ep.low > 0) {
    hec_text_add(out, "<small>");
    add_range(hec_times(cell->vs_ep.low), hec_times(cell->vs_ep.high), out);
    hec_text_add(out, "x as fast as ");
    hec_page_add(cell->ep, out);
    hec_text_add(out, "</small>");
  } else if (cell->no_ep) {
    hec_text_add(out, "<small>");
    hec_page_add(cell->no_ep, out);
    hec_text_add(out, "</small>");
  }
  hec_text_add(out, "<small>");
  if (is_close(cell->over_next.high)) {
    hec_text_add(out, "within 0.5 % of ");
  } else if (cell->over_next.low > 0) {
    add_range(hec_times(cell->over_next.low), hec_times(cell->over_next.high), out);
    hec_text_add(out, "x as fast as ");
  }
  if (cell->over_next.low > 0)
    hec_page_add(cell->next_name ? cell->next_name : "the next", out);
  else
    hec_text_add(out, "alone");
  hec_text_add(out, "</small><small>");
  add_range(hec_seconds(cell->seconds.low), hec_seconds(cell->seconds.high), out);
  hec_text_add(out, "</small></td>");
}

static void add_map(const hec_report_maps *maps, const hec_report_map *map, hec_text *out) {
  hec_text_add(out, "<div>\n<h3>");
  hec_page_add(map->fixed && map->fixed[0] ? map->fixed : "all configurations", out);
  hec_text_add(out, "</h3>\n");
  hec_page_wide("Regime map", out);
  hec_text_add(out, "<table class=\"map\">\n<thead><tr>");
  HEC_SCOPED(hec_text) corner = {0};
  hec_text_printf(&corner, "%s%s%s", maps->y_name, maps->y_name[0] && maps->x_name[0] ? " \\ " : "", maps->x_name);
  add_heading(corner.data, "col", out);
  for (int32_t x = 0; x < maps->n_x; x++)
    add_heading(maps->x_value[x], "col", out);
  hec_text_add(out, "</tr></thead>\n<tbody>\n");
  for (int32_t y = 0; y < maps->n_y; y++) {
    hec_text_add(out, "<tr>");
    add_heading(maps->y_value[y], "row", out);
    for (int32_t x = 0; x < maps->n_x; x++)
      add_cell(maps, &map->cells[y * maps->n_x + x], out);
    hec_text_add(out, "</tr>\n");
  }
  hec_text_add(out, "</tbody></table>");
  hec_page_wide_end(out);
  hec_text_add(out, "</div>\n");
}

static void say(const hec_report_maps *maps, hec_text *out) {
  int64_t n = combinations_of(maps);
  hec_chart_says(out);
  if (maps->n_names > 0) {
    for (int32_t i = 0; i < maps->n_names && i < 4; i++) {
      hec_text_add(out, i ? ", " : "");
      hec_page_add(maps->names[i], out);
      hec_text_printf(out, "%s %" PRId64, i ? "" : " wins", maps->n_cells[i]);
      if (i == 0)
        hec_text_printf(out, " of %" PRId64 " cells in which something fits", won_of(maps));
    }
    if (maps->n_names > 4)
      hec_text_printf(out, ", %" PRId32 " others fewer", maps->n_names - 4);
    hec_text_add(out, ".");
  } else {
    hec_text_add(out, "Nothing fits anywhere.");
  }
  if (n > maps->n_maps)
    hec_text_printf(out,
                    " %" PRId64 " grids are shown as %" PRId32
                    ": those with the same winners, and gains within 5 %% of "
                    "each other, are one.",
                    n, maps->n_maps);
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_printf(out,
                  "Each cell: the fastest system that fits and drops nothing. Below it its speed over ep%s "
                  "(speedup_vs_ep of the CSV), its speed over the next, and %s. Less than 0.5 %% is no lead. The axes "
                  "are the two with most values.",
                  maps->of_schedules ? " under the schedule asked for" : "", maps->time);
  if (maps->n_maps > HEC_REPORT_MAPS)
    hec_text_printf(out, " %" PRId32 " more grids are left out for the page's size: the CSV has their rows.",
                    maps->n_maps - HEC_REPORT_MAPS);
  if (maps->n_failed > 0)
    hec_text_printf(out, " %" PRId64 " of %" PRId64 " configurations could not run: the CSV says why.", maps->n_failed,
                    maps->n_rows);
  hec_chart_said(out);
}

/* What is gained, by colour. */
static void add_keys(const hec_report_maps *maps, hec_text *out) {
  bool over_ep = false;
  for (int32_t i = 0; i < maps->n_maps; i++)
    for (int32_t k = 0; k < maps->n_x * maps->n_y; k++)
      over_ep = over_ep || maps->maps[i].cells[k].vs_ep.low > 0;
  hec_text_printf(out, "<div class=\"keys\"><span>speed over %s, from:</span>",
                  !over_ep                 ? "the next"
                  : maps->n_without_ep > 0 ? "ep (over the next where ep does not fit or cannot run)"
                                           : "ep");
  for (int32_t c = 0; c < CLASSES; c++)
    hec_text_printf(out, "<span><i class=\"swatch g%" PRId32 "\"></i>%s%s</span>", c,
                    c ? hec_fixed(gain_from[c], c == 1 ? 3 : 2).text : "no gain", c ? "x" : "");
  hec_text_add(out, "</div>\n");
}

static void draw(const hec_report *report, hec_text *out) {
  const hec_report_maps *maps = report->maps;
  say(maps, out);
  add_keys(maps, out);
  hec_text_printf(out, "<div class=\"panels maps%s\">\n", maps->n_x > BESIDE_MAX ? " wide" : "");
  for (int32_t i = 0; i < maps->n_maps && i < HEC_REPORT_MAPS; i++)
    add_map(maps, &maps->maps[i], out);
  hec_text_add(out, "</div>\n");
}

static bool applies(const hec_report *report) {
  return report->maps != NULL;
}

const hec_chart hec_chart_regime = {"regime", "Who wins where", applies, draw};
