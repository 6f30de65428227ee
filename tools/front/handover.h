/* Texts from a rank to whoever started it: an unnamed file in memory, open on both sides of a fork. */
#pragma once
#include "runtime/base/text.h"

typedef struct {
  int file;
} hec_handover;

hec_status hec_handover_open(hec_handover *handover) HEC_MUST_USE;
/* Adds a text; HEC_FAILED when memory is full. */
hec_status hec_handover_put(hec_handover *handover, const hec_text *text) HEC_MUST_USE;
/* Once every text is put: back to the first. Then they come in the order in which they were put. */
hec_status hec_handover_rewind(hec_handover *handover) HEC_MUST_USE;
hec_status hec_handover_get(hec_handover *handover, hec_text *text) HEC_MUST_USE;
/* Puts these texts and frees them (the rank may be a thread of the process that gets them), or gets what was put. */
hec_status hec_handover_texts(hec_handover *handover, bool put, hec_text *const *texts, int32_t n) HEC_MUST_USE;
void hec_handover_close(hec_handover *handover);
