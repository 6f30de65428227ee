/* See output.h. */
#include "tools/front/output.h"

#include "runtime/base/files.h"
#include "runtime/base/progress.h"
#include "runtime/base/temporary.h"
#include "tools/front/colour.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void hec_output_hold_standard(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* the lowest free one: fd */
  static char room[1 << 16]; /* for lists and help as a whole: a run that fails meanwhile has written nothing */
  if (!isatty(STDOUT_FILENO))
    (void)setvbuf(stdout, room, _IOFBF, sizeof room);
}

/* The folder that `path` is in, with its last slash; "" for the current one. */
static void add_parent(const char *path, hec_text *parent) {
  size_t n = strlen(path);
  while (n > 0 && path[n - 1] == '/')
    n--;
  while (n > 0 && path[n - 1] != '/')
    n--;
  hec_text_add_bytes(parent, path, n);
}

static bool parent_is_writable(const char *path) {
  HEC_SCOPED(hec_text) parent = {0};
  add_parent(path, &parent);
  bool writable = access(parent.length > 0 ? parent.data : ".", W_OK | X_OK) == 0;
  int error = errno;
  errno = error;
  return writable;
}

hec_status hec_output_check_file(const char *option, const char *path) {
  struct stat info;
  if (strcmp(path, "-") == 0)
    return hec_fail(HEC_BAD_INPUT, "%s -: expected a file, standard output has the results", option);
  bool there = stat(path, &info) == 0;
  if (path[0] == 0 || (there && S_ISDIR(info.st_mode)))
    return hec_fail(HEC_BAD_INPUT, "%s %s: expected a file to write, found %s", option, path,
                    there ? "a directory" : "no name");
  if (there && !S_ISREG(info.st_mode) ? access(path, W_OK) == 0 : parent_is_writable(path))
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s %s: expected a file that can be written, found: %s", option, path,
                  strerror(errno));
}

hec_status hec_output_check_stream(const char *path) {
  if (strcmp(path, "-") != 0)
    return hec_output_check_file("--out", path);
  if (isatty(STDOUT_FILENO) == 1)
    hec_progress_end();
  return HEC_OK;
}

hec_status hec_output_check_made_up(const char *option, const char *path, const char *head) {
  HEC_TRY(hec_output_check_file(option, path));
  char bytes[64];
  size_t n = strlen(head);
  HEC_ASSERT(n <= sizeof bytes);
  struct stat info;
  FILE *file = stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 ? hec_file_open(path, "rb") : NULL;
  if (!file)
    return HEC_OK;
  bool ours = fread(bytes, 1, n, file) == n && memcmp(bytes, head, n) == 0;
  (void)fclose(file);
  if (ours)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: hecate did not write this file; move it, or give %s another name", path, option);
}

static const char *const names[] = {"timeline.json", "summary.csv", "compare.md", "report.html", "summary.json"};
enum { N_NAMES = sizeof names / sizeof *names };

static hec_status check_names(const char *folder, const char *const *of, int32_t n, const hec_path_use *reads,
                              int32_t n_reads) {
  HEC_SCOPED(hec_manifest) ours = {.lines = {0}};
  HEC_TRY(hec_manifest_read(folder, &ours));
  for (int32_t i = 0; i < n; i++) {
    HEC_SCOPED(hec_text) path = {0};
    hec_text_printf(&path, "%s/%s", folder, of[i]);
    struct stat info;
    if (stat(path.data, &info) == 0 && !S_ISREG(info.st_mode))
      return hec_fail(HEC_BAD_INPUT, "--out %s: expected a folder where files can be written, found %s %s in it",
                      folder, S_ISDIR(info.st_mode) ? "a folder" : "something that is no file,", of[i]);
    for (int32_t r = 0; r < n_reads; r++)
      HEC_TRY(hec_paths_check((const hec_path_use[]){reads[r], {"--out", path.data, true}}, 2));
    HEC_TRY(hec_manifest_check(&ours, folder, of[i]));
  }
  return HEC_OK;
}

hec_status hec_output_check(const char *folder, const hec_path_use *reads, int32_t n_reads) {
  return hec_output_check_named(folder, names, N_NAMES, reads, n_reads);
}

hec_status hec_output_check_named(const char *folder, const char *const *of, int32_t n, const hec_path_use *reads,
                                  int32_t n_reads) {
  struct stat info;
  if (strcmp(folder, "-") == 0)
    return hec_fail(HEC_BAD_INPUT, "--out -: expected a folder, standard output has the results");
  if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode))
    return hec_fail(HEC_BAD_INPUT, "--out %s: expected a folder, found a file", folder);
  if (access(folder, W_OK | X_OK) == 0)
    return check_names(folder, of, n, reads, n_reads);
  if (errno != ENOENT || folder[0] == 0)
    return hec_fail(HEC_BAD_INPUT, "--out %s: expected a folder that can be written, found: %s", folder,
                    strerror(errno));
  if (lstat(folder, &info) == 0)
    return hec_fail(HEC_BAD_INPUT, "--out %s: expected a folder, found a link to nothing", folder);
  if (parent_is_writable(folder))
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "--out %s: expected a folder to make it in, found: %s", folder, strerror(errno));
}

void hec_output_free(hec_output_files *files) {
  hec_text_free(&files->json);
  hec_text_free(&files->csv);
  hec_text_free(&files->timeline);
  hec_text_free(&files->report);
  hec_text_free(&files->page);
}

static void say_waiting(const char *folder) {
  HEC_SCOPED(hec_text) line = {0};
  hec_text_add(&line, "note: --out ");
  hec_text_add_plain(&line, folder);
  hec_text_add(&line, ": another run is writing there; waiting until it is done\n");
  hec_progress_wipe();
  (void)fputs(line.data, stderr);
}

/* A signal between the two would leave an empty folder, or remove one that was there. It is remembered first: memory may run
 * out there. */
static bool make_folder(const char *folder) {
  hec_temporary_shield();
  hec_temporary_add(folder);
  bool made = mkdir(folder, 0777) == 0;
  int error = errno;
  if (!made)
    hec_temporary_drop(folder);
  hec_temporary_unshield();
  errno = error;
  return made;
}

/* Whether the folder that is held is still in its place: the run waited for may have failed and removed what it made. */
static bool is_in_place(const char *folder, int lock) {
  struct stat there, held;
  return stat(folder, &there) == 0 && fstat(lock, &held) == 0 && there.st_dev == held.st_dev &&
         there.st_ino == held.st_ino;
}

/* The folder, locked; the first time that another run has it, that is said. -1: cannot be had. */
static int lock_folder(const char *folder, int how, bool *said) {
  int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool busy = lock >= 0 && flock(lock, how | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (busy && !*said)
    say_waiting(folder);
  *said = *said || busy;
  while (busy && flock(lock, how) != 0 && errno == EINTR)
    ;
  return lock;
}

int hec_output_look(const char *folder) {
  bool said = false;
  return lock_folder(folder, LOCK_SH, &said);
}

hec_status hec_output_begin(const char *folder, hec_output_held *held) {
  bool said = false;
  for (;;) {
    held->made = make_folder(folder);
    if (!held->made && errno != EEXIST)
      return hec_fail(HEC_FAILED, "--out %s: cannot be made: %s", folder, strerror(errno));
    held->begun = true;
    held->lock = lock_folder(folder, LOCK_EX, &said);
    if (held->lock < 0 || is_in_place(folder, held->lock))
      return HEC_OK;
    hec_temporary_drop(folder);
    (void)close(held->lock);
  }
}

void hec_output_end(const char *folder, hec_output_held *held) {
  if (!held->begun)
    return;
  if (held->made) {
    (void)rmdir(folder); /* with files in it, it stays */
    hec_temporary_drop(folder);
  }
  if (held->lock >= 0)
    (void)close(held->lock);
  *held = (hec_output_held){0};
}

static void remove_file(const char *folder, const char *name) {
  HEC_SCOPED(hec_text) path = {0};
  hec_text_printf(&path, "%s/%s", folder, name);
  (void)unlink(path.data);
}

/* That nobody put a file of theirs there since hec_output_check; and what the folder will hold of hecate's: this run's
 * files. Until all are in place those of before count, too, in `meanwhile`: a killed run leaves some of both. */
static hec_status list_files(const char *folder, const hec_text *const all[N_NAMES], const hec_manifest *below,
                             hec_text *meanwhile, hec_text *after) {
  HEC_SCOPED(hec_manifest) before = {.lines = {0}}, now = {.lines = {0}};
  hec_status status = hec_manifest_read(folder, &before);
  for (int i = 0; status == HEC_OK && i < N_NAMES; i++) {
    status = hec_manifest_check(&before, folder, names[i]);
    if (all[i]->length > 0)
      hec_manifest_add(&now, names[i], all[i]->data, all[i]->length);
  }
  if (below)
    hec_manifest_join(&now, below);
  hec_manifest_join_others(&now, &before, names, N_NAMES, false);
  hec_manifest_text(&now, after);
  hec_manifest_join(&now, &before);
  hec_manifest_text(&now, meanwhile);
  return status == HEC_OK ? HEC_OK : HEC_FAILED; /* the input was good when it was looked at */
}

hec_status hec_output_write(const char *folder, const hec_output_files *files, const hec_manifest *below,
                            hec_status (*place)(void *context), void *context) {
  const hec_text *const all[N_NAMES] = {&files->timeline, &files->csv, &files->report, &files->page, &files->json};
  HEC_SCOPED(hec_text) meanwhile = {0}, after = {0};
  hec_text paths[N_NAMES + 1] = {{0}};
  hec_file_out out[N_NAMES + 1];
  int32_t n = 1;
  hec_status status = list_files(folder, all, below, &meanwhile, &after);
  hec_text_printf(&paths[0], "%s/" HEC_MANIFEST_NAME, folder);
  out[0] = (hec_file_out){paths[0].data, meanwhile.data, meanwhile.length};
  for (int i = 0; i < N_NAMES; i++) {
    if (all[i]->length == 0)
      continue;
    hec_text_printf(&paths[n], "%s/%s", folder, names[i]);
    out[n] = (hec_file_out){paths[n].data, all[i]->data, all[i]->length};
    n++;
  }
  if (status == HEC_OK)
    status = hec_write_files_with(out, n, place, context);
  for (int i = 0; status == HEC_OK && i < N_NAMES; i++)
    if (all[i]->length == 0)
      remove_file(folder, names[i]);
  bool whole = status == HEC_OK && hec_write_file(paths[0].data, after.data, after.length) == HEC_OK;
  (void)whole; /* else it lists the earlier run's, too */
  for (int i = 0; i <= N_NAMES; i++)
    hec_text_free(&paths[i]);
  return status;
}

/* As hec_output_write does it. */
static hec_status write_named(const char *folder, const hec_named_file *files, int32_t n) {
  const char *of[HEC_NAMED_FILES_MAX];
  HEC_SCOPED(hec_text) meanwhile = {0}, after = {0};
  hec_text paths[HEC_NAMED_FILES_MAX + 1] = {{0}};
  hec_file_out out[HEC_NAMED_FILES_MAX + 1];
  HEC_SCOPED(hec_manifest) before = {.lines = {0}}, now = {.lines = {0}};
  int32_t n_out = 1;
  hec_status status = hec_manifest_read(folder, &before);
  for (int32_t i = 0; i < n; i++) {
    of[i] = files[i].name;
    status = status == HEC_OK ? hec_manifest_check(&before, folder, of[i]) : status;
    if (files[i].text.length == 0)
      continue;
    hec_manifest_add(&now, of[i], files[i].text.data, files[i].text.length);
    hec_text_printf(&paths[n_out], "%s/%s", folder, of[i]);
    out[n_out] = (hec_file_out){paths[n_out].data, files[i].text.data, files[i].text.length};
    n_out++;
  }
  hec_manifest_join_others(&now, &before, of, n, true);
  hec_manifest_text(&now, &after);
  hec_manifest_join(&now, &before);
  hec_manifest_text(&now, &meanwhile);
  hec_text_printf(&paths[0], "%s/" HEC_MANIFEST_NAME, folder);
  out[0] = (hec_file_out){paths[0].data, meanwhile.data, meanwhile.length};
  status = status == HEC_OK ? hec_write_files(out, n_out) : status;
  for (int32_t i = 0; status == HEC_OK && i < n; i++)
    if (files[i].text.length == 0)
      remove_file(folder, of[i]);
  bool whole = status == HEC_OK && hec_write_file(paths[0].data, after.data, after.length) == HEC_OK;
  (void)whole;
  for (int32_t i = 0; i <= HEC_NAMED_FILES_MAX; i++)
    hec_text_free(&paths[i]);
  return status;
}

hec_status hec_output_write_named(const char *folder, const hec_named_file *files, int32_t n) {
  hec_output_held held = {0};
  HEC_ASSERT(n <= HEC_NAMED_FILES_MAX);
  hec_status status = hec_output_begin(folder, &held);
  if (status == HEC_OK)
    status = write_named(folder, files, n);
  hec_output_end(folder, &held);
  return status;
}

void hec_output_mention(const char *folder, bool page, bool report, const hec_timeline_format *format, hec_text *out) {
  hec_text_add(out, "Written: ");
  hec_text_add_plain(out, folder);
  hec_text_printf(out, "/%ssummary.json, summary.csv, %s", page ? "report.html (open in a browser), " : "",
                  report ? "compare.md, " : "");
  if (hec_timeline_by_rank(format)) {
    hec_text_add(out, "and timelines of each rank below ");
    hec_text_add_plain(out, folder);
    hec_text_printf(out, "/%s.\n", format->name);
  } else
    hec_text_add(out, "timeline.json (open in https://ui.perfetto.dev).\n");
}

hec_status hec_output_print(const hec_text *text) {
  HEC_SCOPED(hec_text) coloured = {0};
  hec_progress_end();
  if (text->length > 0 && hec_colour_wanted()) {
    hec_colour_add(text->data, text->length, &coloured);
    text = &coloured;
  }
  bool written = fwrite(text->data, 1, text->length, stdout) == text->length && fflush(stdout) == 0;
  return written ? HEC_OK : hec_fail(HEC_FAILED, "standard output: cannot be written: %s", strerror(errno));
}
