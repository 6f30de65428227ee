/* Steps as objects, over every policy of the public interface: several alive, refined in another order than begun and again;
 * dispatch and routes against split. Saved planners: restored on the same ranks, all later plans and moves are those of the
 * planner that went on. On other ranks the past loads are taken over. Damaged states are refused. */
#include "tests/exec/public_case.h"
#include "tests/support/random_problem.h"

#include <string.h>

enum { LAYERS = 2, EXPERTS = 12, RANKS = 8, CELLS = RANKS * EXPERTS };

static hec_planner_options options_of(const char *policy) {
  hec_planner_options o = hec_planner_defaults();
  o.policy = policy;
  o.cluster = "2x4 nvlink=300G@2us nic=50G@5us flops=312T mem=40G";
  o.n_layers = LAYERS;
  o.n_experts = EXPERTS;
  o.top_k = 2;
  o.d_model = o.d_ffn = 256;
  o.tokens = 1024;
  o.period = 2;
  o.ep = below(2) ? RANKS : 4;
  o.window_s = 1e-4;
  return o;
}

typedef uint32_t counts_of_step[LAYERS][CELLS];

static void random_counts(counts_of_step counts) {
  for (int32_t l = 0; l < LAYERS; l++)
    for (int32_t i = 0, hot = below(EXPERTS); i < CELLS; i++)
      counts[l][i] = below(4) ? (uint32_t)below(i % EXPERTS == hot ? 900 : 60) : 0;
}

static void check_dispatch(hec_planner *planner, hec_step *step, int32_t layer) {
  static uint32_t all[RANKS * CELLS], send[CELLS], receive[CELLS];
  OK(hec_step_dispatch(step, layer, all));
  for (int32_t s = 0; s < RANKS; s++)
    for (int32_t e = 0; e < EXPERTS; e++) {
      int32_t ranks[RANKS], n;
      uint32_t tokens[RANKS], wanted[RANKS] = {0};
      OK(hec_planner_split(planner, layer, s, e, ranks, tokens, &n));
      for (int32_t i = 0; i < n; i++)
        wanted[ranks[i]] = tokens[i];
      ck_assert_mem_eq(all + (s * EXPERTS + e) * RANKS, wanted, sizeof wanted);
    }
  for (int32_t rank = 0; rank < RANKS; rank++) {
    OK(hec_step_routes(step, layer, rank, send, receive));
    ck_assert_mem_eq(send, all + rank * CELLS, sizeof send);
    for (int32_t i = 0; i < CELLS; i++)
      ck_assert_uint_eq(receive[i], all[i * RANKS + rank]);
  }
}

/* One planner refines each step at once, the other all of an iteration in reverse order and again. */
static void in_flight(const hec_planner_options *o) {
  enum { FLIGHT = 3 };
  counts_of_step counts[FLIGHT];
  hec_planner *one, *other;
  hec_step *step[FLIGHT], *same[FLIGHT];
  uint64_t digest[FLIGHT];
  OK(hec_planner_open(o, &one));
  OK(hec_planner_open(o, &other));
  for (int32_t i = 0; i < 4; i++) {
    for (int32_t k = 0; k < FLIGHT; k++) {
      random_counts(counts[k]);
      OK(hec_planner_begin(other, i, k, &step[k]));
    }
    for (int32_t k = 0; k < FLIGHT; k++) {
      OK(hec_planner_begin(one, i, k, &same[k]));
      for (int32_t l = 0; l < LAYERS; l++)
        OK(hec_step_refine(same[k], l, counts[k][l]));
      digest[k] = hec_step_digest(same[k]);
    }
    for (int32_t k = FLIGHT - 1; k >= 0; k--)
      for (int32_t l = 0; l < LAYERS; l++)
        OK(hec_step_refine(step[k], l, counts[k][l]));
    for (int32_t k = 0; k < FLIGHT; k++) {
      ck_assert_uint_eq(hec_step_digest(step[k]), digest[k]);
      OK(hec_step_refine(step[k], 0, counts[(k + 1) % FLIGHT][0])); /* other counts, then those again */
      OK(hec_step_count(step[k], 0, counts[k][0]));
      OK(hec_step_refine(step[k], 0, counts[k][0]));
      ck_assert_uint_eq(hec_step_digest(step[k]), digest[k]);
      OK(hec_step_end(step[k], NULL));
      REFUSED(hec_step_end(step[k], NULL), "ended before");
      hec_step_release(step[k]);
      REFUSED(hec_step_refine(step[k], 0, counts[k][0]), "released");
    }
    for (int32_t k = 0; k < FLIGHT; k++) {
      OK(hec_step_end(same[k], counts[k][0]));
      hec_step_release(same[k]);
    }
  }
  hec_planner_close(one);
  hec_planner_close(other);
}

HEC_TEST_LOOP(steps_in_flight, hec_test_cases(6)) {
  seed = 900 + (uint64_t)_i;
  hec_planner_options o;
  for (int32_t p = 0; hec_policy_name(p, NULL, NULL); p++) {
    o = options_of(hec_policy_name(p, NULL, NULL));
    in_flight(&o);
  }
}

HEC_TEST(dispatch_is_split) {
  seed = 17;
  counts_of_step counts;
  for (int32_t p = 0; hec_policy_name(p, NULL, NULL); p++) {
    hec_planner_options o = options_of(hec_policy_name(p, NULL, NULL));
    HEC_OPENED(hec_planner) *planner = NULL;
    hec_step *step;
    OK(hec_planner_open(&o, &planner));
    for (int32_t i = 0; i < 4; i++) {
      random_counts(counts);
      OK(hec_planner_step(planner, i, 0));
      OK(hec_planner_begin(planner, i, 1, &step)); /* decides the same: nothing has passed since */
      for (int32_t l = 0; l < LAYERS; l++) {
        OK(hec_planner_refine(planner, l, counts[l]));
        OK(hec_step_refine(step, l, counts[l]));
        if (hec_step_digest(step) == hec_planner_digest(planner))
          check_dispatch(planner, step, l);
      }
      ck_assert_uint_eq(hec_step_digest(step), hec_planner_digest(planner));
      hec_step_release(step);
      OK(hec_planner_end(planner, NULL));
    }
  }
}

/* ---- Saved ---- */

static void go_on(hec_planner *planner, int32_t iteration, counts_of_step counts) {
  OK(hec_planner_step(planner, iteration, 0));
  for (int32_t l = 0; l < LAYERS; l++)
    OK(hec_planner_refine(planner, l, counts[l]));
  OK(hec_planner_end(planner, NULL));
}

static uint8_t *save(const hec_planner *planner, size_t *bytes) {
  size_t written;
  OK(hec_planner_save(planner, NULL, 0, bytes));
  uint8_t *state = malloc(*bytes);
  REFUSED(hec_planner_save(planner, state, *bytes - 1, &written), "room for");
  OK(hec_planner_save(planner, state, *bytes, &written));
  ck_assert_uint_eq(written, *bytes);
  return state;
}

static void same_moves(const hec_planner *a, const hec_planner *b) {
  size_t n, n_b;
  const hec_planner_move *move = hec_planner_moves(a, &n), *move_b = hec_planner_moves(b, &n_b);
  ck_assert_uint_eq(n, n_b);
  if (n > 0)
    ck_assert_mem_eq(move, move_b, n * sizeof *move);
}

HEC_TEST_LOOP(restored_goes_on, hec_test_cases(6)) {
  seed = 40 + (uint64_t)_i;
  counts_of_step counts;
  for (int32_t p = 0; hec_policy_name(p, NULL, NULL); p++) {
    hec_planner_options o = options_of(hec_policy_name(p, NULL, NULL));
    hec_planner *planner, *restored;
    OK(hec_planner_open(&o, &planner));
    int32_t n = below(9);
    for (int32_t i = 0; i < n; i++) {
      random_counts(counts);
      go_on(planner, i, counts);
    }
    size_t bytes;
    int32_t same = -1;
    uint8_t *state = save(planner, &bytes);
    OK(hec_planner_open(&o, &restored));
    OK(hec_planner_restore(restored, state, bytes, &same));
    ck_assert_int_eq(same, 1);
    free(state);
    for (int32_t i = n; i < n + 8; i++) {
      random_counts(counts);
      go_on(planner, i, counts);
      go_on(restored, i, counts);
      ck_assert_msg(hec_planner_digest(planner) == hec_planner_digest(restored), "%s differs %d steps after", o.policy,
                    i - n);
      same_moves(planner, restored);
    }
    hec_planner_close(planner);
    hec_planner_close(restored);
  }
}

/* On 4 ranks instead of 8 the loads of the past are there: hecate moves the hot experts apart in the very first step. */
HEC_TEST(restored_on_other_ranks) {
  seed = 5;
  counts_of_step counts = {{0}};
  hec_planner_options o = options_of("hecate:period=1");
  hec_planner *planner, *smaller;
  o.ep = RANKS;
  for (int32_t l = 0; l < LAYERS; l++)
    for (int32_t s = 0; s < RANKS; s++)
      for (int32_t e = 0; e < EXPERTS; e++)
        counts[l][s * EXPERTS + e] = e < 3 ? 400 : 5; /* experts 0, 1, 2 share a rank of four at the beginning */
  OK(hec_planner_open(&o, &planner));
  for (int32_t i = 0; i < 3; i++)
    go_on(planner, i, counts);
  size_t bytes;
  int32_t same = -1;
  uint8_t *state = save(planner, &bytes);
  o.n_ranks = o.ep = 4;
  OK(hec_planner_open(&o, &smaller));
  OK(hec_planner_restore(smaller, state, bytes, &same));
  ck_assert_int_eq(same, 0);
  REFUSED(hec_planner_step(smaller, 1, 0), "iteration >= 2");
  OK(hec_planner_step(smaller, 3, 0));
  hec_plan_view v;
  hec_planner_view(smaller, &v);
  for (int32_t l = 0; l < LAYERS; l++)
    ck_assert(v.home[l * EXPERTS] != v.home[l * EXPERTS + 1] && v.home[l * EXPERTS] != v.home[l * EXPERTS + 2] &&
              v.home[l * EXPERTS + 1] != v.home[l * EXPERTS + 2]);
  REFUSED(hec_planner_restore(smaller, state, bytes, &same), "no step yet");
  hec_planner_close(smaller);
  hec_planner_close(planner);
  free(state);
}

HEC_TEST(restore_refuses) {
  seed = 6;
  counts_of_step counts;
  hec_planner_options o = options_of("hecate");
  hec_planner *planner, *fresh;
  size_t bytes;
  OK(hec_planner_open(&o, &planner));
  OK(hec_planner_step(planner, 0, 0));
  REFUSED(hec_planner_save(planner, NULL, 0, &bytes), "in progress");
  random_counts(counts);
  OK(hec_planner_end(planner, counts[0]));
  uint8_t *state = save(planner, &bytes);
  OK(hec_planner_open(&o, &fresh));
  uint64_t before = hec_planner_digest(fresh);
  REFUSED(hec_planner_restore(fresh, "nonsense", 8, NULL), "other bytes");
  REFUSED(hec_planner_restore(fresh, state, bytes / 2, NULL), "cut off");
  state[bytes - 1 - (size_t)below(1000)] ^= 1;
  REFUSED(hec_planner_restore(fresh, state, bytes, NULL), "damaged");
  ck_assert_uint_eq(hec_planner_digest(fresh), before);
  hec_planner_close(fresh);
  o.n_layers++;
  OK(hec_planner_open(&o, &fresh));
  REFUSED(hec_planner_restore(fresh, state, bytes, NULL), "state of 3 layers");
  hec_planner_close(fresh);
  hec_planner_close(planner);
  free(state);
}
