/* hecate-validate hardware: options and report. */
#include "tools/front/args.h"
#include "tools/front/data.h"
#include "tools/front/output.h"
#include "tools/validate/report_out.h"
#include "tools/validate/validate_commands.h"
#include "validate/hardware/hardware.h"

typedef struct {
  const char *cases, *sister, *out, *stamp;
  bool json, details;
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){0};
  const hec_arg args[] = {
      {"--cases", HEC_ARG_TEXT, &s->cases, "FILE",
       "measurements (default: cases/hardware/a100_v100.json below $HECATE_SHARED, else ../shared of the project); a "
       "folder: "
       "tables in CSV (docs/devices.md), priced with the cost laws of --list devices",
       0, 0},
      {"--sister", HEC_ARG_TEXT, &s->sister, "NAME",
       "with a folder: every GPU takes the constants of this one, scaled by data sheet, as if nobody had measured it",
       0, 0},
      {"--stamp", HEC_ARG_TEXT, &s->stamp, "TEXT", "a line for the heading, such as date and commit", 0, 0},
      {"--out", HEC_ARG_TEXT, &s->out, "FILE", "write the whole report " HEC_REPORT_OUT, 0, 0},
      {"--details", HEC_ARG_FLAG, &s->details, NULL, "also every row, and who measured", 0, 0},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-validate hardware",
      .usage = "hecate-validate hardware [options]",
      .summary =
          "Prices collectives, GEMMs and MoE layers that others measured with the link and GEMM laws and the "
          "numbers of\n"
          "presets, nothing fitted, and prints predicted beside measured. Required of every group: Kendall tau "
          "of 0.9 and,\n"
          "for messages of 64 MiB and dense GEMMs of 1e11 FLOP and more, a median error of 25 % at most; exit "
          "code 1 when\n"
          "that does not hold. Nothing there measures H100, H200, H800 or GB200 (presets dgx-h100, dgx-h200, h800,\n"
          "gb200-nvl72). Text on stdout, the whole report in --out. The file has the form of "
          "validate/hardware/hardware.h.",
      .examples = "  hecate-validate hardware --out hardware.md\n  hecate-validate hardware --cases mine.json --json\n"
                  "  hecate-validate hardware --cases ../shared/cases/gpu",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

/* What does not hold, for those who read only the last line. */
static hec_status verdict(const hec_hardware *hardware) {
  for (int32_t i = 0; i < hardware->n_lines; i++) {
    const hec_hardware_line *line = &hardware->lines[i];
    if (!line->passed)
      return hec_fail(HEC_FAILED, "%s: %s: required at %s %g, found %.4g (%.4g without upper bounds)", line->group,
                      line->what, line->at_least ? "least" : "most", line->limit, line->value[0], line->value[1]);
  }
  return HEC_OK;
}

static hec_status run(const settings *s) {
  HEC_SCOPED(hec_text) path = {0};
  HEC_SCOPED(hec_hardware) hardware = {0};
  if (s->out)
    HEC_TRY(hec_output_check_file("--out", s->out));
  if (hec_tables_is_folder(s->cases))
    return hec_tables_judge(s->cases, s->sister, s->out, s->json);
  if (s->sister)
    return hec_fail(HEC_BAD_INPUT, "--sister: expected --cases with a folder of tables beside it");
  HEC_TRY(hec_report_begin(s->cases, "cases/hardware/a100_v100.json", s->out, &path));
  HEC_TRY(hec_hardware_run(path.data, &hardware));
  hardware.stamp = s->stamp;
  hardware.details = s->details;
  HEC_TRY(hec_report_detailed(hec_hardware_report, &hardware, &hardware.details, s->json, s->out));
  return verdict(&hardware);
}

int hec_hardware_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = run(&s);
  return hec_tool_exit("hecate-validate", status);
}
