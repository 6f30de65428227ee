/* What the benchmarks of hecate-bench are, and share: loads (synthetic, in memory), the clock, the end of a command. */
#pragma once
#include "models/load.h"
#include "traces/import/importer.h"
#include "validate/doc.h"

/* Fills n loads of equal shape: log-normal popularity (`sigma`), `tokens` per source. It drifts from one to the next
 * as LAER's recorded training run does (reference traces.md 1). */
hec_status hec_bench_loads(hec_load *loads, int32_t n, double sigma, int32_t tokens, int32_t top_k) HEC_MUST_USE;

double hec_bench_now_s(void);
/* Sorts. */
double hec_bench_quantile(double *values, int32_t n, double share);

/* Log-normal loads as a trace in memory, 24 layers x 16 sources x 64 experts, 2048 tokens x top-2 a row, at least
 * `bytes` long. It is read once to give the seconds of reading alone. Text is not compressed. */
typedef struct {
  uint64_t bytes, records;
  double seconds;
} hec_trace_bench;
hec_status hec_trace_bench_read(uint64_t bytes, hec_trace_bench *result) HEC_MUST_USE;

/* Prints the report of what was measured, as text or JSON, unless `done` without it or failed; returns the exit code. */
int hec_bench_report(hec_status status, bool done, hec_doc_report *report, const void *of, bool json);
/* Prints what a command wrote, where it did well, and frees it; returns the exit code. */
int hec_bench_exit(hec_status status, hec_text *out);

/* How fast importers are, for hecate-bench: a file as a recorder would write it, and its import into nothing. */
typedef struct {
  uint64_t bytes, records; /* of the file; of the trace */
  double seconds, cpu_s;   /* CLOCK_MONOTONIC, writing to /dev/null in it; of which computing */
  int64_t peak_bytes;      /* ru_maxrss of the process */
} hec_import_bench;

/* Writes a file of at least `bytes` at `path`. */
hec_status hec_import_bench_make(const hec_importer *format, const char *path, uint64_t bytes) HEC_MUST_USE;
/* In a process of its own, so that ru_maxrss is the importer's. */
hec_status hec_import_bench_run(const hec_importer *format, const char *path, hec_import_bench *result) HEC_MUST_USE;

/* hecate-bench collectives, executor, gpu, planners: what is measured with real ranks, or on a device, against a limit.
 * fsmoe: a planner. network: network laws. sweep: sweeps. import: importers of traces. */
int hec_collectives_command(int argc, char **argv); /* argv[0] is the command; returns the exit code */
int hec_executor_command(int argc, char **argv);
int hec_gpu_command(int argc, char **argv);
int hec_planners_command(int argc, char **argv);
int hec_fsmoe_command(int argc, char **argv);
int hec_network_command(int argc, char **argv);
int hec_sweep_bench_command(int argc, char **argv);
int hec_import_bench_command(int argc, char **argv);
