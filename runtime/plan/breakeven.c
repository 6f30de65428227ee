/* Break-even of a copy (reference policies.md 0.3, golden values there), and the same by the cluster's laws.
 *
 * T is max(launch + tiles, streaming), so T(2q) - T(q) never falls with q: while both stream it is 0. Then only T(2q)
 * rises; then, whenever T(q) gains a tile, T(2q) gains one too. So the first q that pays is found by doubling and
 * halving, O(log q) evaluations. */
#include "runtime/plan/breakeven.h"

#include "models/compute_cost.h"

#define WAY(name, text, pushes, gradient) {#name, text, pushes, gradient},
const hec_breakeven_way hec_breakeven_ways[HEC_N_BREAKEVEN] = {HEC_BREAKEVEN_LIST(WAY)};
#undef WAY

hec_breakeven_path hec_breakeven_path_of(const hec_cluster *cluster, int32_t source, int32_t destination) {
  return (hec_breakeven_path){source, destination, hec_cluster_slowest(cluster, source, destination),
                              (double)hec_cluster_latency_ps(cluster, source, destination) * 1e-12};
}

double hec_breakeven_plain(hec_breakeven way, int32_t dtype_bytes, double flops_s, double bandwidth, double exposed) {
  const hec_breakeven_way *w = &hec_breakeven_ways[way];
  double bytes = (double)(w->pushes * dtype_bytes + w->gradient_bytes); /* per parameter */
  double flops = w->gradient_bytes > 0 ? 6 : 2;
  return exposed * bytes * flops_s / (bandwidth * flops);
}

/* Products of one expert's `rows`, forward and where training is meant backward. */
typedef struct {
  hec_work_rate forward, backward;
  bool train;
} products;

static products products_of(const hec_moe *moe, const hec_device *device, bool train) {
  hec_work_shape forward = hec_work_expert(moe), backward = hec_work_backward_of(moe, forward);
  return (products){hec_work_rate_of(device, &forward), hec_work_rate_of(device, &backward), train};
}

static double products_s(const products *p, double rows) {
  return hec_work_rate_s(&p->forward, rows) + (p->train ? hec_work_rate_s(&p->backward, rows) : 0);
}

static double message_s(const hec_cluster *cluster, const hec_breakeven_path *path, double bytes) {
  double share = hec_cluster_share_of(cluster, path->source, path->destination, bytes);
  return path->latency_s + bytes / (path->bandwidth * share);
}

static bool pays(const products *here, const products *there, double q, double sent_s) {
  double left_s = products_s(here, q), copy_s = products_s(there, q);
  double saved_s = products_s(here, 2 * q) - (left_s > copy_s ? left_s : copy_s);
  return saved_s > 0 && saved_s >= sent_s;
}

int64_t hec_breakeven_by_law(hec_breakeven way, const hec_moe *moe, const hec_cluster *cluster,
                             const hec_breakeven_path *path, double exposed) {
  const hec_breakeven_way *w = &hec_breakeven_ways[way];
  bool train = w->gradient_bytes > 0;
  double params = hec_moe_expert_params(moe);
  double sent_s = w->pushes * message_s(cluster, path, params * moe->dtype_bytes);
  if (train) {
    hec_breakeven_path back = hec_breakeven_path_of(cluster, path->destination, path->source);
    sent_s += message_s(cluster, &back, params * w->gradient_bytes);
  }
  products here = products_of(moe, &cluster->devices[path->source], train);
  products there = products_of(moe, &cluster->devices[path->destination], train);
  int64_t max = INT64_C(1) << 40, high = 1, low = 0; /* low does not pay, high does once found */
  while (high <= max && !pays(&here, &there, (double)high, exposed * sent_s)) {
    low = high;
    high *= 2;
  }
  if (high > max)
    return HEC_BREAKEVEN_NEVER;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (pays(&here, &there, (double)middle, exposed * sent_s))
      high = middle;
    else
      low = middle;
  }
  return high;
}
