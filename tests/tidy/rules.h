/* The rules that tests/tidy holds the tree to; test_tidy.c applies them to the tree and to texts that break them. */
#pragma once
#include "runtime/base/text.h"

enum { HEC_TIDY_FUNCTION_LINES = 80, HEC_TIDY_FILE_LINES = 600 }; /* more is too long */

/* PATH includes a file of its own folder. */
enum { HEC_TIDY_STEM = 128 };
typedef struct {
  char path[HEC_TIDY_STEM], from[HEC_TIDY_STEM], to[HEC_TIDY_STEM]; /* from, to: without suffixes */
  int line;
} hec_tidy_include;

typedef struct {
  hec_text found; /* one line per finding: PATH:LINE: what is wrong */
  int n_found, n_files;
  hec_tidy_include *arrows; /* inside folders */
  size_t n_arrows, arrows_capacity;
  bool on_disk; /* included files must exist below HEC_SOURCE_DIR (not for the texts of the self-tests) */
} hec_tidy;     /* zero-initialise; free with hec_tidy_free */

void hec_tidy_complain(hec_tidy *f, const char *path, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Every rule that applies to a file with this path (from the top of the tree) and this text. */
void hec_tidy_file(hec_tidy *f, const char *path, const char *text);
/* circles.c: remembers an include; and of all that were remembered, after the last file, those that are in a circle. */
void hec_tidy_arrow(hec_tidy *f, const char *path, int line, const char *included);
void hec_tidy_circles(hec_tidy *f);
/* An entry of the top level; `has_sources`: a folder that holds anything written by hand. */
void hec_tidy_top_entry(hec_tidy *f, const char *name, bool is_folder, bool has_sources);
void hec_tidy_free(hec_tidy *f);

bool hec_tidy_starts(const char *text, const char *prefix);
bool hec_tidy_ends(const char *text, const char *suffix);
