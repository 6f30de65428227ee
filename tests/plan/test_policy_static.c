/* The policies that use no load: ep against recorded received tokens, ep-balanced, ideal, fsdp. */
#include "models/json.h"
#include "runtime/plan/policy.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

HEC_TEST_ARENA(arena)

static const char *const box = "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

/* Counts of one record of a recorded trace, [layer][source][expert]. */
static void read_counts(const hec_json_value *record, hec_load *load) {
  int32_t layer = 0;
  for (const hec_json_value *l = hec_json_first(hec_json_get(record, "layers")); l; l = hec_json_next(l), layer++) {
    int32_t source = 0;
    for (const hec_json_value *s = hec_json_first(l); s; s = hec_json_next(s), source++) {
      uint32_t *count = hec_load_row(load, layer, source);
      for (const hec_json_value *n = hec_json_first(s); n; n = hec_json_next(n))
        *count++ = (uint32_t)hec_json_number(n);
    }
  }
}

/* Every rank and layer of one record: what we route equals what the system measured. Returns comparisons. */
static int check_record(const hec_json_value *record, hec_policy_run *run, hec_routing *routing, hec_load *load) {
  int compared = 0, layer = 0;
  read_counts(record, load);
  for (const hec_json_value *m = hec_json_first(hec_json_get(record, "measured")); m; m = hec_json_next(m), layer++) {
    hec_routing_make(routing, run->policy->dispatch, run->problem, &run->plan, load, layer);
    int32_t rank = 0;
    for (const hec_json_value *n = hec_json_first(hec_json_get(m, "recv_tokens")); n;
         n = hec_json_next(n), rank++, compared++)
      ck_assert_double_eq((double)routing->rank_tokens[rank], hec_json_number(n));
  }
  return compared;
}

HEC_TEST(recorded_received_tokens) {
  const char *path =
      hec_test_wants("plan.policy_static/recorded_received_tokens", "traces/harmoeny_qwen15_moe_a27b_per_rank.jsonl",
                     "dispatch of ep against tokens that ranks received in a real run");
  if (!path)
    return;
  FILE *file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  hec_problem *p = hec_test_problem(&arena, "1x6 nvlink=300G@2us nic=50G@5us flops=312T mem=40G", 6, 24, 60, 1, false);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_ep, p, &arena);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_load load = hec_load_new(&arena, 24, 6, 60);
  char *line = NULL;
  size_t capacity = 0;
  int compared = 0;
  for (ssize_t n; (n = getline(&line, &capacity, file)) > 0;) {
    HEC_OPENED(hec_json) *json = NULL;
    ck_ok(hec_json_parse(line, (size_t)n, "record", &json));
    if (hec_json_get(hec_json_root(json), "measured"))
      compared += check_record(hec_json_root(json), &run, &routing, &load);
  }
  ck_assert_int_eq(compared, 2 * 24 * 6);
  free(line);
  (void)fclose(file);
}

/* Every rank gets exactly tokens * top_k, every expert the mean, every source keeps its total. */
HEC_TEST(balanced_exactly) {
  hec_problem *p = hec_test_problem(&arena, box, 8, 2, 16, 2, true);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_ep_balanced, p, &arena);
  hec_routing routing = hec_routing_new(&arena, p);
  hec_load load = hec_load_new(&arena, 2, 8, 16);
  for (int32_t layer = 0; layer < 2; layer++)
    for (int32_t s = 0; s < 8; s++) {
      hec_load_row(&load, layer, s)[3] = 300;
      hec_load_row(&load, layer, s)[(s + layer) % 16] += 212; /* 512 = 256 tokens * 2 */
    }
  hec_policy_rewrite(&run, &load);
  for (int32_t layer = 0; layer < 2; layer++) {
    hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, layer);
    for (int32_t r = 0; r < 8; r++) {
      ck_assert_uint_eq(routing.rank_tokens[r], 512);
      for (int32_t e = 0; e < 16; e++)
        ck_assert_uint_eq(hec_load_row(&load, layer, r)[e], 32);
    }
  }
}

/* ceil(256 tokens * 2 * factor / 24 experts), at least 8; what is above is dropped and counted, nothing else changes. */
HEC_TEST(capacity) {
  static const struct {
    double factor;
    int32_t experts;
    uint32_t capacity;
  } cases[] = {{0, 24, 22}, {1, 24, 22}, {2, 24, 43}, {1.25, 16, 40}, {0.5, 64, 8}, {1, 4, 128}};
  uint64_t seed = 52, dropped = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hec_problem *p = hec_test_problem(&arena, box, 8, 2, cases[i].experts, 2, true);
    hec_moe moe = *p->moe;
    moe.capacity_factor = cases[i].factor;
    p->moe = &moe;
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_ep_capacity, p, &arena),
                               ep = hec_policy_start(&hec_policy_ep, p, &arena);
    ck_assert(hec_plan_digest(&run.plan) == hec_plan_digest(&ep.plan));
    hec_load before = hec_test_random_load(&arena, p, &seed), after = hec_load_new(&arena, 2, 8, cases[i].experts);
    hec_load_copy(&before, &after);
    hec_load_row(&after, 1, 7)[0] = hec_load_row(&before, 1, 7)[0] = cases[i].capacity + 3;
    hec_policy_rewrite(&run, &after);
    uint64_t offered = 0, left_out = 0;
    for (size_t c = 0; c < hec_load_cells(&before); c++) {
      uint32_t kept = before.counts[c] < cases[i].capacity ? before.counts[c] : cases[i].capacity;
      ck_assert_uint_eq(after.counts[c], kept);
      offered += before.counts[c];
      left_out += before.counts[c] - kept;
    }
    ck_assert(run.n_offered == offered && run.n_dropped == left_out && left_out >= 3);
    hec_policy_rewrite(&run, &after); /* nothing more to drop */
    ck_assert_uint_eq(run.n_dropped, left_out);
    dropped += left_out;
  }
  ck_assert_uint_gt(dropped, 0);
}

/* Awkward numbers: ranks of a group differ by at most one, experts of a rank too. They differ by at most one overall
 * when the ranks divide the experts. Per source nothing is lost. */
HEC_TEST(balanced_with_remainders) {
  uint64_t seed = 51;
  for (int round = 0; round < 200; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    hec_load before = hec_test_random_load(&arena, p, &seed),
             after = hec_load_new(&arena, p->n_layers, p->n_ranks, p->n_experts);
    HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_ep_balanced, p, &arena);
    hec_routing routing = hec_routing_new(&arena, p);
    for (size_t i = 0; i < (size_t)p->n_layers * (size_t)p->n_ranks * (size_t)p->n_experts; i++)
      after.counts[i] = before.counts[i];
    hec_policy_rewrite(&run, &after);
    for (int32_t layer = 0; layer < p->n_layers; layer++) {
      hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &after, layer);
      for (int32_t g = 0; g < p->dp; g++) {
        uint64_t min = UINT64_MAX, max = 0;
        for (int32_t r = g * p->ep; r < (g + 1) * p->ep; r++) {
          uint64_t n = routing.rank_tokens[r];
          min = n < min ? n : min;
          max = n > max ? n : max;
        }
        ck_assert(max - min <= 1);
        uint64_t expert_min = UINT64_MAX, expert_max = 0;
        for (int32_t e = 0; e < p->n_experts; e++) {
          uint64_t n = 0;
          for (int32_t s = g * p->ep; s < (g + 1) * p->ep; s++)
            n += hec_load_row(&after, layer, s)[e];
          expert_min = n < expert_min ? n : expert_min;
          expert_max = n > expert_max ? n : expert_max;
        }
        ck_assert(p->n_experts % p->ep != 0 || expert_max - expert_min <= 1);
      }
      for (int32_t s = 0; s < p->n_ranks; s++) {
        uint64_t a = 0, b = 0;
        for (int32_t e = 0; e < p->n_experts; e++) {
          a += hec_load_row(&before, layer, s)[e];
          b += hec_load_row(&after, layer, s)[e];
        }
        ck_assert_uint_eq(a, b);
      }
    }
  }
}

HEC_TEST(ideal_is_ep) {
  hec_problem *p = hec_test_problem(&arena, box, 8, 2, 4, 1, true);
  HEC_SCOPED(hec_policy_run) ep = hec_policy_start(&hec_policy_ep, p, &arena),
                             ideal = hec_policy_start(&hec_policy_ideal, p, &arena);
  ck_assert(hec_plan_digest(&ep.plan) == hec_plan_digest(&ideal.plan));
  ck_assert_str_eq(hec_policy_ideal.only_schedule, "ideal");
}

/* Slice j on rank j, everything everywhere, and no token leaves its rank. */
HEC_TEST(fsdp_moves_no_token) {
  uint64_t seed = 61;
  hec_problem *p = hec_test_problem(&arena, box, 6, 2, 7, 2, true);
  HEC_SCOPED(hec_policy_run) run = hec_policy_start(&hec_policy_fsdp, p, &arena);
  ck_assert(run.plan.n_slices == 6 && run.plan.rematerialise);
  for (size_t i = 0; i < 2 * 7 * 6; i++)
    ck_assert(run.plan.home[i] == (int32_t)(i % 6) && run.plan.opt_home[i] == (int32_t)(i % 6));
  hec_load load = hec_test_random_load(&arena, p, &seed);
  hec_routing routing = hec_routing_new(&arena, p);
  for (int32_t layer = 0; layer < 2; layer++) {
    hec_routing_make(&routing, run.policy->dispatch, p, &run.plan, &load, layer);
    for (int32_t s = 0; s < 6; s++)
      for (int32_t d = 0; d < 6; d++)
        ck_assert(s == d || routing.pair[s * 6 + d] == 0);
    for (int32_t e = 0; e < 7; e++)
      for (int32_t r = 0; r < 6; r++)
        ck_assert(hec_plan_holds(&run.plan, layer, e, r));
  }
}
