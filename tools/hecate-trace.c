/* hecate-trace: make and inspect recorded expert loads. Sub-commands are rows of a table; exit codes 0 done, 1 the run
 * failed, 2 bad input or usage. */
#include "runtime/base/temporary.h"
#include "tools/front/args.h"
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
  hec_trace_reader *reader = NULL;
  hec_trace_info info;
  hec_text text = {0};
  HEC_TRY(hec_trace_open(path, &reader));
  hec_status status = hec_trace_info_read(reader, options, &info);
  if (status == HEC_OK) {
    (as_json ? hec_trace_info_json : hec_trace_info_table)(&info, hec_trace_header_of(reader), path, &text);
    status = hec_output_print(&text);
  }
  hec_text_free(&text);
  hec_trace_close(reader);
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
                    "expert-parallel ranks for the overload factor: expert e of E on rank floor(e*R/E) (default: ranks "
                    "of the header, else its source_ranks if above 1, else 8, but no more than experts)",
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

/* What rows of options write as numbers of other widths than hec_synth_options has. */
typedef struct {
  hec_synth_options o;
  int64_t layers, experts, top_k, source_ranks, ranks, hot_experts, period, seed;
  const char *drift, *out;
} synth_settings;

static synth_settings synth_defaults(void) {
  const hec_synth_options o = hec_synth_defaults();
  return (synth_settings){.o = o,
                          .layers = o.n_layers,
                          .experts = o.n_experts,
                          .top_k = o.top_k,
                          .source_ranks = o.n_sources,
                          .ranks = o.ranks,
                          .hot_experts = o.n_hot,
                          .period = o.period,
                          .seed = (int64_t)o.seed};
}

/* Where hec_synth_check, which knows the other options, has the bound. */
#define MOST_WHOLE 9007199254740992.0

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

static hec_status parse_synth(int argc, char **argv, synth_settings *s, bool *done) {
  *s = synth_defaults();
  const hec_arg args[] = {
      HEC_ARG_WORD("--workload", s->o.workload, "W", "name or number from the list above (required)"),
      HEC_ARG_WORD("--out", s->out, "FILE", "where to; ends in .gz: compressed; - is standard output (required)"),
      HEC_ARG_WHOLE("--layers", s->layers, "N", "MoE layers (default 12)", 0, INT32_MAX),
      HEC_ARG_WHOLE("--experts", s->experts, "N", "experts of a layer (default 64)", 0, INT32_MAX),
      HEC_ARG_WHOLE("--top-k", s->top_k, "N", "different experts of a token (default 2)", 0, INT32_MAX),
      HEC_ARG_WHOLE("--source-ranks", s->source_ranks, "N", "data-parallel ranks that send tokens (default 32)", 0,
                    INT32_MAX),
      HEC_ARG_WHOLE("--tokens", s->o.tokens, "N",
                    "tokens per source rank and layer; every row sums to N * top-k (default 2048)", 0, MOST_WHOLE),
      HEC_ARG_WHOLE("--iterations", s->o.n_iterations, "N", "records (default 100)", 0, MOST_WHOLE),
      HEC_ARG_WHOLE("--seed", s->seed, "N", "(default 1)", 0, MOST_WHOLE),
      HEC_ARG_REAL("--sigma", s->o.sigma, "X", "lognormal: standard deviation of the log popularity (default 1)", 0,
                   20),
      HEC_ARG_REAL("--exponent", s->o.exponent, "X", "zipf: popularity of the k-th expert is k^-X (default 1)", 0, 20),
      HEC_ARG_WORD("--drift", s->drift, "L:R,...",
                   "lognormal and zipf: median correlation R of a layer's loads with those L records earlier (L up to "
                   "100), within 0.03; without it the popularity stands still"),
      HEC_ARG_WHOLE("--switch", s->o.switch_iter, "I", "popularity is drawn anew at iteration I", 0, MOST_WHOLE),
      HEC_ARG_REAL("--hot-share", s->o.hot_share, "X",
                   "W1 W2 W3 W6 W7: share of the assignments for the hot experts (default 0.5)", 0, 1),
      HEC_ARG_WHOLE("--hot-experts", s->hot_experts, "N", "W1: how many (default: as many as a rank holds)", 0,
                    INT32_MAX),
      HEC_ARG_REAL("--idle-share", s->o.idle_share, "X", "W5: share of the experts without tokens (default 0.25)", 0,
                   1),
      HEC_ARG_WHOLE("--period", s->period, "N", "W6, W7: iterations (default 20)", 0, INT32_MAX),
      HEC_ARG_REAL(
          "--affinity", s->o.affinity, "X",
          "transitions between layers, written to the header: 0 the next layer's experts do not depend on this "
          "one's, 1 as much as can be (default: none)",
          0, 1),
      HEC_ARG_WHOLE("--ranks", s->ranks, "R",
                    "ranks the hot ones are among; written to the header (default: source ranks if above 1, else 8)", 0,
                    INT32_MAX),
      HEC_ARG_WORD("--name", s->o.name, "TEXT", "name of the trace"),
      HEC_ARG_WORD("--shape", s->o.shape, "NAME", "model preset for the simulator, written to the header"),
      {.name = NULL}};
  hec_text summary = {0};
  list_workloads(&summary);
  const hec_command command = {
      .program = "hecate-trace synth",
      .usage = "hecate-trace synth --workload W --out FILE [options]",
      .summary = summary.data,
      .examples = "  hecate-trace synth --workload hot-rank --hot-share 0.4 --out w2.jsonl\n"
                  "  hecate-trace synth --workload zipf --exponent 1.2 --switch 50 --out zipf.jsonl.gz\n"
                  "  hecate-trace synth --workload lognormal --drift 1:0.96,5:0.89,9:0.76,20:0.33 --out drift.jsonl\n\n"
                  "The last one has the drift measured in training by LAER-MoE.",
      .args = args};
  int32_t n;
  hec_status status = hec_args_parse(&command, argc, argv, NULL, 0, &n, done);
  hec_text_free(&summary);
  return status;
}

static hec_status take_synth(synth_settings *s) {
  hec_synth_options *o = &s->o;
  o->n_layers = (int32_t)s->layers;
  o->n_experts = (int32_t)s->experts;
  o->top_k = (int32_t)s->top_k;
  o->n_sources = (int32_t)s->source_ranks;
  o->ranks = (int32_t)s->ranks;
  o->n_hot = (int32_t)s->hot_experts;
  o->period = (int32_t)s->period;
  o->seed = (uint64_t)s->seed;
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
