/* Ranks under a process manager (mpirun, srun): every process is one rank; messages go through the MPI library.
 *
 * Nothing here needs MPI. What does is in a plug-in (mpi/plugin.h), loaded when this backend is asked for. Which one is
 * decided by the environment that the process manager left, since a process must speak the library of the mpirun that
 * started it. With another one every process would be a job of its own, which is checked after the start.
 *
 * Failure: the rank that fails says so and aborts the job (MPI_Abort), which ends every process, stopped ones too. */
#include "runtime/exec/backend.h"
#include "runtime/exec/launch/plugin.h"
#include "runtime/exec/launch/world.h"
#include "runtime/exec/mpi/plugin.h"

#include "runtime/base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef HEC_MPI_BUILT
#define HEC_MPI_BUILT "" /* plug-ins of this build, separated by blanks: set by CMake */
#endif

/* Set by srun only. A batch script has SLURM_PROCID and SLURM_NTASKS too and is one process. */
#define SLURM_STEP_SIZE "SLURM_STEP_NUM_TASKS"

/* Process managers by what they leave in the environment, the surest sign first. */
typedef struct {
  const char *sign, *size; /* variables: it is there; number of processes */
  const char *plugins[2];  /* in the order in which they are tried */
  const char *name;
} launcher;

static const launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", {"openmpi", NULL}, "mpirun of Open MPI"},
    {"HYDI_CONTROL_FD", "PMI_SIZE", {"mpich", NULL}, "mpirun of MPICH"},
    {"PMI_SIZE", "PMI_SIZE", {"mpich", "openmpi"}, "a process manager (PMI)"},
    {"PMI_RANK", "PMI_SIZE", {"mpich", "openmpi"}, "a process manager (PMI)"},
    {"PMIX_RANK", SLURM_STEP_SIZE, {"openmpi", "mpich"}, "a process manager (PMIx)"},
    {SLURM_STEP_SIZE, SLURM_STEP_SIZE, {"mpich", "openmpi"}, "srun"}, /* where Open MPI sees no PMIx, it exits */
    {NULL, NULL, {"openmpi", "mpich"}, NULL},
};

/* One MPI per process: it can be started once and never again. */
static const hec_mpi_plugin *plugin;
static const hec_mpi_host host = {.fail = hec_rank_fail, .grow = hec_grow};
static bool begun;
static int32_t my_rank, world_size;

static const launcher *find_launcher(void) {
  const launcher *l = launchers;
  while (l->sign && !getenv(l->sign))
    l++;
  return l;
}

bool hec_mpi_started(void) {
  const launcher *l = find_launcher();
  const char *size = l->size ? getenv(l->size) : NULL;
  return size && atoi(size) > 1;
}

static bool accept(void *symbol) {
  hec_mpi_plugin_entry *entry;
  memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function */
  const hec_mpi_plugin *found = entry(&host);
  if (found && found->layout == HEC_MPI_LAYOUT)
    plugin = found;
  return plugin != NULL;
}

static bool load(const launcher *l, hec_text *why) {
  for (int p = 0; p < 2 && !plugin && l->plugins[p]; p++) {
    char file[64];
    (void)snprintf(file, sizeof file, "hecate-mpi-%s.so", l->plugins[p]);
    /* Global: parts of Open MPI are loaded later and look for its symbols. The plug-in itself shows one only. */
    (void)hec_plugin_load(
        &(hec_plugin_file){.file = file, .symbol = HEC_MPI_PLUGIN_SYMBOL, .global = true, .accept = accept}, why);
  }
  if (plugin || why->length)
    return plugin != NULL;
  if (HEC_MPI_BUILT[0] == '\0') {
    hec_text_add(why, "not built: no MPI compiler (mpicc) was found when hecate was built");
  } else if (!strstr(HEC_MPI_BUILT, l->plugins[0]) && !l->plugins[1]) {
    hec_text_printf(why, "not built for %s: only for %s", l->name, HEC_MPI_BUILT);
  } else {
    char file[64];
    (void)snprintf(file, sizeof file, "hecate-mpi-%s.so", l->plugins[0]);
    hec_plugin_say_missing(file, why);
  }
  return false;
}

static bool available(hec_text *why) {
  return load(find_launcher(), why);
}

/* Under srun, the process manager is an option of it. */
static const char *srun_advice(void) {
  if (!getenv(SLURM_STEP_SIZE))
    return "";
  return strcmp(plugin->library, "Open MPI") == 0 ? ", or srun --mpi=pmix" : ", or srun --mpi=pmi2";
}

static hec_status ranks(int32_t *n_ranks) {
  const launcher *l = find_launcher();
  if (!begun) {
    HEC_SCOPED(hec_text) why = {0};
    char text[256] = "";
    if (!load(l, &why))
      return hec_fail(HEC_FAILED, "backend mpi: %s", why.data);
    if (!plugin->begin(&my_rank, &world_size, text, sizeof text))
      return hec_fail(HEC_FAILED, "backend mpi: %s", text);
    begun = true;
    const char *size = l->size ? getenv(l->size) : NULL;
    if (world_size == 1 && size && atoi(size) > 1)
      return hec_fail(HEC_FAILED,
                      "backend mpi: %s started %s processes, but %s sees one: use the mpirun that belongs to it%s",
                      l->name, size, plugin->library, srun_advice());
    if (!l->sign)
      fprintf(stderr, "backend mpi: no mpirun or srun started this program, so it has one rank\n");
  }
  *n_ranks = world_size;
  return HEC_OK;
}

static const hec_transport *transport(void) {
  return plugin ? plugin->transport : NULL;
}

static void here(int32_t *n_ranks, int32_t *n_cores) {
  HEC_ASSERT(begun);
  plugin->here(n_ranks, n_cores);
}

static int32_t per_host(void) {
  return begun ? plugin->per_host() : 0;
}

const hec_mpi_collectives *hec_mpi_collectives_of(void) {
  return begun ? plugin->collectives : NULL;
}

static bool speaks(void) {
  return my_rank == 0;
}

enum { TIMER_SLACK_NS = 1000 };

static hec_status run(hec_rank *rank, hec_rank_body *body, void *context) {
  (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0); /* sleeps end when they say, not 50 us later */
  HEC_TRY(rank->transport->open(rank));
  HEC_TRY(body(rank, context));
  /* Nobody leaves while another may still fail or needs what was sent. */
  return hec_rank_barrier(rank);
}

/* The world of this process holds its own rank only. */
static hec_status launch(const hec_launch_options *options, hec_rank_body *body, void *context) {
  int32_t n_ranks;
  HEC_TRY(ranks(&n_ranks));
  if (options->n_ranks != n_ranks)
    return hec_fail(HEC_BAD_INPUT, "backend mpi: %d ranks are wanted, the process manager started %d", options->n_ranks,
                    n_ranks);
  hec_launch_options own = *options;
  own.transport = plugin->transport;
  hec_world *world;
  HEC_TRY(hec_world_new(&own, my_rank, 1, &world));
  hec_rank rank = hec_world_rank(world, &own, my_rank);
  hec_status status = run(&rank, body, context);
  if (status != HEC_OK) {
    if (hec_rank_check(&rank) == HEC_OK) /* the body failed without hec_rank_fail */
      hec_rank_report(&rank, status, hec_last_error());
    (void)fflush(stdout);
    fprintf(stderr, "%s\n", hec_last_error());
    /* MPICH's process manager drops what it has not read yet when a job is aborted. */
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    plugin->abort((int)status);
    _exit((int)status); /* not reached where MPI_Abort does what it should */
  }
  rank.transport->close(&rank);
  hec_world_free(world);
  return HEC_OK;
}

enum { FIRST_WORD_S = 1 };

/* Most failures before a launch are everybody's; then rank 0 has ended the job before the others speak. */
static void abandon(int code) {
  if (!begun || world_size < 2)
    return;
  if (!speaks()) {
    (void)nanosleep(&(struct timespec){.tv_sec = FIRST_WORD_S}, NULL);
    fprintf(stderr, "rank %d: %s\n", my_rank, hec_last_error());
  }
  (void)fflush(NULL);
  (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* as in launch */
  plugin->abort(code);
}

static void close_job(int code) {
  if (begun)
    plugin->end(code);
  begun = false; /* backend nccl closes it too, when it has used it */
}

const hec_backend hec_backend_mpi = {
    .name = "mpi",
    .summary = "processes started by mpirun or srun, any network that MPI knows",
    .available = available,
    .ranks = ranks,
    .transport = transport,
    .link = NULL,
    .here = here,
    .per_host = per_host,
    .launch = launch,
    .speaks = speaks,
    .abandon = abandon,
    .close = close_job,
};
