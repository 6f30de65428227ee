/* See protobuf.h. */
#include "runtime/base/protobuf.h"

#include <string.h>

enum { VARINT = 0, LENGTH = 2, VARINT_BYTES_MAX = 10 };

void hec_protobuf_varint(hec_text *out, uint64_t value) {
  char bytes[VARINT_BYTES_MAX];
  size_t n = 0;
  for (; value >= 0x80; value >>= 7)
    bytes[n++] = (char)(unsigned char)(value | 0x80);
  bytes[n++] = (char)(unsigned char)value;
  hec_text_add_bytes(out, bytes, n);
}

void hec_protobuf_number(hec_text *out, uint32_t field, uint64_t value) {
  hec_protobuf_varint(out, (uint64_t)field << 3 | VARINT);
  hec_protobuf_varint(out, value);
}

void hec_protobuf_bytes(hec_text *out, uint32_t field, const char *bytes, size_t n) {
  hec_protobuf_varint(out, (uint64_t)field << 3 | LENGTH);
  hec_protobuf_varint(out, n);
  hec_text_add_bytes(out, bytes, n);
}

void hec_protobuf_string(hec_text *out, uint32_t field, const char *string) {
  hec_protobuf_bytes(out, field, string, strlen(string));
}
