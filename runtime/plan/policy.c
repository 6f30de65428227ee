/* The table of policies, and which of them suits a problem. */
#include "runtime/plan/policy.h"

#include "runtime/base/table.h"
#include "runtime/base/text.h"
#include "runtime/plan/problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROW(name) &hec_policy_##name,
const hec_policy *const hec_policies[] = {HEC_POLICY_LIST(ROW) NULL};
#undef ROW

HEC_TABLE_OF(hec_policy);
const hec_policy *hec_policy_find(const char *name) {
  return hec_table_find(hec_policies, name);
}

static hec_status refuse_shards(const hec_policy *policy, const hec_problem *problem) {
  HEC_SCOPED(hec_text) names = {0};
  for (size_t i = 0; hec_policies[i]; i++)
    if (hec_policies[i]->shards)
      hec_text_printf(&names, "%s%s", names.length > 0 ? ", " : "", hec_policies[i]->name);
  return hec_fail(HEC_BAD_INPUT,
                  "`policy`: expected one that runs with experts in shards beside `esp` %d (%s), found "
                  "\"%s\"",
                  problem->esp, names.data, policy->name);
}

bool hec_policy_says(const hec_policy *policy, size_t at) {
  for (int i = 0; policy->given && policy->options[i].name; i++)
    if (policy->options[i].at == at && policy->given >> i & 1)
      return true;
  return false;
}

int32_t hec_policy_slots(const hec_policy_run *run, int32_t i) {
  bool other = hec_policy_says(run->policy, offsetof(hec_policy, own) + (size_t)i * sizeof *run->policy->own);
  return other && !HEC_POLICY_SAYS(run->policy, slots) ? HEC_AUTO : run->problem->slots;
}

hec_status hec_policy_read(const char *text, const hec_table *table, const char *where, hec_arena *arena,
                           const hec_policy **policy) {
  static const hec_table rows = {.rows = hec_policies};
  size_t length = strcspn(text, ":");
  char name[64];
  (void)snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), text);
  const hec_policy *row = hec_policy_find(name);
  if (!row)
    return hec_table_unknown(table ? table : &rows, where, name);
  if (text[length] == 0) {
    *policy = row;
    return HEC_OK;
  }
  hec_policy read = *row;
  HEC_TRY(hec_options_read(where, name, text + length + 1, row->options, &read, sizeof read, &read.given));
  HEC_SCOPED(hec_text) label = {0};
  hec_text_add(&label, name);
  hec_options_write(row->options, &read, read.given, &label);
  read.name = hec_arena_text(arena, label.data);
  hec_policy *made = HEC_NEW(arena, hec_policy, 1);
  *made = read;
  *policy = made;
  return HEC_OK;
}

hec_status hec_policy_suits(const hec_policy *policy, const hec_problem *problem) {
  int32_t min = (problem->n_experts + problem->n_ranks - 1) / problem->n_ranks;
  if (problem->esp > 1 && !policy->shards)
    return refuse_shards(policy, problem);
  if (policy->placed && !problem->placement)
    return hec_fail(HEC_BAD_INPUT, "`policy` %s: expected `placement` FILE beside it, found none", policy->name);
  if (HEC_POLICY_SAYS(policy, slots) && policy->slots < min)
    return hec_fail(HEC_BAD_INPUT,
                    "`policy` %s: slots: expected at least %" PRId32 ", so that %" PRId32 " ranks can hold %" PRId32
                    " experts, found %" PRId32,
                    policy->name, min, problem->n_ranks, problem->n_experts, policy->slots);
  return HEC_OK;
}

bool hec_policy_looks_back(const hec_policy *policy) {
  return policy->known == HEC_KNOWN_PERIODIC || policy->known == HEC_KNOWN_LAST || policy->period > 0;
}
