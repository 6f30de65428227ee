/* Enumeration in a fixed order, so that the same input finds the same layouts: see layout_search.h. */
#include "sim/layout_search.h"

#include "models/training/dispatcher.h"
#include "runtime/base/pool.h"

#include <stdlib.h>
#include <string.h>

enum {
  LONG_SEQ = 8192,
  CP_TOKENS = 4096,
  VPP_MAX = 12,
  VPP_UNEVEN = 4,
  PP_MAX = 64,
  MICRO_STEPS = 3,
  MICRO_STEPS_MAX = 12,
  BATCH = 256
};
static const double near_fastest = 1.04; /* so much slower a candidate may be whose stages are tried otherwise */

static const int32_t recomputes[] = {0, HEC_RECOMPUTE_NORM | HEC_RECOMPUTE_ACT, HEC_RECOMPUTE_NORM | HEC_RECOMPUTE_MOE,
                                     HEC_RECOMPUTE_FULL};

/* A layout with all that varies beside it. */
typedef struct {
  const hec_layout_search *of;
  hec_layout layout;
  hec_layout_choice *all; /* [n_all] that fit; malloc */
  hec_layout_choice tightest;
  size_t capacity;
  int32_t n_all, n_tried;
} trial;

typedef struct {
  const hec_layout_search *of;
  hec_arena *arena;
  hec_layout_found *found;
  hec_layout *layouts;    /* [n_layouts]; malloc */
  hec_layout_choice *all; /* [n_all] all that fit; malloc */
  size_t layouts_capacity, all_capacity;
  int32_t n_layouts, n_all;
} search;

/* Some micro-batches of a step, so many that the pipeline is steady; groups of stages stay whole. */
static int32_t few(int32_t micro, int32_t pp) {
  return micro <= 3 * pp ? micro : 2 * pp + micro % pp;
}

/* [n_moe_layers][n_micro] */
static void repeat(const hec_layout_loads *loads, int32_t n_layers, int32_t n_micro, hec_arena *arena,
                   hec_training_job *job) {
  int64_t n = (int64_t)n_layers * n_micro;
  hec_layer_load *all = HEC_NEW(arena, hec_layer_load, n);
  double *gather_s = loads->gather_s ? HEC_NEW(arena, double, 2 * n) : NULL;
  for (int64_t i = 0; i < n; i++) {
    memcpy(&all[i], &loads->load[i / n_micro], sizeof *all); /* bytes between members, too: they are compared */
    if (gather_s)
      memcpy(&gather_s[2 * i], &loads->gather_s[2 * (i / n_micro)], 2 * sizeof *gather_s);
  }
  job->loads = all;
  job->gather_s = gather_s;
  job->sharded = loads->sharded;
  job->moves_s = loads->moves_s;
  job->replicas_s = loads->replicas_s;
}

bool hec_layout_predict(const hec_training *t, const hec_pipeline_schedule *pipeline, const hec_layout_loads *loads,
                        hec_training_result *result) {
  hec_training some = *t;
  hec_training_job job = {.training = &some, .pipeline = pipeline};
  hec_arena arena = {0};
  int32_t micro = hec_training_micro_batches(t), n = few(micro, t->layout.pp);
  some.global_batch = n * t->layout.dp * t->micro_batch;
  if (loads)
    repeat(loads, t->moe->n_moe_layers, n, &arena, &job);
  bool runs = hec_training_run(&job, result) == HEC_OK;
  if (runs)
    result->step_s += (double)(micro - n) * result->busy_s / (double)n;
  hec_arena_free(&arena);
  return runs;
}

/* One expert with the mean of all ranks has the shortest product, and copies everywhere leave nothing to travel. */
static double floor_of(const hec_training *t, const hec_pipeline_schedule *pipeline) {
  hec_training_result result;
  hec_arena arena = {0};
  int32_t *rows = HEC_NEW(&arena, int32_t, 1);
  hec_layer_load *load = HEC_NEW(&arena, hec_layer_load, t->moe->n_moe_layers);
  *rows = (int32_t)hec_layer_rows(t, NULL);
  for (int32_t l = 0; l < t->moe->n_moe_layers; l++)
    load[l] = (hec_layer_load){.rows = rows, .n = 1};
  bool runs = hec_layout_predict(t, pipeline, &(hec_layout_loads){.load = load}, &result);
  hec_arena_free(&arena);
  return runs ? result.step_s : 0;
}

static void keep_tightest(hec_layout_choice *min, const hec_training *t, const hec_training_result *result) {
  if (!min->training.moe || result->memory.margin > min->result.memory.margin)
    *min = (hec_layout_choice){.training = *t, .result = *result};
}

bool hec_recompute_more(hec_recipe *recipe) {
  size_t n = sizeof recomputes / sizeof recomputes[0];
  for (size_t i = 0; i + 1 < n; i++)
    if (recipe->recompute == recomputes[i]) {
      recipe->recompute = recomputes[i + 1];
      return true;
    }
  return false;
}

/* Forward and backward of one layer of a kind. */
static double layer_s(const hec_training *t, hec_layer_kind kind) {
  hec_layer_pass pass[2];
  hec_layer_passes_of(t, kind, NULL, pass);
  return hec_layer_pass_s(t, &pass[0]) + hec_layer_pass_s(t, &pass[1]);
}

/* Of the longest part in MoE layers; `head`: what the last one has on top. Dense layers count as such, too. */
static double longest(const hec_training *t, const hec_layout *layout, double head) {
  int32_t first, parts = layout->pp * layout->vpp;
  double max = 0;
  for (int32_t p = 0; p < parts; p++) {
    double n = (double)hec_layout_layers(layout, t->moe, p, &first) + (p == parts - 1 ? head : 0);
    max = n > max ? n : max;
  }
  return max;
}

/* `last` of n layers in the last part; the others as even as they can be, the first ones with one less. */
static void set_last(const hec_moe *moe, hec_layout *layout, int32_t last) {
  hec_layout even = *layout;
  int32_t parts = layout->pp * layout->vpp, others = parts - 1, rest = moe->n_layers - last, first;
  even.n_given = 0;
  memset(even.given, 0, sizeof even.given);
  *layout = even;
  for (int32_t p = 0; p < parts; p++) {
    layout->given[p] = p == others ? last : rest / others + (others - 1 - p < rest % others);
    if (layout->given[p] != hec_layout_layers(&even, moe, p, &first))
      layout->n_given = parts;
  }
  if (layout->n_given == 0)
    *layout = even;
}

/* The last part has the head, and so fewer layers; the others are as even as they can be. The first ones have one less,
 * for they hold the most micro-batches. How much longer than a layer the head takes depends on all that is tried. Of
 * equal splits the most even one; but few micro-batches wait for the last part, so for them the one that is shortest
 * there. False: it is hardly better than the layout's own. */
static bool balance_stages(const hec_training *t, hec_layout *layout) {
  int32_t parts = layout->pp * layout->vpp, n = t->moe->n_layers, last = 0;
  bool is_short = hec_training_micro_batches(t) <= 2 * layout->pp;
  double head = (double)t->mtp, best = 0;
  if (!t->recipe.head)
    head += (double)(1 + t->mtp) * layer_s(t, HEC_LAYER_HEAD) / layer_s(t, HEC_LAYER_MOE);
  for (int32_t i = 0; i <= n; i++) {
    double others = (double)((n - i + parts - 2) / (parts - 1)), own = (double)i + head,
           max = own > others ? own : others;
    if (i > 0 && (max > best || (is_short && max >= best)))
      continue;
    best = max;
    last = i;
  }
  if (best >= 0.995 * longest(t, layout, head))
    return false;
  set_last(t->moe, layout, last);
  return true;
}

/* 0: none. */
static double min_of(double a, double b) {
  return a > 0 && (b <= 0 || a < b) ? a : b;
}

static bool predict(trial *s, const hec_training *t, const hec_pipeline_schedule *pipeline,
                    hec_training_result *result) {
  if (!hec_layout_predict(t, pipeline, NULL, result))
    return false;
  s->n_tried++;
  if (!result->memory.fits)
    keep_tightest(&s->tightest, t, result);
  return result->memory.fits;
}

static double keep(trial *s, const hec_training *t, const hec_pipeline_schedule *pipeline,
                   const hec_training_result *result) {
  HEC_RESERVE(s->all, s->capacity, s->n_all + 1);
  s->all[s->n_all++] = (hec_layout_choice){*t, pipeline, *result, floor_of(t, pipeline)};
  return result->step_s;
}

/* With the least recomputation that fits; more of it is never faster. Balanced stages are hardly ever slower than even
 * ones, so these are kept only where they fit with less recomputation. */
static double try_stages(trial *s, hec_training t, const hec_pipeline_schedule *pipeline) {
  bool any = !hec_recipe_states(&t.recipe, "recompute");
  int32_t n = any ? (int32_t)(sizeof recomputes / sizeof recomputes[0]) : 1;
  double even_s = 0;
  for (int32_t i = 0; i < n; i++) {
    hec_training_result result;
    t.recipe.recompute = any ? recomputes[i] : t.recipe.recompute;
    hec_training balanced = t;
    bool is_balanced = !pipeline && t.layout.pp > 1 && balance_stages(&t, &balanced.layout);
    if (is_balanced && predict(s, &balanced, pipeline, &result))
      return min_of(keep(s, &balanced, pipeline, &result), even_s);
    if (even_s <= 0 && predict(s, &t, pipeline, &result)) {
      even_s = keep(s, &t, pipeline, &result);
      if (!is_balanced)
        break;
    }
  }
  return even_s;
}

/* Dispatchers of one layout at one ZeRO level and micro-batch: the fastest of all stays in `best`. Its time; 0: none fits. */
static double try_dispatchers(trial *s, hec_training t, const hec_pipeline_schedule *pipeline) {
  const hec_recipe *recipe = &s->of->base->recipe;
  bool any = !hec_recipe_states(recipe, "dispatcher") && t.layout.ep > 1;
  double min_s = 0;
  for (int32_t d = 0; d < HEC_N_DISPATCHERS; d++) {
    bool tried = any && (!hec_dispatchers[d]->suits || hec_dispatchers[d]->suits(&t.laws->gpu));
    t.recipe.dispatcher = d;
    if ((tried || d == recipe->dispatcher) && hec_training_check(&t) == HEC_OK)
      min_s = min_of(min_s, try_stages(s, t, pipeline));
  }
  return min_s;
}

/* Micro-batches of one layout at one ZeRO level; beyond the first ones while each is faster than all before. */
static void try_level(trial *s, const hec_layout *layout, int32_t zero, const hec_pipeline_schedule *pipeline) {
  hec_training t = *s->of->base;
  double min_s = 0;
  t.layout = *layout;
  t.recipe.zero = zero;
  for (int32_t i = 0; i < (s->of->any_micro_batch ? MICRO_STEPS_MAX : 1); i++) {
    t.micro_batch = s->of->any_micro_batch ? 1 << i : s->of->base->micro_batch;
    double step_s = try_dispatchers(s, t, pipeline);
    bool fastest = step_s > 0 && (min_s <= 0 || step_s < min_s);
    if (i >= MICRO_STEPS - 1 && !fastest)
      return;
    min_s = fastest ? step_s : min_s;
  }
}

/* Without a pipeline FSDP too, unless the recipe states the level. In a pipeline it would gather in every micro-batch, and
 * level 2 would reduce gradients in each: neither is priced there. */
static void try_layout(trial *s) {
  const hec_recipe *recipe = &s->of->base->recipe;
  const hec_layout *layout = &s->layout;
  try_level(s, layout, recipe->zero, NULL);
  if (layout->pp == 1 && layout->gpus > 1 && recipe->zero < 3 && !hec_recipe_states(recipe, "zero"))
    try_level(s, layout, 3, NULL);
  if (layout->pp > 1 && s->of->pipeline && s->of->pipeline != hec_pipeline_default(layout->pp, layout->vpp))
    try_level(s, layout, recipe->zero, s->of->pipeline);
}

/* Whether virtual stages have as many layers each; with embedding and head counted they may, too. */
static bool even_parts(const hec_moe *moe, int32_t parts) {
  return parts <= moe->n_layers && (moe->n_layers % parts == 0 || (moe->n_layers + 2) % parts == 0);
}

static int32_t tp_max(const search *s) {
  int32_t near = s->of->base->laws->gpu.sheet.nvlink_ranks;
  return near < 8 ? near : 8;
}

static void add_layout(search *s, const hec_layout *layout) {
  HEC_RESERVE(s->layouts, s->layouts_capacity, s->n_layouts + 1);
  s->layouts[s->n_layouts++] = *layout;
}

/* Cut experts need less memory for few of them, and no rank of a group waits for another's load. */
static void add_expert_groups(search *s, hec_layout layout) {
  const hec_moe *moe = s->of->base->moe;
  for (layout.etp = 1; layout.etp <= tp_max(s); layout.etp *= 2)
    for (layout.ep = 1; layout.ep <= moe->n_experts; layout.ep++) {
      hec_layout whole = layout;
      if (moe->n_experts % layout.ep == 0 && hec_layout_fit(&whole, s->of->base->layout.gpus, moe) == HEC_OK)
        add_layout(s, &whole);
    }
}

static void add_pipelines(search *s, hec_layout layout) {
  const hec_moe *moe = s->of->base->moe;
  int32_t gpus = s->of->base->layout.gpus, pp_max = s->of->base->recipe.zero > 1 ? 1 : PP_MAX;
  for (layout.pp = 1; layout.pp <= pp_max && layout.pp <= moe->n_layers; layout.pp++) {
    if (gpus % layout.pp != 0)
      continue;
    for (layout.vpp = 1; layout.vpp <= (layout.pp > 1 ? VPP_MAX : 1); layout.vpp++)
      if (layout.vpp <= VPP_UNEVEN || even_parts(moe, layout.pp * layout.vpp))
        add_expert_groups(s, layout);
  }
}

static int order_of(int32_t a, int32_t b) {
  return (a > b) - (a < b);
}

/* Equal ones in a fixed order. */
static int faster(const void *a, const void *b) {
  const hec_layout_choice *x = a, *y = b;
  const hec_training *s = &x->training, *t = &y->training;
  if (x->result.step_s < y->result.step_s || x->result.step_s > y->result.step_s)
    return x->result.step_s < y->result.step_s ? -1 : 1;
  int order = memcmp(&s->layout, &t->layout, sizeof s->layout);
  order = order ? order : order_of(s->micro_batch, t->micro_batch);
  order = order ? order : order_of(s->recipe.dispatcher, t->recipe.dispatcher);
  order = order ? order : order_of(s->recipe.zero, t->recipe.zero);
  return order ? order : order_of(x->pipeline != NULL, y->pipeline != NULL);
}

/* The fastest of its layout, whatever its stages, if that is among the fastest ones or the first of its ep. */
static bool is_chosen(const hec_layout_found *found, const hec_layout *layout) {
  bool first = true;
  for (int32_t i = 0; i < found->n; i++) {
    const hec_layout *l = &found->choices[i].training.layout;
    if (l->tp == layout->tp && l->cp == layout->cp && l->pp == layout->pp && l->vpp == layout->vpp &&
        l->ep == layout->ep && l->etp == layout->etp)
      return false;
    first = first && l->ep != layout->ep;
  }
  return first || found->n < HEC_LAYOUT_CHOICES;
}

static void work(void *context, int32_t worker, int64_t item) {
  (void)worker;
  try_layout((trial *)context + item);
}

/* In the order of the layouts, whoever tried them. */
static void take(search *s, trial *from) {
  s->found->n_tried += from->n_tried;
  s->found->n_fit += from->n_all;
  if (from->tightest.training.moe)
    keep_tightest(&s->found->tightest, &from->tightest.training, &from->tightest.result);
  if (from->n_all == 0)
    return;
  HEC_RESERVE(s->all, s->all_capacity, s->n_all + from->n_all);
  memcpy(&s->all[s->n_all], from->all, (size_t)from->n_all * sizeof *from->all);
  s->n_all += from->n_all;
  free(from->all);
}

/* In batches, so that few trials are in memory at once. */
static void try_all(search *s) {
  trial *trials = hec_malloc(BATCH, sizeof *trials);
  hec_pool *pool = hec_pool_new(s->of->n_threads > 1 ? s->of->n_threads : 1);
  for (int32_t first = 0; first < s->n_layouts; first += BATCH) {
    int32_t n = s->n_layouts - first < BATCH ? s->n_layouts - first : BATCH;
    for (int32_t i = 0; i < n; i++)
      trials[i] = (trial){.of = s->of, .layout = s->layouts[first + i]};
    hec_pool_run(pool, &(hec_pool_job){.n = n, .work = work, .context = trials});
    for (int32_t i = 0; i < n; i++)
      take(s, &trials[i]);
  }
  hec_pool_free(pool);
  free(trials);
}

/* The head's part of a step is known about; so with a layer more or less in the last part, as long as that is faster. */
static void try_near(search *s) {
  double limit_s = near_fastest * s->all[0].result.step_s;
  for (int32_t i = 0; i < s->n_all && s->all[i].result.step_s <= limit_s; i++) {
    hec_layout_choice *best = &s->all[i];
    hec_training t = best->training;
    const hec_layout *layout = &best->training.layout;
    int32_t first, n = t.moe->n_layers, parts = layout->pp * layout->vpp;
    if (layout->pp == 1 || best->pipeline)
      continue;
    int32_t from = hec_layout_layers(layout, t.moe, parts - 1, &first);
    for (int32_t way = -1; way <= 1; way += 2) {
      hec_training_result result;
      for (int32_t last = from + way; last >= 0 && last <= n - (parts - 1); last += way) {
        set_last(t.moe, &t.layout, last);
        s->found->n_tried++;
        if (!hec_layout_predict(&t, NULL, NULL, &result) || !result.memory.fits || result.step_s >= best->result.step_s)
          break;
        *best = (hec_layout_choice){t, NULL, result, floor_of(&t, NULL)};
      }
    }
  }
}

static hec_status finish(search *s) {
  hec_layout_found *found = s->found;
  if (found->n_tried == 0)
    return hec_fail(
        HEC_BAD_INPUT,
        "no layout divides %d GPUs, the layers, heads and experts of %s and a global batch of %d; try a global "
        "batch that is a multiple of the GPUs",
        (int)s->of->base->layout.gpus, s->of->base->moe->name, (int)s->of->base->global_batch);
  if (s->n_all == 0)
    return HEC_OK;
  qsort(s->all, (size_t)s->n_all, sizeof *s->all, faster);
  try_near(s);
  qsort(s->all, (size_t)s->n_all, sizeof *s->all, faster);
  found->n_all = s->n_all;
  found->all = HEC_NEW(s->arena, hec_layout_choice, s->n_all);
  memcpy(found->all, s->all, (size_t)s->n_all * sizeof *s->all);
  found->choices = HEC_NEW(s->arena, hec_layout_choice, HEC_LAYOUT_CHOICES + s->of->base->moe->n_experts);
  for (int32_t i = 0; i < s->n_all; i++)
    if (is_chosen(found, &s->all[i].training.layout))
      found->choices[found->n++] = s->all[i];
  for (int32_t i = 0; i < found->n; i++)
    HEC_TRY(hec_training_run(
        &(hec_training_job){.training = &found->choices[i].training, .pipeline = found->choices[i].pipeline},
        &found->choices[i].result));
  qsort(found->choices, (size_t)found->n, sizeof *found->choices, faster);
  return HEC_OK;
}

hec_status hec_layout_search_run(const hec_layout_search *of, hec_arena *arena, hec_layout_found *found) {
  search s = {.of = of, .arena = arena, .found = found};
  const hec_training *base = of->base;
  *found = (hec_layout_found){0};
  for (int32_t tp = 1; tp <= tp_max(&s); tp *= 2)
    for (int32_t cp = 1; cp == 1 || (base->seq >= LONG_SEQ && base->seq / cp >= CP_TOKENS); cp *= 2)
      if (base->moe->n_heads % tp == 0)
        add_pipelines(&s, (hec_layout){.tp = tp, .cp = cp});
  try_all(&s);
  hec_status status = finish(&s);
  free(s.layouts);
  free(s.all);
  return status;
}

/* What the busiest device computes itself: the rest of its time. */
static double computing_s(const hec_training_result *r) {
  return r->busy_s - r->dispatch_s - r->tensor_s - r->sharded_s - r->host_s;
}

hec_layout_reason hec_layout_reason_of(const hec_layout_choice *best, const hec_layout_choice *slower) {
  const hec_training_result *b = &best->result, *s = &slower->result;
  const hec_layout_reason parts[] = {
      {"longer pipeline bubble", s->bubble_s - b->bubble_s},
      {"exposed dispatch and combine", s->dispatch_s - b->dispatch_s},
      {"traffic of tp, cp and etp", s->tensor_s - b->tensor_s},
      {"exposed data-parallel traffic", s->data_s + s->sharded_s - b->data_s - b->sharded_s},
      {"optimizer with fewer ranks to share it", s->optimizer_s - b->optimizer_s},
      {"the host launches kernels more slowly than they run", s->host_s - b->host_s},
      {slower->training.recipe.recompute > best->training.recipe.recompute ? "recomputation, which it needs to fit"
                                                                           : "smaller matrix products or uneven stages",
       computing_s(s) - computing_s(b)},
  };
  hec_layout_reason max = parts[0];
  for (size_t i = 1; i < sizeof parts / sizeof parts[0]; i++)
    max = parts[i].seconds > max.seconds ? parts[i] : max;
  return max;
}
