/* See timeline_files.h. */
#include "tools/common/timeline_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Removing what an earlier run wrote, and nothing else ---- */

static bool is_ours(const hec_timeline_format *format, const char *name) {
  size_t prefix = strlen(format->prefix), digits;
  if (strncmp(name, format->prefix, prefix) != 0)
    return false;
  digits = strspn(name + prefix, "0123456789");
  return digits > 0 && strcmp(name + prefix + digits, format->suffix) == 0;
}

/* Removes the folder of a row (`rows`: of all of them), unless something else is in it. */
static hec_status remove_folder(const hec_timeline_format *format, const char *path, bool rows) {
  DIR *folder = opendir(path);
  hec_status status = HEC_OK;
  if (!folder)
    return errno == ENOENT ? HEC_OK : hec_fail(HEC_FAILED, "%s: cannot be replaced: %s", path, strerror(errno));
  for (const struct dirent *entry; status == HEC_OK && (entry = readdir(folder)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
      continue;
    hec_text below = {0};
    struct stat info;
    hec_text_printf(&below, "%s/%s", path, entry->d_name);
    if (rows && lstat(below.data, &info) == 0 && S_ISDIR(info.st_mode))
      status = remove_folder(format, below.data, false);
    else if (!rows && is_ours(format, entry->d_name))
      (void)unlink(below.data);
    hec_text_free(&below);
  }
  (void)closedir(folder);
  if (status == HEC_OK && rmdir(path) != 0)
    status = hec_fail(HEC_FAILED, "%s: cannot be replaced, expected nothing but timelines of ranks in it: %s", path,
                      strerror(errno));
  return status;
}

/* ---- The folder ---- */

static void part_of(const hec_timeline_files *files, hec_text *path) {
  hec_text_printf(path, "%s/%s.part", files->out, files->format->name);
}

static hec_status make_folder(const char *path) {
  if (mkdir(path, 0777) != 0 && errno != EEXIST)
    return hec_fail(HEC_FAILED, "%s: cannot be made: %s", path, strerror(errno));
  return HEC_OK;
}

hec_status hec_timeline_files_begin(const hec_timeline_files *files) {
  if (!hec_timeline_by_rank(files->format))
    return HEC_OK;
  HEC_TRY(make_folder(files->out));
  hec_text part = {0};
  part_of(files, &part);
  hec_status status = remove_folder(files->format, part.data, true);
  if (status == HEC_OK)
    status = make_folder(part.data);
  hec_text_free(&part);
  return status;
}

hec_status hec_timeline_files_put(void *context, const char *folder, int32_t rank, const hec_text *file) {
  const hec_timeline_files *files = context;
  hec_text path = {0};
  part_of(files, &path);
  hec_text_printf(&path, "/%s", folder);
  hec_status status = make_folder(path.data);
  hec_text_printf(&path, "/%s%" PRId32 "%s", files->format->prefix, rank, files->format->suffix);
  FILE *out = status == HEC_OK ? fopen(path.data, "wb") : NULL;
  bool written = out && fwrite(file->data, 1, file->length, out) == file->length;
  int error = errno;
  if (out && fclose(out) != 0 && written) {
    written = false;
    error = errno;
  }
  if (status == HEC_OK && !written)
    status = hec_fail(HEC_FAILED, "%s: cannot be written: %s", path.data, strerror(error));
  hec_text_free(&path);
  return status;
}

hec_status hec_timeline_files_finish(const hec_timeline_files *files, hec_status status) {
  if (!hec_timeline_by_rank(files->format))
    return status;
  hec_text part = {0}, place = {0};
  part_of(files, &part);
  hec_text_printf(&place, "%s/%s", files->out, files->format->name);
  hec_status mine = status == HEC_OK ? remove_folder(files->format, place.data, true) : HEC_OK;
  if (status == HEC_OK && mine == HEC_OK && rename(part.data, place.data) != 0)
    mine = hec_fail(HEC_FAILED, "%s: cannot be put in place: %s", place.data, strerror(errno));
  if (status != HEC_OK || mine != HEC_OK)
    (void)!remove_folder(files->format, part.data, true);
  hec_text_free(&part);
  hec_text_free(&place);
  return status != HEC_OK ? status : mine;
}

/* ---- In a text: "FOLDER RANK BYTES\n", then the bytes ---- */

hec_status hec_timeline_pack(void *text, const char *folder, int32_t rank, const hec_text *file) {
  hec_text_printf(text, "%s %" PRId32 " %zu\n", folder, rank, file->length);
  hec_text_add_bytes(text, file->data, file->length);
  return HEC_OK;
}

/* begin, every file, finish. */
static hec_status unpack(const hec_timeline_files *files, const hec_text *packed) {
  hec_status status = hec_timeline_files_begin(files);
  const char *at = packed->data, *last = at + packed->length;
  while (status == HEC_OK && at < last) {
    char folder[128], *after;
    size_t n = strcspn(at, " ");
    (void)snprintf(folder, sizeof folder, "%.*s", (int)n, at);
    long rank = strtol(at + n, &after, 10);
    size_t bytes = strtoull(after, &after, 10);
    hec_text file = {.data = after + 1, .length = bytes};
    status = hec_timeline_files_put((void *)(uintptr_t)files, folder, (int32_t)rank, &file);
    at = after + 1 + bytes;
  }
  return hec_timeline_files_finish(files, status);
}

hec_status hec_timeline_write_out(const char *folder, const hec_timeline_format *format, hec_output_files *files) {
  if (hec_timeline_by_rank(format)) {
    HEC_TRY(unpack(&(hec_timeline_files){folder, format}, &files->timeline));
    hec_text_free(&files->timeline);
  }
  return hec_output_write(folder, files);
}

hec_status hec_timeline_format_arg(const char *name, const char *out, const hec_timeline_format **format) {
  *format = name ? hec_timeline_format_find(name) : hec_timeline_formats[0];
  if (!*format) {
    hec_text names = {0};
    for (int32_t i = 0; hec_timeline_formats[i]; i++)
      hec_text_printf(&names, "%s%s", i ? ", " : "", hec_timeline_formats[i]->name);
    hec_status status =
        hec_fail(HEC_BAD_INPUT, "--timeline-format: expected one of %s, found \"%s\"", names.data, name);
    hec_text_free(&names);
    return status;
  }
  if (name && !out)
    return hec_fail(HEC_BAD_INPUT, "--timeline-format: expected --out DIR beside it, found none");
  return HEC_OK;
}
