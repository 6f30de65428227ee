/* MoonEP (github.com/MoonshotAI/MoonEP; reference policies.md 4.5). Every rank computes exactly its share, whatever the
 * gate says, with at most as many foreign experts as it has own ones.
 *
 *   cap[r] = floor(total / R), one more on the first total mod R ranks;  bal[r] = load[r] - cap[r]
 *   while h = argmax bal has bal[h] > 0:  u = argmin bal receives -bal[u] from h;  bal[h] += bal[u], bal[u] = 0
 *   per donor, largest quota first: from its own expert with most left, as much as the quota takes
 *
 * Each step settles one rank for good. So there are at most R - 1 transfers and each receiver has one donor: no more
 * foreign experts than the donor has own ones. A donor has enough: before a step it keeps more than cap[h], and a quota
 * is at most cap[u] <= cap[h] + 1. It may fall below its share and then receives later. Ties to the lower index.
 * O(R^2 + moves R). Hosts by rank take consecutive ranges of the sources' assignments.
 *
 * Guests share one set of slots for all layers: gathered again in backward. What cannot be said here: their gradients
 * return in fp32 (here in the model's gradient type). ceil(E/R) slots and their fp32 gradients are reserved even when
 * unused (here what is used). A gather may run beside dispatch. The published system needs all ranks on one NVLink. */
#include "runtime/plan/planners/spill.h"
#include "runtime/plan/problem.h"

/* a: balance, b: quota of a receiver, used: its donor. */
static void choose_donors(hec_spill *s) {
  int32_t n = s->n_ranks;
  uint64_t share = s->all / (uint64_t)n, more = s->all % (uint64_t)n;
  for (int32_t r = 0; r < n; r++) {
    s->a[r] = (int64_t)s->load[r] - (int64_t)(share + ((uint64_t)r < more));
    s->b[r] = 0;
  }
  for (;;) {
    int32_t donor = 0, receiver = 0;
    for (int32_t r = 1; r < n; r++) {
      donor = s->a[r] > s->a[donor] ? r : donor;
      receiver = s->a[r] < s->a[receiver] ? r : receiver;
    }
    s->units += (uint64_t)n;
    if (s->a[donor] <= 0)
      return;
    s->used[receiver] = donor;
    s->b[receiver] = -s->a[receiver];
    s->a[donor] += s->a[receiver];
    s->a[receiver] = 0;
  }
}

static int32_t largest_quota(const hec_spill *s, int32_t donor) {
  int32_t best = -1;
  for (int32_t r = 0; r < s->n_ranks; r++)
    if (s->b[r] > 0 && s->used[r] == donor && (best < 0 || s->b[r] > s->b[best]))
      best = r;
  return best;
}

static void plan(hec_spill *s) {
  choose_donors(s);
  for (int32_t donor = 0; donor < s->n_ranks; donor++) {
    int32_t first = s->home_at[donor], end = s->home_at[donor + 1];
    for (int32_t e = first; e < end; e++)
      s->left[e] = (int64_t)s->total[e];
    for (int32_t u = largest_quota(s, donor); u >= 0; u = largest_quota(s, donor)) {
      int32_t e = first;
      for (int32_t i = first + 1; i < end; i++)
        e = s->left[i] > s->left[e] ? i : e;
      int64_t take = s->left[e] < s->b[u] ? s->left[e] : s->b[u];
      hec_spill_add(s, e, u, (uint64_t)take);
      s->left[e] -= take;
      s->b[u] -= take;
      s->units += (uint64_t)(s->n_ranks + end - first);
    }
  }
}

static void init(hec_policy_run *run) {
  hec_spill_init(run, plan, (hec_spill_options){.split = HEC_SPLIT_BY_RANK, .slots = hec_problem_share(run->problem)});
  run->plan.rematerialise = true;
}

const hec_policy hec_policy_moonep = {
    HEC_SPILL_POLICY,
    .name = "moonep",
    .fills = {.shares = 2},
    .tried = true,
    .summary = "After the gate, tokens move until all ranks have equal shares. Each receiver has one donor; unused "
               "slots are free here.",
    .source = "MoonEP, github.com/MoonshotAI/MoonEP",
};
