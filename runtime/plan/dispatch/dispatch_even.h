/* What the even rules share: their candidates are a run of the ascending holders. Internal to dispatch_*.c. */
#ifndef HEC_PLAN_DISPATCH_EVEN_H
#define HEC_PLAN_DISPATCH_EVEN_H
#include "runtime/plan/dispatch/dispatch.h"
#include "runtime/plan/problem.h"

/* First holder whose rank is at least `rank`; O(log holders). */
static inline int32_t hec_dispatch_lower(const hec_dispatch_row *row, int32_t rank) {
  int32_t begin = 0, end = row->n_holders;
  while (begin < end) {
    int32_t middle = (begin + end) / 2;
    if (row->holders[middle] < rank)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/* Splits n evenly over holders begin .. end-1, the source's rank id as the turn; over all holders if there are none. */
static inline void hec_dispatch_spread(const hec_dispatch_row *row, int32_t begin, int32_t end, int32_t source,
                                       uint32_t n, uint32_t *tokens) {
  if (begin >= end) {
    begin = 0;
    end = row->n_holders;
  }
  int32_t count = end - begin;
  uint32_t share = n / (uint32_t)count, rest = n % (uint32_t)count;
  uint32_t turn = (uint32_t)source % (uint32_t)count; /* the candidates turn, turn+1, ... (mod count) get the rest */
  for (uint32_t p = 0; p < (uint32_t)count; p++)
    tokens[begin + (int32_t)p] = share + ((p >= turn ? p - turn : p + (uint32_t)count - turn) < rest);
}

/* The run of holders on the source's node. */
static inline void hec_dispatch_node(const hec_dispatch_row *row, int32_t source, int32_t *begin, int32_t *end) {
  int32_t node = hec_problem_node(row->problem, source);
  *begin = hec_dispatch_lower(row, node * row->problem->cluster->devices_per_node);
  *end = hec_dispatch_lower(row, hec_problem_node_end(row->problem, node));
}

#endif
