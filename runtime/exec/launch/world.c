/* Memory, clocks and doorbells of a launch.
 *
 * Memory: one anonymous shared mapping for all regions, made before the ranks; others for what they share besides.
 *
 *     region 0 | control 0 | region 1 | control 1 | ...      stride = region rounded up to a page + HEC_CONTROL_BYTES
 *
 * Doorbell: `bell` counts events for a rank; only its owner knows `heard`. Ringing: bell += 1, then post the semaphore if
 * the rank sleeps. Sleeping: sleeping = 1, then sleep unless bell != heard. All four are sequentially consistent, so
 * either the ringer sees the sleeper or the sleeper sees the ring. `heard` follows only when a sleep returns, so an event
 * that comes while the rank looks elsewhere costs one needless look and is never lost.
 *
 * Place: a sequence lock whose words are atomics; odd turns mean "being written". Readers give up after a while and take
 * what is there: the writer may have died in the middle. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE, sched_getaffinity */
#include "runtime/exec/launch/world.h"

#include "runtime/base/arena.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Waking up takes some 20 us: whoever sleeps only after POLL_NS ends at most a fifth later than whoever never sleeps. */
enum { PAGE = 4096, POLL_NS = 100000, SECOND_NS = 1000000000 };

_Static_assert(sizeof(hec_place) <= HEC_PLACE_WORDS * sizeof(uint64_t), "a place fits in its words");

/* ---- Memory ---- */

hec_status hec_world_share(hec_world *world, size_t bytes, void **out) {
  HEC_ASSERT(world->n_shared < (int32_t)(sizeof world->shared / sizeof *world->shared));
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return hec_fail(HEC_FAILED, "cannot reserve %zu bytes of shared memory for the ranks: %s", bytes, strerror(errno));
  world->shared[world->n_shared].at = at;
  world->shared[world->n_shared++].bytes = bytes;
  *out = at;
  return HEC_OK;
}

static hec_status check_options(const hec_launch_options *options) {
  if (options->n_ranks < 1 || options->n_ranks > HEC_RANKS_MAX)
    return hec_fail(HEC_BAD_INPUT, "%d ranks: at least 1 and at most %d can run", options->n_ranks, HEC_RANKS_MAX);
  if (options->cluster && options->cluster->n_devices < options->n_ranks)
    return hec_fail(HEC_BAD_INPUT, "%d ranks do not fit on the %d devices of cluster %s", options->n_ranks,
                    options->cluster->n_devices, options->cluster->name);
  if (options->memory_bytes > SIZE_MAX / 2 / (size_t)options->n_ranks - HEC_CONTROL_BYTES - PAGE)
    return hec_fail(HEC_BAD_INPUT, "%d regions of %zu bytes: more than can be addressed", options->n_ranks,
                    options->memory_bytes);
  return HEC_OK;
}

static int32_t allowed_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static hec_status map_all(hec_world *world) {
  size_t n = (size_t)world->n_ranks, local = (size_t)world->n_local;
  void *regions = NULL, *slots = NULL, *failure = NULL, *posted = NULL, *turn = NULL;
  HEC_TRY(hec_world_share(world, local * world->stride, &regions));
  HEC_TRY(hec_world_share(world, n * sizeof(hec_rank_slot), &slots));
  HEC_TRY(hec_world_share(world, sizeof(hec_failure), &failure));
  HEC_TRY(hec_world_share(world, local * HEC_POSTS_MAX * sizeof(int64_t), &posted));
  HEC_TRY(hec_world_share(world, sizeof *world->turn, &turn));
  world->regions = regions;
  world->turn = turn;
  world->slots = slots;
  world->failure = failure;
  world->posted = posted;
  return HEC_OK;
}

hec_status hec_world_new(const hec_launch_options *options, int32_t first, int32_t n_local, hec_world **out) {
  HEC_TRY(check_options(options));
  HEC_ASSERT(first >= 0 && n_local >= 1 && first + n_local <= options->n_ranks && options->transport);
  hec_world *world = hec_malloc(1, sizeof *world);
  *world = (hec_world){.n_ranks = options->n_ranks,
                       .first = first,
                       .n_local = n_local,
                       .crowded = allowed_cores() < n_local,
                       .memory_bytes = options->memory_bytes,
                       .stride = (options->memory_bytes + PAGE - 1) / PAGE * PAGE + HEC_CONTROL_BYTES};
  hec_status status = map_all(world);
  if (status != HEC_OK) {
    hec_world_free(world);
    return status;
  }
  for (int32_t r = 0; r < world->n_ranks; r++) {
    int made = sem_init(&world->slots[r].doorbell, 1, 0);
    HEC_ASSERT(made == 0);
    atomic_init(&world->slots[r].waits_for, -1);
  }
  *out = world;
  return HEC_OK;
}

void hec_world_free(hec_world *world) {
  for (int32_t r = 0; world->slots && r < world->n_ranks; r++)
    (void)sem_destroy(&world->slots[r].doorbell);
  for (int32_t i = 0; i < world->n_shared; i++)
    (void)munmap(world->shared[i].at, world->shared[i].bytes);
  free(world);
}

hec_rank hec_world_rank(hec_world *world, const hec_launch_options *options, int32_t rank) {
  HEC_ASSERT(hec_world_is_local(world, rank));
  double limit_s = options->limit_s > 0 ? options->limit_s : 60;
  return (hec_rank){.rank = rank,
                    .n_ranks = world->n_ranks,
                    .memory = hec_world_region(world, rank),
                    .memory_bytes = world->memory_bytes,
                    .limit_ns = (int64_t)(limit_s * SECOND_NS),
                    .transport = options->transport,
                    .processor = &hec_processor_cpu,
                    .cluster = options->cluster,
                    .world = world};
}

/* ---- Clocks ---- */

static int64_t read_clock(clockid_t clock) {
  struct timespec now;
  (void)clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

hec_clock_hook *hec_rank_clock_hook;

int64_t hec_clock_ns(void) {
  int64_t now_ns = read_clock(CLOCK_MONOTONIC);
  return hec_rank_clock_hook ? hec_rank_clock_hook(now_ns) : now_ns;
}

int64_t hec_cpu_clock_ns(void) {
  return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* ---- Doorbells ---- */

void hec_world_ring(hec_world *world, int32_t rank) {
  hec_rank_slot *slot = &world->slots[rank];
  (void)atomic_fetch_add(&slot->bell, 1);
  if (atomic_load(&slot->sleeping) && atomic_exchange(&slot->sleeping, 0))
    (void)sem_post(&slot->doorbell);
}

static bool rang(hec_rank_slot *slot) {
  uint32_t bell = atomic_load(&slot->bell);
  bool news = bell != slot->heard;
  slot->heard = bell;
  return news;
}

/* A few looks at the bell, where a core is this rank's own: waking up costs more than most peers keep it waiting. */
static void poll_bell(const hec_world *world, const hec_rank_slot *slot, int64_t now_ns, int64_t until_ns) {
  int64_t end_ns = now_ns + POLL_NS < until_ns ? now_ns + POLL_NS : until_ns;
  while (!world->crowded && atomic_load(&slot->bell) == slot->heard && hec_clock_ns() < end_ns)
    ;
}

static void sleep_on(hec_rank_slot *slot, int64_t sleep_ns) {
  while (sem_trywait(&slot->doorbell) == 0) /* rung while it was already awake */
    ;
  atomic_store(&slot->sleeping, 1);
  if (atomic_load(&slot->bell) == slot->heard) {
    int64_t end_ns = read_clock(CLOCK_REALTIME) + sleep_ns;
    struct timespec end = {.tv_sec = (time_t)(end_ns / SECOND_NS), .tv_nsec = (long)(end_ns % SECOND_NS)};
    (void)sem_timedwait(&slot->doorbell, &end); /* early, late or interrupted: the caller looks */
  }
  atomic_store(&slot->sleeping, 0);
}

hec_status hec_world_sleep(hec_rank *rank, int64_t until_ns) {
  hec_rank_slot *slot = &rank->world->slots[rank->rank];
  for (bool first = true;; first = false) {
    HEC_TRY(hec_rank_check(rank));
    int64_t now_ns = hec_clock_ns();
    hec_world_awake(rank, now_ns);
    if (rang(slot) || now_ns >= until_ns)
      return HEC_OK;
    if (first) {
      poll_bell(rank->world, slot, now_ns, until_ns);
      continue;
    }
    int64_t sleep_ns = until_ns - now_ns, slice_ns = (int64_t)HEC_SLICE_MS * 1000000;
    sleep_on(slot, sleep_ns < slice_ns ? sleep_ns : slice_ns);
  }
}

void hec_world_awake(hec_rank *rank, int64_t now_ns) {
  atomic_store_explicit(&rank->world->slots[rank->rank].awake_ns, now_ns, memory_order_relaxed);
}

/* ---- What ranks publish ---- */

hec_place_hook *hec_rank_place_hook;

void hec_rank_at(hec_rank *rank, const hec_place *place) {
  hec_rank_slot *slot = &rank->world->slots[rank->rank];
  uint64_t words[HEC_PLACE_WORDS] = {0};
  memcpy(words, place, sizeof *place);
  uint32_t turn = atomic_load_explicit(&slot->place_turn, memory_order_relaxed);
  atomic_store_explicit(&slot->place_turn, turn | 1, memory_order_relaxed);
  for (int i = 0; i < HEC_PLACE_WORDS; i++)
    atomic_store_explicit(&slot->place[i], words[i], memory_order_release);
  atomic_store_explicit(&slot->place_turn, (turn | 1) + 1, memory_order_release);
  if (hec_rank_place_hook)
    hec_rank_place_hook(rank, place);
}

void hec_rank_at_phase(hec_rank *rank, int64_t iteration, const char *phase) {
  hec_place place = {.op = -1, .layer = -1, .role = -1, .lane = -1, .iteration = iteration};
  (void)snprintf(place.phase, sizeof place.phase, "%s", phase);
  hec_rank_at(rank, &place);
}

bool hec_world_place(const hec_world *world, int32_t rank, hec_place *place) {
  const hec_rank_slot *slot = &world->slots[rank];
  uint64_t words[HEC_PLACE_WORDS];
  for (int tries = 0; tries < 1000; tries++) {
    uint32_t turn = atomic_load_explicit(&slot->place_turn, memory_order_acquire);
    if (turn == 0)
      return false;
    for (int i = 0; i < HEC_PLACE_WORDS; i++)
      words[i] = atomic_load_explicit(&slot->place[i], memory_order_acquire);
    if (turn % 2 == 0 && atomic_load_explicit(&slot->place_turn, memory_order_relaxed) == turn)
      break;
  }
  memcpy(place, words, sizeof *place);
  place->phase[sizeof place->phase - 1] = '\0';
  return true;
}

void hec_rank_set_posted(hec_rank *rank, int32_t op, int64_t ns) {
  HEC_ASSERT(op >= 0 && op < HEC_POSTS_MAX);
  size_t row = (size_t)(rank->rank - rank->world->first) * HEC_POSTS_MAX;
  atomic_store_explicit(&rank->world->posted[row + (size_t)op], ns, memory_order_release);
}

int64_t hec_rank_posted(const hec_rank *rank, int32_t peer, int32_t op) {
  HEC_ASSERT(op >= 0 && op < HEC_POSTS_MAX && peer >= 0 && peer < rank->n_ranks);
  if (!hec_world_is_local(rank->world, peer))
    return 0;
  size_t row = (size_t)(peer - rank->world->first) * HEC_POSTS_MAX;
  return atomic_load_explicit(&rank->world->posted[row + (size_t)op], memory_order_acquire);
}
