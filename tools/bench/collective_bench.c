/* One repeat times two things in turn (which one comes first alternates):
 *
 *   executor   a posted exchange (and the reduction behind it), from a common start until it is finished on every rank
 *   limit      gather: memcpy, scatter: to[i] += from[i], both by the rank that receives, out of the sender's memory;
 *              under MPI: MPI_Allgatherv and MPI_Reduce_scatter of the same floats
 *
 * Before each of them every sender writes what it will send, as an optimizer or a backward pass has just done. So the
 * bytes are in the same caches. Sources and destinations are the same memory, but for the contiguous buffers that
 * MPI_Reduce_scatter wants. Time = the slowest rank's. The ratio is taken repeat by repeat. A repeat in which the
 * system took the processor from a rank is not clean; only clean ones count when there are enough of them. What arrived
 * is looked at every time. */
#include "tools/bench/collective_bench.h"
#include "runtime/base/arena.h"
#include "runtime/base/quantile.h"
#include "runtime/base/value.h"
#include "runtime/exec/exec_case.h"
#include "runtime/exec/mpi/plugin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { WARM_UPS = 4, CLEAN_MIN = 9, RANKS_MAX = 256, REST_NS = 5000000, EXECUTOR = 0, LIMIT = 1 };

typedef struct {
  const hec_collective_bench *bench;
  const hec_exec_case *problem;
  hec_collective_row *rows; /* shared */
  int32_t n_rows;
} job;

typedef struct {
  hec_rank *rank;
  hec_exec *exec;
  hec_program program;
  const hec_collective_row *row;
  int64_t n;            /* floats of a message */
  float *at[RANKS_MAX]; /* expert e here: its parameters or gradients, own or a guest's */
  float **peer_at;      /* [n_ranks * n_ranks] everybody's */
  const hec_mpi_collectives *mpi;
  float *sums, *terms; /* MPI_Reduce_scatter: [n], [n_ranks * n] */
  float value;         /* of this repeat: rank r sends value + r */
} runner;

typedef struct {
  int64_t ns[2];
  int64_t interrupted;
} sample;

/* ---- The program ---- */

/* Does the rank receive the expert of `owner` (gather), or the owner its sum from the rank (scatter)? */
static bool is_guest(const runner *r, int32_t owner, int32_t rank) {
  return rank != owner && (r->row->all || owner == 0);
}

static void find_memory(void *context, hec_exec *exec, hec_exec_op *op) {
  runner *r = context;
  bool guest;
  for (int32_t e = 0; op->id == 0 && e < r->rank->n_ranks; e++) {
    r->at[e] = NULL;
    if (e != r->rank->rank && !is_guest(r, e, r->rank->rank))
      continue;
    r->at[e] = r->row->scatter ? hec_exec_grads(exec, op, e, &guest) : (float *)(uintptr_t)hec_exec_params(exec, op, e);
  }
}

static void no_step(void *context, hec_exec *exec, hec_exec_op *op) {
  (void)context, (void)exec, (void)op;
}

/* Guests of every rank: held from the first operation to the last. */
static void add_guests(runner *r, int32_t last) {
  hec_program *p = &r->program;
  int32_t n = r->rank->n_ranks, counts = hec_program_local_bytes(p, n), first = (int32_t)p->n_item_index;
  HEC_RESERVE(p->item_index, p->item_index_capacity, p->n_item_index + (size_t)n + 1);
  HEC_RESERVE(p->items, p->items_capacity, p->n_items + (size_t)n * (size_t)n);
  p->item_index[p->n_item_index++] = (int32_t)p->n_items;
  for (int32_t to = 0; to < n; to++) {
    for (int32_t owner = 0; owner < n; owner++)
      if (is_guest(r, owner, to)) {
        p->local_bytes[counts + to] += 1;
        p->items[p->n_items++] = owner;
      }
    p->item_index[p->n_item_index++] = (int32_t)p->n_items;
  }
  (void)hec_program_hold(p, (hec_hold){r->row->scatter ? HEC_MEMORY_COPY_GRAD : HEC_MEMORY_COPY_PARAM, 0, 0, last,
                                       counts, (double)r->row->bytes,
                                       r->row->scatter ? HEC_TENSOR_GUEST_GRAD : HEC_TENSOR_GUEST_PARAM, 0, first});
}

static void add_transfer(runner *r, int32_t owner, int32_t guest) {
  hec_program *p = &r->program;
  bool scatter = r->row->scatter;
  HEC_RESERVE(p->transfers, p->transfers_capacity, p->n_transfers + 1);
  HEC_RESERVE(p->parcels, p->parcels_capacity, p->n_parcels + 1);
  HEC_RESERVE(p->parcel_index, p->parcel_index_capacity, p->n_parcel_index + 2);
  p->transfers[p->n_transfers++] = (hec_transfer){.bytes = r->row->bytes,
                                                  .source = scatter ? guest : owner,
                                                  .destination = scatter ? owner : guest,
                                                  .item = owner,
                                                  .after = -1};
  p->parcel_index[p->n_parcel_index++] = (int32_t)p->n_parcels;
  p->parcels[p->n_parcels++] = (hec_parcel){0, owner, 0, 1, scatter ? HEC_STATE_GRAD : HEC_STATE_PARAM};
}

/* Transfers ascending by (source, destination), as lowering lists them. */
static void add_exchange(runner *r) {
  hec_program *p = &r->program;
  bool scatter = r->row->scatter;
  int32_t n = r->rank->n_ranks, ready = 0;
  hec_op op = hec_exec_case_op(HEC_OP_EXCHANGE, scatter ? HEC_LANE_GRAD : HEC_LANE_PARAM,
                               scatter ? HEC_ROLE_SCATTER : HEC_ROLE_GATHER);
  op.backward = scatter;
  op.exchange.transfer_at = (int32_t)p->n_transfers;
  op.exchange.parcel_at = (int32_t)p->n_parcel_index;
  for (int32_t source = 0; source < n; source++)
    for (int32_t to = 0; to < n; to++)
      if (scatter ? is_guest(r, to, source) : is_guest(r, source, to))
        add_transfer(r, scatter ? to : source, scatter ? source : to);
  p->parcel_index[p->n_parcel_index++] = (int32_t)p->n_parcels;
  op.exchange.n_transfers = (int32_t)p->n_transfers - op.exchange.transfer_at;
  int32_t exchange = hec_program_add(p, op, &ready, 1);
  if (!scatter)
    return;
  int32_t staged = hec_program_local_bytes(p, n);
  for (int32_t k = op.exchange.transfer_at; k < op.exchange.transfer_at + op.exchange.n_transfers; k++)
    p->local_bytes[staged + p->transfers[k].destination] += (double)r->row->bytes;
  op = hec_exec_case_op(HEC_OP_LOCAL, HEC_LANE_GRAD, HEC_ROLE_REDUCE);
  op.backward = true;
  op.local.bytes_at = staged;
  op.bytes = 3;
  int32_t reduce = hec_program_add(p, op, &exchange, 1);
  (void)hec_program_hold(p, (hec_hold){HEC_MEMORY_BUFFER, 0, exchange, reduce, staged, 1, HEC_TENSOR_STAGING, 0, -1});
}

/* ---- One repeat ---- */

static void fill(float *to, float value, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    to[i] = value;
}

/* What this rank sends: its own expert (gather), or its part of the sums of others (scatter). */
static void write_sources(const runner *r) {
  int32_t me = r->rank->rank, n = r->rank->n_ranks;
  float mine = r->value + (float)me;
  if (r->terms)
    fill(r->terms, mine, n * r->n);
  for (int32_t e = 0; e < n; e++)
    if (r->at[e] && (r->row->scatter ? e != me : e == me))
      fill(r->at[e], mine, r->n);
}

static hec_status start(const runner *r, int64_t *ns) {
  if (!r->mpi)
    return hec_rank_start_together(r->rank, ns);
  /* As there: who has slept is not interrupted soon. */
  (void)nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
  if (!r->mpi->barrier())
    return hec_rank_fail(r->rank, "MPI_Barrier failed");
  *ns = hec_clock_ns();
  return HEC_OK;
}

static int64_t interruptions(void) {
  struct rusage usage;
  (void)getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

/* Three floats of each that arrived. `before`: what the sum was. */
static hec_status check(const runner *r, const float before[3]) {
  int32_t me = r->rank->rank, n = r->rank->n_ranks;
  const int64_t places[3] = {0, r->n / 2, r->n - 1};
  for (int32_t k = 0; k < 3; k++) {
    float sum = before[k];
    for (int32_t e = 0; e < n; e++) {
      if (r->row->scatter && is_guest(r, me, e))
        sum += r->value + (float)e;
      else if (!r->row->scatter && is_guest(r, e, me) && r->at[e][places[k]] != r->value + (float)e)
        return hec_rank_fail(r->rank, "the expert of rank %d did not arrive", e);
    }
    if (r->row->scatter && is_guest(r, me, me == 0) && r->at[me][places[k]] != sum)
      return hec_rank_fail(r->rank, "a sum is %g, not %g", (double)r->at[me][places[k]], (double)sum);
  }
  return HEC_OK;
}

static void look(const runner *r, float values[3]) {
  const float *own = r->at[r->rank->rank];
  values[0] = own[0];
  values[1] = own[r->n / 2];
  values[2] = own[r->n - 1];
}

static hec_status time_executor(runner *r, sample *out) {
  hec_program *p = &r->program;
  const int32_t last = r->row->scatter ? 3 : 2;
  float before[3];
  hec_program_clear(p, r->rank->n_ranks);
  hec_exec_begin(r->exec, 0, hec_clock_ns());
  add_guests(r, last);
  (void)hec_program_add(p, hec_exec_case_op(HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_PERMUTE), NULL, 0);
  HEC_TRY(hec_exec_post(r->exec, p));
  HEC_TRY(hec_exec_drain(r->exec));
  look(r, before);
  write_sources(r);
  add_exchange(r);
  HEC_TRY(hec_exec_post(r->exec, p));
  int64_t start_ns, interrupted = interruptions();
  HEC_TRY(start(r, &start_ns));
  HEC_TRY(hec_exec_drain(r->exec));
  out->ns[EXECUTOR] = hec_clock_ns() - start_ns;
  out->interrupted += interruptions() - interrupted;
  int32_t after = last - 1;
  (void)hec_program_add(p, hec_exec_case_op(HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_PERMUTE), &after, 1);
  HEC_TRY(hec_exec_finish(r->exec, p));
  return check(r, before);
}

/* As plain as it can be written; the same flags as everything else. */
static void plain_add(float *restrict to, const float *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    to[i] += from[i];
}

static hec_status limit_of_memory(const runner *r) {
  int32_t me = r->rank->rank, n = r->rank->n_ranks;
  for (int32_t e = 0; e < n; e++) {
    if (r->row->scatter && is_guest(r, me, e))
      plain_add(r->at[me], r->peer_at[(size_t)e * (size_t)n + (size_t)me], r->n);
    else if (!r->row->scatter && is_guest(r, e, me))
      memcpy(r->at[e], r->peer_at[(size_t)e * (size_t)n + (size_t)e], (size_t)r->row->bytes);
  }
  return HEC_OK;
}

static hec_status limit_of_mpi(const runner *r) {
  int counts[RANKS_MAX], places[RANKS_MAX];
  for (int32_t e = 0; e < r->rank->n_ranks; e++) {
    counts[e] = r->row->all || e == 0 ? (int)r->n : 0;
    places[e] = r->at[e] ? (int)(r->at[e] - (float *)(void *)r->rank->memory) : 0;
  }
  bool done = r->row->scatter ? r->mpi->reduce_scatter(r->terms, r->sums, counts)
                              : r->mpi->allgatherv((float *)(void *)r->rank->memory, counts, places);
  return done ? HEC_OK : hec_rank_fail(r->rank, "the MPI collective failed");
}

static hec_status time_limit(runner *r, sample *out) {
  float before[3];
  look(r, before);
  write_sources(r);
  int64_t start_ns, interrupted = interruptions();
  HEC_TRY(start(r, &start_ns));
  HEC_TRY(r->mpi ? limit_of_mpi(r) : limit_of_memory(r));
  out->ns[LIMIT] = hec_clock_ns() - start_ns;
  out->interrupted += interruptions() - interrupted;
  HEC_TRY(hec_rank_barrier(r->rank)); /* peers may still read what is written next */
  return r->mpi && r->row->scatter ? HEC_OK : check(r, before);
}

static hec_status share_memory(runner *r) {
  size_t n = (size_t)r->rank->n_ranks;
  HEC_TRY(hec_rank_gather(r->rank, r->at, n * sizeof *r->at, r->peer_at));
  return hec_rank_broadcast(r->rank, r->peer_at, n * n * sizeof *r->peer_at);
}

static hec_status repeats(runner *r, sample *samples, int32_t n) {
  for (int32_t i = -WARM_UPS; i < n; i++) {
    sample s = {0};
    r->value = (float)(1 + (i & 7));
    bool limit_first = i > -WARM_UPS && i % 2 != 0;
    if (limit_first)
      HEC_TRY(time_limit(r, &s));
    HEC_TRY(time_executor(r, &s));
    if (i == -WARM_UPS)
      HEC_TRY(share_memory(r));
    if (!limit_first)
      HEC_TRY(time_limit(r, &s));
    if (i >= 0)
      samples[i] = s;
  }
  return HEC_OK;
}

/* ---- Results ---- */

hec_bench_spread hec_bench_spread_of(double *values, int32_t n) {
  hec_values_sort(values, n);
  return (hec_bench_spread){hec_values_quantile(values, n, 0.5), hec_values_quantile(values, n, 0.1),
                            hec_values_quantile(values, n, 0.9)};
}

void hec_bench_spread_json(hec_json_out *json, const char *key, hec_bench_spread spread) {
  HEC_JSON(json, HEC_OBJECT(key, HEC_REAL("median", spread.median), HEC_REAL("p10", spread.low),
                            HEC_REAL("p90", spread.high)));
}

/* `all` [n_ranks][n] samples. */
static void sum_up(const sample *all, int32_t n_ranks, int32_t n, hec_arena *arena, hec_collective_row *row) {
  double *speed[2], *ratio = HEC_NEW(arena, double, n);
  sample *slowest = HEC_NEW(arena, sample, n);
  for (int32_t k = 0; k < 2; k++)
    speed[k] = HEC_NEW(arena, double, n);
  for (int32_t i = 0; i < n; i++) {
    for (int32_t r = 0; r < n_ranks; r++) {
      const sample *s = &all[r * n + i];
      for (int32_t k = 0; k < 2; k++)
        slowest[i].ns[k] = s->ns[k] > slowest[i].ns[k] ? s->ns[k] : slowest[i].ns[k];
      slowest[i].interrupted += s->interrupted;
    }
    row->n_clean += slowest[i].interrupted == 0;
  }
  bool clean_only = row->n_clean >= CLEAN_MIN;
  double bytes = (double)row->bytes * (row->scatter || row->all ? n_ranks - 1 : 1);
  for (int32_t i = 0; i < n; i++) {
    if (clean_only && slowest[i].interrupted > 0)
      continue;
    for (int32_t k = 0; k < 2; k++)
      speed[k][row->n_used] = bytes / (1e-9 * (double)slowest[i].ns[k]);
    ratio[row->n_used++] = (double)slowest[i].ns[LIMIT] / (double)slowest[i].ns[EXECUTOR];
  }
  row->speed = hec_bench_spread_of(speed[EXECUTOR], row->n_used);
  row->limit = hec_bench_spread_of(speed[LIMIT], row->n_used);
  row->ratio = hec_bench_spread_of(ratio, row->n_used);
}

static hec_exec_options options_of(const hec_exec_case *c, hec_rank *rank, int64_t bytes, runner *r) {
  return (hec_exec_options){.problem = &c->problem,
                            .rank = rank,
                            .work = {.bind = find_memory, .run = no_step, .context = r},
                            .n_slices = 1,
                            .expert_size = bytes / (int64_t)sizeof(float),
                            .n_micro_batches = 1};
}

static hec_status run_row(const job *j, hec_rank *rank, hec_collective_row *row) {
  HEC_SCOPED(hec_arena) arena = {0};
  size_t n = (size_t)rank->n_ranks;
  runner *r = HEC_NEW(&arena, runner, 1);
  *r = (runner){.rank = rank, .row = row, .n = row->bytes / (int64_t)sizeof(float), .mpi = hec_mpi_collectives_of()};
  r->peer_at = HEC_NEW(&arena, float *, n *n);
  if (r->mpi && row->scatter) {
    r->terms = hec_malloc(n * (size_t)r->n, sizeof *r->terms);
    r->sums = hec_malloc((size_t)r->n, sizeof *r->sums);
    fill(r->sums, 0, r->n);
  }
  hec_exec_options options = options_of(j->problem, rank, row->bytes, r);
  sample *samples = HEC_NEW(&arena, sample, j->bench->repeats);
  sample *all = rank->rank == 0 ? HEC_NEW(&arena, sample, (size_t)j->bench->repeats * n) : NULL;
  hec_status status = hec_exec_new(&options, &arena, &r->exec);
  if (status == HEC_OK)
    status = hec_exec_set_plan(r->exec, &j->problem->plan, true);
  if (status == HEC_OK)
    status = repeats(r, samples, j->bench->repeats);
  if (status == HEC_OK)
    status = hec_rank_gather(rank, samples, (size_t)j->bench->repeats * sizeof *samples, all);
  if (status == HEC_OK && rank->rank == 0)
    sum_up(all, rank->n_ranks, j->bench->repeats, &arena, row);
  hec_exec_free(r->exec);
  hec_program_free(&r->program);
  free(r->terms);
  free(r->sums);
  return status;
}

static hec_status body(hec_rank *rank, void *context) {
  const job *j = context;
  for (int32_t i = 0; i < j->n_rows; i++)
    HEC_TRY(run_row(j, rank, &j->rows[i]));
  return HEC_OK;
}

hec_status hec_collective_bench_run(const hec_collective_bench *bench, hec_collective_row *rows, int32_t *n_rows) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_exec_case problem;
  job j = {.bench = bench, .problem = &problem};
  int64_t max = 0;
  HEC_ASSERT(bench->n_ranks >= 2 && bench->n_ranks <= RANKS_MAX && bench->n_sizes <= HEC_BENCH_SIZES_MAX);
  j.rows = hec_exec_case_share(HEC_BENCH_ROWS_MAX * sizeof *j.rows);
  for (int32_t scatter = 0; scatter < 2; scatter++)
    for (int32_t all = 0; all < 2; all++)
      for (int32_t s = 0; s < bench->n_sizes; s++) {
        j.rows[j.n_rows++] = (hec_collective_row){.scatter = scatter, .all = all, .bytes = bench->bytes[s]};
        max = bench->bytes[s] > max ? bench->bytes[s] : max;
      }
  hec_status status = hec_exec_case_make(bench->n_ranks, &arena, &problem);
  if (status == HEC_OK) {
    hec_exec_options options = options_of(&problem, NULL, max, NULL);
    hec_launch_options launch = {.n_ranks = bench->n_ranks,
                                 .pin = true,
                                 .transport = &hec_transport_shm,
                                 .cluster = &problem.cluster,
                                 .memory_bytes = hec_exec_bytes(&options)};
    status = bench->backend->launch(&launch, body, &j);
  }
  memcpy(rows, j.rows, (size_t)j.n_rows * sizeof *rows);
  *n_rows = j.n_rows;
  return status;
}
