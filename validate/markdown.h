/* The Markdown of our reports, line by line, for those who render it. Lines that begin with '|' are a table's, with a rule as
 * its second line: "---:" for a column that goes to the right. Lines between "```" stay as they are. "**" and "`" mark words. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { HEC_MARKDOWN_COLUMNS_MAX = 16 };

/* A part of the text, which is the caller's. */
typedef struct {
  const char *at;
  size_t n;
} hec_piece;

hec_piece hec_piece_trimmed(hec_piece piece);
bool hec_piece_starts(hec_piece piece, const char *with);
/* The line at the text's beginning, without its end; where the next one begins. */
hec_piece hec_markdown_line(const char *text);
const char *hec_markdown_after(hec_piece line);

/* Cells of "| a | b |"; how many. */
int hec_markdown_cells(hec_piece line, hec_piece cell[HEC_MARKDOWN_COLUMNS_MAX]);
bool hec_markdown_is_rule(hec_piece line);
/* Of a cell of a rule. */
bool hec_markdown_to_the_right(hec_piece cell);
