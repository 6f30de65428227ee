/* What the tables for people of simulated and of executed comparisons share. The summary's own. */
#pragma once
#include "tools/front/summary/summary_write.h"

/* "model ..." and "work ..." lines; the list of defaults; " 1.23x" or "-", right-aligned. */
void hec_summary_add_model(const hec_summary *summary, hec_text *out);
void hec_summary_add_work(const hec_summary *summary, hec_text *out);
void hec_summary_add_defaults(const hec_summary *summary, hec_text *out);
void hec_summary_add_ratio(hec_text *out, int width, double ratio);
/* Row numbers by their medians, the fastest first; of equal ones the earlier row. */
void hec_summary_sort(hec_summary *summary, int32_t *rows, int32_t n);
/* Why the column "vs ep" is empty, where no ep was compared. */
void hec_summary_add_no_baseline(const hec_summary *summary, hec_text *out);
double hec_summary_percent(double share); /* as every verdict rounds it: whole tenths */
/* Where the winner saves most against another, in words: ", mostly by ..."; rows as good as equally fast, a line. */
void hec_summary_add_reason(const hec_summary_row *winner, const hec_summary_row *other, hec_text *out);
void hec_summary_add_close(hec_summary *summary, int32_t best, hec_text *out);
int hec_summary_decimals(
    hec_summary *summary); /* of milliseconds, so that the slowest row keeps four or five figures */
bool hec_summary_drops(const hec_summary *summary);           /* a row computes less than the gate chose */
bool hec_summary_peaks_are_small(const hec_summary *summary); /* to be shown in megabytes */

/* What hides parameter traffic, and how much of it was hidden: table and JSON. */
void hec_summary_add_hidden(const hec_summary *summary, hec_text *out);
void hec_summary_add_attentions(const hec_summary *summary, hec_text *out);
void hec_summary_json_attention(const hec_summary *summary, hec_json_out *json);

/* Of an execution: everything above the second table, and the verdict. */
void hec_summary_execution_header(hec_summary *summary, hec_text *out);
void hec_summary_execution_times(hec_summary *summary, int width, int decimals, hec_text *out);
void hec_summary_execution_late(hec_summary *summary, hec_text *out);
void hec_summary_execution_verdict(hec_summary *summary, hec_text *out);

/* What the check under another law says of the winner: a paragraph; an object of JSON. Nothing where there was none. */
void hec_summary_add_cross(hec_summary *summary, hec_text *out);
void hec_summary_json_cross(const hec_summary *summary, hec_json_out *json);

int hec_summary_schedule_width(const hec_summary *summary); /* columns of the longest name of a schedule */
