/* Closed-form exchange times: see the header for the formulas. Byte counts are below 2^53, so sums are exact and order
 * does not matter.
 *
 * By routes (any cluster), two passes over the transfers. The first adds bytes to the links of each route. The second
 * takes the maximum over each side's links. In between the load of every touched link becomes a time (one division per
 * link). Afterwards it becomes zero again: touched links only, found by a third pass, when transfers are fewer than
 * links.
 *
 * By seats (the usual cluster), one pass. It applies where every route is one link on the source's side and one on the
 * destination's. A seat is a rank at a link of its side: two or three for each direction. A transfer leaves its bytes
 * and the time it begins at two seats, and the rest is done on seats:
 *
 *   load(l) = sum of bytes over its seats      done(r) = max over r's seats of latest begin + load(l) / bandwidth(l)
 *
 * the same to the last bit, since rounding is monotonic. Most ranks follow each other on one seat with one latency: a
 * run. Where all pairs have rows to send (hec_link_cost_rows), these are summed run by run. Pairs are kept in a table of
 * 40 bytes each (up to 256 devices: 2.5 MiB). */
#include "models/link_cost.h"

#include <stdlib.h>
#include <string.h>

enum { PAIRS_DEVICES_MAX = 256, SIDE_SOURCE = 1, SIDE_DESTINATION = 2 };

struct hec_link_pair {
  double latency_s, bandwidth; /* bytes/s of the slowest link */
  int32_t out, in;             /* seats of source and destination */
  const hec_link *sized;       /* whose shares all links of the route have that have any; NULL: none has, or `mixed` */
  bool mixed;
};

struct hec_link_seat {
  double bytes, begin_s; /* of one exchange; 0 and -1 between uses */
  int32_t rank, link;
};

/* Others begin .. end-1 that a rank reaches, or is reached by, through one of its seats. */
struct hec_link_run {
  int32_t begin, end, seat;
  double latency_s;
};

static double latency_seconds(const hec_cluster *cluster, int32_t s, int32_t d) {
  return (double)hec_cluster_latency_ps(cluster, s, d) * 1e-12;
}

static const hec_link *sized_link(const hec_cluster *cluster, int32_t s, int32_t d, bool *mixed) {
  const int32_t *route;
  int32_t n = hec_cluster_route(cluster, s, d, &route);
  const hec_link *found = NULL;
  for (int32_t i = 0; i < n; i++) {
    const hec_link *link = &cluster->links[route[i]];
    *mixed = *mixed || (link->n_shares > 0 && found && found->shares != link->shares);
    found = link->n_shares > 0 ? link : found;
  }
  return *mixed ? NULL : found;
}

static bool is_short(const hec_cluster *cluster, int32_t s, int32_t d) {
  const int32_t *route;
  int32_t n = hec_cluster_route(cluster, s, d, &route);
  const uint8_t *side = cluster->route_side + (route - cluster->route_link);
  return n == 2 && side[0] == SIDE_SOURCE && side[1] == SIDE_DESTINATION;
}

/* The seat of `rank` at `link`, among those from `first` on; appended if it is new. */
static int32_t seat_at(hec_link_cost *cost, int32_t first, int32_t rank, int32_t link) {
  for (int32_t i = first; i < cost->n_seats; i++)
    if (cost->seats[i].rank == rank && cost->seats[i].link == link)
      return i;
  HEC_RESERVE(cost->seats, cost->seats_capacity, (size_t)cost->n_seats + 1);
  cost->seats[cost->n_seats] = (struct hec_link_seat){0, -1, rank, link};
  return cost->n_seats++;
}

/* Seats of one rank follow each other: those to send from, then those to receive at. */
static void make_seats(hec_link_cost *cost) {
  int32_t n = cost->cluster->n_devices;
  for (int32_t r = 0; r < n; r++) {
    int32_t first = cost->n_seats;
    for (int32_t other = 0; other < n; other++) {
      const int32_t *route;
      if (other == r)
        continue;
      (void)hec_cluster_route(cost->cluster, r, other, &route);
      cost->pairs[r * n + other].out = seat_at(cost, first, r, route[0]);
      (void)hec_cluster_route(cost->cluster, other, r, &route);
      cost->pairs[other * n + r].in = seat_at(cost, first, r, route[1]);
    }
  }
}

/* The runs of rank r, to `to`; NULL: only counted. */
static int32_t runs_of(const hec_link_cost *cost, int32_t r, bool out, struct hec_link_run *to) {
  int32_t n = cost->cluster->n_devices, n_runs = 0;
  struct hec_link_run last = {.end = -1};
  for (int32_t other = 0; other < n; other++) {
    if (other == r)
      continue;
    const struct hec_link_pair *pair = &cost->pairs[out ? r * n + other : other * n + r];
    struct hec_link_run run = {other, other + 1, out ? pair->out : pair->in, pair->latency_s};
    if (last.end == other && last.seat == run.seat && last.latency_s == run.latency_s)
      run.begin = last.begin;
    else
      n_runs++;
    last = run;
    if (to)
      to[n_runs - 1] = run;
  }
  return n_runs;
}

static void list_runs(hec_link_cost *cost, hec_arena *arena) {
  int32_t n = cost->cluster->n_devices;
  cost->run_at = HEC_NEW(arena, int32_t, 2 * (size_t)n + 1);
  for (int32_t i = 0; i < 2 * n; i++)
    cost->run_at[i + 1] = cost->run_at[i] + runs_of(cost, i % n, i < n, NULL);
  cost->runs = HEC_NEW(arena, struct hec_link_run, cost->run_at[2 * n] + 1);
  cost->sums = HEC_NEW(arena, uint64_t, ((size_t)n + 1) * (size_t)n);
  for (int32_t i = 0; i < 2 * n; i++)
    (void)runs_of(cost, i % n, i < n, cost->runs + cost->run_at[i]);
}

hec_link_cost hec_link_cost_new(const hec_cluster *cluster, hec_arena *arena) {
  int32_t n = cluster->n_devices;
  hec_link_cost cost = {.cluster = cluster,
                        .load = HEC_NEW(arena, double, cluster->n_links),
                        .done_s = HEC_NEW(arena, double, n),
                        .touched = HEC_NEW(arena, int32_t, cluster->n_links),
                        .by_seats = n <= PAIRS_DEVICES_MAX};
  if (n > PAIRS_DEVICES_MAX)
    return cost;
  cost.pairs = HEC_NEW(arena, struct hec_link_pair, (size_t)n * (size_t)n);
  for (int32_t s = 0; s < n; s++)
    for (int32_t d = 0; d < n; d++)
      if (s != d) {
        struct hec_link_pair *pair = &cost.pairs[s * n + d];
        *pair = (struct hec_link_pair){
            latency_seconds(cluster, s, d), hec_cluster_slowest(cluster, s, d), -1, -1, NULL, false};
        pair->sized = cluster->sized ? sized_link(cluster, s, d, &pair->mixed) : NULL;
        cost.by_seats = cost.by_seats && is_short(cluster, s, d);
      }
  if (cost.by_seats) {
    make_seats(&cost);
    list_runs(&cost, arena);
  }
  return cost;
}

void hec_link_cost_free(hec_link_cost *cost) {
  free(cost->delay_s);
  free(cost->seats);
  cost->delay_s = NULL;
  cost->seats = NULL;
  cost->delay_capacity = cost->seats_capacity = 0;
  cost->n_seats = 0;
}

static inline double larger(double a, double b) {
  return a > b ? a : b;
}

typedef struct {
  int32_t source, destination;
} ends;

static inline ends ends_of(const hec_transfer *t, bool reverse) {
  return reverse ? (ends){t->destination, t->source} : (ends){t->source, t->destination};
}

/* The pair if the table is kept; NULL: read the cluster. */
static inline const struct hec_link_pair *pair_at(const hec_link_cost *cost, int32_t s, int32_t d) {
  return cost->pairs ? cost->pairs + (s * cost->cluster->n_devices + d) : NULL;
}

/* What a message puts on the links of its route: bytes / share, to a whole byte, so that sums stay exact. */
static inline double load_of(const hec_link_cost *cost, int32_t s, int32_t d, int64_t bytes) {
  if (!cost->cluster->sized)
    return (double)bytes;
  const struct hec_link_pair *pair = pair_at(cost, s, d);
  if (pair && !pair->sized && !pair->mixed)
    return (double)bytes;
  double share = pair && pair->sized ? hec_link_share_of(pair->sized, (double)bytes)
                                     : hec_cluster_share_of(cost->cluster, s, d, (double)bytes);
  return (double)(int64_t)((double)bytes / share + 0.5);
}

static inline double latency_of(const hec_link_cost *cost, int32_t s, int32_t d) {
  const struct hec_link_pair *pair = pair_at(cost, s, d);
  return pair ? pair->latency_s : latency_seconds(cost->cluster, s, d);
}

/* Adds one transfer to the links of its route. */
static inline void add_transfer(hec_link_cost *cost, int32_t s, int32_t d, double bytes) {
  const int32_t *route;
  int32_t n = hec_cluster_route(cost->cluster, s, d, &route);
  for (int32_t i = 0; i < n; i++)
    cost->load[route[i]] += bytes;
}

/* The links with load that `transfers` cross, each once: load becomes minus load as it is listed. */
static int32_t list_links(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse) {
  int32_t n_touched = 0;
  for (int32_t i = 0; i < n; i++) {
    ends e = ends_of(&transfers[i], reverse);
    const int32_t *route;
    int32_t length = hec_cluster_route(cost->cluster, e.source, e.destination, &route);
    for (int32_t k = 0; k < length; k++) {
      if (cost->load[route[k]] <= 0)
        continue;
      cost->load[route[k]] = -cost->load[route[k]];
      cost->touched[n_touched++] = route[k];
    }
  }
  return n_touched;
}

/* First pass. Afterwards the load of each touched link is seconds. Returns how many are listed in `touched`, or -1:
 * any may be touched (there are more transfers than links, so a list would not pay). */
static inline int32_t fill_links(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse) {
  const hec_link *links = cost->cluster->links;
  for (int32_t i = 0; i < n; i++) {
    ends e = ends_of(&transfers[i], reverse);
    add_transfer(cost, e.source, e.destination, load_of(cost, e.source, e.destination, transfers[i].bytes));
  }
  if (n >= cost->cluster->n_links) {
    for (int32_t i = 0; i < cost->cluster->n_links; i++)
      cost->load[i] /= links[i].bandwidth;
    return -1;
  }
  int32_t n_touched = list_links(cost, transfers, n, reverse);
  for (int32_t i = 0; i < n_touched; i++)
    cost->load[cost->touched[i]] /= -links[cost->touched[i]].bandwidth;
  return n_touched;
}

static void clear_links(hec_link_cost *cost, int32_t n_touched) {
  for (int32_t i = 0; n_touched < 0 && i < cost->cluster->n_links; i++)
    cost->load[i] = 0;
  for (int32_t i = 0; i < n_touched; i++)
    cost->load[cost->touched[i]] = 0;
}

/* Latency of the pair and the largest time among the links of each side. */
typedef struct {
  double latency_s, source_s, destination_s;
} sides;

static sides sides_of(const hec_link_cost *cost, int32_t s, int32_t d) {
  const int32_t *route;
  int32_t n = hec_cluster_route(cost->cluster, s, d, &route);
  const uint8_t *side = cost->cluster->route_side + (route - cost->cluster->route_link);
  sides found = {latency_of(cost, s, d), 0, 0};
  for (int32_t i = 0; i < n; i++) {
    double link_s = cost->load[route[i]];
    if (side[i] & SIDE_SOURCE)
      found.source_s = larger(found.source_s, link_s);
    if (side[i] & SIDE_DESTINATION)
      found.destination_s = larger(found.destination_s, link_s);
  }
  return found;
}

/* Time until the first chunk of a transfer has arrived, counted from its begin. */
static inline double first_chunk_s(const hec_link_cost *cost, int32_t s, int32_t d, double chunk_bytes) {
  const struct hec_link_pair *pair = pair_at(cost, s, d);
  return pair ? pair->latency_s + chunk_bytes / pair->bandwidth
              : latency_seconds(cost->cluster, s, d) + chunk_bytes / hec_cluster_slowest(cost->cluster, s, d);
}

/* delay_s[i]: when transfer i may begin, because what it forwards has begun to arrive. */
static void delay_chains(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse,
                         int32_t n_chunks) {
  HEC_RESERVE(cost->delay_s, cost->delay_capacity, n);
  int64_t bytes = 0; /* of the last transfer: most are alike */
  double chunk_bytes = 0;
  for (int32_t i = 0; i < n; i++)
    cost->delay_s[i] = 0;
  for (int32_t step = 0; step < n; step++) {
    int32_t i = reverse ? n - 1 - step : step;
    int32_t link = transfers[i].after;
    if (link < 0)
      continue;
    HEC_ASSERT(link < i);
    int32_t before = reverse ? i : link, later = reverse ? link : i;
    ends e = ends_of(&transfers[before], reverse);
    if (transfers[before].bytes != bytes || cost->cluster->sized) {
      bytes = transfers[before].bytes;
      chunk_bytes = load_of(cost, e.source, e.destination, bytes) / (double)n_chunks;
    }
    double begin_s = cost->delay_s[before] + first_chunk_s(cost, e.source, e.destination, chunk_bytes);
    cost->delay_s[later] = larger(cost->delay_s[later], begin_s);
  }
}

static void finish_ranks(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse, bool chained) {
  for (int32_t i = 0; i < n; i++) {
    ends e = ends_of(&transfers[i], reverse);
    sides time = sides_of(cost, e.source, e.destination);
    double begin_s = chained ? cost->delay_s[i] + time.latency_s : time.latency_s;
    cost->done_s[e.source] = larger(cost->done_s[e.source], begin_s + time.source_s);
    cost->done_s[e.destination] = larger(cost->done_s[e.destination], begin_s + time.destination_s);
  }
}

static void exchange_by_routes(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse,
                               bool chained) {
  int32_t n_touched = fill_links(cost, transfers, n, reverse);
  finish_ranks(cost, transfers, n, reverse, chained);
  clear_links(cost, n_touched);
}

static inline void sit(struct hec_link_seat *seat, double bytes, double begin_s) {
  seat->bytes += bytes;
  seat->begin_s = larger(seat->begin_s, begin_s);
}

/* Transfers mostly stand by source, so the seat at that end stays at hand while it is the same. The other end's is
 * another rank's, so it is another seat. */
static inline void fill_seats(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse,
                              bool chained) {
  struct hec_link_seat *at = NULL, own = {0};
  for (int32_t i = 0; i < n; i++) {
    ends e = ends_of(&transfers[i], reverse);
    const struct hec_link_pair *pair = cost->pairs + (e.source * cost->cluster->n_devices + e.destination);
    double begin_s = chained ? pair->latency_s + cost->delay_s[i] : pair->latency_s;
    double load = load_of(cost, e.source, e.destination, transfers[i].bytes);
    struct hec_link_seat *seat = &cost->seats[reverse ? pair->in : pair->out];
    if (seat != at) {
      if (at)
        *at = own;
      at = seat;
      own = *seat;
    }
    sit(&own, load, begin_s);
    sit(&cost->seats[reverse ? pair->out : pair->in], load, begin_s);
  }
  if (at)
    *at = own;
}

/* done_s from what sits; afterwards nothing does. */
static void finish_seats(hec_link_cost *cost) {
  if (cost->n_seats == 0) /* a rank alone: there is no array that an end could be counted from */
    return;
  struct hec_link_seat *end = cost->seats + cost->n_seats;
  for (struct hec_link_seat *seat = cost->seats; seat != end; seat++)
    cost->load[seat->link] += seat->bytes;
  for (struct hec_link_seat *seat = cost->seats; seat != end; seat++) {
    if (seat->begin_s < 0)
      continue;
    double link_s = cost->load[seat->link] / cost->cluster->links[seat->link].bandwidth;
    cost->done_s[seat->rank] = larger(cost->done_s[seat->rank], seat->begin_s + link_s);
    seat->bytes = 0;
    seat->begin_s = -1;
  }
  memset(cost->load, 0, (size_t)cost->cluster->n_links * sizeof *cost->load);
}

static void exchange_by_seats(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse,
                              bool chained) {
  if (chained)
    fill_seats(cost, transfers, n, reverse, true);
  else if (reverse)
    fill_seats(cost, transfers, n, true, false);
  else
    fill_seats(cost, transfers, n, false, false);
  finish_seats(cost);
}

static double makespan_of(const hec_link_cost *cost) {
  double makespan = 0;
  for (int32_t r = 0; r < cost->cluster->n_devices; r++)
    makespan = larger(makespan, cost->done_s[r]);
  return makespan;
}

bool hec_link_cost_sums(const hec_link_cost *cost, double bytes) {
  return cost->by_seats && !cost->cluster->sized && bytes == (double)(int64_t)bytes;
}

static inline void add_row(const uint64_t *restrict before, const uint32_t *restrict row, size_t n,
                           uint64_t *restrict sum) {
  for (size_t s = 0; s < n; s++)
    sum[s] = before[s] + row[s];
}

/* sums[d * n + s]: what s sends to ranks before d. Row by row, in order of memory. */
static void sum_rows(const uint32_t *rows, size_t n, uint64_t *sums) {
  memset(sums, 0, n * sizeof *sums);
  for (size_t d = 0; d < n; d++)
    add_row(sums + d * n, rows + d * n, n, sums + (d + 1) * n);
}

/* What rank r sends to, or gets from, others begin .. end-1 of each run. */
static void fill_runs(hec_link_cost *cost, const uint32_t *rows, int32_t n, int32_t r, bool out, double bytes) {
  int32_t at = out ? r : cost->cluster->n_devices + r;
  const uint32_t *come = rows + (size_t)r * (size_t)n;
  for (int32_t i = cost->run_at[at]; i < cost->run_at[at + 1]; i++) {
    const struct hec_link_run *run = &cost->runs[i];
    int32_t end = run->end < n ? run->end : n;
    if (run->begin >= end)
      continue;
    uint64_t sum =
        out ? cost->sums[(size_t)end * (size_t)n + (size_t)r] - cost->sums[(size_t)run->begin * (size_t)n + (size_t)r]
            : 0;
    for (int32_t other = run->begin; !out && other < end; other++)
      sum += come[other];
    if (sum > 0)
      sit(&cost->seats[run->seat], (double)sum * bytes, run->latency_s);
  }
}

double hec_link_cost_rows(hec_link_cost *cost, const uint32_t *rows, int32_t n, double bytes) {
  HEC_ASSERT(hec_link_cost_sums(cost, bytes) && n <= cost->cluster->n_devices);
  memset(cost->done_s, 0, (size_t)cost->cluster->n_devices * sizeof *cost->done_s);
  sum_rows(rows, (size_t)n, cost->sums);
  for (int32_t r = 0; r < n && bytes > 0; r++) {
    fill_runs(cost, rows, n, r, true, bytes);
    fill_runs(cost, rows, n, r, false, bytes);
  }
  finish_seats(cost);
  return makespan_of(cost);
}

double hec_link_cost_exchange(hec_link_cost *cost, const hec_transfer *transfers, int32_t n, bool reverse,
                              int32_t n_chunks) {
  bool chained = n_chunks > 1;
  for (int32_t r = 0; r < cost->cluster->n_devices; r++)
    cost->done_s[r] = 0;
  if (chained)
    delay_chains(cost, transfers, n, reverse, n_chunks);
  if (cost->by_seats)
    exchange_by_seats(cost, transfers, n, reverse, chained);
  else
    exchange_by_routes(cost, transfers, n, reverse, chained);
  return makespan_of(cost);
}
