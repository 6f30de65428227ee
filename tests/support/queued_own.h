/* What queued_own.c (processors, events) and queued_calls.c (the arithmetic) share. */
#pragma once
#include "runtime/exec/model/model.h"
#include "tests/support/queued_cpu.h"

enum { HEC_QUEUED_COPIES_MAX = 5 };

/* The arguments of any call, and copies of what describes it, freed with it. */
typedef struct {
  float *to, *second, *third;
  const float *from;
  int64_t n;
  float factor;
  bool exact;
  void *list; /* [length] of what the call takes */
  int32_t length, d;
  float *const *row, *const *other;
  hec_assignments choice;
  hec_norm norm;
  hec_scores scores;
  hec_adam adam;
  void *copies[HEC_QUEUED_COPIES_MAX];
  int32_t n_copies;
  void (*run)(void *arguments);
} hec_queued_arguments;

/* [n] of `bytes` each, kept for the call; NULL stays. */
void *hec_queued_keep(hec_queued_arguments *with, const void *from, int64_t n, size_t bytes);

/* Then: what the host does behind the call. */
typedef enum { HEC_QUEUED_GOES_ON, HEC_QUEUED_ASKS, HEC_QUEUED_WAITS } hec_queued_then;

/* The call at the end of the selected stream; none, and the copies freed, when the device has failed. */
void hec_queued_record(hec_processor *on, const char *name, void (*run)(void *arguments),
                       const hec_queued_arguments *with, hec_queued_then then);

void hec_queued_run_move(void *arguments); /* n bytes */

extern const hec_arithmetic hec_queued_arithmetic;
