/* hecate-bench collectives: options and output of collective_bench.h. */
#include "runtime/exec/math/math.h"
#include "runtime/exec/mpi/plugin.h"
#include "tools/bench/bench.h"
#include "tools/bench/collective_bench.h"
#include "tools/front/options.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  int64_t ranks, repeats, min, max;
  hec_target_args target; /* backend */
  bool json;
} settings;

static hec_status parse(int argc, char **argv, settings *s, bool *done) {
  static const hec_run_option_words words[] = {
      {"backend", NULL, "cpu (default: processes over shared memory) or mpi (under mpirun)"},
      {.key = NULL},
  };
  *s = (settings){.ranks = 2, .repeats = 60, .min = 1, .max = 64, .target = HEC_TARGET_ARGS};
  const hec_arg args[] = {
      HEC_ARG_TARGET("", s->target, "backend", words),
      HEC_ARG_WHOLE("--ranks", s->ranks, "R", "ranks of backend cpu, one per core (default 2)", 2, 256),
      HEC_ARG_WHOLE("--repeats", s->repeats, "N", "timed repeats of each row (default 60)", 5, 100000),
      HEC_ARG_WHOLE("--min", s->min, "M", "smallest message in MiB (default 1); then 4 times as much each", 1, 1024),
      HEC_ARG_WHOLE("--max", s->max, "M", "largest message in MiB (default 64)", 1, 1024),
      {"--json", HEC_ARG_FLAG, &s->json, NULL, "one JSON document", 0, 0},
      {.name = NULL}};
  const hec_command command = {
      .program = "hecate-bench collectives",
      .usage =
          "hecate-bench collectives [options]\n       mpirun -n 2 hecate-bench collectives --backend mpi [options]",
      .summary =
          "Times SparseAllGather and SparseReduceScatter of the executor in turn with the least that moving the same\n"
          "bytes can cost: memcpy and a plain loop of additions out of the sender's memory, or, under MPI,\n"
          "MPI_Allgatherv and MPI_Reduce_scatter. 'one': rank 0's expert goes to (comes from) all others; 'all': "
          "every\n"
          "rank's does. ratio = time of the limit / time of the executor, repeat by repeat: above 1 it is faster.\n"
          "Median [10th percentile, 90th percentile]; clean: repeats in which no rank was interrupted, which alone\n"
          "count when there are enough of them.",
      .examples = "  hecate-bench collectives --max 16 --repeats 20\n"
                  "  mpirun -n 2 hecate-bench collectives --backend mpi --json",
      .args = args};
  HEC_TRY(hec_args_options(&command, argc, argv, done));
  return s->min <= s->max ? HEC_OK : hec_fail(HEC_BAD_INPUT, "--min is above --max");
}

static const char *limit_name(bool scatter, bool mpi) {
  return mpi ? scatter ? "MPI_Reduce_scatter" : "MPI_Allgatherv" : scatter ? "loop of additions" : "memcpy";
}

#define SHOW_SPREAD(key, unit, of)                                                                                     \
  HEC_OBJECT(key, HEC_KEEP("median", (of).median), HEC_KEEP("p10", (of).low), HEC_KEEP("p90", (of).high)),             \
      HEC_CELL(hec_doc_text(doc, "%.2f [%.2f, %.2f]", (unit) * (of).median, (unit) * (of).low, (unit) * (of).high))

typedef struct {
  settings settings;
  const char *transport;
  hec_collective_row row[HEC_BENCH_ROWS_MAX];
  int32_t n_rows;
  bool speaks;
} results;

static void report(const void *of, hec_doc *doc) {
  const results *r = of;
  const settings *s = &r->settings;
  HEC_ADD(doc, HEC_KEEP("version", 1), HEC_KEEP("backend", s->target.backend), HEC_KEEP("transport", r->transport),
          HEC_KEEP("ranks", s->ranks), HEC_KEEP("repeats", s->repeats));
  hec_doc_note(doc, "%d ranks, transport %s, %d repeats; GB/s into a receiving rank", (int)s->ranks, r->transport,
               (int)s->repeats);
  hec_doc_table(doc, "rows", "collective | pattern | MiB | limit | executor | limit | ratio | used | clean");
  for (const hec_collective_row *row = r->row; row < r->row + r->n_rows; row++)
    HEC_ROW(doc, HEC_SHOW("collective", HEC_AS_IS, row->scatter ? "spRS" : "spAG"),
            HEC_SHOW("pattern", HEC_AS_IS, row->all ? "all" : "one"), HEC_KEEP("message_bytes", row->bytes),
            HEC_SHOW(NULL, HEC_AS_IS, row->bytes >> 20),
            HEC_SHOW("limit", HEC_AS_IS, limit_name(row->scatter, strcmp(s->target.backend, "mpi") == 0)),
            SHOW_SPREAD("executor_bytes_per_s", 1e-9, row->speed), SHOW_SPREAD("limit_bytes_per_s", 1e-9, row->limit),
            SHOW_SPREAD("ratio", 1, row->ratio), HEC_SHOW("used", HEC_AS_IS, row->n_used),
            HEC_SHOW("clean", HEC_AS_IS, row->n_clean));
  hec_doc_end(doc);
}

static hec_status run(results *r) {
  settings *s = &r->settings;
  const hec_backend *backend = hec_backend_find(s->target.backend);
  HEC_SCOPED(hec_text) why = {0};
  if (!backend || backend->link) /* the collectives here are those of hosts */
    return hec_fail(HEC_BAD_INPUT, "--backend: expected cpu or mpi, found %s", s->target.backend);
  HEC_TRY(backend->available(&why) ? HEC_OK : hec_fail(HEC_FAILED, "backend %s: %s", s->target.backend, why.data));
  int32_t n_ranks;
  HEC_TRY(backend->ranks(&n_ranks));
  s->ranks = n_ranks > 0 ? n_ranks : s->ranks;
  if (s->ranks < 2)
    return hec_fail(HEC_BAD_INPUT, "a collective needs 2 ranks: mpirun -n 2");
  hec_collective_bench bench = {.backend = backend, .n_ranks = (int32_t)s->ranks, .repeats = (int32_t)s->repeats};
  for (int64_t size = s->min; size <= s->max && bench.n_sizes < HEC_BENCH_SIZES_MAX; size *= 4)
    bench.bytes[bench.n_sizes++] = size << 20;
  HEC_TRY(hec_collective_bench_run(&bench, r->row, &r->n_rows));
  r->transport = backend->transport ? backend->transport()->name : "shm";
  r->speaks = backend->speaks();
  if (backend->close)
    backend->close(0);
  return HEC_OK;
}

int hec_collectives_command(int argc, char **argv) {
  results r = {.n_rows = 0};
  bool done;
  hec_status status = parse(argc, argv, &r.settings, &done);
  if (status == HEC_OK && !done)
    status = run(&r);
  return hec_bench_report(status, done || !r.speaks, report, &r, r.settings.json);
}
