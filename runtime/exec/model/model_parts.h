/* What only the files of the model share. */
#pragma once
#include "runtime/exec/model/model.h"

typedef struct {
  int32_t d, q, kv;        /* widths of the stream, of all query heads, of all key (value) heads */
  int32_t head, per_group; /* width of a head; query heads that share one key head */
  int32_t experts;
} hec_model_widths;
hec_model_widths hec_model_widths_of(const hec_model *model);

int64_t hec_attention_scratch_size(const hec_model *model, int32_t tokens); /* floats */

/* A FFN of inner width f, an expert's or a shared one's. */
int64_t hec_ffn_size(const hec_model *model, int32_t f); /* parameters */
typedef struct {
  hec_processor *on;
  const hec_model *model;
  int32_t f;  /* inner width */
  float keep; /* what becomes of what stands in out and din: 0 or 1 */
} hec_ffn;
