/* A list that only grows, at its head, so that a signal handler, which may only look and unlink, can walk it at any time. An
 * entry is taken by its flag, set last and cleared first, so the handler never sees half a path. */
#include "runtime/base/temporary.h"

#include "runtime/base/arena.h"
#include "runtime/base/files.h"
#include "runtime/base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct entry {
  struct entry *older;
  pid_t maker; /* children have the list, too */
  bool below;  /* never dropped, so never taken again */
  volatile sig_atomic_t used;
  size_t room; /* bytes of `path` */
  char path[];
} entry;

static _Atomic(entry *) newest;
static atomic_bool stopping;

/* One that was dropped and is large enough. Those below folders are added by several threads and take none. */
static entry *find_dropped(size_t bytes) {
  entry *e = atomic_load(&newest);
  while (e && (e->below || e->used || e->room < bytes))
    e = e->older;
  return e;
}

static void add(const char *path, bool below) {
  size_t bytes = strlen(path) + 1;
  hec_before_no_memory(hec_temporary_remove);
  entry *e = below ? NULL : find_dropped(bytes);
  bool again = e != NULL;
  if (!again) {
    e = hec_malloc(1, sizeof *e + bytes);
    *e = (entry){.below = below, .room = bytes};
  }
  e->maker = getpid();
  memcpy(e->path, path, bytes);
  e->used = 1;
  if (again)
    return;
  e->older = atomic_load(&newest);
  while (!atomic_compare_exchange_weak(&newest, &e->older, e))
    ;
}

void hec_temporary_add(const char *path) {
  add(path, false);
}

void hec_temporary_add_below(const char *path) {
  add(path, true);
  while (atomic_load(&stopping))
    (void)pause();
}

void hec_temporary_drop(const char *path) {
  for (entry *e = atomic_load(&newest); e; e = e->older)
    if (!e->below && e->used && strcmp(e->path, path) == 0)
      e->used = 0;
}

void hec_temporary_forget(void) {
  for (entry *e = atomic_load(&newest); e; e = e->older)
    e->used = 0;
}

static void for_each(bool below, pid_t mine, int (*remove_path)(const char *path)) {
  for (const entry *e = atomic_load(&newest); e; e = e->older)
    if (e->used && e->below == below && e->maker == mine)
      (void)remove_path(e->path);
}

/* Whether something is left, which a thread was making meanwhile. */
static bool remove_below(pid_t mine) {
  bool left = false;
  for (const entry *e = atomic_load(&newest); e; e = e->older)
    if (e->used && e->below && e->maker == mine && unlink(e->path) != 0 && errno != ENOENT && rmdir(e->path) != 0)
      left = left || errno == ENOTEMPTY || errno == EEXIST;
  return left;
}

void hec_temporary_remove(void) {
  pid_t mine = getpid();
  atomic_store(&stopping, true);
  hec_progress_stop();
  for_each(false, mine, unlink);
  for (int i = 0; i < 1000 && remove_below(mine); i++)
    (void)poll(NULL, 0, 1);
  for_each(false, mine, rmdir); /* folders, now that nothing of ours is in them */
}

/* ---- Signals ---- */

static atomic_bool shielded;
static atomic_int waiting; /* the signal that came meanwhile; 0: none */

/* Each sets its own flag before it looks at the other's: of a signal and a shield that come at once, one sees the other. */
void hec_temporary_shield(void) {
  atomic_store(&shielded, true);
  while (atomic_load(&stopping)) /* until the handler, on another thread, has seen the shield or ended the program */
    (void)poll(NULL, 0, 1);
}

void hec_temporary_unshield(void) {
  atomic_store(&shielded, false);
  int number = atomic_exchange(&waiting, 0);
  if (number != 0)
    (void)raise(number);
}

static bool is_to_wait(int number) {
  atomic_store(&stopping, true);
  if (!atomic_load(&shielded))
    return false;
  atomic_store(&waiting, number);
  atomic_store(&stopping, false);
  return true;
}

static void clean_up(int number) {
  if (is_to_wait(number))
    return;
  hec_progress_stop();
  hec_temporary_remove();
  (void)signal(number, SIG_DFL);
  (void)raise(number); /* blocked here: the default action follows this handler */
}

void hec_temporary_watch_signals(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  /* Not SA_RESETHAND: `timeout` and a terminal may send a signal twice at once. The second one would end the program
   * between the reset and the handler. */
  struct sigaction action = {.sa_handler = clean_up}, before;
  (void)sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    (void)sigaddset(&action.sa_mask, numbers[i]);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
      (void)sigaction(numbers[i], &action, NULL);
  action = (struct sigaction){.sa_handler = SIG_IGN};
  (void)sigaction(SIGXFSZ, &action, NULL);
}

/* ---- Names, and what killed runs left under them ---- */

/* Whether `name` is BASE.PID.part of a process that is gone from this machine. */
static bool is_left(const char *name, const char *base) {
  size_t n = strlen(base), digits;
  if (strncmp(name, base, n) != 0 || name[n] != '.')
    return false;
  name += n + 1;
  digits = strspn(name, "0123456789");
  if (digits == 0 || digits > 10 || strcmp(name + digits, ".part") != 0)
    return false;
  long long pid = strtoll(name, NULL, 10);
  return pid > 0 && pid <= INT_MAX && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

static void remove_left(const char *path) {
  struct stat info;
  int file = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0)
    (void)unlink(path);
  (void)close(file);
}

void hec_temporary_begin(const char *path, hec_text *name) {
  const char *slash = strrchr(path, '/');
  HEC_SCOPED(hec_text) folder = {0}, left = {0};
  hec_text_add_bytes(&folder, path, slash ? (size_t)(slash - path) + 1 : 0);
  DIR *names = hec_folder_open(slash ? folder.data : ".");
  for (const struct dirent *found; names && (found = readdir(names)) != NULL;) {
    if (!is_left(found->d_name, slash ? slash + 1 : path))
      continue;
    left.length = 0;
    hec_text_printf(&left, "%s%s", folder.data, found->d_name);
    remove_left(left.data);
  }
  if (names)
    (void)closedir(names);
  hec_text_printf(name, "%s.%ld.part", path, (long)getpid());
  hec_temporary_add(name->data);
}

void hec_temporary_hold(FILE *file) {
  (void)flock(fileno(file), LOCK_EX | LOCK_NB); /* not every file system has it */
}

/* ---- Writing ---- */

/* A device or a pipe cannot be replaced by a rename (and must not be): it is written in place. */
static bool is_in_place(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

static hec_status write_bytes(const hec_file_out *out, const char *name, bool in_place) {
  FILE *file = hec_file_open(name, "wb");
  if (!file)
    return hec_fail(HEC_FAILED, "%s: cannot be written: %s", out->path, strerror(errno));
  if (!in_place)
    hec_temporary_hold(file);
  bool written = fwrite(out->data, 1, out->length, file) == out->length && fflush(file) == 0;
  int cause = errno;
  if (fclose(file) != 0 && written) {
    written = false;
    cause = errno;
  }
  return written ? HEC_OK : hec_fail(HEC_FAILED, "%s: cannot be written: %s", out->path, strerror(cause));
}

hec_status hec_write_files(const hec_file_out *files, int32_t n) {
  return hec_write_files_with(files, n, NULL, NULL);
}

hec_status hec_write_files_with(const hec_file_out *files, int32_t n, hec_status (*place)(void *context),
                                void *context) {
  enum { TEXTS_MAX = 8 };
  hec_text temporary[TEXTS_MAX] = {{0}};
  hec_status status = HEC_OK;
  HEC_ASSERT(n >= 0 && n <= TEXTS_MAX);
  for (int32_t i = 0; status == HEC_OK && i < n; i++) {
    bool in_place = is_in_place(files[i].path);
    if (!in_place)
      hec_temporary_begin(files[i].path, &temporary[i]);
    status = write_bytes(&files[i], in_place ? files[i].path : temporary[i].data, in_place);
  }
  hec_temporary_shield();
  if (status == HEC_OK && place)
    status = place(context);
  for (int32_t i = 0; i < n; i++) {
    if (!temporary[i].data)
      continue;
    if (status == HEC_OK && rename(temporary[i].data, files[i].path) != 0)
      status = hec_fail(HEC_FAILED, "%s: cannot be put in place: %s", files[i].path, strerror(errno));
    if (status != HEC_OK)
      (void)remove(temporary[i].data);
    hec_temporary_drop(temporary[i].data);
    hec_text_free(&temporary[i]);
  }
  hec_temporary_unshield();
  return status;
}

hec_status hec_write_file(const char *path, const char *data, size_t length) {
  return hec_write_files(&(hec_file_out){path, data, length}, 1);
}
