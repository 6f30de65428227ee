/* --version: the version alone on the first line, as scripts read it; then what this build has. Which MPI, CUDA and NLopt
 * were found is known when it is built (HEC_BUILD_*, CMakeLists.txt); CBC is looked for when it is needed, so now. */
#include "tools/front/pages.h"

#include "runtime/plan/cbc/cbc.h"

#include <string.h>

#ifndef HEC_BUILD_TYPE
#define HEC_BUILD_TYPE "unknown"
#endif
#ifndef HEC_BUILD_MPI
#define HEC_BUILD_MPI ""
#endif
#ifndef HEC_BUILD_CUDA
#define HEC_BUILD_CUDA "unknown"
#endif
#ifndef HEC_BUILD_NLOPT
#define HEC_BUILD_NLOPT ""
#endif

#if defined __clang__
#define COMPILER "clang " __clang_version__
#elif defined __GNUC__
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

void hec_pages_version(const hec_command *command, hec_text *out) {
  bool cbc = hec_solver_ready(hec_solver_cbc()) != NULL;
  hec_text_printf(out, "%.*s %s\n", (int)strcspn(command->program, " "), command->program, HEC_VERSION);
  hec_text_printf(out, "compiler   %s\nbuild      %s\n", COMPILER, HEC_BUILD_TYPE);
  hec_text_printf(out, "MPI        %s\n",
                  *HEC_BUILD_MPI ? "plug-in for " HEC_BUILD_MPI : "not built: no MPI was found");
  hec_text_printf(out, "CUDA       %s\n", *HEC_BUILD_CUDA ? "not built: " HEC_BUILD_CUDA : "plug-in");
  hec_text_printf(out, "CBC        %s\n", cbc ? "found" : "not found (Debian: coinor-libcbc3)");
  hec_text_printf(out, "NLopt      %s\n", *HEC_BUILD_NLOPT ? "linked" : "not built: not found");
}
