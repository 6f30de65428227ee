/* The regime map: a table over two axes whose cells say which system wins, its time, and by how much; coloured by
 * winner. And its verdict. */
#include "tools/front/page/chart.h"

#include <inttypes.h>
#include <math.h>

enum { COLORS = 8 };

/* Ranges of one winner over the cells it wins. */
typedef struct {
  double min, max; /* of next / winner where it is ahead; 0: nowhere */
  int64_t n_close; /* cells in which another is as good as equally fast */
} margin;

static bool is_close(const hec_report_cell *cell) {
  return cell->next > 0 && cell->next / cell->seconds - 1 <= HEC_SUMMARY_CLOSE;
}

static margin margin_of(const hec_report_maps *maps, int32_t who) {
  margin m = {0, 0, 0};
  for (int32_t i = 0; i < maps->n_maps; i++)
    for (int32_t k = 0; k < maps->n_x * maps->n_y; k++) {
      const hec_report_cell *cell = &maps->maps[i].cells[k];
      double over = cell->who == who && cell->next > 0 ? cell->next / cell->seconds : 0;
      if (!(over > 0))
        continue;
      if (is_close(cell)) {
        m.n_close++;
        continue;
      }
      m.min = m.min > 0 && m.min < over ? m.min : over;
      m.max = over > m.max ? over : m.max;
    }
  return m;
}

void hec_report_maps_verdict(const hec_report_maps *maps, hec_text *out) {
  int64_t n = (int64_t)maps->n_maps * maps->n_x * maps->n_y, won = 0;
  if (maps->n_names == 0) {
    hec_text_add(out, "No system runs and fits anywhere in this sweep.\n");
    return;
  }
  for (int32_t i = 0; i < maps->n_names; i++)
    won += maps->n_cells[i];
  margin m = margin_of(maps, 0);
  hec_text_printf(out, "Fastest that fits and drops nothing: %s in %" PRId64 " of %" PRId64 " cells", maps->names[0],
                  maps->n_cells[0], n);
  if (m.max > 0)
    hec_text_printf(out, ", %s to %s times as fast as the next", hec_times(m.min).text, hec_times(m.max).text);
  if (m.n_close > 0 && m.n_close == maps->n_cells[0])
    hec_text_add(out, ", everywhere within 0.5 % of the next");
  else if (m.n_close > 0)
    hec_text_printf(out, "%s in %" PRId64 " of them within 0.5 %% of the next", m.max > 0 ? ";" : ",", m.n_close);
  hec_text_add(out, ".\n");
  for (int32_t i = 1; i < maps->n_names && i < 4; i++)
    hec_text_printf(out, "%s%s in %" PRId64, i == 1 ? "" : ", ", maps->names[i], maps->n_cells[i]);
  if (maps->n_names > 4)
    hec_text_printf(out, ", %" PRId32 " others in fewer", maps->n_names - 4);
  hec_text_add(out, maps->n_names > 1 ? ".\n" : "");
  if (won < n)
    hec_text_printf(out, "In %" PRId64 " cells no system runs and fits.\n", n - won);
}

static void add_heading(const char *text, const char *scope, hec_text *out) {
  hec_text_printf(out, "<th scope=\"%s\">", scope);
  hec_page_add(text, out);
  hec_text_add(out, "</th>");
}

static void add_cell(const hec_report_cell *cell, hec_text *out) {
  if (cell->who < 0) {
    hec_text_add(out, "<td><b>-</b><small>nothing that fits</small></td>");
    return;
  }
  hec_text_printf(out, "<td class=\"r%" PRId32 "\"><b>", cell->who < COLORS ? cell->who : COLORS - 1);
  hec_page_add(cell->name, out);
  hec_text_printf(out, "</b><small>%s</small><small>", hec_seconds(cell->seconds).text);
  if (is_close(cell)) {
    hec_text_add(out, "within 0.5 % of ");
    hec_page_add(cell->next_name, out);
  } else if (cell->next > 0) {
    hec_text_printf(out, "%sx as fast as ", hec_times(cell->next / cell->seconds).text);
    hec_page_add(cell->next_name, out);
  } else {
    hec_text_add(out, "alone");
  }
  hec_text_add(out, "</small>");
  if (cell->vs_ep > 0) {
    hec_text_printf(out, "<small>%sx as fast as ", hec_times(cell->vs_ep).text);
    hec_page_add(cell->ep, out);
    hec_text_add(out, "</small>");
  }
  hec_text_add(out, "</td>");
}

static void add_map(const hec_report_maps *maps, const hec_report_map *map, hec_text *out) {
  hec_text_add(out, "<h3>");
  hec_page_add(map->fixed && map->fixed[0] ? map->fixed : "all configurations", out);
  hec_text_add(out, "</h3>\n");
  hec_page_wide("Regime map", out);
  hec_text_add(out, "<table class=\"map\">\n<thead><tr>");
  hec_text corner = {0};
  hec_text_printf(&corner, "%s%s%s", maps->y_name, maps->y_name[0] && maps->x_name[0] ? " \\ " : "", maps->x_name);
  add_heading(corner.data, "col", out);
  hec_text_free(&corner);
  for (int32_t x = 0; x < maps->n_x; x++)
    add_heading(maps->x_value[x], "col", out);
  hec_text_add(out, "</tr></thead>\n<tbody>\n");
  for (int32_t y = 0; y < maps->n_y; y++) {
    hec_text_add(out, "<tr>");
    add_heading(maps->y_value[y], "row", out);
    for (int32_t x = 0; x < maps->n_x; x++)
      add_cell(&map->cells[y * maps->n_x + x], out);
    hec_text_add(out, "</tr>\n");
  }
  hec_text_add(out, "</tbody></table>");
  hec_page_wide_end(out);
}

static void say(const hec_report_maps *maps, hec_text *out) {
  hec_chart_says(out);
  if (maps->n_names > 0) {
    hec_page_add(maps->names[0], out);
    hec_text_printf(out, " wins %" PRId64 " of %" PRId64 " cells", maps->n_cells[0],
                    (int64_t)maps->n_maps * maps->n_x * maps->n_y);
    if (maps->n_names > 1) {
      hec_text_add(out, ", ");
      hec_page_add(maps->names[1], out);
      hec_text_printf(out, " %" PRId64, maps->n_cells[1]);
    }
    hec_text_add(out, ".");
  } else {
    hec_text_add(out, "Nothing fits anywhere.");
  }
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(
      out,
      "Each cell: the fastest system that fits and drops nothing, its median iteration in ms, us or s, and its speed "
      "over the next and over ep under the schedule asked for, which is speedup_vs_ep of the CSV (ratios of medians); "
      "less than 0.5 % is no lead. The axes are the two with most values; what else varies "
      "has a map of its own.");
  if (maps->n_left_out > 0)
    hec_text_printf(out, " %" PRId64 " more maps are left out for the page's size: the CSV has their rows.",
                    maps->n_left_out);
  if (maps->n_failed > 0)
    hec_text_printf(out, " %" PRId64 " of %" PRId64 " configurations could not run: the CSV says why.", maps->n_failed,
                    maps->n_rows);
  hec_chart_said(out);
}

static void draw(const hec_report *report, hec_text *out) {
  const hec_report_maps *maps = report->maps;
  say(maps, out);
  hec_text_add(out, "<div class=\"keys\">");
  for (int32_t i = 0; i < maps->n_names; i++) {
    hec_text_printf(out, "<span><i class=\"swatch r%" PRId32 "\"></i><b>", i < COLORS ? i : COLORS - 1);
    hec_page_add(maps->names[i], out);
    hec_text_add(out, "</b></span>");
  }
  hec_text_add(out, "</div>\n");
  for (int32_t i = 0; i < maps->n_maps; i++)
    add_map(maps, &maps->maps[i], out);
}

static bool applies(const hec_report *report) {
  return report->maps != NULL;
}

const hec_chart hec_chart_regime = {"regime", "Who wins where", applies, draw};
