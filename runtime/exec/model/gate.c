/* The table of gates, and what rows share: all O(T d E) or less. */
#include "runtime/exec/model/gate.h"

#include "runtime/base/table.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(name) &hec_gate_##name,
const hec_gate *const hec_gates[] = {HEC_GATE_LIST(ROW) NULL};

/* ---- From text ---- */

const hec_option hec_gate_capacity_options[] = {{.name = "capacity",
                                                 .type = HEC_OPTION_REAL,
                                                 .at = offsetof(hec_gate_options, capacity),
                                                 .min = 1e-3,
                                                 .max = 1e6,
                                                 .help = "factor on the mean that an expert takes of a group at most",
                                                 .initial = "1"},
                                                {.name = "group",
                                                 .at = offsetof(hec_gate_options, group),
                                                 .min = 1,
                                                 .max = 1e9,
                                                 .help = "tokens that a capacity counts over, a divisor of `tokens`",
                                                 .initial = "`tokens`"},
                                                {0}};

HEC_TABLE_OF(hec_gate);

/* A number at `text` that ends at a comma or with the text; *end: there. */
static bool number_at(const char *text, double *value, const char **end) {
  bool begins = (*text >= '0' && *text <= '9') || *text == '.';
  return hec_number_read(text, end, value) && begins && (**end == '\0' || **end == ',');
}

hec_status hec_gate_parse(const char *text, const hec_gate **gate, hec_gate_options *options) {
  size_t length = strcspn(text, ":");
  char name[64];
  (void)snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), text);
  const hec_gate *found = hec_table_find(hec_gates, name);
  if (!found)
    return hec_table_unknown(&(hec_table){.rows = hec_gates}, "`gate`", name);
  hec_gate_options read = {0};
  if (text[length] == ':')
    HEC_TRY(hec_options_read("`gate`", name, text + length + 1, found->options, &read, sizeof read, &read.given));
  *gate = found;
  *options = read;
  return HEC_OK;
}

void hec_gate_describe(const hec_model *model, hec_text *out) {
  hec_text_add(out, model->gate->name);
  hec_options_write(model->gate->options, &model->gate_options, model->gate_options.given, out);
}

static hec_status unbalanced(const char *text) {
  return hec_fail(HEC_BAD_INPUT,
                  "`balance`: expected none, aux=COEFFICIENT (0 to 1000) or bias=RATE (0 to 1), found \"%s\"", text);
}

hec_status hec_balancing_parse(const char *text, hec_balancing *balancing) {
  hec_balancing read = {0};
  bool has_aux = false, has_bias = false;
  for (const char *at = text; strcmp(text, "none") != 0;) {
    bool aux = strncmp(at, "aux=", 4) == 0, bias = strncmp(at, "bias=", 5) == 0;
    double value;
    const char *end;
    if (!(aux || bias) || !number_at(at + (aux ? 4 : 5), &value, &end) || value > (aux ? 1000 : 1))
      return unbalanced(text);
    if (aux ? has_aux : has_bias)
      return hec_fail(HEC_BAD_INPUT, "`balance`: %s is given twice, found \"%s\"", aux ? "aux" : "bias", text);
    *(aux ? &has_aux : &has_bias) = true;
    *(aux ? &read.aux : &read.bias) = value;
    if (*end == '\0')
      break;
    at = end + 1;
  }
  *balancing = read;
  return HEC_OK;
}

/* ---- Of a model ---- */

hec_status hec_gate_set(hec_model *model, const hec_gate *gate, const hec_gate_options *options) {
  hec_model made = *model;
  made.gate = gate;
  made.gate_options = *options;
  made.moe.gate_params = gate->size ? (double)gate->size(&made) : 0;
  HEC_TRY(hec_gate_check(&made, 0));
  HEC_TRY(hec_moe_check(&made.moe, made.moe.name));
  *model = made;
  return HEC_OK;
}

hec_status hec_gate_check(const hec_model *model, int32_t tokens) {
  int32_t group = model->gate_options.group;
  if (group > 0 && tokens % group != 0)
    return hec_fail(HEC_BAD_INPUT,
                    "`gate` %s: group: expected a divisor of the tokens of a rank (%" PRId32 "), found %" PRId32,
                    model->gate->name, tokens, group);
  return model->gate->check ? model->gate->check(model, tokens) : HEC_OK;
}

int64_t hec_gate_size(const hec_model *model) {
  return model->gate->size ? model->gate->size(model) : (int64_t)model->moe.d_model * model->n_experts;
}

int64_t hec_gate_scratch_size(const hec_model *model, int32_t tokens) {
  return model->gate->scratch ? model->gate->scratch(model, tokens) : 0;
}

int32_t hec_gate_group(const hec_model *model, int32_t tokens) {
  return model->gate_options.group > 0 ? model->gate_options.group : tokens;
}

/* ---- What rows share ---- */

void hec_gate_linear(const hec_gate_pass *p) {
  p->on->math->gemm(p->on,
                    &(hec_gemm){.m = p->tokens,
                                .n = p->model->n_experts,
                                .k = p->model->moe.d_model,
                                .a = p->h2,
                                .b = p->params,
                                .c = p->affinity,
                                .alpha = 1},
                    1);
}

void hec_gate_linear_backward(const hec_gate_pass *p, const float *dl, float *grads, float *dh2) {
  int32_t d = p->model->moe.d_model, experts = p->model->n_experts;
  const hec_gemm both[] = {{.m = d,
                            .n = experts,
                            .k = p->tokens,
                            .transpose_a = true,
                            .a = p->h2,
                            .b = dl,
                            .c = grads,
                            .alpha = 1,
                            .beta = 1},
                           {.m = p->tokens,
                            .n = d,
                            .k = experts,
                            .transpose_b = true,
                            .a = dl,
                            .b = p->params,
                            .c = dh2,
                            .alpha = 1,
                            .beta = 1}};
  p->on->math->gemm(p->on, both, 2);
}

static hec_scores rows_of(const hec_gate_pass *p) {
  int32_t experts = p->model->n_experts;
  return (hec_scores){.x = p->affinity, .rows = p->tokens, .n = experts, .visible = experts, .period = 1};
}

void hec_gate_softmax_score(const hec_gate_pass *p) {
  hec_scores scores = rows_of(p);
  hec_gate_linear(p);
  p->on->math->softmax(p->on, &scores);
}

void hec_gate_softmax_back(const hec_gate_pass *p, float *d) {
  hec_scores scores = rows_of(p);
  p->on->math->softmax_backward(p->on, &scores, d);
}

void hec_gate_softmax_backward(const hec_gate_pass *p, const hec_assignments *a, float *grads, float *dh2) {
  float *d = p->scratch;
  p->on->math->choice_gradient(p->on, a, p->model->n_experts, d);
  hec_gate_softmax_back(p, d);
  hec_gate_linear_backward(p, d, grads, dh2);
}

void hec_gate_choose_top_k(const hec_model *model, const hec_gate_call *call, const float *affinity, int32_t tokens,
                           hec_assignments *out) {
  hec_assign_top_k(model, affinity, call->bias, tokens, out);
}

void hec_gate_list(const hec_model *model, const uint8_t *chosen, int32_t tokens, hec_assignments *out) {
  out->n = 0;
  out->n_tokens = tokens;
  out->n_dropped = 0;
  for (int32_t e = 0; e < model->n_experts; e++) {
    out->expert_at[e] = out->n;
    for (int32_t t = 0; t < tokens; t++) {
      if (!chosen[(int64_t)t * model->n_experts + e])
        continue;
      HEC_ASSERT(out->n < out->capacity);
      out->token[out->n++] = t;
    }
  }
  out->expert_at[model->n_experts] = out->n;
}
