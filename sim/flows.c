/* Laws over a bare set of flows; reading them is in flows_read.c.
 *
 * max_min: arrivals (start + route latency) sorted by (time, index) enter the fluid solver; the solver's clock starts
 * anew with every busy period, so finish = origin + time in the period. Cost: one filling per start or finish.
 * alpha_beta: three passes over flows and routes (loads; posts and begins; done), O(sum of route lengths). */
#include "sim/flows.h"

#include "sim/fluid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- max_min ---- */

typedef struct {
  double time;
  int32_t flow;
} arrival;

static int compare_arrivals(const void *a, const void *b) {
  const arrival *x = a, *y = b;
  if (x->time != y->time)
    return x->time < y->time ? -1 : 1;
  return (x->flow > y->flow) - (x->flow < y->flow);
}

static arrival *sorted_arrivals(const hec_flows *flows) {
  arrival *arrivals = hec_malloc((size_t)flows->n_flows + 1, sizeof *arrivals);
  for (int32_t f = 0; f < flows->n_flows; f++)
    arrivals[f] = (arrival){flows->flow[f].start + flows->route_latency[flows->flow[f].route], f};
  qsort(arrivals, (size_t)flows->n_flows, sizeof *arrivals, compare_arrivals);
  return arrivals;
}

static void enter(hec_fluid *fluid, const hec_flows *flows, int32_t f) {
  int32_t route = flows->flow[f].route;
  (void)hec_fluid_add(fluid, &(hec_fluid_flow){.links = flows->route_link + flows->route_at[route],
                                               .n_links = flows->route_at[route + 1] - flows->route_at[route],
                                               .amount = (double)flows->flow[f].bytes,
                                               .cap = INFINITY,
                                               .tag = f});
}

static void run_max_min(const hec_flows *flows, double *finish) {
  hec_fluid *fluid = hec_fluid_new(flows->n_links, flows->bandwidth);
  arrival *arrivals = sorted_arrivals(flows);
  double origin = 0;
  for (int32_t at = 0; at < flows->n_flows || hec_fluid_count(fluid) > 0;) {
    if (hec_fluid_count(fluid) == 0) {
      hec_fluid_rebase(fluid);
      origin = arrivals[at].time;
    }
    double next = hec_fluid_next(fluid), start = at < flows->n_flows ? arrivals[at].time - origin : INFINITY;
    if (start <= next) {
      hec_fluid_advance(fluid, start);
      for (double time = arrivals[at].time; at < flows->n_flows && arrivals[at].time == time; at++)
        enter(fluid, flows, arrivals[at].flow);
      continue;
    }
    hec_fluid_advance(fluid, next);
    int32_t n;
    const hec_fluid_done *done = hec_fluid_pop(fluid, &n);
    for (int32_t i = 0; i < n; i++)
      finish[done[i].tag] = origin + done[i].finish;
  }
  free(arrivals);
  hec_fluid_free(fluid);
}

/* ---- alpha_beta ---- */

static double later(double a, double b) {
  return a > b ? a : b;
}

/* Slowest link of entries [first, end) of route_link, in seconds. */
static double slowest(const hec_flows *flows, const double *load, int32_t first, int32_t end) {
  double seconds = 0;
  for (int32_t i = first; i < end; i++)
    seconds = later(seconds, load[flows->route_link[i]] / flows->bandwidth[flows->route_link[i]]);
  return seconds;
}

static void add_loads(const hec_flows *flows, double *load) {
  for (int32_t f = 0; f < flows->n_flows; f++)
    for (int32_t i = flows->route_at[flows->flow[f].route]; i < flows->route_at[flows->flow[f].route + 1]; i++)
      load[flows->route_link[i]] += (double)flows->flow[f].bytes;
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
  hec_arena arena = {0};
  double *load = HEC_NEW(&arena, double, flows->n_links), *post = HEC_NEW(&arena, double, flows->n_hosts);
  double *begin = HEC_NEW(&arena, double, flows->n_hosts), *lasts = HEC_NEW(&arena, double, flows->n_hosts);
  add_loads(flows, load);
  find_begins(flows, post, begin);
  for (int32_t f = 0; f < flows->n_flows; f++) {
    const hec_flow *flow = &flows->flow[f];
    int32_t first = flows->route_at[flow->route], end = flows->route_at[flow->route + 1], half = (end - first) / 2;
    double latency = flows->route_latency[flow->route], *s = &lasts[flow->source], *d = &lasts[flow->destination];
    *s = later(*s, latency + slowest(flows, load, first, end - half));
    *d = later(*d, latency + slowest(flows, load, first + half, end));
  }
  for (int32_t f = 0; f < flows->n_flows; f++) {
    int32_t s = flows->flow[f].source, d = flows->flow[f].destination;
    finish[f] = later(begin[s] + lasts[s], begin[d] + lasts[d]);
  }
  hec_arena_free(&arena);
}

/* ---- interface ---- */

static const struct {
  const char *name;
  void (*run)(const hec_flows *flows, double *finish);
} laws[] = {{"max_min", run_max_min}, {"alpha_beta", run_alpha_beta}};

enum { N_LAWS = sizeof laws / sizeof *laws };

const char *hec_flows_law_name(int32_t index) {
  return index >= 0 && index < N_LAWS ? laws[index].name : NULL;
}

hec_status hec_flows_run(const hec_flows *flows, const char *law, double *finish) {
  for (int i = 0; i < N_LAWS; i++)
    if (strcmp(laws[i].name, law) == 0) {
      laws[i].run(flows, finish);
      return HEC_OK;
    }
  hec_text names = {0};
  for (int i = 0; i < N_LAWS; i++)
    hec_text_printf(&names, "%s%s", i > 0 ? ", " : "", laws[i].name);
  hec_status status = hec_fail(HEC_BAD_INPUT, "law: expected one of %s, found \"%s\"", names.data, law);
  hec_text_free(&names);
  return status;
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
  hec_json_array(&json, "flows");
  for (int32_t f = 0; f < flows->n_flows; f++) {
    const hec_flow *flow = &flows->flow[f];
    hec_json_object(&json, NULL);
    hec_json_string(&json, "src", flows->host_name[flow->source]);
    hec_json_string(&json, "dst", flows->host_name[flow->destination]);
    hec_json_int(&json, "bytes", flow->bytes);
    hec_json_double17(&json, "start", flow->start);
    hec_json_double17(&json, "finish", finish[f]);
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_close(&json);
}
