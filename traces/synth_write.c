/* Options of the generators: defaults, checks, the command line that repeats them, and the whole trace. */
#include "runtime/base/progress.h"
#include "runtime/base/value.h"
#include "traces/synth_state.h"

#include "traces/trace_header.h"
#include "traces/transitions.h"

#include "models/preset_data.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

hec_synth_options hec_synth_defaults(void) {
  return (hec_synth_options){.n_layers = 12,
                             .n_experts = 64,
                             .top_k = 2,
                             .n_sources = 32,
                             .tokens = 2048,
                             .n_iterations = 100,
                             .seed = 1,
                             .sigma = 1,
                             .exponent = 1,
                             .hot_share = 0.5,
                             .idle_share = 0.25,
                             .period = 20,
                             .affinity = -INFINITY};
}

static hec_status in_range(const char *option, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: expected a whole number from %" PRId64 " to %" PRId64 ", found %" PRId64, option,
                  min, max, value);
}

static hec_status real_in_range(const char *option, double value, double min, double max) {
  if (value >= min && value <= max)
    return HEC_OK;
  return hec_fail(HEC_BAD_INPUT, "%s: expected a number from %g to %g, found %g", option, min, max, value);
}

static hec_status check_drift(const hec_synth_options *o, const hec_synth_workload *workload) {
  if (o->n_knots == 0)
    return HEC_OK;
  if (!workload->drifts)
    return hec_fail(HEC_BAD_INPUT, "--drift: expected --workload lognormal or zipf, found %s", o->workload);
  for (int32_t k = 0; k < o->n_knots; k++) {
    HEC_TRY(in_range("--drift, a lag", o->lag[k], k > 0 ? o->lag[k - 1] + 1 : 1, HEC_SYNTH_LAG_MAX));
    HEC_TRY(real_in_range("--drift, a correlation", o->correlation[k], -0.99, 0.9999));
  }
  if (o->n_experts < 3)
    return hec_fail(HEC_BAD_INPUT, "--drift: expected at least 3 experts, found %" PRId32, o->n_experts);
  return in_range("--iterations (with this --drift)", o->n_iterations, o->lag[o->n_knots - 1] + 2, INT64_MAX);
}

static hec_status check_affinity(const hec_synth_options *o) {
  if (isinf(o->affinity)) /* none */
    return HEC_OK;
  HEC_TRY(real_in_range("--affinity", o->affinity, 0, 1));
  HEC_TRY(in_range("--layers (with --affinity)", o->n_layers, 2, HEC_TRACE_DIMENSION_MAX));
  HEC_TRY(in_range("--experts (with --affinity)", o->n_experts, 1, 4096));
  HEC_TRY(in_range("--layers x --experts x --experts (with --affinity)",
                   (int64_t)(o->n_layers - 1) * o->n_experts * o->n_experts, 1, HEC_TRANSITIONS_MAX));
  return in_range("--tokens x --source-ranks x --top-k x --top-k (with --affinity)",
                  o->tokens * o->n_sources * o->top_k > UINT32_MAX ? INT64_MAX
                                                                   : o->tokens * o->n_sources * o->top_k * o->top_k,
                  0, UINT32_MAX);
}

hec_status hec_synth_check(const hec_synth_options *o) {
  if (!o->workload)
    return hec_fail(HEC_BAD_INPUT, "--workload: expected one (see hecate-trace synth --help), found none");
  const hec_synth_workload *workload = hec_synth_find(o->workload);
  if (!workload)
    return hec_fail(HEC_BAD_INPUT, "--workload: expected W0 to W7, lognormal or zipf, found %s", o->workload);
  if (o->shape && !hec_preset_find("moe", o->shape))
    return hec_fail(HEC_BAD_INPUT, "--shape: expected a model preset (hecate-sim --list), found \"%.60s\"", o->shape);
  HEC_TRY(in_range("--layers", o->n_layers, 1, HEC_TRACE_DIMENSION_MAX));
  HEC_TRY(in_range("--experts", o->n_experts, 1, HEC_TRACE_DIMENSION_MAX));
  HEC_TRY(in_range("--source-ranks", o->n_sources, 1, HEC_TRACE_DIMENSION_MAX));
  HEC_TRY(in_range("--layers x --source-ranks x --experts", (int64_t)o->n_layers * o->n_sources * 1, 1,
                   HEC_TRACE_COUNTS_MAX / o->n_experts));
  HEC_TRY(in_range("--top-k", o->top_k, 1, o->n_experts));
  HEC_TRY(in_range("--ranks", o->ranks, 0, HEC_TRACE_DIMENSION_MAX));
  HEC_TRY(in_range("--tokens", o->tokens, 0, INT32_MAX / o->top_k));
  HEC_TRY(in_range("--iterations", o->n_iterations, 1, INT64_C(1) << 40));
  HEC_TRY(in_range("--seed", (int64_t)(o->seed >> 1), 0, INT64_C(1) << 52));
  HEC_TRY(in_range("--switch", o->switch_iter, 0, o->n_iterations));
  HEC_TRY(in_range("--period", o->period, 1, 1 << 30));
  HEC_TRY(in_range("--hot-experts", o->n_hot, 0, o->n_experts));
  HEC_TRY(real_in_range("--sigma", o->sigma, 0, 20));
  HEC_TRY(real_in_range("--exponent", o->exponent, 0, 20));
  HEC_TRY(real_in_range("--hot-share", o->hot_share, 0, 1));
  HEC_TRY(real_in_range("--idle-share", o->idle_share, 0, 1));
  HEC_TRY(check_affinity(o));
  if (workload->ragged) {
    HEC_TRY(in_range("--source-ranks (of W4)", o->n_sources, 2, HEC_TRACE_DIMENSION_MAX));
    HEC_TRY(
        in_range("--tokens x --source-ranks x --top-k (of W4)", o->tokens * o->n_sources * o->top_k, 0, UINT32_MAX));
  }
  if (strcmp(workload->name, "W5") == 0 && o->n_experts == o->top_k)
    return hec_fail(HEC_BAD_INPUT, "--workload W5: expected more experts than --top-k, found %" PRId32, o->n_experts);
  return check_drift(o, workload);
}

static bool uses_heat(const char *w) {
  return w[0] == 'W' && strchr("12367", w[1]);
}
static bool uses_period(const char *w) {
  return w[0] == 'W' && strchr("67", w[1]);
}

/* Options as the workload uses them; what it ignores is left out. */
void hec_synth_command(const hec_synth_options *o, hec_text *text) {
  const hec_synth_workload *workload = hec_synth_find(o->workload);
  const char *w = workload->name;
  hec_text_printf(text,
                  "hecate-trace synth --workload %s --layers %" PRId32 " --experts %" PRId32 " --top-k %" PRId32
                  " --source-ranks %" PRId32 " --tokens %" PRId64 " --iterations %" PRId64 " --seed %" PRIu64,
                  w, o->n_layers, o->n_experts, o->top_k, o->n_sources, o->tokens, o->n_iterations, o->seed);
  if (strcmp(w, "lognormal") == 0)
    hec_text_printf(text, " --sigma %.15g", o->sigma);
  if (strcmp(w, "zipf") == 0)
    hec_text_printf(text, " --exponent %.15g", o->exponent);
  if (uses_heat(w))
    hec_text_printf(text, " --hot-share %.15g", o->hot_share);
  if (strcmp(w, "W1") == 0 && o->n_hot > 0)
    hec_text_printf(text, " --hot-experts %" PRId32, o->n_hot);
  if (strcmp(w, "W5") == 0)
    hec_text_printf(text, " --idle-share %.15g", o->idle_share);
  if (uses_period(w))
    hec_text_printf(text, " --period %" PRId32, o->period);
  for (int32_t k = 0; k < o->n_knots; k++)
    hec_text_printf(text, "%s%" PRId32 ":%.15g", k == 0 ? " --drift " : ",", o->lag[k], o->correlation[k]);
  if (o->switch_iter > 0)
    hec_text_printf(text, " --switch %" PRId64, o->switch_iter);
  if (o->affinity >= 0)
    hec_text_printf(text, " --affinity %.15g", o->affinity);
  if (o->ranks > 0)
    hec_text_printf(text, " --ranks %" PRId32, o->ranks);
  if (o->name)
    hec_text_printf(text, " --name %s", o->name);
  if (o->shape)
    hec_text_printf(text, " --shape %s", o->shape);
}

/* {"generator","seed","parameters"}: what the header says about its being synthetic. */
static void describe(const hec_synth_options *o, hec_text *synthetic) {
  const char *w = hec_synth_find(o->workload)->name;
  hec_json_out json = hec_json_begin(synthetic, 0);
  hec_json_object(&json, NULL);
  HEC_JSON(&json, HEC_TEXT("generator", "hecate-trace synth"), HEC_INT("seed", (int64_t)o->seed));
  hec_json_object(&json, "parameters");
  HEC_JSON(&json, HEC_TEXT("workload", w), HEC_TEXT("title", hec_synth_find(o->workload)->alias),
           HEC_INT("tokens_per_source", o->tokens));
  if (strcmp(w, "lognormal") == 0)
    hec_json_double(&json, "sigma", o->sigma);
  if (strcmp(w, "zipf") == 0)
    hec_json_double(&json, "exponent", o->exponent);
  if (uses_heat(w))
    hec_json_double(&json, "hot_share", o->hot_share);
  if (strcmp(w, "W5") == 0)
    hec_json_double(&json, "idle_share", o->idle_share);
  if (uses_period(w))
    hec_json_int(&json, "period", o->period);
  if (o->switch_iter > 0)
    hec_json_int(&json, "switch", o->switch_iter);
  if (o->affinity >= 0)
    hec_json_double(&json, "affinity", o->affinity);
  if (o->n_knots > 0) {
    hec_json_array(&json, "drift");
    for (int32_t k = 0; k < o->n_knots; k++) {
      HEC_JSON(&json, HEC_OBJECT(NULL, HEC_INT("lag", o->lag[k]), HEC_REAL("correlation", o->correlation[k])));
    }
    hec_json_close(&json);
  }
  hec_json_close(&json);
  hec_json_close(&json);
  synthetic->length -= 1; /* line feed */
  synthetic->data[synthetic->length] = 0;
}

static hec_status write_records(hec_synth *synth, hec_trace_writer *writer) {
  const hec_synth_options *o = &synth->options;
  hec_load load = {o->n_layers, o->n_sources, o->n_experts, NULL};
  load.counts = hec_malloc((size_t)o->n_layers * (size_t)o->n_sources * (size_t)o->n_experts, sizeof *load.counts);
  hec_status status = HEC_OK;
  hec_progress_stage("writing", "records");
  for (int64_t iter = 1; iter <= o->n_iterations && status == HEC_OK; iter++) {
    hec_synth_next(synth, &load);
    status = hec_trace_write(writer, iter, NULL, &load);
    hec_progress_at((double)iter, (double)o->n_iterations, 0);
  }
  free(load.counts);
  return status;
}

/* They stand in the header, before the records: those of the first one, which is made here and again by its turn. */
static hec_status make_transitions(const hec_synth_options *o, hec_arena *arena, hec_trace_header *header) {
  size_t n = (size_t)o->n_experts;
  HEC_OPENED(hec_synth) *synth = NULL;
  if (o->affinity < 0)
    return HEC_OK;
  HEC_TRY(hec_synth_new(o, &synth));
  hec_load load = hec_load_new(arena, o->n_layers, o->n_sources, o->n_experts);
  header->transitions = HEC_NEW(arena, uint64_t, (size_t)(o->n_layers - 1) * n * n);
  header->transitions_over = true;
  header->transitions_first = header->transitions_last = 1;
  hec_synth_next(synth, &load);
  hec_synth_transitions(synth, &load, header->transitions);
  return HEC_OK;
}

/* Into a file, or where there is none, into memory. */
static hec_status write_to(const hec_synth_options *o, const char *path, hec_text *text, size_t limit) {
  HEC_TRY(hec_synth_check(o));
  HEC_OPENED(hec_synth) *synth = NULL;
  HEC_TRY(hec_synth_new(o, &synth));
  HEC_SCOPED(hec_text) synthetic = {0}, name = {0}, notes = {0}, shape = {0};
  describe(o, &synthetic);
  hec_text_printf(&name, "%s%s", o->name ? "" : "synthetic_", o->name ? o->name : hec_synth_find(o->workload)->alias);
  hec_text_add(&notes, "Synthetic loads, not recorded ones. Made by: ");
  hec_synth_command(o, &notes);
  hec_json_out json = hec_json_begin(&shape, 0);
  if (o->shape)
    hec_json_string(&json, NULL, o->shape);
  char license[] = "Apache-2.0";
  hec_trace_header header = {.name = name.data,
                             .license = license,
                             .notes = notes.data,
                             .synthetic = synthetic.data,
                             .shape = shape.data,
                             .phase = HEC_PHASE_TRAIN,
                             .n_layers = o->n_layers,
                             .n_experts = o->n_experts,
                             .top_k = o->top_k,
                             .n_sources = o->n_sources,
                             .per_source = true,
                             .ranks = o->ranks,
                             .counted = HEC_COUNTED_BEFORE_DROP};
  hec_trace_writer *writer = NULL;
  hec_arena arena = {0};
  hec_status status = make_transitions(o, &arena, &header);
  if (status == HEC_OK)
    status = path ? hec_trace_create(path, &header, &writer) : hec_trace_create_memory(text, limit, &header, &writer);
  hec_arena_free(&arena);
  if (status == HEC_OK) {
    status = write_records(synth, writer);
    if (status == HEC_OK)
      status = hec_trace_finish(writer);
    else
      hec_trace_abandon(writer);
  }
  return status;
}

hec_status hec_synth_write(const hec_synth_options *o, const char *path) {
  return write_to(o, path, NULL, 0);
}

hec_status hec_synth_write_memory(const hec_synth_options *o, hec_text *text, size_t limit) {
  return write_to(o, NULL, text, limit);
}
