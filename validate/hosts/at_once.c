/* Exchanges that start at different times, under MPI: at_once ITERATIONS EXCHANGE:SOURCE:DESTINATION:BYTES:START...
 * Each exchange has a communicator of its own, as the executor's lanes do. Hosts of tools/hosts share a clock, so every rank
 * knows when a flow may start. Prints, as JSON, the seconds from the common start to the last byte that came. */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FLOWS = 256, EXCHANGES = 8 };
typedef struct {
  int exchange, source, destination, bytes;
  double start;
} flow;

static flow flows[FLOWS];
static char *buffer[FLOWS]; /* of the flows that this rank sends or receives */
static int n_flows, rank, n_ranks;
static MPI_Comm comms[EXCHANGES];

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what) {
  fprintf(stderr, "at_once: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void read_flows(int n, char **words) {
  if (n > FLOWS)
    fail("expected at most 256 flows");
  for (; n_flows < n; n_flows++) {
    flow *f = &flows[n_flows];
    if (sscanf(words[n_flows], "%d:%d:%d:%d:%lf", &f->exchange, &f->source, &f->destination, &f->bytes, &f->start) !=
            5 ||
        f->exchange < 0 || f->exchange >= EXCHANGES || f->source < 0 || f->source >= n_ranks || f->destination < 0 ||
        f->destination >= n_ranks || f->source == f->destination || f->bytes < 1)
      fail("expected EXCHANGE:SOURCE:DESTINATION:BYTES:START, of 8 exchanges between the ranks");
    if (f->source == rank || f->destination == rank)
      MPI_Alloc_mem(f->bytes, MPI_INFO_NULL, &buffer[n_flows]);
  }
}

/* Every byte of a flow is this in this iteration. */
static char mark(int k, int iteration) {
  return (char)(1 + (7 * k + 31 * iteration) % 101);
}

/* All flows of this rank; when the last one came. */
static double exchange(double begin, int iteration) {
  MPI_Request requests[FLOWS];
  double last = begin;
  bool posted[FLOWS] = {false};
  for (int k = 0; k < FLOWS; k++)
    requests[k] = MPI_REQUEST_NULL;
  for (int k = 0; k < n_flows; k++)
    if (flows[k].destination == rank)
      MPI_Irecv(buffer[k], flows[k].bytes, MPI_BYTE, flows[k].source, k, comms[flows[k].exchange], &requests[k]);
  for (int left = n_flows; left > 0;) {
    left = 0;
    for (int k = 0; k < n_flows; k++) {
      int done = 0;
      if (flows[k].source == rank && !posted[k] && now() >= begin + flows[k].start) {
        MPI_Isend(buffer[k], flows[k].bytes, MPI_BYTE, flows[k].destination, k, comms[flows[k].exchange], &requests[k]);
        posted[k] = true;
      }
      left += flows[k].source == rank && !posted[k];
      if (requests[k] == MPI_REQUEST_NULL)
        continue;
      MPI_Test(&requests[k], &done, MPI_STATUS_IGNORE);
      left += !done;
      last = done && flows[k].destination == rank ? now() : last;
    }
    (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
  for (int k = 0; k < n_flows; k++)
    for (int i = 0; flows[k].destination == rank && i < flows[k].bytes; i++)
      if (buffer[k][i] != mark(k, iteration))
        fail("a byte is wrong");
  return last - begin;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
  if (argc < 3)
    fail("expected ITERATIONS FLOW...");
  read_flows(argc - 2, argv + 2);
  for (int k = 0; k < EXCHANGES; k++)
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
  int n = atoi(argv[1]);
  for (int iteration = 0; iteration < n; iteration++) {
    for (int k = 0; k < n_flows; k++)
      if (flows[k].source == rank)
        memset(buffer[k], mark(k, iteration), (size_t)flows[k].bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now() + 0.1, seconds, longest;
    MPI_Bcast(&begin, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    while (now() < begin)
      (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    seconds = exchange(begin, iteration);
    MPI_Reduce(&seconds, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
      printf("%s%.6f%s", iteration == 0 ? "[" : ", ", longest, iteration == n - 1 ? "]\n" : "");
  }
  (void)fflush(stdout);
  MPI_Finalize();
  return 0;
}
