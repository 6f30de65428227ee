/* Set-ups: every preset says what its name says and fits its model; mistakes are told with file, line and field. */
#include "models/training/setup.h"

#include "models/gpu_compute.h"
#include "models/preset_data.h"
#include "models/training/layout.h"
#include "models/training/recipe.h"
#include "models/training/step.h"
#include "runtime/program/pipelines/pipeline_schedule.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static hec_status parse(const char *text, hec_setup *setup) {
  return hec_setup_parse(text, strlen(text), "mine.json", &arena, setup);
}

/* The number of GPUs and the device stand at the end of a preset's name. */
static void check_name(const hec_setup *setup) {
  char end[64];
  (void)snprintf(end, sizeof end, "-%d-%s", (int)setup->gpus, setup->device);
  size_t n = strlen(end), all = strlen(setup->name);
  ck_assert_msg(all > n && strcmp(setup->name + all - n, end) == 0, "%s: expected ...%s", setup->name, end);
}

HEC_TEST(presets_fit_their_models) {
  int n = 0;
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    if (strncmp(preset->name, "setup-", 6) != 0)
      continue;
    hec_setup setup, again;
    hec_moe moe;
    const hec_gpu *gpu;
    hec_training t = {.moe = &moe};
    ck_ok(hec_setup_load(preset->name, &arena, &setup));
    ck_ok(hec_setup_load(preset->name + 6, &arena, &again));
    ck_assert_str_eq(setup.name, again.name);
    check_name(&setup);
    ck_ok(hec_moe_load(setup.model, &moe));
    ck_ok(hec_gpu_laws_load(setup.device, &arena, &gpu, &t.laws));
    ck_assert_ptr_nonnull(t.laws);
    ck_ok(hec_layout_read(setup.layout, &t.layout));
    ck_ok(hec_layout_fit(&t.layout, setup.gpus, &moe));
    t.seq = setup.seq;
    t.global_batch = setup.global_batch;
    t.micro_batch = setup.micro_batch;
    ck_ok(hec_training_check(&t));
    ck_assert(!setup.pipeline || hec_pipeline_find(setup.pipeline));
    n++;
  }
  ck_assert_int_ge(n, 17);
}

HEC_TEST(deepseek_as_published) {
  hec_setup s;
  ck_ok(hec_setup_load("deepseek-v3-2048-h800", &arena, &s));
  ck_assert_str_eq(s.layout, "pp=16 ep=64");
  ck_assert_str_eq(s.pipeline, "dualpipe");
  ck_assert_int_eq(s.global_batch / (s.gpus / 16), 120); /* micro-batches of a rank */
  ck_assert_int_eq(s.mtp, 1);
  ck_near(s.published.gpu_hours_per_1e12_tokens, 180e3);
}

HEC_TEST(what_is_absent_is_not_said) {
  hec_setup s;
  ck_ok(parse("{}", &s));
  ck_assert_str_eq(s.name, "");
  ck_assert(!s.model && !s.device && !s.cluster && !s.layout && !s.recipe && !s.pipeline);
  ck_assert(s.gpus == 0 && s.seq == 0 && s.global_batch == 0 && s.micro_batch == 0 && s.mtp == 0);
}

static const struct {
  const char *text, *words;
} mistakes[] = {
    {"[]", "mine.json:1: "},
    {"{\"layout\":\n 8}", "mine.json:2: layout: expected a text"},
    {"{\n\"layout\": \"tp=2 xp=3\"}", "mine.json:2: layout: layout \"tp=2 xp=3\": expected tp, cp, pp"},
    {"{\n\n\"recipe\": \"precision=fp7\"}", "mine.json:3: recipe: recipe: precision: expected bf16, fp8"},
    {"{\"gpus\": 0}", "mine.json:1: gpus: expected an integer from 1"},
    {"{\"gpus\": 1.5}", "mine.json:1: gpus: expected an integer from 1"},
    {"{\"gpu\": 8}", "gpu"},
    {"{\"device\": \"h100\",\n\"cluster\": \"h800\"}", "mine.json:2: cluster: expected device or cluster, not both"},
    {"{\"published\": 3}", "mine.json:1: published: expected an object"},
    {"{\"published\": {\"speed\": 3}}", "speed"},
    {"{\"seq\": 4096", "not valid JSON"},
};

HEC_TEST_ROWS(mistakes_are_told, mistakes) {
  hec_setup s = {.gpus = 77};
  ck_refused(parse(mistakes[_i].text, &s), mistakes[_i].words);
  ck_assert_int_eq(s.gpus, 77); /* not touched */
}

HEC_TEST(no_such_setup) {
  hec_setup s;
  ck_refused(hec_setup_load("deepseek-v9", &arena, &s),
             "expected a preset of hecate-sim `list` or the path of a JSON file");
}

HEC_TEST(recipes) {
  int n = 0;
  for (const hec_preset_data *preset = hec_preset_table; preset->name; preset++) {
    if (strncmp(preset->name, "recipe-", 7) != 0)
      continue;
    const char *text;
    hec_recipe recipe = hec_recipe_default();
    ck_ok(hec_setup_recipe(preset->name + 7, &arena, &text));
    ck_ok(hec_recipe_read(text, &recipe));
    ck_assert(recipe.stated != 0);
    n++;
  }
  ck_assert_int_ge(n, 8);
  const char *text;
  ck_ok(hec_setup_recipe("zero=2", &arena, &text));
  ck_assert_str_eq(text, "zero=2");
  ck_ok(hec_setup_recipe("torchtitan", &arena, &text));
  ck_assert_ptr_nonnull(strstr(text, "zero=3"));
  ck_refused(hec_setup_recipe("torchtytan", &arena, &text), "(did you mean \"torchtitan\"?) or settings like");
  hec_setup s;
  ck_ok(parse("{\"recipe\": \"torchtitan\"}", &s));
  ck_refused(parse("{\n\"recipe\": \"torch\"}", &s), "mine.json:2: recipe: `recipe` torch: expected a preset of "
                                                     "hecate-sim `list` (did you mean \"torchtitan\"?) or settings");
}

/* Words of frameworks and slips in recipes and layouts: what was meant is named. */
HEC_TEST(what_was_meant) {
  static const struct {
    bool layout;
    const char *text, *hint; /* hint: NULL: none */
  } cases[] = {
      {false, "dispatcher=flex", "(did you mean \"deepep\"?)"},
      {false, "recompute=selective",
       "(did you mean \"attention\"? Megatron-LM's selective recomputes core_attn unless recompute_modules says "
       "more)"},
      {false, "recompute=norm+block", "(did you mean \"full\"?)"},
      {false, "precision=block", NULL}, /* "full" is no precision */
      {false, "precision=fp16", "(did you mean \"bf16\"? fp16 has the size and speed of bf16)"},
      {false, "grads=float16", "(did you mean \"bf16\"? fp16 has the size and speed of bf16)"},
      {false, "recompute=norm+moe_act", "(did you mean \"act\"?)"},
      {false, "recompute=norm+atention", "(did you mean \"attention\"?)"},
      {false, "precision=int3", NULL},
      {true, "tp=2,pp=8", "(did you mean \"tp=2 pp=8\"?)"},
      {true, "TP2 PP8", "(did you mean \"tp=2 pp=8\"?)"},
      {true, "tp2 pp=4:15,15,16,15", "(did you mean \"tp=2 pp=4:15,15,16,15\"?)"},
      {true, "pp=8 pp=8", NULL},
      {true, "dp=8", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hec_recipe recipe = hec_recipe_default();
    hec_layout layout;
    hec_status status =
        cases[i].layout ? hec_layout_read(cases[i].text, &layout) : hec_recipe_read(cases[i].text, &recipe);
    ck_assert_int_eq(status, HEC_BAD_INPUT);
    const char *hint = strstr(hec_last_error(), "(did you mean");
    ck_assert_msg(cases[i].hint ? hint && strcmp(hint, cases[i].hint) == 0 : !hint, "%s: %s", cases[i].text,
                  hec_last_error());
  }
}
