/* The CPU as a processor: the oracle of all others has an oracle of its own. Products by OpenBLAS, where it is, and by GSL's
 * CBLAS. */
#include "tests/exec/processor_case.h"
#include "tests/support/checks.h"

int main(void) {
  enum { FLOATS = 2 << 20 };
  hec_case = (hec_case_place){.on = &hec_processor_cpu, .memory = malloc(FLOATS * sizeof(float)), .n_memory = FLOATS};
  int failed = hec_test_run_suite(hec_case_suite("exec.processor", false), CK_FORK_GETENV);
  (void)setenv("HECATE_BLAS", "gsl", 1); /* each test is a process that opens its library */
  failed += hec_test_run_suite(hec_case_suite("exec.processor, GSL", true), CK_FORK_GETENV);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
