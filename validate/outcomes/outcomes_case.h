/* A recorded outcome of a real system: what every rank computed, layer by layer, and what it took. The form is that of
 * cases/outcomes/laer_mixtral_8x7b_e16k4.json:
 *   layers, ranks, nodes, gpus_per_node, top_k, expert_slots_per_rank      whole numbers
 *   iterations[i].FSDP|FLEX|LAER[layer][rank]     assignments computed there in one forward of one micro-batch
 *   measured_breakdown.FSDP|FLEX|LAER             alltoall_s_per_rank, expert_s_per_rank [rank], step_s
 *   measured_end_to_end[]                         optional: dataset, method, aux_loss, avg_iteration_ms; taken is the
 *                                                 wikitext run without auxiliary loss, the one the loads are from */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/status.h"

#include <stdint.h>

/* Methods, slowest first: the order that was measured and must be kept. */
#define HEC_METHOD_LIST(X)                                                                                             \
  X(FSDP, "FSDP + static EP")                                                                                          \
  X(FLEX, "FlexMoE-style")                                                                                             \
  X(LAER, "LAER")
#define HEC_METHOD_ENUM(key, text) HEC_METHOD_##key,
typedef enum { HEC_METHOD_LIST(HEC_METHOD_ENUM) HEC_N_METHODS } hec_method;
extern const char *const hec_method_key[HEC_N_METHODS], *const hec_method_name[HEC_N_METHODS];

typedef struct {
  double *alltoall_s, *expert_s; /* [n_ranks] of one profiled step */
  double alltoall_mean_s, expert_mean_s;
  double step_s;
  double end_to_end_s; /* mean of many iterations; 0: not in the file */
} hec_outcome_measured;

typedef struct {
  char name[64];
  int32_t n_layers, n_ranks, n_nodes, devices_per_node, top_k, slots;
  int32_t n_entries;             /* recorded micro-batches */
  int32_t **load[HEC_N_METHODS]; /* [n_entries] of [n_layers * n_ranks] */
  hec_outcome_measured measured[HEC_N_METHODS];
} hec_outcome_case;

/* Memory from the arena. HEC_BAD_INPUT with file, line and path. */
hec_status hec_outcome_case_read(const char *path, hec_arena *arena, hec_outcome_case *out) HEC_MUST_USE;

static inline const int32_t *hec_outcome_load(const hec_outcome_case *c, hec_method method, int32_t entry,
                                              int32_t layer) {
  return c->load[method][entry] + (size_t)layer * (size_t)c->n_ranks;
}
