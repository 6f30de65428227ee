/* Sparse collectives against an oracle that executes their transfers. What every rank holds is tracked stage by stage.
 * A transfer carries what its source held when the stage began (or what it is forwarding), and a scatter adds
 * integers.
 */
#include "runtime/plan/planners/spread_cost.h"
#include "tests/plan/plan_cases.h"
#include "tests/support/test.h"

#include <string.h>

enum { ITEMS_MAX = 12, RANKS_MAX = 32 };

static bool receives(const hec_sparse *s, int32_t item, int32_t rank) {
  for (int32_t k = s->receiver_at[item]; k < s->receiver_at[item + 1]; k++)
    if (s->receiver[k] == rank)
      return true;
  return false;
}

/* `owner` [ITEMS_MAX * RANKS_MAX]: of slices. */
static void random_sparse(uint64_t *seed, int32_t n_ranks, int32_t n_slices, hec_sparse_case *c, int32_t *owner) {
  int32_t n = 1 + (int32_t)hec_test_below(seed, ITEMS_MAX), at = 0;
  for (int32_t i = 0; i < n; i++) {
    c->expert[i] = i == 0 ? (int32_t)hec_test_below(seed, 3) : c->expert[i - 1] + 1 + (int32_t)hec_test_below(seed, 3);
    for (int32_t j = 0; j < n_slices; j++)
      owner[i * n_slices + j] = n_slices == n_ranks ? j : (int32_t)hec_test_below(seed, (uint64_t)n_ranks);
    uint64_t chance = 1 + hec_test_below(seed, 4); /* of 4: sparse to everywhere */
    c->at[i] = at;
    for (int32_t r = 0; r < n_ranks; r++)
      if ((n_slices > 1 || r != owner[i]) && hec_test_below(seed, 4) < chance)
        c->receiver[at++] = r;
  }
  hec_sparse_case_begin(c, (double)(1 + hec_test_below(seed, 5000000)));
  c->at[n] = at;
  c->sparse.n_items = n;
  c->sparse.n_slices = n_slices;
  c->sparse.owner = owner;
}

static int32_t item_of(const hec_sparse *s, int32_t expert) {
  for (int32_t i = 0; i < s->n_items; i++)
    if (s->expert[i] == expert)
      return i;
  ck_abort_msg("expert %d is not an item", expert);
}

static void check_form(const hec_collective_plan *plan, const hec_problem *problem) {
  ck_assert_int_ge(plan->n_stages, 0);
  ck_assert_int_ge(plan->n_chunks, 1);
  for (int32_t k = 0; k < plan->n_stages; k++) {
    ck_assert_uint_gt(plan->stage[k].n, 0);
    for (size_t i = 0; i < plan->stage[k].n; i++) {
      const hec_transfer *t = &plan->stage[k].data[i];
      ck_assert(t->bytes > 0 && t->source != t->destination);
      ck_assert(t->source >= 0 && t->source < problem->n_ranks && t->destination >= 0 &&
                t->destination < problem->n_ranks);
      ck_assert_int_lt(t->after, (int32_t)i);
      if (i > 0 && plan->n_chunks == 1) {
        int32_t before = t[-1].source * problem->n_ranks + t[-1].destination,
                now = t->source * problem->n_ranks + t->destination;
        ck_assert(plan->per_item ? before <= now : before < now);
      }
    }
  }
}

/* Merged transfers carry exactly what the transfers per item carry, stage by stage. */
static void check_merged(const hec_collective_plan *merged, const hec_collective_plan *items, int32_t n_ranks) {
  ck_assert_int_eq(merged->n_stages, items->n_stages);
  ck_assert_int_eq(merged->n_chunks, items->n_chunks);
  for (int32_t k = 0; k < merged->n_stages; k++) {
    int64_t bytes[RANKS_MAX * RANKS_MAX] = {0};
    for (size_t i = 0; i < items->stage[k].n; i++)
      bytes[items->stage[k].data[i].source * n_ranks + items->stage[k].data[i].destination] +=
          items->stage[k].data[i].bytes;
    for (size_t i = 0; i < merged->stage[k].n; i++) {
      const hec_transfer *t = &merged->stage[k].data[i];
      bytes[t->source * n_ranks + t->destination] -= t->bytes;
      ck_assert_int_eq(t->item == -1, merged->n_chunks == 1);
    }
    for (int32_t p = 0; p < n_ranks * n_ranks; p++)
      ck_assert_int_eq(bytes[p], 0);
  }
}

/* Bytes of a part, by its definition: whole bytes, cut evenly. */
static int64_t part_bytes(const hec_sparse *s, const hec_collective_plan *plan, int32_t part) {
  return s->bytes * (part + 1) / plan->n_parts - s->bytes * part / plan->n_parts;
}

/* Whether the rank passes the part on without holding the item; each stands there once. */
static bool is_relayed(const hec_sparse *s, const hec_collective_plan *plan, int32_t item, int32_t part, int32_t rank) {
  int32_t found = 0;
  for (int32_t k = 0; k < plan->n_stages; k++)
    for (size_t i = 0; i < plan->relayed[k].n; i++) {
      const hec_transfer *t = &plan->relayed[k].data[i];
      ck_assert(t->source == t->destination);
      found += t->item == s->expert[item] * plan->n_parts + part && t->source == rank;
    }
  ck_assert_int_le(found, 1);
  return found == 1;
}

/* Part `part` of items: after the stages exactly owner, receivers and those who pass it on hold it, and each got it once. */
static void execute_gather(const hec_sparse *s, const hec_collective_plan *plan, int32_t n_ranks, int32_t part) {
  bool holds[ITEMS_MAX][RANKS_MAX] = {{false}}, begin[ITEMS_MAX][RANKS_MAX];
  for (int32_t i = 0; i < s->n_items; i++)
    holds[i][s->owner[i]] = true;
  for (int32_t k = 0; k < plan->n_stages; k++) {
    memcpy(begin, holds, sizeof begin);
    for (size_t i = 0; i < plan->stage[k].n; i++) {
      const hec_transfer *t = &plan->stage[k].data[i];
      if (t->item % plan->n_parts != part)
        continue;
      int32_t item = item_of(s, t->item / plan->n_parts);
      ck_assert_int_eq(t->bytes, part_bytes(s, plan, part));
      if (t->after >= 0) { /* forwards what the named transfer brings */
        ck_assert_int_eq(plan->stage[k].data[t->after].destination, t->source);
        ck_assert_int_eq(plan->stage[k].data[t->after].item, t->item);
      } else {
        ck_assert(begin[item][t->source]);
      }
      ck_assert(!holds[item][t->destination]);
      holds[item][t->destination] = true;
    }
  }
  for (int32_t i = 0; i < s->n_items; i++)
    for (int32_t r = 0; r < n_ranks; r++)
      ck_assert_int_eq(holds[i][r], part_bytes(s, plan, part) == 0
                                        ? r == s->owner[i]
                                        : r == s->owner[i] || receives(s, i, r) || is_relayed(s, plan, i, part, r));
}

/* Every holder starts with its own number; stages move and add; the owner ends with the sum of all, the others empty.
 */
static void execute_scatter(uint64_t *seed, const hec_sparse *s, const hec_collective_plan *plan, int32_t n_ranks,
                            int32_t part) {
  uint64_t value[ITEMS_MAX][RANKS_MAX] = {{0}}, begin[ITEMS_MAX][RANKS_MAX], sum[ITEMS_MAX] = {0};
  bool full[ITEMS_MAX][RANKS_MAX] = {{false}};
  if (part_bytes(s, plan, part) == 0)
    return;
  for (int32_t i = 0; i < s->n_items; i++)
    for (int32_t r = 0; r < n_ranks; r++)
      if (is_relayed(s, plan, i, part, r))
        full[i][r] = true; /* begins with nothing of its own */
      else if (r == s->owner[i] || receives(s, i, r)) {
        full[i][r] = true;
        sum[i] += value[i][r] = hec_test_random(seed);
      }
  for (int32_t k = 0; k < plan->n_stages; k++) {
    memcpy(begin, value, sizeof begin);
    for (size_t j = 0; j < plan->stage[k].n; j++) {
      const hec_transfer *t = &plan->stage[k].data[j];
      if (t->item % plan->n_parts != part)
        continue;
      int32_t item = item_of(s, t->item / plan->n_parts);
      ck_assert_int_eq(t->bytes, part_bytes(s, plan, part));
      ck_assert_int_eq(t->after, -1);
      ck_assert(full[item][t->source]);
      full[item][t->source] = false;
      value[item][t->destination] += begin[item][t->source];
      value[item][t->source] -= begin[item][t->source]; /* what came in during this stage stays, and fails below */
    }
  }
  for (int32_t i = 0; i < s->n_items; i++)
    for (int32_t r = 0; r < n_ranks; r++)
      ck_assert_uint_eq(value[i][r], r == s->owner[i] ? sum[i] : 0);
}

/* Bytes of item's slices that `rank` keeps. */
static int64_t kept_bytes(const hec_sparse *s, int32_t item, int32_t rank) {
  int64_t bytes = 0;
  for (int32_t j = 0; j < s->n_slices; j++)
    if (s->owner[item * s->n_slices + j] == rank)
      bytes += s->bytes * (j + 1) / s->n_slices - s->bytes * j / s->n_slices;
  return bytes;
}

/* Slices: every receiver gets (a scatter: gives) each byte of an item that it does not keep itself exactly once. A
 * node that is not entered directly is entered with each byte at most once. */
static void execute_sliced(const hec_problem *p, const hec_sparse *s, const hec_collective_plan *plan, bool scatter,
                           bool direct) {
  for (int32_t i = 0; i < s->n_items; i++) {
    int64_t in[RANKS_MAX] = {0}, node_in[RANKS_MAX] = {0}, node_kept[RANKS_MAX] = {0};
    for (int32_t k = 0; k < plan->n_stages; k++)
      for (size_t j = 0; j < plan->stage[k].n; j++) {
        const hec_transfer *t = &plan->stage[k].data[j];
        int32_t from = scatter ? t->destination : t->source, to = scatter ? t->source : t->destination;
        if (t->item / s->n_slices != s->expert[i])
          continue;
        in[to] += t->bytes;
        if (hec_problem_node(p, from) != hec_problem_node(p, to))
          node_in[hec_problem_node(p, to)] += t->bytes;
      }
    for (int32_t r = 0; r < p->n_ranks; r++) {
      ck_assert_int_eq(in[r], receives(s, i, r) ? s->bytes - kept_bytes(s, i, r) : 0);
      node_kept[hec_problem_node(p, r)] += kept_bytes(s, i, r);
    }
    for (int32_t n = 0; !direct && n < p->n_nodes; n++)
      ck_assert_int_le(node_in[n], s->bytes - node_kept[n]);
  }
}

/* two_level and chain: an item crosses into a node at most once, never into its owner's. In a chain it also leaves each
 * node at most once, in the order home+1, home+2, ... Each rank sends it at most once inside its node. */
static void check_levels(const hec_problem *p, const hec_sparse *s, const hec_collective_plan *plan, bool chained) {
  for (int32_t i = 0; i < s->n_items; i++) {
    int32_t into[RANKS_MAX] = {0}, out[RANKS_MAX] = {0}, inside[RANKS_MAX] = {0}, last = 0;
    int32_t home = hec_problem_node(p, s->owner[i]);
    for (int32_t k = 0; k < plan->n_stages; k++)
      for (size_t j = 0; j < plan->stage[k].n; j++) {
        const hec_transfer *t = &plan->stage[k].data[j];
        int32_t a = hec_problem_node(p, t->source), b = hec_problem_node(p, t->destination);
        if (t->item != s->expert[i])
          continue;
        if (a == b) {
          inside[t->source]++;
          continue;
        }
        int32_t distance = (b - home + p->n_nodes) % p->n_nodes;
        ck_assert(!chained || distance > last);
        last = distance;
        into[b]++;
        out[a]++;
      }
    ck_assert_int_eq(into[home], 0);
    for (int32_t n = 0; n < p->n_nodes; n++)
      ck_assert(into[n] <= 1 && (!chained || out[n] <= 1));
    for (int32_t r = 0; chained && r < p->n_ranks; r++)
      ck_assert_int_le(inside[r], 1);
  }
}

/* A whole item leaves its owner whole, in the first stage, for another node where it has receivers there. */
static void check_way_out(const hec_problem *p, const hec_sparse *s, const hec_collective_plan *plan) {
  for (int32_t i = 0; i < s->n_items && s->bytes > 0; i++) {
    bool away = false, leaves = false;
    for (int32_t k = s->receiver_at[i]; k < s->receiver_at[i + 1]; k++)
      away = away || hec_problem_node(p, s->receiver[k]) != hec_problem_node(p, s->owner[i]);
    for (size_t j = 0; away && j < plan->stage[0].n; j++) {
      const hec_transfer *t = &plan->stage[0].data[j];
      leaves = leaves || (t->item == s->expert[i] && t->source == s->owner[i] && t->bytes == s->bytes &&
                          hec_problem_node(p, t->destination) != hec_problem_node(p, t->source));
    }
    ck_assert(leaves == away);
  }
}

static void one_problem(uint64_t *seed) {
  HEC_OPENED(hec_case) *c = hec_case_random(seed, 1, 64, 1000);
  static hec_sparse_case s;
  static int32_t owner[ITEMS_MAX * RANKS_MAX];
  bool sliced = hec_test_below(seed, 4) == 0;
  random_sparse(seed, c->problem.n_ranks, sliced ? c->problem.n_ranks : 1, &s, owner);
  sliced = s.sparse.n_slices > 1;
  s.sparse.relays = hec_test_below(seed, 2) == 0;
  for (int32_t row = 0; hec_collectives[row]; row++)
    for (int32_t scatter = 0; scatter < 2; scatter++) {
      HEC_SCOPED(hec_collective_plan) merged = {0}, items = {.per_item = true};
      (scatter ? hec_collectives[row]->scatter : hec_collectives[row]->gather)(&c->problem, &s.sparse, &merged);
      (scatter ? hec_collectives[row]->scatter : hec_collectives[row]->gather)(&c->problem, &s.sparse, &items);
      check_form(&merged, &c->problem);
      check_form(&items, &c->problem);
      check_merged(&merged, &items, c->problem.n_ranks);
      if (sliced)
        execute_sliced(&c->problem, &s.sparse, &items, scatter,
                       row == 0 || (hec_collectives[row] == &hec_collective_chain && !scatter));
      for (int32_t part = 0; !sliced && part < items.n_parts; part++)
        if (scatter)
          execute_scatter(seed, &s.sparse, &items, c->problem.n_ranks, part);
        else
          execute_gather(&s.sparse, &items, c->problem.n_ranks, part);
      if (!sliced && !scatter && row > 0 && items.n_parts == 1)
        check_levels(&c->problem, &s.sparse, &items, hec_collectives[row] == &hec_collective_chain);
      if (!sliced && !scatter && items.n_parts == 1)
        check_way_out(&c->problem, &s.sparse, &items);
    }
}

HEC_TEST(test_random_problems) {
  uint64_t seed = 20250204;
  for (int32_t k = 0; k < 500; k++)
    one_problem(&seed);
}

/* 2 nodes of 3; expert 5 of rank 1 to all, expert 7 of rank 4 to ranks 0 and 5; 100 bytes. */
typedef struct {
  int32_t stage, source, destination;
} sent;

static void expect_sent(const hec_collective_plan *plan, const sent *wanted, int32_t n) {
  size_t at_stage[2] = {0, 0};
  for (int32_t i = 0; i < n; i++) {
    const hec_transfer *t = &plan->stage[wanted[i].stage].data[at_stage[wanted[i].stage]++];
    ck_assert(t->source == wanted[i].source && t->destination == wanted[i].destination && t->bytes == 100);
  }
  for (int32_t k = 0; k < plan->n_stages; k++)
    ck_assert_uint_eq(plan->stage[k].n, at_stage[k]);
}

HEC_TEST(test_golden) {
  HEC_OPENED(hec_case) *c = hec_case_new("2x3 nvlink=100G@1us nic=10G@5us flops=100T mem=40G", 6, 1, 8, 100);
  static hec_sparse_case s;
  hec_sparse_case_begin(&s, 100);
  hec_sparse_case_add(&s, 5, 1, 6, NULL);
  hec_sparse_case_add(&s, 7, 4, 6, (bool[]){[0] = true, [5] = true});
  HEC_SCOPED(hec_collective_plan) plan = {0};
  static const sent direct[] = {{0, 1, 0}, {0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 1, 5}, {0, 4, 0}, {0, 4, 5}},
                    gather[] = {{0, 1, 0}, {0, 1, 2}, {0, 1, 4}, {0, 4, 0}, {0, 4, 5}, {1, 4, 3}, {1, 4, 5}},
                    scatter[] = {{0, 3, 4}, {0, 5, 4}, {1, 0, 1}, {1, 0, 4}, {1, 2, 1}, {1, 4, 1}, {1, 5, 4}};
  hec_collective_direct.gather(&c->problem, &s.sparse, &plan);
  expect_sent(&plan, direct, 7);
  hec_collective_two_level.gather(&c->problem, &s.sparse, &plan);
  expect_sent(&plan, gather, 7);
  hec_collective_two_level.scatter(&c->problem, &s.sparse, &plan);
  expect_sent(&plan, scatter, 7);
  /* 5: 1 -> 4 (same place in its node) -> 5 -> 3, home 1 -> 2 -> 0; 7: 4 -> 0, home 4 -> 5 */
  static const int32_t chain[][3] = {{1, 4, -1}, {4, 5, 0}, {5, 3, 1}, {1, 2, -1}, {2, 0, 3}, {4, 0, -1}, {4, 5, -1}};
  hec_collective_chain.gather(&c->problem, &s.sparse, &plan);
  ck_assert(plan.stage[0].n == 7 && plan.n_chunks == 2);
  for (int32_t i = 0; i < 7; i++) {
    const hec_transfer *t = &plan.stage[0].data[i];
    ck_assert(t->source == chain[i][0] && t->destination == chain[i][1] && t->after == chain[i][2]);
  }
  s.sparse.bytes = (5 << 20) + 1;
  hec_collective_chain.gather(&c->problem, &s.sparse, &plan);
  ck_assert_int_eq(plan.n_chunks, 6);
  s.sparse.bytes = 1 << 30;
  hec_collective_chain.gather(&c->problem, &s.sparse, &plan);
  ck_assert_int_eq(plan.n_chunks, 16);
}

/* By hand: 2 nodes of 2, an item of 101 bytes from rank 1 to ranks 0, 2 and 3. Parts of 50 and 51. Ranks 0 and 2, 3
 * are receivers, so nobody keeps parts for others; with rank 2 alone, 0 and 3 do. */
HEC_TEST(test_parts_golden) {
  HEC_OPENED(hec_case) *c = hec_case_new("2x2 nvlink=100G@1us nic=10G@5us flops=100T mem=40G", 4, 1, 8, 101);
  static hec_sparse_case s;
  typedef struct {
    int32_t stage, source, destination, bytes;
  } golden;
  static const golden all[] = {{0, 1, 0, 50}, {1, 0, 2, 50}, {1, 1, 0, 51},
                               {1, 1, 3, 51}, {2, 2, 3, 50}, {2, 3, 2, 51}},
                      one[] = {{0, 1, 0, 50}, {1, 0, 2, 50}, {1, 1, 3, 51}, {2, 3, 2, 51}};
  for (int32_t k = 0; k < 4; k++) {
    bool scatter = k % 2 == 1, few = k >= 2;
    hec_sparse_case_begin(&s, 101);
    s.sparse.relays = true;
    hec_sparse_case_add(&s, 5, 1, 4, few ? (bool[4]){[2] = true} : NULL);
    HEC_SCOPED(hec_collective_plan) plan = {0};
    (scatter ? hec_collective_parts.scatter : hec_collective_parts.gather)(&c->problem, &s.sparse, &plan);
    ck_assert(plan.n_stages == 3 && plan.n_parts == 2);
    const golden *wanted = few ? one : all;
    size_t n = few ? 4 : 6, found = 0, relayed = 0;
    for (int32_t stage = 0; stage < 3; stage++) {
      relayed += plan.relayed[stage].n;
      for (size_t i = 0; i < plan.stage[stage].n; i++) {
        const hec_transfer *t = &plan.stage[stage].data[i];
        for (size_t w = 0; w < n; w++)
          found += (scatter ? 2 - wanted[w].stage : wanted[w].stage) == stage && wanted[w].bytes == t->bytes &&
                   (scatter ? t->destination : t->source) == wanted[w].source &&
                   (scatter ? t->source : t->destination) == wanted[w].destination;
      }
      ck_assert_uint_gt(plan.stage[stage].n, 0);
    }
    ck_assert_uint_eq(found, n);
    ck_assert_uint_eq(plan.stage[0].n + plan.stage[1].n + plan.stage[2].n, n);
    ck_assert_uint_eq(relayed, few ? 2 : 0);
    s.sparse.relays = false; /* whole items, where nobody may */
    hec_collective_parts.gather(&c->problem, &s.sparse, &plan);
    ck_assert_int_eq(plan.n_parts, 1);
  }
}

/* Two experts of one owner for the same ranks travel as one transfer of twice the bytes, with item -1. */
HEC_TEST(test_merge) {
  HEC_OPENED(hec_case) *c = hec_case_new("1x3 nvlink=100G@1us nic=10G@5us flops=100T mem=40G", 3, 1, 8, 100);
  static hec_sparse_case s;
  hec_sparse_case_begin(&s, 70);
  hec_sparse_case_add(&s, 1, 0, 3, NULL);
  hec_sparse_case_add(&s, 2, 0, 3, (bool[]){false, false, true});
  hec_sparse_case_add(&s, 3, 0, 3, NULL);
  HEC_SCOPED(hec_collective_plan) plan = {0};
  hec_collective_direct.scatter(&c->problem, &s.sparse, &plan);
  ck_assert_uint_eq(plan.stage[0].n, 2);
  for (int32_t i = 0; i < 2; i++) {
    const hec_transfer *t = &plan.stage[0].data[i];
    ck_assert(t->source == 1 + i && t->bytes == 140 + 70 * i && t->item == -1);
  }
  s.sparse.n_items = 0;
  hec_collective_direct.gather(&c->problem, &s.sparse, &plan);
  ck_assert_int_eq(plan.n_stages, 0);
}

static bool same_plan(const hec_collective_plan *a, const hec_collective_plan *b) {
  if (a->n_stages != b->n_stages || (a->n_stages > 0 && a->n_chunks != b->n_chunks))
    return false;
  for (int32_t k = 0; k < a->n_stages; k++)
    if (a->stage[k].n != b->stage[k].n ||
        memcmp(a->stage[k].data, b->stage[k].data, a->stage[k].n * sizeof *a->stage[k].data) != 0)
      return false;
  return true;
}

HEC_TEST(test_choose) {
  uint64_t seed = 7;
  int32_t wins[3] = {0};
  for (int32_t k = 0; k < 200; k++) {
    HEC_OPENED(hec_case) *c = hec_case_random(&seed, 1, 64, 1000);
    static hec_sparse_case s;
    random_sparse(&seed, c->problem.n_ranks, 1, &s, s.owner);
    bool scatter = hec_test_below(&seed, 2) == 0;
    HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&c->cluster, &c->arena);
    HEC_SCOPED(hec_collective_plan) out = {0}, scratch = {0}, each = {0};
    const hec_collective *row = hec_collective_choose(&cost, &c->problem, &s.sparse, scatter, NULL, &out, &scratch);
    double chosen_s = hec_collective_cost(&cost, &out);
    bool before = true;
    for (int32_t i = 0; hec_collectives[i]; i++) {
      (scatter ? hec_collectives[i]->scatter : hec_collectives[i]->gather)(&c->problem, &s.sparse, &each);
      double seconds = hec_collective_cost(&cost, &each);
      if (hec_collectives[i] == row) {
        wins[i]++;
        before = false;
        ck_assert(seconds == chosen_s && same_plan(&each, &out));
      }
      ck_assert(before ? seconds > chosen_s : seconds >= chosen_s);
      ck_assert_ptr_eq(
          hec_collective_choose(&cost, &c->problem, &s.sparse, scatter, hec_collectives[i], &out, &scratch),
          hec_collectives[i]);
      ck_assert(same_plan(&each, &out));
      hec_collective_choose(&cost, &c->problem, &s.sparse, scatter, NULL, &out, &scratch);
      ck_assert_ptr_eq(hec_collective_find(hec_collectives[i]->name), hec_collectives[i]);
    }
    ck_assert(!before);
  }
  ck_assert_ptr_null(hec_collective_find("ring"));
  ck_assert_msg(wins[0] > 0 && wins[1] > 0 && wins[2] > 0, "every row is the best somewhere: %d %d %d", wins[0],
                wins[1], wins[2]);
}

/* One expert of every node to everywhere, 3 nodes of 4: direct sends 2 * 4 items out of each NIC. two_level sends 2
 * items out of each NIC and then 2 * 3 items out of each entry's port. Items of 1 MB, NICs of 10 GB/s, ports of 1000
 * GB/s. */
HEC_TEST(test_cost_by_hand) {
  HEC_OPENED(hec_case) *c = hec_case_new("3x4 nvlink=1000G nic=10G@5us flops=100T mem=40G", 12, 1, 12, 1e6);
  static hec_sparse_case s;
  hec_sparse_case_begin(&s, 1e6);
  for (int32_t i = 0; i < 3; i++)
    hec_sparse_case_add(&s, 4 * i, 4 * i, 12, NULL);
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&c->cluster, &c->arena);
  HEC_SCOPED(hec_collective_plan) plan = {0};
  hec_collective_direct.gather(&c->problem, &s.sparse, &plan); /* 8 MB out of each NIC */
  double direct_s = hec_collective_cost(&cost, &plan);
  hec_collective_two_level.gather(&c->problem, &s.sparse,
                                  &plan); /* 2 MB out of each NIC, then 6 MB out of each entry */
  double two_level_s = hec_collective_cost(&cost, &plan);
  double latency_s = (double)hec_cluster_latency_ps(&c->cluster, 0, 4) * 1e-12;
  ck_assert_double_eq_tol(direct_s, latency_s + 8e6 / 10e9, 1e-12);
  ck_assert_double_eq_tol(two_level_s, latency_s + 2e6 / 10e9 + 6e6 / 1000e9, 1e-12);
}

/* 15 experts to all of 32 ranks, where every row has a price of its own: from patterns comes the same choice. */
HEC_TEST(test_choice_from_patterns) {
  HEC_OPENED(hec_case) *c = hec_case_new("4x8 nvlink=300G@2us nic=50G@10us flops=312T mem=40G", 32, 1, 64, 5e6);
  static hec_sparse_case s;
  hec_sparse_case_begin(&s, 5e6);
  for (int32_t i = 0; i < 15; i++)
    hec_sparse_case_add(&s, 4 * i, 2 * i, 32, NULL);
  HEC_SCOPED(hec_link_cost) cost = hec_link_cost_new(&c->cluster, &c->arena);
  HEC_SCOPED(hec_collective_plan) out = {0}, scratch = {0};
  for (int32_t scatter = 0; scatter < 2; scatter++) {
    const hec_collective *row = hec_collective_choose(&cost, &c->problem, &s.sparse, scatter, NULL, &out, &scratch);
    hec_rank_links links = hec_rank_links_new(&c->arena, &c->problem);
    hec_spread spread = hec_spread_new(&c->arena, &c->problem, &links, 5e6, scatter);
    hec_spread_sum sum = hec_spread_sum_new(&c->arena, &spread);
    for (int32_t k = 0; k < 3; k++) /* its sums are used again */
      ck_assert_ptr_eq(hec_spread_choose(&spread, &s.sparse, &sum), row);
  }
}
