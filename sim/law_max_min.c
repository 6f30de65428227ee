/* Law `max_min`. Every transfer is a fluid flow over its route, from latency after both ends posted. All flows in
 * flight, of whichever exchange, share links max-min fairly (sim/fluid). A rank is done when its own transfers are.
 *
 * Chunked exchanges: the chunks of a transfer run one after the other. Chunk c of a transfer that forwards another
 * starts when chunk c of that one has arrived. Latency is paid by a transfer's first chunk.
 *
 * All-reduce: one ring per NIC of a node, the bytes split evenly. Ring k passes a node's ranks starting after local
 * rank k * ranks / NICs. Every rank sends 2(n-1)/n of its ring's bytes to its successor as one flow. It starts after
 * the latency of the 2(n-1) hops that a piece makes around the ring: 2(n-1) times the mean of its hops. With stride s,
 * s all-reduces run at once, each over every s-th rank. Each has a ring per NIC near its ranks, but at most as many
 * rings as it has ranks in a node. */
#include "runtime/base/arena.h"
#include "runtime/program/duration.h"
#include "sim/law.h"

static void open(hec_engine *engine, hec_exchange *x) {
  (void)engine;
  (void)x;
}

static double chunk_bytes(const hec_exchange *x, const hec_flow *flow) {
  return flow->bytes / x->n_chunks;
}

/* Starts the transfer's next chunk if it may. */
static void advance(hec_engine *engine, hec_exchange *x, int32_t transfer) {
  hec_flow *flow = &x->flow[transfer];
  bool arrived = flow->after < 0 || x->flow[flow->after].chunks_done > flow->chunks_started;
  if (!flow->ready || flow->chunks_started != flow->chunks_done || flow->chunks_started == x->n_chunks || !arrived)
    return;
  int64_t latency = flow->chunks_started > 0
                        ? 0
                        : hec_cluster_latency_ps(hec_engine_problem(engine)->cluster, flow->source, flow->destination);
  flow->chunks_started++;
  hec_engine_start_flow(engine, x, transfer, chunk_bytes(x, flow), hec_engine_now(engine) + latency);
}

static void ready(hec_engine *engine, hec_exchange *x, int32_t transfer) {
  hec_engine_begin(engine, x, x->flow[transfer].source);
  hec_engine_begin(engine, x, x->flow[transfer].destination);
  advance(engine, x, transfer);
}

static void one_less(hec_engine *engine, hec_exchange *x, int32_t rank) {
  if (--x->left[rank] == 0)
    hec_engine_end(engine, x, rank, hec_engine_now(engine));
}

static void allreduce_flow_done(hec_engine *engine, hec_exchange *x) {
  if (--x->left[0] > 0)
    return;
  for (int32_t r = 0; r < hec_engine_program(engine)->n_ranks; r++)
    hec_engine_end(engine, x, r, hec_engine_now(engine));
}

static void flow_done(hec_engine *engine, hec_exchange *x, int32_t transfer) {
  if (x->row->kind == HEC_OP_ALLREDUCE) {
    allreduce_flow_done(engine, x);
    return;
  }
  hec_flow *flow = &x->flow[transfer];
  flow->chunks_done++;
  for (int32_t f = flow->first_follower; f >= 0; f = x->flow[f].next_follower)
    advance(engine, x, f);
  if (flow->chunks_done < x->n_chunks) {
    advance(engine, x, transfer);
    return;
  }
  one_less(engine, x, flow->source);
  one_less(engine, x, flow->destination);
}

/* Ring k of the n_rings of the ranks of one place: first, first + stride ... */
typedef struct {
  int32_t place, stride, k, n_rings;
} ring;

/* Position p of a ring: nodes in order, each node's ranks of that place rotated. */
static int32_t ring_rank(const hec_problem *problem, ring of, int32_t p) {
  int32_t per_node = problem->cluster->devices_per_node / of.stride, node = p / per_node;
  int32_t first = node * problem->cluster->devices_per_node;
  int32_t n = (hec_problem_node_end(problem, node) - first) / of.stride;
  int32_t shift = (int32_t)((int64_t)of.k * n / of.n_rings);
  return first + (p - node * per_node + shift + 1) % n * of.stride + of.place;
}

static int64_t ring_latency_ps(const hec_problem *problem, ring of) {
  int64_t sum = 0, n = problem->n_ranks / of.stride;
  for (int32_t p = 0; p < n; p++)
    sum += hec_cluster_latency_ps(problem->cluster, ring_rank(problem, of, p),
                                  ring_rank(problem, of, (p + 1) % (int32_t)n));
  return 2 * (n - 1) * (sum / n) + 2 * (n - 1) * (sum % n) / n; /* = 2 (n - 1) sum / n, which may not fit */
}

static int32_t n_rings_of(const hec_problem *problem, int32_t stride) {
  const hec_cluster *c = problem->cluster;
  int32_t ranks = c->devices_per_node / stride;
  return problem->n_ranks <= c->devices_per_node ? 1 : ranks < c->nics ? ranks : c->nics;
}

static void allreduce(hec_engine *engine, hec_exchange *x) {
  const hec_problem *problem = hec_engine_problem(engine);
  int32_t stride = x->row->allreduce.stride > 1 ? x->row->allreduce.stride : 1, n = problem->n_ranks / stride;
  int32_t rings = n_rings_of(problem, stride);
  x->n_flows = n * rings * stride;
  x->flow = HEC_NEW(&x->arena, hec_flow, x->n_flows);
  x->left[0] = x->n_flows;
  int32_t halves = x->row->allreduce.half ? 1 : 2;
  double bytes = (double)halves * (n - 1) / n * x->row->bytes / rings;
  for (int32_t r = 0; r < problem->n_ranks; r++)
    hec_engine_begin(engine, x, r);
  int64_t latency = 0;
  for (int32_t i = 0; i < x->n_flows; i++) {
    ring of = {i / n / rings, stride, i / n % rings, rings};
    int32_t p = i % n;
    latency = p == 0 ? ring_latency_ps(problem, of) * halves / 2 : latency;
    hec_flow *flow = &x->flow[i];
    *flow = (hec_flow){
        .source = ring_rank(problem, of, p), .destination = ring_rank(problem, of, (p + 1) % n), .after = -1};
    double share = hec_cluster_share_of(problem->cluster, flow->source, flow->destination, x->row->bytes / n);
    hec_engine_start_flow(engine, x, i, bytes / share, hec_engine_now(engine) + latency);
  }
}

const hec_law hec_law_max_min = {
    .name = "max_min",
    .summary = "exact fluid max-min fairness of every transfer in flight",
    .source = "Bertsekas and Gallager, Data Networks, 6.5.2",
    .limits = "congestion control, incast loss, adaptive routing, NCCL's bounded number of peers",
    .open = open,
    .ready = ready,
    .flow_done = flow_done,
    .allreduce = allreduce,
};
