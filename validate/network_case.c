/* See the header. Random numbers: GSL's taus2. */
#include "validate/network_case.h"

#include "runtime/base/temporary.h"
#include "traces/synth_memory.h"

#include <errno.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PER_NODE = 8 };

const char *const hec_network_name[HEC_N_NETWORKS] = {"switch", "nodes"};

static void make_routes(hec_network network, int32_t n, hec_flows *flows) {
  int32_t nodes = (n + PER_NODE - 1) / PER_NODE, at = 0, pair = 0;
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++) {
      if (s == d)
        continue;
      flows->route_at[pair] = at;
      flows->route_link[at++] = s;
      if (network == HEC_NETWORK_NODES && s / PER_NODE != d / PER_NODE) {
        flows->route_link[at++] = 2 * n + s / PER_NODE;
        flows->route_link[at++] = 2 * n + nodes + d / PER_NODE;
      }
      flows->route_link[at++] = n + d;
      flows->flow[pair] = (hec_flow){.source = s, .destination = d, .route = pair, .expected_finish = -1};
      flows->route_at[++pair] = at;
    }
}

static void draw_bytes(int32_t n, uint64_t seed, hec_arena *arena, hec_flows *flows) {
  hec_gsl_watch_memory(false);
  gsl_rng *rng = gsl_rng_alloc(gsl_rng_taus2);
  double *popularity = HEC_NEW(arena, double, n);
  gsl_rng_set(rng, (unsigned long)seed);
  for (int32_t d = 0; d < n; d++)
    popularity[d] = gsl_ran_lognormal(rng, 0, 1);
  for (int32_t f = 0; f < flows->n_flows; f++)
    flows->flow[f].bytes = (int64_t)(1e6 * popularity[flows->flow[f].destination] * gsl_ran_lognormal(rng, 0, 0.5)) + 1;
  gsl_rng_free(rng);
}

void hec_network_case(hec_network network, int32_t n, uint64_t seed, hec_arena *arena, hec_flows *flows) {
  int32_t nodes = (n + PER_NODE - 1) / PER_NODE, pairs = n * (n - 1);
  bool inside = network == HEC_NETWORK_NODES;
  *flows = (hec_flows){.n_hosts = n,
                       .n_links = 2 * n + (inside ? 2 * nodes : 0),
                       .n_routes = pairs,
                       .n_flows = pairs,
                       .hosts_per_node = inside && n % PER_NODE == 0 ? PER_NODE : n,
                       .p2p = {.channels = 32, .channels_per_peer = 4, .batch = 8}};
  flows->bandwidth = HEC_NEW(arena, double, flows->n_links);
  flows->latency = HEC_NEW(arena, double, flows->n_links);
  flows->route_at = HEC_NEW(arena, int32_t, pairs + 1);
  flows->route_link = HEC_NEW(arena, int32_t, (int64_t)(inside ? 4 : 2) * pairs);
  flows->route_latency = HEC_NEW(arena, double, pairs);
  flows->flow = HEC_NEW(arena, hec_flow, pairs);
  for (int32_t l = 0; l < flows->n_links; l++)
    flows->bandwidth[l] = inside && l < 2 * n ? 450e9 : 50e9;
  make_routes(network, n, flows);
  draw_bytes(n, seed, arena, flows);
}

/* A peer starts flows in the order of their arrival: start and latency. */
typedef struct {
  double time;
  int32_t flow;
} arrival;

static int by_time(const void *a, const void *b) {
  const arrival *x = a, *y = b;
  return x->time != y->time ? (x->time < y->time ? -1 : 1) : x->flow - y->flow;
}

/* Each route once, with the ends of the first flow on it. */
static void write_routes(const hec_flows *flows, bool *written, FILE *file) {
  for (int32_t f = 0; f < flows->n_flows; f++) {
    int32_t route = flows->flow[f].route, first = flows->route_at[route], end = flows->route_at[route + 1];
    if (written[route])
      continue;
    written[route] = true;
    fprintf(file, "%d %d %d", flows->flow[f].source, flows->flow[f].destination, end - first);
    for (int32_t i = first; i < end; i++)
      fprintf(file, " %d", flows->route_link[i]);
    fprintf(file, "\n");
  }
}

static bool write_case(const hec_flows *flows, const arrival *arrivals, hec_arena *arena, FILE *file) {
  bool *written = HEC_NEW(arena, bool, flows->n_routes);
  int32_t n_routes = 0;
  for (int32_t f = 0; f < flows->n_flows; f++) {
    n_routes += !written[flows->flow[f].route];
    written[flows->flow[f].route] = true;
  }
  fprintf(file, "hosts %d links %d routes %d flows %d\n", flows->n_hosts, flows->n_links, n_routes, flows->n_flows);
  for (int32_t l = 0; l < flows->n_links; l++)
    fprintf(file, "%.17g\n", flows->bandwidth[l]);
  write_routes(flows, HEC_NEW(arena, bool, flows->n_routes), file);
  for (int32_t i = 0; i < flows->n_flows; i++) {
    const hec_flow *flow = &flows->flow[arrivals[i].flow];
    fprintf(file, "%d %d %lld %.17g\n", flow->source, flow->destination, (long long)flow->bytes, arrivals[i].time);
  }
  return ferror(file) == 0;
}

/* The program gets the path as its one argument: no shell reads it, for TMPDIR may hold any character. */
static hec_status start(const char *program, const char *path, pid_t *child, FILE **answer) {
  int ends[2];
  if (pipe(ends) != 0)
    return hec_fail(HEC_FAILED, "--peer: no pipe: %s", strerror(errno));
  char *const arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)path, NULL};
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error == 0) {
    error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    for (int i = 0; error == 0 && i < 2; i++)
      error = posix_spawn_file_actions_addclose(&actions, ends[i]);
    if (error == 0)
      error = posix_spawnp(child, program, &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
  }
  (void)close(ends[1]);
  *answer = error == 0 ? fdopen(ends[0], "r") : NULL;
  if (*answer)
    return HEC_OK;
  (void)close(ends[0]);
  return hec_fail(HEC_BAD_INPUT, "--peer: expected a program, without arguments, found \"%s\", which cannot start: %s",
                  program, strerror(error ? error : errno));
}

static hec_status ask(const char *program, const char *path, const arrival *arrivals, int32_t n, double *seconds,
                      double *finish) {
  pid_t child;
  FILE *answer;
  HEC_TRY(start(program, path, &child, &answer));
  bool ok = fscanf(answer, "%lf", seconds) == 1;
  for (int32_t i = 0; ok && i < n; i++)
    ok = fscanf(answer, "%lf", &finish[arrivals[i].flow]) == 1;
  (void)fclose(answer);
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  return ok && status == 0 ? HEC_OK : hec_fail(HEC_FAILED, "--peer: \"%s\" gave no answer to a case", program);
}

hec_status hec_network_peer(const char *program, const hec_flows *flows, double *seconds, double *finish) {
  const char *folder = getenv("TMPDIR");
  char path[1024];
  if (snprintf(path, sizeof path, "%s/hecate-case-XXXXXX", folder && *folder ? folder : "/tmp") >= (int)sizeof path)
    return hec_fail(HEC_BAD_INPUT, "TMPDIR: too long a path");
  int descriptor = mkstemp(path);
  if (descriptor < 0)
    return hec_fail(HEC_FAILED, "%s: cannot be made: %s", path, strerror(errno));
  hec_temporary_add(path);
  HEC_SCOPED(hec_arena) arena = {0};
  arrival *arrivals = HEC_NEW(&arena, arrival, flows->n_flows);
  for (int32_t f = 0; f < flows->n_flows; f++)
    arrivals[f] = (arrival){flows->flow[f].start + flows->route_latency[flows->flow[f].route], f};
  qsort(arrivals, (size_t)flows->n_flows, sizeof *arrivals, by_time);
  FILE *file = fdopen(descriptor, "w");
  bool written = file && write_case(flows, arrivals, &arena, file);
  written = file && fclose(file) == 0 && written;
  hec_status status = written ? ask(program, path, arrivals, flows->n_flows, seconds, finish)
                              : hec_fail(HEC_FAILED, "%s: cannot be written: %s", path, strerror(errno));
  (void)unlink(path);
  hec_temporary_drop(path);
  return status;
}
