/* What every comparison writes: its document on standard output, and a folder of three files. */
#ifndef HEC_TOOLS_COMMON_OUTPUT_H
#define HEC_TOOLS_COMMON_OUTPUT_H
#include "runtime/base/text.h"

/* Before anything runs: --out is a folder, or can become one. It is made when there is something to write. */
hec_status hec_output_check(const char *folder) HEC_MUST_USE;

typedef struct {
  hec_text json, csv, timeline;
} hec_output_files; /* zero-initialise */
void hec_output_free(hec_output_files *files);
/* summary.json, summary.csv, timeline.json: all of them or none. */
hec_status hec_output_write(const char *folder, const hec_output_files *files) HEC_MUST_USE;
/* The line that says so. */
void hec_output_mention(const char *folder, hec_text *out);

hec_status hec_output_print(const hec_text *text) HEC_MUST_USE; /* to standard output */

#endif
