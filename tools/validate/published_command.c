/* hecate-validate published: options, progress, report; of the FSSDP paper, or with --system of others. */
#include "runtime/base/progress.h"
#include "runtime/base/table.h"
#include "tools/front/args.h"
#include "tools/front/colour.h"
#include "tools/front/data.h"
#include "tools/front/output.h"
#include "tools/validate/report_out.h"
#include "tools/validate/validate_commands.h"
#include "validate/published/published.h"
#include "validate/published/system.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  hec_published_options options;
  const char *out, *system;
  int64_t seed;
  bool json, synthetic;
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  static const hec_table systems = {.rows = hec_systems, .also = "all, list"};
  *s = (settings){.seed = 1};
  const hec_arg args[] = {
      {"--system", HEC_ARG_TEXT, &s->system, "NAME",
       "whose numbers: hecate (default), another row of `--system list`, or all of those", 0, 0},
      {"--cluster-a", HEC_ARG_TEXT, &s->options.cluster_a, "C",
       "of hecate, cluster A: preset, one-line form or file (p3dn-4x8)", 0, 0},
      {"--cluster-b", HEC_ARG_TEXT, &s->options.cluster_b, "C", "of hecate, cluster B (p4d-4x8)", 0, 0},
      {"--trace", HEC_ARG_TEXT, &s->options.trace, "FILE",
       "of hecate, recorded loads of 32 experts, top-2 (default: traces/smartmoe_gpt_e32_r16.jsonl below "
       "$HECATE_SHARED or "
       "../shared, if it is there)",
       0, 0},
      {"--synthetic", HEC_ARG_FLAG, &s->synthetic, NULL, "no recorded loads even if there are any", 0, 0},
      {"--seed", HEC_ARG_INT, &s->seed, "N", "of the synthetic loads (1)", 0, 1e15},
      {"--quick", HEC_ARG_FLAG, &s->options.quick, NULL, "few models and iterations: seconds, for tests", 0, 0},
      {"--stamp", HEC_ARG_TEXT, &s->options.stamp, "TEXT", "a line for the heading, such as date and commit", 0, 0},
      {"--out", HEC_ARG_TEXT, &s->out, "FILE", "write the report " HEC_REPORT_OUT, 0, 0},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-validate published",
      .own = "--system",
      .names = &systems,
      .usage = "hecate-validate published [options]",
      .summary =
          "Simulates the set-ups of the FSSDP paper (arXiv 2502.02581) and prints its numbers beside ours: with the\n"
          "inputs it leaves open at plain defaults, with the best single set of them, and how each row moves when one\n"
          "of them changes. About two minutes on one core.\n"
          "With --system: the set-ups of another system with public numbers, or of all of them.",
      .examples = "  hecate-validate published --out published.md\n  hecate-validate published --synthetic --json\n"
                  "  hecate-validate published --system all --out systems.md",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

/* The default trace when it can be read; free the result. NULL without. */
static char *default_trace(void) {
  hec_text path = {0};
  hec_data_shared("traces/smartmoe_gpt_e32_r16.jsonl", &path);
  if (access(path.data, R_OK) == 0)
    return path.data;
  hec_text_free(&path);
  return NULL;
}

static void show_progress(const char *what, int32_t done, int32_t of, void *context) {
  (void)context;
  hec_progress_doing(what, NULL);
  hec_progress_at(done, of, 0);
}

static hec_status run_hecate(settings *s) {
  if (s->synthetic && s->options.trace)
    return hec_fail(HEC_BAD_INPUT, "--synthetic and --trace exclude each other");
  s->options.cluster_a = s->options.cluster_a ? s->options.cluster_a : "p3dn-4x8";
  s->options.cluster_b = s->options.cluster_b ? s->options.cluster_b : "p4d-4x8";
  if (s->out)
    HEC_TRY(hec_output_check_file("--out", s->out));
  HEC_TRY(hec_paths_check((const hec_path_use[]){{"--trace", s->options.trace, false},
                                                 {"--cluster-a", s->options.cluster_a, false},
                                                 {"--cluster-b", s->options.cluster_b, false},
                                                 {"--out", s->out, true}},
                          4));
  char *found = s->synthetic || s->options.trace ? NULL : default_trace();
  s->options.trace = found ? found : s->options.trace;
  s->options.seed = (uint64_t)s->seed;
  s->options.progress = show_progress;
  hec_progress_stage("simulating", "cells");
  HEC_OPENED(hec_published) *published = NULL;
  hec_status status = hec_published_run(&s->options, &published);
  hec_report_texts texts = {.shown = {0}};
  if (status == HEC_OK) {
    hec_report_make(hec_published_report, published, s->json ? HEC_DOC_JSON : HEC_DOC_MARKDOWN, 1, &texts);
    status = hec_report_print(&texts, s->out);
  }
  free(found);
  return status;
}

/* ---- other systems ---- */

static hec_status list_systems(bool json) {
  HEC_SCOPED(hec_text) text = {0};
  HEC_TRY(hec_systems_list(json, &text));
  return hec_output_print(&text);
}

static hec_status find_system(const char *name, const hec_system **system) {
  static const hec_table rows = {
      .rows = hec_systems, .also = "hecate, all", .list = "hecate-validate published --system list"};
  *system = hec_system_find(name);
  return *system || strcmp(name, "all") == 0 ? HEC_OK : hec_table_unknown(&rows, "--system", name);
}

static hec_status run_systems(settings *s) {
  const hec_system *system;
  HEC_TRY(find_system(s->system, &system));
  if (s->options.trace || s->options.cluster_a || s->options.cluster_b)
    return hec_fail(HEC_BAD_INPUT, "--trace, --cluster-a and --cluster-b belong to --system hecate");
  if (s->out)
    HEC_TRY(hec_output_check_file("--out", s->out));
  HEC_SCOPED(hec_text) shared = {0};
  hec_data_shared(".", &shared);
  hec_system_options options = {.seed = (uint64_t)s->seed, .stamp = s->options.stamp, .quick = s->options.quick};
  options.shared = s->synthetic || access(shared.data, R_OK) != 0 ? NULL : shared.data;
  options.progress = show_progress;
  hec_progress_stage("simulating", "cells");
  HEC_OPENED(hec_system_report) *report = NULL;
  hec_status status = hec_systems_run(system, &options, &report);
  hec_report_texts texts = {.shown = {0}};
  if (status == HEC_OK) {
    hec_doc_write(hec_systems_report, report, HEC_DOC_MARKDOWN, 0, &texts.markdown);
    hec_report_show(hec_systems_report, report, s->json, &texts);
    status = hec_report_print(&texts, s->out);
  }
  return status;
}

int hec_published_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = !s.system || strcmp(s.system, "hecate") == 0 ? run_hecate(&s)
             : strcmp(s.system, "list") == 0              ? list_systems(s.json)
                                                          : run_systems(&s);
  return hec_tool_exit("hecate-validate", status);
}
