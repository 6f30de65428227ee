/* See recommendation_words.h. */
#include "tools/front/training/recommendation_words.h"

#include "tools/front/training/megatron_flags.h"

#include <string.h>

void hec_layout_words(const hec_layout *l, hec_text *out) {
  const struct {
    const char *name;
    int32_t size;
  } sizes[] = {{"tp", l->tp}, {"cp", l->cp}, {"pp", l->pp}, {"vpp", l->vpp}, {"ep", l->ep}, {"etp", l->etp}};
  enum { PP = 2 };
  size_t from = out->length;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    if (sizes[i].size > 1)
      hec_text_printf(out, "%s%s=%d", out->length > from ? " " : "", sizes[i].name, (int)sizes[i].size);
    if (i == PP)
      hec_layout_write_given(l, out);
  }
  if (out->length == from)
    hec_text_add(out, "dp alone");
}

/* "norm+act", of "... recompute=norm+act ..." */
const char *hec_recipe_part(const hec_recipe *recipe, const char *part, hec_text *text) {
  HEC_SCOPED(hec_text) all = {0};
  hec_recipe_write(recipe, &all);
  const char *at = strstr(all.data, part) + strlen(part);
  hec_text_free(text);
  hec_text_add_bytes(text, at, strcspn(at, " "));
  return text->data;
}

/* "tp=2 pp=8 ep=2 with micro-batches of 1, dispatcher alltoall, recomputation norm" */
void hec_choice_words(const hec_layout_choice *choice, hec_text *out) {
  const hec_training *t = &choice->training;
  HEC_SCOPED(hec_text) part = {0};
  hec_layout_words(&t->layout, out);
  hec_text_printf(out, " with micro-batches of %d,", (int)t->micro_batch);
  if (t->layout.ep > 1)
    hec_text_printf(out, " dispatcher %s,", hec_recipe_part(&t->recipe, "dispatcher=", &part));
  if (t->recipe.zero >= 3)
    hec_text_add(out, " FSDP (zero=3),");
  if (choice->pipeline)
    hec_text_printf(out, " schedule %s,", choice->pipeline->name);
  hec_text_printf(out, " recomputation %s", hec_recipe_part(&t->recipe, "recompute=", &part));
}

void hec_recommended_row_words(const hec_recommendation *r, int32_t row, hec_text *out) {
  const hec_recommended *of = &r->rows[row];
  hec_text_printf(out, "row %d (", (int)row + 1);
  hec_layout_words(&of->choice.training.layout, out);
  if (of->choice.training.recipe.zero >= 3)
    hec_text_add(out, " with FSDP");
  hec_text_printf(out, ", policy %s)", hec_recommended_row(of)->policy->name);
}

bool hec_recommended_same(const hec_recommended *a, const hec_recommended *b) {
  const hec_training *x = &a->choice.training, *y = &b->choice.training;
  hec_recipe of_x = x->recipe, of_y = y->recipe;
  of_x.stated = of_y.stated = 0;
  return memcmp(&x->layout, &y->layout, sizeof x->layout) == 0 && a->choice.pipeline == b->choice.pipeline &&
         x->micro_batch == y->micro_batch && memcmp(&of_x, &of_y, sizeof of_x) == 0 &&
         hec_recommended_row(a)->policy == hec_recommended_row(b)->policy;
}

int32_t hec_recommendation_find(const hec_recommendation *r, const hec_recommended *like) {
  for (int32_t i = 0; i < r->n; i++)
    if (hec_recommended_same(&r->rows[i], like))
      return i;
  return -1;
}

bool hec_choice_suits_megatron(const hec_layout_choice *choice) {
  HEC_SCOPED(hec_text) flags = {0}, differs = {0};
  hec_megatron_flags(&choice->training, choice->pipeline, false, &flags, &differs);
  return differs.length == 0;
}

void hec_recommended_cost_words(const hec_recommendation *r, const hec_recommended *of, hec_text *out) {
  const hec_training_memory *memory = &hec_recommended_row(of)->result.memory;
  hec_text_printf(out, "%.4g s, %.2fx the recommended step, %.1f GiB%s", hec_recommended_s(of),
                  hec_recommended_s(of) / hec_recommended_s(&r->rows[0]), hec_memory_gib(memory),
                  !memory->fits                     ? ", predicted not to fit into memory"
                  : hec_recommended_may_not_fit(of) ? ", which may not fit"
                                                    : "");
}

double hec_memory_gib(const hec_training_memory *m) {
  return (m->reserved + m->outside) / 1073741824;
}

const hec_training_row *hec_recommended_row(const hec_recommended *r) {
  return &r->policies.rows[r->best];
}

/* A step is the balanced step and what the routing adds: the larger difference is the reason. */
hec_layout_reason hec_recommended_reason(const hec_recommended *best, const hec_recommended *slower) {
  double own_s = hec_recommended_row(slower)->result.step_s - slower->choice.result.step_s;
  double routing_s = own_s - (hec_recommended_row(best)->result.step_s - best->choice.result.step_s);
  hec_layout_reason balanced = hec_layout_reason_of(&best->choice, &slower->choice);
  const char *words = own_s > routing_s / 2 ? "its busiest GPU gets more tokens, and all wait for it"
                      : hec_recommended_row(slower)->policy->baseline ? "no policy saves traffic there"
                                                                      : "its policy saves less traffic";
  return routing_s > balanced.seconds ? (hec_layout_reason){words, routing_s} : balanced;
}

double hec_recommended_s(const hec_recommended *r) {
  return hec_recommended_row(r)->result.step_s;
}

/* Less is left than predicted peaks of such runs were too low. */
bool hec_recommended_may_not_fit(const hec_recommended *r) {
  const hec_training_memory *m = &hec_recommended_row(r)->result.memory;
  double needed = m->reserved + m->outside, too_low = hec_peak_band_of(&r->choice.training)->too_low;
  return m->fits && m->device_bytes > 0 && needed > (1 - too_low) * m->device_bytes;
}

/* "dispatcher, recompute": parts of the recipe that differ. Without ep there is no dispatcher. */
static void add_differences(const hec_training *a, const hec_training *b, hec_text *words) {
  HEC_SCOPED(hec_text) of_a = {0}, of_b = {0};
  hec_recipe_write(&a->recipe, &of_a);
  hec_recipe_write(&b->recipe, &of_b);
  for (const char *x = of_a.data, *y = of_b.data; *x; x += strspn(x, " "), y += strspn(y, " ")) {
    size_t n = strcspn(x, " "), m = strcspn(y, " "), key = strcspn(x, "=");
    bool unused = b->layout.ep == 1 && strncmp(x, "dispatch", strlen("dispatch")) == 0;
    if (!unused && (n != m || strncmp(x, y, n) != 0)) {
      hec_text_add(words, words->length > 0 ? ", " : "");
      hec_text_add_bytes(words, x, key);
    }
    x += n;
    y += m;
  }
}

const hec_band *hec_recommendation_band(const hec_recommendation *r, hec_text *why) {
  const hec_set_up *s = r->rows[0].set_up;
  const hec_training *t = &r->rows[0].choice.training;
  HEC_SCOPED(hec_text) differs = {0};
  bool anchored = s->measured_step_s > 0 || s->factor > 0;
  if (anchored && r->has_today)
    add_differences(&r->today.choice.training, t, &differs);
  if (differs.length > 0)
    hec_text_printf(why,
                    "The recipe of the first row differs from the measured run's in %s. So its band is that of runs "
                    "without a measured one. ",
                    differs.data);
  else if (anchored && !r->has_today)
    hec_text_add(why,
                 "Whether the first row has the recipe of the measured run is not known. So its band is that of runs "
                 "without a measured one. --layout, --micro-batch and --recipe say what was measured. ");
  return &hec_bands[hec_band_of(t, anchored && r->has_today && differs.length == 0, hec_recipe_stated(&t->recipe))];
}

int32_t hec_recommendation_assumed(const hec_recommendation *r, hec_text *recipe,
                                   const char *assumed[HEC_ASSUMED_MAX + 1]) {
  const hec_set_up *s = r->rows[0].set_up;
  HEC_SCOPED(hec_text) parts = {0};
  int32_t n = 0;
  for (; n < s->n_assumed; n++)
    assumed[n] = s->assumed[n];
  hec_recipe_assumed(&r->rows[0].choice.training.recipe, &parts);
  if (parts.length == 0)
    return n;
  hec_text_printf(recipe, "recipe: %s", parts.data);
  assumed[n] = recipe->data;
  return n + 1;
}

const char *hec_set_up_cluster(const hec_set_up *s) {
  return s->file.cluster ? s->file.cluster : s->training.laws->gpu.name;
}
