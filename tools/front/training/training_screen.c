/* What a person needs first of a training step: how long it takes and what imbalance costs, the rows that matter, what this rests
 * on. */
#include "tools/front/job_args.h"
#include "tools/front/summary/summary_write.h"
#include "tools/front/training/training_summary.h"

#include <inttypes.h>
#include <string.h>

enum { ROWS_MAX = 5 };                                   /* beside the balanced one */
static const double factor_low = 0.7, factor_high = 1.4; /* beyond: the model misses something of that run */
static const double worth_a_word = 0.1;                  /* of a step, of the host */
static const double close = 0.01;                        /* a difference that is none */

const char hec_training_not_modelled[] =
    "time of planning; congestion of the network. Copies of experts, their gradients and moved experts cost what a "
    "closed form of the links says: hidden beside attention where they are decided before the gate, or with "
    "data-parallel traffic where they stay.";

/* ---- Head and verdict ---- */

static void add_head(const hec_training_summary *s, hec_text *out) {
  const hec_training *t = &s->set_up->training;
  const hec_trace_header *header = &s->set_up->job.header;
  HEC_SCOPED(hec_text) words = {0};
  hec_text_printf(&words, "%s: ", s->tool);
  hec_text_add_plain(&words, header->name[0] ? header->name : s->trace);
  hec_text_printf(&words, "%s, %d record%s; model %s%s on %d GPUs (%s), ", header->synthetic ? " (synthetic)" : "",
                  (int)s->n_records, s->n_records == 1 ? "" : "s", s->set_up->moe.name,
                  s->set_up->file.model ? "" : " (for want of --model)", (int)t->layout.gpus, t->laws->gpu.name);
  hec_layout_write(&t->layout, &words);
  hec_text_printf(&words, "; a step of %d sequences of %d tokens", (int)t->global_batch, (int)t->seq);
  hec_summary_add_paragraph(words.data, 0, out);
  hec_text_add(out, "\n");
}

/* Whether a row is faster than another, or fits where the other does not. */
static bool is_better(const hec_training_row *a, const hec_training_row *b) {
  bool fits = a->result.memory.fits;
  return fits != b->result.memory.fits ? fits : a->result.step_s < b->result.step_s;
}

int32_t hec_training_fastest(const hec_training_summary *s) {
  int32_t best = s->baseline;
  for (int32_t i = 0; i < s->n_rows; i++)
    if (!s->rows[i].policy->drops && is_better(&s->rows[i], &s->rows[best]))
      best = i;
  return best;
}

/* The fastest row that memory rules out, if it is faster than the best; else -1. */
static int32_t ruled_out(const hec_training_summary *s, int32_t best) {
  int32_t out = -1;
  double min = s->rows[best].result.step_s * (1 - close);
  for (int32_t i = 0; i < s->n_rows; i++)
    if (!s->rows[i].policy->drops && !s->rows[i].result.memory.fits && s->rows[i].result.step_s < min) {
      min = s->rows[i].result.step_s;
      out = i;
    }
  return out;
}

/* The fastest policy beside ep, where it is faster or ep does not fit. */
static void say_best(const hec_training_summary *s, int32_t best, const char *between, hec_text *words) {
  const hec_training_result *ep = &s->rows[s->baseline].result, *r = &s->rows[best].result;
  int32_t out = r->memory.fits ? ruled_out(s, best) : -1;
  if (s->n_rows == 1)
    hec_text_add(words, ".");
  else if (best == s->baseline || (r->step_s > ep->step_s * (1 - close) && ep->memory.fits))
    hec_text_printf(words, ".%sNo policy%s is faster by %.0f %% or more.", between,
                    out >= 0 ? " that fits into memory" : "", 100 * close);
  else
    hec_text_printf(words, ", and %.4g s with %s, the fastest policy%s: %.2fx as fast.", r->step_s,
                    s->rows[best].policy->name,
                    !r->memory.fits                ? ", though none fits into memory"
                    : out >= 0 || !ep->memory.fits ? " that fits into memory"
                                                   : "",
                    ep->step_s / r->step_s);
  if (out >= 0)
    hec_text_printf(words, "%s%s would take %.4g s, but does not fit.", between, s->rows[out].policy->name,
                    s->rows[out].result.step_s);
}

double hec_training_host_share(const hec_training_result *r) {
  return r->host_s > worth_a_word * r->step_s ? r->host_s / r->step_s : 0;
}

void hec_training_verdict(const hec_training_summary *s, const char *between, hec_text *words) {
  const hec_training_result *ep = &s->rows[s->baseline].result;
  const double balanced_s = s->balanced.step_s;
  int32_t best = hec_training_fastest(s);
  hec_text_printf(words, "A step takes %.4g s with plain expert parallelism (ep)", ep->step_s);
  say_best(s, best, between, words);
  hec_text_printf(words, "%sWith balanced routing it would take %.4g s: this routing adds %.1f %% with ep", between,
                  balanced_s, 100 * (ep->step_s / balanced_s - 1));
  if (best != s->baseline)
    hec_text_printf(words, ", and %.1f %% with %s", 100 * (s->rows[best].result.step_s / balanced_s - 1),
                    s->rows[best].policy->name);
  if (hec_training_host_share(ep) > 0)
    hec_text_printf(words, ".%s%.0f %% of the step is launching from the host, which no routing changes", between,
                    100 * hec_training_host_share(ep));
  hec_text_printf(words,
                  ".%sWith ep a GPU does %.0f tokens/s and %.3g model TFLOP/s: an MFU of %.1f %% of the dense bf16 "
                  "peak, recomputation not counted.",
                  between, ep->tokens_per_s_per_gpu, ep->model_tflops_per_gpu, 100 * ep->mfu);
}

/* ---- Rows ---- */

typedef struct {
  int32_t row[HEC_POLICIES_MAX];
  int32_t n;
} chosen_rows;

/* Whether the row, or (`kin`) a variant of its policy, is there. */
static bool has(const hec_training_summary *s, const chosen_rows *chosen, int32_t row, bool kin) {
  for (int32_t i = 0; i < chosen->n; i++)
    if (chosen->row[i] == row ||
        (kin && hec_summary_are_kin(s->rows[chosen->row[i]].policy->name, s->rows[row].policy->name)))
      return true;
  return false;
}

typedef bool (*row_kind)(const hec_policy *policy);
static bool any(const hec_policy *policy) {
  return !policy->drops;
}
static bool is_baseline(const hec_policy *policy) {
  return policy->baseline;
}
static bool is_placed(const hec_policy *policy) {
  return policy->placed;
}
static bool rearranges(const hec_policy *policy) {
  return policy->rearranges && !policy->drops;
}
static bool copies(const hec_policy *policy) { /* per micro-batch: FSSDP and its like */
  return policy->known >= HEC_KNOWN_LAST && !policy->drops;
}

/* Adds the best of a kind that is not there yet; `kin`: nor a variant of it. False: there is none. */
static bool choose(const hec_training_summary *s, row_kind of, bool kin, chosen_rows *chosen) {
  int32_t best = -1;
  for (int32_t i = 0; i < s->n_rows; i++)
    if (of(s->rows[i].policy) && !has(s, chosen, i, kin) && (best < 0 || is_better(&s->rows[i], &s->rows[best])))
      best = i;
  if (best < 0)
    return false;
  chosen->row[chosen->n++] = best;
  return true;
}

static void sort(const hec_training_summary *s, chosen_rows *chosen) {
  for (int32_t i = 1; i < chosen->n; i++)
    for (int32_t k = i; k > 0; k--) {
      int32_t a = chosen->row[k - 1], b = chosen->row[k];
      double before = s->rows[a].result.step_s, after = s->rows[b].result.step_s;
      if (before < after || (!(after < before) && a < b))
        break;
      chosen->row[k - 1] = b;
      chosen->row[k] = a;
    }
}

/* Plain EP, the user's placement, the best of each family, then the best of the rest: variants of these come last. */
static chosen_rows rows_that_matter(const hec_training_summary *s, int32_t n_max) {
  static const row_kind families[] = {is_baseline, is_placed, any, rearranges, copies};
  chosen_rows chosen = {.n = 0};
  for (size_t i = 0; i < sizeof families / sizeof families[0] && chosen.n < n_max; i++)
    (void)choose(s, families[i], true, &chosen);
  while (chosen.n < n_max && (choose(s, any, true, &chosen) || choose(s, any, false, &chosen))) {
  }
  for (int32_t i = 0; n_max >= s->n_rows && i < s->n_rows; i++) /* all, those that drop too */
    if (!has(s, &chosen, i, false))
      chosen.row[chosen.n++] = i;
  sort(s, &chosen);
  return chosen;
}

int32_t hec_training_choose_rows(const hec_training_summary *s, int32_t n_max, int32_t *row) {
  chosen_rows chosen = rows_that_matter(s, n_max);
  memcpy(row, chosen.row, (size_t)chosen.n * sizeof *row);
  return chosen.n;
}

static double gib(double bytes) {
  return bytes / 1073741824;
}

/* Memory in the full table alone: the short one has the columns that fit a terminal. */
static void add_row(const hec_training_summary *s, const char *name, int width, bool full, const hec_training_result *r,
                    hec_text *out) {
  const hec_training_memory *m = &r->memory;
  hec_text_printf(out, "%-*s  %#9.4g  %12.0f  %5.1f %%  %4.1f %%  %14.1f %%  %9.2fx", width, name, r->step_s,
                  r->tokens_per_s_per_gpu, 100 * r->mfu, 100 * r->bubble_s / r->step_s, 100 * r->dispatch_s / r->step_s,
                  s->rows[s->baseline].result.step_s / r->step_s);
  if (full)
    hec_text_printf(out, "  %12.1f", gib(m->reserved + m->outside));
  hec_text_printf(out, "%s\n", m->fits ? "" : "  does not fit");
}

static void add_table(const hec_training_summary *s, bool full, hec_text *out) {
  static const char balanced[] = "balanced routing";
  chosen_rows chosen = rows_that_matter(s, full ? s->n_rows : ROWS_MAX);
  int width = (int)sizeof balanced - 1;
  for (int32_t i = 0; i < chosen.n; i++) {
    int length = (int)strlen(s->rows[chosen.row[i]].policy->name);
    width = length > width ? length : width;
  }
  hec_text_printf(out, "\n%-*s  %9s  %12s  %7s  %6s  %16s  %10s%s\n", width, "policy", "step (s)", "tokens/s/GPU",
                  "MFU", "bubble", "exposed dispatch", "against ep", full ? "  needed (GiB)" : "");
  bool there = false;
  for (int32_t i = 0; i <= chosen.n; i++) {
    const hec_training_row *row = i < chosen.n ? &s->rows[chosen.row[i]] : NULL;
    if (!there && (!row || s->balanced.step_s <= row->result.step_s)) {
      add_row(s, balanced, width, full, &s->balanced, out);
      there = true;
    }
    if (row)
      add_row(s, row->policy->name, width, full, &row->result, out);
  }
}

/* ---- What it rests on ---- */

static void add_records(const hec_training_summary *s, hec_text *words) {
  const hec_training *t = &s->set_up->training;
  int32_t n_micro = hec_training_micro_batches(t), n_trace = s->set_up->job.header.n_layers;
  int32_t groups = t->layout.edp;
  hec_text_printf(words, "%d expert-parallel group%s of %d GPUs hold%s a layer", (int)groups, groups == 1 ? "" : "s",
                  (int)(t->layout.ep * t->layout.etp), groups == 1 ? "s" : "");
  if (s->n_groups < groups)
    hec_text_printf(words, ", %d with loads of their own", (int)s->n_groups);
  hec_text_printf(words, "; %d micro-batch%s of each take%s %d record%s of the trace in turn", (int)n_micro,
                  n_micro == 1 ? "" : "es", n_micro == 1 ? "s" : "", (int)s->n_records, s->n_records == 1 ? "" : "s");
  if (s->n_records < (int64_t)n_micro * groups)
    hec_text_add(words, ", again and again");
  if (s->seen)
    hec_text_add(words, ", and policies have seen it before: real loads change, so policies that plan from past loads "
                        "look better here");
  else
    hec_text_printf(words, ", policies have seen %d before", (int)s->n_before);
  if (s->n_empty > 0)
    hec_text_printf(words,
                    "; %" PRId64 " of the %" PRId64 " layers in these records have no tokens, and cost nothing there",
                    s->n_empty, (int64_t)s->n_records * n_trace);
  if (n_trace != t->moe->n_moe_layers)
    hec_text_printf(words, "; the trace's %d MoE layers are spread over the model's %d", (int)n_trace,
                    (int)t->moe->n_moe_layers);
  if (s->set_up->job.header.phase == HEC_PHASE_FORWARD)
    hec_text_printf(words, "; the trace records %s, its loads are taken for those of training",
                    s->set_up->job.header.phase_text);
}

static void add_assumed(const hec_training_summary *s, hec_text *out) {
  HEC_SCOPED(hec_text) words = {0};
  for (int32_t i = 0; i < s->set_up->n_assumed; i++)
    hec_text_printf(&words, "%s; ", s->set_up->assumed[i]);
  add_records(s, &words);
  hec_text_add(&words, ".");
  hec_summary_add_foot("assumed:", words.data, out);
}

const hec_band *hec_training_band(const hec_training_summary *s) {
  const hec_training *t = &s->set_up->training;
  bool anchored = s->set_up->measured_step_s > 0 || s->set_up->factor > 0;
  return &hec_bands[hec_band_of(t, anchored, hec_recipe_stated(&t->recipe))];
}

/* Something of the measured run is not in its description: nothing published says how far off a prediction is then. */
static bool is_doubtful(const hec_training_summary *s) {
  return s->factor < factor_low || s->factor > factor_high;
}

bool hec_training_factor_say(const hec_training_summary *s, hec_text *words) {
  const hec_set_up *set_up = s->set_up;
  bool doubtful = is_doubtful(s);
  if (set_up->measured_step_s <= 0 && set_up->factor <= 0)
    return true;
  if (doubtful)
    hec_text_printf(words,
                    "WARNING: the factor is outside %.1f to %.1f. Something of that run is not in the recipe, layout "
                    "or GPU given here. Check etp, vpp, dispatcher, micro-batch and recompute first. So no band is "
                    "given, and relative statements are doubtful, too. ",
                    factor_low, factor_high);
  hec_text_printf(words, "%sll times are multiplied by %.4g, ", doubtful ? "A" : "a", s->factor);
  hec_text_add(words, set_up->factor > 0 ? "of --measured. "
                                         : "which is your measured step over the predicted one of this layout. ");
  if (set_up->measured_step_s > 0)
    hec_text_printf(words, "For other layouts pass --measured \"factor=%.4g\". ", s->factor);
  return !doubtful;
}

/* What is predicted: where ep is measured, the fastest policy. */
static void add_range(const hec_training_summary *s, const hec_band *band, hec_text *words) {
  int32_t measured = s->set_up->measured_step_s > 0 && !s->set_up->measured_balanced ? s->baseline : -1,
          best = hec_training_fastest(s), of = measured == s->baseline ? best : s->baseline;
  if (measured >= 0)
    hec_text_printf(words, "%.4g s with ep is your measurement. ", s->rows[measured].result.step_s);
  else if (s->set_up->measured_step_s > 0)
    hec_text_printf(words, "%.4g s with balanced routing is your measurement. ", s->balanced.step_s);
  if (of != measured)
    hec_text_printf(words, "%.4g to %.4g s with %s. ", s->rows[of].result.step_s / band->nine,
                    s->rows[of].result.step_s * band->nine, s->rows[of].policy->name);
}

void hec_training_band_say(const hec_training_summary *s, hec_text *words) {
  const hec_band *band = hec_training_band(s);
  if (!hec_training_factor_say(s, words))
    return;
  add_range(s, band, words);
  hec_text_printf(words,
                  "Where %s, nine of ten published runs took between 1/%.3g and %.3g times the "
                  "prediction, and half of them within %.0f %% of it (hecate-validate training).",
                  band->of, band->nine, band->nine, 100 * band->half);
  if (band->nine > hec_bands[HEC_BAND_ANCHORED].nine)
    hec_text_add(words, " --measured \"step=...s\" of your own run narrows it.");
}

/* Of this routing, whose busiest rank holds most; of balanced routing where that changes the verdict. */
void hec_training_say_memory(const hec_training_summary *s, const char *between, hec_text *words) {
  const hec_training_memory *natural = &s->rows[s->baseline].result.memory, *balanced = &s->balanced.memory;
  int32_t best = hec_training_fastest(s);
  hec_training_fit_say(natural, &s->fix, "ep", words);
  if (best != s->baseline) {
    hec_text_add(words, between);
    hec_training_fit_say(&s->rows[best].result.memory, NULL, s->rows[best].policy->name, words);
  }
  if (balanced->fits && !natural->fits) {
    hec_text_add(words, between);
    hec_training_fit_say(balanced, NULL, "Balanced routing", words);
  }
}

static void add_memory(const hec_training_summary *s, hec_text *out) {
  const hec_training_memory *m = &s->rows[s->baseline].result.memory;
  HEC_SCOPED(hec_text) words = {0};
  hec_training_say_memory(s, " ", &words);
  hec_text_printf(&words, " What ep needs: tensors %.1f, allocator %.1f, CUDA and NCCL %.1f GiB.", gib(m->peak),
                  gib(m->reserved - m->peak), gib(m->outside));
  hec_summary_add_foot("memory:", words.data, out);
}

/* Tokens really computed: what a capacity drops skips its experts. */
static void add_dropped(const hec_training_summary *s, hec_text *out) {
  const hec_training *t = &s->set_up->training;
  const hec_training_row *ep = &s->rows[s->baseline];
  double tokens = (double)t->global_batch * (double)t->seq;
  HEC_SCOPED(hec_text) words = {0};
  if (t->capacity <= 0)
    return;
  hec_text_printf(
      &words,
      "at capacity %.4g, %.2f %% of the assignments are dropped: experts compute what %.0f of the %.0f tokens "
      "of a step would be, %.0f tokens/s per GPU with ep. Model TFLOP/s and MFU count this work alone. "
      "Balanced routing drops nothing.",
      t->capacity, 100 * ep->dropped_share, tokens * (1 - ep->dropped_share), tokens,
      ep->result.tokens_per_s_per_gpu * (1 - ep->dropped_share));
  hec_summary_add_foot("dropped:", words.data, out);
}

/* What its source measured, beside this. */
static void add_published(const hec_training_summary *s, hec_text *out) {
  const hec_training_result *ep = &s->rows[s->baseline].result, *b = &s->balanced;
  const hec_setup *f = &s->set_up->file;
  const struct {
    const char *what;
    double published, balanced, natural, unit;
  } all[] = {
      {"s a step", f->published.step_s, b->step_s, ep->step_s, 1},
      {"tokens/s/GPU", f->published.tokens_per_s_per_gpu, b->tokens_per_s_per_gpu, ep->tokens_per_s_per_gpu, 1},
      {"model TFLOP/s/GPU", f->published.model_tflops_per_gpu, b->model_tflops_per_gpu, ep->model_tflops_per_gpu, 1},
      {"% MFU", f->published.mfu, b->mfu, ep->mfu, 100},
      {"thousand GPU hours for a trillion tokens", f->published.gpu_hours_per_1e12_tokens, b->gpu_hours_per_1e12_tokens,
       ep->gpu_hours_per_1e12_tokens, 1e-3}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    HEC_SCOPED(hec_text) words = {0};
    if (all[i].published <= 0)
      continue;
    int digits = all[i].published * all[i].unit >= 1000 ? 0 : 1;
    hec_text_printf(&words, "%.*f %s; predicted %.*f with balanced routing, %.*f with this routing (ep).", digits,
                    all[i].published * all[i].unit, all[i].what, digits, all[i].balanced * all[i].unit, digits,
                    all[i].natural * all[i].unit);
    hec_summary_add_foot("published:", words.data, out);
  }
}

void hec_training_screen(const hec_training_summary *s, bool full, hec_text *out) {
  HEC_SCOPED(hec_text) words = {0};
  add_head(s, out);
  hec_training_verdict(s, " ", &words);
  hec_summary_add_paragraph(words.data, 0, out);
  hec_text_free(&words);
  add_table(s, full, out);
  hec_text_add(out, "\n");
  add_dropped(s, out);
  add_memory(s, out);
  add_published(s, out);
  add_assumed(s, out);
  hec_training_band_say(s, &words);
  hec_summary_add_foot("band:", words.data, out);
  hec_summary_add_foot("not modelled:", hec_training_not_modelled, out);
  if (!full)
    hec_summary_add_foot(
        "more:",
        "--full prints every policy; --out DIR writes a page with charts, JSON, CSV and the timeline of "
        "the pipeline; docs/layouts.md",
        out);
}
