/* It goes line by line. A run of lines that begin with '|' is a table, its columns as wide as their widest cell. Its
 * rule line is left out, except that a column of the rule "---:" goes to the right. "#" headings lose the marks. Lines
 * between "```" stay as they are. Others are wrapped, list items with an indent. O(length). */
#include "validate/plain.h"

#include "validate/markdown.h"

#include <string.h>

enum { WIDTH = 110, COLUMNS_MAX = HEC_MARKDOWN_COLUMNS_MAX };

/* The text without "**"; its length. `out` may be NULL. */
static size_t add_unmarked(hec_text *out, hec_piece text) {
  size_t length = 0;
  for (size_t i = 0; i < text.n; i++) {
    if (i + 1 < text.n && text.at[i] == '*' && text.at[i + 1] == '*') {
      i++;
      continue;
    }
    length++;
    if (out)
      hec_text_add_bytes(out, text.at + i, 1);
  }
  return length;
}

static void pad(hec_text *out, size_t n) {
  for (size_t i = 0; i < n; i++)
    hec_text_add(out, " ");
}

typedef struct {
  size_t width;
  bool right;
} shape;

static void add_cells(hec_text *out, hec_piece line, const shape columns[COLUMNS_MAX]) {
  hec_piece cell[COLUMNS_MAX];
  size_t owed = 0; /* spaces before the next cell: none at a line's end */
  int n = hec_markdown_cells(line, cell);
  for (int i = 0; i < n; i++) {
    size_t left = columns[i].width - add_unmarked(NULL, cell[i]);
    owed += columns[i].right ? left : 0;
    if (cell[i].n > 0) {
      pad(out, owed);
      owed = columns[i].right ? 0 : left;
      (void)add_unmarked(out, cell[i]);
    } else
      owed += columns[i].right ? 0 : left;
    owed += 2;
  }
  hec_text_add(out, "\n");
}

static const char *add_table(hec_text *out, const char *text) {
  shape columns[COLUMNS_MAX] = {{0}};
  hec_piece cell[COLUMNS_MAX], line;
  for (const char *at = text; *at == '|'; at = hec_markdown_after(line)) {
    line = hec_markdown_line(at);
    int n = hec_markdown_cells(line, cell);
    for (int i = 0; i < n; i++) {
      size_t length = hec_markdown_is_rule(line) ? 0 : add_unmarked(NULL, cell[i]);
      columns[i].width = length > columns[i].width ? length : columns[i].width;
      columns[i].right = columns[i].right || (hec_markdown_is_rule(line) && hec_markdown_to_the_right(cell[i]));
    }
  }
  for (; *text == '|'; text = hec_markdown_after(line)) {
    line = hec_markdown_line(text);
    if (!hec_markdown_is_rule(line))
      add_cells(out, line, columns);
  }
  return text;
}

/* From behind the opening line to behind the closing one. */
static const char *add_fenced(hec_text *out, const char *text) {
  while (*text) {
    hec_piece line = hec_markdown_line(text);
    text = hec_markdown_after(line);
    if (hec_piece_starts(line, "```"))
      break;
    hec_text_add_bytes(out, line.at, line.n);
    hec_text_add(out, "\n");
  }
  return text;
}

static void add_wrapped(hec_text *out, hec_piece line) {
  size_t indent = line.n > 1 && line.at[0] == '-' && line.at[1] == ' ' ? 2 : 0, column = 0;
  for (size_t i = 0; i < line.n;) {
    size_t end = i;
    while (end < line.n && line.at[end] != ' ')
      end++;
    hec_piece word = {line.at + i, end - i};
    size_t length = add_unmarked(NULL, word);
    if (column > 0 && column + 1 + length > WIDTH) {
      hec_text_add(out, "\n");
      pad(out, indent);
      column = indent;
    } else if (column > 0) {
      hec_text_add(out, " ");
      column++;
    }
    column += add_unmarked(out, word);
    i = end + 1;
  }
  hec_text_add(out, "\n");
}

void hec_plain_add(hec_text *out, const char *markdown) {
  while (*markdown) {
    if (*markdown == '|') {
      markdown = add_table(out, markdown);
      continue;
    }
    hec_piece line = hec_markdown_line(markdown);
    markdown = hec_markdown_after(line);
    if (hec_piece_starts(line, "```")) {
      markdown = add_fenced(out, markdown);
      continue;
    }
    while (line.n > 0 && line.at[0] == '#')
      line.at++, line.n--;
    add_wrapped(out, hec_piece_trimmed(line));
  }
}
