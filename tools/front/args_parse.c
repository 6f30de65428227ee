/* See args.h: one loop over argv, one look-up in the table. */
#include "tools/front/args.h"

#include "runtime/base/progress.h"
#include "runtime/base/text.h"
#include "tools/front/pages.h"
#include "tools/front/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hec_args_add_flags(const char *sentence, hec_text *out) {
  for (const char *at = sentence; *at;) {
    size_t n = *at == '`' ? strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    if (n == 0 || at[n + 1] != '`') {
      hec_text_add_bytes(out, at++, 1);
      continue;
    }
    hec_text_add(out, "--");
    for (size_t i = 1; i <= n; i++)
      hec_text_add_bytes(out, at[i] == '_' ? "-" : &at[i], 1);
    at += n + 2;
  }
}

const char *hec_args_with_flags(const char *sentence, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0};
  hec_args_add_flags(sentence, &text);
  const char *copy = hec_arena_text(arena, text.data ? text.data : "");
  return copy;
}

void hec_args_item(const char *name, int width, const char *words) {
  HEC_SCOPED(hec_text) line = {0}, named = {0};
  hec_args_add_flags(words, &named);
  hec_text_printf(&line, "  %-*s", width, name);
  hec_text_wrap(&line, named.data ? named.data : "", line.length, width + 3, HEC_ARGS_COLUMNS);
  printf("%s\n", line.data);
}

void hec_args_list_item(const char *name, const char *format, ...) {
  char words[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  hec_args_item(name, 26, words);
}

void hec_args_list_options(const hec_option *options, const void *values, int width) {
  HEC_SCOPED(hec_text) words = {0};
  for (const hec_option *o = options; o && o->name; o++) {
    char left[64];
    words.length = 0;
    (void)snprintf(left, sizeof left, "  %s=%s", o->name, o->type == HEC_OPTION_REAL ? "X" : "N");
    hec_option_explain(o, values, &words);
    HEC_SCOPED(hec_text) flags = {0};
    hec_args_add_flags(words.data, &flags);
    hec_args_item(left, width, flags.data);
  }
}

/* Commands of a tool, in the help of the tool itself. */
static void help_commands(const hec_tool *tool) {
  int width = 0;
  for (const hec_tool_command *c = tool->commands; c->name; c++)
    width = c->summary && (int)strlen(c->name) > width ? (int)strlen(c->name) : width;
  printf("%s", tool->commands->group ? "" : "\nCommands\n");
  for (const hec_tool_command *c = tool->commands; c->name; c++) {
    if (c->group)
      printf("\n%s\n", c->group);
    if (c->summary)
      hec_args_item(c->name, width + 1, c->summary);
  }
  printf("\n%s COMMAND --help says more.\n", tool->name);
}

static void help_option(const hec_arg *arg) {
  char left[64];
  (void)snprintf(left, sizeof left, "%s%s%s", arg->name, arg->value ? " " : "", arg->value ? arg->value : "");
  hec_args_item(left, 26, arg->help);
}

/* The options that the command wants first, in that order. */
static void help_first(const hec_command *command) {
  int32_t n = 0;
  printf("\nOptions\n");
  for (const char *at = command->first; *at; at += strspn(at, " ")) {
    size_t length = strcspn(at, " ");
    const hec_arg *arg = command->args;
    while (arg->name && (strlen(arg->name) != length || strncmp(arg->name, at, length) != 0))
      arg++;
    HEC_ASSERT(arg->name);
    help_option(arg);
    at += length;
  }
  for (const hec_arg *arg = command->args; arg->name; arg++)
    n += arg->kind != HEC_ARG_SECTION;
  printf("\n  --help all                 all %" PRId32 " options%s\n  --version\n", n,
         command->notes ? ", and the forms of files" : "");
}

static void help_all(const hec_command *command) {
  if (command->args->name && command->args->kind != HEC_ARG_SECTION)
    printf("\nOptions\n");
  for (const hec_arg *arg = command->args; arg->name; arg++) {
    if (arg->kind == HEC_ARG_SECTION)
      printf("\n%s\n", arg->name);
    else
      help_option(arg);
  }
  printf("\n  --help, --version\n");
  if (command->notes)
    printf("\nNotes\n%s\n", command->notes);
}

/* Words up to the end of the screen. */
static void help_paragraph(hec_text *words) {
  HEC_SCOPED(hec_text) line = {0};
  size_t first = words->data ? strcspn(words->data, " ") : 0;
  if (words->length > 0) {
    hec_text_add_bytes(&line, words->data, first);
    if (words->data[first])
      hec_text_wrap(&line, words->data + first + 1, first, 0, HEC_ARGS_COLUMNS);
    printf("%s\n", line.data);
  }
  hec_text_free(words);
}

/* Lines that follow each other are a paragraph; empty ones, and those that begin with a space, stay as they are. */
static void help_summary(const char *words) {
  hec_text paragraph = {0};
  for (size_t n; *words; words += n + (words[n] == '\n')) {
    n = strcspn(words, "\n");
    if (n > 0 && *words != ' ') {
      hec_text_add(&paragraph, paragraph.length > 0 ? " " : "");
      hec_text_add_bytes(&paragraph, words, n);
      continue;
    }
    help_paragraph(&paragraph);
    printf("%.*s\n", (int)n, words);
  }
  help_paragraph(&paragraph);
}

static void help(const hec_command *command, bool all) {
  const hec_tool *tool = hec_tool_running();
  printf("usage: %s\n\n", command->usage);
  help_summary(command->summary);
  if (tool && strcmp(tool->name, command->program) == 0 && tool->commands->name)
    help_commands(tool);
  if (command->first && !all)
    help_first(command);
  else
    help_all(command);
  if (command->examples)
    printf("\nExamples\n%s\n", command->examples);
  printf("\nExit codes: %s.\nProgress: on stderr, if that is a terminal; also when stdout is piped.\n",
         command->exits ? command->exits : HEC_ARGS_EXITS);
}

static bool is_help(const char *word) {
  return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* --help, --help all, --help=man, --help=complete, --version: prints; false: the word is none of them. `next`: behind it. */
static bool describe(const hec_command *command, const char *word, const char *next) {
  HEC_SCOPED(hec_text) text = {0};
  if (is_help(word) || strcmp(word, "--help=all") == 0)
    help(command, !is_help(word) || (next && strcmp(next, "all") == 0));
  else if (strcmp(word, "--help=man") == 0)
    hec_pages_man(command, &text);
  else if (strcmp(word, "--help=complete") == 0)
    hec_pages_complete(command, &text);
  else if (strcmp(word, "--version") == 0)
    hec_pages_version(command, &text);
  else
    return false;
  printf("%s", text.data ? text.data : "");
  return true;
}

/* --help=WORD and --version=WORD that are none of those above. */
static hec_status check_described(const char *word) {
  if (strncmp(word, "--help=", 7) == 0)
    return hec_fail(HEC_BAD_INPUT, "--help: expected all, man, complete or nothing behind it, found \"%.100s\"",
                    word + 7);
  if (strncmp(word, "--version=", 10) == 0)
    return hec_fail(HEC_BAD_INPUT, "--version: takes no value, found \"%.100s\"", word + 10);
  return HEC_OK;
}

hec_status hec_args_parse(const hec_command *command, int argc, char **argv, const char **positional, int32_t n,
                          int32_t *count, bool *done) {
  hec_args args;
  hec_args_begin(command, &args);
  *count = 0;
  *done = false;
  for (int i = 1, ended = 0; i < argc; i++) {
    if (!ended && strcmp(argv[i], "--") == 0) {
      ended = 1;
      continue;
    }
    *done = !ended && describe(&args.command, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    if (*done)
      return HEC_OK;
    if (!ended)
      HEC_TRY(check_described(argv[i]));
    if (!ended && argv[i][0] == '-' && argv[i][1] != 0) {
      HEC_TRY(hec_args_set(&args, argc, (const char *const *)argv, &i));
    } else {
      if (*count == n)
        return hec_fail(HEC_BAD_INPUT, "unexpected argument \"%s\"; see %s --help", argv[i], command->program);
      positional[(*count)++] = argv[i];
    }
  }
  return HEC_OK;
}

int hec_tool_exit(const char *program, hec_status status) {
  hec_progress_end();
  if (status == HEC_OK && (fflush(stdout) != 0 || ferror(stdout)))
    status = hec_fail(HEC_FAILED, "standard output: cannot be written");
  if (status != HEC_OK) {
    HEC_SCOPED(hec_text) message = {0};
    hec_args_add_flags(hec_last_error(), &message);
    fprintf(stderr, "%s: %s\n", program, message.data ? message.data : "");
  }
  return (int)status;
}
