#!/usr/bin/env bash
# hecate-run alltoallv between devices: real ones where there are any, else those that tests emulate on the CPU. Ranks that share a
# device get transport local; with as many devices as ranks it is NCCL too.
source "$(dirname "$0")/../support/tool.sh"
run=("$build/hecate-run" alltoallv)
unset HECATE_MPI_UNIT

ready() { "$build/hecate-run" --backend list 2>/dev/null | grep -q '^  nccl .*\[available'; }
if ! ready; then
  export HECATE_PLUGINS=$build/fake FAKE_CUDA_DEVICES=3
  if ! ready; then
    echo "SKIPPED alltoallv_nccl: no device, and the fake of CUDA is not built (no compiler of CUDA was found by cmake)"
    exit 77
  fi
fi
printf '0 200000 150001\n50000 7 75003\n300000 150000 1000\n' >three
printf '0 1099511627776\n4 0\n' >large
devices=$("$build/hecate-run" --backend list | sed -n 's/^  nccl .*available: \([0-9]*\) device.*/\1/p')
transports=local
[ "${devices:-1}" -lt 3 ] || transports="local nccl"

for transport in $transports; do
  "${run[@]}" three --backend nccl --transport $transport --check --json >out.txt 2>err.txt ||
    fail "$transport: exit code $?: $(head -c 500 err.txt)"
  expect out.txt 'd["check"]' "{'passed': True, 'compared_bytes': 23150275, 'wrong_bytes': 0}"
  expect out.txt 'any("whole words" in l for l in d["limits"])' True
  expect out.txt '(d["backend"], d["transport"], d["ranks_are"])' "('nccl', '$transport', 'threads')"
done
tool=("${run[@]}" --backend nccl --transport local)
refuses 2 "its share of a device's memory is" large

[ $failures -eq 0 ] || exit 1
echo "devices: $devices, transports: $transports; all passed"
