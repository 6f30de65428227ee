/* See recommendation.h. */
#include "tools/front/training/recommendation.h"

#include "models/laws/cost_law.h"
#include "models/training/dispatcher.h"
#include "tools/front/job_make.h"
#include "tools/front/training/recommendation_search.h"

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

static const hec_training_result *best_of(const hec_recommended *r) {
  return &r->policies.rows[r->best].result;
}

static double step_s(const hec_recommended *r) {
  return best_of(r)->step_s;
}

static void sort_rows(hec_recommended *rows, int32_t n) {
  for (int32_t i = 1; i < n; i++)
    for (int32_t j = i; j > 0 && better(best_of(&rows[j]), best_of(&rows[j - 1])); j--) {
      hec_recommended row = rows[j];
      rows[j] = rows[j - 1];
      rows[j - 1] = row;
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
    job = (hec_training_job){.training = &t, .pipeline = job.pipeline};
  if (o->of > 0)
    take_window(o, t.moe->n_moe_layers, hec_training_micro_batches(&t), &arena, &job);
  hec_status status = hec_training_run(&job, &result);
  *s = result.step_s * row->policies.factor + (o->balanced ? step_s(row) - row->choice.result.step_s : 0);
  hec_arena_free(&arena);
  return status;
}

/* Rows that do not fit into memory are no rivals of one that does. */
static hec_status try_otherwise(const hec_recommendation *r, const otherwise *o, hec_doubt *doubt) {
  double first_s = 0, min_s = 0;
  for (int32_t c = 0; c < r->n; c++) {
    double s;
    if (best_of(&r->rows[0])->memory.fits && !best_of(&r->rows[c])->memory.fits)
      continue;
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

static const double MORE_SHARE = 0.2;  /* of the time, for more layouts than the nearest */
static const double NEAR = 1.05;       /* of the best estimate: as far as they err */
static const double COUNTED = 0.65;    /* of the time: balanced routing and what is not counted take the rest */
static const double TODAY_SHARE = 0.1; /* of the time, for all policies of what runs today */

/* Layouts to simulate, the most promising first. */
typedef struct {
  const hec_training_args *args;
  const hec_job_options *options;
  const hec_training_choice *policies;
  hec_trace_reader *reader;
  hec_arena *arena;
  hec_candidates from;
  hec_candidate chosen[CHOSEN_MAX + TODAY_MAX];
  hec_recommended row[CHOSEN_MAX + TODAY_MAX]; /* [n_rows] */
  int32_t n, n_rows;
} pool;

static bool same_layout(const hec_layout_choice *a, const hec_layout_choice *b) {
  return memcmp(&a->training.layout, &b->training.layout, sizeof a->training.layout) == 0 && a->pipeline == b->pipeline;
}

static int32_t ep_of(const hec_layout_choice *c) {
  return c->training.layout.ep;
}

static void choose(pool *p, const hec_candidate *c) {
  p->chosen[p->n++] = *c;
}

/* How many are chosen of its layout, or of its ep. */
static int32_t count_like(const pool *p, const hec_layout_choice *of, bool layout) {
  int32_t n = 0;
  for (int32_t i = 0; i < p->n; i++)
    n += layout ? same_layout(&p->chosen[i].choice, of) : ep_of(&p->chosen[i].choice) == ep_of(of);
  return n;
}

static int32_t n_eps(const pool *p) {
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
 * are fastest with balanced routing. */
static void choose_simulated(pool *p, const hec_layout_found *found) {
  for (int32_t i = 0; i < p->from.n && p->n < NEAREST; i++)
    if ((!p->from.of[i].alone || ep_of(&p->from.of[i].choice) == 1) && count_like(p, &p->from.of[i].choice, true) < 2)
      choose(p, &p->from.of[i]);
  for (int32_t i = 0; i < p->from.n && p->n < SIMULATED_MAX; i++)
    if (!p->from.of[i].alone && count_like(p, &p->from.of[i].choice, false) == 0)
      choose(p, &p->from.of[i]);
  for (int32_t i = 0, n = p->n; i < found->n && p->n < SIMULATED_MAX && n_eps(p) < HEC_RECOMMENDED_ROWS; i++)
    if (count_like(p, &found->choices[i], false) == 0 || n == 0)
      choose(p, &(hec_candidate){.choice = found->choices[i],
                                 .policies = p->from.policies ? p->from.policies : p->policies->policies,
                                 .n_policies = p->from.policies ? p->from.n_policies : p->policies->n_policies});
}

static hec_status simulate(pool *p, const hec_training_choice *with, const hec_layout_choice *choice,
                           hec_recommended *to) {
  *to = (hec_recommended){.choice = *choice};
  HEC_TRY(hec_recommended_set_up(p->args, p->options, choice, p->reader, p->arena, &to->set_up));
  return compare(with, p->reader, p->arena, to);
}

static bool is_chosen(const pool *p, const hec_candidate *c) {
  for (int32_t i = 0; i < p->n; i++)
    if (p->chosen[i].of == c->of)
      return true;
  return false;
}

/* Seconds of one core for all records that a step can take: planning, and its pipeline. */
static double full_s(const hec_candidate *c, int32_t n_layers) {
  const hec_training *t = &c->choice.training;
  int32_t groups = t->layout.edp < HEC_TRAINING_GROUPS ? t->layout.edp : HEC_TRAINING_GROUPS;
  double priced = (double)groups * (double)t->moe->n_layers * (double)hec_training_micro_batches(t);
  return hec_planning_s(t, n_layers, c->n_policies, HEC_TRAINING_RECORDS) +
         hec_pricing_s(priced * (double)c->n_policies);
}

/* Estimates are only about right: where there is time, all that are about as fast as the first. */
static void choose_more(pool *p, int32_t n_layers, double within_s) {
  for (int32_t i = 0; i < p->from.n && p->n < CHOSEN_MAX; i++) {
    const hec_candidate *c = &p->from.of[i];
    if (c->alone || c->step_s > NEAR * p->from.of[0].step_s || is_chosen(p, c))
      continue;
    within_s -= full_s(c, n_layers);
    if (within_s < 0)
      return;
    choose(p, c);
  }
}

/* Records of the trace that all of them have time for; 0: as many as a step takes. */
static int32_t records_within(const pool *p, const hec_set_up *base, double within_s) {
  double each_s = 0, before_s = 0;
  for (int32_t i = 0; i < p->n; i++) {
    before_s += hec_planning_s(&p->chosen[i].choice.training, base->job.header.n_layers, p->chosen[i].n_policies, 0);
    each_s += hec_planning_s(&p->chosen[i].choice.training, base->job.header.n_layers, p->chosen[i].n_policies, 1);
  }
  double records = (within_s - before_s) / (each_s - before_s);
  return records >= HEC_TRAINING_RECORDS ? 0 : records > RECORDS_MIN ? (int32_t)records : RECORDS_MIN;
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

/* Records for which all policies can be planned in this time. */
static int32_t records_for_all(const pool *p, const hec_training *t, int32_t n_layers, double within_s) {
  double before_s = hec_planning_s(t, n_layers, p->policies->n_policies, 0),
         each_s = hec_planning_s(t, n_layers, p->policies->n_policies, 1) - before_s,
         records = (within_s - before_s) / each_s;
  return records >= HEC_TRAINING_RECORDS ? HEC_TRAINING_RECORDS
         : records > TODAY_RECORDS_MIN   ? (int32_t)records
                                         : TODAY_RECORDS_MIN;
}

/* Today's layout is simulated too, with every policy, so that nothing slower is recommended. Where that takes too long for all
 * records, the fastest policies of a few are simulated beside the other layouts. */
static hec_status add_today(pool *p, const hec_recommendation *to, const hec_training_choice *fitting,
                            double within_s) {
  const hec_recommended *today = &to->today;
  hec_layout_choice choice = today->choice;
  hec_training_choice all = *fitting;
  hec_recommended *row = &p->row[p->n_rows];
  all.policies = p->policies->policies;
  all.n_policies = p->policies->n_policies;
  all.records = records_for_all(p, &choice.training, today->set_up->job.header.n_layers, within_s);
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
static hec_status look_at_today_with(pool *p, const hec_training_choice *alone, hec_recommendation *to) {
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

static hec_status simulate_chosen(pool *p, const hec_training_choice *fitting) {
  double best_s = 0;
  for (int32_t i = 0; i < p->n; i++) {
    const hec_candidate *c = &p->chosen[i];
    hec_training_choice with = *fitting;
    with.policies = c->policies;
    with.n_policies = c->n_policies;
    hec_recommended *row = &p->row[p->n_rows];
    HEC_TRY(simulate(p, &with, &c->choice, row));
    p->n_rows++;
    if (best_of(row)->memory.fits && (best_s <= 0 || step_s(row) < best_s))
      best_s = step_s(row);
  }
  return HEC_OK;
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

static void choose_rows(pool *p, hec_recommendation *to) {
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

/* What ep alone runs best: of what is simulated, and of the layouts that ep is estimated fastest with. */
static hec_status choose_plain(pool *p, const hec_training_choice *fitting, hec_recommendation *to) {
  const hec_training_choice alone = ep_alone(fitting);
  for (int32_t i = 0; i < p->n_rows; i++) {
    hec_recommended row = p->row[i];
    row.best = row.policies.baseline;
    if (i == 0 || better(best_of(&row), best_of(&to->plain)))
      to->plain = row;
  }
  qsort(p->from.of, (size_t)p->from.n, sizeof *p->from.of, by_plain);
  for (int32_t i = 0; i < p->from.n && i < PLAIN_TRIED && p->from.of[i].plain_s > 0; i++) {
    hec_recommended row;
    HEC_TRY(simulate(p, &alone, p->from.of[i].of, &row));
    if (better(best_of(&row), best_of(&to->plain)))
      to->plain = row;
  }
  return HEC_OK;
}

/* With all records that a step takes, as a run by hand has them, and the policy that was best with some. */
static hec_status simulate_fully(pool *p, const hec_training_choice *fitting, hec_recommended *row) {
  const hec_policy *best[1] = {row->policies.rows[row->best].policy};
  hec_training_choice with = *fitting;
  const hec_layout_choice choice = row->choice;
  with.policies = best;
  with.n_policies = 1;
  with.records = 0;
  if (fitting->records == 0 || row->policies.n_records < fitting->records) /* it had all */
    return HEC_OK;
  HEC_TRY(simulate(p, &with, &choice, row));
  for (int32_t i = 0; i < row->policies.n_rows; i++)
    row->best = row->policies.rows[i].policy == best[0] ? i : row->best;
  return HEC_OK;
}

static hec_status finish_rows(pool *p, const hec_training_choice *fitting, hec_recommendation *to) {
  hec_training_choice alone = ep_alone(fitting);
  alone.records = 0;
  alone.recompute_more = false;
  to->n_records = to->rows[0].policies.n_records;
  for (int32_t i = 0; i < to->n; i++)
    HEC_TRY(simulate_fully(p, fitting, &to->rows[i]));
  HEC_TRY(simulate_fully(p, fitting, &to->plain));
  sort_rows(to->rows, to->n);
  return to->has_today ? look_at_today_with(p, &alone, to) : HEC_OK;
}

/* Half of the time is for what is simulated in full, 3 of 10 parts for estimates; the rest is for what is not counted. */
static hec_status search_loads(pool *p, const hec_set_up *base, double within_s, hec_recommendation *to) {
  const hec_candidate_search search = {.args = p->args,
                                       .options = p->options,
                                       .policies = p->policies,
                                       .found = &to->found,
                                       .any_recompute = !hec_recipe_states(&base->training.recipe, "recompute"),
                                       .within_s = 0.3 * within_s};
  HEC_TRY(hec_candidates_find(&search, p->reader, p->arena, &p->from));
  choose_simulated(p, &to->found);
  choose_more(p, base->job.header.n_layers, MORE_SHARE * within_s);
  hec_training_choice fitting = *p->policies;
  fitting.recompute_more = search.any_recompute;
  fitting.records = records_within(p, base, 0.5 * within_s);
  if (to->has_today)
    HEC_TRY(add_today(p, to, &fitting, TODAY_SHARE * within_s));
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
  pool *p = HEC_NEW(arena, pool, 1);
  p->args = &with;
  p->options = options;
  p->policies = policies;
  p->reader = reader;
  p->arena = arena;
  HEC_TRY(search_loads(p, base, COUNTED * within_s, to));
  return doubt(to, arena);
}
