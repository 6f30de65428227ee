/* See the header for the formulas. The maxima are taken in four interleaved runs, which compilers turn into vector code
 * without having to reorder floating point. A maximum does not depend on the order. */
#include "runtime/plan/planners/layer_model.h"

#include "models/compute_cost.h"
#include "runtime/plan/dispatch/dispatch.h"

#include <string.h>

static int32_t padded(int32_t n) {
  return (n + 3) / 4 * 4;
}

static double *part_of(const hec_layer_model *model, int32_t expert) {
  return model->part + (size_t)expert * (size_t)model->n_cells;
}

static double *arrive_of(const hec_layer_model *model, int32_t expert) {
  return model->arrive + (size_t)expert * (size_t)(model->n_cells - model->rank_at);
}

hec_layer_model hec_layer_model_new(hec_arena *arena, const hec_problem *problem, const hec_rank_links *links) {
  int32_t n_ranks = problem->n_ranks, rank_cells = padded(n_ranks);
  hec_layer_model model = {
      .problem = problem,
      .links = links,
      .n_cells = links->n_padded + rank_cells,
      .rank_at = links->n_padded,
      .a2a_weight = problem->train ? 4 : 2,
      .compute_weight = problem->train ? 3 : 1,
  };
  model.cell_s = HEC_NEW(arena, double, model.n_cells);
  model.tokens = HEC_NEW(arena, double, model.n_cells);
  model.part = HEC_NEW(arena, double, (size_t)problem->n_experts *(size_t)model.n_cells);
  model.arrive = HEC_NEW(arena, double, (size_t)problem->n_experts *(size_t)rank_cells);
  for (int32_t l = 0; l < links->n_links; l++)
    model.cell_s[l] = problem->bytes.token / links->token[l];
  model.rate = HEC_NEW(arena, hec_work_rate, 2 * (size_t)n_ranks);
  hec_work_shape backward = hec_work_backward_of(problem->moe, problem->expert);
  for (int32_t r = 0; r < n_ranks; r++) {
    model.rate[r] = hec_work_rate_of(&problem->cluster->devices[r], &problem->expert);
    model.rate[n_ranks + r] = hec_work_rate_of(&problem->cluster->devices[r], &backward);
    const hec_work_rate *rate = &model.rate[r];
    model.cell_s[model.rank_at + r] = rate->flops_per_row / rate->flops_s + rate->bytes_per_row / rate->hbm_bandwidth;
  }
  return model;
}

/* n assignments of `source` are computed on `rank`. */
static inline void add_part(const hec_layer_model *model, int32_t source, int32_t rank, double n, double *out) {
  out[model->rank_at + rank] += n;
  const int32_t *route;
  int32_t length = hec_rank_links_route(model->links, source, rank, &route);
  for (int32_t i = 0; i < length; i++)
    out[route[i]] += n;
}

/* All assignments are computed on `rank`. Sums of what is the same for neighbouring sources, the rank and the last link
 * before it, are kept at hand. */
static void all_to_one(const hec_layer_model *model, int32_t rank, const double *arrive, double *out) {
  int32_t last_link = 0;
  double last = 0, total = 0;
  for (int32_t s = 0; s < model->problem->n_ranks; s++) {
    const int32_t *route;
    int32_t length = hec_rank_links_route(model->links, s, rank, &route);
    total += arrive[s];
    if (length == 0)
      continue;
    for (int32_t i = 0; i < length - 1; i++)
      out[route[i]] += arrive[s];
    if (route[length - 1] != last_link) {
      out[last_link] += last;
      last_link = route[length - 1];
      last = 0;
    }
    last += arrive[s];
  }
  out[last_link] += last;
  out[model->rank_at + rank] += total;
}

/* Holders begin .. end-1 are on the source's node. */
static void node_holders(const hec_layer_model *model, int32_t source, const int32_t *holders, int32_t n,
                         int32_t *begin, int32_t *end) {
  int32_t node = hec_problem_node(model->problem, source);
  int32_t first = node * model->problem->cluster->devices_per_node, last = hec_problem_node_end(model->problem, node);
  for (*begin = 0; *begin < n && holders[*begin] < first;)
    ++*begin;
  for (*end = *begin; *end < n && holders[*end] < last;)
    ++*end;
}

/* Local-first for one source: itself, else its node, else anywhere, evenly (dispatch local_first). */
static void split_source(const hec_layer_model *model, int32_t source, const int32_t *holders, int32_t n,
                         uint32_t assignments, double *out) {
  int32_t begin, end;
  node_holders(model, source, holders, n, &begin, &end);
  for (int32_t j = begin; j < end; j++)
    if (holders[j] == source) {
      out[model->rank_at + source] += (double)assignments;
      return;
    }
  if (begin == end) {
    begin = 0;
    end = n;
  }
  for (int32_t j = begin; j < end; j++) {
    uint32_t share = hec_even_share(assignments, end - begin, j - begin, source);
    if (share > 0)
      add_part(model, source, holders[j], (double)share, out);
  }
}

void hec_layer_model_part(const hec_layer_model *model, int32_t expert, const int32_t *holders, int32_t n,
                          double *out) {
  const double *arrive = arrive_of(model, expert);
  memset(out, 0, (size_t)model->n_cells * sizeof *out);
  if (n == 1) {
    all_to_one(model, holders[0], arrive, out);
    return;
  }
  for (int32_t s = 0; s < model->problem->n_ranks; s++)
    if (arrive[s] > 0)
      split_source(model, s, holders, n, (uint32_t)arrive[s], out);
}

static void set_everywhere(const hec_layer_model *model, int32_t expert, double *out) {
  memset(out, 0, (size_t)model->rank_at * sizeof *out);
  memcpy(out + model->rank_at, arrive_of(model, expert), (size_t)(model->n_cells - model->rank_at) * sizeof *out);
}

void hec_layer_model_set(hec_layer_model *model, const hec_plan *plan, int32_t layer, const uint32_t *counts,
                         int32_t *holders) {
  int32_t n_experts = model->problem->n_experts, n_ranks = model->problem->n_ranks;
  HEC_ASSERT(plan->n_slices == 1);
  int32_t stride = model->n_cells - model->rank_at;
  for (int32_t s = 0; s < n_ranks; s++) {
    const uint32_t *row = counts + (size_t)s * (size_t)n_experts;
    for (int32_t e = 0; e < n_experts; e++)
      model->arrive[e * stride + s] = (double)row[e];
  }
  memset(model->tokens, 0, (size_t)model->n_cells * sizeof *model->tokens);
  for (int32_t e = 0; e < n_experts; e++) {
    double *part = part_of(model, e);
    int32_t n = hec_plan_holders(plan, layer, e, holders);
    if (n == n_ranks)
      set_everywhere(model, e, part);
    else
      hec_layer_model_part(model, e, holders, n, part);
    for (int32_t c = 0; c < model->n_cells; c++)
      model->tokens[c] += part[c];
  }
}

static double largest4(const double m[4]) {
  double a = m[0] > m[1] ? m[0] : m[1], b = m[2] > m[3] ? m[2] : m[3];
  return a > b ? a : b;
}

/* max over i < n of (tokens - without + with) * seconds; `without` and `with` may be NULL. n is a multiple of 4. */
static double busiest(const double *tokens, const double *without, const double *with, const double *seconds,
                      int32_t n) {
  double m[4] = {0, 0, 0, 0};
  for (int32_t c = 0; c < n; c += 4)
    for (int32_t i = 0; i < 4; i++) {
      double left = tokens[c + i] - (without ? without[c + i] : 0) + (with ? with[c + i] : 0);
      double cell_s = left * seconds[c + i];
      m[i] = m[i] > cell_s ? m[i] : cell_s;
    }
  return largest4(m);
}

hec_layer_time hec_layer_model_time(const hec_layer_model *model) {
  int32_t at = model->rank_at;
  return (hec_layer_time){busiest(model->tokens, NULL, NULL, model->cell_s, at),
                          busiest(model->tokens + at, NULL, NULL, model->cell_s + at, model->n_cells - at)};
}

double hec_layer_model_work_s(const hec_layer_model *model, bool backward) {
  double max = 0;
  for (int32_t r = 0; r < model->problem->n_ranks; r++) {
    double sum = 0;
    for (int32_t e = 0; e < model->problem->n_experts; e++) {
      double tokens = part_of(model, e)[model->rank_at + r];
      sum += tokens > 0 ? hec_layer_model_expert_s(model, r, backward, tokens) : 0;
    }
    max = sum > max ? sum : max;
  }
  return max;
}

static int32_t busiest_cell(const hec_layer_model *model, int32_t begin, int32_t end) {
  int32_t best = begin;
  double best_s = model->tokens[begin] * model->cell_s[begin];
  for (int32_t c = begin + 1; c < end; c++) {
    double cell_s = model->tokens[c] * model->cell_s[c];
    best = cell_s > best_s ? c : best;
    best_s = cell_s > best_s ? cell_s : best_s;
  }
  return best;
}

void hec_layer_model_busiest(const hec_layer_model *model, int32_t *link_cell, int32_t *rank_cell) {
  *link_cell = busiest_cell(model, 0, model->rank_at);
  *rank_cell = busiest_cell(model, model->rank_at, model->n_cells);
}

hec_layer_time hec_layer_model_min(const hec_layer_model *model, int32_t expert, int32_t link_cell, int32_t rank_cell) {
  const double *now = part_of(model, expert);
  return (hec_layer_time){(model->tokens[link_cell] - now[link_cell]) * model->cell_s[link_cell],
                          (model->tokens[rank_cell] - now[rank_cell]) * model->cell_s[rank_cell]};
}

hec_layer_time hec_layer_model_time_with(const hec_layer_model *model, int32_t expert, const double *part) {
  const double *now = part_of(model, expert), *tokens = model->tokens, *seconds = model->cell_s;
  int32_t at = model->rank_at, rest = model->n_cells - at;
  if (!part)
    return (hec_layer_time){busiest(tokens, now, NULL, seconds, at),
                            busiest(tokens + at, now + at, arrive_of(model, expert), seconds + at, rest)};
  return (hec_layer_time){busiest(tokens, now, part, seconds, at),
                          busiest(tokens + at, now + at, part + at, seconds + at, rest)};
}

void hec_layer_model_replace(hec_layer_model *model, int32_t expert, const double *part) {
  double *now = part_of(model, expert);
  for (int32_t c = 0; c < model->n_cells; c++)
    model->tokens[c] -= now[c];
  if (part)
    memcpy(now, part, (size_t)model->n_cells * sizeof *now);
  else
    set_everywhere(model, expert, now);
  for (int32_t c = 0; c < model->n_cells; c++)
    model->tokens[c] += now[c];
}
