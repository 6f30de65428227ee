/* A step as a pipeline of parts: see training.h. */
#include "sim/training.h"

#include "models/compute_cost.h"
#include "sim/pipeline_run.h"

#include <string.h>

/* A load and its layer's price, forward and backward: micro-batches that come back to a record come back to its loads. */
typedef struct {
  hec_layer_load load;
  hec_layer_pass pass[2];
  bool there;
} priced_load;

typedef struct {
  const hec_training_job *job;
  const hec_training *t;
  hec_training merged; /* virtual stages of one stage as one part */
  hec_arena arena;
  int32_t n_micro, n_parts;
  hec_pipeline_order order;
  hec_piece_cost *cost;      /* [n_parts][n_micro] */
  hec_piece_exposed *inside; /* [n_parts][n_micro][2] sums of its layers, forward and backward */
  hec_piece_exposed *passed; /* [pp] of a device's micro-batches */
  double *dense, *expert;    /* [pp] parameters */
  double *replicas;          /* [pp] parameters of copies that stay */
  int32_t *moe_layers;       /* [pp] */
  double *sharded_s;         /* [pp] exposed gathers and reductions of FSDP */
  priced_load *priced;       /* [n_priced] by the address of the rows, a power of two; NULL: no loads */
  size_t n_priced;
} run;

/* Probes linearly; there is always room. */
static const hec_layer_pass *passes_of(run *r, hec_layer_kind kind, const hec_layer_load *load, hec_layer_pass *own) {
  priced_load *at = NULL;
  if (load && load->rows) {
    size_t i = ((uintptr_t)load->rows >> 3) * 0x9e3779b97f4a7c15u;
    for (i &= r->n_priced - 1; r->priced[i].there; i = (i + 1) & (r->n_priced - 1))
      if (memcmp(&r->priced[i].load, load, sizeof *load) == 0)
        return r->priced[i].pass;
    at = &r->priced[i];
    at->load = *load;
    at->there = true;
    own = at->pass;
  }
  hec_layer_passes_of(r->t, kind, load, own);
  return own;
}

/* One layer, or `times` of one, of a part in a micro-batch. Where the schedule runs a forward beside a backward, dispatch and combine
 * are left to it: what it hides is simulated. Elsewhere the constant `overlapped` says what a recipe hides. */
static void add_layer(run *r, int32_t part, int32_t m, hec_layer_kind kind, const hec_layer_load *load, double times) {
  hec_piece_cost *cost = &r->cost[(int64_t)part * r->n_micro + m];
  hec_piece_exposed *both = &r->inside[2 * ((int64_t)part * r->n_micro + m)];
  hec_layer_pass own[2];
  const hec_layer_pass *passes = passes_of(r, kind, load, own);
  for (int backward = 0; backward < 2; backward++) {
    hec_layer_pass pass = passes[backward];
    if (r->order.schedule->pairs) {
      cost->exchange_ps[backward] += hec_seconds_to_ps(times * pass.dispatch_s);
      pass.dispatch_s = 0;
    }
    double s = times * hec_layer_pass_s(r->t, &pass), weight_s = times * pass.weight_s;
    weight_s = weight_s < s ? weight_s : s;
    cost->compute_ps[backward] += hec_seconds_to_ps(backward ? s - weight_s : s);
    cost->compute_ps[HEC_PIECE_WEIGHT_GRADIENT] += backward ? hec_seconds_to_ps(weight_s) : 0;
    hec_piece_exposed *sum = &both[backward];
    sum->dispatch_s += times * hec_layer_exposed_s(r->t, &pass);
    sum->tensor_s += times * pass.tensor_s;
    sum->host_s += times * hec_layer_waits_s(r->t, &pass);
  }
}

/* Head and multi-token prediction, on the last part or counted as shared out. */
static void add_head(run *r, int32_t part, int32_t m) {
  const hec_training *t = r->t;
  double heads = (double)(1 + t->mtp);
  bool last = part == r->n_parts - 1;
  if (last && t->mtp > 0)
    add_layer(r, part, m, HEC_LAYER_MOE, NULL, (double)t->mtp);
  if (t->recipe.head)
    add_layer(r, part, m, HEC_LAYER_HEAD, NULL, heads / (double)r->n_parts);
  else if (last)
    add_layer(r, part, m, HEC_LAYER_HEAD, NULL, heads);
}

/* A layer with its own load, and what its copies of experts cost. */
static void add_loaded(run *r, int32_t part, int32_t m, int32_t layer) {
  int64_t at = (int64_t)layer * r->n_micro + m, piece = (int64_t)part * r->n_micro + m;
  add_layer(r, part, m, HEC_LAYER_MOE, &r->job->loads[at], 1);
  for (int backward = 0; r->job->gather_s && backward < 2; backward++) {
    double s = r->job->gather_s[2 * at + backward];
    r->cost[piece].compute_ps[backward] += hec_seconds_to_ps(s);
    r->inside[2 * piece + backward].gather_s += s;
  }
}

static void add_part(run *r, int32_t part, int32_t m) {
  const hec_moe *moe = r->t->moe;
  int32_t first, n = hec_layout_layers(&r->t->layout, moe, part, &first), n_dense = moe->n_layers - moe->n_moe_layers;
  int32_t dense = first < n_dense ? (first + n < n_dense ? n : n_dense - first) : 0;
  if (dense > 0)
    add_layer(r, part, m, HEC_LAYER_DENSE, NULL, (double)dense);
  if (!r->job->loads && n > dense)
    add_layer(r, part, m, HEC_LAYER_MOE, NULL, (double)(n - dense));
  for (int32_t i = first + dense; r->job->loads && i < first + n; i++)
    add_loaded(r, part, m, i - n_dense);
  add_head(r, part, m);
}

static bool as_before(const run *r, int32_t part, int32_t m) {
  const hec_training_job *job = r->job;
  const hec_moe *moe = r->t->moe;
  int32_t first, n = hec_layout_layers(&r->t->layout, moe, part, &first), n_dense = moe->n_layers - moe->n_moe_layers;
  for (int32_t i = first < n_dense ? n_dense : first; job->loads && i < first + n; i++) {
    int64_t at = (int64_t)(i - n_dense) * r->n_micro + m;
    if (memcmp(&job->loads[at], &job->loads[at - 1], sizeof *job->loads) != 0 ||
        (job->gather_s && memcmp(&job->gather_s[2 * at], &job->gather_s[2 * at - 2], 2 * sizeof(double)) != 0))
      return false;
  }
  return true;
}

/* Micro-batches that cost the same are priced once. */
static void price(run *r) {
  for (int32_t part = 0; part < r->n_parts; part++)
    for (int32_t m = 0; m < r->n_micro; m++) {
      int64_t at = (int64_t)part * r->n_micro + m;
      if (m == 0 || !as_before(r, part, m))
        add_part(r, part, m);
      else {
        r->cost[at] = r->cost[at - 1];
        r->inside[2 * at] = r->inside[2 * at - 2];
        r->inside[2 * at + 1] = r->inside[2 * at - 1];
      }
      for (int backward = 0; backward < 2; backward++) {
        const hec_piece_exposed *of = &r->inside[2 * at + backward];
        hec_piece_exposed *sum = &r->passed[r->order.device[at]];
        sum->dispatch_s += of->dispatch_s;
        sum->tensor_s += of->tensor_s;
        sum->host_s += of->host_s;
        sum->gather_s += of->gather_s;
      }
    }
}

static void count_params(run *r) {
  const hec_training *t = r->t;
  int32_t n_dense = t->moe->n_layers - t->moe->n_moe_layers;
  int32_t n_chunks = r->order.shape.n_chunks;
  for (int32_t at = 0; at < t->layout.pp * n_chunks; at++) {
    int32_t d = at / n_chunks, part = r->order.part[at]; /* dualpipe: on two devices */
    int32_t first, n = hec_layout_layers(&t->layout, t->moe, part, &first);
    double dense, expert;
    for (int32_t i = first; i < first + n; i++) {
      hec_training_params(t, i < n_dense ? HEC_LAYER_DENSE : HEC_LAYER_MOE, &dense, &expert);
      r->moe_layers[d] += i >= n_dense;
      r->dense[d] += dense;
      r->expert[d] += expert;
      if (r->job->loads && i >= n_dense)
        r->replicas[d] += hec_training_replicas(r->job->loads, i - n_dense, r->n_micro) *
                          hec_moe_expert_params(t->moe) / (double)t->layout.etp;
    }
    hec_training_params(t, HEC_LAYER_HEAD, &dense, &expert);
    r->dense[d] += part == 0 ? dense : 0; /* the embedding is as large */
    r->dense[d] += part == r->n_parts - 1 ? dense : 0;
  }
}

/* Of a device in a micro-batch: parameters that data-parallel ranks share (ZeRO-3), and those of a policy that shares experts in the
 * expert-parallel group. NVLink works for one layer while the NICs work for another. */
static double sharded_s(const run *r, int32_t device) {
  const hec_training *t = r->t;
  double experts = r->expert[device] + r->replicas[device];
  double s = t->recipe.zero >= 3 ? hec_training_data_s(t, r->dense[device], experts) : 0;
  if (r->job->sharded == 0)
    return s;
  double params = (double)r->job->sharded * hec_moe_expert_params(t->moe) / (double)t->layout.etp;
  double group_s = (double)r->moe_layers[device] * hec_training_gathered_s(t, params);
  bool apart = hec_group_inside(t, t->layout.ep, t->layout.etp) == t->layout.ep && hec_training_crosses(t);
  return !apart ? s + group_s : s > group_s ? s : group_s;
}

/* FSDP gathers in every micro-batch: what is not hidden beside a part is on top of it. */
static void add_gathers(run *r) {
  const hec_training *t = r->t;
  bool far = hec_group_inside(t, t->layout.ep, t->layout.etp) < t->layout.ep;
  double pieces = (double)r->n_micro * (double)r->n_parts / (double)t->layout.pp; /* forwards of a device */
  double *whole_s = HEC_NEW(&r->arena, double, t->layout.pp);
  for (int32_t d = 0; d < t->layout.pp; d++)
    whole_s[d] = sharded_s(r, d);
  for (int64_t at = 0; at < (int64_t)r->n_parts * r->n_micro; at++) {
    int32_t d = r->order.device[at];
    hec_piece_cost *cost = &r->cost[at];
    double part_s = 1e-12 * (double)(cost->compute_ps[0] + cost->compute_ps[1] + cost->compute_ps[2]);
    part_s -= far ? r->passed[d].dispatch_s / pieces : 0; /* the dispatch has the NICs */
    double exposed_s = whole_s[d] / (double)r->order.shape.n_chunks - hec_training_hidden(t) * part_s;
    exposed_s = exposed_s > 0 ? exposed_s : 0;
    r->sharded_s[d] += exposed_s;
    cost->compute_ps[HEC_PIECE_FORWARD] += hec_seconds_to_ps(exposed_s / 3); /* one gather of three transfers */
    cost->compute_ps[HEC_PIECE_INPUT_GRADIENT] += hec_seconds_to_ps(exposed_s * 2 / 3);
  }
}

static int32_t busiest(const run *r, const hec_pipeline_run *pipeline) {
  int32_t max = 0;
  for (int32_t d = 1; d < r->t->layout.pp; d++)
    max = pipeline->device[d].busy_ps > pipeline->device[max].busy_ps ? d : max;
  return max;
}

static void figures(const hec_training *t, double dropped, hec_training_result *result) {
  double tokens = (double)t->global_batch * (double)t->seq, gpus = (double)t->layout.gpus;
  result->tokens_per_s_per_gpu = tokens / result->step_s / gpus;
  result->model_tflops_per_gpu = result->tokens_per_s_per_gpu * hec_training_flops_per_token(t, dropped) * 1e-12;
  result->mfu = result->model_tflops_per_gpu * 1e12 / t->laws->gpu.sheet.flops[HEC_LAW_BF16];
  result->gpu_hours_per_1e12_tokens = 1e12 / result->tokens_per_s_per_gpu / 3600;
}

/* Dispatch and combine that nothing hid on a device: of a schedule with pairs, what it is busy for beyond computing. */
static double exposed_s(const run *r, int32_t device, double busy_s) {
  double compute_ps = 0;
  if (!r->order.schedule->pairs)
    return r->passed[device].dispatch_s;
  for (int64_t i = 0; i < (int64_t)r->n_parts * r->n_micro; i++)
    for (int k = 0; k < 3 && r->order.device[i] == device; k++)
      compute_ps += (double)r->cost[i].compute_ps[k];
  return busy_s - 1e-12 * compute_ps;
}

static void sum_up(const run *r, const hec_pipeline_run *pipeline, hec_training_result *result) {
  const hec_training *t = r->t;
  int32_t d = busiest(r, pipeline);
  double pipeline_s = 1e-12 * (double)pipeline->step_ps, busy_s = 1e-12 * (double)pipeline->device[d].busy_ps;
  /* With ZeRO all who keep an expert share the update. */
  double updated = r->expert[d] + (t->recipe.zero == 0 ? r->replicas[d] : 0);
  *result = (hec_training_result){.device = d,
                                  .busy_s = busy_s,
                                  .bubble_s = pipeline_s - busy_s,
                                  .dispatch_s = exposed_s(r, d, busy_s),
                                  .tensor_s = r->passed[d].tensor_s,
                                  .host_s = r->passed[d].host_s,
                                  .gather_s = r->passed[d].gather_s,
                                  .sharded_s = r->sharded_s[d],
                                  .optimizer_s = hec_training_optimizer_s(t, r->dense[d], updated)};
  result->data_s = r->job->replicas_s;
  if (t->recipe.zero < 3) { /* FSDP's traffic has all that hides */
    bool far = hec_group_inside(t, t->layout.ep, t->layout.etp) < t->layout.ep;
    double beside_s = busy_s - (far ? result->dispatch_s : 0); /* the dispatch has the NICs */
    double hidden_s = hec_training_hidden(t) * beside_s / (double)r->n_micro;
    double data_s = r->job->replicas_s + hec_training_data_s(t, r->dense[d], r->expert[d]);
    result->data_s = data_s > hidden_s ? data_s - hidden_s : 0;
  }
  result->step_s = pipeline_s + result->data_s + result->optimizer_s + r->job->moves_s;
  figures(t, r->job->dropped_share, result);
}

static hec_status make_order(run *r) {
  const hec_layout *l = &r->t->layout;
  const hec_pipeline_shape shape = {.n_stages = l->pp, .n_chunks = l->vpp, .n_micro_batches = r->n_micro};
  const hec_pipeline_schedule *schedule = r->job->pipeline;
  if (!schedule)
    schedule = hec_pipeline_default(l->pp, l->vpp);
  hec_pipeline_shape wanted = shape;
  if (schedule->max_chunks < wanted.n_chunks && l->pp == 1)
    wanted.n_chunks = 1; /* virtual stages of one stage are one part */
  if (schedule->copies > 1 && l->vpp == 1)
    wanted.n_chunks = 0; /* each part on two devices: two parts of the layout a device */
  return hec_pipeline_order_make(schedule, &wanted, &r->arena, &r->order);
}

/* The layout's parts are the order's. */
static hec_status match_parts(run *r) {
  const hec_layout *l = &r->t->layout;
  r->n_parts = r->order.n_parts;
  if (l->pp == 1 && r->n_parts == 1 && l->vpp > 1) {
    r->merged = *r->t;
    r->merged.layout.vpp = 1;
    r->merged.layout.n_given = 0;
    r->t = &r->merged;
  }
  if (r->n_parts == r->t->layout.pp * r->t->layout.vpp)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "pipeline %s: expected a layout of %d virtual stages, found pp=%d vpp=%d; use vpp=%d",
                  r->order.schedule->name, (int)r->n_parts, (int)l->pp, (int)l->vpp,
                  (int)(r->n_parts > l->pp ? r->n_parts / l->pp : 1));
}

/* At most half full. */
static void make_room(run *r) {
  size_t n = 1;
  while (n < 2 * (size_t)r->t->moe->n_moe_layers * (size_t)r->n_micro)
    n *= 2;
  r->n_priced = n;
  r->priced = HEC_NEW(&r->arena, priced_load, n);
}

static hec_status run_it(run *r, hec_pipeline_run *pipeline, hec_training_result *result) {
  int32_t pp = r->t->layout.pp;
  HEC_TRY(make_order(r));
  HEC_TRY(match_parts(r));
  r->cost = HEC_NEW(&r->arena, hec_piece_cost, (int64_t)r->n_parts * r->n_micro);
  r->inside = HEC_NEW(&r->arena, hec_piece_exposed, 2 * (int64_t)r->n_parts * r->n_micro);
  r->passed = HEC_NEW(&r->arena, hec_piece_exposed, pp);
  r->dense = HEC_NEW(&r->arena, double, pp);
  r->expert = HEC_NEW(&r->arena, double, pp);
  r->replicas = HEC_NEW(&r->arena, double, pp);
  r->moe_layers = HEC_NEW(&r->arena, int32_t, pp);
  r->sharded_s = HEC_NEW(&r->arena, double, pp);
  int64_t *send_ps = HEC_NEW(&r->arena, int64_t, r->n_parts);
  for (int32_t i = 0; i + 1 < r->n_parts; i++)
    send_ps[i] = hec_seconds_to_ps(hec_training_send_s(r->t));
  if (r->job->loads)
    make_room(r);
  price(r);
  count_params(r);
  if (r->t->recipe.zero >= 3 || r->job->sharded > 0)
    add_gathers(r);
  const hec_pipeline_costs costs = {.piece = r->cost, .send_ps = send_ps};
  HEC_TRY(hec_pipeline_run_make(&r->order, &costs, &r->arena, pipeline));
  sum_up(r, pipeline, result);
  hec_training_memory_of(r->t, r->job->loads, &r->order, pipeline, NULL, &result->memory);
  return HEC_OK;
}

hec_status hec_training_run_pieces(const hec_training_job *job, hec_training_pieces *pieces,
                                   hec_training_result *result) {
  run r = {.job = job, .t = job->training, .n_micro = hec_training_micro_batches(job->training)};
  hec_pipeline_run pipeline;
  hec_status status = run_it(&r, &pipeline, result);
  if (!pieces || status != HEC_OK) {
    hec_arena_free(&r.arena);
    return status;
  }
  *pieces = (hec_training_pieces){.order = r.order,
                                  .run = pipeline,
                                  .cost = r.cost,
                                  .exposed = r.inside,
                                  .send_ps = r.n_parts > 1 ? hec_seconds_to_ps(hec_training_send_s(r.t)) : 0,
                                  .memory = HEC_NEW(&r.arena, hec_memory_parts, r.order.n_pieces)};
  hec_training_memory_over(r.t, job->loads, &r.order, pieces->memory);
  pieces->arena = r.arena;
  return HEC_OK;
}

hec_status hec_training_run(const hec_training_job *job, hec_training_result *result) {
  return hec_training_run_pieces(job, NULL, result);
}
