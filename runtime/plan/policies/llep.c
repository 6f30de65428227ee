/* LLEP, least-loaded expert parallelism (arXiv:2601.17111; reference policies.md 4.4). A rank keeps of its experts
 * what fits under a common cap. It spills the rest, chunk by chunk, to the rank with the least to do.
 *
 *   max load / mean < lambda: plain expert parallelism
 *   cap = max(1, alpha * floor(total / R));  got[r] = 0, pend[r] = load[r]
 *   experts by load, descending, ties to the lower one; e at home on n, q = total[e], pend[n] -= q:
 *     the home keeps min(q, max(0, cap - got[n] - pend[n]))
 *     the rest, while any: o = the other rank with the least got + pend, c = min(rest, cap - got[o] - pend[o]);
 *       c tokens to o if c >= m, or if c > 0 is all that is left; else all of it to o whatever the cap
 *
 * The paper looks at the other ranks in ascending order; c falls along it, so the first refusal is everybody's.
 * lambda 1.3, alpha 1, m 1024 as in the paper (the code's alpha is 1.1). No bound on the guests of a rank. Sources'
 * assignments are cut into consecutive ranges, the home's first. O(E log E + spills R).
 *
 * Guests stay from forward to backward, as autograd keeps the received weights (inferred). Gradients return in the
 * model's gradient type. One group of ranks does not know about nodes. */
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/spill.h"
#include "runtime/plan/problem.h"

static int32_t least_loaded(const hec_spill *s, int32_t home) {
  int32_t best = -1;
  for (int32_t r = 0; r < s->n_ranks; r++)
    if (r != home && (best < 0 || s->a[r] + s->b[r] < s->a[best] + s->b[best]))
      best = r;
  return best;
}

static void spill_expert(hec_spill *s, int32_t e, int64_t rest, int64_t cap) {
  while (rest > 0) {
    int32_t o = least_loaded(s, hec_spill_home(s, e));
    int64_t room = cap - s->a[o] - s->b[o], chunk = rest < room ? rest : room;
    if (chunk <= 0 || chunk < (int64_t)s->options.min)
      chunk = rest; /* which it may be already */
    hec_spill_add(s, e, o, (uint64_t)chunk);
    s->a[o] += chunk;
    rest -= chunk;
    s->units += (uint64_t)s->n_ranks;
  }
}

/* a: got, b: pending. */
static void plan(hec_spill *s) {
  int32_t n = s->n_ranks, first = s->home_at[0], n_experts = s->home_at[n] - first;
  uint64_t max = hec_largest(s->load, n);
  for (int32_t r = 0; r < n; r++) {
    s->a[r] = 0;
    s->b[r] = (int64_t)s->load[r];
  }
  if (n == 1 || (double)max * n < s->options.threshold * (double)s->all)
    return;
  int64_t cap = (int64_t)(s->options.capacity * (double)(s->all / (uint64_t)n));
  cap = cap > 1 ? cap : 1;
  hec_order_loads(s->total + first, n_experts, s->key, s->order);
  s->units += (uint64_t)n_experts;
  for (int32_t i = 0; i < n_experts; i++) {
    int32_t e = first + s->order[i], home = hec_spill_home(s, e);
    int64_t q = (int64_t)s->total[e];
    s->b[home] -= q;
    int64_t room = cap - s->a[home] - s->b[home], keep = room < 0 ? 0 : room < q ? room : q;
    s->a[home] += keep;
    spill_expert(s, e, q - keep, cap);
  }
}

enum { THRESHOLD, CAP, MIN };

static const hec_option options[] = {
    HEC_POLICY_REAL("threshold", THRESHOLD, 1, 1000, .help = "acts from this max load over mean load on (lambda)"),
    HEC_POLICY_REAL("cap", CAP, 0.01, 1000, .help = "what a rank may take, in means (alpha; their code: 1.1)"),
    HEC_POLICY_WHOLE("min", MIN, 0, 1e9, .help = "tokens that are worth a guest (m)"),
    {0}};

static void init(hec_policy_run *run) {
  const double *own = run->policy->own;
  hec_spill_init(run, plan,
                 (hec_spill_options){.split = HEC_SPLIT_IN_ORDER,
                                     .threshold = own[THRESHOLD],
                                     .capacity = own[CAP],
                                     .min = (uint64_t)own[MIN],
                                     .slots = run->problem->n_experts});
}

const hec_policy hec_policy_llep = {
    HEC_SPILL_POLICY,
    .name = "llep",
    .fills = {.any = true},
    .tried = true,
    .summary = "After the gate, what exceeds a rank's cap goes to the emptiest ranks. The experts' weights follow.",
    .source = "LLEP, arXiv 2601.17111",
    .options = options,
    .own = {[THRESHOLD] = 1.3, [CAP] = 1, [MIN] = 1024},
};
