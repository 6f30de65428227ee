/* Plan arrays against a plain model of the same thing; digests; migration against a recount from scratch. */
#include "runtime/plan/plan.h"

#include "runtime/plan/planners/order.h"
#include "tests/support/problem_case.h"
#include "tests/support/test.h"

#include <signal.h>
#include <string.h>

HEC_TEST_ARENA(arena)

static const char *const box = "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";

HEC_TEST(problem_sizes) {
  /* ranks, experts -> ep */
  const int32_t cases[][3] = {{8, 64, 8}, {8, 8, 8}, {8, 6, 4}, {6, 4, 3}, {7, 4, 1}, {1, 1, 1}, {8, 1, 1}, {8, 7, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hec_problem *p = hec_test_problem(&arena, box, cases[i][0], 2, cases[i][1], 1, true);
    ck_assert_int_eq(p->ep, cases[i][2]);
    ck_assert_int_eq(p->dp * p->ep, cases[i][0]);
    ck_assert_int_eq(p->n_nodes, cases[i][0] > 4 ? 2 : 1);
    ck_assert(p->window_s > 0 && p->t == HEC_AUTO && p->m == HEC_AUTO && p->period == HEC_AUTO && p->slots == HEC_AUTO);
  }
}

/* Bytes of the model by hand: expert 2*64*128 parameters, 2 + 2 + 12 bytes each; 3 layers of 5 experts on 4 ranks. */
HEC_TEST(problem_bytes) {
  hec_problem *p = hec_test_problem(&arena, box, 4, 3, 5, 2, true);
  double expert = 2 * 64 * 128 * 16.0, b = hec_problem_bytes_without_copies(p);
  hec_memory_cost c = p->bytes;
  double rest = c.dense_param + c.dense_grad + c.dense_optimizer + c.activation_rest + 3 * c.activation_layer;
  double tokens = 256 * 2 * (3 * c.expert_row + 3 * 64 * 2 + 2 * 64 * 2); /* + outputs at tokens, two buffers */
  ck_assert_double_eq_tol(b, rest + tokens + 4 * expert, 1);              /* ceil(15 / 4) = 4 experts */
}

HEC_TEST(problem_errors) {
  hec_problem *p = hec_test_problem(&arena, box, 4, 1, 4, 1, true), out = {.tokens = 77};
  ck_assert_int_eq(hec_problem_make(p->moe, p->cluster, true, 0, 1, &out), HEC_BAD_INPUT);
  ck_refused(hec_problem_make(p->moe, p->cluster, true, 9, 1, &out), "expected 1 to 8");
  ck_assert_int_eq(hec_problem_make(p->moe, p->cluster, true, 8, -1, &out), HEC_BAD_INPUT);
  hec_moe bad = *p->moe;
  bad.top_k = 5;
  ck_assert_int_eq(hec_problem_make(&bad, p->cluster, true, 8, 1, &out), HEC_BAD_INPUT);
  ck_assert_int_eq(out.tokens, 77);                              /* nothing written */
  ck_ok(hec_problem_make(p->moe, p->cluster, true, 8, 0, &out)); /* no tokens is a valid problem */
}

/* Short lists and long ones are sorted in two ways. */
HEC_TEST(descending_order) {
  enum { MAX = 2500 };
  uint64_t seed = 9;
  double *key = HEC_NEW(&arena, double, MAX);
  int32_t *order = HEC_NEW(&arena, int32_t, MAX);
  for (int32_t n = 0; n < MAX; n += n < 60 ? 1 : 97) {
    for (int32_t i = 0; i < n; i++)
      key[i] = (double)hec_test_below(&seed, n < 60 ? 10 : 500);
    hec_order_descending(key, n, order);
    for (int32_t i = 1; i < n; i++) {
      int32_t a = order[i - 1], b = order[i];
      ck_assert(key[a] > key[b] || (key[a] == key[b] && a < b));
    }
    int32_t listed = 0; /* every third, by the same keys */
    for (int32_t i = 0; i < n; i += 3)
      order[listed++] = i;
    hec_order_listed(key, listed, order);
    for (int32_t i = 0; i < listed; i++) {
      int32_t b = order[i], a = i > 0 ? order[i - 1] : b;
      ck_assert(b % 3 == 0 && (i == 0 || key[a] > key[b] || (key[a] == key[b] && a < b)));
    }
  }
}

HEC_TEST(contiguous) {
  hec_problem *p = hec_test_problem(&arena, box, 6, 2, 4, 1, true); /* ep 3, dp 2 */
  hec_plan plan = hec_plan_new(&arena, p, 1);
  hec_plan_set_contiguous(&plan, p);
  hec_plan_set_contiguous(&plan, p); /* again is the same */
  hec_plan_check(&plan);
  const int32_t home[4] = {0, 0, 1, 2};
  for (int32_t layer = 0; layer < 2; layer++)
    for (int32_t e = 0; e < 4; e++) {
      hec_copies copies = hec_plan_copies(&plan, layer, e);
      ck_assert_int_eq(hec_plan_home(&plan, layer, e), home[e]);
      ck_assert(copies.n == 1 && copies.rank[0] == home[e] + 3 && copies.kind[0] == HEC_COPY_RESIDENT);
      ck_assert(hec_plan_holds(&plan, layer, e, home[e]) && hec_plan_holds(&plan, layer, e, home[e] + 3));
      ck_assert(!hec_plan_holds(&plan, layer, e, (home[e] + 1) % 3));
    }
}

/* A random plan; counts[layer][expert][rank] = copies there, if wanted. */
static hec_plan random_plan(const hec_problem *p, int32_t n_slices, uint64_t *seed, int32_t *counts) {
  hec_plan plan = hec_plan_new(&arena, p, n_slices);
  size_t homes = (size_t)p->n_layers * (size_t)p->n_experts * (size_t)n_slices;
  for (size_t i = 0; i < homes; i++)
    plan.home[i] = plan.opt_home[i] = (int32_t)hec_test_below(seed, (uint64_t)p->n_ranks);
  for (size_t i = 0; i < homes && hec_test_below(seed, 4) == 0; i++)
    plan.opt_home[i] = (int32_t)hec_test_below(seed, (uint64_t)p->n_ranks);
  int32_t wanted = (int32_t)hec_test_below(seed, (uint64_t)(p->n_experts * p->n_ranks) + 1);
  for (int32_t layer = 0; layer < p->n_layers; layer++)
    for (int32_t i = 0; i < wanted; i++) {
      int32_t e = (int32_t)hec_test_below(seed, (uint64_t)p->n_experts);
      int32_t r = (int32_t)hec_test_below(seed, (uint64_t)p->n_ranks);
      hec_plan_add_copy(&plan, layer, e, r, hec_test_below(seed, 3) ? HEC_COPY_RESIDENT : HEC_COPY_GUEST);
      if (counts)
        counts[(layer * p->n_experts + e) * p->n_ranks + r]++;
    }
  return plan;
}

/* Copies come back sorted, complete and in their own row; holders merge the home in. */
HEC_TEST(copies_in_any_order) {
  uint64_t seed = 21;
  for (int round = 0; round < 100; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    int32_t *counts = HEC_NEW(&arena, int32_t, p->n_layers * p->n_experts * p->n_ranks);
    hec_plan plan = random_plan(p, 1, &seed, counts);
    hec_plan_check(&plan);
    int32_t *holders = HEC_NEW(&arena, int32_t, p->n_ranks + plan.copy_capacity);
    for (int32_t layer = 0; layer < p->n_layers; layer++)
      for (int32_t e = 0; e < p->n_experts; e++) {
        const int32_t *count = counts + (layer * p->n_experts + e) * p->n_ranks;
        hec_copies copies = hec_plan_copies(&plan, layer, e);
        int32_t i = 0, home = hec_plan_home(&plan, layer, e);
        int32_t h = 0, n_holders = hec_plan_holders(&plan, layer, e, holders);
        for (int32_t r = 0; r < p->n_ranks; r++) {
          for (int32_t k = 0; k < count[r]; k++)
            ck_assert_int_eq(copies.rank[i++], r);
          for (int32_t k = 0; k < count[r] + (r == home); k++)
            ck_assert_int_eq(holders[h++], r);
          ck_assert_int_eq(hec_plan_holds(&plan, layer, e, r), count[r] > 0 || r == home);
        }
        ck_assert(i == copies.n && h == n_holders);
      }
    hec_plan other = hec_plan_new(&arena, p, 1);
    hec_plan_assign(&other, &plan);
    ck_assert(hec_plan_digest(&other) == hec_plan_digest(&plan));
    hec_arena_free(&arena);
  }
}

/* Whatever changes in a plan changes its digest; its version does not. */
HEC_TEST(digests) {
  hec_problem *p = hec_test_problem(&arena, box, 8, 2, 4, 1, true);
  hec_plan a = hec_plan_new(&arena, p, 1), b = hec_plan_new(&arena, p, 1);
  hec_plan_set_contiguous(&a, p);
  hec_plan_set_contiguous(&b, p);
  uint64_t digest = hec_plan_digest(&a);
  b.version = 9;
  ck_assert(hec_plan_digest(&b) == digest);
  hec_plan_set_home(&b, 1, 3, 0);
  ck_assert(hec_plan_digest(&b) != digest);
  hec_plan_assign(&b, &a);
  b.opt_home[2] = 7;
  ck_assert(hec_plan_digest(&b) != digest);
  hec_plan_assign(&b, &a);
  hec_plan_add_copy(&b, 0, 1, 7, HEC_COPY_GUEST);
  uint64_t guest = hec_plan_digest(&b);
  ck_assert(guest != digest);
  hec_plan_assign(&b, &a);
  hec_plan_add_copy(&b, 0, 1, 7, HEC_COPY_RESIDENT);
  ck_assert(hec_plan_digest(&b) != guest);
  hec_plan_assign(&b, &a);
  b.rematerialise = true;
  ck_assert(hec_plan_digest(&b) != digest);
  hec_plan_assign(&b, &a);
  ck_assert(hec_plan_digest(&b) == digest && b.version == 0);
}

/* FNV-1a of one home 0 on one rank, by an independent byte loop over the documented order. */
HEC_TEST(digest_is_fnv) {
  hec_problem *p = hec_test_problem(&arena, box, 1, 1, 1, 1, true);
  hec_plan plan = hec_plan_new(&arena, p, 1);
  const unsigned char bytes[40] = {1, 0, 0, 0, 1, 0, 0,
                                   0, 1, 0, 0, 0, 1}; /* shape 1 1 1 1 0 0; home, opt_home, copy_at 0 0 */
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < sizeof bytes; i++)
    hash = (hash ^ bytes[i]) * 1099511628211u;
  ck_assert(hec_plan_digest(&plan) == hash);
}

/* What a broken plan does: each of these must abort. */
HEC_TEST_ABORTS(check_aborts, 5) {
  hec_problem *p = hec_test_problem(&arena, box, 4, 1, 4, 1, true);
  hec_plan plan = hec_plan_new(&arena, p, _i == 4 ? 4 : 1);
  hec_plan_add_copy(&plan, 0, 1, 1, HEC_COPY_GUEST);
  hec_plan_add_copy(&plan, 0, 1, 2, HEC_COPY_GUEST);
  if (_i == 0)
    plan.home[2] = 4;
  else if (_i == 1)
    plan.opt_home[0] = -1;
  else if (_i == 2)
    plan.copy_rank[0] = 3; /* not ascending */
  else if (_i == 3)
    plan.copy_at[3] = 1; /* a row of negative length */
  hec_plan_check(&plan); /* 4: slices without a whole copy compute nothing */
}

/* ---- migration ---- */

static bool naive_has(const hec_plan *plan, const int32_t *home, int32_t layer, int32_t e, int32_t slice,
                      int32_t rank) {
  if (home[(layer * plan->n_experts + e) * plan->n_slices + slice] == rank)
    return true;
  const int32_t *at = plan->copy_at + layer * (plan->n_experts + 1) + e;
  for (int32_t i = at[0]; i < at[1]; i++)
    if (plan->copy_rank[layer * plan->copy_capacity + i] == rank &&
        plan->copy_kind[layer * plan->copy_capacity + i] == HEC_COPY_RESIDENT)
      return true;
  return false;
}

/* Asks for every (expert, slice, rank) whether it has what it must have, and takes it from the nearest. */
static void naive_add(const hec_problem *p, const hec_plan *from, const int32_t *from_home, const hec_plan *to,
                      const int32_t *to_home, int32_t layer, int64_t bytes, int64_t *pair) {
  for (int32_t e = 0; e < to->n_experts; e++)
    for (int32_t slice = 0; slice < to->n_slices; slice++)
      for (int32_t d = 0; d < to->n_ranks; d++) {
        if (!naive_has(to, to_home, layer, e, slice, d) || naive_has(from, from_home, layer, e, slice, d))
          continue;
        int32_t near = -1, any = -1;
        for (int32_t s = to->n_ranks - 1; s >= 0; s--)
          if (naive_has(from, from_home, layer, e, slice, s)) {
            any = s;
            if (hec_problem_node(p, s) == hec_problem_node(p, d))
              near = s;
          }
        int64_t params = (int64_t)hec_moe_expert_params(p->moe); /* whole parameters travel */
        int64_t size = bytes / params * (params * (slice + 1) / to->n_slices - params * slice / to->n_slices);
        pair[(near >= 0 ? near : any) * to->n_ranks + d] += size;
      }
}

static void expect_transfers(const hec_transfer_list *list, const int64_t *pair, int32_t ranks) {
  size_t i = 0;
  for (int32_t s = 0; s < ranks; s++)
    for (int32_t d = 0; d < ranks; d++) {
      if (pair[s * ranks + d] == 0)
        continue;
      ck_assert(i < list->n);
      const hec_transfer *t = &list->data[i++];
      ck_assert(t->source == s && t->destination == d && s != d && t->item == -1 && t->after == -1);
      ck_assert_int_eq(t->bytes, pair[s * ranks + d]);
    }
  ck_assert_uint_eq(i, list->n);
}

HEC_TEST(migration_is_the_difference) {
  uint64_t seed = 31;
  hec_transfer_list list = {0};
  int64_t moved = 0;
  for (int round = 0; round < 200; round++) {
    hec_problem *p = hec_test_random_problem(&arena, &seed);
    int32_t slices = hec_test_below(&seed, 4) ? 1 : p->n_ranks;
    hec_plan from = random_plan(p, slices, &seed, NULL), to = random_plan(p, slices, &seed, NULL);
    size_t pairs = (size_t)p->n_ranks * (size_t)p->n_ranks;
    int64_t *scratch = HEC_NEW(&arena, int64_t, pairs), *pair = HEC_NEW(&arena, int64_t, pairs);
    for (int32_t layer = 0; layer < p->n_layers; layer++) {
      memset(pair, 0, pairs * sizeof *pair);
      naive_add(p, &from, from.home, &to, to.home, layer, 2 * 64 * 128 * 2, pair);
      if (p->train)
        naive_add(p, &from, from.opt_home, &to, to.opt_home, layer, 2 * 64 * 128 * 12, pair);
      list.n = 0;
      hec_plan_migration(&from, &to, p, layer, scratch, &list);
      expect_transfers(&list, pair, p->n_ranks);
      for (size_t i = 0; i < pairs; i++) {
        ck_assert_int_eq(scratch[i], 0);
        moved += pair[i];
      }
      list.n = 0;
      hec_plan_migration(&to, &to, p, layer, scratch, &list);
      ck_assert_uint_eq(list.n, 0);
    }
    hec_arena_free(&arena);
  }
  ck_assert(moved > 0);
  free(list.data);
}

/* By hand: expert 0 goes from rank 1 to 5, whose node has a resident copy on 6; expert 1 gains a copy on 2. */
HEC_TEST(migration_by_hand) {
  hec_problem *p = hec_test_problem(&arena, box, 8, 1, 2, 1, true);
  hec_plan from = hec_plan_new(&arena, p, 1), to = hec_plan_new(&arena, p, 1);
  int64_t scratch[64] = {0};
  hec_transfer_list list = {0};
  hec_plan_set_home(&from, 0, 0, 1);
  hec_plan_add_copy(&from, 0, 0, 6, HEC_COPY_RESIDENT);
  hec_plan_add_copy(&from, 0, 0, 4, HEC_COPY_GUEST); /* gone by then */
  hec_plan_set_home(&from, 0, 1, 7);
  hec_plan_set_home(&to, 0, 0, 5);
  hec_plan_set_home(&to, 0, 1, 7);
  hec_plan_add_copy(&to, 0, 1, 2, HEC_COPY_RESIDENT);
  hec_plan_add_copy(&to, 0, 1, 3, HEC_COPY_GUEST);
  hec_plan_migration(&from, &to, p, 0, scratch, &list);
  const int64_t state = 2 * 64 * 128 * (2 + 12);
  ck_assert_uint_eq(list.n, 2);
  ck_assert(list.data[0].source == 6 && list.data[0].destination == 5 && list.data[0].bytes == state);
  ck_assert(list.data[1].source == 7 && list.data[1].destination == 2 && list.data[1].bytes == state);
  free(list.data);
}
