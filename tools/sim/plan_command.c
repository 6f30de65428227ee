/* Replays the trace through a policy up to the wanted iteration, history from the start. Prints the plan of one layer
 * before (`decide`) or after (`refine`) the calibration that follows its gate. Or it writes the placement of all
 * layers into a file that other frameworks read. With --reshard that decision choose homes afresh from the history at
 * that point. */
#include "tools/sim/sim_commands.h"

#include "models/traffic_matrix.h"
#include "runtime/base/table.h"
#include "runtime/base/value.h"
#include "runtime/plan/cbc/cbc.h"
#include "runtime/plan/placement/placement.h"
#include "runtime/program/job.h"
#include "runtime/program/lower.h"
#include "tools/front/job_args.h"
#include "tools/front/output.h"
#include "tools/front/summary/summary_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  hec_job_options job;
  const char *trace, *stage, *matrix, *layer_word, *export, *out;
  int32_t refine;      /* of the stage */
  int64_t layer, iter; /* layer -1: none is printed */
  bool json, reshard;
  const hec_placement_format *format; /* of --export; NULL: none */
} settings;

/* --layer: a number, or all; beside --export it may be missing. */
static hec_status read_layer(settings *s) {
  if (!s->layer_word && s->export)
    return HEC_OK;
  if (!s->layer_word)
    return hec_fail(HEC_BAD_INPUT, "expected TRACE, --policy, --layer and --iter; see hecate-sim plan --help");
  if (strcmp(s->layer_word, "all") == 0 && s->export)
    return HEC_OK;
  const char *end = hec_args_whole(s->layer_word, 1000000000, &s->layer);
  if (!end || *end != 0)
    return hec_fail(HEC_BAD_INPUT, "--layer: expected a whole number from 0%s, found \"%s\"",
                    s->export ? ", or all" : " (all is for --export)", s->layer_word);
  return HEC_OK;
}

/* What goes with what. */
static hec_status check(settings *s) {
  if (!s->job.policy || s->iter < 0)
    return hec_fail(HEC_BAD_INPUT, "expected TRACE, --policy, --layer and --iter; see hecate-sim plan --help");
  HEC_TRY(hec_word_of("decide refine", "--stage", s->stage, &s->refine));
  if (s->export)
    HEC_TRY(hec_placement_format_of(s->export, &s->format));
  HEC_TRY(read_layer(s));
  if (!s->export != !s->out)
    return hec_fail(HEC_BAD_INPUT, "%s: expected %s beside it, found none", s->export ? "--export" : "--out",
                    s->export ? "--out FILE" : "--export FORMAT");
  if (s->job.first_layer >= 0 && !s->job.placement && !s->export)
    return hec_fail(HEC_BAD_INPUT, "--first-layer: expected --placement FILE or --export FORMAT beside it, found none");
  if (s->layer < 0 && (s->matrix || s->json))
    return hec_fail(HEC_BAD_INPUT, "%s: expected --layer L beside it, found none",
                    s->matrix ? "--write-matrix" : "--json");
  if (s->matrix)
    HEC_TRY(hec_output_check_file("--write-matrix", s->matrix));
  if (s->out)
    HEC_TRY(hec_output_check_file("--out", s->out));
  hec_path_use uses[HEC_JOB_READS + 2];
  hec_job_args_reads(&s->job, s->trace, uses);
  uses[HEC_JOB_READS] = (hec_path_use){"--write-matrix", s->matrix, true};
  uses[HEC_JOB_READS + 1] = (hec_path_use){"--out", s->out, true};
  return hec_paths_check(uses, HEC_JOB_READS + 2);
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.job = HEC_JOB_OPTIONS, .stage = "refine", .layer = -1, .iter = -1};
  static const hec_run_option_words words[] = {
      {"policy", "P", "policy, with options as hecate:t=4 (hecate-sim --list)"}, {.key = NULL}};
  s->job.policy = NULL; /* has to be named */
  HEC_SCOPED(hec_text) formats = {0};
  hec_text_add(&formats, "write where every expert of every layer stands. Forms:");
  for (int32_t i = 0; hec_placement_formats[i]; i++)
    hec_text_printf(&formats, "%s %s (%s)", i > 0 ? "," : "", hec_placement_formats[i]->name,
                    hec_placement_formats[i]->summary);
  const hec_arg args[] = {
      {.name = "Which plan", .kind = HEC_ARG_SECTION},
      HEC_ARG_JOB("", s->job, "policy", words),
      HEC_ARG_WORD("--layer", s->layer_word, "L",
                   "MoE layer that is printed, from 0; beside --export none need be (all)"),
      {"--iter", HEC_ARG_INT, &s->iter, "I",
       "iteration, as in the trace's \"iter\"; one past its last: the plan after all records (--period 1: made afresh)",
       0, HEC_ITER_MAX},
      {"--stage", HEC_ARG_TEXT, &s->stage, "S", "decide: before the gate; refine: after it (default)", 0, 0},
      {"--write-matrix", HEC_ARG_TEXT, &s->matrix, "FILE",
       "write the bytes dispatched from rank to rank, for hecate-sim flows and nccl-tests' alltoallv_perf", 0, 0},
      {"--reshard", HEC_ARG_FLAG, &s->reshard, NULL, "shard afresh from the history at that point", 0, 0},
      HEC_ARG_TITLE("As a file for other frameworks"),
      HEC_ARG_WORD("--export", s->export, "FORMAT", formats.data),
      HEC_ARG_WORD("--out", s->out, "FILE", "the file that --export writes"),
      HEC_ARG_JOB("", s->job, HEC_OPTIONS_PLACEMENT, NULL),
      HEC_ARG_JOB("Planners and output", s->job, HEC_OPTIONS_PLANNING, NULL),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      HEC_ARG_JOB("What runs", s->job, HEC_OPTIONS_JOB " " HEC_OPTIONS_STRAGGLERS, NULL),
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-sim plan",
      .usage = "hecate-sim plan TRACE --policy P --layer L --iter I [options]\n       "
               "hecate-sim plan TRACE --policy P --iter I --export FORMAT --out FILE [options]",
      .summary = "Prints one plan: owner and copies of each expert, tokens per rank, overload factor, bytes moved.",
      .examples =
          "  hecate-sim plan traces/sample-synthetic.jsonl --policy eplb --layer 0 --iter 10\n"
          "  hecate-sim plan trace.jsonl --policy hecate --layer 3 --iter 12 --t 4 --m 2 --stage decide "
          "--json\n"
          "  hecate-sim plan trace.jsonl --policy eplb --iter 10 --export tensorrt-llm --out balancer.yaml\n"
          "  hecate-sim plan trace.jsonl --policy given --placement expert_map.json --iter 1 --export eplb --out "
          "map.json",
      .notes = HEC_JOB_ARGS_FORMS,
      .first = "--policy --layer --iter --export --out --placement --cluster --model --ranks --tokens",
      .args = args};
  int32_t n;
  hec_status status = hec_args_parse(&command, argc, argv, &s->trace, 1, &n, done);
  if (status != HEC_OK || *done)
    return status;
  if (n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected TRACE, --policy, --layer and --iter; see hecate-sim plan --help");
  return check(s);
}

/* The plan asked for, with what its layer's routing says. */
typedef struct {
  const hec_job *job;
  const hec_policy_run *run;
  const hec_routing *routing;
  int32_t layer;
  int64_t iter;
  bool due;        /* the decision was made now, not at an earlier iteration */
  int64_t decided; /* iter of the last earlier decision; -1: none */
  int64_t dispatch_bytes, gather_bytes, migration_bytes;
  hec_text note; /* what the policy and this command say of the plan; "": nothing */
} found_plan;

/* What the rank has of a sliced expert already. */
static int64_t kept_bytes(const found_plan *found, int32_t expert, int32_t rank) {
  const hec_plan *plan = &found->run->plan;
  const int32_t *home =
      &plan->home[((size_t)found->layer * (size_t)plan->n_experts + (size_t)expert) * (size_t)plan->n_slices];
  int64_t n = 0;
  for (int32_t slice = 0; slice < plan->n_slices; slice++)
    n += home[slice] == rank;
  return n * (int64_t)found->job->problem.bytes.expert_param / plan->n_slices;
}

static void add_bytes(found_plan *found, const hec_plan *before, hec_arena *arena) {
  const hec_problem *problem = &found->job->problem;
  const hec_plan *plan = &found->run->plan;
  int32_t n_ranks = problem->n_ranks;
  for (int32_t s = 0; s < n_ranks; s++)
    for (int32_t d = 0; d < n_ranks; d++)
      if (s != d)
        found->dispatch_bytes += (int64_t)found->routing->pair[s * n_ranks + d] * (int64_t)problem->bytes.token;
  for (int32_t e = 0; e < problem->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, found->layer, e);
    for (int32_t i = 0; i < copies.n; i++)
      if (copies.kind[i] == HEC_COPY_GUEST && (i == 0 || copies.rank[i - 1] != copies.rank[i]))
        found->gather_bytes += (int64_t)problem->bytes.expert_param - kept_bytes(found, e, copies.rank[i]);
  }
  hec_transfer_list moved = {0};
  hec_plan_migration(before, plan, problem, found->layer, HEC_NEW(arena, int64_t, (size_t)n_ranks * (size_t)n_ranks),
                     &moved);
  for (size_t i = 0; i < moved.n; i++)
    found->migration_bytes += moved.data[i].bytes;
  free(moved.data);
}

/* The layer's dispatch as nccl-tests reads it; its combine is the transposed. What stays on a rank is the diagonal. */
static hec_status write_matrix(const found_plan *found, const char *path, hec_arena *arena) {
  const hec_problem *problem = &found->job->problem;
  size_t n = (size_t)problem->n_ranks;
  hec_traffic_matrix matrix = {problem->n_ranks, HEC_NEW(arena, int64_t, n * n)};
  for (size_t i = 0; i < n * n; i++)
    matrix.bytes[i] = (int64_t)found->routing->pair[i] * (int64_t)problem->bytes.token;
  HEC_SCOPED(hec_text) text = {0};
  hec_traffic_matrix_write(&matrix, &text);
  return hec_write_file(path, text.data, text.length);
}

static void print_json(const found_plan *found, hec_text *out) {
  const hec_problem *problem = &found->job->problem;
  const hec_plan *plan = &found->run->plan;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_TEXT("policy", found->run->policy->name), HEC_INT("layer", found->layer),
           HEC_INT("iter", found->iter), HEC_INT("t", found->run->t ? found->run->t[found->layer] : -1),
           HEC_INT("m", found->run->m ? found->run->m[found->layer] : -1));
  hec_json_array(&json, "owner");
  for (int32_t e = 0; e < problem->n_experts; e++)
    hec_json_int(&json, NULL, hec_plan_home(plan, found->layer, e));
  hec_json_close(&json);
  hec_json_array(&json, "copies");
  int32_t *holders = hec_malloc((size_t)problem->n_ranks + (size_t)plan->copy_capacity, sizeof *holders);
  for (int32_t e = 0; e < problem->n_experts; e++) {
    int32_t n = hec_plan_holders(plan, found->layer, e, holders);
    hec_json_ints(&json, NULL, holders, n);
  }
  free(holders);
  hec_json_close(&json);
  hec_json_array(&json, "tokens_per_rank");
  for (int32_t r = 0; r < problem->n_ranks; r++)
    hec_json_int(&json, NULL, (int64_t)found->routing->rank_tokens[r]);
  hec_json_close(&json);
  HEC_JSON(&json, HEC_REAL("overload_factor", hec_routing_overload(found->routing)),
           HEC_OBJECT("bytes", HEC_INT("dispatch", found->dispatch_bytes), HEC_INT("gather", found->gather_bytes),
                      HEC_INT("migration", found->migration_bytes)));
  if (found->note.length > 0)
    hec_json_string(&json, "note", found->note.data);
  hec_json_close(&json);
}

/* Ranks of one kind of copy in ascending order, runs as "3-7". */
static void add_ranks(const char *title, const int32_t *ranks, const uint8_t *kinds, int32_t n, uint8_t kind,
                      hec_text *out) {
  const char *before = title;
  for (int32_t i = 0; i < n; i++) {
    if (kinds[i] != kind)
      continue;
    int32_t last = i;
    while (last + 1 < n && kinds[last + 1] == kind &&
           ranks[last + 1] - ranks[last] <= 1) /* two slots of a rank: once */
      last++;
    hec_text_printf(out, "%s%" PRId32, before, ranks[i]);
    if (last > i)
      hec_text_printf(out, "-%" PRId32, ranks[last]);
    before = ",";
    i = last;
  }
}

static void print_expert(const found_plan *found, int32_t e, hec_text *out) {
  const hec_plan *plan = &found->run->plan;
  hec_copies copies = hec_plan_copies(plan, found->layer, e);
  if (plan->n_slices > 1)
    hec_text_printf(out, "%6" PRId32 "  %6s", e, "sliced");
  else
    hec_text_printf(out, "%6" PRId32 "  %6" PRId32, e, hec_plan_home(plan, found->layer, e));
  add_ranks("  kept on ", copies.rank, copies.kind, copies.n, HEC_COPY_RESIDENT, out);
  add_ranks("  gathered on ", copies.rank, copies.kind, copies.n, HEC_COPY_GUEST, out);
  hec_text_add(out, "\n");
}

static void print_table(const found_plan *found, hec_text *out) {
  const hec_problem *problem = &found->job->problem;
  hec_text_printf(out, "%s, layer %" PRId32 ", iteration %" PRId64, found->run->policy->name, found->layer,
                  found->iter);
  if (found->run->t && found->run->t[found->layer] >= 0)
    hec_text_printf(out, ", t %" PRId32 ", m %" PRId32, found->run->t[found->layer], found->run->m[found->layer]);
  hec_text_add(out, "\n\nexpert   owner  copies: kept between iterations, gathered for this one\n");
  for (int32_t e = 0; e < problem->n_experts; e++)
    print_expert(found, e, out);
  hec_text_add(out, "\n  rank  token-expert assignments computed\n");
  for (int32_t r = 0; r < problem->n_ranks; r++)
    hec_text_printf(out, "%6" PRId32 "  %" PRIu64 "\n", r, found->routing->rank_tokens[r]);
  hec_text_printf(out,
                  "\noverload factor %.4f (busiest rank over mean)\nMB moved in this layer: dispatch %.3f (combine the "
                  "same), gather %.3f, migration %.3f\n",
                  hec_routing_overload(found->routing), (double)found->dispatch_bytes * 1e-6,
                  (double)found->gather_bytes * 1e-6, (double)found->migration_bytes * 1e-6);
}

static void print_note(const char *who, const hec_text *note, hec_text *out) {
  if (note->length == 0)
    return;
  hec_text_printf(out, "%s:", who);
  hec_summary_add_wrapped(note->data, strlen(who) + 1, 2, out);
}

/* The placement of all layers into the file; what the format cannot say is printed. */
static hec_status export(const settings *s, const hec_policy_run *run, hec_arena *arena, hec_text *out) {
  hec_placement placement;
  HEC_SCOPED(hec_text) text = {0}, lost = {0};
  int32_t first = s->job.first_layer > 0 ? s->job.first_layer : 0;
  HEC_TRY(hec_placement_of_plan(&run->plan, first, arena, &placement, &lost));
  HEC_TRY(hec_placement_write(s->format, &placement, &text, &lost));
  HEC_TRY(hec_write_file(s->out, text.data, text.length));
  hec_text_add_plain(out, s->out);
  hec_text_printf(out, ": where the experts of %" PRId32 " layers stand on %" PRId32 " ranks, format %s.\n",
                  placement.shape.n_layers, placement.shape.n_ranks, s->format->name);
  print_note("note", &lost, out);
  return HEC_OK;
}

/* What is computed of a recorded load. `rewritten` has room for it. */
static hec_load computed(hec_policy_run *run, const hec_load *recorded, hec_load *rewritten) {
  if (!run->policy->rewrite)
    return *recorded;
  memcpy(rewritten->counts, recorded->counts, hec_load_cells(recorded) * sizeof *recorded->counts);
  hec_load load = *rewritten;
  hec_policy_rewrite(run, &load);
  return load;
}

/* Plans the iteration in full: decide, then (stage refine) refine of the layer. */
static void plan_now(const settings *s, const hec_job *job, hec_policy_run *run, const hec_iteration *iteration,
                     hec_load *rewritten, hec_arena *arena, found_plan *found) {
  hec_plan before = hec_plan_new(arena, &job->problem, run->plan.n_slices);
  hec_plan_assign(&before, &run->plan);
  hec_load load = computed(run, &iteration->loads[0], rewritten);
  hec_policy_decide(run, iteration->iter, 0);
  found->due = run->planned;
  for (int32_t l = 0; s->refine && s->export && l < job->problem.n_layers; l++)
    hec_policy_refine(run, l, &load);
  if (s->refine && !s->export)
    hec_policy_refine(run, (int32_t)s->layer, &load);
  found->job = job;
  found->run = run;
  found->iter = iteration->iter;
  if (s->layer < 0)
    return;
  hec_routing *routing = HEC_NEW(arena, hec_routing, 1);
  *routing = hec_routing_new(arena, &job->problem);
  hec_routing_make(routing, run->policy->dispatch, &job->problem, &run->plan, &load, (int32_t)s->layer);
  found->routing = routing;
  found->layer = (int32_t)s->layer;
  add_bytes(found, &before, arena);
}

/* What users must know of it, behind what the policy says itself. `after`: the last record, taken once more. */
static void note_plan(found_plan *found, const int64_t *after) {
  const hec_policy_run *run = found->run;
  hec_text *note = &found->note;
  hec_text_add(note, run->note);
  if (after)
    hec_text_printf(note, "%safter all records; the tokens are those of iteration %" PRId64 " once more",
                    note->length > 0 ? "; " : "", *after);
  if (run->history.n_seen == 0 && hec_policy_looks_back(run->policy))
    hec_text_printf(note,
                    "%sno load before iteration %" PRId64
                    " is known: it places as it begins; --iter with a later iteration, or one past the last, places by "
                    "what was recorded",
                    note->length > 0 ? "; " : "", found->iter);
  else if (run->policy->known == HEC_KNOWN_PERIODIC && !found->due) {
    hec_text_printf(note, "%sno decision was due at iteration %" PRId64 ": it places as it ",
                    note->length > 0 ? "; " : "", found->iter);
    if (found->decided >= 0)
      hec_text_printf(note, "decided at iteration %" PRId64, found->decided);
    else
      hec_text_add(note, "began");
    hec_text_add(note, "; --period 1 decides anew");
  }
}

/* Advances the policy over an iteration as the lowering does, without lowering anything. Whether it decided. */
static bool advance(hec_policy_run *run, const hec_iteration *iteration, hec_load *rewritten) {
  bool decided = false;
  for (int32_t mb = 0; mb < iteration->n_micro_batches; mb++) {
    hec_load load = computed(run, &iteration->loads[iteration->n_loads == 1 ? 0 : mb], rewritten);
    hec_policy_decide(run, iteration->iter, mb);
    decided = decided || run->planned;
    for (int32_t l = 0; l < run->problem->n_layers; l++)
      hec_policy_refine(run, l, &load);
    hec_policy_observe(run, &load);
  }
  return decided;
}

static hec_status no_such_iteration(const settings *s, int64_t last) {
  return hec_fail(HEC_BAD_INPUT,
                  "--iter: the trace has no iteration %" PRId64 "; its last is %" PRId64 ", and %" PRId64
                  " plans after all records",
                  s->iter, last, last + 1);
}

/* One past the last iteration: the last load comes once more, and every record is history. */
static hec_status find(const settings *s, const hec_job *job, hec_trace_reader *reader, const hec_policy *policy,
                       hec_arena *arena, found_plan *found) {
  const hec_problem *problem = &job->problem;
  hec_policy_run *run = HEC_NEW(arena, hec_policy_run, 1);
  *run = hec_policy_start(policy, problem, arena);
  hec_load rewritten = hec_load_new(arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  hec_load last = hec_load_new(arena, problem->n_layers, problem->n_ranks, problem->n_experts);
  int64_t last_iter = -1;
  HEC_OPENED(hec_feed) *feed = hec_feed_new(job, reader);
  hec_status status = HEC_OK;
  const hec_iteration *iteration;
  bool there = false;
  while (!there && (status = hec_feed_next(feed, &iteration)) == HEC_OK && iteration) {
    there = iteration->iter == s->iter;
    if (there)
      break;
    last_iter = iteration->iter;
    memcpy(last.counts, iteration->loads[iteration->n_loads - 1].counts, hec_load_cells(&last) * sizeof *last.counts);
    if (advance(run, iteration, &rewritten))
      found->decided = iteration->iter;
  }
  const hec_iteration after = {.iter = s->iter, .stride = 1, .n_loads = 1, .n_micro_batches = 1, .loads = &last};
  if (status == HEC_OK && !there && s->iter != last_iter + 1)
    status = no_such_iteration(s, last_iter);
  if (status == HEC_OK) {
    if (s->reshard)
      hec_policy_reshard(run);
    plan_now(s, job, run, there ? iteration : &after, &rewritten, arena, found);
    note_plan(found, there ? NULL : &last_iter);
  }
  hec_policy_stop(run); /* its plan stays, on the arena */
  return status;
}

static hec_status tell(const settings *s, const found_plan *found, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0}, written = {0};
  if (s->matrix)
    HEC_TRY(write_matrix(found, s->matrix, arena));
  if (s->export)
    HEC_TRY(export(s, found->run, arena, &written));
  if (s->json)
    print_json(found, &text);
  else if (s->layer >= 0)
    print_table(found, &text);
  if (written.length > 0 && !s->json)
    hec_text_printf(&text, "%s%s", text.length > 0 ? "\n" : "", written.data);
  if (!s->json && found->note.length > 0) {
    hec_text_add(&text, s->layer >= 0 ? "\n" : "");
    print_note(found->run->policy->name, &found->note, &text);
  }
  return hec_output_print(&text);
}

static hec_status run_command(const settings *s, hec_trace_reader *reader, hec_arena *arena) {
  const hec_policy *policies[HEC_POLICIES_MAX];
  int32_t n;
  HEC_TRY(hec_job_args_policies(s->job.policy, arena, policies, &n));
  if (n != 1)
    return hec_fail(HEC_BAD_INPUT, "--policy: expected one policy, found \"%s\"", s->job.policy);
  if (s->job.placement && !policies[0]->placed)
    return hec_fail(HEC_BAD_INPUT, "--placement: expected --policy given beside it, found --policy %s", s->job.policy);
  hec_job_options wanted = s->job;
  hec_job job;
  wanted.solver = hec_solver_cbc();
  HEC_TRY(hec_job_make(&wanted, reader, arena, &job));
  HEC_TRY(hec_policy_suits(policies[0], &job.problem));
  if (s->layer >= job.problem.n_layers)
    return hec_fail(HEC_BAD_INPUT, "--layer: expected 0 to %" PRId32 ", found %" PRId64, job.problem.n_layers - 1,
                    s->layer);
  found_plan found = {.decided = -1};
  hec_status status = find(s, &job, reader, policies[0], arena, &found);
  if (status == HEC_OK)
    status = tell(s, &found, arena);
  hec_text_free(&found.note);
  return status;
}

int hec_plan_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_status status = parse(argc, argv, &s, &done);
  if (status != HEC_OK || done)
    return hec_tool_exit("hecate-sim plan", status);
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  HEC_SCOPED(hec_text) kept = {0};
  status = hec_job_args_open(s.trace, &kept, &reader);
  if (status == HEC_OK)
    status = run_command(&s, reader, &arena);
  return hec_tool_exit("hecate-sim plan", status);
}
