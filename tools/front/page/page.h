/* The kit that report.html is drawn with: one HTML document that needs nothing else, its sections, and what plots
 * share.
 *
 * A plot is an SVG without a letter in it, stretched to the width that there is (preserveAspectRatio "none", integer
 * coordinates). HTML labels placed in per cent stand around it. So letters keep their size on a phone and in print.
 * Colours are classes (page.css): k0 .. k8 what time goes to, h0 .. h8 more and more, l0 .. l8 lines, g0 .. g7 cells of
 * a map by what is gained.
 *
 * The document may run one script, its own (page.js), by its digest; no request can leave it. */
#pragma once
#include "runtime/base/text.h"
#include "tools/front/page/number.h"

extern const char hec_page_style[], hec_page_script[]; /* made of page.css and page.js */
extern const unsigned long hec_page_style_bytes, hec_page_script_bytes;
extern const char hec_page_script_digest[]; /* SHA-256 in base64: the page's policy knows its one script by it */

void hec_page_begin(const char *title, hec_text *out); /* up to the body */
void hec_page_end(const char *tool, hec_text *out);

/* Foreign text, as content or in a quoted attribute: markup, control characters and what is no UTF-8 are made
 * harmless. */
void hec_page_add(const char *text, hec_text *out);

void hec_page_section(const char *name, const char *title, hec_text *out); /* opens; `name`: its id */
void hec_page_section_end(hec_text *out);

/* What may be wider than the page: it scrolls sideways, and a line under it says so where it has to. */
void hec_page_wide(const char *label, hec_text *out);
void hec_page_wide_end(hec_text *out);

/* What can be chosen, a policy as a rule. Its name explains itself under the pointer. */
typedef struct {
  int32_t id;
  const char *label, *about; /* about: NULL: nothing */
} hec_page_item;
void hec_page_name(const hec_page_item *item, hec_text *out);

/* A row of chips that show and hide what has data-of=`name` and data-i=`id`: begin, chips, end. */
void hec_page_chips(const char *name, hec_text *out);
void hec_page_chip(const char *name, const hec_page_item *item, const char *color, bool pressed, hec_text *out);
void hec_page_chips_end(hec_text *out);
/* An item's panel of a chart, with the label as its heading; shown from the start if `open`. Ends with </details>. */
void hec_page_panel(const char *name, const hec_page_item *item, bool open, hec_text *out);
/* What is folded away at first: begin, content, </details>. `title` is foreign text. */
void hec_page_fold(const char *title, hec_text *out);

/* ---- Plots ---- */

/* Ticks at multiples of `step`, 1, 2 or 5 times a power of ten: lowest .. highest cover what is shown. */
typedef struct {
  double low, high, step;
} hec_axis;
hec_axis hec_axis_of(double low, double high, int32_t about); /* about so many steps */

typedef struct {
  const char *kind;          /* of hover (page.js): heat, area, lines, bars, spans */
  const char *label;         /* what it shows, for those who do not see it; foreign text is allowed */
  int32_t width, height, px; /* of the coordinates; CSS pixels high */
  int32_t gutter;            /* CSS pixels left of it, for labels; 0: as usual */
  bool crisp;
} hec_plot;
/* <div class=plot><svg ...: the caller adds data-* attributes, then hec_plot_body, then shapes. */
void hec_plot_begin(const hec_plot *plot, hec_text *out);
void hec_plot_body(hec_text *out);
void hec_plot_shapes_end(hec_text *out);            /* </svg> */
void hec_plot_end(const char *unit, hec_text *out); /* the unit of x, under it; </div> */

/* After the shapes: labels of y (0: bottom, 1: top, in per mille) and of x. */
void hec_plot_y_begin(bool names, hec_text *out);
void hec_plot_y_label(double share, const char *label, hec_text *out);
void hec_plot_y_name(double share, const hec_page_item *item, hec_text *out);
void hec_plot_labels_end(hec_text *out);
void hec_plot_y_axis(const hec_axis *axis, hec_text *out);
void hec_plot_x_begin(hec_text *out);
void hec_plot_x_label(double share, const char *label, hec_text *out);
void hec_plot_x_axis(double low, double high, int32_t about, hec_text *out);
void hec_plot_grid(const hec_axis *axis, const hec_plot *plot, hec_text *out); /* lines at the ticks of y */

/* Cells [rows][columns] as one path per class: class_of[row * columns + column] is 0 .. 8. */
void hec_plot_cells(const uint8_t *class_of, int32_t rows, int32_t columns, hec_text *out);
/* data-v and data-scale of hover: values >= 0 in 2^18 steps of the largest. */
void hec_plot_values(const double *value, size_t n, hec_text *out);
/* A legend of classes: class c is from[c] and more. */
void hec_plot_classes(const hec_number *from, int32_t n, const char *unit, hec_text *out);
