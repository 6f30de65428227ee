/* A neighbour that takes half of one core in bursts, for experiments on a disturbed machine: program_neighbour SEED. It computes
 * for 20 to 200 ms, then sleeps for as long on average, on whatever core the kernel gives it. It ends when its standard
 * input does, so it never outlives whoever started it. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SHORTEST_MS = 20, LONGEST_MS = 200 };

static int32_t draw_ms(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return SHORTEST_MS + (int32_t)((*state >> 33) % (LONGEST_MS - SHORTEST_MS + 1));
}

static int64_t now_ms(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
  uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  struct pollfd input = {.fd = 0, .events = POLLIN};
  volatile double sum = 0; /* volatile, so that no compiler leaves the work out */
  for (;;) {
    int64_t until = now_ms() + draw_ms(&state);
    while (now_ms() < until)
      for (int32_t i = 1; i < 10000; i++)
        sum += 1.0 / i;
    if (poll(&input, 1, draw_ms(&state)) != 0) /* closed, or anything at all */
      return sum > 0 ? 0 : 1;
  }
}
