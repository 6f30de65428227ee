/* Orders are Fisher-Yates shuffles by GSL's Mersenne twister, the same on every rank. Loads come from the generators of
 * traces/ (synth.h). */
#include "validate/experiment.h"

#include "runtime/base/arena.h"
#include "runtime/plan/problem.h"
#include "traces/synth.h"
#include "traces/synth_memory.h"
#include "validate/stats.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  hec_experiment *experiment;
  int32_t a_case, round, n_done;
  double *pace; /* [n_ranks] */
} progress;

enum { RECENT = 256 };

/* Median of the newest probes. */
static double recent(const hec_experiment *experiment) {
  int32_t n = experiment->n_probes < RECENT ? experiment->n_probes : RECENT;
  return hec_median(experiment->probes + experiment->n_probes - n, n);
}

/* How disturbed a reading is, and each rank's pace. */
static double judge(hec_experiment *experiment, const hec_replayed *iteration, int32_t n_ranks, double *pace) {
  for (int32_t r = 0; r < n_ranks; r++)
    pace[r] = 1;
  if (!iteration->probe_s)
    return 0;
  HEC_RESERVE(experiment->probes, experiment->probes_capacity, (size_t)experiment->n_probes + 2 * (size_t)n_ranks);
  memcpy(experiment->probes + experiment->n_probes, iteration->probe_s,
         2 * (size_t)n_ranks * sizeof *experiment->probes);
  experiment->n_probes += 2 * n_ranks;
  double usual = recent(experiment), reference = experiment->reference_s > 0 ? experiment->reference_s : usual;
  for (int32_t r = 0; r < n_ranks; r++) {
    double probe_s = (iteration->probe_s[2 * r] + iteration->probe_s[2 * r + 1]) / 2;
    pace[r] = 1 + HEC_PACE_SHARE * (probe_s / reference - 1);
  }
  double slowed = (hec_max(iteration->probe_s, 2 * n_ranks) / usual - 1) / HEC_SLOWED_MAX;
  double lost = experiment->virtual_time ? 0 : iteration->interrupted / HEC_INTERRUPTED_MAX;
  return fmax(fmax(slowed, lost), 0);
}

static void hand_on(void *context, const hec_replayed *iteration) {
  progress *p = context;
  hec_experiment *experiment = p->experiment;
  const hec_experiment_case *one = &experiment->cases[p->a_case];
  double disturbance = judge(experiment, iteration, iteration->timeline->n_ranks, p->pace);
  if (p->n_done++ < one->warmup)
    return;
  const hec_experiment_reading reading = {.a_case = p->a_case,
                                          .round = p->round,
                                          .total_s = 1e-12 * (double)hec_timeline_end_ps(iteration->timeline),
                                          .disturbance = disturbance};
  hec_replayed mended = *iteration;
  hec_spans_mend(&experiment->spans, iteration->program, iteration->timeline,
                 &(hec_mending){iteration->lost_ps, p->pace}, &experiment->mended);
  mended.timeline = &experiment->mended;
  experiment->measured(experiment->context, &reading, &mended);
}

static hec_replay replay_of(const hec_experiment *experiment, int32_t a_case) {
  const hec_experiment_case *c = &experiment->cases[a_case];
  return (hec_replay){.problem = c->problem,
                      .model = c->model,
                      .steps = c->steps,
                      .n_steps = c->n_steps,
                      .n_micro_batches = c->n_micro_batches,
                      .schedule = c->schedule,
                      .collective = experiment->collective,
                      .virtual_time = experiment->virtual_time,
                      .probe = true,
                      .differ_iteration = -1,
                      .measured = hand_on};
}

static hec_pipelined pipelined_of(const hec_experiment_case *c, const hec_replay *replay) {
  return (hec_pipelined){.replay = *replay, .order = c->order, .layer_at = c->layer_at};
}

static size_t bytes_of(const hec_experiment *experiment, int32_t a_case) {
  const hec_experiment_case *c = &experiment->cases[a_case];
  hec_replay replay = replay_of(experiment, a_case);
  if (!c->order)
    return hec_replay_bytes(&replay, c->policy);
  hec_pipelined pipelined = pipelined_of(c, &replay);
  size_t bytes;
  hec_status status = hec_pipelined_bytes(&pipelined, c->policy, &bytes);
  HEC_ASSERT(status == HEC_OK); /* a stage's problem is part of one that was made */
  return bytes;
}

size_t hec_experiment_bytes(const hec_experiment *experiment) {
  size_t max = 0;
  for (int32_t i = 0; i < experiment->n_cases; i++) {
    size_t bytes = bytes_of(experiment, i);
    max = bytes > max ? bytes : max;
  }
  return max;
}

static hec_status run_case(hec_experiment *experiment, hec_rank *rank, int32_t a_case, int32_t round, double *pace) {
  hec_replay_check result;
  progress p = {experiment, a_case, round, 0, pace};
  hec_replay replay = replay_of(experiment, a_case);
  const hec_experiment_case *c = &experiment->cases[a_case];
  replay.context = &p;
  if (!c->order)
    return hec_replay_run(&replay, c->policy, rank, &result);
  hec_pipelined pipelined = pipelined_of(c, &replay);
  return hec_pipelined_run(&pipelined, c->policy, rank, &result);
}

/* The cases of a round, in order: the two kinds evenly mixed. */
static int32_t choose(const hec_experiment *experiment, int32_t round, gsl_rng *random, int32_t *order,
                      int32_t *scratch) {
  int32_t n_others = experiment->n_cases - experiment->n_in_turn, n_turns = experiment->n_in_turn;
  n_turns = n_others > 0 && n_others < n_turns ? n_others : n_turns;
  int32_t *turns = scratch, *others = scratch + n_turns, n = 0;
  for (int32_t i = 0; i < n_turns; i++)
    turns[i] = (int32_t)(((int64_t)round * n_turns + i) % experiment->n_in_turn);
  for (int32_t i = 0; i < n_others; i++)
    others[i] = experiment->n_in_turn + i;
  if (n_turns > 0)
    gsl_ran_shuffle(random, turns, (size_t)n_turns, sizeof *turns);
  if (n_others > 0)
    gsl_ran_shuffle(random, others, (size_t)n_others, sizeof *others);
  for (int32_t i = 0, k = 0; i < n_turns || k < n_others;) {
    bool turn = i < n_turns && (int64_t)i * n_others <= (int64_t)k * n_turns;
    order[n++] = turn || k == n_others ? turns[i++] : others[k++];
  }
  return n;
}

static hec_status run_round(hec_experiment *experiment, hec_rank *rank, const int32_t *order, int32_t n, int32_t round,
                            double *pace, bool *stop) {
  for (int32_t i = 0; i < n; i++) {
    *stop = rank->rank == 0 && experiment->go_on && !experiment->go_on(experiment->context, round, i);
    HEC_TRY(hec_rank_broadcast(rank, stop, sizeof *stop));
    if (*stop)
      return HEC_OK;
    HEC_TRY(run_case(experiment, rank, order[i], round, pace));
  }
  return HEC_OK;
}

hec_status hec_experiment_run(hec_experiment *experiment, hec_rank *rank) {
  HEC_SCOPED(hec_arena) arena = {0};
  int32_t *order = HEC_NEW(&arena, int32_t, experiment->n_cases),
          *scratch = HEC_NEW(&arena, int32_t, experiment->n_cases);
  double *pace = HEC_NEW(&arena, double, rank->n_ranks);
  hec_gsl_watch_memory(false);
  gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
  gsl_rng_set(random, (unsigned long)(experiment->seed % 4294967291u) + 1);
  hec_status status = HEC_OK;
  bool stop = false;
  for (int32_t round = 0; status == HEC_OK && !stop && round < experiment->n_rounds; round++) {
    int32_t n = choose(experiment, round, random, order, scratch);
    status = run_round(experiment, rank, order, n, round, pace, &stop);
  }
  gsl_rng_free(random);
  return status;
}

double hec_experiment_reference(const hec_experiment *experiment) {
  return experiment->n_probes > 0 ? hec_median(experiment->probes, experiment->n_probes) : 0;
}

void hec_experiment_close(hec_experiment *experiment) {
  free(experiment->probes);
  experiment->probes = NULL;
  hec_spans_free(&experiment->spans);
  hec_timeline_free(&experiment->mended);
}

/* Any two numbers to one of 52 bits (the last step of splitmix64): seeds of neighbours must have nothing in common. */
static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (x ^ (x >> 31)) >> 12;
}

hec_status hec_experiment_draw(const hec_experiment_loads *wish, hec_arena *arena, const hec_replay_step **steps) {
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
