/* The table of backends and the table of transports, asked by name. */
#include "tools/front/target.h"

#include "runtime/base/progress.h"
#include "runtime/base/table.h"
#include "runtime/exec/link/device_link.h"
#include "runtime/program/job.h"
#include "tools/front/args.h"
#include "tools/front/job_make.h"
#include "tools/front/machine.h"
#include "tools/front/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static hec_status find_backend(const char *name, const hec_backend **backend) {
  *backend = hec_backend_find(name);
  if (*backend)
    return HEC_OK;
  return hec_table_unknown(&(hec_table){.rows = hec_backends, .also = "list"}, "--backend", name);
}

static hec_status find_transport(const char *name, hec_target *target) {
  if (target->backend->link) { /* --transport is about the devices: hec_target_choose_link */
    target->transport = target->backend->transport();
    return HEC_OK;
  }
  const hec_transport *only = target->backend->transport ? target->backend->transport() : NULL;
  if (only && name && strcmp(name, only->name) != 0)
    return hec_fail(HEC_BAD_INPUT, "--transport: backend %s has only %s, found \"%s\"", target->backend->name,
                    only->name, name);
  target->transport = only ? only : hec_transport_find(name ? name : "shm");
  if (target->transport)
    return HEC_OK;
  return hec_table_unknown(&(hec_table){.rows = hec_transports}, "--transport", name);
}

static hec_status choose_precision(const char *name, hec_target *target) {
  int32_t p = 0; /* in the order of hec_precision */
  if (name)
    HEC_TRY(hec_run_option_word("--precision", name, &p));
  target->precision = (hec_precision)p;
  if (p > 0 && !target->backend->link)
    return hec_fail(HEC_BAD_INPUT, "--precision %s: backend %s has products in fp32 only", name, target->backend->name);
  return HEC_OK;
}

static hec_status start(const hec_target *target, int32_t *ranks) {
  int32_t launched = hec_machine_launched();
  if (target->backend->transport == NULL && launched > 1)
    return hec_fail(HEC_BAD_INPUT,
                    "mpirun or srun started %" PRId32
                    " processes, and each would run a job of its own: add --backend mpi",
                    launched);
  HEC_SCOPED(hec_text) why = {0};
  hec_status status = HEC_OK;
  if (!target->backend->available(&why))
    status = hec_fail(HEC_BAD_INPUT, "--backend %s: %s", target->backend->name, why.data ? why.data : "not available");
  return status == HEC_OK ? target->backend->ranks(ranks) : status;
}

hec_status hec_target_open(const hec_target_args *args, hec_target *target, int32_t *ranks) {
  *ranks = 0;
  HEC_TRY(find_backend(args->backend, &target->backend));
  HEC_TRY(choose_precision(args->precision, target));
  HEC_TRY(start(target, ranks));
  if (!target->backend->speaks())
    hec_progress_end(); /* one of several processes that share a terminal */
  HEC_TRY(find_transport(args->transport, target));
  if (*ranks > 0 && args->ranks > 0 && args->ranks != *ranks)
    return hec_fail(HEC_BAD_INPUT, "--ranks: the process manager started %" PRId32 ", found %" PRId32, *ranks,
                    args->ranks);
  if (args->ranks > HEC_RANKS_MAX)
    return hec_fail(HEC_BAD_INPUT, "--ranks: expected at most the %d ranks that can be executed, found %" PRId32,
                    HEC_RANKS_MAX, args->ranks);
  if (*ranks > 0 && (args->threads || args->pin))
    return hec_fail(HEC_BAD_INPUT, "%s: ranks of backend %s are placed by its process manager",
                    args->threads ? "--threads" : "--pin", target->backend->name);
  if (target->backend->link)
    return hec_target_choose_link(args, target, *ranks > 0 ? *ranks : 1); /* a wrong name is found now */
  if (args->virtual && (*ranks > 0 || strcmp(target->transport->name, "shm") != 0))
    return hec_fail(HEC_BAD_INPUT, "--virtual: expected backend cpu and transport shm, found %s%s",
                    *ranks > 0 ? "backend " : "transport ",
                    *ranks > 0 ? target->backend->name : target->transport->name);
  return HEC_OK;
}

hec_status hec_target_choose_link(const hec_target_args *args, hec_target *target, int32_t n_ranks) {
  if (!target->backend->link)
    return HEC_OK;
  if (args->virtual && hec_mpi_started())
    return hec_fail(HEC_BAD_INPUT, "--virtual: its ranks are threads of one process: without mpirun or srun");
  HEC_TRY(target->backend->link(args->virtual && !args->transport ? "local" : args->transport, n_ranks, &target->link));
  if (args->virtual && target->link != &hec_device_link_local)
    return hec_fail(HEC_BAD_INPUT, "--virtual: expected transport local, found %s", target->link->name);
  return HEC_OK;
}

const char *hec_target_carrier(const hec_target *target) {
  return target->link ? target->link->name : target->transport->name;
}

const char *hec_target_carrier_summary(const hec_target *target) {
  return target->link ? target->link->summary : target->transport->summary;
}

const char *hec_target_ranks_are(const hec_target *target, const hec_target_args *args) {
  return args->threads || (target->link && !hec_mpi_started()) ? "threads" : "processes";
}

int32_t hec_target_per_host(const hec_target *target, int32_t n_ranks) {
  int32_t n = target->backend->per_host ? target->backend->per_host() : 0;
  return n > 0 && n < n_ranks ? n : n_ranks;
}

void hec_target_say_hosts(const hec_target *target, hec_job *job, hec_arena *arena) {
  int32_t n = hec_job_ranks(job), each = hec_target_per_host(target, n);
  if (target->backend->per_host && target->backend->per_host() == 0)
    hec_job_assume(job, arena, "hosts: one, since hosts have unlike numbers of ranks; say which with --cluster");
  else if (each < n)
    hec_job_assume(job, arena,
                   "hosts: %" PRId32 ", each with %" PRId32 " ranks, as mpirun made them; choose with --cluster",
                   n / each, each);
}

int hec_target_exit(hec_target *target, const char *program, hec_status status, bool launched) {
  bool speaks = !target->backend || target->backend->speaks();
  int code = speaks ? hec_tool_exit(program, status) : (int)status;
  if (target->backend && code != 0 && !launched && target->backend->abandon)
    target->backend->abandon(code);
  if (target->backend && target->backend->close)
    target->backend->close(code);
  return code;
}

static void list_backends(void) {
  printf("backends\n");
  for (int32_t i = 0; hec_backends[i]; i++) {
    HEC_SCOPED(hec_text) why = {0};
    bool there = hec_backends[i]->available(&why);
    const char *reason = why.data ? why.data : "no reason is known";
    /* a line each, however long: scripts read them */
    printf("  %-26s %s [%s%s]\n", hec_backends[i]->name, hec_backends[i]->summary,
           there ? why.data ? "available: " : "available" : "not available: ", there && !why.data ? "" : reason);
  }
}

static void list_links(void) {
  printf("transports of backend nccl\n");
  for (int32_t i = 0; hec_device_links[i]; i++)
    hec_args_list_item(hec_device_links[i]->name, "%s", hec_device_links[i]->summary);
}

static void list_transports(void) {
  printf("transports of backend cpu\n");
  for (int32_t i = 0; hec_transports[i]; i++)
    hec_args_list_item(hec_transports[i]->name, "%s [%s%s]", hec_transports[i]->summary,
                       hec_transports[i]->law ? "predicted by network law " : "no network law describes it",
                       hec_transports[i]->law ? hec_transports[i]->law : "");
  list_links();
}

bool hec_target_list(const hec_target_args *args, bool all) {
  bool backends = all || strcmp(args->backend, "list") == 0;
  if (backends)
    list_backends();
  if (all)
    list_transports();
  return backends;
}
