/* Norms, scores and activations against double loops. Where nothing is summed, also the bytes of the CPU. */
#include "tests/exec/processor_case.h"

#include <math.h>
#include <string.h>

/* The row sizes of all, and the offsets of their arrays. */
static int32_t size_of(int i) {
  hec_case_shift(i % HEC_CASE_SHIFTS);
  return hec_case_sizes[i / HEC_CASE_SHIFTS];
}
enum { LOOPS = HEC_CASE_SIZES * HEC_CASE_SHIFTS };

/* ---- Norms ---- */

static void check_norm(int32_t rows, int32_t d) {
  hec_processor *on = hec_case.on;
  int64_t n = (int64_t)rows * d;
  hec_numbers x = hec_case_random(n), gain = hec_case_random(d), scales = hec_case_poisoned(rows);
  hec_numbers y = hec_case_poisoned(n), dy = hec_case_random(n), dx = hec_case_random(n), dgain = hec_case_random(d);
  double *ey = hec_case_doubles(n), *edx = hec_case_doubles(n), *egain = hec_case_doubles(d);
  double *scale = hec_case_doubles(rows);
  for (int32_t i = 0; rows > 1 && i < d; i++)
    x.x[d + i] *= 1e-4F; /* a row in which the law's 1e-6 counts */
  hec_case_send(x);
  for (int32_t i = 0; i < d; i++)
    egain[i] = (double)dgain.x[i];
  for (int32_t r = 0; r < rows; r++) {
    const float *row = x.x + (int64_t)r * d, *g = dy.x + (int64_t)r * d;
    double square = 0, along = 0;
    for (int32_t i = 0; i < d; i++)
      square += (double)row[i] * (double)row[i];
    double s = scale[r] = 1 / sqrt(square / d + 1e-6);
    for (int32_t i = 0; i < d; i++) {
      ey[(int64_t)r * d + i] = (double)gain.x[i] * (double)row[i] * s;
      along += (double)gain.x[i] * (double)g[i] * (double)row[i];
      egain[i] += (double)g[i] * (double)row[i] * s;
    }
    for (int32_t i = 0; i < d; i++)
      edx[(int64_t)r * d + i] = (double)dx.x[(int64_t)r * d + i] + s * (double)gain.x[i] * (double)g[i] -
                                (double)row[i] * s * s * s * along / d;
  }
  hec_norm norm = {x.at, gain.at, scales.at, rows, d};
  on->math->norm(on, &norm, y.at);
  on->math->norm_backward(on, &norm, dy.at, dx.at, dgain.at);
  hec_case_expect(hec_case_fetch(y), ey, n);
  hec_case_expect(hec_case_fetch(scales), scale, rows);
  hec_case_expect(hec_case_fetch(dx), edx, n);
  /* The CPU adds the rows one after the other. */
  hec_case_near(hec_case_fetch(dgain), egain, d, HEC_CASE_TOLERANCE * (rows > 1000 ? 5 : 1));
  hec_case_expect_bytes(x, x.x);
  hec_case_expect_bytes(dy, dy.x);
}

START_TEST(norms) {
  int32_t d = size_of(_i) + 1;
  for (int32_t rows = 0; rows < 6; rows++)
    check_norm(rows, d);
}
END_TEST

/* Rows that warps and lanes go round more than once with. */
START_TEST(norms_of_many_rows) {
  static const int32_t shapes[][2] = {{31, 5}, {32, 4}, {33, 64}, {300, 37}, {20000, 8}};
  hec_case_shift(_i % HEC_CASE_SHIFTS);
  check_norm(shapes[_i / HEC_CASE_SHIFTS][0], shapes[_i / HEC_CASE_SHIFTS][1]);
}
END_TEST

/* ---- Scores ---- */

static void check_scores(hec_scores s) {
  hec_processor *on = hec_case.on;
  int32_t n = s.n;
  hec_numbers in = hec_case_random(s.rows * n), d = hec_case_random(s.rows * n);
  double *p = hec_case_doubles(s.rows * n), *gradient = hec_case_doubles(s.rows * n);
  for (int64_t i = 0; i < s.rows; i++) {
    int32_t visible = s.visible + (int32_t)(i % s.period) * s.stride;
    double sum = 0, mean = 0;
    for (int32_t j = 0; j < visible; j++)
      sum += exp((double)in.x[i * n + j]);
    for (int32_t j = 0; j < visible; j++) {
      p[i * n + j] = s.linear ? (double)in.x[i * n + j] : exp((double)in.x[i * n + j]) / sum;
      mean += p[i * n + j] * (double)d.x[i * n + j];
    }
    for (int32_t j = 0; j < visible; j++)
      gradient[i * n + j] = s.linear ? (double)d.x[i * n + j] : p[i * n + j] * ((double)d.x[i * n + j] - mean);
  }
  s.x = in.at;
  on->math->softmax(on, &s);
  const float *found = hec_case_fetch(in);
  hec_case_expect(found, p, s.rows * n);
  on->math->softmax_backward(on, &s, d.at);
  const float *backward = hec_case_fetch(d);
  hec_case_expect(backward, gradient, s.rows * n);
  hec_case_expect_bytes(in, found);
  for (int64_t i = 0; i < s.rows * n; i++)
    ck_assert(p[i] != 0 || s.linear || (found[i] == 0 && backward[i] == 0)); /* nothing where nothing is seen */
}

/* Full, causal and linear scores, several blocks of queries in one call. */
START_TEST(scores) {
  for (int form = 0; form < 4; form++) {
    bool causal = form & 1, linear = form & 2;
    int32_t queries = 5, blocks = 3, n = size_of(_i) + queries;
    check_scores((hec_scores){.rows = (int64_t)queries * blocks,
                              .n = n,
                              .visible = causal ? n - queries + 1 : n,
                              .stride = causal,
                              .period = queries,
                              .linear = linear});
  }
}
END_TEST

START_TEST(scores_of_many_rows) {
  hec_case_shift(_i);
  check_scores((hec_scores){.rows = 20000, .n = 6, .visible = 1, .stride = 1, .period = 6});
  check_scores((hec_scores){.rows = 3, .n = 4099, .visible = 4099, .period = 1});
}
END_TEST

/* Large numbers of both signs: no infinity. */
START_TEST(scores_far_apart) {
  hec_numbers x = hec_case_random(4);
  x.x[0] = 3e4F, x.x[1] = -3e4F, x.x[2] = 3e4F, x.x[3] = 2.9e4F;
  hec_case_send(x);
  hec_case.on->math->softmax(hec_case.on, &(hec_scores){.x = x.at, .rows = 1, .n = 4, .visible = 4, .period = 1});
  hec_case_expect(hec_case_fetch(x), (const double[]){0.5, 0, 0.5, 0}, 4);
}
END_TEST

/* ---- Activations ---- */

static double act(hec_activation kind, double x) {
  double sigmoid = 1 / (1 + exp(-(kind == HEC_GELU ? 1.5957691216057308 * (x + 0.044715 * x * x * x) : x)));
  return kind == HEC_RELU ? (x > 0 ? x : 0) : x * sigmoid;
}
static double slope(hec_activation kind, double x) {
  double h = 1e-5;
  return kind == HEC_RELU ? x > 0 : (act(kind, x + h) - act(kind, x - h)) / (2 * h);
}

static const hec_activation kinds[] = {HEC_RELU, HEC_GELU, HEC_SILU};

START_TEST(activations) {
  hec_processor *on = hec_case.on;
  for (int k = 0; k < 6; k++) {
    int32_t f = size_of(_i) + 1, n_matrices = 2 + k % 2, rows = 4, width = n_matrices * f;
    hec_numbers x = hec_case_random((int64_t)rows * width), d = hec_case_random((int64_t)rows * f);
    hec_inner_rows inner = {x.at, rows, f, n_matrices, kinds[k / 2]};
    double *out = hec_case_doubles((int64_t)rows * f), *dz = hec_case_doubles((int64_t)rows * f);
    double *du = hec_case_doubles((int64_t)rows * f);
    for (int32_t r = 0; r < rows; r++)
      for (int32_t i = 0; i < f; i++) {
        double z = (double)x.x[(int64_t)r * width + i];
        double u = n_matrices == 3 ? (double)x.x[(int64_t)r * width + f + i] : 1;
        int64_t at = (int64_t)r * f + i;
        out[at] = act(inner.kind, z) * u;
        dz[at] = (double)d.x[at] * u * slope(inner.kind, z);
        du[at] = (double)d.x[at] * act(inner.kind, z);
      }
    on->math->activate(on, &inner, 1);
    float *now = hec_case_fetch(x);
    for (int32_t r = 0; r < rows; r++) {
      float *last = now + (int64_t)r * width + (int64_t)(n_matrices - 1) * f;
      hec_case_expect(last, out + (int64_t)r * f, f);
      memcpy(last, d.x + (int64_t)r * f, (size_t)f * sizeof *last);
    }
    memcpy(x.x, now, (size_t)x.n * sizeof *now);
    hec_case_send(x);
    on->math->activate_backward(on, &inner, 1);
    now = hec_case_fetch(x);
    for (int32_t r = 0; r < rows; r++) {
      hec_case_expect(now + (int64_t)r * width, dz + (int64_t)r * f, f);
      if (n_matrices == 3)
        hec_case_expect(now + (int64_t)r * width + f, du + (int64_t)r * f, f);
    }
  }
}
END_TEST

/* More than one launch takes, some without rows, one after the other in memory: the CPU's bytes. */
START_TEST(lists_of_activations) {
  enum { LIST = 150, ROWS = 4 };
  hec_processor *on = hec_case.on, *cpu = &hec_processor_cpu;
  hec_inner_rows list[LIST], here[LIST];
  int32_t f = 12 + _i % 2;
  for (int k = 0; k < 6; k++) {
    int32_t width = (2 + k % 2) * f;
    hec_case_shift(_i / 2);
    hec_numbers x = hec_case_random((int64_t)LIST * ROWS * width);
    for (int32_t i = 0; i < LIST; i++) {
      list[i] = (hec_inner_rows){x.at + (int64_t)i * ROWS * width, i * 7 % (ROWS + 1), f, 2 + k % 2, kinds[k / 2]};
      here[i] = list[i];
      here[i].x = x.x + (int64_t)i * ROWS * width;
    }
    on->math->activate(on, list, LIST);
    cpu->math->activate(cpu, here, LIST);
    hec_case_expect_bytes(x, x.x);
    on->math->activate_backward(on, list, LIST);
    cpu->math->activate_backward(cpu, here, LIST);
    float *now = hec_case_fetch(x);
    for (int64_t i = 0; i < x.n; i += f) /* all but the last columns, which are lost */
      ck_assert(i / f % (2 + k % 2) == 1 + k % 2 || memcmp(now + i, x.x + i, (size_t)f * sizeof *now) == 0);
  }
}
END_TEST

TCase *hec_case_rows(void) {
  TCase *c = tcase_create("rows");
  hec_case_fixture(c);
  tcase_add_loop_test(c, norms, 0, LOOPS);
  tcase_add_loop_test(c, norms_of_many_rows, 0, 5 * HEC_CASE_SHIFTS);
  tcase_add_loop_test(c, scores, 0, LOOPS);
  tcase_add_loop_test(c, scores_of_many_rows, 0, HEC_CASE_SHIFTS);
  tcase_add_test(c, scores_far_apart);
  tcase_add_loop_test(c, activations, 0, LOOPS);
  tcase_add_loop_test(c, lists_of_activations, 0, 2 * HEC_CASE_SHIFTS);
  return c;
}
