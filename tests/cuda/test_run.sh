# hecate-run on imitated devices (fake.h). Numbers are right in every order, over both links, and whatever fails is told in
# one line by a process that ends by itself. Usage: test_run.sh BUILD_DIR
source "$(dirname "$0")/imitated.sh"

# run TRANSPORT DEVICES STEPS [VARIABLE=VALUE...]: exit status in $status, output in $work/out and $work/err.
run() {
  local transport=$1 devices=$2 steps=$3
  shift 3
  env "FAKE_CUDA_DEVICES=$devices" "$@" timeout 300 "$build/hecate-run" "$sample" --backend nccl \
    --transport "$transport" --ranks 4 --tokens 32 --layers 2 --steps "$steps" --policy hecate,fsdp --check >"$work/out" 2>"$work/err"
  status=$?
  grep -v "warning: times are of" "$work/err" >"$work/said"
}

# What the command said goes with each failure.
fail() {
  echo "FAILED: $*"
  cat "$work/said"
  failures=$((failures + 1))
}

# What NCCL is given: groups, on streams of their own; messages without bytes would cost time each. A log is of one run: streams are
# numbered as they were made, which may differ from run to run.
check_log() {
  grep -q " nccl [0-9]* .*send .*receive " "$work/log" || fail "seed $1: no group of messages in the log"
  grep -Eq "(send|receive) [0-9]+ 0( |$)" "$work/log" && fail "seed $1: a message of no bytes"
  grep -q " cublasGemm" "$work/log" || fail "seed $1: no product in the log"
  awk '$3 == "nccl" { messages[$1 " " $2] = 1 } $3 ~ /^cublasGemm/ { products[$1 " " $2] = 1 }
       END { for (s in messages) if (s in products) { print "stream " s; exit 1 } }' "$work/log" >"$work/said" ||
    fail "seed $1: products and messages on one stream"
}

for seed in 1 2; do
  run nccl 4 2 FAKE_CUDA_SEED=$seed "FAKE_CUDA_LOG=$work/log"
  [ "$status" = 0 ] || fail "nccl, seed $seed: exit status $status"
  check_log $seed
  rm "$work/log"
  run local 1 2 FAKE_CUDA_SEED=$seed
  [ "$status" = 0 ] || fail "local on one device, seed $seed: exit status $status"
done
run local 3 2
[ "$status" = 0 ] || fail "local on three devices: exit status $status"

# fails WORDS: it did, with one line that has them.
fails() {
  [ "$status" -gt 0 ] && [ "$status" -lt 124 ] || fail "$1: exit status $status"
  [ "$(wc -l <"$work/said")" = 1 ] || fail "$1: not one line"
  grep -q -e "$2" "$work/said" || fail "$1: not said: $2"
}
run nccl 4 2 FAKE_NCCL_FAIL=rank:2,after:12
fails "a rank that NCCL loses" "hecate-run: rank [0-3], in .*network error"
run local 1 2 FAKE_CUDA_FAIL=launch:150
fails "a kernel that fails" "hecate-run: rank [0-3], in .*unspecified launch failure"
run nccl 4 2 FAKE_CUDA_FAIL=launch:150
fails "a kernel that fails beside NCCL" "hecate-run: rank [0-3], in "

# Each call that can fail, the first, the second and so on, until all succeed.
for call in cudaMalloc cudaHostAlloc cublasCreate cudaEventCreate ncclCommInitRank; do
  for ((k = 1; k < 1000; k = k + 1 + k / 2)); do
    run nccl 4 1 "FAKE_CUDA_FAIL=$call:$k"
    [ "$status" = 0 ] && break
    fails "$call $k" "hecate-run: rank [0-3], in "
  done
  [ "$status" = 0 ] || fail "$call never succeeds"
  [ "$k" -gt 1 ] || fail "$call is never called"
done

[ "$failures" -eq 0 ] || exit 1
echo "hecate-run on imitated devices: right in every order, failures told"
