/* A training step as a timeline. It lasts as long as the step, each piece is there once and takes its time, nothing
 * overlaps on a stage's lane. Its memory is the memory model's. */
#include "tests/support/test.h"
#include "tests/support/training_case.h"
#include "tools/front/training/pipeline_drawing.h"

#include <math.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static hec_moe moe;

static const struct {
  const char *layout, *pipeline, *recipe;
  double factor, moves_s;
} cases[] = {{"pp=4 ep=8", "1f1b", "", 1, 0},
             {"pp=4 ep=8", "gpipe", "recompute=full", 1, 0.25},
             {"pp=4 vpp=2 ep=8 tp=2", "interleaved", "", 2, 0},
             {"pp=4 vpp=2 ep=8", "1f1b-overlap", "graph=full", 1, 0},
             {"pp=4 ep=8", "zb-h1", "", 0.5, 0},
             {"pp=4 ep=8", "dualpipe", "", 1, 0},
             {"pp=4 vpp=2 ep=8", "dualpipev", "", 1, 0},
             {"ep=8", "1f1b", "zero=3", 1, 0}};
enum { N_CASES = sizeof cases / sizeof *cases };

typedef struct {
  hec_training t;
  hec_training_pieces pieces;
  hec_training_result result;
  hec_pipeline_drawing drawing;
} made;

static void make(int i, made *m) {
  ck_ok(hec_moe_load("mixtral-8x7b", &moe));
  m->t = hec_test_training(&moe, cases[i].layout, 64, 512, cases[i].recipe, &arena);
  const hec_training_job job = {
      .training = &m->t, .pipeline = hec_pipeline_find(cases[i].pipeline), .moves_s = cases[i].moves_s};
  ck_ok(hec_training_run_pieces(&job, &m->pieces, &m->result));
  hec_pipeline_drawing_make(&(hec_pipeline_drawn){.training = &m->t,
                                                  .pieces = &m->pieces,
                                                  .result = &m->result,
                                                  .moves_s = cases[i].moves_s,
                                                  .factor = cases[i].factor},
                            &m->drawing);
}

static void finish(made *m) {
  hec_pipeline_drawing_free(&m->drawing);
  hec_arena_free(&m->pieces.arena);
}

static size_t at_of(const made *m, size_t op, int32_t stage) {
  return op * (size_t)m->drawing.program.n_ranks + (size_t)stage;
}

HEC_TEST_LOOP(lasts_as_long, N_CASES) {
  made m;
  make(_i, &m);
  ck_assert_double_eq_tol(1e-12 * (double)hec_timeline_end_ps(&m.drawing.timeline), cases[_i].factor * m.result.step_s,
                          1e-9);
  finish(&m);
}

/* Nothing overlaps on a lane of the stage that does it; what an operation names was there before it began. */
HEC_TEST_LOOP(in_order, N_CASES) {
  made m;
  make(_i, &m);
  const hec_program *p = &m.drawing.program;
  const hec_timeline *t = &m.drawing.timeline;
  hec_program_check(p);
  for (int32_t stage = 0; stage < p->n_ranks; stage++) {
    int64_t free_ps[HEC_N_LANES] = {0};
    for (size_t i = 0; i < p->n_ops; i++) {
      size_t at = at_of(&m, i, stage);
      ck_assert_int_eq(hec_program_takes_part(p, &p->ops[i], stage), t->begin_ps[at] >= 0);
      for (int32_t k = 0; t->begin_ps[at] >= 0 && k < p->ops[i].n_deps; k++)
        ck_assert_int_le(t->end_ps[at_of(&m, (size_t)p->deps[p->ops[i].dep_at + k], stage)], t->begin_ps[at]);
      if (t->begin_ps[at] == t->end_ps[at]) /* and what is received */
        continue;
      ck_assert_int_ge(t->begin_ps[at], free_ps[p->ops[i].lane]);
      free_ps[p->ops[i].lane] = t->end_ps[at];
    }
  }
  finish(&m);
}

/* Of every stage: computing, dispatch and tensor traffic add up to its pieces, for a piece alone takes turns. */
HEC_TEST_LOOP(pieces_add_up, N_CASES) {
  made m;
  make(_i, &m);
  const hec_pipeline_order *o = &m.pieces.order;
  const hec_program *p = &m.drawing.program;
  for (int32_t stage = 0; stage < o->shape.n_stages && !o->schedule->pairs; stage++) {
    double drawn = 0;
    int32_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++) {
      bool piece = p->ops[i].alone == stage + 1 && p->ops[i].micro_batch >= 0;
      drawn += piece ? (double)(m.drawing.timeline.end_ps[at_of(&m, i, stage)] -
                                m.drawing.timeline.begin_ps[at_of(&m, i, stage)])
                     : 0;
      n += piece && p->ops[i].lane == HEC_LANE_COMPUTE;
    }
    ck_assert_int_eq(n, o->piece_at[stage + 1] - o->piece_at[stage]);
    ck_near(1e-12 * drawn, 1e-12 * cases[_i].factor * (double)m.pieces.run.device[stage].busy_ps);
  }
  finish(&m);
}

/* As many sends as micro-batches pass borders of stages, both ways. */
HEC_TEST(sends) {
  made m;
  make(0, &m);
  int32_t n[2] = {0};
  for (size_t i = 0; i < m.drawing.program.n_ops; i++)
    n[m.drawing.program.ops[i].backward] += m.drawing.program.ops[i].kind == HEC_OP_EXCHANGE;
  ck_assert_int_eq(n[0], 3 * hec_training_micro_batches(&m.t));
  ck_assert_int_eq(n[1], n[0]);
  ck_assert_int_eq(m.drawing.program.transfers[0].bytes, 4096 * 4096 * 2); /* tokens, width, bf16 */
  finish(&m);
}

/* The fullest stage and its bytes are those of the memory model; what the page draws has the same top. */
HEC_TEST_LOOP(memory, N_CASES) {
  made m;
  make(_i, &m);
  hec_report_iteration it = {.there = true};
  hec_report_draw_memory(&m.drawing.program, &m.drawing.timeline, &it);
  ck_assert_double_eq_tol(it.fullest_bytes, m.result.memory.peak, 1);
  ck_assert_double_eq_tol(it.end_s, cases[_i].factor * m.result.step_s, 1e-9);
  hec_arena_free(&it.arena);
  finish(&m);
}

HEC_TEST(pairs_are_beside_each_other) {
  made m;
  make(3, &m);
  int32_t n = 0;
  for (size_t i = 0; i + 1 < m.drawing.program.n_ops; i++) {
    const hec_op *a = &m.drawing.program.ops[i], *b = a + 1;
    if (!strstr(a->title, " beside ") || strcmp(b->title, "dispatch and combine") != 0)
      continue;
    size_t at = at_of(&m, i, a->alone - 1), beside = at_of(&m, i + 1, a->alone - 1);
    ck_assert_int_eq(m.drawing.timeline.begin_ps[at], m.drawing.timeline.begin_ps[beside]);
    n++;
  }
  ck_assert_int_gt(n, 0);
  finish(&m);
}
