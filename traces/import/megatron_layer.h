/* What both of Megatron-LM's logs say of a layer. */
#pragma once
#include "traces/import/importer.h"

enum { HEC_MEGATRON_LAYER_MAX = (1 << 20) - 2 };

/* An importer's begin: says that one stage is assumed, where nobody has said how many. */
hec_status hec_megatron_assume_stage(hec_import *job, const hec_import_input *beside) HEC_MUST_USE;
/* "decoder" or "mtp": *mtp. */
hec_status hec_megatron_scan_block(hec_scan *scan, hec_text *text, bool *mtp) HEC_MUST_USE;
