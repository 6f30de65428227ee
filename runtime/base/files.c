/* See files.h. Reading is O(bytes). */
#define _GNU_SOURCE /* realpath */
#include "runtime/base/files.h"

#include "runtime/base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *or_no_memory(FILE *file) {
  if (!file && errno == ENOMEM)
    hec_no_memory(0);
  return file;
}

FILE *hec_file_open(const char *path, const char *mode) {
  return or_no_memory(fopen(path, mode));
}

FILE *hec_file_temporary(void) {
  return or_no_memory(tmpfile());
}

DIR *hec_folder_open(const char *path) {
  DIR *folder = opendir(path);
  if (!folder && errno == ENOMEM)
    hec_no_memory(0);
  return folder;
}

/* What there is, but at most one byte more than the limit. */
static hec_status read_all(const char *path, FILE *file, size_t limit, char **bytes, size_t *length) {
  size_t capacity = 0, n = 0;
  errno = 0;
  do {
    HEC_RESERVE(*bytes, capacity, n + 65536);
    n += fread(*bytes + n, 1, capacity - n - 1, file);
  } while (!feof(file) && !ferror(file) && n <= limit);
  (*bytes)[n] = 0;
  *length = n;
  if (ferror(file))
    return hec_fail(HEC_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
  return n <= limit ? HEC_OK : hec_fail(HEC_BAD_INPUT, "%s:1: expected at most %zu bytes, found more", path, limit);
}

hec_status hec_file_read(const char *path, const char *wanted, size_t limit, char **bytes, size_t *length) {
  struct stat info;
  *bytes = NULL;
  FILE *file = hec_file_open(path, "rb");
  if (!file)
    return hec_fail(HEC_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
  hec_status status = HEC_OK;
  if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode))
    status = hec_fail(HEC_BAD_INPUT, "%s: expected %s, found a directory", path, wanted);
  if (status == HEC_OK)
    status = read_all(path, file, limit, bytes, length);
  (void)fclose(file);
  if (status != HEC_OK) {
    free(*bytes);
    *bytes = NULL;
  }
  return status;
}

void hec_file_beside(const char *file, const char *name, hec_text *path) {
  const char *slash = strncmp(file, "/dev/", 5) == 0 ? NULL : strrchr(file, '/');
  bool inside = name[0] != '/' && slash;
  if (inside)
    hec_text_add_bytes(path, file, (size_t)(slash - file) + 1);
  hec_text_add(path, inside && strncmp(name, "./", 2) == 0 ? name + 2 : name);
}

/* Without links, "." and "..", as far as it is there; "" for the root. */
static void add_real(const char *folder, hec_text *real) {
  HEC_SCOPED(hec_text) there = {0};
  char found[PATH_MAX];
  size_t n = strlen(folder);
  hec_text_add(&there, folder);
  while (!realpath(n > 0 ? there.data : folder[0] == '/' ? "/" : ".", found)) {
    if (n == 0)
      return;
    do
      there.data[--n] = '\0';
    while (n > 0 && folder[n] != '/');
  }
  hec_text_add(real, strcmp(found, "/") == 0 ? "" : found);
  hec_text_printf(real, "%s%s", folder[n] && folder[n] != '/' ? "/" : "", folder + n);
}

void hec_file_seen_from(const char *file, const char *path, hec_text *name) {
  HEC_SCOPED(hec_text) folder = {0}, from = {0};
  char to[PATH_MAX];
  hec_file_beside(file, "", &folder);
  while (folder.length > 1 && folder.data[folder.length - 1] == '/')
    folder.data[--folder.length] = '\0';
  add_real(folder.data, &from);
  if (!realpath(path, to)) {
    hec_text_add(name, path);
    return;
  }
  size_t common = 0; /* folders of both, as a length */
  for (size_t i = 0; from.data[i] == to[i] || strchr("/", from.data[i]); i++) {
    common = strchr("/", from.data[i]) && strchr("/", to[i]) ? i : common;
    if (from.data[i] != to[i] || !to[i])
      break;
  }
  const char *up = strchr(from.data + common, '/');
  hec_text_add(name, up ? "" : "./"); /* or a file may have the name of a preset */
  for (; up; up = strchr(up + 1, '/'))
    hec_text_add(name, "../");
  hec_text_add(name, to + common + (to[common] == '/'));
}

bool hec_file_claim(int file) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(file, F_SETLK, &lock) == 0 || (errno != EACCES && errno != EAGAIN);
}
