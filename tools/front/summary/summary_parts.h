/* What the tables for people of simulated and of executed comparisons share. The summary's own. */
#ifndef HEC_SUMMARY_PARTS_H
#define HEC_SUMMARY_PARTS_H
#include "tools/front/summary/summary_write.h"

/* "model ..." and "work ..." lines; the list of defaults; " 1.23x" or "-", right-aligned. */
void hec_summary_add_model(const hec_summary *summary, hec_text *out);
void hec_summary_add_work(const hec_summary *summary, hec_text *out);
void hec_summary_add_defaults(const hec_summary *summary, hec_text *out);
void hec_summary_add_ratio(hec_text *out, int width, double ratio);

/* What hides parameter traffic, and how much of it was hidden: table and JSON. */
void hec_summary_add_hidden(const hec_summary *summary, hec_text *out);
void hec_summary_add_attentions(const hec_summary *summary, hec_text *out);
void hec_summary_json_attention(const hec_summary *summary, hec_json_out *json);

/* Of an execution: everything above the second table, and the verdict. */
void hec_summary_execution_header(hec_summary *summary, hec_text *out);
void hec_summary_execution_times(hec_summary *summary, int width, int decimals, hec_text *out);
void hec_summary_execution_late(hec_summary *summary, hec_text *out);
void hec_summary_execution_verdict(hec_summary *summary, hec_text *out);

int hec_summary_schedule_width(const hec_summary *summary); /* columns of the longest name of a schedule */

#endif
