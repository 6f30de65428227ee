/* The plug-in's kernels, compiled for the CPU (cuda_emulation.h). */
#include "runtime/exec/cuda/kernels.cu"
