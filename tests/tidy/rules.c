/* The rules of tests/tidy: floors, doors and form, each a function of (path, text); circles.c has the one that is of all.
 *
 * Floors (an include goes down or stays in its folder; never sideways, never up):
 *   6 tools/ tests/   5 validate/   4 tools/front/   3 sim/ | runtime/exec/   2 runtime/program/   1 runtime/plan/ | traces/
 *   0 models/ | runtime/base/
 * Two arrows stay on a floor: models/ -> runtime/base/, and tests/ -> tools/ (a test may use what a tool is made of). Of the
 * folders below tools/, each tool's sees itself.
 *
 * Doors: a header that is neither of C nor of POSIX or Linux enters only through the files of its row in `doors`. A
 * header with no row enters nowhere. Linear in the length of the text. */
#include "tests/tidy/rules.h"
#include "tests/support/check_main.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

void hec_tidy_complain(hec_tidy *f, const char *path, int line, const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  hec_text_printf(&f->found, "%s:%d: %s\n", path, line, message);
  f->n_found++;
}

bool hec_tidy_starts(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool hec_tidy_ends(const char *text, const char *suffix) {
  size_t length = strlen(text), tail = strlen(suffix);
  return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

static bool is_c(const char *path) {
  return hec_tidy_ends(path, ".c") || hec_tidy_ends(path, ".h") || hec_tidy_ends(path, ".cu");
}

/* ---- Floors and doors ---- */

static const struct {
  const char *folder;
  int floor;
} floors[] = {
    {"models/", 0},       {"runtime/base/", 0},    {"runtime/plan/", 1},
    {"traces/", 1},       {"runtime/program/", 2}, {"sim/", 3},
    {"runtime/exec/", 3}, {"tools/front/", 4},     /* before tools/ */ {"validate/", 5},
    {"tools/", 6},        {"tests/", 6},
};
enum { N_FLOORS = sizeof floors / sizeof *floors, MODELS = 0, BASE = 1, TOOLS = 9, TESTS = 10 };
/* rows of it; arrows that stay on a floor: */
static const int beside[][2] = {{MODELS, BASE}, {TESTS, TOOLS}};

/* Row of `floors`, -1 for a path that belongs to none. */
static int folder_of(const char *path) {
  for (int i = 0; i < N_FLOORS; i++)
    if (hec_tidy_starts(path, floors[i].folder))
      return i;
  return -1;
}

static bool may_enter(int from, int to) {
  for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
    if (beside[i][0] == from && beside[i][1] == to)
      return true;
  return from == to || floors[to].floor < floors[from].floor;
}

/* From a folder below tools/ into another tool's. */
static bool crosses_tools(const char *path, const char *included) {
  if (!hec_tidy_starts(path, "tools/") || !hec_tidy_starts(included, "tools/"))
    return false;
  const char *from = strchr(path + 6, '/'), *to = strchr(included + 6, '/');
  if (!from || !to || hec_tidy_starts(included, "tools/front/"))
    return false;
  return from - path != to - included || strncmp(path, included, (size_t)(from - path)) != 0;
}

static void check_arrow(hec_tidy *f, const char *path, int line, const char *included) {
  int from = folder_of(path), to = folder_of(included);
  if (from < 0)
    hec_tidy_complain(f, path, line, "the file belongs to no floor");
  else if (to < 0)
    hec_tidy_complain(f, path, line,
                      "includes \"%s\": write the path from the top of the tree, of a folder with a floor", included);
  else if (crosses_tools(path, included))
    hec_tidy_complain(f, path, line, "wrong arrow: includes \"%s\", of another tool", included);
  else if (!may_enter(from, to))
    hec_tidy_complain(f, path, line, "wrong arrow: %s (floor %d) includes \"%s\" (floor %d)", floors[from].folder,
                      floors[from].floor, included, floors[to].floor);
  else if (f->on_disk) {
    char full[1200];
    struct stat info;
    (void)snprintf(full, sizeof full, "%s/%s", HEC_SOURCE_DIR, included);
    if (stat(full, &info) != 0)
      hec_tidy_complain(f, path, line, "includes \"%s\", which is not there", included);
  }
}

/* fnmatch patterns, '*' also crosses '/'. `files` holds up to three patterns, separated by blanks. */
static const struct {
  const char *header, *files;
} doors[] = {
    {"*cJSON*", "models/json.c"},
    {"zlib.h", "traces/gzip.c tests/traces/*"},
    {"zconf.h", "traces/gzip.c"},
    {"sanitizer/tsan_interface.h", "tests/support/work_queue.c"},
    {"gsl/gsl_cblas.h", "runtime/exec/math/cpu_math.c"},
    {"gsl/gsl_version.h", "runtime/exec/math/cpu_math.c"},
    {"gsl/*", "traces/synth*.c traces/synth*.h validate/*"},
    {"*cblas*.h", "runtime/exec/math/cpu_math.c"},
    {"mpi*.h", "runtime/exec/mpi/*.c validate/hosts/at_once.c"}, /* a program of its own */
    {"cuda*", "runtime/exec/cuda/* tests/cuda/*"},
    {"cublas*", "runtime/exec/cuda/* tests/cuda/*"},
    {"nccl*", "runtime/exec/cuda/* tests/cuda/*"},
    {"nv*", "runtime/exec/cuda/*"},
    {"tuple", "tests/cuda/cuda_emulation.h"}, /* C++'s */
    {"nlopt.h", "validate/nlopt/slsqp.c"},
    {"*Cbc_C_Interface.h", "runtime/plan/cbc/cbc.c"},
    {"check.h", "tests/*"},
    {"hecate/hecate.h", "tools/example/*"}, /* as others include it: installed */
};
enum { N_DOORS = sizeof doors / sizeof *doors };

static const char system_headers[] =
    /* C17 */
    " assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h setjmp.h signal.h"
    " stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h string.h tgmath.h"
    " threads.h time.h uchar.h wchar.h wctype.h"
    /* POSIX, and what glibc and Linux add in one file */
    " dirent.h dlfcn.h fcntl.h fnmatch.h ftw.h getopt.h glob.h libgen.h netdb.h poll.h pthread.h pwd.h regex.h sched.h"
    " semaphore.h spawn.h strings.h syslog.h termios.h ucontext.h unistd.h utime.h malloc.h execinfo.h ";

static void check_door(hec_tidy *f, const char *path, int line, const char *header) {
  for (int i = 0; i < N_DOORS; i++) {
    if (fnmatch(doors[i].header, header, 0) != 0)
      continue;
    char patterns[256], *rest = patterns;
    (void)snprintf(patterns, sizeof patterns, "%s", doors[i].files);
    for (char *one; (one = strtok_r(rest, " ", &rest)) != NULL;)
      if (fnmatch(one, path, 0) == 0)
        return;
    hec_tidy_complain(f, path, line, "wrong door: <%s> may enter only in %s", header, doors[i].files);
    return;
  }
  char padded[160];
  (void)snprintf(padded, sizeof padded, " %s ", header);
  if (!strstr(system_headers, padded) && !hec_tidy_starts(header, "sys/") && !hec_tidy_starts(header, "netinet/") &&
      !hec_tidy_starts(header, "arpa/") && !hec_tidy_starts(header, "net/") && !hec_tidy_starts(header, "linux/"))
    hec_tidy_complain(f, path, line, "<%s> has no door: third-party headers need a row in tests/tidy/test_tidy.c",
                      header);
}

/* ---- Lines ---- */

/* Copy of `text` with the insides of comments blanked and every newline kept; strings stay. The caller frees. */
static char *without_comments(const char *text) {
  size_t length = strlen(text);
  char *code = malloc(length + 1);
  ck_assert_ptr_nonnull(code);
  char inside = 0; /* '*' or '/' in a comment, '"' or '\'' in a literal */
  for (size_t i = 0; i <= length; i++) {
    char c = text[i], next = c ? text[i + 1] : '\0';
    bool comment = inside == '*' || inside == '/';
    code[i] = comment && c != '\n' && c != '\0' ? ' ' : c;
    if (!inside && c == '/' && (next == '*' || next == '/')) {
      inside = next;
      code[i] = code[i + 1] = ' ';
      i++;
    } else if (!inside && (c == '"' || c == '\'')) {
      inside = c;
    } else if ((inside == '"' || inside == '\'') && c == '\\' && next) {
      code[i + 1] = next;
      i++;
    } else if (inside == '*' && c == '*' && next == '/') {
      code[i + 1] = ' ';
      i++;
      inside = 0;
    } else if ((inside == '/' && c == '\n') || (!comment && inside && c == inside)) {
      inside = 0;
    }
  }
  return code;
}

/* The next line of *cursor into `line` (cut to its size), false at the end. */
static bool next_line(const char **cursor, char *line, size_t size) {
  if (!**cursor)
    return false;
  size_t length = strcspn(*cursor, "\n"), kept = length < size - 1 ? length : size - 1;
  memcpy(line, *cursor, kept);
  line[kept] = '\0';
  *cursor += length + ((*cursor)[length] == '\n');
  return true;
}

static void check_includes(hec_tidy *f, const char *path, const char *code) {
  char line[4096], name[128];
  int number = 0;
  while (next_line(&code, line, sizeof line)) {
    number++;
    const char *at = line + strspn(line, " \t");
    if (*at != '#')
      continue;
    at += 1 + strspn(at + 1, " \t");
    if (!hec_tidy_starts(at, "include"))
      continue;
    at += 7;
    at += strspn(at, " \t");
    if (sscanf(at, "\"%127[^\"]\"", name) == 1) {
      check_arrow(f, path, number, name);
      hec_tidy_arrow(f, path, number, name);
    } else if (sscanf(at, "<%127[^>]>", name) == 1)
      check_door(f, path, number, name);
    else
      hec_tidy_complain(f, path, number, "an include that names neither \"file\" nor <header>");
  }
}

/* A function runs from the last line that starts in column 0 with a name, outside braces, to the line "}" in column 0.
 * The formatter guarantees both; initialisers and types end in "};" or "} name;" and so are none. */
static void check_functions(hec_tidy *f, const char *path, const char *code) {
  char line[4096];
  int number = 0, start = 0;
  bool inside = false;
  while (next_line(&code, line, sizeof line)) {
    number++;
    line[strcspn(line, "\r")] = '\0';
    for (size_t n = strlen(line); n > 0 && line[n - 1] == ' ';)
      line[--n] = '\0';
    if (inside && line[0] == '}') {
      if (strcmp(line, "}") == 0 && number - start + 1 > HEC_TIDY_FUNCTION_LINES)
        hec_tidy_complain(f, path, start, "a function of %d lines, more than %d", number - start + 1,
                          HEC_TIDY_FUNCTION_LINES);
      inside = false;
    } else if (!inside) {
      if (isalpha((unsigned char)line[0]) || line[0] == '_')
        start = number;
      inside = start > 0 && line[0] != '#' && hec_tidy_ends(line, "{");
    }
  }
}

static bool is_word(int c) {
  return isalnum(c) || c == '_';
}

/* Is `word` in `line`, not as part of a longer one? */
static bool has_word(const char *line, const char *word) {
  for (const char *at = line; (at = strstr(at, word)) != NULL; at++)
    if ((at == line || !is_word((unsigned char)at[-1])) && !is_word((unsigned char)at[strlen(word)]))
      return true;
  return false;
}

/* Cut in two so that this file does not break its own rule. */
static const char *const marks[] = {"TO"
                                    "DO",
                                    "FIX"
                                    "ME",
                                    "X"
                                    "XX"};
static const char *const machine_folders[] = {"/ho"
                                              "me/",
                                              "/ro"
                                              "ot/",
                                              "/wo"
                                              "rk/",
                                              "/Us"
                                              "ers/",
                                              "/m"
                                              "nt/",
                                              "/far"
                                              "m/"};

/* A machine path begins where no path or URL goes on: "https://x.org/pictures" with such a folder inside is none. */
static bool has_machine_path(const char *line, const char *folder) {
  for (const char *at = line; (at = strstr(at, folder)) != NULL; at++)
    if (at == line || !(is_word((unsigned char)at[-1]) || strchr("./-}$~*:", at[-1])))
      return true;
  return false;
}

/* The calls end with NULL. */
static void forbid(hec_tidy *f, const char *path, const char *code, const char *const *calls, const char *instead) {
  char line[4096];
  int number = 0;
  while (next_line(&code, line, sizeof line)) {
    number++;
    for (const char *const *call = calls; *call; call++)
      for (const char *at = line; (at = strstr(at, *call)) != NULL; at++)
        if ((at == line || !is_word((unsigned char)at[-1])) && at[strlen(*call)] == '(')
          hec_tidy_complain(f, path, number, "%s(): %s", *call, instead);
  }
}

static void check_calls(hec_tidy *f, const char *path, const char *code) {
  static const char *const shells[] = {"system", "popen", "wordexp", NULL}; /* data in its command would be run */
  static const char *const openers[] = {"fopen", "tmpfile", "opendir", NULL};
  static const char *const allocators[] = {"malloc",  "calloc",  "realloc",  "aligned_alloc",  "strdup",
                                           "strndup", "getline", "asprintf", "open_memstream", NULL};
  forbid(f, path, code, shells, "start a program with its arguments (posix_spawn), without a shell");
  if (hec_tidy_starts(path, "tests/") || hec_tidy_starts(path, "runtime/base/") ||
      hec_tidy_starts(path, "runtime/exec/cuda/"))
    return;
  forbid(f, path, code, openers, "runtime/base/files.h opens, and knows lack of memory from a bad file");
  forbid(f, path, code, allocators, "memory comes from runtime/base/arena.h, which ends the run when there is none");
}

/* The floors below tools/front/ know no flag of ours; other programs' are told by the program's name beside them. */
static void check_flags(hec_tidy *f, const char *path, const char *code) {
  char line[4096];
  int number = 0;
  if (!hec_tidy_starts(path, "models/") && !hec_tidy_starts(path, "runtime/") && !hec_tidy_starts(path, "sim/"))
    return;
  while (next_line(&code, line, sizeof line)) {
    number++;
    bool inside = false;
    for (const char *at = line; *at; at++) {
      if (inside && *at == '\\' && at[1])
        at++;
      else if (*at == '"')
        inside = !inside;
      else if (inside && at[0] == '-' && at[1] == '-' && islower((unsigned char)at[2]) &&
               !is_word((unsigned char)at[-1]) && at[-1] != '-' && !strstr(line, "SGLang") && !strstr(line, "srun"))
        hec_tidy_complain(f, path, number, "a flag in a string: name the option by its key, `micro_batches`");
    }
  }
}

static void check_lines(hec_tidy *f, const char *path, const char *text) {
  char line[4096];
  int number = 0;
  const char *cursor = text;
  while (next_line(&cursor, line, sizeof line)) {
    number++;
    size_t length = strlen(line);
    if (memchr(line, '\t', length))
      hec_tidy_complain(f, path, number, "a tab");
    if (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\r'))
      hec_tidy_complain(f, path, number, "a trailing blank");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
      if (has_word(line, marks[i]))
        hec_tidy_complain(f, path, number, "unfinished: %s", marks[i]);
    for (size_t i = 0; i < sizeof machine_folders / sizeof *machine_folders; i++)
      if (has_machine_path(line, machine_folders[i]))
        hec_tidy_complain(f, path, number, "a path of one machine, below %s", machine_folders[i]);
  }
  if (number > 0 && text[strlen(text) - 1] != '\n')
    hec_tidy_complain(f, path, number, "no newline at the end of the file");
  if (number > HEC_TIDY_FILE_LINES && !hec_tidy_ends(path, ".json") && !hec_tidy_ends(path, ".md"))
    hec_tidy_complain(f, path, number, "a file of %d lines, more than %d", number, HEC_TIDY_FILE_LINES);
}

void hec_tidy_file(hec_tidy *f, const char *path, const char *text) {
  f->n_files++;
  check_lines(f, path, text);
  if (!is_c(path))
    return;
  char *code = without_comments(text);
  check_includes(f, path, code);
  check_functions(f, path, code);
  check_calls(f, path, code);
  check_flags(f, path, code);
  if (hec_tidy_ends(path, ".h")) {
    /* What users include stands in folders of theirs, perhaps in two of them: it has a guard. */
    if (!hec_tidy_ends(path, "/hecate.h") && !strstr(code, "#pragma once\n"))
      hec_tidy_complain(f, path, 1, "no #pragma once");
  } else if (!hec_tidy_starts(text, "/*") && !hec_tidy_starts(text, "//"))
    hec_tidy_complain(f, path, 1, "does not begin with a comment");
  free(code);
}

/* ---- The top level ---- */

static const char *const top_level[] = {"CMakeLists.txt",    "sim",          "runtime",         "models",    "traces",
                                        "validate",          "tests",        "tools",           "README.md", "LICENSE",
                                        "CMakePresets.json", "CHANGELOG.md", "CONTRIBUTING.md", "docs"};

void hec_tidy_top_entry(hec_tidy *f, const char *name, bool is_folder, bool has_sources) {
  for (size_t i = 0; i < sizeof top_level / sizeof *top_level; i++)
    if (strcmp(name, top_level[i]) == 0)
      return;
  /* A folder without sources is what somebody passed to --out. */
  if (name[0] != '.' && (!is_folder || has_sources))
    hec_tidy_complain(f, name, 1, "does not belong at the top level");
}

void hec_tidy_free(hec_tidy *f) {
  hec_text_free(&f->found);
  free(f->arrows);
}
