/* Megatron-LM names a layer by block ("decoder" or "mtp"), by the MTP block's number where it is one, and by its number
 * inside the block. With pipeline parallelism the number counts from the stage's first layer (--pp). */
#include "traces/import/megatron_layer.h"

#include <string.h>

hec_status hec_megatron_assume_stage(hec_import *job, const hec_import_input *beside) {
  (void)beside;
  if (hec_import_options_of(job)->pp == 0 && hec_import_ranks(job) > 1)
    hec_import_assume(job, "one pipeline stage (--pp)");
  return HEC_OK;
}

hec_status hec_megatron_scan_block(hec_scan *scan, hec_text *text, bool *mtp) {
  HEC_TRY(hec_scan_text(scan, text));
  *mtp = strcmp(text->data, "mtp") == 0;
  if (*mtp || strcmp(text->data, "decoder") == 0)
    return HEC_OK;
  return hec_scan_fail(scan, "another text", "\"decoder\" or \"mtp\"");
}
