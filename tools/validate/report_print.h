/* What commands that report on recorded data print and write. */
#ifndef HEC_TOOLS_VALIDATE_REPORT_PRINT_H
#define HEC_TOOLS_VALIDATE_REPORT_PRINT_H
#include "runtime/base/text.h"

/* A report on recorded data: Markdown, shown as plain text, or JSON in its stead; the whole of it for --out. */
typedef struct {
  hec_text shown, whole, json; /* zero-initialise; with text in `json` that is what is printed */
} hec_output_report;
/* Writes `whole` into `file` unless NULL, then prints. Frees the texts. */
hec_status hec_output_report_print(hec_output_report *report, const char *file) HEC_MUST_USE;

#endif
