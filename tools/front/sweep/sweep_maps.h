/* What the maps of a sweep (sweep_maps.c) and their words (sweep_words.c) share. A map is a grid over the two longest axes;
 * every combination of the other axes has one. Policies and schedules are what is chosen from: no axes here. */
#pragma once
#include "tools/front/sweep/sweep_kind.h"

static inline bool hec_sweep_is_choice(int64_t axis) {
  return axis == HEC_AXIS_schedule || axis == HEC_AXIS_policy;
}

/* Families whose wins have a sentence of their own. */
typedef enum {
  HEC_FAMILY_EP,            /* plain expert parallelism */
  HEC_FAMILY_REARRANGEMENT, /* by load or affinity */
  HEC_FAMILY_FSSDP,
  HEC_FAMILY_OTHERS,
  HEC_N_FAMILIES
} hec_sweep_family;

/* One cell of one combination, before maps that do not differ are made one. */
typedef struct {
  hec_report_cell cell;
  hec_sweep_family family;         /* of the winner */
  const hec_policy *policy;        /* the winner */
  double family_s[HEC_N_FAMILIES]; /* the fastest of each that fits; 0: none */
} hec_sweep_cell;

typedef struct {
  const hec_sweep_rows *rows;
  int32_t x, y, n_x, n_y; /* axes, -1: none; their values */
  int64_t n_combinations;
  hec_sweep_cell *cells; /* [n_combinations * n_y * n_x] */
} hec_sweep_grid;

/* Whether a row can win: it ran, fits and drops nothing, and is no reference. */
bool hec_sweep_competes(const hec_sweep_rows *rows, int64_t index);

/* Which value of an axis the cells of a combination, or this one of them, have. */
int32_t hec_sweep_place(const hec_sweep_grid *grid, int64_t combination, int32_t cell, int32_t axis);

/* A value as a heading of its axis has it: "4096 tokens", "auto (256 tokens)", "top_k=2". */
const char *hec_sweep_label(const hec_sweep_rows *rows, int32_t axis, int32_t value, hec_arena *arena);
/* The axis as a heading: "tokens per rank". */
const char *hec_sweep_axis_title(int32_t axis);
/* "8 ranks or 16 ranks", "law alpha_beta"; some: [values of the axis]. */
void hec_sweep_add_values(const hec_sweep_rows *rows, int32_t axis, const bool *some, hec_text *out);

/* What all generated traces of the sweep have in common: their headings leave it out. NULL: there are not several. */
const char *hec_sweep_common(const hec_sweep *sweep, hec_arena *arena);

/* Where rows of several jobs can be compared, the one that is best of those that fit and drop nothing. A line. */
void hec_sweep_say_best(const hec_sweep_rows *rows, hec_text *out);
/* How sure this is: what the rates of its clusters rest on, or how far off published runs were. A line. */
void hec_sweep_say_trust(const hec_sweep_rows *rows, hec_text *out);
/* One sentence per family that the sweep has: where it wins, by how much. A line each. */
void hec_sweep_say_families(const hec_sweep_grid *grid, hec_text *out);
