/* Any bytes as a traffic matrix: an error, or a matrix that is written and read back equal. */
#include "models/traffic_matrix.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  HEC_SCOPED(hec_arena) arena = {0};
  hec_traffic_matrix once, twice;
  if (hec_traffic_matrix_parse((const char *)data, size, "fuzz", &arena, &once) == HEC_OK) {
    HEC_SCOPED(hec_text) text = {0};
    hec_traffic_matrix_write(&once, &text);
    if (hec_traffic_matrix_size(&once) < 0 ||
        hec_traffic_matrix_parse(text.data, text.length, "fuzz", &arena, &twice) != HEC_OK || twice.n != once.n ||
        memcmp(once.bytes, twice.bytes, (size_t)once.n * (size_t)once.n * sizeof *once.bytes) != 0)
      abort();
  }
  return 0;
}
