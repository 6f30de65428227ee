/* The search for a layout against all layouts simulated in full, and what it must never recommend. */
#include "sim/layout_search.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static hec_moe moe;
static hec_gpu_laws laws;

static hec_training base_of(const char *model, int32_t gpus, int32_t batch, const char *recipe) {
  const hec_gpu *gpu;
  const hec_gpu_laws *kernels;
  hec_training t = {.moe = &moe,
                    .laws = &laws,
                    .seq = 4096,
                    .global_batch = batch,
                    .micro_batch = 1,
                    .constants = hec_step_constants_fitted};
  ck_ok(hec_moe_load(model, &moe));
  ck_ok(hec_gpu_laws_load("h100", &arena, &gpu, &kernels));
  laws = hec_training_laws(kernels);
  t.layout = (hec_layout){.tp = 1, .cp = 1, .pp = 1, .vpp = 1, .ep = 1, .etp = 1, .gpus = gpus};
  t.recipe = hec_recipe_default();
  ck_ok(hec_recipe_read(recipe, &t.recipe));
  return t;
}

/* Every recomputation and micro-batch of one layout, no shortcut. */
static void try_all(const hec_training *base, const hec_layout *layout, double *best_s) {
  static const char *const recomputes[] = {"recompute=none", "recompute=norm+act", "recompute=norm+moe",
                                           "recompute=full"};
  int32_t levels = layout->pp == 1 && layout->gpus > 1 && !hec_recipe_states(&base->recipe, "zero") ? 2 : 1;
  for (int32_t micro = 1; micro <= 4; micro *= 2)
    for (int32_t r = 0; r < 4 * levels; r++) {
      hec_training t = *base;
      hec_training_result result;
      ck_ok(hec_recipe_read(recomputes[r % 4], &t.recipe));
      t.layout = *layout;
      t.micro_batch = micro;
      t.recipe.zero = r < 4 ? t.recipe.zero : 3;
      if (hec_training_check(&t) == HEC_OK &&
          hec_training_run(&(hec_training_job){.training = &t}, &result) == HEC_OK && result.memory.fits)
        *best_s = *best_s > 0 && *best_s < result.step_s ? *best_s : result.step_s;
    }
}

enum { EP_MAX = 128 };

/* Every size from 1 on; the best of each ep, 0 where nothing fits. */
static void exhaust(const hec_training *base, double best_s[EP_MAX + 1]) {
  memset(best_s, 0, (EP_MAX + 1) * sizeof *best_s);
  for (int32_t tp = 1; tp <= 8; tp++)
    for (int32_t pp = 1; pp <= base->layout.gpus; pp++)
      for (int32_t vpp = 1; vpp <= 12; vpp++)
        for (int32_t ep = 1; ep <= moe.n_experts; ep++)
          for (int32_t etp = 1; etp <= 8; etp++) {
            hec_layout layout = {.tp = tp, .cp = 1, .pp = pp, .vpp = vpp, .ep = ep, .etp = etp};
            if (hec_layout_fit(&layout, base->layout.gpus, &moe) == HEC_OK)
              try_all(base, &layout, &best_s[ep]);
          }
}

static const struct {
  const char *model;
  int32_t gpus, batch;
} spaces[] = {{"olmoe", 4, 32}, {"mixtral-8x7b", 16, 32}, {"qwen3-30b-a3b", 16, 32}, {"mixtral-8x22b", 32, 32}};

HEC_TEST_ROWS(regret, spaces) {
  const hec_training base =
      base_of(spaces[_i].model, spaces[_i].gpus, spaces[_i].batch, "dispatcher=alltoall graph=full");
  hec_layout_found found;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base, .any_micro_batch = true}, &arena, &found));
  ck_assert_int_gt(found.n, 0);
  double best_s[EP_MAX + 1], found_s[EP_MAX + 1] = {0}, min_s = 0;
  exhaust(&base, best_s);
  for (int32_t i = found.n - 1; i >= 0; i--)
    found_s[found.choices[i].training.layout.ep] = found.choices[i].result.step_s;
  for (int32_t ep = 1; ep <= moe.n_experts; ep++) {
    ck_assert((found_s[ep] > 0) == (best_s[ep] > 0));
    ck_assert_double_le(found_s[ep], 1.02 * best_s[ep]);
    min_s = best_s[ep] > 0 && (min_s <= 0 || best_s[ep] < min_s) ? best_s[ep] : min_s;
  }
  ck_assert_double_le(found.choices[0].result.step_s, 1.02 * min_s);
}

HEC_TEST(threads_find_the_same) {
  const hec_training base = base_of("qwen3-30b-a3b", 16, 64, "graph=full");
  hec_layout_found one, many;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base, .any_micro_batch = true}, &arena, &one));
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base, .any_micro_batch = true, .n_threads = 3}, &arena,
                              &many));
  ck_assert(one.n_tried == many.n_tried && one.n_fit == many.n_fit && one.n_all == many.n_all && one.n == many.n);
  for (int32_t i = 0; i < one.n_all; i++) {
    ck_assert(one.all[i].result.step_s == many.all[i].result.step_s && one.all[i].floor_s == many.all[i].floor_s);
    ck_assert_mem_eq(&one.all[i].training.layout, &many.all[i].training.layout, sizeof one.all[i].training.layout);
  }
}

HEC_TEST(sorted_and_within_memory) {
  const hec_training base = base_of("mixtral-8x22b", 64, 256, "graph=full");
  hec_layout_found found;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base, .any_micro_batch = true}, &arena, &found));
  ck_assert_int_ge(found.n_tried, found.n_fit);
  for (int32_t i = 0; i < found.n; i++) {
    const hec_layout_choice *c = &found.choices[i];
    ck_assert(c->result.memory.fits);
    ck_ok(hec_training_check(&c->training));
    ck_assert(i == 0 || found.choices[i - 1].result.step_s <= c->result.step_s);
  }
}

static uint32_t state = 2385;
static double random_share(void) {
  state = state * 1664525u + 1013904223u;
  return (double)(state >> 8) / (double)(1 << 24);
}

/* Rows of the busiest rank, at least the mean, over some of its experts. */
static hec_layer_load random_load(const hec_training *t) {
  int32_t n = 1 + (int32_t)(random_share() * 8),
          left = (int32_t)(hec_layer_rows(t, NULL) * (1 + 2 * random_share()) + 1);
  int32_t *rows = HEC_NEW(&arena, int32_t, n);
  for (int32_t i = 0; i < n; left -= rows[i++])
    rows[i] = i == n - 1 ? left : (int32_t)((double)left * random_share());
  return (hec_layer_load){.rows = rows, .n = n, .received = 3 * random_share()};
}

/* No load of a step is below the floor. */
HEC_TEST(floor_is_below_all_loads) {
  const hec_training base = base_of("qwen3-30b-a3b", 16, 32, "graph=full");
  hec_layout_found found;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base}, &arena, &found));
  for (int32_t i = 0; i < found.n_all; i += 7) {
    hec_layer_load *load = HEC_NEW(&arena, hec_layer_load, moe.n_moe_layers);
    hec_training_result result;
    for (int32_t l = 0; l < moe.n_moe_layers; l++)
      load[l] = random_load(&found.all[i].training);
    ck_assert(
        hec_layout_predict(&found.all[i].training, found.all[i].pipeline, &(hec_layout_loads){.load = load}, &result));
    ck_assert_double_gt(found.all[i].floor_s, 0);
    ck_assert_double_ge(result.step_s, found.all[i].floor_s);
    ck_assert_double_ge(found.all[i].result.step_s, found.all[i].floor_s);
  }
}

/* The last stage has the head: with a large vocabulary it gets fewer layers, which is faster than even stages. */
HEC_TEST(shorter_last_stage) {
  const hec_training base = base_of("gpt-oss-20b", 16, 64, "graph=full dispatcher=alltoall zero=1");
  hec_layout_found found;
  int32_t n_uneven = 0;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base}, &arena, &found));
  for (int32_t i = 0; i < found.n; i++) {
    hec_training even = found.choices[i].training;
    hec_training_result result;
    if (even.layout.n_given == 0)
      continue;
    n_uneven++;
    ck_assert_int_lt(even.layout.given[even.layout.n_given - 1], even.layout.given[even.layout.n_given - 2]);
    even.layout.n_given = 0;
    ck_ok(hec_training_run(&(hec_training_job){.training = &even}, &result));
    ck_assert_double_le(found.choices[i].result.step_s, result.step_s);
  }
  ck_assert_int_gt(n_uneven, 0);
}

static bool same_candidate(const hec_training *a, const hec_training *b) {
  return memcmp(&a->layout, &b->layout, sizeof a->layout) == 0 && a->micro_batch == b->micro_batch &&
         a->recipe.zero == b->recipe.zero && a->recipe.recompute == b->recipe.recompute &&
         (a->layout.ep == 1 || a->recipe.dispatcher == b->recipe.dispatcher);
}

static bool found_too(const hec_layout_found *found, const hec_layout_choice *wanted) {
  for (int32_t i = 0; i < found->n_all; i++)
    if (same_candidate(&found->all[i].training, &wanted->training))
      return found->all[i].result.step_s <= wanted->result.step_s;
  return false;
}

/* What is found where more is stated is found without, with the same stages; near the fastest, where other stages are
 * tried, nothing is faster. Micro-batches beyond 4 are tried while they are faster, which depends on the rest. */
static const struct {
  const char *model, *recipe;
  int32_t micro_batch; /* 0: any */
} restrictions[] = {{"olmoe", "dispatcher=deepep", 0},
                    {"olmoe", "", 4},
                    {"gpt-oss-20b", "recompute=none", 2},
                    {"gpt2-xl-moe", "dispatcher=allgather recompute=none", 0}};

HEC_TEST_ROWS(restrictions_find_no_more, restrictions) {
  const hec_training any = base_of(restrictions[_i].model, 8, 16, "zero=1");
  hec_training stated = any;
  hec_layout_found free, found;
  ck_ok(hec_recipe_read(restrictions[_i].recipe, &stated.recipe));
  stated.micro_batch = restrictions[_i].micro_batch > 0 ? restrictions[_i].micro_batch : 1;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &any, .any_micro_batch = true}, &arena, &free));
  ck_ok(hec_layout_search_run(
      &(hec_layout_search){.base = &stated, .any_micro_batch = restrictions[_i].micro_batch == 0}, &arena, &found));
  ck_assert_int_gt(found.n_all, 0);
  ck_assert_double_ge(found.all[0].result.step_s, free.all[0].result.step_s);
  for (int32_t i = 0; i < found.n_all; i += 7)
    ck_assert(found.all[i].training.micro_batch > 4 || found.all[i].result.step_s < 1.1 * found.all[0].result.step_s ||
              found_too(&free, &found.all[i]));
}

/* Near the fastest no candidate gains by a layer more or less in its last part. */
HEC_TEST(stages_near_the_fastest) {
  const hec_training base = base_of("mixtral-8x7b", 16, 16, "zero=1 graph=full");
  hec_layout_found found;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base, .any_micro_batch = true}, &arena, &found));
  int32_t n = 0;
  for (int32_t i = 0; i < found.n_all && found.all[i].result.step_s <= 1.02 * found.all[0].result.step_s; i++) {
    hec_training t = found.all[i].training;
    int32_t first, parts = t.layout.pp * t.layout.vpp, last = hec_layout_layers(&t.layout, t.moe, parts - 1, &first);
    for (int32_t way = -1; way <= 1 && t.layout.pp > 1; way += 2) {
      int32_t rest = t.moe->n_layers - last - way, others = parts - 1;
      hec_training_result result;
      t.layout.n_given = parts;
      for (int32_t p = 0; p < others; p++)
        t.layout.given[p] = rest / others + (others - 1 - p < rest % others);
      t.layout.given[others] = last + way;
      n++;
      if (last + way >= 0 && rest >= others && hec_layout_predict(&t, NULL, NULL, &result))
        ck_assert(!result.memory.fits || result.step_s >= found.all[i].result.step_s);
    }
  }
  ck_assert_int_gt(n, 0);
}

/* A schedule that is named is tried beside the others. */
HEC_TEST(named_schedule) {
  const hec_training base = base_of("mixtral-8x7b", 16, 64, "graph=full dispatcher=alltoall zero=1");
  hec_layout_found found;
  int32_t n = 0;
  ck_ok(
      hec_layout_search_run(&(hec_layout_search){.base = &base, .pipeline = &hec_pipeline_dualpipev}, &arena, &found));
  for (int32_t i = 0; i < found.n_all; i++)
    n += found.all[i].pipeline == &hec_pipeline_dualpipev;
  ck_assert(n > 0 && n < found.n_all);
}

/* What the recipe and the batch state stays. */
HEC_TEST(stated_parts_stay) {
  const hec_training base = base_of("mixtral-8x7b", 16, 64, "recompute=full dispatcher=allgather");
  hec_layout_found found;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base}, &arena, &found));
  for (int32_t i = 0; i < found.n; i++) {
    ck_assert_int_eq(found.choices[i].training.recipe.recompute, HEC_RECOMPUTE_FULL);
    ck_assert_int_eq(found.choices[i].training.recipe.dispatcher, HEC_DISPATCHER_ALLGATHER);
    ck_assert_int_eq(found.choices[i].training.micro_batch, 1);
  }
}

HEC_TEST(nothing_fits) {
  const hec_training base = base_of("deepseek-v3", 8, 64, "");
  hec_layout_found found;
  ck_ok(hec_layout_search_run(&(hec_layout_search){.base = &base}, &arena, &found));
  ck_assert_int_eq(found.n, 0);
  ck_assert_int_gt(found.n_tried, 0);
  ck_assert(found.tightest.training.moe && found.tightest.result.memory.margin < 0);
}

HEC_TEST(nothing_divides) {
  const hec_training base = base_of("mixtral-8x7b", 97, 64, "");
  hec_layout_found found;
  ck_refused(hec_layout_search_run(&(hec_layout_search){.base = &base}, &arena, &found), "no layout divides");
}

/* From none to all of it in four steps; a recipe of one's own is left alone. */
HEC_TEST(more_recomputation) {
  hec_recipe recipe = hec_recipe_default();
  int steps = 1;
  while (hec_recompute_more(&recipe))
    steps++;
  ck_assert_int_eq(steps, 4);
  ck_assert_int_eq(recipe.recompute, HEC_RECOMPUTE_FULL);
  recipe.recompute = HEC_RECOMPUTE_MLP;
  ck_assert(!hec_recompute_more(&recipe));
  ck_assert_int_eq(recipe.recompute, HEC_RECOMPUTE_MLP);
}

/* The reason is the part that grew most. */
HEC_TEST(reasons) {
  const hec_training base = base_of("mixtral-8x7b", 16, 64, "");
  hec_layout_choice best = {.training = base}, slower = {.training = base};
  slower.result.bubble_s = 3;
  slower.result.dispatch_s = slower.result.busy_s = 2;
  ck_assert_str_eq(hec_layout_reason_of(&best, &slower).words, "longer pipeline bubble");
  slower.result.dispatch_s = slower.result.busy_s = 4;
  ck_assert_str_eq(hec_layout_reason_of(&best, &slower).words, "exposed dispatch and combine");
  slower.training.recipe.recompute = HEC_RECOMPUTE_FULL;
  slower.result.busy_s = 20;
  ck_assert_str_eq(hec_layout_reason_of(&best, &slower).words, "recomputation, which it needs to fit");
}

/* Products cut in 8 run faster than the host launches them. That is another reason than small products; with all of a step in a CUDA
 * graph it is none. */
HEC_TEST(reason_of_host) {
  static const char *const words[] = {"the host launches kernels more slowly than they run",
                                      "smaller matrix products or uneven stages"};
  for (int graph = 0; graph < 2; graph++) {
    const hec_training base = base_of("qwen3-235b-a22b", 64, 256, graph ? "graph=full" : "graph=none");
    hec_layout_choice wide = {.training = base}, cut = {.training = base};
    wide.training.layout = (hec_layout){.tp = 1, .cp = 1, .pp = 8, .vpp = 1, .ep = 8, .etp = 1, .gpus = 64};
    cut.training.layout = (hec_layout){.tp = 8, .cp = 1, .pp = 8, .vpp = 1, .ep = 8, .etp = 1, .gpus = 64};
    ck_ok(hec_layout_fit(&wide.training.layout, 64, &moe));
    ck_ok(hec_layout_fit(&cut.training.layout, 64, &moe));
    ck_ok(hec_training_run(&(hec_training_job){.training = &wide.training}, &wide.result));
    ck_ok(hec_training_run(&(hec_training_job){.training = &cut.training}, &cut.result));
    cut.result.busy_s -= cut.result.tensor_s; /* what tp costs is a reason of its own, and not asked here */
    cut.result.tensor_s = 0;
    cut.result.bubble_s = wide.result.bubble_s;
    hec_layout_reason reason = hec_layout_reason_of(&wide, &cut);
    ck_assert_str_eq(reason.words, words[graph]);
    ck_assert_msg(graph || fabs(reason.seconds / (cut.result.host_s - wide.result.host_s) - 1) < 1e-12, "%g s",
                  reason.seconds);
  }
}
