/* Distance: letters that are inserted, left out or exchanged (Levenshtein 1966), and neighbours that changed places. A name
 * is near within a third of its length. O(length of both) a name; longer words than any name of ours are near to none. */
#include "runtime/base/nearest.h"

#include <ctype.h>
#include <string.h>

enum { LENGTH_MAX = 63, BEGINNING_MIN = 3 };

static int letter(char c) {
  return c == '-' || c == ' ' ? '_' : tolower((unsigned char)c);
}

static size_t min(size_t a, size_t b) {
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
      now[j] = min(min(last[j], now[j - 1]) + 1, last[j - 1] + (x != y));
      if (i > 1 && j > 1 && x == letter(b[j - 2]) && y == letter(a[i - 2]))
        now[j] = min(now[j], before[j - 2] + 1);
    }
    size_t *spare = before;
    before = last;
    last = now;
    now = spare;
  }
  return last[m];
}

void hec_nearest_offer(hec_nearest_search *search, const char *name) {
  size_t length = strlen(search->word), m = strlen(name);
  if (length > LENGTH_MAX || m > LENGTH_MAX)
    return;
  size_t d = distance(search->word, length, name, m);
  if (3 * d <= m && (!search->nearest || d < search->distance)) {
    search->distance = d;
    search->nearest = name;
  }
  size_t same = 0;
  while (same < length && same < m && letter(search->word[same]) == letter(name[same]))
    same++;
  if (same == length && length >= BEGINNING_MIN && search->n_longer < HEC_NEAREST_LONGER)
    search->longer[search->n_longer++] = name;
}

const char *hec_nearest(const char *word, const char *const *names, size_t n) {
  hec_nearest_search search = {.word = word};
  for (size_t i = 0; i < n; i++)
    hec_nearest_offer(&search, names[i]);
  return search.nearest;
}

void hec_nearest_hint(const hec_nearest_search *search, hec_text *words) {
  if (search->nearest)
    hec_text_printf(words, " (did you mean \"%s\"?)", search->nearest);
  else
    for (int i = 0; i < search->n_longer; i++)
      hec_text_printf(words, "%s\"%s\"%s", i == 0 ? " (did you mean " : " or ", search->longer[i],
                      i == search->n_longer - 1 ? "?)" : "");
}
