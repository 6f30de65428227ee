/* The contract between the program and its MPI plug-in. The program never links MPI: backend_mpi.c loads
 * hecate-mpi-openmpi.so or hecate-mpi-mpich.so, whichever belongs to the process manager that started it. The plug-in
 * takes no symbol from the program; what it needs of it is handed over as `host`. */
#pragma once
#include "runtime/exec/launch/rank.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
  hec_status (*fail)(hec_rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
  void *(*grow)(void *array, size_t *capacity, size_t need, size_t bytes); /* hec_grow */
} hec_mpi_host;

/* The collectives of the library itself, on floats and all ranks: what benchmarks compare ours with. False: it failed.
 * Rank r has counts[r] floats. */
typedef struct {
  bool (*barrier)(void);
  /* In place: those of rank r stand, or come to stand, at buffer + places[r]. */
  bool (*allgatherv)(float *buffer, const int *counts, const int *places);
  /* `terms` [sum of counts] of every rank are summed; rank r gets its counts[r] of the sum. */
  bool (*reduce_scatter)(const float *terms, float *sums, const int *counts);
} hec_mpi_collectives;

typedef struct {
  uint64_t layout;     /* HEC_MPI_LAYOUT of its build: both sides must see the same structs */
  const char *library; /* "Open MPI", "MPICH" */
  /* MPI_Init; once per process. False: the reason is in `why`. */
  bool (*begin)(int32_t *rank, int32_t *n_ranks, char *why, size_t why_bytes);
  /* Ranks on this machine, and cores that one of them or another may use: each alone may be bound to few. After begin. */
  void (*here)(int32_t *n_ranks, int32_t *n_cores);
  int32_t (*per_host)(void); /* backend.h; after begin */
  void (*abort)(int code);   /* ends every process of the job */
  void (*end)(int code);     /* MPI_Finalize; where that hangs, exit with this code unless it is -1 */
  const hec_transport *transport;
  const hec_mpi_collectives *collectives;
} hec_mpi_plugin;

/* The one exported symbol. `host` must live as long as the plug-in is used. */
typedef const hec_mpi_plugin *hec_mpi_plugin_entry(const hec_mpi_host *host);
#define HEC_MPI_PLUGIN_SYMBOL "hec_mpi_plugin_open"

/* Of the plug-in in use; NULL while the backend has not started (backend.h, ranks). */
const hec_mpi_collectives *hec_mpi_collectives_of(void);

/* Changes with the size of every struct that crosses the border. */
#define HEC_MPI_LAYOUT                                                                                                 \
  ((uint64_t)sizeof(hec_rank) << 48 ^ (uint64_t)sizeof(hec_post) << 36 ^ (uint64_t)sizeof(hec_message) << 24 ^         \
   (uint64_t)sizeof(hec_transport) << 8 ^ (uint64_t)sizeof(hec_mpi_plugin) << 4 ^ (uint64_t)HEC_N_CHANNELS)
