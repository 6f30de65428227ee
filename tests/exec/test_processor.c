/* The CPU as a processor: the oracle of all others has an oracle of its own. */
#include "tests/exec/processor_case.h"

static Suite *suite(void) {
  enum { FLOATS = 2 << 20 };
  hec_case = (hec_case_place){.on = &hec_processor_cpu, .memory = malloc(FLOATS * sizeof(float)), .n_memory = FLOATS};
  return hec_case_suite("exec.processor", false);
}

HEC_TEST_MAIN(suite)
