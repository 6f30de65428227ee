/* A cell is problem and loads under a key, simulated when it is first asked for (published_cell.h); loads by size are made
 * once. */
#include "validate/published/published_lab.h"

#include "runtime/base/arena.h"

#include <stdlib.h>
#include <string.h>

#define SETTING_NAME(name, text, cluster, ranks) text,
const char *const hec_setting_name[HEC_N_SETTINGS] = {HEC_SETTING_LIST(SETTING_NAME)};
#define SETTING_CLUSTER(name, text, cluster, ranks) cluster,
static const int32_t setting_cluster[HEC_N_SETTINGS] = {HEC_SETTING_LIST(SETTING_CLUSTER)};
#define SETTING_RANKS(name, text, cluster, ranks) ranks,
static const int32_t setting_ranks[HEC_N_SETTINGS] = {HEC_SETTING_LIST(SETTING_RANKS)};

const char *const hec_published_model[HEC_N_PUBLISHED_MODELS] = {"gpt-moe-s", "gpt-moe-l", "bert-moe", "bert-moe-deep"};

typedef struct {
  hec_lab_key key;
  hec_lab_cell cell;
} kept;

typedef struct {
  int32_t n_ranks, n_layers, tokens;
  bool sweep;
  hec_loads loads;
} kept_loads;

enum { LOADS_MAX = 64 };

struct hec_lab {
  hec_lab_options options;
  hec_published_inputs inputs;
  hec_loads_kind kind;
  hec_arena arena;
  hec_cluster cluster[2];
  hec_moe moe[HEC_N_PUBLISHED_MODELS];
  kept_loads loads[LOADS_MAX];
  int32_t n_loads;
  kept **cells; /* [n_cells] */
  size_t n_cells, cells_capacity;
};

static void scale_network(hec_cluster *cluster, double share) {
  for (int32_t i = 0; i < cluster->n_links; i++) {
    hec_link *link = &cluster->links[i];
    if (link->kind == HEC_LINK_PORT_OUT || link->kind == HEC_LINK_PORT_IN)
      continue;
    link->nominal *= share;
    link->bandwidth *= share;
  }
}

static hec_status load_all(hec_lab *lab) {
  for (int32_t c = 0; c < 2; c++) {
    HEC_TRY(hec_cluster_load(lab->options.cluster[c], &lab->arena, &lab->cluster[c]));
    if (lab->cluster[c].n_devices < 32)
      return hec_fail(HEC_BAD_INPUT, "--cluster-%c: expected at least the 32 devices of the paper, found %d",
                      c == 0 ? 'a' : 'b', lab->cluster[c].n_devices);
    scale_network(&lab->cluster[c], lab->inputs.nic_share);
  }
  for (int32_t i = 0; i < HEC_N_PUBLISHED_MODELS; i++)
    HEC_TRY(hec_moe_load(hec_published_model[i], &lab->moe[i]));
  /* Generators may fail only here: asking for a cell cannot. */
  for (int32_t ranks = 16; ranks <= 32 && lab->kind == HEC_LOADS_SYNTHETIC; ranks *= 2) {
    hec_loads_wish wish = {lab->kind, lab->inputs.sigma, lab->inputs.still, ranks, 2 * ranks, 1, 1};
    hec_loads loads;
    HEC_TRY(hec_loads_make(lab->options.loads, &wish, 1, &lab->arena, &loads));
  }
  return HEC_OK;
}

hec_status hec_lab_new(const hec_lab_options *options, const hec_published_inputs *inputs, hec_loads_kind kind,
                       hec_lab **out) {
  hec_lab *lab = hec_malloc(1, sizeof *lab);
  *lab = (hec_lab){.options = *options, .inputs = *inputs, .kind = kind};
  hec_status status = load_all(lab);
  if (status != HEC_OK) {
    hec_lab_free(lab);
    lab = NULL;
  }
  *out = lab;
  return status;
}

void hec_lab_free(hec_lab *lab) {
  if (!lab)
    return;
  hec_arena_free(&lab->arena);
  free(lab->cells);
  free(lab);
}

const hec_published_inputs *hec_lab_inputs(const hec_lab *lab) {
  return &lab->inputs;
}

static const hec_loads *loads_of(hec_lab *lab, const hec_lab_key *key, int32_t n_layers, int32_t tokens) {
  int32_t n_ranks = setting_ranks[key->setting];
  for (int32_t i = 0; i < lab->n_loads; i++) {
    const kept_loads *k = &lab->loads[i];
    if (k->n_ranks == n_ranks && k->n_layers == n_layers && k->tokens == tokens && k->sweep == key->sweep)
      return &k->loads;
  }
  HEC_ASSERT(lab->n_loads < LOADS_MAX);
  kept_loads *k = &lab->loads[lab->n_loads++];
  *k = (kept_loads){n_ranks, n_layers, tokens, key->sweep, {0}};
  hec_loads_wish wish = {lab->kind, lab->inputs.sigma, lab->inputs.still, n_ranks, 2 * n_ranks, n_layers, tokens};
  hec_status status = hec_loads_make(
      lab->options.loads, &wish, key->sweep ? lab->options.n_sweep : lab->options.n_iterations, &lab->arena, &k->loads);
  HEC_ASSERT(status == HEC_OK); /* generated in hec_lab_new */
  return &k->loads;
}

/* Scratch on `arena`, which the caller frees. */
static void simulate(hec_lab *lab, const hec_lab_key *key, hec_arena *arena, hec_lab_cell *cell) {
  hec_moe moe = lab->moe[key->model];
  moe.n_experts = 2 * setting_ranks[key->setting];
  moe.nonmoe_scale = lab->inputs.nonmoe_scale;
  moe.tokens_per_rank = key->tokens > 0 ? key->tokens : lab->inputs.tokens;
  hec_problem problem;
  hec_status status = hec_problem_make(&moe, &lab->cluster[setting_cluster[key->setting]], true,
                                       setting_ranks[key->setting], moe.tokens_per_rank, &problem);
  HEC_ASSERT(status == HEC_OK);
  problem.t = key->t != HEC_AUTO ? key->t : lab->inputs.t;
  problem.m = lab->inputs.m;
  problem.period = key->period;
  problem.slots = key->slots;
  const hec_lab_cell_run run = {.problem = &problem,
                                .policy = hec_policy_find(key->policy),
                                .loads = loads_of(lab, key, problem.n_layers, moe.tokens_per_rank),
                                .warmup = key->sweep ? lab->options.sweep_warmup : lab->options.warmup};
  HEC_ASSERT(run.policy != NULL);
  hec_lab_cell_simulate(&run, arena, cell);
}

static bool same_key(const hec_lab_key *a, const hec_lab_key *b) {
  return a->setting == b->setting && a->model == b->model && strcmp(a->policy, b->policy) == 0 &&
         a->tokens == b->tokens && a->period == b->period && a->slots == b->slots && a->t == b->t &&
         a->sweep == b->sweep;
}

const hec_lab_cell *hec_lab_get(hec_lab *lab, hec_lab_key key) {
  key.tokens = key.tokens == lab->inputs.tokens ? 0 : key.tokens;
  for (size_t i = 0; i < lab->n_cells; i++)
    if (same_key(&lab->cells[i]->key, &key))
      return &lab->cells[i]->cell;
  kept *one = HEC_NEW(&lab->arena, kept, 1);
  one->key = key;
  hec_arena scratch = {0};
  simulate(lab, &key, &scratch, &one->cell);
  hec_arena_free(&scratch);
  HEC_RESERVE(lab->cells, lab->cells_capacity, lab->n_cells + 1);
  lab->cells[lab->n_cells++] = one;
  return &one->cell;
}

int32_t hec_lab_count(const hec_lab *lab) {
  return (int32_t)lab->n_cells;
}

const hec_lab_cell *hec_lab_at(const hec_lab *lab, int32_t i, hec_lab_key *key) {
  *key = lab->cells[i]->key;
  return &lab->cells[i]->cell;
}
