/* A model from wherever a user says: a preset's name, a file of our form, a config.json of Hugging Face. */
#include "models/hf_config.h"
#include "models/json.h"
#include "models/moe.h"
#include "models/preset_data.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static hec_status read_document(const hec_json *json, const char *origin, hec_moe *moe, hec_text *said) {
  hec_moe read = {0};
  if (hec_hf_config_is(hec_json_root(json)))
    HEC_TRY(hec_hf_config_read(json, origin, &read, said));
  else
    HEC_TRY(hec_moe_read(json, &read));
  HEC_TRY(hec_moe_check(&read, origin));
  *moe = read;
  return HEC_OK;
}

hec_status hec_moe_parse(const char *text, const char *origin, hec_moe *moe) {
  return hec_moe_parse_said(text, origin, moe, NULL);
}

hec_status hec_moe_parse_said(const char *text, const char *origin, hec_moe *moe, hec_text *said) {
  HEC_OPENED(hec_json) *json = NULL;
  HEC_TRY(hec_json_parse(text, strlen(text), origin, &json));
  return read_document(json, origin, moe, said);
}

hec_status hec_moe_load(const char *name, hec_moe *moe) {
  return hec_moe_load_said(name, moe, NULL);
}

hec_status hec_moe_load_said(const char *name, hec_moe *moe, hec_text *said) {
  const hec_preset_data *preset = hec_preset_find("moe", name);
  if (preset)
    return hec_moe_parse(preset->text, preset->name, moe);
  if (access(name, F_OK) != 0 && errno != EACCES) /* a folder on the way that is closed is not "no such preset" */
    return hec_preset_unknown("moe", "model", name, " or the path of a JSON file");
  HEC_OPENED(hec_json) *json = NULL;
  HEC_TRY(hec_json_read(name, &json));
  return read_document(json, name, moe, said);
}
