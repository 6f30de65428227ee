/* hecate-validate outcomes: options, report, verdict. */
#include "tools/front/args.h"
#include "tools/front/output.h"
#include "tools/validate/report_out.h"
#include "tools/validate/validate_commands.h"
#include "validate/outcomes/outcomes.h"

typedef struct {
  hec_outcomes_options options;
  const char *out;
  bool json;
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.options = {.cluster = "a100-80g-4x8", .model = "mixtral-8x7b-e16k4", .first = -1}};
  const hec_arg args[] = {
      {"--cases", HEC_ARG_TEXT, &s->options.path, "FILE",
       "recorded outcomes (default: cases/outcomes/laer_mixtral_8x7b_e16k4.json below $HECATE_SHARED, else ../shared "
       "of the project)",
       0, 0},
      {"--cluster", HEC_ARG_TEXT, &s->options.cluster, "C", "preset, one-line form or file (a100-80g-4x8)", 0, 0},
      {"--model", HEC_ARG_TEXT, &s->options.model, "M", "preset or file (mixtral-8x7b-e16k4)", 0, 0},
      {"--law", HEC_ARG_TEXT, &s->options.law, "LAW", "of the network: alpha_beta (default), max_min (minutes)", 0, 0},
      {"--quick", HEC_ARG_FLAG, &s->options.quick, NULL,
       "no table of changed inputs, nothing said of the whole recording", 0, 0},
      {"--details", HEC_ARG_FLAG, &s->options.details, NULL,
       "also rank by rank, parts of the step, how the recording was read", 0, 0},
      {"--stamp", HEC_ARG_TEXT, &s->options.stamp, "TEXT", "a line for the heading, such as date and commit", 0, 0},
      {"--out", HEC_ARG_TEXT, &s->out, "FILE", "write the whole report " HEC_REPORT_OUT, 0, 0},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-validate outcomes",
      .usage = "hecate-validate outcomes [options]",
      .summary =
          "Predicts a recorded training run of three placement methods on 32 A100 from its recorded rank loads, and\n"
          "compares: order, ratios, step, all-to-all and expert time. Exit code 1 when the order is not kept or a\n"
          "ratio is beyond 15 % on the window of micro-batches taken, 25 to 29 (chosen after the imbalance of several "
          "had been\n"
          "seen; others are shown beside it). The same loads are also priced on other clusters, to show how much the\n"
          "ratios rest on the hardware model. Text on stdout, the whole report in --out. Some seconds.",
      .examples = "  hecate-validate outcomes --out outcomes.md\n  hecate-validate outcomes --cases FILE --json",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

static hec_status verdict(const hec_outcomes *outcomes) {
  if (!outcomes->set.order_kept)
    return hec_fail(HEC_FAILED, "outcomes: the order of the methods is not kept");
  if (!outcomes->set.within_bound)
    return hec_fail(HEC_FAILED, "outcomes: a ratio is %.1f %% off, expected at most %g %%", 100 * outcomes->set.worst,
                    100 * HEC_OUTCOMES_BOUND);
  return HEC_OK;
}

static hec_status run(settings *s) {
  HEC_SCOPED(hec_text) path = {0};
  HEC_OPENED(hec_outcomes) *outcomes = NULL;
  HEC_TRY(hec_report_begin(s->options.path, "cases/outcomes/laer_mixtral_8x7b_e16k4.json", s->out, &path));
  s->options.path = path.data;
  HEC_TRY(hec_paths_check((const hec_path_use[]){{"--cluster", s->options.cluster, false},
                                                 {"--model", s->options.model, false},
                                                 {"--out", s->out, true}},
                          3));
  HEC_TRY(hec_outcomes_run(&s->options, &outcomes));
  HEC_TRY(hec_report_detailed(hec_outcomes_report, outcomes, &outcomes->options.details, s->json, s->out));
  return verdict(outcomes);
}

int hec_outcomes_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = run(&s);
  return hec_tool_exit("hecate-validate", status);
}
