/* Ranks of libhecate: hec_run brings them into being through the table of backends, each gets a communicator.
 *
 * Everything here is made of rank.h: launch, barrier, gather and broadcast. The bounce areas behind the heap are address
 * space until something is copied there. */
#include "runtime/exec/package/hecate_comm.h"

#include "runtime/base/arena.h"
#include "runtime/base/table.h"
#include "runtime/exec/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, PAGE = 4096 };
static const size_t bounce_bytes = (size_t)1 << 33, memory_default = (size_t)1 << 30;

const char *hec_backend_name(int32_t i, const char **summary) {
  for (int32_t row = 0; i >= 0 && hec_backends[row]; row++)
    if (row == i) {
      if (summary)
        *summary = hec_backends[row]->summary;
      return hec_backends[row]->name;
    }
  return NULL;
}

static hec_status find_backend(const char *name, const hec_backend **backend) {
  *backend = name ? hec_backend_find(name) : NULL;
  return *backend ? HEC_OK : hec_table_unknown(&(hec_table){.rows = hec_backends}, "backend", name ? name : "NULL");
}

static hec_status check_available(const hec_backend *backend) {
  HEC_SCOPED(hec_text) why = {0};
  hec_status status = HEC_OK;
  if (backend->link) /* a body would be given memory of a device, the collectives here read the host's */
    status = hec_fail(HEC_FAILED, "backend %s: the sparse collectives of libhecate do not run on devices yet",
                      backend->name);
  else if (!backend->available(&why))
    status = hec_fail(HEC_FAILED, "backend %s: %s", backend->name, why.data ? why.data : "not available");
  return status;
}

int hec_backend_check(const char *name) {
  const hec_backend *backend;
  HEC_TRY_CODE(find_backend(name, &backend));
  return (int)check_available(backend);
}

hec_run_options hec_run_defaults(int32_t n_ranks) {
  return (hec_run_options){.backend = "cpu", .n_ranks = n_ranks, .memory_bytes = memory_default, .limit_s = 60};
}

/* ---- A run ---- */

typedef struct {
  const hec_run_options *options;
  const hec_collective *forced;
  hec_body *body;
  void *context;
} run;

static hec_status load_cluster(const char *wanted, int32_t n_ranks, hec_arena *arena, hec_cluster *cluster) {
  char line[96];
  (void)snprintf(line, sizeof line, "1x%d nvlink=10G@1us flops=1T mem=1G", n_ranks);
  HEC_TRY(hec_cluster_load(wanted ? wanted : line, arena, cluster));
  if (cluster->n_devices < n_ranks)
    return hec_fail(HEC_BAD_INPUT, "%d ranks do not fit on the %d devices of cluster %s", n_ranks, cluster->n_devices,
                    cluster->name);
  return HEC_OK;
}

static size_t heap_of(const hec_run_options *options) {
  return (options->memory_bytes + PAGE - 1) / PAGE * PAGE;
}

static hec_status run_rank(hec_rank *rank, void *context) {
  const run *r = context;
  hec_comm *comm = hec_malloc(1, sizeof *comm);
  *comm = (hec_comm){.rank = rank,
                     .one_process = r->options->threads != 0,
                     .forced = r->forced,
                     .heap_bytes = heap_of(r->options),
                     .last = ""};
  hec_status status = load_cluster(r->options->cluster, rank->n_ranks, &comm->arena, &comm->cluster);
  if (status == HEC_OK) {
    int32_t per_node = comm->cluster.devices_per_node;
    comm->problem = (hec_problem){
        .cluster = &comm->cluster, .n_ranks = rank->n_ranks, .n_nodes = (rank->n_ranks + per_node - 1) / per_node};
    comm->cost = hec_link_cost_new(&comm->cluster, &comm->arena);
    for (int32_t f = 0; f < HEC_N_FLIGHTS; f++) {
      comm->flight[f].bounce_base = rank->memory + comm->heap_bytes + (size_t)f * bounce_bytes;
      comm->flight[f].bounce_end = comm->flight[f].bounce_base + bounce_bytes;
    }
    status = hec_fail(HEC_OK, "%s", ""); /* what a forked process inherited says nothing about the body */
    int code = r->body(comm, r->context);
    status = code == HECATE_OK ? HEC_OK : code == HECATE_BAD_INPUT ? HEC_BAD_INPUT : HEC_FAILED;
    if (status == HEC_OK && hec_flight_open(comm))
      status = hec_fail(HEC_BAD_INPUT, "the body returned while a collective was in progress: hec_sparse_wait");
    if (status != HEC_OK && !hec_last_error()[0])
      status = hec_fail(status, "the body returned %d", code);
  }
  for (int32_t f = 0; f < HEC_N_FLIGHTS; f++)
    hec_flight_free(&comm->flight[f]);
  hec_collective_plan_free(&comm->scratch);
  hec_link_cost_free(&comm->cost);
  hec_arena_free(&comm->arena);
  free(comm);
  return status;
}

static hec_status check_run(const hec_run_options *o, run *r) {
  if (o->n_ranks < 1 || o->n_ranks > HEC_RANKS_MAX)
    return hec_fail(HEC_BAD_INPUT, "ranks: expected 1 to %d, found %d", (int)HEC_RANKS_MAX, o->n_ranks);
  if (!(o->limit_s > 0 && o->limit_s < 1e6))
    return hec_fail(HEC_BAD_INPUT, "limit_s: expected seconds above 0, at most 1e6, found %g", o->limit_s);
  if (o->memory_bytes > SIZE_MAX / 8)
    return hec_fail(HEC_BAD_INPUT, "memory_bytes: %zu bytes cannot be addressed", o->memory_bytes);
  r->forced = o->collective ? hec_collective_find(o->collective) : NULL;
  if (o->collective && !r->forced)
    return hec_table_unknown(&(hec_table){.rows = hec_collectives}, "collective", o->collective);
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster cluster;
  return load_cluster(o->cluster, o->n_ranks, &arena, &cluster);
}

int hec_run(const hec_run_options *options, hec_body *body, void *context) {
  const hec_backend *backend;
  hec_run_options own = *options;
  int32_t set = 0;
  HEC_TRY_CODE(find_backend(own.backend, &backend));
  HEC_TRY_CODE(check_available(backend));
  HEC_TRY_CODE(backend->ranks(&set));
  own.n_ranks = own.n_ranks == 0 ? set : own.n_ranks;
  run r = {.options = &own, .body = body, .context = context};
  HEC_TRY_CODE(check_run(&own, &r));
  hec_launch_options launch = {.n_ranks = own.n_ranks,
                               .threads = own.threads != 0,
                               .transport = backend->transport ? backend->transport() : &hec_transport_shm,
                               .memory_bytes = heap_of(&own) + HEC_N_FLIGHTS * bounce_bytes,
                               .limit_s = own.limit_s};
  return (int)backend->launch(&launch, run_rank, &r);
}

void hec_finish(void) {
  for (int32_t i = 0; hec_backends[i]; i++)
    if (hec_backends[i]->close)
      hec_backends[i]->close(-1);
}

/* ---- A rank's end ---- */

int32_t hec_comm_rank(const hec_comm *comm) {
  return comm->rank->rank;
}

int32_t hec_comm_size(const hec_comm *comm) {
  return comm->rank->n_ranks;
}

int hec_comm_barrier(hec_comm *comm) {
  return (int)hec_rank_barrier(comm->rank);
}

int hec_comm_fail(hec_comm *comm, const char *message) {
  return (int)hec_rank_fail(comm->rank, "%s", message);
}

int hec_comm_all_gather(hec_comm *comm, const void *data, size_t bytes, void *all) {
  HEC_TRY_CODE(hec_rank_gather(comm->rank, data, bytes, all));
  return (int)hec_rank_broadcast(comm->rank, all, bytes * (size_t)comm->rank->n_ranks);
}

void *hec_comm_alloc(hec_comm *comm, size_t bytes) {
  size_t left = comm->heap_bytes - comm->heap_used;
  if (bytes > left) {
    (void)(hec_fail(HEC_FAILED, "hec_comm_alloc: expected at most the %zu bytes left of memory_bytes, found %zu", left,
                    bytes) == HEC_OK);
    return NULL;
  }
  void *at = comm->rank->memory + comm->heap_used;
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  comm->heap_used += bytes < left ? bytes : left;
  return at;
}

int64_t hec_comm_sent(const hec_comm *comm, const char **collective) {
  if (collective)
    *collective = comm->last;
  return comm->sent;
}
