/* FSMoE (arXiv 2501.10714): degrees and gradient partition. Golden values: reference policies.md 6.4.
 *
 * A layer is cut into r chunks. One chunk has a = a2a(r), g = gather(r), s = scatter(r), x = experts(r). G is the time
 * of the gradients reduced in the layer. This is the order on three streams:
 *
 *   between nodes   a_1 .. a_r (dispatch)   G   a_1 .. a_r (combine)
 *   inside a node   g_1 .. g_r   s_1 .. s_r
 *   compute         x_1 .. x_r
 *
 * and, by the paper, one of four times:
 *
 *   Q1: a > g     Q2: rx > 2(r-1)a     Q3: rx > (r-1)(g+s)
 *   Q4: G > g+s   Q5, Q7: G > rx - 2(r-1)a + g+s     Q6: G > r(g+s) - 2(r-1)a
 *   1 INTER    2ra + G            Q1 !Q2 Q4 | Q1 Q2 Q5 | !Q1 !Q3 Q6 | !Q1 Q3 Q7
 *   2 COMPUTE  2a + g + s + rx    Q1 Q2 !Q5 | !Q1 Q3 !Q7
 *   3 A2A      2ra + g + s        Q1 !Q2 !Q4
 *   4 INTRA    2a + rg + rs       !Q1 !Q3 !Q6
 *
 * The conditions on G compare case 1 with the case without it, so at a fixed r the time is a hinge in G,
 *
 *   t_r(G) = max(c_r, 2ra + G)     c_r: case 3, 2 or 4, chosen by Q1, Q2, Q3 alone
 *
 * and c_r - 2ra is the slack: gradients up to it cost nothing. A simulation of the order above never takes less than
 * these times, and exactly as long where g = s (tests/plan/test_fsmoe.c). With g <> s a gap of the longer one can open
 * on the stream inside nodes, which the paper neglects.
 *
 * Degree. The paper solves each case over real r by SLSQP within the case's constraints (193 ms on average). Its code
 * rounds to 1, 2, 4, 8. Those four are evaluated here: the minimum of the rounded problem, O(log degree_max).
 * (`hecate-bench fsmoe` compares the two.) The code also forces r = 1 where a whole a2a takes less than 1 ms. That is a
 * property of its testbed, not of the model, and left out.
 *
 * Partition, step 1. Layers in backward order, of each the MoE part and then the dense part. A part takes as much of
 * the gradients that were ready before the layer began as fits into its slack. The code keeps leftovers on a stack.
 * Which gradient goes first does not matter to any time, so here they are one pool, and a slot has one all-reduce.
 *
 * Partition, step 2. What fitted nowhere, l_v of slot v with prefix sums L_v, may still be worth the cost somewhere:
 *
 *   minimise  sum_v F_v(law(y_v + w_v)) + law(L_n - sum w)      w_v >= 0, w_1 + .. + w_v <= L_v
 *   F_v(G) = min over r of max(c_r, 2ra + G)                    y_v: what step 1 put there
 *
 * The paper uses differential evolution (random, no bound). F_v rises with slope 0 or 1 but is not convex: a smaller r
 * gives a second flat piece. So greedy and Lagrangian methods can miss. But it depends on one number only. So: dynamic
 * programming over layers and quanta of L_n / Q,
 *
 *   best_v[b] = min over k <= b of best_{v-1}[b - k] + F_v(law(y_v + k q))     b q <= L_v
 *
 * which is exact on the grid and deterministic (ties to fewer quanta). It is at most n * per_unit * q above the optimum
 * over real w. Rounding every w_v down to the grid moves less than q each to the end, where a unit costs per_unit.
 * Nothing else rises, but for the start of the tail. Two plain answers stand beside it: all left to the end, and all
 * in its own slot. The min is taken, as in the paper's "discarded if it does not beat x = leftover".
 * Where the paper charges the rest without the start of its all-reduce, it is charged here: it is an operation like any.
 * L_v is what is left of all ready before v after the slots of step 1. Step 2 may take none of those (suffix minimum
 * of the pool). */
#include "runtime/plan/planners/fsmoe.h"

#include "runtime/base/status.h"

hec_fsmoe_layer hec_fsmoe_folded(const hec_fsmoe_layer *layer) {
  return (hec_fsmoe_layer){.a2a = {layer->a2a.start + (layer->gather.start + layer->scatter.start) / 2,
                                   layer->a2a.volume + (layer->gather.volume + layer->scatter.volume) / 2},
                           .experts = layer->experts};
}

/* The times of one chunk. */
typedef struct {
  double r, a, g, s, x;
} chunk;

static chunk chunk_of(const hec_fsmoe_layer *layer, double degree) {
  return (chunk){degree, hec_fsmoe_chunk(layer->a2a, degree), hec_fsmoe_chunk(layer->gather, degree),
                 hec_fsmoe_chunk(layer->scatter, degree), hec_fsmoe_chunk(layer->experts, degree)};
}

static double case_time(const chunk *c, double reduce, hec_fsmoe_case bound) {
  switch (bound) {
  case HEC_FSMOE_INTER:
    return 2 * c->r * c->a + reduce;
  case HEC_FSMOE_COMPUTE:
    return 2 * c->a + c->g + c->s + c->r * c->x;
  case HEC_FSMOE_A2A:
    return 2 * c->r * c->a + c->g + c->s;
  case HEC_FSMOE_INTRA:
    break;
  }
  HEC_ASSERT(bound == HEC_FSMOE_INTRA);
  return 2 * c->a + c->r * c->g + c->r * c->s;
}

hec_fsmoe_case hec_fsmoe_case_of(const hec_fsmoe_layer *layer, double degree, double reduce) {
  HEC_ASSERT(degree >= 1 && reduce >= 0);
  chunk c = chunk_of(layer, degree);
  double both = 2 * (c.r - 1) * c.a, inside = c.g + c.s, compute = c.r * c.x;
  if (c.a > c.g && !(compute > both))
    return reduce > inside ? HEC_FSMOE_INTER : HEC_FSMOE_A2A;
  if (c.a > c.g || compute > (c.r - 1) * inside)
    return reduce > compute - both + inside ? HEC_FSMOE_INTER : HEC_FSMOE_COMPUTE;
  return reduce > c.r * inside - both ? HEC_FSMOE_INTER : HEC_FSMOE_INTRA;
}

double hec_fsmoe_case_time(const hec_fsmoe_layer *layer, double degree, double reduce, hec_fsmoe_case bound) {
  chunk c = chunk_of(layer, degree);
  return case_time(&c, reduce, bound);
}

typedef struct {
  int32_t min, max;
} degrees;

static hec_fsmoe_choice best_of(const hec_fsmoe_layer *layer, double reduce, degrees between) {
  HEC_ASSERT(between.min >= 1 && between.max >= between.min);
  hec_fsmoe_choice best = {0};
  for (int32_t r = between.min; r <= between.max; r *= 2) {
    hec_fsmoe_case bound = hec_fsmoe_case_of(layer, r, reduce);
    double time = hec_fsmoe_case_time(layer, r, reduce, bound);
    if (r == between.min || time < best.time)
      best = (hec_fsmoe_choice){time, r, bound};
  }
  return best;
}

hec_fsmoe_choice hec_fsmoe_best(const hec_fsmoe_layer *layer, double reduce, int32_t degree_max) {
  return best_of(layer, reduce, (degrees){1, degree_max});
}

double hec_fsmoe_slack(const hec_fsmoe_layer *layer, double degree) {
  hec_fsmoe_case bound = hec_fsmoe_case_of(layer, degree, 0);
  double free_s = hec_fsmoe_case_time(layer, degree, 0, bound) - 2 * degree * hec_fsmoe_chunk(layer->a2a, degree);
  return free_s > 0 ? free_s : 0;
}

/* ---- the gradients ---- */

static double reduce_time(hec_fsmoe_reduce law, double units) {
  return units > 0 ? law.start + units * law.per_unit : 0;
}

/* How many of `pool` units are reduced within `slack`. */
static double units_within(hec_fsmoe_reduce law, double pool, double slack) {
  if (slack <= law.start)
    return 0;
  if (reduce_time(law, pool) <= slack)
    return pool;
  double units = (slack - law.start) / law.per_unit;
  return units < pool ? units : pool;
}

/* Step 1: slots as they cost nothing; pool_at[v]: ready before layer v and put nowhere up to and with it. */
static void fill_slack(const hec_fsmoe_part *parts, int32_t n, hec_fsmoe_reduce law, degrees between,
                       hec_fsmoe_slot *slots, double *pool_at) {
  double pool = 0;
  for (int32_t v = 0; v < n; v++) {
    hec_fsmoe_choice moe = best_of(&parts[v].moe, 0, between);
    double beside_moe = units_within(law, pool, hec_fsmoe_slack(&parts[v].moe, moe.degree));
    double beside_dense = units_within(law, pool - beside_moe, parts[v].dense);
    slots[v] = (hec_fsmoe_slot){beside_moe, beside_dense, moe};
    pool -= beside_moe + beside_dense;
    pool_at[v] = pool;
    pool += parts[v].gradient;
  }
}

typedef struct {
  const hec_fsmoe_part *parts;
  const hec_fsmoe_slot *slots; /* after step 1 */
  int32_t n;
  degrees between;
  hec_fsmoe_reduce law;
} division;

/* F_v with `more` units beside what step 1 put there. */
static hec_fsmoe_choice with_more(const division *d, int32_t v, double more) {
  return best_of(&d->parts[v].moe, reduce_time(d->law, d->slots[v].beside_moe + more), d->between);
}

static double time_of(const division *d, const double *more, double tail) {
  double time = reduce_time(d->law, tail);
  for (int32_t v = 0; v < d->n; v++)
    time += with_more(d, v, more[v]).time;
  return time;
}

/* Step 2 on the grid: more[v] for all v, `left` [n] being L_v and `q` a quantum. Returns the time with `tail_free`
 * units more at the end. `best` [(n + 1) * (Q + 1)], `taken` [n * (Q + 1)]. */
static double spend(const division *d, const double *left, int32_t quanta, double tail_free, double *best,
                    int32_t *taken, double *more) {
  int32_t n = d->n, width = quanta + 1;
  double total = left[n - 1];
  for (int32_t b = 0; b < width; b++)
    best[b] = b == 0 ? 0 : -1; /* -1: cannot be */
  for (int32_t v = 0; v < n; v++) {
    double *row = best + (size_t)(v + 1) * (size_t)width, *before = row - width;
    for (int32_t b = 0; b < width; b++)
      row[b] = -1;
    for (int32_t k = 0; k < width && total * k / quanta <= left[v]; k++) {
      double here = with_more(d, v, total * k / quanta).time;
      for (int32_t b = k; b < width && total * b / quanta <= left[v]; b++)
        if (before[b - k] >= 0 && (row[b] < 0 || before[b - k] + here < row[b])) {
          row[b] = before[b - k] + here;
          taken[(size_t)v * (size_t)width + (size_t)b] = k;
        }
    }
  }
  const double *last = best + (size_t)n * (size_t)width;
  int32_t at = 0;
  double min = -1;
  for (int32_t b = 0; b < width; b++) {
    double time = last[b] + reduce_time(d->law, total * (quanta - b) / quanta + tail_free);
    if (last[b] >= 0 && (min < 0 || time < min)) {
      min = time;
      at = b;
    }
  }
  for (int32_t v = n; v-- > 0;) {
    int32_t k = taken[(size_t)v * (size_t)width + (size_t)at];
    more[v] = total * k / quanta;
    at -= k;
  }
  return min;
}

/* Chooses between the grid and the two plain answers: more[v], and the time of all of it. */
static double leftovers(const division *d, const double *left, int32_t quanta, double tail_free, hec_arena *arena,
                        double *more) {
  int32_t n = d->n, width = quanta + 1;
  double *zero = HEC_NEW(arena, double, n), *own = HEC_NEW(arena, double, n);
  double total = left[n - 1];
  if (!(total > 0))
    return time_of(d, more, tail_free);
  double *best = HEC_NEW(arena, double, (size_t)(n + 1) * (size_t)width);
  int32_t *taken = HEC_NEW(arena, int32_t, (size_t)n * (size_t)width);
  double min = spend(d, left, quanta, tail_free, best, taken, more);
  for (int32_t v = 0; v < n; v++)
    own[v] = left[v] - (v > 0 ? left[v - 1] : 0);
  const double times[2] = {time_of(d, zero, total + tail_free), time_of(d, own, tail_free)};
  for (int32_t i = 0; i < 2; i++)
    if (times[i] < min) {
      min = times[i];
      for (int32_t v = 0; v < n; v++)
        more[v] = i == 0 ? 0 : own[v];
    }
  return min;
}

hec_fsmoe_partition hec_fsmoe_divide(const hec_fsmoe_part *parts, int32_t n, hec_fsmoe_reduce law,
                                     hec_fsmoe_options options, hec_arena *arena, hec_fsmoe_slot *slots) {
  HEC_ASSERT(n > 0 && law.start >= 0 && law.per_unit > 0);
  degrees between = {options.degree_min > 0 ? options.degree_min : 1,
                     options.degree_max > 0 ? options.degree_max : HEC_FSMOE_DEGREE_MAX};
  int32_t quanta = options.quanta > 0 ? options.quanta : HEC_FSMOE_QUANTA;
  hec_arena_mark mark = hec_arena_save(arena);
  double *left = HEC_NEW(arena, double, n), *more = HEC_NEW(arena, double, n);
  fill_slack(parts, n, law, between, slots, left);
  double last = parts[n - 1].gradient; /* ready when nothing is left to hide it */
  for (int32_t v = n - 1; v-- > 0;)
    left[v] = left[v] < left[v + 1] ? left[v] : left[v + 1];
  division d = {parts, slots, n, between, law};
  hec_fsmoe_partition result = {.tail = left[n - 1] + last};
  result.time = leftovers(&d, left, quanta, last, arena, more);
  for (int32_t v = 0; v < n; v++) {
    slots[v].moe = with_more(&d, v, more[v]);
    slots[v].beside_moe += more[v];
    result.tail -= more[v];
  }
  result.tail = result.tail > 0 ? result.tail : 0; /* sums of parts may be off by their last bits */
  hec_arena_rewind(arena, mark);
  return result;
}
