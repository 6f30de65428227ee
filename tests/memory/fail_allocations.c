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
 * Runs work in a folder that is made here below TMPDIR and emptied after each of them; nothing outside it is removed. Without
 * HEC_FAIL_ALLOCATIONS=1 in the environment the program runs as if nothing were preloaded. */
#define _GNU_SOURCE
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
#include <sys/wait.h>
#include <unistd.h>

/* ---- The allocator ---- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static _Atomic long left = -1; /* allocations before the one that fails; below 0: it was, or none does */
static atomic_bool *fired;     /* shared with the parent */

/* The loader makes room for the thread-local data of a library when it is first used, and ends the process when it cannot. */
static bool is_of_loader(const void *caller) {
  Dl_info of;
  return dladdr(caller, &of) != 0 && of.dli_fname && strstr(of.dli_fname, "/ld-");
}

static bool fails(const void *caller) {
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
  void *handle = own.function(name, flags);
  atomic_store(&left, before);
  return handle;
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
  *f = (file){.sum = sum_of_nothing};
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
  *made = (listing){.n = 0};
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
  char folder[PATH_BYTES]; /* of this program's own making */
} program;

static void run(long k, outcome *o) {
  int status = 0;
  *o = (outcome){.code = -1};
  (void)!ftruncate(program.out, 0);
  (void)!ftruncate(program.errors, 0);
  (void)lseek(program.out, 0, SEEK_SET);
  (void)lseek(program.errors, 0, SEEK_SET);
  atomic_store(fired, false);
  pid_t child = fork();
  if (child == 0) {
    (void)dup2(program.out, STDOUT_FILENO);
    (void)dup2(program.errors, STDERR_FILENO);
    atomic_store(&left, k);
    exit(program.main(program.argc, program.argv, program.environment));
  }
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  o->code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  char path[64];
  (void)snprintf(path, sizeof path, "/proc/self/fd/%d", program.out);
  read_file(path, &o->out);
  ssize_t n = pread(program.errors, o->errors, sizeof o->errors - 1, 0);
  o->errors[n > 0 ? n : 0] = 0;
  take_files(program.folder, &o->left);
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

static int run_all(void) {
  static outcome whole, o;
  long k = 0, n_failed = 0, n_wrong = 0;
  run(-1, &whole);
  if (whole.left.wrong[0] || whole.code != 0) {
    dprintf(STDOUT_FILENO, "a run without failure: exit code %d %s%s\n", whole.code, whole.left.wrong, whole.errors);
    return 1;
  }
  run(-1, &o);
  bool measures = o.out.sum != whole.out.sum;
  for (;; k++) {
    run(k, &o);
    if (!atomic_load(fired))
      break;
    const char *wrong = judge(&o, &whole, measures);
    n_failed += o.code == 1;
    n_wrong += wrong != NULL;
    if (wrong && n_wrong <= 20)
      dprintf(STDOUT_FILENO, "allocation %ld: %s: exit code %d: %s\n", k, wrong, o.code, o.errors[0] ? o.errors : "-");
  }
  dprintf(STDOUT_FILENO, "%ld allocations, %ld ended the run, %ld wrong\n", k, n_failed, n_wrong);
  return n_wrong > 0 || n_failed == 0;
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
  program.argc = argc;
  program.argv = argv;
  program.environment = environment;
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
