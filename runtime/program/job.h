/* A job: a problem and the trace that its loads come from (tools/front/job_make.h makes it); and from the trace's records to
 * iterations of loads. */
#pragma once
#include "runtime/base/text.h"
#include "runtime/plan/problem.h"
#include "traces/trace.h"

enum { HEC_JOB_MINDS = 2 };

typedef struct hec_job {
  hec_moe moe;
  hec_cluster cluster;
  const char *cluster_spec; /* what it was made of: preset, file or line, to be handed on */
  hec_problem problem;
  const char *origin;      /* the trace's path, or what it is called; the reader's */
  hec_trace_header header; /* of the trace; texts belong to the reader */
  int32_t n_stages;        /* executed: pipeline stages of problem.n_ranks each, with a part of the layers; 0: none */
  int32_t micro_batches, warmup;
  int64_t first_reported; /* `iter` of the first iteration after the warm-up */
  uint64_t scale_to;      /* assignments per layer that every load is scaled to; 0: as recorded */
  const char **defaults;  /* [n_defaults] sentences: what the user did not say, and what became of some options */
  int32_t n_defaults, defaults_room;
  const char *minds[HEC_JOB_MINDS]; /* [n_minds] of these, those that a reader may be misled by */
  int32_t n_minds;
} hec_job;

/* Of all pipeline stages. */
static inline int32_t hec_job_ranks(const hec_job *job) {
  return job->n_stages > 0 ? job->n_stages * job->problem.n_ranks : job->problem.n_ranks;
}

/* One iteration: the records of one `iter`, spread over the ranks and scaled. */
typedef struct {
  int64_t index;        /* 0, 1, ... in the trace */
  int64_t iter, stride; /* distance to the next iteration recorded; the last has the one before it; alone 1 */
  int32_t n_loads;      /* records; 1 is repeated job->micro_batches times */
  int32_t n_micro_batches;
  const hec_load *loads; /* [n_loads] n_sources = ranks */
  const char *label;
} hec_iteration;

typedef struct hec_feed hec_feed;
hec_feed *hec_feed_new(const hec_job *job, hec_trace_reader *reader);
hec_status hec_feed_next(hec_feed *feed,
                         const hec_iteration **iteration) HEC_MUST_USE; /* NULL at the end; valid until the next call */
hec_token_range hec_feed_tokens(const hec_feed *feed);                  /* of the iterations so far */
void hec_feed_free(hec_feed *feed);
HEC_OPENED_BY(hec_feed, hec_feed_free)

/* Rows of work are 31 bits wide, and so is what one rank may have to compute. `what`: for the message. */
hec_status hec_job_check_assignments(const char *what, uint64_t assignments) HEC_MUST_USE;
/* Loads of one record made ready for the problem (spread and scaled), into `out` [n_layers][n_ranks][n_experts]. */
hec_status hec_job_load(const hec_job *job, const hec_trace_record *record, hec_load *out,
                        hec_load_remainder *order) HEC_MUST_USE;
