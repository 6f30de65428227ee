/* A traffic matrix carried out: one exchange of a program, run by the executor that replays traces, over and over.
 *
 *   fill   pattern of (source, destination, iteration, offset) into what each rank sends; with `check` in every iteration,
 *          so that what an earlier one left cannot pass
 *   own    the diagonal: a copy inside the rank, while the exchange is on its way     | timed, from a
 *   move   all other entries as one exchange on the token lane                        | common start
 *   look   with `check`: every byte that came, the rank's own too, is compared with the pattern
 *
 * As in MPI's and nccl-tests' alltoallv, messages stand packed. What a rank sends is in the order of the destinations,
 * what it receives in the order of the sources. Each part begins on a whole word of 4 bytes. Devices move whole words:
 * there an entry is rounded up to the next. Time of an iteration: from when the first rank has begun together with its
 * partners to when the last is done. It is by the executor's own time stamps. Filling and looking are not timed; ranks
 * wait for each other in between. */
#pragma once
#include "models/traffic_matrix.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/exec_case.h"

/* What tests break on purpose, on rank 0 and in the last iteration. */
typedef enum {
  HEC_ALLTOALLV_SOUND,
  HEC_ALLTOALLV_FLIPPED, /* a bit of the last byte that it sends to the last rank */
  HEC_ALLTOALLV_EXCHANGED, /* two receives stand in each other's place: those of the last two ranks, which are of one size */
  HEC_ALLTOALLV_STALE,   /* it sends what it sent in the iteration before */
  HEC_ALLTOALLV_NO_COPY, /* its own part stays where it was */
  HEC_ALLTOALLV_N_FAULTS
} hec_alltoallv_fault;

typedef struct {
  const hec_traffic_matrix *matrix; /* at most HEC_RANKS_MAX ranks */
  int32_t warmup, iterations;       /* run first, not timed; timed */
  bool check;
  hec_alltoallv_fault fault;
} hec_alltoallv;

/* What `check` found, of all ranks and iterations. */
typedef struct {
  int64_t compared, wrong;         /* bytes */
  int32_t rank, source, iteration; /* of the first wrong byte: lowest iteration, then rank; */
  int64_t offset;                  /* in what `source` sent to `rank`. rank -1: none */
} hec_alltoallv_check;

/* Bytes of the buffers of all ranks, and of the rank that has most. */
double hec_alltoallv_bytes(const hec_traffic_matrix *matrix, double *max);
/* Bytes that devices move beyond the matrix's. */
int64_t hec_alltoallv_rounded(const hec_traffic_matrix *matrix);

/* On every rank of a launch, whose regions have hec_alltoallv_region bytes: seconds [iterations] and *check on rank 0.
 * own [iterations] on every rank, or NULL: seconds from when it began to when its part had ended, by its own clock. */
hec_status hec_alltoallv_on(const hec_alltoallv *job, const hec_exec_case *on, hec_rank *rank, double *seconds,
                            double *own, hec_alltoallv_check *check) HEC_MUST_USE;
size_t hec_alltoallv_region(const hec_exec_case *on);
/* Launches the ranks: `launch` says how, but for their number and memory. Where the backend speaks: seconds [iterations], and
 * *check. HEC_OK also when bytes were wrong. */
hec_status hec_alltoallv_run(const hec_alltoallv *job, const hec_backend *backend, hec_launch_options launch,
                             double *seconds, hec_alltoallv_check *check) HEC_MUST_USE;
