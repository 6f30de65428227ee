/* What a person needs first of a training step: how long it takes and what imbalance costs, the rows that matter, what this rests
 * on. */
#include "tools/front/job_args.h"
#include "tools/front/summary/summary_write.h"
#include "tools/front/training/training_summary.h"

#include <inttypes.h>
#include <string.h>

enum { ROWS_MAX = 5 };                                   /* beside the balanced one */
static const double factor_low = 0.7, factor_high = 1.4; /* beyond: the model misses something of that run */
static const double close = 0.01;                        /* a difference that is none */

const char hec_training_not_modelled[] =
    "time of planning; congestion of the network; gradients of copies that stay from step to step. Gathered copies and "
    "moved experts cost what a closed form of the links says, hidden beside attention where they are decided before "
    "the "
    "gate.";

/* ---- Head and verdict ---- */

static void add_head(const hec_training_summary *s, hec_text *out) {
  const hec_training *t = &s->set_up->training;
  const hec_trace_header *header = &s->set_up->job.header;
  hec_text words = {0};
  hec_text_printf(&words, "%s: ", s->tool);
  hec_text_add_plain(&words, header->name[0] ? header->name : s->trace);
  hec_text_printf(&words, "%s, %d record%s; model %s on %d GPUs (%s), ", header->synthetic ? " (synthetic)" : "",
                  (int)s->n_records, s->n_records == 1 ? "" : "s", s->set_up->moe.name, (int)t->layout.gpus,
                  t->laws->gpu.name);
  hec_layout_write(&t->layout, &words);
  hec_text_printf(&words, "; a step of %d sequences of %d tokens", (int)t->global_batch, (int)t->seq);
  hec_summary_add_paragraph(words.data, 0, out);
  hec_text_add(out, "\n");
  hec_text_free(&words);
}

int32_t hec_training_fastest(const hec_training_summary *s) {
  int32_t best = s->baseline;
  for (int32_t i = 0; i < s->n_rows; i++)
    if (!s->rows[i].policy->drops && s->rows[i].result.step_s < s->rows[best].result.step_s)
      best = i;
  return best;
}

void hec_training_verdict(const hec_training_summary *s, hec_text *words) {
  const hec_training_result *ep = &s->rows[s->baseline].result;
  int32_t best = hec_training_fastest(s);
  double best_s = s->rows[best].result.step_s, cost = ep->step_s / s->balanced.step_s - 1;
  hec_text_printf(
      words,
      "A step takes %.4g s with plain expert parallelism (ep): %.0f tokens/s and %.3g model TFLOP/s per GPU, "
      "MFU %.1f %% of the dense bf16 peak, recomputation not counted.",
      ep->step_s, ep->tokens_per_s_per_gpu, ep->model_tflops_per_gpu, 100 * ep->mfu);
  hec_text_printf(words, " With balanced routing it would take %.4g s: this routing costs %.1f %%, ",
                  s->balanced.step_s, 100 * cost);
  if (best_s < ep->step_s * (1 - close))
    hec_text_printf(words, "and %s, the fastest policy, wins %.1f %% back.", s->rows[best].policy->name,
                    100 * (1 - best_s / ep->step_s));
  else
    hec_text_printf(words, "and no policy is faster by %.0f %% or more.", 100 * close);
}

/* ---- Rows ---- */

typedef struct {
  int32_t row[HEC_POLICIES_MAX];
  int32_t n;
} chosen_rows;

static bool has(const chosen_rows *chosen, int32_t row) {
  for (int32_t i = 0; i < chosen->n; i++)
    if (chosen->row[i] == row)
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

/* The fastest of a kind that is not there yet. False: there is none. */
static bool choose(const hec_training_summary *s, row_kind of, chosen_rows *chosen) {
  int32_t best = -1;
  for (int32_t i = 0; i < s->n_rows; i++)
    if (of(s->rows[i].policy) && !has(chosen, i) &&
        (best < 0 || s->rows[i].result.step_s < s->rows[best].result.step_s))
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

/* Plain EP, the user's placement, the fastest of each family, then the fastest of the rest. */
static chosen_rows rows_that_matter(const hec_training_summary *s, bool full) {
  static const row_kind families[] = {is_baseline, is_placed, any, rearranges, copies};
  chosen_rows chosen = {.n = 0};
  for (int32_t i = 0; full && i < s->n_rows; i++)
    chosen.row[chosen.n++] = i;
  for (size_t i = 0; !full && i < sizeof families / sizeof families[0]; i++)
    (void)choose(s, families[i], &chosen);
  while (!full && chosen.n < ROWS_MAX && choose(s, any, &chosen)) {
  }
  sort(s, &chosen);
  return chosen;
}

static void add_row(const hec_training_summary *s, const char *name, int width, const hec_training_result *r,
                    hec_text *out) {
  hec_text_printf(out, "%-*s  %9.4g  %12.0f  %5.1f %%  %4.1f %%  %14.1f %%  %9.2fx\n", width, name, r->step_s,
                  r->tokens_per_s_per_gpu, 100 * r->mfu, 100 * r->bubble_s / r->step_s, 100 * r->dispatch_s / r->step_s,
                  s->rows[s->baseline].result.step_s / r->step_s);
}

static void add_table(const hec_training_summary *s, bool full, hec_text *out) {
  static const char balanced[] = "balanced routing";
  chosen_rows chosen = rows_that_matter(s, full);
  int width = (int)sizeof balanced - 1;
  for (int32_t i = 0; i < chosen.n; i++) {
    int length = (int)strlen(s->rows[chosen.row[i]].policy->name);
    width = length > width ? length : width;
  }
  hec_text_printf(out, "\n%-*s  %9s  %12s  %7s  %6s  %16s  %10s\n", width, "policy", "step (s)", "tokens/s/GPU", "MFU",
                  "bubble", "exposed dispatch", "against ep");
  bool there = false;
  for (int32_t i = 0; i <= chosen.n; i++) {
    const hec_training_row *row = i < chosen.n ? &s->rows[chosen.row[i]] : NULL;
    if (!there && (!row || s->balanced.step_s <= row->result.step_s)) {
      add_row(s, balanced, width, &s->balanced, out);
      there = true;
    }
    if (row)
      add_row(s, row->policy->name, width, &row->result, out);
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
  hec_text_printf(words, "; %d micro-batches of each take %d record%s of the trace in turn", (int)n_micro,
                  (int)s->n_records, s->n_records == 1 ? "" : "s");
  if (s->n_records < (int64_t)n_micro * groups)
    hec_text_add(words, ", again and again");
  hec_text_printf(words, ", policies have seen %d before", (int)s->n_before);
  if (n_trace != t->moe->n_moe_layers)
    hec_text_printf(words, "; the trace's %d MoE layers are spread over the model's %d", (int)n_trace,
                    (int)t->moe->n_moe_layers);
  if (s->set_up->job.header.phase == HEC_PHASE_FORWARD)
    hec_text_printf(words, "; the trace records %s, its loads are taken for those of training",
                    s->set_up->job.header.phase_text);
}

static void add_assumed(const hec_training_summary *s, hec_text *out) {
  hec_text words = {0};
  for (int32_t i = 0; i < s->set_up->n_assumed; i++)
    hec_text_printf(&words, "%s; ", s->set_up->assumed[i]);
  add_records(s, &words);
  hec_text_add(&words, ".");
  hec_summary_add_foot("assumed:", words.data, out);
  hec_text_free(&words);
}

const hec_band *hec_training_band(const hec_training_summary *s) {
  const hec_training *t = &s->set_up->training;
  bool anchored = s->set_up->measured_step_s > 0 || s->set_up->factor > 0;
  return &hec_bands[hec_band_of(t, anchored, hec_recipe_stated(&t->recipe))];
}

static void add_factor(const hec_training_summary *s, hec_text *words) {
  const hec_set_up *set_up = s->set_up;
  hec_text_printf(words, "all times are multiplied by %.4g, ", s->factor);
  hec_text_add(words, set_up->factor > 0 ? "of --measured. "
                                         : "which is your measured step over the predicted one of this layout. ");
  if (set_up->measured_step_s > 0)
    hec_text_printf(words, "For other layouts pass --measured \"factor=%.4g\". ", s->factor);
  if (s->factor < factor_low || s->factor > factor_high)
    hec_text_printf(words,
                    "WARNING: this is outside %.1f to %.1f. Something of that run is not in the recipe, layout or GPU "
                    "given here; relative statements are doubtful, too. ",
                    factor_low, factor_high);
}

void hec_training_band_say(const hec_training_summary *s, hec_text *words) {
  const hec_band *band = hec_training_band(s);
  double step_s = s->rows[s->baseline].result.step_s;
  if (s->set_up->measured_step_s > 0 || s->set_up->factor > 0)
    add_factor(s, words);
  hec_text_printf(words,
                  "where %s, half of the published runs took within %.0f %% of the prediction, and nine of ten between "
                  "1/%.3g and %.3g times it: here %.4g to %.4g s with ep (hecate-validate training).",
                  band->of, 100 * band->half, band->nine, band->nine, step_s / band->nine, step_s * band->nine);
  if (band != &hec_bands[HEC_BAND_ANCHORED])
    hec_text_add(words, " --measured \"step=...s\" of your own run narrows it.");
}

/* Of this routing, whose busiest rank holds most; of balanced routing where that changes the verdict. */
static void add_memory(const hec_training_summary *s, hec_text *out) {
  const hec_training_memory *natural = &s->rows[s->baseline].result.memory, *balanced = &s->balanced.memory;
  hec_text words = {0};
  hec_training_fit_say(natural, &s->fix, &words);
  if (balanced->fits && !natural->fits)
    hec_text_printf(&words, " With balanced routing it fits: %.1f GiB on stage %d.",
                    (balanced->reserved + balanced->outside) / 1073741824, (int)balanced->device);
  hec_summary_add_foot("memory:", words.data, out);
  hec_text_free(&words);
}

/* Tokens really computed: what a capacity drops skips its experts. */
static void add_dropped(const hec_training_summary *s, hec_text *out) {
  const hec_training *t = &s->set_up->training;
  const hec_training_row *ep = &s->rows[s->baseline];
  double tokens = (double)t->global_batch * (double)t->seq;
  hec_text words = {0};
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
  hec_text_free(&words);
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
    hec_text words = {0};
    if (all[i].published <= 0)
      continue;
    int digits = all[i].published * all[i].unit >= 1000 ? 0 : 1;
    hec_text_printf(&words, "%.*f %s; predicted %.*f with balanced routing, %.*f with this routing (ep).", digits,
                    all[i].published * all[i].unit, all[i].what, digits, all[i].balanced * all[i].unit, digits,
                    all[i].natural * all[i].unit);
    hec_summary_add_foot("published:", words.data, out);
    hec_text_free(&words);
  }
}

void hec_training_screen(const hec_training_summary *s, bool full, hec_text *out) {
  hec_text words = {0};
  add_head(s, out);
  hec_training_verdict(s, &words);
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
  hec_text_free(&words);
  hec_summary_add_foot("not modelled:", hec_training_not_modelled, out);
  if (!full)
    hec_summary_add_foot(
        "more:",
        "--full prints every policy; --out DIR writes a page with charts, JSON, CSV and the timeline of "
        "the pipeline; docs/layouts.md",
        out);
}
