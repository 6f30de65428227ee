/* Closed-form time of an exchange (alpha-beta, busiest port). It is the only network cost that policies and the
 * collective chooser use, and the `alpha_beta` law of the simulator.
 *
 *   load(l)  = bytes of all transfers whose route crosses link l; bytes / share where links have shares by message size
 *   done(r)  = max over r's transfers (s,d): latency(s,d) + max over its links l on r's side: load(l) / bandwidth(l)
 *   makespan = max over r of done(r), which is max latency + busiest link at most
 *
 * "r's side" (hec_cluster.route_side): r's own ports, its node's NICs and the fabric. Cost O(sum of route lengths). */
#pragma once
#include "models/cluster.h"

#include <stdbool.h>
#include <stdint.h>

/* One message of an exchange. */
typedef struct {
  int64_t bytes;
  int32_t source, destination; /* ranks = devices; never equal */
  int32_t item;  /* expert * slices + slice whose parameters or gradients travel (whole experts: the expert);
                    -1: all that the pair has in this exchange */
  int32_t after; /* smaller index in the exchange: the transfer whose chunks this one forwards; -1: none */
} hec_transfer;

typedef struct {
  const hec_cluster *cluster;
  double *load;                /* [n_links] bytes; zero between uses */
  double *done_s;              /* [n_devices] result */
  int32_t *touched;            /* [n_links] scratch: links with load, in the order they were met */
  struct hec_link_pair *pairs; /* [n_devices * n_devices] what is fixed for a pair; NULL for large clusters */
  struct hec_link_seat *seats; /* [n_seats] (rank, link of its side); only where by_seats */
  int32_t n_seats;
  size_t seats_capacity;
  bool by_seats;             /* every route is one link on each side */
  struct hec_link_run *runs; /* likewise: of device r, to send, at run_at[r]; to receive, at run_at[n_devices + r] */
  int32_t *run_at;           /* [2 * n_devices + 1] */
  uint64_t *sums;            /* likewise [(n_devices + 1) * n_devices] scratch */
  double *delay_s;           /* chains only: when each transfer may begin; grows */
  size_t delay_capacity;
} hec_link_cost;

hec_link_cost hec_link_cost_new(const hec_cluster *cluster, hec_arena *arena);
void hec_link_cost_free(hec_link_cost *cost);

/* done_s[r] of every rank in `transfers` (others: 0), with sources and destinations swapped if `reverse`; returns the
 * makespan. `n_chunks` > 1: a transfer that forwards another waits for its first chunk. That adds latency and
 * bytes / n_chunks / bottleneck of the forwarded transfer, per hop of its chain. Reversed, a chain runs backwards too:
 * transfer `after` then waits for the transfers that name it. */
double hec_link_cost_exchange(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse,
                              int32_t n_chunks);

/* The makespan of an exchange in which rank s of n sends rank d so many rows of `bytes` each: rows[d * n + s]. What a
 * rank has for itself does not count. Only where hec_link_cost_sums says so. O(ranks^2), in sums. */
bool hec_link_cost_sums(const hec_link_cost *cost, double bytes);
double hec_link_cost_rows(hec_link_cost *cost, const uint32_t *rows, int32_t n, double bytes);

/* Ring all-reduce of `bytes` over ranks 0..n-1, in that order, one ring per NIC of a node, bytes split evenly. It takes
 * 2(n-1)/n * bytes over the slowest link of a ring plus 2(n-1) latencies (mean over the hops of the ring). n == 1: 0.
 * NCCL's ring, reference field.md 3.4; or the cluster's measured curve. Rings share ports and shared uplinks, each has its NIC and rail to itself. */
double hec_link_cost_allreduce(const hec_cluster *cluster, int32_t n_ranks, double bytes);
/* `stride` of them at once, each of `bytes` over the ranks of equal place, r, r + stride, r + 2 stride ...; stride divides
 * n_ranks. By the law: measured curves are of all ranks together. */
double hec_link_cost_allreduce_strided(const hec_cluster *cluster, int32_t n_ranks, int32_t stride, double bytes);

/* All-gather of `bytes` from each of ranks 0..n-1 (the counts after a gate). It takes (n-1) * bytes into each port,
 * (n - ranks of the node) * bytes into each node, plus one route latency; or the measured curve. */
double hec_link_cost_allgather(const hec_cluster *cluster, int32_t n_ranks, double bytes);
