/* hecate-validate calibrate: a session without anything to compare; the table, the cluster file. */
#include "tools/front/output.h"
#include "tools/validate/session_run.h"
#include "tools/validate/validate_commands.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  hec_session_args session;
  hec_tables_calibrate_args tables;
  const char *out;
  bool json;
} settings;

typedef struct {
  const settings *s;
  hec_session_run_state run;
} command;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.session = hec_session_args_default()};
  const hec_arg args[] = {
      HEC_ARG_JOB("What runs", s->session.job, HEC_OPTIONS_SESSION " esp", hec_session_words),
      HEC_SESSION_TIME_ROWS(s->session, "2m"),
      HEC_ARG_WHOLE("--seed", s->session.seed, "N", "of loads, weights and orders (default 1)", 0, HEC_ITER_MAX - 1e6),
      HEC_SESSION_TARGET_ROWS(s->session),
      HEC_ARG_TITLE("From tables, nothing is measured"),
      HEC_ARG_WORD("--from", s->tables.from, "DIR",
                   "fit the cost laws of a GPU to published tables in CSV instead (docs/devices.md); the rest of the "
                   "options but for Output does not apply"),
      HEC_ARG_WORD(
          "--device", s->tables.device, "NAME",
          "with --from: the GPU, a preset of hecate-sim --list devices or a file with a data sheet; its rows have "
          "that name"),
      HEC_ARG_WORD("--law", s->tables.law, "NAME", "with --from: fit this cost law alone, keep the device's others"),
      {"--ablate", HEC_ARG_FLAG, &s->tables.ablate, NULL,
       "with --from: also the error without each term of each law, the others fitted again", 0, 0},
      HEC_ARG_TITLE("Output"),
      HEC_ARG_WORD("--out", s->out, "FILE",
                   "write the cluster file, for --cluster of hecate-sim and for compare --calibration"),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "the cluster file on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command text = {
      .program = "hecate-validate calibrate",
      .usage = "hecate-validate calibrate [options]",
      .summary =
          "Measures what the operations of a model shape take on this machine, all ranks at work, and fits the laws\n"
          "that the simulator uses: a cluster file. About a minute with the defaults (2 ranks on 2 cores), two at "
          "most.\n"
          "A busy machine is never refused: the report and the file say how disturbed it was and how far the times\n"
          "can be trusted. Exit code 1: a run failed; large residuals are printed and are no failure.",
      .examples = "  hecate-validate calibrate --out this-machine.json\n"
                  "  hecate-sim trace.jsonl --model cpu-512 --cluster this-machine.json\n"
                  "  mpirun -n 2 hecate-validate calibrate --backend mpi --out this-mpi.json\n"
                  "  hecate-validate calibrate --backend nccl --virtual --out this-gpu.json\n"
                  "  hecate-validate calibrate --from ../shared/cases/gpu --device h100 --out device-h100.json",
      .first = "--cluster --model --ranks --tokens --within --backend --transport --from --device --out",
      .args = args};
  HEC_TRY(hec_args_options(&text, argc, argv, done));
  s->tables.out = s->out;
  s->tables.json = s->json;
  if (!*done && !s->tables.from && (s->tables.device || s->tables.law || s->tables.ablate))
    return hec_fail(HEC_BAD_INPUT, "--device, --law, --ablate: expected --from DIR beside them, found none");
  *done = *done || (!s->tables.from && hec_session_run_list(&s->session));
  s->session.target.ranks = s->session.job.ranks;
  return HEC_OK;
}

/* On rank 0. */
static hec_status report(void *context, hec_handover *handover) {
  command *c = context;
  const hec_session_report report = {.session = &c->run.session, .head = &c->run.head};
  hec_text text = {0};
  hec_calibrate_text(&report, &text);
  return hec_handover_texts(handover, true, (hec_text *const[]){&text, &c->run.session.preset}, 2);
}

/* Where the session was started. */
static hec_status take(void *context, hec_handover *handover) {
  const settings *s = ((command *)context)->s;
  HEC_SCOPED(hec_text) text = {0}, preset = {0};
  hec_status status = hec_handover_texts(handover, false, (hec_text *const[]){&text, &preset}, 2);
  if (status == HEC_OK && s->out)
    status = hec_write_file(s->out, preset.data, preset.length);
  if (s->out)
    hec_text_printf(&text, "Written: %s (--cluster of hecate-sim and hecate-run, --calibration of compare).\n", s->out);
  else
    hec_text_add(&text, "Not kept: add --out FILE to write it as a cluster file, or --json.\n");
  if (status == HEC_OK)
    status = hec_output_print(s->json ? &preset : &text);
  return status;
}

static hec_status run(command *c) {
  HEC_TRY(hec_session_run_open(&c->run));
  hec_execution_mind(&c->run.execution, "loads, weights and tokens are made up");
  const hec_comparison_options none = {.collective = c->run.collective, .law = hec_law_find(c->run.head.law)};
  return hec_session_run_launch(&c->run, &none, NULL, 0, take);
}

int hec_calibrate_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-validate", status);
  if (s.tables.from)
    return hec_tool_exit("hecate-validate", hec_tables_calibrate(&s.tables));
  command c = {
      .s = &s,
      .run = {.tool = "hecate-validate calibrate " HEC_VERSION, .args = &s.session, .file = s.out, .report = report}};
  c.run.context = &c;
  return hec_session_run_close(&c.run, run(&c));
}
