/* hecate-validate gate: stored predictions first, then a session; the verdict as exit code. */
#include "runtime/base/arena.h"
#include "runtime/base/progress.h"
#include "runtime/exec/math/math.h"
#include "tools/front/args.h"
#include "tools/front/colour.h"
#include "tools/front/data.h"
#include "tools/front/handover.h"
#include "tools/front/machine.h"
#include "tools/front/output.h"
#include "tools/front/target.h"
#include "tools/validate/report_out.h"
#include "tools/validate/validate_commands.h"
#include "validate/gate/gate.h"
#include "validate/session.h"

#include <stdio.h>
#include <string.h>

enum { SEED = 1, EXIT_NOISY = 77, ROUNDS_MAX = 64 };
#define WITHIN_S 60.0
#define TRANSPORT "emulated"

typedef struct {
  const char *baseline, *broken, *transport, *out, *stamp, *update, *calibrated;
  double within_s;
  int64_t seed;
  bool json, self_test, stored_alone;
} settings;

typedef struct {
  const settings *s;
  hec_arena arena;
  hec_gate_file file;
  hec_target target;
  hec_text cpu, baseline; /* baseline: found, where none is given */
  int32_t broken;         /* -1: none */
  /* The session: */
  hec_session session;
  hec_handover handover;
  hec_gate_judgement judgement, of_broken[HEC_CONTROLS_MAX];
  int32_t n_broken;
  /* What rank 0 says of it, for the process that prints: */
  hec_text verdict, last, preset; /* a hec_gate_verdict; why, where it is not passed; the cluster file */
  hec_report_texts report;
} gate;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.transport = TRANSPORT, .within_s = WITHIN_S, .seed = SEED};
  const hec_arg args[] = {
      HEC_ARG_WORD("--baseline", s->baseline, "FILE",
                   "what runs and what must hold (default: validate/gate/gate.json of hecate itself)"),
      HEC_ARG_TIME(
          "--within", s->within_s, "TIME",
          "how long it may take, such as 40s or 2m; it ends sooner once every time is known within 1 % (default "
          "60s)",
          1, 1e6),
      HEC_ARG_WHOLE("--seed", s->seed, "N", "of the order of execution and of calibration's loads (default 1)", 0, 1e9),
      HEC_ARG_WORD("--transport", s->transport, "T", "emulated (default), paced or shm"),
      HEC_ARG_TITLE("Is it a gate?"),
      HEC_ARG_WORD("--break", s->broken, "LAW", "predict with a broken law: mean_compute, mean_bytes, flat_rate"),
      {"--self-test", HEC_ARG_FLAG, &s->self_test, NULL,
       "judge one session four times: by the law, which must pass, and by each broken one, which must fail", 0, 0},
      HEC_ARG_TITLE("Stored predictions"),
      {"--stored-only", HEC_ARG_FLAG, &s->stored_alone, NULL,
       "compare predictions with the stored ones and report that; measure nothing", 0, 0},
      HEC_ARG_WORD("--update", s->update, "FILE", "write FILE: the baseline with today's predictions; measure nothing"),
      HEC_ARG_TITLE("Output"),
      HEC_ARG_WORD("--calibrated", s->calibrated, "FILE", "write the cluster that was fitted in the last session"),
      HEC_ARG_WORD("--out", s->out, "FILE", "write the report " HEC_REPORT_OUT),
      HEC_ARG_WORD("--stamp", s->stamp, "TEXT", "a line for its heading, such as date and commit"),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-validate gate",
      .usage = "hecate-validate gate [options]",
      .summary =
          "The regression gate: predictions on a committed cluster must be the stored ones, and what this machine "
          "does\n"
          "must be what a session fitted on it predicts: median error at most 5 %, p90 10 %, order kept in 95 % of "
          "the\n"
          "pairs. Laws that are broken on purpose must fail, or the gate does not count. Two cores, a minute at most.\n"
          "Every number has an interval: it fails only where that lies outside, passes only where all lie within.",
      .exits = "0 passed or written, 1 failed, 2 bad input or usage, 77 skipped: the time was over before it could\n"
               "decide, or the machine was too disturbed for a failure to count (the intervals are printed)",
      .examples = "  hecate-validate gate\n  hecate-validate gate --self-test\n  hecate-validate gate --stored-only\n"
                  "  hecate-validate gate --update validate/gate/gate.json",
      .first = "--baseline --within --transport --break --self-test --stored-only --update --calibrated --out --json",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

/* ---- A session ---- */

static hec_status hand_over(gate *g, bool put) {
  hec_text *const texts[] = {&g->verdict, &g->last, &g->preset, &g->report.shown, &g->report.markdown};
  return hec_handover_texts(&g->handover, put, texts, sizeof texts / sizeof *texts);
}

static hec_doc_kind form_of(const settings *s) {
  return s->json ? HEC_DOC_JSON : HEC_DOC_MARKDOWN;
}

/* All broken laws must have failed the self-test. */
static void conclude(const gate *g, hec_gate_report *r, hec_text *why) {
  r->verdict = g->judgement.verdict;
  hec_text_add(why, g->judgement.why);
  for (int32_t k = 0; r->verdict == HEC_GATE_PASSED && k < g->n_broken; k++)
    if (!g->of_broken[k].outside) {
      r->verdict = HEC_GATE_FAILED;
      hec_text_printf(why, "self-test: the broken law %s is not rejected", hec_controls[k].name);
    }
  r->why = why->data;
}

static void judge(gate *g, const hec_gate_run *run) {
  const hec_gate_bands *bands = &g->file.bands;
  hec_gate_judge(bands, run, g->broken, &g->judgement);
  for (g->n_broken = 0; g->s->self_test && hec_controls[g->n_broken].name; g->n_broken++)
    hec_gate_judge(bands, run, g->n_broken, &g->of_broken[g->n_broken]);
  hec_gate_report r = {.file = &g->file,
                       .cpu = g->cpu.data,
                       .blas = hec_math_library(),
                       .transport = g->target.transport->name,
                       .stamp = g->s->stamp,
                       .broken = g->broken,
                       .run = run,
                       .judgement = &g->judgement,
                       .n_broken = g->n_broken,
                       .of_broken = g->of_broken};
  HEC_SCOPED(hec_text) why = {0};
  conclude(g, &r, &why);
  const hec_error_range *e = &g->judgement.error;
  if (r.verdict == HEC_GATE_NOISY)
    hec_text_printf(
        &g->last,
        "skipped after %.0f s, %.0f %% of the iterations disturbed, median error %.1f %% [%.1f, %.1f]: ", run->seconds,
        100 * run->disturbed, 100 * e->error.median, 100 * e->median.low, 100 * e->median.high);
  hec_text_add(&g->last, why.data);
  hec_text_add_bytes(&g->verdict, (const char *)&r.verdict, sizeof r.verdict);
  hec_report_make(hec_gate_report_measured, &r, form_of(g->s), 1, &g->report);
}

/* On rank 0: what is said at the end. */
static hec_status body(hec_rank *rank, void *context) {
  gate *g = context;
  hec_gate_run run;
  HEC_TRY(hec_session_run(&g->session, rank));
  if (rank->rank != 0)
    return HEC_OK;
  hec_gate_take(&g->session, &g->arena, &run);
  judge(g, &run);
  hec_text_add_bytes(&g->preset, g->session.preset.data, g->session.preset.length);
  return hand_over(g, true);
}

static void progress(void *context, const char *what, int32_t done, double left_s) {
  (void)context;
  hec_progress_until(what, done, left_s);
}

static hec_session_options session_options(gate *g) {
  const hec_gate_file *f = &g->file;
  uint64_t seed = (uint64_t)g->s->seed * 100;
  const char *law = g->target.transport->law;
  return (hec_session_options){.calibrate = {.model = f->model_made,
                                             .base = &f->links_cluster,
                                             .n_ranks = f->links_cluster.n_devices,
                                             .tokens = f->tokens,
                                             .seed = seed + 1000000},
                               .machine = {.name = "gate",
                                           .cpu = g->cpu.data,
                                           .unit = "core",
                                           .blas = hec_math_library(),
                                           .backend = g->target.backend->name,
                                           .transport = g->target.transport->name,
                                           .n_cores = hec_machine_cores()},
                               .compare = {.cases = f->cases,
                                           .n_cases = f->n_cases,
                                           .n_rounds = ROUNDS_MAX,
                                           .seed = seed,
                                           .law = hec_law_find(law ? law : "alpha_beta")},
                               .seed = seed,
                               .within_s = g->s->within_s,
                               .progress = hec_progress_wanted() ? progress : NULL,
                               .context = g};
}

static hec_status launch(gate *g) {
  const hec_launch_options options = {.n_ranks = g->file.links_cluster.n_devices,
                                      .pin = true,
                                      .transport = g->target.transport,
                                      .cluster = &g->file.links_cluster,
                                      .memory_bytes = hec_session_bytes(&g->session)};
  hec_status status = g->target.backend->launch(&options, body, g);
  hec_progress_stage("writing", NULL);
  if (status == HEC_OK)
    status = hec_handover_rewind(&g->handover);
  return status == HEC_OK ? hand_over(g, false) : status;
}

static hec_status measure_once(gate *g) {
  hec_session_options options = session_options(g);
  HEC_TRY(hec_session_open(&g->session, &options, &g->arena));
  hec_status status = hec_handover_open(&g->handover);
  if (status == HEC_OK)
    status = launch(g);
  hec_handover_close(&g->handover);
  hec_session_close(&g->session);
  return status;
}

static hec_status measure(gate *g, int *code) {
  const hec_target_args target = {.backend = "cpu", .transport = g->s->transport};
  int32_t ranks;
  hec_gate_verdict verdict;
  hec_math_open();
  HEC_TRY(hec_target_open(&target, &g->target, &ranks));
  hec_machine_cpu(&g->cpu);
  HEC_TRY(measure_once(g));
  if (g->s->calibrated && g->preset.length > 0)
    HEC_TRY(hec_write_file(g->s->calibrated, g->preset.data, g->preset.length));
  HEC_TRY(hec_report_print(&g->report, g->s->out));
  HEC_ASSERT(g->verdict.length == sizeof verdict);
  memcpy(&verdict, g->verdict.data, sizeof verdict);
  if (verdict == HEC_GATE_FAILED)
    return hec_fail(HEC_FAILED, "gate: failed: %s", g->last.data);
  if (verdict == HEC_GATE_NOISY) {
    hec_progress_end();
    fprintf(stderr, "hecate-validate: gate: %s\n", g->last.data);
    *code = EXIT_NOISY;
  }
  return HEC_OK;
}

static hec_status find_broken(gate *g) {
  g->broken = -1;
  for (int32_t k = 0; g->s->broken && hec_controls[k].name; k++)
    if (strcmp(hec_controls[k].name, g->s->broken) == 0)
      g->broken = k;
  if (g->s->broken && g->broken < 0)
    return hec_fail(HEC_BAD_INPUT, "--break: expected mean_compute, mean_bytes or flat_rate, found \"%s\"",
                    g->s->broken);
  if (g->s->broken && g->s->self_test)
    return hec_fail(HEC_BAD_INPUT, "--self-test breaks every law itself: leave --break out");
  return HEC_OK;
}

static hec_status update(const gate *g, const hec_gate_prediction *predictions) {
  HEC_SCOPED(hec_text) text = {0};
  hec_gate_write(&g->file, predictions, &text);
  return hec_write_file(g->s->update, text.data, text.length);
}

/* The report, also where a prediction moved; the verdict last. */
static hec_status print_stored(const gate *g, const hec_gate_prediction *predictions) {
  HEC_SCOPED(hec_text) why = {0};
  hec_report_texts texts = {.shown = {0}};
  hec_status verdict = hec_gate_check_stored(&g->file, predictions);
  hec_text_add(&why, verdict == HEC_OK ? "" : hec_last_error());
  const hec_gate_stored_report r = {
      .file = &g->file, .now = predictions, .stamp = g->s->stamp, .why = why.data ? why.data : ""};
  hec_report_make(hec_gate_report_stored, &r, form_of(g->s), 1, &texts);
  hec_status status = hec_report_print(&texts, g->s->out);
  if (status == HEC_OK && verdict != HEC_OK)
    status = hec_fail(verdict, "%s", r.why);
  return status;
}

/* What would do nothing where nothing is measured. */
static hec_status check_unmeasured(const settings *s) {
  const char *mode = s->update ? "--update" : s->stored_alone ? "--stored-only" : NULL;
  const struct {
    const char *option;
    bool given;
  } idle[] = {{"--break", s->broken},
              {"--self-test", s->self_test},
              {"--calibrated", s->calibrated},
              {"--stored-only", s->update && s->stored_alone},
              {"--within", s->within_s < WITHIN_S || s->within_s > WITHIN_S},
              {"--seed", s->seed != SEED},
              {"--transport", strcmp(s->transport, TRANSPORT) != 0},
              {"--out", s->update && s->out},
              {"--stamp", s->update && s->stamp},
              {"--json", s->update && s->json}};
  for (size_t i = 0; mode && i < sizeof idle / sizeof *idle; i++)
    if (idle[i].given)
      return hec_fail(HEC_BAD_INPUT, "%s: does nothing with %s, which measures nothing%s: leave it out", idle[i].option,
                      mode, s->update ? " and writes the baseline alone" : "");
  return HEC_OK;
}

static hec_status run(gate *g, int *code) {
  const settings *s = g->s;
  HEC_TRY(find_broken(g));
  if (!g->s->baseline)
    HEC_TRY(hec_data_find("--baseline", "validate/gate/gate.json", &g->baseline));
  const char *baseline = s->baseline ? s->baseline : g->baseline.data;
  HEC_TRY(check_unmeasured(s));
  if (s->out)
    HEC_TRY(hec_output_check_file("--out", s->out));
  if (s->update)
    HEC_TRY(hec_output_check_file("--update", s->update));
  if (s->calibrated)
    HEC_TRY(hec_output_check_file("--calibrated", s->calibrated));
  const hec_path_use uses[] = {{"--baseline", s->update ? NULL : baseline, false}, /* may be updated in place */
                               {"--update", s->update, true},
                               {"--out", s->out, true},
                               {"--calibrated", s->calibrated, true}};
  HEC_TRY(hec_paths_check(uses, 4));
  HEC_TRY(hec_gate_read(baseline, &g->arena, &g->file));
  HEC_TRY(hec_paths_check((const hec_path_use[]){{"the baseline's cluster", g->file.cluster_path, false},
                                                 {"--update", s->update, true},
                                                 {"--out", s->out, true},
                                                 {"--calibrated", s->calibrated, true}},
                          4));
  hec_gate_prediction *now = HEC_NEW(&g->arena, hec_gate_prediction, g->file.n_cases * g->file.n_steps);
  HEC_TRY(hec_gate_predict(&g->file, now));
  HEC_TRY(hec_gate_check_groups(&g->file, now));
  if (s->update)
    return update(g, now);
  if (s->stored_alone)
    return print_stored(g, now);
  HEC_TRY(hec_gate_check_stored(&g->file, now));
  return measure(g, code);
}

int hec_gate_command(int argc, char **argv) {
  settings s;
  bool done;
  int code = 0;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-validate", status);
  gate g = {.s = &s, .handover = {-1}};
  status = run(&g, &code);
  hec_gate_release(&g.judgement);
  for (int32_t k = 0; k < HEC_CONTROLS_MAX; k++)
    hec_gate_release(&g.of_broken[k]);
  hec_text_free(&g.cpu);
  hec_text_free(&g.baseline);
  hec_text_free(&g.preset);
  hec_text_free(&g.verdict);
  hec_text_free(&g.last);
  hec_text_free(&g.report.shown);
  hec_text_free(&g.report.markdown);
  hec_arena_free(&g.arena);
  int ended = hec_target_exit(&g.target, "hecate-validate", status, true);
  return ended != 0 ? ended : code;
}
