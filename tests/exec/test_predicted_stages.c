/* Steps of pipeline stages, predicted: by hand from those of one stage, and against what stages execute: the same programs. */
#include "tests/exec/launch_case.h"
#include "tests/exec/stages_case.h"
#include "tests/support/test.h"
#include "validate/compare/stages.h"

#include <string.h>

HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

typedef struct {
  hec_test_stages s;
  hec_experiment_case of;
} stages_case;

typedef struct {
  const char *layout, *pipeline, *policy;
  int32_t ranks, layers, micro_batches, steps;
  bool even; /* every expert has as many tokens in every record */
  bool zero; /* ZeRO-1 */
} row;

static stages_case *make_case(const row *w, const char *cluster) {
  stages_case *c = HEC_NEW(&arena, stages_case, 1);
  uint64_t seed = 11;
  const hec_test_stages_wish wish = {cluster, w->layout,        w->pipeline, w->ranks, w->layers,
                                     4,       w->micro_batches, false,       w->zero};
  hec_test_stages_make(&c->s, wish, &arena);
  hec_replay_step *steps = HEC_NEW(&arena, hec_replay_step, w->steps);
  for (int32_t i = 0; i < w->steps; i++) {
    hec_load *loads = HEC_NEW(&arena, hec_load, w->micro_batches);
    for (int32_t mb = 0; mb < w->micro_batches; mb++) {
      loads[mb] = hec_load_new(&arena, w->layers, c->s.layout.dp, c->s.moe.n_experts);
      for (int32_t row_of = 0; row_of < w->layers * c->s.layout.dp; row_of++)
        for (int32_t a = 0; a < c->s.moe.tokens_per_rank * c->s.moe.top_k; a++)
          hec_load_row(&loads[mb], row_of / c->s.layout.dp,
                       row_of % c->s.layout.dp)[w->even ? (uint64_t)(a % 4) : hec_test_below(&seed, 4)]++;
    }
    steps[i] = (hec_replay_step){.iter = i, .stride = 1, .n_loads = w->micro_batches, .loads = loads};
  }
  c->of = (hec_experiment_case){.model = &c->s.model,
                                .problem = &c->s.problem,
                                .policy = hec_policy_find(w->policy),
                                .schedule = "serial",
                                .steps = steps,
                                .n_steps = w->steps,
                                .n_micro_batches = w->micro_batches,
                                .order = &c->s.order,
                                .layer_at = c->s.layer_at};
  return c;
}

static void predict(const stages_case *c, int64_t *step_ps, uint64_t *digest) {
  hec_predicted_stages *stages;
  HEC_SCOPED(hec_timeline) timeline = {0};
  const hec_program *program;
  ck_ok(hec_predicted_stages_new(&c->of, &c->s.problem, &hec_law_alpha_beta, NULL, &arena, &stages));
  for (int32_t i = 0; i < c->of.n_steps; i++) {
    digest[i] = hec_predicted_stages_step(stages, &c->of.steps[i], &program, &timeline);
    hec_timeline_check(&timeline, program);
    step_ps[i] = hec_timeline_end_ps(&timeline);
  }
  hec_predicted_stages_free(stages);
}

static int64_t step_of(const char *layout, const char *pipeline, int32_t ranks, int32_t layers, int32_t micro_batches) {
  const row w = {layout, pipeline, "ep", ranks, layers, micro_batches, 1, true, false};
  int64_t ps;
  uint64_t digest;
  predict(make_case(&w, "1x4 nvlink=1000000T@0us flops=1G eff=1 hbm=10G mem=8G launch=5us"), &ps, &digest);
  return ps;
}

/* With equal loads and links that cost nothing, a stage's step is m micro-batches and an end, T(m) = m t + e. So the
 * step of p such stages of v parts is (m + (p - 1) / v) t + e. Here t and e are from the predictions of a single
 * stage. */
HEC_TEST(equal_stages_take_what_one_of_them_says) {
  int64_t one = step_of("pp=1", "1f1b", 1, 2, 1), two = step_of("pp=1", "1f1b", 1, 2, 2), t = two - one, e = one - t;
  ck_assert_int_gt(t, 0);
  ck_assert_int_gt(e, 0);
  ck_assert_int_eq(step_of("pp=1", "1f1b", 1, 2, 7), 7 * t + e);
  ck_assert_int_eq(step_of("pp=2", "1f1b", 2, 4, 4), 5 * t + e);
  ck_assert_int_eq(step_of("pp=2", "gpipe", 2, 4, 4), 5 * t + e);
  ck_assert_int_eq(step_of("pp=4", "1f1b", 4, 8, 6), 9 * t + e);
  ck_assert_int_eq(2 * step_of("pp=2 vpp=2", "interleaved", 2, 4, 4), 9 * t + 2 * e);
}

/* ---- Against what is executed ---- */

static const row rows[] = {{"pp=2", "1f1b", "ep", 2, 2, 4, 2, false, false},
                           {"pp=2 ep=2", "1f1b", "ep", 8, 4, 4, 2, false, false},
                           {"pp=2 vpp=2 ep=2", "interleaved", "eplb", 4, 4, 4, 3, false, false},
                           {"pp=3:1,2,1 ep=2", "gpipe", "eplb", 6, 4, 3, 3, false, false},
                           {"pp=2 ep=2", "1f1b", "ep", 8, 4, 4, 2, false, true}};

enum { STEPS_MAX = 8 };
typedef struct {
  int32_t n;
  uint64_t digest[STEPS_MAX];
  int64_t end_ps[STEPS_MAX];
  double probed_s, interrupted;
} seen;

static void measured(void *context, const hec_replayed *step) {
  seen *s = context;
  hec_timeline_check(step->timeline, step->program);
  hec_program_check(step->program);
  s->digest[s->n] = step->digest;
  s->end_ps[s->n++] = hec_timeline_end_ps(step->timeline);
  for (int32_t r = 0; r < 2 * step->timeline->n_ranks; r++)
    s->probed_s += step->probe_s[r];
  for (size_t i = 0; i < step->program->n_ops * (size_t)step->program->n_ranks; i++)
    HEC_ASSERT(step->lost_ps[i] >= 0);
  s->interrupted = step->interrupted;
}

typedef struct {
  hec_pipelined pipelined;
  const hec_policy *policy;
} launched;

static hec_status body(hec_rank *rank, void *context) {
  const launched *l = context;
  hec_replay_check result;
  return hec_pipelined_run(&l->pipelined, l->policy, rank, &result);
}

HEC_TEST_ROWS(what_is_executed_is_what_is_predicted, rows) {
  const row *w = &rows[_i];
  stages_case *c = make_case(w, "1x8 nvlink=10G@2us flops=10G eff=1 hbm=10G mem=8G");
  seen *s = hec_test_shared_page();
  launched l = {.policy = c->of.policy};
  l.pipelined = (hec_pipelined){.replay = {.problem = &c->s.problem,
                                           .model = &c->s.model,
                                           .steps = c->of.steps,
                                           .n_steps = w->steps,
                                           .n_micro_batches = w->micro_batches,
                                           .probe = true,
                                           .measured = measured,
                                           .context = s},
                                .order = &c->s.order,
                                .layer_at = c->of.layer_at};
  hec_launch_options options = hec_test_options(w->ranks, false);
  ck_ok(hec_pipelined_bytes(&l.pipelined, l.policy, &options.memory_bytes));
  hec_test_launch(&options, body, &l);
  int64_t step_ps[STEPS_MAX];
  uint64_t digest[STEPS_MAX];
  predict(c, step_ps, digest);
  ck_assert_int_eq(s->n, w->steps);
  ck_assert(s->probed_s > 0 && s->interrupted >= 0);
  for (int32_t i = 0; i < w->steps; i++) {
    ck_assert_msg(s->digest[i] == digest[i], "step %d executes another program", (int)i);
    ck_assert_int_gt(s->end_ps[i], 0);
    ck_assert_int_gt(step_ps[i], 0);
  }
  ck_assert(digest[0] != digest[1]); /* records differ, so do programs */
}
