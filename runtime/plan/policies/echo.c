/* ECHO, elastic cloning (NVIDIA/Megatron-LM PR 2368; reference policies.md 4.8), the one-shot greedy assignment.
 *
 *   avg = floor(total / R);  spare[r] = max(0, avg - load[r])
 *   spill[e]: inside a rank, experts by ascending load; what the running sum grows by beyond avg, so that the largest
 *             spill first
 *   spills and spares, both descending, are laid on a line: tokens from e to r are the overlap of their intervals
 *   a rank keeps its B largest clones; what it drops stays at home
 *
 * The spills are at least the spares, so without the last step every rank below avg is filled to it. O(E log E + E + R
 * B). Sources share in proportion (the PR's breadth-first order; rounding by largest remainders is ours).
 *
 * B is an option of the system without a published value; 2 here, as UltraEP's, or what --slots leaves. Reclaiming
 * small clones is off, and so is the approximate bin packing. The buffers of clones are shared by all layers: gathered
 * again in backward; reserved but unused ones are not charged. */
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/spill.h"

/* left: spill; key: the same for sorting, by expert of the domain. Returns how many experts spill: s->order begins with
 * them. */
static int32_t list_spills(hec_spill *s, int64_t avg) {
  int32_t n = s->n_ranks, first = s->home_at[0], n_experts = s->home_at[n] - first, n_spills = 0;
  hec_order_loads(s->total + first, n_experts, s->key, s->order);
  for (int32_t r = 0; r < n; r++)
    s->a[r] = -avg; /* running sum less avg */
  for (int32_t i = n_experts - 1; i >= 0; i--) {
    int32_t e = first + s->order[i], home = hec_spill_home(s, e);
    int64_t before = s->a[home] > 0 ? s->a[home] : 0;
    s->a[home] += (int64_t)s->total[e];
    s->left[e] = s->a[home] > before ? s->a[home] - before : 0;
  }
  for (int32_t i = 0; i < n_experts; i++) {
    s->key[i] = (double)s->left[first + i];
    s->order[n_spills] = i;
    n_spills += s->left[first + i] > 0;
  }
  hec_order_listed(s->key, n_spills, s->order);
  s->units += 2 * (uint64_t)n_experts;
  return n_spills;
}

static int32_t list_spares(hec_spill *s, int64_t avg) {
  int32_t n_spares = 0;
  for (int32_t r = 0; r < s->n_ranks; r++) {
    s->b[r] = avg > (int64_t)s->load[r] ? avg - (int64_t)s->load[r] : 0;
    s->key[r] = (double)s->b[r];
    n_spares += s->b[r] > 0;
  }
  hec_order_descending(s->key, s->n_ranks, s->rank_order);
  return n_spares;
}

/* The largest of key[0 .. n-1] become moves of the experts order[at ..] to `rank`, at most `slots`. */
static void keep_largest(hec_spill *s, int32_t rank, int32_t at, int32_t n) {
  int32_t first = s->home_at[0];
  for (int32_t kept = 0; kept < n && kept < s->options.slots; kept++) {
    int32_t best = 0;
    for (int32_t k = 1; k < n; k++)
      best = s->key[k] > s->key[best] ? k : best;
    hec_spill_add(s, first + s->order[at + best], rank, (uint64_t)s->key[best]);
    s->key[best] = 0;
    s->units += (uint64_t)n;
  }
}

static void plan(hec_spill *s) {
  int64_t avg = (int64_t)(s->all / (uint64_t)s->n_ranks);
  int32_t n_spares = list_spares(s, avg), n_spills = list_spills(s, avg), at = 0, first = s->home_at[0];
  for (int32_t k = 0; k < n_spares; k++) {
    int32_t rank = s->rank_order[k], begin = at, n = 0;
    for (int64_t spare = s->b[rank]; spare > 0 && at < n_spills;) {
      int64_t *spill = &s->left[first + s->order[at]], overlap = *spill < spare ? *spill : spare;
      s->key[n++] = (double)overlap;
      spare -= overlap;
      *spill -= overlap;
      at += *spill == 0;
    }
    keep_largest(s, rank, begin, n);
  }
}

enum { GUESTS };

static const hec_option options[] = {HEC_SPILL_GUESTS(GUESTS, "UltraEP's; the PR names none"), {0}};

static void init(hec_policy_run *run) {
  hec_spill_init(run, plan,
                 (hec_spill_options){.split = HEC_SPLIT_PROPORTIONAL, .slots = hec_spill_slots(run, GUESTS)});
  run->plan.rematerialise = true;
}

const hec_policy hec_policy_echo = {
    HEC_SPILL_POLICY,
    .name = "echo",
    .fills = {.shares = 1, .more = 2},
    .tried = true,
    .summary =
        "After the gate, what full ranks have too much goes to clones on ranks with room. Unused slots are free here.",
    .source = "ECHO, Megatron-LM PR 2368",
    .options = options,
    .own = {[GUESTS] = 2},
};
