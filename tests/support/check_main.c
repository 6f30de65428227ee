/* splitmix64 is Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
#include "tests/support/check_main.h"

#include <sys/stat.h>

const char *hec_test_shared(void) {
  const char *folder = getenv("HECATE_SHARED");
  static char chosen[1024];
  (void)snprintf(chosen, sizeof chosen, "%s", folder && *folder ? folder : HEC_SOURCE_DIR "/../shared");
  struct stat info;
  return stat(chosen, &info) == 0 && S_ISDIR(info.st_mode) ? chosen : NULL;
}

const char *hec_test_shared_path(const char *relative) {
  static char paths[4][1200];
  static int turn;
  turn = (turn + 1) % 4;
  (void)snprintf(paths[turn], sizeof paths[turn], "%s/%s", hec_test_shared(), relative);
  return paths[turn];
}

void hec_test_skip(const char *name, const char *why) {
  printf("SKIPPED %s: %s\n", name, why);
  fflush(stdout);
}

const char *hec_test_wants(const char *test, const char *relative, const char *unchecked) {
  const char *path = hec_test_shared() ? hec_test_shared_path(relative) : NULL;
  struct stat info;
  if (path && stat(path, &info) == 0)
    return path;
  char why[512];
  (void)snprintf(why, sizeof why, "not checked: %s (needs %s below $HECATE_SHARED, default ../shared)", unchecked,
                 relative);
  hec_test_skip(test, why);
  return NULL;
}

uint64_t hec_test_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t hec_test_below(uint64_t *state, uint64_t n) {
  return hec_test_random(state) % n;
}

double hec_test_uniform(uint64_t *state) {
  return (double)(hec_test_random(state) >> 11) * 0x1p-53;
}

void hec_test_shuffle(uint64_t *state, int32_t *order, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    int32_t j = (int32_t)hec_test_below(state, (uint64_t)i + 1);
    order[i] = order[j];
    order[j] = i;
  }
}
