/* One table says what a field is called, where it lies and what else depends on it. O(fields * open objects) to read one. */
#include "validate/published/setup.h"

#include "runtime/plan/problem.h"

#include <stddef.h>
#include <string.h>

typedef enum { TEXT, WHOLE, CHOICE, NUMBER, FLAG } field_type; /* a choice: a whole number, "auto" or "paper" */
typedef enum { CELL, LOADS, READING } field_use; /* changes: cells; loads and so cells; only what is read of a cell */

typedef struct {
  const char *name;
  field_type type;
  size_t at;
  field_use use;
} field;

#define AT(member) offsetof(hec_setup, member)
static const field fields[] = {
    {"layers", WHOLE, AT(moe.n_layers), CELL},
    {"layers", WHOLE, AT(moe.n_moe_layers), LOADS},
    {"experts", WHOLE, AT(moe.n_experts), LOADS},
    {"top_k", WHOLE, AT(moe.top_k), LOADS},
    {"shared_experts", WHOLE, AT(moe.n_shared_experts), CELL},
    {"d_model", WHOLE, AT(moe.d_model), CELL},
    {"d_ffn", WHOLE, AT(moe.d_ffn), CELL},
    {"d_ffn_dense", WHOLE, AT(moe.d_ffn_dense), CELL},
    {"heads", WHOLE, AT(moe.n_heads), CELL},
    {"heads", WHOLE, AT(moe.n_kv_heads), CELL},
    {"d_head", WHOLE, AT(moe.d_head), CELL},
    {"seq_len", WHOLE, AT(moe.seq_len), CELL},
    {"ffn_matrices", WHOLE, AT(moe.n_ffn_matrices), CELL},
    {"dtype_bytes", WHOLE, AT(moe.dtype_bytes), CELL},
    {"grad_bytes", NUMBER, AT(moe.grad_bytes), CELL},
    {"optimizer_bytes", NUMBER, AT(moe.optimizer_bytes), CELL},
    {"capacity_factor", NUMBER, AT(moe.capacity_factor), CELL},
    {"nonmoe_scale", NUMBER, AT(moe.nonmoe_scale), CELL},
    {"recompute", FLAG, AT(moe.recompute), CELL},
    {"model", TEXT, AT(model), CELL},
    {"cluster", TEXT, AT(cluster), CELL},
    {"setting", TEXT, AT(setting), READING},
    {"policy", TEXT, AT(policy), CELL},
    {"ranks", WHOLE, AT(ranks), LOADS},
    {"tokens", WHOLE, AT(tokens), LOADS},
    {"ep", WHOLE, AT(ep), CELL},
    {"period", WHOLE, AT(period), CELL},
    {"slots", WHOLE, AT(slots), CELL},
    {"t", CHOICE, AT(t), CELL},
    {"m", CHOICE, AT(m), CELL},
    {"micro_batches", WHOLE, AT(micro_batches), CELL},
    {"warmup", WHOLE, AT(warmup), CELL},
    {"forward", FLAG, AT(forward), CELL},
    {"beyond", FLAG, AT(beyond), CELL},
    {"nic_share", NUMBER, AT(nic_share), CELL},
    {"loads", TEXT, AT(loads), LOADS},
    {"file", TEXT, AT(file), LOADS},
    {"iterations", WHOLE, AT(iterations), LOADS},
    {"sigma", NUMBER, AT(sigma), LOADS},
    {"drift", FLAG, AT(drift), LOADS},
    {"imbalance", NUMBER, AT(imbalance), LOADS},
    {"imbalance_ep", WHOLE, AT(imbalance_ep), LOADS},
    {"hot", WHOLE, AT(hot), LOADS},
    {"share", NUMBER, AT(share), LOADS},
    {"record", WHOLE, AT(record), CELL},
    {"layer", WHOLE, AT(layer), READING},
    {"testbed", TEXT, AT(testbed), CELL},
    {"length", WHOLE, AT(length), CELL},
    {"batch", WHOLE, AT(batch), CELL},
    {"factor", NUMBER, AT(factor), CELL},
    {"attention_table", FLAG, AT(attention_table), CELL},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

bool hec_setup_has(const char *name) {
  size_t i = 0;
  while (i < N_FIELDS && strcmp(fields[i].name, name) != 0)
    i++;
  return i < N_FIELDS;
}

hec_setup hec_setup_default(void) {
  return (hec_setup){.sigma = 1, .nic_share = 1, .m = HEC_AUTO, .t = HEC_AUTO, .record = -1};
}

bool hec_setup_get(const hec_setup *setup, const char *name, double *value) {
  for (size_t i = 0; i < N_FIELDS; i++) {
    const void *at = (const char *)setup + fields[i].at;
    if (fields[i].type == TEXT || strcmp(fields[i].name, name) != 0)
      continue;
    *value = fields[i].type == NUMBER ? *(const double *)at
             : fields[i].type == FLAG ? *(const bool *)at
                                      : *(const int32_t *)at;
    return true;
  }
  return false;
}

void hec_setup_set(hec_setup *setup, const char *name, double value) {
  for (size_t i = 0; i < N_FIELDS; i++) {
    void *at = (char *)setup + fields[i].at;
    if (strcmp(fields[i].name, name) != 0)
      continue;
    if (fields[i].type == NUMBER)
      *(double *)at = value;
    else if (fields[i].type == FLAG)
      *(bool *)at = value > 0;
    else if (fields[i].type != TEXT)
      *(int32_t *)at = (int32_t)value;
  }
}

static hec_status read_text(const hec_scope *scope, const field *f, const char **out) {
  const char *text = hec_scope_text(scope, f->name);
  *out = text ? text : *out;
  return HEC_OK;
}

static hec_status read_whole(const hec_scope *scope, const field *f, int32_t *out) {
  const char *word = f->type == CHOICE ? hec_scope_text(scope, f->name) : NULL;
  double number = *out;
  if (word)
    number = strcmp(word, "paper") == 0 ? HEC_T_PAPER : HEC_AUTO;
  else
    HEC_TRY(hec_scope_number(scope, f->name, INT32_MIN, INT32_MAX, &number));
  if ((double)(int32_t)number != number)
    return hec_json_error(scope->file->json, hec_scope_find(scope, f->name), "a whole number");
  *out = (int32_t)number;
  return HEC_OK;
}

static hec_status read_field(const hec_scope *scope, const field *f, hec_setup *setup) {
  void *to = (char *)setup + f->at;
  switch (f->type) {
  case TEXT:
    return read_text(scope, f, to);
  case NUMBER:
    return hec_scope_number(scope, f->name, -1e300, 1e300, to);
  case FLAG:
    return hec_scope_flag(scope, f->name, to);
  default:
    return read_whole(scope, f, to);
  }
}

hec_status hec_setup_read(const hec_scope *scope, const hec_setup *base, hec_setup *setup) {
  *setup = *base;
  const char *model = hec_scope_text(scope, "model");
  if (model)
    HEC_TRY(hec_moe_load(model, &setup->moe));
  if (base->moe.nonmoe_scale > 0)
    setup->moe.nonmoe_scale = base->moe.nonmoe_scale;
  for (size_t i = 0; i < N_FIELDS; i++)
    HEC_TRY(read_field(scope, &fields[i], setup));
  return HEC_OK;
}

void hec_setup_key(const hec_setup *setup, bool loads, hec_text *key) {
  for (size_t i = 0; i < N_FIELDS; i++) {
    const void *at = (const char *)setup + fields[i].at;
    if (fields[i].use == READING || (loads && fields[i].use != LOADS))
      continue;
    if (fields[i].type == TEXT)
      hec_text_add(key, *(const char *const *)at ? *(const char *const *)at : "");
    else if (fields[i].type == NUMBER)
      hec_text_printf(key, "%.17g", *(const double *)at);
    else
      hec_text_printf(key, "%d", fields[i].type == FLAG ? *(const bool *)at : *(const int32_t *)at);
    hec_text_add(key, "|");
  }
}
