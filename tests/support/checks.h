/* Checks that tests share, and what they say when they fail. */
#pragma once
#include "runtime/base/status.h"
#include "tests/support/check_main.h"

/* `call` gives HEC_OK; or HEC_BAD_INPUT, and the message has `words`. */
#define ck_ok(call) ck_assert_msg((call) == HEC_OK, "%s", hec_last_error())
#define ck_refused(call, words) hec_test_refused(call, #call, words)
void hec_test_refused(hec_status status, const char *call, const char *words);
/* Within a billionth of a thousandth of it, or of 1. */
void ck_near(double found, double expected);
/* The text with a quote for every backquote, so that JSON can be read in C; one of eight buffers in turn. */
const char *hec_test_quoted(const char *text);

/* `run` with its allocation number k failing, for k = 1, 3, 5, ... until it comes through, with HEC_OK: the end of the test,
 * whose process leaves what was allocated. */
void hec_test_no_memory(hec_status (*run)(uint64_t k));

/* What test.h notes of each test before `main`, and the tests of a file run. */
typedef struct hec_test_row {
  const char *file;  /* its tests are run together */
  const TTest *test; /* NULL: something around the tests, below */
  int n, signal;     /* n times; the signal to end with, 0 for none */
  void (*setup)(void), (*teardown)(void), (*once)(void);
  const char *(*lacks)(void); /* NULL: nothing, else why the tests cannot run */
  struct hec_test_row *next;
} hec_test_row;

void hec_test_add(hec_test_row *row);
int hec_test_run_file(const char *file);                            /* an exit code */
int hec_test_run_suite(Suite *suite, enum fork_status fork_status); /* of Check's own; the number of failures */
