/* What a row says of how its number comes about, and the number.
 *
 *   value    a formula (scope.h). RUN.FIELD: RUN is a policy, or a name in "runs", whose members change the set-up and which
 *            may have a "policy"; FIELD is a field of the cell (measure.c): iteration, overload, ...
 *   over     axes: the value is taken once for every combination of their objects, whose members change the set-up. An axis is
 *            an array of objects, or a name of the file's "axes". Ours is what "as" makes of these values: range (the default),
 *            mean, geo (geometric mean), least, most or spread (most over least)
 *   by       a second formula; ours is what "as" makes of the first over what it makes of this
 *   vary     axes of what is not known. Ours is of the first objects; it moves in the range of all; also: further formulas that
 *            count for this range alone; moved_by: what that is, in words
 *   measure  who knows RUN.FIELD: a simulated cell, or one of FSMoE's (fsmoe_measure.c)
 *   slow     true in an object of an axis: quick runs leave it out.  optional: it is left out where its recorded data are not */
#pragma once
#include "validate/published/cell_cache.h"

/* A number (low == high) or a range. */
typedef struct {
  double low, high;
} hec_span;

typedef struct {
  hec_span ours, moves; /* moves: {0, 0} without anything varied */
  const char *absent;   /* recorded data that are not there, and there is no number; NULL: there is */
} hec_measured;

/* Of the row that is open. A part that could not be formed makes NAN. */
hec_status hec_measure_row(hec_cell_cache *cache, hec_scope *row, hec_measured *measured) HEC_MUST_USE;
/* A number, [low, high] or a formula without names. */
hec_status hec_measure_published(const hec_scope *row, hec_span *span) HEC_MUST_USE;
/* Calls for every combination of the axes under `key`, with the objects open. */
hec_status hec_measure_each(hec_scope *scope, const char *key, hec_status (*each)(hec_scope *scope, void *context),
                            void *context) HEC_MUST_USE;

/* The value of RUN.FIELD; `run` is "" where there is none. */
typedef hec_status hec_measure(hec_cell_cache *cache, hec_scope *scope, const char *run, const char *field,
                               double *out);
hec_measure hec_measure_fsmoe_grid, hec_measure_fsmoe_model, hec_measure_fsmoe_operation;
/* For a measure: the formula names what it does not know. */
hec_status hec_measure_no_such(const hec_scope *scope, const char *run, const char *field) HEC_MUST_USE;

/* The cell of a run in what is open; NULL: absent (cell_cache.h). */
hec_status hec_measure_cell(hec_cell_cache *cache, hec_scope *scope, const char *run, const hec_setup_cell **cell,
                            hec_setup *setup) HEC_MUST_USE;
