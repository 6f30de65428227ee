/* A Markdown report as text for a terminal: tables aligned, paragraphs wrapped. */
#pragma once
#include "runtime/base/text.h"

/* Headings, paragraphs, lists with "- ", preformatted blocks and tables, as our reports have them; "**" is left out. */
void hec_plain_add(hec_text *out, const char *markdown);
