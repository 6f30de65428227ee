/* A recommendation for people: what to run, the table of rows, what it rests on. */
#include "models/training/dispatcher.h"
#include "sim/training_fit.h"
#include "tools/front/job_args.h"
#include "tools/front/summary/summary_write.h"
#include "tools/front/training/megatron_flags.h"
#include "tools/front/training/recommendation_words.h"

#include <string.h>

/* ---- Screen ---- */

/* Smaller differences than this are below what the model can tell; the project's. */
static const double TIE = 0.02;

static bool ties(const hec_recommendation *r, int32_t i) {
  return i > 0 && hec_recommended_row(&r->rows[i])->result.memory.fits &&
         hec_recommended_s(&r->rows[i]) <= (1 + TIE) * hec_recommended_s(&r->rows[0]);
}

static void add_ties(const hec_recommendation *r, hec_text *words) {
  int32_t n = 0;
  for (int32_t i = 1; i < r->n; i++) {
    if (!ties(r, i))
      continue;
    hec_text_add(words, n++ == 0 ? " Within 2 % of it, which the model cannot tell apart: " : "; ");
    hec_recommended_row_words(r, i, words);
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
  double best_s = hec_recommended_s(&r->rows[0]), today_s = hec_recommended_s(&r->today),
         with_s = hec_recommended_s(&r->today_with);
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
  hec_choice_words(&today->choice, words);
  hec_text_printf(words, ") takes %.4g s with ep, %.2fx the recommended step%s.", hec_recommended_s(today),
                  hec_recommended_s(today) / hec_recommended_s(best),
                  hec_recommended_row(today)->result.memory.fits ? "" : ", and is predicted not to fit into memory");
  add_host("today's step", &hec_recommended_row(today)->result, words);
  hec_text_printf(words, " Both with balanced routing: %.4g s and %.4g s.", today->choice.result.step_s,
                  best->choice.result.step_s);
  if (today->choice.training.layout.ep > 1 && !hec_recipe_states(&today->choice.training.recipe, "dispatcher"))
    add_assumed_dispatcher(r, words);
}

static void add_plain(const hec_recommendation *r, hec_text *words) {
  hec_text_add(words, " Without a policy, run ");
  if (r->megatron_row > 0 && hec_recommended_same(&r->megatron, &r->plain))
    hec_text_printf(words, "row %d, which Megatron-LM runs as it is: ", (int)r->megatron_row + 1);
  hec_choice_words(&r->plain.choice, words);
  hec_text_add(words, ": ");
  hec_recommended_cost_words(r, &r->plain, words);
  hec_text_add(words, ".");
}

/* What Megatron-LM runs, where that is another row than the first, and was not said. */
static void add_megatron(const hec_recommendation *r, bool said, hec_text *words) {
  if (r->megatron_row < 0)
    hec_text_add(words, " Megatron-LM runs no row exactly as predicted; see \"differs\".");
  if (r->megatron_row <= 0 || (said && hec_recommended_same(&r->megatron, &r->plain)))
    return;
  hec_text_printf(words, " Megatron-LM runs row %d as it is: ", (int)r->megatron_row + 1);
  hec_choice_words(&r->megatron.choice, words);
  hec_text_add(words, ", policy ep: ");
  hec_recommended_cost_words(r, &r->megatron, words);
  hec_text_add(words, ". It is the fastest such layout of those that were simulated.");
}

void hec_recommendation_verdict(const hec_recommendation *r, hec_text *out) {
  const hec_recommended *best = &r->rows[0];
  const hec_training_row *row = hec_recommended_row(best), *ep = &best->policies.rows[best->policies.baseline];
  HEC_SCOPED(hec_text) words = {0};
  hec_text_add(&words, "Run ");
  hec_choice_words(&best->choice, &words);
  hec_text_printf(
      &words,
      " and placement policy %s: %.4g s a step under the %sloads of this trace, %.0f tokens/s per GPU, MFU %.1f %%.",
      row->policy->name, row->result.step_s, best->set_up->job.header.synthetic ? "synthetic " : "",
      row->result.tokens_per_s_per_gpu, 100 * row->result.mfu);
  if (hec_recommended_may_not_fit(best))
    hec_text_add(&words, " It may not fit into memory, see below.");
  hec_text_add(&words, " The same layout takes ");
  if (row != ep)
    hec_text_printf(&words, "%.4g s with plain expert parallelism (ep)%s, and ", ep->result.step_s,
                    ep->result.memory.fits ? "" : ", which does not fit into memory");
  hec_text_printf(&words, "%.4g s if routing is balanced.", best->choice.result.step_s);
  add_host("the recommended step", &row->result, &words);
  hec_recommendation_runs(r, &words);
  add_ties(r, &words);
  if (row != ep)
    add_plain(r, &words);
  add_megatron(r, row != ep, &words);
  if (r->has_today)
    add_today(r, &words);
  if (r->law.n > 0 && r->law.n_first == 0) {
    hec_text_add(&words, " If links reach their data-sheet rates, ");
    hec_recommended_row_words(r, r->law.faster, &words);
    hec_text_printf(&words, " is faster: the first row takes %.1f %% longer. Measure both.", 100 * r->law.worst_regret);
  }
  hec_summary_add_paragraph(words.data, 0, out);
}

/* The columns of words, as wide as their longest. */
typedef struct {
  int layout, how, policy;
} widths;

/* Row n: what runs today. */
static const hec_recommended *shown(const hec_recommendation *r, int32_t i) {
  return i < r->n ? &r->rows[i] : &r->today;
}

static void row_words(const hec_recommendation *all, int32_t i, hec_text *layout, hec_text *how) {
  HEC_SCOPED(hec_text) recompute = {0};
  const hec_recommended *r = shown(all, i);
  if (i < all->n)
    hec_text_printf(layout, "%d  ", (int)i + 1);
  else
    hec_text_add(layout, "   ");
  hec_layout_words(&r->choice.training.layout, layout);
  if (r->choice.training.recipe.zero >= 3)
    hec_text_add(layout, " zero=3");
  if (r->choice.pipeline)
    hec_text_printf(layout, " %s", r->choice.pipeline->name);
  if (i == all->n)
    hec_text_add(layout, " (today)");
  hec_text_printf(how, "%d, %s", (int)r->choice.training.micro_batch,
                  hec_recipe_part(&r->choice.training.recipe, "recompute=", &recompute));
}

static void widen(int *width, size_t length) {
  *width = (int)length > *width ? (int)length : *width;
}

static widths widths_of(const hec_recommendation *r) {
  widths w = {33, 16, 10};
  for (int32_t i = 0; i < r->n + r->has_today; i++) {
    HEC_SCOPED(hec_text) layout = {0}, how = {0};
    row_words(r, i, &layout, &how);
    widen(&w.layout, layout.length);
    widen(&w.how, how.length);
    widen(&w.policy, strlen(hec_recommended_row(shown(r, i))->policy->name));
  }
  return w;
}

static void add_row(const hec_recommendation *all, int32_t i, const char *why, const widths *w, hec_text *out) {
  HEC_SCOPED(hec_text) layout = {0}, how = {0};
  const hec_recommended *r = shown(all, i);
  row_words(all, i, &layout, &how);
  hec_text_printf(out, "%-*s %-*s %8.4g %9.4g  %-*s %5.1f GiB%s%s%s\n", w->layout, layout.data, w->how, how.data,
                  hec_recommended_row(r)->result.step_s, r->choice.result.step_s, w->policy,
                  hec_recommended_row(r)->policy->name, hec_memory_gib(&hec_recommended_row(r)->result.memory),
                  hec_recommended_may_not_fit(r) ? "?"
                  : *why                         ? " "
                                                 : "",
                  *why ? " " : "", why);
}

/* By how much, and the part of the step that makes most of it. */
static void why_words(const hec_recommendation *r, int32_t i, hec_text *why) {
  const hec_recommended *row = shown(r, i);
  double slower = hec_recommended_s(row) / hec_recommended_s(&r->rows[0]) - 1;
  hec_layout_reason reason = hec_recommended_reason(&r->rows[0], row);
  if (!hec_recommended_row(row)->result.memory.fits)
    hec_text_printf(why, "%s%s", row->choice.result.memory.fits ? "fits with balanced routing only" : "does not fit",
                    slower > 0 ? "; " : "");
  if (i < r->n && ties(r, i))
    hec_text_printf(why, "as fast, within %.1f %%", 100 * slower);
  else if (i > 0 && slower > 0 && reason.seconds > 0)
    hec_text_printf(why, "%+.0f %%: %s", 100 * slower, reason.words);
}

static void add_table(const hec_recommendation *r, hec_text *out) {
  const widths w = widths_of(r);
  hec_text_printf(out, "\n%-*s %-*s %8s %9s  %-*s %9s  %s\n", w.layout, "#  layout", w.how, "micro, recompute",
                  "step (s)", "even (s)", w.policy, "policy", "memory", "why it is slower");
  for (int32_t i = 0; i <= r->n; i++) {
    HEC_SCOPED(hec_text) why = {0};
    if (i == r->n && !r->has_today)
      continue;
    why_words(r, i, &why);
    add_row(r, i, why.data ? why.data : "", &w, out);
  }
  hec_text_add(out, "\n");
}

static void doubt_words(const hec_recommendation *r, const hec_doubt *doubt, const char *of, hec_text *words) {
  hec_text_add(words, of);
  if (doubt->n == 0)
    hec_text_add(words, "not tried");
  else if (doubt->n_first == doubt->n)
    hec_text_add(words, "yes");
  else if (doubt->n_first == 0)
    hec_text_add(words, "no");
  else
    hec_text_printf(words, "in %d of %d cases", (int)doubt->n_first, (int)doubt->n);
  if (doubt->n_first < doubt->n) {
    hec_text_printf(words, ", %s%.1f %% slower than ",
                    doubt->n_first > 0 ? "else up to "
                    : doubt->n > 1     ? "it is up to "
                                       : "it is ",
                    100 * doubt->worst_regret);
    hec_recommended_row_words(r, doubt->faster, words);
  }
  hec_text_add(words, ".");
}

/* How far off a prediction may be, and what the order survives. */
static void confidence_words(const hec_recommendation *r, hec_text *words) {
  const hec_training_summary *first = &r->rows[0].policies;
  HEC_SCOPED(hec_text) why = {0};
  const hec_band *band = hec_recommendation_band(r, &why);
  bool holds = hec_training_factor_say(first, words);
  if (holds && why.length > 0)
    hec_text_add(words, why.data);
  if (holds)
    hec_text_printf(words, "%shere %s, half of the published runs took within %.0f %% of what is predicted. ",
                    words->length > 0 ? "W" : "w", band->of, 100 * band->half);
  hec_text_add(words, "Does the first row stay first?");
  doubt_words(r, &r->law, " With data-sheet rates of the links: ", words);
  doubt_words(r, &r->records, " On parts of the trace: ", words);
  doubt_words(r, &r->constants, " With a constant 10 % off: ", words);
}

/* If the first leaves little room: the fastest that leaves some. */
static void add_roomier(const hec_recommendation *r, hec_text *words) {
  for (int32_t i = 1; i < r->n && hec_training_fit_is_tight(&hec_recommended_row(&r->rows[0])->result.memory); i++) {
    const hec_training_result *result = &hec_recommended_row(&r->rows[i])->result;
    if (!result->memory.fits || hec_training_fit_is_tight(&result->memory))
      continue;
    hec_text_add(words, " With more to spare: ");
    hec_layout_words(&r->rows[i].choice.training.layout, words);
    hec_text_printf(words, ", %.4g s and %.1f GiB.", result->step_s, hec_memory_gib(&result->memory));
    return;
  }
}

/* ": the 8 most promising of these, 3 that are fast with balanced routing, and what runs today." Only the first were
 * estimated. */
static void simulated_words(const hec_recommendation *r, hec_text *words) {
  HEC_SCOPED(hec_text) promising = {0}, even = {0};
  const char *part[3];
  int n = 0;
  hec_text_printf(&promising, "the %d most promising of these", (int)r->n_promising);
  hec_text_printf(&even, "%d that %s fast with balanced routing", (int)r->n_even, r->n_even == 1 ? "is" : "are");
  if (r->n_promising > 0)
    part[n++] = promising.data;
  if (r->n_even > 0)
    part[n++] = even.data;
  if (r->has_today)
    part[n++] = "what runs today";
  for (int i = 0; i < n; i++)
    hec_text_printf(words, "%s%s", i == 0 ? ": " : i < n - 1 ? ", " : n == 2 ? " and " : ", and ", part[i]);
  hec_text_add(words, ".");
}

static void searched_words(const hec_recommendation *r, hec_text *words) {
  int32_t all = r->rows[0].policies.n_records;
  hec_text_printf(words,
                  "%d combinations of layout, micro-batch, dispatcher and recomputation with balanced routing; %d fit "
                  "into memory. Of these %d cannot be the fastest, whatever the policy. %d were estimated under the "
                  "loads of the trace. %d were simulated with %d record%s of it%s",
                  (int)r->found.n_tried, (int)r->found.n_all, (int)r->n_beaten, (int)r->n_estimated,
                  (int)r->n_simulated, (int)r->n_records, r->n_records == 1 ? "" : "s",
                  r->n_records < all ? "" : ", all that a step takes");
  simulated_words(r, words);
  if (r->n_records < all)
    hec_text_printf(words, " The layouts above were simulated with all %d that a step takes.", (int)all);
  if (r->n_left > 0)
    hec_text_printf(words, " %d were left out for want of time.", (int)r->n_left);
  if (r->n_left > 0 || r->n_records < all)
    hec_text_printf(words, " A longer --within takes more%s.", r->n_left > 0 ? "" : " records");
}

static void peak_words(const hec_recommendation *r, hec_text *words) {
  const hec_peak_band *peaks = hec_peak_band_of(&r->rows[0].choice.training);
  const hec_training_memory *m = &hec_recommended_row(&r->rows[0])->result.memory;
  hec_text_printf(words, " %.1f GiB are to spare. In %d published runs %s, peaks were predicted up to %.0f %% too low",
                  m->margin / 1073741824, (int)peaks->n, peaks->of, 100 * peaks->too_low);
  hec_text_add(words, hec_recommended_may_not_fit(&r->rows[0])
                          ? ": with that it would not fit. Try it before you rely on it."
                          : ".");
  for (int32_t i = 0; i < r->n + r->has_today; i++)
    if (hec_recommended_may_not_fit(i < r->n ? &r->rows[i] : &r->today)) {
      hec_text_add(words, " Rows with a ? have less to spare than such an error.");
      return;
    }
}

static void add_assumed(const hec_recommendation *r, hec_text *out) {
  const char *assumed[HEC_ASSUMED_MAX + 1];
  HEC_SCOPED(hec_text) recipe = {0}, words = {0};
  int32_t n = hec_recommendation_assumed(r, &recipe, assumed);
  for (int32_t i = 0; i < n; i++)
    hec_text_printf(&words, "%s%s", i ? "; " : "", assumed[i]);
  if (n > 0)
    hec_summary_add_foot("assumed:", words.data, out);
}

static void add_not_searched(const hec_recommendation *r, hec_text *out) {
  HEC_SCOPED(hec_text) words = {0};
  hec_text_add(&words, "other uneven stages than a shorter last one, ZeRO 2, FSDP in a pipeline, schedules other than "
                       "1f1b, interleaved and the one that --pipeline or the set-up names.");
  if (r->left_out)
    hec_text_printf(&words, " Nor policies that are there to compare with: %s.", r->left_out);
  hec_summary_add_foot("not searched:", words.data, out);
}

static void add_columns(hec_text *out) {
  hec_summary_add_foot(
      "columns:",
      "step (s): a training step with the loads of this trace. even (s): the same step if every expert "
      "got the same number of tokens (balanced routing). memory: what the fullest GPU needs.",
      out);
}

static void add_feet(const hec_recommendation *r, hec_text *out) {
  HEC_SCOPED(hec_text) words = {0};
  add_columns(out);
  hec_training_fit_say(&hec_recommended_row(&r->rows[0])->result.memory, NULL, "The first", &words);
  if (hec_recommended_row(&r->rows[0])->result.memory.fits)
    peak_words(r, &words);
  if (!hec_recommended_row(&r->rows[0])->result.memory.fits)
    hec_text_printf(&words, " With balanced routing it needs %.1f GiB.",
                    hec_memory_gib(&r->rows[0].choice.result.memory));
  add_roomier(r, &words);
  hec_summary_add_foot("memory:", words.data, out);
  hec_text_free(&words);
  searched_words(r, &words);
  hec_summary_add_foot("searched:", words.data, out);
  hec_text_free(&words);
  confidence_words(r, &words);
  hec_summary_add_foot("confidence:", words.data, out);
  hec_text_free(&words);
  add_assumed(r, out);
  add_not_searched(r, out);
  hec_summary_add_foot("not modelled:", hec_training_not_modelled, out);
  if (r->megatron_row != 0)
    hec_text_printf(&words, "of %s (%.4g s): ",
                    r->megatron_row > 0 ? "the row that it runs as it is" : "what runs best without a policy",
                    hec_recommended_s(&r->megatron));
  HEC_SCOPED(hec_text) differs = {0};
  size_t from = words.length;
  hec_recommendation_megatron(r, true, &words, &differs);
  if (hec_megatron_environment(words.data + from))
    hec_text_printf(&words, "; with %s", hec_megatron_environment(words.data + from));
  hec_summary_add_foot("Megatron-LM:", words.data, out);
  if (differs.length > 0)
    hec_summary_add_foot("differs:", differs.data, out);
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
  hec_text_add_plain(&words, hec_set_up_cluster(s));
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
