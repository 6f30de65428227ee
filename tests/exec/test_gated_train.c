/* Training with every gate: against the reference, alike for every number of ranks, with what balancing and capacities
 * do to loads. Faults in a gate are found. */
#include "runtime/exec/model/gate.h"
#include "tests/exec/train_case.h"
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

HEC_TEST_ONCE(hec_math_open)

static hec_train_wish small(int32_t ranks, const char *gate) {
  hec_train_wish wish = hec_train_small(ranks, 12);
  wish.gate = gate;
  return wish;
}

static double mean(const double *of, int32_t begin, int32_t end) {
  double sum = 0;
  for (int32_t i = begin; i < end; i++)
    sum += of[i];
  return sum / (end - begin);
}

/* ---- The reference ---- */

/* A gate with what it allows: with and without a loss or a bias. Groups of 16: the same for 1, 2 and 4 ranks. Where tokens
 * compete, rounding may decide between two on another machine than ours: then one of 16 tokens is another. */
static const struct {
  const char *gate;
  float aux, bias_rate;
  bool competes;
} runs[] = {{"softmax", 0, 0.01F, false},
            {"sigmoid", 0, 0, false},
            {"sigmoid", 0.05F, 0.01F, false},
            {"gshard:group=16", 0.05F, 0, false},
            {"gshard:group=16,capacity=0.6", 0, 0, false},
            {"xmoe", 0.05F, 0, false},
            {"xmoe:rank=4,temperature=0.3", 0, 0.01F, false},
            {"expert-choice:group=16", 0, 0, true}};
enum { N_RUNS = sizeof runs / sizeof *runs };

static const char *const policies[] = {"ep", "hecate", "eplb"};
static const int32_t rank_counts[] = {1, 2, 4};

/* The same with every number of ranks and policy. Every dropped assignment and token without an expert, and losses up to
 * rounding (the first step: training amplifies it afterwards). */
HEC_TEST_LOOP(agrees_with_the_reference, N_RUNS) {
  double loss = 0, dropped = 0, unrouted = 0;
  for (int32_t i = 0; i < 3; i++) {
    hec_train_wish wish = small(rank_counts[i], runs[_i].gate);
    wish.aux = runs[_i].aux;
    wish.bias_rate = runs[_i].bias_rate;
    wish.policy = policies[i];
    wish.threads = i == 1;
    hec_train_passes(wish);
    ck_assert_int_eq(hec_trained.check.windows, 2);
    if (i == 0)
      loss = hec_trained.loss[0], dropped = hec_trained.dropped[0], unrouted = hec_trained.unrouted[0];
    ck_assert_double_eq_tol(hec_trained.loss[0], loss, (runs[_i].competes ? 1e-3 : 1e-5) * loss);
    ck_assert_double_eq_tol(hec_trained.dropped[0], dropped, 1e-12);
    ck_assert_double_eq_tol(hec_trained.unrouted[0], unrouted, runs[_i].competes ? 0.02 : 1e-12);
    ck_assert_double_ge(hec_trained.overload[0], 1);
  }
}

/* What one rank does otherwise is seen: another capacity, another temperature, another step of the bias. */
static const struct {
  const char *gate, *other;
  float bias_rate, other_bias;
} faults[] = {{"gshard:capacity=0.8", "gshard:capacity=0.7", 0, 0},
              {"gshard:group=16", "gshard:group=8", 0, 0},
              {"xmoe:temperature=0.3", "xmoe:temperature=0.301", 0, 0},
              {"expert-choice", "expert-choice:capacity=0.9", 0, 0},
              {"sigmoid", NULL, 0.05F, 0.2F}};

HEC_TEST_LOOP(faults_are_found, 5) {
  hec_train_wish wish = small(2, faults[_i].gate);
  wish.bias_rate = faults[_i].bias_rate;
  wish.other_bias = faults[_i].other_bias;
  wish.other_gate = faults[_i].other;
  hec_train_ends(wish);
  ck_assert_msg(!hec_trained.check.passed, "%s", wish.gate);
}

/* ---- Loads ---- */

HEC_TEST(expert_choice_is_even) {
  hec_train_wish wish = small(2, "expert-choice");
  wish.experts = 8;
  wish.steps = 20;
  hec_train_ends(wish);
  for (int32_t i = 0; i < wish.steps; i++) {
    ck_assert(hec_trained.expert_overload[i] == 1);
    ck_assert(hec_trained.overload[i] == 1); /* four experts a rank */
    ck_assert(hec_trained.dropped[i] == 0);
  }
  double unrouted = mean(hec_trained.unrouted, 0, wish.steps);
  ck_assert_msg(unrouted > 0 && unrouted < 0.9, "%g", unrouted);
}

/* The tighter the capacity the more is dropped; none where an expert has room for everything. */
HEC_TEST(dropped_shares) {
  static const char *const gates[] = {"gshard:capacity=3", "gshard:capacity=1", "gshard:capacity=0.5",
                                      "gshard:capacity=0.25"};
  double before = -1;
  for (int i = 0; i < 4; i++) {
    hec_train_wish wish = small(2, gates[i]);
    wish.check = false;
    hec_train_ends(wish);
    double dropped = mean(hec_trained.dropped, 0, wish.steps);
    if (i == 0)
      ck_assert(dropped == 0 && mean(hec_trained.unrouted, 0, wish.steps) == 0);
    ck_assert_msg(dropped > before, "%s: %g, before %g", gates[i], dropped, before);
    before = dropped;
  }
  ck_assert_double_gt(before, 0.3);
  ck_assert_double_gt(mean(hec_trained.unrouted, 0, 12), 0.2);
}

/* A skewed text: the bias takes the overload away, and the loss falls all the same. */
HEC_TEST_LOOP(bias_balances, 2) {
  static const char *const gates[] = {"sigmoid", "softmax"};
  double overload[2];
  for (int biased = 0; biased < 2; biased++) {
    hec_train_wish wish = small(2, gates[_i]);
    wish.skewed = true;
    wish.check = false;
    wish.micro_batches = 1;
    wish.tokens = 128;
    wish.experts = 8;
    wish.steps = 140;
    wish.bias_rate = biased ? 0.01F : 0;
    hec_train_ends(wish);
    overload[biased] = mean(hec_trained.expert_overload, 110, 140);
    double first = mean(hec_trained.loss, 0, 5), last = mean(hec_trained.loss, 110, 140);
    printf("%s biased %d: expert overload %.3f at first %.3f, ranks %.3f, loss %.3f to %.3f\n", gates[_i], biased,
           overload[biased], mean(hec_trained.expert_overload, 0, 10), mean(hec_trained.overload, 110, 140), first,
           last);
    ck_assert_msg(last < 0.6 * first, "from %g to %g", first, last);
  }
  ck_assert_msg(overload[1] - 1 < 0.65 * (overload[0] - 1), "%g, with a bias %g", overload[0], overload[1]);
}

/* What cannot be balanced so is refused. */
HEC_TEST(refusals) {
  hec_train_wish wish = small(2, "gshard");
  wish.bias_rate = 0.01F;
  hec_train_refused(wish, "`balance` bias: gate gshard does not");
  wish = small(2, "expert-choice");
  wish.aux = 0.01F;
  hec_train_refused(wish, "balanced by construction");
  wish = small(2, "expert-choice:group=24");
  hec_train_refused(wish, "a divisor of the tokens of a rank (32), found 24");
}

/* The record says that it counts what was kept; transitions pair the experts that a token has. */
HEC_TEST_LOOP(record_of_what_was_kept, 2) {
  char path[] = "/tmp/hecate-gated-record-XXXXXX";
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  (void)close(file);
  hec_train_wish wish = small(2, _i == 0 ? "gshard:capacity=0.5" : "expert-choice");
  wish.record = path;
  hec_train_ends(wish);
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record;
  ck_assert_msg(hec_trace_open(path, &reader) == HEC_OK, "%s", hec_last_error());
  ck_assert_int_eq(hec_trace_header_of(reader)->counted, _i == 0 ? HEC_COUNTED_AFTER_DROP : HEC_COUNTED_UNKNOWN);
  ck_assert(hec_trace_header_of(reader)->transitions != NULL);
  for (int32_t i = 0; i < wish.steps * wish.micro_batches; i++) {
    ck_assert_int_eq(hec_trace_next(reader, &record), HEC_OK);
    ck_assert_ptr_nonnull(record);
    for (int32_t l = 0; l < wish.layers; l++)
      for (int32_t e = 0; e < wish.experts; e++)
        for (int32_t s = 0; s < wish.ranks; s++) { /* room: ceil(0.5 * 64 / 6), floor(64 / 6) */
          uint32_t n = hec_load_row(&record->load, l, s)[e];
          ck_assert(_i == 0 ? n <= 6 : n == 10);
        }
  }
  ck_assert_int_eq(unlink(path), 0);
}
