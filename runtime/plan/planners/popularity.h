/* SYMI's placement (arXiv 2504.19925; reference policies.md 3.10), apart from the policy so that it can be tested
 * exactly. */
#pragma once
#include <stdint.h>

/* count[e] >= 1 replicas in proportion to load, n_slots in all (n_slots >= n_experts); slot[i] = expert in slot i,
 * contiguous: all of expert 0, then expert 1, ... All zero loads: evenly. Returns its inner steps. O(E + slots) but for
 * rounding, which takes O(E) for each slot too many or too few, fewer than E. */
uint64_t hec_popularity_place(const uint64_t *load, int32_t n_experts, int32_t n_slots, int32_t *count, int32_t *slot);
