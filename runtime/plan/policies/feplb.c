/* FEPLB (arXiv 2604.19654): after the gate, whole "dynamic" experts change ranks inside the NVLink domain (here: a
 * node). The GPUs' copy engines move tokens and weights while the other experts compute.
 *
 *   dynamic     the `dynamic` experts of a rank with most tokens
 *   load[r]     the tokens of its other experts
 *   tokens      dynamic experts of the node by tokens, descending, each to the rank with the least load that has room
 *               for a guest. Of equally loaded ranks: its home, then the lower
 *   kept only if the node's fullest rank gets less than it has
 *
 * The abstract and reviews say: two-phase dispatch, first across nodes to the experts' homes, then inside the node. Weights
 * move for one micro-batch; a light scheduler on the CPU; an expert's tokens are not split. The scheduler is not
 * public at hand. So this is ours: which experts are dynamic, 2 of a rank, at most as many guests a rank, and the
 * greedy rule. O(E log E + dynamic R^2) per node.
 *
 * What cannot be said here: the second hop of tokens (they go straight to where they are computed). And copy engines, which
 * take no multiprocessors: transfers here never do, so another row pays as little for them. Gathering beside static
 * experts is a schedule's matter. Slots are shared by all layers: gathered again in backward (inferred). */
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/spill.h"

static int32_t most_loaded(const hec_spill *s, int32_t rank) {
  int32_t best = -1;
  for (int32_t e = s->home_at[rank]; e < s->home_at[rank + 1]; e++)
    if (s->left[e] < 0 && (best < 0 || s->total[e] > s->total[best]))
      best = e;
  return best;
}

/* order: the dynamic experts, key: their tokens, a: loads without them. Returns how many. left[e] < 0: not listed yet. */
static int32_t list_dynamic(hec_spill *s) {
  int32_t n = 0;
  for (int32_t r = 0; r < s->n_ranks; r++) {
    s->a[r] = (int64_t)s->load[r];
    s->used[r] = 0;
    for (int32_t e = s->home_at[r]; e < s->home_at[r + 1]; e++)
      s->left[e] = -1;
    for (int32_t k = 0; k < s->options.slots && k < s->home_at[r + 1] - s->home_at[r]; k++) {
      int32_t e = most_loaded(s, r);
      s->left[e] = 0;
      s->key[n] = (double)s->total[e];
      s->order[n++] = e;
      s->a[r] -= (int64_t)s->total[e];
    }
    s->units += (uint64_t)(s->home_at[r + 1] - s->home_at[r]);
  }
  return n;
}

static void plan(hec_spill *s) {
  int32_t begin = s->n_moves, n = list_dynamic(s);
  int64_t fullest = 0;
  for (int32_t left = n; left > 0; left--) {
    int32_t k = 0, best = -1;
    for (int32_t i = 1; i < n; i++)
      k = s->key[i] > s->key[k] ? i : k;
    int32_t e = s->order[k], home = hec_spill_home(s, e);
    s->key[k] = -1;
    for (int32_t r = 0; r < s->n_ranks; r++)
      if ((r == home || s->used[r] < s->options.slots) &&
          (best < 0 || s->a[r] < s->a[best] || (s->a[r] == s->a[best] && r == home)))
        best = r;
    s->units += (uint64_t)(n + s->n_ranks);
    s->a[best] += (int64_t)s->total[e];
    if (best == home || s->total[e] == 0)
      continue;
    s->used[best]++;
    hec_spill_add(s, e, best, s->total[e]);
  }
  for (int32_t r = 0; r < s->n_ranks; r++)
    fullest = s->a[r] > fullest ? s->a[r] : fullest;
  if (fullest >= (int64_t)hec_largest(s->load, s->n_ranks))
    s->n_moves = begin;
}

enum { DYNAMIC };

static const hec_option options[] = {HEC_POLICY_WHOLE("dynamic", DYNAMIC, 0, 65536,
                                                      .help = "experts of a rank that may move, and guests of a rank",
                                                      .source = "this project; not published"),
                                     {0}};

static void init(hec_policy_run *run) {
  hec_spill_init(run, plan,
                 (hec_spill_options){
                     .split = HEC_SPLIT_IN_ORDER, .within_node = true, .slots = (int32_t)run->policy->own[DYNAMIC]});
  run->plan.rematerialise = true;
}

const hec_policy hec_policy_feplb = {
    HEC_SPILL_POLICY,
    .name = "feplb",
    .fills = {.shares = 1, .more = 2},
    .summary = "After the gate, whole hot experts change ranks inside the node for one micro-batch. Published with "
               "copy engines.",
    .source = "FEPLB, arXiv 2604.19654",
    .options = options,
    .own = {[DYNAMIC] = 2},
};
