/* Look-up among the compiled-in presets: a linear scan of two dozen names. */
#include "models/preset_data.h"

#include "runtime/base/nearest.h"

#include <string.h>
#include <strings.h>

/* The part of a table name after "kind-", NULL for another kind. */
static const char *name_within(const char *kind, const char *full) {
  size_t n = strlen(kind);
  return strncmp(full, kind, n) == 0 && full[n] == '-' ? full + n + 1 : NULL;
}

const hec_preset_data *hec_preset_find(const char *kind, const char *name) {
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    const char *own = name_within(kind, preset->name);
    if (own && strcasecmp(own, name) == 0) /* "Qwen3-30B-A3B" is how its makers write it */
      return preset;
  }
  return NULL;
}

void hec_preset_names(const char *kind, hec_text *names) {
  const char *separator = "";
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    const char *own = name_within(kind, preset->name);
    if (!own)
      continue;
    hec_text_printf(names, "%s%s", separator, own);
    separator = ", ";
  }
}

/* The longest name that `name` begins with, such as h100 of "h100sxm". */
static void begins_with(const char *name, const char *own, const char **longest) {
  size_t n = strlen(own);
  if (n >= 3 && strncasecmp(name, own, n) == 0 && (!*longest || n > strlen(*longest)))
    *longest = own;
}

void hec_preset_suggest(const char *kind, const char *name, hec_text *words) {
  hec_nearest_search search = {.word = name};
  const char *longest = NULL;
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    const char *own = name_within(kind, preset->name);
    if (!own)
      continue;
    hec_nearest_offer(&search, own);
    begins_with(name, own, &longest);
  }
  if (!search.nearest && search.n_longer == 0)
    search.nearest = longest;
  hec_nearest_hint(&search, words);
}

hec_status hec_preset_unknown(const char *kind, const char *key, const char *name, const char *others) {
  HEC_SCOPED(hec_text) near = {0};
  hec_preset_suggest(kind, name, &near);
  return hec_fail(HEC_BAD_INPUT, "`%s` %.200s: expected a preset of hecate-sim `list`%s%s, found none", key, name,
                  near.data ? near.data : "", others);
}
