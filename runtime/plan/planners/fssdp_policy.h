/* What the rows of Hecate share: one implementation, switched by options. */
#ifndef HEC_PLAN_FSSDP_POLICY_H
#define HEC_PLAN_FSSDP_POLICY_H
#include "runtime/plan/policy.h"

typedef struct {
  bool shard;         /* heterogeneous sharding every `period` iterations; else even shards for ever */
  bool materialise;   /* copies: before the gate from the window, after it by calibration */
  bool rematerialise; /* copies live in one pass only and are gathered again in backward */
  /* Not in the paper. Copies only what is predicted to end the layer sooner (weigh.h), calibrates with copies on some ranks
   * too (calibrate.h), and shards by what is copied, where the paper shards by what could be. */
  bool weigh;
} hec_fssdp_options;

void hec_fssdp_policy_init(hec_policy_run *run, hec_fssdp_options options);
void hec_fssdp_policy_decide(hec_policy_run *run);
void hec_fssdp_policy_refine(hec_policy_run *run, int32_t layer, const hec_load *load);

/* The next decision shards afresh from the history as it then is, due or not (`hecate-sim plan --reshard`). Only for
 * rows that share this file; does nothing where sharding is off. */
void hec_fssdp_policy_reshard(hec_policy_run *run);

#endif
