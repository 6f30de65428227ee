/* hecate-trace import and convert: options into traces/, and what they say at the end. */
#include "tools/trace/import_command.h"

#include "runtime/base/arena.h"
#include "runtime/base/paths.h"
#include "runtime/base/progress.h"
#include "runtime/base/table.h"
#include "tools/front/args.h"
#include "tools/front/colour.h"
#include "tools/front/output.h"
#include "traces/convert.h"
#include "traces/import/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct {
  hec_import_options options;
  const char *out, *format;
  bool list;
} settings;

static hec_status parse(int argc, char **argv, settings *s, const char **words, int32_t *n_words, bool *done) {
  hec_import_options *o = &s->options;
  const hec_arg args[] = {
      HEC_ARG_TITLE("Where"),
      HEC_ARG_WORD("--out", s->out, "FILE", "where to; ends in .gz: compressed; - is standard output (required)"),
      HEC_ARG_WORD("--format", s->format, "F", "one of --list; without it content decides"),
      {"--list", HEC_ARG_FLAG, &s->list, NULL, "the formats, and who writes them", 0, 0},
      HEC_ARG_TITLE("What files do not say"),
      HEC_ARG_WHOLE("--top-k", o->top_k, "N", "experts of a token", 1, 1 << 20),
      HEC_ARG_WHOLE("--experts", o->experts, "N", "routed experts of a layer", 1, 1 << 20),
      HEC_ARG_WHOLE("--layers", o->layers, "N", "MoE layers, for recordings that are flat lists", 1,
                    HEC_IMPORT_LAYERS_MAX),
      HEC_ARG_WHOLE("--ranks", o->ranks, "R",
                    "files of ranks: how many there must be; recordings of requests: so many requests are the sources "
                    "of one iteration (default 1)",
                    1, 1 << 20),
      HEC_ARG_WHOLE("--ep", o->ep, "N", "ranks that share the experts, where a file counts its own (default: all)", 1,
                    1 << 20),
      HEC_ARG_WHOLE("--pp", o->pp, "N", "pipeline stages, each the next ranks, with the next layers (default 1)", 1,
                    1 << 20),
      HEC_ARG_WORD("--axes", o->axes, "NAMES",
                   "of a bare table, the slowest first. Ids of experts: tokens,layers,top_k or layers,tokens,top_k, "
                   "tokens,layers or layers,tokens (top-1), tokens,top_k (one layer). Counts: steps,layers,experts, "
                   "layers,experts (one step), steps,experts (one layer)"),
      HEC_ARG_WORD("--counted", o->counted, "WHEN", "before_drop or after_drop, where a capacity factor drops tokens"),
      HEC_ARG_WORD("--phase", o->phase, "P", "train, prefill, decode, prefill+decode or forward"),
      HEC_ARG_WORD("--method", o->method, "M", "of a table of several, the rows to take"),
      HEC_ARG_WORD("--model", o->model, "NAME", "model; of a table of several, also the rows to take"),
      HEC_ARG_WORD("--name", o->name, "TEXT", "name of the trace (default: of the file or folder)"),
      HEC_ARG_TITLE("What to take"),
      HEC_ARG_WHOLE("--from", o->first_step, "N", "first step (default: all)", 0, HEC_ITER_MAX),
      HEC_ARG_WHOLE("--until", o->last_step, "N", "last step: reading ends behind it", 0, HEC_ITER_MAX),
      {"--sum", HEC_ARG_FLAG, &o->sum, NULL, "add the micro-batches of a step up (default: a record each)", 0, 0},
      {"--gaps", HEC_ARG_FLAG, &o->gaps, NULL,
       "recordings with holes: steps and layers at any distance, experts without a line of a table have no tokens", 0,
       0},
      {"--renumber", HEC_ARG_FLAG, &o->renumber, NULL, "files of some ranks only: number them anew", 0, 0},
      {"--no-transitions", HEC_ARG_FLAG, &o->no_transitions, NULL,
       "do not count transitions between layers, where tokens were recorded", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-trace import",
      .usage = "hecate-trace import INPUT... --out FILE [option]...",
      .summary =
          "Makes a trace of what another recorder wrote. INPUT: files, folders (two levels deep) or patterns in\n"
          "quotes; gzip is undone; - is standard input, and pipes will do. Files of ranks are put together step by "
          "step,\n"
          "so a log may be of any length. What is derived is said (assumed), what is left out too. A missing step\n"
          "or layer is an error: they must be evenly spaced. So is a missing rank, but for the last ones: --ranks N "
          "checks.",
      .examples = "  hecate-trace import run/router_trace --experts 64 --out trace.jsonl.gz\n"
                  "  hecate-trace import 'eplb_load_*.jsonl' --top-k 8 --out trace.jsonl",
      .first = "--out --format --list --top-k --experts --layers --ranks --axes --counted --phase",
      .args = args};
  return hec_args_parse(&command, argc, argv, words, argc, n_words, done);
}

static void print_list(void) {
  for (size_t i = 0; hec_importers[i]; i++)
    hec_args_list_item(hec_importers[i]->name, "%s (%s)", hec_importers[i]->summary, hec_importers[i]->source);
}

static void describe(const hec_importer *format, const hec_import_result *r, const char *out, hec_text *text) {
  const hec_trace_header *h = &r->header;
  hec_text_printf(text, "%-9s %s: %" PRId64 " file%s", "from", format->name, r->n_files, r->n_files > 1 ? "s" : "");
  if (r->n_ranks > 1)
    hec_text_printf(text, ", %" PRId64 " ranks", r->n_ranks);
  hec_text_printf(text, "\n%-9s %d layer%s, %d experts, top-%d, ", "trace", (int)h->n_layers,
                  h->n_layers > 1 ? "s" : "", (int)h->n_experts, (int)h->top_k);
  if (h->per_source)
    hec_text_printf(text, "%d source ranks", (int)h->n_sources);
  else
    hec_text_printf(text, "totals over all ranks");
  hec_text_printf(text, "; %" PRId64 " record%s, iterations %" PRId64 " to %" PRId64 "%s\n", r->n_records,
                  r->n_records > 1 ? "s" : "", r->first_iter, r->last_iter,
                  h->transitions ? "; transitions between layers" : "");
  hec_text_printf(text, "%s%-9s %s\n%-9s %s\n", r->notes, "read", r->read.data, "written", out);
}

/* "-" as an input may be a file too. */
static hec_status check_input(const char *path, const char *out) {
  const hec_path_use uses[] = {{"--out", out, true},
                               {"the input", strcmp(path, "-") == 0 ? "/dev/stdin" : path, false}};
  return hec_paths_check(uses, 2);
}

static hec_status import_inputs(const settings *s, const hec_importer *format, const hec_import_inputs *inputs) {
  HEC_OPENED(hec_import) *job = NULL;
  hec_import_result result = {.n_files = 0};
  HEC_TRY(hec_import_begin(format, &s->options, inputs->input, (int32_t)inputs->n, &job));
  if (inputs->left_out.length > 0)
    hec_import_note(job, "left out", inputs->left_out.data);
  if (inputs->not_read.length > 0)
    hec_import_note(job, "left out", inputs->not_read.data);
  hec_status status = check_input(hec_import_beside(job), s->out);
  if (status == HEC_OK)
    status = hec_import_write(job, s->out, &result);
  if (status == HEC_OK) {
    HEC_SCOPED(hec_text) text = {0};
    describe(format, &result, s->out, &text);
    hec_progress_wipe();
    if (strcmp(s->out, "-") == 0)
      fputs(text.data, stderr);
    else
      status = hec_output_print(&text);
  }
  hec_text_free(&result.read);
  return status;
}

static hec_status run(const settings *s, const char *const *words, int32_t n_words) {
  const hec_importer *format = NULL;
  HEC_SCOPED(hec_import_inputs) inputs = {0};
  if (n_words == 0)
    return hec_fail(HEC_BAD_INPUT, "import: expected files, a folder or a pattern (hecate-trace import --help)");
  if (s->format && !(format = hec_importer_find(s->format)))
    return hec_table_unknown(&(hec_table){.rows = hec_importers, .list = "hecate-trace import --list"}, "--format",
                             s->format);
  if (!s->out)
    return hec_fail(HEC_BAD_INPUT, "import: expected --out FILE (hecate-trace import --help)");
  HEC_TRY(hec_output_check_stream(s->out));
  HEC_TRY(hec_import_find(words, n_words, &format, &inputs));
  hec_status status = HEC_OK;
  for (size_t i = 0; i < inputs.n && status == HEC_OK; i++)
    status = check_input(inputs.input[i].path, s->out);
  if (status == HEC_OK)
    status = import_inputs(s, format, &inputs);
  return status;
}

/* A file of every rank (and layer) is open at once: more than the 1024 that are usual. */
static void allow_files(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int hec_import_command(int argc, char **argv) {
  settings s = {.options = {.last_step = -1}};
  const char **words = hec_malloc((size_t)argc, sizeof *words);
  int32_t n_words = 0;
  bool done = false;
  hec_status status = parse(argc, argv, &s, words, &n_words, &done);
  if (status == HEC_OK && !done && s.list) {
    print_list();
  } else if (status == HEC_OK && !done) {
    allow_files();
    status = run(&s, words, n_words);
  }
  free(words);
  return hec_tool_exit("hecate-trace", status);
}

/* ---- convert ---- */

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static hec_status convert(const char *in, const char *out, const char *form) {
  int32_t object = ends_with(out, ".json") || ends_with(out, ".json.gz");
  hec_trace_converted result;
  if (form)
    HEC_TRY(hec_word_of("jsonl json", "--form", form, &object));
  HEC_TRY(hec_output_check_stream(out));
  HEC_TRY(check_input(in, out));
  HEC_TRY(hec_trace_convert(in, out, object ? HEC_FORM_OBJECT : HEC_FORM_LINES, &result));
  hec_progress_end();
  FILE *to = strcmp(out, "-") == 0 ? stderr : stdout;
  if (result.misspelt[0])
    fprintf(to, "%-9s the header has the key %s; copied, but nothing reads it\n", "unknown", result.misspelt);
  fprintf(to, "%s%-9s %s: %" PRId64 " record%s as %s\n",
          result.left_out ? "left out  members behind \"iterations\"\n" : "", "written", out, result.n_records,
          result.n_records > 1 ? "s" : "", object ? "one JSON object" : "JSON Lines");
  return HEC_OK;
}

static hec_status run_convert(int argc, char **argv) {
  const char *out = NULL, *form = NULL, *in = NULL;
  const hec_arg args[] = {
      HEC_ARG_WORD("--out", out, "FILE", "where to; ends in .gz: compressed; - is standard output (required)"),
      HEC_ARG_WORD("--form", form, "F", "jsonl or json (default: json for a FILE in .json or .json.gz, else jsonl)"),
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-trace convert",
      .usage = "hecate-trace convert TRACE --out FILE [option]...",
      .summary =
          "Copies a trace into another form: JSON Lines or one JSON object, plain or gzip. It is checked first. Keys,\n"
          "numbers and texts stay as they are, also those that hecate does not know; line ends and indentation do\n"
          "not, nor do members behind \"iterations\" of an object, in either form.",
      .examples = "  hecate-trace convert trace.json --out trace.jsonl.gz",
      .args = args};
  int32_t n = 0;
  bool done = false;
  HEC_TRY(hec_args_parse(&command, argc, argv, &in, 1, &n, &done));
  if (done)
    return HEC_OK;
  if (n == 0 || !out)
    return hec_fail(HEC_BAD_INPUT, "convert: expected %s (hecate-trace convert --help)",
                    n == 0 ? "a trace" : "--out FILE");
  return convert(in, out, form);
}

int hec_convert_command(int argc, char **argv) {
  return hec_tool_exit("hecate-trace", run_convert(argc, argv));
}
