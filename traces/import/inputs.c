/* From what was named to files. Folders are walked two levels deep, patterns are those of glob(7). Then files are put in
 * order of rank (a number, not a name: rank10 comes behind rank9), and each rank must be there. Names without ranks are
 * compared with their numbers as numbers too; where an input is a stream, whose name says nothing, they stay as named. */
#include "traces/import/job.h"

#include "runtime/base/files.h"
#include "traces/import/import.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_BYTES = 64 << 10, DEPTH = 2 };

static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* ---- finding ---- */

static void add_input(hec_import_inputs *inputs, const char *path) {
  size_t n = strlen(path) + 1;
  HEC_RESERVE(inputs->input, inputs->capacity, inputs->n + 1);
  inputs->input[inputs->n++] = (hec_import_input){.path = memcpy(hec_malloc(n, 1), path, n)};
}

void hec_import_inputs_free(hec_import_inputs *inputs) {
  for (size_t i = 0; i < inputs->n; i++) {
    hec_import_stream_end(inputs->input[i].stream);
    free((void *)inputs->input[i].path);
  }
  free(inputs->input);
  hec_text_free(&inputs->left_out);
  hec_text_free(&inputs->not_read);
  *inputs = (hec_import_inputs){0};
}

/* Numbers in names as numbers; then as bytes. */
static int compare_names(const char *a, const char *b) {
  while (*a && *b) {
    size_t n = strspn(a, "0123456789"), m = strspn(b, "0123456789");
    if (n == 0 || m == 0) {
      if (*a != *b)
        return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
      a++;
      b++;
      continue;
    }
    const char *x = a + strspn(a, "0"), *y = b + strspn(b, "0");
    a += n;
    b += m;
    n = (size_t)(a - x > 0 ? a - x : 0);
    m = (size_t)(b - y > 0 ? b - y : 0);
    int order = n != m ? (n < m ? -1 : 1) : n == 0 ? 0 : memcmp(x, y, n);
    if (order != 0)
      return order;
  }
  return *a ? 1 : *b ? -1 : 0;
}

static int compare_inputs(const void *a, const void *b) {
  const char *x = ((const hec_import_input *)a)->path, *y = ((const hec_import_input *)b)->path;
  int order = compare_names(x, y);
  return order != 0 ? order : strcmp(x, y);
}

/* Two paths that differ in numbers alone: parts of one recording. */
static bool differ_in_numbers(const char *a, const char *b) {
  while (*a && *b) {
    size_t n = strspn(a, "0123456789"), m = strspn(b, "0123456789");
    if ((n > 0) != (m > 0) || (n == 0 && *a != *b))
      return false;
    a += n > 0 ? n : 1;
    b += m > 0 ? m : 1;
  }
  return *a == *b;
}

/* What is in a folder, each in order of names. */
typedef struct {
  hec_import_inputs files;
  hec_import_inputs others; /* neither files nor folders: links to nothing, pipes */
  hec_import_inputs deeper; /* folders that are not looked into */
  hec_import_inputs unlike; /* files named like the format's that do not begin so */
} listing;

static void free_listing(listing *found) {
  hec_import_inputs_free(&found->files);
  hec_import_inputs_free(&found->others);
  hec_import_inputs_free(&found->deeper);
  hec_import_inputs_free(&found->unlike);
}

static hec_status walk(const char *folder, int depth, listing *found) {
  DIR *entries = hec_folder_open(folder);
  if (!entries)
    return hec_fail(HEC_BAD_INPUT, "%s: cannot be opened: %s", folder, strerror(errno));
  hec_status status = HEC_OK;
  HEC_SCOPED(hec_text) path = {0};
  for (struct dirent *entry; status == HEC_OK && (entry = readdir(entries)) != NULL;) {
    struct stat info;
    if (entry->d_name[0] == '.')
      continue;
    path.length = 0;
    size_t n = strlen(folder);
    hec_text_printf(&path, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", entry->d_name);
    if (stat(path.data, &info) != 0)
      info.st_mode = 0;
    if (S_ISDIR(info.st_mode) && depth > 1)
      status = walk(path.data, depth - 1, found);
    else
      add_input(S_ISREG(info.st_mode)   ? &found->files
                : S_ISDIR(info.st_mode) ? &found->deeper
                                        : &found->others,
                path.data);
  }
  (void)closedir(entries);
  return status;
}

/* True when one of the patterns, separated by blanks, is that of the path: of its last name, or of as many as it has. */
static bool matches(const char *patterns, const char *path) {
  char copy[256], *rest = copy;
  (void)snprintf(copy, sizeof copy, "%s", patterns);
  for (char *one; (one = strtok_r(rest, " ", &rest)) != NULL;) {
    const char *from = base_of(path);
    if (strchr(one, '/'))
      for (int seen = 0; from > path && !(from[-1] == '/' && ++seen > 1);)
        from--;
    if (fnmatch(one, from, 0) == 0)
      return true;
  }
  return false;
}

/* The first bytes, gzip undone; [HEAD_BYTES + 1], zero behind them. A stream stays open. */
static hec_status read_head(hec_import_input *input, char *head, size_t *n) {
  hec_source *source = NULL;
  HEC_TRY(hec_import_source(input, &source));
  hec_status status = HEC_OK;
  size_t got = 1;
  for (*n = 0; status == HEC_OK && got > 0 && *n < HEAD_BYTES; *n += got) {
    status = source->read(source, head + *n, HEAD_BYTES - *n, &got);
    got = status == HEC_OK ? got : 0;
  }
  head[*n] = 0;
  if (hec_import_is_stream(input))
    input->stream = hec_import_stream(source, head, *n);
  else
    source->close(source);
  return status;
}

/* Does it belong to files of some format, and says nothing by itself? */
static bool is_beside(const char *path) {
  for (size_t i = 0; hec_importers[i]; i++)
    if (hec_importers[i]->beside && strcmp(base_of(path), hec_importers[i]->beside) == 0)
      return true;
  return false;
}

/* The first file that was named says the format, the others must have it. */
static hec_status recognise(hec_import_input *input, char *head, const hec_importer **format) {
  size_t n = 0;
  if (is_beside(input->path))
    return HEC_OK;
  HEC_TRY(read_head(input, head, &n));
  if (*format && !(*format)->recognise(head, n))
    return hec_fail(HEC_BAD_INPUT, "%s: expected %s like the first file, found something else", input->path,
                    (*format)->name);
  for (size_t i = 0; hec_importers[i] && !*format; i++)
    if (hec_importers[i]->recognise(head, n))
      *format = hec_importers[i];
  return *format ? HEC_OK : hec_import_dead_end(input->path, head, n);
}

static bool ranks_matter(const hec_importer *format) {
  return format->files == HEC_FILES_ONE_PER_RANK || format->files == HEC_FILES_PARTS;
}

static hec_status found_none(const char *folder, const char *what, const hec_import_inputs *deeper_ones) {
  bool deeper = deeper_ones->n > 0;
  return hec_fail(HEC_BAD_INPUT, "%s: expected files of %s, found none%s%s%s", folder, what,
                  deeper ? " in it and the folders in it (" : "", deeper ? deeper_ones->input[0].path : "",
                  deeper ? " lies deeper)" : "");
}

/* The format that files of folders have, by name and content; two of them are an error. */
static hec_status recognise_folder(const char *folder, const listing *all, char *head, const hec_importer **format) {
  const hec_import_inputs *found = &all->files;
  const char *path = NULL;
  for (size_t i = 0; hec_importers[i]; i++)
    for (size_t f = 0; f < found->n; f++) {
      size_t n = 0;
      const hec_importer *one = hec_importers[i];
      if (!matches(one->pattern, found->input[f].path))
        continue;
      HEC_TRY(read_head(&found->input[f], head, &n));
      if (!one->recognise(head, n))
        continue;
      if (*format && *format != one && strcmp(path, found->input[f].path) != 0)
        return hec_fail(HEC_BAD_INPUT, "%s: expected files of one format, found %s (%s) and %s (%s); --format chooses",
                        folder, (*format)->name, path, one->name, found->input[f].path);
      if (!*format) {
        *format = one;
        path = found->input[f].path;
      }
      break;
    }
  if (*format)
    return HEC_OK;
  return found_none(folder, "a format of hecate-trace import --list", &all->deeper);
}

static void leave_out(hec_text *words, const char *why, const char *path) {
  if (words->length < 400)
    hec_text_printf(words, "%s%s", words->length > 0 ? ", " : why, path);
  else if (words->data[words->length - 1] != '.')
    hec_text_add(words, ", ...");
}

static bool is_named_like(const hec_importer *format, const char *path) {
  return matches(format->pattern, path) || (format->beside && strcmp(base_of(path), format->beside) == 0);
}

/* What is named like a file of the format and is none may be a part of the recording; the rest is said. */
static hec_status judge_others(const hec_importer *format, const listing *found, hec_import_inputs *inputs) {
  static const char why[] = "not read, as no files or in folders that lie deeper: ";
  for (size_t i = 0; i < found->others.n; i++) {
    const char *path = found->others.input[i].path;
    struct stat info;
    int cause = stat(path, &info) == 0 ? 0 : errno;
    if (is_named_like(format, path))
      return hec_fail(HEC_BAD_INPUT, "%s: expected a file of %s, found %s", path, format->name,
                      cause == 0        ? "a pipe or a device (it can be named by itself)"
                      : cause == ENOENT ? "a link to nothing"
                                        : strerror(cause));
    leave_out(&inputs->not_read, why, path);
  }
  for (size_t i = 0; i < found->deeper.n; i++)
    leave_out(&inputs->not_read, why, found->deeper.input[i].path);
  return HEC_OK;
}

/* request-9.npy beside request-8.npy is a damaged part of the recording, config.json beside load.json another file. */
static hec_status judge_unlike(const hec_importer *format, const listing *found, size_t first,
                               hec_import_inputs *inputs) {
  for (size_t i = 0; i < found->unlike.n; i++) {
    const char *path = found->unlike.input[i].path;
    for (size_t f = first; f < inputs->n; f++)
      if (differ_in_numbers(path, inputs->input[f].path))
        return hec_fail(HEC_BAD_INPUT,
                        "%s: expected %s like %s, as their names differ in numbers alone, found something else "
                        "(--format %s says what is wrong with it)",
                        path, format->name, inputs->input[f].path, format->name);
    leave_out(&inputs->left_out, "named alike but not begun so: ", path);
  }
  return HEC_OK;
}

static void sort_inputs(hec_import_inputs *inputs) {
  if (inputs->n > 0)
    qsort(inputs->input, inputs->n, sizeof *inputs->input, compare_inputs);
}

static hec_status take_folder(const char *folder, const hec_importer **format, char *head, hec_import_inputs *inputs) {
  listing all = {.files = {0}};
  hec_import_inputs *found = &all.files;
  bool given = *format != NULL;
  hec_status status = walk(folder, DEPTH, &all);
  sort_inputs(&all.files);
  sort_inputs(&all.others);
  sort_inputs(&all.deeper);
  if (status == HEC_OK && !*format)
    status = recognise_folder(folder, &all, head, format);
  HEC_ASSERT(status != HEC_OK || *format);
  size_t before = inputs->n;
  if (status == HEC_OK)
    status = judge_others(*format, &all, inputs);
  for (size_t f = 0; status == HEC_OK && f < found->n; f++) {
    const char *path = found->input[f].path;
    bool beside = (*format)->beside && strcmp(base_of(path), (*format)->beside) == 0;
    bool take = is_named_like(*format, path);
    size_t n = 0;
    if (take && !beside && !given && !ranks_matter(*format)) {
      status = read_head(&found->input[f], head, &n);
      if (status == HEC_OK && n == 0) /* a recording that was cut to nothing: others would move into its place */
        status = hec_fail(HEC_BAD_INPUT, "%s: expected a file of %s, found an empty one", path, (*format)->name);
      take = status == HEC_OK && (*format)->recognise(head, n);
      if (status == HEC_OK && !take)
        add_input(&all.unlike, path);
    }
    if (take)
      add_input(inputs, path);
  }
  if (status == HEC_OK)
    status = judge_unlike(*format, &all, before, inputs);
  if (status == HEC_OK && inputs->n == before) {
    HEC_SCOPED(hec_text) what = {0};
    hec_text_printf(&what, "%s (%s)", (*format)->name, (*format)->pattern);
    status = found_none(folder, what.data, &all.deeper);
  }
  free_listing(&all);
  return status;
}

/* A folder that cannot be read is none where a file matches, unless it is for lack of memory. */
static int pass_over(const char *folder, int error) {
  (void)folder;
  if (error == ENOMEM)
    hec_no_memory(0);
  return 0;
}

static hec_status take_pattern(const char *word, const hec_importer **format, char *head, hec_import_inputs *inputs) {
  glob_t found;
  int code = glob(word, 0, pass_over, &found);
  if (code == GLOB_NOSPACE)
    hec_no_memory(0);
  if (code == GLOB_NOMATCH)
    return hec_fail(HEC_BAD_INPUT, "%s: cannot be opened: %s", word,
                    strpbrk(word, "*?[") ? "no file is named so" : strerror(ENOENT));
  if (code != 0)
    return hec_fail(HEC_FAILED, "%s: files cannot be listed", word);
  hec_status status = HEC_OK;
  for (size_t i = 0; status == HEC_OK && i < found.gl_pathc; i++) {
    struct stat info;
    if (stat(found.gl_pathv[i], &info) == 0 && S_ISDIR(info.st_mode))
      status = take_folder(found.gl_pathv[i], format, head, inputs);
    else
      add_input(inputs, found.gl_pathv[i]);
  }
  globfree(&found);
  return status;
}

static hec_status take_word(const char *word, const hec_importer **format, char *head, hec_import_inputs *inputs) {
  struct stat info;
  bool there = strcmp(word, "-") != 0 && stat(word, &info) == 0;
  if (there && S_ISDIR(info.st_mode))
    return take_folder(word, format, head, inputs);
  if (there || strcmp(word, "-") == 0)
    add_input(inputs, word);
  else
    HEC_TRY(take_pattern(word, format, head, inputs));
  return HEC_OK;
}

/* The file beside the first one, where it is there and was not named. */
static void take_beside(const hec_importer *format, hec_import_inputs *inputs) {
  HEC_SCOPED(hec_text) path = {0};
  struct stat info;
  bool there = false;
  for (size_t i = 0; i < inputs->n; i++)
    there = there || strcmp(base_of(inputs->input[i].path), format->beside) == 0;
  const char *first = inputs->input[0].path;
  hec_text_add_bytes(&path, first, (size_t)(base_of(first) - first));
  hec_text_add(&path, format->beside);
  if (!there && stat(path.data, &info) == 0)
    add_input(inputs, path.data);
}

typedef struct {
  dev_t device;
  ino_t number;
  size_t at; /* in the inputs */
} identity;

static int compare_identities(const void *a, const void *b) {
  const identity *x = a, *y = b;
  if (x->device != y->device)
    return x->device < y->device ? -1 : 1;
  if (x->number != y->number)
    return x->number < y->number ? -1 : 1;
  return x->at < y->at ? -1 : 1;
}

/* Its records would count twice. Links of both kinds are the file that they lead to. */
static hec_status check_once(const hec_import_inputs *inputs) {
  identity *all = hec_malloc(inputs->n, sizeof *all);
  size_t n = 0;
  for (size_t i = 0; i < inputs->n; i++) {
    const char *path = inputs->input[i].path;
    struct stat info;
    if ((strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &info) : stat(path, &info)) == 0)
      all[n++] = (identity){info.st_dev, info.st_ino, i};
  }
  qsort(all, n, sizeof *all, compare_identities);
  hec_status status = HEC_OK;
  for (size_t i = 1; i < n && status == HEC_OK; i++)
    if (all[i].device == all[i - 1].device && all[i].number == all[i - 1].number)
      status = hec_fail(HEC_BAD_INPUT, "%s: expected every file once, found the same one as %s",
                        inputs->input[all[i].at].path, inputs->input[all[i - 1].at].path);
  free(all);
  return status;
}

hec_status hec_import_find(const char *const *words, int32_t n_words, const hec_importer **format,
                           hec_import_inputs *inputs) {
  char *head = hec_malloc(HEAD_BYTES + 1, 1);
  bool given = *format != NULL;
  hec_status status = HEC_OK;
  for (int32_t i = 0; status == HEC_OK && i < n_words; i++) {
    size_t before = inputs->n;
    status = take_word(words[i], format, head, inputs);
    /* who chose the format is told what is wrong with a file, whatever it begins with */
    for (size_t f = before; status == HEC_OK && f < inputs->n && !given; f++) {
      if (hec_import_is_stream(&inputs->input[f])) /* a pipe that was opened already may have nobody to open it again */
        status = check_once(inputs);
      if (status == HEC_OK)
        status = recognise(&inputs->input[f], head, format);
    }
  }
  free(head);
  if (status == HEC_OK && !*format)
    status = hec_fail(HEC_BAD_INPUT,
                      "%s: expected files of a format of hecate-trace import --list, found none whose first lines are "
                      "of one; name the format with --format, and the message says which file and what is missing",
                      words[0]);
  if (status == HEC_OK && *format && (*format)->beside && inputs->n > 0)
    take_beside(*format, inputs);
  if (status == HEC_OK && inputs->n > 0)
    status = check_once(inputs);
  if (status != HEC_OK)
    hec_import_inputs_free(inputs);
  return status;
}

/* ---- ranks ---- */

/* The number behind the last "rank" of the name, also rank_3 and rank-3. */
static int32_t rank_in_name(const char *path) {
  const char *name = base_of(path), *found = NULL;
  for (const char *p = strstr(name, "rank"); p; p = strstr(p + 1, "rank")) {
    const char *digits = p + 4 + strspn(p + 4, "_-=");
    if (strspn(digits, "0123456789") > 0)
      found = digits;
  }
  size_t n = found ? strspn(found, "0123456789") : 0;
  return n == 0 || n > 6 ? -1 : (int32_t)strtol(found, NULL, 10);
}

typedef struct {
  const hec_import_input *input;
  int32_t rank, at; /* at: as named, where that matters */
} placed;

static int compare_placed(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  if (x->at != y->at)
    return x->at < y->at ? -1 : 1;
  return compare_inputs(x->input, y->input);
}

static hec_status check_ranks(const hec_import *job, placed *files, int32_t n, int32_t *n_ranks) {
  int32_t next = 0;
  int64_t wanted = job->options.ranks;
  for (int32_t i = 0; i < n; i++) {
    bool again = i > 0 && files[i].rank == files[i - 1].rank;
    if (again && job->format->files == HEC_FILES_ONE_PER_RANK)
      return hec_fail(HEC_BAD_INPUT, "%s: rank %d: expected one file of a rank, found %s too", files[i].input->path,
                      (int)files[i].rank, files[i - 1].input->path);
    if (!again && files[i].rank != next && !job->options.renumber)
      return hec_fail(HEC_BAD_INPUT,
                      "%s: rank %d: expected files of rank %d too (missing; --renumber takes those there "
                      "are), found none",
                      files[i].input->path, (int)files[i].rank, (int)next);
    next += !again;
  }
  *n_ranks = 0;
  for (int32_t i = 0, last = -1; i < n; i++) {
    *n_ranks += files[i].rank != last;
    last = files[i].rank;
    files[i].rank = *n_ranks - 1;
  }
  if (wanted > 0 && *n_ranks != wanted)
    return hec_fail(HEC_BAD_INPUT, "%s: rank %d: expected files of ranks 0 to %" PRId64 " (--ranks), found %d of them",
                    files[n - 1].input->path, (int)(*n_ranks < wanted ? *n_ranks : wanted), wanted - 1, (int)*n_ranks);
  return HEC_OK;
}

static void make_queues(hec_import *job, const placed *files, const int32_t *given, int32_t n, bool by_rank) {
  job->inputs = hec_malloc((size_t)n, sizeof(const hec_import_input *));
  job->queues = hec_malloc((size_t)n, sizeof *job->queues);
  for (int32_t i = 0; i < n; i++) {
    bool own = job->format->files == HEC_FILES_PARTS || i == 0 || (by_rank && files[i].rank != files[i - 1].rank);
    job->inputs[i] = files[i].input;
    if (own)
      job->queues[job->n_queues++] = (hec_import_queue){
          .file = {.job = job, .words = job->words, .rank = by_rank ? files[i].rank : 0, .given = given[i]},
          .first_file = i,
          .file_step = -1};
    job->queues[job->n_queues - 1].n_files++;
  }
  job->n_inputs = n;
}

hec_status hec_import_place(hec_import *job, const hec_import_input *inputs, int32_t n,
                            const hec_import_input **beside) {
  const hec_importer *format = job->format;
  placed *files = hec_malloc((size_t)n, sizeof *files);
  int32_t *given = hec_malloc((size_t)n, sizeof *given);
  int32_t m = 0, n_named = 0, n_streams = 0;
  *beside = NULL;
  for (int32_t i = 0; i < n; i++) {
    if (format->beside && strcmp(base_of(inputs[i].path), format->beside) == 0) {
      *beside = &inputs[i];
      continue;
    }
    files[m] =
        (placed){&inputs[i], format->rank_of ? format->rank_of(inputs[i].path) : rank_in_name(inputs[i].path), 0};
    n_streams += hec_import_is_stream(&inputs[i]);
    n_named += files[m++].rank >= 0;
  }
  bool by_rank = ranks_matter(format) || (format->files == HEC_FILES_MAYBE_RANKS && n_named == m && m > 0);
  hec_status status = HEC_OK;
  job->n_ranks = 1;
  if (m == 0) {
    status = hec_fail(HEC_BAD_INPUT, "%s: expected files of %s, found none", *beside ? (*beside)->path : "inputs",
                      format->name);
  } else if (ranks_matter(format) && m == 1 && n_named == 0) {
    files[0].rank = 0; /* one file: whose it is does not matter */
    given[0] = -1;
  } else if (n_named < m && (ranks_matter(format) || (n_named > 0 && format->files == HEC_FILES_MAYBE_RANKS))) {
    for (int32_t i = 0; i < m && status == HEC_OK; i++)
      if (files[i].rank < 0)
        status = hec_fail(HEC_BAD_INPUT, "%s: expected a name with a rank (%s), found none", files[i].input->path,
                          ranks_matter(format) ? format->pattern : "of at most 6 digits, as other names have");
  }
  if (status == HEC_OK) {
    for (int32_t i = 0; i < m; i++) {
      files[i].rank = by_rank ? files[i].rank : -1;
      files[i].at = n_streams > 0 ? i : 0;
    }
    qsort(files, (size_t)m, sizeof *files, compare_placed);
    for (int32_t i = 0; i < m; i++)
      given[i] = n_named == m ? files[i].rank : -1;
    if (by_rank)
      status = check_ranks(job, files, m, &job->n_ranks);
  }
  if (status == HEC_OK)
    make_queues(job, files, given, m, by_rank);
  free(files);
  free(given);
  return status;
}
