/* One cell: problem, lowering, simulation of every iteration, sums. The program is what hecate-sim would run; here the
 * loads are in memory, and more is read off the timeline:
 *
 *   token_s   sum over dispatch and combine rows of (end - ready), ready = end of the row's dependencies and of its lane
 *   layer_s   forward: last end of the gate row to last end of the unpermute row; backward: last begin of unpermute' to
 *             last end of permute' (so waiting for gathers and for the gradient buffer counts)
 *   state     peak over the program's order of the holds that are parameters, gradients, optimizer state or copies
 *
 * O(operations * ranks) per iteration beside the simulation. */
#include "validate/published/published_lab.h"

#include "runtime/base/arena.h"
#include "runtime/program/lower.h"
#include "runtime/program/timeline.h"
#include "sim/simulate.h"

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

/* ---- reading a timeline ---- */

static int64_t end_at(const hec_timeline *timeline, size_t op, int32_t rank) {
  return timeline->end_ps[op * (size_t)timeline->n_ranks + (size_t)rank];
}

/* Mean over ranks of (end - ready) of all token exchanges. */
static double token_seconds(const hec_program *program, const hec_timeline *timeline, int64_t *lane_end) {
  int64_t sum = 0;
  memset(lane_end, 0, (size_t)program->n_ranks * sizeof *lane_end);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->lane != HEC_LANE_TOKEN)
      continue;
    for (int32_t r = 0; r < program->n_ranks; r++) {
      int64_t end = end_at(timeline, i, r), ready = lane_end[r];
      if (end < 0)
        continue;
      for (int32_t d = 0; d < op->n_deps; d++) {
        int64_t before = end_at(timeline, (size_t)program->deps[op->dep_at + d], r);
        ready = before > ready ? before : ready;
      }
      lane_end[r] = end;
      if (op->role == HEC_ROLE_DISPATCH || op->role == HEC_ROLE_COMBINE)
        sum += end - ready;
    }
  }
  return (double)sum * 1e-12 / program->n_ranks;
}

static double last(const int64_t *time, size_t op, int32_t n_ranks) {
  int64_t most = -1;
  for (int32_t r = 0; r < n_ranks; r++)
    most = time[op * (size_t)n_ranks + (size_t)r] > most ? time[op * (size_t)n_ranks + (size_t)r] : most;
  return (double)most * 1e-12;
}

/* Adds each MoE layer's time: two differences, of four rows. */
static void add_layers(const hec_program *program, const hec_timeline *timeline, double *layer_s) {
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->layer < 0)
      continue;
    if (op->role == HEC_ROLE_GATE && !op->backward)
      layer_s[op->layer] -= last(timeline->end_ps, i, program->n_ranks);
    if (op->role == HEC_ROLE_UNPERMUTE && !op->backward)
      layer_s[op->layer] += last(timeline->end_ps, i, program->n_ranks);
    if (op->role == HEC_ROLE_UNPERMUTE && op->backward)
      layer_s[op->layer] -= last(timeline->begin_ps, i, program->n_ranks);
    if (op->role == HEC_ROLE_PERMUTE && op->backward)
      layer_s[op->layer] += last(timeline->end_ps, i, program->n_ranks);
  }
}

static double role_sum(const hec_breakdown *breakdown, const hec_role *roles, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += breakdown->role_s[roles[i]];
  return sum;
}

static bool is_state(hec_memory memory) {
  return memory != HEC_MEMORY_ACTIVATION && memory != HEC_MEMORY_BUFFER;
}
static bool is_param(hec_memory memory) {
  return memory == HEC_MEMORY_PARAM || memory == HEC_MEMORY_COPY_PARAM;
}

/* Peak of the fullest rank over the holds of some classes: the program again, with fewer holds. */
static double peak_of(const hec_program *program, bool (*wanted)(hec_memory), hec_arena *arena) {
  hec_arena_mark mark = hec_arena_save(arena);
  hec_program some = *program;
  some.holds = HEC_NEW(arena, hec_hold, program->n_holds + 1);
  some.n_holds = 0;
  for (size_t i = 0; i < program->n_holds; i++)
    if (!wanted || wanted(program->holds[i].memory))
      some.holds[some.n_holds++] = program->holds[i];
  double *peak = HEC_NEW(arena, double, program->n_ranks), most = 0;
  hec_program_memory_peak(&some, peak, NULL);
  for (int32_t r = 0; r < program->n_ranks; r++)
    most = peak[r] > most ? peak[r] : most;
  hec_arena_rewind(arena, mark);
  return most;
}

/* ---- one cell ---- */

typedef struct {
  hec_lowering *low;
  hec_sim *sim;
  hec_timeline timeline;
  int64_t *lane_end;
  hec_arena *arena;
  double weighted_s, ordinary_s, stride, overload;
  int64_t n_overload;
} bench;

static double larger(double a, double b) {
  return a > b ? a : b;
}

static void widen(int32_t *least, int32_t *most, const int32_t *values, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    if (values[i] < 0)
      continue;
    *least = *least < 0 || values[i] < *least ? values[i] : *least;
    *most = values[i] > *most ? values[i] : *most;
  }
}

static void add_memory(bench *b, const hec_program *program, hec_lab_cell *cell) {
  cell->param_bytes = larger(cell->param_bytes, peak_of(program, is_param, b->arena));
  cell->state_bytes = larger(cell->state_bytes, peak_of(program, is_state, b->arena));
  cell->peak_bytes = larger(cell->peak_bytes, peak_of(program, NULL, b->arena));
}

static void add_iteration(bench *b, int64_t stride, hec_lab_cell *cell) {
  static const hec_role sparse[] = {HEC_ROLE_GATHER, HEC_ROLE_CALIBRATE, HEC_ROLE_REGATHER, HEC_ROLE_SCATTER,
                                    HEC_ROLE_REDUCE};
  static const hec_role rearrange[] = {HEC_ROLE_MIGRATE, HEC_ROLE_REPLICA_SCATTER, HEC_ROLE_REPLICA_GATHER};
  const hec_program *program = hec_lowering_program(b->low);
  double ordinary_s = -1;
  if (hec_lowering_one_off(b->low)) {
    hec_sim_run(b->sim, program, (hec_sim_options){.without_one_off = true}, &b->timeline);
    ordinary_s = (double)hec_timeline_end_ps(&b->timeline) * 1e-12;
  }
  cell->n_migrations += hec_lowering_migrated(b->low);
  hec_sim_run(b->sim, program, (hec_sim_options){0}, &b->timeline);
  hec_breakdown breakdown = hec_timeline_breakdown(&b->timeline, program);
  ordinary_s = ordinary_s < 0 ? breakdown.total_s : ordinary_s;
  b->weighted_s += (double)stride * ordinary_s + (breakdown.total_s - ordinary_s);
  b->ordinary_s += (double)stride * ordinary_s;
  b->stride += (double)stride;
  cell->token_s += token_seconds(program, &b->timeline, b->lane_end);
  add_layers(program, &b->timeline, cell->layer_s);
  double sparse_s = role_sum(&breakdown, sparse, (int32_t)(sizeof sparse / sizeof *sparse));
  double moving_s = role_sum(&breakdown, rearrange, (int32_t)(sizeof rearrange / sizeof *rearrange));
  bool all = hec_lowering_run(b->low)->policy->rearrangement; /* shadowing is rearrangement too */
  cell->sparse_s += all ? 0 : sparse_s;
  cell->rearrange_s += moving_s + (all ? sparse_s : 0);
  int32_t n;
  const double *overload = hec_lowering_overload(b->low, &n);
  for (int32_t i = 0; i < n; i++)
    b->overload += overload[i];
  b->n_overload += n;
  cell->n_reported++;
  add_memory(b, program, cell);
  const hec_policy_run *run = hec_lowering_run(b->low);
  widen(&cell->t_least, &cell->t_most, run->t, cell->n_layers);
  widen(&cell->m_least, &cell->m_most, run->m, cell->n_layers);
}

static void finish(const bench *b, const hec_problem *problem, hec_lab_cell *cell) {
  double n = cell->n_reported;
  HEC_ASSERT(n > 0);
  cell->iteration_s = b->weighted_s / b->stride;
  cell->ordinary_s = b->ordinary_s / b->stride;
  cell->overload = b->overload / (double)b->n_overload;
  cell->token_s /= n;
  cell->sparse_s /= n;
  cell->rearrange_s /= n;
  for (int32_t l = 0; l < cell->n_layers; l++)
    cell->layer_s[l] /= n;
  cell->fits = cell->peak_bytes <= problem->cluster->devices[0].memory_bytes;
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
  HEC_ASSERT(status == HEC_OK && problem.n_layers <= HEC_LAB_LAYERS_MAX);
  problem.t = key->t != HEC_AUTO ? key->t : lab->inputs.t;
  problem.m = lab->inputs.m;
  problem.period = key->period;
  problem.slots = key->slots;
  const hec_policy *policy = hec_policy_find(key->policy);
  const hec_schedule *schedule = NULL;
  HEC_ASSERT(policy != NULL && hec_schedule_of(policy, "auto", &schedule) == HEC_OK);
  bench b = {.low = hec_lowering_new(&problem, policy, schedule, NULL, arena),
             .sim = hec_sim_new(&problem, hec_law_find("alpha_beta"), arena),
             .lane_end = HEC_NEW(arena, int64_t, problem.n_ranks),
             .arena = arena};
  const hec_loads *loads = loads_of(lab, key, problem.n_layers, moe.tokens_per_rank);
  *cell = (hec_lab_cell){.n_layers = problem.n_layers, .t_least = -1, .t_most = -1, .m_least = -1, .m_most = -1};
  int32_t warmup = key->sweep ? lab->options.sweep_warmup : lab->options.warmup;
  if (warmup > loads->n / 2) /* a recorded trace may have fewer records than were asked for */
    warmup = loads->n / 3;
  for (int32_t i = policy->decide ? 0 : warmup; i < loads->n; i++) { /* without decisions there is nothing to warm up */
    hec_lower_iteration(b.low, loads->iter[i], &loads->load[i], 1, 1);
    if (i >= warmup)
      add_iteration(&b, loads->stride[i], cell);
  }
  finish(&b, &problem, cell);
  hec_lowering_free(b.low);
  hec_sim_free(b.sim);
  hec_timeline_free(&b.timeline);
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
