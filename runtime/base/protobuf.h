/* Protocol Buffers, the wire format, writing only (protobuf.dev/programming-guides/encoding): a message is a sequence of
 * fields, each a varint (field << 3 | type) and its value. Types here: 0, a varint; 2, a varint length and so many bytes:
 * texts, messages, packed repeated numbers. A varint has 7 bits a byte, the lowest first, the top bit set on all but the
 * last. A nested message is written into a text of its own first. Own code: thirty lines stand
 * for a library and its generator. */
#pragma once
#include "runtime/base/text.h"

void hec_protobuf_varint(hec_text *out, uint64_t value);
void hec_protobuf_number(hec_text *out, uint32_t field,
                         uint64_t value); /* uint32, uint64, bool, enum; int64, int32 >= 0 */
void hec_protobuf_bytes(hec_text *out, uint32_t field, const char *bytes, size_t n);
void hec_protobuf_string(hec_text *out, uint32_t field, const char *string);
