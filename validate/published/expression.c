/* Recursive descent, one pass, values on the way. O(length). */
#include "validate/published/scope.h"

#include "runtime/base/text.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { NAME_MAX = 64, DEPTH_MAX = 16 };

typedef struct {
  const hec_json *json;
  const hec_json_value *value;
  const char *at;
  hec_expression_name *name;
  void *context;
  int depth;
} parser;

static hec_status wrong(const parser *p) {
  HEC_SCOPED(hec_text) expected = {0};
  hec_text_printf(&expected, "a formula (validate/published/scope.h) that can be read on from \"%.20s\"", p->at);
  return hec_json_error(p->json, p->value, expected.data);
}

static bool take(parser *p, char c) {
  while (*p->at == ' ')
    p->at++;
  if (*p->at != c)
    return false;
  p->at++;
  return true;
}

static bool take_name(parser *p, char *name) {
  size_t n = 0;
  while (*p->at == ' ')
    p->at++;
  if (!isalpha((unsigned char)*p->at))
    return false;
  while (n < NAME_MAX - 1 && (isalnum((unsigned char)*p->at) || *p->at == '_' || *p->at == '-'))
    name[n++] = *p->at++;
  name[n] = 0;
  return true;
}

static hec_status sum_of(parser *p, double *out);

/* The arguments of least or most, whose bracket is open. */
static hec_status extreme_of(parser *p, bool max, double *out) {
  HEC_TRY(sum_of(p, out));
  while (take(p, ',')) {
    double other;
    HEC_TRY(sum_of(p, &other));
    *out = (max ? other > *out : other < *out) ? other : *out;
  }
  return take(p, ')') ? HEC_OK : wrong(p);
}

static hec_status name_of(parser *p, double *out) {
  char run[NAME_MAX] = "", field[NAME_MAX];
  const char *begin = p->at;
  if (!take_name(p, field))
    return wrong(p);
  if (take(p, '('))
    return strcmp(field, "least") == 0 || strcmp(field, "most") == 0 ? extreme_of(p, field[0] == 'm', out) : wrong(p);
  if (*p->at == '.') {
    p->at++;
    memcpy(run, field, sizeof run);
    if (!take_name(p, field))
      return wrong(p);
  }
  if (p->name)
    return p->name(p->context, run, field, out);
  p->at = begin;
  return wrong(p);
}

static hec_status factor_of(parser *p, double *out) {
  const char *end;
  if (take(p, '(')) {
    if (++p->depth > DEPTH_MAX)
      return wrong(p);
    HEC_TRY(sum_of(p, out));
    p->depth--;
    return take(p, ')') ? HEC_OK : wrong(p);
  }
  if (!isdigit((unsigned char)*p->at))
    return name_of(p, out);
  if (!hec_number_read(p->at, &end, out))
    return wrong(p);
  p->at = end;
  return HEC_OK;
}

static hec_status product_of(parser *p, double *out) {
  HEC_TRY(factor_of(p, out));
  for (;;) {
    double other;
    bool times = take(p, '*');
    if (!times && !take(p, '/'))
      return HEC_OK;
    HEC_TRY(factor_of(p, &other));
    *out = times ? *out * other : other > 0 ? *out / other : NAN;
  }
}

static hec_status sum_of(parser *p, double *out) {
  HEC_TRY(product_of(p, out));
  for (;;) {
    double other;
    bool plus = take(p, '+');
    if (!plus && !take(p, '-'))
      return HEC_OK;
    HEC_TRY(product_of(p, &other));
    *out += plus ? other : -other;
  }
}

hec_status hec_expression(const hec_json *json, const hec_json_value *value, hec_expression_name *name, void *context,
                          double *out) {
  if (hec_json_is_number(value)) {
    *out = hec_json_number(value);
    return HEC_OK;
  }
  if (!hec_json_is_string(value))
    return hec_json_error(json, value, "a number or a formula");
  parser p = {.json = json, .value = value, .at = hec_json_text(value), .name = name, .context = context};
  HEC_TRY(sum_of(&p, out));
  (void)take(&p, ' ');
  return *p.at == 0 ? HEC_OK : wrong(&p);
}
