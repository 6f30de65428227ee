/* HarMoEny (arXiv:2506.12417; reference policies.md 3.13): spare ranks are filled from the fullest one, biggest expert
 * first.
 *
 *   avg = floor(total / R)
 *   o = argmax load, u = argmin load;  stop when load[o] <= avg, o = u, or load[u] + q > avg
 *   e = expert of o with most tokens; stop when it has fewer than q
 *   move: min(tokens of e, load[o] - avg, avg - load[u]) of them go from o to u, from the largest source first
 *
 * q = 150: the fewest tokens that are worth fetching an expert, as published. Ties to the lower index. No rank is filled
 * above avg, so what leaves the fullest rank are its own experts. Every move empties an expert, fills u or brings o
 * to avg. O(moves (R + E/R)). No bound on the guests of a rank.
 *
 * The public prototypes take min(tokens of e, avg - load[u]), which may leave o below avg; the reference stops there.
 *
 * An inference system that fetches weights from host memory. Neither is said here: guests come from their home over the
 * network, and in training stay until backward and return gradients (inferred). */
#include "runtime/plan/planners/spill.h"
#include "runtime/plan/problem.h"

/* a: load now. */
static bool move_once(hec_spill *s, int64_t avg, int64_t min) {
  int32_t o = 0, u = 0;
  int64_t max = s->a[0], fewest = s->a[0]; /* beside o and u, so that the loop does not wait for loads of a[o], a[u] */
  for (int32_t r = 1; r < s->n_ranks; r++) {
    bool more = s->a[r] > max, fewer = s->a[r] < fewest;
    max = more ? s->a[r] : max;
    o = more ? r : o;
    fewest = fewer ? s->a[r] : fewest;
    u = fewer ? r : u;
  }
  if (max <= avg || o == u || fewest + min > avg)
    return false;
  int32_t e = s->home_at[o];
  for (int32_t i = e + 1; i < s->home_at[o + 1]; i++)
    e = s->left[i] > s->left[e] ? i : e;
  if (s->left[e] < min)
    return false;
  int64_t over = max - avg, room = avg - fewest, take = s->left[e] < over ? s->left[e] : over;
  take = take < room ? take : room;
  hec_spill_add(s, e, u, (uint64_t)take);
  s->left[e] -= take;
  s->a[o] -= take;
  s->a[u] += take;
  return true;
}

static void plan(hec_spill *s) {
  int64_t avg = (int64_t)(s->all / (uint64_t)s->n_ranks), min = (int64_t)s->options.min;
  for (int32_t r = 0; r < s->n_ranks; r++)
    s->a[r] = (int64_t)s->load[r];
  for (int32_t e = s->home_at[0]; e < s->home_at[s->n_ranks]; e++)
    s->left[e] = (int64_t)s->total[e];
  while (move_once(s, avg, min > 1 ? min : 1))
    s->units += (uint64_t)s->n_ranks;
}

enum { MIN };

static const hec_option options[] = {
    HEC_POLICY_WHOLE("min", MIN, 0, 1e9, .help = "tokens that are worth fetching an expert (q)"), {0}};

static void init(hec_policy_run *run) {
  hec_spill_init(run, plan,
                 (hec_spill_options){.split = HEC_SPLIT_LARGEST_FIRST,
                                     .min = (uint64_t)run->policy->own[MIN],
                                     .slots = run->problem->n_experts});
}

const hec_policy hec_policy_harmoeny = {
    HEC_SPILL_POLICY,
    .name = "harmoeny",
    .fills = {.any = true},
    .tried = true,
    .summary = "After the gate, the emptiest rank takes tokens of the fullest, with a copy of the expert. Published "
               "for inference.",
    .source = "HarMoEny, arXiv 2506.12417",
    .options = options,
    .own = {[MIN] = 150},
};
