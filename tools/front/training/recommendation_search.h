/* Of all layouts that fit into memory, those worth simulating under the loads of the trace, the fastest first. The balanced time
 * alone does not say: an overload costs one layout more than another. */
#pragma once
#include "sim/layout_search.h"
#include "tools/front/training/budget.h"
#include "tools/front/training/training_summary.h"

/* A layout with its estimate under the loads. */
typedef struct {
  const hec_layout_choice *of;
  hec_layout_choice choice;          /* `of` with the recomputation that the fastest policy's memory asks for */
  double step_s, plain_s;            /* estimated with the fastest policy, and with `ep`; 0: nothing fits */
  const hec_policy *const *policies; /* [n_policies] worth trying, the fastest first; ep is in */
  int32_t n_policies;
  bool alone; /* estimated with ep alone, for others cannot win there */
} hec_candidate;

typedef struct {
  hec_candidate *of; /* [n] the fastest estimate first */
  int32_t n;
  int32_t n_beaten; /* whose floor is above the best estimate */
  int32_t n_left;   /* for which there was no time */
  const hec_policy *const
      *policies; /* [n_policies] the fastest first where all were planned; ep is in. NULL: nowhere */
  int32_t n_policies;
} hec_candidates;

typedef struct {
  const hec_training_args *args;
  const hec_job_options *options;
  const hec_training_choice *policies;
  const hec_layout_found *found;
  bool any_recompute; /* the recipe does not state it */
  hec_budget *budget; /* is spent from */
} hec_candidate_search;

/* Candidates are on the arena. */
hec_status hec_candidates_find(const hec_candidate_search *search, hec_trace_reader *reader, hec_arena *arena,
                               hec_candidates *to) HEC_MUST_USE;

/* Those of `policies` that no search tries, for they are there to compare with: "ideal, ep-capacity". NULL: none. An
 * error if that is all of them: ep alone would be tried, which nobody asked for. */
hec_status hec_candidates_left_out(const hec_policy *const *policies, int32_t n, hec_arena *arena,
                                   const char **names) HEC_MUST_USE;

/* The set-up of a choice, as options say it, so that everything else is made as always. */
hec_status hec_recommended_set_up(const hec_training_args *args, const hec_job_options *options,
                                  const hec_layout_choice *choice, hec_trace_reader *reader, hec_arena *arena,
                                  hec_set_up **set_up) HEC_MUST_USE;
