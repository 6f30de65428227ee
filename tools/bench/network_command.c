/* hecate-bench network: network laws on all-to-alls of growing size, and beside them a peer on the same flows. Runs of one case
 * alternate, ours and the peer's; medians. */
#include "tools/bench/bench.h"
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
  HEC_SCOPED(hec_arena) arena = {0};
  hec_flows flows;
  double ours[RUNS_MAX], theirs[RUNS_MAX];
  hec_network_case(network, n, 1, &arena, &flows);
  double *finish = HEC_NEW(&arena, double, flows.n_flows), *other = HEC_NEW(&arena, double, flows.n_flows);
  *r = (result){.n = n, .n_flows = flows.n_flows};
  for (int64_t i = 0; i < s->runs; i++) {
    double begin = hec_bench_now_s();
    HEC_TRY(hec_flows_run(&flows, s->job.law, finish));
    ours[i] = hec_bench_now_s() - begin;
    if (s->peer && n <= s->peer_max)
      HEC_TRY(hec_network_peer(s->peer, &flows, &theirs[r->n_peer++], other));
  }
  r->seconds = hec_bench_quantile(ours, (int32_t)s->runs, 0.5);
  r->makespan = hec_flows_makespan(&flows, finish);
  if (r->n_peer > 0) {
    r->peer_s = hec_bench_quantile(theirs, r->n_peer, 0.5);
    for (int32_t f = 0; f < flows.n_flows; f++)
      r->difference = fmax(r->difference, fabs(finish[f] - other[f]) / finish[f]);
  }
  return HEC_OK;
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
  return hec_args_options(&command, argc, argv, done);
}

typedef struct {
  settings settings;
  result row[HEC_N_NETWORKS][SIZES_MAX];
  int32_t n_sizes;
  double peak_bytes;
} results;

static void report(const void *of, hec_doc *doc) {
  const results *all = of;
  const settings *s = &all->settings;
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("law", s->job.law));
  hec_doc_note(doc, "%s, one thread, medians of %d run%s (synthetic all-to-alls)", s->job.law, (int)s->runs,
               s->runs == 1 ? "" : "s");
  hec_doc_table(
      doc, "cases",
      s->peer ? "network | hosts | flows | seconds | flows per s | makespan, ms | peer, s | peer/ours | difference"
              : "network | hosts | flows | seconds | flows per s | makespan, ms");
  for (int32_t i = 0; i < HEC_N_NETWORKS * all->n_sizes; i++) {
    const result *r = &all->row[i / all->n_sizes][i % all->n_sizes];
    HEC_ROW(doc, HEC_SHOW("network", HEC_AS_IS, hec_network_name[i / all->n_sizes]), HEC_SHOW("ranks", HEC_AS_IS, r->n),
            HEC_SHOW("flows", HEC_AS_IS, r->n_flows), HEC_SHOW("seconds", HEC_SECONDS, r->seconds),
            HEC_KEEP("flows_per_s", r->n_flows / r->seconds),
            HEC_SHOW(NULL, HEC_AS_IS, (int64_t)(r->n_flows / r->seconds)), HEC_SHOW("makespan_s", HEC_MS, r->makespan));
    if (r->n_peer > 0)
      HEC_ADD(doc, HEC_SHOW("peer_s", HEC_SECONDS, r->peer_s), HEC_SHOW("ratio", HEC_FIXED2, r->peer_s / r->seconds),
              HEC_KEEP("difference", r->difference), HEC_CELL(hec_doc_text(doc, "%.1e", r->difference)));
  }
  hec_doc_end(doc);
  HEC_ADD(doc, HEC_KEEP("peak_bytes", all->peak_bytes));
  hec_doc_note(doc, "peak memory %.0f MB, cases included%s", 1e-6 * all->peak_bytes,
               s->peer ? "; difference: the largest of a flow's finish, relative" : "");
}

static hec_status run(results *all) {
  const settings *s = &all->settings;
  int32_t size[SIZES_MAX];
  struct rusage use;
  if (s->peer && !*s->peer)
    return hec_fail(HEC_BAD_INPUT, "--peer: expected a program, found \"\"");
  if (s->peer && strcmp(s->job.law, "max_min") != 0)
    return hec_fail(HEC_BAD_INPUT, "--peer: expected --law max_min, which is what a peer solves, found --law %.60s",
                    s->job.law);
  HEC_TRY(hec_args_wholes(&(hec_args_list){"--ranks", 2, 1024, SIZES_MAX}, s->ranks, size, &all->n_sizes));
  for (hec_network network = 0; network < HEC_N_NETWORKS; network++)
    for (int32_t i = 0; i < all->n_sizes; i++)
      HEC_TRY(measure(s, network, size[i], &all->row[network][i]));
  (void)getrusage(RUSAGE_SELF, &use);
  all->peak_bytes = 1024.0 * (double)use.ru_maxrss;
  return HEC_OK;
}

int hec_network_command(int argc, char **argv) {
  results all = {.n_sizes = 0};
  bool done;
  hec_status status = parse(argc, argv, &all.settings, &done);
  if (status == HEC_OK && !done)
    status = run(&all);
  return hec_bench_report(status, done, report, &all, all.settings.json);
}
