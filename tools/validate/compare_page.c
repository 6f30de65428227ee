/* A comparison as a page (tools/front/page): the same numbers and words as its text, drawn. */
#include "runtime/program/job.h"
#include "tools/front/page/report.h"
#include "tools/validate/session_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { FACTS_MAX = 10 };

typedef struct {
  const hec_session_report *report;
  hec_arena *arena;
  hec_report page;
  hec_report_fact facts[FACTS_MAX];
} maker;

static void add_fact(maker *m, const char *word, const char *text) {
  if (text && text[0] && m->page.n_facts < FACTS_MAX)
    m->facts[m->page.n_facts++] = (hec_report_fact){word, hec_arena_text(m->arena, text)};
}

/* A fact of what `add` writes. */
static void add_written(maker *m, const char *word, void (*add)(const hec_session_report *report, hec_text *out)) {
  HEC_SCOPED(hec_text) text = {0};
  add(m->report, &text);
  add_fact(m, word, text.data);
}

static void add_ranking(const hec_session_report *r, hec_text *out) {
  (void)hec_report_add_ranking(r, "", "; ", out);
}

static void add_machine(const hec_session_report *r, hec_text *out) {
  hec_report_add_machine(r->head->execution, out);
}

static void add_work(const hec_session_report *r, hec_text *out) {
  const hec_problem *p = &r->head->job->problem;
  hec_text_printf(out,
                  "%s: %" PRId32 " MoE layers, %" PRId32 " experts, top-%" PRId32 "; %s, %" PRId32 " tokens per rank",
                  r->head->job->moe.name, p->n_layers, p->n_experts, p->top_k,
                  p->train ? "training iteration" : "forward pass", p->tokens);
}

static void add_facts(maker *m) {
  add_written(m, "work", add_work);
  add_written(m, "machine", add_machine);
  add_fact(m, "network law", m->report->head->law);
  add_written(m, "laws calibrated", hec_report_add_source);
  add_written(m, "rounds", hec_report_add_rounds);
  add_written(m, "ranking", add_ranking);
  add_written(m, "disturbed", hec_report_add_disturbed);
  add_written(m, "pace", hec_report_add_pace);
  add_fact(m, "command", m->report->command);
  add_fact(m, "run", m->report->stamp);
}

/* What the numbers do not say, and what was chosen. */
static void add_assumed(maker *m) {
  const hec_summary_execution *e = m->report->head->execution;
  const hec_job *job = m->report->head->job;
  hec_report_fact *assumed = HEC_NEW(m->arena, hec_report_fact, e->n_limits + job->n_defaults + 1);
  int32_t n = 0;
  for (int32_t i = 0; i < e->n_limits; i++)
    assumed[n++] = (hec_report_fact){"mind", e->limits[i]};
  for (int32_t i = 0; i < job->n_defaults; i++)
    assumed[n++] = (hec_report_fact){"assumed", job->defaults[i]};
  m->page.assumed = assumed;
  m->page.n_assumed = n;
}

static void add_kinds(const hec_report_kinds *kinds, hec_report_pairs *out, hec_arena *arena) {
  out->kinds = HEC_NEW(arena, hec_report_pair, HEC_N_ROLES);
  for (int32_t i = 0; i < HEC_N_ROLES; i++) {
    if (!(kinds->predicted_s[i] > 0) && !(kinds->measured_s[i] > 0))
      continue;
    int32_t k = out->n_kinds++; /* longest first */
    for (; k > 0 && out->kinds[k - 1].measured_s < kinds->measured_s[i]; k--)
      out->kinds[k] = out->kinds[k - 1];
    out->kinds[k] =
        (hec_report_pair){hec_role_name[i], kinds->predicted_s[i], kinds->measured_s[i],
                          kinds->measured_s[i] > 0 ? kinds->predicted_s[i] / kinds->measured_s[i] - 1 : NAN};
  }
}

static hec_report_compared compared_of(const hec_session_report *r, hec_arena *arena) {
  const hec_comparison *c = &r->session->comparison;
  hec_report_compared compared = {.iterations = HEC_NEW(arena, hec_report_pair, c->options.n_cases),
                                  .policies = HEC_NEW(arena, hec_report_pairs, c->options.n_cases),
                                  .n = c->options.n_cases,
                                  .error = c->n_conclusive > 0 ? c->error.median : NAN};
  for (int32_t i = 0; i < c->options.n_cases; i++) {
    const hec_compared_case *one = &c->by_case[i];
    bool known = one->n_conclusive > 0;
    compared.iterations[i] = (hec_report_pair){one->a_case->name, known ? one->predicted_s : NAN,
                                               known ? one->measured_s : NAN, known ? one->error.bias : NAN};
    int32_t last = r->random ? c->options.n_cases : i + 1;
    hec_report_kinds kinds = hec_report_kinds_of(c, i, last);
    if (kinds.n == 0 || (r->random && i > 0)) /* random configurations: all in one */
      continue;
    hec_report_pairs *to = &compared.policies[compared.n_policies++];
    to->policy = r->random ? "mean over all configurations" : one->a_case->name;
    add_kinds(&kinds, to, arena);
  }
  return compared;
}

void hec_compare_page(const hec_session_report *r, hec_text *out) {
  HEC_SCOPED(hec_arena) arena = {0};
  HEC_SCOPED(hec_text) verdict = {0};
  const hec_job *job = r->head->job;
  hec_report_compared compared = compared_of(r, &arena);
  hec_report_add_verdict(r, &verdict);
  maker m = {.report = r, .arena = &arena};
  m.page.tool = r->head->tool;
  m.page.title = r->random ? "random configurations" : job->header.name[0] ? job->header.name : r->head->trace;
  m.page.compared = &compared;
  m.page.verdict = verdict.data;
  m.page.synthetic = r->random || job->header.synthetic != NULL;
  m.page.facts = m.facts;
  add_facts(&m);
  add_assumed(&m);
  hec_report_write(&m.page, out);
}
