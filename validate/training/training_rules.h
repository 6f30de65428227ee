/* What the columns of a published run mean, and what its row leaves open: the rules of rules/rules.json. */
#ifndef HEC_VALIDATE_TRAINING_RULES_H
#define HEC_VALIDATE_TRAINING_RULES_H
#include "models/json.h"
#include "validate/device/case_file.h"
#include "validate/training/training_case.h"

typedef struct {
  hec_json *json;
  hec_arena *arena;
  struct hec_rule_model {
    const char *name; /* of the rule: preset and layers */
    hec_moe moe;
  } * models; /* [n_models] as they are met */
  int32_t n_models;
  struct hec_rule_gpu {
    const char *name;
    const hec_gpu_laws *laws;
  } * gpus; /* [n_gpus] */
  int32_t n_gpus;
} hec_training_rules;

hec_status hec_training_rules_open(hec_arena *arena, hec_training_rules *rules) HEC_MUST_USE;
void hec_training_rules_close(hec_training_rules *rules);

/* Model and device of the current row, or why_not. */
hec_status hec_training_rules_device(hec_training_rules *rules, const hec_case_file *csv,
                                     hec_training_case *c) HEC_MUST_USE;
/* Fills in the whole set-up of the current row, or why_not. */
hec_status hec_training_rules_apply(hec_training_rules *rules, const hec_case_file *csv,
                                    hec_training_case *c) HEC_MUST_USE;

#endif
