/* Colour for people at a terminal. Text is made plain and stays plain in files and pipes. This is the last step before
 * a terminal, and takes nothing away: without the escapes it is the same bytes. */
#pragma once
#include "runtime/base/text.h"

/* Whether standard output is a terminal that shows colours and its user wants them. That is: NO_COLOR
 * (https://no-color.org) is not set, or empty, and TERM is neither absent nor "dumb". */
bool hec_colour_wanted(void);

/* Whether standard error is a terminal that can go back in a line and wipe it: TERM as above. Elsewhere no progress is shown. */
bool hec_progress_wanted(void);

/* `length` bytes of `text` with colours:
 *   bold       the first line where a tool names itself; heads of tables: after an empty line, columns without any number
 *   green      "passed"; the line of the fastest, bold
 *   red        "FAILED", "NOT EXACT"; "no" at the end of a row of numbers: it does not fit
 *   yellow     "mind" at the begin of a line: what numbers do not say
 * A JSON document stays as it is. */
void hec_colour_add(const char *text, size_t length, hec_text *out);
