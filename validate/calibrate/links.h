/* Rates of links between hosts, measured by themselves, before iterations are.
 *
 * What a short exchange takes says little of a link: queues and rate limits let some bytes pass at once, and protocols
 * change with size. So exchanges grow until their time grows with their bytes. The slope there is the rate. What the
 * smallest takes beyond it is latency. Inside hosts and between them apart. */
#pragma once
#include "models/cluster.h"
#include "runtime/exec/launch/rank.h"
#include "validate/calibrate/fit.h"

enum { HEC_LINK_SIZES_MAX = 14 };

/* Of one class of links. */
typedef struct {
  double bandwidth, latency_s; /* bytes/s; bandwidth 0: not measured */
  bool steady;                 /* time grew with bytes in the end; else the largest exchange was too short for that */
  int32_t n;
  double bytes[HEC_LINK_SIZES_MAX], seconds[HEC_LINK_SIZES_MAX]; /* [n] over the busiest link, and how long */
} hec_link_growth;

/* Seconds of an exchange that puts so many bytes on every link of the class, the same answer on every rank. */
typedef hec_status hec_link_probe(void *context, int64_t bytes, double *seconds);
hec_status hec_link_grow(hec_link_probe *probe, void *context, hec_link_growth *found) HEC_MUST_USE;
/* Of times on a link as it was found: what is left is how far latency + bytes / rate is off, over the sizes. */
hec_line hec_link_line(const hec_link_growth *found);

/* Called by every rank: `found` of the ports inside hosts (of ranks that are alone on their host: bandwidth 0) and of the
 * NICs between them. Regions have hec_links_region bytes. */
typedef struct {
  hec_link_growth port, nic;
} hec_links_found;
hec_status hec_links_measure(const hec_cluster *cluster, hec_rank *rank, hec_links_found *found) HEC_MUST_USE;
size_t hec_links_region(int32_t n_ranks);
