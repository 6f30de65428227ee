/* Reads the measurements: the form is in hardware.h. One pass; every error names file, line and member. */
#include "models/json.h"
#include "validate/hardware/hardware.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((int64_t)1 << 50)
#define SIDE_MAX ((int64_t)1 << 24)
#define VALUE_MAX 1e15
enum { ROWS_MAX = 10000, RANKS_MAX = 1024, EXPERTS_MAX = 65536 };

typedef struct {
  const hec_json *json;
  hec_arena *arena;
} reader;

static hec_status get_text(const reader *r, const hec_json_value *v, const char *key, const char **text) {
  HEC_TRY(hec_json_want_text(r->json, v, key, text));
  *text = hec_arena_text(r->arena, *text);
  return HEC_OK;
}

/* Optional: "" when absent. */
static hec_status text_or_none(const reader *r, const hec_json_value *v, const char *key, const char **text) {
  *text = "";
  return hec_json_get(v, key) ? get_text(r, v, key, text) : HEC_OK;
}

static hec_status read_gemm(const reader *r, const hec_json_value *shape, hec_hardware_row *row) {
  row->kind = HEC_HARDWARE_GEMM;
  HEC_TRY(hec_json_want_int(r->json, shape, "m", 1, SIDE_MAX, &row->m));
  HEC_TRY(hec_json_want_int(r->json, shape, "n", 1, SIDE_MAX, &row->n));
  HEC_TRY(hec_json_want_int(r->json, shape, "k", 1, SIDE_MAX, &row->k));
  row->flops = 2 * (double)row->m * (double)row->n * (double)row->k;
  return HEC_OK;
}

/* "power_law_1.2" or "balanced". */
static hec_status read_distribution(const reader *r, const hec_json_value *shape, hec_hardware_row *row) {
  static const char power[] = "power_law_";
  const char *text;
  HEC_TRY(hec_json_want_text(r->json, shape, "distribution", &text));
  if (strcmp(text, "balanced") == 0)
    return HEC_OK;
  const char *end = NULL;
  bool found =
      strncmp(text, power, sizeof power - 1) == 0 && hec_number_read(text + sizeof power - 1, &end, &row->alpha);
  if (found && *end == '\0' && row->alpha > 1 && row->alpha <= 10)
    return HEC_OK;
  return hec_json_error(r->json, hec_json_get(shape, "distribution"),
                        "\"balanced\" or \"power_law_A\" with an exponent A above 1, at most 10");
}

static hec_status read_moe(const reader *r, const hec_json_value *shape, hec_hardware_row *row) {
  row->kind = HEC_HARDWARE_MOE;
  HEC_TRY(hec_json_want_int(r->json, shape, "tokens", 1, SIDE_MAX, &row->tokens));
  HEC_TRY(hec_json_want_int(r->json, shape, "hidden", 1, SIDE_MAX, &row->hidden));
  HEC_TRY(hec_json_want_int(r->json, shape, "ffn", 1, SIDE_MAX, &row->ffn));
  HEC_TRY(hec_json_want_int(r->json, shape, "experts", 1, EXPERTS_MAX, &row->experts));
  HEC_TRY(hec_json_want_int(r->json, shape, "top_k", 1, row->experts, &row->top_k));
  HEC_TRY(read_distribution(r, shape, row));
  row->flops = 6 * (double)row->tokens * (double)row->top_k * (double)row->hidden * (double)row->ffn;
  return HEC_OK;
}

static hec_status read_collective(const reader *r, const hec_json_value *v, hec_hardware_row *row) {
  static const char *const names[] = {"alltoall", "all_gather", "reduce_scatter", "all_reduce"};
  int which = 0;
  while (which < 4 && strcmp(row->what, names[which]) != 0)
    which++;
  if (which == 4)
    return hec_json_error(r->json, hec_json_get(v, "what"),
                          "alltoall, all_gather, reduce_scatter or all_reduce where there is no \"shape\"");
  row->kind = (hec_hardware_kind)which;
  if (row->ranks < 2)
    return hec_json_error(r->json, hec_json_get(v, "ranks"), "2 ranks or more for a collective");
  return hec_json_want_int(r->json, v, "bytes", 1, BYTES_MAX, &row->bytes);
}

static hec_status read_value(const reader *r, const hec_json_value *v, hec_hardware_row *row) {
  static const struct {
    const char *name;
    double seconds;
  } units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
  const char *unit;
  double value;
  HEC_TRY(hec_json_want_double(r->json, v, "value", 1e-9, VALUE_MAX, &value));
  HEC_TRY(hec_json_want_text(r->json, v, "unit", &unit));
  if (row->flops > 0 && strcmp(unit, "TFLOP/s") == 0) {
    row->measured_s = row->flops / (value * 1e12);
    return HEC_OK;
  }
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strcmp(unit, units[i].name) == 0) {
      row->measured_s = value * units[i].seconds;
      return HEC_OK;
    }
  return hec_json_error(r->json, hec_json_get(v, "unit"), "ms, us or s; TFLOP/s where there is a \"shape\"");
}

static bool calls_itself_slow(const char *notes) {
  return strstr(notes, "suspiciously slow") || strstr(notes, "slower than expected") || strstr(notes, "upper bound");
}

static hec_status read_row(const reader *r, const hec_json_value *v, hec_hardware_row *row) {
  int64_t ranks, nodes;
  if (!hec_json_is_object(v))
    return hec_json_error(r->json, v, "a measurement: an object");
  HEC_TRY(get_text(r, v, "id", &row->id));
  HEC_TRY(get_text(r, v, "group", &row->group));
  HEC_TRY(get_text(r, v, "what", &row->what));
  HEC_TRY(get_text(r, v, "hardware", &row->hardware));
  HEC_TRY(text_or_none(r, v, "source", &row->source));
  HEC_TRY(text_or_none(r, v, "notes", &row->notes));
  HEC_TRY(text_or_none(r, v, "cluster", &row->cluster));
  HEC_TRY(hec_json_want_int(r->json, v, "ranks", 1, RANKS_MAX, &ranks));
  HEC_TRY(hec_json_want_int(r->json, v, "nodes", 1, ranks, &nodes));
  row->ranks = (int32_t)ranks;
  row->nodes = (int32_t)nodes;
  if (ranks % nodes != 0)
    return hec_json_error(r->json, hec_json_get(v, "ranks"), "a multiple of \"nodes\"");
  const hec_json_value *shape = hec_json_get(v, "shape");
  if (shape && !hec_json_is_object(shape))
    return hec_json_error(r->json, shape, "an object");
  if (!shape)
    HEC_TRY(read_collective(r, v, row));
  else if (hec_json_get(shape, "tokens"))
    HEC_TRY(read_moe(r, shape, row));
  else
    HEC_TRY(read_gemm(r, shape, row));
  HEC_TRY(read_value(r, v, row));
  row->bound = calls_itself_slow(row->notes);
  row->large = row->bytes >= HEC_HARDWARE_LARGE_BYTES ||
               (row->kind == HEC_HARDWARE_GEMM && row->flops >= HEC_HARDWARE_LARGE_FLOPS);
  return HEC_OK;
}

static hec_status read_rows(const reader *r, hec_hardware *hardware) {
  const hec_json_value *root = hec_json_root(r->json);
  int32_t n = hec_json_is_array(root) ? hec_json_length(root) : 0;
  if (n < 1 || n > ROWS_MAX)
    return hec_json_error(r->json, root, "an array of 1 to 10000 measurements");
  hardware->rows = HEC_NEW(r->arena, hec_hardware_row, n);
  for (const hec_json_value *v = hec_json_first(root); v; v = hec_json_next(v)) {
    hec_hardware_row *row = &hardware->rows[hardware->n_rows];
    row->index = hardware->n_rows;
    HEC_TRY(read_row(r, v, row));
    hardware->n_rows++;
  }
  return HEC_OK;
}

hec_status hec_hardware_read(const char *path, hec_hardware *hardware) {
  HEC_OPENED(hec_json) *json = NULL;
  *hardware = (hec_hardware){0};
  HEC_TRY(hec_json_read(path, &json));
  const char *name = strrchr(path, '/');
  hardware->file = hec_arena_text(&hardware->arena, name ? name + 1 : path);
  reader r = {json, &hardware->arena};
  return read_rows(&r, hardware);
}
