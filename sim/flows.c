/* Laws over a bare set of flows; reading them is in flows_read.c.
 *
 * max_min, nccl_rounds: flows enter the fluid solver one latency after they may start, or when their turn comes, if
 * that is later. Arrivals stand in a heap by (time, index). The solver's clock starts anew with every busy
 * period, so finish = origin + time in the period. Cost: O(log flows) and the solver's for each start and finish.
 * alpha_beta: three passes over flows and routes (loads; posts and begins; done), O(sum of route lengths). */
#include "sim/flows.h"

#include "runtime/base/heap.h"
#include "runtime/base/table.h"
#include "runtime/base/value.h"
#include "sim/fluid.h"
#include "sim/rounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- max_min, nccl_rounds ---- */

static double load_of(const hec_flows *flows, int32_t f) {
  return flows->share ? (double)flows->flow[f].bytes / flows->share[f] : (double)flows->flow[f].bytes;
}

/* What its protocol makes of the flow's amount: law nccl_rounds. */
static double amount_of(const hec_flows *flows, int32_t f) {
  const hec_flow *flow = &flows->flow[f];
  bool same_node = flow->source / flows->hosts_per_node == flow->destination / flows->hosts_per_node;
  return load_of(flows, f) / hec_p2p_share(&flows->p2p, same_node, (double)flow->bytes);
}

typedef struct {
  const hec_flows *flows;
  const hec_rounds *rounds;
  hec_fluid *fluid;
  double now;
  double *arrival; /* [n_flows] once it may start */
  int32_t *heap;   /* [n_heap] that did not arrive yet, by arrival; room for every flow */
  int32_t n_heap;
} fluid_run;

/* The flow may start now: its bytes come after its start and its latency. */
static void arrive(void *context, int32_t f) {
  fluid_run *run = context;
  const hec_flow *flow = &run->flows->flow[f];
  double start = flow->start > run->now ? flow->start : run->now;
  double relay_s = run->rounds && run->flows->relay_s ? run->flows->relay_s[f] : 0;
  run->arrival[f] = start + run->flows->route_latency[flow->route] + relay_s;
  hec_heap_push(run->heap, run->n_heap++, f, hec_heap_min, run->arrival);
}

static void enter(const fluid_run *run, int32_t f) {
  const hec_flows *flows = run->flows;
  int32_t route = flows->flow[f].route;
  (void)hec_fluid_add(run->fluid, &(hec_fluid_flow){.links = flows->route_link + flows->route_at[route],
                                                    .n_links = flows->route_at[route + 1] - flows->route_at[route],
                                                    .amount = run->rounds ? amount_of(flows, f) : load_of(flows, f),
                                                    .cap = INFINITY,
                                                    .tag = f});
}

/* rounds NULL: every flow may start. */
static void run_fluid(const hec_flows *flows, hec_rounds *rounds, double *finish) {
  fluid_run run = {.flows = flows,
                   .rounds = rounds,
                   .fluid = hec_fluid_new(flows->n_links, flows->bandwidth),
                   .arrival = hec_malloc((size_t)flows->n_flows + 1, sizeof(double)),
                   .heap = hec_malloc((size_t)flows->n_flows + 1, sizeof(int32_t))};
  double origin = 0;
  if (rounds)
    hec_rounds_begin(rounds, arrive, &run);
  for (int32_t f = 0; !rounds && f < flows->n_flows; f++)
    arrive(&run, f);
  while (run.n_heap > 0 || hec_fluid_count(run.fluid) > 0) {
    if (hec_fluid_count(run.fluid) == 0) {
      hec_fluid_rebase(run.fluid);
      origin = run.arrival[run.heap[0]];
    }
    double next = hec_fluid_next(run.fluid), start = run.n_heap > 0 ? run.arrival[run.heap[0]] - origin : INFINITY;
    if (start <= next) {
      double now = hec_fluid_now(run.fluid), time = run.arrival[run.heap[0]];
      hec_fluid_advance(run.fluid, start > now ? start : now);
      while (run.n_heap > 0 && run.arrival[run.heap[0]] == time)
        enter(&run, hec_heap_pop(run.heap, run.n_heap--, hec_heap_min, run.arrival));
      continue;
    }
    hec_fluid_advance(run.fluid, next);
    int32_t n;
    const hec_fluid_done *done = hec_fluid_pop(run.fluid, &n);
    for (int32_t i = 0; i < n; i++) {
      finish[done[i].tag] = run.now = origin + done[i].finish;
      if (rounds)
        hec_rounds_done(rounds, (int32_t)done[i].tag, arrive, &run);
    }
  }
  free(run.arrival);
  free(run.heap);
  hec_fluid_free(run.fluid);
}

static void run_max_min(const hec_flows *flows, double *finish) {
  run_fluid(flows, NULL, finish);
}

static void run_nccl_rounds(const hec_flows *flows, double *finish) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_rounds_pair *pair = HEC_NEW(&arena, hec_rounds_pair, flows->n_flows);
  for (int32_t f = 0; f < flows->n_flows; f++)
    pair[f] = (hec_rounds_pair){flows->flow[f].source, flows->flow[f].destination};
  hec_rounds *rounds = hec_rounds_new(&arena, flows->n_hosts, flows->hosts_per_node, flows->p2p, flows->n_flows, pair);
  run_fluid(flows, rounds, finish);
}

/* ---- alpha_beta ---- */

static double later(double a, double b) {
  return a > b ? a : b;
}

/* Slowest link, in seconds, of the route's entries on one side: 1 the source's, 2 the destination's. */
static double slowest(const hec_flows *flows, const double *load, int32_t route, int side) {
  int32_t first = flows->route_at[route], end = flows->route_at[route + 1], half = (end - first) / 2;
  double seconds = 0;
  for (int32_t i = first; i < end; i++)
    if (flows->route_side ? flows->route_side[i] & side : side == 1 ? i < end - half : i >= first + half)
      seconds = later(seconds, load[flows->route_link[i]] / flows->bandwidth[flows->route_link[i]]);
  return seconds;
}

static void add_loads(const hec_flows *flows, double *load) {
  for (int32_t f = 0; f < flows->n_flows; f++)
    for (int32_t i = flows->route_at[flows->flow[f].route]; i < flows->route_at[flows->flow[f].route + 1]; i++)
      load[flows->route_link[i]] += load_of(flows, f);
}

/* begin[h]: the latest post among h and its partners; post is scratch. */
static void find_begins(const hec_flows *flows, double *post, double *begin) {
  for (int32_t f = 0; f < flows->n_flows; f++)
    post[flows->flow[f].source] = later(post[flows->flow[f].source], flows->flow[f].start);
  memcpy(begin, post, (size_t)flows->n_hosts * sizeof *begin);
  for (int32_t f = 0; f < flows->n_flows; f++) {
    int32_t s = flows->flow[f].source, d = flows->flow[f].destination;
    begin[s] = later(begin[s], post[d]);
    begin[d] = later(begin[d], post[s]);
  }
}

static void run_alpha_beta(const hec_flows *flows, double *finish) {
  HEC_SCOPED(hec_arena) arena = {0};
  double *load = HEC_NEW(&arena, double, flows->n_links), *post = HEC_NEW(&arena, double, flows->n_hosts);
  double *begin = HEC_NEW(&arena, double, flows->n_hosts), *lasts = HEC_NEW(&arena, double, flows->n_hosts);
  add_loads(flows, load);
  find_begins(flows, post, begin);
  for (int32_t f = 0; f < flows->n_flows; f++) {
    const hec_flow *flow = &flows->flow[f];
    double latency = flows->route_latency[flow->route], *s = &lasts[flow->source], *d = &lasts[flow->destination];
    *s = later(*s, latency + slowest(flows, load, flow->route, 1));
    *d = later(*d, latency + slowest(flows, load, flow->route, 2));
  }
  for (int32_t f = 0; f < flows->n_flows; f++) {
    int32_t s = flows->flow[f].source, d = flows->flow[f].destination;
    finish[f] = later(begin[s] + lasts[s], begin[d] + lasts[d]);
  }
}

/* ---- interface ---- */

typedef struct {
  const char *name;
  void (*run)(const hec_flows *flows, double *finish);
} flows_law;
static const flows_law max_min = {"max_min", run_max_min}, nccl_rounds = {"nccl_rounds", run_nccl_rounds},
                       alpha_beta = {"alpha_beta", run_alpha_beta};
static const flows_law *const laws[] = {&max_min, &nccl_rounds, &alpha_beta, NULL};

enum { N_LAWS = sizeof laws / sizeof *laws - 1 };

const char *hec_flows_law_name(int32_t index) {
  return index >= 0 && index < N_LAWS ? laws[index]->name : NULL;
}

hec_status hec_flows_run(const hec_flows *flows, const char *law, double *finish) {
  const flows_law *row = hec_table_find(laws, law);
  if (!row)
    return hec_table_unknown(&(hec_table){.rows = laws}, "law", law);
  row->run(flows, finish);
  return HEC_OK;
}

double hec_flows_makespan(const hec_flows *flows, const double *finish) {
  double makespan = 0;
  for (int32_t f = 0; f < flows->n_flows; f++)
    makespan = later(makespan, finish[f]);
  return makespan;
}

void hec_flows_write(const hec_flows *flows, const char *law, const double *finish, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_string(&json, "law", law);
  hec_json_double17(&json, "makespan", hec_flows_makespan(flows, finish));
  if (flows->of_matrix) {
    hec_traffic_rate rate = hec_traffic_rates(flows->size_bytes, flows->n_hosts, hec_flows_makespan(flows, finish));
    hec_json_int(&json, "size_bytes", flows->size_bytes);
    hec_json_double17(&json, "algbw", rate.algbw);
    hec_json_double17(&json, "busbw", rate.busbw);
  }
  hec_json_array(&json, "flows");
  for (int32_t f = 0; f < flows->n_flows; f++) {
    const hec_flow *flow = &flows->flow[f];
    hec_json_object(&json, NULL);
    HEC_JSON(&json, HEC_TEXT("src", flows->host_name[flow->source]),
             HEC_TEXT("dst", flows->host_name[flow->destination]), HEC_INT("bytes", flow->bytes));
    hec_json_double17(&json, "start", flow->start);
    hec_json_double17(&json, "finish", finish[f]);
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_close(&json);
}
