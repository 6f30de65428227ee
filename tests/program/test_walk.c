/* The walk against an oracle that goes through time instead of ids. Whatever may be posted now is posted, whatever has
 * nothing left to wait for begins, then time goes on to the next end. Durations are drawn at random, as if measured:
 * many are equal or zero, so that ends meet. Programs: lowered ones of every policy and schedule, and ones that no
 * schedule would make. */
#include "runtime/program/walk.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* ---- Oracle ---- */

typedef struct {
  const hec_program *program;
  const hec_cluster *cluster;
  const int64_t *measured_ps;
  bool without_one_off;
  int64_t now;
  int64_t *done_ps;     /* [n_ops * n_ranks] how long once it has begun */
  int64_t *begin, *end; /* [n_ops * n_ranks] -1: not yet */
  bool *posted;         /* [n_ops * n_ranks] */
  int32_t *head;        /* [n_ranks * HEC_N_LANES] first operation of the lane that has not ended */
} oracle;

static size_t cell(const oracle *o, int32_t op, int32_t rank) {
  return (size_t)op * (size_t)o->program->n_ranks + (size_t)rank;
}

static bool is_free(const oracle *o, const hec_op *op) {
  return o->without_one_off && op->one_off;
}

/* How long (op, r) takes, each exchange priced anew. */
static void find_durations(oracle *o) {
  const hec_program *p = o->program;
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(o->cluster, &arena);
  for (int32_t id = 0; id < (int32_t)p->n_ops; id++) {
    const hec_op *op = &p->ops[id];
    if (op->kind == HEC_OP_EXCHANGE)
      (void)hec_link_cost_exchange(&cost, p->transfers + op->exchange.transfer_at, op->exchange.n_transfers,
                                   op->reverse, op->exchange.n_chunks);
    for (int32_t r = 0; r < p->n_ranks; r++) {
      int64_t *ps = &o->done_ps[cell(o, id, r)];
      if (is_free(o, op))
        *ps = 0;
      else if (op->kind == HEC_OP_EXCHANGE)
        *ps = hec_seconds_to_ps(cost.done_s[r]);
      else if (op->kind == HEC_OP_ALLREDUCE)
        *ps = hec_seconds_to_ps(hec_link_cost_allreduce(o->cluster, p->n_ranks, op->bytes));
      else if (op->kind == HEC_OP_COUNTS)
        *ps = hec_seconds_to_ps(hec_link_cost_allgather(o->cluster, p->n_ranks, op->bytes));
      else
        *ps = o->measured_ps[cell(o, id, r)];
    }
  }
}

static bool has_ended(const oracle *o, int32_t op, int32_t rank) {
  return !hec_program_takes_part(o->program, &o->program->ops[op], rank) ||
         (o->begin[cell(o, op, rank)] >= 0 && o->end[cell(o, op, rank)] <= o->now);
}

static bool may_post(const oracle *o, int32_t id, int32_t rank) {
  const hec_op *op = &o->program->ops[id];
  for (int32_t d = 0; d < op->n_deps; d++)
    if (!has_ended(o, o->program->deps[op->dep_at + d], rank))
      return false;
  return true;
}

/* The rank has posted, and so have all it waits for. */
static bool may_begin(const oracle *o, int32_t id, int32_t rank) {
  const hec_op *op = &o->program->ops[id];
  if (!o->posted[cell(o, id, rank)])
    return false;
  if (is_free(o, op))
    return true;
  if (op->kind == HEC_OP_ALLREDUCE || op->kind == HEC_OP_COUNTS)
    for (int32_t r = 0; r < o->program->n_ranks; r++)
      if (!o->posted[cell(o, id, r)])
        return false;
  for (int32_t i = 0; op->kind == HEC_OP_EXCHANGE && i < op->exchange.n_transfers; i++) {
    const hec_transfer *t = &o->program->transfers[op->exchange.transfer_at + i];
    int32_t partner = t->source == rank ? t->destination : t->destination == rank ? t->source : rank;
    if (!o->posted[cell(o, id, partner)])
      return false;
  }
  return true;
}

/* One look at a lane of a rank; true when something changed. */
static bool look(oracle *o, int32_t rank, int32_t lane) {
  int32_t *head = &o->head[rank * HEC_N_LANES + lane], n_ops = (int32_t)o->program->n_ops, before = *head;
  while (*head < n_ops && ((int32_t)o->program->ops[*head].lane != lane || has_ended(o, *head, rank)))
    ++*head;
  bool changed = *head != before;
  if (*head == n_ops)
    return changed;
  size_t at = cell(o, *head, rank);
  if (!o->posted[at] && may_post(o, *head, rank))
    changed = o->posted[at] = true;
  if (o->begin[at] < 0 && may_begin(o, *head, rank)) {
    o->begin[at] = o->now;
    o->end[at] = o->now + o->done_ps[at];
    changed = true;
  }
  return changed;
}

static bool look_everywhere(oracle *o) {
  bool changed = false;
  for (int32_t r = 0; r < o->program->n_ranks; r++)
    for (int32_t lane = 0; lane < HEC_N_LANES; lane++)
      changed = look(o, r, lane) || changed;
  return changed;
}

/* The next end after now, -1: there is none. Only heads are in progress. */
static int64_t next_end(const oracle *o) {
  int64_t next = -1;
  for (int32_t i = 0; i < o->program->n_ranks * HEC_N_LANES; i++) {
    if (o->head[i] == (int32_t)o->program->n_ops)
      continue;
    size_t at = cell(o, o->head[i], i / HEC_N_LANES);
    if (o->begin[at] >= 0 && o->end[at] > o->now && (next < 0 || o->end[at] < next))
      next = o->end[at];
  }
  return next;
}

static oracle ask_oracle(const hec_program *program, const hec_cluster *cluster, const int64_t *measured_ps,
                         bool without_one_off) {
  size_t n = program->n_ops * (size_t)program->n_ranks;
  oracle o = {.program = program,
              .cluster = cluster,
              .measured_ps = measured_ps,
              .without_one_off = without_one_off,
              .done_ps = HEC_NEW(&arena, int64_t, n),
              .begin = HEC_NEW(&arena, int64_t, n),
              .end = HEC_NEW(&arena, int64_t, n),
              .posted = HEC_NEW(&arena, bool, n),
              .head = HEC_NEW(&arena, int32_t, program->n_ranks * HEC_N_LANES)};
  memset(o.begin, 0xff, n * sizeof *o.begin);
  memset(o.end, 0xff, n * sizeof *o.end);
  find_durations(&o);
  for (int64_t next = 0; next >= 0; next = next_end(&o)) {
    o.now = next;
    while (look_everywhere(&o))
      ;
  }
  for (int32_t i = 0; i < program->n_ranks * HEC_N_LANES; i++)
    ck_assert_msg(o.head[i] == (int32_t)program->n_ops, "lane %d of rank %d never ends", i % HEC_N_LANES,
                  i / HEC_N_LANES);
  return o;
}

/* ---- Walk against oracle ---- */

static void compare(hec_walk *walk, const hec_program *program, const hec_cluster *cluster, uint64_t *seed,
                    const char *name) {
  hec_arena_mark mark = hec_arena_save(&arena);
  const int64_t *measured_ps = hec_test_random_ps(program, seed, &arena);
  hec_timeline t = {0};
  for (int one_off = 0; one_off < 2; one_off++) {
    hec_walk_options options = {.own = hec_walk_own_measured, .context = measured_ps, .without_one_off = one_off == 1};
    hec_walk_run(walk, program, options, &t);
    hec_timeline_check(&t, program);
    oracle o = ask_oracle(program, cluster, measured_ps, one_off == 1);
    for (int32_t id = 0; id < t.n_ops; id++)
      for (int32_t r = 0; r < t.n_ranks; r++) {
        size_t at = cell(&o, id, r);
        ck_assert_msg(t.begin_ps[at] == o.begin[at] && t.end_ps[at] == o.end[at],
                      "operation %d (%s) rank %d: walk %lld-%lld, oracle %lld-%lld: %s", id,
                      hec_role_name[program->ops[id].role], r, (long long)t.begin_ps[at], (long long)t.end_ps[at],
                      (long long)o.begin[at], (long long)o.end[at], name);
      }
  }
  hec_timeline_free(&t);
  hec_arena_rewind(&arena, mark);
}

static void visit_lowered(const hec_test_step *step, void *context) {
  hec_arena_mark mark = hec_arena_save(&arena);
  hec_link_cost cost = hec_link_cost_new(&step->c->cluster, &arena);
  hec_walk *walk = hec_walk_new(&cost, step->program->n_ranks, &arena);
  compare(walk, step->program, &step->c->cluster, context, hec_test_step_name(step));
  hec_walk_free(walk);
  hec_link_cost_free(&cost);
  hec_arena_rewind(&arena, mark);
}

HEC_TEST_LOOP(lowered_programs, hec_test_cases(40)) {
  uint64_t seed = 7000 + (uint64_t)_i;
  hec_test_each(hec_test_random_case(&arena, &seed, (hec_test_wish){0}), false, visit_lowered, &seed);
}

static void add_exchange(hec_program *program, hec_op op, uint64_t *seed, const int32_t *deps, int32_t n_deps) {
  int32_t n = program->n_ranks;
  op.kind = HEC_OP_EXCHANGE;
  op.exchange = (hec_op_exchange){.part_at = -1, .n_chunks = 1, .transfer_at = (int32_t)program->n_transfers};
  int32_t wanted = 1 + (int32_t)hec_test_below(seed, 3 * (uint64_t)n);
  for (int32_t i = 0; i < wanted; i++) {
    int32_t source = (int32_t)hec_test_below(seed, (uint64_t)n);
    int32_t destination = (source + 1 + (int32_t)hec_test_below(seed, (uint64_t)n - 1)) % n;
    HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + 1);
    program->transfers[program->n_transfers++] = (hec_transfer){.bytes = 1 + (int64_t)hec_test_below(seed, 1 << 20),
                                                                .source = source,
                                                                .destination = destination,
                                                                .item = -1,
                                                                .after = -1};
  }
  op.exchange.n_transfers = wanted;
  (void)hec_program_add(program, op, deps, n_deps);
  if (hec_test_below(seed, 3) == 0) { /* the same bytes in another place, now and then all but one: found by content */
    int32_t from = op.exchange.transfer_at;
    HEC_RESERVE(program->transfers, program->transfers_capacity, program->n_transfers + (size_t)wanted);
    op.exchange.transfer_at = (int32_t)program->n_transfers;
    for (int32_t i = 0; i < wanted; i++)
      program->transfers[program->n_transfers++] = program->transfers[from + i];
    if (hec_test_below(seed, 2) == 0)
      program->transfers[program->n_transfers - 1 - hec_test_below(seed, (uint64_t)wanted)].bytes += 100000;
    (void)hec_program_add(program, op, deps, n_deps);
  }
  if (hec_test_below(seed, 2) == 0) { /* and back over the same transfers, once more the same way: priced once */
    op.reverse = true;
    op.exchange.part_at = program->ops[program->n_ops - 1].exchange.part_at;
    (void)hec_program_add(program, op, NULL, 0);
    op.reverse = false;
    (void)hec_program_add(program, op, NULL, 0);
  }
}

/* Operations of any kind on any lane, with any dependencies. */
static void make_wild(hec_program *program, int32_t n_ranks, int32_t n_ops, uint64_t *seed) {
  hec_program_clear(program, n_ranks);
  HEC_RESERVE(program->shapes, program->shapes_capacity, 1);
  program->shapes[program->n_shapes++] = (hec_work_shape){.flops_per_row = 1};
  while ((int32_t)program->n_ops < n_ops) {
    hec_op op = {.lane = (hec_lane)hec_test_below(seed, HEC_N_LANES),
                 .role = (hec_role)hec_test_below(seed, HEC_N_ROLES),
                 .layer = -1,
                 .one_off = hec_test_below(seed, 6) == 0};
    int32_t deps[3], n_deps = 0, so_far = (int32_t)program->n_ops;
    for (uint64_t k = hec_test_below(seed, 4); k > 0 && so_far > 0; k--)
      deps[n_deps++] = so_far - 1 - (int32_t)hec_test_below(seed, so_far < 9 ? (uint64_t)so_far : 9);
    static const hec_op_kind kinds[] = {HEC_OP_COMPUTE, HEC_OP_LOCAL, HEC_OP_PLAN, HEC_OP_ALLREDUCE, HEC_OP_COUNTS};
    uint64_t kind = hec_test_below(seed, 9);
    if (kind >= 5 && n_ranks > 1) {
      add_exchange(program, op, seed, deps, n_deps);
      continue;
    }
    op.kind = kinds[kind % 5];
    if (op.kind == HEC_OP_COMPUTE)
      op.compute.work_at = -1;
    else if (op.kind == HEC_OP_LOCAL)
      op.local = (hec_op_local){-1, -1};
    op.bytes = op.kind == HEC_OP_COMPUTE || op.kind == HEC_OP_PLAN ? 0 : 1 + (double)hec_test_below(seed, 1 << 20);
    (void)hec_program_add(program, op, deps, n_deps);
  }
  hec_program_check(program);
}

static void compare_wild(uint64_t seed, int32_t n_ops, int32_t rounds) {
  static const char *const lines[] = {"1x2 nvlink=100G@1us nic=10G@5us flops=1T mem=1G",
                                      "2x3 nvlink=100G@1us nic=10G@5us flops=1T mem=1G",
                                      "4x2 nvlink=300G@2us nic=50G@5us flops=1T mem=1G leaf=2 uplink=20G@1us",
                                      "1x1 nvlink=100G@1us nic=10G@5us flops=1T mem=1G"};
  const char *line = lines[seed % (sizeof lines / sizeof *lines)];
  hec_cluster cluster;
  ck_ok(hec_cluster_parse_line(line, &arena, &cluster));
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  HEC_OPENED(hec_walk) *walk = hec_walk_new(&cost, cluster.n_devices, &arena);
  HEC_SCOPED(hec_program) program = {0};
  for (int32_t i = 0; i < rounds; i++) { /* one walk for all: nothing of a program is left in the next */
    make_wild(&program, cluster.n_devices, n_ops, &seed);
    compare(walk, &program, &cluster, &seed, line);
  }
}

HEC_TEST_LOOP(wild_programs, hec_test_cases(40)) {
  compare_wild(8000 + (uint64_t)_i, 40, 8);
}

/* More exchanges than the walk remembers prices of. */
HEC_TEST(many_exchanges) {
  compare_wild(8101, 4000, 1);
}

/* ---- By hand ---- */

/* Two ranks, a byte takes a nanosecond, no latency. Rank 1 computes longer; the exchange waits for it, the next
 * operation of the compute lane does not; one-off work is left out when asked. */
HEC_TEST(by_hand) {
  hec_cluster cluster;
  ck_ok(hec_cluster_parse_line("1x2 nvlink=1G@0s nic=1G@0s flops=1G mem=1G hbm=1G plan=0s@0s", &arena, &cluster));
  HEC_SCOPED(hec_program) p = {0};
  hec_program_clear(&p, 2);
  HEC_RESERVE(p.shapes, p.shapes_capacity, 1);
  p.shapes[p.n_shapes++] = (hec_work_shape){.flops_per_row = 1};
  HEC_RESERVE(p.transfers, p.transfers_capacity, 1);
  p.transfers[p.n_transfers++] = (hec_transfer){.bytes = 7, .source = 0, .destination = 1, .item = -1, .after = -1};
  hec_op op = hec_op_new(HEC_OP_COMPUTE, HEC_LANE_COMPUTE, HEC_ROLE_EMBEDDING, -1);
  int32_t first = hec_program_add(&p, op, NULL, 0);
  hec_op sent = hec_op_new(HEC_OP_EXCHANGE, HEC_LANE_TOKEN, HEC_ROLE_DISPATCH, -1);
  sent.exchange.n_transfers = 1;
  int32_t exchange = hec_program_add(&p, sent, &first, 1);
  op.one_off = true;
  (void)hec_program_add(&p, op, NULL, 0);
  op.one_off = false;
  (void)hec_program_add(&p, op, &exchange, 1);
  enum { NS = 1000 };
  static const int64_t measured_ps[] = {3 * NS, 5 * NS, -1, -1, 4 * NS, 1 * NS, 2 * NS, HEC_TIME_END_PS};
  static const int64_t begin[8] = {0, 0, 5, 5, 3, 5, 12, 12};
  static const int64_t end[2][7] = {{3, 5, 12, 12, 7, 6, 14}, {3, 5, 12, 12, 3, 5, 14}};
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&cluster, &arena);
  HEC_OPENED(hec_walk) *walk = hec_walk_new(&cost, 2, &arena);
  HEC_SCOPED(hec_timeline) t = {0};
  for (int one_off = 0; one_off < 2; one_off++) {
    hec_walk_run(
        walk, &p,
        (hec_walk_options){.own = hec_walk_own_measured, .context = measured_ps, .without_one_off = one_off == 1}, &t);
    for (int i = 0; i < 8; i++)
      ck_assert_int_eq(t.begin_ps[i], begin[i] * NS);
    for (int i = 0; i < 7; i++)
      ck_assert_int_eq(t.end_ps[i], end[one_off][i] * NS);
    ck_assert_int_eq(t.end_ps[7], HEC_TIME_END_PS); /* cut off, not wrapped */
  }
  hec_walk_free(NULL);
}
