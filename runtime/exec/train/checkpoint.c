/* Writing and reading a rank's file is one walk over what the rank keeps. O(bytes). */
#include "runtime/exec/train/checkpoint.h"

#include "models/json.h"
#include "runtime/base/arena.h"
#include "runtime/base/files.h"
#include "runtime/base/temporary.h"
#include "runtime/base/value.h"
#include "runtime/plan/problem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "HECCKPT1";
static const char description[] = "checkpoint.json", part_suffix[] = ".part", step_prefix[] = "step-";

enum { LOADS_FILE = -1, VERSION = 1 };

typedef struct {
  char magic[8];
  int32_t rank, n_ranks; /* rank LOADS_FILE: the loads */
  int64_t step;
  uint64_t run; /* hash of the settings: a file of another run is found out */
} file_head;

static uint64_t hash_on(uint64_t hash, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
  return hash;
}

static const uint64_t hash_start = 0xcbf29ce484222325u;

static uint64_t run_of(const hec_checkpoint *c) {
  uint64_t hash = hash_start;
  for (int32_t i = 0; i < c->n_settings; i++) {
    hash = hash_on(hash, c->setting[i].option, strlen(c->setting[i].option) + 1);
    hash = hash_on(hash, c->setting[i].value, strlen(c->setting[i].value) + 1);
  }
  return hash;
}

/* FOLDER/step-00000050, with something behind it. */
static void add_path(hec_text *path, const hec_checkpoint *c, int64_t step, const char *behind) {
  hec_text_printf(path, "%s/%s%08" PRId64 "%s", c->folder, step_prefix, step, behind);
}

/* ---- Files of numbers ---- */

/* A file that is written or read through, with the check sum so far. */
typedef struct {
  hec_text path;
  FILE *file;
  bool writes, failed;
  int cause; /* errno of the failure; 0: the file ended */
  uint64_t sum;
} stream;

static void pass(stream *s, void *data, size_t bytes) {
  if (s->failed || bytes == 0)
    return;
  errno = 0;
  size_t n = s->writes ? fwrite(data, 1, bytes, s->file) : fread(data, 1, bytes, s->file);
  s->failed = n != bytes;
  s->cause = errno;
  s->sum = hash_on(s->sum, data, s->failed ? 0 : bytes);
}

static hec_status open_stream(stream *s, const hec_checkpoint *c, int64_t step, int32_t rank, bool writes) {
  *s = (stream){.writes = writes, .sum = hash_start};
  add_path(&s->path, c, step, writes ? part_suffix : "");
  if (rank == LOADS_FILE)
    hec_text_add(&s->path, "/loads");
  else
    hec_text_printf(&s->path, "/rank-%04" PRId32, rank);
  s->file = hec_file_open(s->path.data, writes ? "wb" : "rb");
  if (s->file)
    return HEC_OK;
  hec_status status = hec_fail(writes ? HEC_FAILED : HEC_BAD_INPUT, "%s: cannot be %s: %s", s->path.data,
                               writes ? "written" : "opened", strerror(errno));
  hec_text_free(&s->path);
  return status;
}

/* Closes it; `status` is what happened meanwhile. */
static hec_status close_stream(stream *s, hec_status status) {
  if (s->writes && !s->failed && (fflush(s->file) != 0 || fsync(fileno(s->file)) != 0)) {
    s->failed = true;
    s->cause = errno;
  }
  if (fclose(s->file) != 0 && s->writes && !s->failed) {
    s->failed = true;
    s->cause = errno;
  }
  if (status == HEC_OK && s->failed)
    status = s->writes  ? hec_fail(HEC_FAILED, "%s: cannot be written: %s", s->path.data, strerror(s->cause))
             : s->cause ? hec_fail(HEC_BAD_INPUT, "%s: cannot be read: %s", s->path.data, strerror(s->cause))
                        : hec_fail(HEC_BAD_INPUT, "%s: damaged: it ends too early", s->path.data);
  hec_text_free(&s->path);
  return status;
}

static void pass_sum(stream *s) {
  uint64_t sum = s->sum;
  pass(s, &sum, sizeof sum);
}

/* All of the file is what was written: its last number is the check sum of all before. */
static hec_status check_sum(stream *s) {
  char bytes[1 << 16];
  uint64_t sum = s->sum, last = 0;
  size_t held = 0, n;
  while ((n = fread(bytes + held, 1, sizeof bytes - held, s->file)) > 0) {
    n += held;
    held = n < sizeof last ? n : sizeof last;
    sum = hash_on(sum, bytes, n - held);
    memmove(bytes, bytes + n - held, held);
  }
  memcpy(&last, bytes, held == sizeof last ? held : 0);
  if (ferror(s->file) || held != sizeof last || last != sum)
    return hec_fail(HEC_BAD_INPUT, "%s: damaged: its check sum does not fit", s->path.data);
  rewind(s->file);
  return HEC_OK;
}

/* The head, written; or read and compared, behind which the file then stands. */
static hec_status pass_head(stream *s, const hec_checkpoint *c, int64_t step, int32_t rank, int32_t n_ranks) {
  file_head own = {.rank = rank, .n_ranks = n_ranks, .step = step, .run = run_of(c)}, head;
  memcpy(own.magic, magic, sizeof magic);
  head = own;
  if (!s->writes)
    HEC_TRY(check_sum(s));
  pass(s, &head, sizeof head);
  if (!s->failed && memcmp(&head, &own, sizeof own) != 0)
    return hec_fail(HEC_BAD_INPUT, "%s: damaged: it is of another checkpoint", s->path.data);
  return HEC_OK;
}

/* ---- What a rank keeps ---- */

static void pass_dense(stream *s, const hec_exec *exec, int32_t layer) {
  hec_dense d = hec_exec_dense(exec, layer);
  size_t bytes = (size_t)d.n * sizeof *d.params;
  pass(s, d.params, bytes);
  pass(s, d.first, bytes);
  pass(s, d.second, bytes);
}

/* False: the file has another expert in this place. */
static bool pass_expert(stream *s, hec_exec *exec, int32_t row, int32_t part) {
  hec_store_part at = hec_store_at(hec_exec_store(exec), row, part);
  int64_t own[3] = {row, part, at.n}, found[3] = {row, part, at.n};
  size_t bytes = (size_t)at.n * sizeof *at.params;
  pass(s, found, sizeof found);
  if (memcmp(own, found, sizeof own) != 0)
    return false;
  pass(s, at.params, bytes);
  pass(s, at.first, bytes);
  pass(s, at.second, bytes);
  return true;
}

static bool pass_state(stream *s, hec_exec *exec) {
  const hec_store *store = hec_exec_store(exec);
  int32_t n_layers = hec_exec_problem(exec)->n_layers, n_experts = hec_exec_problem(exec)->n_experts;
  HEC_ASSERT(hec_exec_train(exec) &&
             !hec_exec_processor(exec)->streams); /* what devices have would have to be copied */
  for (int32_t l = -1; l < n_layers; l++)
    pass_dense(s, exec, l);
  for (int32_t row = 0; row < store->n_rows; row++)
    for (int32_t part = 0; part < store->n_parts; part++)
      if (hec_exec_keeps(exec, row / n_experts, row % n_experts, part) && !pass_expert(s, exec, row, part))
        return false;
  int64_t end = -1, found = -1;
  pass(s, &found, sizeof found);
  return found == end;
}

static void pass_transitions(stream *s, hec_record *record, int32_t rank, int64_t step) {
  size_t n = hec_record_transitions_n(record);
  uint64_t *counts = hec_malloc(n + 1, sizeof *counts);
  if (s->writes)
    hec_record_transitions(record, rank, step, counts);
  pass(s, counts, n * sizeof *counts);
  if (!s->writes && !s->failed)
    hec_record_set_transitions(record, rank, step, counts);
  free(counts);
}

static hec_status pass_rank(stream *s, const hec_checkpoint *c, int64_t step, hec_record *record, hec_exec *exec,
                            hec_rank *rank) {
  HEC_TRY(pass_head(s, c, step, rank->rank, rank->n_ranks));
  if (!pass_state(s, exec) && !s->failed)
    return hec_fail(HEC_BAD_INPUT,
                    "%s: it has other experts than the plans made from its loads: another version of hecate wrote it",
                    s->path.data);
  pass_transitions(s, record, rank->rank, step);
  pass_sum(s);
  return HEC_OK;
}

static hec_status rank_file(const hec_checkpoint *c, int64_t step, bool writes, hec_record *record, hec_exec *exec,
                            hec_rank *rank) {
  stream s;
  HEC_TRY(open_stream(&s, c, step, rank->rank, writes));
  return close_stream(&s, pass_rank(&s, c, step, record, exec, rank));
}

hec_status hec_checkpoint_read(const hec_checkpoint *c, hec_record *record, hec_exec *exec, hec_rank *rank) {
  hec_rank_at_phase(rank, c->step, "reading a checkpoint");
  return rank_file(c, c->step, false, record, exec, rank);
}

/* ---- Loads ---- */

static hec_status pass_loads(stream *s, const hec_checkpoint *c, int64_t step, hec_record *record, hec_load *loads) {
  HEC_TRY(pass_head(s, c, step, LOADS_FILE, loads[0].n_sources));
  for (int64_t i = 0; i < step; i++) {
    if (s->writes)
      HEC_TRY(hec_record_read(record, i, loads));
    for (int32_t mb = 0; mb < hec_record_micro_batches(record); mb++)
      pass(s, loads[mb].counts, hec_load_cells(&loads[mb]) * sizeof *loads[mb].counts);
    if (!s->writes && !s->failed)
      HEC_TRY(hec_record_append(record, loads));
  }
  pass_sum(s);
  return HEC_OK;
}

static hec_status loads_file(const hec_checkpoint *c, int64_t step, bool writes, hec_record *record) {
  HEC_SCOPED(hec_arena) arena = {0};
  stream s;
  HEC_TRY(open_stream(&s, c, step, LOADS_FILE, writes));
  return close_stream(&s, pass_loads(&s, c, step, record, hec_record_room(record, &arena)));
}

hec_status hec_checkpoint_loads(const hec_checkpoint *c, hec_record *record) {
  HEC_ASSERT(hec_record_steps(record) == 0);
  return loads_file(c, c->step, false, record);
}

/* ---- Folders ---- */

/* The step of a folder's name; 0: it is no checkpoint's. `part`: one that was being written. */
static int64_t step_of(const char *name, bool part) {
  size_t n = sizeof step_prefix - 1, digits;
  if (strncmp(name, step_prefix, n) != 0)
    return 0;
  digits = strspn(name + n, "0123456789");
  if (digits < 8 || digits > 18 || strcmp(name + n + digits, part ? part_suffix : "") != 0)
    return 0;
  return strtoll(name + n, NULL, 10);
}

/* Files of ours, then the folder: what is not ours keeps it. */
static void remove_checkpoint(const char *path) {
  HEC_SCOPED(hec_text) file = {0};
  DIR *names = hec_folder_open(path);
  for (const struct dirent *found; names && (found = readdir(names)) != NULL;) {
    const char *name = found->d_name;
    if (strncmp(name, description, sizeof description - 1) != 0 && strcmp(name, "loads") != 0 &&
        strncmp(name, "rank-", 5) != 0)
      continue;
    file.length = 0;
    hec_text_printf(&file, "%s/%s", path, name);
    (void)unlink(file.data);
  }
  if (names)
    (void)closedir(names);
  (void)rmdir(path);
}

/* Those before `step`, complete or (part) begun and left. */
static void remove_before(const hec_checkpoint *c, int64_t step, bool part) {
  HEC_SCOPED(hec_text) path = {0};
  DIR *names = hec_folder_open(c->folder);
  for (const struct dirent *found; names && (found = readdir(names)) != NULL;) {
    int64_t of = step_of(found->d_name, part);
    if (of == 0 || (!part && of >= step))
      continue;
    path.length = 0;
    hec_text_printf(&path, "%s/%s", c->folder, found->d_name);
    remove_checkpoint(path.data);
  }
  if (names)
    (void)closedir(names);
}

/* Names in it are on the disk, too. */
static void sync_folder(const char *path) {
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return;
  (void)fsync(folder);
  (void)close(folder);
}

static hec_status make_folder(const char *path, hec_status code) {
  struct stat info;
  if (mkdir(path, 0777) == 0)
    return HEC_OK;
  if (errno == EEXIST && stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
    errno = ENOTDIR;
  else if (errno == EEXIST && access(path, W_OK | X_OK) == 0)
    return HEC_OK;
  return hec_fail(code, "%s: no folder for checkpoints: %s", path, strerror(errno));
}

hec_status hec_checkpoint_hold(const hec_checkpoint *c) {
  HEC_TRY(make_folder(c->folder, HEC_BAD_INPUT));
  HEC_SCOPED(hec_text) path = {0};
  hec_text_printf(&path, "%s/.lock", c->folder);
  int file = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0666); /* stays open: closing it would give the lock back */
  hec_status status = HEC_OK;
  if (file < 0)
    status = hec_fail(HEC_BAD_INPUT, "%s: cannot be written: %s", path.data, strerror(errno));
  else if (!hec_file_claim(file))
    status = hec_fail(HEC_BAD_INPUT,
                      "%s: another run writes its checkpoints there; wait for it or choose another folder", c->folder);
  return status;
}

/* ---- The description ---- */

static void describe(const hec_checkpoint *c, int64_t step, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_TEXT("format", "hecate-checkpoint"), HEC_INT("version", VERSION), HEC_INT("step", step));
  hec_json_object(&json, "settings");
  for (int32_t i = 0; i < c->n_settings; i++)
    hec_json_string(&json, c->setting[i].option, c->setting[i].value);
  hec_json_close(&json);
  hec_json_close(&json);
}

static hec_status compare_setting(const hec_json *json, const hec_json_value *settings, const char *path,
                                  const hec_checkpoint_setting *own) {
  const char *value;
  HEC_TRY(hec_json_want_text(json, settings, own->option, &value));
  if (strcmp(value, own->value) == 0)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: made with %s %s, this run has %s; repeat the options of the run that it is of",
                  path, own->option, value, own->value);
}

static hec_status compare(const hec_checkpoint *c, const hec_json *json, const char *path) {
  const hec_json_value *root = hec_json_root(json), *settings = hec_json_get(root, "settings");
  const char *format;
  int64_t number;
  HEC_TRY(hec_json_want_text(json, root, "format", &format));
  if (strcmp(format, "hecate-checkpoint") != 0)
    return hec_json_error(json, hec_json_get(root, "format"), "\"hecate-checkpoint\"");
  HEC_TRY(hec_json_want_int(json, root, "version", VERSION, VERSION, &number));
  HEC_TRY(hec_json_want_int(json, root, "step", c->step, c->step, &number));
  if (!settings || !hec_json_is_object(settings))
    return hec_json_error(json, root, "an object with `settings`");
  for (int32_t i = 0; i < c->n_settings; i++)
    HEC_TRY(compare_setting(json, settings, path, &c->setting[i]));
  return HEC_OK;
}

hec_status hec_checkpoint_find(hec_checkpoint *c) {
  HEC_SCOPED(hec_text) path = {0};
  HEC_OPENED(hec_json) *json = NULL;
  DIR *names = hec_folder_open(c->folder);
  c->step = 0;
  for (const struct dirent *found; names && (found = readdir(names)) != NULL;) {
    int64_t step = step_of(found->d_name, false);
    c->step = step > c->step ? step : c->step;
  }
  if (names)
    (void)closedir(names);
  if (c->step == 0)
    return HEC_OK;
  add_path(&path, c, c->step, "/");
  hec_text_add(&path, description);
  HEC_TRY(hec_json_read(path.data, &json));
  return compare(c, json, path.data);
}

/* ---- Writing ---- */

static hec_status begin(const hec_checkpoint *c, int64_t step) {
  HEC_SCOPED(hec_text) path = {0};
  add_path(&path, c, step, part_suffix);
  remove_before(c, step, true);
  return make_folder(path.data, HEC_FAILED);
}

static hec_status put_in_place(const hec_checkpoint *c, int64_t step) {
  HEC_SCOPED(hec_text) part = {0}, path = {0};
  hec_status status = HEC_OK;
  add_path(&part, c, step, part_suffix);
  add_path(&path, c, step, "");
  sync_folder(part.data);
  if (rename(part.data, path.data) != 0)
    status = hec_fail(HEC_FAILED, "%s: cannot be put in place: %s", path.data, strerror(errno));
  sync_folder(c->folder);
  return status;
}

static hec_status write_description(const hec_checkpoint *c, int64_t step) {
  HEC_SCOPED(hec_text) path = {0}, text = {0};
  add_path(&path, c, step, part_suffix);
  hec_text_printf(&path, "/%s", description);
  describe(c, step, &text);
  return hec_write_file(path.data, text.data, text.length);
}

/* Every rank names its phase: tests kill it there. */
hec_status hec_checkpoint_write(const hec_checkpoint *c, int64_t step, hec_record *record, hec_exec *exec,
                                hec_rank *rank) {
  bool first = rank->rank == 0;
  HEC_ASSERT(!first || hec_record_steps(record) == step);
  hec_rank_at_phase(rank, step, "checkpoint: folder");
  if (first)
    HEC_TRY(begin(c, step));
  HEC_TRY(hec_rank_barrier(rank));
  hec_rank_at_phase(rank, step, "checkpoint: state");
  HEC_TRY(rank_file(c, step, true, record, exec, rank));
  HEC_TRY(hec_rank_barrier(rank));
  hec_rank_at_phase(rank, step, "checkpoint: loads");
  if (!first)
    return HEC_OK;
  HEC_TRY(loads_file(c, step, true, record));
  HEC_TRY(write_description(c, step));
  hec_rank_at_phase(rank, step, "checkpoint: rename");
  HEC_TRY(put_in_place(c, step));
  hec_rank_at_phase(rank, step, "checkpoint: clean up");
  remove_before(c, step, false);
  hec_rank_at_phase(rank, step, "checkpoint: done");
  return HEC_OK;
}
