/* Predicts steps of pipeline stages. The program of each stage is lowered and simulated by itself. What its pieces take
 * stands in the program of the step (step_program.h), and that is walked. So waiting between stages follows, and
 * transfers between them take their links. */
#pragma once
#include "sim/simulate.h"
#include "validate/experiment.h"

typedef struct hec_predicted_stages hec_predicted_stages;

/* `priced`: the case's problem for the cluster that predicts, which has the ranks of all stages. In every case to be freed. */
hec_status hec_predicted_stages_new(const hec_experiment_case *of, const hec_problem *priced, const hec_law *law,
                                    const hec_collective *collective, hec_arena *arena,
                                    hec_predicted_stages **stages) HEC_MUST_USE;
/* The case's steps, in their order: policies look back. Returns hec_stages_digest of the stages' programs. */
uint64_t hec_predicted_stages_step(hec_predicted_stages *stages, const hec_replay_step *step,
                                   const hec_program **program, hec_timeline *timeline);
void hec_predicted_stages_free(hec_predicted_stages *stages); /* NULL is allowed */
