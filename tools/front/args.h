/* Command-line options as a table: the same rows parse, check ranges, print the help, and make manual pages and completion
 * (pages.h). Every option of every tool is such a row. Own code, because getopt and argp know neither ranges nor pages,
 * and libhecate reads options without their globals. */
#pragma once
#include "runtime/base/arena.h"
#include "runtime/base/option.h"
#include "runtime/base/table.h"

#include <stdbool.h>
#include <stdint.h>

/* The largest `iter` of a trace: exact as a double. */
#define HEC_ITER_MAX 9007199254740991.0

typedef enum {
  HEC_ARG_FLAG,
  HEC_ARG_INT,
  HEC_ARG_DOUBLE,
  HEC_ARG_BYTES,
  HEC_ARG_SECONDS,
  HEC_ARG_TEXT,
  HEC_ARG_INT32, /* a whole number of 32 bits ... */
  HEC_ARG_PAPER, /* ... or "paper", which is HEC_ARGS_PAPER */
  HEC_ARG_SECTION,
  HEC_ARG_OPTIONS /* a section with options that describe a run: options.h */
} hec_arg_kind;

typedef struct {
  const char *name; /* "--ranks"; a section's title for HEC_ARG_SECTION; NULL ends the table */
  hec_arg_kind kind;
  void *to; /* bool, int64_t, double or const char *, unchanged when the option is absent; hec_run_option_use */
  const char *value; /* name of the value in the help */
  const char *help;  /* with units and default */
  double min, max;   /* of numbers */
} hec_arg;

#define HEC_ARG_TITLE(title)                                                                                           \
  { .name = (title), .kind = HEC_ARG_SECTION }
#define HEC_ARG_WORD(option, target, what, text)                                                                       \
  { .name = (option), .kind = HEC_ARG_TEXT, .to = &(target), .value = (what), .help = (text) }
#define HEC_ARG_WHOLE(option, target, what, text, low, high)                                                           \
  {                                                                                                                    \
    .name = (option), .kind = HEC_ARG_INT, .to = &(target), .value = (what), .help = (text), .min = (low),             \
    .max = (high)                                                                                                      \
  }
/* Like HEC_ARG_REAL, with K, M, G or T for powers of 1000 behind the number. */
#define HEC_ARG_SIZE(option, target, what, text, low, high)                                                            \
  {                                                                                                                    \
    .name = (option), .kind = HEC_ARG_BYTES, .to = &(target), .value = (what), .help = (text), .min = (low),           \
    .max = (high)                                                                                                      \
  }
/* Seconds; with s, m or h behind the number, that unit: "90s", "2m". */
#define HEC_ARG_TIME(option, target, what, text, low, high)                                                            \
  {                                                                                                                    \
    .name = (option), .kind = HEC_ARG_SECONDS, .to = &(target), .value = (what), .help = (text), .min = (low),         \
    .max = (high)                                                                                                      \
  }
#define HEC_ARG_REAL(option, target, what, text, low, high)                                                            \
  {                                                                                                                    \
    .name = (option), .kind = HEC_ARG_DOUBLE, .to = &(target), .value = (what), .help = (text), .min = (low),          \
    .max = (high)                                                                                                      \
  }

enum { HEC_ARGS_MAX = 128, HEC_ARG_NAME_BYTES = 24, HEC_ARGS_PAPER = -2 }; /* rows of a table; of a name; see above */

typedef struct {
  const char *program;  /* "hecate-sim", "hecate-sim plan" */
  const char *usage;    /* lines of the usage, without "usage: " */
  const char *summary;  /* what it does */
  const char *examples; /* lines; those that are commands begin with two blanks. NULL: none */
  const char *notes;    /* reference: forms of files and the like, before the examples, in lines. NULL: none */
  const char *exits;    /* what its exit codes say; NULL: HEC_ARGS_EXITS */
  const hec_arg *args;
  const char *first; /* the options people need first, at most ten, as "--policy --out": what --help shows. NULL: all */
  const char *own;   /* an option of this command alone that takes names ... NULL: none */
  const hec_table *names; /* ... of these rows */
} hec_command;
#define HEC_ARGS_EXITS "0 done, 1 the run failed, 2 bad input or usage"

/* Parses argv[1..]: "--name value" or "--name=value". Options may stand anywhere before a "--", behind which there are
 * none. Fills `positional` (at most n) and their number. HEC_BAD_INPUT, naming it: an unknown option, a missing or
 * malformed value, a value given twice, too many positionals. These print to stdout and set *done: "--help", "--help
 * all", "--help=man", "--help=complete" and "--version". What stands before them was
 * parsed. */
hec_status hec_args_parse(const hec_command *command, int argc, char **argv, const char **positional, int32_t n,
                          int32_t *count, bool *done) HEC_MUST_USE;
/* Options alone. */
static inline hec_status hec_args_options(const hec_command *command, int argc, char **argv, bool *done) {
  int32_t n;
  return hec_args_parse(command, argc, argv, NULL, 0, &n, done);
}
/* A command at work: its table with the options that describe a run written out, and which rows have a value. */
typedef struct {
  hec_command command;
  hec_arg row[HEC_ARGS_MAX];
  char flag[HEC_ARGS_MAX][HEC_ARG_NAME_BYTES];
  bool given[HEC_ARGS_MAX];
} hec_args; /* must not move */
void hec_args_begin(const hec_command *command, hec_args *args);
/* The option that argv[*i] names; *i then stands on its value, if that is a word of its own. */
hec_status hec_args_set(hec_args *args, int argc, const char *const *argv, int *i) HEC_MUST_USE;
/* The whole number at the beginning of a text, for values that are more than one. Digits alone: no sign, no blank, no
 * zeros before others. What is behind them; NULL: there are none, or the number is above `max`. */
const char *hec_args_whole(const char *text, int64_t max, int64_t *value);
/* "A,B,..." as at most `n` whole numbers from `min` to `max`; HEC_BAD_INPUT names the option. */
typedef struct {
  const char *option;
  int64_t min, max;
  int32_t n_max;
} hec_args_list;
hec_status hec_args_wholes(const hec_args_list *list, const char *text, int32_t *values, int32_t *n) HEC_MUST_USE;
/* "  NAME  words", in lines of at most so many columns, words under words: of help and lists. */
enum { HEC_ARGS_COLUMNS = 100 };
void hec_args_item(const char *name, int width, const char *words);
void hec_args_list_item(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Options of the row above, an item each; `values`: where their defaults stand. */
void hec_args_list_options(const hec_option *options, const void *values, int width);

/* Lower floors know no flags: their sentences name an option by its key in backquotes, `micro_batches`. Adds them with the
 * flag instead, --micro-batches. */
void hec_args_add_flags(const char *sentence, hec_text *out);
const char *hec_args_with_flags(const char *sentence, hec_arena *arena);

/* Prints "PROGRAM: MESSAGE" to stderr for the last failure and returns the exit code. */
int hec_tool_exit(const char *program, hec_status status);
