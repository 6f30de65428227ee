/* What the files of the model share and nobody else sees. */
#ifndef HEC_EXEC_MODEL_PARTS_H
#define HEC_EXEC_MODEL_PARTS_H
#include "runtime/exec/model.h"

typedef struct {
  int32_t d, q, kv;        /* widths of the stream, of all query heads, of all key (value) heads */
  int32_t head, per_group; /* width of a head; query heads that share one key head */
  int32_t experts;
} hec_model_widths;
hec_model_widths hec_model_widths_of(const hec_model *model);

int64_t hec_attention_scratch_size(const hec_model *model, int32_t tokens); /* floats */

/* A FFN of inner width f, an expert's or a shared one's: parameters, inner rows and what is added or replaced. */
int64_t hec_ffn_size(const hec_model *model, int32_t f); /* parameters */
typedef struct {
  const hec_model *model;
  int32_t f, n; /* inner width, rows */
} hec_ffn;
/* out [n, d] = keep * out + ffn(in); inner [n, n_matrices * f]. */
void hec_ffn_forward(const hec_ffn *ffn, const float *params, const float *in, float *inner, float *out, float keep);
/* grads = keep_grads * grads + ..., din = keep_din * din + ...; inner is overwritten. */
typedef struct {
  float *grads, *din;
  float keep_grads, keep_din;
} hec_ffn_gradient;
void hec_ffn_backward(const hec_ffn *ffn, const float *params, const float *in, float *inner, const float *dout,
                      const hec_ffn_gradient *to);

#endif
