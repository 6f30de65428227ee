/* Pipelines in the simulator. With equal costs the bubble is the formula of each schedule. With unequal ones: by hand, against
 * an oracle that relaxes all pieces until nothing changes, and what must hold of any costs. */
#include "sim/pipeline_run.h"
#include "tests/support/pipeline_case.h"
#include "tests/support/test.h"

#include <string.h>

HEC_TEST_ARENA(arena)

#define ROWS_OF_TABLE 7 /* of hec_pipeline_schedules; a test says so */
enum { F = HEC_PIECE_FORWARD, I = HEC_PIECE_INPUT_GRADIENT, W = HEC_PIECE_WEIGHT_GRADIENT };

static int32_t n_of(const hec_pipeline_order *o) {
  return o->n_parts * o->shape.n_micro_batches;
}

static hec_piece_cost *equal_costs(const hec_pipeline_order *o, hec_piece_cost cost) {
  hec_piece_cost *costs = HEC_NEW(&arena, hec_piece_cost, n_of(o));
  for (int32_t i = 0; i < n_of(o); i++)
    costs[i] = cost;
  return costs;
}

static hec_pipeline_run run_of(const hec_pipeline_order *o, const hec_pipeline_costs *costs) {
  hec_pipeline_run run;
  ck_ok(hec_pipeline_run_make(o, costs, &arena, &run));
  return run;
}

static int64_t alone(const hec_piece_cost *cost, int kind) {
  return cost->compute_ps[kind] + cost->exchange_ps[kind];
}

/* ---- Equal costs: the formulas of the papers ---- */

/* Costs of a part with input gradients like the forward, so that the published formulas of DualPipe are exact
 * (fold.c). Weight gradients are no longer than either. A pair hides a share of communication. Primes: nothing cancels
 * by chance. */
static const hec_piece_cost equal[] = {
    {{1009, 1009, 1009}, {0, 0, 0}},
    {{1009, 1009, 503}, {0, 0, 0}},
    {{700, 700, 613}, {309, 309, 0}},
    {{500, 500, 401}, {613, 613, 0}},
};
enum { N_EQUAL = sizeof equal / sizeof *equal };

typedef struct {
  int64_t f, b, w, pair; /* forward, input gradient, weight gradient of a part, and a pair of it */
  int32_t p, v;
} formula;

static int64_t bubble_1f1b(formula x) {
  return (x.p - 1) * (x.f + x.b + x.w);
}
static int64_t bubble_interleaved(formula x) {
  return (x.p - 1) * (x.f + x.b + x.w); /* of parts, which are a v-th of a stage */
}
static int64_t bubble_zb_h1(formula x) {
  return (x.p - 1) * (x.f + x.b - x.w);
}
static int64_t bubble_dualpipe(formula x) {
  return (x.p / 2 - 1) * (x.pair + (x.b + x.w) - 3 * x.w); /* as published: B has both gradients there */
}
static int64_t bubble_dualpipev(formula x) {
  return (x.p - 1) * (x.pair + (x.b + x.w) - 3 * x.w);
}

static const struct {
  const char *name;
  int64_t (*bubble)(formula);
  bool alike; /* every device idles as long; otherwise it is the longest, of the one with most pairs */
} formulas[] = {
    {"gpipe", bubble_1f1b, true},
    {"1f1b", bubble_1f1b, true},
    {"interleaved", bubble_interleaved, true},
    {"1f1b-overlap", bubble_interleaved, false},
    {"zb-h1", bubble_zb_h1, true},
    {"dualpipe", bubble_dualpipe, false},
    {"dualpipev", bubble_dualpipev, false},
};

static void bubble_is(const hec_pipeline_order *o, hec_piece_cost cost, int64_t (*bubble)(formula), bool alike) {
  hec_pipeline_run run = run_of(o, &(hec_pipeline_costs){.piece = equal_costs(o, cost)});
  formula x = {alone(&cost, F),   alone(&cost, I),  alone(&cost, W), hec_pair_overlapped_ps(NULL, &cost, &cost),
               o->shape.n_stages, o->shape.n_chunks};
  int64_t longest = 0;
  for (int32_t d = 0; d < x.p; d++) {
    int64_t found = run.device[d].bubble_ps;
    longest = found > longest ? found : longest;
    if (alike)
      ck_assert_int_eq(found, bubble(x));
  }
  ck_assert_msg(longest == bubble(x), "%s p %d v %d m %d: bubble %ld, formula %ld", o->schedule->name, (int)x.p,
                (int)x.v, (int)o->shape.n_micro_batches, (long)longest, (long)bubble(x));
}

HEC_TEST_ROWS(bubble_is_the_formula, formulas) {
  const hec_pipeline_schedule *row = hec_pipeline_find(formulas[_i].name);
  static const int32_t stages[] = {1, 2, 3, 4, 6, 8, 16};
  for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
    for (int32_t v = row->min_chunks < 2 && row->pairs ? 2 : row->min_chunks; v <= row->max_chunks && v <= 4; v++)
      for (int32_t m = 2; m <= 6; m += 2)
        for (int32_t k = 0; k < N_EQUAL; k++) {
          if (stages[i] % row->copies != 0)
            continue;
          hec_pipeline_shape shape = {stages[i], v, m * stages[i], 0};
          hec_pipeline_order o = hec_test_pipeline_order(row->name, shape, &arena);
          bubble_is(&o, equal[k], formulas[_i].bubble, formulas[_i].alike);
        }
}

/* Every row of the table has its formula above. */
HEC_TEST(every_row_has_a_formula) {
  int32_t n = 0;
  while (hec_pipeline_schedules[n])
    n++;
  ck_assert_int_eq(n, sizeof formulas / sizeof *formulas);
  ck_assert_int_eq(n, ROWS_OF_TABLE);
}

/* Where input gradients are longer or shorter than forwards, the published formula of DualPipe is not what its published order
 * gives; fold.c says what does. Whichever device is at the fold idles longest. */
HEC_TEST_LOOP(folds_with_other_costs, 200) {
  uint64_t seed = 4000 + (uint64_t)_i;
  bool half = _i % 2;
  int32_t n = 1 + (int32_t)hec_test_below(&seed, 8), p = half ? n : 2 * n;
  int64_t f = 1 + (int64_t)hec_test_below(&seed, 3000), b = 1 + (int64_t)hec_test_below(&seed, 3000);
  int64_t max = f < b ? f : b, w = 1 + (int64_t)hec_test_below(&seed, (uint64_t)max);
  int64_t x = (int64_t)hec_test_below(&seed, (uint64_t)max);
  hec_piece_cost cost = {{f - x, b - x, w}, {x, x, 0}};
  hec_pipeline_order o =
      hec_test_pipeline_order(half ? "dualpipev" : "dualpipe",
                              (hec_pipeline_shape){p, 2, 2 * p + 2 * (int32_t)hec_test_below(&seed, 5), 0}, &arena);
  hec_pipeline_run run = run_of(&o, &(hec_pipeline_costs){.piece = equal_costs(&o, cost)});
  int64_t ramp = (n - 1) * f, wait = (n - 1) * b - f;
  int64_t expected = (n - 1) * (hec_pair_overlapped_ps(NULL, &cost, &cost) - 2 * w) + (ramp > wait ? ramp : wait);
  ck_assert_int_eq(run.device[n - 1].bubble_ps, expected);
  for (int32_t d = 0; d < p; d++)
    ck_assert_int_le(run.device[d].bubble_ps, expected);
}

/* ---- Unequal costs by hand ---- */

/* 1f1b, 2 stages, 2 micro-batches; F, I + W of (part, micro-batch): (0,0) 3, 4; (0,1) 5, 6; (1,0) 7, 2; (1,1) 1, 8. A send takes 10.
 *
 *   stage 0   F0 0-3     F1 3-8               B0 32-36   B1 41-47       stage 0 sends F0 until 13, F1 until 18
 *   stage 1   F0 13-20   B0 20-22   F1 22-23  B1 23-31                  B0's gradient is there at 32, B1's at 41 */
static const hec_piece_cost small[] = {
    {{3, 3, 1}, {0, 0, 0}}, {{5, 2, 1}, {0, 3, 0}}, {{6, 1, 1}, {1, 0, 0}}, {{1, 3, 5}, {0, 0, 0}}};
static const int64_t small_send[] = {10};

HEC_TEST(small_by_hand) {
  static const int64_t begin[] = {0, 3, 32, 41, 13, 20, 22, 23}, end[] = {3, 8, 36, 47, 20, 22, 23, 31};
  hec_pipeline_order o = hec_test_pipeline_order("1f1b", (hec_pipeline_shape){2, 1, 2, 0}, &arena);
  hec_pipeline_run run = run_of(&o, &(hec_pipeline_costs){.piece = small, .send_ps = small_send});
  for (int32_t i = 0; i < o.n_pieces; i++) {
    ck_assert_int_eq(run.begin_ps[i], begin[i]);
    ck_assert_int_eq(run.end_ps[i], end[i]);
  }
  ck_assert_int_eq(run.step_ps, 47);
  const hec_pipeline_device *d = run.device;
  ck_assert(d[0].begin_ps == 0 && d[0].end_ps == 47 && d[0].busy_ps == 18 && d[0].waiting_ps == 29);
  ck_assert(d[0].sending_ps == 0 && d[0].bubble_ps == 29);
  ck_assert(d[1].begin_ps == 13 && d[1].end_ps == 31 && d[1].busy_ps == 18 && d[1].waiting_ps == 0);
  ck_assert(d[1].bubble_ps == 29);
}

/* The same where sends block: stage 0 F0 0-3, sends to 13, F1 13-18, sends to 28. Stage 1 F0 13-20, B0 20-22, sends to 32, F1
 * 32-33, B1 33-41, sends to 51; stage 0 B0 32-36, B1 51-57. */
HEC_TEST(small_with_sends_that_block) {
  static const int64_t begin[] = {0, 13, 32, 51, 13, 20, 32, 33};
  hec_pipeline_order o = hec_test_pipeline_order("1f1b", (hec_pipeline_shape){2, 1, 2, 0}, &arena);
  hec_pipeline_run run = run_of(&o, &(hec_pipeline_costs){.piece = small, .send_ps = small_send, .send_blocks = true});
  for (int32_t i = 0; i < o.n_pieces; i++)
    ck_assert_int_eq(run.begin_ps[i], begin[i]);
  const hec_pipeline_device *d = run.device;
  ck_assert_int_eq(run.step_ps, 57);
  ck_assert(d[0].sending_ps == 20 && d[0].busy_ps == 18 && d[0].waiting_ps == 19 && d[0].bubble_ps == 19);
  ck_assert(d[1].sending_ps == 20 && d[1].busy_ps == 18 && d[1].waiting_ps == 0 && d[1].bubble_ps == 19);
}

/* A pair: the longest of all compute, all exchange, and each half alone. */
HEC_TEST(pairs_by_hand) {
  static const struct {
    hec_piece_cost forward, backward;
    int64_t overlapped, serial;
  } rows[] = {
      {{{10, 0, 0}, {4, 0, 0}}, {{0, 9, 8}, {0, 5, 0}}, 27, 36},    /* compute 10 + 9 + 8 */
      {{{3, 0, 0}, {20, 0, 0}}, {{0, 2, 1}, {0, 21, 0}}, 41, 47},   /* exchange 20 + 21 */
      {{{10, 0, 0}, {10, 0, 0}}, {{0, 1, 0}, {0, 1, 0}}, 20, 22},   /* the forward alone */
      {{{1, 50, 50}, {2, 9, 9}}, {{70, 8, 7}, {70, 16, 0}}, 31, 34} /* the backward alone; other fields play no part */
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ck_assert_int_eq(hec_pair_overlapped_ps(NULL, &rows[i].forward, &rows[i].backward), rows[i].overlapped);
    ck_assert_int_eq(hec_pair_serial_ps(NULL, &rows[i].forward, &rows[i].backward), rows[i].serial);
  }
}

/* The fold of dualpipev is inside a device: its boundary costs nothing; the one between the stages is crossed there and back. */
HEC_TEST(no_send_inside_a_device) {
  hec_pipeline_order o = hec_test_pipeline_order("dualpipev", (hec_pipeline_shape){2, 2, 4, 0}, &arena);
  hec_piece_cost *costs = equal_costs(&o, (hec_piece_cost){{5, 5, 5}, {0, 0, 0}});
  static const int64_t only_fold[] = {0, 1000, 0}, stages[] = {1000, 0, 0};
  int64_t free_ps = run_of(&o, &(hec_pipeline_costs){.piece = costs}).step_ps;
  ck_assert_int_eq(run_of(&o, &(hec_pipeline_costs){.piece = costs, .send_ps = only_fold}).step_ps, free_ps);
  ck_assert_int_gt(run_of(&o, &(hec_pipeline_costs){.piece = costs, .send_ps = stages}).step_ps, free_ps + 1000);
}

/* The peak of zb-h1's stage 1: F0 0-10 waits for stage 0 until 10; F0 10-20 holds 100, I0 20-30, F1 holds 7 + 30 ... */
HEC_TEST(peak_and_its_moment) {
  static const hec_piece_held each[] = {{1, 0}, {2, 0}, {10, 7}, {130, 5}};
  hec_pipeline_order o = hec_test_pipeline_order("zb-h1", (hec_pipeline_shape){2, 1, 2, 0}, &arena);
  hec_pipeline_run run =
      run_of(&o, &(hec_pipeline_costs){.piece = equal_costs(&o, (hec_piece_cost){{10, 10, 10}, {0, 0, 0}})});
  int64_t held[12];
  hec_pipeline_order_held(&o, each, -1, held);
  hec_pipeline_peak peak = hec_pipeline_peak_of(&o, &run, held, -1);
  ck_assert(peak.device == 1 && peak.held == 137 && peak.at_ps == 30);
  ck_assert_str_eq(hec_test_pipeline_text(&o, 1, &arena), "F0 I0 F1 I1 W0 W1");
  ck_assert_int_eq(peak.piece, o.piece_at[1] + 2);
  peak = hec_pipeline_peak_of(&o, &run, held, 0); /* F0 and F1: from 10 on */
  ck_assert(peak.device == 0 && peak.held == 3 && peak.at_ps == 10);
}

/* ---- Any costs ---- */

typedef struct {
  hec_pipeline_order order;
  hec_pipeline_costs costs;
  hec_piece_cost *piece;
  int64_t *send_ps;
} random_run;

static random_run random_case(int row, uint64_t *seed) {
  const hec_pipeline_schedule *schedule = hec_pipeline_schedules[row];
  random_run r = {.order = hec_test_pipeline_order(schedule->name, hec_test_pipeline_shape(schedule, seed), &arena)};
  r.piece = HEC_NEW(&arena, hec_piece_cost, n_of(&r.order));
  r.send_ps = HEC_NEW(&arena, int64_t, r.order.n_parts);
  uint64_t spread = hec_test_below(seed, 2) ? 1000 : 3; /* many ties, or none */
  for (int32_t i = 0; i < n_of(&r.order); i++)
    for (int k = 0; k < 3; k++) {
      r.piece[i].compute_ps[k] = (int64_t)hec_test_below(seed, spread);
      r.piece[i].exchange_ps[k] = (int64_t)hec_test_below(seed, spread);
    }
  for (int32_t i = 0; i < r.order.n_parts; i++)
    r.send_ps[i] = (int64_t)hec_test_below(seed, spread);
  r.costs = (hec_pipeline_costs){.piece = r.piece,
                                 .pair_ps = hec_test_below(seed, 2) ? NULL : hec_pair_serial_ps,
                                 .send_ps = hec_test_below(seed, 3) ? r.send_ps : NULL,
                                 .send_blocks = hec_test_below(seed, 2)};
  return r;
}

enum { EACH = 60 };
static int row_of(int i) {
  return i % ROWS_OF_TABLE;
}

/* The forward and the backward of a piece, as indices [part][micro-batch]; -1: it has none. */
static void halves(const hec_pipeline_order *o, int32_t device, const hec_pipeline_piece *p, int32_t *forward,
                   int32_t *backward) {
  const int32_t *part = &o->part[device * o->shape.n_chunks];
  int32_t at = part[p->chunk] * o->shape.n_micro_batches + p->micro_batch;
  *forward = p->kind == HEC_PIECE_FORWARD || p->kind == HEC_PIECE_PAIR ? at : -1;
  *backward = p->kind == HEC_PIECE_INPUT_GRADIENT || p->kind == HEC_PIECE_BACKWARD ? at : -1;
  if (p->kind == HEC_PIECE_PAIR)
    *backward = part[p->beside_chunk] * o->shape.n_micro_batches + p->beside_micro_batch;
}

static int64_t cost_of(const random_run *r, const hec_pipeline_piece *p, int32_t forward, int32_t backward) {
  const hec_piece_cost *f = &r->piece[forward < 0 ? 0 : forward], *b = &r->piece[backward < 0 ? 0 : backward];
  int64_t both = alone(b, I) + alone(b, W);
  if (p->kind == HEC_PIECE_PAIR)
    return r->costs.pair_ps ? alone(f, F) + both : hec_pair_overlapped_ps(NULL, f, b);
  return p->kind == HEC_PIECE_FORWARD ? alone(f, F) : p->kind == HEC_PIECE_BACKWARD ? both : alone(b, I);
}

/* The oracle: ends of all pieces, raised until each is its inputs' latest plus its cost (longest paths, Bellman and Ford). */
static int64_t *relaxed(const random_run *r, int64_t *step_ps) {
  const hec_pipeline_order *o = &r->order;
  int32_t m = o->shape.n_micro_batches;
  int64_t *end = HEC_NEW(&arena, int64_t, o->n_pieces), *out = HEC_NEW(&arena, int64_t, n_of(o)),
          *gradient = HEC_NEW(&arena, int64_t, n_of(o));
  for (bool changed = true; changed;) {
    changed = false;
    *step_ps = 0;
    for (int32_t d = 0; d < o->shape.n_stages; d++) {
      int64_t free_ps = 0;
      for (int32_t i = o->piece_at[d]; i < o->piece_at[d + 1]; i++) {
        const hec_pipeline_piece *p = &o->piece[i];
        int32_t f, b;
        int64_t begin = free_ps, sent = 0, cost;
        halves(o, d, p, &f, &b);
        cost = p->kind == HEC_PIECE_WEIGHT_GRADIENT
                   ? alone(&r->piece[o->part[d * o->shape.n_chunks + p->chunk] * m + p->micro_batch], W)
                   : cost_of(r, p, f, b);
        if (f >= m) {
          int64_t at = out[f - m] + (r->costs.send_ps && o->device[f - m] != d ? r->send_ps[f / m - 1] : 0);
          begin = at > begin ? at : begin;
        }
        if (b >= 0 && b + m < n_of(o)) {
          int64_t at = gradient[b + m] + (r->costs.send_ps && o->device[b + m] != d ? r->send_ps[b / m] : 0);
          begin = at > begin ? at : begin;
        }
        changed |= end[i] != begin + cost;
        end[i] = begin + cost;
        if (f >= 0) {
          out[f] = end[i];
          if (r->costs.send_ps && f + m < n_of(o) && o->device[f + m] != d)
            sent = r->send_ps[f / m];
        }
        if (b >= 0) {
          gradient[b] = end[i];
          if (r->costs.send_ps && b >= m && o->device[b - m] != d && r->send_ps[b / m - 1] > sent)
            sent = r->send_ps[b / m - 1];
        }
        free_ps = end[i] + (r->costs.send_blocks ? sent : 0);
      }
      *step_ps = free_ps > *step_ps ? free_ps : *step_ps;
    }
  }
  return end;
}

HEC_TEST_LOOP(as_the_oracle, ROWS_OF_TABLE *EACH) {
  uint64_t seed = 100 + (uint64_t)_i;
  random_run r = random_case(row_of(_i), &seed);
  hec_pipeline_run run = run_of(&r.order, &r.costs);
  int64_t step_ps, *end = relaxed(&r, &step_ps);
  for (int32_t i = 0; i < r.order.n_pieces; i++)
    ck_assert_int_eq(run.end_ps[i], end[i]);
  ck_assert_int_eq(run.step_ps, step_ps);
}

/* In order and one at a time on each device; nothing before its inputs; the books of each device close. */
static void in_order(const hec_pipeline_order *o, const hec_pipeline_run *run) {
  for (int32_t d = 0; d < o->shape.n_stages; d++) {
    const hec_pipeline_device *device = &run->device[d];
    int64_t busy = 0;
    for (int32_t i = o->piece_at[d]; i < o->piece_at[d + 1]; i++) {
      ck_assert_int_ge(run->begin_ps[i], i == o->piece_at[d] ? 0 : run->end_ps[i - 1]);
      busy += run->end_ps[i] - run->begin_ps[i];
    }
    ck_assert_int_eq(busy, device->busy_ps);
    ck_assert_int_eq(device->busy_ps + device->sending_ps + device->bubble_ps, run->step_ps);
    ck_assert(device->waiting_ps >= 0 && device->bubble_ps >= device->waiting_ps);
  }
}

/* When forwards and backwards end; each no earlier than its inputs. */
static void after_inputs(const hec_pipeline_order *o, const hec_pipeline_run *run) {
  int32_t m = o->shape.n_micro_batches, n = n_of(o);
  int64_t *begin = HEC_NEW(&arena, int64_t, 2 * n), *end = HEC_NEW(&arena, int64_t, 2 * n);
  for (int32_t d = 0; d < o->shape.n_stages; d++)
    for (int32_t i = o->piece_at[d]; i < o->piece_at[d + 1]; i++) {
      int32_t of[2];
      halves(o, d, &o->piece[i], &of[0], &of[1]);
      for (int h = 0; h < 2; h++)
        if (of[h] >= 0)
          begin[h * n + of[h]] = run->begin_ps[i], end[h * n + of[h]] = run->end_ps[i];
    }
  for (int32_t i = 0; i < n; i++) {
    ck_assert(i < m || begin[i] >= end[i - m]);
    ck_assert_int_ge(begin[n + i], end[i]);
    ck_assert(i + m >= n || begin[n + i] >= end[n + i + m]);
  }
}

/* No step is shorter than the way of any micro-batch through all parts and back. Nor is it shorter than the work of
 * any device if all communication hides behind compute or the other way round. */
static int64_t bound(const random_run *r) {
  const hec_pipeline_order *o = &r->order;
  int32_t m = o->shape.n_micro_batches;
  int64_t max = 0;
  for (int32_t b = 0; b < m; b++) {
    int64_t way = 0;
    for (int32_t part = 0; part < o->n_parts; part++)
      way += alone(&r->piece[part * m + b], F) + alone(&r->piece[part * m + b], I);
    max = way > max ? way : max;
  }
  for (int32_t d = 0; d < o->shape.n_stages; d++) {
    int64_t compute = 0, exchange = 0;
    for (int32_t i = 0; i < n_of(o); i++)
      for (int k = 0; k < 3 && o->device[i] == d; k++) {
        compute += r->piece[i].compute_ps[k];
        exchange += r->piece[i].exchange_ps[k];
      }
    max = compute > max ? compute : max;
    max = exchange > max ? exchange : max;
  }
  return max;
}

HEC_TEST_LOOP(any_costs, ROWS_OF_TABLE *EACH) {
  uint64_t seed = 900 + (uint64_t)_i;
  random_run r = random_case(row_of(_i), &seed);
  hec_pipeline_run run = run_of(&r.order, &r.costs);
  int64_t all = 0, busy = 0;
  in_order(&r.order, &run);
  after_inputs(&r.order, &run);
  ck_assert_int_ge(run.step_ps, bound(&r));
  for (int32_t i = 0; i < n_of(&r.order); i++)
    all += alone(&r.piece[i], F) + alone(&r.piece[i], I) + alone(&r.piece[i], W);
  for (int32_t d = 0; d < r.order.shape.n_stages; d++)
    busy += run.device[d].busy_ps;
  if (!r.order.schedule->pairs || r.costs.pair_ps) /* no work is lost or done twice */
    ck_assert_int_eq(busy, all);
  else
    ck_assert_int_le(busy, all);
  if (r.order.shape.n_stages == 1) {
    ck_assert_int_eq(run.step_ps, busy);
    ck_assert_int_eq(run.device[0].bubble_ps, 0);
  }
}

/* Any cost that shrinks leaves every end where it is or earlier. */
HEC_TEST_LOOP(cheaper_is_not_later, ROWS_OF_TABLE *EACH) {
  uint64_t seed = 7000 + (uint64_t)_i;
  random_run r = random_case(row_of(_i), &seed);
  hec_pipeline_run before = run_of(&r.order, &r.costs);
  for (int k = 0; k < 10; k++) {
    hec_piece_cost *cost = &r.piece[hec_test_below(&seed, (uint64_t)n_of(&r.order))];
    int64_t *one = hec_test_below(&seed, 2) ? &cost->compute_ps[hec_test_below(&seed, 3)]
                                            : &cost->exchange_ps[hec_test_below(&seed, 3)];
    if (hec_test_below(&seed, 5) == 0)
      one = &r.send_ps[hec_test_below(&seed, (uint64_t)r.order.n_parts)];
    *one -= (int64_t)hec_test_below(&seed, (uint64_t)*one + 1);
    hec_pipeline_run after = run_of(&r.order, &r.costs);
    for (int32_t i = 0; i < r.order.n_pieces; i++)
      ck_assert_int_le(after.end_ps[i], before.end_ps[i]);
    ck_assert_int_le(after.step_ps, before.step_ps);
    before = after;
  }
}

/* ---- Orders that wait in a circle ---- */

/* Each of the two stages does the backward that the other needs last: correct on each device, but nobody can begin. */
HEC_TEST(a_circle_is_told) {
  hec_pipeline_order o = hec_test_pipeline_order("1f1b", (hec_pipeline_shape){2, 1, 2, 0}, &arena);
  hec_pipeline_run run;
  hec_pipeline_piece *piece = o.piece; /* F0 F1 B0 B1, F0 B0 F1 B1 becomes F0 B0 F1 B1, F1 B1 F0 B0 */
  hec_pipeline_piece f1 = piece[1], b0 = piece[2];
  piece[1] = b0;
  piece[2] = f1;
  hec_pipeline_piece second[] = {piece[6], piece[7], piece[4], piece[5]};
  memcpy(&piece[4], second, sizeof second);
  ck_ok(hec_pipeline_order_check(&o));
  hec_pipeline_costs costs = {.piece = equal_costs(&o, (hec_piece_cost){{1, 1, 1}, {0, 0, 0}})};
  ck_assert_int_eq(hec_pipeline_run_make(&o, &costs, &arena, &run), HEC_FAILED);
  ck_assert_str_eq(hec_last_error(),
                   "pipeline 1f1b: stages wait for each other: stage 0 has run 1 of 4 pieces and waits "
                   "for the input of the backward of micro-batch 0, virtual stage 0; this is a bug of the schedule");
}

/* A backward whose own forward comes later can never run, also with nobody else to wait for. */
HEC_TEST(its_own_forward_is_waited_for) {
  hec_pipeline_order o = hec_test_pipeline_order("gpipe", (hec_pipeline_shape){1, 1, 1, 0}, &arena);
  hec_pipeline_run run;
  hec_pipeline_piece forward = o.piece[0];
  o.piece[0] = o.piece[1];
  o.piece[1] = forward;
  hec_pipeline_costs costs = {.piece = equal_costs(&o, (hec_piece_cost){{1, 1, 1}, {0, 0, 0}})};
  ck_assert_int_eq(hec_pipeline_run_make(&o, &costs, &arena, &run), HEC_FAILED);
  ck_assert_ptr_nonnull(
      strstr(hec_last_error(), "stage 0 has run 0 of 2 pieces and waits for the input of the backward"));
}
