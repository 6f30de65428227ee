/* The JSON document of a comparison: DESIGN section 10, "sim" and "run".
 *
 * Keys that are also columns come from one table (hec_summary_value_names, for CSV and sweeps too). It is no report of
 * validate/doc.h: there people and programs get the same rows. Here people get a verdict and six rows, programs all values.
 * Both are made of values (runtime/base/value.h). The same holds for training_json.c and recommendation_out.c. */
#include "models/training/dispatcher.h"
#include "runtime/base/value.h"
#include "runtime/program/job.h"
#include "tools/front/summary/summary_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static hec_value exact_passed(const hec_summary_check *check) {
  return check->exact_bits > HEC_FLOAT_BITS ? HEC_TEXT("passed", NULL) : HEC_BOOL("passed", check->exact_equal);
}

static void json_check(const hec_summary_check *check, hec_json_out *json) {
  HEC_JSON(json, HEC_OBJECT("check", HEC_BOOL("passed", check->passed), HEC_REAL("worst_error", check->worst),
                            HEC_REAL("tolerance", check->tolerance), HEC_INT("compared", check->compared),
                            HEC_TEXT("worst_at", check->worst_at),
                            HEC_OBJECT("exact", exact_passed(check), HEC_INT("compared", check->exact_compared),
                                       HEC_INT("bits", check->exact_bits))));
}

/* Of a simulation: what no policy of the row's class can go below; null where there is no such bound. */
static void json_bound(hec_summary_row *row, hec_json_out *json) {
  if (row->bound_s.n == 0)
    HEC_JSON(json, HEC_TEXT("bound_s", NULL), HEC_TEXT("vs_bound", NULL));
  else
    HEC_JSON(json, HEC_REAL("bound_s", hec_series_quantile(&row->bound_s, 0.5)),
             HEC_REAL("vs_bound", hec_summary_vs_bound(row)), HEC_TEXT("bound_class", row->bound_class));
}

/* Layers in every micro-batch of every iteration. How many are of each degree, on each route of token rows, and with
 * rows that travel once per node. */
static void json_choice(const hec_summary_row *row, hec_json_out *json) {
  char key[16];
  if (row->by_node)
    hec_json_int(json, "layers_by_node", row->choice.by_node);
  if (!row->cuts)
    return;
  hec_json_object(json, "degrees");
  for (int32_t r = 1; r <= HEC_DEGREE_MAX; r++) {
    (void)snprintf(key, sizeof key, "%" PRId32, r);
    if (row->choice.degree[r] > 0)
      hec_json_int(json, key, row->choice.degree[r]);
  }
  hec_json_close(json);
  if (!row->routes)
    return;
  hec_json_object(json, "token_routes");
  for (int32_t k = 0; k < HEC_N_TOKEN_ROUTES; k++)
    hec_json_int(json, hec_token_routes[k]->name, row->choice.route[k]);
  hec_json_close(json);
}

/* The values from one to another, in the object of their group. */
static void json_values(hec_summary *summary, int32_t i, hec_summary_value first, hec_summary_value last,
                        hec_json_out *json) {
  const char *group = hec_summary_value_names[first].group;
  if (group)
    hec_json_object(json, group);
  for (int32_t k = (int32_t)first; k <= (int32_t)last; k++)
    hec_json_double(json, hec_summary_value_names[k].key, hec_summary_value_of(summary, i, (hec_summary_value)k));
  if (group)
    hec_json_close(json);
}

static void json_row(hec_summary *summary, int32_t i, hec_json_out *json) {
  hec_summary_row *row = &summary->rows[i];
  hec_json_object(json, NULL);
  HEC_JSON(json, HEC_TEXT("name", row->name), HEC_TEXT("schedule", row->schedule),
           HEC_BOOL("reference", row->reference));
  hec_json_object(json, "iteration_s");
  HEC_JSON(json, HEC_REAL("median", hec_summary_median(row)),
           HEC_REAL("p95", hec_series_quantile(&row->iteration_s, 0.95)), HEC_REAL("mean", hec_summary_mean(row)));
  if (summary->execution)
    hec_json_double(json, "spread", hec_summary_spread(row));
  hec_json_close(json);
  if (row->check)
    json_check(row->check, json);
  json_values(summary, i, HEC_VALUE_VS_EP, HEC_VALUE_VS_REARRANGEMENT, json);
  if (hec_summary_placed(summary) >= 0)
    hec_json_double(json, "speedup_vs_given", hec_summary_vs_placed(summary, i));
  if (!summary->execution)
    json_bound(row, json);
  json_values(summary, i, HEC_VALUE_OVERLOAD_MEDIAN, HEC_VALUE_OVERLOAD_P95, json);
  json_values(summary, i, HEC_VALUE_EXPOSED_TOKEN, HEC_VALUE_EXPOSED_MIGRATION, json);
  if (hec_summary_on_devices(summary->execution) && row->late.n > 0)
    hec_json_double(json, "host_late_share", hec_series_quantile(&row->late, 0.5));
  if (row->sparse_s > 0)
    json_values(summary, i, HEC_VALUE_HIDDEN, HEC_VALUE_HIDDEN, json);
  json_values(summary, i, HEC_VALUE_COMPUTE, HEC_VALUE_WAIT, json);
  if (row->skew_s > 0)
    hec_json_double(json, "skew_s", hec_summary_per_iteration(row, row->skew_s));
  hec_json_object(json, "bytes");
  for (int32_t k = 0; k < HEC_N_TRAFFIC; k++)
    hec_json_double(json, hec_traffic_name[k], hec_summary_per_iteration(row, row->traffic[k]));
  hec_json_close(json);
  HEC_JSON(json, HEC_REAL("peak_memory_bytes", row->peak_bytes), HEC_BOOL("fits", hec_summary_fits(summary, row)));
  if (row->dropped_share >= 0)
    hec_json_double(json, "dropped_share", row->dropped_share);
  if (row->note[0])
    hec_json_string(json, "note", row->note);
  json_choice(row, json);
  if (row->t_max >= 0) {
    HEC_JSON(json, HEC_LIST("t", HEC_INT(NULL, row->t_min), HEC_INT(NULL, row->t_max)),
             HEC_LIST("m", HEC_INT(NULL, row->m_min), HEC_INT(NULL, row->m_max)));
  }
  hec_json_close(json);
}

void hec_summary_json_machine(const char *unit, const char *processor, int32_t n, const char *library,
                              hec_json_out *json) {
  bool devices = unit && unit[0] == 'd';
  HEC_JSON(json, HEC_TEXT(devices ? "device" : "cpu", processor), HEC_INT(devices ? "devices" : "cores", n),
           HEC_TEXT(devices ? "library" : "blas", library));
}

static void json_execution(const hec_job *job, const hec_summary_execution *e, hec_json_out *json) {
  HEC_JSON(json, HEC_TEXT("planned_for", job->cluster_spec), HEC_TEXT("backend", e->backend),
           HEC_TEXT("transport", e->transport), HEC_TEXT("ranks_are", e->ranks_are),
           HEC_BOOL("virtual", e->virtual_time), HEC_INT("warmup", e->n_warmup), HEC_INT("seed", (int64_t)e->seed));
  hec_summary_json_machine(e->unit, e->cpu, e->n_cores, e->blas, json);
  hec_json_strings(json, "limits", e->limits, e->n_limits);
}

void hec_summary_json(hec_summary *summary, hec_text *out) {
  const hec_job *job = summary->job;
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_INT("version", 1), HEC_TEXT("tool", summary->tool),
           HEC_TEXT("trace", job->header.name[0] ? job->header.name : summary->trace),
           HEC_BOOL("synthetic", job->header.synthetic != NULL), HEC_TEXT("cluster", job->cluster.name),
           HEC_TEXT("model", job->moe.name), HEC_INT("ranks", job->problem.n_ranks),
           HEC_INT("tokens_per_rank", job->problem.tokens),
           HEC_TEXT("phase", job->problem.train ? "train" : "forward"));
  if (job->problem.train)
    hec_json_string(&json, "head_gradients", job->problem.head_late ? "after" : "beside");
  HEC_JSON(&json, HEC_TEXT("law", summary->law));
  if (job->problem.dispatch.by)
    hec_json_string(&json, "dispatcher", job->problem.dispatch.by->name);
  HEC_JSON(&json, HEC_TEXT("not_modelled", summary->not_modelled), HEC_INT("iterations", summary->n_iterations));
  if (summary->execution)
    json_execution(job, summary->execution, &json);
  hec_json_double(&json, "window_s", job->problem.window_s); /* T of FSSDP: forward before an MoE layer */
  hec_summary_json_attention(summary, &json);
  HEC_JSON(&json, HEC_REAL("node_bandwidth", hec_cluster_node_bandwidth(&job->cluster, false)), /* bw: bytes/s */
           HEC_REAL("nonmoe_scale", job->moe.nonmoe_scale));
  hec_json_strings(&json, "defaults_taken", job->defaults, job->n_defaults);
  if (!summary->execution)
    hec_json_bool(&json, "best_schedules", summary->best);
  hec_summary_json_cross(summary, &json);
  hec_json_array(&json, "policies");
  for (int32_t i = 0; i < summary->n_rows; i++)
    json_row(summary, i, &json);
  hec_json_close(&json);
  hec_json_close(&json);
}
