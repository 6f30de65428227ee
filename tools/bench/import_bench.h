/* How fast importers are, for hecate-bench: a file as a recorder would write it, and its import into nothing. */
#ifndef HEC_TOOLS_BENCH_IMPORT_BENCH_H
#define HEC_TOOLS_BENCH_IMPORT_BENCH_H
#include "traces/import/importer.h"

typedef struct {
  uint64_t bytes, records; /* of the file; of the trace */
  double seconds, cpu_s;   /* CLOCK_MONOTONIC, writing to /dev/null in it; of which computing */
  int64_t peak_bytes;      /* ru_maxrss of the process */
} hec_import_bench;

/* Writes a file of at least `bytes` at `path`. */
hec_status hec_import_bench_make(const hec_importer *format, const char *path, uint64_t bytes) HEC_MUST_USE;
/* In a process of its own, so that ru_maxrss is the importer's. */
hec_status hec_import_bench_run(const hec_importer *format, const char *path, hec_import_bench *result) HEC_MUST_USE;

#endif
