/* hecate-bench network: network laws on all-to-alls of growing size, and beside them a peer on the same flows. Runs of one case
 * alternate, ours and the peer's; medians. */
#include "tools/bench/bench_commands.h"
#include "tools/bench/bench_loads.h"
#include "tools/front/options.h"
#include "validate/network_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SIZES_MAX = 16, RUNS_MAX = 99 };

typedef struct {
  hec_job_options job; /* law */
  const char *ranks, *peer;
  int64_t runs, peer_max;
  bool json;
} settings;

typedef struct {
  int32_t n, n_flows, n_peer;
  double seconds, makespan;  /* ours: median */
  double peer_s, difference; /* the peer's median, and its largest relative difference of a finish */
} result;

static hec_status measure(const settings *s, hec_network network, int32_t n, result *r) {
  hec_arena arena = {0};
  hec_flows flows;
  double ours[RUNS_MAX], theirs[RUNS_MAX];
  hec_network_case(network, n, 1, &arena, &flows);
  double *finish = HEC_NEW(&arena, double, flows.n_flows), *other = HEC_NEW(&arena, double, flows.n_flows);
  *r = (result){.n = n, .n_flows = flows.n_flows};
  hec_status status = HEC_OK;
  for (int64_t i = 0; status == HEC_OK && i < s->runs; i++) {
    double begin = hec_bench_now_s();
    status = hec_flows_run(&flows, s->job.law, finish);
    ours[i] = hec_bench_now_s() - begin;
    if (status == HEC_OK && s->peer && n <= s->peer_max)
      status = hec_network_peer(s->peer, &flows, &theirs[r->n_peer++], other);
  }
  if (status == HEC_OK) {
    r->seconds = hec_bench_quantile(ours, (int32_t)s->runs, 0.5);
    r->makespan = hec_flows_makespan(&flows, finish);
  }
  if (status == HEC_OK && r->n_peer > 0) {
    r->peer_s = hec_bench_quantile(theirs, r->n_peer, 0.5);
    for (int32_t f = 0; f < flows.n_flows; f++)
      r->difference = fmax(r->difference, fabs(finish[f] - other[f]) / finish[f]);
  }
  hec_arena_free(&arena);
  return status;
}

static void print(const settings *s, hec_network network, const result *r, hec_json_out *json, hec_text *out) {
  if (s->json) {
    hec_json_object(json, NULL);
    hec_json_string(json, "network", hec_network_name[network]);
    hec_json_int(json, "ranks", r->n);
    hec_json_int(json, "flows", r->n_flows);
    hec_json_double(json, "seconds", r->seconds);
    hec_json_double(json, "flows_per_s", r->n_flows / r->seconds);
    hec_json_double(json, "makespan_s", r->makespan);
    if (r->n_peer > 0) {
      hec_json_double(json, "peer_s", r->peer_s);
      hec_json_double(json, "ratio", r->peer_s / r->seconds);
      hec_json_double(json, "difference", r->difference);
    }
    hec_json_close(json);
    return;
  }
  hec_text_printf(out, "%-8s %6d %9d %12.4f %12.0f %14.4f", hec_network_name[network], r->n, r->n_flows, r->seconds,
                  r->n_flows / r->seconds, 1e3 * r->makespan);
  if (r->n_peer > 0)
    hec_text_printf(out, " %10.3f %9.1fx %11.1e", r->peer_s, r->peer_s / r->seconds, r->difference);
  hec_text_printf(out, "\n");
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  static const hec_run_option_words words[] = {
      {"law", NULL, "max_min (default), nccl_rounds or alpha_beta"},
      {.key = NULL},
  };
  *s = (settings){.job = HEC_JOB_OPTIONS, .ranks = "16,64,128,256", .runs = 3, .peer_max = 64};
  s->job.law = "max_min";
  const hec_arg args[] = {
      {"--ranks", HEC_ARG_TEXT, &s->ranks, "N[,N...]", "hosts (default 16,64,128,256; at most 1024)", 0, 0},
      HEC_ARG_JOB("", s->job, "law", words),
      HEC_ARG_WHOLE("--runs", s->runs, "N", "runs of each case; the median counts (default 3)", 1, RUNS_MAX),
      {"--peer", HEC_ARG_TEXT, &s->peer, "PROGRAM",
       "a program that answers the same cases (build/simgrid-flows, where SimGrid is installed)", 0, 0},
      HEC_ARG_WHOLE("--peer-max", s->peer_max, "N", "the peer gets cases of at most N hosts (default 64)", 2, 1024),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-bench network",
      .usage = "hecate-bench network [options]",
      .summary =
          "Network laws on synthetic all-to-alls: `switch`, N hosts with 50 GB/s; `nodes`, 8 hosts a node with\n"
          "450 GB/s each behind one NIC of 50 GB/s. Bytes of a pair: log-normal popularity of the receiver (sigma 1)\n"
          "times log-normal noise (0.5), 1 MB at the median. One thread, wall clock, medians. The peer solves\n"
          "max_min: --peer goes with that law alone.",
      .examples = "  hecate-bench network --ranks 16,64\n  hecate-bench network --ranks 64 --law nccl_rounds --json\n"
                  "  hecate-bench network --ranks 16 --peer build/simgrid-flows",
      .args = args};
  int32_t n;
  return hec_args_parse(&command, argc, argv, NULL, 0, &n, done);
}

static void begin_table(const settings *s, hec_json_out *json, hec_text *out) {
  if (s->json) {
    hec_json_object(json, NULL);
    hec_json_int(json, "version", 1);
    hec_json_string(json, "law", s->job.law);
    hec_json_array(json, "cases");
    return;
  }
  char runs[32];
  (void)snprintf(runs, sizeof runs, s->runs == 1 ? "1 run" : "medians of %d runs", (int)s->runs);
  hec_text_printf(out, "%s, one thread, %s (synthetic all-to-alls)\n\n", s->job.law, runs);
  hec_text_printf(out, "%-8s %6s %9s %12s %12s %14s", "network", "hosts", "flows", "seconds", "flows per s",
                  "makespan, ms");
  if (s->peer)
    hec_text_printf(out, " %10s %10s %11s", "peer, s", "peer/ours", "difference");
  hec_text_printf(out, "\n");
}

static void end_table(const settings *s, hec_json_out *json, hec_text *out) {
  struct rusage use;
  (void)getrusage(RUSAGE_SELF, &use);
  double peak = 1024.0 * (double)use.ru_maxrss;
  if (s->json) {
    hec_json_close(json);
    hec_json_double(json, "peak_bytes", peak);
    hec_json_close(json);
    return;
  }
  hec_text_printf(out, "\npeak memory %.0f MB, cases included", 1e-6 * peak);
  hec_text_printf(out, s->peer ? "; difference: the largest of a flow's finish, relative\n" : "\n");
}

static hec_status run(const settings *s, hec_text *out) {
  int32_t size[SIZES_MAX], n;
  if (s->peer && !*s->peer)
    return hec_fail(HEC_BAD_INPUT, "--peer: expected a program, found \"\"");
  if (s->peer && strcmp(s->job.law, "max_min") != 0)
    return hec_fail(HEC_BAD_INPUT, "--peer: expected --law max_min, which is what a peer solves, found --law %.60s",
                    s->job.law);
  HEC_TRY(hec_args_wholes(&(hec_args_list){"--ranks", 2, 1024, SIZES_MAX}, s->ranks, size, &n));
  hec_json_out json = hec_json_begin(out, 1);
  begin_table(s, &json, out);
  for (hec_network network = 0; network < HEC_N_NETWORKS; network++)
    for (int32_t i = 0; i < n; i++) {
      result r;
      HEC_TRY(measure(s, network, size[i], &r));
      print(s, network, &r, &json, out);
    }
  end_table(s, &json, out);
  return HEC_OK;
}

int hec_network_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_text out = {0};
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = run(&s, &out);
  return hec_bench_exit(status, &out);
}
