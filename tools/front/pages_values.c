/* Options mean the same in every tool, so their values are found by their names. Rows of tables are walked: a new policy,
 * law or preset is completed without a word here. Options that describe a run have theirs in option_list.h. */
#include "runtime/exec/model/gate.h"
#include "runtime/plan/placement/placement.h"
#include "tools/front/options.h"
#include "tools/front/pages.h"
#include "tools/front/timelines/timeline_format.h"
#include "traces/import/importer.h"
#include "traces/synth.h"

#include <string.h>

static const hec_table timeline_formats = {.rows = hec_timeline_formats},
                       placement_formats = {.rows = hec_placement_formats}, importers = {.rows = hec_importers},
                       gates = {.rows = hec_gates, .also = "list"};

/* A name may have several rows. */
static const struct {
  const char *option;
  hec_run_option_values values;
} known[] = {
    {"--timeline-format", {.table = &timeline_formats}},
    {"--export", {.table = &placement_formats}},
    {"--gate", {.table = &gates}},
    {"--format", {.table = &importers}},
    {"--cluster-a", {.presets = "cluster"}},
    {"--cluster-b", {.presets = "cluster"}},
    {"--shape", {.presets = "moe"}},
    {"--preset", {.presets = "cluster"}},
    {"--preset", {.presets = "moe"}},
    {"--counted", {.words = "before_drop after_drop"}},
    {"--form", {.words = "jsonl json"}},
    {"--stage", {.words = "decide refine"}},
};

static void add(const hec_run_option_values *values, hec_text *out) {
  hec_text_add(out, out->length > 0 ? " " : "");
  hec_run_option_names(values, out);
}

static void add_workloads(hec_text *out) {
  for (const hec_synth_workload *w = hec_synth_workloads; w->name; w++) {
    bool two = strcmp(w->name, w->alias) != 0;
    hec_text_printf(out, "%s%s%s%s", out->length > 0 ? " " : "", w->name, two ? " " : "", two ? w->alias : "");
  }
}

/* The row that the command's option comes from: two rows may have one key, --precision of execution and of training jobs. */
static const hec_run_option *row_of(const hec_command *command, const char *option) {
  for (const hec_arg *arg = command->args; arg->name; arg++)
    for (int32_t i = 0; strcmp(arg->name, option) == 0 && i < HEC_N_TRAINING_OPTIONS; i++)
      if (arg->help == hec_training_rows[i].help)
        return &hec_training_rows[i];
  return hec_run_option_find(option);
}

void hec_pages_values(const hec_command *command, const char *option, hec_text *out) {
  const hec_run_option *row = row_of(command, option);
  if (row)
    add(row->values, out);
  if (command->own && strcmp(command->own, option) == 0)
    add(&(hec_run_option_values){.table = command->names}, out);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].option, option) == 0)
      add(&known[i].values, out);
  if (strcmp(option, "--workload") == 0)
    add_workloads(out);
}
