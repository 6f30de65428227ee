/* The header is read as text, key by key, and not as Python: a file of NumPy's has these three keys, each once. */
#include "traces/import/npy.h"

#include "runtime/base/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 1 << 16 };

bool hec_npy_is(const char *head, size_t n) {
  return n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
}

/* What stands there in Python, for messages: a text, a tuple, a list or a word. */
static const char *quote(const char *value, char room[48]) {
  size_t n = value ? strcspn(value, ",} ") : 0;
  const char *closing = value ? strchr("'\"([", *value) : NULL;
  if (closing && *closing) {
    const char *end = strchr(value + 1, *closing == '(' ? ')' : *closing == '[' ? ']' : *closing);
    n = end ? (size_t)(end - value) + 1 : strlen(value);
  }
  (void)snprintf(room, 48, "%.*s", (int)(n < 47 ? n : 47), value ? value : "no such key");
  if (!value)
    (void)strcpy(room, "no such key");
  return room;
}

static hec_status read_type(const hec_import_file *file, int64_t line, const char *descr, hec_npy *a) {
  bool known = descr && strlen(descr) > 4 && (descr[1] == '<' || descr[1] == '|') &&
               (descr[2] == 'u' || descr[2] == 'i') && strchr("1248", descr[3]) &&
               (descr[4] == '\'' || descr[4] == '"') && (descr[1] == '<' || descr[3] == '1');
  char found[48];
  if (!known)
    return hec_import_fail(file, line, "descr",
                           "expected whole numbers, little-endian ('|u1', '<u2', '<i4' ...), found %s",
                           quote(descr, found));
  a->is_signed = descr[2] == 'i';
  a->item = descr[3] - '0';
  return HEC_OK;
}

static hec_status read_shape(const hec_import_file *file, int64_t line, const char *shape, hec_npy *a) {
  const char *p = shape && *shape == '(' ? shape + 1 : "";
  char found[48];
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
    return hec_import_fail(file, line, "shape", "expected (tokens, layers, top_k) or (tokens, layers), found %s",
                           quote(shape, found));
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

/* `b`: as many of the n bytes as a header may have. */
static hec_status read_header(const hec_import_file *file, int64_t line, const unsigned char *b, size_t n, hec_npy *a) {
  size_t length_bytes = n > 6 && b[6] == 1 ? 2 : 4, begin = 8 + length_bytes, length = 0;
  if (n < begin || b[6] < 1 || b[6] > 3)
    return hec_import_fail(file, line, "header", "expected a .npy file of version 1 to 3, found %s",
                           n < begin ? "its end" : "another version");
  for (size_t i = 0; i < length_bytes; i++)
    length |= (size_t)b[8 + i] << (8 * i);
  if (length > n - begin || length > HEADER_BYTES)
    return hec_import_fail(file, line, "header", "expected %zu bytes of header, found %zu", length, n - begin);
  hec_text header = {0};
  hec_text_add_bytes(&header, (const char *)b + begin, length);
  hec_text_add(&header, "");
  const char *descr = value_of(header.data, "descr"), *order = value_of(header.data, "fortran_order");
  const char *shape = value_of(header.data, "shape");
  hec_status status = read_type(file, line, descr, a);
  char found[48];
  if (status == HEC_OK && (!order || strncmp(order, "False", 5) != 0))
    status = hec_import_fail(file, line, "fortran_order",
                             "expected False (np.ascontiguousarray before np.save makes it so), found %s",
                             quote(order, found));
  if (status == HEC_OK)
    status = read_shape(file, line, shape, a);
  hec_text_free(&header);
  a->data_at = begin + length;
  return status;
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
                                const hec_npy *array, uint64_t most) {
  uint64_t n = (uint64_t)array->item, found = bytes->length - array->data_at;
  bool good = true;
  char shape[80];
  int length = 0;
  for (int i = 0; i < array->n_dimensions; i++) {
    uint64_t size = (uint64_t)array->shape[i];
    good = good && (size == 0 || n <= most / size);
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
