/* Presets: each loads, each number of each has a source, and the sizes are the published ones. */
#include "models/cluster.h"
#include "models/json.h"
#include "models/moe.h"
#include "models/preset_data.h"
#include "tests/support/test.h"

#include <string.h>

/* Is `path` one of the comma-separated names in `key`? */
static bool names(const char *key, const char *path) {
  size_t n = strlen(path);
  while (*key) {
    size_t word = strcspn(key, ",");
    if (word == n && strncmp(key, path, n) == 0)
      return true;
    key += word;
    key += strspn(key, ", ");
  }
  return false;
}

static bool has_source(const hec_json_value *sources, const char *path) {
  for (const hec_json_value *v = hec_json_first(sources); v; v = hec_json_next(v))
    if (names(hec_json_key(v), path) && hec_json_is_string(v) && strlen(hec_json_text(v)) > 10)
      return true;
  return false;
}

static int check_sources(const char *preset, const hec_json_value *sources, const hec_json_value *object,
                         const char *prefix) {
  int n = 0;
  for (const hec_json_value *v = hec_json_first(object); v; v = hec_json_next(v)) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", hec_json_key(v));
    if (v == sources)
      continue;
    if (hec_json_is_object(v))
      n += check_sources(preset, sources, v, path);
    if (!hec_json_is_number(v))
      continue;
    ck_assert_msg(has_source(sources, path), "%s: %s has no source", preset, path);
    n++;
  }
  return n;
}

static bool has_field(const hec_json_value *root, const char *path) {
  char part[64];
  const char *dot = strchr(path, '.');
  if (!dot)
    return hec_json_get(root, path) != NULL;
  (void)snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
  const hec_json_value *inner = hec_json_get(root, part);
  return inner && hec_json_get(inner, dot + 1);
}

/* No source of something that is not there. */
static void check_no_stale_source(const char *preset, const hec_json_value *root, const hec_json_value *sources) {
  for (const hec_json_value *v = hec_json_first(sources); v; v = hec_json_next(v)) {
    for (const char *key = hec_json_key(v); *key; key += strspn(key, ", ")) {
      char path[64];
      size_t n = strcspn(key, ",");
      (void)snprintf(path, sizeof path, "%.*s", (int)n, key);
      ck_assert_msg(has_field(root, path), "%s: a source of \"%s\", which is not there", preset, path);
      key += n;
    }
  }
}

HEC_TEST(every_number_has_a_source) {
  int n_presets = 0;
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++, n_presets++) {
    HEC_OPENED(hec_json) *json = NULL;
    ck_ok(hec_json_parse(preset->text, preset->length, preset->name, &json));
    const hec_json_value *root = hec_json_root(json), *sources = hec_json_get(root, "sources");
    ck_assert_msg(sources && hec_json_is_object(sources), "%s has no sources", preset->name);
    bool setup = strncmp(preset->name, "setup-", 6) == 0, recipe = strncmp(preset->name, "recipe-", 7) == 0;
    ck_assert_int_ge(check_sources(preset->name, sources, root, ""), recipe ? 0 : setup ? 4 : 8);
    check_no_stale_source(preset->name, root, sources);
    const char *own = strchr(preset->name, '-') + 1;
    ck_assert_str_eq(hec_json_text(hec_json_get(root, "name")), own);
  }
  ck_assert_int_ge(n_presets, 20);
}

HEC_TEST(all_load) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster cluster;
  hec_moe moe;
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    if (strncmp(preset->name, "device-", 7) == 0)
      continue; /* test_gpu.c */
    if (strncmp(preset->name, "setup-", 6) == 0 || strncmp(preset->name, "recipe-", 7) == 0)
      continue; /* test_setup.c */
    bool is_moe = strncmp(preset->name, "moe-", 4) == 0;
    hec_status status =
        is_moe ? hec_moe_load(preset->name + 4, &moe) : hec_cluster_load(preset->name + 8, &arena, &cluster);
    ck_ok(status);
    ck_assert_str_eq(is_moe ? moe.name : cluster.name, preset->name + (is_moe ? 4 : 8));
    ck_assert_ptr_eq(hec_preset_find(is_moe ? "moe" : "cluster", preset->name + (is_moe ? 4 : 8)), preset);
  }
  HEC_SCOPED(hec_text) text = {0};
  hec_preset_names("cluster", &text);
  ck_assert(names(text.data, "p3dn-4x8") && !names(text.data, "gpt-moe-s"));
  ck_assert_ptr_null(hec_preset_find("moe", "p3dn-4x8"));
}

static double total_params(const hec_moe *moe) {
  return moe->n_moe_layers * (hec_moe_block_params(moe) + moe->n_experts * hec_moe_expert_params(moe)) +
         (moe->n_layers - moe->n_moe_layers) * hec_moe_dense_block_params(moe) + hec_moe_embedding_params(moe);
}

/* Published totals (model cards, papers), to the digits printed. */
static const struct {
  const char *name, *billions, *format;
} published[] = {
    {"gpt-moe-s", "1.84", "%.2f"},       {"gpt-moe-l", "7.36", "%.2f"},
    {"bert-moe", "3.27", "%.2f"},        {"bert-moe-deep", "6.54", "%.2f"},
    {"mixtral-8x7b", "46.7", "%.1f"},    {"mixtral-8x22b", "141", "%.0f"},
    {"qwen3-30b-a3b", "30.5", "%.1f"},   {"qwen3-235b-a22b", "235", "%.0f"},
    {"deepseek-v3", "671", "%.0f"},      {"gpt-oss-20b", "20.9", "%.1f"},
    {"olmoe", "6.92", "%.2f"},           {"minimax-m2", "229", "%.0f"},
    {"minimax-m1", "456", "%.0f"},       {"qwen3-next-80b-a3b", "80", "%.0f"},
    {"moonlight-16b-a3b", "16", "%.0f"},
};

HEC_TEST_ROWS(published_totals, published) {
  hec_moe moe;
  char found[32];
  ck_ok(hec_moe_load(published[_i].name, &moe));
  double billions = total_params(&moe) / 1e9;
  if (strcmp(published[_i].format, "%.0f") == 0)
    (void)snprintf(found, sizeof found, "%.0f", billions);
  else if (strcmp(published[_i].format, "%.1f") == 0)
    (void)snprintf(found, sizeof found, "%.1f", billions);
  else
    (void)snprintf(found, sizeof found, "%.2f", billions);
  ck_assert_str_eq(found, published[_i].billions);
}

/* The FSSDP paper's models: layers * (64 * 4 d^2 + 4 d^2), which the gate and norms do not change in the digits
 * printed. */
HEC_TEST(fssdp_parts) {
  hec_moe moe;
  ck_ok(hec_moe_load("gpt-moe-s", &moe));
  double d2 = 768.0 * 768;
  ck_assert(hec_moe_expert_params(&moe) == 4 * d2 && hec_moe_attention_params(&moe) == 4 * d2);
  ck_assert(12 * (64 * hec_moe_expert_params(&moe) + hec_moe_attention_params(&moe)) == 1840250880.0);
  ck_assert(hec_moe_block_params(&moe) == 4 * d2 + 768 * 64 + 2 * 768);
  ck_assert(hec_moe_embedding_params(&moe) == 0);
}
