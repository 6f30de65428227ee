/* A training job, and what traffic costs in the groups of its layout: tensor-, expert- and data-parallel ranks, stages. Inside one
 * NVLink domain by the device's laws, across domains by NIC. Across leaf switches it takes at least what their uplinks need for
 * the same transfer of all GPUs below: every GPU is in some group, and the groups do the same at the same time. */
#pragma once
#include "models/gpu_compute.h"
#include "models/training/layout.h"
#include "models/training/recipe.h"

/* Of all models, GPUs and sources: step.h says what of. */
typedef struct {
  double in_step;    /* a kernel that memory binds, in a step over alone; its root: one that math binds */
  double nic;        /* share of the NIC's rate that collectives between nodes reach */
  double hidden;     /* of the time of a micro-batch, beside which data-parallel traffic is hidden */
  double host_s;     /* launches of one layer's forward, no CUDA graph */
  double overlapped; /* of dispatch and combine, where the recipe overlaps them */
} hec_step_constants;

typedef struct {
  const hec_moe *moe;
  const hec_gpu_laws *laws; /* the data sheet has the rates of the job's own cluster */
  hec_layout layout;
  hec_recipe recipe;
  int32_t seq, global_batch, micro_batch; /* tokens; sequences */
  int32_t mtp;                            /* multi-token prediction layers */
  double capacity; /* of an expert, over the mean of what a rank sends to each; 0: none is dropped */
  /* Links of the job's cluster, where it says them; 0: of NVLink the laws of the GPU, else what is assumed below. */
  double nvlink_share, nvlink_latency_s, nic_latency_s;
  int32_t leaf_gpus; /* below a leaf switch, whose uplinks they share; 0: nodes are joined without */
  double uplink;     /* bytes/s of all uplinks of a leaf, one way */
  hec_step_constants constants;
} hec_training;

/* Tokens of a rank in a micro-batch. Whether the job has more than one NVLink domain. */
double hec_training_tokens(const hec_training *t);
bool hec_training_crosses(const hec_training *t);
/* Ranks of such a group that share an NVLink domain; bytes/s of one rank between domains, and inside; what is assumed of links. */
int32_t hec_group_inside(const hec_training *t, int32_t ranks, int32_t stride);
double hec_nic_rate(const hec_training *t);
double hec_nvlink_rate(const hec_training *t);
/* Ranks of such a group below one leaf; seconds of the leaf's uplinks where each of its GPUs sends so many bytes through. */
int32_t hec_group_below(const hec_training *t, int32_t ranks, int32_t stride);
double hec_uplink_s(const hec_training *t, double bytes);
extern const double hec_assumed_nvlink, hec_assumed_latency_s;

/* A collective of `ranks` ranks, `stride` ranks apart, each with a buffer of `bytes` (nccl-tests' size). */
double hec_group_collective_s(const hec_training *t, hec_collective_op op, int32_t ranks, int32_t stride, double bytes);

/* One activation from a stage to the next. */
double hec_training_send_s(const hec_training *t);
/* Data-parallel traffic of a device with so many parameters (dense part, experts), seconds: once a step, or with FSDP in every
 * micro-batch. */
double hec_training_data_s(const hec_training *t, double dense_params, double expert_params);
/* One micro-batch through a layer of which every rank of an expert-parallel group gathers so many parameters from all the others
 * (policy fsdp): they are gathered for the forward, dropped, gathered again for the backward, and gradients go back. */
double hec_training_gathered_s(const hec_training *t, double params);
