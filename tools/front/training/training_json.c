/* The JSON document of a training step: DESIGN section 12. The figures at the top are those of `ep`, what runs without any
 * placement policy; `balanced` has the same with forced balance. */
#include "tools/front/training/training_summary.h"

#include "runtime/base/value.h"

static void memory(const hec_training_memory *m, hec_json_out *json) {
  HEC_JSON(json,
           HEC_OBJECT("memory", HEC_REAL("peak_bytes", m->peak), HEC_REAL("reserved_bytes", m->reserved),
                      HEC_REAL("outside_bytes", m->outside), HEC_REAL("device_bytes", m->device_bytes),
                      HEC_REAL("margin_bytes", m->margin), HEC_BOOL("fits", m->fits), HEC_INT("stage", m->device),
                      HEC_REAL("at_s", m->at_s), HEC_INT("in_flight", m->in_flight),
                      HEC_OBJECT("parts", HEC_REAL("parameters", m->parts.parameters),
                                 HEC_REAL("gradients", m->parts.gradients), HEC_REAL("optimizer", m->parts.optimizer),
                                 HEC_REAL("activations", m->parts.activations), HEC_REAL("logits", m->parts.logits),
                                 HEC_REAL("copies", m->parts.copies), HEC_REAL("buffers", m->parts.buffers))));
}

static void figures(const hec_training_result *r, hec_json_out *json) {
  HEC_JSON(json, HEC_REAL("step_s", r->step_s), HEC_REAL("tokens_per_s_per_gpu", r->tokens_per_s_per_gpu),
           HEC_REAL("model_tflops_per_gpu", r->model_tflops_per_gpu), HEC_REAL("mfu", r->mfu),
           HEC_REAL("gpu_hours_per_1e12_tokens", r->gpu_hours_per_1e12_tokens),
           HEC_REAL("bubble_share", r->bubble_s / r->step_s), HEC_REAL("dispatch_share", r->dispatch_s / r->step_s),
           HEC_REAL("tensor_share", r->tensor_s / r->step_s),
           HEC_REAL("data_share", (r->data_s + r->sharded_s) / r->step_s));
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
  HEC_SCOPED(hec_text) recipe = {0};
  hec_recipe_write(&t->recipe, &recipe);
  layout(set_up, json);
  HEC_JSON(json, HEC_TEXT("pipeline", hec_training_pipeline_name(set_up)), HEC_TEXT("recipe", recipe.data),
           HEC_INT("seq", t->seq), HEC_INT("global_batch", t->global_batch), HEC_INT("micro_batch", t->micro_batch),
           HEC_INT("micro_batches", hec_training_micro_batches(t)), HEC_INT("mtp", t->mtp));
  if (t->capacity > 0)
    hec_json_double(json, "capacity", t->capacity);
  HEC_JSON(json, HEC_INT("records", s->n_records), HEC_INT("records_before", s->n_before),
           HEC_REAL("factor", s->factor),
           HEC_OBJECT("band", HEC_TEXT("of", hec_training_band(s)->name),
                      HEC_REAL("half_within", hec_training_band(s)->half),
                      HEC_REAL("nine_of_ten_factor", hec_training_band(s)->nine)));
  hec_json_strings(json, "assumed", set_up->assumed, set_up->n_assumed);
}

static void row(const hec_training_summary *s, const hec_training_row *r, hec_json_out *json) {
  hec_json_object(json, NULL);
  hec_json_string(json, "name", r->policy->name);
  figures(&r->result, json);
  HEC_JSON(json, HEC_REAL("gather_share", r->result.gather_s / r->result.step_s),
           HEC_REAL("moves_share", r->moves_s / r->result.step_s),
           HEC_REAL("speedup_vs_ep", s->rows[s->baseline].result.step_s / r->result.step_s),
           HEC_OBJECT("overload_factor", HEC_REAL("median", r->overload_median), HEC_REAL("p95", r->overload_p95)));
  if (r->dropped_share > 0) {
    HEC_JSON(json, HEC_REAL("dropped_share", r->dropped_share),
             HEC_REAL("computed_tokens_per_s_per_gpu", (1 - r->dropped_share) * r->result.tokens_per_s_per_gpu));
  }
  hec_json_close(json);
}

void hec_training_json(const hec_training_summary *s, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  const hec_trace_header *header = &s->set_up->job.header;
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("version", 1), HEC_TEXT("tool", s->tool),
           HEC_TEXT("trace", header->name[0] ? header->name : s->trace),
           HEC_BOOL("synthetic", header->synthetic != NULL), HEC_TEXT("setup", s->set_up->file.name),
           HEC_TEXT("model", s->set_up->moe.name), HEC_TEXT("gpu", s->set_up->laws.gpu.name));
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
