/* Kept things are found by the text of their set-up (setup.h), one after the other: a lab has some hundred cells, each of
 * which costs milliseconds. */
#include "validate/published/lab.h"

#include "runtime/base/arena.h"
#include "runtime/plan/policy.h"
#include "runtime/plan/problem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  char *key;
  hec_setup setup;
  hec_lab_cell cell;
} kept;

typedef struct {
  char *key;
  hec_loads loads;
} kept_loads;

typedef struct {
  char *key;
  double number[HEC_LAB_NUMBERS];
} kept_numbers;

struct hec_lab {
  hec_lab_options options;
  hec_arena arena;
  const char *absent;
  kept **cells; /* [n_cells] */
  size_t n_cells, cells_capacity;
  kept_loads *loads; /* [n_loads] */
  size_t n_loads, loads_capacity;
  kept_numbers **numbers; /* [n_numbers] */
  size_t n_numbers, numbers_capacity;
};

hec_lab *hec_lab_new(const hec_lab_options *options) {
  hec_lab *lab = hec_malloc(1, sizeof *lab);
  *lab = (hec_lab){.options = *options};
  return lab;
}

void hec_lab_free(hec_lab *lab) {
  if (!lab)
    return;
  hec_arena_free(&lab->arena);
  free(lab->cells);
  free(lab->loads);
  free(lab->numbers);
  free(lab);
}

const hec_lab_options *hec_lab_options_of(const hec_lab *lab) {
  return &lab->options;
}

const char *hec_lab_absent(hec_lab *lab) {
  const char *absent = lab->absent;
  lab->absent = NULL;
  return absent;
}

/* ---- loads ---- */

static bool is_series(const hec_setup *setup) {
  return setup->loads && strcmp(setup->loads, "series") == 0;
}

static hec_status recorded(hec_lab *lab, const hec_setup *setup, const hec_loads_wish *wish, hec_loads *loads) {
  hec_text path = {0};
  hec_text_printf(&path, "%s/%s", lab->options.shared ? lab->options.shared : "", setup->file);
  hec_status status = HEC_OK;
  if (!lab->options.shared || access(path.data, R_OK) != 0)
    *loads = (hec_loads){0};
  else
    status = hec_loads_of_trace(path.data, wish, setup->iterations, &lab->arena, loads);
  hec_text_free(&path);
  return status;
}

/* None: there is no such file. */
static hec_status make_loads(hec_lab *lab, const hec_setup *setup, hec_loads *loads) {
  hec_loads_store *store = lab->options.store;
  const hec_loads_wish wish = {.kind = lab->options.kind,
                               .sigma = setup->sigma,
                               .still = !setup->drift || (lab->options.quick && !is_series(setup)),
                               .n_ranks = setup->ranks,
                               .n_experts = setup->moe.n_experts,
                               .n_layers = setup->moe.n_moe_layers,
                               .tokens = setup->tokens,
                               .top_k = setup->moe.top_k};
  int32_t n = setup->iterations;
  if (is_series(setup))
    return hec_loads_make(store, &wish, n, &lab->arena, loads);
  if (setup->loads && strcmp(setup->loads, "recorded") == 0)
    return recorded(lab, setup, &wish, loads);
  if (setup->hot > 0)
    return hec_loads_hot(&wish, n, setup->hot, setup->share, &lab->arena, loads);
  if (setup->imbalance > 0)
    return hec_loads_imbalanced(store, &wish, n, setup->imbalance_ep, setup->imbalance, &lab->arena, loads, NULL);
  return hec_loads_lognormal(store, &wish, n, &lab->arena, loads);
}

static hec_status loads_of(hec_lab *lab, const hec_setup *setup, hec_loads *loads) {
  hec_text key = {0};
  hec_setup_key(setup, true, &key);
  size_t i = 0;
  while (i < lab->n_loads && strcmp(lab->loads[i].key, key.data) != 0)
    i++;
  hec_status status = HEC_OK;
  if (i == lab->n_loads) {
    status = make_loads(lab, setup, loads);
    if (status == HEC_OK) {
      HEC_RESERVE(lab->loads, lab->loads_capacity, lab->n_loads + 1);
      lab->loads[lab->n_loads++] = (kept_loads){hec_arena_text(&lab->arena, key.data), *loads};
    }
  } else {
    *loads = lab->loads[i].loads;
  }
  hec_text_free(&key);
  return status;
}

/* ---- simulation ---- */

static hec_status load_cluster(const hec_lab *lab, const hec_setup *setup, hec_arena *arena, hec_cluster *cluster) {
  const char *spec = setup->cluster;
  for (int i = 0; i < 2; i++)
    if (lab->options.cluster[i] && spec[0] == 'A' + i && spec[1] == 0)
      spec = lab->options.cluster[i];
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
static hec_status simulate(hec_lab *lab, const hec_setup *setup, const hec_loads *loads, hec_arena *arena,
                           hec_lab_cell *cell) {
  hec_cluster cluster;
  hec_problem problem;
  hec_moe moe = setup->moe;
  moe.tokens_per_rank = setup->tokens;
  HEC_TRY(load_cluster(lab, setup, arena, &cluster));
  HEC_TRY(hec_problem_make(&moe, &cluster, !setup->forward, setup->ranks, setup->tokens, &problem));
  if (setup->ep > 0)
    HEC_TRY(hec_problem_group(&problem, setup->ep));
  problem.t = setup->t;
  problem.m = setup->m;
  problem.period = setup->period > 0 ? setup->period : HEC_AUTO;
  problem.slots = setup->slots > 0 ? setup->slots : HEC_AUTO;
  hec_lab_cell_run run = {.problem = &problem,
                          .policy = hec_policy_find(setup->policy),
                          .loads = loads,
                          .warmup = setup->warmup,
                          .n_micro_batches = setup->micro_batches};
  HEC_ASSERT(run.policy != NULL); /* hec_measure_cell */
  HEC_TRY(hec_schedule_of(run.policy, "auto", &run.schedule));
  hec_lab_cell_simulate(&run, arena, cell);
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

static hec_status add_cell(hec_lab *lab, const hec_setup *setup, const char *key, const hec_lab_cell **cell) {
  hec_loads loads;
  *cell = NULL;
  HEC_TRY(loads_of(lab, setup, &loads));
  if (loads.n <= setup->record || loads.n == 0) {
    lab->absent = loads.n == 0 ? setup->file : "";
    return HEC_OK;
  }
  hec_arena scratch = {0};
  if (setup->record >= 0)
    hold(&loads, setup->record, &scratch);
  kept *one = HEC_NEW(&lab->arena, kept, 1);
  one->setup = *setup;
  one->key = hec_arena_text(&lab->arena, key);
  hec_status status = simulate(lab, setup, &loads, &scratch, &one->cell);
  hec_arena_free(&scratch);
  HEC_TRY(status);
  HEC_RESERVE(lab->cells, lab->cells_capacity, lab->n_cells + 1);
  lab->cells[lab->n_cells++] = one;
  *cell = &one->cell;
  return HEC_OK;
}

/* Half as many experts again as fit under attention: attention < spAG <= 2 attention, where the exposed time of
 * re-materialisation is (L + 2 (L - 1)) / L times the default's, that is 3 for many layers. */
static hec_status go_beyond(hec_lab *lab, hec_setup *setup) {
  hec_setup own = *setup;
  const hec_lab_cell *cell;
  own.beyond = setup->beyond = false;
  own.policy = "hecate-published";
  HEC_TRY(hec_lab_get(lab, &own, &cell));
  setup->t = cell->t_most + (cell->t_most + 1) / 2;
  return HEC_OK;
}

hec_status hec_lab_get(hec_lab *lab, const hec_setup *wanted, const hec_lab_cell **cell) {
  hec_setup setup = *wanted;
  if (setup.beyond)
    HEC_TRY(go_beyond(lab, &setup));
  hec_text key = {0};
  hec_setup_key(&setup, false, &key);
  size_t i = 0;
  while (i < lab->n_cells && strcmp(lab->cells[i]->key, key.data) != 0)
    i++;
  hec_status status = HEC_OK;
  if (i < lab->n_cells)
    *cell = &lab->cells[i]->cell;
  else
    status = add_cell(lab, &setup, key.data, cell);
  hec_text_free(&key);
  return status;
}

int32_t hec_lab_count(const hec_lab *lab) {
  return (int32_t)lab->n_cells;
}

const hec_lab_cell *hec_lab_at(const hec_lab *lab, int32_t i, hec_setup *setup) {
  *setup = lab->cells[i]->setup;
  return &lab->cells[i]->cell;
}

double *hec_lab_numbers(hec_lab *lab, const char *key, bool *is_new) {
  size_t i = 0;
  while (i < lab->n_numbers && strcmp(lab->numbers[i]->key, key) != 0)
    i++;
  *is_new = i == lab->n_numbers;
  if (*is_new) {
    HEC_RESERVE(lab->numbers, lab->numbers_capacity, lab->n_numbers + 1);
    lab->numbers[i] = HEC_NEW(&lab->arena, kept_numbers, 1);
    lab->numbers[i]->key = hec_arena_text(&lab->arena, key);
    lab->n_numbers++;
  }
  return lab->numbers[i]->number;
}
