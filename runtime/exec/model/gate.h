/* Gates: from h2 [T, d] to which experts each token goes to and with which weights. A gate is a row:
 *
 *     score      affinities [T, E] from h2 and the gate's parameters           (forward, kept by the block)
 *     choose     assignments from affinities; the rules of ties, capacities and chance are the gate's
 *     weigh      a weight per assignment from affinities
 *     backward   from the weights' gradients (and a balance loss) to those of the parameters and of h2
 *
 * Choices are constants of the derivative. A choice may look only at the affinities and at what hec_gate_call says. So
 * whoever has the affinities can make it again (the check does). Nothing of it depends on ranks, threads or the policy.
 * Replay forces the choice and has the default gate, softmax; the others compute on the host's memory. */
#pragma once
#include "runtime/base/option.h"
#include "runtime/exec/model/model.h"

typedef struct {
  hec_processor *on;
  const hec_model *model;
  const float *params; /* of the gate */
  int32_t tokens;
  const float *h2; /* [T, d] */
  float *affinity; /* [T, E]; score writes it */
  float *scratch;  /* score: [scratch]; backward: T * E more */
} hec_gate_pass;

typedef struct {
  int64_t step, first; /* number of the first token in the step: over micro-batches and ranks, as in hec_corpus_place */
  int32_t layer;
  const float *bias; /* [E] of hec_bias_update; NULL: none */
  hec_arena *arena;  /* for what is not needed afterwards */
} hec_gate_call;

struct hec_gate {
  const char *name, *summary, *source;
  const char *caution;       /* what a user must know of its results; NULL: nothing */
  const hec_option *options; /* fields of hec_gate_options; NULL: none */
  bool varies;               /* the number of experts is not the same for every token */
  bool drops;                /* a capacity may take assignments back */
  bool unnormalised;         /* a token's affinities do not sum to 1 */
  bool biased;               /* its choice can be biased (hec_bias_update) */
  bool balanced;             /* every expert gets the same by construction: nothing else may balance it */
  /* The factor that differences of scores, and rounding among them, have before the softmax; NULL: 1. */
  double (*sharpness)(const hec_model *model);
  /* HEC_BAD_INPUT for shapes it cannot work on; NULL: there are none. */
  hec_status (*check)(const hec_model *model, int32_t tokens);
  int64_t (*size)(const hec_model *model);                    /* parameters; NULL: one matrix [d, E] */
  int64_t (*scratch)(const hec_model *model, int32_t tokens); /* floats; NULL: none */
  void (*init)(const hec_model *model, float *params); /* over normal values of variance 1 / d; NULL: they stay */
  void (*score)(const hec_gate_pass *pass);
  void (*choose)(const hec_model *model, const hec_gate_call *call, const float *affinity, int32_t tokens,
                 hec_assignments *out);
  void (*weigh)(const hec_model *model, const float *affinity, hec_assignments *a); /* NULL: the affinity */
  void (*backward)(const hec_gate_pass *pass, const hec_assignments *a, float *grads, float *dh2); /* both += */
};

/* One row per gate: gates/NAME.c. */
#define HEC_GATE_LIST(X) X(softmax) X(gshard) X(sigmoid) X(xmoe) X(expert_choice)
#define HEC_GATE_DECLARE(name) extern const hec_gate hec_gate_##name;
HEC_GATE_LIST(HEC_GATE_DECLARE)
extern const hec_gate *const hec_gates[]; /* ends with NULL */

/* "NAME" or "NAME:option=value,option=value". */
hec_status hec_gate_parse(const char *text, const hec_gate **gate, hec_gate_options *options) HEC_MUST_USE;
/* "gshard:capacity=1.25": the gate and the options that were given. */
void hec_gate_describe(const hec_model *model, hec_text *out);
/* Gives a model its gate; before the problem is made of model->moe. */
hec_status hec_gate_set(hec_model *model, const hec_gate *gate, const hec_gate_options *options) HEC_MUST_USE;
/* HEC_BAD_INPUT when the gate cannot work on this many tokens of a rank. */
hec_status hec_gate_check(const hec_model *model, int32_t tokens) HEC_MUST_USE;

/* "none", "aux=COEFFICIENT", "bias=RATE" or both, with a comma. */
typedef struct {
  double aux, bias; /* 0: not */
} hec_balancing;
hec_status hec_balancing_parse(const char *text, hec_balancing *balancing) HEC_MUST_USE;

int64_t hec_gate_size(const hec_model *model);
int64_t hec_gate_scratch_size(const hec_model *model, int32_t tokens);
/* Tokens of a group; assignments that an expert takes of one at most. */
int32_t hec_gate_group(const hec_model *model, int32_t tokens);

/* ---- For rows ---- */

/* Options of gates that drop by capacity: capacity and group. */
extern const hec_option hec_gate_capacity_options[];

/* A number in [0, 1), a function of the seed and these alone. */
float hec_gate_random(const hec_model *model, int64_t step, int32_t layer, int64_t token);
/* affinity = h2 W;  grads += h2^T dl, dh2 += dl W^T. */
void hec_gate_linear(const hec_gate_pass *pass);
void hec_gate_linear_backward(const hec_gate_pass *pass, const float *dl, float *grads, float *dh2);
void hec_gate_softmax_score(const hec_gate_pass *pass);
/* d [T, E]: gradient by probabilities in, by what the softmax was of out. */
void hec_gate_softmax_back(const hec_gate_pass *pass, float *d);
/* Where the weight is the probability. */
void hec_gate_softmax_backward(const hec_gate_pass *pass, const hec_assignments *a, float *grads, float *dh2);
void hec_gate_choose_top_k(const hec_model *model, const hec_gate_call *call, const float *affinity, int32_t tokens,
                           hec_assignments *out);
/* The list of chosen [T, E] (0 or 1). */
void hec_gate_list(const hec_model *model, const uint8_t *chosen, int32_t tokens, hec_assignments *out);
