/* The document: head, policy, style, script; sections, chips and panels. See page.h. */
#include "tools/front/page/page.h"

#include <inttypes.h>
#include <string.h>

void hec_page_add(const char *text, hec_text *out) {
  for (const char *p = text; *p;) {
    unsigned char c = (unsigned char)*p;
    size_t n = hec_utf8_length(p);
    if (n != 1) {
      hec_text_add_bytes(out, n == 0 ? "\xef\xbf\xbd" : p, n == 0 ? 3 : n);
      p += n == 0 ? 1 : n;
      continue;
    }
    if (strchr("&<>\"'", c))
      hec_text_printf(out, "&#%d;", c);
    else if (c < 0x20 || c == 0x7f)
      hec_text_add(out, c == '\n' || c == '\t' ? " " : "\xef\xbf\xbd");
    else
      hec_text_add_bytes(out, p, 1);
    p++;
  }
}

void hec_page_begin(const char *title, hec_text *out) {
  hec_text_printf(
      out,
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'sha256-%s'; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n<title>",
      hec_page_script_digest);
  hec_page_add(title, out);
  hec_text_add(out, "</title>\n<style>\n");
  hec_text_add_bytes(out, hec_page_style, hec_page_style_bytes);
  hec_text_add(out, "</style>\n</head>\n<body>\n<header>\n<h1>");
  hec_page_add(title, out);
  hec_text_add(
      out, "</h1>\n<button type=\"button\" class=\"script\" id=\"theme\">light or dark</button>\n</header>\n<main>\n");
}

void hec_page_end(const char *tool, hec_text *out) {
  hec_text_add(out, "</main>\n<footer>\n<p class=\"note\">Written by ");
  hec_page_add(tool, out);
  hec_text_add(out, ". This page works offline and needs no other file. It works without JavaScript, except for "
                    "choosing policies, enlarging timelines and values under the pointer.</p>\n</footer>\n"
                    "<div id=\"tip\" class=\"tip\" role=\"status\" aria-live=\"polite\"></div>\n<script>");
  hec_text_add_bytes(out, hec_page_script, hec_page_script_bytes);
  hec_text_add(out, "</script>\n</body>\n</html>\n");
}

void hec_page_section(const char *name, const char *title, hec_text *out) {
  hec_text_printf(out, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<h2 id=\"%s-title\">", name, name, name);
  hec_page_add(title, out);
  hec_text_add(out, "</h2>\n");
}

void hec_page_section_end(hec_text *out) {
  hec_text_add(out, "</section>\n");
}

void hec_page_wide(const char *label, hec_text *out) {
  hec_text_add(out, "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"");
  hec_page_add(label, out);
  hec_text_add(out, "\">");
}

void hec_page_wide_end(hec_text *out) {
  hec_text_add(out, "</div>\n<p class=\"note more\">The table goes on to the right: scroll it sideways.</p>\n");
}

void hec_page_chips(const char *name, hec_text *out) {
  hec_text_printf(out, "<div class=\"chips script\" role=\"group\" aria-label=\"Shown: %s\">\n", name);
}

static void add_about(const hec_page_item *item, hec_text *out) {
  if (!item->about)
    return;
  hec_text_add(out, " title=\"");
  hec_page_add(item->about, out);
  hec_text_add(out, "\"");
}

void hec_page_name(const hec_page_item *item, hec_text *out) {
  hec_text_add(out, "<b");
  add_about(item, out);
  hec_text_add(out, ">");
  hec_page_add(item->label, out);
  hec_text_add(out, "</b>");
}

void hec_page_chip(const char *name, const hec_page_item *item, const char *color, bool pressed, hec_text *out) {
  hec_text_printf(out,
                  "<button type=\"button\" class=\"chip\" data-for=\"%s\" data-n=\"%" PRId32 "\" aria-pressed=\"%s\"",
                  name, item->id, pressed ? "true" : "false");
  add_about(item, out);
  hec_text_add(out, ">");
  if (color)
    hec_text_printf(out, "<i class=\"line %s\"></i>", color);
  hec_page_add(item->label, out);
  hec_text_add(out, "</button>\n");
}

void hec_page_chips_end(hec_text *out) {
  hec_text_add(out, "</div>\n");
}

void hec_page_panel(const char *name, const hec_page_item *item, bool open, hec_text *out) {
  hec_text_printf(out, "<details class=\"panel\" data-of=\"%s\" data-i=\"%" PRId32 "\"%s>\n<summary>", name, item->id,
                  open ? " open" : "");
  hec_page_name(item, out);
  hec_text_add(out, "</summary>\n");
}

void hec_page_fold(const char *title, hec_text *out) {
  hec_text_add(out, "<details class=\"fold\">\n<summary>");
  hec_page_add(title, out);
  hec_text_add(out, "</summary>\n");
}
