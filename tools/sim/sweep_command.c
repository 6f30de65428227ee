/* From words to a sweep (tools/front/sweep/sweep.h): where its shard comes from, where its rows go, and how far it is.
 *
 *   --out NAME.csv | NAME.json | NAME      one form, or both: NAME.csv and NAME.json
 *   NAME....journal                        finished rows, until the output is in place
 *   NAME....part-I-of-N                    instead of the output, of one shard of several */
#include "tools/sim/sim_commands.h"

#include "runtime/base/progress.h"
#include "runtime/plan/cbc/cbc.h"
#include "tools/front/args.h"
#include "tools/front/colour.h"
#include "tools/front/machine.h"
#include "tools/front/output.h"
#include "tools/front/sweep/sweep.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOL "hecate-sim " HEC_VERSION

typedef struct {
  const char *spec, *out, *shard_text, *report;
  int64_t threads; /* 0: all cores */
  bool json, count;
  int32_t shard, n_shards;
  const char *launcher; /* the shard comes from; NULL: the command line, or there is one */
} settings;

static const char notes_of_spec[] =
    "Spec: a JSON object; a key is an option of hecate-sim with _ for -, its value one value or an array of them:\n"
    "  {\"trace\": [\"loads.jsonl.gz\",\n"
    "             {\"synth\": {\"workload\": \"lognormal\", \"top_k\": [1, 2, 4], \"iterations\": 20}}],\n"
    "   \"policy\": \"all\", \"schedule\": [\"published\", \"pipemoe\"], \"law\": \"alpha_beta\",\n"
    "   \"cluster\": [\"p4d-4x8\", \"4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G\"],\n"
    "   \"model\": [\"gpt-moe-s\", \"mixtral-8x7b\"], \"ranks\": [16, 32], \"tokens\": [1024, 4096], \"m\": [\"auto\", "
    "0]}\n";
static const char notes_of_values[] =
    "  With layout or setup, a row is a training step, as of hecate-sim --layout, and keys of an iteration are "
    "refused.\n"
    "  \"auto\": hecate-sim's default. slow, skew: \"\" is none; \"rank=3:0.5,rank=4:0.5\" is one value.\n"
    "  synth: options of hecate-trace synth; arrays there multiply, too. Paths are relative to the spec's folder.\n"
    "  At most 1000000 configurations, 4096 traces, 8 GiB of traces (unpacked, in memory, once for all threads).\n"
    "\n"
    "Rows: in the order of the product, the last of the keys above turning fastest; the same bytes for any number of\n"
    "threads. Ratios (speedup_vs_ep, ...) are to rows that differ by the policy alone. A configuration that cannot run "
    "is\n"
    "a row with its reason in `error`; a value of slow or skew that none can have is an error of the spec.\n"
    "Interrupted (Ctrl-C, kill): the same command of the same build goes on from FILE.journal, which ends with the "
    "sweep;\n"
    "stderr says how many rows are done, then how many were taken over.";

/* The keys come from the table of options. */
static void add_notes(hec_text *out) {
  static const char title[] = "  keys:";
  HEC_SCOPED(hec_text) keys = {0};
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    hec_text_printf(&keys, "%s%s%s", a > 0 ? ", " : "", hec_sweep_axis_name(a),
                    a == HEC_AXIS_trace    ? " (required)"
                    : a == HEC_AXIS_policy ? " (default all)"
                                           : "");
  hec_text_add(out, notes_of_spec);
  hec_text_add(out, title);
  hec_text_wrap(out, keys.data, sizeof title - 1, 2, HEC_ARGS_COLUMNS);
  hec_text_add(out, ";\n");
  hec_text_add(out, notes_of_values);
}

static const char exits[] =
    "0 done (also where some configurations cannot run), 1 the run failed or no configuration can\n"
    "run (rows are written all the same; of a shard 0), 2 bad input or usage";

static const char example[] =
    "  hecate-sim sweep traces/sample-sweep.json\n"
    "  hecate-sim sweep spec.json --out result.csv --report result.html --threads 8\n"
    "  srun -n 4 hecate-sim sweep spec.json --out result     (writes result.part-0-of-4, ...)\n"
    "  hecate-sim sweep merge result.part-*-of-4 --out result.json";

/* ---- Command line ---- */

/* Whole, of decimal digits alone; -1: not so. */
static int32_t whole(const char *text, size_t n) {
  int32_t value = 0;
  if (n == 0 || n > 6 || strspn(text, "0123456789") < n)
    return -1;
  for (size_t i = 0; i < n; i++)
    value = 10 * value + (text[i] - '0');
  return value;
}

/* srun sets the size of the step; a batch script alone has SLURM_NTASKS, too, and is one process. */
static bool launched(settings *s, const char *name, const char *rank, const char *size) {
  const char *i = getenv(rank), *n = getenv(size);
  if (!i || !n)
    return false;
  s->shard = whole(i, strlen(i));
  s->n_shards = whole(n, strlen(n));
  s->launcher = name;
  return s->n_shards > 1 && s->shard >= 0 && s->shard < s->n_shards;
}

static hec_status choose_shard(settings *s) {
  const char *text = s->shard_text, *slash = text ? strchr(text, '/') : NULL;
  if (!text) {
    if (!launched(s, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") &&
        !launched(s, "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")) {
      s->shard = 0;
      s->n_shards = 1;
      s->launcher = NULL;
    }
    return HEC_OK;
  }
  s->shard = slash ? whole(text, (size_t)(slash - text)) : -1;
  s->n_shards = slash ? whole(slash + 1, strlen(slash + 1)) : -1;
  if (s->shard < 0 || s->n_shards < 1 || s->shard >= s->n_shards)
    return hec_fail(HEC_BAD_INPUT, "--shard: expected I/N with I from 0 to N - 1, found \"%s\"", text);
  return HEC_OK;
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.n_shards = 1};
  HEC_SCOPED(hec_text) notes = {0};
  add_notes(&notes);
  const hec_arg args[] = {
      HEC_ARG_WORD("--out", s->out, "FILE", "write FILE: .csv or .json by its name, else FILE.csv and FILE.json"),
      HEC_ARG_WORD("--report", s->report, "FILE.html",
                   "write a page that opens offline: which policy wins over the two longest axes, and by how much"),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document on stdout (without it and --out: CSV)", 0, 0},
      HEC_ARG_WHOLE("--threads", s->threads, "N", "threads (default: all cores)", 1, 1024),
      HEC_ARG_WORD("--shard", s->shard_text, "I/N",
                   "part I (0 to N - 1) of N, to FILE.part-I-of-N (default: from srun or mpirun of Open MPI)"),
      {"--count", HEC_ARG_FLAG, &s->count, NULL, "say how many configurations there are, and run none", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-sim sweep",
      .usage = "hecate-sim sweep SPEC.json [options]\n       hecate-sim sweep merge PART... [--out FILE]",
      .summary =
          "Simulates every configuration of a product of traces, models, clusters, scales, layouts, options, laws, "
          "schedules and\npolicies: one row each. merge joins the files of its shards.",
      .examples = example,
      .notes = notes.data,
      .exits = exits,
      .args = args};
  int32_t n;
  HEC_TRY(hec_args_parse(&command, argc, argv, &s->spec, 1, &n, done));
  if (*done)
    return HEC_OK;
  if (n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected a spec; see hecate-sim sweep --help");
  HEC_TRY(choose_shard(s));
  if (s->n_shards > 1 && !s->count && (!s->out || s->json))
    return hec_fail(HEC_BAD_INPUT, "shard %" PRId32 "/%" PRId32 "%s%s%s: expected --out FILE%s", s->shard, s->n_shards,
                    s->launcher ? " (from " : "", s->launcher ? s->launcher : "", s->launcher ? ")" : "",
                    s->json ? " and no --json, a part is no document" : " beside it, found none");
  if (s->n_shards > 1 && s->report)
    return hec_fail(HEC_BAD_INPUT,
                    "--report: expected all rows of the sweep, found one shard; see sweep merge --report");
  return HEC_OK;
}

/* ---- Output ---- */

/* Paths of what is written; NULL data: not. */
typedef struct {
  hec_text csv, json, part, journal, page;
} targets;

static bool ends(const char *text, const char *suffix) {
  size_t length = strlen(text), tail = strlen(suffix);
  return length > tail && strcmp(text + length - tail, suffix) == 0;
}

static hec_status choose_page(const char *report, targets *t) {
  if (!report)
    return HEC_OK;
  HEC_TRY(hec_output_check_file("--report", report));
  hec_text_add(&t->page, report);
  return HEC_OK;
}

static hec_status choose_targets(const char *out, int32_t shard, int32_t n_shards, targets *t) {
  if (n_shards > 1) {
    hec_text_printf(&t->part, "%s.part-%" PRId32 "-of-%" PRId32, out, shard, n_shards);
    hec_text_printf(&t->journal, "%s.journal", t->part.data);
  } else {
    bool csv = ends(out, ".csv"), json = ends(out, ".json");
    if (!json)
      hec_text_printf(&t->csv, "%s%s", out, csv ? "" : ".csv");
    if (!csv)
      hec_text_printf(&t->json, "%s%s", out, json ? "" : ".json");
    hec_text_printf(&t->journal, "%s.journal", out);
  }
  const struct {
    const hec_text *path;
    const char *head; /* of hecate's; "": its opening looks at what is in it */
  } all[] = {{&t->csv, "trace,model,cluster,"},
             {&t->json, "{\"version\":1,\"tool\":\"hecate-"},
             {&t->part, "{\"format\":\"hecate-sweep-rows\""},
             {&t->journal, ""}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].path->data)
      HEC_TRY(hec_output_check_made_up("--out", all[i].path->data, all[i].head));
  return HEC_OK;
}

enum { N_TARGETS = 5 };

/* Neither the spec or the parts (`what`), nor a file that the spec names, nor one written twice. */
static hec_status check_targets(const targets *t, const char *what, const char *const *read, int32_t n_read,
                                hec_sweep *sweep) {
  hec_sweep_axis of_files[1 + HEC_N_SWEEP_OF_FILES] = {HEC_AXIS_trace};
  memcpy(of_files + 1, hec_sweep_of_files, sizeof hec_sweep_of_files);
  const struct {
    const char *option;
    const hec_text *path;
  } written[N_TARGETS] = {
      {"--out", &t->csv}, {"--out", &t->json}, {"--out", &t->part}, {"--out", &t->journal}, {"--report", &t->page}};
  int32_t n = n_read + N_TARGETS, at = 0;
  for (int32_t f = 0; f < 1 + HEC_N_SWEEP_OF_FILES; f++)
    n += sweep->axis[of_files[f]].n;
  hec_path_use *uses = HEC_NEW(&sweep->arena, hec_path_use, n);
  for (int32_t i = 0; i < n_read; i++)
    uses[at++] = (hec_path_use){what, read[i], false};
  for (int32_t f = 0; f < 1 + HEC_N_SWEEP_OF_FILES; f++)
    for (int32_t i = 0; i < sweep->axis[of_files[f]].n; i++) {
      const char *path = sweep->axis[of_files[f]].value[i].path;
      uses[at++] = (hec_path_use){hec_sweep_axis_name(of_files[f]), path, false};
    }
  for (int i = 0; i < N_TARGETS; i++)
    uses[at++] = (hec_path_use){written[i].option, written[i].path->data, true};
  return hec_paths_check(uses, n);
}

static void targets_free(targets *t) {
  hec_text_free(&t->csv);
  hec_text_free(&t->json);
  hec_text_free(&t->part);
  hec_text_free(&t->journal);
  hec_text_free(&t->page);
}

static hec_status write_targets(const targets *t, const hec_sweep_rows *rows, const settings *s) {
  HEC_SCOPED(hec_text) csv = {0}, json = {0}, part = {0}, page = {0};
  hec_file_out files[4];
  int32_t n = 0;
  if (t->csv.data) {
    hec_sweep_csv(rows, &csv);
    files[n++] = (hec_file_out){t->csv.data, csv.data, csv.length};
  }
  if (t->json.data) {
    hec_sweep_json(rows, TOOL, &json);
    files[n++] = (hec_file_out){t->json.data, json.data, json.length};
  }
  if (t->part.data) {
    hec_sweep_part(rows, TOOL, s->shard, s->n_shards, &part);
    files[n++] = (hec_file_out){t->part.data, part.data, part.length};
  }
  if (t->page.data) {
    hec_sweep_page(rows, TOOL, &page);
    files[n++] = (hec_file_out){t->page.data, page.data, page.length};
  }
  return hec_write_files(files, n);
}

/* A shard is not the whole: others may have what runs. */
static hec_status check_some_ran(const hec_sweep_rows *rows, const settings *s) {
  for (int64_t i = 0; i < rows->sweep->n; i++)
    if (s->n_shards > 1 || !rows->row[i]->why)
      return HEC_OK;
  return hec_fail(HEC_FAILED, "none of the %" PRId64 " configurations can run, the first: %s", rows->sweep->n,
                  rows->row[0]->why);
}

/* What goes to standard output: the rows themselves, or where they are. */
static hec_status print(const targets *t, const hec_sweep_rows *rows, const settings *s) {
  HEC_SCOPED(hec_text) out = {0};
  int64_t n = 0, failed = 0;
  for (int64_t i = 0; i < rows->sweep->n; i++) {
    n += rows->row[i] != NULL;
    failed += rows->row[i] && rows->row[i]->why;
  }
  if (s->json) {
    hec_sweep_json(rows, TOOL, &out);
  } else if (!s->out) {
    hec_sweep_csv(rows, &out);
  } else {
    hec_text_printf(&out, "%" PRId64 " rows", n);
    if (s->n_shards > 1)
      hec_text_printf(&out, " of %" PRId64 " (shard %" PRId32 "/%" PRId32 "%s%s)", rows->sweep->n, s->shard,
                      s->n_shards, s->launcher ? ", from " : "", s->launcher ? s->launcher : "");
    if (failed > 0)
      hec_text_printf(&out, ", %" PRId64 " of configurations that cannot run", failed);
    hec_text_add(&out, ". Written:");
    const hec_text *all[] = {&t->csv, &t->json, &t->part, &t->page};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
      if (all[i]->data)
        hec_text_printf(&out, " %s", all[i]->data);
    hec_text_add(&out, "\n");
  }
  return hec_output_print(&out);
}

static hec_status print_count(const hec_sweep *sweep, const settings *s) {
  HEC_SCOPED(hec_text) out = {0};
  int64_t mine = 0;
  for (int64_t i = 0; i < sweep->n; i++)
    mine += hec_sweep_mine(sweep, i, s->shard, s->n_shards);
  hec_text_printf(&out, "%" PRId64 " configurations:", sweep->n);
  const char *between = " ";
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
    if (sweep->axis[a].n == 1)
      continue;
    hec_text_printf(&out, "%s%" PRId32 " %s", between, sweep->axis[a].n, hec_sweep_axis_name(a));
    between = " x ";
  }
  hec_text_printf(&out, "%s\n", sweep->n == 1 ? " one value of everything" : "");
  if (s->n_shards > 1)
    hec_text_printf(&out, "%" PRId64 " of them in shard %" PRId32 "/%" PRId32 "\n", mine, s->shard, s->n_shards);
  return hec_output_print(&out);
}

/* ---- Running ---- */

static void show_progress(int64_t done, int64_t of, int64_t before, double seconds, void *context) {
  (void)seconds, (void)context;
  hec_progress_at((double)done, (double)of, (double)before);
}

/* ---- Ctrl-C ---- */

/* What the handler says: with lock-free counts, digits of its own and write(2), all that a handler may use. */
static struct {
  _Atomic int64_t done, of;
  bool kept;                  /* there is a journal */
  struct sigaction before[2]; /* of `stops` */
} progress;

static const int stops[] = {SIGINT, SIGTERM};

static size_t add_digits(char *to, int64_t value) {
  char digits[24];
  size_t n = 0;
  do
    digits[n++] = (char)('0' + value % 10);
  while ((value /= 10) > 0);
  for (size_t i = 0; i < n; i++)
    to[i] = digits[n - 1 - i];
  return n;
}

static size_t add_words(char *to, const char *words) {
  size_t n = strlen(words);
  memcpy(to, words, n);
  return n;
}

/* Says it, and hands over to the handler that was there before: files half written are removed by it. */
static void stopped(int number) {
  char line[160];
  size_t n = add_words(line, "hecate-sim sweep: ");
  n += add_digits(line + n, atomic_load(&progress.done));
  n += add_words(line + n, " of ");
  n += add_digits(line + n, atomic_load(&progress.of));
  n += add_words(line + n, progress.kept ? " rows done; the same command goes on from there\n"
                                         : " rows done, none kept: with --out FILE it would go on from there\n");
  hec_progress_stop();
  ssize_t written = write(STDERR_FILENO, line, n);
  (void)written;
  (void)sigaction(number, &progress.before[number != stops[0]], NULL);
  (void)raise(number);
}

/* A signal that is ignored (nohup, a job in the background of a script) stays so. */
static void say_when_stopped(int64_t done, int64_t of, bool kept) {
  const struct sigaction action = {.sa_handler = stopped};
  atomic_store(&progress.done, done);
  atomic_store(&progress.of, of);
  progress.kept = kept;
  for (int i = 0; i < 2; i++)
    if (sigaction(stops[i], NULL, &progress.before[i]) == 0 && progress.before[i].sa_handler != SIG_IGN)
      (void)sigaction(stops[i], &action, NULL);
}

static void begin_rows(const settings *s, const targets *t, const hec_sweep_rows *rows) {
  int64_t of = 0, before = 0;
  for (int64_t i = 0; i < rows->sweep->n; i++) {
    bool mine = hec_sweep_mine(rows->sweep, i, s->shard, s->n_shards);
    of += mine;
    before += mine && rows->row[i];
  }
  hec_progress_wipe();
  if (before > 0)
    fprintf(stderr, "hecate-sim sweep: %" PRId64 " of %" PRId64 " rows taken over from %s\n", before, of,
            t->journal.data);
  say_when_stopped(before, of, s->out != NULL);
}

static hec_status compute(const settings *s, const targets *t, hec_sweep_rows *rows) {
  hec_sweep_journal journal = {.file = -1};
  hec_sweep_run_options options = {.n_threads = s->threads > 0 ? (int32_t)s->threads : hec_machine_cores(),
                                   .shard = s->shard,
                                   .n_shards = s->n_shards,
                                   .solver = hec_solver_cbc(),
                                   .progress = show_progress,
                                   .done = &progress.done};
  hec_status status = HEC_OK;
  if (s->out) {
    status = hec_sweep_journal_open(t->journal.data, TOOL, s->shard, s->n_shards, rows, &journal);
    options.journal = &journal;
  }
  if (status == HEC_OK) {
    begin_rows(s, t, rows);
    hec_progress_stage("simulating", "rows");
    status = hec_sweep_run(rows, &options);
  }
  hec_progress_stage("writing", NULL);
  if (status == HEC_OK && (s->out || s->report))
    status = write_targets(t, rows, s);
  hec_sweep_journal_close(&journal, status == HEC_OK && s->out); /* what is not in place is still in the journal */
  return status;
}

static hec_status run(const settings *s, hec_sweep *sweep, hec_sweep_rows *rows, targets *t) {
  HEC_TRY(hec_sweep_read(s->spec, sweep));
  if (s->count)
    return print_count(sweep, s);
  if (s->out)
    HEC_TRY(choose_targets(s->out, s->shard, s->n_shards, t));
  HEC_TRY(choose_page(s->report, t));
  HEC_TRY(check_targets(t, "the spec", &s->spec, 1, sweep));
  hec_progress_stage("reading the traces", NULL);
  HEC_TRY(hec_sweep_load(sweep, TOOL, hec_source_digest));
  *rows = hec_sweep_rows_new(sweep);
  HEC_TRY(compute(s, t, rows));
  HEC_TRY(print(t, rows, s));
  return check_some_ran(rows, s);
}

/* ---- Merging ---- */

static hec_status merge(int argc, char **argv, hec_sweep *sweep, hec_sweep_rows *rows, targets *t) {
  settings s = {.n_shards = 1};
  const hec_arg args[] = {
      HEC_ARG_WORD("--out", s.out, "FILE", "write FILE: .csv or .json by its name, else FILE.csv and FILE.json"),
      HEC_ARG_WORD("--report", s.report, "FILE.html",
                   "write a page that opens offline: which policy wins over the two longest axes, and by how much"),
      {"--json", HEC_ARG_FLAG, &s.json, NULL, "one JSON document on stdout (without it and --out: CSV)", 0, 0},
      {.name = NULL}};
  const hec_command command = {.program = "hecate-sim sweep merge",
                               .usage = "hecate-sim sweep merge PART... [--out FILE] [--report FILE.html] [--json]",
                               .summary = "Joins all parts of a sharded sweep: the same bytes as without shards.",
                               .examples = "  hecate-sim sweep merge result.part-*-of-4 --out result.csv",
                               .exits = "0 done, 1 the run failed or no configuration can run, 2 bad input or usage",
                               .args = args};
  HEC_SCOPED(hec_arena) arena = {0};
  const char **parts = HEC_NEW(&arena, const char *, argc);
  int32_t n = 0;
  bool done;
  HEC_TRY(hec_args_parse(&command, argc, argv, parts, argc, &n, &done));
  if (done)
    return HEC_OK;
  if (n == 0)
    return hec_fail(HEC_BAD_INPUT, "expected parts; see hecate-sim sweep merge --help");
  if (s.out)
    HEC_TRY(choose_targets(s.out, 0, 1, t));
  HEC_TRY(choose_page(s.report, t));
  HEC_TRY(check_targets(t, "the part", parts, n, sweep));
  HEC_TRY(hec_sweep_merge(parts, n, TOOL, sweep, rows));
  if (s.out || s.report)
    HEC_TRY(write_targets(t, rows, &s));
  HEC_TRY(print(t, rows, &s));
  return check_some_ran(rows, &s);
}

int hec_sweep_command(int argc, char **argv) {
  bool merging = argc > 1 && strcmp(argv[1], "merge") == 0, done = false;
  settings s = {.n_shards = 1};
  HEC_SCOPED(hec_sweep) sweep = {0};
  HEC_SCOPED(hec_sweep_rows) rows = {0};
  HEC_SCOPED(targets) t = {{0}, {0}, {0}, {0}, {0}};
  hec_status status;
  if (merging) {
    status = merge(argc - 1, argv + 1, &sweep, &rows, &t);
  } else {
    status = parse(argc, argv, &s, &done);
    if (status == HEC_OK && !done)
      status = run(&s, &sweep, &rows, &t);
  }
  return hec_tool_exit(merging ? "hecate-sim sweep merge" : "hecate-sim sweep", status);
}
