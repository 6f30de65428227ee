/* Kept things are found by the text of their set-up (setup.h), one after the other. A run has some hundred cells, each
 * of which costs milliseconds. */
#include "validate/published/cell_cache.h"

#include "runtime/base/arena.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  char *key;
  hec_setup setup;
  hec_setup_cell cell;
} kept;

typedef struct {
  char *key;
  hec_loads loads;
} kept_loads;

typedef struct {
  char *key;
  double number[HEC_CELL_NUMBERS];
} kept_numbers;

struct hec_cell_cache {
  hec_cell_cache_options options;
  hec_arena arena;
  const char *absent;
  kept **cells; /* [n_cells] */
  size_t n_cells, cells_capacity;
  kept_loads *loads; /* [n_loads] */
  size_t n_loads, loads_capacity;
  kept_numbers **numbers; /* [n_numbers] */
  size_t n_numbers, numbers_capacity;
};

hec_cell_cache *hec_cell_cache_new(const hec_cell_cache_options *options) {
  hec_cell_cache *cache = hec_malloc(1, sizeof *cache);
  *cache = (hec_cell_cache){.options = *options};
  return cache;
}

void hec_cell_cache_free(hec_cell_cache *cache) {
  if (!cache)
    return;
  hec_arena_free(&cache->arena);
  free(cache->cells);
  free(cache->loads);
  free(cache->numbers);
  free(cache);
}

const hec_cell_cache_options *hec_cell_cache_options_of(const hec_cell_cache *cache) {
  return &cache->options;
}

const char *hec_cell_cache_absent(hec_cell_cache *cache) {
  const char *absent = cache->absent;
  cache->absent = NULL;
  return absent;
}

/* ---- loads ---- */

static bool is_series(const hec_setup *setup) {
  return setup->loads && strcmp(setup->loads, "series") == 0;
}

static hec_status recorded(hec_cell_cache *cache, const hec_setup *setup, const hec_loads_wish *wish,
                           hec_loads *loads) {
  HEC_SCOPED(hec_text) path = {0};
  hec_text_printf(&path, "%s/%s", cache->options.shared ? cache->options.shared : "", setup->file);
  hec_status status = HEC_OK;
  if (!cache->options.shared || access(path.data, R_OK) != 0)
    *loads = (hec_loads){0};
  else
    status = hec_loads_of_trace(path.data, wish, setup->iterations, &cache->arena, loads);
  return status;
}

/* None: there is no such file. */
static hec_status make_loads(hec_cell_cache *cache, const hec_setup *setup, hec_loads *loads) {
  hec_loads_store *store = cache->options.store;
  const hec_loads_wish wish = {.kind = cache->options.kind,
                               .sigma = setup->sigma,
                               .still = !setup->drift || (cache->options.quick && !is_series(setup)),
                               .n_ranks = setup->ranks,
                               .n_experts = setup->moe.n_experts,
                               .n_layers = setup->moe.n_moe_layers,
                               .tokens = setup->tokens,
                               .top_k = setup->moe.top_k};
  int32_t n = setup->iterations;
  if (is_series(setup))
    return hec_loads_make(store, &wish, n, &cache->arena, loads);
  if (setup->loads && strcmp(setup->loads, "recorded") == 0)
    return recorded(cache, setup, &wish, loads);
  if (setup->hot > 0)
    return hec_loads_hot(&wish, n, setup->hot, setup->share, &cache->arena, loads);
  if (setup->imbalance > 0)
    return hec_loads_imbalanced(store, &wish, n, setup->imbalance_ep, setup->imbalance, &cache->arena, loads, NULL);
  return hec_loads_lognormal(store, &wish, n, &cache->arena, loads);
}

static hec_status loads_of(hec_cell_cache *cache, const hec_setup *setup, hec_loads *loads) {
  HEC_SCOPED(hec_text) key = {0};
  hec_setup_key(setup, true, &key);
  size_t i = 0;
  while (i < cache->n_loads && strcmp(cache->loads[i].key, key.data) != 0)
    i++;
  hec_status status = HEC_OK;
  if (i == cache->n_loads) {
    status = make_loads(cache, setup, loads);
    if (status == HEC_OK) {
      HEC_RESERVE(cache->loads, cache->loads_capacity, cache->n_loads + 1);
      cache->loads[cache->n_loads++] = (kept_loads){hec_arena_text(&cache->arena, key.data), *loads};
    }
  } else {
    *loads = cache->loads[i].loads;
  }
  return status;
}

/* ---- simulation ---- */

static hec_status load_cluster(const hec_cell_cache *cache, const hec_setup *setup, hec_arena *arena,
                               hec_cluster *cluster) {
  const char *spec = setup->cluster;
  for (int i = 0; i < 2; i++)
    if (cache->options.cluster[i] && spec[0] == 'A' + i && spec[1] == 0)
      spec = cache->options.cluster[i];
  HEC_TRY(hec_cluster_load(spec, arena, cluster));
  for (int32_t i = 0; i < cluster->n_links; i++) {
    hec_link *link = &cluster->links[i];
    if (link->kind == HEC_LINK_PORT_OUT || link->kind == HEC_LINK_PORT_IN)
      continue;
    link->nominal *= setup->nic_share;
    link->bandwidth *= setup->nic_share;
  }
  return HEC_OK;
}

/* Scratch on `arena`, which the caller frees. */
static hec_status simulate(hec_cell_cache *cache, const hec_setup *setup, const hec_loads *loads, hec_arena *arena,
                           hec_setup_cell *cell) {
  hec_cluster cluster;
  hec_problem problem;
  hec_moe moe = setup->moe;
  moe.tokens_per_rank = setup->tokens;
  HEC_TRY(load_cluster(cache, setup, arena, &cluster));
  HEC_TRY(hec_problem_make(&moe, &cluster, !setup->forward, setup->ranks, setup->tokens, &problem));
  if (setup->ep > 0)
    HEC_TRY(hec_problem_group(&problem, setup->ep));
  /* As Megatron-LM without --overlap-grad-reduce, its default and what most of these systems are built on. Of those in FSDP (LAER)
   * no number changes in its printed digits. */
  problem.head_late = true;
  problem.t = setup->t;
  problem.m = setup->m;
  problem.period = setup->period > 0 ? setup->period : HEC_AUTO;
  problem.slots = setup->slots > 0 ? setup->slots : HEC_AUTO;
  hec_setup_cell_run run = {.problem = &problem,
                            .policy = hec_policy_find(setup->policy),
                            .loads = loads,
                            .warmup = setup->warmup,
                            .n_micro_batches = setup->micro_batches};
  HEC_ASSERT(run.policy != NULL); /* hec_measure_cell */
  HEC_TRY(hec_schedule_of(run.policy, "published", &run.schedule));
  hec_setup_cell_simulate(&run, arena, cell);
  return HEC_OK;
}

/* One record that stands still: two iterations of it. */
static void hold(hec_loads *loads, int32_t record, hec_arena *arena) {
  hec_load one = loads->load[record];
  *loads = (hec_loads){2, HEC_NEW(arena, int64_t, 2), HEC_NEW(arena, int64_t, 2), HEC_NEW(arena, hec_load, 2)};
  for (int32_t i = 0; i < 2; i++) {
    loads->iter[i] = i + 1;
    loads->stride[i] = 1;
    loads->load[i] = one;
  }
}

static hec_status add_cell(hec_cell_cache *cache, const hec_setup *setup, const char *key,
                           const hec_setup_cell **cell) {
  hec_loads loads;
  *cell = NULL;
  HEC_TRY(loads_of(cache, setup, &loads));
  if (loads.n <= setup->record || loads.n == 0) {
    cache->absent = loads.n == 0 ? setup->file : "";
    return HEC_OK;
  }
  HEC_SCOPED(hec_arena) scratch = {0};
  if (setup->record >= 0)
    hold(&loads, setup->record, &scratch);
  kept *one = HEC_NEW(&cache->arena, kept, 1);
  one->setup = *setup;
  one->key = hec_arena_text(&cache->arena, key);
  HEC_TRY(simulate(cache, setup, &loads, &scratch, &one->cell));
  HEC_RESERVE(cache->cells, cache->cells_capacity, cache->n_cells + 1);
  cache->cells[cache->n_cells++] = one;
  *cell = &one->cell;
  return HEC_OK;
}

/* Half as many experts again as fit under attention: attention < spAG <= 2 attention. There the exposed time of
 * re-materialisation is (L + 2 (L - 1)) / L times the default's: 3 for many layers. */
static hec_status go_beyond(hec_cell_cache *cache, hec_setup *setup) {
  hec_setup own = *setup;
  const hec_setup_cell *cell;
  own.beyond = setup->beyond = false;
  own.policy = "hecate-published";
  HEC_TRY(hec_cell_cache_get(cache, &own, &cell));
  setup->t = cell->t_max + (cell->t_max + 1) / 2;
  return HEC_OK;
}

hec_status hec_cell_cache_get(hec_cell_cache *cache, const hec_setup *wanted, const hec_setup_cell **cell) {
  hec_setup setup = *wanted;
  if (setup.beyond)
    HEC_TRY(go_beyond(cache, &setup));
  HEC_SCOPED(hec_text) key = {0};
  hec_setup_key(&setup, false, &key);
  size_t i = 0;
  while (i < cache->n_cells && strcmp(cache->cells[i]->key, key.data) != 0)
    i++;
  hec_status status = HEC_OK;
  if (i < cache->n_cells)
    *cell = &cache->cells[i]->cell;
  else
    status = add_cell(cache, &setup, key.data, cell);
  return status;
}

int32_t hec_cell_cache_count(const hec_cell_cache *cache) {
  return (int32_t)cache->n_cells;
}

const hec_setup_cell *hec_cell_cache_at(const hec_cell_cache *cache, int32_t i, hec_setup *setup) {
  *setup = cache->cells[i]->setup;
  return &cache->cells[i]->cell;
}

double *hec_cell_cache_numbers(hec_cell_cache *cache, const char *key, bool *is_new) {
  size_t i = 0;
  while (i < cache->n_numbers && strcmp(cache->numbers[i]->key, key) != 0)
    i++;
  *is_new = i == cache->n_numbers;
  if (*is_new) {
    HEC_RESERVE(cache->numbers, cache->numbers_capacity, cache->n_numbers + 1);
    cache->numbers[i] = HEC_NEW(&cache->arena, kept_numbers, 1);
    cache->numbers[i]->key = hec_arena_text(&cache->arena, key);
    cache->n_numbers++;
  }
  return cache->numbers[i]->number;
}
