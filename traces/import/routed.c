/* A request is read whole, [tokens][layers][top_k] in its file, and turned into [layers][tokens][top_k]: layers are what
 * is counted. The requests are sources: with --ranks R, requests R*i .. R*i+R-1 are iteration i, as if each rank ran
 * one; without it each is an iteration. A layer whose ids are all 0 although a token has several experts is one that the
 * server did not route: a dense layer; it gets no tokens. Ids say nothing of how many experts there are (--experts).
 *
 * .npy (NumPy's format, version 1 to 3): magic, version, length of the header (2 or 4 bytes), the header as a Python
 * dictionary {'descr': '<u2', 'fortran_order': False, 'shape': (tokens, layers, top_k), }, the numbers. Two dimensions
 * (tokens, layers) are top-1. */
#include "traces/import/routed.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hec_routed_free(hec_routed *routed) {
  free(routed->ids);
  free(routed->counts);
}

static int64_t sources_of(const hec_import *job) {
  int64_t ranks = hec_import_options_of(job)->ranks;
  return ranks > 0 ? ranks : 1;
}

void hec_routed_begin(hec_import *job) {
  if (sources_of(job) == 1)
    hec_import_assume(job, "every request is an iteration (--ranks R: so many are the sources of one)");
  hec_import_set_sources(job, (int32_t)sources_of(job));
}

/* ---- .npy ---- */

typedef struct {
  int64_t shape[3];
  int n_dimensions, item; /* bytes */
  bool is_signed;
  size_t data_at;
} npy;

static hec_status read_type(hec_import_file *file, int64_t line, const char *descr, npy *a) {
  bool known = descr && strlen(descr) > 4 && (descr[1] == '<' || descr[1] == '|') &&
               (descr[2] == 'u' || descr[2] == 'i') && strchr("1248", descr[3]) &&
               (descr[4] == '\'' || descr[4] == '"') && (descr[1] == '<' || descr[3] == '1');
  if (!known)
    return hec_import_fail(file, line, "descr",
                           "expected whole numbers, little-endian ('|u1', '<u2', '<i4' ...), found %.8s",
                           descr ? descr : "no such key");
  a->is_signed = descr[2] == 'i';
  a->item = descr[3] - '0';
  return HEC_OK;
}

static hec_status read_shape(hec_import_file *file, int64_t line, const char *shape, npy *a) {
  const char *p = shape && *shape == '(' ? shape + 1 : "";
  for (a->n_dimensions = 0; a->n_dimensions < 3; a->n_dimensions++) {
    p += strspn(p, " ");
    size_t digits = strspn(p, "0123456789");
    if (digits == 0 || digits > 10)
      break;
    a->shape[a->n_dimensions] = strtoll(p, NULL, 10);
    p += digits + strspn(p + digits, " ");
    p += *p == ',';
  }
  p += strspn(p, " ");
  if (a->n_dimensions < 2 || *p != ')')
    return hec_import_fail(file, line, "shape", "expected (tokens, layers, top_k) or (tokens, layers), found %.24s",
                           shape ? shape : "no such key");
  if (a->n_dimensions == 2)
    a->shape[2] = 1;
  return HEC_OK;
}

/* Behind 'KEY': and blanks; NULL: not there. */
static const char *value_of(const char *header, const char *key) {
  const char *at = strstr(header, key);
  if (!at)
    return NULL;
  at += strlen(key);
  at += strspn(at, "'\" ");
  at += *at == ':';
  return at + strspn(at, " ");
}

static hec_status read_npy(hec_import_file *file, int64_t line, const char *bytes, size_t n, npy *a) {
  const unsigned char *b = (const unsigned char *)bytes;
  size_t length_bytes = n > 6 && b[6] == 1 ? 2 : 4, begin = 8 + length_bytes, length = 0;
  if (n < begin || b[6] < 1 || b[6] > 3)
    return hec_import_fail(file, line, "header", "expected a .npy file of version 1 to 3, found %s",
                           n < begin ? "its end" : "another version");
  for (size_t i = 0; i < length_bytes; i++)
    length |= (size_t)b[8 + i] << (8 * i);
  if (length > n - begin || length > 1 << 16)
    return hec_import_fail(file, line, "header", "expected %zu bytes of header, found %zu", length, n - begin);
  hec_text header = {0};
  hec_text_add_bytes(&header, bytes + begin, length);
  hec_text_add(&header, "");
  const char *descr = value_of(header.data, "descr"), *order = value_of(header.data, "fortran_order");
  const char *shape = value_of(header.data, "shape");
  hec_status status = read_type(file, line, descr, a);
  if (status == HEC_OK && (!order || strncmp(order, "False", 5) != 0))
    status = hec_import_fail(file, line, "fortran_order", "expected False, found %.8s", order ? order : "no such key");
  if (status == HEC_OK)
    status = read_shape(file, line, shape, a);
  hec_text_free(&header);
  a->data_at = begin + length;
  return status;
}

/* ---- numbers ---- */

static uint64_t load_item(const unsigned char *p, int item, bool is_signed, bool *negative) {
  uint64_t value = 0;
  for (int i = 0; i < item; i++)
    value |= (uint64_t)p[i] << (8 * i);
  *negative = is_signed && p[item - 1] >= 0x80;
  return value;
}

/* [tokens][layers][top_k] of the bytes to ids, and each below the number of experts. */
static hec_status transpose(hec_import_file *file, const char *field, const unsigned char *bytes, const npy *a,
                            hec_routed *r) {
  uint64_t n_experts = (uint64_t)hec_import_experts(file->job);
  const unsigned char *p = bytes;
  for (int64_t t = 0; t < r->n_tokens; t++)
    for (int64_t l = 0; l < r->n_layers; l++) {
      uint32_t *to = r->ids + (l * r->n_tokens + t) * r->top_k;
      for (int64_t k = 0; k < r->top_k; k++, p += a->item) {
        bool negative = false;
        uint64_t id = load_item(p, a->item, a->is_signed, &negative);
        if (!negative && id < n_experts) {
          to[k] = (uint32_t)id;
          continue;
        }
        char place[128], found[32];
        (void)snprintf(place, sizeof place, "%s[%" PRId64 "][%" PRId64 "][%" PRId64 "]", field, t, l, k);
        (void)snprintf(found, sizeof found, "%" PRIu64, id);
        return hec_import_fail(file, r->line, place, "expected an expert from 0 to %" PRIu64 ", found %s",
                               n_experts - 1, negative ? "a negative number" : found);
      }
    }
  return HEC_OK;
}

static hec_status raw_shape(hec_import_file *file, int64_t line, const char *field, size_t n, npy *a) {
  const hec_import_options *o = hec_import_options_of(file->job);
  if (o->layers == 0 || o->top_k == 0)
    return hec_import_fail(file, line, field,
                           "expected --layers N and --top-k N, as bare numbers have no shape, found %s",
                           o->layers == 0 ? "no --layers" : "no --top-k");
  size_t row = 4 * (size_t)o->layers * (size_t)o->top_k;
  if (n % row != 0)
    return hec_import_fail(file, line, field, "expected a multiple of %zu bytes (4 x layers x top_k), found %zu", row,
                           n);
  *a = (npy){.shape = {(int64_t)(n / row), o->layers, o->top_k}, .n_dimensions = 3, .item = 4, .is_signed = true};
  return HEC_OK;
}

hec_status hec_routed_read(hec_import_file *file, int64_t line, const char *field, const char *bytes, size_t n,
                           hec_routed *r) {
  npy a = {.item = 0};
  bool is_npy = n >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0;
  int64_t layers = hec_import_options_of(file->job)->layers;
  HEC_TRY(is_npy ? read_npy(file, line, bytes, n, &a) : raw_shape(file, line, field, n, &a));
  if (a.shape[1] < 1 || a.shape[1] > HEC_TRACE_DIMENSION_MAX || (layers > 0 && layers != a.shape[1]))
    return hec_import_fail(file, line, "shape", "expected %" PRId64 " layers, found %" PRId64, layers > 0 ? layers : 1,
                           a.shape[1]);
  HEC_TRY(hec_import_set_top_k(file, line, "shape (top_k)", a.shape[2]));
  if (hec_import_experts(file->job) == 0)
    return hec_import_fail(file, line, "experts", "expected --experts N, as only ids were recorded, found none");
  uint64_t row = (uint64_t)a.shape[1] * (uint64_t)a.shape[2]; /* below 2^40 */
  HEC_ASSERT(row > 0 && a.item > 0);
  uint64_t most = HEC_ROUTED_BYTES_MAX / row / (uint64_t)a.item;
  if ((uint64_t)a.shape[0] > most || (uint64_t)a.shape[0] * row * (uint64_t)a.item != n - a.data_at)
    return hec_import_fail(file, line, "shape",
                           "expected as many numbers as it says, found %zu bytes for %" PRId64 " x %" PRId64
                           " x %" PRId64 " of %d",
                           n - a.data_at, a.shape[0], a.shape[1], a.shape[2], a.item);
  r->n_tokens = a.shape[0];
  r->n_layers = a.shape[1];
  r->top_k = a.shape[2];
  r->line = line;
  r->layer = 0;
  r->layer_before = -1;
  HEC_RESERVE(r->ids, r->capacity, (uint64_t)r->n_tokens * row + 1);
  if (!r->counts)
    r->counts = hec_malloc((size_t)hec_import_experts(file->job), sizeof *r->counts);
  return transpose(file, field, (const unsigned char *)bytes + a.data_at, &a, r);
}

hec_status hec_routed_next(hec_import_file *file, hec_routed *r, hec_import_row *row, bool *more) {
  size_t n_experts = (size_t)hec_import_experts(file->job), n = (size_t)(r->n_tokens * r->top_k);
  *more = r->layer < r->n_layers;
  if (!*more)
    return HEC_OK;
  const uint32_t *ids = r->ids + (size_t)r->layer * n;
  bool routed = r->top_k == 1;
  memset(r->counts, 0, n_experts * sizeof *r->counts);
  for (size_t i = 0; i < n && !routed; i++)
    routed = ids[i] != 0;
  for (size_t i = 0; i < n && routed; i++)
    r->counts[ids[i]]++;
  *row = (hec_import_row){.step = file->kept / sources_of(file->job),
                          .layer = r->layer,
                          .source = (int32_t)(file->kept % sources_of(file->job)),
                          .n = (int32_t)n_experts,
                          .counts = r->counts,
                          .line = r->line};
  if (routed) {
    row->ids = ids;
    row->ids_before = r->layer_before >= 0 ? r->ids + (size_t)r->layer_before * n : NULL;
    row->layer_before = r->layer_before;
    row->n_tokens = r->n_tokens;
    r->layer_before = r->layer;
  }
  r->layer++;
  file->kept += r->layer == r->n_layers;
  return HEC_OK;
}
