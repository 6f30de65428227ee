/* Spans: whatever durations a timeline was made from, and however long ranks waited for each other, spans give exactly these
 * durations back. Timelines of the simulator, of every policy under every schedule on random problems, and of random
 * durations that no law would give. Mending gives an undisturbed timeline back. */
#include "sim/simulate.h"
#include "tests/support/random_problem.h"
#include "tests/support/test.h"
#include "tests/validate/imitated.h"
#include "validate/spans.h"

typedef struct {
  hec_arena arena;
  hec_sim *sim;
  hec_link_cost cost;
  hec_spans spans;
  hec_timeline timeline, again;
  int64_t *ps;
  size_t capacity;
  uint64_t seed;
  int64_t n_waited; /* (operation, rank) that waited for a partner */
} tools;

static void ck_spans(tools *t, const hec_test_step *step, const hec_timeline *timeline) {
  const hec_program *program = step->program;
  hec_spans_find(&t->spans, program, timeline);
  for (int32_t i = 0; i < (int32_t)program->n_ops; i++)
    for (int32_t r = 0; r < program->n_ranks; r++) {
      const hec_op *op = &program->ops[i];
      int64_t span = hec_span_ps(&t->spans, program, i, r), at = (int64_t)i * program->n_ranks + r;
      int64_t expected = hec_program_takes_part(program, op, r) ? t->ps[at] : -1;
      if (span != expected)
        ck_abort_msg("%s, operation %d (%s) on rank %d: span %lld, duration %lld", hec_test_step_name(step), (int)i,
                     hec_role_name[op->role], (int)r, (long long)span, (long long)expected);
    }
}

static void count_waits(tools *t, const hec_program *program, const hec_timeline *timeline) {
  for (size_t i = 1; i < program->n_ops; i++)
    for (int32_t r = 0; r < program->n_ranks && program->ops[i].kind == HEC_OP_EXCHANGE; r++) {
      size_t at = i * (size_t)program->n_ranks + (size_t)r;
      t->n_waited +=
          timeline->begin_ps[at] > 0 && timeline->begin_ps[at] > timeline->end_ps[at - (size_t)program->n_ranks];
    }
}

static void ck_same(const tools *t, const hec_test_step *step, const hec_timeline *timeline, const char *what) {
  for (size_t i = 0; i < step->program->n_ops * (size_t)step->program->n_ranks; i++)
    if (t->again.begin_ps[i] != timeline->begin_ps[i] || llabs(t->again.end_ps[i] - timeline->end_ps[i]) > 0)
      ck_abort_msg("%s, %s: (operation, rank) %d from %lld to %lld, expected %lld to %lld", hec_test_step_name(step),
                   what, (int)i, (long long)timeline->begin_ps[i], (long long)timeline->end_ps[i],
                   (long long)t->again.begin_ps[i], (long long)t->again.end_ps[i]);
}

/* t->ps and t->again are an undisturbed machine. Nothing lost at pace 1: the same timeline. Ranks that lose their processor
 * and cores of different speeds, from 1 to 3 times slower by rank: mended, it is the undisturbed one. */
static void ck_mended(tools *t, const hec_test_step *step) {
  const hec_program *program = step->program;
  size_t n = program->n_ops * (size_t)program->n_ranks;
  HEC_SCOPED(hec_arena) scratch = {0};
  HEC_SCOPED(hec_timeline) mended = {0}, disturbed = {0};
  int64_t *ps = HEC_NEW(&scratch, int64_t, n), *lost = HEC_NEW(&scratch, int64_t, n);
  double *pace = HEC_NEW(&scratch, double, program->n_ranks);
  for (int32_t r = 0; r < program->n_ranks; r++)
    pace[r] = 1;
  hec_spans_mend(&t->spans, program, &t->again, &(hec_mending){NULL, pace}, &mended);
  ck_same(t, step, &mended, "nothing to mend");
  for (int32_t r = 0; r < program->n_ranks; r++)
    pace[r] = 1 + (double)(r % 5) / 2;
  for (size_t i = 0; i < n; i++) {
    hec_op_kind kind = program->ops[i / (size_t)program->n_ranks].kind;
    bool computes = kind == HEC_OP_COMPUTE || kind == HEC_OP_LOCAL;
    lost[i] = kind != HEC_OP_PLAN && hec_test_uniform(&t->seed) < 0.3 ? (int64_t)hec_test_below(&t->seed, 5000000) : 0;
    ps[i] = (computes ? (int64_t)((double)t->ps[i] * pace[i % (size_t)program->n_ranks] + 0.5) : t->ps[i]) + lost[i];
  }
  hec_imitated_timeline(program, ps, &disturbed);
  hec_spans_mend(&t->spans, program, &disturbed, &(hec_mending){lost, pace}, &mended);
  hec_timeline_check(&mended, program);
  ck_same(t, step, &mended, "mended");
}

static void visit(const hec_test_step *step, void *context) {
  tools *t = context;
  const hec_program *program = step->program;
  size_t n = program->n_ops * (size_t)program->n_ranks;
  HEC_RESERVE(t->ps, t->capacity, n);
  /* the simulator's timeline, and the second interpreter's, which is the same */
  hec_imitated_durations(&step->c->problem, program, &t->cost, t->ps);
  hec_sim_run(t->sim, program, (hec_sim_options){0}, &t->timeline);
  ck_spans(t, step, &t->timeline);
  hec_imitated_timeline(program, t->ps, &t->again);
  for (size_t i = 0; i < n; i++)
    ck_assert(t->timeline.begin_ps[i] == t->again.begin_ps[i] && t->timeline.end_ps[i] == t->again.end_ps[i]);
  /* every rank of every operation at a pace of its own */
  for (size_t i = 0; i < n; i++)
    t->ps[i] = (int64_t)hec_test_below(&t->seed, 1 + (uint64_t)1000 * hec_test_below(&t->seed, 1000));
  hec_imitated_timeline(program, t->ps, &t->again);
  count_waits(t, program, &t->again);
  ck_spans(t, step, &t->again);
  ck_mended(t, step);
}

static void free_tools(tools *t) {
  if (t->sim)
    hec_sim_free(t->sim);
  hec_link_cost_free(&t->cost);
  hec_spans_free(&t->spans);
  hec_timeline_free(&t->timeline);
  hec_timeline_free(&t->again);
  free(t->ps);
  hec_arena_free(&t->arena);
}

HEC_TEST_LOOP(equal_durations, hec_test_cases(40)) {
  uint64_t seed = 4200 + (uint64_t)_i;
  tools t = {.seed = seed};
  hec_test_case *c = hec_test_random_case(&t.arena, &seed, (hec_test_wish){.ranks_max = 8});
  t.sim = hec_sim_new(&c->problem, &hec_law_alpha_beta, &t.arena);
  t.cost = hec_link_cost_new(&c->cluster, &t.arena);
  hec_test_each(c, false, visit, &t);
  if (c->problem.n_ranks > 1)
    ck_assert(t.n_waited > 0);
  free_tools(&t);
}

/* What happens on the host between two operations counts as the later one's; planning keeps what it took itself. */
HEC_TEST(gaps) {
  HEC_SCOPED(hec_program) program = {0};
  HEC_SCOPED(hec_timeline) timeline = {0};
  HEC_SCOPED(hec_spans) spans = {0};
  hec_program_clear(&program, 1);
  int32_t gate = hec_program_add(&program, hec_op_new(HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_GATE, 0), NULL, 0);
  int32_t plan = hec_program_add(&program, hec_op_new(HEC_OP_PLAN, HEC_LANE_COMPUTE, HEC_ROLE_PLAN, 0), &gate, 1);
  (void)hec_program_add(&program, hec_op_new(HEC_OP_LOCAL, HEC_LANE_COMPUTE, HEC_ROLE_PERMUTE, 0),
                        (const int32_t[]){plan}, 1);
  hec_timeline_resize(&timeline, 3, 1);
  static const int64_t begin[] = {5, 30, 47}, end[] = {20, 40, 60};
  for (int32_t i = 0; i < 3; i++) {
    timeline.begin_ps[i] = begin[i];
    timeline.end_ps[i] = end[i];
  }
  hec_spans_find(&spans, &program, &timeline);
  ck_assert_int_eq(hec_span_ps(&spans, &program, 0, 0), 20);
  ck_assert_int_eq(hec_span_ps(&spans, &program, 1, 0), 10);
  ck_assert_int_eq(hec_span_ps(&spans, &program, 2, 0), 20);
}
