#!/usr/bin/env bash
# tools/gpu-check from outside: where there is no device it says why and leaves nothing behind. Where there is one it runs
# every step within its time, judges by the numbers, and keeps one whole report. The device, the tools of hecate and those of
# CUDA are stand-ins here, in a copy of the scripts. So no report of theirs can get into this tree.
# shellcheck disable=SC2016 # single quotes on purpose: other shells expand these
. "$(dirname "$0")/../support/tool.sh"
tool=("$source_dir/tools/gpu-check")
unset HECATE_PLUGINS
reports() { ls "$source_dir/validate/results"; }
before=$(reports)

# ---- Without a device ----

"${tool[@]}" --help >out.txt 2>err.txt || fail "--help: exit $?"
for option in --packages --fetch --with-cmake --build --no-build --seconds --steps --plugins; do has "  $option "; done
refuses 2 "unknown option --what" --what
refuses 2 "--seconds: expected a number, found soon" --seconds soon
refuses 2 "--steps: found bench,dance" --steps bench,dance
refuses 2 "--packages: expected a value" --packages
refuses 2 "no such folder" --plugins "$work/nowhere"

# script NAME TEXT: a stand-in, first in the PATH.
mkdir bin
PATH=$work/bin:$PATH
script() {
  printf '#!/bin/sh\n%s\n' "$2" >"$1"
  chmod +x "$1"
}

# no_device PART: exit code 77, the reason on stdout.
no_device() {
  "${tool[@]}" >out.txt 2>err.txt
  local rc=$?
  [ $rc -eq 77 ] || fail "exit code $rc, expected 77: $(head -c 300 out.txt err.txt)"
  has "SKIPPED gpu-check: "
  has "$1"
}
script bin/nvidia-smi 'echo "NVIDIA-SMI has failed because it could not communicate with the driver."; exit 9'
no_device "could not communicate with the driver"
script bin/nvidia-smi 'echo "No devices found."'
no_device "nvidia-smi sees no GPU: No devices found."

# ---- With stand-ins ----

mkdir -p tree/tools tree/validate/results made/Testing/Temporary
: >made/Testing/Temporary/LastTest.log
cp "$source_dir"/tools/{gpu-check,gpu-packages.sh,setup.sh,steps.sh} tree/tools/
tool=("$work/tree/tools/gpu-check" --no-build --build "$work/made")
export state=$work/state
mkdir state
kept=$work/tree/validate/results/gpu-nvidia-h999-pro.md

script bin/nvidia-smi 'echo "GPU 0: NVIDIA H999 Pro"'
script bin/python3 'exit 1' # it is asked where NCCL is, each time
script bin/ctest 'echo "1/1 Test #1: exec.cuda ....   Passed    0.10 sec"; [ ! -e "$state/ctest" ]'
script bin/compute-sanitizer '[ ! -e "$state/refused" ] || { echo "========= Error: Device not supported."; exit 1; }
[ ! -e "$state/race" ] || [ "$2" != racecheck ] || { echo "========= RACECHECK SUMMARY: 1 hazard"; exit 9; }
echo "========= ERROR SUMMARY: 0 errors"'
script made/hecate-bench 'case $2 in --list)
  [ ! -e "$state/none" ] || { echo "hecate-bench: no GPU can be used: no CUDA driver" >&2; exit 2; }
  [ ! -e "$state/crash" ] || exit 139
  echo "device 0  NVIDIA H999 Pro, compute capability 9.0, 1 processors, 1.0 GB"
  [ ! -e "$state/second" ] || echo "device 1  NVIDIA H999 Pro, compute capability 9.0, 1 processors, 1.0 GB" ;;
*) echo "  add  1 [1,1] GB/s 0.9 of copy; required 0.85: met"
  [ ! -e "$state/missed" ] || echo "  adam  1 [1,1] GB/s 0.7 of copy; required 0.85: missed" ;; esac'
script made/hecate-run '[ "$1" != --backend ] || { echo "  nccl    GPUs [$(cat "$state/backend" 2>/dev/null || echo available)]"; exit; }
case "$*" in *--json) echo "  \"host_late_share\": $(cat "$state/late" 2>/dev/null || echo 0.021),"; exit ;; esac
echo "ep serial 1.0 passed 1e-7 of 1e-5"
case "$*" in *"--ranks 8"*) [ ! -e "$state/differs" ] || { echo "ep: gradients differ"; exit 1; } ;; esac'
script made/test.exec '[ ! -e "$state/nccl" ] || { echo "rank 1: numbers that came: wrong"; exit 1; }
[ ! -e "$state/alone" ] || echo "SKIPPED exec.nccl_processes: no device"'
script made/hecate-validate 'out=; while [ $# -gt 0 ]; do [ "$1" != --out ] || out=$2; shift; done
mkdir -p "$out"; printf "# Predicted against measured\n\n## Operations\n" >"$out/compare.md"
cat "$state/summary" >"$out/summary.json"'
# The form in which hec_json_out writes it, members of inner objects under the same names first.
summary() {
  printf '{\n  "policies": [\n    {\n      "error": {\n        "median": 9,\n        "p90": 9\n      },\n      "pairs_5pct": 0\n    }\n  ],\n' >state/summary
  printf '  "error": {\n    "median": %s,\n    "p90": %s,\n    "worst": 0.3\n  },\n' "$1" "$2" >>state/summary
  printf '  "error_uncorrected": {\n    "median": 8,\n    "p90": 8\n  },\n  "pairs_5pct": %s,\n  "wrong_5pct": %s,\n  "end": 0\n}\n' "$3" "$4" >>state/summary
}
summary 0.021 0.0588 40 0

# runs CODE LAST ARGS...: exit code, and the closing line.
runs() {
  local code=$1 last=$2
  shift 2
  "${tool[@]}" "$@" >out.txt 2>err.txt
  local got=$?
  [ $got -eq "$code" ] || fail "exit code $got, expected $code: $*: $(tail -n 5 out.txt err.txt)"
  [ "$(tail -n 1 out.txt)" = "$last" ] || fail "last line \"$(tail -n 1 out.txt)\", expected \"$last\": $*"
}

runs 0 "14 passed, 0 failed, 2 skipped"
has "Report: validate/results/gpu-nvidia-h999-pro.md"
[ "$(ls tree/validate/results)" = gpu-nvidia-h999-pro.md ] || fail "left behind: $(ls -A tree/validate/results)"
has "# GPU: NVIDIA H999 Pro" "$kept"
has "| machine | passed | NVIDIA H999 Pro |" "$kept"
has "| build | skipped | --no-build |" "$kept"
has "| tests | passed | 1 passed, 0 failed, 0 skipped |" "$kept"
has "| memcheck | passed | hecate-bench gpu --small: ERROR SUMMARY: 0 errors |" "$kept"
has "| nccl | passed | 3 processes on one device: " "$kept"
has "| nccl | skipped | hecate-run --transport nccl: one device only" "$kept"
[ "$(grep -c '^| check | passed | [48] ranks' "$kept")" -eq 2 ] || fail "not both numbers of ranks"
has "| serial | passed | error: median 2.1 % (at most 3 %), p90 5.9 % (at most 6 %); 0 of 40 pairs" "$kept"
has "| concurrent | passed | error: median 2.1 % (not judged), p90" "$kept"
has "| policies | passed | error: median 2.1 % (not judged), p90 5.9 % (not judged); 0 of 40 pairs" "$kept"
has "| executor | passed | idle for a late host, 8192 tokens a rank, bf16: 2.1 % (at most 3 %)" "$kept"
has "## Predicted against measured: concurrent" "$kept"
has "### Operations" "$kept"

# fails NAME EXPECTED-ROW [FILE]: one thing is wrong at a time: it alone fails, the exit code is 1, the report says it.
fails() {
  rm -f "$kept"
  touch "state/$1"
  "${tool[@]}" >out.txt 2>err.txt
  local got=$?
  [ $got -eq 1 ] || fail "$1: exit code $got"
  has "$2" "$kept"
  [ "$(grep -c '^|.*| failed |' "$kept")" -eq "${3-1}" ] || fail "$1: $(grep '^|.*| failed |' "$kept")"
  rm "state/$1"
}
fails ctest "| tests | failed |"
fails race "| racecheck | failed | hecate-run, 2 ranks: exit code 9"
fails nccl "| nccl | failed | processes on one device: exit code 1: rank 1: numbers that came: wrong |"
fails differs "| check | failed | 8 ranks: exit code 1: ep serial 1.0 passed 1e-7 of 1e-5 ep: gradients differ |"
fails missed "| bench | failed | 1 of 2 shares are below what is required |"
echo 0.0301 >state/late
fails lateness "| executor | failed | idle for a late host, 8192 tokens a rank, fp32: 3.0 % (at most 3 %)" 2
rm state/late
for bad in "0.0301 0.05 40 0 1" "0.01 0.061 40 0 1" "0.01 0.02 40 3 2" "null null 0 0 3"; do
  # shellcheck disable=SC2086 # four numbers
  summary ${bad% *}
  fails summary "| serial | failed | " "${bad##* }"
done
summary 0.01 0.02 40 1
fails summary "| policies | failed | "
summary 0.01 0.02 40 0

# Skips say why and are no failure.
touch state/refused
runs 0 "11 passed, 0 failed, 3 skipped"
has "| memcheck | skipped | compute-sanitizer does not work here: ========= Error: Device not supported." "$kept"
rm state/refused
echo 'not available: 1 device found, but no memory' >state/backend
runs 0 "9 passed, 0 failed, 4 skipped"
has "| compare | skipped | 1 device found, but no memory |" "$kept"
rm state/backend
touch state/alone state/second
runs 0 "14 passed, 0 failed, 2 skipped"
has "| nccl | skipped | processes on one device: no device |" "$kept"
has "| nccl | passed | 2 ranks: 1 policies" "$kept"
rm state/alone state/second
runs 0 "2 passed, 0 failed, 7 skipped" --steps bench
has "| compare | skipped | not asked for |" "$kept"

# Time: a step that takes longer than what is left ends, the next ones are left out. The clock is a stand-in, on which only
# the benchmark takes time, and so is `timeout`, which counts what it would have waited.
script bin/date 'case $1 in +%s) cat "$state/now" ;; *) exec /bin/date "$@" ;; esac'
script bin/timeout 'shift; limit=$1; shift; cost=0
case "$1 $2 $3" in */hecate-bench\ gpu\ --list) ;; */hecate-bench\ gpu\ *) cost=$(cat "$state/cost") ;; esac
passed=$cost; [ "$cost" -le "$limit" ] || passed=$limit
echo $(($(cat "$state/now") + passed)) >"$state/now"
[ "$cost" -le "$limit" ] || exit 124
exec "$@"'
timed() { # COST CODE LAST ARGS...: a run whose benchmark takes COST seconds
  echo 1000 >state/now
  echo "$1" >state/cost
  runs "${@:2}"
}
timed 100 1 "5 passed, 1 failed, 5 skipped" --seconds 26
has "| bench | failed | not done in time | 26 s |" "$kept"
has "| executor | skipped | 0 of 26 s left, it needs 20 |" "$kept"
has "| compare | skipped | 0 of 26 s left, it needs 60 |" "$kept"
timed 30 0 "9 passed, 0 failed, 5 skipped" --seconds 80
has "| bench | passed | 1 shares are what is required | 30 s |" "$kept"
has "| compare | skipped | 50 of 80 s left, it needs 60 |" "$kept"
rm bin/date bin/timeout

# No device after all: nothing is kept, not even an old report is touched; a crash is no skip.
cp "$kept" old.md
touch state/none
"${tool[@]}" >out.txt 2>err.txt
[ $? -eq 77 ] || fail "no device after the build: exit code $?"
has "SKIPPED gpu-check: no GPU can be used: no CUDA driver"
cmp -s old.md "$kept" || fail "the report was touched"
rm state/none
touch state/crash
"${tool[@]}" >out.txt 2>err.txt
[ $? -eq 1 ] || fail "a crash: exit code $?"
rm state/crash

# Plug-ins of one's own: never kept.
rm "$kept"
runs 0 "5 passed, 0 failed, 5 skipped" --plugins "$work"
has "Not kept: results exist only for real devices."
has "# GPU: NVIDIA H999 Pro"
[ -z "$(ls -A tree/validate/results)" ] || fail "kept: $(ls tree/validate/results)"

# ---- Over the fake ----

if [ -e "$build/fake/hecate-cuda.so" ]; then
  tool=("$source_dir/tools/gpu-check" --no-build --build "$build" --plugins "$build/fake" --steps bench)
  runs 0 "2 passed, 0 failed, 7 skipped"
  has "emulated on the CPU: times mean nothing"
  has "| bench | passed | it runs; emulated or small: its times mean nothing and are not judged |"
  has "Not kept: results exist only for real devices."
else
  echo "SKIPPED tools.gpu_check (fake): the fake of CUDA is not built here"
fi

# README.md says what was measured: nothing, as long as there is no report of a device; then it names each.
measured=$(cd "$source_dir/validate/results" && compgen -G 'gpu-*.md')
if [ -z "$measured" ]; then
  has "Measured on a GPU so far: nothing." "$source_dir/docs/running.md"
else
  ! grep -qF "Measured on a GPU so far: nothing." "$source_dir/docs/running.md" || fail "docs/running.md knows nothing of $measured"
  for name in $measured; do has "validate/results/$name" "$source_dir/README.md"; done
fi
[ "$(reports)" = "$before" ] || fail "validate/results changed: $(reports)"
[ "$failures" -eq 0 ]
