/* The rule of tests/tidy about circles. Of the files of one folder, where NAME.c and NAME.h are one, none may know another
 * that knows it in turn, over however many. Arrows that lead to a file from which none goes on, or come from one to which
 * none leads, are in no circle. They are taken away until none is left to take. Passes * arrows^2. */
#include "runtime/base/arena.h"
#include "tests/tidy/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without its suffix. */
static void stem_of(const char *path, char stem[HEC_TIDY_STEM]) {
  (void)snprintf(stem, HEC_TIDY_STEM, "%.*s", (int)(strrchr(path, '.') - path), path);
}

void hec_tidy_arrow(hec_tidy *f, const char *path, int line, const char *included) {
  const char *slash = strrchr(path, '/');
  size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
  if (folder == 0 || strncmp(path, included, folder) != 0 || strchr(included + folder, '/') || !strchr(included, '.'))
    return;
  hec_tidy_include arrow = {.line = line};
  (void)snprintf(arrow.path, sizeof arrow.path, "%s", path);
  stem_of(path, arrow.from);
  stem_of(included, arrow.to);
  if (strcmp(arrow.from, arrow.to) == 0)
    return;
  HEC_RESERVE(f->arrows, f->arrows_capacity, f->n_arrows + 1);
  f->arrows[f->n_arrows++] = arrow;
}

/* Does an arrow go on from where this one leads, and does one lead to where it comes from? */
static bool is_between(const hec_tidy *f, const hec_tidy_include *arrow) {
  bool goes_on = false, is_led_to = false;
  for (const hec_tidy_include *a = f->arrows; a < f->arrows + f->n_arrows; a++) {
    goes_on = goes_on || strcmp(a->from, arrow->to) == 0;
    is_led_to = is_led_to || strcmp(a->to, arrow->from) == 0;
  }
  return goes_on && is_led_to;
}

void hec_tidy_circles(hec_tidy *f) {
  for (size_t before = f->n_arrows + 1; f->n_arrows < before;) {
    before = f->n_arrows;
    for (size_t i = f->n_arrows; i-- > 0;)
      if (!is_between(f, &f->arrows[i]))
        f->arrows[i] = f->arrows[--f->n_arrows];
  }
  for (const hec_tidy_include *a = f->arrows; a < f->arrows + f->n_arrows; a++)
    hec_tidy_complain(f, a->path, a->line, "a circle of files: includes \"%s.h\", which comes back to %s", a->to,
                      a->from);
}
