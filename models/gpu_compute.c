/* Puts the laws together: see gpu_compute.h. O(tiles * splits) per product, O(experts) per expert layer. */
#include "models/gpu_compute.h"

#include <pthread.h>
#include <string.h>

/* Where a device has no memory law: assumed as the mean of those that have (docs/devices.md). */
static const double assumed_add = 0.9, assumed_other = 0.55;

static double constant_of(const hec_law_fit *fit, const char *name) {
  for (int32_t i = 0; i < fit->law->n_constants; i++)
    if (strcmp(fit->law->constants[i].name, name) == 0)
      return fit->constants[i];
  HEC_ASSERT(false);
  return 0;
}

static hec_gpu_kernel kernel_of(const hec_gpu *gpu, const char *variant, const char *other, double assumed) {
  const hec_law_fit *fit = hec_gpu_fit(gpu, "memory", variant);
  fit = fit || !other ? fit : hec_gpu_fit(gpu, "memory", other);
  if (!fit)
    return (hec_gpu_kernel){gpu->sheet.launch_s, 1 / (assumed * gpu->sheet.hbm_bandwidth)};
  return (hec_gpu_kernel){constant_of(fit, "t0"), 1 / (constant_of(fit, "hbm") * gpu->sheet.hbm_bandwidth)};
}

double hec_gpu_dense_flops(const hec_gpu_laws *laws, hec_law_precision precision) {
  const hec_law_fit *gemm = laws->gemm[precision];
  double best = 0;
  for (int32_t i = 0; i < gemm->law->n_constants; i++)
    if (strncmp(gemm->law->constants[i].name, "e_", 2) == 0 && gemm->constants[i] > best)
      best = gemm->constants[i];
  return best * laws->gpu.sheet.flops[precision];
}

/* FLOP/s that neither dense nor grouped products exceed: the best tile, all of it math. */
static double max_flops(const hec_gpu_laws *laws, hec_law_precision precision) {
  const hec_gpu_sheet *sheet = &laws->gpu.sheet;
  const hec_law_fit *grouped = laws->grouped[precision];
  double best = hec_gpu_dense_flops(laws, precision), element = precision == HEC_LAW_FP8 ? 1 : 2;
  if (!grouped)
    return best;
  double math = sheet->flops[precision] * constant_of(grouped, "efficiency");
  double loads = 256 / element * constant_of(grouped, "l2") * sheet->hbm_bandwidth; /* of a 256 x 256 tile */
  double max = math < loads ? math : loads;
  return max > best ? max : best;
}

static hec_status load(const char *spec, hec_arena *arena, const hec_gpu **gpu, const hec_gpu_laws **out) {
  static const char *const prefix[HEC_LAW_PRECISIONS] = {[HEC_LAW_BF16] = "bf16", [HEC_LAW_FP8] = "fp8"};
  hec_gpu_laws *laws = HEC_NEW(arena, hec_gpu_laws, 1);
  HEC_TRY(hec_gpu_load(spec, arena, &laws->gpu));
  *gpu = &laws->gpu;
  *out = NULL;
  for (int p = 0; p < HEC_LAW_PRECISIONS; p++) {
    laws->gemm[p] = hec_gpu_default_fit(&laws->gpu, "gemm", prefix[p]);
    laws->grouped[p] = hec_gpu_default_fit(&laws->gpu, "grouped", prefix[p]);
  }
  laws->attention = hec_gpu_default_fit(&laws->gpu, "attention", "mha");
  if (!laws->gemm[HEC_LAW_BF16] || !laws->attention)
    return HEC_OK;
  laws->add = kernel_of(&laws->gpu, "add", NULL, assumed_add);
  laws->activation = kernel_of(&laws->gpu, "mlp_act", NULL, assumed_other);
  laws->norm = kernel_of(&laws->gpu, "input_layernorm", "mlp_act", assumed_other);
  for (int p = 0; p < HEC_LAW_PRECISIONS; p++) {
    const hec_law_fit *grouped = laws->grouped[p];
    if (!laws->gemm[p] || !(laws->gpu.sheet.flops[p] > 0)) {
      laws->gemm[p] = NULL;
      continue;
    }
    laws->flops[p] = max_flops(laws, (hec_law_precision)p);
    laws->grouped_byte_s[p] =
        grouped ? 1 / (constant_of(grouped, "elementwise") * laws->gpu.sheet.hbm_bandwidth) : laws->activation.byte_s;
    laws->grouped_row_s[p] = grouped ? constant_of(grouped, "row") : 0;
  }
  *out = laws;
  return HEC_OK;
}

/* Presets are part of the program, and sweeps ask for one twice a row: each is read once, and stays. */
typedef struct preset {
  const char *name;
  const hec_gpu *gpu;
  const hec_gpu_laws *laws;
  struct preset *next;
} preset;

static hec_status load_preset(const char *name, const preset **found) {
  static hec_arena arena;
  static preset *first;
  for (const preset *at = first; at; at = at->next)
    if (strcmp(at->name, name) == 0) {
      *found = at;
      return HEC_OK;
    }
  preset *made = HEC_NEW(&arena, preset, 1);
  HEC_TRY(load(name, &arena, &made->gpu, &made->laws));
  made->name = made->gpu->spec;
  made->next = first;
  *found = first = made;
  return HEC_OK;
}

hec_status hec_gpu_laws_load(const char *spec, hec_arena *arena, const hec_gpu **gpu, const hec_gpu_laws **out) {
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  const preset *found;
  if (!hec_gpu_known(spec))
    return load(spec, arena, gpu, out);
  (void)pthread_mutex_lock(&one_at_a_time);
  hec_status status = load_preset(spec, &found);
  (void)pthread_mutex_unlock(&one_at_a_time);
  if (status == HEC_OK) {
    *gpu = found->gpu;
    *out = found->laws;
  }
  return status;
}

hec_law_precision hec_gpu_precision(const hec_gpu_laws *laws, int32_t dtype_bytes, double *factor) {
  *factor = dtype_bytes > 2 ? (double)dtype_bytes / 2 : 1;
  return dtype_bytes == 1 && laws->gemm[HEC_LAW_FP8] ? HEC_LAW_FP8 : HEC_LAW_BF16;
}

static inline int64_t whole_rows(double rows) {
  int64_t whole = (int64_t)rows;
  return (double)whole < rows ? whole + 1 : whole;
}

static double gemm_s(const hec_gpu_laws *laws, const hec_work_dims *d, hec_law_precision precision, int64_t m,
                     int64_t n, int64_t k) {
  const hec_gemm_work work = {.m = m,
                              .n = n,
                              .k = k,
                              .groups = 1,
                              .precision = precision,
                              .quantise = precision == HEC_LAW_FP8 && !d->quantised};
  return m > 0 && n > 0 && k > 0 ? hec_law_fit_s(&laws->gpu, laws->gemm[precision], &work) : 0;
}

static inline double kernel_s(const hec_gpu_kernel *kernel, int32_t launches, double bytes) {
  return bytes > 0 ? launches * kernel->launch_s + bytes * kernel->byte_s : 0;
}

/* ---- Dense parts; forward is once, backward twice the products and bytes ---- */

static double attention_core_s(const hec_gpu_laws *laws, const hec_work_dims *d, int64_t rows, bool backward) {
  int64_t parts = d->context_parts > 1 ? d->context_parts : 1;
  rows *= parts;
  int64_t seq = d->seq < rows ? d->seq : rows;
  const hec_attention_work work = {.batch = (rows + seq - 1) / seq,
                                   .seq = seq,
                                   .heads = d->heads,
                                   .kv_heads = d->kv_heads,
                                   .head_dim = d->head_dim,
                                   .head_dim_v = d->head_dim,
                                   .window = d->window,
                                   .causal = d->causal,
                                   .backward = backward};
  double all = d->causal ? (double)d->seq / 2 : (double)d->seq; /* keys that the law counts; s2 sees fewer */
  double seen = d->window == 0 && d->context > 0 && d->context < all ? d->context / all : 1;
  double core = d->core > 0 ? d->core : 1;
  return core * seen * hec_law_fit_s(&laws->gpu, laws->attention, &work) / (double)parts;
}

static double attention_s(const hec_gpu_laws *laws, const hec_work_dims *d, hec_law_precision precision, int64_t rows,
                          bool backward) {
  int32_t passes = backward ? 2 : 1, q = d->heads * d->head_dim, kv = 2 * d->kv_heads * d->head_dim;
  double tokens = (double)rows, own = tokens / (double)d->parts, width = (double)d->hidden;
  double projections_s =
      gemm_s(laws, d, precision, rows, q + kv, d->hidden) + gemm_s(laws, d, precision, rows, d->hidden, q);
  double rotary = 2 * (double)(d->heads + d->kv_heads) * (double)d->head_dim; /* q and k, read and written */
  double scores = d->fused ? 0 : 6 * (double)d->heads * d->context;
  double between_s = kernel_s(&laws->norm, 2, 2 * 4 * width * own) + kernel_s(&laws->add, 2, 2 * 6 * width * own) +
                     kernel_s(&laws->activation, 1, 2 * rotary * tokens) + kernel_s(&laws->add, 2, 2 * scores * tokens);
  return d->scale * (passes * (d->projections * projections_s + between_s) + attention_core_s(laws, d, rows, backward));
}

static double ffn_s(const hec_gpu_laws *laws, const hec_work_dims *d, hec_law_precision precision, int64_t rows,
                    bool backward) {
  int32_t up = d->n_matrices - 1;
  double products_s = gemm_s(laws, d, precision, rows, (int64_t)up * d->inter, d->hidden) +
                      gemm_s(laws, d, precision, rows, d->hidden, d->inter);
  double bytes = 2 * (double)rows * (double)d->n_matrices * (double)d->inter;
  return (backward ? 2 : 1) * (products_s + kernel_s(&laws->activation, 1, bytes));
}

static double pass_s(const hec_gpu_laws *laws, const hec_work_dims *d, double bytes_per_row,
                     hec_law_precision precision, int64_t rows, bool backward) {
  switch (d->part) {
  case HEC_WORK_ATTENTION:
    return attention_s(laws, d, precision, rows, backward);
  case HEC_WORK_FFN:
    return ffn_s(laws, d, precision, rows, backward);
  case HEC_WORK_BLOCK:
    return attention_s(laws, d, precision, rows, backward) + ffn_s(laws, d, precision, rows, backward);
  default: /* a product, none where inter is 0 */
    return (backward ? 2 : 1) * (gemm_s(laws, d, precision, rows, d->inter, d->hidden) +
                                 kernel_s(&laws->add, 1, bytes_per_row * (double)rows));
  }
}

double hec_gpu_work_s(const hec_gpu_laws *laws, const hec_work_dims *d, double bytes_per_row, double rows,
                      bool backward) {
  double factor;
  hec_law_precision precision = hec_gpu_precision(laws, d->dtype_bytes, &factor);
  int64_t whole = whole_rows(rows);
  if (whole <= 0)
    return 0;
  bytes_per_row /= factor; /* the factor has their width */
  double s = pass_s(laws, d, bytes_per_row, precision, whole, backward);
  s += backward && d->again ? pass_s(laws, d, bytes_per_row, precision, whole, false) : 0;
  return factor * d->times * s;
}

/* ---- Experts ---- */

/* The grouped law without the passes over rows that permutation makes: those are operations of their own. */
static double grouped_s(const hec_gpu_laws *laws, const hec_work_dims *d, hec_law_precision precision,
                        const hec_grouped_load *load) {
  const hec_grouped_work work = {.load = *load,
                                 .hidden = d->hidden,
                                 .inter = d->inter,
                                 .tokens = (int64_t)load->rows,
                                 .top_k = 1, /* a rank routes its own tokens: about as many as it computes */
                                 .gated = d->n_matrices == 3,
                                 .precision = precision};
  return hec_law_fit_s(&laws->gpu, laws->grouped[precision], &work) -
         2 * 3 * load->rows * (double)d->hidden * laws->grouped_byte_s[precision];
}

/* Even loads have two numbers of rows at most, so the last two are remembered. */
static double one_by_one_s(const hec_gpu_laws *laws, const hec_work_dims *d, hec_law_precision precision,
                           const int32_t *rows, int32_t n, int32_t stride, double min_s) {
  int64_t up = (int64_t)(d->n_matrices - 1) * d->inter;
  int32_t known[2] = {-1, -1}, newest = 0;
  double s = 0, each_s[2] = {0, 0};
  for (int32_t e = 0; e < n && s < min_s; e++) {
    int32_t own = rows[e * stride], at = known[newest] == own ? newest : 1 - newest;
    if (known[at] != own) {
      known[at] = own;
      each_s[at] =
          gemm_s(laws, d, precision, own, up, d->hidden) + gemm_s(laws, d, precision, own, d->hidden, d->inter);
    }
    newest = at;
    s += each_s[at];
  }
  return s;
}

double hec_gpu_activation_s(const hec_gpu_laws *laws, const hec_work_dims *d, hec_law_precision precision,
                            double rows) {
  double bytes = 2 * (double)d->n_matrices * (double)d->inter * rows;
  return bytes * laws->grouped_byte_s[precision] + rows * laws->grouped_row_s[precision];
}

double hec_gpu_experts_s(const hec_gpu_laws *laws, const hec_work_dims *d, const int32_t *rows, int32_t n,
                         int32_t stride, bool backward) {
  double factor;
  hec_law_precision precision = hec_gpu_precision(laws, d->dtype_bytes, &factor);
  hec_grouped_load load = {0};
  for (int32_t e = 0; e < n; e++)
    hec_grouped_load_add(&load, rows[e * stride]);
  if (load.rows <= 0)
    return 0;
  double flops = 2 * (double)d->n_matrices * (double)d->hidden * (double)d->inter * load.rows;
  double min_s = flops / laws->flops[precision], activation_s = hec_gpu_activation_s(laws, d, precision, load.rows);
  double kept = d->core > 0 ? 1 - d->core : 0; /* of the activation, what fusion saves */
  double s = laws->grouped[precision] ? grouped_s(laws, d, precision, &load) : 1e300;
  /* one by one is never faster than this: it starts each product and reaches no more than the best tile */
  if (min_s + activation_s < s) {
    double apart_s = activation_s + one_by_one_s(laws, d, precision, rows, n, stride, s - activation_s);
    s = apart_s < s ? apart_s : s;
  }
  s -= kept * activation_s;
  return factor * d->times * s * (backward ? (d->again ? 3 : 2) : 1);
}
