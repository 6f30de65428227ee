/* Connections over loopback. For every ordered pair of ranks and every channel there is one TCP connection. Its payload
 * flows from source to destination only; the other way it carries the destination's headers. Only transports include
 * this. */
#pragma once
#include "runtime/exec/launch/world.h"

/* What the ranks share; behind it the flows. */
typedef struct {
  uint64_t nonce;                       /* names this launch: strangers who connect do not know it */
  _Atomic uint32_t port[HEC_RANKS_MAX]; /* where a rank listens; 0: not yet */
  _Atomic int32_t flows[];              /* [n_links of the cluster] messages under way that cross the link */
} hec_tcp_shared;

typedef struct {
  int *out, *in; /* [n_ranks * HEC_N_CHANNELS], peer-major; -1: none */
} hec_tcp_ends;

/* Before the ranks: memory and the limit on open files. */
hec_status hec_tcp_prepare(const hec_launch_options *options, hec_world *world) HEC_MUST_USE;
/* Connects this rank with all others; waits for them at most rank->limit_ns. On failure what is open is in `ends` too. */
hec_status hec_tcp_connect(hec_rank *rank, hec_tcp_ends *ends) HEC_MUST_USE;
void hec_tcp_close(hec_rank *rank, hec_tcp_ends *ends);
