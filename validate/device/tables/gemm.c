/* gemm.csv and gemm_fp8.csv: one dense GEMM each row. A variant of constants is a precision and the framework that ran
 * it. Frameworks differ in launch cost. And vLLM's rows multiply memory that was never filled, which runs at higher
 * clocks. */
#include "validate/device/cases.h"

#include <string.h>

static const char *const columns[] = {"gpu", "dtype", "m", "n", "k", "seconds", "framework", NULL};

static void read(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  const char *type = hec_case_file_text(csv, "dtype"), *framework = hec_case_file_text(csv, "framework");
  hec_gemm_work *work = HEC_NEW(arena, hec_gemm_work, 1);
  work->groups = 1;
  c->kind = c->variant = hec_arena_printf(arena, "%.20s %.20s", type, framework);
  c->kind = hec_arena_printf(arena, "gemm %s", c->variant);
  if (!hec_case_seconds(csv, arena, c) || !hec_case_whole(csv, "m", 1, &work->m, arena, c) ||
      !hec_case_whole(csv, "n", 1, &work->n, arena, c) || !hec_case_whole(csv, "k", 1, &work->k, arena, c))
    return;
  bool bf16 = strcmp(type, "bf16") == 0;
  if (!bf16 && strcmp(type, "fp8") != 0 && strcmp(type, "fp8block") != 0) {
    c->why_not = hec_arena_printf(arena, "dtype: the law knows bf16, fp8 and fp8block, found \"%.40s\"", type);
    return;
  }
  work->precision = bf16 ? HEC_LAW_BF16 : HEC_LAW_FP8;
  work->quantise = !bf16;
  c->law = "gemm";
  c->fallback = type;
  c->work = work;
  c->fit = true;
  c->shape = hec_case_hash(hec_case_hash(0, work->n), work->k);
  if (strcmp(framework, "vllm") != 0)
    c->repeat = hec_case_hash_text(hec_case_hash(c->shape, work->m), type);
}

const hec_case_table hec_case_table_gemm = {.file = "gemm.csv", .columns = columns, .read = read};
const hec_case_table hec_case_table_gemm_fp8 = {.file = "gemm_fp8.csv", .columns = columns, .read = read};
