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
#include "tools/front/where.h"
#include "tools/validate/validate_commands.h"
#include "validate/gate/gate.h"
#include "validate/session.h"

#include <stdio.h>
#include <string.h>

enum { SEED = 1, EXIT_NOISY = 77, ROUNDS_MOST = 64 };
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
  hec_where where;
  hec_text cpu, baseline; /* baseline: found, where none is given */
  int32_t broken;         /* -1: none */
  /* The session: */
  hec_session session;
  hec_handover handover;
  hec_gate_run run;
  hec_text preset;
  hec_gate_judgement judgement, of_broken[HEC_CONTROLS_MAX];
  int32_t n_broken;
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
      HEC_ARG_WORD("--out", s->out, "FILE", "write the report as Markdown"),
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
      .args = args};
  int32_t n;
  return hec_args_parse(&command, argc, argv, NULL, 0, &n, done);
}

/* ---- A session ---- */

/* What rank 0 knows, for the process that judges: the struct, then what its pointers point to. */
typedef struct {
  void *to; /* NULL: there is none */
  size_t bytes;
} part;
enum { N_PARTS = 5 };

static void parts_of(hec_gate_run *run, part parts[N_PARTS]) {
  size_t n = (size_t)run->n_points;
  const part all[N_PARTS] = {{run->points, n * sizeof *run->points},
                             {run->medians.middle, n * sizeof *run->medians.middle},
                             {run->medians.drawn, n * HEC_DRAWS * sizeof *run->medians.drawn},
                             {run->medians.known, n * sizeof *run->medians.known},
                             {(void *)run->scale, HEC_DRAWS * sizeof *run->scale}};
  memcpy(parts, all, sizeof all);
}

static hec_status put(gate *g, const void *data, size_t bytes) {
  hec_text text = {0};
  hec_text_add_bytes(&text, data, bytes);
  hec_status status = hec_handover_put(&g->handover, &text);
  hec_text_free(&text);
  return status;
}

static hec_status get(gate *g, void *to, size_t bytes) {
  hec_text text = {0};
  hec_status status = hec_handover_get(&g->handover, &text);
  HEC_ASSERT(status != HEC_OK || text.length == bytes);
  if (status == HEC_OK && bytes > 0)
    memcpy(to, text.data, bytes);
  hec_text_free(&text);
  return status;
}

static hec_status hand_over(gate *g) {
  part parts[N_PARTS];
  parts_of(&g->run, parts);
  HEC_TRY(put(g, &g->run, sizeof g->run));
  for (int32_t i = 0; i < N_PARTS; i++)
    if (parts[i].to)
      HEC_TRY(put(g, parts[i].to, parts[i].bytes));
  return hec_handover_put(&g->handover, &g->session.preset);
}

static hec_status take_over(gate *g) {
  hec_gate_run *run = &g->run;
  part parts[N_PARTS];
  HEC_TRY(hec_handover_rewind(&g->handover));
  HEC_TRY(get(g, run, sizeof *run));
  int32_t n = run->n_points;
  run->points = HEC_NEW(&g->arena, hec_gate_point, n);
  run->medians = (hec_medians){n, HEC_NEW(&g->arena, double, n), HEC_NEW(&g->arena, double, (size_t)n *HEC_DRAWS),
                               HEC_NEW(&g->arena, bool, n)};
  run->scale = run->scale ? HEC_NEW(&g->arena, double, HEC_DRAWS) : NULL; /* rank 0's pointer, of its own process */
  parts_of(run, parts);
  for (int32_t i = 0; i < N_PARTS; i++)
    if (parts[i].to)
      HEC_TRY(get(g, parts[i].to, parts[i].bytes));
  hec_text_free(&g->preset);
  return hec_handover_get(&g->handover, &g->preset);
}

static hec_status body(hec_rank *rank, void *context) {
  gate *g = context;
  HEC_TRY(hec_session_run(&g->session, rank));
  if (rank->rank != 0)
    return HEC_OK;
  hec_gate_take(&g->session, &g->arena, &g->run);
  return hand_over(g);
}

static void progress(void *context, const char *what, int32_t done, double left_s) {
  (void)context;
  hec_progress_until(what, done, left_s);
}

static hec_session_options session_options(gate *g) {
  const hec_gate_file *f = &g->file;
  uint64_t seed = (uint64_t)g->s->seed * 100;
  const char *law = g->where.transport->law;
  return (hec_session_options){.calibrate = {.model = f->model_made,
                                             .base = &f->links_cluster,
                                             .n_ranks = f->links_cluster.n_devices,
                                             .tokens = f->tokens,
                                             .seed = seed + 1000000},
                               .machine = {.name = "gate",
                                           .cpu = g->cpu.data,
                                           .unit = "core",
                                           .blas = hec_math_library(),
                                           .backend = g->where.backend->name,
                                           .transport = g->where.transport->name,
                                           .n_cores = hec_machine_cores()},
                               .compare = {.cases = f->cases,
                                           .n_cases = f->n_cases,
                                           .n_rounds = ROUNDS_MOST,
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
                                      .transport = g->where.transport,
                                      .cluster = &g->file.links_cluster,
                                      .memory_bytes = hec_session_bytes(&g->session)};
  hec_status status = g->where.backend->launch(&options, body, g);
  hec_progress_stage("judging", NULL);
  return status == HEC_OK ? take_over(g) : status;
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

/* ---- Judging ---- */

static void judge(gate *g) {
  const hec_gate_bands *bands = &g->file.bands;
  hec_gate_judge(bands, &g->run, g->broken, &g->judgement);
  for (g->n_broken = 0; g->s->self_test && hec_controls[g->n_broken].name; g->n_broken++)
    hec_gate_judge(bands, &g->run, g->n_broken, &g->of_broken[g->n_broken]);
}

/* Of the self-test: all broken laws must have failed. */
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

/* A report: to --out, and to standard output in the form that is wanted there. */
static hec_status hand_out(const settings *s, const hec_text *markdown, const hec_text *json) {
  if (s->out)
    HEC_TRY(hec_write_file(s->out, markdown->data, markdown->length));
  return hec_output_print(s->json ? json : markdown);
}

static hec_status print(gate *g, hec_text *why, hec_gate_verdict *verdict) {
  hec_gate_report r = {.file = &g->file,
                       .cpu = g->cpu.data,
                       .blas = hec_math_library(),
                       .transport = g->where.transport->name,
                       .stamp = g->s->stamp,
                       .broken = g->broken,
                       .run = &g->run,
                       .judgement = &g->judgement,
                       .n_broken = g->n_broken,
                       .of_broken = g->of_broken};
  hec_text text = {0}, markdown = {0};
  conclude(g, &r, why);
  *verdict = r.verdict;
  hec_gate_markdown(&r, &markdown);
  if (g->s->json)
    hec_gate_json(&r, &text);
  hec_status status = g->s->calibrated && g->preset.length > 0
                          ? hec_write_file(g->s->calibrated, g->preset.data, g->preset.length)
                          : HEC_OK;
  if (status == HEC_OK)
    status = hand_out(g->s, &markdown, &text);
  hec_text_free(&text);
  hec_text_free(&markdown);
  return status;
}

static hec_status measure(gate *g, int *code) {
  const hec_where_args where = {.backend = "cpu", .transport = g->s->transport};
  int32_t ranks;
  hec_gate_verdict verdict = HEC_GATE_NOISY;
  hec_text why = {0};
  hec_math_open();
  HEC_TRY(hec_where_open(&where, &g->where, &ranks));
  hec_machine_cpu(&g->cpu);
  HEC_TRY(measure_once(g));
  judge(g);
  hec_status status = print(g, &why, &verdict);
  if (status == HEC_OK && verdict == HEC_GATE_FAILED)
    status = hec_fail(HEC_FAILED, "gate: failed: %s", why.data);
  if (status == HEC_OK && verdict == HEC_GATE_NOISY) {
    hec_progress_end();
    const hec_error_range *e = &g->judgement.error;
    fprintf(stderr,
            "hecate-validate: gate: skipped after %.0f s, %.0f %% of the iterations disturbed, median error %.1f %% "
            "[%.1f, %.1f]: %s\n",
            g->run.seconds, 100 * g->run.disturbed, 100 * e->error.median, 100 * e->median.low, 100 * e->median.high,
            why.data);
    *code = EXIT_NOISY;
  }
  hec_text_free(&why);
  return status;
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
  hec_text text = {0};
  hec_gate_write(&g->file, predictions, &text);
  hec_status status = hec_write_file(g->s->update, text.data, text.length);
  hec_text_free(&text);
  return status;
}

/* The report, also where a prediction moved; the verdict last. */
static hec_status print_stored(const gate *g, const hec_gate_prediction *predictions) {
  hec_text markdown = {0}, json = {0}, why = {0};
  hec_status verdict = hec_gate_check_stored(&g->file, predictions);
  hec_text_add(&why, verdict == HEC_OK ? "" : hec_last_error());
  const hec_gate_stored_report r = {
      .file = &g->file, .now = predictions, .stamp = g->s->stamp, .why = why.data ? why.data : ""};
  hec_gate_stored_markdown(&r, &markdown);
  if (g->s->json)
    hec_gate_stored_json(&r, &json);
  hec_status status = hand_out(g->s, &markdown, &json);
  if (status == HEC_OK && verdict != HEC_OK)
    status = hec_fail(verdict, "%s", r.why);
  hec_text_free(&markdown);
  hec_text_free(&json);
  hec_text_free(&why);
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
  hec_arena_free(&g.arena);
  int ended = hec_where_exit(&g.where, "hecate-validate", status, true);
  return ended != 0 ? ended : code;
}
