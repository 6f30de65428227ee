/* A step of pipeline stages as a program: its walk against the pipeline's own simulation and against the formulas, over schedules and
 * sizes. And a timeline that is made again from the stamps that ranks would take. */
#include "runtime/program/pipelines/step_program.h"
#include "runtime/program/walk.h"
#include "sim/pipeline_run.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

static const struct {
  const char *schedule;
  int32_t stages, chunks, micro_batches, ranks;
} rows[] = {{"1f1b", 1, 1, 3, 2},       {"1f1b", 2, 1, 1, 1},  {"1f1b", 2, 1, 6, 2},        {"1f1b", 3, 1, 7, 1},
            {"1f1b", 4, 1, 2, 1},       {"1f1b", 5, 1, 9, 2},  {"gpipe", 2, 1, 4, 2},       {"gpipe", 4, 1, 6, 1},
            {"gpipe", 3, 1, 5, 1},      {"1f1b", 8, 1, 16, 1}, {"interleaved", 2, 2, 4, 2}, {"interleaved", 2, 3, 6, 1},
            {"interleaved", 4, 2, 8, 1}};

typedef struct {
  hec_pipeline_order order;
  hec_program program;
  hec_step_ops ops;
  hec_cluster cluster;
  hec_timeline timeline;
  int32_t n_ranks; /* of a stage */
  int64_t *own_ps; /* [n_ops * all ranks] */
} step_case;

static step_case *make(int i, const char *links, bool train) {
  step_case *c = HEC_NEW(&arena, step_case, 1);
  char line[96];
  const hec_pipeline_shape shape = {rows[i].stages, rows[i].chunks, rows[i].micro_batches, 0};
  c->n_ranks = rows[i].ranks;
  ck_ok(hec_pipeline_order_make(hec_pipeline_find(rows[i].schedule), &shape, &arena, &c->order));
  (void)snprintf(line, sizeof line, "1x%d %s flops=1T mem=1G", (int)(rows[i].stages * rows[i].ranks), links);
  ck_ok(hec_cluster_load(line, &arena, &c->cluster));
  hec_step_program_make(&c->order, c->n_ranks, 4096, train, &arena, &c->program, &c->ops);
  hec_program_check(&c->program);
  c->own_ps = HEC_NEW(&arena, int64_t, c->program.n_ops * (size_t)c->program.n_ranks);
  return c;
}

static void walk(step_case *c) {
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&c->cluster, &arena);
  HEC_OPENED(hec_walk) *w = hec_walk_new(&cost, c->program.n_ranks, &arena);
  hec_walk_run(w, &c->program, (hec_walk_options){.own = hec_walk_own_measured, .context = c->own_ps}, &c->timeline);
  hec_timeline_check(&c->timeline, &c->program);
}

static void close_case(step_case *c) {
  hec_program_free(&c->program);
  hec_timeline_free(&c->timeline);
}

/* All ranks of a stage take the same. */
static void set_piece(step_case *c, int32_t op, int64_t ps) {
  for (int32_t r = 0; r < c->program.n_ranks; r++)
    c->own_ps[(size_t)op * (size_t)c->program.n_ranks + (size_t)r] = ps;
}

enum { F = 2000, B = 5000, END = 700 };

/* Every stage's share of a micro-batch is alike, so are those of its parts: (m + (p - 1) / v) (F + B), and the end. */
HEC_TEST_ROWS(equal_pieces_take_what_the_formula_says, rows) {
  step_case *c = make(_i, "nvlink=1000000T@0us", true);
  int32_t v = rows[_i].chunks, p = rows[_i].stages, m = rows[_i].micro_batches;
  for (int32_t i = 0; i < c->order.n_pieces; i++)
    set_piece(c, c->ops.piece[i], c->order.piece[i].kind == HEC_PIECE_FORWARD ? F : B);
  for (int32_t d = 0; d < p; d++)
    set_piece(c, c->ops.end[d], END);
  walk(c);
  ck_assert_int_eq(hec_timeline_end_ps(&c->timeline), (int64_t)(m * v + p - 1) * (F + B) + END);
  close_case(c);
}

/* Sends of a stage wait for their receivers here. So a step never takes less than in the pipeline's simulation; with one send
 * outstanding the two are rarely apart. */
HEC_TEST_LOOP(unequal_pieces_take_no_less_than_the_pipeline, 4 * (int)(sizeof rows / sizeof rows[0])) {
  step_case *c = make(_i / 4, "nvlink=1G@2us", true);
  const hec_pipeline_order *o = &c->order;
  int32_t m = o->shape.n_micro_batches;
  uint64_t seed = 5 + (uint64_t)_i;
  hec_piece_cost *cost = HEC_NEW(&arena, hec_piece_cost, o->n_parts * m);
  int64_t *send_ps = HEC_NEW(&arena, int64_t, o->n_parts), sum_max = 0;
  hec_pipeline_run run;
  for (int32_t d = 0; d < o->shape.n_stages; d++) {
    int64_t sum = 0;
    for (int32_t i = o->piece_at[d]; i < o->piece_at[d + 1]; i++) {
      const hec_pipeline_piece *p = &o->piece[i];
      int64_t ps = 1 + (int64_t)hec_test_below(&seed, 30000000);
      hec_piece_cost *of = &cost[o->part[d * o->shape.n_chunks + p->chunk] * m + p->micro_batch];
      of->compute_ps[p->kind == HEC_PIECE_FORWARD ? HEC_PIECE_FORWARD : HEC_PIECE_INPUT_GRADIENT] = ps;
      set_piece(c, c->ops.piece[i], ps);
      sum += ps;
    }
    sum_max = sum > sum_max ? sum : sum_max;
  }
  HEC_SCOPED(hec_link_cost) link = hec_link_cost_new(&c->cluster, &arena);
  for (int32_t i = 0; i < o->n_parts - 1 && o->shape.n_stages > 1; i++) {
    const hec_transfer one = {4096, 0, 1, -1, -1};
    send_ps[i] = hec_seconds_to_ps(hec_link_cost_exchange(&link, &one, 1, false, 1));
  }
  ck_ok(hec_pipeline_run_make(o, &(hec_pipeline_costs){.piece = cost, .send_ps = send_ps}, &arena, &run));
  walk(c);
  int64_t end = hec_timeline_end_ps(&c->timeline);
  ck_assert_int_ge(end, run.step_ps);
  ck_assert_int_ge(end, sum_max);
  ck_assert_msg((double)end < 1.35 * (double)run.step_ps, "%s: %lld, the pipeline's %lld", rows[_i / 4].schedule,
                (long long)end, (long long)run.step_ps);
  close_case(c);
}

static hec_step_stamp *stamp_of(const step_case *c, hec_step_stamp *stamps, int32_t n_own, int32_t op, int32_t rank,
                                int32_t own) {
  hec_step_stamp *stamp = &stamps[rank * n_own + own];
  size_t at = (size_t)op * (size_t)c->program.n_ranks + (size_t)rank;
  stamp->end_ps = c->timeline.end_ps[at];
  return stamp;
}

/* What ranks note is enough to make the timeline again. */
HEC_TEST_ROWS(stamps_give_the_timeline_back, rows) {
  step_case *c = make(_i, "nvlink=1G@2us", true);
  const hec_pipeline_order *o = &c->order;
  uint64_t seed = 77 + (uint64_t)_i;
  for (size_t i = 0; i < c->program.n_ops * (size_t)c->program.n_ranks; i++)
    c->own_ps[i] = (int64_t)hec_test_below(&seed, 9000000);
  walk(c);
  int32_t n_own = hec_step_own_max(o);
  hec_step_stamp *stamps = HEC_NEW(&arena, hec_step_stamp, c->program.n_ranks * n_own);
  for (int32_t r = 0; r < c->program.n_ranks; r++) {
    int32_t d = r / c->n_ranks;
    for (int32_t i = o->piece_at[d]; i < o->piece_at[d + 1]; i++) {
      hec_step_stamp *s = stamp_of(c, stamps, n_own, c->ops.piece[i], r, i - o->piece_at[d]);
      if (c->ops.input[i] >= 0)
        s->input_ps = c->timeline.end_ps[(size_t)c->ops.input[i] * (size_t)c->program.n_ranks + (size_t)r];
    }
    (void)stamp_of(c, stamps, n_own, c->ops.end[d], r, n_own - 1);
  }
  HEC_SCOPED(hec_timeline) again = {0};
  hec_step_timeline(o, &c->ops, &c->program, stamps, n_own, &again);
  hec_timeline_check(&again, &c->program);
  for (size_t i = 0; i < c->program.n_ops * (size_t)c->program.n_ranks; i++) {
    ck_assert_int_eq(again.begin_ps[i], c->timeline.begin_ps[i]);
    ck_assert_int_eq(again.end_ps[i], c->timeline.end_ps[i]);
  }
  close_case(c);
}

/* Clocks that are read late or disagree: never a timeline that the program does not allow. */
HEC_TEST_ROWS(impossible_stamps_are_moved, rows) {
  step_case *c = make(_i, "nvlink=1G@2us", true);
  int32_t n_own = hec_step_own_max(&c->order);
  uint64_t seed = 3 + (uint64_t)_i;
  hec_step_stamp *stamps = HEC_NEW(&arena, hec_step_stamp, c->program.n_ranks * n_own);
  for (int32_t i = 0; i < c->program.n_ranks * n_own; i++)
    stamps[i] = (hec_step_stamp){.input_ps = (int64_t)hec_test_below(&seed, 1000),
                                 .end_ps = (int64_t)hec_test_below(&seed, 1000)};
  hec_step_timeline(&c->order, &c->ops, &c->program, stamps, n_own, &c->timeline);
  hec_timeline_check(&c->timeline, &c->program);
  close_case(c);
}

/* Without gradients nothing goes back. */
HEC_TEST_ROWS(forward_alone_sends_streams_alone, rows) {
  step_case *c = make(_i, "nvlink=1G@2us", false);
  int32_t n = 0;
  for (size_t i = 0; i < c->program.n_ops; i++) {
    n += c->program.ops[i].kind == HEC_OP_EXCHANGE;
    ck_assert(c->program.ops[i].kind != HEC_OP_EXCHANGE || !c->program.ops[i].backward);
  }
  ck_assert_int_eq(n, rows[_i].stages > 1 ? (c->order.n_parts - 1) * rows[_i].micro_batches : 0);
  close_case(c);
}
