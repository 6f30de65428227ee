/* See files.h. Reading is O(bytes). */
#include "runtime/base/files.h"

#include "runtime/base/arena.h"

#include <errno.h>
#include <fcntl.h>
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
  const char *slash = strrchr(file, '/');
  if (name[0] != '/' && slash)
    hec_text_add_bytes(path, file, (size_t)(slash - file) + 1);
  hec_text_add(path, name);
}

bool hec_file_claim(int file) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(file, F_SETLK, &lock) == 0 || (errno != EACCES && errno != EAGAIN);
}
