/* See the header. From k to k + 1 one expert's part of the layer changes, so the scan is incremental (layer_model.h,
 * spread_cost.h). Where places are not nested, the layer is made from its plan. */
#include "runtime/plan/planners/weigh.h"

#include "runtime/plan/dispatch/dispatch.h"
#include "runtime/plan/planners/rank_set.h"

#include <string.h>

hec_weigh hec_weigh_new(hec_arena *arena, hec_calibrate *calibrate, hec_fssdp *fssdp) {
  const hec_problem *problem = calibrate->problem;
  hec_weigh weigh = {
      .calibrate = calibrate,
      .fssdp = fssdp,
      .sent = HEC_NEW(arena, const double *, problem->n_experts),
      .rank_s = HEC_NEW(arena, double, 2 * (size_t)problem->n_ranks),
      .gathered = hec_spread_sum_new(arena, calibrate->gather),
  };
  if (calibrate->scatter)
    weigh.returned = hec_spread_sum_new(arena, calibrate->scatter);
  return weigh;
}

static uint32_t mean_of(const hec_weigh_case *of, int32_t expert) {
  return (uint32_t)(of->load[expert] / (uint64_t)of->records);
}

/* One expert's tokens come to a rank (sign 1) or leave it (-1). */
static void add_work(hec_weigh *w, int32_t rank, double tokens, double sign) {
  const hec_layer_model *model = &w->calibrate->model;
  for (int back = 0; back < 2; back++)
    w->rank_s[back * model->problem->n_ranks + rank] += sign * hec_layer_model_expert_s(model, rank, back == 1, tokens);
}

/* Every source sends hec_even_share of the mean, the expert's number as the turn. */
static void set_loads(hec_weigh *w, const hec_weigh_case *of) {
  const hec_problem *p = w->calibrate->problem;
  for (int32_t e = 0; e < p->n_experts; e++)
    w->sent[e] = hec_layer_model_send(&w->calibrate->model, e, mean_of(of, e), e % p->n_ranks);
}

static double over(double seconds, double window_s) {
  return seconds > window_s ? seconds - window_s : 0;
}

static double busiest(const double *rank_s, int32_t n) {
  double max = 0;
  for (int32_t r = 0; r < n; r++)
    max = rank_s[r] > max ? rank_s[r] : max;
  return max;
}

/* T of what model, rank_s, gathered and returned say. */
static double layer_s(const hec_weigh *w) {
  const hec_calibrate *c = w->calibrate;
  int32_t n = c->problem->n_ranks;
  double gather_s = hec_spread_cost(c->gather, &w->gathered);
  hec_layer_end end = {.a2a_s = hec_layer_model_time(&c->model).a2a_s,
                       .forward_s = busiest(w->rank_s, n),
                       .backward_s = busiest(w->rank_s + n, n),
                       .gather_s = over(gather_s, c->window_s)};
  if (c->scatter) {
    end.return_s = hec_spread_cost(c->scatter, &w->returned);
    end.exposed_s = over(end.return_s + (c->rematerialise ? gather_s : 0), 2 * c->window_s);
  }
  return hec_calibrate_end_s(c, &end);
}

static void clear_sums(hec_weigh *w) {
  hec_spread_clear(w->calibrate->gather, &w->gathered);
  if (w->calibrate->scatter)
    hec_spread_clear(w->calibrate->scatter, &w->returned);
}

/* The layer without copies. */
static void begin(hec_weigh *w, hec_plan *plan, const hec_weigh_case *of) {
  hec_calibrate *c = w->calibrate;
  const hec_problem *p = c->problem;
  hec_plan_clear_copies(plan, of->layer);
  hec_layer_model_place(&c->model, plan, of->layer, c->holders);
  clear_sums(w);
  memset(w->rank_s, 0, 2 * (size_t)p->n_ranks * sizeof *w->rank_s);
  for (int32_t e = 0; e < p->n_experts; e++)
    add_work(w, hec_plan_home(plan, of->layer, e), mean_of(of, e), 1);
}

/* One more expert on every rank. */
static void copy_everywhere(hec_weigh *w, const hec_plan *plan, const hec_weigh_case *of, int32_t expert) {
  hec_calibrate *c = w->calibrate;
  const hec_problem *p = c->problem;
  int32_t home = hec_plan_home(plan, of->layer, expert);
  hec_layer_model_replace(&c->model, expert, NULL);
  add_work(w, home, mean_of(of, expert), -1);
  for (int32_t r = 0; r < p->n_ranks; r++)
    add_work(w, r, w->sent[expert][r], 1);
  hec_spread_add(c->gather, &w->gathered, &c->gather->everywhere[home]);
  if (c->scatter)
    hec_spread_add(c->scatter, &w->returned, &c->scatter->everywhere[home]);
}

/* T of the layer's copies as they stand, from nothing. */
static double plan_s(hec_weigh *w, const hec_plan *plan, const hec_weigh_case *of) {
  hec_calibrate *c = w->calibrate;
  hec_layer_model_place(&c->model, plan, of->layer, c->holders);
  clear_sums(w);
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_copies held = hec_plan_copies(plan, of->layer, e);
    int32_t home = hec_plan_home(plan, of->layer, e);
    if (held.n == 0)
      continue;
    memset(c->guests, 0, (size_t)c->n_words * sizeof *c->guests);
    for (int32_t i = 0; i < held.n; i++)
      hec_rank_set_add(c->guests, held.rank[i]);
    hec_spread_pattern pattern = hec_spread_item(c->gather, home, c->guests);
    hec_spread_add(c->gather, &w->gathered, &pattern);
    if (!c->scatter)
      continue;
    pattern = hec_spread_item(c->scatter, home, c->guests);
    hec_spread_add(c->scatter, &w->returned, &pattern);
  }
  memset(w->rank_s, 0, 2 * (size_t)plan->n_ranks * sizeof *w->rank_s);
  double work_s[2];
  hec_layer_model_work_s(&c->model, work_s);
  for (int back = 0; back < 2; back++)
    w->rank_s[back * plan->n_ranks] = work_s[back];
  return layer_s(w);
}

int32_t hec_weigh_layer(hec_weigh *w, hec_plan *plan, const hec_weigh_case *of, uint64_t *units) {
  hec_calibrate *c = w->calibrate;
  const hec_problem *p = c->problem;
  c->window_s = hec_problem_window_s(p, of->layer);
  int32_t best = 0, nested = of->t < of->m ? of->t : of->m;
  set_loads(w, of);
  begin(w, plan, of);
  double best_s = layer_s(w);
  for (int32_t k = 1; k <= nested; k++) {
    copy_everywhere(w, plan, of, of->order[k - 1]);
    double seconds = layer_s(w);
    best = seconds < best_s ? k : best;
    best_s = seconds < best_s ? seconds : best_s;
  }
  uint64_t whole = (uint64_t)p->n_experts * (uint64_t)(p->n_ranks + c->model.n_cells);
  *units += whole + (uint64_t)nested * (uint64_t)(c->model.n_cells + c->gather->n_stages * c->gather->links->n_padded);
  for (int32_t k = of->t; k > of->m && of->m > 0; k /= 2) {
    *units += whole + hec_fssdp_materialise(w->fssdp, plan, of->layer, of->load, of->order, k, of->m);
    double seconds = plan_s(w, plan, of);
    best = seconds < best_s ? k : best;
    best_s = seconds < best_s ? seconds : best_s;
  }
  *units += hec_fssdp_materialise(w->fssdp, plan, of->layer, of->load, of->order, best, of->m);
  return best;
}
