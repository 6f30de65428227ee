/* Started by test_replay_mpi.sh under mpirun: every policy replayed on the ranks of the launch against the dense
 * reference, over N random problems from SEED on. Odd ones in exact mode, some with experts in shards. Arguments: SEED N. */
#include "tests/exec/replay_case.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  const hec_backend *mpi = &hec_backend_mpi;
  int32_t ranks = 0;
  HEC_SCOPED(hec_arena) arena = {0};
  if (argc != 3)
    return 2;
  hec_math_open();
  hec_status status = mpi->ranks(&ranks);
  long seed = strtol(argv[1], NULL, 10), n = strtol(argv[2], NULL, 10);
  for (long i = 0; i < n && status == HEC_OK; i++) {
    uint64_t state = (uint64_t)(seed + i);
    hec_replay_wish wish = {.ranks = ranks, .exact = i % 2 == 1, .esp = ranks % 2 == 0 && i % 5 == 2 ? 2 : 0};
    hec_replay_case *c = hec_replay_random(&arena, &state, wish);
    status = hec_replay_all(c, (hec_replay_launch){.backend = mpi, .turn = (int32_t)i});
  }
  if (status != HEC_OK)
    fprintf(stderr, "%s\n", hec_last_error());
  else if (mpi->speaks())
    printf("passed on %d ranks\n", ranks);
  mpi->close(0);
  return (int)status;
}
