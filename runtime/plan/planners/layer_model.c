/* See the header for the formulas. The maxima are taken in four interleaved runs, so that none waits for the one before. A
 * maximum does not depend on the order. */
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

/* The runs to rank d by link, then source; to NULL: only counted. `at` is scratch [n_links + 1], `last` [n_links]. */
static int32_t runs_to(const hec_rank_links *links, int32_t d, hec_layer_run *to, int32_t *at, int32_t *last) {
  int32_t n_links = links->n_links;
  memset(at, 0, (size_t)(n_links + 1) * sizeof *at);
  for (int pass = 0; pass < (to ? 2 : 1); pass++) { /* counted, then placed */
    for (int32_t l = 0; l < n_links; l++)
      last[l] = -2;
    for (int32_t s = 0; s < links->n_ranks; s++) {
      const int32_t *route;
      int32_t n = hec_rank_links_route(links, s, d, &route);
      for (int32_t i = 0; i < n; i++) {
        int32_t l = route[i];
        if (last[l] != s - 1)
          at[l + 1 - pass]++;
        if (pass == 1 && last[l] != s - 1)
          to[at[l] - 1] = (hec_layer_run){.link = l, .begin = s};
        if (pass == 1)
          to[at[l] - 1].end = s + 1;
        last[l] = s;
      }
    }
    for (int32_t l = 0; pass == 0 && l < n_links; l++)
      at[l + 1] += at[l];
  }
  return at[n_links];
}

static void list_runs(hec_arena *arena, hec_layer_model *model) {
  const hec_rank_links *links = model->links;
  int32_t *at = HEC_NEW(arena, int32_t, links->n_links + 1), *last = HEC_NEW(arena, int32_t, links->n_links + 1);
  model->run_at = HEC_NEW(arena, int32_t, links->n_ranks + 1);
  for (int32_t d = 0; d < links->n_ranks; d++)
    model->run_at[d + 1] = model->run_at[d] + runs_to(links, d, NULL, at, last);
  model->run = HEC_NEW(arena, hec_layer_run, model->run_at[links->n_ranks] + 1);
  for (int32_t d = 0; d < links->n_ranks; d++)
    (void)runs_to(links, d, model->run + model->run_at[d], at, last);
}

/* Of the routes from s (`from`) or to s, inside the node or away from it, how many links all begin or end with. A tail
 * leaves the heads of its sources. */
static hec_layer_way way_of(const hec_layer_model *model, int32_t s, bool away, bool from) {
  const hec_problem *p = model->problem;
  hec_layer_way way = {NULL, 0};
  for (int32_t r = 0; r < p->n_ranks; r++) {
    const int32_t *route;
    int32_t n = hec_rank_links_route(model->links, from ? s : r, from ? r : s, &route), same = 0;
    if (r == s || (hec_problem_node(p, r) != hec_problem_node(p, s)) != away)
      continue;
    int32_t max = from ? n : n - model->head[(away ? p->n_ranks : 0) + r].n;
    const int32_t *end = way.link ? way.link + way.n : NULL; /* C17 6.5.6: no 0 is added to NULL */
    while (way.link && same < way.n && same < max &&
           (from ? way.link[same] == route[same] : end[-1 - same] == route[n - 1 - same]))
      same++;
    way.n = way.link ? same : max;
    way.link = from ? route : route + n - way.n;
  }
  return way;
}

static void list_ways(hec_arena *arena, hec_layer_model *model) {
  int32_t n = model->problem->n_ranks;
  model->head = HEC_NEW(arena, hec_layer_way, 2 * (size_t)n);
  model->tail = HEC_NEW(arena, hec_layer_way, 2 * (size_t)n);
  for (int32_t i = 0; i < 2 * n; i++)
    model->head[i] = way_of(model, i % n, i >= n, true);
  for (int32_t i = 0; i < 2 * n; i++)
    model->tail[i] = way_of(model, i % n, i >= n, false);
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++) {
      const int32_t *route;
      int32_t length = hec_rank_links_route(model->links, s, d, &route);
      int32_t away = hec_problem_node(model->problem, s) == hec_problem_node(model->problem, d) ? 0 : n;
      model->middles = model->middles || (s != d && length > model->head[away + s].n + model->tail[away + d].n);
    }
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
  model.rest = HEC_NEW(arena, double, model.n_cells);
  model.made = HEC_NEW(arena, bool, problem->n_experts);
  model.only = HEC_NEW(arena, int32_t, problem->n_experts);
  model.total = HEC_NEW(arena, double, problem->n_experts);
  model.to = HEC_NEW(arena, double, (size_t)n_ranks *(size_t)rank_cells);
  model.work = HEC_NEW(arena, double, 2 * (size_t)n_ranks);
  model.part = HEC_NEW(arena, double, (size_t)problem->n_experts *(size_t)model.n_cells);
  model.arrive = HEC_NEW(arena, double, (size_t)problem->n_experts *(size_t)rank_cells);
  model.before = HEC_NEW(arena, double, (size_t)n_ranks + 1);
  model.busiest_run = HEC_NEW(arena, int32_t, n_ranks);
  model.more = HEC_NEW(arena, double, 2 * (size_t)n_ranks + 2);
  list_runs(arena, &model);
  list_ways(arena, &model);
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

/* All assignments are computed on `rank`. */
static void all_to_one(const hec_layer_model *model, int32_t rank, const double *arrive, double *out) {
  int32_t n_ranks = model->problem->n_ranks;
  double *before = model->before;
  for (int32_t s = 0; s < n_ranks; s++)
    before[s + 1] = before[s] + arrive[s];
  const hec_layer_run *end = model->run + model->run_at[rank + 1];
  for (const hec_layer_run *run = model->run + model->run_at[rank]; run < end; run++)
    out[run->link] += before[run->end] - before[run->begin];
  out[model->rank_at + rank] += before[n_ranks];
}

/* The first run to the rank that is of no lower link. */
static int32_t run_of(const hec_layer_model *model, int32_t rank, int32_t link) {
  int32_t low = model->run_at[rank], high = model->run_at[rank + 1];
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (model->run[middle].link < link)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* What an expert that only `home` computes adds to the link whose runs to there begin at `at`. */
static double crossing(const hec_layer_model *model, int32_t home, int32_t link, int32_t at, const double *arrive) {
  double sum = 0;
  for (; at < model->run_at[home + 1] && model->run[at].link == link; at++)
    for (int32_t s = model->run[at].begin; s < model->run[at].end; s++)
      sum += arrive[s];
  return sum;
}

/* The links of a route that are neither in the head of its source nor in the tail of its destination. */
static void cross_middle(const hec_layer_model *model, int32_t away, int32_t source, int32_t rank, double n,
                         double *out) {
  const int32_t *route;
  int32_t length = hec_rank_links_route(model->links, source, rank, &route);
  int32_t ranks = away * model->problem->n_ranks, end = length - model->tail[ranks + rank].n;
  for (int32_t i = model->head[ranks + source].n; i < end; i++)
    out[route[i]] += n;
}

static void cross(const hec_layer_way *way, double n, double *out) {
  for (int32_t i = 0; i < way->n; i++)
    out[way->link[i]] += n;
}

/* Who computes a source's assignments: n holders on its node or, when there are none, all of them. All get `alike`, and
 * holder i the sum of more[0..i] beside it. */
typedef struct {
  const int32_t *holders;
  int32_t n, away; /* away: 1 on other nodes */
  bool any;
  double *more, alike; /* [n + 1] */
} receivers;

/* Evenly, by hec_even_share: the holders `turn`, `turn` + 1, ... (mod n) get one more than the others. */
static inline void send_evenly(const hec_layer_model *model, int32_t source, uint32_t assignments, receivers *to,
                               double *out) {
  uint32_t n = (uint32_t)to->n, share = assignments / n, rest = assignments - share * n;
  uint32_t turn = (uint32_t)source % n, end = turn + rest;
  to->any = true;
  to->alike += share;
  to->more[turn]++;
  to->more[0] += end > n ? 1 : 0;
  to->more[end > n ? end - n : end]--;
  for (uint32_t k = 0; model->middles && k < n; k++)
    cross_middle(model, to->away, source, to->holders[turn + k < n ? turn + k : turn + k - n], share + (k < rest), out);
}

static void arrive_at(const hec_layer_model *model, receivers *at, double *out) {
  if (!at->any)
    return;
  const hec_layer_way *tail = model->tail + (ptrdiff_t)at->away * model->problem->n_ranks;
  double n = at->alike;
  for (int32_t i = 0; i < at->n; i++) {
    n += at->more[i];
    at->more[i] = 0;
    out[model->rank_at + at->holders[i]] += n;
    cross(&tail[at->holders[i]], n, out);
  }
  at->more[at->n] = 0;
}

/* Local-first for the sources of one node: itself, else its node, else anywhere, evenly (dispatch local_first). `near` are
 * the holders on the node. */
static void split_node(const hec_layer_model *model, int32_t node, const double *arrive, receivers *near,
                       receivers *far, double *out) {
  int32_t own = 0, first = node * model->problem->cluster->devices_per_node;
  int32_t end = hec_problem_node_end(model->problem, node);
  receivers *to = near->n > 0 ? near : far;
  const hec_layer_way *head = model->head + (ptrdiff_t)to->away * model->problem->n_ranks;
  for (int32_t s = first; s < end; s++) {
    if (own < near->n && near->holders[own] == s) {
      out[model->rank_at + s] += arrive[s];
      own++;
    } else if (arrive[s] > 0) {
      cross(&head[s], arrive[s], out);
      send_evenly(model, s, (uint32_t)arrive[s], to, out);
    }
  }
}

void hec_layer_model_part(const hec_layer_model *model, int32_t expert, const int32_t *holders, int32_t n,
                          double *out) {
  const double *arrive = arrive_of(model, expert);
  int32_t n_ranks = model->problem->n_ranks;
  memset(out, 0, (size_t)model->n_cells * sizeof *out);
  if (n == 1) {
    all_to_one(model, holders[0], arrive, out);
    return;
  }
  receivers far = {.holders = holders, .n = n, .away = 1, .more = model->more + n_ranks + 1};
  for (int32_t node = 0, end = 0; node < model->problem->n_nodes; node++) {
    receivers near = {.holders = holders + end, .more = model->more};
    while (end < n && holders[end] < hec_problem_node_end(model->problem, node))
      end++;
    near.n = (int32_t)(holders + end - near.holders);
    split_node(model, node, arrive, &near, &far, out);
    arrive_at(model, &near, out);
  }
  arrive_at(model, &far, out);
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

/* A cache line of sources at a time, `n` of them. Sums are of whole numbers: no addition waits for the one before. */
enum { BLOCK = 8 };
static inline void transpose(hec_layer_model *model, const uint32_t *counts, size_t first, size_t n) {
  size_t n_experts = (size_t)model->problem->n_experts, stride = (size_t)(model->n_cells - model->rank_at);
  const uint32_t *row = counts + first * n_experts;
  for (size_t e = 0; e < n_experts; e++) {
    double *arrive = model->arrive + e * stride + first;
    uint64_t sum = 0;
    for (size_t s = 0; s < n; s++) {
      uint32_t count = row[s * n_experts + e];
      arrive[s] = (double)count;
      sum += count;
    }
    model->total[e] += (double)sum;
  }
}

static void read_counts(hec_layer_model *model, const uint32_t *counts) {
  size_t n_ranks = (size_t)model->problem->n_ranks, first = 0;
  memset(model->total, 0, (size_t)model->problem->n_experts * sizeof *model->total);
  for (; first + BLOCK <= n_ranks; first += BLOCK)
    transpose(model, counts, first, BLOCK);
  transpose(model, counts, first, n_ranks - first);
}

const double *hec_layer_model_send(hec_layer_model *model, int32_t expert, uint32_t assignments, int32_t turn) {
  int32_t n = model->problem->n_ranks, rest = (int32_t)(assignments % (uint32_t)n);
  double *arrive = arrive_of(model, expert), share = assignments / (uint32_t)n;
  for (int32_t s = 0; s < n; s++)
    arrive[s] = share;
  for (int32_t s = turn; s < turn + rest; s++)
    arrive[s < n ? s : s - n] = share + 1;
  model->total[expert] = assignments;
  return arrive;
}

static void add_to(double *restrict sum, const double *restrict more, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    sum[i] += more[i];
}

void hec_layer_model_place(hec_layer_model *model, const hec_plan *plan, int32_t layer, int32_t *holders) {
  int32_t n_experts = model->problem->n_experts, n_ranks = model->problem->n_ranks;
  int32_t stride = model->n_cells - model->rank_at;
  HEC_ASSERT(plan->n_slices == 1);
  model->rest_of = -1;
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
    if (n > 1)
      add_to(model->tokens, part, model->n_cells);
    else
      add_to(model->to + (size_t)holders[0] * (size_t)stride, arrive_of(model, e), stride);
  }
  for (int32_t r = 0; r < n_ranks; r++)
    all_to_one(model, r, model->to + (size_t)r * (size_t)stride, model->tokens);
}

void hec_layer_model_set(hec_layer_model *model, const hec_plan *plan, int32_t layer, const uint32_t *counts,
                         int32_t *holders) {
  read_counts(model, counts);
  hec_layer_model_place(model, plan, layer, holders);
}

static double largest4(const double m[4]) {
  double a = m[0] > m[1] ? m[0] : m[1], b = m[2] > m[3] ? m[2] : m[3];
  return a > b ? a : b;
}

/* max over i < n of (tokens + more) * seconds. n is a multiple of 4. */
static double busiest_with(const double *tokens, const double *more, const double *seconds, int32_t n) {
  double m[4] = {0, 0, 0, 0};
  for (int32_t c = 0; c < n; c += 4)
    for (int32_t i = 0; i < 4; i++) {
      double cell_s = (tokens[c + i] + more[c + i]) * seconds[c + i];
      m[i] = m[i] > cell_s ? m[i] : cell_s;
    }
  return largest4(m);
}

/* The same of `tokens` alone. */
static double busiest(const double *tokens, const double *seconds, int32_t n) {
  double m[4] = {0, 0, 0, 0};
  for (int32_t c = 0; c < n; c += 4)
    for (int32_t i = 0; i < 4; i++) {
      double cell_s = tokens[c + i] * seconds[c + i];
      m[i] = m[i] > cell_s ? m[i] : cell_s;
    }
  return largest4(m);
}

hec_layer_time hec_layer_model_time(const hec_layer_model *model) {
  int32_t at = model->rank_at;
  return (hec_layer_time){busiest(model->tokens, model->cell_s, at),
                          busiest(model->tokens + at, model->cell_s + at, model->n_cells - at)};
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
  for (int32_t r = 0; r < model->problem->n_ranks; r++)
    model->busiest_run[r] = run_of(model, r, model->busiest_links[0]);
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* Seconds of a cell without so many of its assignments. */
static double left_s(const hec_layer_model *model, int32_t cell, double without) {
  return (model->tokens[cell] - without) * model->cell_s[cell];
}

/* What the expert adds to the i-th busiest link and rank. That of one rank only needs no part for it. */
static double on_link(const hec_layer_model *model, int32_t expert, int32_t i) {
  int32_t home = model->only[expert], link = model->busiest_links[i];
  if (home < 0)
    return part_of(model, expert)[link];
  int32_t at = i == 0 ? model->busiest_run[home] : run_of(model, home, link);
  return crossing(model, home, link, at, arrive_of(model, expert));
}

static double on_rank(const hec_layer_model *model, int32_t expert, int32_t i) {
  int32_t home = model->only[expert], rank = model->busiest_ranks[i];
  if (home < 0)
    return part_of(model, expert)[rank];
  return rank == model->rank_at + home ? model->total[expert] : 0;
}

/* Cells stand by descending seconds: once one takes less with the expert than another without, so do all behind it. */
hec_layer_time hec_layer_model_min(const hec_layer_model *model, int32_t expert, int32_t n) {
  hec_layer_time min = {0, 0};
  for (int32_t i = 0; i < n && left_s(model, model->busiest_links[i], 0) > min.a2a_s; i++)
    min.a2a_s = larger(min.a2a_s, left_s(model, model->busiest_links[i], on_link(model, expert, i)));
  for (int32_t i = 0; i < n && left_s(model, model->busiest_ranks[i], 0) > min.compute_s; i++)
    min.compute_s = larger(min.compute_s, left_s(model, model->busiest_ranks[i], on_rank(model, expert, i)));
  return min;
}

/* Most experts have one holder, to whom nothing crosses the busiest link. */
int32_t hec_layer_model_movers(const hec_layer_model *model, int32_t *experts) {
  int32_t link = model->busiest_links[0], rank = model->busiest_ranks[0] - model->rank_at, n = 0;
  for (int32_t e = 0; e < model->problem->n_experts; e++) {
    int32_t home = model->only[e];
    bool moves =
        home < 0 || home == rank ||
        (model->busiest_run[home] < model->run_at[home + 1] && model->run[model->busiest_run[home]].link == link);
    experts[n] = e;
    n += moves;
  }
  return n;
}

/* What the cells carry without the expert; kept, since a planner tries an expert in several ways. */
static const double *rest_without(hec_layer_model *model, int32_t expert) {
  const double *now = made_part(model, expert), *tokens = model->tokens;
  double *rest = model->rest;
  for (int32_t c = 0; model->rest_of != expert && c < model->n_cells; c++)
    rest[c] = tokens[c] - now[c];
  model->rest_of = expert;
  return rest;
}

hec_layer_time hec_layer_model_time_with(hec_layer_model *model, int32_t expert, const double *part) {
  const double *rest = rest_without(model, expert), *seconds = model->cell_s;
  int32_t at = model->rank_at, n_ranks = model->n_cells - at;
  if (!part)
    return (hec_layer_time){busiest(rest, seconds, at),
                            busiest_with(rest + at, arrive_of(model, expert), seconds + at, n_ranks)};
  return (hec_layer_time){busiest_with(rest, part, seconds, at),
                          busiest_with(rest + at, part + at, seconds + at, n_ranks)};
}

void hec_layer_model_replace(hec_layer_model *model, int32_t expert, const double *part) {
  double *now = made_part(model, expert);
  model->only[expert] = -1;
  model->rest_of = -1;
  for (int32_t c = 0; c < model->n_cells; c++)
    model->tokens[c] -= now[c];
  if (part)
    memcpy(now, part, (size_t)model->n_cells * sizeof *now);
  else
    set_everywhere(model, expert, now);
  for (int32_t c = 0; c < model->n_cells; c++)
    model->tokens[c] += now[c];
}
