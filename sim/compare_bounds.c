/* The bounds beside a comparison: of an iteration, what no policy of a row's class can be faster than (bound.h). Rows of one
 * class have one, but where their policy computes other loads than the gate chose. */
#include "sim/compare_state.h"

#include "runtime/plan/bound/bound.h"
#include "sim/law.h"

#include <string.h>

/* By class and schedule (tokens_wait, by_node); 0: not yet. */
typedef double bounds_s[HEC_N_BOUND_CLASSES][2][2];

struct hec_compare_bounds {
  hec_bound *bound;
  bool closed_form; /* of the law */
  bounds_s known_s, rewritten_s;
  /* Of the policy at hand, where it computes something else than the gate chose. */
  const hec_policy_run *rewriting;
  hec_load *rewritten; /* [n_rewritten] */
  int32_t n_rewritten;
  hec_arena *arena;
};

/* Loads as the policy's, each rewritten once: policies count what they drop. */
static const hec_load *loads_of(hec_compare_bounds *b, const hec_compare_row *one, const hec_iteration *iteration) {
  const hec_policy_run *run = hec_lowering_run(one->low);
  const hec_problem *problem = run->problem;
  if (!run->policy->rewrite)
    return iteration->loads;
  if (run == b->rewriting)
    return b->rewritten;
  b->rewriting = run;
  memset(b->rewritten_s, 0, sizeof b->rewritten_s);
  if (iteration->n_loads > b->n_rewritten) {
    b->rewritten = HEC_NEW(b->arena, hec_load, iteration->n_loads);
    for (int32_t i = 0; i < iteration->n_loads; i++)
      b->rewritten[i] = hec_load_new(b->arena, problem->n_layers, problem->n_ranks, problem->n_experts);
    b->n_rewritten = iteration->n_loads;
  }
  for (int32_t i = 0; i < iteration->n_loads; i++) {
    hec_load_copy(&iteration->loads[i], &b->rewritten[i]);
    hec_lowering_rewrite(one->low, &b->rewritten[i]);
  }
  return b->rewritten;
}

static double bound_s_of(hec_compare_bounds *b, const hec_compare_row *one, const hec_iteration *iteration) {
  const hec_policy_run *run = hec_lowering_run(one->low);
  hec_bound_class class = hec_bound_class_of(one->policy, run->problem); /* the run may follow another policy */
  const hec_load *loads = loads_of(b, one, iteration);
  bounds_s *all_s = run->policy->rewrite ? &b->rewritten_s : &b->known_s;
  double *known_s = &(*all_s)[class][one->schedule->tokens_wait][one->schedule->by_node];
  if (*known_s > 0)
    return *known_s;
  hec_bound_begin(b->bound, (hec_bound_case){.class = class,
                                             .tokens_wait = one->schedule->tokens_wait,
                                             .by_node = one->schedule->by_node,
                                             .closed_form = b->closed_form,
                                             .n_micro_batches = iteration->n_micro_batches});
  for (int32_t mb = 0; mb < iteration->n_micro_batches; mb++)
    hec_bound_add(b->bound, &loads[iteration->n_loads == 1 ? 0 : mb]);
  *known_s = hec_bound_end(b->bound).total_s;
  return *known_s;
}

hec_compare_bounds *hec_compare_bounds_new(hec_comparison *c) {
  hec_compare_bounds *b = HEC_NEW(&c->arena, hec_compare_bounds, 1);
  *b = (hec_compare_bounds){.bound = hec_bound_new(&c->job->problem, &c->arena),
                            .closed_form = c->options->law->closed_form,
                            .arena = &c->arena};
  return b;
}

void hec_compare_bounds_add(hec_compare_bounds *b, const hec_comparison *c) {
  memset(b->known_s, 0, sizeof b->known_s);
  b->rewriting = NULL;
  for (int32_t p = 0; p < c->n_rows; p++) {
    hec_summary_row *row = &c->summary->rows[p];
    const hec_policy_run *run = hec_lowering_run(c->runs[p].low);
    if (c->runs[p].schedule->bound) /* is one itself */
      continue;
    row->bound_class = hec_bound_class_name[hec_bound_class_of(c->runs[p].policy, run->problem)];
    hec_series_add(&row->bound_s, bound_s_of(b, &c->runs[p], c->iteration));
  }
}
