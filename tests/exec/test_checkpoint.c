/* Checkpoints: a run that is cut in two has the losses of one that is not, bit for bit. Whatever kills it while it saves, the
 * last complete checkpoint is there; what is no checkpoint of the run is refused. And the trace of a run in which a rank
 * dies has the steps that were finished. */
#include "tests/exec/launch_case.h"
#include "tests/exec/train_case.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 9, CUT = 4 };

/* ---- Folders ---- */

static char folder[64], record[64]; /* FOLDER/ck, FOLDER/loads.jsonl */

static void remove_all(const char *path) {
  char below[512];
  DIR *names = opendir(path);
  for (const struct dirent *found; names && (found = readdir(names)) != NULL;) {
    if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
      continue;
    (void)snprintf(below, sizeof below, "%s/%s", path, found->d_name);
    if (unlink(below) != 0)
      remove_all(below);
  }
  if (names)
    (void)closedir(names);
  ck_assert_int_eq(rmdir(path), 0);
}

static char top[] = "/tmp/hecate-checkpoint-XXXXXX";

/* Where a rank is killed: as often as it says this phase in this step. */
typedef struct {
  const char *phase; /* or the role of an operation, NULL: nowhere */
  int rank, role;
  int64_t step;
} strike;
static strike *page;

static void hook(hec_rank *rank, const hec_place *place) {
  if (rank->rank != page->rank || place->iteration != page->step)
    return;
  if (page->phase ? strcmp(place->phase, page->phase) == 0 : page->role > 0 && place->role == page->role)
    (void)raise(SIGKILL);
}

static void setup(void) {
  hec_math_open();
  (void)strcpy(top + sizeof top - 7, "XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(top));
  (void)snprintf(folder, sizeof folder, "%s/ck", top);
  (void)snprintf(record, sizeof record, "%s/loads.jsonl", top);
  page = hec_test_shared_page();
  hec_rank_place_hook = hook;
}

static void teardown(void) {
  remove_all(top);
}
HEC_TEST_FIXTURE(setup, teardown)

/* "step-00000004 " for what is in the folder, in a static buffer. */
static const char *there_is(void) {
  static char names[512];
  struct dirent **list;
  names[0] = 0;
  int n = scandir(folder, &list, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    if (list[i]->d_name[0] != '.')
      (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", list[i]->d_name);
    free(list[i]);
  }
  if (n >= 0)
    free(list);
  return names;
}

/* ---- Two halves and a whole ---- */

static hec_train_wish small(const char *policy) {
  hec_train_wish wish = hec_train_small(4, STEPS);
  wish.policy = policy;
  wish.aux = 0.05F;
  wish.check = false;
  return wish;
}

static void same_numbers(const hec_train_outcome *part, const hec_train_outcome *whole) {
  for (int32_t i = 0; i < part->n_steps; i++) {
    int64_t at = part->first_step - 1 + i;
    ck_assert_msg(part->loss[i] == whole->loss[at] && part->balance_loss[i] == whole->balance_loss[at] &&
                      part->overload[i] == whole->overload[at],
                  "step %d: loss %.17g, in one run %.17g", (int)at + 1, part->loss[i], whole->loss[at]);
  }
}

/* The run as a whole, then in pieces that end after these steps. */
static hec_train_outcome cut_run(hec_train_wish wish, int32_t first, int32_t second) {
  hec_train_ends(wish);
  const hec_train_outcome whole = hec_trained;
  const int32_t ends[] = {first, second, wish.steps};
  wish.checkpoint = folder;
  for (int i = 0; i < 3; i++) {
    wish.steps = ends[i];
    ck_ok(hec_train_launch(wish, &hec_trained));
    ck_assert_int_eq(hec_trained.first_step, i == 0 ? 1 : ends[i - 1] + 1);
    ck_assert_int_eq(hec_trained.n_steps, ends[i] - (i == 0 ? 0 : ends[i - 1]));
    ck_assert_msg(hec_trained.check.passed || !wish.check, "%s: %g", hec_trained.check.worst_at,
                  hec_trained.check.worst);
    same_numbers(&hec_trained, &whole);
  }
  return whole;
}

/* What policies and schedules remember: homes that moved with their moments, copies that stay, slices, shards; degrees that are
 * tried out; pairs that are followed. The bias of a gate. `moves`: experts do. */
static const struct {
  const char *policy, *schedule, *gate;
  int32_t period, esp;
  float bias_rate;
  bool moves;
} kinds[] = {
    {.policy = "ep"},
    {.policy = "hecate", .period = 2, .moves = true},
    {.policy = "hecate-rm", .period = 2, .moves = true},
    {.policy = "eplb", .period = 2, .moves = true},
    {.policy = "flexmoe", .period = 1},
    {.policy = "smartmoe", .period = 1, .moves = true},
    {.policy = "laer"},
    {.policy = "fsdp"},
    {.policy = "joint", .period = 2},
    {.policy = "ep", .schedule = "tutel"},
    {.policy = "ep", .schedule = "fsmoe", .esp = 2},
    {.policy = "ep", .gate = "sigmoid", .bias_rate = 0.01F},
    {.policy = "ep", .gate = "gshard:capacity=0.5"},
};
HEC_TEST_ROWS(cut_in_three, kinds) {
  hec_train_wish wish = small(kinds[_i].policy);
  wish.schedule = kinds[_i].schedule;
  wish.gate = kinds[_i].gate;
  wish.period = kinds[_i].period;
  wish.esp = kinds[_i].esp;
  wish.bias_rate = kinds[_i].bias_rate;
  wish.aux = wish.gate ? 0 : wish.aux;
  const hec_train_outcome whole = cut_run(wish, CUT, CUT + 1);
  ck_assert_msg(!kinds[_i].moves || whole.n_migrations > 0, "%s moved nothing", kinds[_i].policy);
  ck_assert_str_eq(there_is(), "step-00000009 ");
}

/* The reference goes on, too, from the middle of a window; with threads. */
HEC_TEST_LOOP(checked, 2) {
  hec_train_wish wish = small("hecate");
  wish.steps = 16;
  wish.check = true;
  wish.threads = _i == 1;
  wish.gate = "sigmoid";
  wish.aux = 0;
  wish.bias_rate = 0.01F;
  (void)cut_run(wish, 3, 14);
  ck_assert_int_eq(hec_trained.check.windows, 1);
  ck_assert_int_gt(hec_trained.check.compared, 10000);
}

/* ---- Killed ---- */

static const struct {
  const char *phase;
  int rank;
  bool complete; /* the new checkpoint is in place */
} moments[] = {
    {"checkpoint: folder", 0, false}, {"checkpoint: state", 0, false},  {"checkpoint: state", 2, false},
    {"checkpoint: loads", 0, false},  {"checkpoint: rename", 0, false}, {"checkpoint: clean up", 0, true},
    {"checkpoint: done", 0, true},
};
HEC_TEST_ROWS(killed_while_saving, moments) {
  hec_train_wish wish = small("hecate");
  wish.period = 2;
  hec_train_ends(wish);
  const hec_train_outcome whole = hec_trained;
  wish.checkpoint = folder;
  wish.every = 3;
  *page = (strike){.phase = moments[_i].phase, .rank = moments[_i].rank, .step = 6};
  ck_assert_int_eq(hec_train_launch(wish, &hec_trained), HEC_FAILED);
  ck_assert_msg(strstr(hec_last_error(), moments[_i].phase) != NULL, "%s", hec_last_error());
  hec_test_no_child_is_left();
  *page = (strike){0};
  ck_ok(hec_train_launch(wish, &hec_trained));
  ck_assert_int_eq(hec_trained.first_step, moments[_i].complete ? 7 : 4);
  same_numbers(&hec_trained, &whole);
  ck_assert_str_eq(there_is(), "step-00000009 ");
}

/* ---- Damaged, foreign ---- */

static void change(const char *name, bool cut) {
  char path[128];
  struct stat info;
  (void)snprintf(path, sizeof path, "%s/step-00000004/%s", folder, name);
  ck_assert_int_eq(stat(path, &info), 0);
  if (cut) {
    ck_assert_int_eq(truncate(path, info.st_size - 1), 0);
    return;
  }
  FILE *file = fopen(path, "r+b");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fseek(file, (long)info.st_size / 2, SEEK_SET), 0);
  int byte = fgetc(file);
  ck_assert_int_eq(fseek(file, -1, SEEK_CUR), 0);
  ck_assert_int_eq(fputc(byte ^ 1, file), byte ^ 1);
  ck_assert_int_eq(fclose(file), 0);
}

static const char *const files[] = {"loads", "rank-0000", "rank-0003"};
HEC_TEST_LOOP(damaged, 9) {
  const char *name = files[_i % 3];
  char path[128], words[256];
  hec_train_wish wish = small("ep");
  wish.checkpoint = folder;
  wish.steps = CUT;
  hec_train_ends(wish);
  (void)snprintf(path, sizeof path, "%s/step-00000004/%s", folder, name);
  if (_i < 6)
    change(name, _i < 3);
  else
    ck_assert_int_eq(unlink(path), 0);
  (void)snprintf(words, sizeof words, "%s: %s", path,
                 _i < 6 ? "damaged: its check sum does not fit" : "cannot be opened");
  wish.steps = STEPS;
  hec_train_refused(wish, words);
  hec_test_no_child_is_left();
}

/* A file of another rank, or of another run. */
HEC_TEST(mixed) {
  char from[256], to[256], other[128];
  hec_train_wish wish = small("ep");
  wish.checkpoint = folder;
  wish.steps = CUT;
  hec_train_ends(wish);
  (void)snprintf(from, sizeof from, "%s/step-00000004/rank-0001", folder);
  (void)snprintf(to, sizeof to, "%s/step-00000004/rank-0002", folder);
  (void)snprintf(other, sizeof other, "%s/other", top);
  ck_assert_int_eq(rename(from, to), 0);
  wish.steps = STEPS;
  hec_train_refused(wish, "rank-000");
  wish.checkpoint = other;
  wish.policy = "eplb";
  wish.steps = CUT;
  hec_train_ends(wish);
  (void)snprintf(from, sizeof from, "%s/step-00000004/rank-0001", other);
  ck_assert_int_eq(rename(to, from), 0);
  wish.steps = STEPS;
  hec_train_refused(wish, "rank-0001: damaged: it is of another checkpoint");
}

HEC_TEST(another_run) {
  hec_train_wish wish = small("ep");
  wish.checkpoint = folder;
  wish.steps = CUT;
  hec_train_ends(wish);
  wish.steps = STEPS;
  wish.policy = "hecate";
  hec_train_refused(wish, "made with --policy ep, this run has hecate");
  wish.policy = "ep";
  wish.ranks = 2;
  wish.tokens = 32;
  hec_train_refused(wish, "made with --ranks 4, this run has 2");
  char path[128];
  (void)snprintf(path, sizeof path, "%s/step-00000004/checkpoint.json", folder);
  ck_assert_int_eq(truncate(path, 20), 0);
  hec_train_refused(wish, "checkpoint.json");
  ck_assert_int_eq(unlink(path), 0);
  hec_train_refused(wish, "checkpoint.json: cannot be opened");
}

/* ---- The record ---- */

/* Loads of the trace's records, [n][L * R * E] in `loads`; how many. Transitions pair the experts that tokens have. */
static int32_t read_trace(const hec_train_wish *wish, uint32_t *loads, int32_t max) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  const hec_trace_record *at;
  uint64_t total[8][8] = {{0}};
  int32_t n = 0, e_max = wish->experts;
  ck_ok(hec_trace_open(record, &reader));
  const hec_trace_header *h = hec_trace_header_of(reader);
  for (;; n++) {
    ck_ok(hec_trace_next(reader, &at));
    if (!at)
      break;
    ck_assert_int_lt(n, max);
    ck_assert_int_eq(at->iter, n / wish->micro_batches);
    memcpy(loads + (size_t)n * hec_load_cells(&at->load), at->load.counts, hec_load_cells(&at->load) * sizeof *loads);
    for (int32_t l = 0; l < wish->layers; l++)
      for (int32_t s = 0; s < wish->ranks; s++)
        for (int32_t e = 0; e < e_max; e++)
          total[l][e] += hec_load_row(&at->load, l, s)[e];
  }
  ck_assert_ptr_nonnull(h->transitions);
  ck_assert_int_eq(h->transitions_last, n / wish->micro_batches - 1);
  for (int32_t l = 0; l + 1 < wish->layers; l++)
    for (int32_t a = 0; a < e_max; a++) {
      uint64_t row = 0;
      for (int32_t b = 0; b < e_max; b++)
        row += h->transitions[(l * e_max + a) * e_max + b];
      ck_assert_uint_eq(row, (uint64_t)wish->top_k * total[l][a]);
    }
  return n;
}

enum { CELLS = 2 * 4 * 6, RECORDS = STEPS * 2 };
static uint32_t all[RECORDS * CELLS], some[RECORDS * CELLS];

/* In the optimizer of step 5, in its first attention, and when its losses are added up; odd steps and even ones. */
static const strike deaths[] = {
    {.rank = 1, .role = HEC_ROLE_OPTIMIZER, .step = 4}, {.rank = 0, .role = HEC_ROLE_EXPERTS, .step = 4},
    {.rank = 3, .role = HEC_ROLE_ATTENTION, .step = 5}, {.rank = 0, .role = HEC_ROLE_OPTIMIZER, .step = 1},
    {.rank = 2, .role = HEC_ROLE_ATTENTION, .step = 0},
};
HEC_TEST_ROWS(record_of_a_run_that_died, deaths) {
  hec_train_wish wish = small("hecate");
  wish.record = record;
  hec_train_ends(wish);
  ck_assert_int_eq(read_trace(&wish, all, RECORDS), RECORDS);
  ck_assert_int_eq(unlink(record), 0);
  *page = deaths[_i];
  int32_t finished = (int32_t)deaths[_i].step;
  char words[64];
  ck_assert_int_eq(hec_train_launch(wish, &hec_trained), HEC_FAILED);
  (void)snprintf(words, sizeof words, "has the loads of the %d finished steps", finished);
  ck_assert_msg(strstr(hec_last_error(), "was killed by signal 9") != NULL, "%s", hec_last_error());
  ck_assert_msg((strstr(hec_last_error(), words) != NULL) == (finished > 0), "%s", hec_last_error());
  ck_assert_int_eq(access(record, F_OK), finished > 0 ? 0 : -1);
  if (finished == 0)
    return;
  int32_t n = read_trace(&wish, some, RECORDS);
  ck_assert_int_eq(n, finished * wish.micro_batches);
  ck_assert_mem_eq(some, all, (size_t)n * CELLS * sizeof *all);
}

/* A run that goes on has the steps before in its trace. */
HEC_TEST(record_goes_on) {
  hec_train_wish wish = small("eplb");
  wish.record = record;
  hec_train_ends(wish);
  ck_assert_int_eq(read_trace(&wish, all, RECORDS), RECORDS);
  wish.checkpoint = folder;
  wish.every = 2;
  *page = (strike){.rank = 1, .role = HEC_ROLE_OPTIMIZER, .step = 5};
  ck_assert_int_eq(hec_train_launch(wish, &hec_trained), HEC_FAILED);
  *page = (strike){0};
  ck_ok(hec_train_launch(wish, &hec_trained));
  ck_assert_int_eq(hec_trained.first_step, 5);
  ck_assert_int_eq(read_trace(&wish, some, RECORDS), RECORDS);
  ck_assert_mem_eq(some, all, sizeof all);
}
