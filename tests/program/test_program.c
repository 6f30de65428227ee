/* The program's own laws: what check refuses, what the digest sees. */
#include "runtime/base/arena.h"
#include "runtime/program/program.h"
#include "tests/support/test.h"

#include <signal.h>

static hec_program program;
static void setup(void) {
  program = (hec_program){0};
}
static void teardown(void) {
  hec_program_free(&program);
}
HEC_TEST_FIXTURE(setup, teardown)

static hec_op row(hec_op_kind kind) {
  return hec_op_new(kind, HEC_LANE_COMPUTE, HEC_ROLE_EMBEDDING, -1);
}

/* A compute row, a local row and an exchange on three ranks. */
static void make(hec_program *p) {
  hec_program_clear(p, 3);
  HEC_RESERVE(p->shapes, p->shapes_capacity, 2);
  p->shapes[p->n_shapes++] = (hec_work_shape){.flops_per_row = 7, .n_gemms = 1};
  p->shapes[p->n_shapes++] = (hec_work_shape){.flops_per_row = 9, .n_gemms = 1};
  HEC_RESERVE(p->work_index, p->work_index_capacity, 4);
  HEC_RESERVE(p->work, p->work_capacity, 2);
  for (int32_t r = 0; r < 4; r++)
    p->work_index[p->n_work_index++] = r < 2 ? 0 : r - 1;
  p->work[p->n_work++] = (hec_work){4, 5};
  p->work[p->n_work++] = (hec_work){6, 7};
  hec_op compute = row(HEC_OP_COMPUTE);
  compute.compute.work_at = 0;
  int32_t first = hec_program_add(p, compute, NULL, 0);
  hec_op local = row(HEC_OP_LOCAL);
  local.local.bytes_at = hec_program_local_bytes(p, 3);
  local.bytes = 2;
  p->local_bytes[local.local.bytes_at + 1] = 11;
  int32_t second = hec_program_add(p, local, &first, 1);
  hec_op exchange = row(HEC_OP_EXCHANGE);
  exchange.lane = HEC_LANE_TOKEN;
  HEC_RESERVE(p->transfers, p->transfers_capacity, 2);
  p->transfers[p->n_transfers++] = (hec_transfer){.bytes = 10, .source = 0, .destination = 2, .item = -1, .after = -1};
  p->transfers[p->n_transfers++] = (hec_transfer){.bytes = 20, .source = 2, .destination = 0, .item = -1, .after = -1};
  exchange.exchange.n_transfers = 2;
  (void)hec_program_add(p, exchange, (int32_t[]){first, -1, second}, 3);
  (void)hec_program_hold(p, (hec_hold){HEC_MEMORY_PARAM, -1, 0, 2, -1, 8, HEC_TENSOR_STATE, -1, -1});
}

HEC_TEST(parts_and_dependencies) {
  make(&program);
  hec_program_check(&program);
  const hec_op *exchange = &program.ops[2];
  ck_assert_int_eq(exchange->n_deps, 2); /* -1 is left out */
  ck_assert(hec_program_takes_part(&program, exchange, 0) && !hec_program_takes_part(&program, exchange, 1) &&
            hec_program_takes_part(&program, exchange, 2));
  ck_assert(hec_program_takes_part(&program, &program.ops[0], 1));
}

#define CHANGE(name, ...)                                                                                              \
  static void name(void) {                                                                                             \
    __VA_ARGS__;                                                                                                       \
  }

CHANGE(spoil_dep, program.deps[0] = 1)
CHANGE(spoil_self, program.transfers[0].destination = 0)
CHANGE(spoil_bytes, program.transfers[1].bytes = 0)
CHANGE(spoil_rank, program.transfers[1].source = 3)
CHANGE(spoil_after, program.transfers[0].after = 0)
CHANGE(spoil_chain, program.transfers[1].after = 0) /* one chunk only */
CHANGE(spoil_parts, program.parts[program.ops[2].exchange.part_at] = 0)
CHANGE(spoil_shape, program.ops[0].compute.shape = 2)
CHANGE(spoil_work, program.work_index[3] = 3)
CHANGE(spoil_local, program.ops[1].local.bytes_at = 1)
CHANGE(spoil_hold, program.holds[0].last = 3)
CHANGE(spoil_hold_order, program.holds[0] = (hec_hold){HEC_MEMORY_PARAM, -1, 2, 1, -1, 8, HEC_TENSOR_STATE, -1, -1})
CHANGE(spoil_lane, program.ops[1].lane = HEC_N_LANES)
static void (*const spoils[])(void) = {spoil_dep,        spoil_self,  spoil_bytes, spoil_rank, spoil_after,
                                       spoil_chain,      spoil_parts, spoil_shape, spoil_work, spoil_local,
                                       spoil_hold_order, spoil_hold,  spoil_lane};
enum { N_SPOILS = sizeof spoils / sizeof *spoils };

HEC_TEST_ABORTS(check_refuses, N_SPOILS) {
  make(&program);
  spoils[_i]();
  hec_program_check(&program);
}

CHANGE(other_shape, program.ops[0].compute.shape = 1)
CHANGE(other_flops, program.shapes[0].flops_per_row = 8)
CHANGE(other_rank, program.work_index[1] = 1) /* the first entry moves from rank 1 to rank 0 */
CHANGE(other_rows, program.work[1].rows = 8)
CHANGE(other_item, program.work[1].item = 5)
CHANGE(other_local, program.local_bytes[program.ops[1].local.bytes_at + 2] = 1)
CHANGE(other_bytes, program.transfers[0].bytes = 11)
CHANGE(other_way, program.ops[2].reverse = true)
CHANGE(other_lane, program.ops[2].lane = HEC_LANE_PARAM)
CHANGE(other_dep, program.deps[2] = 0)
CHANGE(other_hold, program.holds[0].bytes = 9)
CHANGE(other_span, program.holds[0].first = 1)
static void (*const others[])(void) = {other_shape, other_flops, other_rank, other_rows, other_item, other_local,
                                       other_bytes, other_way,   other_lane, other_dep,  other_hold, other_span};
enum { N_OTHERS = sizeof others / sizeof *others };

HEC_TEST_LOOP(digest_sees, N_OTHERS) {
  make(&program);
  uint64_t before = hec_program_digest(&program);
  make(&program); /* clear and again: the same */
  ck_assert_uint_eq(hec_program_digest(&program), before);
  others[_i]();
  ck_assert_uint_ne(hec_program_digest(&program), before);
}
