/* Reads the tables of a folder and prices their rows: see cases.h. */
#include "validate/device/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ROW(name) &hec_case_table_##name,
const hec_case_table *const hec_case_tables[] = {HEC_CASE_TABLE_LIST(ROW) NULL};

bool hec_case_whole(const hec_case_file *csv, const char *column, int64_t min, int64_t *value, hec_arena *arena,
                    hec_case *c) {
  if (hec_case_file_whole(csv, column, value) && *value >= min)
    return true;
  c->why_not = hec_arena_printf(arena, "%s: expected a whole number of at least %lld, found \"%.40s\"", column,
                                (long long)min, hec_case_file_text(csv, column));
  return false;
}

bool hec_case_seconds(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  if (hec_case_file_number(csv, "seconds", &c->measured_s) && c->measured_s > 0)
    return true;
  c->measured_s = 0;
  c->why_not = hec_arena_printf(arena, "seconds: expected a number above 0, found \"%.40s\"",
                                hec_case_file_text(csv, "seconds"));
  return false;
}

/* FNV-1a over the eight bytes, lowest first. */
uint64_t hec_case_hash(uint64_t seed, int64_t value) {
  uint64_t hash = seed ? seed : UINT64_C(14695981039346656037), bits = (uint64_t)value;
  for (int i = 0; i < 8; i++, bits >>= 8)
    hash = (hash ^ (bits & 255)) * UINT64_C(1099511628211);
  return hash;
}

uint64_t hec_case_hash_text(uint64_t seed, const char *text) {
  uint64_t hash = hec_case_hash(seed, 0);
  for (; *text; text++)
    hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
  return hash;
}

typedef struct {
  hec_cases *cases;
  int32_t table;
} row_place;

static hec_status read_row(const hec_case_file *csv, void *context) {
  const row_place *place = context;
  hec_cases *cases = place->cases;
  HEC_RESERVE(cases->cases, cases->capacity, cases->n + 1);
  hec_case *c = &cases->cases[cases->n++];
  *c = (hec_case){.table = place->table, .line = (int32_t)csv->csv.line, .kind = "other"};
  c->gpu = hec_case_file_column(csv, "gpu") < 0 ? "not stated" : hec_case_file_text(csv, "gpu");
  hec_case_tables[place->table]->read(csv, &cases->arena, c);
  return HEC_OK;
}

hec_status hec_cases_read(const char *folder, hec_cases *cases) {
  int32_t n_read = 0;
  for (int32_t t = 0; hec_case_tables[t]; t++) {
    const char *path = hec_arena_printf(&cases->arena, "%.200s/%s", folder, hec_case_tables[t]->file);
    struct stat found;
    if (stat(path, &found) != 0)
      continue;
    HEC_TRY(hec_case_file_each(path, &cases->arena, hec_case_tables[t]->columns, "docs/devices.md", read_row,
                               &(row_place){cases, t}));
    n_read++;
  }
  if (n_read == 0)
    return hec_fail(HEC_BAD_INPUT,
                    "%s: expected at least one of the tables gemm.csv, gemm_fp8.csv, grouped_gemm.csv, moe_ffn.csv, "
                    "attention.csv, collectives.csv, deepep.csv, elementwise.csv; see docs/devices.md",
                    folder);
  return HEC_OK;
}

void hec_cases_free(hec_cases *cases) {
  hec_arena_free(&cases->arena);
  free(cases->cases);
  *cases = (hec_cases){0};
}

enum { HEC_NODE_RANKS = 8 };

static void predict_collective(const hec_gpu *gpu, hec_arena *arena, hec_case *c) {
  const hec_collective_case *work = c->work;
  hec_collective_how how;
  const hec_gpu_sheet *sheet = &gpu->sheet;
  bool across = sheet->nvlink_ranks > HEC_NODE_RANKS; /* one NVLink domain over several nodes */
  if (work->ranks > sheet->nvlink_ranks || (work->n_nodes > 1 && !across)) {
    c->why_not = "nodes: this law covers one NVLink domain; across nodes the simulator's network laws apply";
    return;
  }
  c->predicted_s = hec_gpu_collective_s(gpu, work->op, work->ranks, work->bytes, &how);
  if (how == HEC_COLLECTIVE_NONE)
    c->why_not =
        hec_arena_printf(arena, "device %s has no constants for %s", gpu->name, hec_collective_op_name[work->op]);
  if (how == HEC_COLLECTIVE_BETWEEN)
    c->kind = hec_arena_printf(arena, "%s, ranks not fitted", c->kind);
}

void hec_case_predict(const hec_gpu *gpu, hec_arena *arena, hec_case *c) {
  if (c->why_not)
    return;
  if (c->whole) {
    predict_collective(gpu, arena, c);
    return;
  }
  const hec_law_fit *fit = hec_gpu_fit(gpu, c->law, c->variant);
  if (!fit && c->fallback)
    fit = hec_gpu_default_fit(gpu, c->law, c->fallback);
  if (!fit) {
    c->why_not =
        hec_arena_printf(arena, "device %s has no constants for law %s, variant \"%s\"", gpu->name, c->law, c->variant);
    return;
  }
  c->predicted_s = hec_law_fit_s(gpu, fit, c->work);
}
