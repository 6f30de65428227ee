/* Messages between devices: not there yet. */
#include "runtime/exec/cuda/own.h"

const hec_cuda_messages hec_cuda_messages_table = {0};
