/* See recommendation.h. */
#include "tools/front/training/recommendation.h"

#include "models/laws/cost_law.h"

#include <string.h>

/* ---- Search ---- */

/* Any layout that is valid, for what does not depend on it: model, GPUs, batch, recipe. Where none is, the error of the simplest. */
static hec_status make_base(const hec_training_args *args, const hec_job_options *options, hec_trace_reader *reader,
                            hec_arena *arena, hec_set_up *base) {
  hec_training_args any = *args;
  if (hec_set_up_wanted(args))
    return hec_set_up_make(args, options, reader, arena, base);
  const char *first = NULL;
  for (int32_t pp = 1; pp <= 64; pp *= 2)
    for (int32_t tp = 1; tp <= 8; tp *= 2) {
      any.layout = hec_arena_printf(arena, "tp=%d pp=%d", (int)tp, (int)pp);
      if (hec_set_up_make(&any, options, reader, arena, base) == HEC_OK)
        return HEC_OK;
      first = first ? first : hec_arena_text(arena, hec_last_error());
    }
  return hec_fail(HEC_BAD_INPUT, "%s", first);
}

/* The layout as options say it, so that everything else is made as always. */
static hec_status make_choice(const hec_training_args *args, const hec_job_options *options, hec_trace_reader *reader,
                              hec_arena *arena, hec_recommended *to) {
  const hec_training *t = &to->choice.training;
  hec_training_args with = *args;
  hec_set_up *set_up = HEC_NEW(arena, hec_set_up, 1);
  hec_text recipe = {0};
  hec_recipe_write(&t->recipe, &recipe);
  with.layout = hec_arena_printf(arena, "tp=%d cp=%d pp=%d vpp=%d ep=%d etp=%d", (int)t->layout.tp, (int)t->layout.cp,
                                 (int)t->layout.pp, (int)t->layout.vpp, (int)t->layout.ep, (int)t->layout.etp);
  with.recipe = hec_arena_text(arena, recipe.data);
  with.micro_batch = t->micro_batch;
  with.pipeline = t->layout.vpp > 1 ? "interleaved" : "1f1b"; /* as the search has it, whatever a set-up says */
  hec_text_free(&recipe);
  to->set_up = set_up;
  HEC_TRY(hec_set_up_make(&with, options, reader, arena, set_up));
  /* The rest was written for the set-up, but nobody stated it: how sure the answer is hangs on that. */
  static const char *const chosen[] = {"dispatcher", "recompute", "zero", NULL};
  hec_recipe_state_as(&set_up->training.recipe, &t->recipe, chosen);
  return HEC_OK;
}

/* What fits into memory, with its copies and its hot rank, before what does not; then the faster one. */
static bool better(const hec_training_result *a, const hec_training_result *b) {
  return a->memory.fits != b->memory.fits ? a->memory.fits : a->step_s < b->step_s;
}

static hec_status compare(const hec_training_choice *policies, hec_trace_reader *reader, hec_arena *arena,
                          hec_recommended *to) {
  HEC_TRY(hec_trace_rewind(reader));
  HEC_TRY(hec_training_compare(to->set_up, policies, reader, arena, &to->policies));
  to->choice.training.recipe = to->set_up->training.recipe;
  to->choice.result = to->policies.balanced;
  to->best = to->policies.baseline;
  for (int32_t i = 0; i < to->policies.n_rows; i++)
    if (!to->policies.rows[i].policy->drops &&
        better(&to->policies.rows[i].result, &to->policies.rows[to->best].result))
      to->best = i;
  return HEC_OK;
}

/* The fastest of each ep, for imbalance hangs on ep; then the fastest others. */
static void choose_rows(hec_recommendation *to) {
  const hec_layout_found *found = &to->found;
  for (int pass = 0; pass < 2; pass++)
    for (int32_t i = 0; i < found->n && to->n < HEC_RECOMMENDED_ROWS; i++) {
      bool same_ep = false, taken = false;
      for (int32_t r = 0; r < to->n; r++) {
        same_ep |= to->rows[r].choice.training.layout.ep == found->choices[i].training.layout.ep;
        taken |= memcmp(&to->rows[r].choice, &found->choices[i], sizeof found->choices[i]) == 0;
      }
      if (pass ? !taken : !same_ep)
        to->rows[to->n++].choice = found->choices[i];
    }
}

static const hec_training_result *best_of(const hec_recommended *r) {
  return &r->policies.rows[r->best].result;
}

static double step_s(const hec_recommended *r) {
  return best_of(r)->step_s;
}

static void sort_rows(hec_recommendation *to) {
  for (int32_t i = 1; i < to->n; i++)
    for (int32_t j = i; j > 0 && better(best_of(&to->rows[j]), best_of(&to->rows[j - 1])); j--) {
      hec_recommended row = to->rows[j];
      to->rows[j] = to->rows[j - 1];
      to->rows[j - 1] = row;
    }
}

/* ---- Doubt ---- */

/* A row under its policy, or balanced, when something is otherwise. */
typedef struct {
  double constant;          /* factor on constant `which`; 1: as it is */
  int32_t which;            /* of 5 */
  int32_t window, of;       /* part of the step's records; of 0: all */
  bool balanced;            /* what routing adds stays as it was */
  const hec_gpu_laws *laws; /* NULL: the job's */
} otherwise;

/* The loads of one part of the step's micro-batches, again and again. */
static void take_window(const otherwise *o, int32_t n_layers, int32_t n_micro, hec_arena *arena,
                        hec_training_job *job) {
  int32_t first = (int32_t)((int64_t)n_micro * o->window / o->of),
          last = (int32_t)((int64_t)n_micro * (o->window + 1) / o->of);
  int64_t n = (int64_t)n_layers * n_micro;
  hec_layer_load *loads = HEC_NEW(arena, hec_layer_load, n);
  double *gather_s = job->gather_s ? HEC_NEW(arena, double, 2 * n) : NULL;
  for (int64_t i = 0; i < n; i++) {
    int64_t from = i / n_micro * n_micro + first + i % n_micro % (last - first);
    loads[i] = job->loads[from];
    for (int way = 0; gather_s && way < 2; way++)
      gather_s[2 * i + way] = job->gather_s[2 * from + way];
  }
  job->loads = loads;
  job->gather_s = gather_s;
}

static hec_status step_otherwise(const hec_recommended *row, const otherwise *o, double *s) {
  hec_arena arena = {0};
  hec_training t = row->choice.training;
  hec_training_result result;
  hec_training_job job = row->policies.rows[row->best].job;
  double *constants[HEC_DOUBTS / 2] = {&t.constants.in_step, &t.constants.nic, &t.constants.hidden, &t.constants.host_s,
                                       &t.constants.overlapped};
  *constants[o->which] *= o->constant;
  t.laws = o->laws ? o->laws : t.laws;
  job.training = &t;
  if (o->balanced)
    job = (hec_training_job){.training = &t};
  if (o->of > 0)
    take_window(o, t.moe->n_moe_layers, hec_training_micro_batches(&t), &arena, &job);
  hec_status status = hec_training_run(&job, &result);
  *s = result.step_s + (o->balanced ? step_s(row) - row->choice.result.step_s : 0);
  hec_arena_free(&arena);
  return status;
}

static hec_status try_otherwise(const hec_recommendation *r, const otherwise *o, hec_doubt *doubt) {
  double first_s = 0, min_s = 0;
  for (int32_t c = 0; c < r->n; c++) {
    double s;
    HEC_TRY(step_otherwise(&r->rows[c], o, &s));
    first_s = c == 0 ? s : first_s;
    min_s = c == 0 || s < min_s ? s : min_s;
  }
  doubt->n++;
  doubt->n_first += first_s <= min_s;
  doubt->worst_regret = first_s / min_s - 1 > doubt->worst_regret ? first_s / min_s - 1 : doubt->worst_regret;
  return HEC_OK;
}

/* As many parts as each of the rows has micro-batches for. */
static int32_t windows_of(const hec_recommendation *r) {
  int32_t n = HEC_RECORD_WINDOWS;
  for (int32_t c = 0; c < r->n; c++) {
    int32_t micro = hec_training_micro_batches(&r->rows[c].choice.training);
    n = micro < n ? micro : n;
    n = r->rows[c].policies.n_records < n ? r->rows[c].policies.n_records : n;
  }
  return n;
}

/* Without fitted collectives: latency and rate of the data sheet price all traffic (models/training/groups.h). */
static const hec_gpu_laws *other_law(const hec_gpu_laws *laws, hec_arena *arena) {
  hec_gpu_laws *other = HEC_NEW(arena, hec_gpu_laws, 1);
  *other = *laws;
  other->gpu.fits = HEC_NEW(arena, hec_law_fit, laws->gpu.n_fits + 1);
  other->gpu.n_fits = other->gpu.n_own = 0;
  for (int32_t i = 0; i < laws->gpu.n_fits; i++) {
    const hec_law_fit *fit = &laws->gpu.fits[i];
    if (fit->law != &hec_cost_law_collective && fit->law != &hec_cost_law_dispatch)
      other->gpu.fits[other->gpu.n_fits++] = *fit;
  }
  return other;
}

/* Whether the order of the rows hangs on a constant, on the records, on the law of the network. */
static hec_status doubt(hec_recommendation *to, hec_arena *arena) {
  const hec_gpu_laws *law = other_law(to->rows[0].choice.training.laws, arena);
  int32_t windows = windows_of(to);
  for (int32_t i = 0; i < HEC_DOUBTS; i++)
    HEC_TRY(try_otherwise(to, &(otherwise){.constant = i % 2 ? 1.1 : 0.9, .which = i / 2, .balanced = true},
                          &to->constants));
  for (int32_t i = 0; i < windows; i++)
    HEC_TRY(try_otherwise(to, &(otherwise){.constant = 1, .window = i, .of = windows}, &to->records));
  return try_otherwise(to, &(otherwise){.constant = 1, .laws = law}, &to->law);
}

static hec_status nothing_fits(const hec_layout_found *found) {
  hec_text layout = {0};
  hec_layout_write(&found->tightest.training.layout, &layout);
  const hec_training_memory *m = &found->tightest.result.memory;
  hec_status status =
      hec_fail(HEC_FAILED,
               "none of %d layouts fits into the memory of a GPU; nearest is %s with full recomputation, "
               "which needs %.1f of %.1f GiB; take more GPUs%s",
               (int)found->n_tried, layout.data, (m->reserved + m->outside) / 1073741824, m->device_bytes / 1073741824,
               hec_recipe_states(&found->tightest.training.recipe, "zero") ? ", shorter sequences or another zero="
                                                                           : " or shorter sequences");
  hec_text_free(&layout);
  return status;
}

static hec_status look_at_today(hec_set_up *base, hec_trace_reader *reader, hec_arena *arena, hec_recommended *today) {
  static const hec_policy *ep[1];
  ep[0] = hec_policy_find("ep");
  const hec_training_choice alone = {.policies = ep, .n_policies = 1, .n_threads = 1, .warmup = -1};
  today->set_up = base;
  today->choice.training = base->training;
  return compare(&alone, reader, arena, today);
}

/* Each layout again with ep alone and the recomputation that it needs to fit: a row whose policy is ep already is as it was. */
static hec_status choose_plain(const hec_training_args *args, const hec_job_options *options,
                               const hec_training_choice *fitting, hec_trace_reader *reader, hec_arena *arena,
                               hec_recommendation *to) {
  static const hec_policy *ep[1];
  ep[0] = hec_policy_find("ep");
  hec_training_choice alone = *fitting;
  alone.policies = ep;
  alone.n_policies = 1;
  for (int32_t i = 0; i < to->n; i++) {
    hec_recommended row = {.choice = to->rows[i].choice};
    if (to->rows[i].best == to->rows[i].policies.baseline) {
      row = to->rows[i];
    } else {
      HEC_TRY(make_choice(args, options, reader, arena, &row));
      HEC_TRY(compare(&alone, reader, arena, &row));
    }
    if (i == 0 || better(best_of(&row), best_of(&to->plain)))
      to->plain = row;
  }
  return HEC_OK;
}

/* Planning is most of the time: policies, records, layers, ranks and experts multiplied. One core plans 110 million such a second
 * (33 policies, DeepSeek-R1's loads on 8 to 256 ranks); on two cores the answer comes sooner. */
static const double planned_per_s = 1.1e8;
enum { RECORDS_MIN = 4, RECORDS_BEFORE = 5 };

/* 0: there is time for all. */
static int32_t records_within(const hec_recommendation *r, const hec_set_up *base, int32_t n_policies,
                              double within_s) {
  double each = 0, experts = (double)base->moe.n_experts, layers = (double)base->job.header.n_layers;
  for (int32_t i = 0; i < r->n; i++)
    each += (double)(r->rows[i].choice.training.layout.ep * r->rows[i].choice.training.layout.etp);
  double records = within_s * planned_per_s / (each * experts * layers * (double)n_policies) - RECORDS_BEFORE;
  return records >= HEC_TRAINING_RECORDS ? 0 : records > RECORDS_MIN ? (int32_t)records : RECORDS_MIN;
}

hec_status hec_recommend(const hec_training_args *args, const hec_job_options *options, double within_s,
                         const hec_training_choice *policies, hec_trace_reader *reader, hec_arena *arena,
                         hec_recommendation *to) {
  hec_set_up *base = HEC_NEW(arena, hec_set_up, 1);
  *to = (hec_recommendation){.has_today = hec_set_up_wanted(args), .trace = hec_trace_origin(reader)};
  HEC_TRY(make_base(args, options, reader, arena, base));
  if (base->file.global_batch == 0)
    return hec_fail(HEC_BAD_INPUT,
                    "--global-batch: expected the sequences of a step, for which layouts are compared; found "
                    "none");
  if (to->has_today)
    HEC_TRY(look_at_today(base, reader, arena, &to->today));
  const hec_layout_search search = {.base = &base->training, .any_micro_batch = args->micro_batch == 0};
  HEC_TRY(hec_layout_search_run(&search, arena, &to->found));
  if (to->found.n == 0)
    return nothing_fits(&to->found);
  choose_rows(to);
  hec_training_choice fitting = *policies;
  fitting.recompute_more = !hec_recipe_states(&base->training.recipe, "recompute");
  fitting.records = to->records_max = records_within(to, base, policies->n_policies, within_s);
  for (int32_t i = 0; i < to->n; i++) {
    HEC_TRY(make_choice(args, options, reader, arena, &to->rows[i]));
    HEC_TRY(compare(&fitting, reader, arena, &to->rows[i]));
  }
  sort_rows(to);
  HEC_TRY(choose_plain(args, options, &fitting, reader, arena, to));
  return doubt(to, arena);
}
