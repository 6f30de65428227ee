# Every policy on imitated devices (fake.h) against the dense reference: 4 ranks that share one, 4 ranks over NCCL. Those that
# move parameters in virtual time and under each sparse collective. Rows that travel once per node; in another order of the
# devices each time. Usage: test_policies.sh BUILD_DIR
source "$(dirname "$0")/imitated.sh"
seed=0
all=$("$build/hecate-run" --list | awk '/^policies/ { on = 1; next } /^schedules/ { on = 0 } on && /^  [a-z]/ { n++ } END { print n }')

policies=all n_policies=$((all - 2)) # all but the bound that nothing can execute, and the one of a file

# As small as goes: what is tested is where numbers go. Products and kernels of every size: exec.processor_cuda over the fake.
"$build/hecate-sim" --preset tiny | sed 's/"d_model": 64/"d_model": 16/; s/"d_ffn": 128/"d_ffn": 24/' >model.json
grep -q '"d_model": 16, "d_ffn": 24' model.json || fail "preset tiny is another: $(cat model.json)"

# check TRANSPORT DEVICES RANKS ARGUMENT...: $n_policies of $policies pass, and their sums are exact.
check() {
  local transport=$1 devices=$2 ranks=$3
  shift 3
  seed=$((seed + 1))
  FAKE_CUDA_DEVICES=$devices FAKE_CUDA_SEED=$seed timeout 300 "$build/hecate-run" "$sample" \
    --model model.json --backend nccl --transport "$transport" --ranks "$ranks" --tokens 12 --layers 2 --steps 2 --policy $policies --check "$@" \
    >"$work/out" 2>"$work/err"
  local status=$? passed
  passed=$(grep -c ' passed .*, exact$' "$work/out")
  if [ "$status" != 0 ] || [ "$passed" != $n_policies ]; then
    fail "$transport, $ranks ranks $*: exit status $status, $passed of $n_policies policies passed"
    cat "$work/err"
  fi
}

machine="4x2 nvlink=300G@2us nic=25G@5us flops=312T mem=40G"
check local 1 4
check nccl 4 4
policies=fsdp,fastermoe,hecate,hecate-rm,laer,prophet,symi,ultraep n_policies=8
check local 3 4 --virtual
for collective in direct two_level chain; do # half of them over each link, in turn
  policies=fsdp,hecate,laer,symi n_policies=4
  check local 2 6 --collective "$collective" --cluster "$machine"
  policies=fastermoe,hecate-rm,prophet,ultraep
  check nccl 4 4 --collective "$collective" --cluster "$machine"
done
policies=ep,ep-balanced n_policies=2 # experts in shards
check local 2 4 --esp 2 --schedule serial
check nccl 8 8 --esp 2 --schedule fsmoe
check nccl 4 4 --esp 4 --schedule serial
check local 2 4 --esp 4 --schedule fsmoe
check local 1 4 --esp 2 --schedule tutel --virtual
policies=hiermoe,hecate n_policies=2 # token rows once per node
slow="4x2 nvlink=300G@0s nic=1M@0s flops=100T mem=40G a=0s c=0s launch=0s"
check local 1 8 --schedule hiermoe --cluster "$slow"
check nccl 5 5 --schedule hiermoe --cluster "$slow"

[ "$failures" -eq 0 ] || exit 1
echo "every policy on imitated devices: numbers are the reference's"
