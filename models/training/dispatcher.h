/* How tokens reach their experts and come back. A dispatcher is one file below dispatchers/ and one row of HEC_DISPATCHER_LIST
 * (recipe.h). */
#ifndef HEC_MODELS_TRAINING_DISPATCHER_H
#define HEC_MODELS_TRAINING_DISPATCHER_H
#include "models/training/groups.h"

typedef struct hec_dispatcher {
  const char *name, *summary, *source;
  const char *megatron_type, *megatron_backend; /* what Megatron-LM calls it; backend NULL: none */
  bool gathers;                                 /* every rank of the group receives all tokens */
  /* Whether it is one for this device: what searches try. NULL: any. */
  bool (*suits)(const hec_gpu *gpu);
  /* Seconds of dispatch and combine together, in one direction of one layer; backward is as long, they swap roles. `received`:
   * assignments at the busiest rank over the mean. The layout's ep is 2 or more. */
  double (*seconds)(const hec_training *t, double received);
} hec_dispatcher;

#define HEC_DISPATCHER_DECLARE(key, name) extern const hec_dispatcher hec_dispatcher_##name;
HEC_DISPATCHER_LIST(HEC_DISPATCHER_DECLARE)
#undef HEC_DISPATCHER_DECLARE
extern const hec_dispatcher *const hec_dispatchers[HEC_N_DISPATCHERS]; /* by hec_recipe.dispatcher */

/* For those that send a token to a node once and on from there inside the node: where a rank's tokens go. */
hec_dispatch_work hec_dispatch_work_of(const hec_training *t);

#endif
