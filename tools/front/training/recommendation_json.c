/* A recommendation for programs, as flags of Megatron-LM and as a set-up. */
#include "models/cluster.h"
#include "models/preset_data.h"
#include "runtime/base/files.h"
#include "runtime/base/value.h"
#include "tools/front/summary/summary_write.h"
#include "tools/front/training/megatron_flags.h"
#include "tools/front/training/recommendation_words.h"

#include <string.h>

const hec_pipeline_schedule *hec_recommendation_pipeline(const hec_recommended *r) {
  const hec_layout *l = &r->choice.training.layout;
  return r->choice.pipeline ? r->choice.pipeline : hec_pipeline_default(l->pp, l->vpp);
}

void hec_recommendation_megatron(const hec_recommendation *r, bool quoted, hec_text *out, hec_text *differs) {
  hec_megatron_flags(&r->megatron.choice.training, r->megatron.choice.pipeline, quoted, out, differs);
  while (differs->length > 0 && strchr("; ", differs->data[differs->length - 1]))
    differs->data[--differs->length] = '\0';
}

static void add_training(hec_json_out *json, const hec_layout_choice *c) {
  HEC_SCOPED(hec_text) layout = {0}, recipe = {0};
  hec_layout_words(&c->training.layout, &layout);
  hec_recipe_write(&c->training.recipe, &recipe);
  hec_json_string(json, "layout", layout.data);
  if (c->pipeline)
    hec_json_string(json, "pipeline", c->pipeline->name);
  HEC_JSON(json, HEC_INT("micro_batch", c->training.micro_batch), HEC_TEXT("recipe", recipe.data));
}

static void add_choice(hec_json_out *json, const char *key, const hec_recommended *r, const hec_recommended *best) {
  const hec_training_row *row = hec_recommended_row(r);
  hec_json_object(json, key);
  add_training(json, &r->choice);
  HEC_JSON(json, HEC_TEXT("policy", row->policy->name), HEC_REAL("step_s", row->result.step_s),
           HEC_REAL("ep_step_s", r->policies.rows[r->policies.baseline].result.step_s),
           HEC_REAL("balanced_step_s", r->choice.result.step_s),
           HEC_REAL("tokens_per_s_per_gpu", row->result.tokens_per_s_per_gpu), HEC_REAL("mfu", row->result.mfu),
           HEC_REAL("memory_gib", hec_memory_gib(&row->result.memory)),
           HEC_REAL("balanced_memory_gib", hec_memory_gib(&r->choice.result.memory)),
           HEC_BOOL("fits", row->result.memory.fits),
           HEC_BOOL("may_not_fit",
                    hec_recommended_may_not_fit(r)) /* errors of published peaks are larger than what is left */);
  if (best != r) {
    hec_layout_reason reason = hec_recommended_reason(best, r);
    HEC_JSON(json, HEC_TEXT("why", reason.words), HEC_REAL("why_s", reason.seconds));
  }
  hec_json_close(json);
}

/* Those that were predicted with balanced routing alone. */
static void add_losers(const hec_recommendation *r, hec_json_out *json) {
  hec_json_array(json, "losers");
  for (int32_t i = 0; i < r->found.n; i++) {
    const hec_layout_choice *c = &r->found.choices[i];
    HEC_SCOPED(hec_text) layout = {0};
    hec_layout_reason reason = hec_layout_reason_of(&r->rows[0].choice, c);
    hec_layout_words(&c->training.layout, &layout);
    HEC_JSON(json, HEC_OBJECT(NULL, HEC_TEXT("name", layout.data), HEC_REAL("balanced_step_s", c->result.step_s),
                              HEC_TEXT("why", reason.seconds > 0 ? reason.words
                                                                 : "the loads of the trace, or it is recommended")));
  }
  hec_json_close(json);
}

/* `faster_row`: as the table counts; 0: the first never loses. */
static void add_doubt(hec_json_out *json, const char *key, const hec_doubt *doubt) {
  HEC_JSON(json, HEC_OBJECT(key, HEC_INT("tried", doubt->n), HEC_INT("stays_first", doubt->n_first),
                            HEC_REAL("worst_regret", doubt->worst_regret),
                            HEC_INT("faster_row", doubt->faster > 0 ? doubt->faster + 1 : 0)));
}

static void add_job(const hec_set_up *s, hec_json_out *json) {
  HEC_JSON(json, HEC_TEXT("model", s->moe.name), HEC_TEXT("cluster", hec_set_up_cluster(s)),
           HEC_INT("gpus", s->training.layout.gpus), HEC_INT("seq", s->training.seq),
           HEC_INT("global_batch", s->training.global_batch));
}

void hec_recommendation_json(const hec_recommendation *r, hec_text *out) {
  HEC_SCOPED(hec_text) words = {0};
  hec_json_out json = hec_json_begin(out, 2);
  hec_json_object(&json, NULL);
  hec_json_string(&json, "tool", r->tool);
  add_job(r->rows[0].set_up, &json);
  hec_recommendation_verdict(r, &words);
  for (char *at = words.data; *at; at++)
    *at = *at == '\n' ? ' ' : *at;
  HEC_JSON(&json, HEC_TEXT("recommendation", words.data),
           HEC_BOOL("synthetic", r->rows[0].set_up->job.header.synthetic != NULL));
  hec_text_free(&words);
  hec_json_array(&json, "ranked");
  for (int32_t i = 0; i < r->n; i++)
    add_choice(&json, NULL, &r->rows[i], &r->rows[0]);
  hec_json_close(&json);
  add_choice(&json, "without_policy", &r->plain, &r->rows[0]);
  add_choice(&json, "megatron_runs", &r->megatron, &r->rows[0]);
  hec_json_int(&json, "megatron_row", r->megatron_row + 1); /* of the table; 0: no row is run exactly */
  if (r->has_today)
    add_choice(&json, "today", &r->today, &r->rows[0]);
  if (r->has_today_with)
    add_choice(&json, "today_with_that_dispatcher", &r->today_with, &r->rows[0]);
  add_losers(r, &json);
  HEC_JSON(&json,
           HEC_OBJECT("searched", HEC_INT("predicted", r->found.n_tried), HEC_INT("fit", r->found.n_all),
                      HEC_INT("cannot_win", r->n_beaten), HEC_INT("estimated", r->n_estimated),
                      HEC_INT("left", r->n_left), HEC_INT("simulated", r->n_simulated),
                      HEC_INT("records", r->n_records), HEC_INT("records_of_a_step", r->rows[0].policies.n_records)));
  HEC_SCOPED(hec_text) why = {0};
  hec_json_object(&json, "confidence");
  HEC_JSON(&json, HEC_INT("constants_changed", r->constants.n), HEC_INT("stays_first", r->constants.n_first),
           HEC_REAL("worst_regret", r->constants.worst_regret));
  add_doubt(&json, "parts_of_the_trace", &r->records);
  add_doubt(&json, "other_network_law", &r->law);
  hec_json_double(&json, "half_within", hec_recommendation_band(r, &why)->half);
  hec_json_close(&json);
  const char *assumed[HEC_ASSUMED_MAX + 1];
  HEC_SCOPED(hec_text) recipe = {0};
  int32_t n_assumed = hec_recommendation_assumed(r, &recipe, assumed);
  hec_json_strings(&json, "assumed", assumed, n_assumed);
  HEC_SCOPED(hec_text) differs = {0};
  hec_recommendation_megatron(r, false, &words, &differs);
  HEC_JSON(&json, HEC_TEXT("megatron", words.data), HEC_TEXT("megatron_differs", differs.data ? differs.data : ""));
  hec_json_close(&json);
}

/* A name that is not known is a path. */
static void add_name(hec_json_out *json, const char *key, const char *name, bool known, const char *file) {
  HEC_SCOPED(hec_text) path = {0};
  if (!known)
    hec_file_seen_from(file, name, &path);
  hec_json_string(json, key, known ? name : path.data);
}

static hec_status add_line(hec_json_out *json, const char *line, const char *file) {
  HEC_SCOPED(hec_text) name = {0}, path = {0}, moved = {0};
  bool moves = hec_cluster_line_file(line, &name);
  if (moves) {
    hec_file_seen_from(file, name.data, &path);
    HEC_TRY(hec_cluster_line_move(line, path.data, &moved));
  }
  hec_json_string(json, "cluster", moves ? moved.data : line);
  return HEC_OK;
}

/* The model, and what the job runs on. */
static hec_status add_names(hec_json_out *json, const hec_set_up *s, const char *file) {
  const char *model = s->file.model, *cluster = s->file.cluster, *device = s->file.device;
  add_name(json, "model", model ? model : s->moe.name, !model || hec_preset_find("moe", model), file);
  if (cluster && hec_cluster_is_line(cluster))
    return add_line(json, cluster, file);
  if (cluster)
    add_name(json, "cluster", cluster, hec_preset_find("cluster", cluster), file);
  else
    add_name(json, "device", device ? device : s->training.laws->gpu.name, !device || hec_gpu_known(device), file);
  return HEC_OK;
}

hec_status hec_recommendation_setup(const hec_recommendation *r, const char *file, hec_text *out) {
  const hec_set_up *s = r->rows[0].set_up;
  const hec_training *t = &s->training;
  hec_json_out json = hec_json_begin(out, 2);
  hec_json_object(&json, NULL);
  hec_json_string(&json, "name", "recommended");
  HEC_TRY(add_names(&json, s, file));
  HEC_JSON(&json, HEC_INT("gpus", t->layout.gpus), HEC_TEXT("layout", s->file.layout),
           HEC_TEXT("pipeline", hec_recommendation_pipeline(&r->rows[0])->name), HEC_INT("seq", t->seq),
           HEC_INT("global_batch", t->global_batch), HEC_INT("micro_batch", t->micro_batch), HEC_INT("mtp", t->mtp));
  if (t->capacity > 0)
    hec_json_double(&json, "capacity", t->capacity);
  HEC_SCOPED(hec_text) recipe = {0};
  hec_recipe_write(&t->recipe, &recipe);
  hec_json_string(&json, "recipe", recipe.data);
  hec_json_close(&json);
  return HEC_OK;
}
