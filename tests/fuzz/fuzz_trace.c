/* Any bytes: the trace reader answers OK or bad input, touches nothing else, and gives the same answer after a rewind.
 */
#include "traces/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int64_t read_all(hec_trace_reader *reader, hec_status *status) {
  const hec_trace_record *record = NULL;
  int64_t n = 0;
  for (;; n++) {
    *status = hec_trace_next(reader, &record);
    if (!record)
      return n;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  HEC_OPENED(hec_trace_reader) *reader = NULL;
  if (hec_trace_open_memory((const char *)data, size, "fuzz", &reader) != HEC_OK)
    return 0;
  hec_status first = HEC_OK, second = HEC_OK;
  int64_t n = read_all(reader, &first);
  if (hec_trace_rewind(reader) == HEC_OK)
    HEC_ASSERT(read_all(reader, &second) == n && first == second);
  return 0;
}
