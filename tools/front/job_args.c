/* From words to rows of the tables. */
#include "tools/front/job_args.h"

#include "models/preset_data.h"
#include "models/training/dispatcher.h"
#include "runtime/program/lower.h"
#include "runtime/program/pipelines/pipeline_schedule.h"
#include "sim/simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value of an option whose values are names of rows. */
static hec_status unknown(const char *key, const char *name) {
  char flag[HEC_ARG_NAME_BYTES + 2];
  (void)snprintf(flag, sizeof flag, "--%s", key);
  return hec_table_unknown(hec_run_option_find(key)->values->table, flag, name);
}

hec_status hec_job_args_policies(const char *list, hec_arena *arena, const hec_policy *policies[HEC_POLICIES_MAX],
                                 int32_t *n) {
  *n = 0;
  if (strcmp(list, "all") == 0) {
    for (int32_t i = 0; hec_policies[i]; i++) {
      HEC_ASSERT(*n < HEC_POLICIES_MAX);
      if (!hec_policies[i]->placed)
        policies[(*n)++] = hec_policies[i];
    }
    return HEC_OK;
  }
  for (const char *p = list;; p++) {
    const char *end = hec_options_end(p);
    char *text = HEC_NEW(arena, char, (size_t)(end - p) + 1);
    memcpy(text, p, (size_t)(end - p));
    if (strcmp(text, "all") == 0)
      return hec_fail(HEC_BAD_INPUT, "--policy: expected all alone or a list of policies, found \"%s\"", list);
    if (*n + 1 == HEC_POLICIES_MAX) /* with --placement one more */
      return hec_fail(HEC_BAD_INPUT, "--policy: expected at most %d, found more", HEC_POLICIES_MAX - 1);
    const hec_policy *policy;
    HEC_TRY(hec_policy_read(text, hec_run_option_find("policy")->values->table, "--policy", arena, &policy));
    for (int32_t i = 0; i < *n; i++)
      if (strcmp(policies[i]->name, policy->name) == 0)
        return hec_fail(HEC_BAD_INPUT, "--policy: \"%s\" is named twice", policy->name);
    policies[(*n)++] = policy;
    p = end;
    if (*p == 0)
      return HEC_OK;
  }
}

hec_status hec_job_args_chosen(const hec_job_options *options, hec_arena *arena,
                               const hec_policy *policies[HEC_POLICIES_MAX], int32_t *n) {
  const hec_policy *named[HEC_POLICIES_MAX];
  int32_t n_named;
  if (options->first_layer >= 0 && !options->placement)
    return hec_fail(HEC_BAD_INPUT, "--first-layer: expected --placement FILE beside it, found none");
  HEC_TRY(hec_job_args_policies(options->policy, arena, named, &n_named));
  *n = 0;
  for (int32_t i = 0; options->placement && hec_policies[i]; i++)
    if (hec_policies[i]->placed)
      policies[(*n)++] = hec_policies[i];
  int32_t n_first = *n;
  for (int32_t i = 0; i < n_named; i++)
    if (n_first == 0 || !named[i]->placed)
      policies[(*n)++] = named[i];
  HEC_ASSERT(*n <= HEC_POLICIES_MAX);
  return HEC_OK;
}

/* The names in "A,B,...", copies on the arena. */
static hec_status split(const char *option, const char *list, hec_arena *arena, const char ***names, int32_t *n) {
  size_t length = strlen(list);
  *names = HEC_NEW(arena, const char *, length + 1);
  *n = 0;
  for (char *at = hec_arena_text(arena, list);;) {
    char *end = at + strcspn(at, ",");
    bool last = *end == 0;
    *end = 0;
    for (int32_t i = 0; i < *n; i++)
      if (*at && strcmp((*names)[i], at) == 0) /* an empty name is unknown, which says more */
        return hec_fail(HEC_BAD_INPUT, "%s: \"%s\" is named twice", option, at);
    (*names)[(*n)++] = at;
    if (last)
      return HEC_OK;
    at = end + 1;
  }
}

hec_status hec_job_args_rows(const hec_policy *const *policies, int32_t n_policies, const char *schedules,
                             hec_arena *arena, hec_job_rows *rows) {
  const char **names;
  int32_t n_names;
  HEC_TRY(split("--schedule", schedules, arena, &names, &n_names));
  size_t max = (size_t)n_policies * (size_t)n_names;
  *rows = (hec_job_rows){HEC_NEW(arena, const hec_policy *, max), HEC_NEW(arena, const char *, max), 0};
  if (n_names == 1 && strcmp(names[0], "best") == 0) {
    memcpy(rows->policies, policies, (size_t)n_policies * sizeof(const hec_policy *));
    rows->n = n_policies;
    rows->schedules = NULL;
    return HEC_OK;
  }
  for (int32_t s = 0; s < n_names; s++)
    if (strcmp(names[s], "best") == 0)
      return hec_fail(HEC_BAD_INPUT, "--schedule: expected best alone or a list of schedules, found \"%s\"", schedules);
  for (int32_t p = 0; p < n_policies; p++)
    for (int32_t s = 0; s < n_names; s++) {
      const hec_schedule *one, *before;
      bool there = false;
      HEC_TRY(hec_schedule_of(policies[p], names[s], &one));
      for (int32_t k = 0; k < s && !there; k++) {
        HEC_TRY(hec_schedule_of(policies[p], names[k], &before));
        there = one == before;
      }
      if (there)
        continue;
      rows->policies[rows->n] = policies[p];
      rows->schedules[rows->n++] = names[s];
    }
  return HEC_OK;
}

hec_status hec_job_args_attentions(const char *text, hec_arena *arena, const char *kind[HEC_ATTENTIONS_MAX],
                                   int32_t *n) {
  *n = 1;
  kind[0] = NULL;
  if (!text)
    return HEC_OK;
  const char *at = text;
  for (*n = 0;; at++) {
    const char *end = hec_options_end(at);
    if (*n == HEC_ATTENTIONS_MAX)
      return hec_fail(HEC_BAD_INPUT, "--attention: expected at most %d kinds, found more in \"%s\"", HEC_ATTENTIONS_MAX,
                      text);
    char *one = HEC_NEW(arena, char, (size_t)(end - at) + 1);
    memcpy(one, at, (size_t)(end - at));
    kind[(*n)++] = one;
    for (int32_t k = 0; k + 1 < *n; k++)
      if (strcmp(kind[k], one) == 0)
        return hec_fail(HEC_BAD_INPUT, "--attention: expected every kind once, found \"%s\" twice", one);
    at = end;
    if (*at == 0)
      return HEC_OK;
  }
}

hec_status hec_job_args_collective(const char *name, const hec_collective **collective) {
  *collective = name ? hec_collective_find(name) : NULL;
  if (!name || *collective)
    return HEC_OK;
  return unknown("collective", name);
}

hec_status hec_job_args_law(const char *name, const hec_law **law) {
  *law = hec_law_find(name);
  if (*law)
    return HEC_OK;
  return unknown("law", name);
}

void hec_job_args_reads(const hec_job_options *options, const char *trace, hec_path_use reads[HEC_JOB_READS]) {
  reads[0] = (hec_path_use){"the trace", trace, false};
  reads[1] = (hec_path_use){"--cluster", options->cluster, false};
  reads[2] = (hec_path_use){"--model", options->model, false};
  reads[3] = (hec_path_use){"--placement", options->placement, false};
}

hec_status hec_job_args_open(const char *path, hec_text *kept, hec_trace_reader **reader) {
  if (strcmp(path, "-") != 0)
    return hec_trace_open(path, reader);
  char bytes[1 << 16];
  size_t n;
  while ((n = fread(bytes, 1, sizeof bytes, stdin)) > 0)
    hec_text_add_bytes(kept, bytes, n);
  if (ferror(stdin))
    return hec_fail(HEC_FAILED, "standard input: cannot be read: %s", strerror(errno));
  return hec_trace_open_memory(kept->data ? kept->data : "", kept->length, "standard input", reader);
}

static void list_presets(const char *kind, const char *title) {
  HEC_SCOPED(hec_text) names = {0};
  hec_preset_names(kind, &names);
  HEC_SCOPED(hec_text) line = {0};
  hec_text_printf(&line, "%-12s", title);
  hec_text_wrap(&line, names.data ? names.data : "", line.length, 13, HEC_ARGS_COLUMNS);
  printf("%s\n", line.data);
}

hec_status hec_job_args_print_preset(const char *name) {
  static const char *const kinds[][2] = {
      {"moe", ""}, {"cluster", ""}, {"device", ""}, {"setup", "setup-"}, {"recipe", "recipe-"}};
  const hec_preset_data *preset = NULL;
  HEC_SCOPED(hec_text) near = {0};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !preset; i++) {
    size_t n = strlen(kinds[i][1]);
    if (strncmp(name, kinds[i][1], n) != 0)
      continue;
    preset = hec_preset_find(kinds[i][0], name + n);
    if (near.length == 0)
      hec_preset_suggest(kinds[i][0], name + n, &near);
  }
  hec_status status = HEC_OK;
  if (!preset)
    status =
        hec_fail(HEC_BAD_INPUT,
                 "--preset: expected a model, cluster, device, setup-NAME or recipe-NAME of --list%s, found \"%s\"",
                 near.data ? near.data : "", name);
  HEC_TRY(status);
  (void)fwrite(preset->text, 1, preset->length, stdout); /* what does not arrive is seen when the tool ends */
  return HEC_OK;
}

static const char *const known[] = {[HEC_KNOWN_STATIC] = "no load",
                                    [HEC_KNOWN_PERIODIC] = "a window of past loads, periodically",
                                    [HEC_KNOWN_LAST] = "past loads, every micro-batch",
                                    [HEC_KNOWN_EXACT] = "the gate's choice"};

void hec_job_args_list_policies(void) {
  HEC_SCOPED(hec_text) idea = {0};
  printf("| policy | idea | knows | schedule | paper |\n|---|---|---|---|---|\n");
  for (int32_t i = 0; hec_policies[i]; i++) {
    const hec_policy *policy = hec_policies[i];
    idea.length = 0;
    hec_args_add_flags(policy->summary, &idea);
    printf("| `%s` | %s | %s | `%s` | %s |\n", policy->name, idea.data, known[policy->known], policy->schedule,
           policy->source);
  }
}

void hec_job_args_list(void) {
  printf("policies, with options as NAME:option=value,option=value (--t, --m, --period and --slots are the defaults\n"
         "of t, m, period and slots)\n");
  for (int32_t i = 0; hec_policies[i]; i++) {
    const char *excludes = hec_policies[i]->excludes;
    hec_args_list_item(hec_policies[i]->name, "%s [knows %s; schedule %s%s%s; %s%s]", hec_policies[i]->summary,
                       known[hec_policies[i]->known], hec_policies[i]->schedule, excludes ? ", never " : "",
                       excludes ? excludes : "",
                       hec_policies[i]->all_ranks ? "over all ranks, not inside expert-parallel groups; " : "",
                       hec_policies[i]->source);
    hec_args_list_options(hec_policies[i]->options, hec_policies[i], 26);
  }
  printf("schedules\n");
  for (int32_t i = 0; hec_schedules[i]; i++)
    hec_args_list_item(hec_schedules[i]->name, "%s [%s]", hec_schedules[i]->summary, hec_schedules[i]->source);
  printf("pipelines, and how long a stage idles if all cost the same (p stages with v virtual stages each;\n"
         "F forward, B input gradient, W weight gradient, F&B a forward beside a backward)\n");
  for (int32_t i = 0; hec_pipeline_schedules[i]; i++)
    hec_args_list_item(hec_pipeline_schedules[i]->name, "%s; %s [%s]", hec_pipeline_schedules[i]->summary,
                       hec_pipeline_schedules[i]->bubble, hec_pipeline_schedules[i]->source);
  printf("collectives\n");
  for (int32_t i = 0; hec_collectives[i]; i++)
    hec_args_list_item(hec_collectives[i]->name, "%s", hec_collectives[i]->summary);
  printf("dispatchers\n");
  for (int32_t i = 0; hec_dispatchers[i]; i++)
    hec_args_list_item(hec_dispatchers[i]->name, "%s [%s]", hec_dispatchers[i]->summary, hec_dispatchers[i]->source);
  printf("network laws\n");
  for (int32_t i = 0; hec_laws[i]; i++)
    hec_args_list_item(hec_law_name(hec_laws[i]), "%s; not modelled: %s", hec_law_summary(hec_laws[i]),
                       hec_law_limits(hec_laws[i]));
  list_presets("cluster", "clusters");
  list_presets("moe", "models");
  list_presets("device", "devices");
  list_presets("setup", "setups");
  list_presets("recipe", "recipes");
}
