/* grouped_gemm.csv: one grouped GEMM with equal groups (DeepGEMM). Its input is fp8 already, so nothing is quantised. */
#include "validate/device/cases.h"

#include <string.h>

static const char *const columns[] = {"gpu", "dtype", "groups", "m_per_group", "n", "k", "seconds", "kernel", NULL};

static void read(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  const char *type = hec_case_file_text(csv, "dtype");
  hec_gemm_work *work = HEC_NEW(arena, hec_gemm_work, 1);
  c->variant = hec_arena_printf(arena, "%.20s %.20s", type, hec_case_file_text(csv, "kernel"));
  c->kind = hec_arena_printf(arena, "grouped gemm %s", c->variant);
  if (!hec_case_seconds(csv, arena, c) || !hec_case_whole(csv, "groups", 1, &work->groups, arena, c) ||
      !hec_case_whole(csv, "m_per_group", 1, &work->m, arena, c) || !hec_case_whole(csv, "n", 1, &work->n, arena, c) ||
      !hec_case_whole(csv, "k", 1, &work->k, arena, c))
    return;
  work->precision = strncmp(type, "fp8", 3) == 0 ? HEC_LAW_FP8 : HEC_LAW_BF16;
  c->law = "gemm";
  c->fallback = type;
  c->work = work;
  c->shape = hec_case_hash(hec_case_hash(0, work->n), work->k);
}

const hec_case_table hec_case_table_grouped_gemm = {.file = "grouped_gemm.csv", .columns = columns, .read = read};
