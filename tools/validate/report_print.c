/* See report_print.h. */
#include "tools/validate/report_print.h"

#include "runtime/base/files.h"
#include "tools/front/output.h"
#include "validate/plain.h"

hec_status hec_output_report_print(hec_output_report *report, const char *file) {
  hec_text plain = {0};
  if (report->json.length == 0)
    hec_plain_add(&plain, report->shown.data);
  hec_status status = file ? hec_write_file(file, report->whole.data, report->whole.length) : HEC_OK;
  if (status == HEC_OK)
    status = hec_output_print(report->json.length > 0 ? &report->json : &plain);
  hec_text_free(&plain);
  hec_text_free(&report->shown);
  hec_text_free(&report->whole);
  hec_text_free(&report->json);
  return status;
}
