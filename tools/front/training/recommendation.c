/* See recommendation.h. */
#include "tools/front/training/recommendation.h"

#include "models/training/dispatcher.h"
#include "runtime/base/pool.h"
#include "runtime/base/progress.h"
#include "tools/front/job_make.h"
#include "tools/front/training/recommendation_search.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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

/* What fits into memory, with its copies and its hot rank, before what does not; then the faster one. */
static bool better(const hec_training_result *a, const hec_training_result *b) {
  return a->memory.fits != b->memory.fits ? a->memory.fits : a->step_s < b->step_s;
}

/* Under the loads, with every policy. */
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

static void sort_rows(hec_recommended *rows, int32_t n) {
  for (int32_t i = 1; i < n; i++)
    for (int32_t j = i; j > 0 && better(hec_recommended_best(&rows[j]), hec_recommended_best(&rows[j - 1])); j--) {
      hec_recommended row = rows[j];
      rows[j] = rows[j - 1];
      rows[j - 1] = row;
    }
}

/* ---- All layouts ---- */

static hec_status nothing_fits(const hec_layout_found *found) {
  HEC_SCOPED(hec_text) layout = {0};
  hec_layout_write(&found->tightest.training.layout, &layout);
  const hec_training_memory *m = &found->tightest.result.memory;
  return hec_fail(HEC_FAILED,
                  "none of %d layouts fits into the memory of a GPU; nearest is %s with full recomputation, "
                  "which needs %.1f of %.1f GiB; take more GPUs%s",
                  (int)found->n_tried, layout.data, (m->reserved + m->outside) / 1073741824,
                  m->device_bytes / 1073741824,
                  hec_recipe_states(&found->tightest.training.recipe, "zero") ? ", shorter sequences or another zero="
                                                                              : " or shorter sequences");
}

static hec_status look_at_today(hec_set_up *base, hec_trace_reader *reader, hec_arena *arena, hec_recommended *today) {
  static const hec_policy *ep[1];
  ep[0] = hec_policy_find("ep");
  const hec_training_choice alone = {.policies = ep, .n_policies = 1, .n_threads = 1, .warmup = -1};
  today->set_up = base;
  today->choice.training = base->training;
  const hec_layout *l = &base->training.layout;
  today->choice.pipeline = base->pipeline == hec_pipeline_default(l->pp, l->vpp) ? NULL : base->pipeline;
  return compare(&alone, reader, arena, today);
}

/* ---- Under the loads ---- */

enum {
  SIMULATED_MAX = 12,
  CHOSEN_MAX = 48, /* if there is time */
  NEAREST = 8,
  PLAIN_TRIED = 3,
  RECORDS_MIN = 4,
  TODAY_POLICIES = 6,
  TODAY_MAX = 2,
  TODAY_RECORDS_MIN = 2
};

static const double NEAR = 1.05; /* of the best estimate: as far as they err */

/* Layouts to simulate, the most promising first. */
typedef struct {
  const hec_training_args *args;
  const hec_job_options *options;
  const hec_training_choice *policies;
  hec_trace_reader *reader;
  hec_arena *arena;
  hec_budget budget;
  int32_t n_layers;  /* of the trace */
  int32_t n_records; /* of it, as many as any simulation plans */
  hec_candidates from;
  hec_candidate chosen[CHOSEN_MAX + TODAY_MAX];
  hec_recommended row[CHOSEN_MAX + TODAY_MAX]; /* [n_rows] */
  int32_t n, n_rows;
} rivals;

static bool same_layout(const hec_layout_choice *a, const hec_layout_choice *b) {
  return memcmp(&a->training.layout, &b->training.layout, sizeof a->training.layout) == 0 && a->pipeline == b->pipeline;
}

static int32_t ep_of(const hec_layout_choice *c) {
  return c->training.layout.ep;
}

static void choose(rivals *p, const hec_candidate *c) {
  p->chosen[p->n++] = *c;
}

/* How many are chosen of its layout, or of its ep. */
static int32_t count_like(const rivals *p, const hec_layout_choice *of, bool layout) {
  int32_t n = 0;
  for (int32_t i = 0; i < p->n; i++)
    n += layout ? same_layout(&p->chosen[i].choice, of) : ep_of(&p->chosen[i].choice) == ep_of(of);
  return n;
}

static int32_t n_eps(const rivals *p) {
  int32_t n = 0;
  for (int32_t i = 0; i < p->n; i++) {
    bool first = true;
    for (int32_t j = 0; j < i; j++)
      first = first && ep_of(&p->chosen[j].choice) != ep_of(&p->chosen[i].choice);
    n += first;
  }
  return n;
}

/* The nearest estimates, no layout more than twice; then the fastest of each other ep. For what is left of the table, those that
 * are fastest with balanced routing: so many are returned. */
static int32_t choose_simulated(rivals *p, const hec_layout_found *found) {
  for (int32_t i = 0; i < p->from.n && p->n < NEAREST; i++)
    if ((!p->from.of[i].alone || ep_of(&p->from.of[i].choice) == 1) && count_like(p, &p->from.of[i].choice, true) < 2)
      choose(p, &p->from.of[i]);
  for (int32_t i = 0; i < p->from.n && p->n < SIMULATED_MAX; i++)
    if (!p->from.of[i].alone && count_like(p, &p->from.of[i].choice, false) == 0)
      choose(p, &p->from.of[i]);
  const int32_t n = p->n;
  for (int32_t i = 0; i < found->n && p->n < SIMULATED_MAX && n_eps(p) < HEC_RECOMMENDED_ROWS; i++)
    if (count_like(p, &found->choices[i], false) == 0 || n == 0)
      choose(p, &(hec_candidate){.choice = found->choices[i],
                                 .policies = p->from.policies ? p->from.policies : p->policies->policies,
                                 .n_policies = p->from.policies ? p->from.n_policies : p->policies->n_policies});
  return p->n - n;
}

static hec_status prepare(const rivals *p, const hec_layout_choice *choice, hec_recommended *to) {
  *to = (hec_recommended){.choice = *choice};
  return hec_recommended_set_up(p->args, p->options, choice, p->reader, p->arena, &to->set_up);
}

static hec_status simulate(const rivals *p, const hec_training_choice *with, const hec_layout_choice *choice,
                           hec_recommended *to) {
  HEC_TRY(prepare(p, choice, to));
  return compare(with, p->reader, p->arena, to);
}

/* ---- Side by side ---- */

/* A layout that is prepared, for one thread. */
typedef struct {
  hec_recommended *to;
  hec_training_choice with;
  hec_arena arena; /* what it leaves */
  hec_status status;
  char message[1024];
} simulation;

typedef struct {
  const rivals *of;
  simulation *all;            /* [n] */
  int32_t n, *order;          /* [n] the longest first, so that none is left alone at the end */
  hec_trace_reader **readers; /* [workers] each opens its own; NULL: not yet */
  atomic_int n_done;
} side_by_side;

static void simulate_one(void *context, int32_t worker, int64_t item) {
  side_by_side *w = context;
  simulation *s = &w->all[w->order[item]];
  hec_trace_reader **reader = &w->readers[worker];
  s->status = *reader ? HEC_OK : hec_trace_open_again(w->of->reader, reader);
  if (s->status == HEC_OK)
    s->status = compare(&s->with, *reader, &s->arena, s->to);
  if (s->status != HEC_OK)
    (void)snprintf(s->message, sizeof s->message, "%s", hec_last_error());
  hec_progress_at((double)(atomic_fetch_add(&w->n_done, 1) + 1), (double)w->n, 0);
}

static double cost_of(const simulation *s) {
  int32_t records = s->with.records > 0 ? s->with.records : HEC_TRAINING_RECORDS;
  return hec_planning_s(&s->to->choice.training, 1, s->with.n_policies, HEC_BUDGET_BEFORE + records);
}

static void sort_by_cost(side_by_side *w) {
  for (int32_t i = 0; i < w->n; i++) {
    int32_t k = i;
    for (; k > 0 && cost_of(&w->all[w->order[k - 1]]) < cost_of(&w->all[i]); k--)
      w->order[k] = w->order[k - 1];
    w->order[k] = i;
  }
}

/* Each by one thread, with a reader and an arena of its own: so what comes out does not depend on how many there are. */
static hec_status simulate_all(const rivals *p, simulation *all, int32_t n) {
  side_by_side w = {.of = p, .all = all, .n = n, .order = HEC_NEW(p->arena, int32_t, n + 1)};
  if (n == 0)
    return HEC_OK;
  int32_t n_threads = p->policies->n_threads < n ? p->policies->n_threads : n;
  HEC_OPENED(hec_pool) *threads = hec_pool_new(n_threads > 1 ? n_threads : 1);
  int32_t n_workers = hec_pool_workers(threads);
  w.readers = HEC_NEW(p->arena, hec_trace_reader *, n_workers);
  for (int32_t i = 0; i < n; i++) {
    all[i].with.n_threads = 1;
    all[i].with.silent = true;
  }
  sort_by_cost(&w);
  hec_progress_stage("simulating layouts", "layouts");
  hec_pool_run(threads, &(hec_pool_job){.n = n, .work = simulate_one, .context = &w});
  for (int32_t i = 0; i < n_workers; i++)
    hec_trace_close(w.readers[i]);
  hec_status status = HEC_OK;
  for (int32_t i = 0; i < n; i++) {
    hec_arena_take(p->arena, &all[i].arena);
    if (status == HEC_OK && all[i].status != HEC_OK)
      status = hec_fail(all[i].status, "%s", all[i].message);
  }
  return status;
}

static bool is_chosen(const rivals *p, const hec_candidate *c) {
  for (int32_t i = 0; i < p->n; i++)
    if (p->chosen[i].of == c->of)
      return true;
  return false;
}

/* Seconds of one core for all records that a step can take: planning, and its pipeline. */
static double full_s(const rivals *p, const hec_candidate *c) {
  const hec_training *t = &c->choice.training;
  int32_t groups = t->layout.edp < HEC_TRAINING_GROUPS ? t->layout.edp : HEC_TRAINING_GROUPS;
  int32_t micro = hec_training_micro_batches(t), records = p->n_records;
  if (records - HEC_BUDGET_BEFORE > (int64_t)t->layout.edp * micro)
    records = HEC_BUDGET_BEFORE + t->layout.edp * micro;
  double priced = (double)groups * (double)t->moe->n_layers * (double)micro;
  return hec_planning_s(t, p->n_layers, c->n_policies, records) + hec_pricing_s(priced * (double)c->n_policies);
}

/* Estimates are only about right: where there is time, all that are about as fast as the first. */
static int32_t choose_more(rivals *p) {
  double within_s = hec_budget_for(&p->budget, HEC_BUDGET_MORE);
  const int32_t n = p->n;
  for (int32_t i = 0; i < p->from.n && p->n < CHOSEN_MAX; i++) {
    const hec_candidate *c = &p->from.of[i];
    if (c->alone || c->step_s > NEAR * p->from.of[0].step_s || is_chosen(p, c))
      continue;
    within_s -= full_s(p, c);
    if (within_s < 0)
      break;
    choose(p, c);
  }
  return p->n - n;
}

/* Records of the trace that all of them have time for; 0: as many as a step takes. */
static int32_t records_of_rows(const rivals *p) {
  double one_s = 0;
  for (int32_t i = 0; i < p->n; i++)
    one_s += hec_planning_s(&p->chosen[i].choice.training, p->n_layers, p->chosen[i].n_policies, 1);
  return hec_budget_records(hec_budget_for(&p->budget, HEC_BUDGET_ROWS), one_s, RECORDS_MIN);
}

/* ---- What runs today ---- */

static bool uses_dispatcher(const hec_layout_choice *choice) {
  return choice->training.layout.ep > 1;
}

/* Of today's layout, with balanced routing. */
static int32_t fastest_dispatcher(const hec_layout_choice *today) {
  hec_training t = today->training;
  double min_s = today->result.step_s;
  int32_t fastest = t.recipe.dispatcher;
  for (int32_t d = 0; d < HEC_N_DISPATCHERS; d++) {
    hec_training_result result;
    t.recipe.dispatcher = d;
    if ((hec_dispatchers[d]->suits && !hec_dispatchers[d]->suits(&t.laws->gpu)) || hec_training_check(&t) != HEC_OK ||
        !hec_layout_predict(&t, today->pipeline, NULL, &result) || result.step_s >= min_s)
      continue;
    min_s = result.step_s;
    fastest = d;
  }
  return fastest;
}

/* The fastest policies of a row, and ep. */
static hec_candidate candidate_of(hec_recommended *row, hec_arena *arena) {
  hec_training_row *rows = row->policies.rows;
  int32_t n = 0;
  const hec_policy **policies = HEC_NEW(arena, const hec_policy *, TODAY_POLICIES + 1);
  for (int32_t i = 0; i < row->policies.n_rows; i++) {
    int32_t faster = 0;
    for (int32_t j = 0; j < row->policies.n_rows; j++)
      faster += !rows[j].policy->drops && better(&rows[j].result, &rows[i].result);
    if (rows[i].policy->baseline || (!rows[i].policy->drops && faster < TODAY_POLICIES && n < TODAY_POLICIES))
      policies[n++] = rows[i].policy;
  }
  return (hec_candidate){.choice = row->choice, .policies = policies, .n_policies = n};
}

/* Records for which every policy can be planned. */
static int32_t records_of_today(rivals *p, const hec_training *t) {
  double one_s = hec_planning_s(t, p->n_layers, p->policies->n_policies, 1);
  int32_t n = hec_budget_records(hec_budget_for(&p->budget, HEC_BUDGET_TODAY), one_s, TODAY_RECORDS_MIN);
  n = n > 0 ? n : HEC_TRAINING_RECORDS;
  hec_budget_spend(&p->budget, (HEC_BUDGET_BEFORE + n) * one_s);
  return n;
}

/* Today's layout is simulated too, with every policy, so that nothing slower is recommended. Where that takes too long for all
 * records, the fastest policies of a few are simulated beside the other layouts. */
static hec_status add_today(rivals *p, const hec_recommendation *to, const hec_training_choice *fitting) {
  const hec_recommended *today = &to->today;
  hec_layout_choice choice = today->choice;
  hec_training_choice all = *fitting;
  hec_recommended *row = &p->row[p->n_rows];
  all.policies = p->policies->policies;
  all.n_policies = p->policies->n_policies;
  all.records = records_of_today(p, &choice.training);
  HEC_TRY(simulate(p, &all, &choice, row));
  hec_candidate c = candidate_of(row, p->arena);
  if (row->policies.n_records == today->policies.n_records)
    p->n_rows++;
  else
    choose(p, &c);
  c.choice.training.recipe.dispatcher = fastest_dispatcher(&choice);
  if (!hec_recipe_states(&choice.training.recipe, "dispatcher") && uses_dispatcher(&choice) &&
      c.choice.training.recipe.dispatcher != choice.training.recipe.dispatcher)
    choose(p, &c);
  return HEC_OK;
}

/* What the dispatcher alone gains, where nobody said which runs today: of the one that is recommended. */
static hec_status look_at_today_with(rivals *p, const hec_training_choice *alone, hec_recommendation *to) {
  hec_layout_choice choice = to->today.choice;
  const hec_layout_choice *best = &to->rows[0].choice;
  int32_t dispatcher = uses_dispatcher(best) ? best->training.recipe.dispatcher : fastest_dispatcher(&choice);
  if (hec_recipe_states(&choice.training.recipe, "dispatcher") || !uses_dispatcher(&choice) ||
      dispatcher == choice.training.recipe.dispatcher)
    return HEC_OK;
  choice.training.recipe.dispatcher = dispatcher;
  to->has_today_with = true;
  return simulate(p, alone, &choice, &to->today_with);
}

/* ---- All together ---- */

static hec_status simulate_chosen(rivals *p, const hec_training_choice *fitting) {
  simulation *all = HEC_NEW(p->arena, simulation, p->n + 1);
  for (int32_t i = 0; i < p->n; i++) {
    const hec_candidate *c = &p->chosen[i];
    all[i] = (simulation){.to = &p->row[p->n_rows + i], .with = *fitting};
    all[i].with.policies = c->policies;
    all[i].with.n_policies = c->n_policies;
    HEC_TRY(prepare(p, &c->choice, all[i].to));
  }
  p->n_rows += p->n;
  return simulate_all(p, all, p->n);
}

/* The fastest, the fastest other layout, the fastest of each other ep; then what is left. */
static bool wanted(const hec_recommendation *to, const hec_layout_choice *choice, int pass) {
  bool layout = false, ep = false;
  for (int32_t r = 0; r < to->n; r++) {
    layout |= same_layout(&to->rows[r].choice, choice);
    ep |= ep_of(&to->rows[r].choice) == ep_of(choice);
  }
  return pass < 2 ? to->n == pass && !layout : pass == 2 ? !ep : !layout;
}

static void choose_rows(rivals *p, hec_recommendation *to) {
  sort_rows(p->row, p->n_rows);
  for (int pass = 0; pass < 4; pass++)
    for (int32_t i = 0; i < p->n_rows && to->n < HEC_RECOMMENDED_ROWS; i++)
      if (wanted(to, &p->row[i].choice, pass))
        to->rows[to->n++] = p->row[i];
  sort_rows(to->rows, to->n);
}

static int by_plain(const void *a, const void *b) {
  const hec_candidate *x = a, *y = b;
  if ((x->plain_s > 0) != (y->plain_s > 0))
    return x->plain_s > 0 ? -1 : 1;
  if (x->plain_s < y->plain_s || x->plain_s > y->plain_s)
    return x->plain_s < y->plain_s ? -1 : 1;
  return (x->of > y->of) - (x->of < y->of);
}

static hec_training_choice ep_alone(const hec_training_choice *fitting) {
  static const hec_policy *ep[1];
  hec_training_choice alone = *fitting;
  ep[0] = hec_policy_find("ep");
  alone.policies = ep;
  alone.n_policies = 1;
  return alone;
}

static void take_better(const hec_recommended *row, hec_recommended *to) {
  if (!to->set_up || better(hec_recommended_best(row), hec_recommended_best(to)))
    *to = *row;
}

static void take_plain(const hec_recommended *of, hec_recommendation *to) {
  hec_recommended row = *of;
  row.best = row.policies.baseline;
  take_better(&row, &to->plain);
  if (hec_choice_suits_megatron(&row.choice))
    take_better(&row, &to->megatron);
}

/* What ep alone runs best: of what is simulated, and of the layouts that ep is estimated fastest with. The same of those that
 * Megatron-LM runs as they are. */
static hec_status choose_plain(rivals *p, const hec_training_choice *fitting, hec_recommendation *to) {
  const hec_training_choice alone = ep_alone(fitting);
  qsort(p->from.of, (size_t)p->from.n, sizeof *p->from.of, by_plain);
  hec_recommended *rows = HEC_NEW(p->arena, hec_recommended, 2 * PLAIN_TRIED);
  simulation *all = HEC_NEW(p->arena, simulation, 2 * PLAIN_TRIED);
  int32_t n = 0, n_suit = 0;
  for (int32_t i = 0; i < p->from.n && p->from.of[i].plain_s > 0 && n_suit < PLAIN_TRIED; i++) {
    bool suits = hec_choice_suits_megatron(&p->from.of[i].choice);
    if (i >= PLAIN_TRIED && !suits)
      continue;
    n_suit += suits;
    all[n] = (simulation){.to = &rows[n], .with = alone};
    HEC_TRY(prepare(p, p->from.of[i].of, &rows[n++]));
  }
  HEC_TRY(simulate_all(p, all, n));
  for (int32_t i = 0; i < p->n_rows; i++)
    take_plain(&p->row[i], to);
  for (int32_t i = 0; i < n; i++)
    take_plain(&rows[i], to);
  return HEC_OK;
}

/* It stands in the table, in place of the last row if there is no room. */
static void show_megatron(hec_recommendation *to) {
  bool any = to->megatron.set_up != NULL;
  if (any && hec_recommendation_find(to, &to->megatron) < 0)
    to->rows[to->n < HEC_RECOMMENDED_ROWS ? to->n++ : to->n - 1] = to->megatron;
  sort_rows(to->rows, to->n);
  to->megatron_row = any ? hec_recommendation_find(to, &to->megatron) : -1;
  to->megatron = any ? to->megatron : to->plain;
}

/* With all records that a step takes, as a run by hand has them, and the policy that was best with some. `rows`: [n] */
static hec_status simulate_fully(rivals *p, const hec_training_choice *fitting, hec_recommended *const *rows,
                                 int32_t n) {
  simulation *all = HEC_NEW(p->arena, simulation, n);
  const hec_policy **best = HEC_NEW(p->arena, const hec_policy *, n);
  int32_t n_all = 0;
  for (int32_t i = 0; i < n; i++) {
    const hec_layout_choice choice = rows[i]->choice;
    if (fitting->records == 0 || rows[i]->policies.n_records < fitting->records) /* it had all */
      continue;
    best[n_all] = rows[i]->policies.rows[rows[i]->best].policy;
    simulation *one = &all[n_all];
    *one = (simulation){.to = rows[i], .with = *fitting};
    one->with.policies = &best[n_all++];
    one->with.n_policies = 1;
    one->with.records = 0;
    HEC_TRY(prepare(p, &choice, rows[i]));
  }
  HEC_TRY(simulate_all(p, all, n_all));
  for (int32_t k = 0; k < n_all; k++)
    for (int32_t i = 0; i < all[k].to->policies.n_rows; i++)
      all[k].to->best = all[k].to->policies.rows[i].policy == best[k] ? i : all[k].to->best;
  return HEC_OK;
}

static hec_status finish_rows(rivals *p, const hec_training_choice *fitting, hec_recommendation *to) {
  hec_training_choice alone = ep_alone(fitting);
  alone.records = 0;
  alone.recompute_more = false;
  to->n_records = to->rows[0].policies.n_records;
  hec_recommended *rows[HEC_RECOMMENDED_ROWS + 2] = {NULL};
  for (int32_t i = 0; i < to->n; i++)
    rows[i] = &to->rows[i];
  rows[to->n] = &to->plain;
  rows[to->n + 1] = &to->megatron;
  HEC_TRY(simulate_fully(p, fitting, rows, to->n + 1 + (to->megatron.set_up != NULL)));
  show_megatron(to);
  return to->has_today ? look_at_today_with(p, &alone, to) : HEC_OK;
}

static hec_status search_loads(rivals *p, const hec_set_up *base, hec_recommendation *to) {
  const hec_candidate_search search = {.args = p->args,
                                       .options = p->options,
                                       .policies = p->policies,
                                       .found = &to->found,
                                       .any_recompute = !hec_recipe_states(&base->training.recipe, "recompute"),
                                       .budget = &p->budget};
  HEC_TRY(hec_trace_count(p->reader, HEC_BUDGET_BEFORE + HEC_TRAINING_RECORDS, &p->n_records));
  HEC_TRY(hec_candidates_find(&search, p->reader, p->arena, &p->from));
  to->n_even = choose_simulated(p, &to->found);
  to->n_promising = p->n - to->n_even;
  hec_training_choice fitting = *p->policies;
  fitting.recompute_more = search.any_recompute;
  if (to->has_today)
    HEC_TRY(add_today(p, to, &fitting));
  to->n_promising += choose_more(p);
  fitting.records = records_of_rows(p);
  HEC_TRY(simulate_chosen(p, &fitting));
  choose_rows(p, to);
  to->n_estimated = to->found.n_all - p->from.n_beaten - p->from.n_left;
  to->n_beaten = p->from.n_beaten;
  to->n_left = p->from.n_left;
  to->n_simulated = p->n_rows;
  HEC_TRY(choose_plain(p, &fitting, to));
  return finish_rows(p, &fitting, to);
}

/* The factor of the run that was measured holds for the other layouts. */
static hec_status take_factor(hec_training_args *args, const hec_set_up *base, const hec_recommendation *r,
                              hec_arena *arena) {
  if (base->measured_step_s <= 0)
    return HEC_OK;
  if (!r->has_today)
    return hec_fail(HEC_BAD_INPUT,
                    "--measured: expected --layout or --setup beside step=, which say what was measured; "
                    "found neither");
  args->measured = hec_arena_printf(arena, "factor=%.17g", r->today.policies.factor);
  return HEC_OK;
}

/* Megatron-LM (unless told otherwise) and torchtitan (always) add and reduce gradients in fp32. A set-up is of a run that did
 * what its recipe says and hec_recipe_default completes. */
static const char as_frameworks_do[] = "grads=fp32";

hec_status hec_recommend(const hec_training_args *args, const hec_job_options *options, double within_s,
                         const hec_training_choice *policies, hec_trace_reader *reader, hec_arena *arena,
                         hec_recommendation *to) {
  hec_set_up *base = HEC_NEW(arena, hec_set_up, 1);
  hec_training_args with = *args;
  *to = (hec_recommendation){.has_today = hec_set_up_wanted(args), .trace = hec_trace_origin(reader)};
  if (!to->has_today && !options->cluster && args->gpus == 0)
    return hec_fail(HEC_BAD_INPUT,
                    "--cluster: expected the GPUs of the job, such as \"32x8 gpu=h100 nics=8\" or a preset "
                    "of hecate-sim --list; found none");
  with.assumed = args->setup ? NULL : as_frameworks_do;
  HEC_TRY(make_base(&with, options, reader, arena, base));
  if (!base->file.model && !hec_job_names_model(hec_trace_header_of(reader)))
    return hec_fail(HEC_BAD_INPUT,
                    "--model: expected the model that is trained, for the trace names none; give a preset (hecate-sim "
                    "--list models) or its config.json");
  if (base->file.global_batch == 0)
    return hec_fail(HEC_BAD_INPUT,
                    "--global-batch: expected the sequences of a step, for which layouts are compared; found "
                    "none");
  if (to->has_today)
    HEC_TRY(look_at_today(base, reader, arena, &to->today));
  HEC_TRY(take_factor(&with, base, to, arena));
  const hec_layout_search search = {.base = &base->training,
                                    .any_micro_batch = args->micro_batch == 0,
                                    .pipeline = base->pipeline,
                                    .n_threads = policies->n_threads};
  HEC_TRY(hec_layout_search_run(&search, arena, &to->found));
  if (to->found.n == 0)
    return nothing_fits(&to->found);
  rivals *p = HEC_NEW(arena, rivals, 1);
  p->args = &with;
  p->options = options;
  p->policies = policies;
  p->reader = reader;
  p->arena = arena;
  p->budget = hec_budget_of(within_s);
  p->n_layers = hec_trace_header_of(reader)->n_layers;
  HEC_TRY(search_loads(p, base, to));
  return hec_recommendation_doubt(to);
}
