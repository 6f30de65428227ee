/* Line by line, by what stands there: reports come from many places, none of which knows where it will be read. */
#include "tools/front/colour.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOLD "\033[1m"
#define GREEN "\033[32m"
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"

static bool is_capable(int file) {
  const char *terminal = getenv("TERM");
  return isatty(file) == 1 && terminal && terminal[0] && strcmp(terminal, "dumb") != 0;
}

bool hec_colour_wanted(void) {
  const char *none = getenv("NO_COLOR");
  return !(none && none[0]) && is_capable(STDOUT_FILENO);
}

bool hec_progress_wanted(void) {
  return is_capable(STDERR_FILENO);
}

/* Words that are numbers, with a unit of one sign behind them ("1.00x", "3%"); *gaps: runs of blanks between words. */
static int count_numbers(const char *line, size_t n, int *gaps) {
  int numbers = 0;
  *gaps = 0;
  for (size_t i = 0; i < n;) {
    size_t blanks = 0, word = 0, digits = 0;
    while (i + blanks < n && line[i + blanks] == ' ')
      blanks++;
    *gaps += i > 0 && blanks > 1;
    i += blanks;
    while (i + word < n && line[i + word] != ' ')
      word++;
    while (digits < word && strchr("0123456789.+-e", line[i + digits]))
      digits++;
    bool has_digit = word > 0 && strcspn(line + i, "0123456789") < digits;
    numbers += has_digit && digits + 1 >= word;
    i += word;
  }
  return numbers;
}

static bool begins(const char *line, size_t n, const char *with) {
  size_t length = strlen(with);
  return n >= length && strncmp(line, with, length) == 0;
}

static void add_painted(hec_text *out, const char *colour, const char *text, size_t n) {
  hec_text_add(out, colour);
  hec_text_add_bytes(out, text, n);
  hec_text_add(out, PLAIN);
}

/* A line that is no head: words of it. */
static void add_words(const char *line, size_t n, int numbers, hec_text *out) {
  static const struct { const char *word, *colour; } known[] = {{"passed", GREEN}, {"FAILED", RED}, {"NOT EXACT", RED}};
  size_t at = 0;
  if (begins(line, n, "mind ")) {
    add_painted(out, YELLOW, line, 4);
    at = 4;
  }
  while (at < n) {
    size_t k = 0, length = 0;
    for (; k < sizeof known / sizeof *known; k++) {
      length = strlen(known[k].word);
      if ((at == 0 || line[at - 1] == ' ') && begins(line + at, n - at, known[k].word))
        break;
    }
    if (k < sizeof known / sizeof *known) {
      add_painted(out, known[k].colour, line + at, length);
      at += length;
    } else if (numbers > 2 && at + 3 == n && begins(line + at, 3, " no")) {
      hec_text_add(out, " ");
      add_painted(out, RED, line + at + 1, 2);
      at = n;
    } else {
      hec_text_add_bytes(out, line + at++, 1);
    }
  }
}

void hec_colour_add(const char *text, size_t length, hec_text *out) {
  bool head = false; /* may this line be one of a table's? */
  if (length > 0 && (text[0] == '{' || text[0] == '[')) {
    hec_text_add_bytes(out, text, length);
    return;
  }
  for (size_t at = 0; at < length;) {
    const char *line = text + at, *end = memchr(line, '\n', length - at);
    size_t n = end ? (size_t)(end - line) : length - at;
    int gaps, numbers = count_numbers(line, n, &gaps);
    bool columns = head && numbers == 0 && gaps > 1;
    if (n > 0 && begins(line, n, "Fastest"))
      add_painted(out, BOLD GREEN, line, n);
    else if (n > 0 && (columns || (at == 0 && begins(line, n, "hecate-"))))
      add_painted(out, BOLD, line, n);
    else
      add_words(line, n, numbers, out);
    head = n == 0 || columns;
    at += n;
    if (at < length) {
      hec_text_add(out, "\n");
      at++;
    }
  }
}
