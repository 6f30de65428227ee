/* See the header. */
#include "runtime/program/dispatched.h"

#include "models/training/dispatcher.h"
#include "runtime/plan/rates.h"
#include "runtime/plan/token_sets.h"
#include "runtime/program/lowering_state.h"
#include "runtime/program/nodes.h"

#include <string.h>

struct hec_dispatched {
  int32_t *first, *order;        /* [n_experts] */
  hec_token_span *ranks, *nodes; /* [2 * n_experts * n_ranks] of a source */
  uint32_t *on_rank, *on_node;   /* [n_ranks], [n_nodes] tokens of a source */
  int64_t *pair;                 /* [n_ranks * n_ranks] rows */
  int64_t *copied, *arrived;     /* [n_ranks] copies that a rank makes inside its node; that come to it */
  int64_t *out, *in;             /* [n_ranks] rows that a rank sends to other nodes; that come to it as proxy */
};

hec_dispatched *hec_dispatched_new(const hec_problem *p, hec_arena *arena) {
  if (!p->dispatch.by)
    return NULL;
  HEC_ASSERT(p->esp == 1);
  size_t ranks = (size_t)p->n_ranks, spans = 2 * (size_t)p->n_experts * ranks;
  hec_dispatched *d = HEC_NEW(arena, hec_dispatched, 1);
  *d = (hec_dispatched){.first = HEC_NEW(arena, int32_t, p->n_experts),
                        .order = HEC_NEW(arena, int32_t, p->n_experts),
                        .ranks = HEC_NEW(arena, hec_token_span, spans),
                        .nodes = HEC_NEW(arena, hec_token_span, spans),
                        .on_rank = HEC_NEW(arena, uint32_t, ranks),
                        .on_node = HEC_NEW(arena, uint32_t, p->n_nodes),
                        .pair = HEC_NEW(arena, int64_t, ranks * ranks),
                        .copied = HEC_NEW(arena, int64_t, ranks),
                        .arrived = HEC_NEW(arena, int64_t, ranks),
                        .out = HEC_NEW(arena, int64_t, ranks),
                        .in = HEC_NEW(arena, int64_t, ranks)};
  return d;
}

/* ---- Rows ---- */

static int64_t *pair_of(const hec_lowering *low, int32_t s, int32_t d) {
  return &low->in->dispatched->pair[(size_t)s * (size_t)low->problem->n_ranks + (size_t)d];
}

/* Tokens of s with an assignment on each rank, and on each node. The layer's cells stand by source and expert; *at: the
 * first of s, then of the next source. */
static void count_source(hec_lowering *low, int32_t layer, int32_t s, const hec_cell **at, const hec_cell *end) {
  const hec_problem *p = low->problem;
  hec_dispatched *d = low->in->dispatched;
  const hec_token_row row = {hec_load_row(low->load, layer, s), p->n_experts, p->tokens, layer, s};
  int32_t n = 0, expert = -1;
  int64_t token = 0;
  hec_token_sets(&row, d->first, d->order);
  for (const hec_cell *cell = *at; cell != end && cell->source == s; token += cell->rows, cell++, *at = cell) {
    if (cell->expert != expert) {
      expert = cell->expert;
      token = d->first[expert];
    }
    if (cell->rows == 0)
      continue;
    d->ranks[n] = (hec_token_span){cell->rank, (int32_t)(token % p->tokens), cell->rows};
    d->nodes[n] = d->ranks[n];
    d->nodes[n++].node = hec_problem_node(p, cell->rank);
  }
  hec_tokens_by_node(d->ranks, n, p->tokens, d->on_rank, p->n_ranks);
  hec_tokens_by_node(d->nodes, n, p->tokens, d->on_node, p->n_nodes);
}

/* Of a router that keeps every token on so many nodes, the inferred sets reach too many: all but its own in proportion. */
static void limit_nodes(hec_lowering *low, int32_t s) {
  const hec_problem *p = low->problem;
  uint32_t *on_node = low->in->dispatched->on_node, own = on_node[hec_problem_node(p, s)];
  uint64_t most = (uint64_t)p->moe->token_nodes * (uint64_t)p->tokens, sum = 0;
  for (int32_t v = 0; v < p->n_nodes; v++)
    sum += on_node[v];
  if (p->moe->token_nodes == 0 || sum <= most)
    return;
  for (int32_t v = 0; v < p->n_nodes; v++)
    if (v != hec_problem_node(p, s))
      on_node[v] = (uint32_t)((uint64_t)on_node[v] * (most - own) / (sum - own));
}

/* Of a source whose tokens are counted. */
static void send_once(hec_lowering *low, int32_t s) {
  const hec_problem *p = low->problem;
  hec_dispatched *of = low->in->dispatched;
  limit_nodes(low, s);
  for (int32_t v = 0; v < p->n_nodes; v++) {
    int32_t q = hec_proxy_of(p, s, v);
    if (of->on_node[v] == 0)
      continue;
    if (q != s) {
      *pair_of(low, s, q) += of->on_node[v];
      of->out[s] += of->on_node[v];
      of->in[q] += of->on_node[v];
    }
    for (int32_t d = v * p->cluster->devices_per_node; d < hec_problem_node_end(p, v); d++) {
      if (d != q)
        *pair_of(low, q, d) += of->on_rank[d];
      of->copied[q] += of->on_rank[d];
      of->arrived[d] += of->on_rank[d];
    }
  }
}

static void count_rows(hec_lowering *low, int32_t layer) {
  const hec_problem *p = low->problem;
  hec_dispatched *of = low->in->dispatched;
  size_t n = (size_t)p->n_ranks;
  memset(of->pair, 0, n * n * sizeof *of->pair);
  memset(of->copied, 0, n * sizeof *of->copied);
  memset(of->arrived, 0, n * sizeof *of->arrived);
  memset(of->out, 0, n * sizeof *of->out);
  memset(of->in, 0, n * sizeof *of->in);
  const hec_layer_cells *cells = p->dispatch.by->part_s ? hec_layer_cells_of(low, layer) : NULL;
  const hec_cell *at = cells ? cells->cells : NULL;
  for (int32_t s = 0; s < p->n_ranks; s++) {
    if (cells) {
      count_source(low, layer, s, &at, cells->cells + cells->n);
      send_once(low, s);
    }
    for (int32_t d = 0; d < p->n_ranks && !p->dispatch.by->part_s; d++)
      if (d != s && p->dispatch.by->gathers)
        *pair_of(low, s, d) = s / p->ep == d / p->ep ? p->tokens : 0;
      else if (d != s)
        *pair_of(low, s, d) = low->in->shared->routing.pair[(size_t)s * n + (size_t)d];
  }
}

/* ---- Kernels ---- */

/* Rank r's part with 1 / degree of the layer's tokens; degree 0: with none. */
static double part_s(const hec_lowering *low, int32_t r, int32_t degree, bool back) {
  const hec_problem *p = low->problem;
  const hec_dispatched *of = low->in->dispatched;
  int32_t per_node = p->cluster->devices_per_node, tokens = p->tokens;
  int64_t ranks = of->copied[r] > of->arrived[r] ? of->copied[r] : of->arrived[r];
  int64_t nodes = of->out[r] > of->in[r] ? of->out[r] : of->in[r];
  const hec_dispatch_work work = {.tokens = degree > 0 ? (tokens + degree - 1) / degree : 0,
                                  .bytes = back ? p->bytes.token : p->dispatch.row,
                                  .ranks = (double)ranks / (double)tokens,
                                  .nodes = (double)nodes / (double)tokens,
                                  .ranks_per_node = p->ep < per_node ? p->ep : per_node,
                                  .n_nodes = (p->ep + per_node - 1) / per_node,
                                  .sms = p->dispatch.sms};
  const hec_gpu gpu = hec_dispatch_gpu(p, r);
  return p->dispatch.by->part_s(&gpu, &work, back);
}

static double longest_s(const hec_lowering *low, int32_t degree) {
  double max = 0;
  for (int32_t r = 0; r < low->problem->n_ranks; r++) {
    double s = (part_s(low, r, degree, false) + part_s(low, r, degree, true)) / 2;
    max = s > max ? s : max;
  }
  return max;
}

double hec_dispatched_s(hec_lowering *low, int32_t layer, double *latency_s) {
  count_rows(low, layer);
  *latency_s = longest_s(low, 0);
  return longest_s(low, 1);
}

static void add_seconds(hec_lowering *low, hec_layer_chunk *chunk, int32_t degree) {
  int32_t n = low->problem->n_ranks;
  chunk->seconds_at = hec_program_local_bytes(&low->in->program, 2 * n);
  for (int32_t i = 0; i < 2 * n; i++)
    low->in->program.local_bytes[chunk->seconds_at + i] = part_s(low, i % n, degree, i >= n);
}

/* ---- Into the program ---- */

/* Part c of the rows, each of so many bytes. */
static hec_transfer_span add_span(hec_lowering *low, int32_t c, int32_t degree, double row) {
  hec_program *program = &low->in->program;
  int32_t n = low->problem->n_ranks;
  hec_transfer_span span = {.transfer_at = (int32_t)program->n_transfers, .part_at = -1};
  HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + (size_t)n * (size_t)n);
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++) {
      int64_t all = *pair_of(low, s, d), rows = all * (c + 1) / degree - all * c / degree;
      if (rows > 0)
        program->transfers[program->n_transfers++] = (hec_transfer){
            .bytes = (int64_t)((double)rows * row), .source = s, .destination = d, .item = -1, .after = -1};
    }
  span.n_transfers = (int32_t)program->n_transfers - span.transfer_at;
  return span;
}

void hec_dispatched_add(hec_lowering *low, int32_t layer) {
  const hec_problem *p = low->problem;
  hec_layer_ops *ops = &low->layer[layer];
  HEC_ASSERT(!low->in->detail); /* nobody executes it */
  count_rows(low, layer);
  for (int32_t c = 0; c < ops->degree; c++) {
    hec_layer_chunk *chunk = &ops->in->chunk[c];
    chunk->dispatch = add_span(low, c, ops->degree, p->bytes.token);
    if (p->dispatch.row < p->bytes.token)
      chunk->there = add_span(low, c, ops->degree, p->dispatch.row);
    if (p->dispatch.by->part_s && chunk->dispatch.n_transfers > 0)
      add_seconds(low, chunk, ops->degree);
  }
}
