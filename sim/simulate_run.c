/* Which way a program goes: the walk (runtime/program/walk.h) with durations by the compute law, or the event engine. */
#include "sim/simulate.h"

#include "runtime/base/arena.h"
#include "runtime/base/table.h"
#include "runtime/program/durations.h"
#include "runtime/program/lower.h"
#include "sim/law.h"
#include "sim/memo.h"

#define LAW_ROW(name) &hec_law_##name,
const hec_law *const hec_laws[] = {HEC_LAW_LIST(LAW_ROW) NULL};

HEC_TABLE_OF(hec_law);
const hec_law *hec_law_find(const char *name) {
  return hec_table_find(hec_laws, name);
}
const char *hec_law_name(const hec_law *law) {
  return law->name;
}
const char *hec_law_summary(const hec_law *law) {
  return law->summary;
}
const char *hec_law_limits(const hec_law *law) {
  return law->limits;
}

struct hec_sim {
  const hec_problem *problem;
  const hec_law *law;
  hec_link_cost cost;
  bool walks; /* the law is closed and nothing shares a device */
  hec_walk *walk;
  hec_sim_memo *memo; /* NULL: none */
  hec_durations *durations;
};

hec_sim *hec_sim_new(const hec_problem *problem, const hec_law *law, hec_arena *arena) {
  hec_sim *sim = HEC_NEW(arena, hec_sim, 1);
  sim->problem = problem;
  sim->law = law;
  sim->cost = hec_link_cost_new(problem->cluster, arena);
  sim->walks = law->closed_form;
  const hec_device *devices = problem->cluster->devices;
  for (int32_t r = 0; r < problem->n_ranks; r++)
    sim->walks = sim->walks && devices[r].comm_share == 0;
  sim->durations = hec_durations_new(problem, arena);
  sim->walk = hec_walk_new(&sim->cost, problem->n_ranks, arena);
  return sim;
}

void hec_sim_free(hec_sim *sim) {
  if (!sim)
    return;
  hec_walk_free(sim->walk);
  hec_link_cost_free(&sim->cost);
}

void hec_sim_run(hec_sim *sim, const hec_program *program, hec_sim_options options, hec_timeline *timeline) {
  if (sim->walks && !options.force_engine) {
    hec_durations_begin(sim->durations);
    hec_walk_options walk = {.own = hec_durations_own,
                             .context = &sim->durations,
                             .without_one_off = options.without_one_off,
                             .on_time = options.on_time,
                             .goes_on = options.goes_on};
    hec_walk_run(sim->walk, program, walk, timeline);
    return;
  }
  hec_sim_memo_key key = {0};
  if (sim->memo) {
    key = hec_sim_memo_key_of(program, options);
    if (hec_sim_memo_take(sim->memo, &key, timeline))
      return;
  }
  hec_timeline_resize(timeline, (int32_t)program->n_ops, program->n_ranks);
  hec_engine_run(sim->problem, sim->law, &sim->cost, program, options, timeline);
  if (sim->memo)
    hec_sim_memo_put(sim->memo, &key, timeline);
}

void hec_sim_share(hec_sim *sim, hec_sim_memo *memo) {
  sim->memo = memo;
}

/* ---- As a pricer ---- */

typedef struct {
  hec_sim *sim;
  hec_timeline timeline;
} pricing;

static void *pricing_start(const hec_pricer *pricer, const hec_problem *problem, hec_arena *arena) {
  pricing *p = HEC_NEW(arena, pricing, 1);
  p->sim = hec_sim_new(problem, pricer->law, arena);
  return p;
}

static double pricing_iteration_s(void *state, const hec_program *program, bool goes_on) {
  pricing *p = state;
  hec_sim_run(p->sim, program, (hec_sim_options){.without_one_off = true, .goes_on = goes_on}, &p->timeline);
  return (double)hec_timeline_end_ps(&p->timeline) * 1e-12;
}

static void pricing_stop(void *state) {
  pricing *p = state;
  hec_sim_free(p->sim);
  hec_timeline_free(&p->timeline);
}

const hec_pricer *hec_law_pricer(const hec_law *law) {
#define PRICER_ROW(name) {pricing_start, pricing_iteration_s, pricing_stop, &hec_law_##name},
  static const hec_pricer pricers[] = {HEC_LAW_LIST(PRICER_ROW)};
  size_t i = 0;
  while (hec_laws[i] != law)
    HEC_ASSERT(hec_laws[++i]);
  return &pricers[i];
}
