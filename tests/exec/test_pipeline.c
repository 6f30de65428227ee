/* Pipeline stages executed on ranks of this machine, checked against the dense reference; and faults between stages, which the
 * check must find. */
#include "runtime/exec/pipeline.h"
#include "runtime/program/pipelines/pipeline_stage.h"
#include "tests/exec/launch_case.h"
#include "tests/exec/stages_case.h"
#include "tests/support/checks.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

typedef struct {
  const char *layout, *pipeline, *policy;
  int32_t gpus, layers, experts, micro_batches, steps;
  bool threads, forward;
  bool zero; /* ZeRO-1 */
} row;

static const row rows[] = {
    /* Small layouts with pp, ep and dp. */
    {"pp=2 ep=2", "1f1b", "ep", 4, 4, 8, 4, 2, false, false, false},
    {"pp=2 ep=2", "1f1b", "ep", 8, 4, 8, 4, 2, false, false, false}, /* dp: two expert-parallel groups in each stage */
    {"pp=2 vpp=2 ep=2", "interleaved", "ep", 4, 4, 8, 4, 2, true, false, false},
    {"pp=2 vpp=2 ep=2", "interleaved", "ep", 8, 4, 8, 4, 2, false, false, false},
    /* Stages of unequal length, more of them, an odd number of them, one rank each. */
    {"pp=2:1,4 ep=2", "1f1b", "ep", 4, 5, 6, 3, 2, true, false, false},
    {"pp=4", "1f1b", "ep", 4, 5, 4, 6, 2, false, false, false},
    {"pp=3 ep=2", "1f1b", "ep", 6, 3, 4, 5, 1, false, false, false},
    {"pp=2 vpp=3", "interleaved", "ep", 2, 10, 4, 6, 2, false, false, false},
    {"pp=4 vpp=2 ep=2", "interleaved", "ep", 8, 8, 4, 8, 1, false, false, false},
    {"pp=6 vpp=2", "interleaved", "ep", 6, 12, 2, 12, 1, false, false, false},
    {"pp=3 ep=2", "gpipe", "ep", 6, 4, 4, 4, 2, false, false, false},
    {"pp=2:2,1,1,3 vpp=2 ep=2", "interleaved", "ep", 4, 7, 4, 4, 2, false, false, false},
    /* Fewer micro-batches than stages; one stage; no backward; policies that keep copies and move them between steps. */
    {"pp=4", "1f1b", "ep", 4, 4, 4, 2, 2, false, false, false},
    {"pp=4", "1f1b", "ep", 4, 4, 4, 1, 2, false, false, false},
    {"pp=1 ep=2", "1f1b", "ep", 4, 2, 4, 3, 2, false, false, false},
    {"pp=2 ep=2", "1f1b", "ep", 4, 4, 8, 4, 2, false, true, false},
    {"pp=2 ep=4", "1f1b", "eplb", 8, 4, 8, 4, 3, false, false, false},
    {"pp=2 vpp=2 ep=2", "interleaved", "eplb", 8, 4, 4, 4, 3, false, false, false},
    /* ZeRO-1: two groups a stage; one, so that experts are whole; three, whose parts are not equal; one rank; one stage; virtual ones. */
    {"pp=2 ep=2", "1f1b", "ep", 8, 4, 8, 4, 2, false, false, true},
    {"pp=2 ep=2", "1f1b", "ep", 4, 4, 8, 4, 3, true, false, true},
    {"pp=1 ep=1", "1f1b", "ep", 3, 2, 2, 3, 2, false, false, true},
    {"pp=4", "gpipe", "ep", 4, 5, 4, 6, 2, false, false, true},
    {"ep=2", "1f1b", "ep", 6, 2, 4, 3, 3, false, false, true},
    {"pp=2 vpp=2 ep=2", "interleaved", "ep", 8, 4, 8, 4, 2, false, false, true},
    {"pp=2 ep=2", "1f1b", "ep", 8, 4, 8, 4, 2, false, true, true},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

typedef struct {
  hec_test_stages s;
  hec_pipelined p;
  const hec_policy *policy;
  hec_replay_check *result; /* shared with the ranks */
  hec_stage_memory *memory; /* likewise, [gpus] */
} pipeline_case;

/* Each micro-batch, layer and rank has loads of its own, so that no two can be mistaken for each other. */
static const hec_replay_step *make_steps(const row *w, const hec_problem *problem, uint64_t seed) {
  hec_replay_step *steps = HEC_NEW(&arena, hec_replay_step, w->steps);
  for (int32_t i = 0; i < w->steps; i++) {
    hec_load *loads = HEC_NEW(&arena, hec_load, w->micro_batches);
    for (int32_t mb = 0; mb < w->micro_batches; mb++) {
      loads[mb] = hec_load_new(&arena, w->layers, problem->n_ranks, w->experts);
      for (int32_t l = 0; l < w->layers; l++)
        for (int32_t s = 0; s < problem->n_ranks; s++)
          for (int32_t a = 0; a < problem->tokens * problem->top_k; a++)
            hec_load_row(&loads[mb], l, s)[hec_test_below(&seed, (uint64_t)w->experts)]++;
    }
    steps[i] = (hec_replay_step){.iter = 10 + i, .stride = 1, .n_loads = w->micro_batches, .loads = loads};
  }
  return steps;
}

static pipeline_case *make_case(const row *w) {
  pipeline_case *c = HEC_NEW(&arena, pipeline_case, 1);
  c->policy = hec_policy_find(w->policy);
  const hec_test_stages_wish wish = {"2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G",
                                     w->layout,
                                     w->pipeline,
                                     w->gpus,
                                     w->layers,
                                     w->experts,
                                     w->micro_batches,
                                     w->forward,
                                     w->zero};
  hec_test_stages_make(&c->s, wish, &arena);
  c->p = (hec_pipelined){.replay = {.problem = &c->s.problem,
                                    .model = &c->s.model,
                                    .steps = make_steps(w, &c->s.problem, 1 + (uint64_t)w->gpus),
                                    .n_steps = w->steps,
                                    .n_micro_batches = w->micro_batches,
                                    .check = true},
                         .order = &c->s.order,
                         .layer_at = c->s.layer_at};
  ck_ok(hec_pipelined_check(&c->p, c->policy));
  c->result = hec_test_shared_page();
  c->p.memory = c->memory = hec_test_shared_page();
  return c;
}

static hec_status body(hec_rank *rank, void *context) {
  const pipeline_case *c = context;
  return hec_pipelined_run(&c->p, c->policy, rank, c->result);
}

static void run_case(pipeline_case *c, const row *w) {
  hec_launch_options options = hec_test_options(w->gpus, w->threads);
  ck_ok(hec_pipelined_bytes(&c->p, c->policy, &options.memory_bytes));
  hec_test_launch(&options, body, c);
}

/* Every number of the step is compared. The outputs and input gradients of all ranks, and four arrays of each block and
 * expert wherever it is kept. With ZeRO-1 of gradients and moments each number once. */
static int64_t expected_numbers(const pipeline_case *c, const row *w) {
  int64_t stream = (int64_t)c->s.problem.tokens * c->s.moe.d_model, arrays = w->forward ? 1 : 4;
  int64_t streams = (w->forward ? 1 : 2) * (int64_t)w->steps * w->micro_batches * c->s.layout.dp * stream;
  int64_t dense = w->layers * hec_model_block(&c->s.model).size;
  int64_t experts = (int64_t)w->layers * w->experts * hec_model_expert_size(&c->s.model);
  int64_t parts = w->zero ? arrays - 1 : 0; /* of gradients and moments each rank has its own */
  return streams + (arrays - parts) * (dense * c->s.layout.dp + experts * c->s.layout.edp) + parts * (dense + experts);
}

HEC_TEST_LOOP(stages_compute_what_the_reference_does, N_ROWS) {
  const row *w = &rows[_i];
  pipeline_case *c = make_case(w);
  run_case(c, w);
  ck_assert_msg(c->result->passed, "%s, %s: %s: error %g, tolerance %g", w->layout, w->pipeline, c->result->worst_at,
                c->result->worst, c->result->tolerance);
  if (strcmp(w->policy, "ep") == 0) /* others keep copies */
    ck_assert_int_eq(c->result->compared, expected_numbers(c, w));
  else
    ck_assert_int_ge(c->result->compared, expected_numbers(c, w));
}

/* ---- Memory ---- */

/* State by hand: 4 bytes a parameter and a gradient, 8 of moments. With ZeRO-1 a stage has the moments of each number once, and
 * each rank an equal share of every tensor, up to a number. But not of experts whose three keepers are on two nodes. Activations: the program's peak, which the buffers must not pass. */
static void check_memory(const pipeline_case *c, const row *w, int32_t rank) {
  const hec_rank_memory *counted = &c->memory[rank].counted, *predicted = &c->memory[rank].predicted;
  hec_pipeline_parts parts = {&c->s.order, c->p.layer_at};
  double layers = hec_pipeline_layers_of(parts, rank / c->s.layout.dp), dp = c->s.layout.dp;
  double dense = layers * (double)hec_model_block(&c->s.model).size;
  double experts = layers * w->experts * (double)hec_model_expert_size(&c->s.model) / c->s.layout.ep;
  double moments = w->forward ? 0 : w->zero ? dense / dp + experts / c->s.layout.edp : dense + experts;
  double uneven = w->zero ? 8 * layers * (1 + w->experts) : 0;
  double by_nodes = w->zero && c->s.layout.edp == 3 && c->s.layout.ep > 1 ? 8 * experts / 3 : 0;
  ck_assert_double_eq(counted->parameters, 4 * (dense + experts));
  ck_assert_double_eq(counted->gradients, w->forward ? 0 : 4 * (dense + experts));
  ck_assert_msg(fabs(counted->optimizer - 8 * moments) <= uneven + by_nodes,
                "rank %d: %g bytes of optimizer, expected %g", (int)rank, counted->optimizer, 8 * moments);
  ck_assert_double_eq(counted->parameters, predicted->parameters);
  ck_assert_double_eq(counted->gradients, predicted->gradients);
  ck_assert_double_le(fabs(counted->optimizer - predicted->optimizer), uneven);
  ck_assert_double_eq_tol(counted->activations, predicted->activations, 1e-6);
  ck_assert_double_gt(counted->activations, 0);
}

HEC_TEST_LOOP(memory_is_what_the_formula_says, N_ROWS) {
  const row *w = &rows[_i];
  pipeline_case *c = make_case(w);
  c->p.replay.check = false;
  run_case(c, w);
  if (strcmp(w->policy, "ep") != 0) /* others keep copies, and reserve slots that they may not use */
    return;
  double optimizer = 0;
  for (int32_t r = 0; r < w->gpus; r++) {
    check_memory(c, w, r);
    optimizer += c->memory[r].counted.optimizer;
  }
  double numbers = w->layers * ((double)hec_model_block(&c->s.model).size +
                                (double)w->experts * (double)hec_model_expert_size(&c->s.model));
  if (w->zero)
    ck_assert_double_eq(optimizer, w->forward ? 0 : 8 * numbers);
}

/* ---- Faults ---- */

static const struct {
  hec_pipeline_fault fault;
  const char *where; /* that the first error names */
} faults[] = {{HEC_PIPELINE_SENDS_ANOTHER, "outputs of rank"},
              {HEC_PIPELINE_SENDS_ANOTHER_GRADIENT, "input gradients of rank"},
              {HEC_PIPELINE_FORGETS, "of dense block"}};
enum { N_FAULTS = sizeof faults / sizeof *faults, N_FAULTY_ROWS = 4 };

HEC_TEST_LOOP(faults_between_stages_are_noticed, N_FAULTS *N_FAULTY_ROWS) {
  const row *w = &rows[_i % N_FAULTY_ROWS];
  pipeline_case *c = make_case(w);
  c->p.fault = faults[_i / N_FAULTY_ROWS].fault;
  run_case(c, w);
  ck_assert(!c->result->passed);
  ck_assert_int_eq(c->result->failed_step, w->steps);
  ck_assert_msg(strstr(c->result->failed_at, faults[_i / N_FAULTY_ROWS].where) != NULL, "%s", c->result->failed_at);
}

/* ZeRO-1: of the first stage's first rank. Parameters that nobody has updated come back, or others are updated twice. */
static const row shared[] = {{"pp=2 ep=2", "1f1b", "ep", 8, 4, 8, 4, 2, false, false, true},
                             {"pp=2 ep=2", "1f1b", "ep", 4, 4, 8, 4, 2, false, false, true},
                             {"pp=2 vpp=2 ep=2", "interleaved", "ep", 8, 4, 8, 4, 2, false, false, true}};
enum { N_SHARED = sizeof shared / sizeof *shared };

HEC_TEST_LOOP(faults_of_parts_are_noticed, 3 * N_SHARED) {
  static const hec_pipeline_fault of[] = {HEC_PIPELINE_FORGETS, HEC_PIPELINE_UPDATES_ANOTHER,
                                          HEC_PIPELINE_UPDATES_NOTHING};
  const row *w = &shared[_i % N_SHARED];
  pipeline_case *c = make_case(w);
  c->p.fault = of[_i / N_SHARED];
  run_case(c, w);
  ck_assert(!c->result->passed);
  ck_assert_int_eq(c->result->failed_step, w->steps);
  ck_assert_msg(strstr(c->result->failed_at, "of dense block") != NULL, "%s", c->result->failed_at);
}

/* ---- What is refused ---- */

static const struct {
  const char *pipeline, *policy, *words;
  int32_t stages;
} refused[] = {{"interleaved", "ep", "an even number of stages", 3},
               {"zb-h1", "ep", "splits or pairs", 2},
               {"dualpipe", "ep", "holds every virtual stage twice", 2},
               {"1f1b", "fastermoe", "plans anew", 2},
               {"1f1b", "ep-balanced", "other loads", 2},
               {"1f1b", "eplb", "leaves experts where they are", 2}};

HEC_TEST_LOOP(what_is_not_executed_is_refused, (int)(sizeof refused / sizeof *refused)) {
  const hec_pipeline_shape sizes = {refused[_i].stages, 0, 6, 0};
  hec_pipeline_order order;
  ck_ok(hec_pipeline_order_make(hec_pipeline_find(refused[_i].pipeline), &sizes, &arena, &order));
  const hec_problem shared_problem = {.zero = 1};
  const hec_pipelined p = {.replay.problem = &shared_problem, .order = &order};
  ck_refused(hec_pipelined_check(&p, hec_policy_find(refused[_i].policy)), refused[_i].words);
}
