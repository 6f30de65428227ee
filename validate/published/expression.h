/* Formulas of the data files: how a published number is made from what is simulated.
 *
 *   formula   product {(+|-) product}     product   factor {(*|/) factor}
 *   factor    number | RUN.FIELD | FIELD | (formula) | least(formula, ..) | most(formula, ..)
 *
 * A name may hold "-", so a minus stands between blanks. a / b is NAN unless b > 0: nothing is left to compare with.
 * Own code: no library of formulas knows RUN.FIELD and this division. */
#ifndef HEC_VALIDATE_PUBLISHED_EXPRESSION_H
#define HEC_VALIDATE_PUBLISHED_EXPRESSION_H
#include "models/json.h"

/* The value of RUN.FIELD; `run` is "" where there is none. */
typedef hec_status hec_expression_name(void *context, const char *run, const char *field, double *out);

/* `measure`: a number, or a text that is a formula. `name` NULL: it has no names. */
hec_status hec_expression(const hec_json *json, const hec_json_value *value, hec_expression_name *name, void *context,
                          double *out) HEC_MUST_USE;

#endif
