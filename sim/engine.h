/* The event engine, as laws see it. Time is integer picoseconds; events are totally ordered by (time, sequence). */
#pragma once
#include "runtime/base/arena.h"
#include "sim/fluid.h"
#include "sim/simulate.h"

typedef struct hec_engine hec_engine;

/* A transfer inside a running exchange. */
typedef struct {
  int32_t source, destination;           /* after `reverse` */
  int32_t after;                         /* transfer whose chunks it forwards; -1 */
  int32_t first_follower, next_follower; /* transfers that forward this one; -1 */
  double bytes;
  bool ready; /* both ends have posted */
  int32_t chunks_started, chunks_done;
} hec_flow;

/* A running exchange or all-reduce. Its memory is its own, and goes when it has ended on its last rank. */
typedef struct {
  hec_arena arena;
  int32_t n_parts, n_ended; /* ranks in it, and those where it has ended */
  int32_t op;
  const hec_op *row;
  int32_t n_posted, n_flows, n_chunks;
  hec_flow *flow;            /* [n_flows] */
  int32_t *flow_at;          /* [n_ranks + 1] CSR: flows of each rank */
  int32_t *flow_of;          /* [2 * n_flows] */
  int32_t *left;             /* [n_ranks] flows of the rank that the law still waits for */
  uint8_t *posted;           /* [n_ranks] */
  const struct hec_law *law; /* kernels of a dispatcher are priced in closed form whatever the network's law is */
  double *done_s;            /* [n_ranks] closed form; NULL otherwise */
  void *own;                 /* the law's */
} hec_exchange;

/* The rank's part begins or ends at `time_ps` (now or later). */
void hec_engine_begin(hec_engine *engine, hec_exchange *x, int32_t rank);
void hec_engine_end(hec_engine *engine, hec_exchange *x, int32_t rank, int64_t time_ps);
/* A fluid flow over the route source -> destination from `time_ps` on; law->flow_done follows. */
void hec_engine_start_flow(hec_engine *engine, hec_exchange *x, int32_t flow, double bytes, int64_t time_ps);

int64_t hec_engine_now(const hec_engine *engine);
const hec_problem *hec_engine_problem(const hec_engine *engine);
hec_link_cost *hec_engine_link_cost(hec_engine *engine);
const hec_program *hec_engine_program(const hec_engine *engine);

/* Runs the program; `fluid` has the cluster's links (and is empty). Durations as in runtime/program/duration.h. */
void hec_engine_run(const hec_problem *problem, const hec_law *law, hec_link_cost *cost, const hec_program *program,
                    hec_sim_options options, hec_timeline *timeline);
