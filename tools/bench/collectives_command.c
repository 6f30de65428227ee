/* hecate-bench collectives: options and output of collective_bench.h. */
#include "runtime/exec/math/math.h"
#include "runtime/exec/mpi/plugin.h"
#include "tools/bench/bench_commands.h"
#include "tools/bench/bench_loads.h"
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
  int32_t n;
  HEC_TRY(hec_args_parse(&command, argc, argv, NULL, 0, &n, done));
  return s->min <= s->max ? HEC_OK : hec_fail(HEC_BAD_INPUT, "--min is above --max");
}

static const char *limit_name(bool scatter, bool mpi) {
  return mpi ? scatter ? "MPI_Reduce_scatter" : "MPI_Allgatherv" : scatter ? "loop of additions" : "memcpy";
}

static void json_rows(const settings *s, const hec_collective_row *rows, int32_t n_rows, const char *transport,
                      hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  hec_json_string(&json, "backend", s->target.backend);
  hec_json_string(&json, "transport", transport);
  hec_json_int(&json, "ranks", s->ranks);
  hec_json_int(&json, "repeats", s->repeats);
  hec_json_array(&json, "rows");
  for (const hec_collective_row *row = rows; row < rows + n_rows; row++) {
    hec_json_object(&json, NULL);
    hec_json_string(&json, "collective", row->scatter ? "spRS" : "spAG");
    hec_json_string(&json, "pattern", row->all ? "all" : "one");
    hec_json_int(&json, "message_bytes", row->bytes);
    hec_json_string(&json, "limit", limit_name(row->scatter, strcmp(s->target.backend, "mpi") == 0));
    hec_bench_spread_json(&json, "executor_bytes_per_s", row->speed);
    hec_bench_spread_json(&json, "limit_bytes_per_s", row->limit);
    hec_bench_spread_json(&json, "ratio", row->ratio);
    hec_json_int(&json, "used", row->n_used);
    hec_json_int(&json, "clean", row->n_clean);
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_close(&json);
}

static void print_rows(const settings *s, const hec_collective_row *rows, int32_t n_rows, const char *transport,
                       hec_text *out) {
  hec_text_printf(out, "%d ranks, transport %s, %d repeats; GB/s into a receiving rank\n\n", (int)s->ranks, transport,
                  (int)s->repeats);
  hec_text_printf(out, "%-5s %-4s %5s  %-22s  %-22s  %-22s %9s\n", "", "", "MiB", "executor", "limit", "ratio",
                  "clean");
  for (const hec_collective_row *row = rows; row < rows + n_rows; row++) {
    const hec_bench_spread *of[3] = {&row->speed, &row->limit, &row->ratio};
    hec_text_printf(out, "%-5s %-4s %5d ", row->scatter ? "spRS" : "spAG", row->all ? "all" : "one",
                    (int)(row->bytes >> 20));
    for (int32_t k = 0; k < 3; k++) {
      double unit = k == 2 ? 1 : 1e-9;
      hec_text_printf(out, " %6.2f [%6.2f,%6.2f] ", unit * of[k]->median, unit * of[k]->low, unit * of[k]->high);
    }
    hec_text_printf(out, " %5d/%d  %s\n", row->n_clean, (int)s->repeats,
                    limit_name(row->scatter, strcmp(s->target.backend, "mpi") == 0));
  }
}

static hec_status run(settings *s, hec_text *out) {
  const hec_backend *backend = hec_backend_find(s->target.backend);
  hec_text why = {0};
  if (!backend || backend->link) /* the collectives here are those of hosts */
    return hec_fail(HEC_BAD_INPUT, "--backend: expected cpu or mpi, found %s", s->target.backend);
  hec_status status =
      backend->available(&why) ? HEC_OK : hec_fail(HEC_FAILED, "backend %s: %s", s->target.backend, why.data);
  hec_text_free(&why);
  HEC_TRY(status);
  int32_t n_ranks;
  HEC_TRY(backend->ranks(&n_ranks));
  s->ranks = n_ranks > 0 ? n_ranks : s->ranks;
  if (s->ranks < 2)
    return hec_fail(HEC_BAD_INPUT, "a collective needs 2 ranks: mpirun -n 2");
  hec_collective_bench bench = {.backend = backend, .n_ranks = (int32_t)s->ranks, .repeats = (int32_t)s->repeats};
  for (int64_t size = s->min; size <= s->max && bench.n_sizes < HEC_BENCH_SIZES_MAX; size *= 4)
    bench.bytes[bench.n_sizes++] = size << 20;
  hec_collective_row rows[HEC_BENCH_ROWS_MAX];
  int32_t n_rows;
  HEC_TRY(hec_collective_bench_run(&bench, rows, &n_rows));
  const char *transport = backend->transport ? backend->transport()->name : "shm";
  if (backend->speaks())
    (s->json ? json_rows : print_rows)(s, rows, n_rows, transport, out);
  if (backend->close)
    backend->close(0);
  return HEC_OK;
}

int hec_collectives_command(int argc, char **argv) {
  settings s;
  bool done;
  hec_text out = {0};
  hec_status status = parse(argc, argv, &s, &done);
  if (status == HEC_OK && !done)
    status = run(&s, &out);
  return hec_bench_exit(status, &out);
}
