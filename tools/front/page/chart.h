/* The charts of report.html, and what they share. */
#pragma once
#include "tools/front/page/page.h"
#include "tools/front/page/report.h"

/* Draws what belongs into its section: first hec_chart_says, one sentence computed from the data, then the plot with
 * its units. `applies`: whether the report has what it shows. */
typedef struct {
  const char *name, *title;
  bool (*applies)(const hec_report *report);
  void (*draw)(const hec_report *report, hec_text *out);
} hec_chart;

/* In the order of the page. */
#define HEC_CHART_LIST(X)                                                                                              \
  X(ranking)                                                                                                           \
  X(iterations) X(overload) X(traffic) X(memory) X(gantt) X(steps) X(stages) X(stage_memory) X(regime) X(kinds)
#define HEC_CHART_DECLARE(name) extern const hec_chart hec_chart_##name;
HEC_CHART_LIST(HEC_CHART_DECLARE)
extern const hec_chart *const hec_charts[]; /* NULL-terminated */

/* Paragraphs around a chart's sentences: begin, text, end. */
void hec_chart_says(hec_text *out);
void hec_chart_note(hec_text *out);
void hec_chart_said(hec_text *out);

/* What time goes to: books, then waiting, then start skew; colours k0 ... in this order. */
enum { HEC_PART_WAIT = HEC_N_BOOKS, HEC_PART_SKEW, HEC_N_PARTS };
extern const char *const hec_part_name[HEC_N_PARTS];
extern const int32_t hec_part_order[HEC_N_PARTS];                               /* as they are stacked */
void hec_part_seconds(const hec_summary_row *row, double seconds[HEC_N_PARTS]); /* mean per iteration */

/* Whether a chart shows a row at first: those that matter (hec_summary_choose_rows). */
bool hec_chart_shows(const hec_report *report, int32_t row);
/* Rows as a list goes through them: those shown at first, or (`rest`) the others, the fastest first; row: [rows]. */
int32_t hec_chart_rows(const hec_report *report, bool rest, int32_t *row);
/* Begins what is folded away: "25 other policies". Ends with </details>. */
void hec_chart_fold(int32_t n, hec_text *out);
hec_page_item hec_chart_item(const hec_report *report, int32_t row); /* by its label */
/* Whether a row has a line and panels of its own: of very many the fastest have. */
bool hec_chart_draws(const hec_report *report, int32_t row);
/* The sentence that says so, where some have not; inside a note. */
void hec_chart_add_rows(const hec_report *report, hec_text *out);
/* Rows drawn apart from the start: the best and the baseline. */
bool hec_chart_opens(const hec_report *report, int32_t row);
/* Chips of the rows shown and "all", "none"; those of the others folded away. `color`: with the colours of their lines. */
void hec_chart_chips(const hec_report *report, const char *name, bool color, hec_text *out);
/* The attribute by which the script knows them (of the whole page; once): "first step count;" of every run. */
void hec_chart_add_iters(const hec_report *report, size_t n, hec_text *out);
/* Labels of an axis of n of them, at points from edge to edge, or (`cells`) in the middle of their cells. */
void hec_chart_iter_axis(const hec_report *report, size_t n, bool cells, hec_text *out);
bool hec_chart_has_summary(const hec_report *report);
bool hec_chart_has_iterations(const hec_report *report);

/* Memory over time, of one row. */
typedef struct {
  const char *chart; /* of the section */
  hec_page_item item;
  const char *what, *who; /* what it shows; whose it is, and when */
  const char *unit;       /* of the time, under it */
  bool open;
  double limit; /* bytes */
  bool binary;  /* GiB in place of GB */
  const hec_report_iteration *it;
} hec_memory_panel;
void hec_memory_panel_draw(const hec_memory_panel *panel, hec_text *out);
void hec_memory_keys(hec_text *out);

void hec_page_head(const hec_report *report, hec_text *out);    /* verdict, and what this is about */
void hec_page_assumed(const hec_report *report, hec_text *out); /* what was assumed, synthetic, imitated, left out */
