/* A recommendation for people, for programs, and for the frameworks that carry it out. */
#include "models/training/dispatcher.h"
#include "runtime/base/value.h"
#include "sim/training_fit.h"
#include "tools/front/job_args.h"
#include "tools/front/summary/summary_write.h"
#include "tools/front/training/megatron_flags.h"
#include "tools/front/training/recommendation.h"

#include <string.h>

/* ---- Words for a choice ---- */

static void layout_words(const hec_layout *l, hec_text *out) {
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
static const char *part_of(const hec_recipe *recipe, const char *part, hec_text *text) {
  HEC_SCOPED(hec_text) all = {0};
  hec_recipe_write(recipe, &all);
  const char *at = strstr(all.data, part) + strlen(part);
  hec_text_free(text);
  hec_text_add_bytes(text, at, strcspn(at, " "));
  return text->data;
}

/* "tp=2 pp=8 ep=2 with micro-batches of 1, dispatcher alltoall, recomputation norm" */
static void choice_words(const hec_layout_choice *choice, hec_text *out) {
  const hec_training *t = &choice->training;
  HEC_SCOPED(hec_text) part = {0};
  layout_words(&t->layout, out);
  hec_text_printf(out, " with micro-batches of %d,", (int)t->micro_batch);
  if (t->layout.ep > 1)
    hec_text_printf(out, " dispatcher %s,", part_of(&t->recipe, "dispatcher=", &part));
  if (t->recipe.zero >= 3)
    hec_text_add(out, " FSDP (zero=3),");
  if (choice->pipeline)
    hec_text_printf(out, " schedule %s,", choice->pipeline->name);
  hec_text_printf(out, " recomputation %s", part_of(&t->recipe, "recompute=", &part));
}

static double needed_gib(const hec_training_memory *m) {
  return (m->reserved + m->outside) / 1073741824;
}

static const hec_training_row *best_of(const hec_recommended *r) {
  return &r->policies.rows[r->best];
}

/* A step is the balanced step and what the routing adds: the larger difference is the reason. */
static hec_layout_reason why_slower(const hec_recommended *best, const hec_recommended *slower) {
  double own_s = best_of(slower)->result.step_s - slower->choice.result.step_s;
  double routing_s = own_s - (best_of(best)->result.step_s - best->choice.result.step_s);
  hec_layout_reason balanced = hec_layout_reason_of(&best->choice, &slower->choice);
  const char *words = own_s > routing_s / 2               ? "more waiting for the busiest rank"
                      : best_of(slower)->policy->baseline ? "no policy saves traffic there"
                                                          : "its policy saves less traffic";
  return routing_s > balanced.seconds ? (hec_layout_reason){words, routing_s} : balanced;
}

/* ---- Screen ---- */

static double step_s_of(const hec_recommended *r) {
  return best_of(r)->result.step_s;
}

/* Smaller differences than this are below what the model can tell; the project's. */
static const double TIE = 0.02;

static bool ties(const hec_recommendation *r, int32_t i) {
  return i > 0 && best_of(&r->rows[i])->result.memory.fits &&
         step_s_of(&r->rows[i]) <= (1 + TIE) * step_s_of(&r->rows[0]);
}

static void add_ties(const hec_recommendation *r, hec_text *words) {
  int32_t n = 0;
  for (int32_t i = 1; i < r->n; i++) {
    if (!ties(r, i))
      continue;
    hec_text_add(words, n++ == 0 ? " Within 2 % of it, which the model cannot tell apart: " : "; ");
    layout_words(&r->rows[i].choice.training.layout, words);
    if (r->rows[i].choice.training.recipe.zero >= 3)
      hec_text_add(words, " with FSDP");
    hec_text_printf(words, ", policy %s", best_of(&r->rows[i])->policy->name);
  }
  if (n > 0)
    hec_text_add(words, ".");
}

static const char *dispatcher_of(const hec_recommended *r) {
  return hec_dispatchers[r->choice.training.recipe.dispatcher]->name;
}

/* Whose the gain is: the dispatcher's, or the layout's and the policy's. */
static void add_assumed_dispatcher(const hec_recommendation *r, hec_text *words) {
  hec_text_printf(words, " Its dispatcher %s is assumed; --recipe dispatcher= says another.", dispatcher_of(&r->today));
  if (!r->has_today_with && r->rows[0].choice.training.layout.ep > 1)
    hec_text_add(words, " The recommended step has the same one.");
  if (!r->has_today_with)
    return;
  double best_s = step_s_of(&r->rows[0]), today_s = step_s_of(&r->today), with_s = step_s_of(&r->today_with);
  hec_text_printf(words, " With dispatcher %s it takes %.4g s, %.2fx the recommended step",
                  dispatcher_of(&r->today_with), with_s, with_s / best_s);
  if (best_s < with_s && with_s < today_s)
    hec_text_printf(words, ": the dispatcher alone is %.0f %% of the gain",
                    100 * (today_s - with_s) / (today_s - best_s));
  hec_text_add(words, ".");
}

static void add_host(const char *step, const hec_training_result *result, hec_text *words) {
  double share = hec_training_host_share(result);
  if (share > 0)
    hec_text_printf(words, " %.0f %% of %s is waiting for the host, which launches kernels more slowly than they run.",
                    100 * share, step);
}

static void add_today(const hec_recommendation *r, hec_text *words) {
  const hec_recommended *best = &r->rows[0], *today = &r->today;
  hec_text_add(words, " What runs today (");
  choice_words(&today->choice, words);
  hec_text_printf(words, ") takes %.4g s with ep, %.2fx the recommended step%s.", step_s_of(today),
                  step_s_of(today) / step_s_of(best),
                  best_of(today)->result.memory.fits ? "" : ", and is predicted not to fit into memory");
  add_host("today's step", &best_of(today)->result, words);
  hec_text_printf(words, " Both with balanced routing: %.4g s and %.4g s.", today->choice.result.step_s,
                  best->choice.result.step_s);
  if (today->choice.training.layout.ep > 1 && !hec_recipe_states(&today->choice.training.recipe, "dispatcher"))
    add_assumed_dispatcher(r, words);
}

/* Less is left than predicted peaks of such runs were too low. */
static bool may_not_fit(const hec_recommended *r) {
  const hec_training_memory *m = &best_of(r)->result.memory;
  double needed = m->reserved + m->outside, too_low = hec_peak_band_of(&r->choice.training)->too_low;
  return m->fits && m->device_bytes > 0 && needed > (1 - too_low) * m->device_bytes;
}

void hec_recommendation_verdict(const hec_recommendation *r, hec_text *out) {
  const hec_recommended *best = &r->rows[0];
  const hec_training_row *row = best_of(best), *ep = &best->policies.rows[best->policies.baseline];
  HEC_SCOPED(hec_text) words = {0};
  hec_text_add(&words, "Run ");
  choice_words(&best->choice, &words);
  hec_text_printf(
      &words,
      " and placement policy %s: %.4g s a step under the %sloads of this trace, %.0f tokens/s per GPU, MFU %.1f %%.",
      row->policy->name, row->result.step_s, best->set_up->job.header.synthetic ? "synthetic " : "",
      row->result.tokens_per_s_per_gpu, 100 * row->result.mfu);
  if (may_not_fit(best))
    hec_text_add(&words, " It may not fit into memory, see below.");
  hec_text_add(&words, " The same layout takes ");
  if (row != ep)
    hec_text_printf(&words, "%.4g s with plain expert parallelism (ep)%s, and ", ep->result.step_s,
                    ep->result.memory.fits ? "" : ", which does not fit into memory");
  hec_text_printf(&words, "%.4g s if routing is balanced.", best->choice.result.step_s);
  add_host("the recommended step", &row->result, &words);
  add_ties(r, &words);
  if (row != ep) {
    hec_text_add(&words, " Without a policy, run ");
    choice_words(&r->plain.choice, &words);
    hec_text_printf(&words, ": %.4g s, %.2fx the recommended step, %.1f GiB%s.", step_s_of(&r->plain),
                    step_s_of(&r->plain) / row->result.step_s, needed_gib(&best_of(&r->plain)->result.memory),
                    !best_of(&r->plain)->result.memory.fits ? ", predicted not to fit into memory"
                    : may_not_fit(&r->plain)                ? ", which may not fit"
                                                            : "");
  }
  if (r->has_today)
    add_today(r, &words);
  if (r->law.n > 0 && r->law.n_first == 0)
    hec_text_printf(&words,
                    " If links reach their data-sheet rates, another of the layouts below is %.1f %% faster: measure "
                    "both.",
                    100 * r->law.worst_regret);
  hec_summary_add_paragraph(words.data, 0, out);
}

/* The columns of words, as wide as their longest. */
typedef struct {
  int layout, how, policy;
} widths;

static void row_words(const hec_recommended *r, const char *mark, hec_text *layout, hec_text *how) {
  HEC_SCOPED(hec_text) recompute = {0};
  layout_words(&r->choice.training.layout, layout);
  if (r->choice.training.recipe.zero >= 3)
    hec_text_add(layout, " zero=3");
  if (r->choice.pipeline)
    hec_text_printf(layout, " %s", r->choice.pipeline->name);
  hec_text_add(layout, mark);
  hec_text_printf(how, "%d, %s", (int)r->choice.training.micro_batch,
                  part_of(&r->choice.training.recipe, "recompute=", &recompute));
}

static const char *mark_of(const hec_recommendation *r, int32_t i) {
  return i == r->n ? " (today)" : "";
}

static void widen(int *width, size_t length) {
  *width = (int)length > *width ? (int)length : *width;
}

static widths widths_of(const hec_recommendation *r) {
  widths w = {30, 16, 10};
  for (int32_t i = 0; i < r->n + r->has_today; i++) {
    const hec_recommended *row = i < r->n ? &r->rows[i] : &r->today;
    HEC_SCOPED(hec_text) layout = {0}, how = {0};
    row_words(row, mark_of(r, i), &layout, &how);
    widen(&w.layout, layout.length);
    widen(&w.how, how.length);
    widen(&w.policy, strlen(best_of(row)->policy->name));
  }
  return w;
}

static void add_row(const hec_recommended *r, const char *mark, const char *why, const widths *w, hec_text *out) {
  HEC_SCOPED(hec_text) layout = {0}, how = {0};
  row_words(r, mark, &layout, &how);
  hec_text_printf(out, "%-*s %-*s %8.4g  %8.4g  %-*s %5.1f GiB%s%s%s\n", w->layout, layout.data, w->how, how.data,
                  best_of(r)->result.step_s, r->choice.result.step_s, w->policy, best_of(r)->policy->name,
                  needed_gib(&best_of(r)->result.memory),
                  may_not_fit(r) ? "?"
                  : *why         ? " "
                                 : "",
                  *why ? " " : "", why);
}

/* By how much, and the part of the step that makes most of it. */
static void why_words(const hec_recommendation *r, int32_t i, const hec_recommended *row, hec_text *why) {
  double slower = step_s_of(row) / step_s_of(&r->rows[0]) - 1;
  hec_layout_reason reason = why_slower(&r->rows[0], row);
  if (!best_of(row)->result.memory.fits)
    hec_text_printf(why, "%s%s", row->choice.result.memory.fits ? "fits with balanced routing only" : "does not fit",
                    slower > 0 ? "; " : "");
  if (i < r->n && ties(r, i))
    hec_text_printf(why, "as fast, within %.1f %%", 100 * slower);
  else if (i > 0 && slower > 0 && reason.seconds > 0)
    hec_text_printf(why, "%+.0f %%: %s", 100 * slower, reason.words);
}

static void add_table(const hec_recommendation *r, hec_text *out) {
  const widths w = widths_of(r);
  hec_text_printf(out, "\n%-*s %-*s %8s  %8s  %-*s %9s  %s\n", w.layout, "layout", w.how, "micro, recompute",
                  "step (s)", "balanced", w.policy, "policy", "memory", "why it is slower");
  for (int32_t i = 0; i <= r->n; i++) {
    const hec_recommended *row = i < r->n ? &r->rows[i] : &r->today;
    HEC_SCOPED(hec_text) why = {0};
    if (i == r->n && !r->has_today)
      continue;
    why_words(r, i, row, &why);
    add_row(row, mark_of(r, i), why.data ? why.data : "", &w, out);
  }
  hec_text_add(out, "\n");
}

static void doubt_words(const hec_doubt *doubt, const char *of, hec_text *words) {
  hec_text_add(words, of);
  if (doubt->n == 0)
    hec_text_add(words, "not tried");
  else if (doubt->n_first == doubt->n)
    hec_text_add(words, "yes");
  else if (doubt->n_first == 0)
    hec_text_add(words, "no");
  else
    hec_text_printf(words, "in %d of %d cases", (int)doubt->n_first, (int)doubt->n);
  if (doubt->n_first < doubt->n)
    hec_text_printf(words, ", %s up to %.1f %% slower than another row", doubt->n_first > 0 ? "else" : "it is",
                    100 * doubt->worst_regret);
  hec_text_add(words, ".");
}

/* How far off a prediction may be, and what the order survives. */
static void confidence_words(const hec_recommendation *r, hec_text *words) {
  const hec_training_summary *first = &r->rows[0].policies;
  const hec_band *band = hec_training_band(first);
  if (hec_training_factor_say(first, words))
    hec_text_printf(words, "%shere %s, half of the published runs took within %.0f %% of what is predicted. ",
                    words->length > 0 ? "W" : "w", band->of, 100 * band->half);
  hec_text_add(words, "Does the first row stay first?");
  doubt_words(&r->law, " With data-sheet rates of the links: ", words);
  doubt_words(&r->records, " On parts of the trace: ", words);
  doubt_words(&r->constants, " With a constant 10 % off: ", words);
}

/* If the first leaves little room: the fastest that leaves some. */
static void add_roomier(const hec_recommendation *r, hec_text *words) {
  for (int32_t i = 1; i < r->n && hec_training_fit_is_tight(&best_of(&r->rows[0])->result.memory); i++) {
    const hec_training_result *result = &best_of(&r->rows[i])->result;
    if (!result->memory.fits || hec_training_fit_is_tight(&result->memory))
      continue;
    hec_text_add(words, " With more to spare: ");
    layout_words(&r->rows[i].choice.training.layout, words);
    hec_text_printf(words, ", %.4g s and %.1f GiB.", result->step_s, needed_gib(&result->memory));
    return;
  }
}

static void searched_words(const hec_recommendation *r, hec_text *words) {
  int32_t all = r->rows[0].policies.n_records;
  hec_text_printf(words,
                  "%d combinations of layout, micro-batch, dispatcher and recomputation with balanced routing; %d fit "
                  "into memory. Of these %d cannot be the fastest, whatever the policy. %d were estimated under the "
                  "loads of the trace, and the %d most promising simulated with %d record%s of it%s",
                  (int)r->found.n_tried, (int)r->found.n_all, (int)r->n_beaten, (int)r->n_estimated,
                  (int)r->n_simulated, (int)r->n_records, r->n_records == 1 ? "" : "s",
                  r->n_records < all ? "" : ", all that a step takes");
  if (r->n_records < all)
    hec_text_printf(words, ", and the layouts above with all %d that a step takes", (int)all);
  hec_text_add(words, ".");
  if (r->n_left > 0)
    hec_text_printf(words, " %d were left out for want of time.", (int)r->n_left);
  if (r->n_left > 0 || r->n_records < all)
    hec_text_printf(words, " A longer --within takes more%s.", r->n_left > 0 ? "" : " records");
}

static void peak_words(const hec_recommendation *r, hec_text *words) {
  const hec_peak_band *peaks = hec_peak_band_of(&r->rows[0].choice.training);
  const hec_training_memory *m = &best_of(&r->rows[0])->result.memory;
  hec_text_printf(words, " %.1f GiB are to spare. In %d published runs %s, peaks were predicted up to %.0f %% too low",
                  m->margin / 1073741824, (int)peaks->n, peaks->of, 100 * peaks->too_low);
  hec_text_add(words, may_not_fit(&r->rows[0]) ? ": with that it would not fit. Try it before you rely on it." : ".");
  for (int32_t i = 0; i < r->n + r->has_today; i++)
    if (may_not_fit(i < r->n ? &r->rows[i] : &r->today)) {
      hec_text_add(words, " Rows with a ? have less to spare than such an error.");
      return;
    }
}

static void add_feet(const hec_recommendation *r, hec_text *out) {
  HEC_SCOPED(hec_text) words = {0};
  hec_training_fit_say(&best_of(&r->rows[0])->result.memory, NULL, "The first", &words);
  if (best_of(&r->rows[0])->result.memory.fits)
    peak_words(r, &words);
  if (!best_of(&r->rows[0])->result.memory.fits)
    hec_text_printf(&words, " With balanced routing it needs %.1f GiB.", needed_gib(&r->rows[0].choice.result.memory));
  add_roomier(r, &words);
  hec_summary_add_foot("memory:", words.data, out);
  hec_text_free(&words);
  searched_words(r, &words);
  hec_summary_add_foot("searched:", words.data, out);
  hec_text_free(&words);
  confidence_words(r, &words);
  hec_summary_add_foot("confidence:", words.data, out);
  hec_text_free(&words);
  for (int32_t i = 0; i < r->rows[0].set_up->n_assumed; i++)
    hec_text_printf(&words, "%s%s", i ? "; " : "", r->rows[0].set_up->assumed[i]);
  hec_text_add(&words, words.length > 0 ? "; recipe:" : "recipe:");
  hec_recipe_assumed(&r->rows[0].choice.training.recipe, &words);
  if (words.length > 0)
    hec_summary_add_foot("assumed:", words.data, out);
  hec_text_free(&words);
  hec_summary_add_foot("not searched:",
                       "other uneven stages than a shorter last one, ZeRO 2, FSDP in a pipeline, schedules other than "
                       "1f1b, interleaved and the one that --pipeline or the set-up names.",
                       out);
  hec_summary_add_foot("not modelled:", hec_training_not_modelled, out);
  if (!best_of(&r->rows[0])->policy->baseline)
    hec_text_printf(&words, "of what runs best without a policy (%.4g s): ", best_of(&r->plain)->result.step_s);
  HEC_SCOPED(hec_text) differs = {0};
  size_t from = words.length;
  hec_recommendation_megatron(r, true, &words, &differs);
  if (hec_megatron_environment(words.data + from))
    hec_text_printf(&words, "; with %s", hec_megatron_environment(words.data + from));
  hec_summary_add_foot("Megatron-LM:", words.data, out);
  if (differs.length > 0)
    hec_summary_add_foot("differs:", differs.data, out);
}

static const char *cluster_of(const hec_set_up *s) {
  return s->file.cluster ? s->file.cluster : s->training.laws->gpu.name;
}

/* What is asked. */
static void add_head(const hec_recommendation *r, hec_text *out) {
  const hec_set_up *s = r->rows[0].set_up;
  const hec_training *t = &s->training;
  HEC_SCOPED(hec_text) words = {0};
  hec_text_printf(&words, "%s: ", r->tool);
  hec_text_add_plain(&words, s->job.header.name[0] ? s->job.header.name : r->trace);
  hec_text_printf(&words, "%s; model %s on %d GPUs (", s->job.header.synthetic ? " (synthetic)" : "", s->moe.name,
                  (int)t->layout.gpus);
  hec_text_add_plain(&words, cluster_of(s));
  hec_text_printf(&words, "); a step of %d sequences of %d tokens", (int)t->global_batch, (int)t->seq);
  hec_summary_add_paragraph(words.data, 0, out);
  hec_text_add(out, "\n");
}

void hec_recommendation_screen(const hec_recommendation *r, hec_text *out) {
  add_head(r, out);
  hec_recommendation_verdict(r, out);
  add_table(r, out);
  add_feet(r, out);
}

/* ---- What carries it out ---- */

const hec_pipeline_schedule *hec_recommendation_pipeline(const hec_recommended *r) {
  const hec_layout *l = &r->choice.training.layout;
  return r->choice.pipeline ? r->choice.pipeline : hec_pipeline_default(l->pp, l->vpp);
}

void hec_recommendation_megatron(const hec_recommendation *r, bool quoted, hec_text *out, hec_text *differs) {
  hec_megatron_flags(&r->plain.choice.training, r->plain.choice.pipeline, quoted, out, differs);
  while (differs->length > 0 && strchr("; ", differs->data[differs->length - 1]))
    differs->data[--differs->length] = '\0';
}

static void add_training(hec_json_out *json, const hec_layout_choice *c) {
  HEC_SCOPED(hec_text) layout = {0}, recipe = {0};
  layout_words(&c->training.layout, &layout);
  hec_recipe_write(&c->training.recipe, &recipe);
  hec_json_string(json, "layout", layout.data);
  if (c->pipeline)
    hec_json_string(json, "pipeline", c->pipeline->name);
  HEC_JSON(json, HEC_INT("micro_batch", c->training.micro_batch), HEC_TEXT("recipe", recipe.data));
}

static void add_choice(hec_json_out *json, const char *key, const hec_recommended *r, const hec_recommended *best) {
  const hec_training_row *row = best_of(r);
  hec_json_object(json, key);
  add_training(json, &r->choice);
  HEC_JSON(json, HEC_TEXT("policy", row->policy->name), HEC_REAL("step_s", row->result.step_s),
           HEC_REAL("ep_step_s", r->policies.rows[r->policies.baseline].result.step_s),
           HEC_REAL("balanced_step_s", r->choice.result.step_s),
           HEC_REAL("tokens_per_s_per_gpu", row->result.tokens_per_s_per_gpu), HEC_REAL("mfu", row->result.mfu),
           HEC_REAL("memory_gib", needed_gib(&row->result.memory)),
           HEC_REAL("balanced_memory_gib", needed_gib(&r->choice.result.memory)),
           HEC_BOOL("fits", row->result.memory.fits),
           HEC_BOOL("may_not_fit", may_not_fit(r)) /* errors of published peaks are larger than what is left */);
  if (best != r) {
    hec_layout_reason reason = why_slower(best, r);
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
    layout_words(&c->training.layout, &layout);
    HEC_JSON(json, HEC_OBJECT(NULL, HEC_TEXT("name", layout.data), HEC_REAL("balanced_step_s", c->result.step_s),
                              HEC_TEXT("why", reason.seconds > 0 ? reason.words
                                                                 : "the loads of the trace, or it is recommended")));
  }
  hec_json_close(json);
}

static void add_doubt(hec_json_out *json, const char *key, const hec_doubt *doubt) {
  HEC_JSON(json, HEC_OBJECT(key, HEC_INT("tried", doubt->n), HEC_INT("stays_first", doubt->n_first),
                            HEC_REAL("worst_regret", doubt->worst_regret)));
}

static void add_job(const hec_set_up *s, hec_json_out *json) {
  HEC_JSON(json, HEC_TEXT("model", s->moe.name), HEC_TEXT("cluster", cluster_of(s)),
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
  hec_json_object(&json, "confidence");
  HEC_JSON(&json, HEC_INT("constants_changed", r->constants.n), HEC_INT("stays_first", r->constants.n_first),
           HEC_REAL("worst_regret", r->constants.worst_regret));
  add_doubt(&json, "parts_of_the_trace", &r->records);
  add_doubt(&json, "other_network_law", &r->law);
  hec_json_double(&json, "half_within", hec_training_band(&r->rows[0].policies)->half);
  hec_json_close(&json);
  hec_json_strings(&json, "assumed", r->rows[0].set_up->assumed, r->rows[0].set_up->n_assumed);
  HEC_SCOPED(hec_text) differs = {0};
  hec_recommendation_megatron(r, false, &words, &differs);
  HEC_JSON(&json, HEC_TEXT("megatron", words.data), HEC_TEXT("megatron_differs", differs.data ? differs.data : ""));
  hec_json_close(&json);
}

void hec_recommendation_setup(const hec_recommendation *r, hec_text *out) {
  const hec_set_up *s = r->rows[0].set_up;
  const hec_training *t = &s->training;
  hec_json_out json = hec_json_begin(out, 2);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_TEXT("name", "recommended"), HEC_TEXT("model", s->file.model ? s->file.model : s->moe.name),
           HEC_TEXT(s->file.cluster ? "cluster" : "device", s->file.cluster ? s->file.cluster : t->laws->gpu.name),
           HEC_INT("gpus", t->layout.gpus), HEC_TEXT("layout", s->file.layout),
           HEC_TEXT("pipeline", hec_recommendation_pipeline(&r->rows[0])->name), HEC_INT("seq", t->seq),
           HEC_INT("global_batch", t->global_batch), HEC_INT("micro_batch", t->micro_batch), HEC_INT("mtp", t->mtp));
  if (t->capacity > 0)
    hec_json_double(&json, "capacity", t->capacity);
  HEC_SCOPED(hec_text) recipe = {0};
  hec_recipe_write(&t->recipe, &recipe);
  hec_json_string(&json, "recipe", recipe.data);
  hec_json_close(&json);
}
