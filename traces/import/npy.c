/* The header is read strictly, as NumPy writes it: these three keys, each once, and blanks behind. What is not quite one would be
 * numbers of an unknown meaning. */
#include "traces/import/npy.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 1 << 16, VALUE_BYTES = 64 };
enum { DESCR, ORDER, SHAPE, N_KEYS };

bool hec_npy_is(const char *head, size_t n) {
  return n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
}

/* For messages. */
static const char *found(const char *value) {
  return *value ? value : "no such key";
}

static bool is_real(const char *descr) {
  return strlen(descr) == 5 && (descr[1] == '<' || descr[1] == '>') && descr[2] == 'f';
}

static hec_status read_type(const hec_import_file *file, int64_t line, const char *descr, hec_npy *a) {
  bool known = strlen(descr) == 5 && (descr[1] == '<' || descr[1] == '|') && (descr[2] == 'u' || descr[2] == 'i') &&
               strchr("1248", descr[3]) && (descr[4] == '\'' || descr[4] == '"') &&
               (descr[1] == '<' || descr[3] == '1');
  if (is_real(descr))
    return hec_import_fail(file, line, "descr",
                           "expected whole numbers, found %s, as logits are; expert ids are the K largest of each "
                           "token: numpy.save(\"ids.npy\", logits.argsort()[..., -K:]); counts become whole by "
                           "counts.astype(int)",
                           descr);
  if (!known)
    return hec_import_fail(file, line, "descr",
                           "expected whole numbers, little-endian ('|u1', '<u2', '<i4' ...), found %s", found(descr));
  a->is_signed = descr[2] == 'i';
  a->item = descr[3] - '0';
  return HEC_OK;
}

/* What to do with an array of other dimensions. A file of four is one of several steps, as a rule. */
static const char *next_step(const char *shape) {
  int n = 0;
  for (const char *p = shape; *p; p++)
    n += *p >= '0' && *p <= '9' && (p[1] < '0' || p[1] > '9');
  if (n == 4)
    return "; of (steps, layers, tokens, top_k) save a file a step: for i, a in enumerate(numpy.load(FILE)): "
           "numpy.save(f\"step{i:05}.npy\", a), then hecate-trace import 'step*.npy' --axes layers,tokens,top_k";
  return n == 1 ? "; counts of one layer are numpy.save(FILE, a[None]), then --axes layers,experts" : "";
}

static hec_status read_shape(const hec_import_file *file, int64_t line, const char *shape, hec_npy *a) {
  const char *p = *shape == '(' ? shape + 1 : "";
  bool comma = true;
  for (a->n_dimensions = 0; a->n_dimensions < 3 && comma;) {
    p += strspn(p, " ");
    size_t digits = strspn(p, "0123456789");
    if (digits == 0 || digits > 10)
      break;
    a->shape[a->n_dimensions++] = strtoll(p, NULL, 10);
    p += digits + strspn(p + digits, " ");
    comma = *p == ',';
    p += comma;
  }
  p += strspn(p, " ");
  if (a->n_dimensions < 2 || *p != ')')
    return hec_import_fail(file, line, "shape", "expected two or three sizes, as (tokens, layers, top_k), found %s%s",
                           found(shape), next_step(shape));
  return HEC_OK;
}

static const char *pass_blanks(const char *p) {
  while (*p == ' ')
    p++;
  return p;
}

/* Behind a text, a tuple, a list or a word; NULL: it has no end. */
static const char *pass_value(const char *p) {
  char closing = *p == '(' ? ')' : *p == '[' ? ']' : *p;
  if (!*p || !strchr("'\"([", *p))
    return p + strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
  const char *end = strchr(p + 1, closing);
  return end ? end + 1 : NULL;
}

/* {'KEY': VALUE, 'KEY': VALUE, } and blanks; "" for a key that is not there. */
static bool cut_header(const char *p, char values[N_KEYS][VALUE_BYTES]) {
  static const char *const keys[N_KEYS] = {"descr", "fortran_order", "shape"};
  if (*p++ != '{')
    return false;
  for (bool comma = true; *(p = pass_blanks(p)) != '}';) {
    const char *key = p + 1, *end = *p == '\'' || *p == '"' ? pass_value(p) : NULL;
    int k = 0;
    while (end && k < N_KEYS &&
           (strlen(keys[k]) != (size_t)(end - key - 1) || memcmp(keys[k], key, strlen(keys[k])) != 0))
      k++;
    if (!comma || !end || k == N_KEYS || values[k][0] || *(p = pass_blanks(end)) != ':')
      return false;
    p = pass_blanks(p + 1);
    end = pass_value(p);
    if (!end || end == p || end - p >= VALUE_BYTES)
      return false;
    memcpy(values[k], p, (size_t)(end - p));
    p = pass_blanks(end);
    comma = *p == ',';
    p += comma;
  }
  return p[1 + strspn(p + 1, " \n")] == 0;
}

/* `b`: as many of the n bytes as a header may have. */
static hec_status read_header(const hec_import_file *file, int64_t line, const unsigned char *b, size_t n, hec_npy *a) {
  size_t length_bytes = n > 6 && b[6] == 1 ? 2 : 4, begin = 8 + length_bytes, length = 0;
  if (n < begin || b[6] < 1 || b[6] > 3 || b[7] != 0)
    return hec_import_fail(file, line, "header", "expected a .npy file of version 1 to 3, found %s",
                           n < begin ? "its end" : "another version");
  for (size_t i = 0; i < length_bytes; i++)
    length |= (size_t)b[8 + i] << (8 * i);
  if (length > n - begin || length > HEADER_BYTES)
    return hec_import_fail(file, line, "header", "expected %zu bytes of header, found %zu", length, n - begin);
  HEC_SCOPED(hec_text) header = {0};
  hec_text_add_bytes(&header, (const char *)b + begin, length);
  hec_text_add(&header, "");
  char values[N_KEYS][VALUE_BYTES] = {{0}};
  if (strlen(header.data) != length || !cut_header(header.data, values))
    return hec_import_fail(file, line, "header",
                           "expected {'descr': ..., 'fortran_order': ..., 'shape': ..., } as NumPy "
                           "writes it, found another");
  HEC_TRY(read_type(file, line, values[DESCR], a));
  if (strcmp(values[ORDER], "False") != 0)
    return hec_import_fail(file, line, "fortran_order",
                           "expected False (np.ascontiguousarray before np.save makes it so), found %s",
                           found(values[ORDER]));
  a->data_at = begin + length;
  return read_shape(file, line, values[SHAPE], a);
}

hec_status hec_npy_read(const hec_import_file *file, int64_t line, const hec_import_bytes *bytes, hec_npy *array) {
  size_t n = bytes->length < HEADER_BYTES + 12 ? (size_t)bytes->length : HEADER_BYTES + 12;
  unsigned char *room = hec_malloc(n + 1, 1);
  const unsigned char *head = NULL;
  *array = (hec_npy){.item = 0};
  hec_status status = hec_import_bytes_at(bytes, 0, n, room, &head);
  if (status == HEC_OK)
    status = read_header(file, line, head, n, array);
  free(room);
  return status;
}

hec_status hec_npy_check_length(const hec_import_file *file, int64_t line, const hec_import_bytes *bytes,
                                const hec_npy *array, uint64_t max) {
  uint64_t n = (uint64_t)array->item, found = bytes->length - array->data_at;
  bool good = true;
  char shape[80];
  int length = 0;
  for (int i = 0; i < array->n_dimensions; i++) {
    uint64_t size = (uint64_t)array->shape[i];
    good = good && (size == 0 || n <= max / size);
    n = good ? n * size : 0;
    length +=
        snprintf(shape + length, sizeof shape - (size_t)length, "%s%" PRId64, i > 0 ? " x " : "", array->shape[i]);
  }
  if (good && n == found)
    return HEC_OK;
  return hec_import_fail(file, line, "shape",
                         "expected as many numbers as it says, found %" PRIu64 " bytes for %s of %d", found, shape,
                         array->item);
}
