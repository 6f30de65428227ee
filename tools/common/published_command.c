/* hecate-validate published: options, progress, report. */
#include "tools/common/args.h"
#include "tools/common/output.h"
#include "tools/common/validate_commands.h"
#include "validate/published/published.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
  hec_published_options options;
  const char *out;
  int64_t seed;
  bool json, synthetic;
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.options = {.cluster_a = "p3dn-4x8", .cluster_b = "p4d-4x8"}, .seed = 1};
  const hec_arg args[] = {
      {"--cluster-a", HEC_ARG_TEXT, &s->options.cluster_a, "C", "cluster A: preset, one-line form or file (p3dn-4x8)",
       0, 0},
      {"--cluster-b", HEC_ARG_TEXT, &s->options.cluster_b, "C", "cluster B (p4d-4x8)", 0, 0},
      {"--trace", HEC_ARG_TEXT, &s->options.trace, "FILE",
       "recorded loads of 32 experts, top-2 (default: traces/smartmoe_gpt_e32_r16.jsonl below $HECATE_SHARED or "
       "../shared, if it is there)",
       0, 0},
      {"--synthetic", HEC_ARG_FLAG, &s->synthetic, NULL, "no recorded loads even if there are any", 0, 0},
      {"--seed", HEC_ARG_INT, &s->seed, "N", "of the synthetic loads (1)", 0, 1e15},
      {"--quick", HEC_ARG_FLAG, &s->options.quick, NULL, "two models, few iterations: seconds, for tests", 0, 0},
      {"--stamp", HEC_ARG_TEXT, &s->options.stamp, "TEXT", "a line for the heading, such as date and commit", 0, 0},
      {"--out", HEC_ARG_TEXT, &s->out, "FILE", "write the report as Markdown", 0, 0},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-validate published",
      .usage = "hecate-validate published [options]",
      .summary =
          "Simulates the set-ups of the FSSDP paper (arXiv 2502.02581) and prints its numbers beside ours: with the\n"
          "inputs it leaves open at plain defaults, with the best single set of them, and how each row moves when one\n"
          "of them changes. About two minutes on one core.",
      .examples = "  hecate-validate published --out published.md\n  hecate-validate published --synthetic --json",
      .args = args};
  int32_t n;
  return hec_args_parse(&command, argc, argv, NULL, 0, &n, done);
}

/* The default trace when it can be read; free the result. NULL without. */
static char *default_trace(void) {
  hec_text path = {0};
  hec_output_shared("traces/smartmoe_gpt_e32_r16.jsonl", &path);
  if (access(path.data, R_OK) == 0)
    return path.data;
  hec_text_free(&path);
  return NULL;
}

static void show_progress(const char *what, int32_t done, int32_t of, void *context) {
  (void)context;
  fprintf(stderr, "\r\033[K%s %" PRId32 "/%" PRId32, what, done + 1, of);
}

static hec_status print(const settings *s, const hec_published *published) {
  hec_text text = {0}, markdown = {0};
  hec_published_markdown(published, &markdown);
  if (s->json)
    hec_published_json(published, &text);
  const hec_text *shown = s->json ? &text : &markdown;
  hec_status status = HEC_OK;
  if (s->out)
    status = hec_write_file(s->out, markdown.data, markdown.length);
  if (status == HEC_OK)
    status = hec_output_print(shown);
  hec_text_free(&text);
  hec_text_free(&markdown);
  return status;
}

int hec_published_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-validate", status);
  if (s.synthetic && s.options.trace)
    return hec_tool_exit("hecate-validate", hec_fail(HEC_BAD_INPUT, "--synthetic and --trace exclude each other"));
  char *found = s.synthetic || s.options.trace ? NULL : default_trace();
  s.options.trace = found ? found : s.options.trace;
  s.options.seed = (uint64_t)s.seed;
  bool terminal = isatty(STDERR_FILENO) == 1;
  s.options.progress = terminal ? show_progress : NULL;
  hec_published *published = NULL;
  status = hec_published_run(&s.options, &published);
  if (terminal)
    fprintf(stderr, "\r\033[K");
  if (status == HEC_OK)
    status = print(&s, published);
  hec_published_free(published);
  free(found);
  return hec_tool_exit("hecate-validate", status);
}
