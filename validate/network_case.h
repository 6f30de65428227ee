/* All-to-alls for measuring network laws: made in memory, and what a peer makes of them. */
#pragma once
#include "sim/flows.h"

typedef enum { HEC_NETWORK_SWITCH, HEC_NETWORK_NODES, HEC_N_NETWORKS } hec_network;
extern const char *const hec_network_name[HEC_N_NETWORKS];

/* One flow for each ordered pair of n hosts. All start at 0; there is no latency. `switch`: 50 GB/s up and down a host.
 * `nodes`: 8 hosts per node with 450 GB/s each. Traffic to other nodes takes, too, the one NIC of its node, 50 GB/s. Bytes:
 * log-normal popularity of the receiver (sigma 1) times log-normal noise (0.5), 1 MB at the median; from `seed`. */
void hec_network_case(hec_network network, int32_t n, uint64_t seed, hec_arena *arena, hec_flows *flows);

/* Starts `program`, a path or a name in PATH, with one argument: a temporary file with the flows as
 * tests/simgrid/simgrid_flows.cpp reads them. It prints the seconds that it took, then when each flow ended. */
hec_status hec_network_peer(const char *program, const hec_flows *flows, double *seconds, double *finish) HEC_MUST_USE;
