/* The cluster by cluster.h; what the file says of itself by json.h. */
#include "validate/calibrate/calibration_file.h"

#include "models/json.h"
#include "runtime/plan/problem.h"

#include <inttypes.h>
#include <string.h>

static const char *text_or(const hec_json_value *object, const char *key, const char *otherwise) {
  const hec_json_value *value = object ? hec_json_get(object, key) : NULL;
  return value && hec_json_is_string(value) ? hec_json_text(value) : otherwise;
}

static void read_cases(const hec_json_value *calibration, hec_arena *arena, hec_calibration_file *file) {
  const hec_json_value *cases = hec_json_get(calibration, "cases");
  if (!cases || !hec_json_is_array(cases))
    return;
  const char **names = HEC_NEW(arena, const char *, hec_json_length(cases));
  for (const hec_json_value *v = hec_json_first(cases); v; v = hec_json_next(v))
    if (hec_json_is_string(v))
      names[file->n_cases++] = hec_arena_text(arena, hec_json_text(v));
  file->cases = names;
}

static hec_status read_source(const hec_json *json, const hec_calibration_need *need, hec_arena *arena,
                              hec_calibration_file *file) {
  const hec_json_value *root = hec_json_root(json), *machine = hec_json_get(root, "machine");
  const hec_json_value *calibration = hec_json_get(root, "calibration");
  if (!machine || !hec_json_is_object(machine) || !calibration || !hec_json_is_object(calibration))
    return hec_json_error(json, root,
                          "a cluster file of hecate-validate calibrate (with \"machine\" and \"calibration\")");
  const char *backend = text_or(machine, "backend", ""), *transport = text_or(machine, "transport", "");
  if (strcmp(backend, need->backend) != 0 || strcmp(transport, need->transport) != 0)
    return hec_fail(HEC_BAD_INPUT,
                    "--calibration: expected one of backend %s and transport %s, as this run, found %s and %s",
                    need->backend, need->transport, backend, transport);
  HEC_TRY(hec_json_bool_or(json, calibration, "contaminated", false, &file->contaminated));
  const hec_json_value *probe = hec_json_get(calibration, "probe_s");
  file->probe_s = probe && hec_json_is_number(probe) && hec_json_number(probe) > 0 ? hec_json_number(probe) : 0;
  int64_t cores = 0;
  int32_t n_devices = file->cluster.n_devices; /* what older files mean */
  HEC_TRY(hec_json_int_or(json, calibration, "ranks", 1, INT32_MAX, n_devices, &file->n_ranks));
  bool devices = hec_json_get(machine, "device") != NULL;
  HEC_TRY(hec_json_int_or(json, machine, devices ? "devices" : "cores", 0, INT32_MAX, 0, &cores));
  read_cases(calibration, arena, file);
  const char *cpu = text_or(machine, devices ? "device" : "cpu", "unknown processor");
  const char *library = text_or(machine, devices ? "library" : "blas", "unknown BLAS");
  if (devices && strcmp(library, need->library) != 0) /* the precision of products is part of it */
    return hec_fail(HEC_BAD_INPUT, "--calibration: expected one made with %s, as this run, found %s", need->library,
                    library);
  file->other_cpu = strcmp(cpu, need->cpu) != 0;
  HEC_SCOPED(hec_text) text = {0};
  hec_text_add_plain(&text, text_or(machine, "date", "no date"));
  hec_text_add(&text, ", ");
  hec_text_add_plain(&text, cpu);
  hec_text_printf(&text, ", %" PRId64 " %s%s, ", cores, devices ? "device" : "core", cores == 1 ? "" : "s");
  hec_text_add_plain(&text, library);
  hec_text_printf(&text, ", backend %s, transport %s%s", backend, transport,
                  file->contaminated ? ", CONTAMINATED" : "");
  file->summary = hec_arena_text(arena, text.data);
  return HEC_OK;
}

hec_status hec_calibration_read(const char *path, const hec_calibration_need *need, hec_arena *arena,
                                hec_calibration_file *file) {
  HEC_OPENED(hec_json) *json = NULL;
  *file = (hec_calibration_file){.n_cases = 0};
  HEC_TRY(hec_cluster_read(path, arena, &file->cluster));
  HEC_TRY(hec_json_read(path, &json));
  HEC_TRY(read_source(json, need, arena, file));
  const hec_problem *p = need->problem;
  const hec_cluster *found = &file->cluster, *wanted = p->cluster;
  hec_work_shape backward = hec_work_backward(p->expert);
  if (found->n_nodes != wanted->n_nodes || found->devices_per_node != wanted->devices_per_node ||
      file->n_ranks != p->n_ranks)
    return hec_fail(HEC_BAD_INPUT,
                    "--calibration %s: expected one of %" PRId32 " ranks on %" PRId32 "x%" PRId32
                    " devices, found %" PRId64 " on %" PRId32 "x%" PRId32,
                    path, p->n_ranks, wanted->n_nodes, wanted->devices_per_node, file->n_ranks, found->n_nodes,
                    found->devices_per_node);
  if (!hec_curves_find(&found->measured, HEC_CURVE_EXPERT, false, p->expert.flops_per_row, 0))
    return hec_fail(
        HEC_BAD_INPUT,
        "--calibration %s: it measured another model shape than %s: calibrate with the same --model and --esp", path,
        p->moe->name);
  if (p->train && !hec_curves_find(&found->measured, HEC_CURVE_EXPERT, true, backward.flops_per_row, 0))
    return hec_fail(HEC_BAD_INPUT,
                    "--calibration %s: it measured the forward phase alone: calibrate with --phase train", path);
  return HEC_OK;
}
