/* Reads set-ups: see setup.h. Layout and recipe are read here, too, so that a mistake is told with its line. */
#include "models/training/setup.h"

#include "models/cluster.h"
#include "models/gpu.h"
#include "models/json.h"
#include "models/preset_data.h"
#include "models/training/layout.h"
#include "models/training/recipe.h"
#include "runtime/base/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIZE_MAX_ = 1 << 30 };

/* The last error, said of a member. */
static hec_status wrong(const hec_json *json, const hec_json_value *value) {
  char why[700];
  HEC_SCOPED(hec_text) where = {0};
  (void)snprintf(why, sizeof why, "%s", hec_last_error());
  hec_json_where(json, value, &where);
  return hec_fail(HEC_BAD_INPUT, "%s: %s", where.data, why);
}

static hec_status read_texts(const hec_json *json, hec_arena *arena, hec_setup *setup) {
  const hec_json_value *root = hec_json_root(json);
  const struct {
    const char *key, **to;
  } texts[] = {{"name", &setup->name},        {"model", &setup->model},   {"device", &setup->device},
               {"cluster", &setup->cluster},  {"layout", &setup->layout}, {"recipe", &setup->recipe},
               {"pipeline", &setup->pipeline}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    const hec_json_value *value = hec_json_get(root, texts[i].key);
    if (!value)
      continue;
    if (!hec_json_is_string(value))
      return hec_json_error(json, value, "a text");
    *texts[i].to = hec_arena_text(arena, hec_json_text(value));
  }
  return HEC_OK;
}

static hec_status read_sizes(const hec_json *json, hec_setup *setup) {
  const struct {
    const char *key;
    int32_t *to;
  } sizes[] = {{"gpus", &setup->gpus},
               {"seq", &setup->seq},
               {"global_batch", &setup->global_batch},
               {"micro_batch", &setup->micro_batch},
               {"mtp", &setup->mtp}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    int64_t value;
    HEC_TRY(hec_json_int_or(json, hec_json_root(json), sizes[i].key, sizes[i].to == &setup->mtp ? 0 : 1, SIZE_MAX_, 0,
                            &value));
    *sizes[i].to = (int32_t)value;
  }
  return hec_json_double_or(json, hec_json_root(json), "capacity", 1, 1e6, 0, &setup->capacity);
}

static hec_status read_published(const hec_json *json, hec_setup *setup) {
  static const char *const known[] = {"step_s", "tokens_per_s_per_gpu",      "model_tflops_per_gpu",
                                      "mfu",    "gpu_hours_per_1e12_tokens", NULL};
  double *to[] = {&setup->published.step_s, &setup->published.tokens_per_s_per_gpu,
                  &setup->published.model_tflops_per_gpu, &setup->published.mfu,
                  &setup->published.gpu_hours_per_1e12_tokens};
  const hec_json_value *published = hec_json_get(hec_json_root(json), "published");
  if (!published)
    return HEC_OK;
  if (!hec_json_is_object(published))
    return hec_json_error(json, published, "an object");
  HEC_TRY(hec_json_only(json, published, known));
  for (int i = 0; known[i]; i++)
    HEC_TRY(hec_json_double_or(json, published, known[i], 1e-12, 1e15, 0, to[i]));
  return HEC_OK;
}

static hec_status check(const hec_json *json, hec_arena *arena, const hec_setup *setup) {
  const hec_json_value *root = hec_json_root(json);
  hec_layout layout;
  hec_recipe recipe = hec_recipe_default();
  if (setup->device && setup->cluster)
    return hec_json_error(json, hec_json_get(root, "cluster"), "device or cluster, not both");
  if (setup->layout && hec_layout_read(setup->layout, &layout) != HEC_OK)
    return wrong(json, hec_json_get(root, "layout"));
  const char *parts = "";
  if (setup->recipe && hec_setup_recipe(setup->recipe, arena, &parts) != HEC_OK)
    return wrong(json, hec_json_get(root, "recipe"));
  if (hec_recipe_read(parts, &recipe) != HEC_OK)
    return wrong(json, hec_json_get(root, "recipe"));
  return HEC_OK;
}

static hec_status read_document(const hec_json *json, hec_arena *arena, hec_setup *setup) {
  static const char *const known[] = {"name",   "model",    "device",       "cluster",     "gpus",
                                      "layout", "pipeline", "global_batch", "micro_batch", "seq",
                                      "mtp",    "recipe",   "published",    "capacity",    NULL};
  hec_setup read = {.name = ""};
  const hec_json_value *root = hec_json_root(json);
  if (!hec_json_is_object(root))
    return hec_json_error(json, root, "an object");
  HEC_TRY(hec_json_only(json, root, known));
  HEC_TRY(read_texts(json, arena, &read));
  HEC_TRY(read_sizes(json, &read));
  HEC_TRY(read_published(json, &read));
  HEC_TRY(check(json, arena, &read));
  *setup = read;
  return HEC_OK;
}

hec_status hec_setup_parse(const char *text, size_t length, const char *origin, hec_arena *arena, hec_setup *setup) {
  HEC_OPENED(hec_json) *json = NULL;
  HEC_TRY(hec_json_parse(text, length, origin, &json));
  return read_document(json, arena, setup);
}

/* A file beside the set-up's. A name that is neither there nor looks like a file is left: somebody mistyped a preset. */
static void take_beside(const char *file, bool known, hec_arena *arena, const char **name) {
  HEC_SCOPED(hec_text) path = {0};
  if (!*name || known)
    return;
  size_t n = strlen(*name);
  bool looks = strchr(*name, '/') || (n > 5 && strcmp(*name + n - 5, ".json") == 0);
  hec_file_beside(file, *name, &path);
  if (looks || access(path.data, F_OK) == 0)
    *name = hec_arena_text(arena, path.data);
}

/* The device file in a cluster's line. */
static hec_status take_line(const char *file, hec_arena *arena, const char **line) {
  HEC_SCOPED(hec_text) name = {0}, path = {0}, moved = {0};
  if (!hec_cluster_line_file(*line, &name))
    return HEC_OK;
  hec_file_beside(file, name.data, &path);
  HEC_TRY(hec_cluster_line_move(*line, path.data, &moved));
  *line = hec_arena_text(arena, moved.data);
  return HEC_OK;
}

hec_status hec_setup_load(const char *spec, hec_arena *arena, hec_setup *setup) {
  static const char prefix[] = "setup-";
  const char *name = strncmp(spec, prefix, sizeof prefix - 1) == 0 ? spec + sizeof prefix - 1 : spec;
  const hec_preset_data *preset = hec_preset_find("setup", name);
  if (preset)
    return hec_setup_parse(preset->text, preset->length, preset->name, arena, setup);
  if (access(spec, F_OK) != 0 && errno != EACCES)
    return hec_preset_unknown("setup", "setup", name, " or the path of a JSON file");
  HEC_OPENED(hec_json) *json = NULL;
  HEC_TRY(hec_json_read(spec, &json));
  HEC_TRY(read_document(json, arena, setup));
  const char *model = setup->model, *device = setup->device, *cluster = setup->cluster;
  take_beside(spec, model && hec_preset_find("moe", model), arena, &setup->model);
  take_beside(spec, device && hec_gpu_known(device), arena, &setup->device);
  if (cluster && hec_cluster_is_line(cluster))
    return take_line(spec, arena, &setup->cluster);
  take_beside(spec, cluster && hec_preset_find("cluster", cluster), arena, &setup->cluster);
  return HEC_OK;
}

hec_status hec_setup_recipe(const char *spec, hec_arena *arena, const char **text) {
  static const char *const known[] = {"name", "recipe", NULL};
  HEC_OPENED(hec_json) *json = NULL;
  *text = spec;
  if (strchr(spec, '=') || spec[strspn(spec, " ")] == 0)
    return HEC_OK;
  const hec_preset_data *preset = hec_preset_find("recipe", spec);
  if (!preset)
    return hec_preset_unknown("recipe", "recipe", spec, " or settings like \"precision=bf16 zero=1\"");
  HEC_TRY(hec_json_parse(preset->text, preset->length, preset->name, &json));
  const char *recipe;
  HEC_TRY(hec_json_only(json, hec_json_root(json), known));
  HEC_TRY(hec_json_want_text(json, hec_json_root(json), "recipe", &recipe));
  *text = hec_arena_text(arena, recipe);
  return HEC_OK;
}
