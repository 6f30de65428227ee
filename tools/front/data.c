/* See data.h. CMake puts links to the project's files into the build tree, and their copies beside an installed
 * program. HEC_DATA_FROM_PROGRAM is the way there from an installed one. */
#include "tools/front/data.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* With its last slash; "" where the system does not tell. */
static void add_program_folder(hec_text *to) {
  char program[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", program, sizeof program);
  while (n > 0 && program[n - 1] != '/')
    n--;
  hec_text_add_bytes(to, program, n > 0 ? (size_t)n : 0);
}

/* The project's files: of the build tree where there are some, else as installed. */
static void add_root(hec_text *to) {
  HEC_SCOPED(hec_text) folder = {0}, built = {0};
  add_program_folder(&folder);
  hec_text_printf(&built, "%sshare/hecate", folder.length > 0 ? folder.data : "");
  if (access(built.data, X_OK) == 0)
    hec_text_add(to, built.data);
  else
    hec_text_printf(to, "%s" HEC_DATA_FROM_PROGRAM, folder.length > 0 ? folder.data : "");
}

void hec_data_folder(const char *below, hec_text *path) {
  add_root(path);
  hec_text_printf(path, "/%s", below);
}

hec_status hec_data_find(const char *option, const char *below, hec_text *path) {
  hec_data_folder(below, path);
  if (access(path->data, R_OK) == 0)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: not there, though it comes with hecate; name the file with %s", path->data,
                  option);
}

void hec_data_shared(const char *below, hec_text *path) {
  const char *shared = getenv("HECATE_SHARED");
  if (shared && shared[0]) {
    hec_text_add(path, shared);
  } else {
    add_root(path);
    hec_text_add(path, "/../shared");
  }
  hec_text_printf(path, "/%s", below);
}

hec_status hec_data_find_recorded(const char *given, const char *below, hec_text *path) {
  if (given) {
    hec_text_add(path, given);
    return HEC_OK;
  }
  hec_data_shared(below, path);
  if (access(path->data, R_OK) == 0)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT,
                  "%s: no recorded data there; name a file with --cases, or the folder of cases/ in HECATE_SHARED",
                  path->data);
}
