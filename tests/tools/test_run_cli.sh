#!/bin/bash
# hecate-run as a user meets it: exit codes and messages for wrong input, checks that pass, outputs whole or absent.
source "$(dirname "$0")/../support/tool.sh"
run=$build/hecate-run
tool=("$run")

# Whether times are meant is not this test's business: the warning about cores is allowed.
accepts() {
  "$run" "$@" >out.txt 2>err.txt || fail "exit code $?: $* ($(head -c 300 err.txt))"
  grep -v 'warning: times are of' err.txt >more.txt && fail "something on stderr: $*: $(head -c 300 more.txt)"
}

small=small.jsonl
header='{"format":"hecate-trace","version":1,"name":"s","layers":2,"experts":3,"top_k":1,"source_ranks":2,"layout":"layer x source_rank x expert","unit":"token-expert assignments"}'
{
  echo "$header"
  for i in 1 2 3; do echo "{\"iter\":$i,\"layers\":[[[4,0,$i],[1,7,0]],[[1,1,1],[0,0,9]]]}"; done
} >$small
quick=("$small" --ranks 2 --tokens 16 --policy ep,hecate)

# Input that is none, options that make no sense: nothing runs.
refuses 2 "expected a trace"
refuses 2 missing.jsonl missing.jsonl
head -c -20 $small >cut.jsonl && refuses 2 cut.jsonl cut.jsonl
head -c 3000 /dev/urandom >binary && refuses 2 binary replay binary
for option in --attention --cluster --model --policy --schedule --collective --phase --t --backend --transport; do
  refuses 2 nonsense $small $option nonsense
  refuses 2 "$option" $small $option
done
for option in --layers --steps --ranks --timeout --tokens; do refuses 2 "$option" $small $option 0; done
refuses 2 "--layers" $small --layers 3
refuses 2 'found "causal,full"' $small --attention causal,full
refuses 2 "at most the heads" $small --attention s2:shards=5 --model tiny
refuses 2 "--ranks: expected at most the 256" $small --ranks 257
refuses 2 "from 0 to 9007199254740991" $small --seed -1
refuses 2 bounds $small --policy ideal
refuses 2 ranks $small --ranks 3 --cluster "1x2 nvlink=1G flops=1T mem=1G"
refuses 2 --warmup $small --warmup 3
refuses 2 --slow $small --slow rank=1:0.5
refuses 2 --skew $small --skew rank=1:500us
echo '{"nodes":1,"devices_per_node":2,"nvlink":{"bandwidth":1e9},"device":{"flops":1e9,"memory_bytes":1e9},"devices":[{"device":1,"skew_s":1e-3}]}' >late.json
refuses 2 "device 1: skew_s: expected 0" $small --cluster late.json
refuses 2 --timeline-iter $small --timeline-iter 2
refuses 2 --timeline-iter $small --timeline-iter 9 --out t9
[ ! -e t9 ] || fail "something written for an iteration that does not run"
refuses 2 --virtual $small --virtual --transport paced
refuses 2 parameter $small --model deepseek-v3
if [ "$(awk '/MemTotal/ {print $2}' /proc/meminfo)" -lt 150000000 ]; then
  refuses 2 GB $small --model mixtral-8x22b --ranks 64 --tokens 64
fi
refuses 2 nowhere $small --out nowhere/deep
refuses 2 $small $small --out $small

for variable in OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_NUM_TASKS; do
  export $variable=2
  refuses 2 "add --backend mpi" $small
  export $variable=1
  "$run" "${quick[@]}" >out.txt 2>err.txt || fail "one process of mpirun: $(cat err.txt)"
  unset $variable
done

# What is right.
accepts "${quick[@]}" --steps 2 --check --attention s2:shards=2,local=2,block=2,dense=2
grep -q 'attention s2:shards=2,local=2,block=2,dense=2$' out.txt || fail "the kind of attention is not named"
grep -q '^hecate .* passed' out.txt || fail "s2 attention: $(grep ^hecate out.txt)"
for option in --help --version --list "--backend list"; do
  # shellcheck disable=SC2086
  "$run" $option >out.txt 2>&1 || fail "$option"
  [ -s out.txt ] || fail "$option says nothing"
done
has mpi
grep -q emulated out.txt && fail "--backend list lists more"
"$run" --list | grep -q emulated || fail "--list has no transports"
[ "$("$run" --version | head -n 1 | cut -d' ' -f1)" = hecate-run ] || fail "--version: $("$run" --version)"
"$run" replay --help | grep -q -- --check || fail "replay is no sub-command"

# Every policy gives what the dense reference gives, and says where the run stood.
accepts "$sample" --policy all --ranks 2 --steps 3 --layers 2 --tokens 32 --check --json
[ "$(grep -c '"passed": true' out.txt)" -ge 20 ] || fail "fewer checks than policies: $(grep -c '"passed": true' out.txt)"
mv out.txt all.json
expect all.json 'all(p["check"]["passed"] and p["check"]["compared"] > 1e5 for p in d["policies"])' True
expect all.json 'all(p["check"]["worst_error"] <= p["check"]["tolerance"] for p in d["policies"])' True
expect all.json 'all(p["check"]["exact"]["passed"] and p["check"]["exact"]["bits"] <= 24 for p in d["policies"])' True
expect all.json 'all(p["iteration_s"]["p95"] >= p["iteration_s"]["median"] > 0 for p in d["policies"])' True
expect all.json '"ideal" in [p["name"] for p in d["policies"]]' False
expect all.json 'sorted(set(["version","backend","transport","cpu","blas","virtual","limits","defaults_taken"]) - set(d))' '[]'
expect all.json '(d["backend"], d["transport"], d["iterations"], d["warmup"], d["synthetic"])' "('cpu', 'shm', 2, 1, True)"

# Experts in shards, on two groups and on one.
for esp in 2 4; do
  accepts "$sample" --policy ep,ep-balanced --esp $esp --schedule fsmoe --steps 2 --tokens 24 --check --json
  expect out.txt 'all(p["check"]["passed"] and p["check"]["exact"]["passed"] for p in d["policies"])' True
  grep -q "groups of $esp ranks" out.txt || fail "the groups are not said: $(head -c 500 out.txt)"
done
accepts "$sample" --policy ep --esp 2 --steps 2 --tokens 24 --check --virtual
accepts "$sample" --policy ep,hecate --mp 2 --steps 2 --tokens 24 --check --json
expect out.txt 'all(p["check"]["passed"] and p["check"]["exact"]["passed"] for p in d["policies"])' True
grep -q "tensor parallelism: groups of 2 ranks" out.txt || fail "the groups are not said: $(head -c 500 out.txt)"
accepts "$sample" --policy ep --mp 4 --esp 4 --schedule fsmoe --steps 2 --tokens 24 --check --virtual

accepts "${quick[@]}" --check
has "passed"
has "model    tiny: 2 MoE layers, 3 experts, top-1"
has "all that the trace has, 3"
[ "$(nproc)" -lt 2 ] || has "Fastest here"
accepts "${quick[@]}" --steps 1
[ "$(nproc)" -lt 2 ] || has "Only 1 iteration was measured"
accepts "${quick[@]}" --steps 1 --json
expect out.txt 'd["policies"][0]["iteration_s"]["spread"]' None
accepts "$sample" --steps 2 --ranks "$(($(nproc) + 1))" --policy ep,eplb
has "No fastest is named"
accepts "$sample" --steps 1 --policy ep
grep -q "Fastest" out.txt && fail "a fastest of one"
has "first 4 MoE layers of the trace's 6"
has "(synthetic)"
has "assumed rates"
line=$(sed -n 's/^planned  for //p' out.txt)
"$build/hecate-sim" "$sample" --full --policy ep --cluster "$line" --ranks 4 >sim.txt 2>err.txt || fail "cluster line \"$line\": $(cat err.txt)"
case $line in *tile=8*) ;; *) fail "no tile in \"$line\"" ;; esac
"$build/hecate-sim" "$sample" --full --policy ep --cluster "1x16 nvlink=1G flops=10G mem=1G" >sim.txt || fail "a line without a tile"
has "GEMM tile: 128 rows" sim.txt
accepts "${quick[@]}" --virtual --check
has "virtual time: measures computing and waiting; transfers are imitated"
has "virtual time, ms"
has "network  virtual: transfers take what the links of"
grep -q "as fast as the machine\|no real machine" out.txt && fail "virtual time contradicts itself"
accepts "${quick[@]}" --virtual --steps 1 --cluster p4d-4x8
has "their ratio is that of no real machine"
accepts "${quick[@]}" --transport emulated --steps 1 --cluster "1x2 nvlink=1G@10us flops=10G mem=1G"
has "predicted by network law alpha_beta"
has "its links are imitated"
accepts "${quick[@]}" --threads --check --micro-batches 2
has "ranks    2, as threads"
accepts "${quick[@]}" --phase forward --check --layers 1
has "forward pass"
sed 's/"version"/"phase":"prefill","version"/' $small >prefill.jsonl
accepts prefill.jsonl --ranks 2 --tokens 16 --policy hecate --check
has "forward pass"
gzip -c $small | "$run" - --ranks 2 --tokens 16 --policy ep >out.txt 2>err.txt || fail "a trace from a pipe"
"$run" "$small" --ranks 5 --tokens 16 --policy ep,hecate --cluster "1x8 nvlink=1G flops=10G mem=1G" --steps 1 >out.txt 2>err.txt || fail "five ranks"
[ "$(nproc)" -ge 5 ] || has "warning: times are of 5 ranks on $(nproc) cores" err.txt

# Files: those of hecate-sim, the document that --json prints.
accepts "${quick[@]}" --check --out one --json
cmp -s out.txt one/summary.json || fail "--json and summary.json differ"
[ "$(cd one && echo *)" = "report.html summary.csv summary.json timeline.json" ] || fail "in --out: $(ls -A one)"
expect one/timeline.json 'len(set(e["pid"] for e in d["traceEvents"]))' 4
"$build/hecate-sim" $small --ranks 2 --policy ep,hecate --out two >/dev/null
[ "$(head -1 one/summary.csv)" = "$(head -1 two/summary.csv)" ] || fail "columns differ from hecate-sim's"
grep -q '^ep,.*,measured,cpu,false,[0-9.e-]*,passed,,,,false,,$' one/summary.csv || fail "summary.csv: $(cat one/summary.csv)"
grep -q '^ep,.*,simulated,,,,,[0-9.e-]*,[0-9.e-]*,whole,false,,$' two/summary.csv || fail "summary.csv: $(cat two/summary.csv)"
expect one/timeline.json 'sorted(set(e["ph"] for e in d["traceEvents"]))' "$(value two/timeline.json 'sorted(set(e["ph"] for e in d["traceEvents"]))' 2>/dev/null)"
grep -q ncclDev one/timeline.json && fail "NCCL's kernels on CPUs"
grep -q ncclDev two/timeline.json || fail "no NCCL kernel in a simulated timeline"
expect one/timeline.json '"dispatch" in set(e["name"] for e in d["traceEvents"])' True
accepts "${quick[@]}" --out drawn --timeline-iter 1
has "iteration 1:" drawn/timeline.json

# No room for the results, or for the files: exit code 1 and nothing that looks whole.
(ulimit -f 1 && "$run" "${quick[@]}" --out limited >out.txt 2>err.txt)
[ $? -eq 1 ] || fail "a file size limit: $(cat err.txt)"
[ -z "$(ls -A limited 2>/dev/null)" ] || fail "left behind past a file size limit: $(ls -A limited)"
mkdir full
if mount -t tmpfs -o size=16k none full 2>/dev/null; then
  "$run" "${quick[@]}" --out full/out >out.txt 2>err.txt
  [ $? -eq 1 ] || fail "a full disk: $(cat err.txt)"
  [ -z "$(ls -A full/out 2>/dev/null)" ] || fail "left behind on a full disk: $(ls -A full/out)"
  umount full
else
  echo "SKIPPED full disk: no right to mount"
fi
if [ -w /dev/full ]; then
  "$run" "${quick[@]}" --json >/dev/full 2>err.txt
  [ $? -eq 1 ] || fail "writing to a full device"
fi

(ulimit -f 1 && "$run" "${quick[@]}" 2>err.txt >/dev/null | cat)
has "rank 0, in keeping the results: " err.txt
# Closed descriptors: no pipe of ours becomes standard output.
"$run" "${quick[@]}" --out closed <&- >&- 2>err.txt
[ $? -eq 1 ] || fail "a closed standard output: $(cat err.txt)"
has "standard output: cannot be written: Bad file descriptor" err.txt
"$run" - <&- >out.txt 2>err.txt
[ $? -eq 1 ] || fail "a closed standard input: $(cat err.txt)"
"$run" "${quick[@]}" --json >out.txt 2>&- || fail "a closed standard error"
has '"backend": "cpu"'

# A rank that is killed: named, exit code 1, nobody left, nothing written. Over a network so slow that the run has no end.
if has_children; then
  mkfifo held
  "$run" "$sample" --ranks 2 --policy ep --steps 2 --layers 2 --tokens 256 --transport paced \
    --cluster "1x2 nvlink=10K flops=1T mem=1G" --out killed >out.txt 2>err.txt 9>held &
  exec 8<held
  await_children $! 2
  read -r _ second _ <<<"$children"
  kill -9 "$second"
  wait $!
  [ $? -eq 1 ] || fail "a killed rank does not fail the run"
  has "killed by signal 9" err.txt
  timeout 300 cat <&8 >held.txt || fail "a rank is left"
  exec 8<&-
  [ ! -s out.txt ] && [ ! -e killed ] || fail "output of a run that failed"
else
  echo "SKIPPED run_cli (killed rank): no list of children in /proc"
fi

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
