/* Plans and loads worked out by hand, or published, of policies on small problems: a row each.
 *
 * A plan is written expert by expert: its home (`*`: in slices on all ranks), then the ranks of its copies. Every source sends the
 * same share of an expert's tokens. Also for every row. Nothing is planned before there is a reason to, guests move no
 * state and are gone before the next gate. With the same load again nothing changes. */
#include "runtime/base/text.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

#define BOX(shape) shape " nvlink=300G@2us nic=50G@5us flops=312T mem=40G"
#define SLOW_BOX(shape) shape " nvlink=300G@2us nic=50G@5us flops=1T mem=40G"
#define SMALL "400 100 60 40 120 40 20 20" /* of the references (policies.md 6.2): ranks have 500 100 160 40 */
#define CONTIGUOUS "0 0 1 1 2 2 3 3"

static const struct {
  const char *policy, *cluster, *totals, *plan;
  const char *tokens; /* computed by each rank; NULL: not looked at */
  uint64_t version;   /* 1: state moved */
  int32_t slots;      /* 0: as published */
  uint32_t times;     /* the totals; 0: once */
  bool unseen;        /* no record comes before */
  bool forward, no_guests;
} rows[] = {
    {"ep", BOX("1x4"), "5 9 2 7 1 8 3 6 4 10", "0 0 0 1 1 2 2 2 3 3", .tokens = "16 8 17 14"},

    /* SmartMoE: what is no better stays; the second group mirrors the first. */
    {"smartmoe", BOX("1x4"), SMALL, "0 1 3 3 2 1 2 0", .tokens = "420 140 140 100", .version = 1},
    {"smartmoe", BOX("1x4"), "40 40 40 40 40 40 40 40", CONTIGUOUS, .version = 0},
    {"smartmoe", BOX("1x4"), "800 0 0 0 0 0 0 0", CONTIGUOUS, .version = 0},
    {"smartmoe", BOX("2x4"), "10 20 30 40", "0+4 1+5 2+6 3+7", .version = 0},

    /* DataForest-Remap: 400 | 120 | 100 | 60, then 40 to 60, 40 to 100, 20 to 120, 20 to 400; taken though it is no better. */
    {"dataforest-remap:window=2", BOX("1x4"), SMALL, "0 2 3 3 1 2 1 0", .tokens = "420 140 140 100", .version = 1},
    {"dataforest-remap:window=2", BOX("1x4"), "10 80 40 20", "3 0 1 2", .tokens = "80 40 20 10", .version = 1},

    /* PB-OEPLB: expert 0 against expert 6 makes 2.1 of 2.5; then 7 against 3 would make 2.2. In the dead zone, or for fewer
     * swaps than are worth it, nothing moves. */
    {"pb-oeplb", BOX("1x4"), SMALL, "3 0 1 1 2 2 0 3", .tokens = "120 100 160 420", .version = 1},
    {"pb-oeplb:threshold=2.6", BOX("1x4"), SMALL, CONTIGUOUS, .version = 0},
    {"pb-oeplb:min=2", BOX("1x4"), SMALL, CONTIGUOUS, .version = 0},

    /* HierMoE: expert 0 against expert 6 makes 420, and no second swap of rank 3's is better. */
    {"hiermoe", SLOW_BOX("1x4"), SMALL, "3 0 1 1 2 2 0 3", .version = 1},

    /* EPLB: slots [0 0 7][1 2 3][0 4 5][0 4 6], homes kept where they can be. Without replicas 400 | 120 | 100 | 60, then 40
     * to 60, 40 to 100, 20 to 120, 20 to 400. Slots [0 1][1 1]: the second slot on its home's rank counts as a slot. */
    {"eplb-global", BOX("1x4"), SMALL, "0+0+2+3 1 1 1 2+3 2 3 0", .version = 1},
    {"eplb-no-replicas", BOX("1x4"), SMALL, "0 2 3 3 1 2 1 0", .version = 1},
    {"eplb", BOX("1x2"), "10 30", "0 1+0+1", .tokens = "20 20", .version = 1},

    /* CRAFT: no replica makes 420 the fullest of 200 (LPT), one makes 220: 200 20 | 200 | 120 40 40 | 100 60 20, and no two,
     * three or four make less. So one of the four in the budget. No budget: as eplb-no-replicas. */
    {"craft:redundant=1", BOX("1x4"), SMALL, "0+1 3 3 2 2 2 3 0", .tokens = "220 200 200 180", .version = 1},
    {"craft:redundant=0", BOX("1x4"), SMALL, "0 2 3 3 1 2 1 0", .version = 1},

    /* FlexMoE, forward only: the estimate then is the busiest rank's load. One more slot each:
     *   expert 0 (400) expands to rank 3: 300 100 160 240      per replica 200
     *   expert 0 (200) expands to rank 1: 233 233 160 173      per replica 133
     *   expert 0 (133) expands to rank 2: 200 200 260 140      worse than 233: undone, ends
     * Two nodes, ranks hold 0 1 | 2 | 3 4 | 5, so ranks 1 and 3 have a free slot and 400 10 350 100: the copy of expert 0 goes
     * to the node without one, though rank 1 has less; another would not help rank 2, which is then busiest.
     * Memory: both experts of rank 0 want a replica on rank 1; without it has one slot to spare, with it three times EP's. */
    {"flexmoe", BOX("1x4"), SMALL, "0+1+3 0 1 1 2 2 3 3", .version = 1, .slots = 3, .forward = true},
    {"flexmoe", BOX("2x2"), "400 0 10 175 175 100", "0+3 0 1 2 2 3", .version = 1, .slots = 2, .forward = true},
    {"flexmoe", BOX("1x4"), "0 0 0 0 0 0 0 0", CONTIGUOUS, .version = 0, .forward = true},
    {"flexmoe", "1x2 nvlink=300G flops=312T mem=1K", "300 200 0 0", "0+1 0 1 1", .version = 1, .forward = true},
    {"flexmoe", "1x2 nvlink=300G flops=312T mem=1G", "300 200 0 0", "0+1 0+1 1 1", .version = 1, .forward = true},

    /* FlexMoE, training: a replica must earn its gradient all-reduce. Expert 0 has n assignments of 2 * 2 * 64 * 128
     * flops and 128 bytes. It takes n (3 * 32768 / 1e12 + 4 * 128 / 1e9) s without a replica. With one it takes half
     * of it and 2 * 1/2 * 32768 / 1e9 s. They meet at n = 107.4. On one node over the port, on nodes of one device
     * over the NIC.
     * */
    {"flexmoe", "1x2 nvlink=1G@2us flops=1T mem=40G eff=1", "107 0", "0 1", .version = 0},
    {"flexmoe", "1x2 nvlink=1G@2us flops=1T mem=40G eff=1", "108 0", "0+1 1", .version = 1},
    {"flexmoe", "2x1 nvlink=9G@2us nic=1G@5us flops=1T mem=40G eff=1", "107 0", "0 1", .version = 0},
    {"flexmoe", "2x1 nvlink=9G@2us nic=1G@5us flops=1T mem=40G eff=1", "108 0", "0+1 1", .version = 1},

    /* Pro-Prophet: test_policy_prophet.c has the search by hand. Without room for guests nothing. */
    {"prophet", "1x4 nvlink=300G@2us nic=50G@5us flops=1G mem=40G", SMALL, "0+1+2+3 0 1 1 2+0+1+3 2 3 3",
     .tokens = "230 230 170 170"},
    {"prophet", "1x4 nvlink=300G@2us nic=50G@5us flops=1G mem=40G", SMALL, CONTIGUOUS, .no_guests = true},

    /* LAER: slots 0 1 7 | 0 2 4 | 0 4 6 | 0 3 5. SYMI: slots in order, five of them expert 0's, a slot a fifth of its tokens. */
    {"laer", SLOW_BOX("2x2"), SMALL, "*+0+1+2+3 *+0 *+1 *+3 *+1+2 *+3 *+2 *+0", .slots = 3},
    {"symi", SLOW_BOX("2x2"), SMALL, "*+0+0+0+1+1 *+1 *+2 *+2 *+2 *+3 *+3 *+3", .tokens = "240 260 220 80", .slots = 3},

    /* LPLB: four ranks are a ring, experts 0, 2, 4, 6 replicated on the next rank. Ranks 0 and 1 alone hold 0, 1 and 3: 540,
     * so 270 each, and the others are as even as they can be. Then experts are packed by load, as in eplb-no-replicas, and
     * ranks 0 and 1 alone hold 0, 6 and 7: 440. */
    {"lplb", SLOW_BOX("1x4"), SMALL, "0+1 0 1+2 1 2+3 2 3+0 3", .tokens = "270 270 200 60", .unseen = true},
    {"lplb", SLOW_BOX("1x4"), SMALL, "0+1 2+3 3+0 3 1+2 2 1 0", .tokens = "220 220 200 160", .version = 1},

    /* MicroMoE: two groups of two ranks; experts 0 and 2 on ranks 0 and 2 only, 460 tokens: 230 is the best. */
    {"micromoe", SLOW_BOX("1x4"), SMALL, "0+2 0+3 0+2 0+3 1+3 1+2 1+3 1+2", .tokens = "230 140 230 200",
     .unseen = true},

    /* FEPLB: static 100 40 40 20. 400 to rank 3, 120 and 60 stay at home (rank 2 is as empty as rank 1), 20 of rank 3
     * to rank 0. Two nodes, static 100 40 | 40 20: 400 to rank 1 and 60 to rank 0; 120 to rank 3 and 20 to rank 2. */
    {"feplb:dynamic=1", BOX("1x4"), SMALL, "0+3 0 1 1 2 2 3+0 3", .tokens = "120 100 160 420", .unseen = true},
    {"feplb:dynamic=1", BOX("2x2"), SMALL, "0+1 0 1+0 1 2+3 2 3+2 3", .tokens = "160 440 60 140", .unseen = true},
    {"feplb:dynamic=1", BOX("1x4"), "40 40 40 40 40 40 40 40", CONTIGUOUS, .unseen = true},

    /* MegaFlux, blocks of 20: 20 5 | 3 2 | 6 2 | 1 1, tau 10. 8 of expert 0 to rank 3, all 5 of expert 1 to rank 1; then 2 of
     * expert 0 to rank 2. If a guest must get 6: the first alone, and nobody shares an expert with rank 1. In blocks of
     * 64, 7 2 | 1 1 | 2 1 | 1 1, tau 4: 2 of expert 0 to rank 1, 2 of expert 1 to rank 3, 1 of expert 0 to rank 2. All of
     * expert 1 fits nowhere else, and all are at 4. The home's 4 blocks of expert 0 come first: 256, 128 and the last 16. */
    {"megaflux:block=20", BOX("1x4"), SMALL, "0+2+3 0+1 1 1 2 2 3 3", .tokens = "200 200 200 200", .unseen = true},
    {"megaflux:block=20,open=6", BOX("1x4"), SMALL, "0+3 0 1 1 2 2 3 3", .tokens = "340 100 160 200", .unseen = true},
    {"megaflux:block=64", BOX("1x4"), SMALL, "0+1+2 0+3 1 1 2 2 3 3", .tokens = "256 228 176 140", .unseen = true},

    /* TAOT, one slot: 160, 100 and 40 of expert 0 to ranks 3, 1 and 2. As many tokens from either node: the own node's. */
    {"taot", BOX("1x4"), SMALL, "0+1+2+3 0 1 1 2 2 3 3", .tokens = "200 200 200 200", .slots = 3, .unseen = true},
    {"taot", BOX("2x2"), "120 40 120 40", "0+1 1 2+3 3", .tokens = "80 80 80 80", .unseen = true},

    /* FasterMoE: shadows everywhere, so that each rank computes a quarter of their tokens. */
    {"fastermoe", SLOW_BOX("1x4"), SMALL, "0+1+2+3 0 1 1 2+0+1+3 2 3 3", .times = 400, .unseen = true},
};

/* Returns how many. */
static int32_t read_totals(const char *text, uint32_t times, uint32_t totals[16]) {
  int32_t n = 0;
  for (char *end = (char *)(uintptr_t)text; *end; n++)
    totals[n] = (uint32_t)strtoul(end, &end, 10) * (times > 0 ? times : 1);
  return n;
}

static void write_plan(const hec_plan *plan, hec_text *text) {
  for (int32_t e = 0; e < plan->n_experts; e++) {
    hec_copies copies = hec_plan_copies(plan, 0, e);
    hec_text_add(text, e > 0 ? " " : "");
    if (plan->n_slices > 1)
      hec_text_add(text, "*");
    else
      hec_text_printf(text, "%d", hec_plan_home(plan, 0, e));
    for (int32_t i = 0; i < copies.n; i++)
      hec_text_printf(text, "+%d", copies.rank[i]);
    for (int32_t j = 0; j < plan->n_slices && plan->n_slices > 1; j++)
      ck_assert(plan->home[e * plan->n_slices + j] == j && plan->opt_home[e * plan->n_slices + j] == j);
  }
}

static void check_tokens(const hec_policy_run *run, const hec_load *load, const char *wanted) {
  hec_routing routing = hec_routing_new(&arena, run->problem);
  HEC_SCOPED(hec_text) text = {0};
  hec_routing_make(&routing, run->policy->dispatch, run->problem, &run->plan, load, 0);
  for (int32_t r = 0; r < run->problem->n_ranks; r++)
    hec_text_printf(&text, r > 0 ? " %d" : "%d", (int)routing.rank_tokens[r]);
  ck_assert_str_eq(text.data, wanted);
}

HEC_TEST_ROWS(golden_plans, rows) {
  uint32_t totals[16];
  int32_t n = read_totals(rows[_i].totals, rows[_i].times, totals), ranks = rows[_i].cluster[0] - '0';
  ranks *= rows[_i].cluster[2] - '0';
  hec_problem *p = hec_test_problem(&arena, rows[_i].cluster, ranks, 1, n, n > 4 ? 2 : 1, !rows[_i].forward);
  p->slots = rows[_i].slots > 0 ? rows[_i].slots : HEC_AUTO;
  p->m = rows[_i].no_guests ? 0 : HEC_AUTO;
  hec_load load = hec_test_even_load(&arena, p, totals), none = hec_load_new(&arena, 1, ranks, n);
  const hec_policy *policy = NULL;
  ck_assert_msg(hec_policy_read(rows[_i].policy, NULL, "row", &arena, &policy) == HEC_OK, "%s", hec_last_error());
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(policy, p, &arena);
  uint64_t start = hec_plan_digest(&run.plan);
  bool fixed = policy->known == HEC_KNOWN_STATIC;
  bool once =
      policy->known == HEC_KNOWN_PERIODIC || policy == &hec_policy_symi; /* before the first micro-batch alone */
  hec_policy_decide(&run, 0, 0);
  ck_assert(run.plan.version == 0 && run.units == 0 && !run.planned && hec_plan_digest(&run.plan) == start);
  if (!rows[_i].unseen) {
    hec_policy_observe(&run, &load);
    hec_policy_observe(&run, &load); /* means count, not sums */
    hec_policy_decide(&run, 1, 1);
    ck_assert(!once || (!run.planned && hec_plan_digest(&run.plan) == start));
    hec_policy_decide(&run, 2, 0);
  }
  bool planned = run.planned && run.units > 0;
  hec_policy_refine(&run, 0, &load);
  hec_plan_check(&run.plan);
  ck_assert((planned || (run.planned && run.units > 0)) != fixed);
  HEC_SCOPED(hec_text) plan = {0};
  write_plan(&run.plan, &plan);
  ck_assert_msg(strcmp(plan.data, rows[_i].plan) == 0, "%s plans %s, expected %s", policy->name, plan.data,
                rows[_i].plan);
  ck_assert_uint_eq(run.plan.version, rows[_i].version);
  if (rows[_i].tokens)
    check_tokens(&run, &load, rows[_i].tokens);
  uint64_t before = hec_plan_digest(&run.plan);
  hec_policy_decide(&run, 2, 1);
  ck_assert(!once || (hec_plan_digest(&run.plan) == before && run.plan.version == rows[_i].version));
  if (policy == &hec_policy_prophet) { /* the next record starts afresh */
    hec_policy_observe(&run, &none);
    hec_policy_decide(&run, 3, 0);
    ck_assert(hec_plan_digest(&run.plan) == start);
  }
}
