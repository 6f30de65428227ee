/* A report as it leaves: into a file as Markdown or as a page, and to standard output in the form that is wanted there. */
#pragma once
#include "validate/doc.h"

typedef struct {
  hec_text shown, markdown;
} hec_report_texts; /* zero-initialise */

/* Both texts. */
void hec_report_make(hec_doc_report *report, const void *of, hec_doc_kind shown, int indent, hec_report_texts *texts);
/* What is shown alone: JSON, or its Markdown as plain text. */
void hec_report_show(hec_doc_report *report, const void *of, bool json, hec_report_texts *texts);
/* A report whose `details` are wanted on the screen or not; the file, if any, has them. Then as below. */
hec_status hec_report_detailed(hec_doc_report *report, const void *of, bool *details, bool json,
                               const char *file) HEC_MUST_USE;
/* Before anything runs: that --out can be written, and where the recorded data lie: --cases, or below the folder of them. */
hec_status hec_report_begin(const char *cases, const char *recorded, const char *out, hec_text *path) HEC_MUST_USE;
/* Nothing is printed where the file cannot be written. file NULL: none; NAME.html: a page. Frees the texts. */
#define HEC_REPORT_OUT "as Markdown, or as a page that opens offline if FILE ends in .html"
hec_status hec_report_print(hec_report_texts *texts, const char *file) HEC_MUST_USE;
/* The page of a report's Markdown. */
void hec_report_html(const char *markdown, hec_text *out);
