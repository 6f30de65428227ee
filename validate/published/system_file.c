/* The compiled-in files are found by their names, one after the other; every name in them is looked for in two lists: O(names). */
#include "validate/published/scope.h"

#include "validate/published/setup.h"

#include <stdio.h>
#include <string.h>

/* What may stand in an object beside the fields of a set-up, between blanks. */
static const char known[] =
    " title source differs notes sets axes runs rows use quantity unit setup from assumed published skipped value by as"
    " also over vary moved_by measure optional slow policy key where kind paper reading depends_on long followed inputs"
    " search kept grid quick_grid changes change input cases field times plus to per_node a2a gather scatter reduce"
    " simple mixtral simple_backward mixtral_backward attention attention_512 table ";
static const char maps[] = " sets axes runs inputs search grid quick_grid ";

static bool is_among(const char *words, const char *key) {
  size_t n = strlen(key);
  for (const char *at = strstr(words, key); n > 0 && at; at = strstr(at + 1, key))
    if (at[-1] == ' ' && at[n] == ' ')
      return true;
  return false;
}

static hec_status check_use(const hec_json *json, const hec_json_value *use) {
  const hec_json_value *sets = hec_json_get(hec_json_root(json), "sets");
  bool there = sets && hec_json_is_string(use) && hec_json_get(sets, hec_json_text(use));
  return there ? HEC_OK : hec_json_error(json, use, "a name in \"sets\"");
}

/* Members of a map have names of their own. */
static hec_status check_names(const hec_json *json, const hec_json_value *value, bool map) {
  for (const hec_json_value *v = hec_json_first(value); v; v = hec_json_next(v)) {
    bool member = hec_json_is_object(value);
    if (member && strcmp(hec_json_key(v), "use") == 0)
      HEC_TRY(check_use(json, v));
    if (member && !map && !is_among(known, hec_json_key(v)) && !hec_setup_has(hec_json_key(v)))
      return hec_json_error(json, v, "a name of validate/published/scope.h, measure.h or setup.h");
    HEC_TRY(check_names(json, v, member && is_among(maps, hec_json_key(v))));
  }
  return HEC_OK;
}

static const char *compiled_in(const char *name) {
  const hec_preset_data *file = hec_system_data;
  while (file->name && strcmp(file->name, name) != 0)
    file++;
  HEC_ASSERT(file->name); /* a row of system_list.h without its file */
  return file->text;
}

static hec_status read_head(hec_system_file *file) {
  const hec_json_value *root = hec_json_root(file->json);
  HEC_TRY(hec_json_want_text(file->json, root, "title", &file->title));
  HEC_TRY(hec_json_want_text(file->json, root, "source", &file->source));
  HEC_TRY(hec_json_want_text(file->json, root, "differs", &file->differs));
  return check_names(file->json, root, false);
}

hec_status hec_system_open(const hec_system *system, hec_system_file *file) {
  const char *text = system->text ? system->text : compiled_in(system->name);
  char origin[96];
  (void)snprintf(origin, sizeof origin, "%s.json", system->name);
  *file = (hec_system_file){.name = system->name};
  HEC_TRY(hec_json_parse(text, strlen(text), origin, &file->json));
  hec_status status = read_head(file);
  if (status != HEC_OK)
    hec_system_close(file);
  return status;
}

void hec_system_close(hec_system_file *file) {
  hec_json_free(file->json);
  file->json = NULL;
}
