/* hecate-validate training: options and report. */
#include "tools/front/args.h"
#include "tools/front/output.h"
#include "tools/validate/report_out.h"
#include "tools/validate/validate_commands.h"
#include "validate/training/training.h"

#include <string.h>
#include <unistd.h>

typedef struct {
  const char *cases, *out, *constants, *fit, *imbalance;
  hec_step_constants step;
  bool json, details;
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){0};
  const hec_arg args[] = {
      {"--cases", HEC_ARG_TEXT, &s->cases, "FILE",
       "published runs as CSV (default: cases/training/end_to_end.csv below $HECATE_SHARED, else ../shared of the "
       "project)",
       0, 0},
      {"--constants", HEC_ARG_TEXT, &s->constants, "LIST",
       "other global constants than the fitted ones, such as \"in_step=1.2 nic=0.7\"; also hidden, host, overlapped",
       0, 0},
      {"--imbalance", HEC_ARG_TEXT, &s->imbalance, "FILE",
       "times under a given imbalance as CSV (default: imbalance.csv beside the published runs of --cases)", 0, 0},
      {"--fit", HEC_ARG_TEXT, &s->fit, "TEXT",
       "first fit in_step, nic and hidden to the rows whose id contains TEXT; all other rows are then unseen", 0, 0},
      {"--details", HEC_ARG_FLAG, &s->details, NULL, "also every row", 0, 0},
      {"--out", HEC_ARG_TEXT, &s->out, "FILE", "write the whole report " HEC_REPORT_OUT, 0, 0},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-validate training",
      .usage = "hecate-validate training [options]",
      .summary = "Predicts published training runs from their layout, recipe and batch, and prints predicted beside\n"
                 "measured by family: source, model and GPU. --details lists each row,\n"
                 "and why one cannot be expressed. The columns of FILE: docs/layouts.md.",
      .examples = "  hecate-validate training --details\n  hecate-validate training --cases runs.csv --json",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

static hec_status judge(const settings *s, const char *path, hec_training_table *table) {
  hec_step_constants constants = s->step;
  int32_t n = 0;
  if (s->fit)
    HEC_TRY(hec_training_fit(path, s->fit, &constants, &n));
  HEC_TRY(hec_training_judge(path, &constants, table));
  table->fitted_part = s->fit;
  table->fitted_rows = n;
  return HEC_OK;
}

/* Beside the runs, unless said otherwise; without such a file there is no such table. */
static hec_status judge_imbalance(const settings *s, const char *runs, hec_training_table *table,
                                  hec_imbalance_table *imbalance) {
  HEC_SCOPED(hec_text) path = {0};
  const char *slash = strrchr(runs, '/');
  if (s->imbalance)
    hec_text_add(&path, s->imbalance);
  else
    hec_text_printf(&path, "%.*simbalance.csv", slash ? (int)(slash - runs) + 1 : 0, runs);
  if (!s->imbalance && access(path.data, R_OK) != 0)
    return HEC_OK;
  table->imbalance = imbalance;
  return hec_imbalance_judge(path.data, &table->constants, imbalance);
}

static hec_status run(settings *s) {
  HEC_SCOPED(hec_text) path = {0};
  HEC_SCOPED(hec_training_table) table = {0};
  HEC_SCOPED(hec_imbalance_table) imbalance = {0};
  s->step = hec_step_constants_fitted;
  if (s->constants)
    HEC_TRY(hec_step_constants_read(s->constants, &s->step));
  HEC_TRY(hec_report_begin(s->cases, "cases/training/end_to_end.csv", s->out, &path));
  HEC_TRY(judge(s, path.data, &table));
  HEC_TRY(judge_imbalance(s, path.data, &table, &imbalance));
  table.details = s->details;
  return hec_report_detailed(hec_training_report, &table, &table.details, s->json, s->out);
}

int hec_training_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = run(&s);
  return hec_tool_exit("hecate-validate", status);
}
