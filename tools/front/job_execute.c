/* The job of an execution on CPUs: defaults small enough for a laptop (DESIGN section 7), each written down. */
#include "models/straggler.h"
#include "runtime/program/job.h"
#include "tools/front/job_make.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { RANKS = 4, LAYERS = 4, TOKENS = 256 };

/* What policies plan for when no cluster is given: ranks of one machine, or of the hosts that a process manager made, each with
 * its own core. The numbers are assumed, of the order of a server core. GEMMs of this size reach 10 GFLOP/s in float32 (peaks are several times
 * that). Memory gives 10 GB/s. From rank to rank it is 1 GB/s and 50 us, slow enough that placement matters, as it does
 * on clusters; a host's card is as fast, for all of its ranks.
 * Tile 8: the time of a GEMM on a core grows with its rows almost from one on. Memory is written so that it reads back. */
void hec_job_cpu_line(int32_t ranks, int32_t per_host, double memory, char line[HEC_CPU_LINE_BYTES]) {
  bool whole = memory >= 1e9 && fmod(memory, 1e9) < 0.5;
  (void)snprintf(line, HEC_CPU_LINE_BYTES,
                 "%" PRId32 "x%" PRId32
                 " nvlink=1G@50us%s flops=10G eff=1 hbm=10G mem=%.0f%s tile=8 a=5us c=5us launch=5us",
                 ranks / per_host, per_host, per_host < ranks ? " nic=1G@50us" : "", whole ? memory * 1e-9 : memory,
                 whole ? "G" : "");
}

static void say_cluster(hec_job *job, const hec_job_options *options, hec_arena *arena) {
  if (options->like) {
    hec_job_assume(job, arena, "cluster: preset %s, which has such devices; choose with --cluster", options->like);
    return;
  }
  (void)snprintf(job->cluster.name, sizeof job->cluster.name, "%" PRId32 "x%" PRId32 " CPU cores (assumed rates)",
                 job->cluster.n_nodes, job->cluster.devices_per_node);
  hec_job_assume(job, arena,
                 "cluster: assumed rates: a core 10 GFLOP/s, 10 GB/s, 1 GB/s and 50 us to another, GEMM tile 8 rows; "
                 "choose with --cluster");
}

static hec_status choose_ranks(const hec_job_options *options, int32_t *ranks) {
  *ranks = RANKS;
  if (!options->cluster)
    return HEC_OK;
  HEC_SCOPED(hec_arena) arena = {0};
  hec_cluster cluster;
  hec_status status = hec_cluster_load(options->cluster, &arena, &cluster);
  if (status == HEC_OK && cluster.n_devices < RANKS)
    *ranks = cluster.n_devices;
  return status;
}

hec_status hec_job_make_executed(const hec_job_options *options, hec_trace_reader *reader, hec_arena *arena,
                                 hec_job *job) {
  hec_job_options wanted = *options;
  const hec_trace_header *header = hec_trace_header_of(reader);
  char line[HEC_CPU_LINE_BYTES];
  wanted.executed = true;
  if (options->ranks == 0)
    HEC_TRY(choose_ranks(options, &wanted.ranks));
  if (!options->cluster && options->like) {
    wanted.cluster = options->like;
  } else if (!options->cluster) {
    int32_t ranks = options->n_stages > 0 ? options->n_stages * wanted.ranks : wanted.ranks;
    hec_job_cpu_line(ranks, options->per_host > 0 ? options->per_host : ranks, 4e9, line);
    wanted.cluster = line;
  }
  if (options->layers == 0)
    wanted.layers = header->n_layers < LAYERS ? header->n_layers : LAYERS;
  if (options->tokens == 0)
    wanted.tokens = TOKENS;
  if (options->warmup < 0)
    wanted.warmup = 0;
  HEC_TRY(hec_job_make(&wanted, reader, arena, job));
  if (job->problem.mp > 1 && job->moe.attention == HEC_ATTENTION_S2)
    return hec_fail(HEC_BAD_INPUT, "--mp: sharded s2 attention is simulated only (hecate-sim), found --mp %" PRId32,
                    job->problem.mp);
  HEC_TRY(hec_stragglers_none_late(&job->cluster, job->problem.n_ranks));
  if (options->layers == 0 && wanted.layers < header->n_layers)
    hec_job_assume(job, arena,
                   "layers: the first %" PRId32 " MoE layers of the trace's %" PRId32 "; choose with --layers",
                   wanted.layers, header->n_layers);
  if (options->ranks == 0)
    hec_job_assume(job, arena, "ranks: %" PRId32 "; choose with --ranks", wanted.ranks);
  if (options->tokens == 0)
    hec_job_assume(job, arena, "tokens per rank: %d, every layer scaled to it; choose with --tokens", TOKENS);
  if (!options->cluster)
    say_cluster(job, options, arena);
  return HEC_OK;
}
