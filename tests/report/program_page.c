/* program_page FILE: the page of a validation that nobody ran, for test_browser.sh: a real one takes a quiet machine.
 * */
#include "runtime/base/temporary.h"
#include "tools/front/page/report.h"

#include <math.h>
#include <stdio.h>

int main(int argc, char **argv) {
  static hec_report_pair iterations[] = {{"ep", 0.211, 0.212, -0.005},
                                         {"eplb", 0.26, 0.263, -0.011},
                                         {"a name that is very long indeed", 0.2, 0.1, 1}},
                         kinds[] = {
                             {"experts", 0.05, 0.04, 0.25}, {"dispatch", 0.01, 0.011, -0.09}, {"counts", 1e-4, 0, NAN}};
  static hec_report_pairs policies[] = {{"ep", kinds, 3}, {"eplb", kinds, 2}};
  static const hec_report_fact facts[] = {{"machine", "made up"}};
  static const hec_report_compared compared = {iterations, policies, 3, 2, 0.01};
  const hec_report report = {.tool = "program_page",
                             .title = "made up",
                             .compared = &compared,
                             .verdict = "One.\nTwo.\n",
                             .facts = facts,
                             .n_facts = 1};
  HEC_SCOPED(hec_text) page = {0};
  hec_report_write(&report, &page);
  hec_status status = argc == 2 ? hec_write_file(argv[1], page.data, page.length) : HEC_BAD_INPUT;
  return status == HEC_OK ? 0 : 1;
}
