/* What both of Megatron-LM's logs say of a layer. */
#ifndef HEC_TRACES_IMPORT_MEGATRON_LAYER_H
#define HEC_TRACES_IMPORT_MEGATRON_LAYER_H
#include "traces/import/importer.h"

enum { HEC_MEGATRON_LAYER_MAX = (1 << 20) - 2 };

/* For an importer's begin: says that one stage is assumed, where nobody has said how many. */
void hec_megatron_assume_stage(hec_import *job);
/* "decoder" or "mtp": *mtp. */
hec_status hec_megatron_scan_block(hec_scan *scan, hec_text *text, bool *mtp) HEC_MUST_USE;
hec_status hec_megatron_scan_int(hec_scan *scan, uint64_t most, int64_t *value) HEC_MUST_USE;

#endif
