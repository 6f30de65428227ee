/* See timeline_files.h. */
#include "tools/front/timeline_files.h"

#include "runtime/base/files.h"
#include "runtime/base/table.h"
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

typedef struct {
  const hec_timeline_format *format;
  const char *out;              /* DIR */
  const hec_manifest *manifest; /* files must be in it; NULL: their names are enough, in what is hecate's alone */
  task what;
} walk;

static hec_status walk_folder(const walk *w, const char *path, bool rows);

static hec_status walk_entry(const walk *w, const char *folder, const char *name, const char *path, bool rows) {
  struct stat info;
  bool there = lstat(path, &info) == 0, is_folder = there && S_ISDIR(info.st_mode);
  if (!there || is_folder != rows || (!rows && !is_ours(w->format, name)))
    return refuse(folder, name);
  if (rows)
    return walk_folder(w, path, false);
  if (w->manifest)
    HEC_TRY(hec_manifest_check(w->manifest, w->out, path + strlen(w->out) + 1));
  if (w->what == REMOVE)
    (void)unlink(path);
  return HEC_OK;
}

/* The folder of a row (`rows`: of all of them), looked at: nothing else may be in it; or removed. */
static hec_status walk_folder(const walk *w, const char *path, bool rows) {
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
    HEC_SCOPED(hec_text) below = {0};
    hec_text_printf(&below, "%s/%s", path, entry->d_name);
    status = walk_entry(w, path, entry->d_name, below.data, rows);
  }
  (void)closedir(folder);
  if (status == HEC_OK && w->what == REMOVE && rmdir(path) != 0)
    status = hec_fail(HEC_FAILED, "%s: cannot be replaced: %s", path, strerror(errno));
  return status;
}

static hec_status look_at(const hec_timeline_files *files, const hec_manifest *manifest, const char *path) {
  return walk_folder(&(walk){files->format, files->out, manifest, LOOK}, path, true);
}

/* All of it, or nothing where something else is in it. */
static hec_status remove_folder(const hec_timeline_files *files, const hec_manifest *manifest, const char *path) {
  HEC_TRY(look_at(files, manifest, path));
  return walk_folder(&(walk){files->format, files->out, NULL, REMOVE}, path, true);
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

static hec_status look_at_all(const hec_timeline_files *files, const hec_path_use *reads, int32_t n_reads) {
  HEC_SCOPED(hec_manifest) ours = {.lines = {0}};
  HEC_TRY(hec_output_check(files->out, reads, n_reads));
  hec_status status = hec_manifest_read(files->out, &ours);
  for (stage of = PLACE; status == HEC_OK && hec_timeline_by_rank(files->format) && of <= OLD; of++) {
    HEC_SCOPED(hec_text) path = {0};
    path_of(files, of, &path);
    status = look_at(files, of == PLACE ? &ours : NULL, path.data);
  }
  return status;
}

hec_status hec_timeline_files_check(const hec_timeline_files *files, const hec_path_use *reads, int32_t n_reads) {
  int held = hec_output_look(files->out);
  hec_status status = look_at_all(files, reads, n_reads);
  if (held >= 0)
    (void)close(held);
  return status;
}

static bool is_there(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0;
}

/* What a killed run left: its part, and what it had moved aside. */
static hec_status remove_left(const hec_timeline_files *files, const hec_text path[OLD + 1]) {
  HEC_TRY(remove_folder(files, NULL, path[PART].data));
  if (!is_there(path[PLACE].data) && is_there(path[OLD].data) && rename(path[OLD].data, path[PLACE].data) != 0)
    return hec_fail(HEC_FAILED, "%s: cannot be put back: %s", path[OLD].data, strerror(errno));
  return remove_folder(files, NULL, path[OLD].data);
}

hec_status hec_timeline_files_begin(hec_timeline_files *files) {
  (void)pthread_mutex_init(&files->mutex, NULL);
  files->before = files->written = (hec_manifest){.lines = {0}};
  HEC_TRY(hec_output_begin(files->out, &files->held));
  HEC_TRY(hec_manifest_read(files->out, &files->before));
  if (!hec_timeline_by_rank(files->format))
    return HEC_OK;
  hec_text path[OLD + 1] = {{0}};
  for (stage of = PLACE; of <= OLD; of++)
    path_of(files, of, &path[of]);
  hec_status status = remove_left(files, path);
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
  hec_timeline_files *files = context;
  HEC_SCOPED(hec_text) path = {0}, name = {0};
  hec_text_printf(&name, "%s/%s/%s%" PRId32 "%s", files->format->name, folder, files->format->prefix, rank,
                  files->format->suffix);
  (void)pthread_mutex_lock(&files->mutex);
  hec_manifest_add(&files->written, name.data, file->data, file->length);
  (void)pthread_mutex_unlock(&files->mutex);
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
  return status;
}

/* The old folder steps aside, the new one comes, the old one goes. Signals wait (hec_write_files_with). */
static hec_status swap(const hec_timeline_files *files, const hec_text path[OLD + 1]) {
  HEC_TRY(look_at(files, &files->before, path[PLACE].data));
  if (rename(path[PLACE].data, path[OLD].data) != 0 && errno != ENOENT)
    return hec_fail(HEC_FAILED, "%s: cannot be replaced: %s", path[PLACE].data, strerror(errno));
  if (rename(path[PART].data, path[PLACE].data) != 0) {
    hec_status status = hec_fail(HEC_FAILED, "%s: cannot be put in place: %s", path[PLACE].data, strerror(errno));
    (void)rename(path[OLD].data, path[PLACE].data);
    return status;
  }
  bool removed = remove_folder(files, NULL, path[OLD].data) == HEC_OK;
  (void)removed; /* else the next run does; this one's files are all there */
  return HEC_OK;
}

/* When the files beside it are written and before they are renamed. */
static hec_status put_in_place(void *context) {
  hec_timeline_files *files = context;
  hec_text path[OLD + 1] = {{0}};
  for (stage of = PLACE; of <= OLD; of++)
    path_of(files, of, &path[of]);
  hec_status status = swap(files, path);
  for (stage of = PLACE; of <= OLD; of++)
    hec_text_free(&path[of]);
  return status;
}

/* The cause is said, not what else goes wrong here. */
static hec_status drop_part(const hec_timeline_files *files, hec_status status) {
  HEC_SCOPED(hec_text) part = {0}, why = {0};
  path_of(files, PART, &part);
  hec_text_add(&why, hec_last_error());
  if (remove_folder(files, NULL, part.data) != HEC_OK)
    status = hec_fail(status, "%s", why.data);
  return status;
}

/* What runs in other formats left is of other numbers. A folder with anything in it that is not hecate's stays. */
static void remove_others(const hec_timeline_files *files) {
  for (int32_t i = 0; hec_timeline_formats[i]; i++) {
    const hec_timeline_files other = {.out = files->out, .format = hec_timeline_formats[i]};
    if (other.format == files->format || !hec_timeline_by_rank(other.format))
      continue;
    HEC_SCOPED(hec_text) path = {0};
    path_of(&other, PLACE, &path);
    bool removed = remove_folder(&other, &files->before, path.data) == HEC_OK;
    (void)removed;
  }
}

hec_status hec_timeline_files_finish(hec_timeline_files *files, hec_status status, const hec_output_files *out) {
  if (status == HEC_OK)
    status = hec_output_write(files->out, out, &files->written, files->parted ? put_in_place : NULL, files);
  if (status != HEC_OK && files->parted)
    status = drop_part(files, status);
  if (status == HEC_OK)
    remove_others(files);
  hec_output_end(files->out, &files->held);
  hec_manifest_free(&files->before);
  hec_manifest_free(&files->written);
  (void)pthread_mutex_destroy(&files->mutex);
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
  if (!*format)
    return hec_table_unknown(&(hec_table){.rows = hec_timeline_formats}, "--timeline-format", name);
  if (name && !out)
    return hec_fail(HEC_BAD_INPUT, "--timeline-format: expected --out DIR beside it, found none");
  return HEC_OK;
}
