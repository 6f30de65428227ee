/* How a layer's token rows travel, for schedules that choose it layer by layer: in how many chunks beside the experts, or once per
 * node. By closed forms, from the layer's own routing, which every rank has; it costs no time. */
#pragma once
#include "runtime/program/emit.h"

typedef struct hec_ways hec_ways;
hec_ways *hec_ways_new(const hec_problem *problem, hec_arena *arena);
/* Before the layer's permute: sets its degree, or that its rows travel once per node, whichever ends the layer's token work sooner.
 * The plain way where equal. O(ranks^2 + degrees * computed experts), and what hec_nodes_choose costs. */
void hec_ways_choose(hec_lowering *low, hec_ways *ways, int32_t layer);
