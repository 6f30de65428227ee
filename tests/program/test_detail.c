/* What a program tells executors beyond sizes: it must say the same things. For every policy under every schedule:
 * the program with detail has the digest of the one without. Parcels of a transfer add up to its bytes, are whole parts,
 * and a part stands once per exchange and destination. Cells add up to the routing (pairs, rows per expert and rank, the
 * loads); guests' items are the copies of the plan. Every buffer is open exactly once at every operation that needs it.
 */
#include "runtime/program/emit.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

static int64_t parcel_bytes(const hec_problem *p, const hec_parcel *x) {
  const double whole[] = {p->bytes.expert_param, p->bytes.expert_grad, p->bytes.expert_optimizer};
  int64_t params = (int64_t)hec_moe_expert_params(p->moe), bytes = (int64_t)whole[x->state];
  int64_t begin = params * x->part / x->n_parts, end = params * (x->part + 1) / x->n_parts;
  return bytes % params == 0 ? bytes / params * (end - begin)
                             : bytes * (x->part + 1) / x->n_parts - bytes * x->part / x->n_parts;
}

static void check_parcels(const hec_problem *p, const hec_program *program, const hec_op *op) {
  for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
    const int32_t *at = program->parcel_index + op->exchange.parcel_at + i;
    int64_t sum = 0;
    ck_assert_int_lt(at[0], at[1]);
    for (int32_t k = at[0]; k < at[1]; k++) {
      const hec_parcel *x = &program->parcels[k];
      ck_assert(x->part >= 0 && x->part < x->n_parts && x->expert >= 0 && x->expert < p->n_experts);
      ck_assert(op->layer < 0 || x->layer == op->layer);
      sum += parcel_bytes(p, x);
      for (int32_t j = at[0]; j < k; j++)
        ck_assert(memcmp(x, &program->parcels[j], sizeof *x) != 0);
    }
    ck_assert_int_eq(sum, t->bytes);
    ck_assert(t->item < 0 || at[1] == at[0] + 1);
  }
}

/* From who has and computes rows to who sends them to whom in the operation. It is by the definition of 2DH where that
 * is the layer's route. */
static void along_route(const hec_test_step *step, const hec_op *op, int64_t *pair) {
  int32_t n = step->program->n_ranks, per_node = step->c->problem.cluster->devices_per_node;
  int64_t *sent = HEC_NEW(&arena, int64_t, n * n);
  bool inside = op->role == HEC_ROLE_DISPATCH_INSIDE || op->role == HEC_ROLE_COMBINE_INSIDE;
  if (op->route == 0)
    return;
  ck_assert_str_eq(hec_token_routes[op->route]->name, "2dh");
  for (int32_t i = 0; i < n * n; i++) {
    int32_t s = i / n, d = i % n, q = s - s % per_node + d % per_node;
    q = q < n ? q : s;
    sent[inside ? s * n + q : q * n + d] += pair[i];
  }
  memcpy(pair, sent, (size_t)n * (size_t)n * sizeof *pair);
}

/* Rows of the cells per (source, rank) are the transfers', per (rank, expert) the work, per (source, expert) the load.
 * That of a chunk is no more. */
static void check_cells(const hec_test_step *step, const hec_op *op, const hec_load *load) {
  const hec_program *program = step->program;
  int32_t n_ranks = program->n_ranks, n_experts = step->c->problem.n_experts;
  int64_t token = (int64_t)step->c->problem.bytes.token;
  int64_t *pair = HEC_NEW(&arena, int64_t, n_ranks * n_ranks), *work = HEC_NEW(&arena, int64_t, n_ranks * n_experts);
  uint32_t *sent = HEC_NEW(&arena, uint32_t, n_ranks * n_experts);
  const hec_cell *cells = program->cells + op->cell_at;
  int32_t of_chunks = op->degree > 1 && op->chunk < 0 ? op->degree : 1;
  for (int32_t i = 0; i < op->n_cells; i++) {
    const hec_cell *c = &cells[i];
    ck_assert_int_ge(c->rows, op->degree > 1 ? 0 : 1);
    if (i > 0 && i % (op->n_cells / of_chunks) != 0 && cells[i - 1].source == c->source)
      ck_assert(cells[i - 1].expert < c->expert || (cells[i - 1].expert == c->expert && cells[i - 1].rank < c->rank));
    pair[c->source * n_ranks + c->rank] += c->rows;
    work[c->rank * n_experts + c->expert] += c->rows;
    sent[c->source * n_experts + c->expert] += (uint32_t)c->rows;
  }
  if (op->kind == HEC_OP_EXCHANGE) {
    along_route(step, op, pair);
    for (int32_t i = 0; i < op->exchange.n_transfers; i++) {
      const hec_transfer *t = &program->transfers[op->exchange.transfer_at + i];
      ck_assert_int_eq(pair[t->source * n_ranks + t->destination] * token, t->bytes);
      pair[t->source * n_ranks + t->destination] = 0;
    }
    for (int32_t s = 0; s < n_ranks; s++)
      for (int32_t d = 0; d < n_ranks; d++)
        ck_assert(s == d || pair[s * n_ranks + d] == 0);
  }
  if (op->role == HEC_ROLE_EXPERTS)
    for (int32_t r = 0; r < n_ranks; r++)
      for (int32_t e = 0; e < n_experts; e++)
        ck_assert_int_eq(hec_test_rows(program, op, r, e), work[r * n_experts + e]);
  const uint32_t *all = hec_load_row(load, op->layer, 0);
  bool chunk = op->degree > 1 && op->chunk >= 0;
  bool folded = op->by_node && op->role != HEC_ROLE_NODE_PERMUTE && op->role != HEC_ROLE_NODE_UNPERMUTE;
  if (folded) /* proxies have what their sources had: test_nodes.c */
    return;
  for (int32_t i = 0; i < n_ranks * n_experts; i++)
    ck_assert(chunk ? sent[i] <= all[i] : sent[i] == all[i]);
}

/* Open buffers of (tensor, layer, micro-batch) at operation `op`. */
static int32_t open_at(const hec_program *program, hec_tensor tensor, const hec_op *of, int32_t op) {
  int32_t n = 0;
  for (size_t i = 0; i < program->n_holds; i++) {
    const hec_hold *h = &program->holds[i];
    n += h->tensor == tensor && h->layer == of->layer && h->micro_batch == of->micro_batch && h->first <= op &&
         h->last >= op;
  }
  return n;
}

static void expect_open(const hec_test_step *step, int32_t i, const hec_tensor *tensors, int32_t n) {
  for (int32_t k = 0; k < n; k++) {
    int32_t open = open_at(step->program, tensors[k], &step->program->ops[i], i);
    ck_assert_msg(open == 1, "tensor %d at operation %d (%s%s): %d open: %s", (int)tensors[k], i,
                  hec_role_name[step->program->ops[i].role], step->program->ops[i].backward ? ", backward" : "", open,
                  hec_test_step_name(step));
  }
}

#define EXPECT(...)                                                                                                    \
  expect_open(step, i, (const hec_tensor[]){__VA_ARGS__},                                                              \
              (int32_t)(sizeof((hec_tensor[]){__VA_ARGS__}) / sizeof(hec_tensor)))

static void check_buffers(const hec_test_step *step, int32_t i) {
  const hec_op *op = &step->program->ops[i];
  bool b = op->backward;
  switch (op->role) {
  case HEC_ROLE_ATTENTION:
  case HEC_ROLE_GATE:
    EXPECT(HEC_TENSOR_BLOCK);
    break;
  case HEC_ROLE_PERMUTE:
    EXPECT(HEC_TENSOR_BLOCK);
    if (b)
      EXPECT(HEC_TENSOR_GRAD_INPUT);
    else
      EXPECT(HEC_TENSOR_SEND, HEC_TENSOR_INPUT);
    break;
  case HEC_ROLE_DISPATCH:
    if (b)
      EXPECT(HEC_TENSOR_GRAD_INPUT, HEC_TENSOR_GRAD_RETURNED);
    else
      EXPECT(HEC_TENSOR_SEND, HEC_TENSOR_INPUT);
    break;
  case HEC_ROLE_DISPATCH_INSIDE:
    if (b)
      EXPECT(HEC_TENSOR_GRAD_INPUT, HEC_TENSOR_GRAD_RETURNED);
    else
      EXPECT(HEC_TENSOR_SEND, HEC_TENSOR_INPUT);
    break;
  case HEC_ROLE_COMBINE_INSIDE:
    if (b)
      EXPECT(HEC_TENSOR_GRAD_SEND, HEC_TENSOR_GRAD_OUTPUT);
    else
      EXPECT(HEC_TENSOR_OUTPUT, HEC_TENSOR_RETURNED);
    break;
  case HEC_ROLE_ALIGN:
    if (op->local.bytes_at >= 0)
      EXPECT(HEC_TENSOR_RELAYED, HEC_TENSOR_ALIGNED);
    break;
  case HEC_ROLE_EXPERTS:
    EXPECT(HEC_TENSOR_INPUT);
    if (b)
      EXPECT(HEC_TENSOR_GRAD_OUTPUT, HEC_TENSOR_GRAD_INPUT);
    else
      EXPECT(HEC_TENSOR_OUTPUT);
    break;
  case HEC_ROLE_COMBINE:
    if (b)
      EXPECT(HEC_TENSOR_GRAD_SEND, HEC_TENSOR_GRAD_OUTPUT);
    else
      EXPECT(HEC_TENSOR_OUTPUT, HEC_TENSOR_RETURNED);
    break;
  case HEC_ROLE_UNPERMUTE:
    if (b)
      EXPECT(HEC_TENSOR_RETURNED, HEC_TENSOR_GRAD_SEND, HEC_TENSOR_GRAD_OUTPUT);
    else
      EXPECT(HEC_TENSOR_OUTPUT, HEC_TENSOR_RETURNED);
    break;
  case HEC_ROLE_NODE_PERMUTE:
    EXPECT(b ? HEC_TENSOR_NODE_RETURNED : HEC_TENSOR_NODE_SEND);
    break;
  case HEC_ROLE_NODE_UNPERMUTE:
    EXPECT(b ? HEC_TENSOR_NODE_SEND : HEC_TENSOR_NODE_RETURNED);
    break;
  case HEC_ROLE_NODE_DISPATCH:
    EXPECT(b ? HEC_TENSOR_NODE_PARTIAL : HEC_TENSOR_NODE_SEND, b ? HEC_TENSOR_NODE_RETURNED : HEC_TENSOR_NODE_ARRIVED);
    break;
  case HEC_ROLE_NODE_COMBINE:
    EXPECT(b ? HEC_TENSOR_NODE_SEND : HEC_TENSOR_NODE_PARTIAL, b ? HEC_TENSOR_NODE_ARRIVED : HEC_TENSOR_NODE_RETURNED);
    break;
  default:
    break;
  }
  if (op->by_node && (op->role == HEC_ROLE_PERMUTE || op->role == HEC_ROLE_UNPERMUTE)) {
    bool out = b == (op->role == HEC_ROLE_UNPERMUTE);
    EXPECT(out ? HEC_TENSOR_NODE_ARRIVED : HEC_TENSOR_NODE_PARTIAL, HEC_TENSOR_NODE_WEIGHTS);
  }
}

/* Where rows rest, they have room while either exchange is on its way: as many as come are as many as go. */
static void check_resting(const hec_test_step *step, int32_t i) {
  const hec_program *program = step->program;
  const hec_op *op = &program->ops[i];
  bool inside = op->role == HEC_ROLE_DISPATCH_INSIDE || op->role == HEC_ROLE_COMBINE_INSIDE;
  if (op->kind != HEC_OP_EXCHANGE || op->route == 0)
    return;
  int32_t n = program->n_ranks, per_node = step->c->problem.cluster->devices_per_node;
  double *rests = HEC_NEW(&arena, double, n);
  for (int32_t k = 0; k < op->n_cells; k++) {
    const hec_cell *c = &program->cells[op->cell_at + k];
    int32_t q = c->source - c->source % per_node + c->rank % per_node;
    if (c->source != c->rank && q < n && q != c->source && q != c->rank)
      rests[q] += c->rows * step->c->problem.bytes.token;
  }
  for (size_t h = 0; h < program->n_holds; h++) {
    const hec_hold *hold = &program->holds[h];
    if (hold->tensor != (inside ? HEC_TENSOR_RELAYED : HEC_TENSOR_ALIGNED) || hold->layer != op->layer ||
        hold->micro_batch != op->micro_batch || hold->first > i || hold->last < i)
      continue;
    for (int32_t r = 0; r < n; r++) {
      ck_assert_double_eq(program->local_bytes[hold->bytes_at + r], rests[r]);
      rests[r] = 0;
    }
  }
  for (int32_t r = 0; r < n; r++)
    ck_assert(rests[r] == 0);
}

static void visit(const hec_test_step *step, void *context) {
  (void)context;
  if (step->schedule->bound)
    return;
  hec_arena_mark mark = hec_arena_save(&arena);
  const hec_program *program = step->program;
  const hec_test_case *c = step->c;
  hec_program_check(program);
  for (size_t i = 0; i < program->n_ops; i++) {
    const hec_op *op = &program->ops[i];
    if (op->kind == HEC_OP_EXCHANGE && op->n_cells == 0 && !op->by_node)
      check_parcels(&c->problem, program, op);
    if (op->n_cells > 0) {
      hec_load load = hec_test_actual_load(step, op->micro_batch, &arena);
      check_cells(step, op, &load);
    }
    check_buffers(step, (int32_t)i);
    check_resting(step, (int32_t)i);
  }
  hec_arena_rewind(&arena, mark);
}

HEC_TEST_LOOP(consistent, hec_test_cases(40)) {
  uint64_t seed = 7001 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = 8});
  c->detail = true;
  hec_test_each(c, false, visit, NULL);
}

static uint64_t sum;
static void add_digest(const hec_test_step *step, void *context) {
  (void)context;
  sum = sum * 31 + hec_program_digest(step->program);
}

HEC_TEST_LOOP(same_program, hec_test_cases(20)) {
  uint64_t seed = 7001 + (uint64_t)_i;
  hec_test_case *c = hec_test_random_case(&arena, &seed, (hec_test_wish){.ranks_max = 8});
  sum = 0;
  hec_test_each(c, false, add_digest, NULL);
  uint64_t without = sum;
  c->detail = true;
  sum = 0;
  hec_test_each(c, false, add_digest, NULL);
  ck_assert_uint_eq(without, sum);
}
