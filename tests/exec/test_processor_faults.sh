#!/usr/bin/env bash
# The CUDA plug-in while CUDA fails: every call that it makes, one after the other, until none is left to fail
# (program_processor.c, over the fake of tests/cuda). A failure is always said, and nothing crashes or hangs.
. "$(dirname "$0")/../support/tool.sh"
if [ ! -e "$build/fake/hecate-cuda.so" ]; then
  echo "SKIPPED exec.processor_faults: the fake of CUDA is not built: no CUDA was found, or an instrumented build"
  exit 77
fi
export HECATE_PLUGINS=$build/fake

# runs CODE ARGS...: exit code CODE, with words exactly when it is 3.
outcome() {
  timeout 300 "$build/program_processor" "$@" >out.txt 2>err.txt
  code=$?
  case $code in
  0) [ ! -s err.txt ] || fail "$FAKE_CUDA_FAIL: no failure, but words: $(cat err.txt)" ;;
  3) [ "$(wc -l <err.txt)" -eq 1 ] || fail "$FAKE_CUDA_FAIL: not one line: $(cat err.txt)" ;;
  *) fail "$FAKE_CUDA_FAIL: exit code $code: $(cat out.txt err.txt)" ;;
  esac
}

# each CALL AT_LEAST ARGS...: fails the first, the second, ... until there are no more; there are AT_LEAST.
each() {
  local call=$1 at_least=$2 k=1
  shift 2
  for (( ; k <= 400; k++)); do
    export FAKE_CUDA_FAIL=$call:$k
    outcome "$@"
    [ "$code" -eq 3 ] || break
  done
  [ "$k" -gt "$at_least" ] || fail "$call: only $((k - 1)) failures were said"
  [ "$k" -le 400 ] || fail "$call: there is no end to it"
}

FAKE_CUDA_FAIL= outcome
[ "$code" -eq 0 ] || fail "without failures: $(cat out.txt err.txt)"
each cudaMalloc 4
each cudaMalloc 5 bf16
each cudaHostAlloc 2
each cudaStreamCreate 6
each cudaStreamSynchronize 10
each cudaStreamWaitEvent 3
each cudaEventCreate 4
each cudaEventRecord 10
each cudaEventSynchronize 8
each cudaEventQuery 3
each cudaEventElapsedTime 3
each cudaMemcpyAsync 6
each cudaLaunchKernel 6
each cudaLaunchKernel 9 bf16
each launch 6
each launch 9 bf16
each cudaSetDevice 10
each cublasCreate 1
# Before messages wait for other ranks: see hec_cuda_gemm_open.
FAKE_CUDA_FAIL=cublasCreate:1 outcome
grep -q '^the device cannot be used: ' err.txt || fail "cublasCreate is not called when a device is opened: $(cat err.txt)"
each cublasGemmEx 3
each cublasGemmBatchedEx 3
each cublasGemmGroupedBatchedEx 3

# What only ends things: its failure is nobody's.
for call in cudaFree cudaFreeHost cudaEventDestroy cudaStreamDestroy; do
  export FAKE_CUDA_FAIL=$call:1
  outcome
  [ "$code" -eq 0 ] || fail "$call: $(cat out.txt err.txt)"
done
[ "$failures" -eq 0 ]
