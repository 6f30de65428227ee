/* Law `nccl_rounds` is as max_min, with two differences. Only as many transfers of an exchange are in flight at a rank
 * as NCCL has, in NCCL's order (sim/rounds.h). Small ones inside a node are as slow as their protocol. Each pays its
 * latency when its turn comes. How many channels, and what is small: the cluster's p2p.
 *
 * Chunks (p2p.chunk_bytes): in a fluid law they change one thing, that a relay (PXN) has the first before it passes bytes on.
 * That is charged as latency, at the free rate of the ports before the relay: inferred, and too little where these are busy.
 *
 * Exchanges with chains (a transfer forwards another) are not bounded. A batch that waits for a forwarded transfer of
 * a later one would wait for ever, and runtimes issue such steps one by one. All-reduces are as in max_min. */
#include "runtime/plan/problem.h"
#include "sim/law.h"
#include "sim/rounds.h"

typedef struct {
  hec_engine *engine;
  hec_exchange *x;
} context;

static bool chained(const hec_exchange *x) {
  for (int32_t i = 0; i < x->n_flows; i++)
    if (x->flow[i].after >= 0)
      return true;
  return false;
}

/* A transfer's bytes start when both ends have posted and have it in flight. */
static void start(void *of, int32_t transfer) {
  const context *c = of;
  hec_flow *flow = &c->x->flow[transfer];
  flow->chunks_started = 1;
  if (!flow->ready)
    return;
  const hec_cluster *cluster = hec_engine_problem(c->engine)->cluster;
  double bytes = (double)hec_engine_program(c->engine)->transfers[c->x->row->exchange.transfer_at + transfer].bytes;
  int64_t latency = hec_cluster_latency_ps(cluster, flow->source, flow->destination) +
                    hec_cluster_relay_ps(cluster, flow->source, flow->destination, bytes);
  hec_engine_start_flow(c->engine, c->x, transfer, flow->bytes, hec_engine_now(c->engine) + latency);
}

static void open(hec_engine *engine, hec_exchange *x) {
  if (chained(x)) {
    hec_law_max_min.open(engine, x);
    return;
  }
  const hec_cluster *cluster = hec_engine_problem(engine)->cluster;
  const hec_transfer *transfer = hec_engine_program(engine)->transfers + x->row->exchange.transfer_at;
  hec_rounds_pair *pair = HEC_NEW(&x->arena, hec_rounds_pair, x->n_flows);
  for (int32_t i = 0; i < x->n_flows; i++) {
    hec_flow *flow = &x->flow[i];
    bool same_node = flow->source / cluster->devices_per_node == flow->destination / cluster->devices_per_node;
    pair[i] = (hec_rounds_pair){flow->source, flow->destination};
    flow->bytes /= hec_p2p_share(&cluster->p2p, same_node, (double)transfer[i].bytes);
  }
  x->own = hec_rounds_new(&x->arena, hec_engine_program(engine)->n_ranks, cluster->devices_per_node, cluster->p2p,
                          x->n_flows, pair);
  hec_rounds_begin(x->own, start, &(context){engine, x});
}

static void ready(hec_engine *engine, hec_exchange *x, int32_t transfer) {
  if (!x->own) {
    hec_law_max_min.ready(engine, x, transfer);
    return;
  }
  hec_engine_begin(engine, x, x->flow[transfer].source);
  hec_engine_begin(engine, x, x->flow[transfer].destination);
  if (x->flow[transfer].chunks_started > 0)
    start(&(context){engine, x}, transfer);
}

static void one_less(hec_engine *engine, hec_exchange *x, int32_t rank) {
  if (--x->left[rank] == 0)
    hec_engine_end(engine, x, rank, hec_engine_now(engine));
}

static void flow_done(hec_engine *engine, hec_exchange *x, int32_t transfer) {
  if (!x->own) {
    hec_law_max_min.flow_done(engine, x, transfer);
    return;
  }
  one_less(engine, x, x->flow[transfer].source);
  one_less(engine, x, x->flow[transfer].destination);
  hec_rounds_done(x->own, transfer, start, &(context){engine, x});
}

static void allreduce(hec_engine *engine, hec_exchange *x) {
  hec_law_max_min.allreduce(engine, x);
}

const hec_law hec_law_nccl_rounds = {
    .name = "nccl_rounds",
    .summary =
        "max_min with NCCL's bounded number of peers at once, in its round order, and small messages inside a node by "
        "protocol LL (half the rate)",
    .source = "NCCL src/init.cc and src/enqueue.cc (p2p schedule, channels, batches)",
    .limits = "congestion control, incast loss, adaptive routing; chained exchanges are not bounded",
    .open = open,
    .ready = ready,
    .flow_done = flow_done,
    .allreduce = allreduce,
};
