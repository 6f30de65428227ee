/* What a training run says: its head, a line per step, times and check at the end; or all of it as JSON. */
#pragma once
#include "runtime/base/text.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/train/train.h"

/* In memory that the ranks share: rank 0 may be another process than the one that speaks. */
typedef struct {
  hec_check_result check;
  int unwritten;             /* errno of a line of losses that could not be written; 0: none */
  char note[HEC_NOTE_BYTES]; /* the policy's, after the last step */
  int64_t n;
  hec_train_measure step[]; /* [steps] */
} hec_train_curve;

enum { HEC_TRAIN_LIMITS_MAX = 5 };

typedef struct {
  const hec_train *train;
  const hec_policy *policy;
  const hec_schedule *schedule;
  const hec_backend *backend;
  const hec_transport *transport;
  const char *text, *cluster;               /* path as given; name */
  const char *record;                       /* path of the trace; NULL: none is written */
  const char *trace_name;                   /* in it */
  int64_t seed, every;                      /* every: steps between lines */
  const char *carrier, *ranks_are;          /* of messages: a transport or a link; "threads" or "processes" */
  const char *limits[HEC_TRAIN_LIMITS_MAX]; /* what the times do not say */
  int32_t n_limits;
  hec_train_curve *curve;
} hec_train_report;

/* Fills in limits; a warning on stderr where there are fewer cores than ranks. */
void hec_train_report_limits(hec_train_report *report);
void hec_train_report_warn(const hec_train_report *report);
hec_status hec_train_report_head(const hec_train_report *report) HEC_MUST_USE;
/* errno when standard output took it not; 0: it did. */
int hec_train_report_step(const hec_train_report *report, const hec_train_measure *measure);
void hec_train_report_tail(const hec_train_report *report);
void hec_train_report_json(const hec_train_report *report, hec_text *out);
/* HEC_FAILED when the check did not pass, saying where and why. */
hec_status hec_train_report_verdict(const hec_train_report *report) HEC_MUST_USE;
