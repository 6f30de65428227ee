/* The report of outcomes as JSON; the form is in outcomes.h. */
#include "validate/outcomes/outcomes.h"

#include <math.h>

static void add_known(hec_json_out *json, const char *key, double value, bool known) {
  if (known)
    hec_json_double(json, key, value);
  else
    hec_json_null(json, key);
}

static void add_two(hec_json_out *json, const char *key, double first, double second) {
  hec_json_array(json, key);
  hec_json_double(json, NULL, first);
  hec_json_double(json, NULL, second);
  hec_json_close(json);
}

static void add_row(hec_json_out *json, const hec_outcomes *o, int32_t m) {
  const hec_outcome_measured *measured = &o->recorded.measured[m];
  const hec_outcome_prediction *p = &o->set.of[m];
  double alltoall = measured->alltoall_mean_s, expert = measured->expert_mean_s,
         other = measured->step_s - alltoall - expert;
  hec_json_object(json, NULL);
  hec_json_string(json, "method", hec_method_key[m]);
  hec_json_object(json, "measured");
  hec_json_double(json, "step_s", measured->step_s);
  add_known(json, "end_to_end_s", measured->end_to_end_s, measured->end_to_end_s > 0);
  hec_json_double(json, "alltoall_s", alltoall);
  hec_json_double(json, "expert_s", expert);
  hec_json_double(json, "other_s", other);
  hec_json_close(json);
  hec_json_object(json, "predicted");
  hec_json_double(json, "step_s", p->step_s);
  hec_json_double(json, "alltoall_s", p->alltoall_s);
  hec_json_double(json, "wire_s", p->wire_s);
  hec_json_double(json, "expert_s", p->expert_s);
  hec_json_double(json, "other_s", p->other_s);
  hec_json_close(json);
  hec_json_object(json, "error");
  hec_json_double(json, "step", p->step_s / measured->step_s - 1);
  add_known(json, "end_to_end", p->step_s / measured->end_to_end_s - 1, measured->end_to_end_s > 0);
  hec_json_double(json, "alltoall", p->alltoall_s / alltoall - 1);
  hec_json_double(json, "expert", p->expert_s / expert - 1);
  hec_json_double(json, "other", p->other_s / other - 1);
  hec_json_close(json);
  hec_json_object(json, "rank");
  hec_json_double(json, "expert_error_mean", p->expert_error_mean);
  hec_json_double(json, "expert_correlation", p->expert_correlation);
  hec_json_double(json, "alltoall_correlation", p->alltoall_correlation);
  add_two(json, "expert_spread_s", p->expert_spread_s, hec_outcomes_spread(measured->expert_s, o->recorded.n_ranks));
  add_two(json, "alltoall_spread_s", p->alltoall_spread_s,
          hec_outcomes_spread(measured->alltoall_s, o->recorded.n_ranks));
  hec_json_close(json);
  hec_json_object(json, "parts");
  for (int32_t i = 0; i < HEC_N_ROLES; i++)
    if (p->role_s[i] > 0)
      hec_json_double(json, hec_role_name[i], p->role_s[i]);
  hec_json_double(json, "waiting", p->wait_s);
  hec_json_close(json);
  hec_json_close(json);
}

static void add_ratio(hec_json_out *json, const hec_outcomes *o, int32_t m) {
  const hec_outcome_measured *one = &o->recorded.measured[m], *base = &o->recorded.measured[HEC_METHOD_LAER];
  bool known = !isnan(o->set.error_end_to_end[m]);
  hec_json_object(json, NULL);
  hec_json_string(json, "method", hec_method_key[m]);
  hec_json_double(json, "predicted", o->set.ratio[m]);
  hec_json_double(json, "measured_step", one->step_s / base->step_s);
  add_known(json, "measured_end_to_end", known ? one->end_to_end_s / base->end_to_end_s : 0, known);
  hec_json_double(json, "error_step", o->set.error_step[m]);
  add_known(json, "error_end_to_end", o->set.error_end_to_end[m], known);
  hec_json_close(json);
}

static void add_change(hec_json_out *json, const hec_outcome_change *one) {
  hec_json_object(json, NULL);
  hec_json_string(json, "change", one->change);
  hec_json_string(json, "why", one->why);
  hec_json_bool(json, "control", one->control);
  hec_json_array(json, "step_s");
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    hec_json_double(json, NULL, one->set.of[m].step_s);
  hec_json_close(json);
  hec_json_array(json, "alltoall_s");
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    hec_json_double(json, NULL, one->set.of[m].alltoall_s);
  hec_json_close(json);
  hec_json_array(json, "ratios");
  for (int32_t m = 0; m < HEC_METHOD_LAER; m++)
    hec_json_double(json, NULL, one->set.ratio[m]);
  hec_json_close(json);
  hec_json_double(json, "worst", one->set.worst);
  hec_json_bool(json, "within_bound", one->set.within_bound);
  hec_json_bool(json, "order_kept", one->set.order_kept);
  add_two(json, "step_error", one->set.step_error[0], one->set.step_error[1]);
  hec_json_double(json, "least_gap", one->set.least_gap);
  hec_json_close(json);
}

void hec_outcomes_json(const hec_outcomes *o, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  hec_json_int(&json, "version", 1);
  hec_json_string(&json, "case", o->recorded.name);
  hec_json_string(&json, "stamp", o->options.stamp ? o->options.stamp : "");
  hec_json_string(&json, "cluster", o->cluster.name);
  hec_json_string(&json, "model", o->moe.name);
  hec_json_string(&json, "law", hec_law_name(o->law));
  hec_json_double(&json, "bound", HEC_OUTCOMES_BOUND);
  hec_json_array(&json, "entries");
  hec_json_int(&json, NULL, o->first);
  hec_json_int(&json, NULL, o->last);
  hec_json_close(&json);
  hec_json_array(&json, "rows");
  for (int32_t m = 0; m < HEC_N_METHODS; m++)
    add_row(&json, o, m);
  hec_json_close(&json);
  hec_json_array(&json, "ratios");
  for (int32_t m = 0; m < HEC_METHOD_LAER; m++)
    add_ratio(&json, o, m);
  hec_json_close(&json);
  hec_json_double(&json, "worst", o->set.worst);
  hec_json_bool(&json, "order_kept", o->set.order_kept);
  hec_json_bool(&json, "within_bound", o->set.within_bound);
  add_two(&json, "step_error", o->set.step_error[0], o->set.step_error[1]);
  add_two(&json, "alltoall_error", o->set.alltoall_error[0], o->set.alltoall_error[1]);
  hec_json_double(&json, "least_gap", o->set.least_gap);
  hec_json_bool(&json, "passed", o->passed);
  hec_json_array(&json, "changes");
  for (int32_t i = 0; i < o->n_changes; i++)
    add_change(&json, &o->change[i]);
  hec_json_close(&json);
  hec_json_close(&json);
}
