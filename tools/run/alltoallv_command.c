/* hecate-run alltoallv: options, what must hold before ranks are started, and the report of alltoallv.h. Time: of an
 * iteration the longest of any rank; of iterations median, least and greatest. algbw and busbw are of the median, by the
 * function that rates what hecate-sim flows simulates; with --cluster both stand side by side. */
#include "tools/run/run_commands.h"

#include "runtime/base/quantile.h"
#include "runtime/base/value.h"
#include "runtime/exec/alltoallv.h"
#include "sim/flows.h"
#include "tools/front/execution.h"
#include "tools/front/machine.h"
#include "tools/front/output.h"
#include "tools/front/summary/summary_write.h"

#include <inttypes.h>
#include <string.h>

enum { WARMUP = 5, ITERATIONS = 20, EXCHANGES_MAX = 1000000 };

typedef struct {
  hec_target_args target;
  hec_job_options job; /* cluster, law */
  const char *matrix;
  int64_t warmup, iterations;
  bool check, json, list;
} settings;

typedef struct {
  double median, min, max; /* s */
  hec_traffic_rate rate;
} times;

/* One command at work. */
typedef struct {
  const settings *s;
  hec_target target;
  hec_arena arena;
  bool launched;
  hec_traffic_matrix matrix;
  hec_cluster cluster; /* with --cluster */
  const char *law;
  times measured, predicted;
  hec_alltoallv_check check;
  hec_execution execution;
} command;

static const hec_run_option_words words[] = {
    {"cluster", NULL,
     "preset (--list), JSON file or line. What hecate-sim flows predicts on its first devices is printed beside. "
     "Transports emulated and paced imitate its links."},
    {"law", "LAW",
     "with --cluster: law that predicts, as of hecate-sim flows (default: the transport's, else max_min)"},
    {"transport", NULL,
     "of backend cpu: shm (default), emulated, paced; of nccl: nccl, local; see --list. Paced has no latency, and 60 "
     "to "
     "100 kB pass unpaced: small exchanges beat the links."},
    {.key = NULL},
};

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.job = HEC_JOB_OPTIONS, .target = HEC_TARGET_ARGS, .warmup = WARMUP, .iterations = ITERATIONS};
  s->job.law = NULL; /* the transport's */
  const hec_arg args[] = {
      HEC_ARG_TITLE("What runs"),
      HEC_ARG_WHOLE("--iterations", s->iterations, "N", "exchanges that are timed (default 20)", 1, EXCHANGES_MAX),
      HEC_ARG_WHOLE("--warmup", s->warmup, "N", "exchanges before them (default 5)", 0, EXCHANGES_MAX),
      {"--check", HEC_ARG_FLAG, &s->check, NULL,
       "compare every byte that came with what was sent, in every exchange; exit 1 where one differs", 0, 0},
      HEC_ARG_JOB("", s->job, "cluster law", words),
      HEC_ARG_TARGET("Execution", s->target, "backend transport threads pin timeout", words),
      HEC_ARG_TITLE("Output"),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else; bytes, s, bytes/s", 0, 0},
      {"--list", HEC_ARG_FLAG, &s->list, NULL, "list backends and transports", 0, 0},
      {.name = NULL}};
  const hec_command text = {
      .program = "hecate-run alltoallv",
      .usage = "hecate-run alltoallv MATRIX [options]",
      .summary = "Carries out a traffic matrix as one exchange of the executor that replays traces, and measures it. "
                 "MATRIX is what\nnccl-tests' alltoallv_perf reads: line i, column j: bytes from rank i to rank j; as "
                 "many ranks as lines. The\ndiagonal is a copy inside the rank.\n"
                 "  algbw = size / time, busbw = algbw (n-1)/n; size: the most bytes a rank sends or receives, its own "
                 "included;\n  time: until the last rank is done. As nccl-tests with -a 3.",
      .examples = "  hecate-run alltoallv matrix.txt --check\n"
                  "  hecate-run alltoallv matrix.txt --cluster p4d-4x8 --transport emulated\n"
                  "  mpirun -n 4 hecate-run alltoallv matrix.txt --backend mpi --json\n"
                  "  hecate-run alltoallv matrix.txt --backend nccl --iterations 100",
      .first = "--iterations --warmup --check --cluster --law --backend --transport --threads --json --list",
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&text, argc, argv, &s->matrix, 1, &n, done));
  if (*done || s->list || strcmp(s->target.backend, "list") == 0)
    return HEC_OK;
  if (n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected a file with a matrix of bytes (see --help)");
  if (s->job.law && !s->job.cluster)
    return hec_fail(HEC_BAD_INPUT, "--law: expected --cluster beside it, found none");
  return HEC_OK;
}

/* ---- What must hold ---- */

static hec_status check_ranks(const command *c, int32_t launched) {
  int32_t n = c->matrix.n;
  if (launched > 0 && launched != n)
    return hec_fail(HEC_BAD_INPUT, "%s: a rank for each of its %" PRId32 " lines, found %" PRId32 " started",
                    c->s->matrix, n, launched);
  if (n > HEC_RANKS_MAX)
    return hec_fail(HEC_BAD_INPUT, "%s: expected at most the %d ranks that can be executed, found %" PRId32,
                    c->s->matrix, HEC_RANKS_MAX, n);
  return HEC_OK;
}

/* What is sent and what is received stand in memory at once. */
static hec_status check_memory(const command *c) {
  int32_t here = c->execution.summary.n_ranks_here, n = c->matrix.n;
  double max, all = hec_alltoallv_bytes(&c->matrix, &max), memory = hec_machine_memory_free("/proc/meminfo");
  if (c->target.backend->device_bytes) {
    double share = c->target.backend->device_bytes(n);
    if (share <= 0 || max <= share)
      return HEC_OK;
    return hec_fail(HEC_BAD_INPUT,
                    "%s: a rank sends and receives %.3g GB in all, its share of a device's memory is %.3g",
                    c->s->matrix, max * 1e-9, share * 1e-9);
  }
  if (memory <= 0 || all * here / n <= memory)
    return HEC_OK;
  return hec_fail(
      HEC_BAD_INPUT,
      "%s: its ranks on this machine send and receive %.3g GB in all, of this machine's memory %.3g are free",
      c->s->matrix, all * here / n * 1e-9, memory * 1e-9);
}

/* The cluster, and what is predicted on it: what hecate-sim flows does. */
static hec_status predict(command *c) {
  const settings *s = c->s;
  const char *own = c->target.transport->law;
  if (!s->job.cluster)
    return own && !c->target.link
               ? hec_fail(HEC_BAD_INPUT, "--transport %s: expected --cluster C beside it, whose links it imitates",
                          c->target.transport->name)
               : HEC_OK;
  c->law = s->job.law ? s->job.law : own && !c->target.link ? own : hec_flows_law_name(0);
  hec_flows flows;
  HEC_TRY(hec_cluster_load(s->job.cluster, &c->arena, &c->cluster));
  HEC_TRY(hec_flows_of_matrix(&c->matrix, &c->cluster, &c->arena, &flows));
  double *finish = HEC_NEW(&c->arena, double, flows.n_flows);
  HEC_TRY(hec_flows_run(&flows, c->law, finish));
  double seconds = hec_flows_makespan(&flows, finish);
  c->predicted =
      (times){seconds, seconds, seconds, hec_traffic_rates(hec_traffic_matrix_size(&c->matrix), c->matrix.n, seconds)};
  return HEC_OK;
}

/* Else a ratio of measured to predicted would be between two networks. */
static bool imitates(const command *c) {
  return c->target.transport->law && !c->target.link;
}

static void describe(command *c) {
  hec_execution *e = &c->execution;
  hec_execution_place(&c->target, &c->s->target, c->matrix.n, (int32_t)c->s->warmup, e);
  if (imitates(c))
    hec_execution_mind(e, "emulated network: shows waiting and order; that it takes what is predicted proves nothing");
  else if (c->target.backend->transport == NULL)
    hec_execution_mind(e, "the network is this machine's memory: nothing here says how a cluster's network behaves");
  if (hec_summary_execution_crowded(&e->summary))
    hec_execution_mind(e, c->target.link ? "fewer devices than ranks: a device moves the bytes of all its ranks"
                                         : "fewer cores than ranks: ranks take turns on cores, so these times are not "
                                           "those of the transport");
  if (c->target.link && hec_alltoallv_rounded(&c->matrix) > 0)
    hec_execution_mind(e, "devices move whole words of 4 bytes: entries are rounded up to them; rates are of the "
                          "matrix as written");
}

/* ---- The report ---- */

static void json_times(hec_json_out *json, const times *t) {
  HEC_JSON(json, HEC_REAL("algbw", t->rate.algbw), HEC_REAL("busbw", t->rate.busbw));
}

static void json_check(hec_json_out *json, const hec_alltoallv_check *check) {
  HEC_JSON(json, HEC_OBJECT("check", HEC_BOOL("passed", check->wrong == 0), HEC_INT("compared_bytes", check->compared),
                            HEC_INT("wrong_bytes", check->wrong)));
}

static void json_report(const command *c, int64_t between, int64_t inside, hec_text *out) {
  const settings *s = c->s;
  const hec_summary_execution *e = &c->execution.summary;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("version", 1), HEC_TEXT("tool", "hecate-run " HEC_VERSION), HEC_TEXT("matrix", s->matrix),
           HEC_TEXT("backend", e->backend), HEC_TEXT("transport", e->transport), HEC_INT("ranks", c->matrix.n),
           HEC_TEXT("ranks_are", e->ranks_are));
  hec_summary_json_machine(e->unit, e->cpu, e->n_cores, e->blas, &json);
  HEC_JSON(&json, HEC_INT("warmup", s->warmup), HEC_INT("iterations", s->iterations),
           HEC_INT("bytes_between_ranks", between), HEC_INT("bytes_inside_ranks", inside),
           HEC_INT("size_bytes", hec_traffic_matrix_size(&c->matrix)),
           HEC_OBJECT("time_s", HEC_REAL("median", c->measured.median), HEC_REAL("min", c->measured.min),
                      HEC_REAL("max", c->measured.max)));
  json_times(&json, &c->measured);
  if (s->job.cluster) {
    hec_json_object(&json, "predicted");
    HEC_JSON(&json, HEC_TEXT("cluster", s->job.cluster), HEC_TEXT("law", c->law));
    hec_json_double17(&json, "time_s", c->predicted.median);
    json_times(&json, &c->predicted);
    hec_json_close(&json);
  }
  if (s->check)
    json_check(&json, &c->check);
  hec_json_strings(&json, "limits", e->limits, e->n_limits);
  hec_json_close(&json);
}

static void add_row(const char *name, const times *t, bool spread, hec_text *out) {
  hec_text_printf(out, "%-10s %13.3f", name, 1e6 * t->median);
  if (spread)
    hec_text_printf(out, " %13.3f %13.3f", 1e6 * t->min, 1e6 * t->max);
  else
    hec_text_printf(out, " %13s %13s", "-", "-");
  char algbw[32], busbw[32];
  hec_text_printf(out, " %12s %12s\n", hec_traffic_gb_s(t->rate.algbw, algbw), hec_traffic_gb_s(t->rate.busbw, busbw));
}

static void add_head(const command *c, int64_t between, int64_t inside, hec_text *out) {
  const settings *s = c->s;
  const hec_summary_execution *e = &c->execution.summary;
  hec_text_add(out, "hecate-run " HEC_VERSION ": alltoallv ");
  hec_text_add_plain(out, s->matrix);
  hec_text_printf(out, ", %" PRId64 " iteration%s measured after %" PRId64 " of warm-up\n", s->iterations,
                  s->iterations == 1 ? "" : "s", s->warmup);
  hec_text_printf(out,
                  "matrix   %" PRId64 " bytes between ranks, %" PRId64 " inside them; size %" PRId64
                  " bytes, of the busiest rank\n",
                  between, inside, hec_traffic_matrix_size(&c->matrix));
  hec_text_printf(out, "ranks    %" PRId32 ", as %s; backend %s\n", c->matrix.n, e->ranks_are, e->backend);
  hec_text_printf(out, "network  transport %s: %s\nmachine  ", e->transport, e->transport_summary);
  hec_text_add_plain(out, e->cpu);
  hec_text_printf(out, ", %" PRId32 " %s%s for %" PRId32 " rank%s\n", e->n_cores, e->unit, e->n_cores == 1 ? "" : "s",
                  e->n_ranks_here, e->n_ranks_here == 1 ? "" : "s");
  for (int32_t i = 0; i < e->n_limits; i++)
    hec_text_printf(out, "%s%s\n", i == 0 ? "mind     " : "         ", e->limits[i]);
}

static void add_tail(const command *c, hec_text *out) {
  const settings *s = c->s;
  if (s->job.cluster) {
    hec_text_printf(out, "predicted: network law %s on ", c->law);
    hec_text_add_plain(out, s->job.cluster);
    hec_text_add(out, ", as hecate-sim flows");
    if (imitates(c) && c->predicted.median > 0 && c->measured.median > 0)
      hec_text_printf(out, "; measured / predicted %.3f", c->measured.median / c->predicted.median);
    hec_text_add(out, "\n");
  }
  if (!s->check)
    hec_text_add(out, "not checked: see --check\n");
  else if (c->check.wrong == 0)
    hec_text_printf(out, "check passed: %" PRId64 " bytes compared\n", c->check.compared);
  else
    hec_text_printf(out, "check FAILED: %" PRId64 " of %" PRId64 " bytes are wrong\n", c->check.wrong,
                    c->check.compared);
}

static hec_status show(const command *c) {
  int64_t between = 0, inside = 0;
  HEC_SCOPED(hec_text) out = {0};
  for (int32_t i = 0; i < c->matrix.n * c->matrix.n; i++)
    *(i % (c->matrix.n + 1) == 0 ? &inside : &between) += c->matrix.bytes[i];
  if (c->s->json) {
    json_report(c, between, inside, &out);
  } else {
    add_head(c, between, inside, &out);
    hec_text_printf(&out, "\n%-10s %13s %13s %13s %12s %12s\n", "time, us", "median", "min", "max", "algbw, GB/s",
                    "busbw, GB/s");
    add_row("measured", &c->measured, true, &out);
    if (c->s->job.cluster)
      add_row("predicted", &c->predicted, false, &out);
    add_tail(c, &out);
  }
  HEC_TRY(hec_output_print(&out));
  const hec_alltoallv_check *k = &c->check;
  if (k->wrong == 0)
    return HEC_OK;
  return hec_fail(HEC_FAILED,
                  "--check: %" PRId64 " bytes are wrong, the first in exchange %" PRId32 " on rank %" PRId32
                  ": byte %" PRId64 " of what rank %" PRId32 " sent to it",
                  k->wrong, k->iteration + 1, k->rank, k->offset, k->source);
}

/* ---- The run ---- */

static hec_status launch(command *c) {
  const settings *s = c->s;
  int32_t n = (int32_t)s->iterations;
  const hec_alltoallv job = {.matrix = &c->matrix, .warmup = (int32_t)s->warmup, .iterations = n, .check = s->check};
  const hec_launch_options how = {.threads = s->target.threads,
                                  .pin = s->target.pin,
                                  .transport = c->target.transport,
                                  .link = c->target.link,
                                  .cluster = s->job.cluster ? &c->cluster : NULL,
                                  .limit_s = s->target.timeout};
  double *seconds = HEC_NEW(&c->arena, double, n);
  if (c->target.backend->speaks())
    hec_execution_warn(&c->execution, &c->target, s->target.pin, "");
  c->launched = true;
  HEC_TRY(hec_alltoallv_run(&job, c->target.backend, how, seconds, &c->check));
  if (!c->target.backend->speaks())
    return HEC_OK;
  hec_values_sort(seconds, n);
  c->measured = (times){.median = hec_values_quantile(seconds, n, 0.5), .min = seconds[0], .max = seconds[n - 1]};
  c->measured.rate = hec_traffic_rates(hec_traffic_matrix_size(&c->matrix), c->matrix.n, c->measured.median);
  return show(c);
}

static hec_status run(command *c) {
  const settings *s = c->s;
  int32_t launched = 0;
  HEC_TRY(hec_target_open(&s->target, &c->target, &launched));
  HEC_TRY(hec_traffic_matrix_read(s->matrix, &c->arena, &c->matrix));
  HEC_TRY(check_ranks(c, launched));
  HEC_TRY(hec_target_choose_link(&s->target, &c->target, c->matrix.n));
  HEC_TRY(predict(c));
  describe(c);
  HEC_TRY(check_memory(c));
  return launch(c);
}

int hec_alltoallv_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-run", status);
  if (hec_target_list(&s.target, s.list))
    return hec_tool_exit("hecate-run", HEC_OK);
  command c = {.s = &s};
  status = run(&c);
  hec_execution_free(&c.execution);
  hec_arena_free(&c.arena);
  return hec_target_exit(&c.target, "hecate-run", status, c.launched);
}
