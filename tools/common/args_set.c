/* One option from words to its variable: what parsing is without help and pages, for libhecate. */
#include "tools/common/args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Steps over a suffix of a size. */
static double factor_at(const hec_arg *arg, char **end) {
  static const char suffixes[] = "KMGT";
  const char *at = arg->kind == HEC_ARG_BYTES && **end ? strchr(suffixes, **end) : NULL;
  double factor = 1;
  *end += at != NULL;
  for (; at && at >= suffixes; at--)
    factor *= 1000;
  return factor;
}

static hec_status set_number(const hec_arg *arg, const char *text) {
  char *end;
  errno = 0;
  double value = strtod(text, &end);
  size_t digits = (size_t)(end - text);
  value *= end > text ? factor_at(arg, &end) : 1;
  /* Plain decimals: no hexadecimal, no blanks, and "16" is the only way to write the whole number 16. */
  bool plain = strspn(text, arg->kind == HEC_ARG_INT ? "0123456789" : "0123456789+-.eE") >= digits;
  if (end == text || *end != 0 || errno == ERANGE || !plain || !(value >= arg->least && value <= arg->most))
    return hec_fail(HEC_BAD_INPUT, "%s: expected %s from %.16g to %.16g%s, found \"%s\"", arg->name,
                    arg->kind == HEC_ARG_INT ? "a whole number" : "a number", arg->least, arg->most,
                    arg->kind == HEC_ARG_BYTES ? ", or with K M G T" : "", text);
  if (arg->kind == HEC_ARG_INT)
    *(int64_t *)arg->to = (int64_t)value;
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

hec_status hec_args_set(const hec_command *command, int argc, const char *const *argv, int *i, bool *given) {
  const char *word = argv[*i], *equals = strchr(word, '=');
  size_t length = equals ? (size_t)(equals - word) : strlen(word);
  for (const hec_arg *arg = command->args; arg->name; arg++) {
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
    HEC_TRY(check_once(arg, value, &given[arg - command->args]));
    if (arg->kind == HEC_ARG_TEXT) {
      *(const char **)arg->to = value;
      return HEC_OK;
    }
    return set_number(arg, value);
  }
  return hec_fail(HEC_BAD_INPUT, "unknown option \"%.*s\"; see %s --help", (int)length, word, command->program);
}
