/* A bare set of flows over a network given link by link, read from a JSON case, and what a network law makes of it.
 *
 *   {"hosts": ["a", ...],
 *    "links": [{"id": "up0", "bandwidth": 5e10, "latency": 0}, ...],               bytes/s, seconds (default 0);
 * one-way "routes": [{"src": "a", "dst": "b", "links": ["up0", "down1"]}, ...],         at most one per ordered pair
 *    "flows": [{"src": "a", "dst": "b", "bytes": 1000, "start": 0, "finish": 1e-6}, ...],
 *    "hosts_per_node": 8,                                       consecutive hosts; default: all are one node
 *    "p2p": {"channels": 32, "channels_per_peer": 4, "batch": 8}}                     as in a cluster; the default,
 *                                                               but for ll_bytes: 0 here; nothing here is a relay
 *
 * `start` in seconds, default 0; `finish`, optional, is the answer expected from max_min, kept for comparison. Other
 * members are ignored. Several flows may join one pair. A flow occupies its route from start + sum of the route's
 * latencies and ends when its bytes are sent. A flow without bytes ends there and then.
 *
 * Laws:
 *   max_min     every flow exactly max-min fair on all links of its route (sim/fluid)
 *   nccl_rounds as max_min, but bounded: a flow's turn comes in NCCL's order (sim/rounds.h, by hosts_per_node and p2p)
 *   alpha_beta  all flows are one exchange, priced by the busiest port (DESIGN section 5, models/link_cost.h); h a host:
 *       post(h)  = latest start of the flows h sends; a host that sends nothing holds nobody up
 *       begin(h) = latest post among h and the hosts it exchanges with
 *       done(h)  = begin(h) + max over h's flows (route latency + max over the links on h's side: load / bandwidth)
 *       load(l)  = bytes of all flows over l
 *       finish   = max(done(src), done(dst))
 *     load counts bytes / share where a flow reaches only a share of its links
 *     h's side of a route is what the cluster says (hec_flows_of_matrix). Else it is the half at h's own end: the
 *     first half when h sends, the second when h receives. The middle link of an odd route is on both sides.
 */
#pragma once
#include "models/cluster.h"
#include "models/traffic_matrix.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  int64_t bytes;
  double start, expected_finish; /* seconds; expected_finish < 0: the case names none */
  int32_t source, destination;   /* hosts */
  int32_t route;
} hec_flow;

typedef struct {
  int32_t n_hosts, n_links, n_routes, n_flows;
  int32_t hosts_per_node;
  hec_p2p p2p;
  const char **host_name; /* [n_hosts] */
  const char **link_name; /* [n_links] */
  double *bandwidth;      /* [n_links] bytes/s */
  double *latency;        /* [n_links] seconds */
  int32_t *route_at;      /* [n_routes + 1] into route_link */
  int32_t *route_link;    /* link ids in the order they are crossed */
  double *route_latency;  /* [n_routes] seconds, sum along the route */
  hec_flow *flow;         /* [n_flows] file order */
  uint8_t *route_side;    /* as of hec_cluster, by entry of route_link; NULL: halves */
  double *share;          /* [n_flows] of the bandwidth that a message of that size reaches; NULL: all of it */
  double *relay_s;        /* [n_flows] seconds that relays hold it back (law nccl_rounds); NULL: none */
  int64_t size_bytes;     /* of a traffic matrix: what algbw is of */
  bool of_matrix;
} hec_flows;

/* Memory comes from the arena. Errors are HEC_BAD_INPUT with file, line and path. They are: another form than the
 * above; a name used twice or unknown. A flow to itself or without a route; a pair with two routes. Numbers that are
 * negative or not finite; bytes that are no integer; bandwidth 0. More than 65,536 hosts, 2^20 links, 2^22 routes or
 * flows, or 64 links in a route. No host or no flow. */
hec_status hec_flows_read(const char *path, hec_arena *arena, hec_flows *flows) HEC_MUST_USE;
hec_status hec_flows_parse(const char *text, size_t length, const char *origin, hec_arena *arena,
                           hec_flows *flows) HEC_MUST_USE;

/* The flows of a traffic matrix over the cluster's first ranks, all from time 0 on (start skew does not count). HEC_BAD_INPUT:
 * more ranks than devices. No flows: a matrix whose off-diagonal is zero. */
hec_status hec_flows_of_matrix(const hec_traffic_matrix *matrix, const hec_cluster *cluster, hec_arena *arena,
                               hec_flows *flows) HEC_MUST_USE;

/* finish[f], seconds, by the law of that name; an unknown law: HEC_BAD_INPUT naming those there are. */
hec_status hec_flows_run(const hec_flows *flows, const char *law, double *finish) HEC_MUST_USE;
/* Names of the laws in the order of the table; NULL past the end. */
const char *hec_flows_law_name(int32_t index);

/* The latest finish; 0 without flows. */
double hec_flows_makespan(const hec_flows *flows, const double *finish);
/* {"law","makespan","flows":[{"src","dst","bytes","start","finish"}]}, file order, 17 significant digits; of a matrix also
 * "size_bytes","algbw","busbw" (bytes/s; null without time). */
void hec_flows_write(const hec_flows *flows, const char *law, const double *finish, hec_text *out);
