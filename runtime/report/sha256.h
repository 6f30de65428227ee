/* The digest by which the page's policy knows its one script. */
#ifndef HEC_REPORT_SHA256_H
#define HEC_REPORT_SHA256_H
#include <stddef.h>

enum { HEC_SHA256_BASE64_BYTES = 45 };
/* SHA-256 in base64, zero-terminated. */
void hec_sha256_base64(const char *data, size_t length, char out[HEC_SHA256_BASE64_BYTES]);

#endif
