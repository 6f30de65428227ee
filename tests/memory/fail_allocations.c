/* Preloaded into a program, this runs its main once for every allocation that it makes, and lets that one fail. The k-th for
 * k = 0, 1, 2, ... until main ends without having asked for so many. Each run is a child made by fork right before main, so
 * nothing is loaded again. A run ended well with
 *
 *   exit code 1, "out of memory" on stderr, nothing on stdout   the run failed
 *   or exit code and stdout of a run without failure             the program can do without (a thread less, say); what two
 *                                                                runs without failure print otherwise is not compared
 *
 * and left no half-written file and no empty folder, only files with the bytes that they have otherwise. And journals
 * of a sweep whose lines are all in the finished part. malloc's symbols are replaced, so cJSON, zlib, GSL and the C
 * library are meant as much as hecate. For glibc alone.
 *
 * Runs from the start cost the square of what a command does. So one run, the trunk, makes a child at each allocation, which
 * goes on without that memory, and itself goes on with it, as if there had been no child: while it has one thread, no other
 * children, no file in the folder, and no memory that a child would share. From there on, runs begin at the start.
 *
 * Runs work in a folder that is made here below TMPDIR and emptied after each of them; nothing outside it is removed. Without
 * HEC_FAIL_ALLOCATIONS=1 in the environment the program runs as if nothing were preloaded. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The allocator ---- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static _Atomic long left = -1; /* allocations before the one that fails; below 0: it was, or none does */
static atomic_bool *fired;     /* shared with the parent */
static bool is_trunk;          /* this process makes a child at each allocation */
static bool fails_in_branch(const void *caller);

/* The loader makes room for the thread-local data of a library when it is first used, and ends the process when it cannot. */
static bool is_of_loader(const void *caller) {
  Dl_info of;
  return dladdr(caller, &of) != 0 && of.dli_fname && strstr(of.dli_fname, "/ld-");
}

static bool fails(const void *caller) {
  if (is_trunk)
    return fails_in_branch(caller);
  if (atomic_load_explicit(&left, memory_order_relaxed) < 0 || atomic_fetch_sub(&left, 1) != 0)
    return false;
  if (is_of_loader(caller)) {
    atomic_store(&left, 0); /* the next one */
    return false;
  }
  atomic_store(fired, true);
  errno = ENOMEM;
  return true;
}

void *malloc(size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **made, size_t alignment, size_t bytes) {
  *made = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
  return *made ? 0 : ENOMEM;
}

/* What libraries allocate while they are loaded does not count: a Fortran runtime without memory ends the process by itself. */
void *dlopen(const char *name, int flags) {
  union {
    void *object;
    void *(*function)(const char *, int);
  } own = {dlsym(RTLD_NEXT, "dlopen")};
  long before = atomic_exchange(&left, -1);
  bool trunk = is_trunk;
  is_trunk = false;
  void *handle = own.function(name, flags);
  is_trunk = trunk;
  atomic_store(&left, before);
  return handle;
}

/* Memory that a branch would share with the trunk, of ranks for instance: the trunk ends here. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  union {
    void *object;
    void *(*function)(void *, size_t, int, int, int, off_t);
  } own = {dlsym(RTLD_NEXT, "mmap")};
  if (is_trunk && (flags & MAP_SHARED) && (protection & PROT_WRITE))
    _exit(0);
  return own.function(at, bytes, protection, flags, fd, offset);
}

/* ---- What a run leaves ---- */

enum { FILES_MAX = 256, LINES_MAX = 64, PATH_BYTES = 512, TEXT_BYTES = 4096 };

typedef struct {
  char path[PATH_BYTES];
  uint64_t sum, bytes;
  uint64_t line[LINES_MAX]; /* [n_lines] sums, of the first ones */
  int n_lines;
} file;

typedef struct {
  file files[FILES_MAX];
  int n;
  char wrong[PATH_BYTES + 64]; /* "": nothing */
} listing;

static listing *filled; /* nftw has no context */
static const uint64_t sum_of_nothing = UINT64_C(0xcbf29ce484222325), factor = UINT64_C(0x100000001b3);

static void read_file(const char *path, file *f) {
  char block[65536];
  uint64_t line = sum_of_nothing;
  ssize_t n;
  int fd = open(path, O_RDONLY);
  f->sum = sum_of_nothing;
  f->bytes = 0;
  f->n_lines = 0;
  (void)snprintf(f->path, sizeof f->path, "%s", path);
  while (fd >= 0 && (n = read(fd, block, sizeof block)) > 0) {
    for (ssize_t i = 0; i < n; i++) {
      f->sum = (f->sum ^ (unsigned char)block[i]) * factor;
      line = (line ^ (unsigned char)block[i]) * factor;
      if (block[i] != '\n')
        continue;
      if (f->n_lines < LINES_MAX)
        f->line[f->n_lines++] = line;
      line = sum_of_nothing;
    }
    f->bytes += (uint64_t)n;
  }
  if (fd >= 0)
    (void)close(fd);
}

static int list_one(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info;
  if (kind == FTW_F && filled->n < FILES_MAX)
    read_file(path, &filled->files[filled->n++]);
  if (kind == FTW_DP && walk->level > 0 && rmdir(path) == 0)
    (void)snprintf(filled->wrong, sizeof filled->wrong, "left an empty folder, %.500s", path);
  return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info;
  if (walk->level > 0)
    (void)(kind == FTW_DP ? rmdir(path) : unlink(path));
  return 0;
}

/* Lists what is in the folder and removes it. */
static void take_files(const char *folder, listing *made) {
  made->n = 0; /* not all of it: after a fork every page that is written is a fault */
  made->wrong[0] = 0;
  filled = made;
  (void)nftw(folder, list_one, 16, FTW_DEPTH | FTW_PHYS);
  (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const file *find(const listing *list, const char *path) {
  for (int i = 0; i < list->n; i++)
    if (strcmp(list->files[i].path, path) == 0)
      return &list->files[i];
  return NULL;
}

/* ---- Runs ---- */

typedef struct {
  int code; /* exit code; 1000 + a signal's number */
  file out;
  char errors[TEXT_BYTES];
  listing left;
} outcome;

static struct {
  int (*main)(int, char **, char **);
  int argc;
  char **argv, **environment;
  int out, errors;         /* files that take the place of stdout and stderr */
  int report;              /* stdout of the test */
  char folder[PATH_BYTES]; /* of this program's own making */
} program;

/* Leaves that many bytes in the file, and writes after them. */
static void cut(int fd, off_t bytes) {
  (void)!ftruncate(fd, bytes);
  (void)lseek(fd, bytes, SEEK_SET);
}

static int ended(pid_t child) {
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* What a child did, after its end. */
static void look(pid_t child, outcome *o) {
  char path[64];
  o->code = ended(child);
  (void)snprintf(path, sizeof path, "/proc/self/fd/%d", program.out);
  read_file(path, &o->out);
  ssize_t n = pread(program.errors, o->errors, sizeof o->errors - 1, 0);
  o->errors[n > 0 ? n : 0] = 0;
  take_files(program.folder, &o->left);
}

static outcome whole_run, last_run; /* of a run without failure; of the last one */
static struct {
  long k, n_failed, n_wrong; /* runs, those that the failure ended, those that did not end as they should */
  bool measures;             /* two runs without failure print different things */
  bool is_whole;             /* the trunk came to its end */
} * all;                     /* shared with the trunk */

static void end_trunk(void) {
  all->is_whole |= is_trunk; /* branches end here too */
}

static pid_t begin(long k, bool trunk) {
  cut(program.out, 0);
  cut(program.errors, 0);
  atomic_store(fired, false);
  pid_t child = fork();
  if (child == 0) {
    (void)dup2(program.out, STDOUT_FILENO);
    (void)dup2(program.errors, STDERR_FILENO);
    atomic_store(&left, k);
    is_trunk = trunk;
    (void)atexit(end_trunk);
    exit(program.main(program.argc, program.argv, program.environment));
  }
  return child;
}

static void run(long k, outcome *o) {
  look(begin(k, false), o);
}

/* A journal has some of the lines of the part that it becomes. */
static bool is_begun(const file *f, const listing *whole) {
  char path[PATH_BYTES];
  size_t n = strlen(f->path), m = strlen(".journal");
  if (n < m || strcmp(f->path + n - m, ".journal") != 0)
    return false;
  (void)snprintf(path, sizeof path, "%.*s", (int)(n - m), f->path);
  const file *part = find(whole, path);
  for (int i = 0; part && i < f->n_lines; i++) {
    int j = 0;
    while (j < part->n_lines && part->line[j] != f->line[i])
      j++;
    if (j == part->n_lines)
      return false;
  }
  return true;
}

/* NULL: it ended as it should. */
static const char *judge(const outcome *o, const outcome *whole, bool measures) {
  static char wrong[PATH_BYTES + 64];
  for (int i = 0; i < o->left.n; i++) {
    const file *f = &o->left.files[i], *other = find(&whole->left, f->path);
    if (is_begun(f, &whole->left) || (other && other->sum == f->sum))
      continue;
    (void)snprintf(wrong, sizeof wrong, "left %s, which is %s", f->path,
                   other ? "not what it should be" : "not of a whole run");
    return wrong;
  }
  if (o->left.wrong[0])
    return o->left.wrong;
  if (o->code == 1)
    return o->out.bytes > 0                      ? "wrote to stdout"
           : !strstr(o->errors, "out of memory") ? "does not say \"out of memory\""
                                                 : NULL;
  if (o->code != whole->code)
    return "exit code";
  if (o->left.n != whole->left.n)
    return "not all files";
  return !measures && o->out.sum != whole->out.sum ? "other output" : NULL;
}

static void count(void) {
  const char *wrong = judge(&last_run, &whole_run, all->measures);
  all->n_failed += last_run.code == 1;
  all->n_wrong += wrong != NULL;
  if (wrong && all->n_wrong <= 20)
    dprintf(program.report, "allocation %ld: %s: exit code %d: %s\n", all->k, wrong, last_run.code,
            last_run.errors[0] ? last_run.errors : "-");
}

/* ---- The trunk ---- */

enum { FDS_MAX = 64 };

/* Nothing that a child does can be seen by this process, apart from where open files are read. */
static bool is_alone(void) {
  char entries[1024];
  siginfo_t of;
  if (!__libc_single_threaded || waitid(P_ALL, 0, &of, WEXITED | WNOHANG | WNOWAIT) == 0)
    return false;
  int fd = open(program.folder, O_RDONLY | O_DIRECTORY);
  ssize_t n = getdents64(fd, entries, sizeof entries);
  (void)close(fd);
  return n == 2 * 24; /* "." and "..": the folder is empty */
}

/* The child fails to get the memory; this process gets it, after the child's end. */
static bool fails_in_branch(const void *caller) {
  off_t at[FDS_MAX];
  if (is_of_loader(caller)) {
    all->k++;
    return false;
  }
  if (!is_alone())
    _exit(0);
  for (int fd = 0; fd < FDS_MAX; fd++)
    at[fd] = lseek(fd, 0, SEEK_CUR);
  is_trunk = false; /* what is asked for meanwhile is not the program's */
  int error = errno;
  pid_t child = fork();
  if (child == 0) {
    atomic_store(&left, -1);
    errno = ENOMEM;
    return true;
  }
  look(child, &last_run);
  count();
  cut(STDOUT_FILENO, at[STDOUT_FILENO]);
  cut(STDERR_FILENO, at[STDERR_FILENO]);
  for (int fd = 0; fd < FDS_MAX; fd++)
    if (at[fd] >= 0)
      (void)lseek(fd, at[fd], SEEK_SET);
  errno = error;
  all->k++;
  is_trunk = true;
  return false;
}

static int run_all(void) {
  run(-1, &whole_run);
  if (whole_run.left.wrong[0] || whole_run.code != 0) {
    dprintf(STDOUT_FILENO, "a run without failure: exit code %d %s%s\n", whole_run.code, whole_run.left.wrong,
            whole_run.errors);
    return 1;
  }
  run(-1, &last_run);
  all->measures = last_run.out.sum != whole_run.out.sum;
  look(begin(-1, true), &last_run);
  for (; !all->is_whole; all->k++) {
    run(all->k, &last_run);
    if (!atomic_load(fired))
      break;
    count();
  }
  dprintf(STDOUT_FILENO, "%ld allocations, %ld ended the run, %ld wrong\n", all->k, all->n_failed, all->n_wrong);
  return all->n_wrong > 0 || all->n_failed == 0;
}

static int instead_of_main(int argc, char **argv, char **environment) {
  const char *wanted = getenv("HEC_FAIL_ALLOCATIONS"), *parent = getenv("TMPDIR");
  if (!wanted || strcmp(wanted, "1") != 0)
    return program.main(argc, argv, environment);
  (void)unsetenv("LD_PRELOAD");
  (void)snprintf(program.folder, sizeof program.folder, "%s/hecate-memory-XXXXXX", parent ? parent : "/tmp");
  if (!mkdtemp(program.folder) || chdir(program.folder) != 0) {
    dprintf(STDOUT_FILENO, "%s: cannot be made\n", program.folder);
    return 1;
  }
  fired = mmap(NULL, sizeof *fired, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  program.argc = argc;
  program.argv = argv;
  program.environment = environment;
  program.report = dup(STDOUT_FILENO);
  program.out = memfd_create("out", MFD_CLOEXEC);
  program.errors = memfd_create("errors", MFD_CLOEXEC);
  int code = run_all();
  (void)rmdir(program.folder);
  return code;
}

/* The C library's own, which calls main. */
typedef int start(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                  void (*loader_fini)(void), void *stack_end);
start __libc_start_main;

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end) {
  union {
    void *object;
    start *function;
  } own = {dlsym(RTLD_NEXT, "__libc_start_main")};
  program.main = main;
  return own.function(instead_of_main, argc, argv, init, fini, loader_fini, stack_end);
}
