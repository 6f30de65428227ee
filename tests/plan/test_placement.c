/* Placements: known files, slot by slot. Random ones and the plans of every policy through every format and back, beside a
 * count of holders by brute force. The row that stands as a placement says. Damaged files: test_placement_damaged.c. */
#include "runtime/plan/placement/placement.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

/* ---- Known files: 2 layers of 4 experts on 2 ranks, 3 slots each ---- */

static const int32_t known_slots[] = {0, 1, 3, 2, 3, 3, 3, 2, 1, 1, 0, 1};

static const char eplb_text[] = "{\"model\": \"m\", \"physical_to_logical_map\":\n"
                                " [[0, 1, 3, 2, 3, 3],\n  [3, 2, 1, 1, 0, 1]]}\n";
static const char eplb_dense_text[] = "{\"physical_to_logical_map\": [[0, 1, 2, 3, 0, 1], [9, 9, 9, 9, 9, 9],"
                                      " [0, 1, 3, 2, 3, 3], [3, 2, 1, 1, 0, 1]]}";
static const char ascend_text[] =
    "{\"moe_layer_count\": 2, \"layer_list\": [\n"
    "  {\"layer_id\": 0, \"device_count\": 2, \"device_list\": [\n"
    "    {\"device_id\": 0, \"device_expert\": [0, 1, 3]}, {\"device_id\": 1, \"device_expert\": [2, 3, 3]}]},\n"
    "  {\"device_list\": [{\"device_expert\": [3, 2, 1]}, {\"device_expert\": [1, 0, 1]}]}]}\n";
/* As PyYAML writes it with lists inline, in lines of 80 columns, and as blocks; by hand. */
static const char flow_text[] = "initial_global_assignments:\n  3: [0, 1, 3, 2, 3, 3]\n  4: [3, 2, 1, 1, 0, 1]\n"
                                "layer_updates_per_iter: 2\nnum_slots: 6\n";
static const char lines_text[] =
    "--- # a balancer\n\nnum_slots: 6   # of all ranks\r\nep_size: 2\n"
    "initial_global_assignments:\n    3:\n    - 0\n    - 1\n    -  3\n    - 2\n\n"
    "    # the second rank\n    - 3\n    - 3\n    4: [3,2,\n       1, # here too\n 1,0,1]\n";

static const struct {
  const char *text, *format;
  int32_t first_given, first_found, moves;
} known[] = {
    {eplb_text, "eplb", -1, -1, 0},         {eplb_text, "eplb", 0, 0, 0},
    {eplb_dense_text, "eplb", 2, 2, 0},     {ascend_text, "vllm-ascend", -1, -1, 0},
    {flow_text, "tensorrt-llm", -1, 3, 2},  {flow_text, "tensorrt-llm", 3, 3, 2},
    {lines_text, "tensorrt-llm", -1, 3, 0},
};

HEC_TEST_ROWS(known_files, known) {
  hec_placement p;
  hec_placement_shape shape = {2, 4, 2, known[_i].first_given};
  hec_status status = hec_placement_parse(known[_i].text, strlen(known[_i].text), "known", shape, &arena, &p);
  ck_ok(status);
  ck_assert_str_eq(p.format, known[_i].format);
  ck_assert_str_eq(p.origin, "known");
  ck_assert_int_eq(p.shape.first_layer, known[_i].first_found);
  ck_assert_int_eq(p.moves, known[_i].moves);
  for (int32_t r = 0; r <= 4; r++)
    ck_assert_int_eq(p.slot_at[r], 3 * r);
  ck_assert(memcmp(p.slot, known_slots, sizeof known_slots) == 0);
}

/* What a known file means as a plan, by hand. Expert 3 of layer 0 has a slot on rank 0 and two on rank 1, .. */
HEC_TEST(known_plan) {
  hec_problem *problem = hec_test_problem(&arena, "1x2 nvlink=300G@2us flops=312T mem=40G", 2, 2, 4, 1, true);
  hec_placement p;
  ck_ok(hec_placement_parse(eplb_text, strlen(eplb_text), "known", (hec_placement_shape){2, 4, 2, -1}, &arena, &p));
  ck_refused(hec_policy_suits(&hec_policy_given, problem), "expected `placement` FILE");
  problem->placement = &p;
  ck_ok(hec_policy_suits(&hec_policy_given, problem));
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_given, problem, &arena);
  static const int32_t homes[] = {0, 0, 1, 0, 1, 0, 0, 0};
  ck_assert(memcmp(run.plan.home, homes, sizeof homes) == 0);
  ck_assert(memcmp(run.plan.opt_home, homes, sizeof homes) == 0);
  ck_assert_int_eq(run.plan.slots, 3);
  hec_copies copies = hec_plan_copies(&run.plan, 0, 3);
  ck_assert(copies.n == 2 && copies.rank[0] == 1 && copies.rank[1] == 1);
  ck_assert(copies.kind[0] == HEC_COPY_RESIDENT && copies.kind[1] == HEC_COPY_RESIDENT);
  ck_assert_int_eq(hec_plan_copies(&run.plan, 1, 1).n, 2);
  ck_assert_int_eq(hec_plan_copies(&run.plan, 0, 0).n, 0);
  uint64_t before = hec_plan_digest(&run.plan);
  hec_policy_decide(&run, 7, 0);
  ck_assert(hec_plan_digest(&run.plan) == before && run.units == 0 && !run.planned);
}

/* ---- There and back ---- */

static bool is_even(const hec_placement *p) {
  for (int32_t i = 1; i < p->shape.n_layers * p->shape.n_ranks; i++)
    if (p->slot_at[i + 1] - p->slot_at[i] != p->slot_at[1])
      return false;
  return true;
}

/* Through a file of the format; false: it cannot say it. */
static bool through(const hec_placement_format *format, const hec_placement *p, hec_placement *again) {
  HEC_SCOPED(hec_text) text = {0}, mind = {0}, twice = {0};
  hec_status status = hec_placement_write(format, p, &text, &mind);
  bool dense = p->shape.first_layer > 0 && !format->counts_dense;
  ck_assert((status == HEC_OK) == ((!format->even || is_even(p)) && !dense));
  if (status == HEC_OK) {
    ck_assert((mind.length > 0) == !is_even(p));
    status = hec_placement_parse(text.data, text.length, "again", p->shape, &arena, again);
    ck_assert_msg(status == HEC_OK, "%s: %s", format->name, hec_last_error());
    ck_assert_str_eq(again->format, format->name);
    size_t n = (size_t)p->shape.n_layers * (size_t)p->shape.n_ranks;
    ck_assert(memcmp(again->slot_at, p->slot_at, (n + 1) * sizeof *p->slot_at) == 0);
    ck_assert(memcmp(again->slot, p->slot, (size_t)p->slot_at[n] * sizeof *p->slot) == 0);
    ck_ok(hec_placement_write(format, again, &twice, &mind));
    ck_assert(twice.length == text.length && memcmp(twice.data, text.data, text.length) == 0);
  } else {
    ck_assert_ptr_nonnull(strstr(hec_last_error(), dense ? "`first_layer`" : "as many slots on every rank"));
    ck_assert(text.length == 0);
  }
  return status == HEC_OK;
}

/* Slots in any order, an expert now and then twice on a rank; all experts in the first slots of the first ranks. */
static hec_placement random_placement(uint64_t *seed) {
  int32_t ranks = 1 + (int32_t)hec_test_below(seed, 6), layers = 1 + (int32_t)hec_test_below(seed, 4);
  int32_t slots = 1 + (int32_t)hec_test_below(seed, 5), extra = (int32_t)hec_test_below(seed, 2);
  int32_t experts = slots + (int32_t)hec_test_below(seed, (uint64_t)(ranks * slots - slots + 1)), n = 0;
  hec_placement p = {.shape = {layers, experts, ranks, (int32_t)hec_test_below(seed, 5) - 1}};
  p.slot_at = HEC_NEW(&arena, int32_t, layers * ranks + 1);
  p.slot = HEC_NEW(&arena, int32_t, layers * ranks * (slots + 1));
  for (int32_t l = 0; l < layers; l++) {
    int32_t begin = n;
    for (int32_t r = 0; r < ranks; r++) {
      int32_t more = extra && slots < experts ? (int32_t)hec_test_below(seed, 2) : 0;
      for (int32_t i = 0; i < slots + more; i++) {
        p.slot[n] = n - begin < experts ? n - begin : (int32_t)hec_test_below(seed, (uint64_t)experts);
        n++;
      }
      p.slot_at[l * ranks + r + 1] = n;
    }
    for (int32_t i = n - 1; i > begin; i--) {
      int32_t k = begin + (int32_t)hec_test_below(seed, (uint64_t)(i - begin + 1)), kept = p.slot[i];
      p.slot[i] = p.slot[k];
      p.slot[k] = kept;
    }
  }
  return p;
}

HEC_TEST_LOOP(random_there_and_back, 10) {
  uint64_t seed = 900 + (uint64_t)_i;
  int32_t n_through = 0;
  for (int32_t i = 0; i < 40; i++) {
    hec_placement p = random_placement(&seed), again;
    for (int32_t f = 0; hec_placement_formats[f]; f++)
      n_through += through(hec_placement_formats[f], &p, &again);
  }
  ck_assert_int_ge(n_through, 40);
}

/* ---- Plans ---- */

/* Slots of the expert on the rank, counted in the plan itself. */
static int32_t held(const hec_plan *plan, int32_t layer, int32_t expert, int32_t rank) {
  hec_copies copies = hec_plan_copies(plan, layer, expert);
  int32_t slots = hec_plan_home(plan, layer, expert) == rank;
  for (int32_t i = 0; i < copies.n; i++)
    slots += copies.rank[i] == rank;
  return slots;
}

/* Homes are the lowest holders and all copies resident: then nothing of the plan is lost. */
static bool is_plain(const hec_plan *plan) {
  for (int32_t l = 0; l < plan->n_layers; l++)
    for (int32_t e = 0; e < plan->n_experts; e++) {
      hec_copies held = hec_plan_copies(plan, l, e);
      for (int32_t i = 0; i < held.n; i++)
        if (held.kind[i] != HEC_COPY_RESIDENT || held.rank[i] < hec_plan_home(plan, l, e))
          return false;
    }
  return true;
}

static void check_back(const hec_plan *plan, const hec_placement *placement, const hec_problem *problem) {
  hec_plan back = hec_plan_new(&arena, problem, 1);
  hec_placement_set(placement, &back);
  hec_plan_check(&back);
  for (int32_t l = 0; l < plan->n_layers; l++)
    for (int32_t e = 0; e < plan->n_experts; e++) {
      int32_t lowest = plan->n_ranks;
      for (int32_t r = plan->n_ranks - 1; r >= 0; r--) {
        int32_t n = held(plan, l, e, r);
        ck_assert_int_eq(held(&back, l, e, r), n);
        lowest = n > 0 ? r : lowest;
      }
      ck_assert_int_eq(hec_plan_home(&back, l, e), lowest);
    }
  if (!is_plain(plan))
    return;
  back.slots = plan->slots;
  back.rematerialise = plan->rematerialise;
  if (!plan->quota_at)
    ck_assert(hec_plan_digest(&back) == hec_plan_digest(plan));
}

/* Formats that took the plan. */
static int32_t check_plan(const hec_plan *plan, const hec_problem *problem) {
  hec_placement p, again;
  HEC_SCOPED(hec_text) lost = {0};
  hec_status status = hec_placement_of_plan(plan, 0, &arena, &p, &lost);
  ck_assert((status == HEC_OK) == (plan->n_slices == 1));
  ck_assert(status == HEC_OK || strstr(hec_last_error(), "slices") != NULL);
  ck_assert(status != HEC_OK || (lost.length == 0) == (is_plain(plan) && !plan->quota_at));
  int32_t n = 0;
  for (int32_t f = 0; status == HEC_OK && hec_placement_formats[f]; f++) {
    for (int32_t r = 0; r < plan->n_ranks; r++) /* an expert twice on every rank is more slots than experts */
      for (int32_t l = 0; l < plan->n_layers; l++) {
        const int32_t *slots;
        if (hec_placement_slots(&p, l, r, &slots) > plan->n_experts)
          return n;
      }
    if (through(hec_placement_formats[f], &p, &again)) {
      check_back(plan, &again, problem);
      n++;
    }
  }
  return n;
}

HEC_TEST_LOOP(random_plans, 10) {
  uint64_t seed = 40 + (uint64_t)_i;
  for (int32_t i = 0; i < 10; i++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    hec_plan plan = hec_plan_new(&arena, p, 1);
    for (int32_t l = 0; l < p->n_layers; l++)
      for (int32_t e = 0; e < p->n_experts; e++) {
        hec_plan_set_home(&plan, l, e, (int32_t)hec_test_below(&seed, (uint64_t)p->n_ranks));
        for (uint64_t copies = p->n_ranks > 1 ? hec_test_below(&seed, 3) : 0; copies > 0; copies--)
          hec_plan_add_copy(&plan, l, e, (int32_t)hec_test_below(&seed, (uint64_t)p->n_ranks),
                            hec_test_below(&seed, 2) ? HEC_COPY_GUEST : HEC_COPY_RESIDENT);
      }
    (void)check_plan(&plan, p);
    hec_arena_free(&arena);
  }
}

HEC_TEST_TABLE(plans_of_policies, hec_policies) {
  uint64_t seed = 7;
  int32_t n = 0, n_sliced = 0;
  const hec_policy *policy = hec_policies[_i];
  for (int32_t i = 0; i < 12; i++) {
    hec_problem *p =
        i < 4 ? hec_test_problem(&arena, "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 8, 2, 16, 2, true)
              : hec_test_random_problem(&arena, &seed);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(policy, p, &arena);
    for (int64_t iter = 0; iter < 3; iter++) {
      hec_load load = hec_test_random_load(&arena, p, &seed);
      hec_policy_decide(&run, 100 * iter, 0);
      if (run.policy->rewrite)
        hec_policy_rewrite(&run, &load);
      for (int32_t l = 0; l < p->n_layers; l++)
        hec_policy_refine(&run, l, &load);
      hec_policy_observe(&run, &load);
      n += check_plan(&run.plan, p);
      n_sliced += run.plan.n_slices > 1;
    }
  }
  ck_assert_msg(n > 0 || n_sliced > 0, "%s: no plan went through a file", policy->name);
}

HEC_TEST(unknown_names) {
  const hec_placement_format *format = NULL;
  ck_assert(hec_placement_format_of("yaml", &format) == HEC_BAD_INPUT && !format);
  ck_assert_ptr_nonnull(strstr(hec_last_error(), "eplb, vllm-ascend, tensorrt-llm"));
  for (int32_t i = 0; hec_placement_formats[i]; i++)
    ck_assert(hec_placement_format_of(hec_placement_formats[i]->name, &format) == HEC_OK &&
              format == hec_placement_formats[i]);
}
