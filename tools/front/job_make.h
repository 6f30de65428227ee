/* From a trace and what the user asked to a problem. Every choice that the user did not make is written down in the job's
 * `defaults`. Rules: DESIGN section 3, "From trace to problem". */
#pragma once
#include "runtime/plan/policy.h"
#include "tools/front/option_list.h"

typedef struct hec_job hec_job; /* runtime/program/job.h */

/* Reads what it must of the trace (the first record; up to 12 to learn whether there are fewer) and rewinds it. */
hec_status hec_job_make(const hec_job_options *options, hec_trace_reader *reader, hec_arena *arena,
                        hec_job *job) HEC_MUST_USE;

/* Its header, origin and model alone. */
hec_status hec_job_make_model(const hec_job_options *options, hec_trace_reader *reader, hec_arena *arena,
                              hec_job *job) HEC_MUST_USE;

/* A trace that says what its model is like, or names one with a preset. */
bool hec_job_names_model(const hec_trace_header *header);

/* Ranks that are asked for: by the options (0: not), the trace's header or its sources; 0: none, all devices. */
int32_t hec_job_ranks_wanted(int32_t ranks, const hec_trace_header *header);
/* The preset that is the cluster of so many, where none is named. */
const char *hec_job_cluster_default(int32_t ranks_wanted);

/* The cluster that stands for CPU ranks when none is given, so many on each host: assumed rates, `memory` bytes a rank. */
enum { HEC_CPU_LINE_BYTES = 192 };
void hec_job_cpu_line(int32_t ranks, int32_t per_host, double memory, char line[HEC_CPU_LINE_BYTES]);

/* Of `head_gradients`: whether the head's gradients are reduced after the backward. NULL text: beside it. */
hec_status hec_job_choose_head(const char *text, bool *after) HEC_MUST_USE;

/* The same for an execution on the CPUs of one or more machines: `executed`. What neither the user says nor the trace
 * must say has the defaults of DESIGN section 7. Without a cluster: a line for its ranks. Warm-up 0 unless given. */
hec_status hec_job_make_executed(const hec_job_options *options, hec_trace_reader *reader, hec_arena *arena,
                                 hec_job *job) HEC_MUST_USE;
/* Writes one more choice down. */
void hec_job_assume(hec_job *job, hec_arena *arena, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What was assumed last is said beside the verdict, too. */
void hec_job_mind(hec_job *job);
/* That records differ in it, if they do: all that is not of experts counts the job's. */
void hec_job_note_tokens(hec_job *job, hec_token_range of_records, hec_arena *arena);

/* ---- Sentences that depend on the policies shown: [n] of them, one of several rows more than once ---- */

/* Over which iterations transitions were counted, where a policy places by them: it may know what it is judged on. They
 * count choices of experts, so ranks and tokens do not change them. */
void hec_job_note_transitions(hec_job *job, const hec_policy *const *policies, int32_t n, hec_arena *arena);
/* Which place experts over all ranks, where there are several expert-parallel groups. */
void hec_job_note_groups(hec_job *job, const hec_policy *const *policies, int32_t n, hec_arena *arena);
/* That the trace's iterations, warm-up included, are fewer than policies look back over. */
void hec_job_note_history(hec_job *job, const hec_policy *const *policies, int32_t n, int64_t n_iterations,
                          hec_arena *arena);

/* job_dispatch.c: of a job whose problem is made and sharded. HEC_BAD_INPUT: no such dispatcher; a GPU without its laws. */
hec_status hec_job_choose_dispatch(const hec_job_options *options, hec_arena *arena, hec_job *job) HEC_MUST_USE;
