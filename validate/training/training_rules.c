/* Matching rules and taking sizes from columns: see training.h. */
#include "validate/training/training.h"

#include "models/preset_data.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern const hec_preset_data hec_training_rule_data[];
enum { MODELS_MAX = 64, GPUS_MAX = 32, SIZE_LIMIT = 1 << 30, MICRO_LIMIT = 1 << 16 };

hec_status hec_training_rules_open(hec_arena *arena, hec_training_rules *rules) {
  *rules = (hec_training_rules){.arena = arena};
  rules->models = HEC_NEW(arena, struct hec_rule_model, MODELS_MAX);
  rules->gpus = HEC_NEW(arena, struct hec_rule_gpu, GPUS_MAX);
  return hec_json_parse(hec_training_rule_data[0].text, hec_training_rule_data[0].length, "training rules",
                        &rules->json);
}

void hec_training_rules_close(hec_training_rules *rules) {
  hec_json_free(rules->json);
}

/* ---- Which rules hold for a row ---- */

static const char *column(const hec_case_file *csv, const char *name) {
  return hec_case_file_column(csv, name) < 0 ? "" : hec_case_file_text(csv, name);
}

static const char *member(const hec_json_value *rule, const char *key) {
  const hec_json_value *value = hec_json_get(rule, key);
  return value ? hec_json_text(value) : NULL;
}

static bool matches(const hec_json_value *rule, const hec_case_file *csv) {
  static const char *const keys[][2] = {
      {"model", "model"}, {"gpu", "gpu_type"}, {"notes", "notes"}, {"precision", "precision"}, {"source", "source"}};
  const char *id = member(rule, "id");
  if (id && strncmp(column(csv, "id"), id, strlen(id)) != 0)
    return false;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const char *part = member(rule, keys[i][0]);
    if (part && !strstr(column(csv, keys[i][1]), part))
      return false;
  }
  const char *without = member(rule, "without");
  return !without || !strstr(column(csv, "notes"), without);
}

/* The first rule of a list that holds and has that member. */
static const hec_json_value *rule_of(const hec_training_rules *rules, const char *list, const char *has,
                                     const hec_case_file *csv) {
  const hec_json_value *all = hec_json_get(hec_json_root(rules->json), list);
  for (const hec_json_value *r = hec_json_first(all); r; r = hec_json_next(r))
    if (hec_json_get(r, has) && matches(r, csv))
      return r;
  return NULL;
}

/* "DeepSeek-V3 (8 layers)", "Name, 16 layers": a model cut to so many; 0: whole. */
static int32_t layers_named(const char *model) {
  const char *word = strstr(model, " layers"), *at = word;
  while (at && at > model && isdigit((unsigned char)at[-1]))
    at--;
  long layers = word && at < word ? strtol(at, NULL, 10) : 0;
  return layers > 0 && layers < SIZE_LIMIT ? (int32_t)layers : 0;
}

/* Leading dense layers stay; false: there would be no MoE layer left. */
static bool cut_layers(hec_moe *moe, int32_t layers) {
  int32_t dense = moe->n_layers - moe->n_moe_layers;
  if (layers > moe->n_layers || layers <= dense)
    return false;
  moe->n_layers = layers;
  moe->n_moe_layers = layers - dense;
  return true;
}

static hec_status take_model(hec_training_rules *rules, const hec_case_file *csv, hec_training_case *c) {
  const hec_json_value *rule = rule_of(rules, "models", "model", csv);
  if (!rule || member(rule, "why_not")) {
    c->why_not = rule ? hec_arena_text(rules->arena, member(rule, "why_not"))
                      : "the model's shape is not known: no preset has it";
    return HEC_OK;
  }
  const char *preset = member(rule, "preset");
  const hec_json_value *layers = hec_json_get(rule, "layers");
  int32_t n = layers ? (int32_t)hec_json_number(layers) : layers_named(column(csv, "model"));
  const char *name = n > 0 ? hec_arena_printf(rules->arena, "%s of %d layers", preset, (int)n) : preset;
  for (int32_t i = 0; i < rules->n_models; i++)
    if (strcmp(rules->models[i].name, name) == 0) {
      c->set_up.moe = &rules->models[i].moe;
      return HEC_OK;
    }
  hec_moe moe;
  HEC_TRY(hec_moe_load(preset, &moe));
  if (layers) {
    moe.n_layers = n;
    moe.n_moe_layers = (int32_t)hec_json_number(hec_json_get(rule, "moe_layers"));
  } else if (n > 0 && !cut_layers(&moe, n))
    c->why_not =
        hec_arena_printf(rules->arena, "model: expected more layers than %s has dense ones and at most %d, found %d",
                         preset, (int)moe.n_layers, (int)n);
  else if (rules->n_models == MODELS_MAX)
    c->why_not = "more models in one file than are kept";
  if (c->why_not)
    return HEC_OK;
  struct hec_rule_model *model = &rules->models[rules->n_models++];
  *model = (struct hec_rule_model){.name = name, .moe = moe};
  c->set_up.moe = &model->moe;
  return HEC_OK;
}

static hec_status take_gpu(hec_training_rules *rules, const hec_case_file *csv, hec_training_case *c) {
  const hec_json_value *rule = rule_of(rules, "gpus", "gpu", csv);
  if (!rule || member(rule, "why_not")) {
    c->why_not =
        rule ? hec_arena_text(rules->arena, member(rule, "why_not")) : "no device preset has measured laws of this GPU";
    return HEC_OK;
  }
  const char *name = member(rule, "device");
  for (int32_t i = 0; i < rules->n_gpus; i++)
    if (strcmp(rules->gpus[i].name, name) == 0) {
      c->set_up.laws = rules->gpus[i].laws;
      return HEC_OK;
    }
  HEC_ASSERT(rules->n_gpus < GPUS_MAX);
  const hec_gpu *gpu;
  const hec_gpu_laws *laws;
  hec_gpu_laws *own = HEC_NEW(rules->arena, hec_gpu_laws, 1);
  HEC_TRY(hec_gpu_laws_load(name, rules->arena, &gpu, &laws));
  *own = hec_training_laws(laws);
  c->set_up.laws = own;
  rules->gpus[rules->n_gpus++] = (struct hec_rule_gpu){name, own};
  return HEC_OK;
}

/* ---- Layout, batch, recipe ---- */

/* A number as rules and columns write it: 8, 32K, 1M (binary), or a word that stands for a size of the row. 0: none. */
static int32_t size_of(const char *text, const hec_training_case *c) {
  if (strcmp(text, "layers") == 0)
    return c->set_up.layout.pp > 0 ? c->set_up.moe->n_layers / c->set_up.layout.pp : 0;
  if (strcmp(text, "tp") == 0)
    return c->set_up.layout.tp;
  char *end;
  long long value = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : 0, unit = 1;
  if (value <= 0 || value > SIZE_LIMIT)
    return 0;
  if (*end == 'K' || *end == 'M')
    unit = *end++ == 'K' ? 1024 : 1024 * 1024;
  return *end == 0 && value * unit <= SIZE_LIMIT ? (int32_t)(value * unit) : 0;
}

/* How people leave a column out. */
static bool is_blank(const char *text) {
  static const char *const blanks[] = {"", "-", "none", "None", "n/a", "N/A"};
  for (size_t i = 0; i < sizeof blanks / sizeof blanks[0]; i++)
    if (strcmp(text, blanks[i]) == 0)
      return true;
  return false;
}

/* The value of `key` in "key=value key=value" of the last rule that has it in `list`; NULL: none. */
static const char *ruled(const hec_training_rules *rules, const char *list, const char *key, const hec_case_file *csv) {
  const char *found = NULL;
  size_t length = strlen(key);
  const hec_json_value *runs = hec_json_get(hec_json_root(rules->json), "runs");
  for (const hec_json_value *r = hec_json_first(runs); r; r = hec_json_next(r)) {
    const char *text = member(r, list);
    if (!text || !matches(r, csv))
      continue;
    for (const char *at = text; *(at += strspn(at, " "));) {
      size_t all = strcspn(at, " ");
      if (strncmp(at, key, length) == 0 && at[length] == '=')
        found = hec_arena_printf(rules->arena, "%.*s", (int)(all - length - 1), at + length + 1);
      at += all;
    }
  }
  return found;
}

typedef struct {
  const char *key, *rule;
  int32_t *to;
  int32_t otherwise; /* -1: needed */
} wanted_size;

static void take_size(const hec_training_rules *rules, const hec_case_file *csv, hec_training_case *c,
                      const wanted_size *want) {
  const char *stated = column(csv, want->key), *rule = ruled(rules, want->rule, want->key, csv);
  bool blank = is_blank(stated);
  int32_t value = blank ? 0 : size_of(stated, c);
  if (!blank && value <= 0 && !c->why_not)
    c->why_not = hec_arena_printf(rules->arena, "%s: expected a whole number from 1 to %d, found \"%.40s\"", want->key,
                                  (int)SIZE_LIMIT, stated);
  if (value <= 0 && rule)
    value = size_of(rule, c);
  if (value <= 0)
    value = want->otherwise;
  if (value < 0 && !c->why_not)
    c->why_not = hec_arena_printf(rules->arena, "%s is not stated", want->key);
  *want->to = value;
}

static void take_sizes(const hec_training_rules *rules, const hec_case_file *csv, hec_training_case *c) {
  hec_layout *l = &c->set_up.layout;
  hec_training *t = &c->set_up;
  const wanted_size sizes[] = {
      {"gpus", "batch", &l->gpus, -1},
      {"tp", "layout", &l->tp, 1},
      {"pp", "layout", &l->pp, 1},
      {"cp", "layout", &l->cp, 1},
      {"ep", "layout", &l->ep, 1},
      {"vpp", "layout", &l->vpp, 1},
      {"etp", "layout", &l->etp, 1},
      {"seq", "batch", &t->seq, -1},
      {"micro_batch", "batch", &t->micro_batch, 1},
      {"global_batch", "batch", &t->global_batch, 0},
      {"mtp", "batch", &t->mtp, 0},
  };
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    take_size(rules, csv, c, &sizes[i]);
}

/* Layers of each part, where a rule has them for so many. */
static void take_parts(const hec_training_rules *rules, const hec_case_file *csv, hec_layout *layout) {
  const char *parts = ruled(rules, "layout", "parts", csv);
  int32_t n = 0, given[HEC_STAGES_MAX];
  for (const char *at = parts; at && *at && n < HEC_STAGES_MAX; at += strcspn(at, ","), at += *at == ',')
    given[n++] = (int32_t)strtol(at, NULL, 10);
  if (n == 0 || n != layout->pp * layout->vpp)
    return;
  layout->n_given = n;
  memcpy(layout->given, given, (size_t)n * sizeof given[0]);
}

/* Sequences of so many micro-batches; 0: too many. */
static int32_t batch_of(const hec_training *t, long micro_batches) {
  double batch = (double)micro_batches * (double)t->layout.dp * (double)t->micro_batch;
  return batch > 0 && batch <= SIZE_LIMIT ? (int32_t)batch : 0;
}

static hec_status take_layout(const hec_training_rules *rules, const hec_case_file *csv, hec_training_case *c) {
  hec_training *t = &c->set_up;
  if (!*column(csv, "tp") && !*column(csv, "pp") && !*column(csv, "ep") && !ruled(rules, "layout", "ep", csv)) {
    c->why_not = "the layout is not stated";
    return HEC_OK;
  }
  take_sizes(rules, csv, c);
  if (c->why_not)
    return HEC_OK;
  take_parts(rules, csv, &t->layout);
  if (hec_layout_fit(&t->layout, t->layout.gpus, t->moe) != HEC_OK) {
    c->why_not = hec_arena_text(rules->arena, hec_last_error());
    return HEC_OK;
  }
  int32_t dp = size_of(column(csv, "dp"), c);
  if (dp > 0 && dp != t->layout.dp) {
    c->why_not =
        hec_arena_printf(rules->arena, "dp: the other sizes give %d, the row says %d", (int)t->layout.dp, (int)dp);
    return HEC_OK;
  }
  const char *each = ruled(rules, "batch", "micro_batches", csv);
  if (t->global_batch == 0 && each && strcmp(each, "notes") == 0) /* "8 micro-batches a rank" */
    t->global_batch = batch_of(t, strtol(column(csv, "notes"), NULL, 10));
  else if (t->global_batch == 0 && each)
    t->global_batch = batch_of(t, strtol(each, NULL, 10));
  if (t->global_batch <= 0)
    c->why_not = "the batch is not stated";
  else if (hec_training_check(t) != HEC_OK)
    c->why_not = hec_arena_text(rules->arena, hec_last_error());
  else if (hec_training_micro_batches(t) > MICRO_LIMIT)
    c->why_not = "more micro-batches than are simulated";
  return HEC_OK;
}

/* The first word that the column has in it decides. NULL: none that the laws know. */
static const char *precision_of(const char *column) {
  static const struct {
    const char *word, *recipe;
  } words[] = {{"bf16", "precision=bf16"}, {"fp16", "precision=bf16"},       {"fp4", NULL},
               {"mx", "precision=mxfp8"},  {"block", "precision=fp8-block"}, {"fp8", "precision=fp8"}};
  if (is_blank(column))
    return words[0].recipe;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    for (const char *at = column; *at; at++)
      if (strncasecmp(at, words[i].word, strlen(words[i].word)) == 0)
        return words[i].recipe;
  return NULL;
}

static hec_status take_recipe(const hec_training_rules *rules, const hec_case_file *csv, hec_training_case *c) {
  const hec_json_value *runs = hec_json_get(hec_json_root(rules->json), "runs");
  const char *precision = precision_of(column(csv, "precision"));
  c->set_up.recipe = hec_recipe_default();
  if (!precision)
    c->why_not = hec_arena_printf(rules->arena, "no law prices precision \"%.40s\"", column(csv, "precision"));
  else if (!c->set_up.laws->gemm[HEC_LAW_FP8] && strcmp(precision, "precision=bf16") != 0)
    c->why_not = "the GPU has no products in fp8";
  else
    HEC_TRY(hec_recipe_read(precision, &c->set_up.recipe));
  for (const hec_json_value *r = hec_json_first(runs); r; r = hec_json_next(r)) {
    if (!matches(r, csv))
      continue;
    if (member(r, "why_not"))
      c->why_not = hec_arena_text(rules->arena, member(r, "why_not"));
    if (member(r, "recipe"))
      HEC_TRY(hec_recipe_read(member(r, "recipe"), &c->set_up.recipe));
  }
  return HEC_OK;
}

hec_status hec_training_rules_device(hec_training_rules *rules, const hec_case_file *csv, hec_training_case *c) {
  HEC_TRY(take_model(rules, csv, c));
  return c->why_not ? HEC_OK : take_gpu(rules, csv, c);
}

hec_status hec_training_rules_apply(hec_training_rules *rules, const hec_case_file *csv, hec_training_case *c) {
  HEC_TRY(hec_training_rules_device(rules, csv, c));
  if (!c->why_not)
    HEC_TRY(take_recipe(rules, csv, c));
  return c->why_not ? HEC_OK : take_layout(rules, csv, c);
}
