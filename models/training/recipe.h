/* A training recipe: what runs beside the layout and decides the time of a step. As text:
 *
 *     "precision=mxfp8 dispatcher=deepep overlap=on graph=partial recompute=norm+act zero=1"
 *
 * Every part has a default; a part that nobody states is assumed, and hec_recipe_assumed lists it. */
#pragma once
#include "runtime/base/text.h"

typedef enum {
  HEC_PRECISION_BF16,
  HEC_PRECISION_FP8,
  HEC_PRECISION_FP8_BLOCK,
  HEC_PRECISION_MXFP8
} hec_recipe_precision;
/* dispatcher.h */
#define HEC_DISPATCHER_LIST(X) X(ALLTOALL, alltoall) X(ALLGATHER, allgather) X(DEEPEP, deepep) X(HYBRIDEP, hybridep)
#define HEC_DISPATCHER_ENUM(key, name) HEC_DISPATCHER_##key,
typedef enum { HEC_DISPATCHER_LIST(HEC_DISPATCHER_ENUM) HEC_N_DISPATCHERS } hec_dispatcher_kind;
#undef HEC_DISPATCHER_ENUM
/* Between nodes. Collectives were measured over InfiniBand: another fabric changes the host's time (step.c), and how sure an
 * answer is (band.h). */
typedef enum { HEC_FABRIC_INFINIBAND, HEC_FABRIC_ROCE, HEC_FABRIC_EFA } hec_fabric;
typedef enum { HEC_GRAPH_NONE, HEC_GRAPH_PARTIAL, HEC_GRAPH_FULL } hec_cuda_graph;

/* What is computed again in the backward pass: bits. MOE: the whole MoE layer with its dispatch; FULL: every layer. */
enum {
  HEC_RECOMPUTE_NORM = 1,
  HEC_RECOMPUTE_ACT = 2,
  HEC_RECOMPUTE_MLP = 4, /* the FFN of dense layers */
  HEC_RECOMPUTE_ATTENTION = 8,
  HEC_RECOMPUTE_MOE = 16,
  HEC_RECOMPUTE_FULL = 32
};

typedef struct {
  int32_t precision;  /* hec_recipe_precision: of the GEMMs; attention, norms, router and head stay bf16 */
  int32_t dispatcher; /* hec_dispatcher_kind */
  int32_t dispatch;   /* 1: tokens travel to their experts in fp8, and back in bf16; backward, their gradients likewise */
  int32_t overlap;    /* 1: dispatch and combine beside the compute of another micro-batch */
  int32_t graph;      /* hec_cuda_graph */
  int32_t fused;      /* 1: permutation and activation are fused into their neighbours, attention in fp8 */
  int32_t recompute;  /* HEC_RECOMPUTE_* */
  int32_t zero;       /* 0 to 3; 3 is FSDP: parameters are gathered in every micro-batch */
  int32_t grads;      /* bytes of a gradient on the wire: 2 or 4 */
  int32_t dp_overlap; /* 1: data-parallel traffic beside backward and forward; 2: all of it that has room there */
  int32_t head;       /* 1: the head is shared out over the stages (or counted so); 0: on top of the last one */
  int32_t fabric;     /* hec_fabric */
  unsigned stated;    /* bit i: part i of the text form was stated */
} hec_recipe;

hec_recipe hec_recipe_default(void);
/* Reads parts into the recipe; those not named stay as they are. Errors: unknown part or word, with what there is; a
 * part twice; "none" beside other words. */
hec_status hec_recipe_read(const char *text, hec_recipe *recipe) HEC_MUST_USE;
bool hec_recipe_states(const hec_recipe *recipe, const char *part); /* "zero" */
/* From now on the recipe states these parts alone, besides those that `stated` states; `parts` ends with NULL. */
void hec_recipe_state_as(hec_recipe *recipe, const hec_recipe *stated, const char *const *parts);
/* The parts that weigh most are stated: precision, dispatcher, overlap, graph, recompute. */
bool hec_recipe_stated(const hec_recipe *recipe);
void hec_recipe_write(const hec_recipe *recipe, hec_text *text);   /* all parts */
void hec_recipe_assumed(const hec_recipe *recipe, hec_text *text); /* those not stated, as "part=word"; "" if none */
