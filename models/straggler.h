/* Stragglers: ranks that compute slower, links that carry less, ranks that begin an iteration late. A cluster's file may say
 * so (hec_cluster: devices[].speed, devices[].skew_s, links[]); here the options that say it of a cluster already loaded.
 *
 *   slow   rank=3:0.8                  the speed of device 3 times 0.8
 *          link=nic_out:node1:0.5      the bandwidth of that link times 0.5: kinds and places as in the cluster's JSON:
 *                                      port_out:device5, nic_in:node1 (its NIC 0), nic_in:node1.nic3, leaf_up:leaf0
 *   skew   rank=2:500us                rank 2 begins its iteration that much after time 0 (ns, us, ms, s)
 *
 * Several between commas, each rank and link once, a link one that messages between the ranks cross. A factor is from 1e-6 to 1; what is left of a speed or bandwidth may not
 * fall below what a cluster's file may say. A link's nominal rate stays: the data sheet knows nothing of the fault. */
#pragma once
#include "models/cluster.h"

typedef struct {
  const char *slow, *skew; /* NULL: none */
} hec_stragglers;

enum { HEC_STRAGGLERS_MAX = 64 }; /* in one option */

/* `slowed`: the cluster with devices and links of its own, in the arena; `whole` stays as it is. Both may be one struct, which
 * then changes only on success. Ranks are below `n_ranks`. Adds to `said`, where something is slower or later, one sentence
 * on what. Errors (HEC_BAD_INPUT) name the option. */
hec_status hec_stragglers_apply(const hec_stragglers *stragglers, int32_t n_ranks, const hec_cluster *whole,
                                hec_arena *arena, hec_cluster *slowed, hec_text *said) HEC_MUST_USE;
/* Whether they can be applied. */
hec_status hec_stragglers_check(const hec_stragglers *stragglers, int32_t n_ranks,
                                const hec_cluster *cluster) HEC_MUST_USE;

/* HEC_BAD_INPUT where a device below `n_ranks` has a start skew: an execution cannot have it. Its iterations follow
 * each other without a common start. So one rank's delay would be in the iteration before as much as in this one. */
hec_status hec_stragglers_none_late(const hec_cluster *cluster, int32_t n_ranks) HEC_MUST_USE;
