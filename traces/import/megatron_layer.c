/* Megatron-LM names a layer by block ("decoder" or "mtp"), by the MTP block's number where it is one, and by its number
 * inside the block; with pipeline parallelism the number counts from the stage's first layer (--pp). */
#include "traces/import/megatron_layer.h"

#include <string.h>

void hec_megatron_assume_stage(hec_import *job) {
  if (hec_import_options_of(job)->pp == 0 && hec_import_ranks(job) > 1)
    hec_import_assume(job, "one pipeline stage (--pp)");
}

hec_status hec_megatron_scan_block(hec_scan *scan, hec_text *text, bool *mtp) {
  HEC_TRY(hec_scan_text(scan, text));
  *mtp = strcmp(text->data, "mtp") == 0;
  if (*mtp || strcmp(text->data, "decoder") == 0)
    return HEC_OK;
  return hec_scan_fail(scan, "another text", "\"decoder\" or \"mtp\"");
}

hec_status hec_megatron_scan_int(hec_scan *scan, uint64_t most, int64_t *value) {
  uint64_t read = 0;
  HEC_TRY(hec_scan_integer(scan, 0, most, &read));
  *value = (int64_t)read;
  return HEC_OK;
}
