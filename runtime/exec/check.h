/* Checking a run against the dense single-rank reference, on rank 0. After every step it compares the outputs and the
 * gradients of inputs of all ranks. After the last it also compares gradients, parameters and moments: of every dense
 * block on every rank, and of every expert wherever it is kept. Exact mode: bit for bit. Random mode: the relative
 * error (Euclidean) of every tensor is at most the reference's tolerance.
 *
 * A gate that learns makes training chaotic: a difference by rounding grows with every step. So two correct runs of
 * some hundred steps have nothing in common. Training is therefore checked in windows of hec_check_steps steps. After
 * each the whole state is compared. Then the reference takes over the run's parameters and moments. Every step is so
 * checked from a common start, and a fault is found in the window in which it happens. */
#pragma once
#include "runtime/exec/model/reference.h"
#include "runtime/exec/work.h"

/* Steps of a window: HEC_CHECK_WINDOW, or fewer. Fewer where the learning rate is high: the window ends before the
 * parameters may have moved by a share HEC_CHECK_MOVED of their size. Under Adam a step moves them by at most
 * rate * sqrt(width). Fewer also where the gate multiplies differences of scores by more than HEC_CHECK_SHARP before
 * its softmax. There, two runs of equal routing part that much faster. X-MoE's at temperature 0.03 part by 1e4 in six
 * steps, all of it rounding at first. One at least. */
enum { HEC_CHECK_WINDOW = 10, HEC_CHECK_SHARP = 10 };
#define HEC_CHECK_MOVED 0.35
int32_t hec_check_steps(const hec_model *model);

typedef struct {
  bool passed;
  double worst, tolerance; /* relative error that used up most of its tolerance, and that tolerance; exact: 0 */
  int64_t compared;        /* numbers */
  int32_t bits;            /* exact: that the sums of the last step needed; above 24 equality proves nothing; else -1 */
  int64_t flips;           /* training: choices that the reference alone would have made otherwise */
  char worst_at[96];       /* "first moments of expert 3 of layer 1 on rank 2, step 5"; steps count from 1 */
  int64_t windows;         /* times that the whole state was compared */
  /* The first error above its tolerance; step 0: none. */
  int64_t failed_step;
  double failed_error, failed_tolerance;
  char failed_at[96];
  /* Training: the step from which on the run diverged (loss not finite, or HEC_CHECK_EXPLODED times the first) and nothing
   * was compared; 0: none. A run that diverged has not passed. */
  int64_t diverged_step;
  double first_loss, diverged_loss;
} hec_check_result;
enum { HEC_CHECK_EXPLODED = 4 };
typedef hec_check_result hec_replay_check;

/* What training adds: the batch of all ranks is a function of the text, so rank 0 makes it again. The reference takes
 * over the experts that the gates chose. It verifies that its own gate makes just these choices from the affinities of
 * the run. It also verifies that the affinities are its own up to the tolerance. Two nearly equal ones may change
 * places by rounding; `flips` counts the assignments that did. */
typedef struct {
  const hec_corpus *corpus;
  float balance;             /* coefficient as in hec_work_state */
  float bias_rate;           /* of the bias in hec_work_state */
  double loss, balance_loss; /* of the run: mean over all tokens; of all ranks (on rank 0) */
} hec_check_text;

/* Where the layers are in a launch of pipeline stages: rank r is rank r % problem.n_ranks of stage r / problem.n_ranks. */
typedef struct {
  int32_t n_stages, n_local; /* n_local: layers of a stage, at most */
  const int32_t *layer;      /* [n_stages][n_local] a stage's own layer in the model; -1: it has fewer */
  int32_t first, last;       /* stages that have the first layer and the last */
} hec_check_stages;

typedef struct hec_check hec_check;
/* `problem` and `model`: of all layers; its ranks are those of a stage. */
hec_check *hec_check_new(const hec_problem *problem, const hec_model *model, int32_t n_micro_batches, hec_rank *rank);
/* Stages that are not one with all layers: said before the first step. The executor is then that of the rank's stage. */
void hec_check_stages_are(hec_check *check, const hec_check_stages *stages);
/* The run goes on from a state that `steps` steps made: the reference takes it over, uncompared. Every rank calls it; bias: as
 * in hec_work_state, NULL: none. */
hec_status hec_check_resume(hec_check *check, hec_exec *exec, int64_t steps, const float *bias) HEC_MUST_USE;
void hec_check_free(hec_check *check);
/* Every rank calls it after step `index` with the loads that were computed; `text`: of a language model, else NULL. */
hec_status hec_check_step(hec_check *check, const hec_work_state *work, int64_t index, const hec_load *loads,
                          const hec_check_text *text) HEC_MUST_USE;
/* Every rank may call it after a step: at the end of a window compares the whole state and starts the next one. */
hec_status hec_check_window(hec_check *check, hec_exec *exec) HEC_MUST_USE;
hec_status hec_check_finish(hec_check *check, hec_exec *exec, int64_t n_steps, hec_replay_check *result) HEC_MUST_USE;
