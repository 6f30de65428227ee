/* attention.csv: one attention call. A variant is the kind (mha, with GQA; mla: after MLA's up-projection) and the kernel. */
#include "validate/device/cases.h"

#include <string.h>

static const char *const columns[] = {"gpu",      "dtype",    "direction",  "causal",  "batch",  "seq",    "heads",
                                      "kv_heads", "head_dim", "head_dim_v", "seconds", "kernel", "source", NULL};
enum { HEAD_MAX = 256 };

static bool read_work(const hec_case_file *csv, hec_arena *arena, hec_attention_work *work, hec_case *c) {
  return hec_case_whole(csv, "batch", 1, &work->batch, arena, c) &&
         hec_case_whole(csv, "seq", 1, &work->seq, arena, c) &&
         hec_case_whole(csv, "heads", 1, &work->heads, arena, c) &&
         hec_case_whole(csv, "kv_heads", 1, &work->kv_heads, arena, c) &&
         hec_case_whole(csv, "head_dim", 1, &work->head_dim, arena, c) &&
         hec_case_whole(csv, "head_dim_v", 1, &work->head_dim_v, arena, c);
}

static void read(const hec_case_file *csv, hec_arena *arena, hec_case *c) {
  const char *direction = hec_case_file_text(csv, "direction");
  hec_attention_work *work = HEC_NEW(arena, hec_attention_work, 1);
  bool mla = strstr(hec_case_file_text(csv, "source"), "mla") != NULL, forward = strcmp(direction, "fwd") == 0;
  c->kind = hec_arena_printf(arena, "attention %s%s", forward ? "forward" : direction, mla ? " mla" : "");
  if (!hec_case_seconds(csv, arena, c) || !read_work(csv, arena, work, c))
    return;
  work->causal = strcmp(hec_case_file_text(csv, "causal"), "1") == 0;
  work->latent = mla;
  work->backward = strcmp(direction, "bwd") == 0;
  if (strcmp(hec_case_file_text(csv, "dtype"), "bf16") != 0)
    c->why_not = "dtype: the law knows bf16 attention only";
  else if (!forward && !work->backward)
    c->why_not = "direction: the law knows fwd and bwd; deterministic backward takes 15 to 20 % more";
  else if (work->head_dim > HEAD_MAX)
    c->why_not = "head_dim: the law covers heads up to 256";
  if (c->why_not)
    return;
  c->law = "attention";
  c->variant = hec_arena_printf(arena, "%s %.40s", mla ? "mla" : "mha", hec_case_file_text(csv, "kernel"));
  c->fallback = mla ? "mla" : "mha";
  c->work = work;
  c->fit = true;
  c->shape = hec_case_hash(hec_case_hash(hec_case_hash(0, work->heads), work->kv_heads), work->head_dim);
}

const hec_case_table hec_case_table_attention = {.file = "attention.csv", .columns = columns, .read = read};
