#!/usr/bin/env bash
# hecate-run and hecate-validate on imitated devices (fake.h) as a user meets them. What they refuse and in which words, what
# they say of shared and of imitated devices, calibrations that are used again. Signals, and failures in the middle.
# Whatever happens they end by themselves and leave nothing half behind.
source "$(dirname "$0")/imitated.sh"
export FAKE_CUDA_DEVICES=2
run=("$build/hecate-run" "$sample" --backend nccl --steps 2 --policy ep,hecate)
quick=(--layers 1 --tokens 32)
tiny=(--model tiny --ranks 2 --tokens 32 --layers 1 --repeat 2)
other=(compare "$sample" --backend nccl --model tiny --layers 1 --steps 1 --policy ep,hecate) # but for the rest of tiny
compare=("${other[@]}" --ranks 2 --tokens 32 --repeat 2)

# accepts ARGS...: it works, with what it says in out.txt and warnings in err.txt.
accepts() {
  "${tool[@]}" "$@" >out.txt 2>err.txt || fail "exit code $?: $*: $(head -c 300 err.txt)"
}
hasnot() {
  ! grep -qiF -- "$1" "${2:-out.txt}" || fail "${2:-out.txt} says \"$1\": $(grep -iF -- "$1" "${2:-out.txt}" | head -1)"
}

# Wrong and impossible: before anything runs, and nothing is written.
tool=("${run[@]}" --out refused)
refuses 2 "--ranks: expected at most the 256 ranks" --ranks 257
refuses 2 "--transport: expected one of local, nccl, found \"emulated\"" --transport emulated
refuses 2 "--virtual: expected transport local, found nccl" --virtual --transport nccl --ranks 2
refuses 2 "expected one of fp32, tf32, bf16, found \"fp64\"" --precision fp64
refuses 2 "its tolerance is that of float32" --precision bf16 --check
refuses 2 "share is 17.2" --ranks 2 --tokens 100000000
refuses 2 "share is 8.59" --ranks 3 --tokens 100000000
FAKE_CUDA_DEVICES=0 refuses 2 "--backend nccl: no CUDA-capable device is detected"
refuses 1 ": rank " --ranks 2 --layers 1 --tokens 1024 --timeout 0.01
tool=("$build/hecate-run" "$sample")
refuses 2 "backend cpu has products in fp32 only" --precision bf16
refuses 2 "backend mpi has products in fp32 only" --precision tf32 --backend mpi
refuses 2 "expected one of shm, emulated, paced, found \"local\"" --transport local
tool=("$build/hecate-validate")
refuses 2 "of its device's memory" "${other[@]}" --ranks 2 --repeat 2 --tokens 100000000 --out refused
refuses 2 "of its device's memory" calibrate --backend nccl --model tiny --ranks 2 --layers 1 --repeat 2 --tokens 100000000 --out refused
FAKE_CUDA_DEVICES=0 refuses 2 "no CUDA-capable device" "${compare[@]}" --out refused
[ ! -e refused ] || fail "something was written: $(ls refused)"

# Ranks that share a device, an imitation, and no word of cores where devices compute.
tool=("${run[@]}")
FAKE_CUDA_DEVICES=1 accepts --ranks 2 "${quick[@]}"
has "a device does the work of all its ranks at once, which no prediction describes"
has "the devices are emulated on the CPU"
has "No fastest is named: 2 ranks shared 1 device."
has "times are of 2 ranks on 1 device; use --virtual" err.txt
hasnot "core"
[ "$(nproc)" -lt 2 ] || FAKE_CUDA_DEVICES=1 accepts --ranks 2 --pin "${quick[@]}"
hasnot "--pin" err.txt
accepts --ranks 2 --cluster "1x2 nvlink=100G@2us flops=100T mem=40G" "${quick[@]}"
hasnot "core"
accepts --ranks 3 --virtual --precision bf16 "${quick[@]}"
has "products in bfloat16"
has "one operation of one rank at a time"
hasnot "shared"
hasnot "core"

# Processes of mpirun have a device each, however many of them this one sees. NCCL's fake knows one process only.
mpirun=(mpirun -n 2 --oversubscribe --allow-run-as-root)
if "${mpirun[@]}" true 2>/dev/null; then
  "${mpirun[@]}" "${run[@]}" >out.txt 2>err.txt && fail "the fake of NCCL joins processes"
  has "in connecting the devices: NCCL" err.txt
  hasnot "times are of" err.txt
  "${mpirun[@]}" "${run[@]}" --virtual >out.txt 2>err.txt && fail "virtual time of processes"
  has "--virtual: its ranks are threads of one process" err.txt
else
  echo "SKIPPED cuda.tools (processes): no mpirun of Open MPI"
fi

# A calibration of devices is used again, by the same number of ranks, in the same time and precision.
tool=("$build/hecate-validate")
accepts calibrate --backend nccl --virtual "${tiny[@]}" --out here.json
has "Devices are not probed"
hasnot "contaminated"
hasnot "core"
expect here.json 'd["calibration"]["ranks"], d["machine"]["transport"], d["machine"]["devices"]' "(2, 'virtual', 2)"
accepts "${compare[@]}" --virtual --calibration here.json
has "calibrated before, here.json"
hasnot "core"
sed 's/"device": "fake/"device": "another/' here.json >other.json
accepts "${compare[@]}" --virtual --calibration other.json
has "calibration: of another device than this one holds here"
refuses 2 "expected one of 1 ranks" "${other[@]}" --tokens 32 --repeat 2 --virtual --ranks 1 --calibration here.json
refuses 2 "found nccl and virtual" "${compare[@]}" --calibration here.json
refuses 2 "products in TF32, as this run, found" "${compare[@]}" --virtual --precision tf32 --calibration here.json
accepts calibrate --backend nccl --transport local "${tiny[@]}" --out local.json
accepts "${compare[@]}" --transport local --calibration local.json --out compared
has "transport local"
[ "$(ls compared | wc -l)" = 5 ] || fail "not all files: $(ls compared)"

# ends CODE SIGNAL AFTER COMMAND...: a run of minutes is ended by the signal, wherever it is, and nothing is left.
ends() {
  local code=$1 signal=$2 after=$3 got
  shift 3
  rm -rf left
  set -m # without job control a command in the background ignores SIGINT; so it does where this test itself does
  env --default-signal=INT "$@" >out.txt 2>err.txt &
  sleep "$after"
  kill "-$signal" $!
  wait $! 2>/dev/null
  got=$?
  set +m
  [ $got = "$code" ] || fail "exit code $got after SIG$signal: $*"
  [ ! -e left ] && [ ! -s out.txt ] || fail "SIG$signal left something: $*"
}
for after in 0.1 0.7; do
  ends 130 INT $after "$build/hecate-run" "$sample" --backend nccl --ranks 2 --tokens 2048 --out left
  ends 143 TERM $after "$build/hecate-validate" "${other[@]}" --ranks 2 --tokens 2048 --virtual --repeat 1000 --within 10m --out left
done

# Failures in the middle of a comparison, each at a place of its own.
fails() {
  refuses 1 ": rank " "${compare[@]}" --out left "$@"
  grep -Eq "^hecate-validate: rank [01], in .*: .+" err.txt || fail "no place: $(cat err.txt)"
  [ ! -e left ] || fail "a failure left something: $(ls left)"
}
for what in launch:900 cudaMemcpyAsync:400 cudaEventRecord:2000 cublasGemmEx:60; do
  FAKE_CUDA_FAIL=$what FAKE_CUDA_SEED=${#what} fails --virtual
  FAKE_CUDA_FAIL=$what FAKE_CUDA_SEED=${#what} fails
done
FAKE_NCCL_FAIL=rank:1,after:200 fails --transport nccl

[ "$failures" -eq 0 ] || exit 1
echo "hecate-run and hecate-validate on imitated devices: refusals, words, signals, failures"
