/* A step of the pipeline: a row for each stage, what it computes thick, its dispatch and other traffic thin below. And memory of
 * the fullest stage over the same time. */
#include "tools/front/page/chart.h"

#include <inttypes.h>

enum { COLUMNS = 8192, STAGE = 8, COMPUTED_AT = 3, TRAFFIC_AT = 7 };

#define SHOWN_NAME(name, text) text,
static const char *const shown_name[HEC_N_SHOWN] = {HEC_SHOWN_LIST(SHOWN_NAME)};
static const int32_t color_of[HEC_N_SHOWN] = {0, 1, 3, 8, 7, 2, 6, 5};

static int64_t column_of(const hec_report_pipeline *p, int64_t ps) {
  return hec_round(COLUMNS * (double)ps * 1e-12 / p->held.end_s);
}

/* Pieces of a kind as one path: a column of white stands between two of them where there is room. Of pieces shorter than a column
 * some are drawn, so that as much is seen as there is. */
static void add_kind(const hec_report_pipeline *p, int32_t kind, hec_text *out) {
  int64_t drawn_to = -1, pen = -1;
  int32_t stage = -1;
  double owed = 0; /* columns of pieces too short to be drawn */
  for (int32_t i = 0; i < p->n; i++) {
    const hec_report_piece *piece = &p->pieces[i];
    int64_t from = column_of(p, piece->begin_ps), to = column_of(p, piece->end_ps);
    if (piece->kind != kind)
      continue;
    drawn_to = piece->stage == stage ? drawn_to : -1;
    from = from < drawn_to ? drawn_to : from;
    owed += COLUMNS * (double)(piece->end_ps - piece->begin_ps) * 1e-12 / p->held.end_s;
    to = to <= from && owed >= 1 ? from + 1 : to;
    owed -= to > from ? (double)(to - from) : 0;
    if (to <= from)
      continue;
    int64_t length = to - from > 2 ? to - from - 1 : to - from;
    if (pen < 0)
      hec_text_printf(out, "<path class=\"s k%" PRId32 "\" stroke-width=\"%d\" d=\"", color_of[kind],
                      hec_shown_is_traffic(kind) ? 2 : 5);
    if (piece->stage != stage)
      hec_text_printf(out, "M%" PRId64 " %" PRId32, from,
                      STAGE * piece->stage + (hec_shown_is_traffic(kind) ? TRAFFIC_AT : COMPUTED_AT));
    else
      hec_text_printf(out, "m%" PRId64 " 0", from - pen);
    hec_text_printf(out, "h%" PRId64, length);
    pen = from + length;
    drawn_to = to;
    stage = piece->stage;
  }
  if (pen >= 0)
    hec_text_printf(out, "\"><title>%s</title></path>\n", shown_name[kind]);
}

static void add_labels(const hec_report_pipeline *p, hec_text *out) {
  int32_t step = p->n_stages > 16 ? (p->n_stages + 15) / 16 : 1;
  hec_plot_y_begin(false, out);
  for (int32_t i = 0; i < p->n_stages; i += step) {
    HEC_SCOPED(hec_text) name = {0};
    hec_text_printf(&name, "stage %" PRId32, i);
    hec_plot_y_label(1 - ((double)i + 0.5) / p->n_stages, name.data, out);
  }
  hec_plot_labels_end(out);
}

static void add_panel(const hec_report_pipeline *p, int32_t id, hec_text *out) {
  HEC_SCOPED(hec_text) label = {0};
  hec_text_printf(&label, "A step of the pipeline under %s, stages downwards", p->name);
  const hec_plot plot = {.kind = "bars",
                         .label = label.data,
                         .width = COLUMNS,
                         .height = STAGE * p->n_stages + 1,
                         .px = p->n_stages * (p->n_stages > 16 ? 14 : 22),
                         .crisp = true};
  hec_page_panel("stages", &(hec_page_item){id, p->name, NULL}, p->open, out);
  hec_plot_begin(&plot, out);
  hec_plot_body(out);
  for (int32_t k = 0; k < HEC_N_SHOWN; k++)
    add_kind(p, k, out);
  hec_plot_shapes_end(out);
  add_labels(p, out);
  hec_plot_x_axis(0, 1e3 * p->held.end_s, 8, out);
  hec_plot_end("ms of the step", out);
  hec_text_add(out, "</details>\n");
}

static void add_chips(const hec_report_training *t, const char *name, hec_text *out) {
  hec_page_chips(name, out);
  for (int32_t i = 0; i < t->n_pipelines; i++)
    hec_page_chip(name, &(hec_page_item){i, t->pipelines[i].name, NULL}, NULL, t->pipelines[i].open, out);
  hec_page_chips_end(out);
}

static void say(const hec_report_training *t, hec_text *out) {
  hec_chart_says(out);
  for (int32_t i = 0; i < t->n_pipelines; i++) {
    const hec_report_pipeline *p = &t->pipelines[i];
    double computed_ps = 0, min_ps = -1, max_ps = 0;
    int32_t idle = 0, busy = 0;
    for (int32_t s = 0; s < p->n_stages; s++) {
      computed_ps = 0;
      for (int32_t k = 0; k < p->n; k++)
        if (p->pieces[k].stage == s && !hec_shown_is_traffic(p->pieces[k].kind))
          computed_ps += (double)(p->pieces[k].end_ps - p->pieces[k].begin_ps);
      idle = min_ps < 0 || computed_ps < min_ps ? s : idle;
      min_ps = min_ps < 0 || computed_ps < min_ps ? computed_ps : min_ps;
      busy = computed_ps > max_ps ? s : busy;
      max_ps = computed_ps > max_ps ? computed_ps : max_ps;
    }
    hec_page_add(p->name, out);
    if (min_ps > 0.99 * max_ps) {
      hec_text_printf(out, ": every stage computes for %s of the step. ",
                      hec_percent(1e-12 * max_ps / p->held.end_s).text);
      continue;
    }
    hec_text_printf(out, ": stage %" PRId32 " computes most, %s of the step; stage %" PRId32 " least, %s. ", busy,
                    hec_percent(1e-12 * max_ps / p->held.end_s).text, idle,
                    hec_percent(1e-12 * (min_ps > 0 ? min_ps : 0) / p->held.end_s).text);
  }
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(out,
               "Milliseconds of a step to the right, stages downwards; the group that ends last. Thick: micro-batches, "
               "forward and backward. Thin: traffic of the stage. Of a piece all traffic is drawn behind its "
               "computing; in truth they take turns in every layer. White: the stage waits. Every piece with its "
               "micro-batch is in timeline.json, or in the form that --timeline-format named.");
  hec_chart_said(out);
}

static void draw(const hec_report *report, hec_text *out) {
  const hec_report_training *t = report->training;
  say(t, out);
  hec_text_add(out, "<div class=\"keys\">");
  for (int32_t k = 0; k < HEC_N_SHOWN; k++)
    hec_text_printf(out, "<span><i class=\"k%" PRId32 "\"></i><b>%s</b></span>", color_of[k], shown_name[k]);
  hec_text_add(out, "</div>\n");
  add_chips(t, "stages", out);
  hec_text_add(out, "<div class=\"panels wide\">\n");
  for (int32_t i = 0; i < t->n_pipelines; i++)
    add_panel(&t->pipelines[i], i, out);
  hec_text_add(out, "</div>\n");
}

static bool applies(const hec_report *report) {
  return report->training != NULL && report->training->n_pipelines > 0;
}

const hec_chart hec_chart_stages = {"stages", "A step of the pipeline", applies, draw};

/* ---- Memory ---- */

static void draw_memory(const hec_report *report, hec_text *out) {
  const hec_report_training *t = report->training;
  hec_chart_says(out);
  for (int32_t i = 0; i < t->n_pipelines; i++) {
    const hec_report_iteration *it = &t->pipelines[i].held;
    hec_page_add(t->pipelines[i].name, out);
    hec_text_printf(out, " holds %s at most, on stage %" PRId32 " at %s. ", hec_bytes_binary(it->fullest_bytes).text,
                    it->fullest, hec_seconds(it->fullest_s).text);
  }
  hec_chart_said(out);
  hec_chart_note(out);
  hec_text_add(
      out, "Bytes of tensors on the fullest stage of the group that ends last, its busiest expert-parallel rank; "
           "another group may need more. The limit is what is left to tensors when the allocator and libraries have "
           "taken theirs.");
  hec_chart_said(out);
  hec_memory_keys(out);
  add_chips(t, "stage-memory", out);
  hec_text_add(out, "<div class=\"panels\">\n");
  for (int32_t i = 0; i < t->n_pipelines; i++) {
    const hec_report_pipeline *p = &t->pipelines[i];
    HEC_SCOPED(hec_text) what = {0}, who = {0};
    hec_text_printf(&what, "Bytes that stage %" PRId32 " holds over a step under %s", p->held.fullest, p->name);
    hec_text_printf(&who, "Stage %" PRId32, p->held.fullest);
    hec_memory_panel_draw(&(hec_memory_panel){.chart = "stage-memory",
                                              .item = {i, p->name, NULL},
                                              .what = what.data,
                                              .who = who.data,
                                              .unit = "ms of the step",
                                              .open = p->open,
                                              .limit = t->limit_bytes,
                                              .binary = true,
                                              .it = &p->held},
                          out);
  }
  hec_text_add(out, "</div>\n");
}

static bool has_memory(const hec_report *report) {
  return applies(report) && report->training->limit_bytes > 0;
}

const hec_chart hec_chart_stage_memory = {"stage-memory", "Memory over the step", has_memory, draw_memory};
