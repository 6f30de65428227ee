/* How tokens reach their experts and come back. A dispatcher is one file below dispatchers/ and one row of HEC_DISPATCHER_LIST
 * (recipe.h). Training jobs take `seconds`. Iterations of a trace take what travels from the routing, and `part_s`
 * (runtime/program/dispatched.h). */
#pragma once
#include "models/training/groups.h"
#include "runtime/base/table.h"

typedef struct hec_dispatcher {
  const char *name, *summary, *source;
  const char *megatron_type, *megatron_backend; /* what Megatron-LM calls it; backend NULL: none */
  bool gathers;                                 /* every rank of the group receives all tokens */
  /* Whether it is one for this device: what searches try. NULL: any. */
  bool (*suits)(const hec_gpu *gpu);
  /* Seconds of dispatch and combine together, in one direction of one layer; backward is as long, they swap roles. `received`:
   * assignments at the busiest rank over the mean. The layout's ep is 2 or more. */
  double (*seconds)(const hec_training *t, double received);
  /* Of kernels that send a token to a node once and on from there. Seconds of a rank's part in a dispatch, or (`back`)
   * in a combine; whether the device has what that needs. NULL: rows travel over the network like any others. */
  double (*part_s)(const hec_gpu *gpu, const hec_dispatch_work *work, bool back);
  bool (*can)(const hec_gpu *gpu);
  bool copied; /* by SMs, which nothing else computes on meanwhile */
} hec_dispatcher;

#define HEC_DISPATCHER_DECLARE(key, name) extern const hec_dispatcher hec_dispatcher_##name;
HEC_DISPATCHER_LIST(HEC_DISPATCHER_DECLARE)
#undef HEC_DISPATCHER_DECLARE
extern const hec_dispatcher
    *const hec_dispatchers[HEC_N_DISPATCHERS + 1]; /* by hec_recipe.dispatcher; NULL-terminated */
extern const hec_table hec_dispatcher_table;

/* SMs of a device that copy, where nobody says how many. */
enum { HEC_DISPATCH_SMS = 24 }; /* DeepEP's default of its normal mode is 20, recipes say 20 to 32 */

/* For those that send a token to a node once and on from there inside the node: where a rank's tokens go on their way to their
 * experts (in the precision they travel in), or `back` (in bf16). Uplink: seconds of leaf switches that they cross. */
hec_dispatch_work hec_dispatch_work_of(const hec_training *t, bool back);
double hec_dispatch_uplink_s(const hec_training *t, const hec_dispatch_work *work);
/* Bytes of an element on its way to its expert, or back. */
double hec_dispatch_bytes(const hec_training *t, bool back);
