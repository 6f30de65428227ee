/* Orders are Fisher-Yates shuffles by GSL's Mersenne twister, the same on every rank. Loads come from the generators of
 * traces/ (synth.h). */
#include "validate/lab.h"

#include "runtime/base/arena.h"
#include "traces/synth.h"
#include "traces/synth_memory.h"
#include "validate/stats.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>

#include <stdlib.h>

typedef struct {
  hec_lab *lab;
  int32_t a_case, round, n_done;
} progress;

/* Where a run is. */
typedef struct {
  int32_t round, *order;   /* [n_cases] a permutation */
  bool *chosen;            /* [n_cases] by case: those of this round */
  int32_t n_done, n_known; /* cases run; that will run, as far as is known */
} course;

enum { RECENT = 256 };

/* Median of the newest probes. */
static double recent(const hec_lab *lab) {
  int32_t n = lab->n_probes < RECENT ? lab->n_probes : RECENT;
  return hec_median(lab->probes + lab->n_probes - n, n);
}

static void judge(hec_lab *lab, const hec_replayed *iteration, int32_t n_ranks, hec_lab_reading *reading) {
  if (!iteration->probe_s) {
    reading->pace = 1;
    reading->clean = true;
    return;
  }
  double most = 0, sum = 0;
  HEC_RESERVE(lab->probes, lab->probes_capacity, (size_t)lab->n_probes + 2 * (size_t)n_ranks);
  for (int32_t i = 0; i < 2 * n_ranks; i++) {
    double s = lab->probes[lab->n_probes++] = iteration->probe_s[i];
    most = s > most ? s : most;
    sum += s;
  }
  double slower = lab->reference_s > 0 ? sum / (2 * n_ranks) / lab->reference_s - 1 : 0;
  reading->pace = 1 + HEC_PACE_SHARE * slower;
  reading->lost = !lab->virtual_time && iteration->interrupted > HEC_INTERRUPTED_MOST;
  reading->slowed = most > (1 + HEC_SLOWED_MOST) * recent(lab);
  reading->clean = !reading->lost && !reading->slowed;
}

static void hand_on(void *context, const hec_replayed *iteration) {
  progress *p = context;
  hec_lab *lab = p->lab;
  hec_lab_reading reading = {.a_case = p->a_case, .round = p->round};
  judge(lab, iteration, lab->cases[p->a_case].problem->n_ranks, &reading);
  if (p->n_done++ < lab->cases[p->a_case].warmup)
    return;
  lab->n_read++;
  lab->n_clean += reading.clean;
  lab->measured(lab->context, &reading, iteration);
}

static hec_replay replay_of(const hec_lab *lab, int32_t a_case) {
  const hec_lab_case *c = &lab->cases[a_case];
  return (hec_replay){.problem = c->problem,
                      .model = c->model,
                      .steps = c->steps,
                      .n_steps = c->n_steps,
                      .n_micro_batches = c->n_micro_batches,
                      .schedule = c->schedule,
                      .collective = lab->collective,
                      .virtual_time = lab->virtual_time,
                      .probe = true,
                      .differ_iteration = -1,
                      .measured = hand_on};
}

size_t hec_lab_bytes(const hec_lab *lab) {
  size_t most = 0;
  for (int32_t i = 0; i < lab->n_cases; i++) {
    hec_replay replay = replay_of(lab, i);
    size_t bytes = hec_replay_bytes(&replay, lab->cases[i].policy);
    most = bytes > most ? bytes : most;
  }
  return most;
}

/* The cases that run: all of them, in an extra round those that rank 0 finds wanting. */
static hec_status choose(const hec_lab *lab, hec_rank *rank, course *on, int32_t *n) {
  bool extra = on->round >= lab->n_rounds;
  for (int32_t i = 0; i < lab->n_cases; i++)
    on->chosen[i] = !extra || (rank->rank == 0 && !lab->settled(lab->context, i));
  HEC_TRY(hec_rank_broadcast(rank, on->chosen, (size_t)lab->n_cases * sizeof *on->chosen));
  *n = 0;
  for (int32_t i = 0; i < lab->n_cases; i++)
    *n += on->chosen[i];
  on->n_known += extra ? *n : 0;
  return HEC_OK;
}

static hec_status run_case(hec_lab *lab, hec_rank *rank, int32_t a_case, course *on) {
  hec_replay_check result;
  progress p = {lab, a_case, on->round, 0};
  hec_replay replay = replay_of(lab, a_case);
  replay.context = &p;
  if (rank->rank == 0 && lab->progress)
    lab->progress(lab->context, on->n_done, on->n_known);
  on->n_done++;
  return hec_replay_run(&replay, lab->cases[a_case].policy, rank, &result);
}

static hec_status run_round(hec_lab *lab, hec_rank *rank, course *on, bool *stop) {
  int32_t n;
  HEC_TRY(choose(lab, rank, on, &n));
  *stop = n == 0;
  for (int32_t i = 0; i < lab->n_cases; i++) {
    if (!on->chosen[on->order[i]])
      continue;
    HEC_TRY(run_case(lab, rank, on->order[i], on));
    if (!lab->hopeless)
      continue;
    *stop = rank->rank == 0 && lab->hopeless(lab->context);
    HEC_TRY(hec_rank_broadcast(rank, stop, sizeof *stop));
    if (*stop)
      return HEC_OK;
  }
  return HEC_OK;
}

hec_status hec_lab_run(hec_lab *lab, hec_rank *rank) {
  hec_arena arena = {0};
  course on = {.order = HEC_NEW(&arena, int32_t, lab->n_cases),
               .chosen = HEC_NEW(&arena, bool, lab->n_cases),
               .n_known = lab->n_cases * lab->n_rounds};
  hec_gsl_watch_memory(false);
  gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
  gsl_rng_set(random, (unsigned long)(lab->seed % 4294967291u) + 1);
  for (int32_t i = 0; i < lab->n_cases; i++)
    on.order[i] = i;
  hec_status status = HEC_OK;
  bool stop = false;
  for (; status == HEC_OK && !stop && on.round < lab->n_rounds + lab->n_extra; on.round++) {
    gsl_ran_shuffle(random, on.order, (size_t)lab->n_cases, sizeof *on.order);
    status = run_round(lab, rank, &on, &stop);
  }
  gsl_rng_free(random);
  hec_arena_free(&arena);
  return status;
}

double hec_lab_reference(const hec_lab *lab) {
  return lab->n_probes > 0 ? hec_median(lab->probes, lab->n_probes) : 0;
}

void hec_lab_close(hec_lab *lab) {
  free(lab->probes);
  lab->probes = NULL;
}

/* Any two numbers to one of 52 bits (the last step of splitmix64): seeds of neighbours must have nothing in common. */
static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (x ^ (x >> 31)) >> 12;
}

hec_status hec_lab_draw(const hec_lab_loads *wish, hec_arena *arena, const hec_replay_step **steps) {
  hec_synth_options o = hec_synth_defaults();
  hec_synth *synth;
  o.workload = wish->sigma > 0 ? "lognormal" : "W0";
  o.n_layers = wish->n_layers;
  o.n_experts = wish->n_experts;
  o.top_k = wish->top_k;
  o.n_sources = o.ranks = wish->n_ranks;
  o.tokens = wish->tokens;
  o.n_iterations = wish->n_steps;
  o.sigma = wish->sigma;
  o.seed = wish->seed;
  hec_replay_step *list = HEC_NEW(arena, hec_replay_step, wish->n_steps);
  for (int32_t i = 0; i < wish->n_steps; i++) {
    hec_load *load = HEC_NEW(arena, hec_load, 1);
    *load = hec_load_new(arena, wish->n_layers, wish->n_ranks, wish->n_experts);
    o.seed = mix(wish->seed, (uint64_t)i); /* popularity drawn anew */
    o.n_iterations = 1;
    HEC_TRY(hec_synth_check(&o));
    HEC_TRY(hec_synth_new(&o, &synth));
    hec_synth_next(synth, load);
    hec_synth_free(synth);
    list[i] = (hec_replay_step){.iter = i, .stride = 1, .n_loads = 1, .loads = load};
  }
  *steps = list;
  return HEC_OK;
}
