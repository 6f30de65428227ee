/* One option from words to its variable: what parsing is without help and pages, for libhecate. */
#include "tools/front/args.h"

#include "runtime/base/nearest.h"
#include "runtime/base/text.h"
#include "tools/front/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps over a suffix of a size or a time. */
static double factor_at(const hec_arg *arg, const char **end) {
  static const struct {
    hec_arg_kind kind;
    char suffix;
    double factor;
  } rows[] = {{HEC_ARG_BYTES, 'K', 1e3},     {HEC_ARG_BYTES, 'M', 1e6},   {HEC_ARG_BYTES, 'G', 1e9},
              {HEC_ARG_BYTES, 'T', 1e12},    {HEC_ARG_SECONDS, 's', 1.0}, {HEC_ARG_SECONDS, 'm', 60.0},
              {HEC_ARG_SECONDS, 'h', 3600.0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].kind == arg->kind && rows[i].suffix == **end) {
      ++*end;
      return rows[i].factor;
    }
  return 1;
}

/* "3", never "03": some read that as octal. */
static bool zero_before(const char *text) {
  return text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

const char *hec_args_whole(const char *text, int64_t max, int64_t *value) {
  size_t n = strspn(text, "0123456789");
  int64_t read = 0;
  if (n == 0 || zero_before(text))
    return NULL;
  for (size_t i = 0; i < n; i++) {
    if (read > (max - (text[i] - '0')) / 10)
      return NULL;
    read = 10 * read + (text[i] - '0');
  }
  *value = read;
  return text + n;
}

hec_status hec_args_wholes(const hec_args_list *list, const char *text, int32_t *values, int32_t *n) {
  const char *at = text;
  for (*n = 0; *n < list->n_max; at++) {
    int64_t value;
    at = hec_args_whole(at, list->max, &value);
    if (!at || value < list->min || (*at != ',' && *at != 0))
      break;
    values[(*n)++] = (int32_t)value;
    if (*at == 0)
      return HEC_OK;
  }
  return hec_fail(HEC_BAD_INPUT,
                  "%s: expected up to %" PRId32 " whole numbers from %" PRId64 " to %" PRId64
                  " with commas, found \"%.100s\"",
                  list->option, list->n_max, list->min, list->max, text);
}

static bool is_whole(const hec_arg *arg) {
  return arg->kind == HEC_ARG_INT || arg->kind == HEC_ARG_INT32 || arg->kind == HEC_ARG_PAPER;
}

static hec_status set_number(const hec_arg *arg, const char *text) {
  const char *end;
  double value;
  if (arg->kind == HEC_ARG_PAPER && strcmp(text, "paper") == 0) {
    *(int32_t *)arg->to = HEC_ARGS_PAPER;
    return HEC_OK;
  }
  bool fits = hec_number_read(text, &end, &value);
  size_t digits = (size_t)(end - text);
  value *= end > text ? factor_at(arg, &end) : 1;
  /* Plain decimals: no hexadecimal, no blanks, no "-0", and "16" is the only way to write the whole number 16. */
  bool plain = strspn(text, is_whole(arg) ? "0123456789" : "0123456789+-.eE") >= digits;
  plain = plain && !(is_whole(arg) && zero_before(text)) && !(text[0] == '-' && arg->min >= 0);
  if (end == text || *end != 0 || !fits || !plain || !(value >= arg->min && value <= arg->max))
    return hec_fail(HEC_BAD_INPUT, "%s: expected %s from %.16g to %.16g%s, found \"%s\"", arg->name,
                    is_whole(arg) ? "a whole number" : "a number", arg->min, arg->max,
                    arg->kind == HEC_ARG_BYTES     ? ", or with K M G T"
                    : arg->kind == HEC_ARG_SECONDS ? " seconds, or with s m h"
                    : arg->kind == HEC_ARG_PAPER   ? " or \"paper\""
                                                   : "",
                    text);
  if (arg->kind == HEC_ARG_INT)
    *(int64_t *)arg->to = (int64_t)value;
  else if (is_whole(arg))
    *(int32_t *)arg->to = (int32_t)value;
  else
    *(double *)arg->to = value;
  return HEC_OK;
}

/* The last one would silently replace those before it. Where several values may be, the value's name says how. */
static hec_status check_once(const hec_arg *arg, const char *value, bool *given) {
  const char *several = strstr(arg->value, "[,") ? arg->value : NULL;
  if (*given)
    return hec_fail(HEC_BAD_INPUT, "%s: given twice, the second time \"%.100s\"%s%s", arg->name, value,
                    several ? "; several in one: " : "", several ? several : "");
  *given = true;
  return HEC_OK;
}

static hec_status unknown_option(const hec_command *command, const char *word, int length) {
  char name[64];
  (void)snprintf(name, sizeof name, "%.*s", length, word);
  hec_nearest_search search = {.word = name};
  for (const hec_arg *arg = command->args; arg->name; arg++)
    if (arg->kind != HEC_ARG_SECTION)
      hec_nearest_offer(&search, arg->name);
  const hec_run_option *of_job = strncmp(name, "--", 2) == 0 ? hec_run_option_find(name) : NULL;
  bool simulated = of_job >= hec_run_rows && of_job < hec_run_rows + HEC_N_OPTIONS;
  HEC_SCOPED(hec_text) near = {0};
  hec_nearest_hint(&search, &near);
  return hec_fail(HEC_BAD_INPUT, "unknown option \"%s\"%s%s; see %s --help", name, near.data ? near.data : "",
                  simulated ? "; hecate-sim has it, this command does not" : "", command->program);
}

void hec_args_begin(const hec_command *command, hec_args *args) {
  int32_t n = 0, max = HEC_ARGS_MAX - 1;
  memset(args->given, 0, sizeof args->given);
  for (const hec_arg *arg = command->args; arg->name; arg++) {
    bool options = arg->kind == HEC_ARG_OPTIONS;
    HEC_ASSERT(n < max);
    if (!options)
      args->row[n++] = *arg;
    else if (arg->name[0])
      args->row[n++] = (hec_arg){.name = arg->name, .kind = HEC_ARG_SECTION};
    if (options)
      n += hec_run_option_rows(arg->to, &args->row[n], &args->flag[n], max - n);
  }
  args->row[n] = (hec_arg){.name = NULL};
  args->command = *command;
  args->command.args = args->row;
}

hec_status hec_args_set(hec_args *args, int argc, const char *const *argv, int *i) {
  const char *word = argv[*i], *equals = strchr(word, '=');
  size_t length = equals ? (size_t)(equals - word) : strlen(word);
  for (const hec_arg *arg = args->row; arg->name; arg++) {
    if (arg->kind == HEC_ARG_SECTION || strlen(arg->name) != length || strncmp(arg->name, word, length) != 0)
      continue;
    if (arg->kind == HEC_ARG_FLAG) {
      if (equals)
        return hec_fail(HEC_BAD_INPUT, "%s: takes no value, found \"%s\"", arg->name, equals + 1);
      *(bool *)arg->to = true;
      return HEC_OK;
    }
    if (!equals && *i + 1 >= argc)
      return hec_fail(HEC_BAD_INPUT, "%s: expected a value, found the end of the command", arg->name);
    const char *value = equals ? equals + 1 : argv[++*i];
    HEC_TRY(check_once(arg, value, &args->given[arg - args->row]));
    if (arg->kind == HEC_ARG_TEXT) {
      *(const char **)arg->to = value;
      return HEC_OK;
    }
    return set_number(arg, value);
  }
  return unknown_option(&args->command, word, (int)length);
}
