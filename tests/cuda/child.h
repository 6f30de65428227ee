/* What a piece of a test does in a process of its own. With an environment of its own for the fake, and free to crash. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

/* Runs body(context) in a child with these variables ("NAME=value", NULL-terminated): its wait status; `words` gets the
 * end of what it wrote on stderr. The body's return value is the exit status. */
enum { CHILD_WORDS = 2048 };
int child_run(const char *const *environment, int (*body)(const void *context), const void *context,
              char words[CHILD_WORDS]);

/* Fail the test unless it exited with `status`, died of `signal`, aborted with these words. */
void child_exits(const char *const *environment, int (*body)(const void *context), const void *context, int status);
void child_dies(const char *const *environment, int (*body)(const void *context), const void *context, int signal,
                const char *words);

/* In children: ends them with status 99 and words. */
void child_expect(int holds, const char *what);
#define EXPECT(condition) child_expect((condition), #condition)
float *child_floats(int64_t n); /* on the device, poison */
cudaStream_t child_stream(void);
/* Through unpinned memory, with the wait that it needs. */
void child_read(float *to, const float *from, int64_t n, cudaStream_t stream);
