/* What else is made of a command's table of options (args.h), beside parsing and help. */
#pragma once
#include "runtime/base/text.h"
#include "tools/front/args.h"

/* --help=man: a manual page (roff, section 1). */
void hec_pages_man(const hec_command *command, hec_text *out);

/* --help=complete: for shells (tools/completion/), a line each, fields between tabs:
 *   command  NAME     SUMMARY                                         of the tool's own help
 *   option   --name   KIND  VALUE  LEAST  VALUES  HELP                KIND: flag, whole, real, size, word; VALUE: its name in
 *                                                                     the help; LEAST: of numbers; VALUES: those of a table
 *                                                                     in the program, blanks between */
void hec_pages_complete(const hec_command *command, hec_text *out);

/* Adds the names that stand for a value of the option, from the tables that know them; nothing where there is no table. */
void hec_pages_values(const hec_command *command, const char *option, hec_text *out);

/* --version: the tool's, then how it was built and which of the optional doors are there. */
void hec_pages_version(const hec_command *command, hec_text *out);
