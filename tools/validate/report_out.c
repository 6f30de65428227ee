/* See the header. */
#include "tools/validate/report_out.h"

#include "tools/front/data.h"
#include "tools/front/output.h"
#include "validate/plain.h"

#include <string.h>

void hec_report_make(hec_doc_report *report, const void *of, hec_doc_kind shown, int indent, hec_report_texts *texts) {
  hec_doc_write(report, of, shown, indent, &texts->shown);
  hec_doc_write(report, of, HEC_DOC_MARKDOWN, 0, &texts->markdown);
}

void hec_report_show(hec_doc_report *report, const void *of, bool json, hec_report_texts *texts) {
  HEC_SCOPED(hec_text) markdown = {0};
  hec_doc_write(report, of, json ? HEC_DOC_JSON : HEC_DOC_MARKDOWN, 1, json ? &texts->shown : &markdown);
  if (!json)
    hec_plain_add(&texts->shown, markdown.data);
}

hec_status hec_report_print(hec_report_texts *texts, const char *file) {
  size_t n = file ? strlen(file) : 0;
  bool page = n > 5 && strcmp(file + n - 5, ".html") == 0;
  HEC_SCOPED(hec_text) html = {0};
  hec_text *written = page ? &html : &texts->markdown;
  if (page)
    hec_report_html(texts->markdown.data, &html);
  hec_status status = file ? hec_write_file(file, written->data, written->length) : HEC_OK;
  if (status == HEC_OK)
    status = hec_output_print(&texts->shown);
  hec_text_free(&texts->shown);
  hec_text_free(&texts->markdown);
  return status;
}

hec_status hec_report_detailed(hec_doc_report *report, const void *of, bool *details, bool json, const char *file) {
  hec_report_texts texts = {.shown = {0}};
  bool wanted = *details;
  *details = true;
  hec_doc_write(report, of, HEC_DOC_MARKDOWN, 0, &texts.markdown);
  *details = wanted;
  hec_report_show(report, of, json, &texts);
  return hec_report_print(&texts, file);
}

hec_status hec_report_begin(const char *cases, const char *recorded, const char *out, hec_text *path) {
  if (out)
    HEC_TRY(hec_output_check_file("--out", out));
  HEC_TRY(hec_data_find_recorded(cases, recorded, path));
  return hec_paths_check((const hec_path_use[]){{"--cases", path->data, false}, {"--out", out, true}}, 2);
}
