/* Route `linear`: every pair of ranks has a message of its own. */
#include "runtime/program/token_route.h"

const hec_token_route hec_token_route_linear = {
    .name = "linear",
    .summary = "directly, a message for every pair of ranks",
    .source = "the all-to-all of collective libraries",
};
