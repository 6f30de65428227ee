/* Training: the loss falls, and it falls the same whatever the policy, the schedule and the number of ranks. What is
 * recorded is what was computed. Gradients: test_language.c. */
#include "tests/exec/train_case.h"
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

HEC_TEST_ONCE(hec_math_open)

static hec_train_wish small(int32_t ranks) {
  hec_train_wish wish = hec_train_small(ranks, 3);
  wish.aux = 0.05F;
  return wish;
}

HEC_TEST(loss_falls) {
  hec_train_wish wish = small(2);
  wish.steps = 150;
  wish.micro_batches = 1;
  wish.check = false;
  hec_train_ends(wish);
  double first = 0, last = 0;
  for (int32_t i = 0; i < 10; i++) {
    first += hec_trained.loss[i] / 10;
    last += hec_trained.loss[140 + i] / 10;
  }
  ck_assert_msg(first > 4 && first < 6, "%g", first); /* about ln of 70 characters, and a half */
  ck_assert_msg(last < 0.75 * first, "from %g to %g", first, last);
}

static const int32_t rank_counts[] = {1, 2, 4};

/* Every policy that can train, under half of the schedules by one number of ranks or another (of those that cut layers into
 * chunks a quarter). Against the reference, and against the losses of all others. */
HEC_TEST_LOOP(every_policy, 3) {
  double loss[3] = {0}, balance[3] = {0};
  int32_t n_trained = 0;
  for (int32_t p = 0; hec_policies[p]; p++)
    for (int32_t s = 0; hec_schedules[s]; s++) {
      if (hec_policies[p]->rewrite || hec_policies[p]->only_schedule || hec_policies[p]->placed ||
          hec_schedules[s]->bound)
        continue;
      if ((p + s + _i) % (hec_schedules[s]->chunked ? 12 : 6) != 0)
        continue;
      hec_train_wish wish = small(rank_counts[_i]);
      wish.policy = hec_policies[p]->name;
      wish.schedule = hec_schedules[s]->name;
      hec_train_passes(wish);
      ck_assert_int_gt(hec_trained.check.compared, 10000);
      for (int32_t i = 0; i < 3; i++) {
        if (n_trained == 0)
          loss[i] = hec_trained.loss[i], balance[i] = hec_trained.balance_loss[i];
        ck_assert_double_le(fabs(hec_trained.loss[i] - loss[i]), 1e-4 * loss[i]);
        ck_assert_double_le(fabs(hec_trained.balance_loss[i] - balance[i]), 1e-3 * balance[i]);
      }
      n_trained++;
    }
  ck_assert_int_ge(n_trained, 8);
}

HEC_TEST(ranks_agree) {
  hec_train_passes(small(1));
  const hec_train_outcome first = hec_trained;
  for (int32_t i = 1; i < 3; i++) {
    hec_train_passes(small(rank_counts[i]));
    for (int32_t step = 0; step < 3; step++) {
      ck_assert_double_le(fabs(hec_trained.loss[step] - first.loss[step]), 1e-4 * first.loss[step]);
      ck_assert_double_le(fabs(hec_trained.balance_loss[step] - first.balance_loss[step]),
                          1e-3 * first.balance_loss[step]);
    }
  }
}

/* The check is worth something: a rank that trains on another text is found. */
HEC_TEST(check_finds_faults) {
  hec_train_wish wish = small(4);
  wish.other_text = true;
  const hec_check_result *check = &hec_trained.check;
  hec_train_ends(wish);
  ck_assert(!check->passed);
  ck_assert_double_gt(check->worst, 10 * check->tolerance);
}

/* An expert's gradient that counts twice in one late step is found in that step's window: at its first step, within it,
 * at its last. The windows before it pass. */
static const int64_t double_steps[] = {11, 16, 20};
HEC_TEST_LOOP(check_finds_late_faults, 3) {
  hec_train_wish wish = small(2);
  wish.steps = 22;
  wish.policy = "hecate";
  wish.double_step = double_steps[_i];
  const hec_check_result *check = &hec_trained.check;
  hec_train_ends(wish);
  ck_assert(!check->passed);
  ck_assert_int_eq(check->windows, 3);
  ck_assert_msg(check->failed_step >= wish.double_step && check->failed_step <= 20, "step %d", (int)check->failed_step);
  ck_assert_double_gt(check->failed_error, check->failed_tolerance);
  ck_assert_int_eq(check->diverged_step, 0);
}

/* However long: rounding does not add up from window to window. The last window is a short one. */
HEC_TEST_LOOP(check_of_many_steps, 2) {
  hec_train_wish wish = small(4);
  wish.steps = 103;
  wish.policy = _i == 0 ? "hecate" : "eplb";
  const hec_check_result *check = &hec_trained.check;
  hec_train_passes(wish);
  ck_assert_int_eq(check->windows, 11);
  ck_assert_int_eq(check->failed_step, 0);
  ck_assert_double_lt(check->worst, check->tolerance / 10);
}

HEC_TEST(check_says_diverged) {
  hec_train_wish wish = small(2);
  wish.steps = 40;
  wish.rate = 30;
  const hec_check_result *check = &hec_trained.check;
  hec_train_ends(wish);
  ck_assert(!check->passed);
  ck_assert_int_gt(check->diverged_step, 1);
  ck_assert_double_gt(check->diverged_loss, HEC_CHECK_EXPLODED * check->first_loss);
  ck_assert_int_eq(check->failed_step, 0);
}

HEC_TEST(window_follows_rate) {
  hec_model model = {.moe = {.d_model = 64, .d_ffn = 100}, .adam = {.rate = 3e-3F}};
  ck_assert_int_eq(hec_check_steps(&model), HEC_CHECK_WINDOW);
  model.adam.rate = 1e-2F; /* 0.1 a step */
  ck_assert_int_eq(hec_check_steps(&model), 3);
  model.adam.rate = 1;
  ck_assert_int_eq(hec_check_steps(&model), 1);
}

/* Experts in shards, each schedule with one size of them: the losses of whole experts, over three windows, after two of
 * which the reference goes on from shards. A gradient of one shard that counts twice is found. */
HEC_TEST_LOOP(shards, 2) {
  hec_train_wish wish = small(4);
  wish.steps = 21;
  hec_train_passes(wish);
  const hec_train_outcome whole = hec_trained;
  wish.esp = 2 << _i;
  for (int32_t s = 0; hec_schedules[s]; s++) {
    if (hec_schedules[s]->bound || (s + _i) % 2 != 0)
      continue;
    wish.schedule = hec_schedules[s]->name;
    hec_train_passes(wish);
    ck_assert_int_eq(hec_trained.check.windows, 3);
    ck_assert_double_lt(hec_trained.check.worst, hec_trained.check.tolerance / 5);
    for (int32_t i = 0; i < wish.steps; i++)
      ck_assert_double_le(fabs(hec_trained.loss[i] - whole.loss[i]), 1e-3 * whole.loss[i]);
  }
  wish.double_step = 15;
  hec_train_ends(wish);
  ck_assert(!hec_trained.check.passed);
  ck_assert_int_gt(hec_trained.check.failed_step, 10);
  wish.policy = "hecate";
  hec_train_refused(wish, "experts in shards beside `esp`");
}

HEC_TEST(threads_and_virtual_time) {
  hec_train_wish wish = small(2);
  wish.threads = true;
  wish.policy = "hecate";
  hec_train_passes(wish);
  wish.virtual_time = true;
  hec_train_passes(wish);
}

/* What cannot be trained is refused with the reason. */
HEC_TEST(refusals) {
  hec_train_wish wish = small(2);
  wish.policy = "ep-balanced";
  hec_train_refused(wish, "ep-balanced cannot train");
  wish = small(2);
  wish.tokens = 20;
  hec_train_refused(wish, "`tokens`: expected a multiple of the sequence length (8, `seq_len`), found 20");
  hec_corpus corpus;
  ck_assert_int_eq(hec_corpus_make("aaaa", 4, "a.txt", &corpus), HEC_BAD_INPUT);
  ck_assert_msg(strstr(hec_last_error(), "a.txt") != NULL, "%s", hec_last_error());
  ck_assert_int_eq(hec_corpus_load("/nowhere/at-all.txt", &corpus), HEC_BAD_INPUT);
  ck_assert_int_eq(hec_corpus_make("abab", 4, "b.txt", &corpus), HEC_OK);
  hec_moe moe = hec_train_moe(small(1));
  hec_model model;
  ck_assert_int_eq(hec_language_make(&moe, corpus.vocabulary, 1e-3F, 1, &model), HEC_OK);
  ck_assert_int_eq(hec_corpus_check(&corpus, &model, 64), HEC_BAD_INPUT);
  hec_corpus_free(&corpus);
}

/* Too little memory: rank, iteration and bytes are named, nothing is recorded. Enough: it runs. */
HEC_TEST(capacity) {
  char path[] = "/tmp/hecate-train-capacity-XXXXXX";
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  ck_assert(close(file) == 0 && unlink(path) == 0);
  hec_train_wish wish = small(2);
  wish.capacity = 100000;
  wish.record = path;
  ck_assert_int_eq(hec_train_launch(wish, &hec_trained), HEC_FAILED);
  const char *message = hec_last_error();
  ck_assert_msg(strncmp(message, "rank ", 5) == 0 && strstr(message, "iteration 0 needs ") &&
                    strstr(message, "capacity of a rank is 100000 bytes"),
                "%s", message);
  ck_assert_int_ne(access(path, F_OK), 0);
  wish.capacity = 50e6;
  wish.record = NULL;
  hec_train_ends(wish);
}

/* ---- The record ---- */

enum { RANKS = 4, LAYERS = 3, EXPERTS = 6, TOP_K = 2, TOKENS = 16, STEPS = 5, MICRO_BATCHES = 2 };

static void sum_loads(const char *path, uint64_t total[LAYERS][EXPERTS],
                      uint64_t count[(LAYERS - 1) * EXPERTS * EXPERTS]) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *record;
  int32_t n = 0;
  ck_assert_msg(hec_trace_open(path, &reader) == HEC_OK, "%s", hec_last_error());
  const hec_trace_header *h = hec_trace_header_of(reader);
  ck_assert(h->per_source && h->transitions && h->ranks == RANKS && h->n_sources == RANKS);
  ck_assert(h->n_layers == LAYERS && h->n_experts == EXPERTS && h->top_k == TOP_K && !h->synthetic);
  ck_assert(h->transitions_over && h->transitions_first == 0 && h->transitions_last == STEPS - 1);
  ck_assert_str_eq(h->name, "test");
  memcpy(count, h->transitions, sizeof(uint64_t[(LAYERS - 1) * EXPERTS * EXPERTS]));
  for (;; n++) {
    ck_assert_msg(hec_trace_next(reader, &record) == HEC_OK, "%s", hec_last_error());
    if (!record)
      break;
    ck_assert_int_eq(record->iter, n / MICRO_BATCHES);
    for (int32_t l = 0; l < LAYERS; l++)
      for (int32_t s = 0; s < RANKS; s++) {
        uint64_t sum = 0;
        for (int32_t e = 0; e < EXPERTS; e++) {
          sum += hec_load_row(&record->load, l, s)[e];
          total[l][e] += hec_load_row(&record->load, l, s)[e];
        }
        ck_assert_uint_eq(sum, TOKENS * TOP_K);
      }
  }
  ck_assert_int_eq(n, STEPS * MICRO_BATCHES);
}

HEC_TEST(record) {
  char path[] = "/tmp/hecate-train-record-XXXXXX";
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  (void)close(file);
  hec_train_wish wish = {.ranks = RANKS,
                         .tokens = TOKENS,
                         .micro_batches = MICRO_BATCHES,
                         .steps = STEPS,
                         .layers = LAYERS,
                         .experts = EXPERTS,
                         .top_k = TOP_K,
                         .record = path};
  hec_train_ends(wish);
  uint64_t count[(LAYERS - 1) * EXPERTS * EXPERTS], total[LAYERS][EXPERTS] = {{0}};
  sum_loads(path, total, count);
  for (int32_t l = 0; l + 1 < LAYERS; l++)
    for (int32_t a = 0; a < EXPERTS; a++) {
      uint64_t row = 0, column = 0;
      for (int32_t b = 0; b < EXPERTS; b++) {
        row += count[(l * EXPERTS + a) * EXPERTS + b];
        column += count[(l * EXPERTS + b) * EXPERTS + a];
      }
      ck_assert_uint_eq(row, TOP_K * total[l][a]);
      ck_assert_uint_eq(column, TOP_K * total[l + 1][a]);
    }
  ck_assert_int_eq(unlink(path), 0);
}
