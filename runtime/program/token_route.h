/* How token rows get from the rank of their tokens to the rank of their expert: directly, or over a relay. A relay is a
 * third rank that gathers the rows of several others and sends them on. The schedule chooses a route for each layer
 * before its permute, as it chooses the degree; the way back is the same way backwards. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct hec_problem hec_problem; /* runtime/plan/problem.h */

typedef struct {
  const char *name, *summary, *source;
  /* The rank over which rows of s for d (another rank) travel, q. Rows go s -> q in the first exchange of two and q ->
   * d in the second. q = s: in the second alone; q = d: in the first alone. There is one relay on a way: q itself
   * sends directly, relay(q, d) = q. NULL: no rows have one, and there is one exchange. */
  int32_t (*relay)(const hec_problem *problem, int32_t s, int32_t d);
  bool (*applies)(const hec_problem *problem); /* whether any row has a relay; NULL: there is nothing to ask */
} hec_token_route;

#define HEC_TOKEN_ROUTE_LIST(X) X(linear) X(2dh)
#define HEC_TOKEN_ROUTE_DECLARE(name) extern const hec_token_route hec_token_route_##name;
HEC_TOKEN_ROUTE_LIST(HEC_TOKEN_ROUTE_DECLARE)
#define HEC_TOKEN_ROUTE_COUNT(name) +1
enum { HEC_N_TOKEN_ROUTES = HEC_TOKEN_ROUTE_LIST(HEC_TOKEN_ROUTE_COUNT) };
/* By their numbers, which layers and operations carry; 0: what a layer has whose schedule chooses none. */
extern const hec_token_route *const hec_token_routes[HEC_N_TOKEN_ROUTES];
