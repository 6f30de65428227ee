/* Random programs for links between devices. Computing, exchanges of every kind on all lanes, memory written over right
 * behind an exchange, memory that goes from lane to lane, restarts. The oracle runs the same program step by step on plain
 * arrays; all bytes must be equal. Posts are gone as soon as an exchange returns. */
#pragma once
#include "runtime/exec/link/device_link.h"

enum {
  HEC_TEST_CELLS = 24,
  HEC_TEST_WIDTH = 6,
  HEC_TEST_N_STEPS = 70,
  HEC_TEST_EDGES_MAX = 48,
  HEC_TEST_SEGMENTS_MAX = 3,
  HEC_TEST_RANKS_MAX = 8
};

/* The memory of one rank: cells of every lane. */
typedef struct {
  float cell[HEC_N_LANES][HEC_TEST_CELLS][HEC_TEST_WIDTH];
} hec_test_memory;

typedef struct {
  int32_t from, to, n; /* cells; n floats of them, perhaps none */
} hec_test_part;

typedef struct {
  int32_t source, destination, n_parts;
  hec_test_part parts[HEC_TEST_SEGMENTS_MAX];
  int32_t after, hop; /* edge that this one forwards, -1: none */
} hec_test_edge;

typedef enum {
  HEC_TEST_COMPUTE,
  HEC_TEST_ACROSS,
  HEC_TEST_PLAIN,
  HEC_TEST_ADDING,
  HEC_TEST_CHAINED,
  HEC_TEST_RESTART,
  HEC_TEST_N_KINDS
} hec_test_kind;

typedef struct {
  hec_test_kind kind;
  int32_t rank; /* that computes or restarts */
  int32_t lane, other, to, from;
  int32_t n_edges;
  hec_test_edge edges[HEC_TEST_EDGES_MAX];
} hec_test_step;

typedef struct {
  uint64_t seed;
  int32_t n_ranks, n_steps;
  bool adds; /* the link can add while it receives */
  hec_test_step *steps;
  hec_test_memory begin[HEC_TEST_RANKS_MAX], end[HEC_TEST_RANKS_MAX];
} hec_test_program;

/* The same for the same arguments. adds: with exchanges that add while they receive. hec_math_open first. */
hec_test_program *hec_test_program_new(uint64_t seed, int32_t n_ranks, bool adds);
void hec_test_program_free(hec_test_program *program);
/* On a rank with processor and open link: runs it in rank->memory and compares with the oracle. */
hec_status hec_test_program_run(hec_rank *rank, const hec_test_program *program) HEC_MUST_USE;

/* An exchange round the circle: every rank sends two segments to the next. Rank `absent` does something else instead, or
 * fails. */
typedef struct {
  int32_t absent;
  bool fails;
  int64_t bytes[3][2]; /* of each rank's two segments; the receiver expects 64 and 64 */
} hec_test_fault;

hec_status hec_test_circle(hec_rank *rank, const hec_test_fault *fault) HEC_MUST_USE;
extern const hec_test_fault hec_test_good; /* all of one size, nobody absent */

void hec_test_pause_ns(long ns);
