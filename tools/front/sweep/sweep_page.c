/* The page of a sweep: its maps, and what is the same in all of it. */
#include "tools/front/sweep/sweep_maps.h"

#include <inttypes.h>
#include <string.h>

/* "not modelled by NAME: ..." of every law of the sweep; values that are the same everywhere. */
static int32_t add_assumed(const hec_sweep *s, hec_arena *arena, hec_report_fact *assumed) {
  int32_t n = 0;
  if (s->kind->not_modelled)
    assumed[n++] = (hec_report_fact){"not modelled", s->kind->not_modelled};
  for (int32_t i = 0; hec_sweep_has(s, HEC_AXIS_law) && i < s->axis[HEC_AXIS_law].n; i++) {
    const hec_law *law = hec_law_find(s->axis[HEC_AXIS_law].value[i].text);
    if (!law)
      continue;
    assumed[n++] = (hec_report_fact){hec_arena_printf(arena, "not modelled by %s", hec_law_name(law)),
                                     hec_args_with_flags(hec_law_limits(law), arena)};
  }
  assumed[n++] =
      (hec_report_fact){"auto", "hecate-sim's own choice for each configuration; run one by itself to read it"};
  return n;
}

static const char *describe_sweep(const hec_sweep *s, hec_arena *arena) {
  HEC_SCOPED(hec_text) text = {0};
  hec_text_printf(&text, "%" PRId64 " configurations", s->n);
  const char *before = ": ", *of = "values of";
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++) {
    if (s->axis[a].n == 1)
      continue;
    hec_text_printf(&text, "%s%" PRId32 " %s %s", before, s->axis[a].n, of, hec_sweep_axis_name(a));
    before = ", ";
    of = "of";
  }
  const char *copy = hec_arena_text(arena, text.data);
  return copy;
}

void hec_sweep_page(const hec_sweep_rows *rows, const char *tool, hec_text *out) {
  const hec_sweep *s = rows->sweep;
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_text) verdict = {0};
  hec_report_maps maps = hec_sweep_maps(rows, &arena);
  hec_sweep_say_best(rows, &verdict);
  hec_report_maps_verdict(&maps, &verdict);
  hec_sweep_say_trust(rows, &verdict);
  hec_report_fact *assumed = HEC_NEW(&arena, hec_report_fact, s->axis[HEC_AXIS_law].n + 2), facts[HEC_SWEEP_AXES + 2];
  hec_report report = {.tool = tool, .title = "sweep", .maps = &maps, .verdict = verdict.data, .assumed = assumed};
  facts[report.n_facts++] = (hec_report_fact){"sweep", describe_sweep(s, &arena)};
  const char *common = hec_sweep_common(s, &arena);
  if (common)
    facts[report.n_facts++] = (hec_report_fact){"traces", common};
  for (int32_t a = 0; a < HEC_SWEEP_AXES; a++)
    if (hec_sweep_has(s, a) && s->axis[a].n == 1 && strcmp(s->axis[a].value[0].text, HEC_SWEEP_AUTO) != 0 &&
        s->axis[a].value[0].text[0])
      facts[report.n_facts++] = (hec_report_fact){hec_sweep_axis_name(a), s->axis[a].value[0].text};
  report.facts = facts;
  report.n_assumed = add_assumed(s, &arena, assumed);
  for (int64_t i = 0; i < s->n; i++)
    report.synthetic = report.synthetic || (!rows->row[i]->why && rows->row[i]->value[s->kind->synthetic] > 0);
  hec_report_write(&report, out);
}
