/* The report as JSON; the form is in published.h. */
#include "runtime/plan/problem.h"
#include "validate/published/published.h"

static void add_span(hec_json_out *json, const char *key, hec_span span) {
  hec_json_array(json, key);
  hec_json_double(json, NULL, span.low);
  hec_json_double(json, NULL, span.high);
  hec_json_close(json);
}

static void add_choice(hec_json_out *json, const char *key, int32_t value) {
  if (value == HEC_AUTO)
    hec_json_string(json, key, "auto");
  else if (value == HEC_T_PAPER)
    hec_json_string(json, key, "paper");
  else
    hec_json_int(json, key, value);
}

static void add_inputs(hec_json_out *json, const hec_setup *inputs) {
  hec_json_object(json, "inputs");
  hec_json_int(json, "tokens", inputs->tokens);
  hec_json_double(json, "nonmoe_scale", inputs->moe.nonmoe_scale);
  hec_json_double(json, "skew", inputs->sigma);
  hec_json_double(json, "nic_share", inputs->nic_share);
  add_choice(json, "m", inputs->m);
  add_choice(json, "t", inputs->t);
  hec_json_bool(json, "drift", inputs->drift);
  hec_json_close(json);
}

static void add_value(hec_json_out *json, const char *key, const hec_published_value *value) {
  static const char *const verdict[] = {"agrees", "disagrees", "undefined"};
  hec_json_object(json, key);
  add_span(json, "ours", value->ours);
  hec_json_double(json, "distance", value->distance);
  hec_json_string(json, "sign", verdict[value->verdict]);
  hec_json_close(json);
}

static void add_row(hec_json_out *json, const hec_published *p, const hec_published_table *table, int32_t i) {
  static const char *const kind[] = {"number", "sign", "info"};
  const hec_published_row *row = &p->row[i];
  hec_json_object(json, NULL);
  hec_json_string(json, "key", row->key);
  hec_json_string(json, "quantity", row->quantity);
  hec_json_string(json, "where", row->where);
  hec_json_string(json, "kind", kind[row->kind]);
  if (row->kind == HEC_ROW_NUMBER)
    add_span(json, "paper", row->paper);
  else
    hec_json_null(json, "paper");
  hec_json_string(json, "paper_text", row->paper_text);
  hec_json_string(json, "inputs", row->inputs);
  if (row->reading)
    hec_json_string(json, "reading", row->reading);
  else
    hec_json_null(json, "reading");
  add_value(json, "synthetic", &table->value[HEC_LOADS_SYNTHETIC][i]);
  if (p->recorded)
    add_value(json, "recorded", &table->value[HEC_LOADS_RECORDED][i]);
  else
    hec_json_null(json, "recorded");
  hec_json_object(json, "moves");
  hec_json_double(json, "least", table->moved[i].low);
  hec_json_double(json, "most", table->moved[i].high);
  if (table->moved_by[i])
    hec_json_string(json, "most_by", table->moved_by[i]);
  else
    hec_json_null(json, "most_by");
  hec_json_close(json);
  hec_json_close(json);
}

static void add_change(hec_json_out *json, const hec_published *p, const hec_published_change *change) {
  hec_json_object(json, NULL);
  hec_json_string(json, "change", change->change);
  add_inputs(json, &change->inputs);
  hec_json_double(json, "objective", change->objective);
  hec_json_int(json, "signs_agree", change->signs_agree);
  hec_json_object(json, "rows");
  for (int32_t i = 0; i < p->n_rows; i++)
    if (change->long_runs || !p->row[i].long_run)
      add_span(json, p->row[i].key, change->ours[i]);
  hec_json_close(json);
  hec_json_close(json);
}

static void add_no_fit(hec_json_out *json, const hec_published_table *table, const hec_published_no_fit *one) {
  hec_json_object(json, NULL);
  hec_json_string(json, "loads", hec_loads_name[one->loads]);
  hec_json_string(json, "setting", one->setup.setting);
  hec_json_string(json, "model", one->setup.model);
  hec_json_string(json, "policy", one->setup.policy);
  if (one->setup.tokens != table->inputs.tokens)
    hec_json_int(json, "tokens", one->setup.tokens);
  else
    hec_json_null(json, "tokens");
  hec_json_double(json, "peak_gb", one->peak_bytes * 1e-9);
  hec_json_close(json);
}

static void add_case(hec_json_out *json, const hec_published_case *one, int32_t kind) {
  hec_json_object(json, NULL);
  hec_json_string(json, "loads", hec_loads_name[kind]);
  hec_json_string(json, "setting", one->setting);
  hec_json_string(json, "model", one->model);
  hec_json_double(json, "ep_s", one->ep_s);
  hec_json_double(json, "ep_balanced_s", one->balanced_s);
  hec_json_string(json, "best_rearrangement", one->best);
  hec_json_double(json, "best_rearrangement_s", one->best_s);
  hec_json_double(json, "hecate_s", one->hecate_s);
  hec_json_double(json, "ep_overload", one->ep_overload);
  hec_json_double(json, "hecate_overload", one->hecate_overload);
  hec_json_array(json, "t");
  hec_json_int(json, NULL, one->t_least);
  hec_json_int(json, NULL, one->t_most);
  hec_json_close(json);
  hec_json_int(json, "m", one->m);
  hec_json_close(json);
}

static void add_signs(hec_json_out *json, const hec_published_table *table, int32_t kind) {
  hec_json_object(json, hec_loads_name[kind]);
  hec_json_int(json, "agree", table->agree[kind]);
  hec_json_int(json, "disagree", table->disagree[kind]);
  hec_json_close(json);
}

static void add_table(hec_json_out *json, const hec_published *p, const hec_published_table *table) {
  hec_json_object(json, NULL);
  hec_json_string(json, "name", table->name);
  add_inputs(json, &table->inputs);
  hec_json_object(json, "objective");
  for (int32_t k = 0; k <= (int32_t)p->recorded; k++)
    hec_json_double(json, hec_loads_name[k], table->objective[k]);
  hec_json_close(json);
  hec_json_object(json, "signs");
  for (int32_t k = 0; k <= (int32_t)p->recorded; k++)
    add_signs(json, table, k);
  hec_json_close(json);
  hec_json_array(json, "rows");
  for (int32_t i = 0; i < p->n_rows; i++)
    add_row(json, p, table, i);
  hec_json_close(json);
  hec_json_array(json, "no_fit");
  for (int32_t i = 0; i < table->n_no_fit; i++)
    add_no_fit(json, table, &table->no_fit[i]);
  hec_json_close(json);
  hec_json_array(json, "cases");
  for (int32_t k = 0; k <= (int32_t)p->recorded; k++)
    for (int32_t i = 0; i < table->n_cases; i++)
      add_case(json, &table->cases[k][i], k);
  hec_json_close(json);
  hec_json_array(json, "sensitivity");
  for (int32_t i = 0; i < table->n_changes; i++)
    add_change(json, p, &table->change[i]);
  hec_json_close(json);
  hec_json_close(json);
}

static void add_head(hec_json_out *json, const hec_published *p) {
  hec_json_int(json, "version", 1);
  hec_json_string(json, "paper", "arXiv 2502.02581v1");
  hec_json_string(json, "stamp", p->options.stamp ? p->options.stamp : "");
  hec_json_object(json, "clusters");
  hec_json_string(json, "a", p->options.cluster_a);
  hec_json_string(json, "b", p->options.cluster_b);
  hec_json_close(json);
  if (p->recorded) {
    hec_json_object(json, "trace");
    hec_json_string(json, "name", p->trace_name);
    hec_json_int(json, "stride", p->trace_stride);
    hec_json_close(json);
  } else {
    hec_json_null(json, "trace");
  }
  hec_json_int(json, "seed", (int64_t)p->options.seed);
  hec_json_bool(json, "quick", p->options.quick);
  hec_json_object(json, "iterations");
  hec_json_int(json, "reported", p->plain.iterations - p->plain.warmup);
  hec_json_int(json, "warmup", p->plain.warmup);
  hec_json_int(json, "sweep", p->longer.iterations);
  hec_json_int(json, "sweep_warmup", p->longer.warmup);
  hec_json_int(json, "search", p->search.iterations);
  hec_json_int(json, "search_warmup", p->search.warmup);
  hec_json_close(json);
}

void hec_published_json(const hec_published *p, hec_text *out) {
  hec_json_out json = hec_json_begin(out, 1);
  hec_json_object(&json, NULL);
  add_head(&json, p);
  hec_json_array(&json, "tables");
  for (int32_t i = 0; i < 2; i++)
    add_table(&json, p, &p->table[i]);
  hec_json_close(&json);
  hec_json_array(&json, "grid");
  for (int32_t i = 0; i < p->n_grid; i++) {
    hec_json_object(&json, NULL);
    add_inputs(&json, &p->grid[i].inputs);
    hec_json_double(&json, "objective", p->grid[i].objective);
    hec_json_bool(&json, "fits", p->grid[i].fits);
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_int(&json, "best", p->best);
  hec_json_close(&json);
}
