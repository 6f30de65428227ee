/* What is said of a job once its policies are known: what they know in advance, and what they cannot know yet. */
#include "runtime/program/job.h"
#include "tools/front/job_make.h"

#include <inttypes.h>

static bool by_transitions(const hec_policy *policy) {
  return policy->by_transitions;
}

/* Names of those that `is`, each once, though a policy may have several rows. How many. */
static int32_t add_names(const hec_policy *const *policies, int32_t n, bool (*is)(const hec_policy *), hec_text *out) {
  int32_t found = 0;
  for (int32_t i = 0; i < n; i++) {
    int32_t before = 0;
    while (before < i && policies[before] != policies[i])
      before++;
    if (before == i && is(policies[i]))
      hec_text_printf(out, "%s%s", found++ > 0 ? ", " : "", policies[i]->name);
  }
  return found;
}

void hec_job_note_transitions(hec_job *job, const hec_policy *const *policies, int32_t n, hec_arena *arena) {
  const hec_trace_header *header = &job->header;
  HEC_SCOPED(hec_text) names = {0};
  int32_t found = job->problem.transitions ? add_names(policies, n, by_transitions, &names) : 0;
  const char *place = found == 1 ? "places" : "place", *they = found == 1 ? "it knows" : "they know";
  int64_t first = header->transitions_first, last = header->transitions_last, reported = job->first_reported;
  if (found > 0 && !header->transitions_over)
    hec_job_assume(job, arena,
                   "transitions: %s %s experts by counts of the whole run: %s the reported iterations in advance",
                   names.data, place, they);
  else if (found > 0 && last < reported)
    hec_job_assume(job, arena,
                   "transitions: %s %s experts by counts of iterations %" PRId64 " to %" PRId64
                   ", before the first reported (%" PRId64 ")",
                   names.data, place, first, last, reported);
  else if (found > 0)
    hec_job_assume(job, arena,
                   "transitions: %s %s experts by counts of iterations %" PRId64 " to %" PRId64 ": %s %" PRId64
                   " to %" PRId64 ", which are reported, in advance",
                   names.data, place, first, last, they, first > reported ? first : reported, last);
}

static bool over_all_ranks(const hec_policy *policy) {
  return policy->all_ranks;
}

void hec_job_note_groups(hec_job *job, const hec_policy *const *policies, int32_t n, hec_arena *arena) {
  HEC_SCOPED(hec_text) names = {0};
  if (job->problem.dp > 1 && add_names(policies, n, over_all_ranks, &names) > 0)
    hec_job_assume(job, arena, "groups: %s place experts over all ranks, not inside groups, as their papers do",
                   names.data);
}

void hec_job_note_history(hec_job *job, const hec_policy *const *policies, int32_t n, int64_t n_iterations,
                          hec_arena *arena) {
  HEC_SCOPED(hec_text) names = {0};
  int32_t found = add_names(policies, n, hec_policy_looks_back, &names), max = 0;
  for (int32_t i = 0; i < n; i++)
    if (hec_policy_looks_back(policies[i]) && policies[i]->window > max)
      max = policies[i]->window;
  if (found > 0 && n_iterations == 1)
    hec_job_assume(job, arena,
                   "history: no load is known before the only iteration: %s %s nothing to place by before the gate",
                   names.data, found == 1 ? "has" : "have");
  else if (n_iterations <= max)
    hec_job_assume(job, arena,
                   "history: %" PRId64
                   " iterations, no load known before the first; policies that place by earlier loads "
                   "look back over up to %" PRId32,
                   n_iterations, max);
}
