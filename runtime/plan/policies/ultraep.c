/* UltraEP (arXiv:2606.04101; reference policies.md 4.7). It finds the smallest load T that every rank of an NVLink
 * domain (here: a node) can be brought down to. A rank has B redundant slots. A greedy test of T tells whether it can
 * be reached.
 *
 *   T fits:  slack[r] = max(0, T - load[r]);  donors s by load, descending, need = load[s] - T > 0:
 *     experts e of s by load, descending, all but one token available; while any is needed and available:
 *       t = rank with most slack, a free slot and no copy of e;  q = min(need, slack[t], available)
 *       q < q_min: next expert.  Else q tokens of e go to t.
 *     need left: T does not fit
 *   fast:    T = 1.01 times the min, then two more in steps of max / 100, where q_min = ceil(need / ranks that could
 *            take some)
 *   search:  the smallest T >= mean that fits with q_min = 1024
 *
 * The test is not monotone in T, so bisection would miss. Every number in it is linear in T as long as no comparison
 * turns out otherwise. Each is kept as value and slope, and the first step after which some comparison turns is where
 * the search goes next. Between two such T the test does the same and fails the same: T is exactly the smallest.
 *
 * 2 slots as in the published runs (4 + 2), or what --slots leaves; 1.01 and 1024 are the code's defaults. A test costs
 * O(R log R + moves R). Own tokens first use the copy on their rank, the rest goes in proportion. Slots are shared by
 * all layers: gathered again, blocking, in backward. What cannot be said here: relays of weights (the project's
 * collectives choose their own); fp32 gradient buffers; reserved but unused slots. Gradients that return behind
 * attention backward unless the schedule does so (hecate). */
#include "runtime/plan/planners/order.h"
#include "runtime/plan/planners/spill.h"

/* at + by * (further T). */
typedef struct {
  int64_t at, by;
} line;

typedef struct {
  hec_spill *s;
  int64_t target, step; /* until `step` more the test takes the same turns */
  bool relaxed;         /* a fast try: q_min follows need; its step means nothing */
  int32_t begin;        /* moves of other domains */
} probe;

static bool less(probe *p, line x, line y) {
  bool is = x.at < y.at;
  int64_t gain = x.by - y.by;
  if (is ? gain > 0 : gain < 0) {
    int64_t turn = is ? (y.at - x.at + gain - 1) / gain : (x.at - y.at) / -gain + 1;
    p->step = turn < p->step ? turn : p->step;
  }
  return is;
}

static line minus(line x, line y) {
  return (line){x.at - y.at, x.by - y.by};
}

static line smaller(probe *p, line x, line y) {
  return less(p, y, x) ? y : x;
}

static line slack_of(const probe *p, int32_t r) {
  return (line){p->s->a[r], p->s->b[r]};
}

static bool can_host(const hec_spill *s, int32_t e, int32_t r) {
  return s->used[r] < s->options.slots && r != hec_spill_home(s, e) && !hec_spill_moved(s, e, r);
}

static const line zero = {0, 0};

static int32_t max_slack(probe *p, int32_t e) {
  const hec_spill *s = p->s;
  int32_t best = -1;
  line max = zero;
  for (int32_t r = 0; r < s->n_ranks; r++)
    if (s->used[r] < s->options.slots && less(p, max, slack_of(p, r)) && can_host(s, e, r)) {
      best = r;
      max = slack_of(p, r);
    }
  return best;
}

/* What a move must carry. */
static line min_tokens(const probe *p, int32_t e, line need) {
  const hec_spill *s = p->s;
  if (!p->relaxed)
    return (line){s->options.min > 1 ? (int64_t)s->options.min : 1, 0};
  int64_t n = 0;
  for (int32_t r = 0; r < s->n_ranks; r++)
    n += s->a[r] > 0 && can_host(s, e, r);
  return (line){n > 0 ? (need.at + n - 1) / n : 1, 0};
}

/* Moves of e until nothing is needed or e has no more to give; returns what is still needed. */
static line move_expert(probe *p, int32_t e, line need) {
  hec_spill *s = p->s;
  line available = {(int64_t)s->total[e] - 1, 0}; /* one stays with the master */
  while (less(p, zero, need) && less(p, zero, available)) {
    int32_t t = max_slack(p, e);
    s->units += (uint64_t)s->n_ranks;
    if (t < 0)
      break;
    line q = smaller(p, smaller(p, need, slack_of(p, t)), available);
    if (less(p, q, min_tokens(p, e, need)))
      break;
    hec_spill_add(s, e, t, (uint64_t)q.at);
    s->used[t]++;
    s->a[t] -= q.at;
    s->b[t] -= q.by;
    need = minus(need, q);
    available = minus(available, q);
  }
  return need;
}

/* order: the domain's experts, those of a rank behind each other, descending. */
static bool fits(probe *p) {
  hec_spill *s = p->s;
  s->n_moves = p->begin;
  p->step = INT64_MAX;
  for (int32_t r = 0; r < s->n_ranks; r++) {
    line load = {(int64_t)s->load[r], 0}, target = {p->target, 1};
    bool full = less(p, target, load);
    s->a[r] = full ? 0 : p->target - load.at;
    s->b[r] = !full;
    s->used[r] = 0;
  }
  for (int32_t k = 0; k < s->n_ranks; k++) {
    int32_t donor = s->rank_order[k];
    line need = {(int64_t)s->load[donor] - p->target, -1};
    if (need.at <= 0)
      return true;
    for (int32_t i = s->home_at[donor]; i < s->home_at[donor + 1] && less(p, zero, need); i++)
      need = move_expert(p, s->order[i - s->home_at[0]], need);
    if (less(p, zero, need))
      return false;
  }
  return true;
}

static void sort_domain(hec_spill *s) {
  int32_t n = s->n_ranks, first = s->home_at[0];
  for (int32_t r = 0; r < n; r++) {
    int32_t begin = s->home_at[r], count = s->home_at[r + 1] - begin, *order = s->order + begin - first;
    hec_order_loads(s->total + begin, count, s->key, order);
    for (int32_t i = 0; i < count; i++)
      order[i] += begin;
  }
  hec_order_loads(s->load, n, s->key, s->rank_order);
  s->units += (uint64_t)(s->home_at[n] - first + n);
}

static int64_t scaled_up(int64_t x, double factor) {
  double exact = (double)x * factor;
  int64_t whole = (int64_t)exact;
  return whole + ((double)whole < exact);
}

static void plan(hec_spill *s) {
  probe p = {.s = s, .relaxed = true, .begin = s->n_moves};
  sort_domain(s);
  int64_t max = (int64_t)s->load[s->rank_order[0]], n = s->n_ranks, mean = ((int64_t)s->all + n - 1) / n;
  int64_t min = scaled_up(mean, s->options.threshold);
  p.target = scaled_up(min, s->options.capacity);
  for (int32_t try = 0; try < s->options.tries && p.target < max; try++) {
    if (fits(&p))
      return;
    p.target += max / 100 > 1 ? max / 100 : 1;
  }
  p.relaxed = false;
  for (p.target = min; p.target < max; p.target += p.step) {
    if (fits(&p))
      return;
    HEC_ASSERT(p.step <= max - p.target); /* the fullest rank's load fits: some comparison turns before */
  }
  s->n_moves = p.begin; /* nobody above the fullest */
}

enum { GUESTS, THRESHOLD, SLACK, TRIES, MIN };

static const hec_option options[] = {
    HEC_SPILL_GUESTS(GUESTS, NULL),
    HEC_POLICY_REAL("threshold", THRESHOLD, 1, 1000, .help = "aims above this multiple of the mean load",
                    .source = "their code"),
    HEC_POLICY_REAL("first", SLACK, 1, 1000, .help = "multiple of that where the fast tries begin",
                    .source = "their code"),
    HEC_POLICY_WHOLE("tries", TRIES, 0, 100, .help = "fast tries before the search", .source = "their code"),
    HEC_POLICY_WHOLE("min", MIN, 0, 1e9, .help = "tokens that are worth a guest (q_min)", .source = "their code"),
    {0}};

static void init(hec_policy_run *run) {
  const double *own = run->policy->own;
  hec_spill_init(run, plan,
                 (hec_spill_options){.split = HEC_SPLIT_OWN_FIRST,
                                     .within_node = true,
                                     .threshold = own[THRESHOLD],
                                     .capacity = own[SLACK],
                                     .tries = (int32_t)own[TRIES],
                                     .min = (uint64_t)own[MIN],
                                     .slots = hec_spill_slots(run, GUESTS)});
  run->plan.rematerialise = true;
}

const hec_policy hec_policy_ultraep = {
    HEC_SPILL_POLICY,
    .name = "ultraep",
    .fills = {.shares = 1, .more = 2},
    .tried = true,
    .summary = "After the gate, a search finds the lowest load that the ranks of a node can reach. Each has 2 guest "
               "slots, free if unused.",
    .source = "UltraEP, arXiv 2606.04101",
    .options = options,
    .own = {[GUESTS] = 2, [THRESHOLD] = 1, [SLACK] = 1.01, [TRIES] = 3, [MIN] = 1024},
};
