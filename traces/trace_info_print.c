/* What hecate-trace info prints: a table that says what each number means, and the same as JSON. */
#include "traces/trace_info.h"

#include "runtime/base/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void add_value(hec_text *text, double value, int decimals) {
  if (isnan(value))
    hec_text_printf(text, " %9s", "-");
  else
    hec_text_printf(text, " %9.*f", decimals, value);
}

static void add_spread(hec_text *text, const char *name, const hec_trace_spread *s, const char *meaning) {
  hec_text_printf(text, "%-22s", name);
  const double values[] = {s->min, s->p5, s->p50, s->p95, s->max};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    add_value(text, values[i], 3);
  hec_text_printf(text, "   %s\n", meaning);
}

static void add_line(hec_text *text, const char *name, const char *value) {
  if (!value[0])
    return;
  hec_text_printf(text, "%-22s ", name);
  hec_text_add_plain(text, value);
  hec_text_add(text, "\n");
}

static void add_transitions(const hec_trace_header *h, hec_text *text) {
  if (!h->transitions) {
    hec_text_printf(text, "%-22s none\n", "transitions");
    return;
  }
  hec_text_printf(text, "%-22s between %" PRId32 " layers, counted over ", "transitions", h->n_layers);
  if (h->transitions_over)
    hec_text_printf(text, "iterations %" PRId64 " to %" PRId64 "\n", h->transitions_first, h->transitions_last);
  else
    hec_text_add(text, "the whole run (the header does not say)\n");
  double affinity = hec_trace_affinity(h), max = 1 - 1.0 / h->n_experts;
  if (!isnan(affinity))
    hec_text_printf(text,
                    "%-22s %.3f: share of transitions that loads alone do not explain; 0: the next expert depends on "
                    "none,\n%-22s %.3f: every expert has its own next one\n",
                    "affinity", affinity, "", max);
}

static void add_shape(const hec_trace_info *info, const hec_trace_header *h, hec_text *text) {
  hec_text_printf(text,
                  "%-22s %" PRId32 " MoE layers x %" PRId32 " experts, top-%" PRId32 ", %" PRId32 " source rank%s%s\n",
                  "shape", h->n_layers, h->n_experts, h->top_k, h->n_sources, h->n_sources == 1 ? "" : "s",
                  h->per_source ? "" : " (totals only)");
  hec_text_printf(text, "%-22s %s\n", "phase",
                  h->phase_text[0]              ? h->phase_text
                  : h->phase == HEC_PHASE_TRAIN ? "train (not stated)"
                                                : "forward");
  hec_text_printf(text, "%-22s %" PRId64 " (%" PRId64 " iterations, iter %" PRId64 " to %" PRId64, "records",
                  info->n_records, info->n_iterations, info->first_iter, info->last_iter);
  if (info->stride_max > 0)
    hec_text_printf(text, ", %" PRId64, info->stride_min);
  if (info->stride_max > info->stride_min)
    hec_text_printf(text, " to %" PRId64, info->stride_max);
  if (info->stride_max > 0)
    hec_text_add(text, " apart");
  hec_text_printf(text, ")\n%-22s %.1f token-expert assignments per layer and record, mean\n", "load",
                  info->assignments_mean);
  add_transitions(h, text);
  if (info->n_empty_layers > 0)
    hec_text_printf(text, "%-22s %" PRIu64 " layers of records have no token at all; left out below\n", "empty",
                    info->n_empty_layers);
}

static void add_drift(const hec_trace_info *info, hec_text *text) {
  hec_text_printf(text, "\n%-22s %9s %9s %9s\n", "drift (lag in records)", "min", "p10", "p50");
  for (int32_t k = 0; k <= info->n_lags; k++) {
    bool tvd = k == info->n_lags;
    const hec_trace_spread *s = tvd ? &info->tvd : &info->correlation[k];
    if (tvd)
      hec_text_printf(text, "%-22s", "change of share, lag 1");
    else
      hec_text_printf(text, "correlation, lag %-5" PRId32, info->lags[k]);
    add_value(text, s->min, 3);
    add_value(text, s->p10, 3);
    add_value(text, s->p50, 3);
    hec_text_printf(text, "%s\n",
                    tvd      ? "   total variation distance: share of tokens that went to another expert"
                    : k == 0 ? "   Pearson, of a layer's expert loads with those LAG records earlier"
                             : "");
  }
}

void hec_trace_info_table(const hec_trace_info *info, const hec_trace_header *h, const char *path, hec_text *text) {
  add_line(text, "trace", h->name[0] ? h->name : path);
  if (h->synthetic)
    add_line(text, "synthetic", h->synthetic);
  else
    add_line(text, "loads", "recorded");
  add_line(text, "model", h->model);
  add_line(text, "source", h->source);
  add_line(text, "key not read", h->misspelt);
  add_shape(info, h, text);
  hec_text_printf(text, "\n%-22s %9s %9s %9s %9s %9s   over %" PRIu64 " (record, layer)%s\n", "imbalance", "min", "p5",
                  "p50", "p95", "max", info->overload.n, h->synthetic ? ", synthetic" : "");
  char name[48];
  (void)snprintf(name, sizeof name, "overload factor EP%" PRId32, info->ranks);
  add_spread(text, name, &info->overload, "busiest rank / mean, contiguous experts; 1 = balanced");
  add_spread(text, "hottest expert / mean", &info->expert_peak, "1 = balanced");
  add_spread(text, "CV of experts", &info->cv, "standard deviation / mean");
  add_spread(text, "Gini of experts", &info->gini, "0 = equal, 1 = one expert has all");
  hec_text_printf(text, "%-22s %8.2f%%   of all have no token; worst layer (%" PRId32 ") %.2f%%, at worst %.2f%%\n",
                  "idle experts", 100 * info->idle_share, info->idle_worst_layer, 100 * info->idle_worst_layer_share,
                  100 * info->idle_worst);
  add_drift(info, text);
}

static void json_spread(hec_json_out *json, const char *key, const hec_trace_spread *s) {
  HEC_JSON(json, HEC_OBJECT(key, HEC_REAL("min", s->min), HEC_REAL("p5", s->p5), HEC_REAL("p10", s->p10),
                            HEC_REAL("p50", s->p50), HEC_REAL("p95", s->p95), HEC_REAL("max", s->max),
                            HEC_INT("n", (int64_t)s->n)));
}

static void json_shape(hec_json_out *json, const hec_trace_info *info, const hec_trace_header *h, const char *path) {
  HEC_JSON(json, HEC_INT("version", 1), HEC_TEXT("trace", path), HEC_TEXT("name", h->name),
           HEC_BOOL("synthetic", h->synthetic != NULL), HEC_TEXT("model", h->model),
           HEC_TEXT("phase", h->phase == HEC_PHASE_TRAIN ? "train" : "forward"), HEC_INT("layers", h->n_layers),
           HEC_INT("experts", h->n_experts), HEC_INT("top_k", h->top_k), HEC_INT("source_ranks", h->n_sources),
           HEC_INT("records", info->n_records), HEC_INT("iterations", info->n_iterations),
           HEC_INT("first_iter", info->first_iter), HEC_INT("last_iter", info->last_iter),
           HEC_INT("stride_min", info->stride_min), HEC_INT("stride_max", info->stride_max),
           HEC_REAL("assignments_per_layer", info->assignments_mean),
           HEC_INT("empty_layers", (int64_t)info->n_empty_layers), HEC_BOOL("transitions", h->transitions != NULL));
  double affinity = hec_trace_affinity(h);
  if (!isnan(affinity))
    hec_json_double(json, "transitions_affinity", affinity);
  if (h->transitions_over) {
    HEC_JSON(json,
             HEC_LIST("transitions_over", HEC_INT(NULL, h->transitions_first), HEC_INT(NULL, h->transitions_last)));
  }
}

void hec_trace_info_json(const hec_trace_info *info, const hec_trace_header *h, const char *path, hec_text *text) {
  hec_json_out json = hec_json_begin(text, 1);
  hec_json_object(&json, NULL);
  json_shape(&json, info, h, path);
  hec_json_int(&json, "ranks", info->ranks);
  json_spread(&json, "overload_factor", &info->overload);
  json_spread(&json, "expert_max_over_mean", &info->expert_peak);
  json_spread(&json, "cv", &info->cv);
  json_spread(&json, "gini", &info->gini);
  HEC_JSON(&json, HEC_OBJECT("idle_experts", HEC_REAL("share", info->idle_share),
                             HEC_INT("worst_layer", info->idle_worst_layer),
                             HEC_REAL("worst_layer_share", info->idle_worst_layer_share),
                             HEC_REAL("worst_record_share", info->idle_worst)));
  hec_json_array(&json, "correlation");
  for (int32_t k = 0; k < info->n_lags; k++) {
    HEC_JSON(&json, HEC_OBJECT(NULL, HEC_INT("lag", info->lags[k]), HEC_REAL("min", info->correlation[k].min),
                               HEC_REAL("p10", info->correlation[k].p10), HEC_REAL("median", info->correlation[k].p50),
                               HEC_INT("pairs", (int64_t)info->correlation[k].n)));
  }
  hec_json_close(&json);
  json_spread(&json, "total_variation_lag_1", &info->tvd);
  hec_json_double(&json, "resolution", HEC_HISTOGRAM_RESOLUTION);
  hec_json_close(&json);
}
