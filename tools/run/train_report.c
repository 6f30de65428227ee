/* For people and as JSON, in the words of replay's summary (runtime/program/summary*.c). */
#include "tools/run/train_report.h"

#include "models/json.h"
#include "runtime/base/arena.h"
#include "runtime/base/quantile.h"
#include "runtime/base/value.h"
#include "runtime/exec/math/math.h"
#include "runtime/exec/model/gate.h"
#include "runtime/plan/problem.h"
#include "tools/front/machine.h"
#include "tools/front/summary/summary_write.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What the times do not say ---- */

static bool too_few_cores(const hec_train_report *r) {
  return !r->train->virtual_time && r->backend->transport == NULL && hec_machine_cores() < r->train->problem->n_ranks;
}

static void add_limit(hec_train_report *r, const char *text) {
  HEC_ASSERT(r->n_limits < HEC_TRAIN_LIMITS_MAX);
  r->limits[r->n_limits++] = text;
}

void hec_train_report_limits(hec_train_report *r) {
  r->n_limits = 0;
  if (r->train->virtual_time) {
    add_limit(r, "virtual time: measures computing and waiting; transfers are imitated");
    add_limit(r, "computing is measured, one rank at a time; transfers take what the cluster's links would");
  }
  if (r->transport->law)
    add_limit(r, "emulated network: measures computing and waiting; transfers are imitated");
  else if (!r->train->virtual_time && r->backend->transport == NULL)
    add_limit(r, "the network is this machine's memory: nothing here says how a cluster's network behaves");
  if (too_few_cores(r))
    add_limit(r, "fewer cores than ranks: ranks take turns on cores, so these times predict nothing; see --virtual");
  if (r->train->model->gate->caution)
    add_limit(r, r->train->model->gate->caution);
}

void hec_train_report_warn(const hec_train_report *r) {
  if (too_few_cores(r))
    fprintf(stderr, "hecate-run train: warning: times are of %" PRId32 " ranks on %" PRId32 " cores; use --virtual\n",
            r->train->problem->n_ranks, hec_machine_cores());
}

/* ---- For people ---- */

static const char *unit(const hec_train_report *r) {
  return r->train->virtual_time ? "virtual ms" : "iteration ms";
}

/* Steps of the checkpoint that the run goes on from; 0: none. */
static int64_t steps_before(const hec_train_report *r) {
  return r->train->checkpoint ? r->train->checkpoint->step : 0;
}

static void print_machine(const hec_train_report *r) {
  HEC_SCOPED(hec_text) cpu = {0};
  int32_t cores = hec_machine_cores(), ranks = r->train->problem->n_ranks;
  hec_machine_cpu(&cpu);
  printf("machine %s, %" PRId32 " core%s for %" PRId32 " rank%s; %s\n", cpu.data, cores, cores == 1 ? "" : "s", ranks,
         ranks == 1 ? "" : "s", hec_math_library());
}

hec_status hec_train_report_head(const hec_train_report *r) {
  const hec_train *t = r->train;
  HEC_SCOPED(hec_text) model = {0}, gate = {0};
  hec_moe_describe(&t->model->moe, &model);
  printf("text    %s: %" PRId64 " characters, %" PRId32 " distinct\nmodel   %s\nranks   %" PRId32 " x %" PRId32
         " tokens x %" PRId32 " micro-batches, policy %s, schedule %s, backend %s, transport %s\n",
         r->text, t->corpus->n, t->corpus->vocabulary, model.data, t->problem->n_ranks, t->problem->tokens,
         t->n_micro_batches, r->policy->name, r->schedule->name, r->backend->name, r->carrier);
  hec_gate_describe(t->model, &gate);
  printf("train   %" PRId32 " steps, Adam with rate %g, balance loss with coefficient %g, seed %" PRId64 "\n",
         t->n_steps, (double)t->model->adam.rate, (double)t->aux, r->seed);
  printf("gate    %s", gate.data);
  if (t->bias_rate > 0)
    printf(", choice biased by %g a step", (double)t->bias_rate);
  printf(" (%s)\n", t->model->gate->source);
  if (t->checkpoint)
    printf("saves   %s, every %" PRId64 " steps; begins with step %" PRId64 "\n", t->checkpoint->folder,
           t->checkpoint->every, steps_before(r) + 1);
  print_machine(r);
  printf("planned for %s\n", r->cluster);
  for (int32_t i = 0; i < r->n_limits; i++)
    printf("%s%s\n", i == 0 ? "mind    " : "        ", r->limits[i]);
  printf("\noverload: busiest over mean, of ranks under the policy and of experts\n");
  printf("    step       loss%s  ranks  experts%s%s  %12s\n", t->aux > 0 ? "  balance loss" : "",
         t->model->gate->drops ? "  dropped" : "", t->model->gate->varies ? "  no expert" : "", unit(r));
  if (fflush(stdout) != 0)
    return hec_fail(HEC_FAILED, "standard output: cannot be written: %s", strerror(errno));
  return HEC_OK;
}

int hec_train_report_step(const hec_train_report *r, const hec_train_measure *m) {
  if (m->step != steps_before(r) + 1 && m->step != r->train->n_steps && m->step % r->every != 0)
    return 0;
  printf("%8" PRId64 "  %9.4f", m->step, m->loss);
  if (r->train->aux > 0)
    printf("  %12.4f", m->balance_loss);
  printf("  %5.2f  %7.2f", m->overload, m->expert_overload);
  if (r->train->model->gate->drops)
    printf("  %6.2f%%", 100 * m->dropped);
  if (r->train->model->gate->varies)
    printf("  %8.2f%%", 100 * m->unrouted);
  printf("  %12.3f\n", m->iteration_s * 1e3);
  return fflush(stdout) != 0 ? errno : 0;
}

/* Median of the iteration times but the first. */
static double median_s(const hec_train_report *r) {
  HEC_SCOPED(hec_arena) arena = {0};
  int64_t n = r->curve->n, first = n > 1;
  double *times = HEC_NEW(&arena, double, n);
  for (int64_t i = 0; i < n; i++)
    times[i] = r->curve->step[i].iteration_s;
  hec_values_sort(times + first, n - first);
  double median = hec_values_quantile(times + first, n - first, 0.5);
  return median;
}

#define AT(member) offsetof(hec_train_measure, member)

static double number_at(const hec_train_report *r, int64_t i, size_t offset) {
  return *(const double *)(const void *)((const char *)&r->curve->step[i] + offset);
}

static double mean_of(const hec_train_report *r, size_t offset) {
  double sum = 0;
  for (int64_t i = 0; i < r->curve->n; i++)
    sum += number_at(r, i, offset);
  return sum / (double)r->curve->n;
}

static void print_check(const hec_train_report *r) {
  const hec_check_result *c = &r->curve->check;
  if (c->failed_step > 0)
    printf("check   FAILED in step %" PRId64 ": %s: error %.3g, tolerance %.3g\n", c->failed_step, c->failed_at,
           c->failed_error, c->failed_tolerance);
  if (c->diverged_step > 0)
    printf("check   the run DIVERGED in step %" PRId64
           ": loss %.4g, at first %.4g; nothing was compared from there on\n",
           c->diverged_step, c->diverged_loss, c->first_loss);
  if (c->passed)
    printf("check   passed\n");
  printf("        worst error %.3g of tolerance %.3g: %s; %" PRId64 " numbers\n        windows: %" PRId64
         " of at most %" PRId32 " steps, each from the run's own state\n        choices flipped: %" PRId64
         " (nearly equal gate probabilities may change places by rounding)\n",
         c->worst, c->tolerance, c->worst_at[0] ? c->worst_at : "none", c->compared, c->windows,
         hec_check_steps(r->train->model), c->flips);
}

void hec_train_report_tail(const hec_train_report *r) {
  printf("\nmedian  %.3f %s\n", median_s(r) * 1e3, unit(r));
  printf("mean    overload of ranks %.3f, of experts %.3f", mean_of(r, AT(overload)), mean_of(r, AT(expert_overload)));
  if (r->train->model->gate->drops)
    printf("; dropped %.2f%% of assignments", 100 * mean_of(r, AT(dropped)));
  if (r->train->model->gate->varies)
    printf("; %.2f%% of tokens without an expert", 100 * mean_of(r, AT(unrouted)));
  printf("\n");
  if (r->curve->note[0]) {
    HEC_SCOPED(hec_text) note = {0};
    hec_summary_add_wrapped(r->curve->note, 7, 8, &note);
    printf("policy %s", note.data);
  }
  if (r->train->check)
    print_check(r);
  if (r->record)
    printf("trace   %s, named %s\n", r->record, r->trace_name);
  if (r->train->checkpoint)
    printf("saved   %s: checkpoint of step %" PRId32 "\n", r->train->checkpoint->folder, r->train->n_steps);
}

hec_status hec_train_report_verdict(const hec_train_report *r) {
  const hec_check_result *c = &r->curve->check;
  if (!r->train->check || c->passed)
    return HEC_OK;
  if (c->failed_step > 0)
    return hec_fail(HEC_FAILED, "--check: step %" PRId64 ": %s: error %.3g, tolerance %.3g", c->failed_step,
                    c->failed_at, c->failed_error, c->failed_tolerance);
  return hec_fail(HEC_FAILED,
                  "--check: the run diverged in step %" PRId64
                  " (loss %.4g, at first %.4g), nothing was compared from there on; choose a smaller --lr",
                  c->diverged_step, c->diverged_loss, c->first_loss);
}

/* ---- JSON ---- */

static void add_numbers(hec_json_out *json, const hec_train_report *r, const char *key, size_t offset) {
  hec_json_array(json, key);
  for (int64_t i = 0; i < r->curve->n; i++)
    hec_json_double(json, NULL, number_at(r, i, offset));
  hec_json_close(json);
}

static void add_model(hec_json_out *json, const hec_moe *m) {
  hec_json_object(json, "model");
  HEC_JSON(json, HEC_TEXT("name", m->name), HEC_INT("layers", m->n_layers), HEC_INT("experts", m->n_experts),
           HEC_INT("top_k", m->top_k), HEC_INT("d_model", m->d_model), HEC_INT("d_ffn", m->d_ffn),
           HEC_INT("heads", m->n_heads), HEC_INT("seq_len", m->seq_len), HEC_INT("vocabulary", m->vocabulary));
  HEC_SCOPED(hec_text) attention = {0};
  hec_attention_write(m->attention, m->s2, m->n_heads, &attention);
  hec_json_string(json, "attention", attention.data);
  hec_json_close(json);
}

static void add_gate(hec_json_out *json, const hec_model *model) {
  HEC_SCOPED(hec_text) text = {0};
  hec_gate_describe(model, &text);
  hec_json_string(json, "gate", text.data);
}

static void add_execution(hec_json_out *json, const hec_train_report *r) {
  HEC_SCOPED(hec_text) cpu = {0};
  hec_machine_cpu(&cpu);
  HEC_JSON(json, HEC_TEXT("policy", r->policy->name), HEC_TEXT("schedule", r->schedule->name),
           HEC_TEXT("backend", r->backend->name), HEC_TEXT("transport", r->carrier),
           HEC_TEXT("ranks_are", r->ranks_are), HEC_BOOL("virtual", r->train->virtual_time), HEC_TEXT("cpu", cpu.data),
           HEC_INT("cores", hec_machine_cores()), HEC_TEXT("blas", hec_math_library()));
  hec_json_strings(json, "limits", r->limits, r->n_limits);
}

/* What the gate does to the load; a mean over the steps before each list. */
static void add_load(hec_json_out *json, const hec_train_report *r) {
  hec_json_object(json, "load");
  HEC_JSON(json, HEC_REAL("overload_mean", mean_of(r, AT(overload))),
           HEC_REAL("expert_overload_mean", mean_of(r, AT(expert_overload))),
           HEC_REAL("dropped_share_mean", mean_of(r, AT(dropped))),
           HEC_REAL("no_expert_share_mean", mean_of(r, AT(unrouted))));
  add_numbers(json, r, "overload", AT(overload));
  add_numbers(json, r, "expert_overload", AT(expert_overload));
  if (r->train->model->gate->varies) {
    add_numbers(json, r, "dropped_share", AT(dropped));
    add_numbers(json, r, "no_expert_share", AT(unrouted));
  }
  hec_json_close(json);
}

static void add_check(hec_json_out *json, const hec_train_report *r) {
  const hec_check_result *c = &r->curve->check;
  hec_json_object(json, "check");
  HEC_JSON(json, HEC_BOOL("passed", c->passed), HEC_REAL("worst_error", c->worst), HEC_REAL("tolerance", c->tolerance),
           HEC_TEXT("worst_at", c->worst_at), HEC_INT("compared", c->compared), HEC_INT("flips", c->flips),
           HEC_INT("windows", c->windows), HEC_INT("window_steps", hec_check_steps(r->train->model)));
  if (c->failed_step > 0) {
    HEC_JSON(json, HEC_OBJECT("failed", HEC_INT("step", c->failed_step), HEC_TEXT("at", c->failed_at),
                              HEC_REAL("error", c->failed_error), HEC_REAL("tolerance", c->failed_tolerance)));
  }
  if (c->diverged_step > 0)
    hec_json_int(json, "diverged_step", c->diverged_step);
  hec_json_close(json);
}

void hec_train_report_json(const hec_train_report *r, hec_text *out) {
  const hec_train *t = r->train;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("version", 1), HEC_TEXT("tool", "hecate-run train " HEC_VERSION), HEC_TEXT("text", r->text),
           HEC_INT("characters", t->corpus->n), HEC_TEXT("cluster", r->cluster));
  add_model(&json, &t->model->moe);
  HEC_JSON(&json, HEC_INT("ranks", t->problem->n_ranks), HEC_INT("tokens_per_rank", t->problem->tokens),
           HEC_INT("micro_batches", t->n_micro_batches), HEC_INT("steps", t->n_steps),
           HEC_INT("first_step", steps_before(r) + 1), /* lists of numbers begin with it */
           HEC_INT("seed", r->seed), HEC_REAL("learning_rate", (double)t->model->adam.rate),
           HEC_REAL("aux", (double)t->aux), HEC_REAL("bias_rate", (double)t->bias_rate));
  add_gate(&json, t->model);
  add_execution(&json, r);
  add_numbers(&json, r, "loss", AT(loss));
  if (t->aux > 0)
    add_numbers(&json, r, "balance_loss", AT(balance_loss));
  add_load(&json, r);
  add_numbers(&json, r, "iteration_s", AT(iteration_s));
  hec_json_double(&json, "iteration_median_s", median_s(r));
  if (r->curve->note[0])
    hec_json_string(&json, "note", r->curve->note);
  if (t->check)
    add_check(&json, r);
  if (r->record)
    hec_json_string(&json, "record", r->record);
  if (t->checkpoint)
    hec_json_string(&json, "checkpoint", t->checkpoint->folder);
  hec_json_close(&json);
}
