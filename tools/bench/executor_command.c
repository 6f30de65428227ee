/* hecate-bench executor: what an operation costs the executor itself. A program of local operations that do nothing is
 * posted in segments and run. They are on all lanes, each waiting for the one before and for an earlier one, with as
 * many open buffers as twelve layers have. The result is CPU time of the rank's thread for posting and running, per
 * operation. 0 steps: the work table has none for them; 1: one that does nothing. */
#include "runtime/base/arena.h"
#include "runtime/base/quantile.h"
#include "runtime/exec/exec_case.h"
#include "runtime/plan/problem.h"
#include "tools/bench/bench.h"
#include "tools/front/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 120, SEGMENT = 100, REPEATS_MAX = 1000, ROWS_MAX = 4 };

typedef struct {
  int64_t operations, repeats, ranks;
  bool json;
} settings;

/* Seconds of CPU per operation, one row of repeats per rank; shared with the ranks. */
typedef struct {
  const settings *settings;
  const hec_exec_case *problem;
  int32_t n_steps;
  double *seconds; /* [n_ranks * repeats] */
} job;

static void bind(void *context, hec_exec *exec, hec_exec_op *op) {
  const job *j = context;
  (void)exec;
  op->n_steps = j->n_steps;
}

static void no_step(void *context, hec_exec *exec, hec_exec_op *op) {
  (void)context, (void)exec, (void)op;
}

static hec_exec_options options_of(job *j, hec_rank *rank) {
  return (hec_exec_options){.problem = &j->problem->problem,
                            .rank = rank,
                            .work = {.bind = bind, .run = no_step, .context = j},
                            .n_slices = 1,
                            .expert_size = 16,
                            .n_micro_batches = 1};
}

static void add_operation(hec_program *p, int32_t id) {
  int32_t before[2] = {id - 1, id - 17 < 0 ? -1 : id - 17};
  (void)hec_program_add(p, hec_exec_case_op(HEC_OP_LOCAL, (hec_lane)(id * 7 % HEC_N_LANES), HEC_ROLE_PERMUTE), before,
                        2);
}

static hec_status run_program(hec_exec *exec, hec_program *p, int32_t n, double *cpu_s) {
  int64_t spent = 0;
  hec_program_clear(p, hec_exec_problem(exec)->n_ranks);
  for (int32_t i = 0; i < BUFFERS; i++)
    (void)hec_program_hold(p, (hec_hold){HEC_MEMORY_BUFFER, 0, 0, n - 1, -1, 4096, HEC_TENSOR_SEND, i, -1});
  hec_exec_begin(exec, 0, hec_clock_ns());
  for (int32_t id = 0; id < n;) {
    for (int32_t end = id + SEGMENT < n ? id + SEGMENT : n; id < end; id++)
      add_operation(p, id);
    int64_t before = hec_cpu_clock_ns();
    HEC_TRY(hec_exec_post(exec, p));
    HEC_TRY(hec_exec_wait(exec, id - 1));
    spent += hec_cpu_clock_ns() - before;
  }
  *cpu_s = 1e-9 * (double)spent / n;
  return hec_exec_finish(exec, p);
}

static hec_status body(hec_rank *rank, void *context) {
  job *j = context;
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_program) program = {0};
  hec_exec *exec = NULL;
  hec_exec_options options = options_of(j, rank);
  hec_status status = hec_exec_new(&options, &arena, &exec);
  if (status == HEC_OK)
    status = hec_exec_set_plan(exec, &j->problem->plan, true);
  double *row = j->seconds + rank->rank * j->settings->repeats, warm_up;
  for (int64_t i = -1; i < j->settings->repeats && status == HEC_OK; i++)
    status = run_program(exec, &program, (int32_t)j->settings->operations, i < 0 ? &warm_up : &row[i]);
  hec_exec_free(exec);
  return status;
}

/* Median, least and greatest over repeats and ranks. */
static hec_status measure(const settings *s, int32_t n_ranks, int32_t n_steps, double out[3]) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_exec_case problem;
  int32_t n = n_ranks * (int32_t)s->repeats;
  job j = {.settings = s, .problem = &problem, .n_steps = n_steps};
  j.seconds = hec_exec_case_share((size_t)n * sizeof *j.seconds);
  hec_status status = hec_exec_case_make(n_ranks, &arena, &problem);
  if (status == HEC_OK) {
    hec_exec_options options = options_of(&j, NULL);
    hec_launch_options launch = {.n_ranks = n_ranks,
                                 .pin = true,
                                 .transport = &hec_transport_shm,
                                 .cluster = &problem.cluster,
                                 .memory_bytes = hec_exec_bytes(&options)};
    status = hec_launch(&launch, body, &j);
  }
  hec_values_sort(j.seconds, n);
  out[0] = hec_values_quantile(j.seconds, n, 0.5);
  out[1] = j.seconds[0];
  out[2] = j.seconds[n - 1];
  return status;
}

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  *s = (settings){.ranks = 2, .repeats = 20, .operations = 20000};
  const hec_arg args[] = {
      HEC_ARG_WHOLE("--ranks", s->ranks, "R", "most ranks; one alone is timed too (default 2)", 1, 256),
      HEC_ARG_WHOLE("--operations", s->operations, "N", "operations of a program (default 20000)", 100, 1000000),
      HEC_ARG_WHOLE("--repeats", s->repeats, "N", "programs timed (default 20)", 1, REPEATS_MAX),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-bench executor",
      .usage = "hecate-bench executor [options]",
      .summary = "CPU time of a rank's thread per empty local operation, posting and running together.",
      .examples = "  hecate-bench executor --ranks 2\n  hecate-bench executor --operations 1000 --repeats 5 --json",
      .args = args};
  return hec_args_options(&command, argc, argv, done);
}

typedef struct {
  const settings *settings;
  int32_t n, ranks[ROWS_MAX], steps[ROWS_MAX];
  double cpu_s[ROWS_MAX][3];
} results;

static hec_status run(results *r) {
  const settings *s = r->settings;
  for (int32_t i = 0; i < (s->ranks > 1 ? 4 : 2); i++) {
    r->ranks[i] = i < 2 ? 1 : (int32_t)s->ranks;
    r->steps[i] = i % 2;
    HEC_TRY(measure(s, r->ranks[i], r->steps[i], r->cpu_s[i]));
    r->n++;
  }
  return HEC_OK;
}

static void report(const void *of, hec_doc *doc) {
  const results *r = of;
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("operations", r->settings->operations),
          HEC_KEEP("repeats", r->settings->repeats));
  hec_doc_note(doc, "%d empty local operations, %d repeats; CPU time per operation", (int)r->settings->operations,
               (int)r->settings->repeats);
  hec_doc_table(doc, "rows", "ranks | steps | median | least | greatest");
  for (int32_t i = 0; i < r->n; i++)
    HEC_ROW(doc, HEC_SHOW("ranks", HEC_AS_IS, r->ranks[i]), HEC_SHOW("steps", HEC_AS_IS, r->steps[i]),
            HEC_SHOW("cpu_s", HEC_SECONDS, r->cpu_s[i][0]), HEC_SHOW("cpu_least_s", HEC_SECONDS, r->cpu_s[i][1]),
            HEC_SHOW("cpu_greatest_s", HEC_SECONDS, r->cpu_s[i][2]));
  hec_doc_end(doc);
}

int hec_executor_command(int argc, char **argv) {
  settings s;
  bool done;
  results r = {.settings = &s};
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = run(&r);
  return hec_bench_report(status, done, report, &r, s.json);
}
