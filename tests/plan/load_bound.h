/* What the largest load of a rank cannot go below where homes are given and each rank may hold `extra` experts more. Tokens may be
 * cut anywhere (fractions), so it is a lower bound of what whole tokens reach. R ranks, w_e tokens of expert e, L the largest
 * load:  the max over sets P of ranks of
 *     max(w(P)/R, (w(P) - (R - |P|) top(P)) / |P|),  w(P): of experts with home in P, top(P): of its `extra` largest
 * Those tokens are computed in P, at most |P| L, or on another rank, at most L and at most `extra` experts each. Taken over the R
 * sets of the fullest ranks (one of any size). Tight for extra = 0, extra >= experts, and R <= 2. */
#pragma once
#include "runtime/base/arena.h"

/* load: [n_experts]. Scratch comes from the arena and goes back to it. */
double hec_load_mean(const uint64_t *load, int32_t n_experts, int32_t n_ranks);
double hec_load_bound(const uint64_t *load, const int32_t *home, int32_t n_experts, int32_t n_ranks, int32_t extra,
                      hec_arena *arena);
