/* See timeline_files.h. */
#include "tools/common/timeline_files.h"

#include "runtime/base/files.h"
#include "runtime/base/temporary.h"

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

static hec_status refuse(const char *path, const char *found) {
  return hec_fail(HEC_BAD_INPUT, "%s: cannot be replaced, expected nothing but timelines of ranks in it, found %s",
                  path, found);
}

typedef enum { LOOK, REMOVE } task;

/* The folder of a row (`rows`: of all of them), looked at: nothing else may be in it; or removed. */
static hec_status walk_folder(const hec_timeline_format *format, const char *path, bool rows, task what) {
  struct stat info;
  if (lstat(path, &info) != 0)
    return errno == ENOENT ? HEC_OK : hec_fail(HEC_FAILED, "%s: cannot be replaced: %s", path, strerror(errno));
  DIR *folder = S_ISDIR(info.st_mode) ? hec_folder_open(path) : NULL;
  hec_status status = HEC_OK;
  if (!folder)
    return S_ISDIR(info.st_mode) ? hec_fail(HEC_FAILED, "%s: cannot be replaced: %s", path, strerror(errno))
                                 : refuse(path, S_ISLNK(info.st_mode) ? "a link" : "a file");
  for (const struct dirent *entry; status == HEC_OK && (entry = readdir(folder)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
      continue;
    hec_text below = {0};
    hec_text_printf(&below, "%s/%s", path, entry->d_name);
    bool known = lstat(below.data, &info) == 0 && (rows ? S_ISDIR(info.st_mode) != 0 : is_ours(format, entry->d_name));
    if (!known)
      status = refuse(path, entry->d_name);
    else if (rows)
      status = walk_folder(format, below.data, false, what);
    else if (S_ISDIR(info.st_mode))
      status = refuse(path, entry->d_name);
    else if (what == REMOVE)
      (void)unlink(below.data);
    hec_text_free(&below);
  }
  (void)closedir(folder);
  if (status == HEC_OK && what == REMOVE && rmdir(path) != 0)
    status = hec_fail(HEC_FAILED, "%s: cannot be replaced: %s", path, strerror(errno));
  return status;
}

/* All of it, or nothing where something else is in it. */
static hec_status remove_folder(const hec_timeline_format *format, const char *path) {
  HEC_TRY(walk_folder(format, path, true, LOOK));
  return walk_folder(format, path, true, REMOVE);
}

/* ---- The folder ---- */

typedef enum { PLACE, PART, OLD } stage;

static void path_of(const hec_timeline_files *files, stage of, hec_text *path) {
  static const char *const ends[] = {[PLACE] = "", [PART] = ".part", [OLD] = ".old"};
  hec_text_printf(path, "%s/%s%s", files->out, files->format->name, ends[of]);
}

static hec_status make_folder(const char *path) {
  if (mkdir(path, 0777) != 0 && errno != EEXIST)
    return hec_fail(HEC_FAILED, "%s: cannot be made: %s", path, strerror(errno));
  return HEC_OK;
}

hec_status hec_timeline_files_check(const hec_timeline_files *files, const hec_path_use *reads, int32_t n_reads) {
  HEC_TRY(hec_output_check(files->out, reads, n_reads));
  hec_status status = HEC_OK;
  for (stage of = PLACE; status == HEC_OK && hec_timeline_by_rank(files->format) && of <= OLD; of++) {
    hec_text path = {0};
    path_of(files, of, &path);
    status = walk_folder(files->format, path.data, true, LOOK);
    hec_text_free(&path);
  }
  return status;
}

static bool is_there(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0;
}

/* What a killed run left: its part, and what it had moved aside. */
static hec_status remove_left(const hec_timeline_format *format, const hec_text path[OLD + 1]) {
  HEC_TRY(remove_folder(format, path[PART].data));
  if (!is_there(path[PLACE].data) && is_there(path[OLD].data) && rename(path[OLD].data, path[PLACE].data) != 0)
    return hec_fail(HEC_FAILED, "%s: cannot be put back: %s", path[OLD].data, strerror(errno));
  return remove_folder(format, path[OLD].data);
}

hec_status hec_timeline_files_begin(hec_timeline_files *files) {
  HEC_TRY(hec_output_begin(files->out, &files->held));
  if (!hec_timeline_by_rank(files->format))
    return HEC_OK;
  hec_text path[OLD + 1] = {{0}};
  for (stage of = PLACE; of <= OLD; of++)
    path_of(files, of, &path[of]);
  hec_status status = remove_left(files->format, path);
  if (status == HEC_OK) {
    hec_temporary_add_below(path[PART].data);
    status = make_folder(path[PART].data);
    files->parted = status == HEC_OK;
  }
  for (stage of = PLACE; of <= OLD; of++)
    hec_text_free(&path[of]);
  return status;
}

hec_status hec_timeline_files_put(void *context, const char *folder, int32_t rank, const hec_text *file) {
  const hec_timeline_files *files = context;
  hec_text path = {0};
  path_of(files, PART, &path);
  hec_text_printf(&path, "/%s", folder);
  if (access(path.data, F_OK) != 0)
    hec_temporary_add_below(path.data);
  hec_status status = make_folder(path.data);
  hec_text_printf(&path, "/%s%" PRId32 "%s", files->format->prefix, rank, files->format->suffix);
  hec_temporary_add_below(path.data);
  FILE *out = status == HEC_OK ? hec_file_open(path.data, "wb") : NULL;
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

/* The old folder steps aside, the new one comes, the old one goes. Signals wait (hec_write_files_with). */
static hec_status swap(const hec_timeline_format *format, const hec_text path[OLD + 1]) {
  HEC_TRY(walk_folder(format, path[PLACE].data, true, LOOK));
  if (rename(path[PLACE].data, path[OLD].data) != 0 && errno != ENOENT)
    return hec_fail(HEC_FAILED, "%s: cannot be replaced: %s", path[PLACE].data, strerror(errno));
  if (rename(path[PART].data, path[PLACE].data) != 0) {
    hec_status status = hec_fail(HEC_FAILED, "%s: cannot be put in place: %s", path[PLACE].data, strerror(errno));
    (void)rename(path[OLD].data, path[PLACE].data);
    return status;
  }
  bool removed = remove_folder(format, path[OLD].data) == HEC_OK;
  (void)removed; /* else the next run does; this one's files are all there */
  return HEC_OK;
}

/* When the files beside it are written and before they are renamed. */
static hec_status put_in_place(void *context) {
  hec_timeline_files *files = context;
  hec_text path[OLD + 1] = {{0}};
  for (stage of = PLACE; of <= OLD; of++)
    path_of(files, of, &path[of]);
  hec_status status = swap(files->format, path);
  for (stage of = PLACE; of <= OLD; of++)
    hec_text_free(&path[of]);
  return status;
}

/* The cause is said, not what else goes wrong here. */
static hec_status drop_part(const hec_timeline_files *files, hec_status status) {
  hec_text part = {0}, why = {0};
  path_of(files, PART, &part);
  hec_text_add(&why, hec_last_error());
  if (remove_folder(files->format, part.data) != HEC_OK)
    status = hec_fail(status, "%s", why.data);
  hec_text_free(&why);
  hec_text_free(&part);
  return status;
}

/* What runs in other formats left is of other numbers. A folder with anything else in it stays. */
static void remove_others(const hec_timeline_files *files) {
  for (int32_t i = 0; hec_timeline_formats[i]; i++) {
    const hec_timeline_files other = {.out = files->out, .format = hec_timeline_formats[i]};
    if (other.format == files->format || !hec_timeline_by_rank(other.format))
      continue;
    hec_text path = {0};
    path_of(&other, PLACE, &path);
    bool removed = remove_folder(other.format, path.data) == HEC_OK;
    (void)removed;
    hec_text_free(&path);
  }
}

hec_status hec_timeline_files_finish(hec_timeline_files *files, hec_status status, const hec_output_files *out) {
  if (status == HEC_OK)
    status = hec_output_write(files->out, out, files->parted ? put_in_place : NULL, files);
  if (status != HEC_OK && files->parted)
    status = drop_part(files, status);
  if (status == HEC_OK)
    remove_others(files);
  hec_output_end(files->out, &files->held);
  files->parted = false;
  return status;
}

/* ---- In a text: "FOLDER RANK BYTES\n", then the bytes ---- */

hec_status hec_timeline_pack(void *text, const char *folder, int32_t rank, const hec_text *file) {
  hec_text_printf(text, "%s %" PRId32 " %zu\n", folder, rank, file->length);
  hec_text_add_bytes(text, file->data, file->length);
  return HEC_OK;
}

static hec_status unpack(hec_timeline_files *files, const hec_text *packed) {
  hec_status status = HEC_OK;
  const char *at = packed->data, *last = at + packed->length;
  while (status == HEC_OK && at < last) {
    char folder[128], *after;
    size_t n = strcspn(at, " ");
    (void)snprintf(folder, sizeof folder, "%.*s", (int)n, at);
    long rank = strtol(at + n, &after, 10);
    size_t bytes = strtoull(after, &after, 10);
    hec_text file = {.data = after + 1, .length = bytes};
    status = hec_timeline_files_put(files, folder, (int32_t)rank, &file);
    at = after + 1 + bytes;
  }
  return status;
}

hec_status hec_timeline_write_out(const char *folder, const hec_timeline_format *format, hec_output_files *files) {
  hec_timeline_files by_rank = {.out = folder, .format = format};
  hec_status status = hec_timeline_files_begin(&by_rank);
  if (status == HEC_OK && hec_timeline_by_rank(format)) {
    status = unpack(&by_rank, &files->timeline);
    hec_text_free(&files->timeline);
  }
  return hec_timeline_files_finish(&by_rank, status, files);
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
