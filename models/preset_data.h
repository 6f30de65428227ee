/* The preset files of models/presets/, compiled in by models/embed_presets.cmake. */
#pragma once
#include "runtime/base/text.h"

#include <stddef.h>

typedef struct {
  const char *name; /* file name without .json, e.g. "cluster-p3dn-4x8"; NULL ends the table */
  const char *text; /* the file, zero-terminated */
  size_t length;    /* bytes, without the terminating zero */
} hec_preset_data;

extern const hec_preset_data hec_preset_table[];

/* The preset `kind`-`name` ("cluster", "moe"), NULL when there is none. */
const hec_preset_data *hec_preset_find(const char *kind, const char *name);
/* Appends the names of that kind, in the order of the table, separated by ", ". */
void hec_preset_names(const char *kind, hec_text *names);
/* Appends " (did you mean "h100"?)" when a name of that kind is near. */
void hec_preset_suggest(const char *kind, const char *name, hec_text *words);
/* HEC_BAD_INPUT: "`KEY` NAME: expected a preset of hecate-sim --list" with the nearest one, and OTHERS. */
hec_status hec_preset_unknown(const char *kind, const char *key, const char *name, const char *others) HEC_MUST_USE;
