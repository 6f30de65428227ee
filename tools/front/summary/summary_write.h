/* How a summary is written: for people, as JSON, as CSV, as timelines. */
#pragma once
#include "runtime/program/summary.h"
#include "tools/front/timelines/timeline_format.h"

void hec_summary_table(hec_summary *summary, hec_text *out); /* for people: every row, all that is known of it */
/* Of a simulation, what a person needs first: the verdict, at most six rows, what it rests on. `files`: where more is. */
void hec_summary_first_screen(hec_summary *summary, const char *files, hec_text *out);
/* The row that people have (--placement, else ep), if nothing is faster by more than what there is to choose by; else -1.
 * `best`: hec_summary_winner. */
int32_t hec_summary_kept(hec_summary *summary, int32_t best);
/* Its verdict: what to do, what that gains and costs, how sure it is; `between` its sentences. */
void hec_summary_advice(hec_summary *summary, const char *between, hec_text *words);
/* What its rates rest on: "scaled from a similar GPU ..." */
const char *hec_summary_rates(const hec_cluster *cluster);
/* Rows that matter, the fastest first: the best, plain EP, the user's placement, the best of each family. Then the
 * fastest of the rest, variants of what is there last. row: [n_max]. How many. */
int32_t hec_summary_choose_rows(hec_summary *summary, int32_t n_max, int32_t *row);
/* Whether names are of variants of one policy: eplb and eplb-online, llep:cap=1 and llep:cap=2. */
bool hec_summary_are_kin(const char *a, const char *b);
/* "fsdp (0.3 %), ...": others that fit and are practically as fast as the best, the fastest first. */
void hec_summary_name_close(hec_summary *summary, int32_t best, hec_text *names);
/* What may mislead, in the words of the list of what was assumed, as a sentence; nothing where nothing does. */
void hec_summary_say_minds(const hec_summary *summary, hec_text *words);
/* What the check under another law found, as a sentence; nothing where there was none. */
void hec_summary_say_cross(hec_summary *summary, hec_text *words);
/* Names of all rows with the note of row `index`. False: it has none, or an earlier row has the same. */
bool hec_summary_say_noted(const hec_summary *summary, int32_t index, hec_text *who);
/* The lines that the table ends with: who is fastest, by how much and why. */
void hec_summary_verdict(hec_summary *summary, hec_text *out);
/* Words in lines of at most 110 columns, of which `column` are taken; further ones begin with `indent` blanks. */
void hec_summary_add_wrapped(const char *words, size_t column, int indent, hec_text *out);
/* A line of those that a screen ends with: "assumed:      words ...", further lines below the words. */
void hec_summary_add_foot(const char *name, const char *words, hec_text *out);
void hec_summary_add_paragraph(const char *words, int indent, hec_text *out);
/* Parts of an execution's head, for reports of other forms: model, work, ranks, network and machine. What the numbers do
 * not say and what was chosen. They need job, law and execution. */
void hec_summary_execution_place(const hec_summary *summary, hec_text *out);
void hec_summary_execution_mind(const hec_summary *summary, hec_text *out);
/* Members of an object: cpu, cores, blas; of devices: device, devices, library. */
void hec_summary_json_machine(const char *unit, const char *processor, int32_t n, const char *library,
                              hec_json_out *json);
void hec_summary_json(hec_summary *summary, hec_text *out); /* DESIGN section 10, "sim" and "run" */
void hec_summary_csv(hec_summary *summary, hec_text *out);
/* Draws the iteration that was just lowered, as that of row `index`. */
hec_status hec_summary_draw(const hec_summary_row *row, int32_t index, int64_t iter, const hec_lowering *low,
                            const hec_timeline *timeline, const hec_timeline_out *out) HEC_MUST_USE;
