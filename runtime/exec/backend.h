/* Backends: where a program is executed. One row each; `available` answers why not. A backend brings the ranks into
 * being; what they then do (exec.h) is the same everywhere. */
#pragma once
#include "runtime/exec/launch/rank.h"

typedef struct {
  const char *name, *summary;
  /* False with the reason in `why` ("not built: MPI was not found", "no CUDA driver"). */
  bool (*available)(hec_text *why);
  /* Number of ranks that the process manager set (mpirun -n 8), 0: the caller chooses. Starts what must be started. */
  hec_status (*ranks)(int32_t *n_ranks);
  /* Ranks with devices: how these exchange data, by name or (NULL) as it fits so many ranks. After `ranks`. HEC_BAD_INPUT
   * for what does not go together, in the words of option --transport. NULL: ranks have no devices. */
  hec_status (*link)(const char *wanted, int32_t n_ranks, const hec_device_link **out);
  /* The preset of a cluster (models/presets) with devices like its own, to plan for; NULL: ranks have none, or none known. */
  const char *(*like)(void);
  /* What the ranks of this machine compute with, after `ranks`: name, libraries, number. NULL: cores. */
  void (*devices)(hec_text *name, hec_text *libraries, int32_t *n);
  /* Bytes of its device that each of so many ranks has at most, after `ranks`. NULL: ranks have no devices. */
  double (*device_bytes)(int32_t n_ranks);
  /* The only transport it has, known once `ranks` was called; NULL: any of hec_transports. */
  const hec_transport *(*transport)(void);
  /* Of the machine that this process is on, known once `ranks` was called: its ranks, the cores that they may use. NULL:
   * all ranks are here, on the cores of this process. */
  void (*here)(int32_t *n_ranks, int32_t *n_cores);
  /* Ranks that every host has, or could have, the same answer on all ranks; 0: hosts have unlike numbers, or ranks of one do not
   * follow each other. NULL: all ranks are here. */
  int32_t (*per_host)(void);
  hec_status (*launch)(const hec_launch_options *options, hec_rank_body *body, void *context);
  /* True in the one process that may speak to the user before and after launch (rank 0's, or the supervisor). */
  bool (*speaks)(void);
  /* This process cannot take part in a launch that others may already wait in: ends the job, with the code as its exit
   * code. Whoever speaks says why before; another one is heard if it is the only one to fail. NULL: no others. */
  void (*abandon)(int code);
  void (*close)(int code); /* at the end of the program, whose exit code it is; -1: it goes on. NULL: nothing to do */
} hec_backend;

#define HEC_BACKEND_LIST(X) X(cpu) X(mpi) X(nccl)
#define HEC_BACKEND_DECLARE(name) extern const hec_backend hec_backend_##name;
HEC_BACKEND_LIST(HEC_BACKEND_DECLARE)
extern const hec_backend *const hec_backends[]; /* NULL-terminated */
const hec_backend *hec_backend_find(const char *name);

/* A process manager (mpirun, srun) started this process, and more than one. */
bool hec_mpi_started(void);
