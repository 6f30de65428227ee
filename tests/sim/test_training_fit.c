/* What would fit: changes in their order, what cannot be tried is left out, and the sentence. */
#include "sim/training_fit.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static hec_moe moe;
static hec_gpu_laws laws;

/* DeepSeek-V3 of 8 layers on GPUs with so much memory. */
static hec_training training(const char *layout, int32_t gpus, const char *recipe, double memory_bytes) {
  const hec_gpu *gpu;
  const hec_gpu_laws *h100;
  hec_training t = {.moe = &moe,
                    .laws = &laws,
                    .seq = 4096,
                    .global_batch = 512,
                    .micro_batch = 2,
                    .constants = hec_step_constants_fitted};
  ck_ok(hec_moe_load("deepseek-v3", &moe));
  moe.n_layers = moe.n_moe_layers = 8;
  ck_ok(hec_gpu_laws_load("h100", &arena, &gpu, &h100));
  laws = *h100;
  laws.gpu.sheet.memory_bytes = memory_bytes;
  ck_ok(hec_layout_read(layout, &t.layout));
  ck_ok(hec_layout_fit(&t.layout, gpus, &moe));
  t.recipe = hec_recipe_default();
  ck_ok(hec_recipe_read(recipe, &t.recipe));
  return t;
}

static hec_training_memory memory_of(const hec_training *t) {
  hec_training_result r;
  ck_ok(hec_training_run(&(hec_training_job){.training = t}, &r));
  return r.memory;
}

/* Memory is a little less than each job needs, so the first change that helps fits. Those before it in the order are already
 * made or not valid. */
static const struct {
  const char *layout, *recipe, *change;
} order[] = {
    {"pp=2 ep=8", "", "recompute=norm+act"},
    {"pp=2 ep=8", "recompute=mlp", "recompute=norm+act+mlp"},
    {"pp=2 ep=8", "recompute=norm+act", "recompute=norm+act+moe"},
    {"pp=2 ep=8", "recompute=norm+act+moe", "recompute=full"},
    {"ep=8", "recompute=full zero=0", "zero=1"},
    {"ep=8", "recompute=full zero=1", "zero=2"},
    {"pp=2 ep=8", "recompute=full zero=1", "pp=4"},
    {"pp=8 ep=2", "recompute=full zero=1", "ep=4"},
    {"pp=8 ep=8 tp=8", "recompute=full zero=1", "micro-batch 1"},
};

HEC_TEST_ROWS(first_that_fits, order) {
  hec_training t = training(order[_i].layout, 64, order[_i].recipe, 1);
  hec_training_fix fix;
  const hec_training_memory all = memory_of(&t);
  laws.gpu.sheet.memory_bytes = (all.reserved + all.outside) * 0.999 / 1.063;
  ck_assert(!memory_of(&t).fits);
  hec_training_fix_find(&(hec_training_job){.training = &t}, &fix);
  ck_assert(fix.fits);
  ck_assert_str_eq(fix.change, order[_i].change);
  ck_assert(fix.memory.peak < all.peak);
  ck_near(memory_of(&fix.training).peak, fix.memory.peak);
}

HEC_TEST(nothing_fits) {
  hec_training t = training("pp=2 ep=8", 64, "", 2e9);
  hec_training_fix fix;
  HEC_SCOPED(hec_text) text = {0};
  hec_training_fix_find(&(hec_training_job){.training = &t}, &fix);
  ck_assert(!fix.fits);
  ck_assert_str_ne(fix.change, "");
  const hec_training_memory m = memory_of(&t);
  hec_training_fit_say(&m, &fix, "ep", &text);
  ck_assert_msg(strstr(text.data, "ep does not fit: stage ") && strstr(text.data, "no single change fits, "), "%s",
                text.data);
}

/* The smallest by its price and not by its bytes: what needs less comes later in the order. */
HEC_TEST(cheapest_first) {
  hec_training t = training("pp=2 ep=8", 64, "", 1), full = training("pp=2 ep=8", 64, "recompute=full", 1);
  hec_training_fix fix;
  HEC_SCOPED(hec_text) text = {0};
  hec_training_memory m = {.peak = 9e10, .reserved = 95e9, .outside = 1.5e9, .device_bytes = 80e9, .margin = -16.5e9};
  laws.gpu.sheet.memory_bytes = memory_of(&t).peak / 1.01;
  ck_assert(memory_of(&full).peak < memory_of(&t).peak);
  hec_training_fix_find(&(hec_training_job){.training = &t}, &fix);
  ck_assert_str_eq(fix.change, "recompute=norm+act");
  hec_training_fit_say(&m, NULL, "ep", &text);
  ck_assert_str_eq(text.data, "ep does not fit: stage 0 needs 89.9 of 74.5 GiB.");
  hec_text_free(&text);
  m = (hec_training_memory){.reserved = 70e9, .outside = 1.5e9, .device_bytes = 80e9, .margin = 8.5e9, .fits = true};
  hec_training_fit_say(&m, &fix, "ep", &text);
  ck_assert_str_eq(text.data, "ep fits: stage 0 needs 66.6 of 74.5 GiB.");
  hec_text_free(&text);
  m = (hec_training_memory){.reserved = 75e9, .outside = 1.5e9, .device_bytes = 80e9, .margin = 3.5e9, .fits = true};
  hec_training_fit_say(&m, &fix, "ep", &text);
  ck_assert_str_eq(text.data, "ep fits: stage 0 needs 71.2 of 74.5 GiB, with less than 5 % to spare.");
}

/* Loads of another layout are not known: all have the largest share. */
HEC_TEST(loads_of_other_layouts) {
  hec_training t = training("pp=8 ep=2", 64, "recompute=full", 80e9);
  enum { LOADS = 8 * 512 };
  hec_layer_load *loads = HEC_NEW(&arena, hec_layer_load, LOADS);
  hec_training_fix even, hot;
  for (int i = 0; i < LOADS; i++)
    loads[i].received = 1;
  hec_training_job job = {.training = &t, .loads = loads};
  laws.gpu.sheet.memory_bytes = 1e9;
  hec_training_fix_find(&job, &even);
  loads[7].received = 3;
  hec_training_fix_find(&job, &hot);
  ck_assert(hot.memory.peak > even.memory.peak);
}
