/* From a trace and what the user asked to a problem. Every choice that the user did not make is written down in the job's
 * `defaults`. Rules: DESIGN section 3, "From trace to problem". */
#ifndef HEC_FRONT_JOB_MAKE_H
#define HEC_FRONT_JOB_MAKE_H
#include "models/straggler.h"
#include "runtime/program/job.h"

typedef struct {
  const char *cluster, *model;           /* NULL: chosen from the header, else by default */
  const char *cluster_text, *model_text; /* content of the JSON file that is named so; NULL: read when it is needed */
  const char *phase;                     /* "train", "forward" or NULL: from the header */
  int32_t ranks;                         /* 0: header, sources, else all devices */
  int32_t tokens;                        /* per rank and micro-batch; 0: the trace's own number */
  int32_t micro_batches;                 /* repeats of a lone record; 0: 1 */
  int32_t warmup;                        /* records run but not reported; -1: 5, or 0 for fewer than 12 records */
  int32_t t, m, period, slots;           /* HEC_AUTO */
  int32_t ep;                            /* ranks of an expert-parallel group; 0: the largest */
  int32_t esp;                           /* ranks of an expert-sharding group; 0: 1 */
  int32_t mp;                            /* ranks that share the dense part; 0: 1 */
  double nonmoe_scale;                   /* 0: the model's */
  const char *attention;                 /* models/attention.h; NULL: the model's */
  hec_stragglers stragglers;             /* what is slower or later than the cluster says; NULLs: nothing */
  int32_t layers;                        /* the first MoE layers of the trace; 0: all */
  const char *like;         /* executed on devices: a preset with such devices, when there is no cluster; NULL: CPUs */
  const hec_solver *solver; /* of integer programmes, for planners; NULL: none */
  const char *placement;    /* a file with the present placement, for policies that stand as it says; NULL: none */
  int32_t first_layer;      /* of the model, where the file numbers dense layers too; -1: the file's first */
  bool executed; /* the shape as CPUs compute it: float32, no blocks but MoE, no vocabulary, no recomputation */
} hec_job_options;

#define HEC_JOB_OPTIONS                                                                                                \
  ((hec_job_options){                                                                                                  \
      .first_layer = -1, .warmup = -1, .t = HEC_AUTO, .m = HEC_AUTO, .period = HEC_AUTO, .slots = HEC_AUTO})

/* Reads what it must of the trace (the first record; up to 12 to learn whether there are fewer) and rewinds it. */
hec_status hec_job_make(const hec_job_options *options, hec_trace_reader *reader, hec_arena *arena,
                        hec_job *job) HEC_MUST_USE;

/* Ranks that are asked for: by the options (0: not), the trace's header or its sources; 0: none, all devices. */
int32_t hec_job_ranks_wanted(int32_t ranks, const hec_trace_header *header);
/* The preset that is the cluster of so many, where none is named. */
const char *hec_job_cluster_default(int32_t ranks_wanted);

/* The cluster that stands for this machine's CPU ranks when none is given: assumed rates, `memory` bytes a rank. */
enum { HEC_CPU_LINE_BYTES = 192 };
void hec_job_cpu_line(int32_t ranks, double memory, char line[HEC_CPU_LINE_BYTES]);

/* The same for an execution on the CPUs of one or more machines: `executed`, and what neither the user says nor the
 * trace must say has the defaults of DESIGN section 7. Without a cluster: a line for its ranks. Warm-up 0 unless given. */
hec_status hec_job_make_executed(const hec_job_options *options, hec_trace_reader *reader, hec_arena *arena,
                                 hec_job *job) HEC_MUST_USE;
/* Writes one more choice down. */
void hec_job_say(hec_job *job, hec_arena *arena, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* That records differ in it, if they do: all that is not of experts counts the job's. */
void hec_job_say_tokens(hec_job *job, hec_token_range of_records, hec_arena *arena);

#endif
