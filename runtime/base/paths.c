/* See paths.h. A file that a rename replaces is gone for who named it as an input, too; so the files themselves are
 * compared, not their names. */
#include "runtime/base/paths.h"

#include "runtime/base/text.h"

#include <string.h>
#include <sys/stat.h>

/* The folder that a path without a trailing slash is in, and what it is called there. */
static const char *split(const char *path, hec_text *folder) {
  const char *slash = strrchr(path, '/');
  hec_text_add(folder, slash ? "" : ".");
  hec_text_add_bytes(folder, path, slash ? (size_t)(slash - path) + 1 : 0);
  return slash ? slash + 1 : path;
}

static bool same_new(const char *a, const char *b) {
  hec_text folders[2] = {{0}};
  struct stat of_a, of_b;
  bool same = strcmp(split(a, &folders[0]), split(b, &folders[1])) == 0 && stat(folders[0].data, &of_a) == 0 &&
              stat(folders[1].data, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
  hec_text_free(&folders[0]);
  hec_text_free(&folders[1]);
  return same;
}

/* The same file by device and number; links of both kinds are followed. Where neither is there yet: the same name in
 * the same folder. What is no regular file (/dev/null, a pipe) is never the same. */
static bool is_same(const char *a, const char *b) {
  struct stat of_a, of_b;
  bool a_there = stat(a, &of_a) == 0, b_there = stat(b, &of_b) == 0;
  if (!a_there && !b_there)
    return same_new(a, b);
  return a_there && b_there && S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* An input that is not there (a preset's name, a cluster's line) is no file. */
static bool is_file(const hec_path_use *use) {
  struct stat info;
  return use->path && strcmp(use->path, "-") != 0 && (use->written || stat(use->path, &info) == 0);
}

hec_status hec_paths_check(const hec_path_use *uses, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    for (int32_t j = 0; uses[i].written && is_file(&uses[i]) && j < n; j++) {
      if (i == j || (uses[j].written && i < j) || !is_file(&uses[j]) || !is_same(uses[i].path, uses[j].path))
        continue;
      return hec_fail(HEC_BAD_INPUT, "%s %s: expected a file that is %s, found %s %s itself", uses[i].what,
                      uses[i].path, uses[j].written ? "not written already" : "no input", uses[j].what, uses[j].path);
    }
  return HEC_OK;
}
