/* The Markdown of a report as a page that opens offline (front/page). Headings, paragraphs, lists with "- ", preformatted blocks and
 * tables, as our reports have them. O(length). */
#include "tools/validate/report_out.h"

#include "tools/front/page/page.h"
#include "validate/markdown.h"

#include <string.h>

/* Text without marks, made harmless. */
static void add_words(hec_piece words, hec_text *out) {
  HEC_SCOPED(hec_text) copy = {0};
  hec_text_add_bytes(&copy, words.at, words.n);
  hec_page_add(copy.data ? copy.data : "", out);
}

static const struct { const char *mark, *element; } marks[] = {{"**", "b"}, {"`", "code"}};

/* The mark at the text's beginning, of which only `open` counts inside of one; -1: none. */
static int mark_at(hec_piece text, int open) {
  for (int k = 0; k < 2; k++)
    if ((open < 0 || open == k) && hec_piece_starts(text, marks[k].mark))
      return k;
  return -1;
}

/* Words between two marks have their element. */
static void add_marked(hec_piece text, hec_text *out) {
  int open = -1;
  while (text.n > 0) {
    size_t n = 0;
    int mark = -1;
    while (n < text.n && (mark = mark_at((hec_piece){text.at + n, text.n - n}, open)) < 0)
      n++;
    add_words((hec_piece){text.at, n}, out);
    if (mark >= 0) {
      hec_text_printf(out, "<%s%s>", open < 0 ? "" : "/", marks[mark].element);
      open = open < 0 ? mark : -1;
      n += strlen(marks[mark].mark);
    }
    text = (hec_piece){text.at + n, text.n - n};
  }
  if (open >= 0)
    hec_text_printf(out, "</%s>", marks[open].element);
}

static const char *add_table(const char *text, hec_text *out) {
  hec_piece cell[HEC_MARKDOWN_COLUMNS_MAX], line;
  bool right[HEC_MARKDOWN_COLUMNS_MAX] = {0};
  const char *element = "th", *body = hec_markdown_after(hec_markdown_line(text));
  line = hec_markdown_line(body);
  if (hec_markdown_is_rule(line)) /* the first row under it says where numbers are */
    line = hec_markdown_line(hec_markdown_after(line));
  for (int i = 0, n = hec_markdown_cells(line, cell); i < n; i++)
    right[i] = cell[i].n > 0 && strchr("0123456789+-", cell[i].at[0]) != NULL;
  hec_page_wide("table", out);
  hec_text_add(out, "<table>\n");
  for (; *text == '|'; text = hec_markdown_after(line)) {
    line = hec_markdown_line(text);
    if (hec_markdown_is_rule(line))
      continue;
    hec_text_add(out, "<tr>");
    for (int i = 0, n = hec_markdown_cells(line, cell); i < n; i++) {
      hec_text_printf(out, "<%s%s>", element, right[i] ? "" : " class=\"words\"");
      add_marked(cell[i], out);
      hec_text_printf(out, "</%s>", element);
    }
    hec_text_add(out, "</tr>\n");
    element = "td";
  }
  hec_text_add(out, "</table>\n");
  hec_page_wide_end(out);
  return text;
}

static const char *add_fenced(const char *text, hec_text *out) {
  hec_text_add(out, "<pre>");
  while (*text) {
    hec_piece line = hec_markdown_line(text);
    text = hec_markdown_after(line);
    if (hec_piece_starts(line, "```"))
      break;
    add_words(line, out);
    hec_text_add(out, "\n");
  }
  hec_text_add(out, "</pre>\n");
  return text;
}

/* Lines up to one that is empty or begins something else, as one paragraph or item. */
static const char *add_lines(const char *text, const char *element, size_t skip, hec_text *out) {
  hec_text_printf(out, "<%s>", element);
  do {
    hec_piece line = hec_markdown_line(text);
    add_marked(hec_piece_trimmed((hec_piece){line.at + skip, line.n - skip}), out);
    text = hec_markdown_after(line);
    skip = 0;
    hec_text_add(out, "\n");
  } while (*text && !strchr("|#\n", *text) && strncmp(text, "- ", 2) != 0 && strncmp(text, "```", 3) != 0);
  hec_text_printf(out, "</%s>\n", element);
  return text;
}

static const char *add_list(const char *text, hec_text *out) {
  hec_text_add(out, "<ul>\n");
  while (strncmp(text, "- ", 2) == 0)
    text = add_lines(text, "li", 2, out);
  hec_text_add(out, "</ul>\n");
  return text;
}

static const char *add_heading(const char *text, hec_text *out) {
  hec_piece line = hec_markdown_line(text);
  size_t level = strspn(line.at, "#");
  hec_text_printf(out, "<h%zu>", level < 6 ? level : 6);
  add_marked(hec_piece_trimmed((hec_piece){line.at + level, line.n - level}), out);
  hec_text_printf(out, "</h%zu>\n", level < 6 ? level : 6);
  return hec_markdown_after(line);
}

void hec_report_html(const char *markdown, hec_text *out) {
  hec_piece first = hec_markdown_line(markdown);
  HEC_SCOPED(hec_text) title = {0};
  if (hec_piece_starts(first, "# ")) { /* the page has it above everything */
    hec_text_add_bytes(&title, first.at + 2, first.n - 2);
    markdown = hec_markdown_after(first);
  }
  hec_page_begin(title.data ? title.data : "hecate-validate", out);
  while (*markdown)
    if (*markdown == '\n')
      markdown++;
    else if (*markdown == '|')
      markdown = add_table(markdown, out);
    else if (*markdown == '#')
      markdown = add_heading(markdown, out);
    else if (strncmp(markdown, "```", 3) == 0)
      markdown = add_fenced(hec_markdown_after(hec_markdown_line(markdown)), out);
    else if (strncmp(markdown, "- ", 2) == 0)
      markdown = add_list(markdown, out);
    else
      markdown = add_lines(markdown, "p", 0, out);
  hec_page_end("hecate-validate " HEC_VERSION, out);
}
