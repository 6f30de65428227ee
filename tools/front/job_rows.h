/* Sentences on a job (see job.h) that depend on the policies shown: [n] of them, one of several rows more than once. */
#ifndef HEC_FRONT_JOB_ROWS_H
#define HEC_FRONT_JOB_ROWS_H
#include "runtime/plan/policy.h"
#include "tools/front/job_make.h"

/* Over which iterations transitions were counted, where a policy places by them: it may know what it is judged on. They
 * count choices of experts, so ranks and tokens do not change them. */
void hec_job_say_transitions(hec_job *job, const hec_policy *const *policies, int32_t n, hec_arena *arena);
/* Which place experts over all ranks, where there are several expert-parallel groups. */
void hec_job_say_groups(hec_job *job, const hec_policy *const *policies, int32_t n, hec_arena *arena);
/* That the trace's iterations, warm-up included, are fewer than policies look back over. */
void hec_job_say_history(hec_job *job, const hec_policy *const *policies, int32_t n, int64_t n_iterations,
                         hec_arena *arena);

#endif
