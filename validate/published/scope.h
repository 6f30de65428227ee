/* A published system is one data file, systems/NAME.json, compiled in. This is how its rows are read.
 *
 *     {"title": "experts fetched in place of tokens", "source": "SIGCOMM 2023", "differs": "The model is inferred.",
 *      "cluster": "p4d-4x8", "ranks": 32, "tokens": 8192, "model": "gpt-moe-s", "iterations": 3,
 *      "setup": "32 A100, gpt-moe-s", "from": "abstract", "assumed": "model; synthetic loads",
 *      "rows": [{"quantity": "iteration over EP", "published": 2.06, "value": "ep.iteration / janus.iteration",
 *                "vary": [[{}, {"tokens": 32768}]], "moved_by": "8192 or 32768 tokens"},
 *               {"quantity": "traffic", "published": 16, "skipped": "the shape it is for is not at hand"}]}
 *
 * Objects nest: an object with "rows" is a group, one without is a row. What a row does not say its group says, and so on
 * outwards: a look-up walks the objects that are open, innermost first. A name in "use" is an entry of the file's "sets", whose
 * members count as if they stood in the object that uses it. null hides what stands further out.
 *
 *   the file     title, source, differs (what of the inputs is inferred or not as published, sentences), notes,
 *                sets {NAME: object}, axes {NAME: [object, ..]}, rows; of the FSSDP paper also what published.h says
 *   a row        quantity, published (a number, [low, high] or a formula), unit (of a value; a gain has none), setup, from (table
 *                or figure), assumed, skipped (why there is no number of ours), and how ours is found: measure.h
 *   a set-up     the fields of setup.h
 *
 * A number may be a pair [n, m]: m is what a quick run is content with. */
#pragma once
#include "models/json.h"
#include "models/preset_data.h"

/* A system's data file: the compiled-in one of systems/, or a text. */
typedef struct {
  const char *name; /* of --system; systems/NAME.json */
  const char *text; /* the data; NULL: what is compiled in under that name */
} hec_system;

typedef struct {
  const char *name, *title, *source, *differs;
  hec_json *json;
} hec_system_file;

/* Every name in the file must be known. Free with hec_system_close. */
hec_status hec_system_open(const hec_system *system, hec_system_file *file) HEC_MUST_USE;
void hec_system_close(hec_system_file *file);

/* The files of systems/, made by the build. */
extern const hec_preset_data hec_system_data[];

enum { HEC_SCOPE_MAX = 16 };
typedef struct {
  const hec_system_file *file;
  bool quick;
  const hec_json_value *open[HEC_SCOPE_MAX]; /* outermost first: the file */
  int32_t n;
} hec_scope;

/* What is open in a file. */
hec_scope hec_scope_of(const hec_system_file *file, bool quick);
void hec_scope_push(hec_scope *scope, const hec_json_value *object);
void hec_scope_pop(hec_scope *scope);
/* Every row below what is open, in the file's order, with its groups open. */
hec_status hec_scope_rows(hec_scope *scope, hec_status (*row)(hec_scope *scope, void *context),
                          void *context) HEC_MUST_USE;

const hec_json_value *hec_scope_find(const hec_scope *scope, const char *key); /* NULL: nowhere */
const char *hec_scope_text(const hec_scope *scope, const char *key);           /* NULL: nowhere, or no text */
/* Absent: *out stays. */
hec_status hec_scope_number(const hec_scope *scope, const char *key, double min, double max, double *out) HEC_MUST_USE;
hec_status hec_scope_flag(const hec_scope *scope, const char *key, bool *out) HEC_MUST_USE;
/* What stands under a name in one of the file's maps ("sets", "axes", "runs"); NULL: nothing. */
const hec_json_value *hec_scope_named(const hec_scope *scope, const char *map, const char *name);

/* Formulas of the data files: how a published number is made from what is simulated.
 *
 *   formula   product {(+|-) product}     product   factor {(*|/) factor}
 *   factor    number | RUN.FIELD | FIELD | (formula) | least(formula, ..) | most(formula, ..)
 *
 * A name may hold "-", so a minus stands between blanks. a / b is NAN unless b > 0: nothing is left to compare with.
 * Own code: no library of formulas knows RUN.FIELD and this division. Below, the value of RUN.FIELD; `run` is "" where there
 * is none. */
typedef hec_status hec_expression_name(void *context, const char *run, const char *field, double *out);

/* `measure`: a number, or a text that is a formula. `name` NULL: it has no names. */
hec_status hec_expression(const hec_json *json, const hec_json_value *value, hec_expression_name *name, void *context,
                          double *out) HEC_MUST_USE;
