/* Memory of a rank over a thousand steps of replay: what is resident after the hundredth stays resident and nothing is
 * added. Counted on rank 0, from /proc; the loads repeat, so that everything there is to see has been seen early. */
#include "tests/exec/replay_case.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* A sanitizer keeps freed memory on purpose. */
HEC_TEST_NEEDS(!SANITIZED, "a sanitizer's own memory grows")
HEC_TEST_ONCE(hec_math_open)
HEC_TEST_ARENA(arena)

enum { STEPS = 1000, EARLY = 100, LOADS = 10, SLACK_KIB = 256 };

/* KiB; of the calling process. */
static long resident(void) {
  FILE *file = fopen("/proc/self/status", "r");
  char line[256];
  long kib = -1;
  while (file && fgets(line, sizeof line, file))
    if (strncmp(line, "VmRSS:", 6) == 0)
      kib = strtol(line + 6, NULL, 10);
  if (file)
    (void)fclose(file);
  return kib;
}

typedef struct {
  hec_replay replay;
  const hec_policy *policy;
  int32_t n_measured;
  long early, late;
} counted;

static void measured(void *context, const hec_replayed *iteration) {
  counted *c = context;
  (void)iteration;
  if (c->n_measured++ == 0)
    (void)resident(); /* what reading takes itself is there from now on */
  if (c->n_measured == EARLY)
    c->early = resident();
  if (c->n_measured == STEPS)
    c->late = resident();
}

static hec_status body(hec_rank *rank, void *context) {
  counted *c = context;
  hec_replay_check result;
  HEC_TRY(hec_replay_run(&c->replay, c->policy, rank, &result));
  if (rank->rank != 0)
    return HEC_OK;
  printf("%s: %ld KiB after %d steps, %ld KiB after %d\n", c->policy->name, c->early, EARLY, c->late, STEPS);
  if (c->n_measured != STEPS || c->early <= 0 || c->late > c->early + SLACK_KIB)
    return hec_rank_fail(rank, "%s: resident memory grew from %ld KiB after %d steps to %ld KiB after %d (%d seen)",
                         c->policy->name, c->early, EARLY, c->late, STEPS, c->n_measured);
  return HEC_OK;
}

/* One that materialises, one that migrates, one that replicates. */
static const char *const policies[] = {"hecate", "smartmoe", "eplb"};

HEC_TEST_ROWS(flat, policies) {
  uint64_t seed = 77;
  hec_replay_wish wish = {.ranks = 2, .steps = LOADS, .micro_batches = 1};
  hec_replay_case *c = hec_replay_random(&arena, &seed, wish);
  hec_replay_step *steps = HEC_NEW(&arena, hec_replay_step, STEPS);
  for (int32_t i = 0; i < STEPS; i++) {
    steps[i] = c->replay.steps[i % LOADS];
    steps[i].iter = i;
  }
  counted counter = {.replay = c->replay, .policy = hec_policy_find(policies[_i])};
  counter.replay.steps = steps;
  counter.replay.n_steps = STEPS;
  counter.replay.check = false;
  counter.replay.measured = measured;
  counter.replay.context = &counter;
  hec_launch_options options = {.n_ranks = 2,
                                .transport = &hec_transport_shm,
                                .cluster = &c->cluster,
                                .memory_bytes = hec_replay_bytes(&counter.replay, counter.policy),
                                .limit_s = 100};
  if (hec_launch(&options, body, &counter) != HEC_OK)
    ck_abort_msg("%s\n%s", hec_last_error(), c->line);
}
