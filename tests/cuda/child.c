/* Processes of their own for tests of the fake (child.h). */
#include "tests/cuda/child.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void become(const char *const *environment, int words) {
  for (; environment && *environment; environment++) {
    char name[128];
    const char *equals = strchr(*environment, '=');
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - *environment), *environment);
    (void)setenv(name, equals + 1, 1);
  }
  (void)dup2(words, STDERR_FILENO);
}

int child_run(const char *const *environment, int (*body)(const void *context), const void *context,
              char words[CHILD_WORDS]) {
  int ends[2], status = 0;
  ck_assert_int_eq(pipe(ends), 0);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    become(environment, ends[1]);
    _exit(body(context));
  }
  (void)close(ends[1]);
  size_t n = 0;
  for (ssize_t got; (got = read(ends[0], words + n, CHILD_WORDS - 1 - n)) > 0 && n < CHILD_WORDS - 1;)
    n += (size_t)got;
  words[n] = '\0';
  (void)close(ends[0]);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return status;
}

void child_exits(const char *const *environment, int (*body)(const void *context), const void *context, int status) {
  char words[CHILD_WORDS];
  int found = child_run(environment, body, context, words);
  ck_assert_msg(WIFEXITED(found) && WEXITSTATUS(found) == status, "wait status %#x: %s", (unsigned)found, words);
}

void child_dies(const char *const *environment, int (*body)(const void *context), const void *context, int signal,
                const char *expected) {
  char words[CHILD_WORDS];
  int found = child_run(environment, body, context, words);
  ck_assert_msg(WIFSIGNALED(found) && WTERMSIG(found) == signal, "wait status %#x: %s", (unsigned)found, words);
  ck_assert_msg(strstr(words, expected) != NULL, "\"%s\" is not in \"%s\"", expected, words);
}

void child_expect(int holds, const char *what) {
  if (holds)
    return;
  (void)fprintf(stderr, "not so: %s\n", what);
  _exit(99);
}

float *child_floats(int64_t n) {
  void *at = NULL;
  EXPECT(cudaMalloc(&at, (size_t)n * sizeof(float)) == cudaSuccess);
  return at;
}

cudaStream_t child_stream(void) {
  cudaStream_t stream = NULL;
  EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  return stream;
}

void child_read(float *to, const float *from, int64_t n, cudaStream_t stream) {
  EXPECT(cudaMemcpyAsync(to, from, (size_t)n * sizeof *to, cudaMemcpyDefault, stream) == cudaSuccess);
}
