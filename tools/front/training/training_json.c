/* The JSON document of a training step: DESIGN section 12. The figures at the top are those of `ep`, what runs without any
 * placement policy; `balanced` has the same with forced balance. */
#include "tools/front/training/training_summary.h"

static void memory(const hec_training_memory *m, hec_json_out *json) {
  hec_json_object(json, "memory");
  hec_json_double(json, "peak_bytes", m->peak);
  hec_json_double(json, "reserved_bytes", m->reserved);
  hec_json_double(json, "outside_bytes", m->outside);
  hec_json_double(json, "device_bytes", m->device_bytes);
  hec_json_double(json, "margin_bytes", m->margin);
  hec_json_bool(json, "fits", m->fits);
  hec_json_int(json, "stage", m->device);
  hec_json_double(json, "at_s", m->at_s);
  hec_json_int(json, "in_flight", m->in_flight);
  hec_json_object(json, "parts");
  hec_json_double(json, "parameters", m->parts.parameters);
  hec_json_double(json, "gradients", m->parts.gradients);
  hec_json_double(json, "optimizer", m->parts.optimizer);
  hec_json_double(json, "activations", m->parts.activations);
  hec_json_double(json, "logits", m->parts.logits);
  hec_json_double(json, "copies", m->parts.copies);
  hec_json_double(json, "buffers", m->parts.buffers);
  hec_json_close(json);
  hec_json_close(json);
}

static void figures(const hec_training_result *r, hec_json_out *json) {
  hec_json_double(json, "step_s", r->step_s);
  hec_json_double(json, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu);
  hec_json_double(json, "model_tflops_per_gpu", r->model_tflops_per_gpu);
  hec_json_double(json, "mfu", r->mfu);
  hec_json_double(json, "gpu_hours_per_1e12_tokens", r->gpu_hours_per_1e12_tokens);
  hec_json_double(json, "bubble_share", r->bubble_s / r->step_s);
  hec_json_double(json, "dispatch_share", r->dispatch_s / r->step_s);
  hec_json_double(json, "tensor_share", r->tensor_s / r->step_s);
  hec_json_double(json, "data_share", (r->data_s + r->sharded_s) / r->step_s);
  memory(&r->memory, json);
}

static void layout(const hec_set_up *set_up, hec_json_out *json) {
  const hec_layout *l = &set_up->training.layout;
  const struct {
    const char *key;
    int32_t value;
  } sizes[] = {{"gpus", l->gpus}, {"tp", l->tp},   {"cp", l->cp}, {"pp", l->pp},  {"vpp", l->vpp},
               {"ep", l->ep},     {"etp", l->etp}, {"dp", l->dp}, {"edp", l->edp}};
  hec_json_object(json, "layout");
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    hec_json_int(json, sizes[i].key, sizes[i].value);
  if (l->n_given > 0)
    hec_json_ints(json, "layers", l->given, l->n_given);
  hec_json_close(json);
}

const char *hec_training_pipeline_name(const hec_set_up *set_up) {
  const hec_layout *l = &set_up->training.layout;
  return set_up->pipeline ? set_up->pipeline->name : l->vpp > 1 && l->pp > 1 ? "interleaved" : "1f1b";
}

static void job(const hec_training_summary *s, hec_json_out *json) {
  const hec_set_up *set_up = s->set_up;
  const hec_training *t = &set_up->training;
  hec_text recipe = {0};
  hec_recipe_write(&t->recipe, &recipe);
  layout(set_up, json);
  hec_json_string(json, "pipeline", hec_training_pipeline_name(set_up));
  hec_json_string(json, "recipe", recipe.data);
  hec_json_int(json, "seq", t->seq);
  hec_json_int(json, "global_batch", t->global_batch);
  hec_json_int(json, "micro_batch", t->micro_batch);
  hec_json_int(json, "micro_batches", hec_training_micro_batches(t));
  hec_json_int(json, "mtp", t->mtp);
  if (t->capacity > 0)
    hec_json_double(json, "capacity", t->capacity);
  hec_json_int(json, "records", s->n_records);
  hec_json_int(json, "records_before", s->n_before);
  hec_json_double(json, "factor", s->factor);
  hec_json_object(json, "band");
  hec_json_string(json, "of", hec_training_band(s)->name);
  hec_json_double(json, "half_within", hec_training_band(s)->half);
  hec_json_double(json, "nine_of_ten_factor", hec_training_band(s)->nine);
  hec_json_close(json);
  hec_json_strings(json, "assumed", set_up->assumed, set_up->n_assumed);
  hec_text_free(&recipe);
}

static void row(const hec_training_summary *s, const hec_training_row *r, hec_json_out *json) {
  hec_json_object(json, NULL);
  hec_json_string(json, "name", r->policy->name);
  figures(&r->result, json);
  hec_json_double(json, "gather_share", r->result.gather_s / r->result.step_s);
  hec_json_double(json, "moves_share", r->moves_s / r->result.step_s);
  hec_json_double(json, "speedup_vs_ep", s->rows[s->baseline].result.step_s / r->result.step_s);
  hec_json_object(json, "overload_factor");
  hec_json_double(json, "median", r->overload_median);
  hec_json_double(json, "p95", r->overload_p95);
  hec_json_close(json);
  if (r->dropped_share > 0) {
    hec_json_double(json, "dropped_share", r->dropped_share);
    hec_json_double(json, "computed_tokens_per_s_per_gpu", (1 - r->dropped_share) * r->result.tokens_per_s_per_gpu);
  }
  hec_json_close(json);
}

void hec_training_json(const hec_training_summary *s, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  const hec_trace_header *header = &s->set_up->job.header;
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  hec_json_string(&json, "tool", s->tool);
  hec_json_string(&json, "trace", header->name[0] ? header->name : s->trace);
  hec_json_bool(&json, "synthetic", header->synthetic != NULL);
  hec_json_string(&json, "setup", s->set_up->file.name);
  hec_json_string(&json, "model", s->set_up->moe.name);
  hec_json_string(&json, "gpu", s->set_up->laws.gpu.name);
  job(s, &json);
  figures(&s->rows[s->baseline].result, &json);
  hec_json_object(&json, "balanced");
  figures(&s->balanced, &json);
  hec_json_close(&json);
  hec_json_array(&json, "policies");
  for (int32_t i = 0; i < s->n_rows; i++)
    row(s, &s->rows[i], &json);
  hec_json_close(&json);
  hec_json_close(&json);
}
