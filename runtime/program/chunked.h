/* For schedules that cut a layer's token work into chunks: all of the layer that they share. They differ in the
 * degree, and in when dense gradients are reduced. Chunks are computed while others travel; all else is as in
 * `serial`.
 *
 *   forward   COMPUTE  permute  [shared]  experts 1  experts 2 ..            | unpermute
 *             TOKEN             dispatch 1  dispatch 2 ..  combine 1  combine 2 ..
 *   backward  COMPUTE  unpermute'         experts' 1  experts' 2 ..          | permute'  [shared']  gate'  attention'
 *             TOKEN             combine' 1  combine' 2 ..  dispatch' 1  dispatch' 2 ..
 *
 * All dispatches stand before the first combine on their lane: that keeps the experts busy. */
#pragma once
#include "runtime/program/emit.h"

void hec_chunked_from_gate(hec_lowering *low, int32_t layer, int32_t degree);
/* Backward down to permute' and shared'; waits for `after`, too. Then gate' and attention'. Schedules that put something
 * between the last combine' and the first dispatch' call its two halves. */
typedef struct {
  int32_t unpermute, there[HEC_DEGREE_MAX]; /* [degree] the combines' of the chunks */
} hec_chunked_way;
hec_chunked_way hec_chunked_backward_there(hec_lowering *low, int32_t layer, int32_t after);
void hec_chunked_backward_back(hec_lowering *low, int32_t layer, const hec_chunked_way *way);
void hec_chunked_backward_tokens(hec_lowering *low, int32_t layer, int32_t after);
void hec_chunked_backward_dense(hec_lowering *low, int32_t layer);
/* Both, after one another; and dense gradients of all blocks after the backward: for schedules that reduce them on their own. */
void hec_chunked_backward(hec_lowering *low, int32_t layer);
void hec_chunked_end(hec_lowering *low);
