/* What a training step of an MoE model costs under a parallel layout and a recipe. These are closed forms over the cost
 * laws of a GPU, for one micro-batch through one layer of one rank. Code in sim/ puts micro-batches and stages
 * together.
 *
 *   T = seq micro_batch / (tp cp) tokens of a rank, R = top_k T assignments, m = R etp / (experts / ep) rows of an expert
 *
 *   compute   norms, permutation and what else memory binds: laws of kernels alone, times `in_step`;
 *             products feel a quarter of that, attention's core nothing
 *   tensor    all-gather and reduce-scatter of tp and etp groups; not hidden
 *   dispatch  dispatch and combine; `overlapped` of it is hidden where the recipe overlaps
 *   host      launches: a layer never takes less than the host needs for it
 *   layer     max(compute + tensor + dispatch, host)
 *   data      gradients and parameters of the data-parallel groups, once a step (FSDP: in every micro-batch); hidden up to
 *             `hidden` of what a micro-batch takes
 *
 * Five constants are global. Source of the form and of three of them: fitted to the Mixtral-8x22B-G8T8 runs of arXiv
 * 2504.14960 (17 runs on H100, `hecate-validate training --fit g8t8-`), whose traffic is a larger share than in the paper's
 * other model; `hecate-validate training` prints the errors. */
#pragma once
#include "models/training/groups.h"

extern const hec_step_constants hec_step_constants_fitted;
/* "in_step=1.2 nic=0.8": changes those named. */
hec_status hec_step_constants_read(const char *text, hec_step_constants *constants) HEC_MUST_USE;
/* Time of the host per layer between nodes, over that on InfiniBand. */
double hec_step_fabric_host(hec_fabric fabric);

/* One layer of one rank, one direction, seconds. */
typedef struct {
  double compute_s; /* in_step applied; input and weight gradients in the backward pass */
  double weight_s;  /* of compute_s: weight gradients */
  double tensor_s, dispatch_s;
  double host_s;
} hec_layer_pass;
typedef enum { HEC_LAYER_DENSE, HEC_LAYER_MOE, HEC_LAYER_HEAD } hec_layer_kind;

/* What routing gives the busiest rank of an expert-parallel group in one layer of one micro-batch. */
typedef struct {
  const int32_t *rows; /* [n] rows of the experts that it computes, copies too; NULL: balanced */
  int32_t n;
  double received; /* assignments that it receives over the mean: 1 balanced */
  /* At the rank that has most of them: copies gathered for this micro-batch; homes and replicas beyond experts / ep. */
  int32_t guests, replicas;
  int32_t guests_kept; /* of the guests, from forward to backward, and not for the micro-batch before as well */
  bool guests_again;   /* they are dropped, and gathered again for the backward */
  bool guests_ahead;   /* they are gathered while the layer before computes, in its own copies */
} hec_layer_load;

/* The device's laws as training frameworks have them: of its attention kernels the fastest, which they choose by themselves. */
hec_gpu_laws hec_training_laws(const hec_gpu_laws *laws);

/* Rows that the busiest rank's experts compute; load NULL: balanced. */
double hec_layer_rows(const hec_training *t, const hec_layer_load *load);

/* Forward, then backward. */
void hec_layer_passes_of(const hec_training *t, hec_layer_kind kind, const hec_layer_load *load,
                         hec_layer_pass pass[2]);
/* What its dispatch adds to it; its time: hidden parts left out, never less than the host's. */
double hec_layer_exposed_s(const hec_training *t, const hec_layer_pass *pass);
double hec_layer_pass_s(const hec_training *t, const hec_layer_pass *pass);
/* Of hec_layer_pass_s, what the GPU waits for the host's launches. */
double hec_layer_waits_s(const hec_training *t, const hec_layer_pass *pass);

/* Micro-batches of a rank in a step, >= 1. */
int32_t hec_training_micro_batches(const hec_training *t);
/* HEC_BAD_INPUT: the batch does not divide into micro-batches of the data-parallel ranks. */
hec_status hec_training_check(const hec_training *t) HEC_MUST_USE;

/* Of a micro-batch's time, the share beside which data-parallel traffic is hidden. */
double hec_training_hidden(const hec_training *t);
double hec_training_optimizer_s(const hec_training *t, double dense_params, double expert_params);
/* Parameters of one rank in `layers` layers of a kind, split by tp and by ep x etp. */
void hec_training_params(const hec_training *t, hec_layer_kind kind, double *dense, double *expert);

/* FLOPs of one token by the usual definition. They are 6 for each active parameter of a matrix, attention scores (half
 * where causal), and the head. Recomputation is not counted. `dropped`: share of the assignments to experts that is
 * not computed. */
double hec_training_flops_per_token(const hec_training *t, double dropped);
