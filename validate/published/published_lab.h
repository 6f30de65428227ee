/* The published set-ups under one choice of the unknown inputs: each cell (setting, model, policy, options) is
 * simulated when it is first asked for, then kept. */
#ifndef HEC_VALIDATE_PUBLISHED_LAB_H
#define HEC_VALIDATE_PUBLISHED_LAB_H
#include "validate/published/published_cell.h"

/* Clusters and sizes of the paper's evaluation. */
#define HEC_SETTING_LIST(X)                                                                                            \
  X(A16, "A, 16 GPUs", 0, 16) X(A32, "A, 32 GPUs", 0, 32) X(B16, "B, 16 GPUs", 1, 16) X(B32, "B, 32 GPUs", 1, 32)
#define HEC_SETTING_ENUM(name, text, cluster, ranks) HEC_SETTING_##name,
typedef enum { HEC_SETTING_LIST(HEC_SETTING_ENUM) HEC_N_SETTINGS } hec_setting;
extern const char *const hec_setting_name[HEC_N_SETTINGS];

enum { HEC_GPT_S, HEC_GPT_L, HEC_BERT, HEC_BERT_DEEP, HEC_N_PUBLISHED_MODELS };
extern const char *const hec_published_model[HEC_N_PUBLISHED_MODELS];

/* The models that rows over "all models" go through (--quick: fewer). */
typedef struct {
  int32_t n, model[HEC_N_PUBLISHED_MODELS];
} hec_lab_models;

/* What the paper does not state. */
typedef struct {
  int32_t tokens;      /* per GPU and micro-batch */
  double nonmoe_scale; /* factor on the time of the non-MoE part */
  double sigma;        /* gate skew of the synthetic loads: standard deviation of log popularity */
  double nic_share;    /* of the node's network rate that is there */
  int32_t m;           /* copies per GPU and layer; HEC_AUTO: what fits */
  int32_t t;           /* overlap degree; HEC_T_PAPER: the paper's formula; HEC_AUTO: the cost model's own */
  bool still;          /* synthetic popularity does not drift */
} hec_published_inputs;

typedef struct {
  hec_setting setting;
  int32_t model;
  const char *policy;
  int32_t tokens, period, slots, t; /* 0 and HEC_AUTO: as the inputs and the policy have it */
  bool sweep;                       /* run over more iterations (periods up to 100) */
} hec_lab_key;

typedef struct {
  const char *cluster[2];                              /* A, B */
  int32_t n_iterations, warmup, n_sweep, sweep_warmup; /* run; of them not reported */
  hec_loads_store *loads;
} hec_lab_options;

typedef struct hec_lab hec_lab;

/* Fails on an unknown cluster, or one with fewer devices than 32, or loads that cannot be made. */
hec_status hec_lab_new(const hec_lab_options *options, const hec_published_inputs *inputs, hec_loads_kind kind,
                       hec_lab **lab) HEC_MUST_USE;
void hec_lab_free(hec_lab *lab);
const hec_published_inputs *hec_lab_inputs(const hec_lab *lab);

/* Never fails: an unknown policy is our bug. */
const hec_lab_cell *hec_lab_get(hec_lab *lab, hec_lab_key key);
int32_t hec_lab_count(const hec_lab *lab);                                       /* cells simulated so far */
const hec_lab_cell *hec_lab_at(const hec_lab *lab, int32_t i, hec_lab_key *key); /* the i-th of them */

#endif
