/* Reads the case (or the traffic matrix, and makes its flows on a cluster), runs the law, prints JSON or a table for people. The table: makespan, the flows that end last, and
 * the links with the highest utilisation = bytes over the link / (bandwidth * makespan). */
#include "tools/sim/sim_commands.h"

#include "models/straggler.h"
#include "sim/flows.h"
#include "tools/front/options.h"
#include "tools/front/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 5 };

typedef struct {
  hec_job_options job; /* law, cluster, slow */
  const char *path;
  bool json;
} options;

static hec_status read_options(int argc, char **argv, options *o, bool *done) {
  static const hec_run_option_words words[] = {
      {"law", "LAW",
       "how flows share links: max_min (default), nccl_rounds, or alpha_beta: all flows of a case are one exchange, a "
       "later start only delays all partners"},
      {"cluster", NULL, "of a MATRIX: preset, JSON file or line; ranks are its first devices, all flows start at 0"},
      {"slow", "S", "slow links of it, as of hecate-sim: link=nic_out:node1:0.5,..."},
      {.key = NULL},
  };
  *o = (options){.job = HEC_JOB_OPTIONS};
  o->job.law = hec_flows_law_name(0);
  const hec_arg args[] = {
      HEC_ARG_JOB("", o->job, "law cluster slow", words),
      {"--json", HEC_ARG_FLAG, &o->json, NULL,
       "one JSON document: {\"law\",\"makespan\",\"flows\":[{\"src\",\"dst\",\"bytes\",\"start\",\"finish\"}]}; rates "
       "in "
       "bytes/s",
       0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-sim flows",
      .usage = "hecate-sim flows CASE.json [--law LAW] [--json]\n       hecate-sim flows MATRIX --cluster C [--slow S] "
               "[--law LAW] [--json]",
      .summary =
          "Simulates a bare set of flows over given links and routes and says when each one ends.\n\n"
          "CASE.json: {\"hosts\":[name], \"links\":[{\"id\",\"bandwidth\",\"latency\"}], "
          "\"routes\":[{\"src\",\"dst\",\"links\":[id]}],\n"
          "           \"flows\":[{\"src\",\"dst\",\"bytes\",\"start\"}]}, bytes/s and seconds.\n"
          "A link has one direction; every pair of hosts with a flow needs its route. For example\n"
          "  {\"hosts\":[\"a\",\"b\"], \"links\":[{\"id\":\"l\",\"bandwidth\":1e9,\"latency\":1e-6}],\n"
          "   \"routes\":[{\"src\":\"a\",\"dst\":\"b\",\"links\":[\"l\"]}], "
          "\"flows\":[{\"src\":\"a\",\"dst\":\"b\",\"bytes\":1000,\"start\":0}]}\n\n"
          "MATRIX: what nccl-tests' alltoallv_perf reads: line i, column j: bytes from rank i to rank j.\n"
          "  algbw = size / makespan, busbw = algbw (n-1)/n; size: the most bytes a rank sends or receives, its own "
          "included.",
      .examples = "  hecate-sim flows case.json --law max_min --json\n"
                  "  hecate-sim flows matrix.txt --cluster p4d-4x8\n"
                  "  hecate-sim flows matrix.txt --cluster p4d-4x8 --slow link=port_out:device1:0.5 --law nccl_rounds",
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&command, argc, argv, &o->path, 1, &n, done));
  if (*done)
    return HEC_OK;
  if (n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected a case file; see hecate-sim flows --help");
  if (o->job.slow && !o->job.cluster)
    return hec_fail(HEC_BAD_INPUT, "--slow: expected --cluster beside it, found none");
  if (o->job.slow && strstr(o->job.slow, "rank="))
    return hec_fail(HEC_BAD_INPUT, "--slow: expected links only (no rank computes here), found \"%.100s\"",
                    o->job.slow);
  return HEC_OK;
}

/* "1.746 ms" */
static const char *in_units(double seconds, char *out, size_t size) {
  static const struct {
    double min, factor;
    const char *unit;
  } units[] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {1e-6, 1e6, "us"}, {0, 1e9, "ns"}};
  int u = 0;
  while (u < 3 && seconds < units[u].min)
    u++;
  (void)snprintf(out, size, "%.4g %s", seconds * units[u].factor, seconds == 0 ? "s" : units[u].unit);
  return out;
}

/* Indices of the SHOWN greatest values, greatest first, the lower index on ties; returns how many. */
static int32_t greatest(const double *value, int32_t n, int32_t *index) {
  int32_t found = 0;
  for (int32_t i = 0; i < n; i++) {
    int32_t at = found;
    while (at > 0 && value[i] > value[index[at - 1]])
      at--;
    if (at == SHOWN)
      continue;
    found += found < SHOWN;
    for (int32_t k = found - 1; k > at; k--)
      index[k] = index[k - 1];
    index[at] = i;
  }
  return found;
}

static void add_slowest(const hec_flows *flows, const double *finish, hec_text *out) {
  int32_t last[SHOWN];
  int32_t n = greatest(finish, flows->n_flows, last);
  char start[32], end[32];
  hec_text_printf(out, "\n%-32s %14s %12s %12s\n", "flows that end last", "bytes", "start", "finish");
  for (int32_t i = 0; i < n; i++) {
    const hec_flow *flow = &flows->flow[last[i]];
    char from[29], to[29], pair[64];
    hec_name_copy(from, sizeof from, flows->host_name[flow->source]);
    hec_name_copy(to, sizeof to, flows->host_name[flow->destination]);
    (void)snprintf(pair, sizeof pair, "%s -> %s", from, to);
    hec_text_printf(out, "%-32s %14lld %12s %12s\n", pair, (long long)flow->bytes,
                    in_units(flow->start, start, sizeof start), in_units(finish[last[i]], end, sizeof end));
  }
}

static void add_busiest(const hec_flows *flows, double makespan, hec_arena *arena, hec_text *out) {
  double *bytes = HEC_NEW(arena, double, flows->n_links), *use = HEC_NEW(arena, double, flows->n_links);
  for (int32_t f = 0; f < flows->n_flows; f++)
    for (int32_t i = flows->route_at[flows->flow[f].route]; i < flows->route_at[flows->flow[f].route + 1]; i++)
      bytes[flows->route_link[i]] += (double)flows->flow[f].bytes;
  for (int32_t l = 0; l < flows->n_links; l++)
    use[l] = makespan > 0 ? bytes[l] / (flows->bandwidth[l] * makespan) : 0;
  int32_t busiest[SHOWN];
  int32_t n = greatest(use, flows->n_links, busiest);
  hec_text_printf(out, "\n%-32s %14s %12s %12s\n", "busiest links", "bytes", "rate, GB/s", "utilisation");
  for (int32_t i = 0; i < n; i++)
    hec_text_printf(out, "%-32.32s %14.0f %12.4g %10.1f %%\n", flows->link_name[busiest[i]], bytes[busiest[i]],
                    flows->bandwidth[busiest[i]] / 1e9, 100 * use[busiest[i]]);
}

/* How far the finishes are from those the case names. */
static void add_comparison(const hec_flows *flows, const double *finish, hec_text *out) {
  int32_t named = 0, worst_flow = 0;
  double worst = -1;
  for (int32_t f = 0; f < flows->n_flows; f++) {
    double expected = flows->flow[f].expected_finish;
    if (expected < 0)
      continue;
    named++;
    double off = finish[f] > expected ? finish[f] - expected : expected - finish[f];
    double relative = expected > 0 ? off / expected : off;
    if (relative > worst) {
      worst = relative;
      worst_flow = f;
    }
  }
  if (named > 0)
    hec_text_printf(out, "\nagainst the %d finish times in the file: worst relative difference %.2g (flow %d)\n", named,
                    worst, worst_flow);
}

static void add_table(const hec_flows *flows, const options *o, const double *finish, hec_arena *arena, hec_text *out) {
  double makespan = hec_flows_makespan(flows, finish);
  char text[32];
  hec_text_printf(out, "%s: %d flows between %d hosts over %d links, law %s\nmakespan %s\n", o->path, flows->n_flows,
                  flows->n_hosts, flows->n_links, o->job.law, in_units(makespan, text, sizeof text));
  if (flows->of_matrix) {
    char algbw[32], busbw[32];
    hec_traffic_rate rate = hec_traffic_rates(flows->size_bytes, flows->n_hosts, makespan);
    hec_text_printf(out, "size %lld bytes of the busiest rank, algbw %s GB/s, busbw %s GB/s\n",
                    (long long)flows->size_bytes, hec_traffic_gb_s(rate.algbw, algbw),
                    hec_traffic_gb_s(rate.busbw, busbw));
  }
  if (strcmp(o->job.law, "alpha_beta") == 0)
    hec_text_add(out, "alpha_beta: all flows are one exchange, so a later start only delays all partners\n");
  add_slowest(flows, finish, out);
  add_busiest(flows, makespan, arena, out);
  add_comparison(flows, finish, out);
  hec_text_add(out, "\nCongestion control, incast loss and adaptive routing are not modelled.\n");
}

/* The flows, by the cluster or else by the case. */
static hec_status read_flows(const options *o, hec_arena *arena, hec_flows *flows) {
  if (!o->job.cluster)
    return hec_flows_read(o->path, arena, flows);
  hec_cluster cluster;
  hec_traffic_matrix matrix;
  HEC_SCOPED(hec_text) said = {0};
  HEC_TRY(hec_cluster_load(o->job.cluster, arena, &cluster));
  HEC_TRY(hec_traffic_matrix_read(o->path, arena, &matrix));
  HEC_TRY(hec_stragglers_apply(&(hec_stragglers){.slow = o->job.slow}, matrix.n, &cluster, arena, &cluster, &said));
  return hec_flows_of_matrix(&matrix, &cluster, arena, flows);
}

static hec_status run_case(const options *o, hec_arena *arena, hec_text *out) {
  hec_flows flows;
  HEC_TRY(read_flows(o, arena, &flows));
  double *finish = HEC_NEW(arena, double, flows.n_flows);
  HEC_TRY(hec_flows_run(&flows, o->job.law, finish));
  if (o->json)
    hec_flows_write(&flows, o->job.law, finish, out);
  else
    add_table(&flows, o, finish, arena, out);
  return hec_output_print(out);
}

int hec_flows_command(int argc, char **argv) {
  options o;
  bool done;
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_text) out = {0};
  hec_status status = read_options(argc, argv, &o, &done);
  if (status == HEC_OK && !done)
    status = run_case(&o, &arena, &out);
  return hec_tool_exit("hecate-sim flows", status);
}
