/* The dense reference. It is equal to the oracle step after step, and exact where exactness is promised. It is blind
 * to the order of sums, and near enough for every fault to show. */
#include "runtime/exec/model/reference.h"
#include "tests/exec/faulty_steps.h"
#include "tests/exec/model_oracle.h"
#include "tests/support/test.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MB_MAX = 3 };

typedef struct {
  hec_arena arena;
  hec_model model;
  hec_load loads[MB_MAX];
  hec_steps steps;
} problem;

static void random_loads(problem *p, uint64_t *random) {
  for (int32_t mb = 0; mb < p->steps.n_micro_batches; mb++)
    p->loads[mb] = hec_oracle_random_load(&p->arena, random, &p->model, p->steps.n_ranks, p->steps.tokens);
  p->steps.model = &p->model;
  p->steps.loads = p->loads;
}

static void random_problem(problem *p, uint64_t *random, bool exact) {
  *p = (problem){.model = hec_oracle_random_model(random, exact)};
  p->steps = (hec_steps){.n_ranks = 1 + (int32_t)hec_test_below(random, 3),
                         .tokens = 1 + (int32_t)hec_test_below(random, 12),
                         .n_micro_batches = 1 + (int32_t)hec_test_below(random, MB_MAX),
                         .n_steps = exact ? 1 : 1 + (int32_t)hec_test_below(random, 4)};
  random_loads(p, random);
}

/* The tiny preset's shape with other numbers of blocks and experts. */
static void tiny_problem(problem *p, uint64_t *random, int32_t blocks, int32_t experts, bool exact) {
  hec_moe moe;
  *p = (problem){.steps = {.n_ranks = 4, .tokens = 64, .n_micro_batches = 2, .n_steps = exact ? 1 : 3}};
  ck_assert_int_eq(hec_moe_load("tiny", &moe), HEC_OK);
  moe.n_layers = moe.n_moe_layers = blocks;
  moe.n_experts = experts;
  moe.n_ffn_matrices = experts > 8 ? 3 : 2;
  ck_assert_int_eq(hec_model_make(&moe, exact, hec_test_random(random), &p->model), HEC_OK);
  random_loads(p, random);
}

/* ---- Against the oracle ---- */

static double *widen(double *to, const float *from, int64_t n) {
  to = realloc(to, ((size_t)n + 1) * sizeof *to);
  ck_assert_ptr_nonnull(to);
  for (int64_t i = 0; i < n; i++)
    to[i] = (double)from[i];
  return to;
}

static void outputs_are_the_oracles(const problem *p, const hec_reference *r, const hec_oracle *o, int64_t step) {
  int64_t n = (int64_t)p->steps.tokens * p->model.moe.d_model;
  float *x = malloc((size_t)n * sizeof *x);
  double *out = NULL;
  ck_assert_ptr_nonnull(x);
  for (int32_t mb = 0; mb < p->steps.n_micro_batches; mb++)
    for (int32_t rank = 0; rank < p->steps.n_ranks; rank++) {
      hec_oracle at = *o;
      at.load = &p->loads[mb];
      at.rank = rank;
      hec_model_input(&p->model, step, mb, rank, p->steps.tokens, x);
      out = widen(out, x, n);
      hec_oracle_forward(&at, out);
      const float *got = hec_reference_output(r, mb, rank);
      for (int64_t i = 0; i < n; i++)
        ck_assert(fabs((double)got[i] - out[i]) <= (p->model.exact ? 0 : 5e-6 * (1 + fabs(out[i]))));
    }
  free(x), free(out);
}

HEC_TEST_LOOP(every_step_is_the_oracles, 4) {
  hec_math_open();
  uint64_t random = 1 + (uint64_t)_i;
  for (int i = 0; i < 25; i++) {
    problem p;
    random_problem(&p, &random, _i % 2);
    HEC_OPENED(hec_reference) *r = hec_reference_new(&p.model, p.steps.n_ranks, p.steps.tokens, true);
    double *blocks = NULL, *experts = NULL;
    for (int64_t step = 1; step <= p.steps.n_steps; step++) {
      blocks = widen(blocks, hec_reference_block(r, 0).params, p.model.n_blocks * hec_model_block(&p.model).size);
      experts = widen(experts, hec_reference_expert(r, 0, 0).params,
                      (int64_t)p.model.n_blocks * p.model.n_experts * hec_model_expert_size(&p.model));
      hec_reference_step(r, step, p.loads, p.steps.n_micro_batches);
      hec_oracle o = {.model = &p.model, .blocks = blocks, .experts = experts, .tokens = p.steps.tokens};
      outputs_are_the_oracles(&p, r, &o, step);
    }
    free(blocks), free(experts);
    hec_arena_free(&p.arena);
  }
}

/* ---- Ranks ---- */

/* R ranks and one rank with R times the tokens: the same data, and with T assignments to every expert the same routing. */
HEC_TEST(ranks_do_not_matter) {
  hec_math_open();
  uint64_t random = 5;
  for (int i = 0; i < 30; i++) {
    HEC_SCOPED(hec_arena) arena = {0};
    hec_model model = hec_oracle_random_model(&random, i % 2);
    int32_t ranks = 2 + (int32_t)hec_test_below(&random, 3), d = model.moe.d_model;
    int32_t tokens = 3 * model.moe.seq_len; /* whole sequences, and places that are multiples of 3 in exact weights */
    hec_load many = hec_load_new(&arena, model.n_blocks, ranks, model.n_experts);
    hec_load few = hec_load_new(&arena, model.n_blocks, 1, model.n_experts);
    for (int32_t j = 0; j < model.n_blocks * ranks * model.n_experts; j++)
      many.counts[j] = (uint32_t)tokens;
    for (int32_t j = 0; j < model.n_blocks * model.n_experts; j++)
      few.counts[j] = (uint32_t)(tokens * ranks);
    HEC_OPENED(hec_reference) *a = hec_reference_new(&model, ranks, tokens, true);
    HEC_OPENED(hec_reference) *b = hec_reference_new(&model, 1, tokens * ranks, true);
    hec_reference_step(a, 1, &many, 1);
    hec_reference_step(b, 1, &few, 1);
    double max = model.exact ? 0 : hec_reference_tolerance(a, 1);
    for (int32_t rank = 0; rank < ranks; rank++) {
      int64_t n = (int64_t)tokens * d;
      ck_assert_double_le(
          hec_relative_error(hec_reference_output(a, 0, rank), hec_reference_output(b, 0, 0) + rank * n, n), max);
      ck_assert_double_le(hec_relative_error(hec_reference_input_gradient(a, 0, rank),
                                             hec_reference_input_gradient(b, 0, 0) + rank * n, n),
                          max);
    }
    for (int32_t e = -1; e < model.n_experts; e++) {
      hec_reference_state x = e < 0 ? hec_reference_block(a, 0) : hec_reference_expert(a, 0, e);
      hec_reference_state y = e < 0 ? hec_reference_block(b, 0) : hec_reference_expert(b, 0, e);
      ck_assert_double_le(hec_relative_error(x.grads, y.grads, x.n), max);
      ck_assert_double_le(hec_relative_error(x.params, y.params, x.n), max);
      ck_assert_double_le(hec_relative_error(x.second, y.second, x.n), max);
    }
  }
}

HEC_TEST(little_or_nothing) {
  uint64_t random = 6;
  for (int i = 0; i < 24; i++) {
    problem p;
    random_problem(&p, &random, i % 2);
    p.steps.tokens = i % 3 == 0 ? 0 : 1;
    for (int32_t mb = 0; mb < p.steps.n_micro_batches; mb++)
      for (int32_t j = 0; j < p.model.n_blocks * p.steps.n_ranks * p.model.n_experts; j++)
        p.loads[mb].counts[j] = i % 3 == 2 ? 1 : 0;
    HEC_OPENED(hec_reference) *r = hec_reference_of_steps(&p.steps);
    ck_assert_double_le(hec_faulty_error(&p.steps, &(hec_fault){HEC_NO_FAULT, 0, 0, 0, 0}, r),
                        hec_reference_tolerance(r, p.steps.n_steps));
    if (i % 3 != 2) { /* an expert that nobody uses stays as it was */
      hec_reference_state state = hec_reference_expert(r, 0, 0);
      float *initial = malloc((size_t)state.n * sizeof *initial);
      ck_assert_ptr_nonnull(initial);
      hec_model_init_expert(&p.model, 0, 0, initial);
      ck_assert(memcmp(initial, state.params, (size_t)state.n * sizeof *initial) == 0);
      free(initial);
    }
    hec_arena_free(&p.arena);
  }
}

HEC_TEST(forward_only) {
  uint64_t random = 8;
  for (int i = 0; i < 10; i++) {
    problem p;
    random_problem(&p, &random, i % 2);
    p.steps.n_steps = 1;
    HEC_OPENED(hec_reference) *train = hec_reference_of_steps(&p.steps);
    HEC_OPENED(hec_reference) *forward = hec_reference_new(&p.model, p.steps.n_ranks, p.steps.tokens, false);
    hec_reference_step(forward, 1, p.loads, p.steps.n_micro_batches);
    size_t bytes = (size_t)p.steps.tokens * (size_t)p.model.moe.d_model * sizeof(float);
    for (int32_t mb = 0; mb < p.steps.n_micro_batches; mb++)
      for (int32_t rank = 0; rank < p.steps.n_ranks; rank++)
        ck_assert(memcmp(hec_reference_output(train, mb, rank), hec_reference_output(forward, mb, rank), bytes) == 0);
    ck_assert_ptr_null(hec_reference_block(forward, 0).grads);
    ck_assert_ptr_null(hec_reference_expert(forward, 0, 0).second);
    hec_arena_free(&p.arena);
  }
}

/* ---- Exact mode ---- */

static hec_moe exact_shape(uint64_t *random) {
  hec_moe moe = {.name = "exact", .n_layers = 1, .n_moe_layers = 1, .nonmoe_scale = 1, .dtype_bytes = 4};
  moe.d_model = 8 << hec_test_below(random, 4);
  moe.d_ffn = moe.d_ffn_dense = moe.d_ffn_shared = 8 << hec_test_below(random, 5);
  moe.n_ffn_matrices = 2 + (int32_t)hec_test_below(random, 2);
  moe.n_experts = 1 << hec_test_below(random, 7);
  moe.top_k = 1 + (int32_t)hec_test_below(random, (uint64_t)(moe.n_experts < 8 ? moe.n_experts : 8));
  moe.n_shared_experts = (int32_t)hec_test_below(random, 2);
  moe.n_heads = 1 << hec_test_below(random, 3);
  moe.n_kv_heads = hec_test_below(random, 2) ? moe.n_heads : 1;
  moe.d_head = moe.d_model / moe.n_heads;
  moe.seq_len = 16 << hec_test_below(random, 4);
  moe.tokens_per_rank = 256;
  moe.micro_batches = 1;
  moe.attention = hec_test_below(random, 2) ? HEC_ATTENTION_FULL : HEC_ATTENTION_CAUSAL;
  if (hec_test_below(random, 3) == 0)
    hec_oracle_random_s2(random, 20, &moe);
  return moe;
}

/* Many shapes: at most 24 bits, and the float step equal to the one in double (asserted inside); the distributed order
 * gives the same bits. Every third case sends all to one expert. */
HEC_TEST_LOOP(exact_mode_is_exact, 4) {
  uint64_t random = 40 + (uint64_t)_i;
  int32_t max = 0;
  for (int i = 0; i < 9; i++) {
    hec_moe moe = exact_shape(&random);
    problem p = {.steps = {.n_ranks = 4, .tokens = 256, .n_micro_batches = 1, .n_steps = 1}};
    ck_assert_msg(hec_model_make(&moe, true, hec_test_random(&random), &p.model) == HEC_OK, "%s", hec_last_error());
    random_loads(&p, &random);
    for (int32_t rank = 0; i % 3 == 0 && rank < 4; rank++)
      for (int32_t e = 0; e < p.model.n_experts; e++)
        hec_load_row(&p.loads[0], 0, rank)[e] = e == 0 ? 256 * (uint32_t)p.model.top_k : 0;
    HEC_OPENED(hec_reference) *r = hec_reference_of_steps(&p.steps);
    max = hec_reference_bits(r) > max ? hec_reference_bits(r) : max;
    ck_assert(hec_faulty_error(&p.steps, &(hec_fault){HEC_NO_FAULT, 0, 0, 0, 0}, r) == 0);
    hec_arena_free(&p.arena);
  }
  ck_assert_int_le(max, 24);
  ck_assert_int_ge(max, 8); /* the measure measures */
}

HEC_TEST(random_mode_has_no_bits) {
  uint64_t random = 2;
  problem p;
  random_problem(&p, &random, false);
  HEC_OPENED(hec_reference) *r = hec_reference_of_steps(&p.steps);
  ck_assert_int_eq(hec_reference_bits(r), -1);
  hec_arena_free(&p.arena);
}

/* ---- Tolerance and faults ---- */

HEC_TEST(relative_error) {
  const float a[] = {3, 4, 0}, b[] = {3, 4, 5}, zero[] = {0, 0, 0};
  ck_assert_double_eq_tol(hec_relative_error(a, b, 3), 5 / sqrt(50), 1e-12);
  ck_assert(hec_relative_error(a, zero, 3) == 5 && hec_relative_error(zero, zero, 3) == 0);
  ck_assert(hec_relative_error(a, b, 0) == 0);
  const float bad[] = {NAN};
  ck_assert(!(hec_relative_error(bad, a, 1) <= 1e30)); /* comparisons are written so that this fails */
}

HEC_TEST_LOOP(other_orders_are_tolerated, 2) {
  uint64_t random = 60 + (uint64_t)_i;
  double worst = 0;
  for (int i = 0; i < 16; i++) {
    problem p;
    if (i < 3)
      tiny_problem(&p, &random, 1 + 3 * i, i == 1 ? 32 : 8, false);
    else
      random_problem(&p, &random, false);
    HEC_OPENED(hec_reference) *r = hec_reference_of_steps(&p.steps);
    double error = hec_faulty_error(&p.steps, &(hec_fault){HEC_NO_FAULT, 0, 0, 0, 0}, r);
    double tolerance = hec_reference_tolerance(r, p.steps.n_steps);
    ck_assert_double_le(error, tolerance);
    ck_assert_double_le(tolerance, 2e-4);
    worst = error / tolerance > worst ? error / tolerance : worst;
    hec_arena_free(&p.arena);
  }
  printf("largest error / tolerance: %.3f\n", worst);
}

/* A child computes with the other library; the parent compares its outputs and parameters. */
HEC_TEST(the_other_library_is_tolerated) {
  uint64_t random = 70;
  problem p;
  tiny_problem(&p, &random, 2, 8, false);
  int64_t n = p.model.n_blocks * hec_model_block(&p.model).size, rows = (int64_t)p.steps.tokens * p.model.moe.d_model;
  int64_t experts = (int64_t)p.model.n_blocks * p.model.n_experts * hec_model_expert_size(&p.model);
  size_t bytes = (size_t)(n + rows + experts) * sizeof(float);
  FILE *file = tmpfile();
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(ftruncate(fileno(file), (off_t)bytes), 0);
  float *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  ck_assert_ptr_ne(shared, MAP_FAILED);
  for (int child = 1; child >= 0; child--) {
    pid_t id = child ? fork() : 0;
    if (id != 0) {
      int status;
      ck_assert_int_eq(waitpid(id, &status, 0), id);
      ck_assert_int_eq(status, 0);
      continue;
    }
    if (child)
      (void)setenv("HECATE_BLAS", "gsl", 1);
    hec_reference *r = hec_reference_of_steps(&p.steps); /* opens it; nothing has in this process yet */
    const float *parts[] = {hec_reference_block(r, 0).params, hec_reference_expert(r, 0, 0).params,
                            hec_reference_output(r, 1, 3)};
    const int64_t sizes[] = {n, experts, rows};
    float *at = shared;
    for (int i = 0; i < 3; at += sizes[i], i++) {
      if (child)
        memcpy(at, parts[i], (size_t)sizes[i] * sizeof *at);
      else
        ck_assert_double_le(hec_relative_error(parts[i], at, sizes[i]), hec_reference_tolerance(r, p.steps.n_steps));
    }
    if (child)
      _exit(strstr(hec_math_library(), "GSL") ? 0 : 1);
    hec_reference_free(r);
  }
  (void)munmap(shared, bytes);
  (void)fclose(file);
  hec_arena_free(&p.arena);
}

/* The least error, relative to the tolerance, of faults of a kind at random places. */
static double min_fault(const problem *p, const hec_reference *r, hec_fault_kind kind, uint64_t *random, int times) {
  double min = INFINITY;
  for (int i = 0; i < times; i++) {
    hec_fault f = {.kind = kind,
                   .micro_batch = (int32_t)hec_test_below(random, (uint64_t)p->steps.n_micro_batches),
                   .rank = (int32_t)hec_test_below(random, (uint64_t)p->steps.n_ranks),
                   .layer = (int32_t)hec_test_below(random, (uint64_t)p->model.n_blocks)};
    int32_t n = 0;
    for (int32_t e = 0; e < p->model.n_experts; e++)
      n += (int32_t)hec_load_row(&p->loads[f.micro_batch], f.layer, f.rank)[e];
    if (n < 2)
      continue;
    f.assignment = (int32_t)hec_test_below(random, (uint64_t)n);
    double error = hec_faulty_error(&p->steps, &f, r) / hec_reference_tolerance(r, p->steps.n_steps);
    min = fmin(min, error);
  }
  return min;
}

HEC_TEST_LOOP(faults_are_seen, 3) {
  static const int32_t blocks[] = {1, 4, 2}, experts[] = {8, 8, 32};
  uint64_t random = 80 + (uint64_t)_i;
  problem p;
  tiny_problem(&p, &random, blocks[_i], experts[_i], false);
  HEC_OPENED(hec_reference) *r = hec_reference_of_steps(&p.steps);
  for (int kind = HEC_NO_FAULT + 1; kind < HEC_N_FAULTS; kind++) {
    double min = min_fault(&p, r, (hec_fault_kind)kind, &random, 6);
    printf("fault %d: at least %.1f tolerances\n", kind, min);
    ck_assert_double_gt(min, 2);
  }
  hec_arena_free(&p.arena);
}

/* Exact mode: any difference is one. A wrong weight is one only where the neighbour's differs; stale needs two steps. */
HEC_TEST(faults_are_seen_exactly) {
  static const hec_fault_kind kinds[] = {HEC_DROPPED, HEC_DOUBLED};
  uint64_t random = 90;
  problem p;
  tiny_problem(&p, &random, 1, 8, true);
  HEC_OPENED(hec_reference) *r = hec_reference_of_steps(&p.steps);
  for (int i = 0; i < 2; i++)
    ck_assert_double_gt(min_fault(&p, r, kinds[i], &random, 60), 0);
  hec_arena_free(&p.arena);
}
