/* Distance: letters that are inserted, left out or exchanged (Levenshtein 1966), and neighbours that changed places. A name
 * is near within a third of its length. The dashes before an option are no letters: with them --nodes would be near --model.
 * O(length of both) a name; longer words than any name of ours are near to none. */
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

static const char *behind_dashes(const char *word) {
  return word + strspn(word, "-");
}

static bool is_near(size_t distance, size_t length) {
  return 3 * distance <= length;
}

/* Keeps the shortest ones, in the order of their lengths; of equal ones the first. */
static void add_longer(hec_nearest_search *search, const char *name) {
  int at = search->n_longer;
  while (at > 0 && strlen(search->longer[at - 1]) > strlen(name))
    at--;
  if (at == HEC_NEAREST_LONGER)
    return;
  search->n_longer += search->n_longer < HEC_NEAREST_LONGER;
  for (int i = search->n_longer - 1; i > at; i--)
    search->longer[i] = search->longer[i - 1];
  search->longer[at] = name;
}

void hec_nearest_offer(hec_nearest_search *search, const char *name) {
  const char *a = behind_dashes(search->word), *b = behind_dashes(name);
  size_t n = strlen(a), m = strlen(b), same = 0;
  if (n > LENGTH_MAX || m > LENGTH_MAX)
    return;
  size_t d = distance(a, n, b, m);
  if (is_near(d, m) && (!search->nearest || d < search->distance)) {
    search->distance = d;
    search->nearest = name;
  }
  while (same < n && same < m && letter(a[same]) == letter(b[same]))
    same++;
  if (same == n && n >= BEGINNING_MIN)
    add_longer(search, name);
}

const char *hec_nearest(const char *word, const char *const *names, size_t n) {
  hec_nearest_search search = {.word = word};
  for (size_t i = 0; i < n; i++)
    hec_nearest_offer(&search, names[i]);
  return search.nearest;
}

/* Names that begin with the word: the shortest alone where it is near, too; else all, for nothing tells which was meant. */
static int n_shown(const hec_nearest_search *search) {
  const char *word = behind_dashes(search->word),
             *name = search->n_longer > 0 ? behind_dashes(search->longer[0]) : NULL;
  return name && is_near(strlen(name) - strlen(word), strlen(name)) ? 1 : search->n_longer;
}

void hec_nearest_hint(const hec_nearest_search *search, hec_text *words) {
  int n = n_shown(search);
  if (n == 0 && search->nearest)
    hec_text_printf(words, " (did you mean \"%s\"?)", search->nearest);
  for (int i = 0; i < n; i++)
    hec_text_printf(words, "%s\"%s\"%s", i == 0 ? " (did you mean " : " or ", search->longer[i],
                    i == n - 1 ? "?)" : "");
}
