/* How long operations took from when they could begin. A prediction and a measurement are compared in these durations,
 * and laws are fitted to them. Whatever the host does before an operation (posting it, finding its rows) counts as the
 * operation's, waiting for a partner does not.
 *
 *     ready(op, r)  = max(end of the lane's previous operation on r, ends of op's dependencies on r)
 *     span(op, r)   = end(op, r) - max of ready over r and its partners in op (exchange), over all ranks (all-reduce, counts),
 *                     or ready(op, r) alone (compute, local); planning, whose time is the host's: end - begin
 *
 * In a simulated timeline the spans are the durations that the laws gave (a test).
 *
 * Mending: the timeline as it would have been if no rank had lost its processor and every core had kept the reference's
 * pace. Operations get shorter by what they lost, computing and local ones are put at the pace of their rank, planning is
 * left as it was. Then waiting follows from the same dependencies. Without losses and at pace 1 it is the same timeline (a
 * test). With start as above, for planning start = ready:
 *
 *     end'(op, r) = max(ready'(op, r), start'(op, r) + (end - start - lost) / pace(r))      computing and local operations
 *     end'(op, r) = max(ready'(op, r), start'(op, r) + end - start - lost)                  the others */
#pragma once
#include "runtime/program/timeline.h"

typedef struct {
  int64_t *ps;       /* [n_ops * n_ranks]; -1 where the rank takes no part; never below 0 elsewhere */
  int64_t *apart_ps; /* [n_ops] from the first ready to the last, of the ranks that take part */
  size_t capacity, apart_capacity;
  int64_t *scratch;
  size_t scratch_capacity;
} hec_spans; /* zero-initialise; reused from call to call */

void hec_spans_find(hec_spans *spans, const hec_program *program, const hec_timeline *timeline);
typedef struct {
  const int64_t *lost_ps; /* [n_ops * n_ranks] without a processor; NULL: none */
  const double *pace;     /* [n_ranks] computing took this many times what it takes at the reference */
} hec_mending;
/* `mended` must not be `timeline`. */
void hec_spans_mend(hec_spans *spans, const hec_program *program, const hec_timeline *timeline,
                    const hec_mending *mending, hec_timeline *mended);
void hec_spans_free(hec_spans *spans);

static inline int64_t hec_span_ps(const hec_spans *spans, const hec_program *program, int32_t op, int32_t rank) {
  return spans->ps[(size_t)op * (size_t)program->n_ranks + (size_t)rank];
}
