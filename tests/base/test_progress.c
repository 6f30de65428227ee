/* The line of progress, by a clock that the test sets: when it comes, what it says, and that nothing of it stays. */
#define _GNU_SOURCE /* pipe2 */
#include "runtime/base/progress.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static double now;
static int ends[2];

static double test_clock(void) {
  return now;
}

static void setup(void) {
  ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
  now = 100;
  hec_progress_begin(&(hec_progress_options){.name = "tool", .file = ends[1], .by_hand = true, .now_s = test_clock});
}
HEC_TEST_FIXTURE(setup, NULL)

/* What was written since. */
static const char *seen(void) {
  static char text[4096];
  ssize_t n = read(ends[0], text, sizeof text - 1);
  text[n > 0 ? n : 0] = 0;
  return text;
}

static const char *drawn_at(double seconds) {
  now = seconds;
  hec_progress_draw();
  return seen();
}

#define LINE(words) "\r" words "\033[K"

HEC_TEST(nothing_in_the_first_second) {
  ck_assert_str_eq(drawn_at(100.9), "");
  ck_assert_str_eq(drawn_at(101), LINE("tool: working, 1 s"));
  ck_assert_str_eq(drawn_at(101.1), ""); /* not more often than can be read */
  ck_assert_str_eq(drawn_at(101.3), LINE("tool: working, 1 s"));
}

HEC_TEST(says_what_and_how_far) {
  hec_progress_stage("simulating", "iterations");
  ck_assert_str_eq(drawn_at(102), LINE("tool: simulating, 2 s"));
  hec_progress_doing("planning", "hecate");
  hec_progress_at(2.5, 0, 0);
  ck_assert_str_eq(drawn_at(110), LINE("tool: planning hecate, 2 iterations, 10 s"));
  hec_progress_at(2.5, 10, 0);
  ck_assert_str_eq(drawn_at(120), LINE("tool: planning hecate, 2 of 10 iterations, 25 %, 20 s, about 60 s left"));
  hec_progress_at(7, 10, 6); /* one of its own in 40 s */
  ck_assert_str_eq(drawn_at(140), LINE("tool: planning hecate, 7 of 10 iterations, 70 %, 40 s, about 2 min left"));
  hec_progress_at(10, 10, 0);
  ck_assert_str_eq(drawn_at(141), LINE("tool: planning hecate, 10 of 10 iterations, 100 %, 41 s"));
  hec_progress_stage("writing", NULL);
  ck_assert_str_eq(drawn_at(141.5), "");
  hec_progress_at(1, 1000, 0);
  ck_assert_str_eq(drawn_at(151), LINE("tool: writing, 1 of 1000, 0 %, 10 s, about 3 h left"));
}

HEC_TEST(says_when_it_is_over_at_the_latest) {
  hec_progress_until("measuring", 12, 90);
  ck_assert_str_eq(drawn_at(130), LINE("tool: measuring, 12, 30 s, at most 60 s left"));
  hec_progress_until("measuring", 13, 1e9);
  ck_assert_str_eq(drawn_at(140), LINE("tool: measuring, 13, 40 s"));
}

HEC_TEST(a_line_is_no_longer_than_the_terminal) {
  static const char words[] = "words of which there are too many for a line of eighty columns";
  hec_progress_stage(words, NULL);
  hec_progress_doing(words, words);
  const char *line = drawn_at(105);
  ck_assert_uint_eq(strlen(line), 1 + 79 + strlen("\033[K"));
}

HEC_TEST(is_wiped) {
  (void)drawn_at(105);
  hec_progress_wipe();
  ck_assert_str_eq(seen(), "\r\033[K");
  hec_progress_wipe();
  ck_assert_str_eq(seen(), ""); /* it was not there */
  (void)drawn_at(106);
  hec_progress_end();
  ck_assert_str_eq(seen(), "\r\033[K");
  ck_assert_str_eq(drawn_at(120), "");
  hec_progress_at(1, 2, 0);
  hec_progress_end();
}

HEC_TEST(a_signal_leaves_no_line) {
  (void)drawn_at(105);
  hec_progress_stop();
  ck_assert_str_eq(seen(), "\r\033[K");
  ck_assert_str_eq(drawn_at(110), "");
}

HEC_TEST(after_a_fork_the_parent_is_silent) {
  (void)drawn_at(105);
  pid_t child = fork();
  if (child == 0) {
    hec_progress_stage("replaying", "iterations");
    hec_progress_at(1, 2, 0);
    now = 110;
    hec_progress_draw();
    _exit(0);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_str_eq(seen(), "\r\033[K" LINE("tool: replaying, 1 of 2 iterations, 50 %, 5 s, about 5 s left"));
  ck_assert_str_eq(drawn_at(120), "");
  hec_progress_stage("writing", NULL);
  ck_assert_str_eq(drawn_at(122), LINE("tool: writing, 2 s"));
}
