/* See gate_oracle.h. */
#include "tests/exec/gate_oracle.h"

#include "tests/support/check_main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void hec_oracle_soften(double *p, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; i++)
    sum += exp(p[i]);
  for (int32_t i = 0; i < n; i++)
    p[i] = exp(p[i]) / sum;
}

static double length(const double *x, int32_t n) {
  double square = 1e-12;
  for (int32_t i = 0; i < n; i++)
    square += x[i] * x[i];
  return sqrt(square);
}

static void cosines(const hec_model *m, const double *params, const double *h2, double *affinity) {
  int32_t d = m->moe.d_model, rank = m->gate_options.rank;
  if (rank == 0)
    rank = m->n_experts / 2 > 2 ? m->n_experts / 2 : 2;
  const double *vectors = params + (ptrdiff_t)d * rank, *theta = vectors + (ptrdiff_t)m->n_experts * rank;
  double *z = calloc((size_t)rank, sizeof *z);
  double sharp = m->gate_options.temperature > 0 ? 1 / m->gate_options.temperature : fmin(100, exp(*theta));
  for (int32_t j = 0; j < rank; j++)
    for (int32_t i = 0; i < d; i++)
      z[j] += h2[i] * params[(ptrdiff_t)i * rank + j];
  for (int32_t e = 0; e < m->n_experts; e++) {
    double dot = 0;
    for (int32_t j = 0; j < rank; j++)
      dot += z[j] * vectors[(ptrdiff_t)e * rank + j];
    affinity[e] = sharp * dot / (length(z, rank) * length(vectors + (ptrdiff_t)e * rank, rank));
  }
  free(z);
}

void hec_oracle_affinities(const hec_model *m, const double *params, const double *h2, double *affinity) {
  if (m->gate == &hec_gate_xmoe)
    cosines(m, params, h2, affinity);
  for (int32_t e = 0; m->gate != &hec_gate_xmoe && e < m->n_experts; e++) {
    affinity[e] = 0;
    for (int32_t i = 0; i < m->moe.d_model; i++)
      affinity[e] += h2[i] * params[(ptrdiff_t)i * m->n_experts + e];
    if (m->gate == &hec_gate_sigmoid)
      affinity[e] = 1 / (1 + exp(-affinity[e]));
  }
  if (m->gate != &hec_gate_sigmoid)
    hec_oracle_soften(affinity, m->n_experts);
}

double hec_oracle_weight(const hec_model *m, const double *affinity, const bool *chosen, int32_t e) {
  double sum = 0, best = 0;
  for (int32_t i = 0; i < m->n_experts; i++) {
    sum += chosen[i] ? affinity[i] : 0;
    best = i != e && affinity[i] > best ? affinity[i] : best;
  }
  if (m->gate == &hec_gate_sigmoid)
    return affinity[e] / sum;
  return m->gate == &hec_gate_gshard ? affinity[e] / (affinity[e] + best) : affinity[e];
}

double hec_oracle_probability(const hec_model *m, const double *affinity, int32_t e) {
  double sum = 0;
  for (int32_t i = 0; i < m->n_experts; i++)
    sum += affinity[i];
  return affinity[e] / sum;
}

hec_model hec_oracle_gated(const hec_model *model, const char *text) {
  hec_model made = *model;
  const hec_gate *gate;
  hec_gate_options options;
  ck_assert_msg(hec_gate_parse(text, &gate, &options) == HEC_OK, "%s", hec_last_error());
  if (gate == &hec_gate_gshard) {
    made.n_experts = made.moe.n_experts = made.n_experts > 2 ? made.n_experts : 2;
    made.top_k = made.moe.top_k = 2;
  }
  ck_assert_msg(hec_gate_set(&made, gate, &options) == HEC_OK, "%s", hec_last_error());
  return made;
}
