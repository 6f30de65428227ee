/* How sure a recommendation is: the rows that are shown, predicted again when something is otherwise. */
#include "models/laws/cost_law.h"
#include "tools/front/training/recommendation.h"

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
  HEC_SCOPED(hec_arena) arena = {0};
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
  *s = result.step_s * row->policies.factor +
       (o->balanced ? hec_recommended_best(row)->step_s - row->choice.result.step_s : 0);
  return status;
}

/* Rows that do not fit into memory are no rivals of one that does. */
static hec_status try_otherwise(const hec_recommendation *r, const otherwise *o, hec_doubt *doubt) {
  double first_s = 0, min_s = 0;
  for (int32_t c = 0; c < r->n; c++) {
    double s;
    if (hec_recommended_best(&r->rows[0])->memory.fits && !hec_recommended_best(&r->rows[c])->memory.fits)
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
hec_status hec_recommendation_doubt(hec_recommendation *to, hec_arena *arena) {
  const hec_gpu_laws *law = other_law(to->rows[0].choice.training.laws, arena);
  int32_t windows = windows_of(to);
  for (int32_t i = 0; i < HEC_DOUBTS; i++)
    HEC_TRY(try_otherwise(to, &(otherwise){.constant = i % 2 ? 1.1 : 0.9, .which = i / 2, .balanced = true},
                          &to->constants));
  for (int32_t i = 0; i < windows; i++)
    HEC_TRY(try_otherwise(to, &(otherwise){.constant = 1, .window = i, .of = windows}, &to->records));
  return try_otherwise(to, &(otherwise){.constant = 1, .laws = law}, &to->law);
}
