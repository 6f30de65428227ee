/* Two failures, two tools. The world is wrong (bad file, no such preset, no space): a hec_status, which must be used.
 * The function that knows the cause records one message; callers only propagate. We are wrong: HEC_ASSERT, always on.
 */
#pragma once

typedef enum {
  HEC_OK = 0,
  HEC_FAILED = 1,    /* the run failed: I/O, a plan that cannot be executed; exit code 1 */
  HEC_BAD_INPUT = 2, /* the input or the usage is wrong; exit code 2 */
} hec_status;

#define HEC_MUST_USE __attribute__((warn_unused_result))

/* Records the message of this thread and returns `code`. Form of a message about a file:
 * "FILE:LINE: JSON.PATH: expected X, found Y". Messages longer than 1023 bytes are cut;
 * control characters in them and what is no UTF-8 become '?'. */
hec_status hec_fail(hec_status code, const char *format, ...) __attribute__((format(printf, 2, 3))) HEC_MUST_USE;

/* The message of the last failure in this thread ("" when there was none); valid until the next one. */
const char *hec_last_error(void);

#define HEC_TRY(expression)                                                                                            \
  do {                                                                                                                 \
    hec_status hec_try_status_ = (expression);                                                                         \
    if (hec_try_status_ != HEC_OK)                                                                                     \
      return hec_try_status_;                                                                                          \
  } while (0)

/* Prints file, line and condition to stderr and aborts. */
void hec_assert_failed(const char *condition, const char *file, int line) __attribute__((noreturn));
#define HEC_ASSERT(condition) ((condition) ? (void)0 : hec_assert_failed(#condition, __FILE__, __LINE__))
