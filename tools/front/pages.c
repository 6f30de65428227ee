/* Manual pages and completion from the rows that parse. One source: what is accepted is what is described. A paragraph of a
 * command's text is filled, a line that begins with a blank stands as it is. */
#include "tools/front/pages.h"

#include "tools/front/tool.h"

#include <ctype.h>
#include <string.h>

static bool is_tool(const hec_command *command) {
  const hec_tool *tool = hec_tool_running();
  return tool && strcmp(tool->name, command->program) == 0;
}

/* One line about the command, from the tool's table. */
static const char *line_of(const hec_command *command) {
  const hec_tool *tool = hec_tool_running();
  if (!tool || is_tool(command))
    return tool ? tool->summary : command->program;
  size_t n = strlen(tool->name);
  for (const hec_tool_command *c = tool->commands; c->name; c++)
    if (strncmp(command->program, tool->name, n) == 0 && strcmp(command->program + n + 1, c->name) == 0 && c->summary)
      return c->summary;
  return command->program;
}

/* ---- Manual pages ---- */

/* `n` bytes of text as roff prints them. */
static void add_plain(hec_text *out, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) {
    bool first = out->length == 0 || out->data[out->length - 1] == '\n';
    if (first && (text[i] == '.' || text[i] == '\''))
      hec_text_add(out, "\\&");
    if (text[i] == '\\')
      hec_text_add(out, "\\e");
    else if (text[i] == '-')
      hec_text_add(out, "\\-");
    else
      hec_text_add_bytes(out, &text[i], 1);
  }
}

static void add_word(hec_text *out, const char *text) {
  add_plain(out, text, strlen(text));
}

/* "hecate-sim plan" as "hecate-sim-plan". */
static void add_name(hec_text *out, const char *program, bool upper) {
  for (const char *p = program; *p; p++) {
    char c = *p == ' ' ? '-' : (char)(upper ? toupper((unsigned char)*p) : *p);
    add_plain(out, &c, 1);
  }
}

static void add_paragraphs(hec_text *out, const char *text) {
  bool kept = false;
  for (const char *at = text; *at;) {
    size_t n = strcspn(at, "\n");
    bool keep = n > 0 && *at == ' ';
    if (keep != kept)
      hec_text_add(out, keep ? ".PP\n.nf\n" : ".fi\n.PP\n");
    kept = keep;
    if (n == 0)
      hec_text_add(out, ".PP\n");
    else {
      add_plain(out, at, n);
      hec_text_add(out, "\n");
    }
    at += n + (at[n] == '\n');
  }
  hec_text_add(out, kept ? ".fi\n" : "");
}

static void add_options(const hec_command *command, hec_text *out) {
  hec_text_add(out, ".SH OPTIONS\n");
  for (const hec_arg *arg = command->args; arg->name; arg++) {
    hec_text_add(out, arg->kind == HEC_ARG_SECTION ? ".SS " : ".TP\n\\fB");
    add_word(out, arg->name);
    if (arg->kind == HEC_ARG_SECTION) {
      hec_text_add(out, "\n");
      continue;
    }
    hec_text_add(out, "\\fR");
    if (arg->value) {
      hec_text_add(out, " \\fI");
      add_word(out, arg->value);
      hec_text_add(out, "\\fR");
    }
    hec_text_add(out, "\n");
    add_word(out, arg->help);
    hec_text_add(out, "\n");
  }
  hec_text_add(out, ".SS In every command\n.TP\n\\fB\\-\\-help\\fR\nThis, as text.\n.TP\n\\fB\\-\\-version\\fR\n"
                    "The version, and how it was built.\n");
}

static void add_see_also(const hec_command *command, hec_text *out) {
  const hec_tool *tool = hec_tool_running();
  int n = 0;
  hec_text_add(out, ".SH SEE ALSO\n");
  if (tool && !is_tool(command)) {
    hec_text_add(out, "\\fB");
    add_name(out, tool->name, false);
    hec_text_add(out, "\\fR(1)");
    n++;
  }
  for (const hec_tool_command *c = tool ? tool->commands : NULL; c && c->name; c++) {
    if (!c->summary || strcmp(command->program + strlen(tool->name) + (is_tool(command) ? 0 : 1), c->name) == 0)
      continue;
    hec_text_add(out, n++ ? ", \\fB" : "\\fB");
    add_name(out, tool->name, false);
    hec_text_add(out, "\\-");
    add_name(out, c->name, false);
    hec_text_add(out, "\\fR(1)");
  }
  hec_text_add(out, "\n");
}

static void add_commands(hec_text *out) {
  hec_text_add(out, ".SH COMMANDS\n");
  for (const hec_tool_command *c = hec_tool_running()->commands; c->name; c++) {
    if (!c->summary)
      continue;
    hec_text_add(out, ".TP\n\\fB");
    add_word(out, c->name);
    hec_text_add(out, "\\fR\n");
    add_word(out, c->summary);
    hec_text_add(out, "\n");
  }
}

void hec_pages_man(const hec_command *command, hec_text *out) {
  hec_text_add(out, ".TH ");
  add_name(out, command->program, true);
  hec_text_add(out, " 1 \"\" \"hecate " HEC_VERSION "\" \"hecate\"\n.SH NAME\n");
  add_name(out, command->program, false);
  hec_text_add(out, " \\- ");
  add_word(out, line_of(command));
  hec_text_add(out, "\n.SH SYNOPSIS\n.nf\n");
  for (const char *at = command->usage; *at;) {
    at += strspn(at, " ");
    size_t n = strcspn(at, "\n");
    add_plain(out, at, n);
    hec_text_add(out, "\n");
    at += n + (at[n] == '\n');
  }
  hec_text_add(out, ".fi\n.SH DESCRIPTION\n");
  add_paragraphs(out, command->summary);
  if (is_tool(command) && hec_tool_running()->commands->name)
    add_commands(out);
  add_options(command, out);
  if (command->notes) {
    hec_text_add(out, ".SH NOTES\n");
    add_paragraphs(out, command->notes);
  }
  if (command->examples) {
    hec_text_add(out, ".SH EXAMPLES\n");
    add_paragraphs(out, command->examples);
  }
  hec_text_add(out, ".SH EXIT STATUS\n");
  add_word(out, command->exits ? command->exits : HEC_ARGS_EXITS);
  hec_text_add(out, ".\n");
  add_see_also(command, out);
}

/* ---- Completion ---- */

/* A field: no tab, no new line in it. */
static void add_field(hec_text *out, const char *text) {
  hec_text_add(out, "\t");
  for (; *text; text++)
    hec_text_add_bytes(out, *text == '\t' || *text == '\n' ? " " : text, 1);
}

void hec_pages_complete(const hec_command *command, hec_text *out) {
  static const char *const kinds[] = {
      [HEC_ARG_FLAG] = "flag",  [HEC_ARG_INT] = "whole",    [HEC_ARG_INT32] = "whole", [HEC_ARG_DOUBLE] = "real",
      [HEC_ARG_BYTES] = "size", [HEC_ARG_SECONDS] = "real", [HEC_ARG_TEXT] = "word",   [HEC_ARG_PAPER] = "word"};
  for (const hec_tool_command *c = is_tool(command) ? hec_tool_running()->commands : NULL; c && c->name; c++) {
    if (!c->summary)
      continue;
    hec_text_add(out, "command");
    add_field(out, c->name);
    add_field(out, c->summary);
    hec_text_add(out, "\n");
  }
  for (const hec_arg *arg = command->args; arg->name; arg++) {
    if (arg->kind == HEC_ARG_SECTION)
      continue;
    HEC_SCOPED(hec_text) values = {0};
    hec_text_add(&values, "");
    if (arg->kind != HEC_ARG_FLAG)
      hec_pages_values(command, arg->name, &values);
    hec_text_add(out, "option");
    add_field(out, arg->name);
    add_field(out, kinds[arg->kind]);
    add_field(out, arg->value ? arg->value : "");
    hec_text_printf(out, "\t%.16g", arg->min);
    add_field(out, values.data);
    add_field(out, arg->help);
    hec_text_add(out, "\n");
  }
}
