/* A calibration that was kept: the cluster file of calibrate.h, read back for a session. */
#pragma once
#include "models/cluster.h"

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct {
  hec_cluster cluster;
  const char *summary;      /* "2026-11-22T10:00:00Z, AMD EPYC, 2 cores, OpenBLAS ..., backend cpu, transport shm" */
  const char *const *cases; /* [n_cases] names of what it was fitted on */
  int32_t n_cases;
  int64_t n_ranks; /* that it was measured with */
  double probe_s;  /* of the pace that its times are at; 0: it does not say */
  bool contaminated, other_cpu;
} hec_calibration_file; /* on the arena */

/* What it must fit: its own file says where it was made. */
typedef struct {
  const char *cpu, *library, *backend, *transport;
  const hec_problem *problem; /* ranks and shape */
} hec_calibration_need;

/* HEC_BAD_INPUT: no cluster file, one that calibrate did not make, or one of another backend, transport or model shape.
 * Also other ranks, other libraries or precision of devices, or a missing backward pass that is needed. */
hec_status hec_calibration_read(const char *path, const hec_calibration_need *need, hec_arena *arena,
                                hec_calibration_file *file) HEC_MUST_USE;
