/* One pass over the text. A number has at most 15 digits and a power of ten up to 22. Both are exact doubles, so one
 * division or product gives the nearest double: what strtod gives, in every locale. */
#include "runtime/base/option.h"

#include "runtime/base/arena.h"
#include "runtime/base/nearest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *hec_options_end(const char *text) {
  const char *end = text + strcspn(text, ",");
  while (*end == ',' && end[1 + strcspn(end + 1, ":=,")] == '=')
    end += 1 + strcspn(end + 1, ",");
  return end;
}

/* ---- Numbers ---- */

enum { DIGITS_MAX = 15, POWER_MAX = 22 };

/* Digits from *at on join *mantissa; how many there were. */
static int read_digits(const char **at, double *mantissa) {
  int n = 0;
  for (; **at >= '0' && **at <= '9'; (*at)++, n++)
    *mantissa = 10 * *mantissa + (**at - '0');
  return n;
}

/* A number that ends at a comma or with the text: digits, a point, an exponent. */
static bool read_number(const char *text, double *value) {
  double mantissa = 0, exponent = 0, power = 1;
  int whole = read_digits(&text, &mantissa), part = 0;
  bool negative = false;
  if (*text == '.') {
    text++;
    part = read_digits(&text, &mantissa);
  }
  if (whole + part > 0 && (*text == 'e' || *text == 'E')) {
    text++;
    negative = *text == '-';
    text += *text == '-' || *text == '+';
    if (read_digits(&text, &exponent) == 0)
      return false;
  }
  if (whole + part == 0 || whole + part > DIGITS_MAX || exponent > POWER_MAX || (*text != '\0' && *text != ','))
    return false;
  int by = (negative ? -1 : 1) * (int)exponent - part;
  for (int i = 0; i < abs(by); i++)
    power *= 10;
  *value = by < 0 ? mantissa / power : mantissa * power;
  return abs(by) <= POWER_MAX;
}

/* ---- Fields ---- */

static double value_of(const hec_option *option, const void *values) {
  const void *field = (const char *)values + option->at;
  return option->type == HEC_OPTION_INT ? *(const int32_t *)field : *(const double *)field;
}

static void set_value(const hec_option *option, void *values, double value) {
  void *field = (char *)values + option->at;
  if (option->type == HEC_OPTION_INT)
    *(int32_t *)field = (int32_t)value;
  else
    *(double *)field = value;
}

/* ---- Text ---- */

static bool is_word(const hec_option *option, const char *text, size_t length) {
  return option->word && strlen(option->word) == length && strncmp(option->word, text, length) == 0;
}

typedef struct {
  const char *where, *row;
  const hec_option *options;
} reader;

static hec_status unexpected(const reader *r, const char *text) {
  char word[64];
  int length = (int)strcspn(text, ",");
  (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(text, "=,"), text);
  hec_nearest_search search = {.word = word};
  HEC_SCOPED(hec_text) names = {0}, near = {0};
  for (const hec_option *o = r->options; o && o->name; o++) {
    hec_text_printf(&names, "%s%s=VALUE", names.length > 0 ? ", " : "", o->name);
    hec_nearest_offer(&search, o->name);
  }
  hec_nearest_hint(&search, &near);
  return hec_fail(HEC_BAD_INPUT, "%s %s: expected %s, found \"%.*s\"%s", r->where, r->row,
                  names.data ? names.data : "nothing after the name", length, text, near.data ? near.data : "");
}

static hec_status out_of_range(const reader *r, const hec_option *o, const char *text) {
  int length = (int)strcspn(text, ",");
  return hec_fail(HEC_BAD_INPUT, "%s %s: %s: expected %s from %g to %g%s%s%s, found \"%.*s\"%s", r->where, r->row,
                  o->name, o->type == HEC_OPTION_REAL ? "a number" : "an integer", o->min, o->max,
                  o->word ? " or \"" : "", o->word ? o->word : "", o->word ? "\"" : "", length, text,
                  memchr(text, ':', (size_t)length) ? " (a comma separates options)" : "");
}

/* One option=value. */
static hec_status read_one(const reader *r, const char *text, void *values, uint32_t *given) {
  size_t length = strcspn(text, "=,");
  const hec_option *o = r->options;
  while (o && o->name && (strlen(o->name) != length || strncmp(o->name, text, length) != 0))
    o++;
  if (!o || !o->name || text[length] != '=')
    return unexpected(r, text);
  uint32_t bit = UINT32_C(1) << (o - r->options);
  if (*given & bit)
    return hec_fail(HEC_BAD_INPUT, "%s %s: %s is given twice", r->where, r->row, o->name);
  const char *at = text + length + 1;
  double value;
  if (is_word(o, at, strcspn(at, ",")))
    value = o->word_value;
  else if (!read_number(at, &value) || value < o->min || value > o->max ||
           (o->type != HEC_OPTION_REAL && value != floor(value)))
    return out_of_range(r, o, at);
  set_value(o, values, value);
  *given |= bit;
  return HEC_OK;
}

hec_status hec_options_read(const char *where, const char *row, const char *text, const hec_option *options,
                            void *values, size_t bytes, uint32_t *given) {
  const reader r = {where, row, options};
  char *read = hec_malloc(bytes, 1);
  uint32_t said = 0;
  memcpy(read, values, bytes);
  hec_status status = HEC_OK;
  for (const char *at = text; at && status == HEC_OK; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    status = read_one(&r, at, read, &said);
  if (status == HEC_OK) {
    memcpy(values, read, bytes);
    *given = said;
  }
  free(read);
  return status;
}

static void add_value(const hec_option *option, double value, hec_text *out) {
  if (option->word && value == option->word_value)
    hec_text_add(out, option->word);
  else
    hec_text_add_double(out, value);
}

void hec_options_write(const hec_option *options, const void *values, uint32_t given, hec_text *out) {
  const char *before = ":";
  for (int i = 0; options && options[i].name; i++) {
    if (!(given >> i & 1))
      continue;
    hec_text_printf(out, "%s%s=", before, options[i].name);
    add_value(&options[i], value_of(&options[i], values), out);
    before = ",";
  }
}

void hec_option_explain(const hec_option *o, const void *values, hec_text *out) {
  hec_text_printf(out, "%s, %g to %g", o->help, o->min, o->max);
  if (o->word)
    hec_text_printf(out, " or \"%s\"", o->word);
  hec_text_add(out, "; default ");
  if (o->initial)
    hec_text_add(out, o->initial);
  else
    add_value(o, value_of(o, values), out);
  if (o->source)
    hec_text_printf(out, " (%s)", o->source);
}
