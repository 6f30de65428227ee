/* hecate-trace: make and inspect recorded expert loads. Sub-commands are rows of a table; exit codes 0 done, 1 the run
 * failed, 2 bad input or usage. */
#include "runtime/base/temporary.h"
#include "tools/common/import_command.h"
#include "tools/common/output.h"
#include "traces/synth.h"
#include "traces/trace_info.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] = "usage: hecate-trace COMMAND [OPTION]...\n"
                           "\n"
                           "Expert loads of Mixture-of-Experts models: how many token-expert assignments each\n"
                           "source rank sends to each expert of each layer, record by record.\n"
                           "\n"
                           "  info TRACE    shape, imbalance, idle experts and drift of a trace\n"
                           "  import INPUT  make a trace of what another recorder wrote (--list: which)\n"
                           "  convert TRACE JSON Lines or one JSON object, plain or gzip\n"
                           "  synth         make a synthetic trace\n"
                           "\n"
                           "  -h, --help    this text; hecate-trace COMMAND --help says more\n"
                           "  --version     version\n"
                           "\n"
                           "examples:\n"
                           "  hecate-trace info trace.jsonl.gz\n"
                           "  hecate-trace synth --workload W2 --out hot-rank.jsonl\n"
                           "\n"
                           "The form of a trace, with the smallest one: traces/README.md.\n";

static const char info_help[] =
    "usage: hecate-trace info TRACE [OPTION]...\n"
    "\n"
    "Reads a trace (JSON Lines, one JSON object, or gzip of either; - is standard input)\n"
    "once and prints what its loads are like. Memory does not grow with the trace.\n"
    "\n"
    "  --ranks R       expert-parallel ranks for the overload factor: expert e of E on rank\n"
    "                  floor(e*R/E) (default: ranks of the header, else its source_ranks if\n"
    "                  above 1, else 8)\n"
    "  --lags A,B,...  lags of the drift, in records (default 1,5,10,20; at most 16 of 1..1000)\n"
    "  --json          one JSON document instead of the table\n"
    "  -h, --help      this text\n"
    "\n"
    "Percentiles are at most 1e-4 off (relative for overload factor, hottest expert and CV,\n"
    "absolute for Gini, correlation and change of share); smallest and largest are exact.\n"
    "\n"
    "examples:\n"
    "  hecate-trace info trace.jsonl --ranks 32\n"
    "  hecate-trace info trace.jsonl.gz --lags 1,5,9,20 --json\n";

static const char synth_help_begin[] =
    "usage: hecate-trace synth --workload W --out FILE [OPTION]...\n"
    "\n"
    "Makes a trace of synthetic loads, marked so in its header. Same options, same bytes.\n"
    "\n"
    "workloads:\n";

static const char synth_help_end[] =
    "\n"
    "  --workload W        name or number from the list above (required)\n"
    "  --out FILE          where to; ends in .gz: compressed; - is standard output (required)\n"
    "  --layers N          MoE layers (12)\n"
    "  --experts N         experts of a layer (64)\n"
    "  --top-k N           different experts of a token (2)\n"
    "  --source-ranks N    data-parallel ranks that send tokens (32)\n"
    "  --tokens N          tokens per source rank and layer; every row sums to N * top-k (2048)\n"
    "  --iterations N      records (100)\n"
    "  --seed N            (1)\n"
    "  --sigma X           lognormal: standard deviation of the log popularity (1)\n"
    "  --exponent X        zipf: popularity of the k-th expert is k^-X (1)\n"
    "  --drift L:R,...     lognormal and zipf: median correlation R of a layer's loads with those\n"
    "                      L records earlier (L up to 100), within 0.03; without it the\n"
    "                      popularity stands still\n"
    "  --switch I          popularity is drawn anew at iteration I\n"
    "  --hot-share X       W1 W2 W3 W6 W7: share of the assignments for the hot experts (0.5)\n"
    "  --hot-experts N     W1: how many (default: as many as a rank holds)\n"
    "  --idle-share X      W5: share of the experts without tokens (0.25)\n"
    "  --period N          W6, W7: iterations (20)\n"
    "  --affinity X        transitions between layers, written to the header: 0 the next layer's\n"
    "                      experts do not depend on this one's, 1 as much as can be (none)\n"
    "  --ranks R           ranks the hot ones are among; written to the header (default:\n"
    "                      source ranks if above 1, else 8)\n"
    "  --name TEXT         name of the trace\n"
    "  --shape NAME        model preset for the simulator, written to the header\n"
    "  -h, --help          this text\n"
    "\n"
    "examples:\n"
    "  hecate-trace synth --workload hot-rank --hot-share 0.4 --out w2.jsonl\n"
    "  hecate-trace synth --workload zipf --exponent 1.2 --switch 50 --out zipf.jsonl.gz\n"
    "  hecate-trace synth --workload lognormal --drift 1:0.96,5:0.89,9:0.76,20:0.33 --out drift.jsonl\n"
    "      (the drift measured in training by LAER-MoE)\n";

/* ---- arguments ---- */

/* getopt's own messages are silenced: ours name the command and where help is. */
static hec_status unknown_option(const char *command, char **argv, int option) {
  const char *word = argv[optind - 1];
  return hec_fail(HEC_BAD_INPUT,
                  option == ':' ? "%s: %s wants a value (hecate-trace %s --help)"
                                : "%s: unknown option %s (hecate-trace %s --help)",
                  command, word, command);
}

static hec_status parse_integer(const char *option, const char *text, int64_t least, int64_t most, int64_t *value) {
  char *end = NULL;
  errno = 0;
  long long parsed = strtoll(text, &end, 10);
  if (end == text || *end || errno || strspn(text, "0123456789") != strlen(text) || parsed < least || parsed > most)
    return hec_fail(HEC_BAD_INPUT, "--%s: expected a whole number from %" PRId64 " to %" PRId64 ", found \"%.40s\"",
                    option, least, most, text);
  *value = parsed;
  return HEC_OK;
}

/* No hexadecimal, no blanks, neither infinity nor NaN: as in every tool. */
static bool is_plain(const char *text, const char *end) {
  return text + strspn(text, "0123456789+-.eE") >= end;
}

static hec_status parse_real(const char *option, const char *text, double *value) {
  char *end = NULL;
  *value = strtod(text, &end);
  if (end == text || *end || !is_plain(text, end) || !(*value - *value == 0))
    return hec_fail(HEC_BAD_INPUT, "--%s: expected a number in plain decimals, found \"%.40s\"", option, text);
  return HEC_OK;
}

static hec_status one_argument(int argc, char **argv, const char *what, const char **argument) {
  if (optind >= argc)
    return hec_fail(HEC_BAD_INPUT, "%s: expected %s (hecate-trace %s --help)", argv[0], what, argv[0]);
  if (optind + 1 < argc)
    return hec_fail(HEC_BAD_INPUT, "%s: expected one %s, found \"%.40s\" too", argv[0], what, argv[optind + 1]);
  *argument = argv[optind];
  return HEC_OK;
}

/* ---- info ---- */

static hec_status parse_lags(const char *text, hec_trace_info_options *options) {
  char copy[256], *rest = NULL;
  if (strlen(text) >= sizeof copy)
    return hec_fail(HEC_BAD_INPUT, "--lags: expected at most %d numbers", HEC_DRIFT_LAGS);
  memcpy(copy, text, strlen(text) + 1);
  options->n_lags = 0;
  for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    int64_t lag = 0;
    if (options->n_lags == HEC_DRIFT_LAGS)
      return hec_fail(HEC_BAD_INPUT, "--lags: expected at most %d numbers", HEC_DRIFT_LAGS);
    HEC_TRY(parse_integer("lags", word, 1, HEC_DRIFT_LAG_MAX, &lag));
    options->lags[options->n_lags++] = (int32_t)lag;
  }
  return options->n_lags > 0 ? HEC_OK : hec_fail(HEC_BAD_INPUT, "--lags: expected numbers, found none");
}

static hec_status print(const char *text, size_t length) {
  bool written = fwrite(text, 1, length, stdout) == length;
  if (fflush(stdout) != 0 || !written)
    return hec_fail(HEC_FAILED, "standard output: cannot be written: %s", strerror(errno));
  return HEC_OK;
}

static hec_status show_info(const char *path, const hec_trace_info_options *options, bool as_json) {
  hec_trace_reader *reader = NULL;
  hec_trace_info info;
  hec_text text = {0};
  HEC_TRY(hec_trace_open(path, &reader));
  hec_status status = hec_trace_info_read(reader, options, &info);
  if (status == HEC_OK) {
    (as_json ? hec_trace_info_json : hec_trace_info_table)(&info, hec_trace_header_of(reader), path, &text);
    status = print(text.data, text.length);
  }
  hec_text_free(&text);
  hec_trace_close(reader);
  return status;
}

static hec_status run_info(int argc, char **argv) {
  static const struct option options[] = {{"ranks", required_argument, NULL, 'r'},
                                          {"lags", required_argument, NULL, 'l'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
  hec_trace_info_options wanted = {.n_lags = 4, .lags = {1, 5, 10, 20}};
  bool as_json = false;
  for (int option = 0; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
    int64_t ranks = 0;
    if (option == 'h')
      return print(info_help, strlen(info_help));
    if (option == 'r') {
      HEC_TRY(parse_integer("ranks", optarg, 1, 1 << 20, &ranks));
      wanted.ranks = (int32_t)ranks;
    } else if (option == 'l') {
      HEC_TRY(parse_lags(optarg, &wanted));
    } else if (option == 'j') {
      as_json = true;
    } else {
      return unknown_option(argv[0], argv, option);
    }
  }
  const char *path = NULL;
  HEC_TRY(one_argument(argc, argv, "a trace", &path));
  return show_info(path, &wanted, as_json);
}

/* ---- synth ---- */

typedef enum { TO_TEXT, TO_INT32, TO_INT64, TO_REAL, TO_DRIFT, TO_OUT, TO_HELP } value_kind;

static const struct {
  const char *name;
  value_kind kind;
  size_t offset; /* in hec_synth_options */
} synth_options[] = {{"workload", TO_TEXT, offsetof(hec_synth_options, workload)},
                     {"layers", TO_INT32, offsetof(hec_synth_options, n_layers)},
                     {"experts", TO_INT32, offsetof(hec_synth_options, n_experts)},
                     {"top-k", TO_INT32, offsetof(hec_synth_options, top_k)},
                     {"source-ranks", TO_INT32, offsetof(hec_synth_options, n_sources)},
                     {"ranks", TO_INT32, offsetof(hec_synth_options, ranks)},
                     {"hot-experts", TO_INT32, offsetof(hec_synth_options, n_hot)},
                     {"period", TO_INT32, offsetof(hec_synth_options, period)},
                     {"tokens", TO_INT64, offsetof(hec_synth_options, tokens)},
                     {"iterations", TO_INT64, offsetof(hec_synth_options, n_iterations)},
                     {"switch", TO_INT64, offsetof(hec_synth_options, switch_iter)},
                     {"seed", TO_INT64, offsetof(hec_synth_options, seed)},
                     {"sigma", TO_REAL, offsetof(hec_synth_options, sigma)},
                     {"exponent", TO_REAL, offsetof(hec_synth_options, exponent)},
                     {"hot-share", TO_REAL, offsetof(hec_synth_options, hot_share)},
                     {"idle-share", TO_REAL, offsetof(hec_synth_options, idle_share)},
                     {"affinity", TO_REAL, offsetof(hec_synth_options, affinity)},
                     {"name", TO_TEXT, offsetof(hec_synth_options, name)},
                     {"shape", TO_TEXT, offsetof(hec_synth_options, shape)},
                     {"drift", TO_DRIFT, 0},
                     {"out", TO_OUT, 0},
                     {"help", TO_HELP, 0}};
enum { N_SYNTH_OPTIONS = sizeof synth_options / sizeof *synth_options };

/* "1:0.96,5:0.89" */
static hec_status parse_drift(const char *text, hec_synth_options *options) {
  options->n_knots = 0;
  for (const char *p = text;; p++) {
    char *end = NULL;
    long lag = strtol(p, &end, 10);
    bool good = end != p && *end == ':' && lag > 0 && lag <= HEC_SYNTH_LAG_MAX && options->n_knots < HEC_SYNTH_KNOTS;
    p = good ? end + 1 : p;
    double correlation = good ? strtod(p, &end) : 0;
    if (!good || end == p || !is_plain(p, end) || (*end && *end != ','))
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

static hec_status parse_synth_option(int which, const char *text, hec_synth_options *options, const char **out) {
  const char *name = synth_options[which].name;
  void *to = (char *)options + synth_options[which].offset;
  int64_t value = 0;
  switch (synth_options[which].kind) {
  case TO_TEXT:
    *(const char **)to = text;
    return HEC_OK;
  case TO_OUT:
    *out = text;
    return HEC_OK;
  case TO_INT32:
    HEC_TRY(parse_integer(name, text, 0, INT32_MAX, &value));
    *(int32_t *)to = (int32_t)value;
    return HEC_OK;
  case TO_INT64: /* the seed too: it is not negative */
    return parse_integer(name, text, 0, INT64_C(1) << 53, to);
  case TO_REAL:
    return parse_real(name, text, to);
  case TO_DRIFT:
    return parse_drift(text, options);
  case TO_HELP:
    break;
  }
  return HEC_OK;
}

static hec_status print_synth_help(void) {
  hec_text text = {0};
  hec_text_add(&text, synth_help_begin);
  for (const hec_synth_workload *w = hec_synth_workloads; w->name; w++)
    hec_text_printf(&text, "  %-10s %-18s %s\n", w->name, strcmp(w->name, w->alias) == 0 ? "" : w->alias, w->summary);
  hec_text_add(&text, synth_help_end);
  hec_status status = print(text.data, text.length);
  hec_text_free(&text);
  return status;
}

static hec_status run_synth(int argc, char **argv) {
  struct option options[N_SYNTH_OPTIONS + 1] = {{NULL, 0, NULL, 0}};
  for (int i = 0; i < N_SYNTH_OPTIONS; i++)
    options[i] = (struct option){synth_options[i].name,
                                 synth_options[i].kind == TO_HELP ? no_argument : required_argument, NULL, 256 + i};
  hec_synth_options wanted = hec_synth_defaults();
  const char *out = NULL;
  for (int option = 0; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
    if (option == 'h' || (option >= 256 && synth_options[option - 256].kind == TO_HELP))
      return print_synth_help();
    if (option < 256)
      return unknown_option(argv[0], argv, option);
    HEC_TRY(parse_synth_option(option - 256, optarg, &wanted, &out));
  }
  if (optind < argc)
    return hec_fail(HEC_BAD_INPUT, "synth: expected options only, found \"%.40s\"", argv[optind]);
  HEC_TRY(hec_synth_check(&wanted));
  if (!out)
    return hec_fail(HEC_BAD_INPUT, "synth: expected --out FILE (hecate-trace synth --help)");
  if (strcmp(out, "-") != 0)
    HEC_TRY(hec_output_check_file("--out", out));
  return hec_synth_write(&wanted, out);
}

/* ---- main ---- */

static const struct {
  const char *name;
  hec_status (*run)(int argc, char **argv);
} commands[] = {
    {"import", hec_import_command}, {"convert", hec_convert_command}, {"info", run_info}, {"synth", run_synth}};

static hec_status run_command(int argc, char **argv) {
  if (argc < 2)
    return hec_fail(HEC_BAD_INPUT, "expected a command: import, convert, info or synth (hecate-trace --help)");
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
    return print(help, strlen(help));
  if (strcmp(argv[1], "--version") == 0)
    return print("hecate-trace " HEC_VERSION "\n", strlen("hecate-trace " HEC_VERSION "\n"));
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (strcmp(argv[1], commands[i].name) == 0)
      return commands[i].run(argc - 1, argv + 1);
  return hec_fail(HEC_BAD_INPUT,
                  "unknown command \"%.40s\": expected import, convert, info or synth (hecate-trace --help)", argv[1]);
}

int main(int argc, char **argv) {
  hec_output_hold_standard();
  hec_temporary_watch_signals();
  hec_status status = run_command(argc, argv);
  if (status != HEC_OK)
    fprintf(stderr, "hecate-trace: %s\n", hec_last_error());
  return (int)status;
}
