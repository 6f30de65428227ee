/* See the header. The cells of a layer (source, expert, rank, rows) are folded: those of other nodes count for the proxy of
 * their source there. Of a source, tokens by node are the union of its cells' spans (token_sets.h). Prices: closed-form
 * exchanges, all passes of the layer, and the busiest rank's copies.
 *
 *   plain     2 exchanges of assignments between any ranks; permute and unpermute of the source's assignments
 *   by node   rows with weights and rows alone between nodes, 2 exchanges inside nodes; permute and unpermute of the proxy's
 *             assignments; rows out and back copied once more each
 * twice in training. */
#include "runtime/program/nodes.h"

#include "runtime/base/arena.h"
#include "runtime/plan/token_sets.h"
#include "runtime/program/lowering_state.h"

#include <string.h>

enum { ROWS, WEIGHTED, WEIGHT_BYTES = 4 };

int32_t hec_proxy_of(const hec_problem *p, int32_t source, int32_t node) {
  int32_t first = node * p->cluster->devices_per_node, n = hec_problem_node_end(p, node) - first;
  return hec_problem_node(p, source) == node ? source : first + source % p->cluster->devices_per_node % n;
}

struct hec_nodes {
  int32_t *first, *order;  /* [n_experts] */
  hec_token_span *spans;   /* [2 * n_experts * n_ranks] of a source */
  int32_t *cell_at;        /* [n_ranks * n_experts + 1] among the layer's cells */
  uint32_t *tokens, *rows; /* [n_ranks * n_nodes] of a source on a node: tokens, assignments */
  uint32_t *pair;          /* [n_ranks * n_ranks] assignments that a proxy sends to a rank */
  uint32_t *here;          /* [devices of a node] zero between uses */
  int64_t *sent, *arrived; /* [n_ranks] zero between uses */
  hec_transfer *leg[2];    /* [n_ranks * n_nodes] */
  int32_t n_leg[2];
  hec_transfer *transfers; /* [n_ranks * n_ranks] scratch */
};

hec_nodes *hec_nodes_new(const hec_problem *p, hec_arena *arena) {
  if (p->n_nodes == 1 || p->esp > 1)
    return NULL;
  size_t ranks = (size_t)p->n_ranks, experts = (size_t)p->n_experts, nodes = (size_t)p->n_nodes;
  hec_nodes *n = HEC_NEW(arena, hec_nodes, 1);
  *n = (hec_nodes){.first = HEC_NEW(arena, int32_t, experts),
                   .order = HEC_NEW(arena, int32_t, experts),
                   .spans = HEC_NEW(arena, hec_token_span, 2 * experts * ranks),
                   .cell_at = HEC_NEW(arena, int32_t, ranks * experts + 1),
                   .tokens = HEC_NEW(arena, uint32_t, ranks * nodes),
                   .rows = HEC_NEW(arena, uint32_t, ranks * nodes),
                   .pair = HEC_NEW(arena, uint32_t, ranks * ranks),
                   .here = HEC_NEW(arena, uint32_t, p->cluster->devices_per_node),
                   .sent = HEC_NEW(arena, int64_t, ranks),
                   .arrived = HEC_NEW(arena, int64_t, ranks),
                   .transfers = HEC_NEW(arena, hec_transfer, ranks * ranks)};
  for (int leg = ROWS; leg <= WEIGHTED; leg++)
    n->leg[leg] = HEC_NEW(arena, hec_transfer, ranks * nodes);
  return n;
}

/* ---- What crosses ---- */

/* Where the cells of each (source, expert) begin. */
static void index_cells(const hec_problem *p, hec_nodes *nodes, const hec_cell *cells, int32_t n) {
  int32_t rows = p->n_ranks * p->n_experts, i = 0;
  for (int32_t row = 0; row <= rows; row++) {
    while (i < n && cells[i].source * p->n_experts + cells[i].expert < row)
      i++;
    nodes->cell_at[row] = i;
  }
}

/* Tokens and assignments of the source on the other nodes. */
static void count_source(const hec_lowering *low, hec_nodes *nodes, const hec_cell *cells, int32_t layer, int32_t s) {
  const hec_problem *p = low->problem;
  const hec_token_row row = {hec_load_row(low->load, layer, s), p->n_experts, p->tokens, layer, s};
  uint32_t *rows = nodes->rows + (size_t)s * (size_t)p->n_nodes;
  int32_t n = 0, own = hec_problem_node(p, s);
  hec_token_sets(&row, nodes->first, nodes->order);
  memset(rows, 0, (size_t)p->n_nodes * sizeof *rows);
  for (int32_t e = 0; e < p->n_experts; e++) {
    const int32_t *at = nodes->cell_at + s * p->n_experts + e;
    int64_t token = nodes->first[e];
    for (int32_t i = at[0]; i < at[1]; token += cells[i++].rows) {
      int32_t node = hec_problem_node(p, cells[i].rank);
      if (node == own)
        continue;
      nodes->spans[n++] = (hec_token_span){node, (int32_t)(token % p->tokens), cells[i].rows};
      rows[node] += (uint32_t)cells[i].rows;
    }
  }
  hec_tokens_by_node(nodes->spans, n, p->tokens, nodes->tokens + (size_t)s * (size_t)p->n_nodes, p->n_nodes);
}

static void make_legs(const hec_problem *p, hec_nodes *nodes) {
  int64_t token = (int64_t)p->bytes.token;
  nodes->n_leg[ROWS] = nodes->n_leg[WEIGHTED] = 0;
  for (int32_t s = 0; s < p->n_ranks; s++)
    for (int32_t v = 0; v < p->n_nodes; v++) {
      size_t at = (size_t)s * (size_t)p->n_nodes + (size_t)v;
      hec_transfer t = {.bytes = nodes->tokens[at] * token,
                        .source = s,
                        .destination = hec_proxy_of(p, s, v),
                        .item = -1,
                        .after = -1};
      if (nodes->tokens[at] == 0)
        continue;
      nodes->leg[ROWS][nodes->n_leg[ROWS]++] = t;
      t.bytes += (int64_t)nodes->rows[at] * WEIGHT_BYTES;
      nodes->leg[WEIGHTED][nodes->n_leg[WEIGHTED]++] = t;
    }
}

/* What each proxy sends inside its node, in nodes->pair. */
static void add_pairs(const hec_problem *p, hec_nodes *nodes, const hec_layer_cells *of) {
  memset(nodes->pair, 0, (size_t)p->n_ranks * (size_t)p->n_ranks * sizeof *nodes->pair);
  for (const hec_cell *cell = of->cells; cell != of->cells + of->n; cell++) {
    int32_t q = hec_proxy_of(p, cell->source, hec_problem_node(p, cell->rank));
    nodes->pair[(size_t)q * (size_t)p->n_ranks + (size_t)cell->rank] += (uint32_t)cell->rows;
  }
}

/* Calls for every source that proxy q acts for, itself among them, ascending: *s, -1 before the first. */
static bool next_source(const hec_problem *p, int32_t q, int32_t *s) {
  int32_t node = hec_problem_node(p, q);
  while (++*s < p->n_ranks)
    if (hec_proxy_of(p, *s, node) == q)
      return true;
  return false;
}

/* The folded cells of one proxy and expert, by rank, behind the program's. */
static void fold_expert(hec_lowering *low, hec_nodes *nodes, const hec_layer_cells *of, int32_t q, int32_t expert,
                        const int32_t *sources, int32_t n_sources) {
  const hec_problem *p = low->problem;
  hec_program *program = &low->in->program;
  int32_t first = hec_problem_node(p, q) * p->cluster->devices_per_node;
  int32_t end = hec_problem_node_end(p, hec_problem_node(p, q));
  for (int32_t k = 0; k < n_sources; k++) {
    const int32_t *at = nodes->cell_at + sources[k] * p->n_experts + expert;
    for (const hec_cell *cell = of->cells + at[0]; cell != of->cells + at[1]; cell++)
      if (cell->rank >= first && cell->rank < end)
        nodes->here[cell->rank - first] += (uint32_t)cell->rows;
  }
  HEC_RESERVE(program->cells, program->cells_capacity, program->n_cells + (size_t)(end - first));
  for (int32_t r = first; r < end; r++) {
    uint32_t *rows = &nodes->here[r - first];
    if (*rows > 0)
      program->cells[program->n_cells++] = (hec_cell){q, r, expert, (int32_t)*rows};
    *rows = 0;
  }
}

/* The layer's cells in the program: those of the sources, then those of the proxies. */
static void fold(hec_lowering *low, hec_nodes *nodes, int32_t layer, hec_layer_nodes *into) {
  const hec_problem *p = low->problem;
  struct hec_layer_inside *in = low->layer[layer].in;
  hec_add_cells(low, layer);
  into->cell_at = in->cell_at;
  into->n_cells = in->n_cells;
  in->cell_at = (int32_t)low->in->program.n_cells;
  for (int32_t q = 0; q < p->n_ranks; q++) {
    int32_t *sources = low->in->holders, n = 0;
    for (int32_t s = -1; next_source(p, q, &s);)
      sources[n++] = s;
    for (int32_t e = 0; e < p->n_experts; e++)
      fold_expert(low, nodes, hec_layer_cells_of(low, layer), q, e, sources, n);
  }
  in->n_cells = (int32_t)low->in->program.n_cells - in->cell_at;
}

/* ---- Prices ---- */

/* Seconds of an exchange there and back. */
static double exchange_s(hec_lowering *low, const hec_transfer *transfers, int32_t n) {
  double s = 0;
  for (int back = 0; n > 0 && back < 2; back++)
    s += hec_link_cost_exchange(&low->in->shared->run.link, transfers, n, back == 1, 1);
  return s;
}

/* Seconds of all exchanges of assignments, and permuting them, in one direction of the layer. */
static double rows_s(hec_lowering *low, hec_nodes *nodes, const uint32_t *pair) {
  const hec_problem *p = low->problem;
  int64_t token = (int64_t)p->bytes.token;
  double max_s = 0;
  int32_t n = 0;
  for (int32_t s = 0; s < p->n_ranks; s++) {
    int64_t sum = 0;
    for (int32_t d = 0; d < p->n_ranks; d++) {
      int64_t rows = pair[(size_t)s * (size_t)p->n_ranks + (size_t)d];
      sum += rows;
      if (rows > 0 && d != s)
        nodes->transfers[n++] = (hec_transfer){rows * token, s, d, -1, -1};
    }
    const hec_device *device = &p->cluster->devices[s];
    double bytes = 2 * (double)(sum * token);
    double copies_s =
        hec_local_s(device, HEC_CURVE_PERMUTE, false, bytes) + hec_local_s(device, HEC_CURVE_UNPERMUTE, false, bytes);
    max_s = copies_s > max_s ? copies_s : max_s;
  }
  return exchange_s(low, nodes->transfers, n) + max_s;
}

/* Of the exchanges between nodes in one direction, with their copies at the sources. */
static double legs_s(hec_lowering *low, hec_nodes *nodes) {
  const hec_problem *p = low->problem;
  double s = 0, max_s = 0;
  for (int leg = ROWS; leg <= WEIGHTED; leg++)
    s += exchange_s(low, nodes->leg[leg], nodes->n_leg[leg]) / 2;
  for (int32_t i = 0; i < nodes->n_leg[WEIGHTED]; i++)
    nodes->sent[nodes->leg[WEIGHTED][i].source] += nodes->leg[WEIGHTED][i].bytes + nodes->leg[ROWS][i].bytes;
  for (int32_t r = 0; r < p->n_ranks; r++) {
    const hec_device *device = &p->cluster->devices[r];
    double copies_s = 2 * hec_local_s(device, HEC_CURVE_PERMUTE, false, (double)nodes->sent[r]);
    max_s = copies_s > max_s ? copies_s : max_s;
    nodes->sent[r] = 0;
  }
  return s + max_s;
}

/* ---- Into the program ---- */

static hec_node_leg add_leg(hec_lowering *low, hec_nodes *nodes, int which) {
  hec_program *program = &low->in->program;
  int32_t n_ranks = low->problem->n_ranks, n = nodes->n_leg[which];
  hec_node_leg leg = {.span = {.transfer_at = (int32_t)program->n_transfers, .n_transfers = n, .part_at = -1},
                      .sent_at = hec_program_local_bytes(program, 2 * n_ranks)};
  leg.arrived_at = leg.sent_at + n_ranks;
  HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + (size_t)n);
  for (int32_t i = 0; i < n; i++) {
    const hec_transfer *t = &nodes->leg[which][i];
    program->transfers[program->n_transfers++] = *t;
    program->local_bytes[leg.sent_at + t->source] += (double)t->bytes;
    program->local_bytes[leg.arrived_at + t->destination] += (double)t->bytes;
  }
  return leg;
}

static void take(hec_lowering *low, hec_nodes *nodes, hec_layer_nodes *of) {
  const hec_problem *p = low->problem;
  size_t n_pairs = (size_t)p->n_ranks * (size_t)p->n_ranks;
  of->on = true;
  of->leg[ROWS] = add_leg(low, nodes, ROWS);
  of->leg[WEIGHTED] = add_leg(low, nodes, WEIGHTED);
  of->weights_at = hec_program_local_bytes(&low->in->program, p->n_ranks);
  for (size_t i = 0; i < n_pairs; i++)
    low->in->program.local_bytes[of->weights_at + (int32_t)(i / (size_t)p->n_ranks)] +=
        2.0 * WEIGHT_BYTES * nodes->pair[i];
  low->in->routing.pair = nodes->pair;
}

bool hec_nodes_choose(hec_lowering *low, hec_nodes *nodes, int32_t layer, double gain_s) {
  const hec_problem *p = low->problem;
  hec_layer_nodes of = {.on = false};
  if (nodes && low->in->gated)
    low->in->own_note = "tokens travelled once per expert, not once per node: gates say too late which share nodes";
  if (!nodes || low->in->gated || low->in->dispatched)
    return false;
  HEC_ASSERT(low->layer[layer].degree == 1);
  const hec_layer_cells *cells = hec_layer_cells_of(low, layer);
  index_cells(p, nodes, cells->cells, (int32_t)cells->n);
  for (int32_t s = 0; s < p->n_ranks; s++)
    count_source(low, nodes, cells->cells, layer, s);
  make_legs(p, nodes);
  add_pairs(p, nodes, cells);
  if (nodes->n_leg[ROWS] > 0 &&
      legs_s(low, nodes) + rows_s(low, nodes, nodes->pair) < rows_s(low, nodes, low->in->routing.pair) - gain_s) {
    take(low, nodes, &of);
    if (low->in->detail)
      fold(low, nodes, layer, &of);
    low->in->own_note = "tokens went once per node where that is faster; which share nodes is inferred from counts, as "
                        "if chosen independently";
  }
  low->layer[layer].in->nodes = of;
  return of.on;
}

/* ---- Operations ---- */

static void open_leg(hec_lowering *low, int32_t layer, hec_tensor tensor, int32_t first, int32_t at) {
  hec_open_buffer(low, layer, tensor,
                  (hec_hold){.memory = HEC_MEMORY_BUFFER, .first = first, .bytes_at = at, .bytes = 1});
}

static int32_t emit_copies(hec_lowering *low, int32_t layer, hec_role role, bool backward, const int32_t *deps,
                           int32_t n_deps) {
  hec_layer_nodes *of = &low->layer[layer].in->nodes;
  hec_op op = hec_op_of(low, HEC_OP_LOCAL, HEC_LANE_COMPUTE, role, layer, backward);
  op.local.bytes_at = of->leg[role == HEC_ROLE_NODE_PERMUTE].sent_at;
  op.bytes = 2;
  op.by_node = true;
  op.cell_at = of->cell_at;
  op.n_cells = of->n_cells;
  return hec_program_add(&low->in->program, op, deps, n_deps);
}

static int32_t emit_leg(hec_lowering *low, int32_t layer, hec_role role, bool backward, const int32_t *deps,
                        int32_t n_deps) {
  hec_node_leg *leg = &low->layer[layer].in->nodes.leg[role == HEC_ROLE_NODE_DISPATCH];
  hec_op op = hec_op_of(low, HEC_OP_EXCHANGE, HEC_LANE_TOKEN, role, layer, backward);
  op.reverse = (role == HEC_ROLE_NODE_DISPATCH) == backward;
  op.by_node = true;
  return hec_emit_span(low, op, &leg->span, deps, n_deps);
}

int32_t hec_emit_node_out(hec_lowering *low, int32_t layer, bool backward, const int32_t *deps, int32_t n_deps,
                          int32_t *wait) {
  const hec_node_leg *leg = &low->layer[layer].in->nodes.leg[backward ? ROWS : WEIGHTED];
  HEC_ASSERT(n_deps + 2 <= HEC_NODE_WAITS);
  int32_t copied =
      emit_copies(low, layer, backward ? HEC_ROLE_NODE_UNPERMUTE : HEC_ROLE_NODE_PERMUTE, backward, deps, n_deps);
  int32_t sent =
      emit_leg(low, layer, backward ? HEC_ROLE_NODE_COMBINE : HEC_ROLE_NODE_DISPATCH, backward, HEC_DEPS(copied));
  open_leg(low, layer, HEC_TENSOR_NODE_SEND, copied, leg->sent_at);
  hec_close_buffer(low, layer, HEC_TENSOR_NODE_SEND, sent);
  open_leg(low, layer, HEC_TENSOR_NODE_ARRIVED, sent, leg->arrived_at);
  for (int32_t i = 0; i < n_deps; i++)
    wait[i] = deps[i];
  wait[n_deps] = copied; /* a rank without part in the exchange */
  wait[n_deps + 1] = sent;
  return n_deps + 2;
}

void hec_node_out_read(hec_lowering *low, int32_t layer, bool backward, int32_t id) {
  hec_close_buffer(low, layer, HEC_TENSOR_NODE_ARRIVED, id);
  if (backward)
    return;
  hec_memory memory = low->problem->train ? HEC_MEMORY_ACTIVATION : HEC_MEMORY_BUFFER;
  hec_open_buffer(
      low, layer, HEC_TENSOR_NODE_WEIGHTS,
      (hec_hold){.memory = memory, .first = id, .bytes_at = low->layer[layer].in->nodes.weights_at, .bytes = 1});
}

int32_t hec_emit_node_home(hec_lowering *low, int32_t layer, bool backward, int32_t id) {
  const hec_node_leg *leg = &low->layer[layer].in->nodes.leg[backward ? WEIGHTED : ROWS];
  if (backward || !low->problem->train)
    hec_close_buffer(low, layer, HEC_TENSOR_NODE_WEIGHTS, id);
  int32_t sent =
      emit_leg(low, layer, backward ? HEC_ROLE_NODE_DISPATCH : HEC_ROLE_NODE_COMBINE, backward, HEC_DEPS(id));
  open_leg(low, layer, HEC_TENSOR_NODE_PARTIAL, id, leg->arrived_at);
  hec_close_buffer(low, layer, HEC_TENSOR_NODE_PARTIAL, sent);
  int32_t added =
      emit_copies(low, layer, backward ? HEC_ROLE_NODE_PERMUTE : HEC_ROLE_NODE_UNPERMUTE, backward, HEC_DEPS(id, sent));
  open_leg(low, layer, HEC_TENSOR_NODE_RETURNED, sent, leg->sent_at);
  hec_close_buffer(low, layer, HEC_TENSOR_NODE_RETURNED, added);
  return added;
}
