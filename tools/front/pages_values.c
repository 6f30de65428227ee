/* Options mean the same in every tool, so their values are found by their names. Rows of tables are walked: a new policy,
 * law or preset is completed without a word here. */
#include "models/preset_data.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/link/device_link.h"
#include "runtime/exec/model/gate.h"
#include "runtime/plan/collective.h"
#include "runtime/plan/placement/placement.h"
#include "runtime/plan/policy.h"
#include "runtime/program/lower.h"
#include "sim/simulate.h"
#include "tools/front/pages.h"
#include "tools/front/timelines/timeline_format.h"
#include "traces/import/importer.h"
#include "traces/synth.h"

#include <string.h>

static void add(hec_text *out, const char *name) {
  hec_text_printf(out, "%s%s", out->length ? " " : "", name);
}

/* "a, b, c" without the commas. */
static void add_listed(hec_text *out, const hec_text *names) {
  for (const char *p = names->data ? names->data : ""; *p; p++)
    if (*p != ',')
      hec_text_add_bytes(out, p, 1);
}

static void presets(const char *kind, hec_text *out) {
  hec_text names = {0}; /* separated by ", " */
  hec_preset_names(kind, &names);
  add_listed(out, &names);
  hec_text_free(&names);
}

static void schedules(hec_text *out) {
  hec_text names = {0};
  hec_table_names(&hec_schedule_table, &names);
  add_listed(out, &names);
  hec_text_free(&names);
}

static void clusters(hec_text *out) {
  presets("cluster", out);
}

static void models(hec_text *out) {
  presets("moe", out);
}

static void all_presets(hec_text *out) {
  presets("cluster", out);
  add(out, ""); /* a blank between the two lists */
  presets("moe", out);
}

static void transports(hec_text *out) {
  hec_text names = {0};
  hec_table_names(&(hec_table){.rows = hec_transports}, &names);
  hec_text_add(&names, ", ");
  hec_table_names(&(hec_table){.rows = hec_device_links}, &names);
  add_listed(out, &names);
  hec_text_free(&names);
}

static void workloads(hec_text *out) {
  for (const hec_synth_workload *w = hec_synth_workloads; w->name; w++) {
    add(out, w->name);
    if (strcmp(w->name, w->alias) != 0)
      add(out, w->alias);
  }
}

static const struct {
  const char *option;
  const char *words;           /* the values; NULL: see below */
  void (*list)(hec_text *out); /* adds them; NULL: the table's rows */
  const hec_table table;
} known[] = {
    {.option = "--policy", .table = {.rows = hec_policies, .also = "all"}},
    {.option = "--collective", .table = {.rows = hec_collectives}},
    {.option = "--law", .table = {.rows = hec_laws}},
    {.option = "--timeline-format", .table = {.rows = hec_timeline_formats}},
    {.option = "--export", .table = {.rows = hec_placement_formats}},
    {.option = "--backend", .table = {.rows = hec_backends, .also = "list"}},
    {.option = "--gate", .table = {.rows = hec_gates, .also = "list"}},
    {.option = "--format", .table = {.rows = hec_importers}},
    {.option = "--schedule", .list = schedules},
    {.option = "--cluster", .list = clusters},
    {.option = "--cluster-a", .list = clusters},
    {.option = "--cluster-b", .list = clusters},
    {.option = "--model", .list = models},
    {.option = "--shape", .list = models},
    {.option = "--preset", .list = all_presets},
    {.option = "--transport", .list = transports},
    {.option = "--workload", .list = workloads},
    {.option = "--precision", .words = "fp32 tf32 bf16"},
    {.option = "--counted", .words = "before_drop after_drop"},
    {.option = "--form", .words = "jsonl json"},
    {.option = "--phase", .words = "train forward"},
    {.option = "--stage", .words = "decide refine"},
    {.option = "--attention", .words = "full causal s2"},
};

void hec_pages_values(const hec_command *command, const char *option, hec_text *out) {
  hec_text names = {0};
  if (command->own && strcmp(command->own, option) == 0)
    hec_table_names(command->names, &names);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(known[i].option, option) != 0)
      continue;
    if (known[i].list)
      known[i].list(out);
    else if (known[i].words)
      hec_text_add(out, known[i].words);
    else
      hec_table_names(&known[i].table, &names);
  }
  add_listed(out, &names);
  hec_text_free(&names);
}
