/* A recursive-descent recogniser without recursion: one byte per level says whether it is an object or an array. */
#include "models/json_scan.h"

#include "runtime/base/arena.h"

#include <stdbool.h>
#include <string.h>

typedef struct {
  const char *text;
  size_t length, at;
  hec_json_scan out;
} scanner;

static int peek(const scanner *s) {
  return s->at < s->length ? (unsigned char)s->text[s->at] : -1;
}

static bool fail(scanner *s, const char *expected) {
  s->out.error_at = s->at;
  s->out.expected = expected;
  return false;
}

static void skip_space(scanner *s) {
  while (s->at < s->length && memchr(" \t\r\n", s->text[s->at], 4))
    s->at++;
}

static bool is_digit(int c) {
  return c >= '0' && c <= '9';
}

static bool skip_digits(scanner *s) {
  if (!is_digit(peek(s)))
    return fail(s, "a digit");
  while (is_digit(peek(s)))
    s->at++;
  return true;
}

static bool skip_number(scanner *s) {
  enum { DIGITS_MAX = 60 }; /* cJSON copies a number to a buffer of 64 bytes */
  size_t begin = s->at;
  if (peek(s) == '-')
    s->at++;
  if (peek(s) == '0')
    s->at++;
  else if (!skip_digits(s))
    return false;
  if (peek(s) == '.') {
    s->at++;
    if (!skip_digits(s))
      return false;
  }
  if (peek(s) == 'e' || peek(s) == 'E') {
    s->at++;
    if (peek(s) == '+' || peek(s) == '-')
      s->at++;
    if (!skip_digits(s))
      return false;
  }
  if (s->at - begin <= DIGITS_MAX)
    return true;
  s->at = begin;
  return fail(s, "a number of at most 60 characters");
}

static int hex_value(int c) {
  if (is_digit(c))
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* At the four digits of \uXXXX; returns the code unit, -1 on a bad digit. */
static int code_unit(scanner *s) {
  int unit = 0;
  for (int i = 0; i < 4; i++, s->at++) {
    int digit = hex_value(peek(s));
    if (digit < 0)
      return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

static bool skip_unicode(scanner *s) {
  size_t begin = s->at;
  int unit = code_unit(s);
  if (unit < 0)
    return fail(s, "four hexadecimal digits");
  bool is_high = unit >= 0xd800 && unit < 0xdc00, is_low = unit >= 0xdc00 && unit < 0xe000;
  if (is_high && s->length - s->at >= 2 && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u') {
    s->at += 2;
    int second = code_unit(s);
    if (second >= 0xdc00 && second < 0xe000)
      return true;
  }
  if (!is_high && !is_low && unit != 0)
    return true;
  s->at = begin;
  return fail(s, unit == 0 ? "a character other than \\u0000" : "a pair of surrogates");
}

static bool skip_string(scanner *s) {
  s->at++; /* the opening quote */
  for (;;) {
    int c = peek(s);
    if (c < 0x20)
      return fail(s, c < 0 ? "the end of the string" : "no control character inside a string");
    s->at++;
    if (c == '"')
      return true;
    if (c != '\\')
      continue;
    c = peek(s);
    if (c <= 0 || !strchr("\"\\/bfnrtu", c))
      return fail(s, "one of \" \\ / b f n r t u after a backslash");
    s->at++;
    if (c == 'u' && !skip_unicode(s))
      return false;
  }
}

static bool skip_word(scanner *s, const char *word) {
  size_t n = strlen(word);
  if (s->length - s->at < n || memcmp(s->text + s->at, word, n) != 0)
    return fail(s, "a JSON value");
  s->at += n;
  return true;
}

static bool skip_scalar(scanner *s) {
  switch (peek(s)) {
  case '"':
    return skip_string(s);
  case 't':
    return skip_word(s, "true");
  case 'f':
    return skip_word(s, "false");
  case 'n':
    return skip_word(s, "null");
  default:
    return peek(s) == '-' || is_digit(peek(s)) ? skip_number(s) : fail(s, "a JSON value");
  }
}

static bool record_value(scanner *s) {
  if (s->out.n_values == HEC_JSON_VALUES_MAX)
    return fail(s, "at most 16777216 values in a document");
  HEC_RESERVE(s->out.value_at, s->out.capacity, s->out.n_values + 1);
  s->out.value_at[s->out.n_values++] = s->at;
  return true;
}

static bool skip_key(scanner *s) {
  skip_space(s);
  if (peek(s) != '"')
    return fail(s, "a key in quotes");
  if (!skip_string(s))
    return false;
  skip_space(s);
  if (peek(s) != ':')
    return fail(s, "':' after the key");
  s->at++;
  return true;
}

/* After a complete value: closes what ends here. Sets *done when the outermost value is complete. */
static bool after_value(scanner *s, const char *closing, int *depth, bool *done) {
  for (;;) {
    skip_space(s);
    if (*depth == 0) {
      *done = true;
      return s->at == s->length || fail(s, "the end of the document");
    }
    bool in_object = closing[*depth - 1] == '}';
    if (peek(s) == ',') {
      s->at++;
      return !in_object || skip_key(s);
    }
    if (peek(s) != closing[*depth - 1])
      return fail(s, in_object ? "',' or '}'" : "',' or ']'");
    s->at++;
    --*depth;
  }
}

/* At '{' or '['. Sets *empty when it closes at once. */
static bool open_container(scanner *s, char *closing, int *depth, bool *empty) {
  if (*depth == HEC_JSON_DEPTH_MAX)
    return fail(s, "nesting of at most 64 levels");
  char close = peek(s) == '{' ? '}' : ']';
  s->at++;
  skip_space(s);
  *empty = peek(s) == close;
  if (*empty) {
    s->at++;
    return true;
  }
  closing[(*depth)++] = close;
  return close != '}' || skip_key(s);
}

static bool scan_all(scanner *s) {
  char closing[HEC_JSON_DEPTH_MAX];
  int depth = 0;
  for (bool done = false; !done;) {
    skip_space(s);
    if (peek(s) < 0)
      return fail(s, "a JSON value");
    bool is_container = peek(s) == '{' || peek(s) == '[', complete = true;
    if (!record_value(s))
      return false;
    if (is_container ? !open_container(s, closing, &depth, &complete) : !skip_scalar(s))
      return false;
    if (complete && !after_value(s, closing, &depth, &done))
      return false;
  }
  return true;
}

hec_json_scan hec_json_scan_text(const char *text, size_t length) {
  scanner s = {.text = text, .length = length};
  (void)scan_all(&s); /* the outcome is in s.out.expected */
  return s.out;
}
