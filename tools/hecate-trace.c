/* hecate-trace: make and inspect recorded expert loads. Sub-commands are rows of a table; exit codes 0 done, 1 the run
 * failed, 2 bad input or usage. */
#include "runtime/base/temporary.h"
#include "tools/front/args.h"
#include "tools/front/options.h"
#include "tools/front/output.h"
#include "tools/front/tool.h"
#include "tools/trace/import_command.h"
#include "traces/synth.h"
#include "traces/trace_info.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- info ---- */

static hec_status show_info(const char *path, const hec_trace_info_options *options, bool as_json) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  hec_trace_info info;
  HEC_SCOPED(hec_text) text = {0};
  HEC_TRY(hec_trace_open(path, &reader));
  hec_status status = hec_trace_info_read(reader, options, &info);
  if (status == HEC_OK) {
    (as_json ? hec_trace_info_json : hec_trace_info_table)(&info, hec_trace_header_of(reader), path, &text);
    status = hec_output_print(&text);
  }
  return status;
}

typedef struct {
  hec_trace_info_options info;
  const char *path, *lags;
  int64_t ranks;
  bool json;
} info_settings;

static hec_status parse_info(int argc, char **argv, info_settings *s, bool *done) {
  *s = (info_settings){.info = {.n_lags = 4, .lags = {1, 5, 10, 20}}};
  const hec_arg args[] = {
      HEC_ARG_WHOLE("--ranks", s->ranks, "R",
                    "expert-parallel ranks for the overload factor: expert e of E on rank floor(e*R/E). Default: ranks "
                    "of the header, or its source_ranks if above 1, or 8; at most the experts.",
                    1, 1 << 20),
      HEC_ARG_WORD("--lags", s->lags, "A,B,...",
                   "lags of the drift, in records (default 1,5,10,20; at most 16 of 1..1000)"),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document instead of the table", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-trace info",
      .usage = "hecate-trace info TRACE [options]",
      .summary = "Reads a trace (JSON Lines, one JSON object, or gzip of either; - is standard input) once and prints "
                 "what its\nloads are like. Memory does not grow with the trace.\n\n"
                 "Percentiles are at most 1e-4 off (relative for overload factor, hottest expert and CV, absolute for "
                 "Gini,\ncorrelation and change of share); smallest and largest are exact.",
      .examples = "  hecate-trace info trace.jsonl --ranks 32\n"
                  "  hecate-trace info trace.jsonl.gz --lags 1,5,9,20 --json",
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&command, argc, argv, &s->path, 1, &n, done));
  if (*done)
    return HEC_OK;
  s->info.ranks = (int32_t)s->ranks;
  if (s->lags)
    HEC_TRY(hec_args_wholes(&(hec_args_list){"--lags", 1, HEC_DRIFT_LAG_MAX, HEC_DRIFT_LAGS}, s->lags, s->info.lags,
                            &s->info.n_lags));
  return n > 0 ? HEC_OK : hec_fail(HEC_BAD_INPUT, "info: expected a trace; see hecate-trace info --help");
}

static int info_command(int argc, char **argv) {
  info_settings s;
  bool done;
  hec_status status = parse_info(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = show_info(s.path, &s.info, s.json);
  return hec_tool_exit("hecate-trace", status);
}

/* ---- synth ---- */

typedef struct {
  hec_synth_options o;
  const char *drift, *out;
} synth_settings;

/* "1:0.96,5:0.89" */
static hec_status parse_drift(const char *text, hec_synth_options *options) {
  options->n_knots = 0;
  for (const char *p = text;; p++) {
    int64_t lag = 0;
    const char *colon = hec_args_whole(p, HEC_SYNTH_LAG_MAX, &lag);
    bool good = colon && *colon == ':' && lag > 0 && options->n_knots < HEC_SYNTH_KNOTS;
    const char *end = NULL;
    double correlation = 0;
    p = good ? colon + 1 : p;
    if (!good || !hec_number_read(p, &end, &correlation) || (*end && *end != ','))
      return hec_fail(HEC_BAD_INPUT,
                      "--drift: expected LAG:CORRELATION,... (at most %d, lags 1 to %d), found \"%.60s\"",
                      HEC_SYNTH_KNOTS, HEC_SYNTH_LAG_MAX, text);
    options->lag[options->n_knots] = (int32_t)lag;
    options->correlation[options->n_knots++] = correlation;
    p = end;
    if (!*p)
      return HEC_OK;
  }
}

static void list_workloads(hec_text *text) {
  hec_text_add(text,
               "Makes a trace of synthetic loads, marked so in its header. Same options, same bytes.\n\nWorkloads:\n");
  for (const hec_synth_workload *w = hec_synth_workloads; w->name; w++)
    hec_text_printf(text, "  %-10s %-18s %s%s", w->name, strcmp(w->name, w->alias) == 0 ? "" : w->alias, w->summary,
                    w[1].name ? "\n" : "");
}

#define SYNTH(keys) HEC_ARG_USE("", &s->o, hec_synth_rows, HEC_N_SYNTH_ROWS, keys, NULL)

static hec_status parse_synth(int argc, char **argv, synth_settings *s, bool *done) {
  *s = (synth_settings){.o = hec_synth_defaults()};
  const hec_arg args[] = {
      SYNTH("workload"),
      HEC_ARG_WORD("--out", s->out, "FILE", "where to; ends in .gz: compressed; - is standard output (required)"),
      SYNTH("layers experts top_k source_ranks tokens iterations seed sigma exponent"),
      HEC_ARG_WORD("--drift", s->drift, "L:R,...",
                   "lognormal and zipf: median correlation R of a layer's loads with those L records earlier (L up to "
                   "100), within 0.03. Without it the popularity stands still."),
      SYNTH("switch hot_share hot_experts idle_share period affinity ranks name shape"),
      {.name = NULL}};
  HEC_SCOPED(hec_text) summary = {0};
  list_workloads(&summary);
  const hec_command command = {
      .program = "hecate-trace synth",
      .usage = "hecate-trace synth --workload W --out FILE [options]",
      .summary = summary.data,
      .examples = "  hecate-trace synth --workload hot-rank --hot-share 0.4 --out w2.jsonl\n"
                  "  hecate-trace synth --workload zipf --exponent 1.2 --switch 50 --out zipf.jsonl.gz\n"
                  "  hecate-trace synth --workload lognormal --drift 1:0.96,5:0.89,9:0.76,20:0.33 --out drift.jsonl\n\n"
                  "The last one has the drift measured in training by LAER-MoE.",
      .first = "--workload --out --layers --experts --top-k --source-ranks --tokens --iterations --seed --drift",
      .args = args};
  int32_t n;
  return hec_args_parse(&command, argc, argv, NULL, 0, &n, done);
}

static hec_status take_synth(synth_settings *s) {
  hec_synth_options *o = &s->o;
  if (s->drift)
    HEC_TRY(parse_drift(s->drift, o));
  HEC_TRY(hec_synth_check(o));
  if (!s->out)
    return hec_fail(HEC_BAD_INPUT, "synth: expected --out FILE; see hecate-trace synth --help");
  HEC_TRY(hec_output_check_stream(s->out));
  return hec_synth_write(o, s->out);
}

static int synth_command(int argc, char **argv) {
  synth_settings s;
  bool done;
  hec_status status = parse_synth(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = take_synth(&s);
  return hec_tool_exit("hecate-trace", status);
}

/* ---- main ---- */

static const hec_tool_command commands[] = {
    {"info", "shape, imbalance, idle experts and drift of a trace", info_command, NULL},
    {"import", "make a trace of what another recorder wrote (--list: which)", hec_import_command, NULL},
    {"convert", "JSON Lines or one JSON object, plain or gzip", hec_convert_command, NULL},
    {"synth", "make a synthetic trace", synth_command, NULL},
    {.name = NULL}};

int main(int argc, char **argv) {
  hec_output_hold_standard();
  hec_temporary_watch_signals();
  const hec_tool tool = {
      .name = "hecate-trace",
      .summary = "makes, reads and describes recorded expert loads",
      .description =
          "Expert loads of Mixture-of-Experts models: how many token-expert assignments each source rank sends "
          "to each\nexpert of each layer, record by record. The form of a trace, with the smallest one: "
          "traces/README.md.",
      .commands = commands};
  return hec_tool_main(&tool, argc, argv);
}
