/* The rows of option_list.h as data, and their way into the table of a command (args.h). */
#pragma once
#include "runtime/base/table.h"
#include "tools/front/args.h"
#include "tools/front/option_list.h"

typedef enum {
  HEC_RUN_FLAG,
  HEC_RUN_TEXT,
  HEC_RUN_MAYBE,
  HEC_RUN_WHOLE,
  HEC_RUN_LONG,
  HEC_RUN_REAL,
  HEC_RUN_PAPER,
  HEC_RUN_ROW
} hec_run_option_kind;

/* Names that stand for a value. */
typedef struct {
  const hec_table *table, *more; /* NULL: none */
  const char *words;             /* with blanks between them; NULL: none */
  const char *presets;           /* kind of the presets that are taken; NULL: none */
} hec_run_option_values;

typedef struct {
  const char *key;
  hec_run_option_kind kind;
  size_t offset; /* in hec_job_options, hec_target_args, hec_synth_options */
  const char *value, *help;
  double min, max;
  const hec_run_option_values *values;
} hec_run_option;

#define HEC_OPTION_COUNT(...) +1
enum {
  HEC_N_JOB_AXES = 0 HEC_JOB_AXIS_LIST(HEC_OPTION_COUNT),
  HEC_N_OPTIONS = 0 HEC_OPTION_LIST(HEC_OPTION_COUNT),
  HEC_N_TARGET_OPTIONS = 0 HEC_TARGET_OPTION_LIST(HEC_OPTION_COUNT),
  HEC_N_TRAINING_OPTIONS = 0 HEC_TRAINING_OPTION_LIST(HEC_OPTION_COUNT),
  HEC_N_SYNTH_ROWS = 0 HEC_SYNTH_OPTION_LIST(HEC_OPTION_COUNT)
};
extern const hec_run_option hec_run_rows[HEC_N_OPTIONS]; /* of the job; those that sweeps vary first */
extern const hec_run_option hec_target_rows[HEC_N_TARGET_OPTIONS];
extern const hec_run_option hec_training_rows[HEC_N_TRAINING_OPTIONS];
extern const hec_run_option hec_synth_rows[HEC_N_SYNTH_ROWS];

static inline bool hec_run_option_is_number(const hec_run_option *option) {
  return option->kind == HEC_RUN_WHOLE || option->kind == HEC_RUN_REAL || option->kind == HEC_RUN_PAPER;
}
/* The row of a key; of a flag as well, "--micro-batches". NULL: there is none. */
const hec_run_option *hec_run_option_find(const char *name);
/* Which of the row's words it is; HEC_BAD_INPUT: none of them. */
hec_status hec_run_option_word(const char *flag, const char *word, int32_t *which) HEC_MUST_USE;
static inline void *hec_run_option_in(const hec_run_option *option, void *options) {
  return (char *)options + option->offset;
}
void hec_run_option_names(const hec_run_option_values *values, hec_text *out); /* separated by blanks */

/* A command's own words for a row, where it takes another default or means something more. */
typedef struct {
  const char *key;
  const char *value, *help; /* NULL: the row's */
} hec_run_option_words;

/* What a row of kind HEC_ARG_OPTIONS is of. */
typedef struct {
  void *to;
  const hec_run_option *options; /* [n] */
  int32_t n;
  const char *keys;                /* groups, with blanks between them */
  const hec_run_option_words *own; /* ends with a key NULL; NULL: none */
} hec_run_option_use;
#define HEC_ARG_USE(title, ...)                                                                                        \
  {                                                                                                                    \
    .name = (title), .kind = HEC_ARG_OPTIONS, .to = &(hec_run_option_use) {                                            \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }
#define HEC_ARG_JOB(title, job, groups, words) HEC_ARG_USE(title, &(job), hec_run_rows, HEC_N_OPTIONS, groups, words)
#define HEC_ARG_TARGET(title, target, groups, words)                                                                   \
  HEC_ARG_USE(title, &(target), hec_target_rows, HEC_N_TARGET_OPTIONS, groups, words)
#define HEC_ARG_TRAINING(title, training)                                                                              \
  HEC_ARG_USE(title, &(training), hec_training_rows, HEC_N_TRAINING_OPTIONS, HEC_OPTIONS_TRAINING, NULL)

/* Writes the rows of the options; flag: [rows] where their names stand. How many. */
int32_t hec_run_option_rows(const hec_run_option_use *use, hec_arg *rows, char (*flag)[HEC_ARG_NAME_BYTES],
                            int32_t room);
