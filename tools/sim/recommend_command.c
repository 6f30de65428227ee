/* hecate-sim recommend: options, files. */
#include "tools/front/job_args.h"
#include "tools/front/machine.h"
#include "tools/front/output.h"
#include "tools/front/training/recommendation.h"
#include "tools/front/training/recommendation_search.h"
#include "tools/sim/sim_commands.h"

#include "runtime/base/temporary.h"

#include <string.h>

#define WITHIN_S 30.0

typedef struct {
  hec_job_options job;
  hec_training_args training;
  const char *trace, *setup_out, *flags_out, *out;
  double within_s;
  bool json;
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.job = HEC_JOB_OPTIONS, .training = HEC_TRAINING_ARGS, .within_s = WITHIN_S};
  const hec_arg args[] = {
      HEC_ARG_JOB("", s->job, "cluster model policy dispatcher", NULL),
      HEC_ARG_TRAINING("Training job; its layout is what runs today", s->training),
      HEC_ARG_TITLE("Output"),
      HEC_ARG_TIME(
          "--within", s->within_s, "TIME",
          "about how long it may take on one core, such as 30s or 5m (default 30s). It sets how many layouts are "
          "estimated and how many records are planned. So the same input gives the same answer.",
          1, 1e6),
      {"--out", HEC_ARG_TEXT, &s->out, "DIR",
       "write what to change: for Megatron-LM, torchtitan, DeepSpeed and EPLB, a file for --setup, and all figures. "
       "what-to-change.md says what each file is for.",
       0, 0},
      {"--setup-out", HEC_ARG_TEXT, &s->setup_out, "FILE", "write what is recommended, as a set-up for --setup", 0, 0},
      {"--flags-out", HEC_ARG_TEXT, &s->flags_out, "FILE", "write it as flags of Megatron-LM (Megatron Core 0.16)", 0,
       0},
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout and nothing else", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-sim recommend",
      .usage = "hecate-sim recommend TRACE --model M --cluster C --global-batch N [options]",
      .summary =
          "Searches the layouts of the GPUs for the fastest training step under the loads of the trace that fits into\n"
          "memory, with the best placement policy. What --recipe states stays; dispatcher and recomputation are "
          "searched "
          "where it\nis silent. A schedule that --pipeline names is searched too.",
      .examples = "  hecate-sim recommend trace.jsonl --model mixtral-8x22b --cluster \"16x8 gpu=h100 nics=8\" "
                  "--global-batch 256\n"
                  "  hecate-sim recommend trace.jsonl --setup deepseek-v3-2048-h800 --out change",
      .first = "--model --cluster --global-batch --gpus --setup --layout --policy --within --out --setup-out",
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&command, argc, argv, &s->trace, 1, &n, done));
  if (!*done && n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected a trace file; see hecate-sim recommend --help");
  for (int i = 0; i < 2 && !*done; i++)
    if (i ? s->setup_out : s->flags_out)
      HEC_TRY(hec_output_check_file(i ? "--setup-out" : "--flags-out", i ? s->setup_out : s->flags_out));
  return HEC_OK;
}

static hec_status check_out(const settings *s) {
  enum { USES = HEC_JOB_READS + 3 };
  hec_path_use uses[USES];
  hec_job_args_reads(&s->job, s->trace, uses);
  uses[HEC_JOB_READS] = (hec_path_use){"--setup", s->training.setup, false};
  uses[HEC_JOB_READS + 1] = (hec_path_use){"--setup-out", s->setup_out, true};
  uses[HEC_JOB_READS + 2] = (hec_path_use){"--flags-out", s->flags_out, true};
  HEC_TRY(hec_paths_check(uses, USES));
  if (!s->out)
    return HEC_OK;
  return hec_output_check_named(s->out, hec_recommendation_files, HEC_RECOMMENDATION_FILES, uses, USES);
}

static hec_status write_out(const settings *s, const hec_recommendation *r, hec_trace_reader *reader,
                            hec_arena *arena) {
  hec_text texts[HEC_RECOMMENDATION_FILES] = {{0}};
  hec_named_file files[HEC_RECOMMENDATION_FILES];
  hec_status status = hec_recommendation_write(r, s->out, reader, arena, texts);
  for (int32_t i = 0; i < HEC_RECOMMENDATION_FILES; i++)
    files[i] = (hec_named_file){hec_recommendation_files[i], texts[i]};
  if (status == HEC_OK)
    status = hec_output_write_named(s->out, files, HEC_RECOMMENDATION_FILES);
  for (int32_t i = 0; i < HEC_RECOMMENDATION_FILES; i++)
    hec_text_free(&texts[i]);
  return status;
}

static hec_status write_files(const settings *s, const hec_recommendation *r) {
  HEC_SCOPED(hec_text) differs = {0};
  hec_text texts[2] = {{0}, {0}};
  const char *const paths[2] = {s->setup_out, s->flags_out};
  hec_file_out files[2];
  int32_t n = 0;
  hec_status status = s->setup_out ? hec_recommendation_setup(r, s->setup_out, &texts[0]) : HEC_OK;
  hec_recommendation_megatron(r, false, &texts[1], &differs);
  hec_text_add(&texts[1], "\n");
  for (int i = 0; i < 2; i++)
    if (paths[i])
      files[n++] = (hec_file_out){paths[i], texts[i].data, texts[i].length};
  if (status == HEC_OK && n > 0)
    status = hec_write_files(files, n);
  hec_text_free(&texts[0]);
  hec_text_free(&texts[1]);
  return status;
}

static hec_status run(const settings *s, hec_trace_reader *reader, hec_arena *arena) {
  const hec_policy *policies[HEC_POLICIES_MAX];
  hec_recommendation r;
  HEC_SCOPED(hec_text) text = {0};
  int32_t n;
  HEC_TRY(check_out(s));
  HEC_TRY(hec_job_args_chosen(&s->job, arena, policies, &n));
  const hec_training_choice choice = {
      .policies = policies, .n_policies = n, .n_threads = hec_machine_cores(), .warmup = -1};
  const char *left_out;
  HEC_TRY(hec_candidates_left_out(policies, n, arena, &left_out));
  HEC_TRY(hec_recommend(&s->training, &s->job, s->within_s, &choice, reader, arena, &r));
  r.tool = "hecate-sim " HEC_VERSION;
  r.trace = s->trace;
  r.left_out = strcmp(s->job.policy, "all") == 0 ? NULL : left_out; /* of all nobody expects those */
  HEC_TRY(write_files(s, &r));
  if (s->out)
    HEC_TRY(write_out(s, &r, reader, arena));
  if (s->json)
    hec_recommendation_json(&r, &text);
  else
    hec_recommendation_screen(&r, &text);
  if (!s->json && s->out) {
    hec_text_add(&text, "Written: ");
    hec_text_add_plain(&text, s->out);
    hec_text_add(&text, "/what-to-change.md, and the files that it names.\n");
  }
  return hec_output_print(&text);
}

int hec_recommend_command(int argc, char **argv) {
  settings s;
  bool done;
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_text) kept = {0};
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-sim", status);
  status = hec_job_args_open(s.trace, &kept, &reader);
  if (status == HEC_OK)
    status = run(&s, reader, &arena);
  return hec_tool_exit("hecate-sim", status);
}
