/* What queued_cpu.c (queues, events, the scheduler) and queued_calls.c (the arithmetic) share. */
#ifndef HEC_TESTS_SUPPORT_QUEUED_OWN_H
#define HEC_TESTS_SUPPORT_QUEUED_OWN_H
#include "runtime/exec/model/model.h"
#include "tests/support/queued_cpu.h"

/* The arguments of any call. */
typedef struct {
  float *to, *second, *third;
  const float *from;
  int64_t n;
  float factor;
  bool exact;
  void *list; /* [length] of what the call takes */
  int32_t length, d;
  float **row, **other;
  hec_assignments choice;
  hec_norm norm;
  hec_scores scores;
  hec_adam adam;
} hec_queued_arguments;

enum { HEC_QUEUED_COPIES_MOST = 5 };

typedef struct hec_queued_operation {
  struct hec_queued_operation *next;
  const char *name;
  void (*run)(hec_queued_arguments *with); /* NULL: mark or after */
  hec_event *event;                        /* mark */
  const hec_event *waits_for;              /* after */
  hec_queued_arguments with;
  void *copies[HEC_QUEUED_COPIES_MOST]; /* freed with it */
  int32_t n_copies;
} hec_queued_operation;

/* The new call at the end of the selected stream, everything locked; NULL, and not locked: the device has failed. */
hec_queued_operation *hec_queued_record(hec_processor *on, const char *name, void (*run)(hec_queued_arguments *with));
void hec_queued_unlock(void);
/* With everything locked: some steps, n at most; steps until the selected stream has done all that it was given so far. */
void hec_queued_step(uint64_t n);
void hec_queued_drain_selected(hec_processor *on);

extern const hec_arithmetic hec_queued_arithmetic;

#endif
