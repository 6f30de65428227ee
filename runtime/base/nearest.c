/* Distance: letters that are inserted, left out or exchanged (Levenshtein 1966), and neighbours that changed places. A name
 * is near within a third of its length. O(length of both) a name; longer words than any name of ours are near to none. */
#include "runtime/base/nearest.h"

#include <ctype.h>
#include <string.h>

enum { LENGTH_MAX = 63 };

static int letter(char c) {
  return c == '-' || c == ' ' ? '_' : tolower((unsigned char)c);
}

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t distance(const char *a, size_t n, const char *b, size_t m) {
  size_t rows[3][LENGTH_MAX + 1], *before = rows[0], *last = rows[1], *now = rows[2];
  for (size_t j = 0; j <= m; j++)
    last[j] = j;
  for (size_t i = 1; i <= n; i++) {
    now[0] = i;
    for (size_t j = 1; j <= m; j++) {
      int x = letter(a[i - 1]), y = letter(b[j - 1]);
      now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (x != y));
      if (i > 1 && j > 1 && x == letter(b[j - 2]) && y == letter(a[i - 2]))
        now[j] = least(now[j], before[j - 2] + 1);
    }
    size_t *spare = before;
    before = last;
    last = now;
    now = spare;
  }
  return last[m];
}

const char *hec_nearest(const char *word, const char *const *names, size_t n) {
  const char *nearest = NULL;
  size_t length = strlen(word), best = LENGTH_MAX;
  for (size_t i = 0; i < n && length <= LENGTH_MAX; i++) {
    size_t m = strlen(names[i]);
    if (m > LENGTH_MAX)
      continue;
    size_t d = distance(word, length, names[i], m);
    if (d < best && 3 * d <= m) {
      best = d;
      nearest = names[i];
    }
  }
  return nearest;
}
