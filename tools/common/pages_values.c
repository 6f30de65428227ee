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
#include "runtime/program/timeline_format.h"
#include "sim/simulate.h"
#include "tools/common/pages.h"
#include "traces/import/importer.h"
#include "traces/synth.h"
#include "validate/published/system.h"

#include <string.h>

static void add(hec_text *out, const char *name) {
  hec_text_printf(out, "%s%s", out->length ? " " : "", name);
}

static void policies(hec_text *out) {
  add(out, "all");
  for (int32_t i = 0; hec_policies[i]; i++)
    add(out, hec_policies[i]->name);
}

static void schedules(hec_text *out) {
  add(out, "auto");
  for (int32_t i = 0; hec_schedules[i]; i++)
    if (!hec_schedules[i]->bound) /* the policy's alone */
      add(out, hec_schedules[i]->name);
}

static void collectives(hec_text *out) {
  for (int32_t i = 0; hec_collectives[i]; i++)
    add(out, hec_collectives[i]->name);
}

static void formats(hec_text *out) {
  for (int32_t i = 0; hec_placement_formats[i]; i++)
    add(out, hec_placement_formats[i]->name);
}

static void laws(hec_text *out) {
  for (int32_t i = 0; hec_laws[i]; i++)
    add(out, hec_law_name(hec_laws[i]));
}

static void timeline_formats(hec_text *out) {
  for (int32_t i = 0; hec_timeline_formats[i]; i++)
    add(out, hec_timeline_formats[i]->name);
}

static void presets(const char *kind, hec_text *out) {
  hec_text names = {0}; /* separated by ", " */
  hec_preset_names(kind, &names);
  for (const char *p = names.data ? names.data : ""; *p; p++)
    if (*p != ',')
      hec_text_add_bytes(out, p, 1);
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

static void backends(hec_text *out) {
  for (int32_t i = 0; hec_backends[i]; i++)
    add(out, hec_backends[i]->name);
  add(out, "list");
}

static void transports(hec_text *out) {
  for (int32_t i = 0; hec_transports[i]; i++)
    add(out, hec_transports[i]->name);
  for (int32_t i = 0; hec_device_links[i]; i++)
    add(out, hec_device_links[i]->name);
}

static void gates(hec_text *out) {
  for (int32_t i = 0; hec_gates[i]; i++)
    add(out, hec_gates[i]->name);
  add(out, "list");
}

static void trace_formats(hec_text *out) {
  for (const hec_importer *const *importer = hec_importers; *importer; importer++)
    add(out, (*importer)->name);
}

static void workloads(hec_text *out) {
  for (const hec_synth_workload *w = hec_synth_workloads; w->name; w++) {
    add(out, w->name);
    if (strcmp(w->name, w->alias) != 0)
      add(out, w->alias);
  }
}

static void systems(hec_text *out) {
  add(out, "all");
  for (int32_t i = 0; hec_systems[i]; i++)
    add(out, hec_systems[i]->name);
  add(out, "list");
}

static const struct {
  const char *option;
  void (*list)(hec_text *out); /* NULL: `words` */
  const char *words;
} known[] = {
    {"--policy", policies, NULL},
    {"--schedule", schedules, NULL},
    {"--collective", collectives, NULL},
    {"--law", laws, NULL},
    {"--timeline-format", timeline_formats, NULL},
    {"--export", formats, NULL},
    {"--cluster", clusters, NULL},
    {"--cluster-a", clusters, NULL},
    {"--cluster-b", clusters, NULL},
    {"--model", models, NULL},
    {"--shape", models, NULL},
    {"--preset", all_presets, NULL},
    {"--backend", backends, NULL},
    {"--transport", transports, NULL},
    {"--gate", gates, NULL},
    {"--workload", workloads, NULL},
    {"--system", systems, NULL},
    {"--precision", NULL, "fp32 tf32 bf16"},
    {"--format", trace_formats, NULL},
    {"--counted", NULL, "before_drop after_drop"},
    {"--form", NULL, "jsonl json"},
    {"--phase", NULL, "train forward"},
    {"--stage", NULL, "decide refine"},
    {"--attention", NULL, "full causal s2"},
};

void hec_pages_values(const char *option, hec_text *out) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].option, option) == 0) {
      if (known[i].list)
        known[i].list(out);
      else
        add(out, known[i].words);
    }
}
