/* Random cases for tests of lowering and simulation. A problem (cluster, model, ranks), loads, and a walk over every
 * policy under every schedule it allows. So rows added later are covered without touching a test. */
#pragma once
#include "runtime/plan/problem.h"
#include "runtime/program/lower.h"
#include "sim/simulate.h"

/* How many random cases to run: a quarter of n, times HECATE_TEST_CASES (a whole number, default 1). Under a sanitizer a
 * sixteenth, since it takes ten times as long for each. */
int hec_test_cases(int n);

typedef struct {
  bool uniform;     /* all devices alike */
  bool uneven;      /* some much faster or slower than others */
  bool comm_share;  /* communication may take a share of the device */
  bool no_overhead; /* no launch, no GEMM constants, tiles of one row, free planning */
  bool heavy_state; /* hardly any tokens, much to optimise, a network that costs next to nothing */
  int32_t ranks_max;
} hec_test_wish;

typedef struct {
  char line[256]; /* of the cluster, for messages */
  hec_moe moe;
  hec_cluster cluster;
  hec_problem problem;
  hec_load *loads; /* [n_iterations * n_micro_batches] */
  int32_t n_iterations, n_micro_batches;
  const hec_collective *collective;        /* NULL: by cost */
  bool detail;                             /* programs say what travels (hec_lowering_detail) */
  int32_t turn;                            /* 0..7: which pairs of policy and schedule it gets */
  const char *only_policy, *only_schedule; /* these alone, in every turn; NULL: all */
} hec_test_case;

/* Everything on the arena. Now and then: one rank, one expert, more ranks than experts, dense blocks, shared experts,
 * embedding. Also recomputation, forward only, several micro-batches, shared and several NICs, leaves, PXN, idle
 * layers. */
hec_test_case *hec_test_random_case(hec_arena *arena, uint64_t *seed, hec_test_wish wish);
/* The case's problem on another cluster line (same devices). */
void hec_test_recluster(hec_test_case *c, const char *line, hec_arena *arena);

/* One iteration of one policy under one schedule, lowered. */
typedef struct {
  const hec_test_case *c;
  const hec_policy *policy;
  const hec_schedule *schedule;
  hec_lowering *low;
  const hec_program *program;
  int32_t iteration;
  const hec_load *loads; /* [n_micro_batches] as given; a policy that rewrites computes something else */
} hec_test_step;
typedef void hec_test_visit(const hec_test_step *step, void *context);

/* Lowers every iteration under policies and schedules that they allow. Each policy under its own schedule, bounds, and of
 * the other pairs every second one, in the next case the others. Of schedules that cut layers into chunks, whose programs are
 * several times as long, every eighth. So eight cases in a row meet all pairs. per_item: transfers of sparse collectives
 * name their expert instead of being merged per pair. */
void hec_test_each(const hec_test_case *c, bool per_item, hec_test_visit *visit, void *context);
/* "policy under schedule, iteration i on LINE, R ranks" in a static buffer. */
const char *hec_test_step_name(const hec_test_step *step);
/* Picoseconds of every operation and rank, as if measured: a few values that come again and again, and any up to a millisecond. */
int64_t *hec_test_random_ps(const hec_program *program, uint64_t *seed, hec_arena *arena);
/* What the policy computes of the micro-batch's load: `rewritten` where its row rewrites. On the arena. */
hec_load hec_test_actual_load(const hec_test_step *step, int32_t micro_batch, hec_arena *arena);

/* The ranks with work of an experts operation: rows of `item` on rank r, summed. */
int64_t hec_test_rows(const hec_program *program, const hec_op *op, int32_t rank, int32_t item);
