/* The closed form of a step: stages one after the other, see training.h. */
#include "sim/training.h"

/* Of a send between stages, what the receiver waits for although it has other micro-batches: most are sent early. */
static const double exposed_send = 0.3;

typedef struct {
  double forward_s, backward_s, dispatch_s, tensor_s, dense_params, expert_params;
} device_cost;

static void add_layers(const hec_training *t, hec_layer_kind kind, double times, device_cost *cost) {
  hec_layer_pass forward = hec_layer_pass_of(t, kind, NULL, false), backward = hec_layer_pass_of(t, kind, NULL, true);
  double dense, expert, exposed = t->recipe.overlap ? 1 - t->constants.overlapped : 1;
  hec_training_params(t, kind, &dense, &expert);
  cost->forward_s += times * hec_layer_pass_s(t, &forward);
  cost->backward_s += times * hec_layer_pass_s(t, &backward);
  cost->dispatch_s += times * exposed * (forward.dispatch_s + backward.dispatch_s);
  cost->tensor_s += times * (forward.tensor_s + backward.tensor_s);
  cost->dense_params += times * dense;
  cost->expert_params += times * expert;
}

/* What a device's parts of the model cost in one micro-batch. */
static device_cost device_of(const hec_training *t, int32_t device) {
  const hec_layout *l = &t->layout;
  const hec_moe *moe = t->moe;
  device_cost cost = {0};
  int32_t n_dense = 0, n_moe = 0, first;
  for (int32_t chunk = 0; chunk < l->vpp; chunk++) {
    int32_t n = hec_layout_layers(l, moe, chunk * l->pp + device, &first);
    for (int32_t i = first; i < first + n; i++)
      *(i < moe->n_layers - moe->n_moe_layers ? &n_dense : &n_moe) += 1;
  }
  bool last = device == l->pp - 1;
  n_moe += last ? t->mtp : 0;
  if (n_dense > 0)
    add_layers(t, HEC_LAYER_DENSE, (double)n_dense, &cost);
  if (n_moe > 0)
    add_layers(t, HEC_LAYER_MOE, (double)n_moe, &cost);
  double heads = (double)(1 + t->mtp);
  if (t->recipe.head)
    add_layers(t, HEC_LAYER_HEAD, heads / (double)l->pp, &cost);
  else if (last)
    add_layers(t, HEC_LAYER_HEAD, heads, &cost);
  if (device == 0)
    cost.dense_params += (double)moe->vocabulary * (double)moe->d_model / (double)l->tp;
  return cost;
}

static void figures(const hec_training *t, hec_training_result *r) {
  double tokens = (double)t->global_batch * (double)t->seq, gpus = (double)t->layout.gpus;
  r->tokens_per_s_per_gpu = tokens / r->step_s / gpus;
  r->model_tflops_per_gpu = r->tokens_per_s_per_gpu * hec_training_flops_per_token(t) * 1e-12;
  r->mfu = r->model_tflops_per_gpu * 1e12 / t->laws->gpu.sheet.flops[HEC_LAW_BF16];
  r->gpu_hours_per_1e12_tokens = 1e12 / r->tokens_per_s_per_gpu / 3600;
}

void hec_training_run(const hec_training *t, hec_training_result *r) {
  const hec_layout *l = &t->layout;
  device_cost slowest = {0};
  double sum_s = 0, m = (double)hec_training_micro_batches(t);
  for (int32_t d = 0; d < l->pp; d++) {
    device_cost cost = device_of(t, d);
    sum_s += cost.forward_s + cost.backward_s;
    if (cost.forward_s + cost.backward_s > slowest.forward_s + slowest.backward_s)
      slowest = cost;
  }
  double stage_s = slowest.forward_s + slowest.backward_s;
  double data_s = hec_training_data_s(t, slowest.dense_params, slowest.expert_params);
  double hidden_s = t->recipe.dp_overlap ? t->constants.hidden * stage_s : 0;
  *r = (hec_training_result){0};
  if (t->recipe.zero >= 3) { /* not beside a dispatch that uses the same NICs */
    bool far = (int64_t)l->ep * l->etp > t->laws->gpu.sheet.nvlink_ranks;
    hidden_s -= far ? t->constants.hidden * slowest.dispatch_s : 0;
    double exposed_s = data_s > hidden_s ? data_s - hidden_s : 0;
    r->data_s = m * exposed_s;
    stage_s += exposed_s;
  } else
    r->data_s = data_s > hidden_s ? data_s - hidden_s : 0;
  double sends_s = l->pp > 1 ? exposed_send * 2 * (double)l->vpp * hec_training_send_s(t) : 0;
  stage_s += sends_s;
  r->stage_s = stage_s;
  /* the others' stages may be faster: the pipeline fills with them */
  double fill_s = (sum_s - slowest.forward_s - slowest.backward_s) + (double)(l->pp - 1) * sends_s;
  r->bubble_s = fill_s / (double)l->vpp;
  r->dispatch_s = m * slowest.dispatch_s;
  r->tensor_s = m * slowest.tensor_s;
  r->optimizer_s = hec_training_optimizer_s(t, slowest.dense_params, slowest.expert_params);
  r->step_s = m * stage_s + r->bubble_s + r->optimizer_s + (t->recipe.zero >= 3 ? 0 : r->data_s);
  figures(t, r);
}
