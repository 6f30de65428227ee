/* Law `alpha_beta`: an exchange in closed form (models/link_cost.h). Rank r begins when it and all its partners have
 * posted and ends after latency + its busiest port's bytes / bandwidth. Exchanges on different lanes do not slow each
 * other down. Exact for the busiest port of one exchange, optimistic where several exchanges share a link. */
#include "runtime/plan/problem.h"
#include "runtime/program/walk.h"
#include "sim/law.h"

#include <string.h>

static void open(hec_engine *engine, hec_exchange *x) {
  const hec_program *program = hec_engine_program(engine);
  hec_link_cost *cost = hec_engine_link_cost(engine);
  const double *kernels_s = hec_program_kernels_s(program, x->row);
  x->done_s = HEC_NEW(&x->arena, double, program->n_ranks);
  if (kernels_s) {
    memcpy(x->done_s, kernels_s, (size_t)program->n_ranks * sizeof *kernels_s);
    return;
  }
  (void)hec_link_cost_exchange(cost, program->transfers + x->row->exchange.transfer_at, x->row->exchange.n_transfers,
                               x->row->reverse, x->row->exchange.n_chunks);
  for (int32_t r = 0; r < program->n_ranks; r++)
    x->done_s[r] = hec_walk_exchange_s(hec_engine_problem(engine)->cluster, x->row, cost->done_s[r]);
}

static void one_partner_less(hec_engine *engine, hec_exchange *x, int32_t rank) {
  if (--x->left[rank] > 0)
    return;
  hec_engine_begin(engine, x, rank);
  hec_engine_end(engine, x, rank, hec_engine_now(engine) + hec_seconds_to_ps(x->done_s[rank]));
}

static void ready(hec_engine *engine, hec_exchange *x, int32_t transfer) {
  one_partner_less(engine, x, x->flow[transfer].source);
  one_partner_less(engine, x, x->flow[transfer].destination);
}

static void flow_done(hec_engine *engine, hec_exchange *x, int32_t transfer) {
  (void)engine;
  (void)x;
  (void)transfer;
  hec_assert_failed("alpha_beta starts no flows", __FILE__, __LINE__);
}

static void allreduce(hec_engine *engine, hec_exchange *x) {
  const hec_problem *problem = hec_engine_problem(engine);
  int64_t end =
      hec_engine_now(engine) + hec_seconds_to_ps(hec_walk_together_s(problem->cluster, problem->n_ranks, x->row));
  for (int32_t r = 0; r < hec_engine_program(engine)->n_ranks; r++) {
    hec_engine_begin(engine, x, r);
    hec_engine_end(engine, x, r, end);
  }
}

const hec_law hec_law_alpha_beta = {
    .name = "alpha_beta",
    .summary = "closed form per exchange: latency + busiest port",
    .source = "LogGP-style alpha-beta, DESIGN section 5",
    .limits = "contention between exchanges in flight at once (`law` max_min has it), congestion control, incast loss, "
              "adaptive routing",
    .closed_form = true,
    .open = open,
    .ready = ready,
    .flow_done = flow_done,
    .allreduce = allreduce,
};
