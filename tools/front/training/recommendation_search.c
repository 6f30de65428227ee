/* Layouts under the loads of a trace, cheaply: see recommendation_search.h.
 *
 *   floor     of each layout, from the search: no policy is faster there. A layout whose floor is above the best estimate is left out
 *   class     layouts that are the same job for a policy: as many ranks, tokens and parts of an expert. For each class a few
 *             records are planned once. Its loads are means over them, layer by layer, of the busiest rank.
 *   estimate  a few micro-batches of the step under those loads, with every policy and the least recomputation that fits
 *
 * ep alone is never faster than balanced routing, and that is its floor.
 * The first class is planned with all policies, on few enough ranks. The first class of another `ep` takes the fastest of the
 * nearest one, as many as there is time for. Further classes of it take the POLICIES_KEPT fastest. Layouts come in the order of
 * their balanced time. Work is counted, and no clock is read: the same input gives the same candidates. */
#include "tools/front/training/recommendation_search.h"

#include "runtime/base/progress.h"

#include <stdlib.h>
#include <string.h>

enum { CLASS_RECORDS = 2, CLASS_BEFORE = 2, POLICIES_KEPT = 6, POLICIES_EACH = 3, POLICIES_MIN = 8 };

typedef struct {
  int32_t ep, etp;
  double tokens; /* of a rank in a micro-batch */
  int32_t n, n_planned;
  const hec_policy **policies; /* [n_planned] where ranked, the fastest first; the first n are tried, with ep */
  hec_layout_loads *loads;     /* [n_planned] */
  bool ranked;
  bool plain; /* of ep alone: no other policy can win there */
} group_class;

typedef struct {
  const hec_candidate_search *of;
  hec_trace_reader *reader;
  hec_arena *arena;
  hec_candidates *to;
  group_class *classes; /* [n] malloc */
  size_t capacity;
  int32_t n;
  int32_t n_layers;         /* of the trace */
  double within_s, class_s; /* for all, and for all policies of one class */
  double spent_s;
  double best_s, best_plain_s; /* estimates so far; 0: none */
} finder;

hec_status hec_recommended_set_up(const hec_training_args *args, const hec_job_options *options,
                                  const hec_layout_choice *choice, hec_trace_reader *reader, hec_arena *arena,
                                  hec_set_up **set_up) {
  const hec_training *t = &choice->training;
  hec_training_args with = *args;
  HEC_SCOPED(hec_text) recipe = {0}, layout = {0};
  hec_recipe_write(&t->recipe, &recipe);
  hec_layout_write_sizes(&t->layout, &layout);
  with.layout = hec_arena_text(arena, layout.data);
  with.recipe = hec_arena_text(arena, recipe.data);
  with.micro_batch = t->micro_batch;
  const hec_pipeline_schedule *schedule = choice->pipeline;
  with.pipeline = schedule ? schedule->name : hec_pipeline_default(t->layout.pp, t->layout.vpp)->name;
  *set_up = HEC_NEW(arena, hec_set_up, 1);
  HEC_TRY(hec_set_up_make(&with, options, reader, arena, *set_up));
  /* The rest was written for the set-up, but nobody stated it: how sure the answer is hangs on that. */
  static const char *const chosen[] = {"dispatcher", "recompute", "zero", NULL};
  hec_recipe_state_as(&(*set_up)->training.recipe, &t->recipe, chosen);
  return HEC_OK;
}

/* ---- Classes ---- */

/* The busiest rank's experts over the micro-batches: the largest, the second largest, ... */
static int descending(const void *a, const void *b) {
  const int32_t *x = a, *y = b;
  return (*x < *y) - (*x > *y);
}

static void add_rows(const hec_layer_load *load, double *sum, int32_t *scratch) {
  memcpy(scratch, load->rows, (size_t)load->n * sizeof *scratch);
  qsort(scratch, (size_t)load->n, sizeof *scratch, descending);
  for (int32_t i = 0; i < load->n; i++)
    sum[i] += (double)scratch[i];
}

static int32_t max_of(int32_t a, int32_t b) {
  return a > b ? a : b;
}

/* The mean of n micro-batches of a layer; of copies the most, for memory has to hold them. */
static hec_layer_load mean_of(const hec_layer_load *loads, int32_t n, hec_arena *arena) {
  hec_layer_load mean = {.guests_again = loads->guests_again, .guests_ahead = loads->guests_ahead};
  int32_t width = 0;
  for (int32_t m = 0; m < n; m++)
    width = max_of(width, loads[m].n);
  double *sum = HEC_NEW(arena, double, width + 1);
  int32_t *rows = HEC_NEW(arena, int32_t, width + 1);
  for (int32_t m = 0; m < n; m++) {
    add_rows(&loads[m], sum, rows);
    mean.received += loads[m].received / (double)n;
    mean.guests = max_of(mean.guests, loads[m].guests);
    mean.guests_kept = max_of(mean.guests_kept, loads[m].guests_kept);
    mean.replicas = max_of(mean.replicas, loads[m].replicas);
  }
  for (int32_t i = 0; i < width; i++) {
    rows[i] = (int32_t)(sum[i] / (double)n + 0.5);
    mean.n += rows[i] > 0;
  }
  mean.rows = rows;
  return mean;
}

static hec_layout_loads means(const hec_training_routing *of, int32_t n_layers, int32_t n_micro, hec_arena *arena) {
  hec_layer_load *load = HEC_NEW(arena, hec_layer_load, n_layers);
  double *gather_s = of->gather_s ? HEC_NEW(arena, double, 2 * n_layers) : NULL;
  for (int32_t l = 0; l < n_layers; l++) {
    load[l] = mean_of(of->loads + (int64_t)l * n_micro, n_micro, arena);
    for (int32_t i = 0; gather_s && i < 2 * n_micro; i++)
      gather_s[2 * l + i % 2] += of->gather_s[2 * (int64_t)l * n_micro + i] / (double)n_micro;
  }
  return (hec_layout_loads){
      .load = load, .gather_s = gather_s, .sharded = of->sharded, .moves_s = of->moves_s, .replicas_s = of->replicas_s};
}

static hec_status plan_class(finder *f, const hec_set_up *set_up, hec_arena *scratch, group_class *c) {
  const hec_training_loads_of of = {.job = &set_up->job,
                                    .training = &set_up->training,
                                    .policies = c->policies,
                                    .n_policies = c->n,
                                    .n_threads = f->of->policies->n_threads,
                                    .silent = true,
                                    .capacity = set_up->training.capacity,
                                    .n_layers = set_up->moe.n_moe_layers,
                                    .n_stages = 1,
                                    .n_micro = CLASS_RECORDS,
                                    .records = CLASS_RECORDS,
                                    .warmup = f->of->policies->warmup,
                                    .before_max = CLASS_BEFORE};
  hec_training_loads loads;
  for (int32_t i = 0; i < c->n; i++)
    HEC_TRY(hec_policy_suits(c->policies[i], &set_up->job.problem));
  hec_status status = hec_training_loads_make(&of, f->reader, scratch, &loads);
  c->loads = HEC_NEW(f->arena, hec_layout_loads, c->n);
  for (int32_t i = 0; status == HEC_OK && i < c->n; i++)
    c->loads[i] = means(&loads.of[i], of.n_layers, of.n_micro, f->arena);
  hec_training_loads_free(&of, &loads);
  return status;
}

static const hec_policy *plain(void) {
  return hec_policy_find("ep");
}

static bool can_win(const hec_policy *policy) {
  return !policy->reference && !policy->drops;
}

hec_status hec_candidates_left_out(const hec_policy *const *policies, int32_t n, hec_arena *arena, const char **names) {
  int32_t n_out = 0;
  *names = NULL;
  for (int32_t i = 0; i < n; i++)
    if (!can_win(policies[i])) {
      *names = *names ? hec_arena_printf(arena, "%s, %s", *names, policies[i]->name) : policies[i]->name;
      n_out++;
    }
  if (n_out < n)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT,
                  "--policy: expected a policy that can be recommended, found %s, which %s there to compare with; "
                  "hecate-sim --list policies has the others",
                  *names, n > 1 ? "are" : "is");
}

/* All that keep every token, and ep; where one rank has all experts ep alone, for there is nothing to place. */
static void all_policies(finder *f, group_class *c) {
  const hec_training_choice *of = f->of->policies;
  c->policies = HEC_NEW(f->arena, const hec_policy *, of->n_policies + 1);
  for (int32_t i = 0; c->ep > 1 && !c->plain && i < of->n_policies; i++)
    if (can_win(of->policies[i]) && of->policies[i] != plain())
      c->policies[c->n++] = of->policies[i];
  c->policies[c->n++] = plain();
}

static double ratio(int32_t a, int32_t b) {
  return a > b ? (double)a / (double)b : (double)b / (double)a;
}

static const group_class *nearest_ranked(const finder *f, int32_t ep) {
  const group_class *nearest = NULL;
  for (int32_t i = 0; i < f->n; i++)
    if (f->classes[i].ranked && (!nearest || ratio(f->classes[i].ep, ep) < ratio(nearest->ep, ep)))
      nearest = &f->classes[i];
  return nearest;
}

/* The first n of a class, and ep. */
static void take_policies(finder *f, const group_class *from, int32_t n, group_class *c) {
  c->policies = HEC_NEW(f->arena, const hec_policy *, from->n_planned + 1);
  for (int32_t i = 0; i < from->n_planned; i++)
    if (i < n || from->policies[i] == plain())
      c->policies[c->n++] = from->policies[i];
}

static double class_s(const hec_training *t, int32_t n_layers, int32_t n_policies) {
  return hec_planning_s(t, n_layers, n_policies, CLASS_BEFORE + CLASS_RECORDS);
}

static void choose_policies(finder *f, const hec_training *t, group_class *c) {
  const group_class *known = nearest_ranked(f, c->ep);
  double room = f->class_s / class_s(t, f->n_layers, 1);
  int32_t n = room < POLICIES_MIN ? POLICIES_MIN : room < 1e6 ? (int32_t)room : 1000000;
  if (c->plain || c->ep == 1 || !known)
    all_policies(f, c);
  else
    take_policies(f, known, known->ep == c->ep ? POLICIES_KEPT : n, c);
}

static double tokens_of(const hec_training *t) {
  return hec_training_tokens(t) * (double)t->layout.etp;
}

static bool belongs(const group_class *c, const hec_training *t, bool alone) {
  double tokens = tokens_of(t);
  return (alone || !c->plain) && c->ep == t->layout.ep && c->etp == t->layout.etp && !(c->tokens < tokens) &&
         !(c->tokens > tokens);
}

/* False in `made`: there is no time for it. */
static hec_status make_class(finder *f, const hec_layout_choice *choice, hec_arena *scratch, group_class *c,
                             bool *made) {
  hec_set_up *set_up;
  *made = false;
  choose_policies(f, &choice->training, c);
  HEC_TRY(hec_recommended_set_up(f->of->args, f->of->options, choice, f->reader, scratch, &set_up));
  double s = class_s(&choice->training, f->n_layers, c->n);
  if (f->spent_s + s > f->within_s && f->n > 0)
    return HEC_OK;
  f->spent_s += s;
  *made = true;
  c->n_planned = c->n;
  return plan_class(f, set_up, scratch, c);
}

/* `alone`: it is enough if it has ep. NULL: there is no time for a new one. */
static hec_status class_of(finder *f, const hec_layout_choice *choice, bool alone, group_class **to) {
  const hec_training *t = &choice->training;
  HEC_SCOPED(hec_arena) scratch = {0};
  bool made;
  *to = NULL;
  for (int32_t i = 0; i < f->n && !*to; i++)
    *to = belongs(&f->classes[i], t, alone) ? &f->classes[i] : NULL;
  if (*to)
    return HEC_OK;
  group_class c = {.ep = t->layout.ep, .etp = t->layout.etp, .tokens = tokens_of(t), .plain = alone};
  hec_status status = make_class(f, choice, &scratch, &c, &made);
  if (status != HEC_OK || !made)
    return status;
  HEC_RESERVE(f->classes, f->capacity, f->n + 1);
  f->classes[f->n] = c;
  *to = &f->classes[f->n++];
  return HEC_OK;
}

/* ---- Estimates ---- */

static bool estimate(finder *f, const hec_layout_choice *of, const hec_layout_loads *loads, hec_layout_choice *to) {
  hec_layout_loads own = *loads;
  own.moves_s /= (double)of->training.layout.pp;
  own.replicas_s /= (double)of->training.layout.pp;
  *to = *of;
  do {
    const hec_training *t = &to->training;
    f->spent_s += hec_pricing_s((double)(t->moe->n_layers + 2 * t->layout.pp * t->layout.pp * t->layout.vpp));
    if (!hec_layout_predict(t, to->pipeline, &own, &to->result))
      return false;
    if (to->result.memory.fits)
      return true;
  } while (f->of->any_recompute && hec_recompute_more(&to->training.recipe));
  return false;
}

static void swap_policies(group_class *c, int32_t i, int32_t j) {
  const hec_policy *policy = c->policies[i];
  hec_layout_loads loads = c->loads[i];
  c->policies[i] = c->policies[j];
  c->loads[i] = c->loads[j];
  c->policies[j] = policy;
  c->loads[j] = loads;
}

/* The fastest first; what does not fit comes last, but ep stays. */
static void rank_policies(group_class *c, double *step_s) {
  for (int32_t i = 1; i < c->n; i++)
    for (int32_t j = i; j > 0 && step_s[j] > 0 && (step_s[j - 1] <= 0 || step_s[j] < step_s[j - 1]); j--) {
      double s = step_s[j];
      step_s[j] = step_s[j - 1];
      step_s[j - 1] = s;
      swap_policies(c, j, j - 1);
    }
  for (int32_t i = POLICIES_KEPT; i < c->n; i++) /* ep behind those that are tried */
    if (c->policies[i] == plain())
      swap_policies(c, i, POLICIES_KEPT);
  c->n = c->n < POLICIES_KEPT + 1 ? c->n : POLICIES_KEPT + 1;
  c->ranked = true;
}

static bool faster(double s, double than_s) {
  return s > 0 && (than_s <= 0 || s < than_s);
}

/* With every policy the first time, later with the fastest ones; or with ep alone. */
static void add_candidate(finder *f, const hec_layout_choice *of, bool alone, group_class *c) {
  hec_candidate *to = &f->to->of[f->to->n];
  double *step_s = HEC_NEW(f->arena, double, c->n);
  *to = (hec_candidate){.of = of, .choice = *of, .policies = c->policies, .alone = alone};
  for (int32_t i = 0; i < c->n; i++) {
    hec_layout_choice with;
    bool is_plain = c->policies[i] == plain();
    if ((!is_plain && (alone || (c->ranked && i >= POLICIES_EACH))) || !estimate(f, of, &c->loads[i], &with))
      continue;
    step_s[i] = with.result.step_s;
    to->plain_s = is_plain ? step_s[i] : to->plain_s;
    if (!faster(step_s[i], to->step_s))
      continue;
    to->step_s = step_s[i];
    to->choice = with;
  }
  if (!c->ranked && !alone)
    rank_policies(c, step_s);
  to->n_policies = c->n;
  f->to->n += to->step_s > 0;
  f->best_s = faster(to->step_s, f->best_s) ? to->step_s : f->best_s;
  f->best_plain_s = faster(to->plain_s, f->best_plain_s) ? to->plain_s : f->best_plain_s;
}

static int by_estimate(const void *a, const void *b) {
  const hec_candidate *x = a, *y = b;
  if (x->step_s < y->step_s || x->step_s > y->step_s)
    return x->step_s < y->step_s ? -1 : 1;
  return (x->of > y->of) - (x->of < y->of); /* the order of the search */
}

static hec_status visit(finder *f, const hec_layout_choice *choice) {
  group_class *c = NULL;
  bool any = f->best_s <= 0 || choice->floor_s < f->best_s;
  bool alone = f->best_plain_s <= 0 || choice->result.step_s < f->best_plain_s;
  f->to->n_beaten += !any && !alone;
  if (!any && !alone)
    return HEC_OK;
  if (f->spent_s <= f->within_s)
    HEC_TRY(class_of(f, choice, !any, &c));
  f->to->n_left += !c;
  if (c)
    add_candidate(f, choice, !any, c);
  return HEC_OK;
}

/* On so few ranks that all policies can be planned; -1: no rank would wait for another anywhere. */
static int32_t choose_first(const finder *f) {
  const hec_layout_found *found = f->of->found;
  int32_t min = -1;
  for (int32_t i = 0; i < found->n_all; i++) {
    const hec_training *t = &found->all[i].training;
    if (t->layout.ep > 1 && class_s(t, f->n_layers, f->of->policies->n_policies) <= f->class_s)
      return i;
    if (t->layout.ep > 1 && (min < 0 || t->layout.ep < found->all[min].training.layout.ep))
      min = i;
  }
  return min;
}

hec_status hec_candidates_find(const hec_candidate_search *search, hec_trace_reader *reader, hec_arena *arena,
                               hec_candidates *to) {
  const hec_budget part = {hec_budget_for(search->budget, HEC_BUDGET_ESTIMATES)};
  finder f = {.of = search,
              .reader = reader,
              .arena = arena,
              .to = to,
              .within_s = part.left_s,
              .class_s = hec_budget_for(&part, HEC_BUDGET_CLASS)};
  int32_t n = search->found->n_all, first;
  *to = (hec_candidates){.of = HEC_NEW(arena, hec_candidate, n)};
  f.n_layers = hec_trace_header_of(reader)->n_layers;
  first = choose_first(&f);
  hec_progress_stage("estimating layouts", "layouts");
  hec_status status = first >= 0 ? visit(&f, &search->found->all[first]) : HEC_OK;
  if (status == HEC_OK && f.n > 0) {
    to->n_policies = f.classes[0].n;
    to->policies = f.classes[0].policies;
  }
  for (int32_t i = 0; i < n && status == HEC_OK; i++) {
    hec_progress_at((double)i, (double)n, 0);
    if (i != first)
      status = visit(&f, &search->found->all[i]);
  }
  hec_budget_spend(search->budget, f.spent_s);
  free(f.classes);
  qsort(to->of, (size_t)to->n, sizeof *to->of, by_estimate);
  return status;
}
