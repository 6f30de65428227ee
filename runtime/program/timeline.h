/* A timeline: begin and end of every (operation, rank), in picoseconds from the start of the program. Both interpreters
 * return one; everything that is reported is computed from it. */
#pragma once
#include "runtime/base/text.h"
#include "runtime/program/program.h"

typedef struct {
  int32_t n_ops, n_ranks;
  int64_t *begin_ps, *end_ps; /* [n_ops * n_ranks]; -1 where the rank takes no part. An exchange begins on a rank when
                                 its partners have posted too: the time before that is waiting, not communication. */
  int64_t *late_ps;           /* [n_ranks] start skew: the rank begins nothing before; 0 after a resize */
  size_t begin_capacity, end_capacity, late_capacity;
} hec_timeline;

void hec_timeline_resize(hec_timeline *timeline, int32_t n_ops, int32_t n_ranks); /* contents become -1 */
void hec_timeline_free(hec_timeline *timeline);

/* Aborts unless: ends not before begins, lanes in order, dependencies respected, presence as in the program. */
void hec_timeline_check(const hec_timeline *timeline, const hec_program *program);

int64_t hec_timeline_end_ps(const hec_timeline *timeline); /* the iteration time */

/* Where the time went, mean over ranks; the parts add up to total_s. A moment in which the compute lane is busy is
 * booked under what it does. Otherwise it is booked under the operation in progress on the first busy lane of token,
 * intra-node, parameter, gradient. Otherwise it is waiting (for partners or dependencies). Before a rank begins
 * (late_ps) it does not wait: that time is its start skew. */
typedef struct {
  double total_s;
  double book_s[HEC_N_BOOKS]; /* compute, planning, then exposed communication per kind */
  double role_s[HEC_N_ROLES]; /* the same moments by what the operation is for; the roles of a book add up to it */
  double wait_s;
  double skew_s;              /* before the ranks begin */
  double busy_s[HEC_N_LANES]; /* busy per lane, overlapped or not */
  double
      sparse_s; /* copies' parameters and gradients on their way, overlapped or not: traffic classes gather and scatter */
} hec_breakdown;
hec_breakdown hec_timeline_breakdown(const hec_timeline *timeline, const hec_program *program);

/* A change of what a rank holds. */
typedef struct {
  int64_t time_ps;
  hec_memory memory;
  double bytes; /* more; below 0: less */
} hec_memory_change;
/* [*n] in the order of time, of one instant what is freed first; the caller frees it. */
hec_memory_change *hec_timeline_memory(const hec_timeline *timeline, const hec_program *program, int32_t rank,
                                       int32_t *n);
