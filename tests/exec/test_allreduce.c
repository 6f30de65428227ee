/* An all-reduce is a ring for both interpreters: the messages that executors send, priced by law max_min as an exchange, take
 * what the law says of the all-reduce. Also over an uplink that two nodes share, which only the direction to the next
 * rank saves. */
#include "runtime/exec/launch/rank.h"
#include "sim/simulate.h"
#include "tests/exec/replay_case.h"
#include "tests/sim/sim_case.h"
#include "tests/support/test.h"

#include <stdatomic.h>

HEC_TEST_ARENA(arena)
HEC_TEST_ONCE(hec_math_open)

enum { RANKS = 4 };
static _Atomic int64_t sent[RANKS][RANKS];
static double reduced;

static hec_status count(hec_rank *rank, hec_post *post) {
  for (int32_t i = 0; post->lane == HEC_LANE_GRAD && i < post->n_sends; i++)
    sent[rank->rank][post->sends[i].peer] += post->sends[i].bytes;
  return hec_transport_shm.start(rank, post);
}

static void sum_up(void *context, const hec_replayed *iteration) {
  (void)context;
  for (size_t i = 0; i < iteration->program->n_ops; i++) {
    const hec_op *op = &iteration->program->ops[i];
    ck_assert(op->lane != HEC_LANE_GRAD || op->kind == HEC_OP_ALLREDUCE);
    reduced += op->kind == HEC_OP_ALLREDUCE ? op->bytes : 0;
  }
}

/* Of a program of one operation. */
static double seconds(const hec_problem *p, hec_op op, const hec_transfer *transfers, int32_t n) {
  HEC_SCOPED(hec_program) program = {0};
  hec_program_clear(&program, p->n_ranks);
  HEC_RESERVE(program.transfers, program.transfers_capacity, (size_t)n + 1);
  for (int32_t i = 0; i < n; i++)
    program.transfers[program.n_transfers++] = transfers[i];
  (void)hec_program_add(&program, op, NULL, 0);
  double s = 1e-12 * (double)hec_test_end_ps(p, &program, &hec_law_max_min, (hec_sim_options){0});
  return s;
}

static double executed_s(const hec_problem *p) {
  hec_transfer transfers[RANKS * RANKS];
  hec_op op = hec_op_new(HEC_OP_EXCHANGE, HEC_LANE_GRAD, HEC_ROLE_DISPATCH, -1);
  for (int32_t s = 0; s < RANKS; s++)
    for (int32_t d = 0; d < RANKS; d++)
      if (sent[s][d] > 0)
        transfers[op.exchange.n_transfers++] =
            (hec_transfer){.bytes = sent[s][d], .source = s, .destination = d, .item = -1, .after = -1};
  return seconds(p, op, transfers, op.exchange.n_transfers);
}

static const char *const machines[] = {"4x1 nvlink=1G@0s nic=1G@0s flops=1T mem=40G",
                                       "2x2 nvlink=1G@0s nic=1G@0s flops=1T mem=40G",
                                       "4x1 nvlink=1G@0s nic=1G@0s leaf=2 uplink=1G@0s flops=1T mem=40G"};

HEC_TEST_ROWS(executed_as_priced, machines) {
  uint64_t seed = 321;
  hec_transport counted = hec_transport_shm;
  counted.start = count;
  hec_replay_case *c = hec_replay_random(
      &arena, &seed,
      (hec_replay_wish){.ranks = RANKS, .steps = 1, .micro_batches = 1, .layers = 2, .machine = machines[_i]});
  c->replay.measured = sum_up;
  hec_replay_expect(c, (hec_replay_launch){.policy = "ep", .transport = &counted, .threads = 1});
  hec_op op = hec_op_new(HEC_OP_ALLREDUCE, HEC_LANE_GRAD, HEC_ROLE_DENSE_REDUCE, 0);
  op.bytes = reduced;
  op.allreduce.stride = 1;
  double priced_s = seconds(&c->problem, op, NULL, 0);
  ck_assert_double_gt(reduced, 0);
  ck_assert_double_eq_tol(executed_s(&c->problem) / priced_s, 1, 1e-2); /* slices are whole numbers */
}
