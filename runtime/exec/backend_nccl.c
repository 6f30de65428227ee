/* Ranks on GPUs. The plug-in (cuda/plugin.h) is loaded and asked for its devices; rank r computes on device r modulo their
 * number. Ranks are threads of this process, since a driver that was started before a fork is of no use to the children:
 *
 *     open the processor | a share of its free memory as the region | open the link | body | barrier | close
 *
 * Under a process manager they are its processes, brought together by backend mpi: hosts then talk by MPI, devices by
 * NCCL. The device of a process is its rank modulo the devices it sees. So ranks of a machine should follow each other
 * and be as many as its devices, or see one each (CUDA_VISIBLE_DEVICES).
 *
 * Links: nccl where every rank has a device of its own, else local (device_link.h). */
#include "runtime/base/arena.h"
#include "runtime/base/table.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/cuda/plugin.h"
#include "runtime/exec/launch/plugin.h"
#include "runtime/exec/launch/world.h"
#include "runtime/exec/link/device_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef HEC_CUDA_WHY_NOT
#define HEC_CUDA_WHY_NOT "" /* why the plug-in is not part of this build, "": it is; set by CMake */
#endif

static const hec_cuda_plugin *plugin;

const hec_cuda_plugin *hec_cuda_plugin_of(void) {
  return plugin;
}

static bool accept(void *symbol) {
  hec_cuda_plugin_entry *entry;
  memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function */
  const hec_cuda_plugin *found = entry();
  if (found && found->layout == HEC_CUDA_LAYOUT)
    plugin = found;
  return plugin != NULL;
}

/* Why a file in an earlier folder was passed over: does not matter unless the one that was found is of no use. */
static char passed_over[512];

static const char why_not[] = HEC_CUDA_WHY_NOT; /* this build has no plug-in; "": it has */

static bool load(hec_text *why) {
  static const hec_plugin_file file = {.file = "hecate-cuda.so", .symbol = HEC_CUDA_PLUGIN_SYMBOL, .accept = accept};
  HEC_SCOPED(hec_text) reasons = {0};
  if (!plugin && !hec_plugin_load(&file, &reasons)) {
    if (!reasons.length && why_not[0] != 0)
      hec_text_printf(&reasons, "not built: %s", why_not);
    else if (!reasons.length)
      hec_plugin_say_missing(file.file, &reasons);
    hec_text_add(why, reasons.data);
  } else if (reasons.length) {
    (void)snprintf(passed_over, sizeof passed_over, "%s", reasons.data);
  }
  return plugin != NULL;
}

enum { NAMED_MAX = 4 };

/* "2 devices found (NVIDIA H200, NVIDIA H200)". */
static void say_devices(const hec_cuda_probe *probe, hec_text *why) {
  hec_text_printf(why, "%d device%s found (", probe->n_devices, probe->n_devices == 1 ? "" : "s");
  for (int32_t i = 0; i < probe->n_devices && i < NAMED_MAX; i++) {
    hec_text_add(why, i > 0 ? ", " : "");
    hec_text_add_plain(why, probe->devices[i].name);
  }
  hec_text_add(why, probe->n_devices > NAMED_MAX ? ", ...)" : ")");
}

/* ---- What there is ---- */

static hec_cuda_probe found; /* of the last `available` */

/* Devices that the plug-in has code for; their numbers [n] in `numbers`, NULL: only counted. */
static int32_t usable(int32_t *numbers) {
  int32_t n = 0;
  for (int32_t i = 0; i < found.n_devices; i++) {
    if (numbers && found.devices[i].fits)
      numbers[n] = i;
    n += found.devices[i].fits;
  }
  return n;
}

static bool available(hec_text *why) {
  if (!load(why))
    return false;
  bool there = plugin->probe(&found);
  if (there)
    say_devices(&found, why);
  else
    hec_text_add_plain(why, found.why);
  if (!there && passed_over[0])
    hec_text_printf(why, " (passed over: %s)", passed_over);
  return there;
}

static hec_status refuse(void) {
  HEC_SCOPED(hec_text) why = {0};
  hec_status status = HEC_OK;
  if (!available(&why))
    status = hec_fail(HEC_FAILED, "backend nccl: %s", why.data ? why.data : "not available");
  return status;
}

/* Under mpirun or srun every process is one rank, and backend mpi brings them together. */
static bool managed(void) {
  return hec_mpi_started();
}

static hec_status ranks(int32_t *n_ranks) {
  *n_ranks = 0;
  HEC_TRY(refuse());
  return managed() ? hec_backend_mpi.ranks(n_ranks) : HEC_OK;
}

/* By the names that the driver gives devices, the longer one first. */
static const char *like(void) {
  static const struct {
    const char *part, *preset;
  } known[] = {{"GB200", "gb200-nvl72"}, {"H800", "h800"},         {"H200", "dgx-h200"},
               {"H100", "dgx-h100"},     {"A100", "p4d-24xlarge"}, {"V100", "p3dn-4x8"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (found.n_devices > 0 && strstr(found.devices[0].name, known[i].part))
      return known[i].preset;
  return "dgx-h100";
}

/* "13.0.1" of 130001 (cuBLAS), "2.28.9" of 22809 (NCCL). */
static void add_version(hec_text *out, const char *name, int32_t version, int32_t major) {
  int32_t rest = version % major;
  hec_text_printf(out, "%s %d.%d.%d", name, version / major, rest / 100, rest % 100);
}

static void devices(hec_text *name, hec_text *libraries, int32_t *n) {
  bool alike = true;
  for (int32_t i = 1; i < found.n_devices; i++)
    alike = alike && strcmp(found.devices[i].name, found.devices[0].name) == 0;
  hec_text_add_plain(name, found.n_devices > 0 ? found.devices[0].name : "no device");
  hec_text_add(name, alike ? "" : " and others");
  add_version(libraries, "cuBLAS", found.cublas_version, 10000);
  add_version(libraries, ", NCCL", found.nccl_version, 10000);
  int32_t cores;
  *n = usable(NULL);
  if (managed()) /* each has its own, of which another may see nothing: NCCL takes no device twice */
    hec_backend_mpi.here(n, &cores);
}

/* The least of them, where devices or how many share one differ. */
static double device_bytes(int32_t n_ranks) {
  int32_t numbers[HEC_CUDA_DEVICES_MAX], n = usable(numbers);
  double min = 0;
  for (int32_t i = 0; i < n && i < n_ranks; i++) {
    int32_t sharing = managed() ? 1 : 1 + (n_ranks - 1 - i) / n;
    double bytes = (double)found.devices[numbers[i]].memory_bytes / sharing;
    min = i == 0 || bytes < min ? bytes : min;
  }
  return min;
}

/* What hosts say to each other. */
static const hec_transport *transport(void) {
  const hec_transport *of_processes = managed() ? hec_backend_mpi.transport() : NULL;
  return of_processes ? of_processes : &hec_transport_shm;
}

static hec_status choose_link(const char *wanted, int32_t n_ranks, const hec_device_link **out) {
  bool processes = managed();
  int32_t n_devices = usable(NULL);
  *out = processes || n_ranks <= n_devices ? &hec_device_link_nccl : &hec_device_link_local;
  if (!wanted)
    return HEC_OK;
  *out = hec_table_find(hec_device_links, wanted);
  if (!*out)
    return hec_table_unknown(&(hec_table){.rows = hec_device_links}, "`transport`", wanted);
  if (processes && *out == &hec_device_link_local)
    return hec_fail(HEC_BAD_INPUT, "`transport` local: its ranks are threads of one process, these are processes");
  if (!processes && *out == &hec_device_link_nccl && n_ranks > n_devices)
    return hec_fail(HEC_BAD_INPUT,
                    "`transport` nccl: expected at most one rank to a device, found %d ranks and %d device%s; local "
                    "shares devices",
                    n_ranks, n_devices, n_devices == 1 ? "" : "s");
  return HEC_OK;
}

/* ---- One rank ---- */

enum { GRACE_NS = 2000000000, SHARE_PERCENT = 90, UNIT_BYTES = 2 << 20 };

typedef struct {
  hec_rank_body *body;
  void *context;
  const hec_device_link *link;
  size_t wanted_bytes; /* of each rank's region; 0: as much as there is */
  hec_precision precision;
  bool processes;
  int32_t n_ranks, n_devices, devices[HEC_CUDA_DEVICES_MAX];
  _Atomic int32_t n_left; /* ranks of this process that are through with everybody's memory */
} job;

static hec_status fail(hec_rank *rank, int32_t device, const char *words) {
  HEC_TRY(hec_rank_check(rank));
  return hec_rank_fail(rank, "device %d: %s", device, words);
}

static int32_t device_of(const job *j, int32_t rank) {
  HEC_ASSERT(j->n_devices > 0);
  return j->devices[rank % j->n_devices];
}

/* Threads that share the rank's device; a process has its own. */
static int32_t sharing(const job *j, int32_t rank) {
  HEC_ASSERT(j->n_devices > 0);
  return j->processes ? 1 : 1 + (j->n_ranks - 1 - rank % j->n_devices) / j->n_devices;
}

/* All ranks look before any of them takes: those of a device find the same. Some is left for cuBLAS, NCCL and lists. */
static hec_status take_memory(hec_rank *rank, const job *j) {
  int32_t device = device_of(j, rank->rank);
  int64_t left = 0;
  void *at = NULL;
  HEC_TRY(hec_rank_barrier(rank));
  const char *words = plugin->device->free_bytes(rank->processor, &left);
  if (words)
    return fail(rank, device, words);
  HEC_TRY(hec_rank_barrier(rank));
  size_t share = (size_t)(left / 100 * SHARE_PERCENT / sharing(j, rank->rank)) / UNIT_BYTES * UNIT_BYTES;
  size_t wanted = (j->wanted_bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
  size_t bytes = wanted > 0 && wanted < share ? wanted : share;
  words = plugin->device->allocate(rank->processor, bytes, &at);
  if (words)
    return fail(rank, device, words);
  rank->memory = at;
  rank->memory_bytes = bytes;
  return HEC_OK;
}

/* Other ranks' devices too, where their memory is read in place. */
static hec_status reach_others(hec_rank *rank, const job *j) {
  int32_t own = device_of(j, rank->rank);
  for (int32_t i = 0; i < j->n_devices && i < j->n_ranks; i++) {
    const char *words = plugin->device->reach(rank->processor, j->devices[i]);
    if (words)
      return fail(rank, own, words);
  }
  return HEC_OK;
}

static hec_status open_rank(hec_rank *rank, const job *j) {
  const hec_cuda_options options = {
      .device = device_of(j, rank->rank), .precision = j->precision, .grouped = true, .clock_ns = hec_clock_ns};
  hec_processor *on = NULL;
  hec_rank_at_phase(rank, 0, "opening the device");
  const char *words = plugin->device->open(&options, &on);
  if (words)
    return fail(rank, options.device, words);
  rank->processor = on;
  if (j->link == &hec_device_link_local)
    HEC_TRY(reach_others(rank, j));
  HEC_TRY(take_memory(rank, j));
  rank->link = j->link;
  hec_rank_at_phase(rank, 0, "connecting the devices");
  HEC_TRY(rank->link->open(rank));
  hec_rank_at_phase(rank, 0, "preparing");
  return HEC_OK;
}

/* Before memory goes that others may read: until all have come, or, after a failure, have had time to. */
static void wait_for_others(hec_rank *rank, job *j) {
  int32_t n = rank->world->n_local;
  int64_t until_ns = hec_clock_ns() + GRACE_NS;
  (void)atomic_fetch_add(&j->n_left, 1);
  while (atomic_load(&j->n_left) < n && (!hec_world_failed(rank->world) || hec_clock_ns() < until_ns))
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void close_rank(hec_rank *rank, job *j, const hec_rank *before, bool failed) {
  hec_processor *on = rank->processor;
  if (rank->link && rank->link_own)
    rank->link->close(rank, failed);
  if (on != before->processor)
    on->streams->restart(on); /* it reads no other's memory any more */
  wait_for_others(rank, j);
  if (on != before->processor)
    plugin->device->close(on);
  rank->processor = before->processor;
  rank->memory = before->memory;
  rank->memory_bytes = before->memory_bytes;
  rank->host_memory = NULL;
  rank->host_bytes = 0;
  rank->link = NULL;
}

/* The body between opening and closing, which happens in every case. A failure is told at once: others may wait for this
 * rank, and it soon for them. */
static hec_status run_rank(hec_rank *rank, void *context) {
  job *j = context;
  const hec_rank before = *rank;
  hec_status status = open_rank(rank, j);
  if (status == HEC_OK)
    status = j->body(rank, j->context);
  if (status == HEC_OK)
    status = hec_rank_barrier(rank);
  if (status != HEC_OK)
    status = hec_rank_report(rank, status, hec_last_error()[0] ? hec_last_error() : "failed without a message");
  close_rank(rank, j, &before, status != HEC_OK);
  return status;
}

/* ---- All ---- */

static hec_status launch(const hec_launch_options *options, hec_rank_body *body, void *context) {
  job *j = hec_malloc(1, sizeof *j);
  *j = (job){.body = body,
             .context = context,
             .link = options->link,
             .wanted_bytes = options->memory_bytes,
             .precision = options->precision,
             .processes = managed(),
             .n_ranks = options->n_ranks};
  hec_launch_options own = *options;
  own.threads = true;
  own.memory_bytes = 0; /* of the host, which computes nothing */
  hec_status status = refuse();
  if (status == HEC_OK)
    j->n_devices = usable(j->devices);
  if (status == HEC_OK && j->n_devices == 0)
    status = hec_fail(HEC_FAILED, "backend nccl: the plug-in has code for none of the devices");
  if (status == HEC_OK && !j->link)
    status = choose_link(NULL, options->n_ranks, &j->link);
  own.link = j->link;
  own.transport = transport();
  if (status == HEC_OK)
    status = (j->processes ? hec_backend_mpi.launch : hec_launch)(&own, run_rank, j);
  free(j);
  return status;
}

static bool speaks(void) {
  return managed() ? hec_backend_mpi.speaks() : true;
}

static void abandon(int code) {
  if (managed())
    hec_backend_mpi.abandon(code);
}

static void here(int32_t *n_ranks, int32_t *n_cores) {
  if (managed())
    hec_backend_mpi.here(n_ranks, n_cores);
}

static int32_t per_host(void) {
  return managed() ? hec_backend_mpi.per_host() : INT32_MAX; /* threads of one process */
}

static void close_job(int code) {
  if (managed())
    hec_backend_mpi.close(code);
}

const hec_backend hec_backend_nccl = {
    .name = "nccl",
    .summary = "GPUs: threads of one process, or processes of mpirun with one each",
    .available = available,
    .ranks = ranks,
    .transport = transport,
    .like = like,
    .devices = devices,
    .device_bytes = device_bytes,
    .link = choose_link,
    .here = here,
    .per_host = per_host,
    .launch = launch,
    .speaks = speaks,
    .abandon = abandon,
    .close = close_job,
};
