/* Recipes as a table of parts and words: see recipe.h. */
#include "models/training/recipe.h"

#include "runtime/base/nearest.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  const char *word;
  int32_t value;
} word;

#define WORDS(...)                                                                                                     \
  (const word[]) {                                                                                                     \
    __VA_ARGS__, {                                                                                                     \
      NULL, 0                                                                                                          \
    }                                                                                                                  \
  }
#define DISPATCHER_WORD(key, name) {#name, HEC_DISPATCHER_##key},
static const word dispatchers[] = {HEC_DISPATCHER_LIST(DISPATCHER_WORD){NULL, 0}};
static const word on_off[] = {{"off", 0}, {"on", 1}, {NULL, 0}};

static const struct {
  const char *key;
  size_t at;
  bool sum;    /* words may be joined by + */
  bool weighs; /* published runs that differ in it differ by a tenth and more */
  const word *words;
} parts[] = {
    {"precision", offsetof(hec_recipe, precision), false, true,
     WORDS({"bf16", HEC_PRECISION_BF16}, {"fp8", HEC_PRECISION_FP8}, {"fp8-block", HEC_PRECISION_FP8_BLOCK},
           {"mxfp8", HEC_PRECISION_MXFP8})},
    {"dispatcher", offsetof(hec_recipe, dispatcher), false, true, dispatchers},
    {"dispatch", offsetof(hec_recipe, dispatch), false, false, WORDS({"bf16", 0}, {"fp8", 1})},
    {"overlap", offsetof(hec_recipe, overlap), false, true, on_off},
    {"graph", offsetof(hec_recipe, graph), false, true,
     WORDS({"none", HEC_GRAPH_NONE}, {"partial", HEC_GRAPH_PARTIAL}, {"full", HEC_GRAPH_FULL})},
    {"fused", offsetof(hec_recipe, fused), false, false, on_off},
    {"recompute", offsetof(hec_recipe, recompute), true, true,
     WORDS({"none", 0}, {"norm", HEC_RECOMPUTE_NORM}, {"act", HEC_RECOMPUTE_ACT}, {"mlp", HEC_RECOMPUTE_MLP},
           {"attention", HEC_RECOMPUTE_ATTENTION}, {"moe", HEC_RECOMPUTE_MOE}, {"full", HEC_RECOMPUTE_FULL})},
    {"zero", offsetof(hec_recipe, zero), false, false, WORDS({"0", 0}, {"1", 1}, {"2", 2}, {"3", 3})},
    {"grads", offsetof(hec_recipe, grads), false, false, WORDS({"bf16", 2}, {"fp32", 4})},
    {"dp-overlap", offsetof(hec_recipe, dp_overlap), false, false, WORDS({"off", 0}, {"on", 1}, {"full", 2})},
    {"head", offsetof(hec_recipe, head), false, false, WORDS({"last", 0}, {"shared", 1})},
    {"fabric", offsetof(hec_recipe, fabric), false, false,
     WORDS({"infiniband", HEC_FABRIC_INFINIBAND}, {"roce", HEC_FABRIC_ROCE}, {"efa", HEC_FABRIC_EFA})},
};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

hec_recipe hec_recipe_default(void) {
  return (hec_recipe){.zero = 1, .grads = 2, .dp_overlap = 1};
}

static int32_t *field(hec_recipe *recipe, int i) {
  return (int32_t *)(void *)((char *)recipe + parts[i].at);
}

static bool has_word(int part, const char *name, size_t length) {
  const word *w = parts[part].words;
  while (w->word && (strlen(w->word) != length || strncmp(w->word, name, length) != 0))
    w++;
  return w->word != NULL;
}

/* What frameworks call it. `why`: NULL: it is the same thing. */
typedef struct {
  const char *theirs, *ours, *why;
} foreign;

static const char as_bf16[] = "fp16 has the size and speed of bf16";
/* Megatron Core, transformer_config.py: recompute_modules is ["core_attn"] where selective is given alone */
static const char core_alone[] = "Megatron-LM's selective recomputes core_attn unless recompute_modules says more";
static const foreign foreign_words[] = {
    {"flex", "deepep", NULL},         {"deep-ep", "deepep", NULL},
    {"hybrid-ep", "hybridep", NULL},  {"selective", "attention", core_alone},
    {"layernorm", "norm", NULL},      {"moe_act", "act", NULL},
    {"core_attn", "attention", NULL}, {"mla_up_proj", "attention", NULL},
    {"uniform", "full", NULL},        {"block", "full", NULL},
    {"bfloat16", "bf16", NULL},       {"float32", "fp32", NULL},
    {"blockwise", "fp8-block", NULL}, {"tensorwise", "fp8", NULL},
    {"fp16", "bf16", as_bf16},        {"float16", "bf16", as_bf16},
    {"half", "bf16", as_bf16},
};

static const foreign *foreign_of(int part, const char *theirs, size_t length) {
  for (size_t i = 0; i < sizeof foreign_words / sizeof foreign_words[0]; i++)
    if (strlen(foreign_words[i].theirs) == length && strncmp(foreign_words[i].theirs, theirs, length) == 0 &&
        has_word(part, foreign_words[i].ours, strlen(foreign_words[i].ours)))
      return &foreign_words[i];
  return NULL;
}

/* " (did you mean ...)", of the first of joined words that there is none of. */
static void hint(int part, const char *found, size_t length, hec_text *words) {
  char name[64];
  hec_nearest_search search = {.word = name};
  for (size_t at = 0, n; at < length; at += n + 1) {
    n = strcspn(found + at, "+");
    n = n < length - at ? n : length - at;
    if (has_word(part, found + at, n))
      continue;
    const foreign *known = foreign_of(part, found + at, n);
    if (known) {
      hec_text_printf(words, " (did you mean \"%s\"?%s%s)", known->ours, known->why ? " " : "",
                      known->why ? known->why : "");
      return;
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), found + at);
    for (const word *w = parts[part].words; w->word; w++)
      hec_nearest_offer(&search, w->word);
    hec_nearest_hint(&search, words);
    return;
  }
}

static hec_status unknown(int part, const char *found, size_t length) {
  HEC_SCOPED(hec_text) names = {0};
  for (const word *w = parts[part].words; w->word; w++)
    hec_text_printf(&names, "%s%s", w == parts[part].words ? "" : ", ", w->word);
  HEC_SCOPED(hec_text) near = {0};
  hint(part, found, length, &near);
  return hec_fail(HEC_BAD_INPUT, "recipe: %s: expected %s%s, found \"%.*s\"%s", parts[part].key, names.data,
                  parts[part].sum ? " (joined by +)" : "", (int)length, found, near.data ? near.data : "");
}

static hec_status no_part(const char *text, const char *at, size_t key, size_t length) {
  char name[64];
  HEC_SCOPED(hec_text) names = {0};
  (void)snprintf(name, sizeof name, "%.*s", (int)key, at);
  hec_nearest_search search = {.word = name};
  for (int i = 0; i < N_PARTS; i++) {
    hec_text_printf(&names, "%s%s", i > 0 ? ", " : "", parts[i].key);
    hec_nearest_offer(&search, parts[i].key);
  }
  hec_text_add(&names, " with =WORD");
  hec_nearest_hint(&search, &names);
  return hec_fail(HEC_BAD_INPUT, "recipe \"%.200s\": expected %s, found \"%.*s\"", text, names.data,
                  (int)(length < 40 ? length : 40), at);
}

/* "none" and others, joined: what is meant nobody knows. */
static hec_status not_alone(int part, const char *none, const char *found, size_t length) {
  return hec_fail(HEC_BAD_INPUT, "recipe: %s: expected %s alone, or the others without it, found \"%.*s\"",
                  parts[part].key, none, (int)length, found);
}

static hec_status read_words(int part, const char *text, size_t length, int32_t *value) {
  *value = 0;
  for (size_t at = 0; at <= length;) {
    size_t n = parts[part].sum ? strcspn(text + at, "+") : length;
    n = n < length - at ? n : length - at;
    const word *w = parts[part].words;
    while (w->word && (strlen(w->word) != n || strncmp(w->word, text + at, n) != 0))
      w++;
    if (!w->word)
      return unknown(part, text, length);
    if (parts[part].sum && w->value == 0 && n < length)
      return not_alone(part, w->word, text, length);
    *value |= w->value;
    at += n + 1;
  }
  return HEC_OK;
}

hec_status hec_recipe_read(const char *text, hec_recipe *recipe) {
  hec_recipe read = *recipe;
  unsigned given = 0; /* bit i: part i, here */
  for (const char *at = text; *(at += strspn(at, " \t"));) {
    size_t key = strcspn(at, "= \t"), length = strcspn(at, " \t");
    int i = 0;
    while (i < N_PARTS && (strlen(parts[i].key) != key || strncmp(parts[i].key, at, key) != 0))
      i++;
    if (i == N_PARTS || at[key] != '=')
      return no_part(text, at, key, length);
    if (given & 1u << i)
      return hec_fail(HEC_BAD_INPUT, "recipe \"%.200s\": expected %s once, found it twice", text, parts[i].key);
    HEC_TRY(read_words(i, at + key + 1, length - key - 1, field(&read, i)));
    given |= 1u << i;
    at += length;
  }
  read.stated |= given;
  *recipe = read;
  return HEC_OK;
}

static void write_part(const hec_recipe *recipe, int i, hec_text *text) {
  int32_t value;
  bool any = false;
  memcpy(&value, (const char *)recipe + parts[i].at, sizeof value);
  hec_text_printf(text, "%s%s=", text->length ? " " : "", parts[i].key);
  for (const word *w = parts[i].words; w->word; w++) {
    if (parts[i].sum && value != 0 ? (value & w->value) == 0 : value != w->value)
      continue;
    hec_text_printf(text, "%s%s", any ? "+" : "", w->word);
    any = true;
  }
}

void hec_recipe_write(const hec_recipe *recipe, hec_text *text) {
  for (int i = 0; i < N_PARTS; i++)
    write_part(recipe, i, text);
}

static uint32_t bit_of(const char *part) {
  int i = 0;
  while (i < N_PARTS && strcmp(parts[i].key, part) != 0)
    i++;
  HEC_ASSERT(i < N_PARTS);
  return 1u << i;
}

bool hec_recipe_states(const hec_recipe *recipe, const char *part) {
  return recipe->stated & bit_of(part);
}

void hec_recipe_state_as(hec_recipe *recipe, const hec_recipe *stated, const char *const *names) {
  recipe->stated = stated->stated;
  for (; *names; names++)
    recipe->stated |= bit_of(*names);
}

bool hec_recipe_stated(const hec_recipe *recipe) {
  bool all = true;
  for (int i = 0; i < N_PARTS; i++)
    all = all && (!parts[i].weighs || recipe->stated & 1u << i);
  return all;
}

void hec_recipe_assumed(const hec_recipe *recipe, hec_text *text) {
  for (int i = 0; i < N_PARTS; i++)
    if (!(recipe->stated & 1u << i))
      write_part(recipe, i, text);
}
