/* See options.h. */
#include "tools/front/options.h"

#include "models/preset_data.h"
#include "models/training/dispatcher.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/link/device_link.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/policy.h"
#include "runtime/program/lower.h"
#include "runtime/program/pipelines/pipeline_schedule.h"
#include "sim/simulate.h"
#include "traces/synth.h"

#include <stddef.h>
#include <string.h>

static const hec_table policy_table = {.rows = hec_policies, .also = "all", .list = "hecate-sim --list"};
static const hec_table collective_table = {.rows = hec_collectives}, law_table = {.rows = hec_laws};

static const hec_table backend_table = {.rows = hec_backends, .also = "list"},
                       transport_table = {.rows = hec_transports}, link_table = {.rows = hec_device_links};

static const hec_run_option_values values_none = {.table = NULL}, values_models = {.presets = "moe"},
                                   values_clusters = {.presets = "cluster"}, values_phases = {.words = "train forward"},
                                   values_heads = {.words = "beside after"},
                                   values_attentions = {.words = "full causal s2"}, values_degrees = {.words = "paper"},
                                   values_policies = {.table = &policy_table},
                                   values_collectives = {.table = &collective_table},
                                   values_laws = {.table = &law_table},
                                   values_schedules = {.table = &hec_schedule_best_table},
                                   values_backends = {.table = &backend_table},
                                   values_transports = {.table = &transport_table, .more = &link_table},
                                   values_precisions = {.words = "fp32 tf32 bf16"},
                                   values_setups = {.presets = "setup"}, values_recipes = {.presets = "recipe"},
                                   values_pipelines = {.table = &hec_pipeline_table},
                                   values_gemms = {.words = "bf16 fp8 fp8-block mxfp8"},
                                   values_dispatchers = {.table = &hec_dispatcher_table},
                                   values_travels = {.words = "bf16 fp8"},
                                   values_recomputed = {.words = "none norm act mlp attention moe full"},
                                   values_zeros = {.words = "0 1 2 3"};

#define ROW(type, name, kind, value, help, min, max, values)                                                           \
  {#name, HEC_RUN_##kind, offsetof(type, name), value, help, min, max, &values_##values},
#define JOB_ROW(name, kind, absent, ...) ROW(hec_job_options, name, kind, __VA_ARGS__)
#define TARGET_ROW(name, kind, absent, ...) ROW(hec_target_args, name, kind, __VA_ARGS__)
const hec_run_option hec_run_rows[HEC_N_OPTIONS] = {HEC_OPTION_LIST(JOB_ROW)};
#define TRAINING_ROW(name, kind, absent, ...) ROW(hec_training_args, name, kind, __VA_ARGS__)
const hec_run_option hec_training_rows[HEC_N_TRAINING_OPTIONS] = {HEC_TRAINING_OPTION_LIST(TRAINING_ROW)};
#define SYNTH_ROW(name, kind, member, value, help, min, max)                                                           \
  {#name, HEC_RUN_##kind, offsetof(hec_synth_options, member), value, help, min, max, &values_none},
const hec_run_option hec_synth_rows[HEC_N_SYNTH_ROWS] = {HEC_SYNTH_OPTION_LIST(SYNTH_ROW)};
const hec_run_option hec_target_rows[HEC_N_TARGET_OPTIONS] = {HEC_TARGET_OPTION_LIST(TARGET_ROW)};

/* Whether the first n letters of a name are the key, "_" being "-" in flags. */
static bool is_key(const char *key, const char *name, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (key[i] != (name[i] == '-' ? '_' : name[i]))
      return false;
  return key[n] == 0;
}

static const hec_run_option *find(const hec_run_option *options, int32_t n_options, const char *name, size_t n) {
  for (int32_t i = 0; i < n_options; i++)
    if (is_key(options[i].key, name, n))
      return &options[i];
  return NULL;
}

const hec_run_option *hec_run_option_find(const char *name) {
  const char *key = strncmp(name, "--", 2) == 0 ? name + 2 : name;
  const hec_run_option *option = find(hec_run_rows, HEC_N_OPTIONS, key, strlen(key));
  option = option ? option : find(hec_target_rows, HEC_N_TARGET_OPTIONS, key, strlen(key));
  return option ? option : find(hec_training_rows, HEC_N_TRAINING_OPTIONS, key, strlen(key));
}

hec_status hec_run_option_word(const char *flag, const char *word, int32_t *which) {
  return hec_word_of(hec_run_option_find(flag)->values->words, flag, word, which);
}

/* "a, b, c" without the commas. */
static void add_listed(const hec_text *names, hec_text *out) {
  for (const char *p = names->data ? names->data : ""; *p; p++)
    if (*p != ',')
      hec_text_add_bytes(out, p, 1);
}

void hec_run_option_names(const hec_run_option_values *values, hec_text *out) {
  HEC_SCOPED(hec_text) names = {0};
  if (values->table)
    hec_table_names(values->table, &names);
  if (values->more) {
    hec_text_add(&names, ", ");
    hec_table_names(values->more, &names);
  }
  if (values->presets)
    hec_preset_names(values->presets, &names);
  hec_text_add(&names, values->words ? values->words : "");
  add_listed(&names, out);
}

/* ---- In a command's table ---- */

static const hec_run_option_words *own_words(const hec_run_option_use *use, const hec_run_option *option) {
  for (const hec_run_option_words *own = use->own; own && own->key; own++)
    if (strcmp(own->key, option->key) == 0)
      return own;
  return NULL;
}

static hec_arg row_of(const hec_run_option_use *use, const hec_run_option *option, char flag[HEC_ARG_NAME_BYTES]) {
  static const hec_arg_kind kinds[] = {
      [HEC_RUN_FLAG] = HEC_ARG_FLAG,   [HEC_RUN_TEXT] = HEC_ARG_TEXT,   [HEC_RUN_MAYBE] = HEC_ARG_TEXT,
      [HEC_RUN_ROW] = HEC_ARG_TEXT,    [HEC_RUN_WHOLE] = HEC_ARG_INT32, [HEC_RUN_LONG] = HEC_ARG_INT,
      [HEC_RUN_PAPER] = HEC_ARG_PAPER, [HEC_RUN_REAL] = HEC_ARG_DOUBLE};
  const hec_run_option_words *own = own_words(use, option);
  HEC_ASSERT(strlen(option->key) + 3 <= HEC_ARG_NAME_BYTES);
  flag[0] = flag[1] = '-';
  size_t n = 0;
  for (; option->key[n]; n++)
    flag[n + 2] = option->key[n] == '_' ? '-' : option->key[n];
  flag[n + 2] = 0;
  return (hec_arg){.name = flag,
                   .kind = kinds[option->kind],
                   .to = hec_run_option_in(option, use->to),
                   .value = own && own->value ? own->value : option->value,
                   .help = own && own->help ? own->help : option->help,
                   .min = option->min,
                   .max = option->max};
}

int32_t hec_run_option_rows(const hec_run_option_use *use, hec_arg *rows, char (*flag)[HEC_ARG_NAME_BYTES],
                            int32_t room) {
  int32_t n = 0;
  for (const char *at = use->keys; *at; at += strspn(at, " ")) {
    size_t length = strcspn(at, " ");
    const hec_run_option *option = find(use->options, use->n, at, length);
    HEC_ASSERT(option && n < room);
    rows[n] = row_of(use, option, flag[n]);
    n++;
    at += length;
  }
  return n;
}
