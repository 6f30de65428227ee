/* Any bytes as files of an importer, which the first byte chooses (or the name in HECATE_IMPORTER), and what axes of bare tables
 * mean. The second one chooses options, the third where the bytes are cut in two: files of ranks 0 and 1. The answer is OK or bad input, and records
 * are of the sizes that the header then says. */
#include "traces/import/axes.h"
#include "traces/import/import.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const hec_importer *choose(uint8_t byte) {
  static const hec_importer *fixed;
  const char *name = getenv("HECATE_IMPORTER");
  size_t n = 0;
  if (!fixed && name)
    fixed = hec_importer_find(name);
  if (fixed)
    return fixed;
  while (hec_importers[n])
    n++;
  return hec_importers[byte % n];
}

/* NULL (nobody says), or one of the readings. */
static const char *axes_of(uint8_t byte) {
  size_t n = 0, i = byte / 16;
  while (hec_readings[n].name)
    n++;
  return i % (n + 1) == n ? NULL : hec_readings[i % (n + 1)].name;
}

static hec_import_options options_of(uint8_t byte) {
  return (hec_import_options){.last_step = -1,
                              .top_k = byte & 1 ? 2 : 0,
                              .experts = byte & 2 ? 4 : 0,
                              .layers = byte & 4 ? 3 : 0,
                              .sum = byte & 8,
                              .ranks = byte & 16 ? 2 : 0,
                              .no_transitions = byte & 32,
                              .ep = byte & 64 ? 2 : 0,
                              .pp = byte & 128 ? 2 : 0};
}

static void read_all(hec_import *job) {
  hec_import_record record;
  hec_trace_header header;
  bool more = true;
  uint64_t sum = 0;
  while (hec_import_next(job, &record, &more) == HEC_OK && more) {
    hec_import_header(job, &header);
    HEC_ASSERT(header.n_layers == record.load.n_layers && header.n_experts == record.load.n_experts &&
               header.n_sources == record.load.n_sources && header.top_k <= header.n_experts);
    for (size_t i = 0; i < hec_load_cells(&record.load); i++)
      sum += record.load.counts[i];
  }
  HEC_ASSERT(!more);
  (void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char beside[] = "{\"num_experts\":3,\"num_experts_per_token\":2}";
  if (size < 3)
    return 0;
  const hec_importer *format = choose(data[0]);
  hec_import_options options = options_of(data[1]);
  options.axes = format->axes ? axes_of(data[0]) : NULL;
  options.gaps = data[0] & 8;
  size_t n = size - 3, first = data[2] == 0 ? n : n * data[2] / 256;
  hec_import_input inputs[3] = {
      {.path = "fuzz/0/rank0-layer-0", .bytes = (const char *)data + 3, .length = first},
      {.path = "fuzz/1/rank1-layer-0", .bytes = (const char *)data + 3 + first, .length = n - first},
      {.path = "fuzz/meta_info.json", .bytes = beside, .length = sizeof beside - 1}};
  if (first == n)
    inputs[1] = inputs[2];
  HEC_OPENED(hec_import) *job = NULL;
  if (hec_import_begin(format, &options, inputs, (format->beside ? 1 : 0) + (first == n ? 1 : 2), &job) == HEC_OK)
    read_all(job);
  return 0;
}
