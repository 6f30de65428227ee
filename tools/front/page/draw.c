/* From one lowered and timed iteration to what charts draw of it: bytes between ranks, memory of the fullest rank over
 * time. O(transfers + operations * ranks + holds * log). */
#include "tools/front/page/draw.h"

#include "runtime/base/arena.h"
#include "runtime/program/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Traffic ---- */

/* Bytes of every pair of ranks; only where a matrix of them is no burden. */
enum { PAIRS_MAX = 2048 };

static void find_pair(const double *pair, int32_t n, hec_report_iteration *it) {
  for (size_t i = 0; i < (size_t)n * (size_t)n; i++)
    if (pair[i] > it->pair_bytes) {
      it->pair_bytes = pair[i];
      it->pair_from = (int32_t)(i / (size_t)n);
      it->pair_to = (int32_t)(i % (size_t)n);
    }
}

static void add_transfer(const hec_report *report, const hec_op *op, const hec_transfer *t, double *pair,
                         hec_report_iteration *it) {
  const hec_cluster *cluster = &report->summary->job->cluster;
  int32_t from = op->reverse ? t->destination : t->source, to = op->reverse ? t->source : t->destination;
  double bytes = (double)t->bytes;
  it->traffic[from / report->per_block * report->n_blocks + to / report->per_block] += bytes;
  it->bytes += bytes;
  it->across += hec_cluster_node(cluster, from) != hec_cluster_node(cluster, to) ? bytes : 0;
  if (pair)
    pair[(size_t)from * (size_t)report->summary->job->problem.n_ranks + (size_t)to] += bytes;
}

static void add_traffic(const hec_report *report, const hec_program *program, hec_report_iteration *it) {
  int32_t n = program->n_ranks;
  size_t n_pairs = n <= PAIRS_MAX ? (size_t)n * (size_t)n : 0;
  double *pair = n_pairs > 0 ? hec_malloc(n_pairs, sizeof *pair) : NULL;
  for (size_t i = 0; i < n_pairs; i++)
    pair[i] = 0;
  it->traffic = HEC_NEW(&it->arena, double, (size_t)report->n_blocks *(size_t)report->n_blocks);
  it->pair_from = it->pair_to = -1;
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    it->reduced += op->kind == HEC_OP_ALLREDUCE ? op->bytes : 0;
    for (int32_t k = 0; op->kind == HEC_OP_EXCHANGE && k < op->exchange.n_transfers; k++)
      add_transfer(report, op, &program->transfers[op->exchange.transfer_at + k], pair, it);
  }
  if (pair)
    find_pair(pair, n, it);
  free(pair);
}

/* ---- Memory ---- */

/* The fullest instant of every moment, what was held before it included. */
void hec_report_draw_memory(const hec_program *program, const hec_timeline *timeline, hec_report_iteration *it) {
  int64_t end = hec_timeline_end_ps(timeline);
  it->end_s = (double)end * 1e-12;
  it->fullest = hec_program_fullest_rank(program);
  it->memory = HEC_NEW(&it->arena, double, HEC_N_MEMORY *HEC_REPORT_MOMENTS);
  double width = end > 0 ? (double)end / HEC_REPORT_MOMENTS : 1, *max = hec_malloc(HEC_REPORT_MOMENTS, sizeof *max);
  for (int32_t i = 0; i < HEC_REPORT_MOMENTS; i++)
    max[i] = -1;
  int32_t n;
  hec_memory_change *changes = hec_timeline_memory(timeline, program, it->fullest, &n);
  double bytes[HEC_N_MEMORY] = {0};
  for (int32_t i = 0; i < n; i++) {
    bytes[changes[i].memory] += changes[i].bytes;
    if (i + 1 < n && changes[i + 1].time_ps == changes[i].time_ps)
      continue;
    double sum = 0;
    for (int32_t k = 0; k < HEC_N_MEMORY; k++)
      sum += bytes[k];
    int32_t first = (int32_t)((double)changes[i].time_ps / width),
            last = i + 1 < n ? (int32_t)((double)changes[i + 1].time_ps / width) : HEC_REPORT_MOMENTS - 1;
    for (int32_t m = first; m <= last && m < HEC_REPORT_MOMENTS; m++) {
      if (sum <= max[m])
        continue;
      max[m] = sum;
      for (int32_t k = 0; k < HEC_N_MEMORY; k++)
        it->memory[k * HEC_REPORT_MOMENTS + m] = bytes[k] > 0 ? bytes[k] : 0;
    }
    if (sum > it->fullest_bytes) {
      it->fullest_bytes = sum;
      it->fullest_s = (double)changes[i].time_ps * 1e-12;
    }
  }
  free(changes);
  free(max);
}

void hec_report_draw(hec_report *report, int32_t row, int64_t iter, const hec_lowering *low,
                     const hec_timeline *timeline) {
  const hec_program *program = hec_lowering_program(low);
  hec_report_iteration *it = &report->iterations[row];
  if (it->there) /* a trace may have an iteration's number twice */
    return;
  it->there = true;
  it->iter = iter;
  add_traffic(report, program, it);
  hec_report_draw_memory(program, timeline, it);
  if (report->color[row] < HEC_REPORT_TIMELINES)
    hec_report_draw_timeline(program, timeline, it);
}
