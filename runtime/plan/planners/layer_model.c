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
  model.made = HEC_NEW(arena, bool, problem->n_experts);
  model.only = HEC_NEW(arena, int32_t, problem->n_experts);
  model.total = HEC_NEW(arena, double, problem->n_experts);
  model.to = HEC_NEW(arena, double, (size_t)n_ranks *(size_t)rank_cells);
  model.work = HEC_NEW(arena, double, 2 * (size_t)n_ranks);
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

/* The assignments of a source go evenly to n holders, by hec_even_share: those of `turn`, `turn` + 1, ... (mod n) have one
 * more. */
static void split_source(const hec_layer_model *model, int32_t source, const int32_t *holders, int32_t n,
                         uint32_t assignments, double *out) {
  uint32_t share = assignments / (uint32_t)n, rest = assignments % (uint32_t)n;
  int32_t turn = source % n;
  for (uint32_t k = 0; k < (share > 0 ? (uint32_t)n : rest); k++) {
    add_part(model, source, holders[turn], (double)(share + (k < rest)), out);
    turn = turn + 1 < n ? turn + 1 : 0;
  }
}

/* Local-first for the sources of one node: itself, else its node, else anywhere, evenly (dispatch local_first). Holders
 * begin .. end-1 are those of the node. */
static void split_node(const hec_layer_model *model, int32_t node, const double *arrive, const int32_t *holders,
                       int32_t n, int32_t begin, int32_t end, double *out) {
  int32_t own = begin, first = node * model->problem->cluster->devices_per_node;
  const int32_t *near = begin < end ? holders + begin : holders;
  int32_t n_near = begin < end ? end - begin : n;
  for (int32_t s = first; s < hec_problem_node_end(model->problem, node); s++) {
    bool holds = own < end && holders[own] == s;
    own += holds;
    if (holds)
      out[model->rank_at + s] += arrive[s];
    else if (arrive[s] > 0)
      split_source(model, s, near, n_near, (uint32_t)arrive[s], out);
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
  for (int32_t node = 0, begin = 0, end = 0; node < model->problem->n_nodes; node++, begin = end) {
    while (end < n && holders[end] < hec_problem_node_end(model->problem, node))
      end++;
    split_node(model, node, arrive, holders, n, begin, end, out);
  }
}

static void set_everywhere(const hec_layer_model *model, int32_t expert, double *out) {
  memset(out, 0, (size_t)model->rank_at * sizeof *out);
  memcpy(out + model->rank_at, arrive_of(model, expert), (size_t)(model->n_cells - model->rank_at) * sizeof *out);
}

/* What the expert adds now; made if it is not yet. */
static double *made_part(const hec_layer_model *model, int32_t expert) {
  double *part = part_of(model, expert);
  if (!model->made[expert])
    hec_layer_model_part(model, expert, &model->only[expert], 1, part);
  model->made[expert] = true;
  return part;
}

/* Transposed, a cache line of sources at a time. */
static void read_counts(hec_layer_model *model, const uint32_t *counts) {
  enum { BLOCK = 8 };
  size_t n_experts = (size_t)model->problem->n_experts, stride = (size_t)(model->n_cells - model->rank_at);
  size_t n_ranks = (size_t)model->problem->n_ranks;
  memset(model->total, 0, n_experts * sizeof *model->total);
  for (size_t first = 0; first < n_ranks; first += BLOCK) {
    size_t end = first + BLOCK < n_ranks ? first + BLOCK : n_ranks;
    for (size_t e = 0; e < n_experts; e++)
      for (size_t s = first; s < end; s++) {
        double count = (double)counts[s * n_experts + e];
        model->arrive[e * stride + s] = count;
        model->total[e] += count;
      }
  }
}

void hec_layer_model_set(hec_layer_model *model, const hec_plan *plan, int32_t layer, const uint32_t *counts,
                         int32_t *holders) {
  int32_t n_experts = model->problem->n_experts, n_ranks = model->problem->n_ranks;
  int32_t stride = model->n_cells - model->rank_at;
  HEC_ASSERT(plan->n_slices == 1);
  read_counts(model, counts);
  memset(model->tokens, 0, (size_t)model->n_cells * sizeof *model->tokens);
  memset(model->to, 0, (size_t)n_ranks * (size_t)stride * sizeof *model->to);
  for (int32_t e = 0; e < n_experts; e++) {
    double *part = part_of(model, e);
    int32_t n = hec_plan_holders(plan, layer, e, holders);
    model->only[e] = n == 1 ? holders[0] : -1;
    model->made[e] = n > 1;
    if (n == n_ranks && n > 1)
      set_everywhere(model, e, part);
    else if (n > 1)
      hec_layer_model_part(model, e, holders, n, part);
    const double *more = n > 1 ? part : arrive_of(model, e);
    double *sum = n > 1 ? model->tokens : model->to + (size_t)holders[0] * (size_t)stride;
    for (int32_t i = 0; i < (n > 1 ? model->n_cells : stride); i++)
      sum[i] += more[i];
  }
  for (int32_t r = 0; r < n_ranks; r++)
    all_to_one(model, r, model->to + (size_t)r * (size_t)stride, model->tokens);
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

static void add_work(const hec_layer_model *model, int32_t rank, double tokens) {
  double *work = model->work + 2 * rank;
  for (int back = 0; tokens > 0 && back < 2; back++)
    work[back] += hec_layer_model_expert_s(model, rank, back == 1, tokens);
}

void hec_layer_model_work_s(const hec_layer_model *model, double work_s[2]) {
  int32_t n_ranks = model->problem->n_ranks;
  memset(model->work, 0, 2 * (size_t)n_ranks * sizeof *model->work);
  for (int32_t e = 0; e < model->problem->n_experts; e++) {
    if (model->only[e] >= 0)
      add_work(model, model->only[e], model->total[e]);
    for (int32_t r = 0; model->only[e] < 0 && r < n_ranks; r++)
      add_work(model, r, part_of(model, e)[model->rank_at + r]);
  }
  work_s[0] = work_s[1] = 0;
  for (int32_t i = 0; i < 2 * n_ranks; i++)
    work_s[i % 2] = model->work[i] > work_s[i % 2] ? model->work[i] : work_s[i % 2];
}

/* The busiest cells of begin .. end-1, busiest first; the last one again where there are fewer. */
static void list_busiest(const hec_layer_model *model, int32_t begin, int32_t end, int32_t *cells) {
  double cell_s[HEC_LAYER_BUSIEST];
  int32_t n = 0;
  for (int32_t c = begin; c < end; c++) {
    double s = model->tokens[c] * model->cell_s[c];
    if (n == HEC_LAYER_BUSIEST && s <= cell_s[n - 1])
      continue;
    int32_t at = n < HEC_LAYER_BUSIEST ? n++ : n - 1;
    for (; at > 0 && cell_s[at - 1] < s; at--) {
      cell_s[at] = cell_s[at - 1];
      cells[at] = cells[at - 1];
    }
    cell_s[at] = s;
    cells[at] = c;
  }
  for (; n < HEC_LAYER_BUSIEST; n++)
    cells[n] = cells[n - 1];
}

void hec_layer_model_busiest(hec_layer_model *model) {
  list_busiest(model, 0, model->rank_at, model->busiest_links);
  list_busiest(model, model->rank_at, model->n_cells, model->busiest_ranks);
}

static double least(const hec_layer_model *model, const double *without, const int32_t *cells, int32_t n) {
  double max = 0;
  for (int32_t i = 0; i < n; i++) {
    double cell_s = (model->tokens[cells[i]] - without[cells[i]]) * model->cell_s[cells[i]];
    max = max > cell_s ? max : cell_s;
  }
  return max;
}

hec_layer_time hec_layer_model_min(const hec_layer_model *model, int32_t expert, int32_t n) {
  const double *now = made_part(model, expert);
  return (hec_layer_time){least(model, now, model->busiest_links, n), least(model, now, model->busiest_ranks, n)};
}

hec_layer_time hec_layer_model_time_with(const hec_layer_model *model, int32_t expert, const double *part) {
  const double *now = made_part(model, expert), *tokens = model->tokens, *seconds = model->cell_s;
  int32_t at = model->rank_at, rest = model->n_cells - at;
  if (!part)
    return (hec_layer_time){busiest(tokens, now, NULL, seconds, at),
                            busiest(tokens + at, now + at, arrive_of(model, expert), seconds + at, rest)};
  return (hec_layer_time){busiest(tokens, now, part, seconds, at),
                          busiest(tokens + at, now + at, part + at, seconds + at, rest)};
}

void hec_layer_model_replace(hec_layer_model *model, int32_t expert, const double *part) {
  double *now = made_part(model, expert);
  model->only[expert] = -1;
  for (int32_t c = 0; c < model->n_cells; c++)
    model->tokens[c] -= now[c];
  if (part)
    memcpy(now, part, (size_t)model->n_cells * sizeof *now);
  else
    set_everywhere(model, expert, now);
  for (int32_t c = 0; c < model->n_cells; c++)
    model->tokens[c] += now[c];
}
