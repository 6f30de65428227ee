/* A generalised layer of FSMoE's comparison (reference policies.md 1.4) on three in-order lanes: compute, token (between
 * nodes: AlltoAll and the gradients' all-reduce), intra-node (AllGather, ReduceScatter). D dispatch, A AllGather, E
 * experts, S ReduceScatter, C combine; forward: attention, then these; backward: these, then attention.
 *
 *   FSMoE            token D1 .. Dr G C1 .. Cr     intra A1 .. Ar S1 .. Sr     compute E1 .. Er     degrees, and what G is
 *                    beside MoE and dense parts, by runtime/plan/planners/fsmoe.c, forward and backward apart
 *   FSMoE-No-IIO     the same with A and S on the token lane: D1 A1 .. Dr Ar G S1 C1 .. Sr Cr, planned as folded
 *   Tutel            that order, one degree for both directions, every layer's gradients reduced after the last
 *   Tutel-Improved   as Tutel; a layer's gradients beside the next layer's attention, whole (so they may delay its D1)
 *   PipeMoE+Lina     as Tutel; gradients in chunks of 30 MB, each started when the token lane has nothing else to do and
 *                    is not between combines: under attention and while it waits for experts. Not interrupted once
 *                    started, so an AlltoAll can wait for one. In-order lanes cannot choose while they run; the order is
 *                    that of a list scheduler with the same durations, and a test compares its clock with the walk's
 *   DeepSpeed-MoE    degree 1, nothing beside anything
 *
 * Inferred: gate, ordering and optimizer take no time here. Nothing of them is in the paper's model; Table 2 has .1 and
 * .3 ms of them for two layers. Several layers follow each other, so gradients of the last of the backward pass have
 * nothing to hide behind. Tutel and DeepSpeed reduce layer by layer, each with its start, as Table 2 counts it. */
#include "validate/published/fsmoe_program.h"

#include "runtime/base/status.h"

#include <stdlib.h>

#define LINA_CHUNK (30.0 * 1024 * 1024 / 4) /* elements; arXiv 2210.17223: 30 MB */

struct hec_fsmoe_bench {
  int32_t layers;
  hec_arena arena;
  hec_link_cost cost;
  hec_walk *walk;
  hec_program program;
  hec_timeline timeline;
  int64_t *ps; /* [program.n_ops] */
  size_t ps_capacity;
  int64_t lane_end[HEC_N_LANES]; /* the list scheduler's clock: ends of what was emitted */
  int64_t *end;                  /* [program.n_ops] likewise */
  size_t end_capacity;
  hec_fsmoe_part *parts; /* [layers] */
  hec_fsmoe_slot *slots; /* [layers] */
};

hec_fsmoe_bench *hec_fsmoe_bench_new(int32_t layers) {
  hec_fsmoe_bench *bench = hec_malloc(1, sizeof *bench);
  *bench = (hec_fsmoe_bench){.layers = layers};
  hec_cluster *cluster = HEC_NEW(&bench->arena, hec_cluster, 1);
  hec_status status =
      hec_cluster_parse_line("1x1 nvlink=1G flops=1T mem=1G", &bench->arena, cluster); /* no time comes from it */
  HEC_ASSERT(layers > 0 && status == HEC_OK);
  bench->cost = hec_link_cost_new(cluster, &bench->arena);
  bench->walk = hec_walk_new(&bench->cost, 1, &bench->arena);
  bench->parts = HEC_NEW(&bench->arena, hec_fsmoe_part, layers);
  bench->slots = HEC_NEW(&bench->arena, hec_fsmoe_slot, layers);
  return bench;
}

void hec_fsmoe_bench_free(hec_fsmoe_bench *bench) {
  if (!bench)
    return;
  hec_walk_free(bench->walk);
  hec_link_cost_free(&bench->cost);
  hec_program_free(&bench->program);
  hec_timeline_free(&bench->timeline);
  free(bench->ps);
  free(bench->end);
  hec_arena_free(&bench->arena);
  free(bench);
}

const hec_program *hec_fsmoe_bench_program(const hec_fsmoe_bench *bench) {
  return &bench->program;
}

const hec_timeline *hec_fsmoe_bench_timeline(const hec_fsmoe_bench *bench) {
  return &bench->timeline;
}

/* ---- building ---- */

typedef struct {
  hec_fsmoe_bench *bench;
  const hec_fsmoe_case_study *study;
  const hec_fsmoe_schedule *schedule;
  bool backward, inside; /* inside: AllGather and ReduceScatter have a lane of their own */
  int32_t last;          /* the operation that the next layer or part waits for; -1: none */
  double pending;        /* elements of gradients that are ready and not yet reduced */
  int32_t ready;         /* the operation after which all of them are; -1: none */
} builder;

static int32_t emit(builder *b, hec_lane lane, hec_role role, double ms, const int32_t *deps, int32_t n_deps) {
  hec_fsmoe_bench *bench = b->bench;
  int64_t begin = bench->lane_end[lane];
  for (int32_t d = 0; d < n_deps; d++)
    if (deps[d] >= 0 && bench->end[deps[d]] > begin)
      begin = bench->end[deps[d]];
  hec_op op = hec_op_new(HEC_OP_LOCAL, lane, role, -1);
  op.backward = b->backward;
  int32_t id = hec_program_add(&bench->program, op, deps, n_deps);
  HEC_RESERVE(bench->ps, bench->ps_capacity, id + 1);
  HEC_RESERVE(bench->end, bench->end_capacity, id + 1);
  bench->ps[id] = hec_seconds_to_ps(ms * 1e-3);
  bench->end[id] = bench->lane_end[lane] = begin + bench->ps[id];
  return id;
}

static void emit_reduce(builder *b, double elements, int32_t after) {
  if (elements > 0)
    (void)emit(b, HEC_LANE_TOKEN, HEC_ROLE_DENSE_REDUCE, b->study->reduce.start + elements * b->study->reduce.per_unit,
               &after, 1);
}

/* Lina: chunks while the token lane would idle until the end of `until`. */
static void fill_idle(builder *b, int32_t until) {
  if (b->schedule->system != HEC_FSMOE_LINA || !b->backward)
    return;
  while (b->pending > 0) {
    int64_t begin = b->bench->lane_end[HEC_LANE_TOKEN];
    if (b->bench->end[b->ready] > begin)
      begin = b->bench->end[b->ready];
    if (begin >= b->bench->end[until])
      return;
    double chunk = b->pending < LINA_CHUNK ? b->pending : LINA_CHUNK;
    emit_reduce(b, chunk, b->ready);
    b->pending -= chunk;
  }
}

/* The MoE part after `last`, cut into r chunks, `beside` elements reduced in it. */
static void emit_moe(builder *b, int32_t r, double beside) {
  const hec_fsmoe_layer *layer = &b->study->moe[b->backward];
  int32_t gathered[HEC_FSMOE_DEGREE_MAX], computed[HEC_FSMOE_DEGREE_MAX], combined[HEC_FSMOE_DEGREE_MAX];
  hec_lane intra = b->inside ? HEC_LANE_INTRA : HEC_LANE_TOKEN;
  HEC_ASSERT(r >= 1 && r <= HEC_FSMOE_DEGREE_MAX);
  for (int32_t i = 0; i < r; i++) {
    int32_t sent = emit(b, HEC_LANE_TOKEN, HEC_ROLE_DISPATCH, hec_fsmoe_chunk(layer->a2a, r), &b->last, 1);
    gathered[i] = emit(b, intra, HEC_ROLE_DISPATCH, hec_fsmoe_chunk(layer->gather, r), &sent, 1);
  }
  for (int32_t i = 0; i < r; i++)
    computed[i] = emit(b, HEC_LANE_COMPUTE, HEC_ROLE_EXPERTS, hec_fsmoe_chunk(layer->experts, r), &gathered[i], 1);
  emit_reduce(b, beside, b->ready);
  fill_idle(b, computed[0]);
  for (int32_t i = 0; i < r; i++) {
    int32_t scattered = emit(b, intra, HEC_ROLE_COMBINE, hec_fsmoe_chunk(layer->scatter, r), &computed[i], 1);
    combined[i] = emit(b, HEC_LANE_TOKEN, HEC_ROLE_COMBINE, hec_fsmoe_chunk(layer->a2a, r), &scattered, 1);
  }
  b->last = combined[r - 1];
}

/* Attention; backward with `beside` elements reduced beside it, and the layer's own gradients ready after it. */
static void emit_dense(builder *b, double beside) {
  int32_t before = b->last;
  b->last = emit(b, HEC_LANE_COMPUTE, HEC_ROLE_ATTENTION, b->study->dense[b->backward], &before, 1);
  if (!b->backward)
    return;
  emit_reduce(b, beside, before);
  if (b->schedule->system == HEC_FSMOE_TUTEL_IMPROVED) {
    emit_reduce(b, b->pending, before);
    b->pending = 0;
  }
  fill_idle(b, b->last);
  b->pending += b->study->gradient - (beside > 0 ? beside : 0);
  b->ready = b->last;
}

/* What is left after the last layer: a layer at a time, in chunks, or all in one, as the system does. */
static void emit_tail(builder *b) {
  hec_fsmoe_system system = b->schedule->system;
  bool planned = system == HEC_FSMOE_FSMOE || system == HEC_FSMOE_NO_IIO;
  double piece = system == HEC_FSMOE_LINA ? LINA_CHUNK : planned ? b->pending : b->study->gradient;
  while (b->pending > 1e-6 * b->study->gradient) { /* sums of parts are off by their last bits */
    double units = b->pending < piece * (1 + 1e-9) ? b->pending : piece;
    emit_reduce(b, units, b->last);
    b->pending -= units;
  }
}

double hec_fsmoe_bench_walk(hec_fsmoe_bench *bench, const hec_fsmoe_case_study *study,
                            const hec_fsmoe_schedule *schedule) {
  builder b = {.bench = bench, .study = study, .schedule = schedule, .last = -1, .ready = -1};
  b.inside = schedule->system == HEC_FSMOE_FSMOE;
  hec_program_clear(&bench->program, 1);
  for (int32_t k = 0; k < HEC_N_LANES; k++)
    bench->lane_end[k] = 0;
  for (int32_t l = 0; l < bench->layers; l++) {
    emit_dense(&b, 0);
    emit_moe(&b, schedule->forward, 0);
  }
  b.backward = true;
  for (int32_t v = 0; v < bench->layers; v++) {
    emit_moe(&b, schedule->slots[v].moe.degree, schedule->slots[v].beside_moe);
    b.pending -= schedule->slots[v].beside_moe;
    emit_dense(&b, schedule->slots[v].beside_dense);
  }
  emit_tail(&b);
  hec_walk_run(bench->walk, &bench->program, (hec_walk_options){.own = hec_walk_own_measured, .context = bench->ps},
               &bench->timeline);
  return (double)hec_timeline_end_ps(&bench->timeline) * 1e-9;
}

/* ---- deciding ---- */

static double walk_at(hec_fsmoe_bench *bench, const hec_fsmoe_case_study *study, hec_fsmoe_system system, int32_t r) {
  for (int32_t v = 0; v < bench->layers; v++)
    bench->slots[v] = (hec_fsmoe_slot){.moe = {.degree = r}};
  return hec_fsmoe_bench_walk(bench, study, &(hec_fsmoe_schedule){system, r, bench->slots});
}

/* Tutel's degree, by trying. */
static int32_t tried(hec_fsmoe_bench *bench, const hec_fsmoe_case_study *study) {
  int32_t best = 1;
  double min = 0;
  for (int32_t r = 1; r <= HEC_FSMOE_DEGREE_MAX; r *= 2) {
    double ms = walk_at(bench, study, HEC_FSMOE_TUTEL, r);
    if (r == 1 || ms < min) {
      min = ms;
      best = r;
    }
  }
  return best;
}

double hec_fsmoe_bench_ms(hec_fsmoe_bench *bench, const hec_fsmoe_case_study *study, hec_fsmoe_system system) {
  if (system == HEC_FSMOE_DEEPSPEED)
    return walk_at(bench, study, system, 1);
  if (system != HEC_FSMOE_NO_IIO && system != HEC_FSMOE_FSMOE)
    return walk_at(bench, study, system, tried(bench, study));
  hec_fsmoe_layer seen[2] = {study->moe[0], study->moe[1]};
  for (int32_t k = 0; k < 2 && system == HEC_FSMOE_NO_IIO; k++)
    seen[k] = hec_fsmoe_folded(&study->moe[k]);
  for (int32_t v = 0; v < bench->layers; v++)
    bench->parts[v] = (hec_fsmoe_part){seen[1], study->dense[1], study->gradient};
  (void)hec_fsmoe_divide(bench->parts, bench->layers, study->reduce, (hec_fsmoe_options){0}, &bench->arena,
                         bench->slots);
  int32_t forward = hec_fsmoe_best(&seen[0], 0, HEC_FSMOE_DEGREE_MAX).degree;
  return hec_fsmoe_bench_walk(bench, study, &(hec_fsmoe_schedule){system, forward, bench->slots});
}
