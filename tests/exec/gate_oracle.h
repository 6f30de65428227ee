/* The gates once more, in double, a token at a time, from their definitions: the oracle of values and of gradients. */
#pragma once
#include "runtime/exec/model/gate.h"

void hec_oracle_soften(double *p, int32_t n); /* softmax */
/* Affinities [E] of one token from h2 [d] and the gate's parameters. */
void hec_oracle_affinities(const hec_model *model, const double *params, const double *h2, double *affinity);
/* Weight of the assignment to e of a token whose experts are `chosen` [E]. */
double hec_oracle_weight(const hec_model *model, const double *affinity, const bool *chosen, int32_t e);
/* What a balance loss takes for the token's probability of e. */
double hec_oracle_probability(const hec_model *model, const double *affinity, int32_t e);

/* A copy with this gate, its top-k made fit for it. */
hec_model hec_oracle_gated(const hec_model *model, const char *gate);
