/* How sure a recommendation is: the rows that are shown, predicted again when something is otherwise. */
#include "tools/front/training/recommendation.h"

/* A row under its policy, or balanced, when something is otherwise. */
typedef struct {
  double constant;    /* factor on constant `which`; 1: as it is */
  int32_t which;      /* of 5 */
  int32_t window, of; /* part of the step's records; of 0: all */
  bool balanced;      /* what routing adds stays as it was */
  bool sheet;         /* links reach their data-sheet rates */
} otherwise;

/* As nvlink_eff=1 nic_eff=1 in the cluster's line: all the rest stays, the kernels of dispatchers too. */
static void take_sheet_rates(hec_training *t) {
  const hec_gpu *gpu = &t->laws->gpu;
  hec_collective_how how;
  double s = hec_gpu_collective_s(gpu, HEC_ALL_TO_ALL, gpu->sheet.nvlink_ranks, 0, &how);
  if (t->nvlink_share <= 0)
    t->nvlink_latency_s = how == HEC_COLLECTIVE_NONE ? hec_assumed_latency_s : s;
  t->nvlink_share = t->constants.nic = 1;
}

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
  if (o->sheet)
    take_sheet_rates(&t);
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
  int32_t fastest = 0;
  for (int32_t c = 0; c < r->n; c++) {
    double s;
    if (hec_recommended_best(&r->rows[0])->memory.fits && !hec_recommended_best(&r->rows[c])->memory.fits)
      continue;
    HEC_TRY(step_otherwise(&r->rows[c], o, &s));
    first_s = c == 0 ? s : first_s;
    fastest = c == 0 || s < min_s ? c : fastest;
    min_s = fastest == c ? s : min_s;
  }
  doubt->n++;
  doubt->n_first += first_s <= min_s;
  if (first_s / min_s - 1 > doubt->worst_regret) {
    doubt->worst_regret = first_s / min_s - 1;
    doubt->faster = fastest;
  }
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

/* Whether the order of the rows hangs on a constant, on the records, on the rates of the links. */
hec_status hec_recommendation_doubt(hec_recommendation *to) {
  int32_t windows = windows_of(to);
  for (int32_t i = 0; i < HEC_DOUBTS; i++)
    HEC_TRY(try_otherwise(to, &(otherwise){.constant = i % 2 ? 1.1 : 0.9, .which = i / 2, .balanced = true},
                          &to->constants));
  for (int32_t i = 0; i < windows; i++)
    HEC_TRY(try_otherwise(to, &(otherwise){.constant = 1, .window = i, .of = windows}, &to->records));
  return try_otherwise(to, &(otherwise){.constant = 1, .sheet = true}, &to->law);
}
