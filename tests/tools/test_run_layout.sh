#!/usr/bin/env bash
# hecate-run --layout as a user meets it. Steps in pipeline stages pass the check against the dense reference, every
# number of them is compared. What is not executed is refused with what is.
source "$(dirname "$0")/../support/tool.sh"
run=$build/hecate-run
tool=("$run")
trace=trace.jsonl
"$build/hecate-trace" synth --workload lognormal --experts 8 --layers 6 --top-k 2 --iterations 7 --source-ranks 4 \
  --tokens 64 --out $trace >/dev/null || fail "synth"

accepts() {
  "$run" "$@" >out.txt 2>err.txt || fail "exit code $?: $* ($(head -c 300 err.txt))"
  grep -v 'warning: times are of' err.txt >more.txt && fail "something on stderr: $*: $(head -c 300 more.txt)"
}

# ---- Steps that pass ----
# How many numbers of --model tiny must be compared under ep. Outputs and input gradients of every step, micro-batch and rank of a
# stage (rows of 64). Also parameters, gradients and two moments of every block on the ranks of its stage (attention 4
# x 64 x 64, norms 2 x 64, gate 64 x 8). The same of every expert (2 x 64 x 128) in each group.
numbers='2 * d["steps"] * d["micro_batches"] * d["layout"]["dp"] * 16 * 64 + 4 * sum(d["layers"]) * (
  d["layout"]["dp"] * (4 * 64 * 64 + 2 * 64 + 64 * 8) + d["layout"]["edp"] * 8 * 2 * 64 * 128)'
while read -r ranks layout pipeline layers options; do
  layout=${layout//_/ }
  [ "$ranks" = fewest ] || options="$options --ranks $ranks"
  # shellcheck disable=SC2086
  accepts $trace --layout "$layout" $options --model tiny --tokens 16 --steps 2 --warmup 0 --policy ep,eplb --check --json
  expect out.txt '[(p["name"], p["check"]["passed"]) for p in d["policies"]]' "[('ep', True), ('eplb', True)]"
  expect out.txt 'd["pipeline"], str(d["layers"]).replace(" ", ""), d["schedule"]' "('$pipeline', '$layers', 'serial')"
  expect out.txt "d['policies'][0]['check']['compared'] - ($(tr -d '\n' <<<"$numbers" | tr '"' "'" | sed "s/'/\"/g"))" 0
  expect out.txt 'd["layout"]["pp"] * d["layout"]["dp"] - d["layout"]["ranks"], d["layout"]["ep"] * d["layout"]["edp"] - d["layout"]["dp"]' "(0, 0)"
  # tokens/s are those of all ranks of a stage, in all micro-batches
  expect out.txt '[round(p["tokens_per_s"] * p["step_s"]["median"] / d["layout"]["dp"] / d["micro_batches"], 6) for p in d["policies"]]' '[16.0, 16.0]'
done <<'ROWS'
fewest pp=2_ep=2 1f1b [2,2]
8 pp=2_ep=2 1f1b [2,2]
8 pp=2_vpp=2_ep=2 interleaved [1,1,1,1]
fewest pp=2_ep=2 gpipe [2,2] --pipeline gpipe
fewest pp=2:1,4_ep=2 1f1b [1,4]
fewest pp=3 1f1b [2,2,2] --layers 6 --micro-batches 5
2 ep=2 1f1b [4] --micro-batches 3
fewest pp=6 1f1b [1,1,1,1,1,1]
2 pp=2 1f1b [2,2] --threads
ROWS
# ZeRO-1: parameters are compared on every rank, gradients and moments in the part of each.
parts='2 * d["steps"] * d["micro_batches"] * d["layout"]["dp"] * 16 * 64 + sum(d["layers"]) * (
  (d["layout"]["dp"] + 3) * (4 * 64 * 64 + 2 * 64 + 64 * 8) + (d["layout"]["edp"] + 3) * 8 * 2 * 64 * 128)'
for layout in "pp=2 ep=2" "pp=2 vpp=2 ep=2"; do
  accepts $trace --layout "$layout" --ranks 8 --zero 1 --model tiny --tokens 16 --steps 3 --warmup 0 --policy ep --check --json
  expect out.txt 'd["zero"], d["policies"][0]["check"]["passed"]' "(1, True)"
  expect out.txt "d['policies'][0]['check']['compared'] - ($(tr -d '\n' <<<"$parts" | tr '"' "'"))" 0
done
# Memory of each of the 8 ranks, the last layout's: predicted and counted are one. ZeRO-1 leaves each of 4 ranks a
# quarter of the moments of blocks, and each of 2 groups half of those of experts.
state="sum(d['layers']) / 2 * (4 * 64 * 64 + 2 * 64 + 64 * 8), sum(d['layers']) / 2 * 4 * 2 * 64 * 128"
for zero in 1 0; do
  accepts $trace --layout "pp=2 ep=2" --ranks 8 --zero $zero --model tiny --tokens 16 --steps 2 --policy ep --json
  expect out.txt 'sum(m["predicted"] == m["counted"] for m in d["policies"][0]["memory_bytes"])' 8
  expect out.txt "[(lambda dense, experts: m['counted'] == {'parameters': 4 * (dense + experts), 'gradients': 4 * (dense + experts),
    'optimizer': 8 * (dense / (4 if $zero else 1) + experts / (2 if $zero else 1)), 'activations': m['counted']['activations']})(
    $state) for m in d['policies'][0]['memory_bytes']].count(True)" 8
done
# Forward alone: outputs and parameters, no gradients.
accepts $trace --layout "pp=2 ep=2" --phase forward --tokens 16 --steps 1 --policy ep --check --json
expect out.txt 'd["phase"], d["policies"][0]["check"]["passed"], d["micro_batches"]' "('forward', True, 8)"

# ---- What is said ----
accepts $trace --layout "pp=2 ep=2" --tokens 16 --steps 2 --policy all
grep -Eq '^ep  *0  *0( +[0-9.]+){6}$' out.txt && grep -Eq '^  *3  *1( +[0-9.]+){6}$' out.txt || fail "no memory of ranks: $(tail -n 30 out.txt)"
has "KB more, for token streams"
for words in "layout   tp=1 cp=1 pp=2 vpp=1 ep=2 etp=1 dp=2 edp=1: 2 stages of 2 ranks" "pipeline 1f1b, 8 micro-batches a step" \
  "inside a stage the schedule is serial" "ranks    4, as processes" "ranks: 4, as few as the layout can have" \
  "layers: the first 4 MoE layers of the trace's 6" "micro-batches: 8, 4 for each stage" "those that keep one plan through a step" \
  "records: the trace's 7, again from its start" "not asked"; do
  has "$words"
done
grep -q '^hecate ' out.txt && fail "a policy that plans anew for every micro-batch is among all"
grep -q '^eplb-online ' out.txt || fail "eplb-online, which keeps its plan through a step, is left out"

# ---- What is refused ----
while IFS='|' read -r words layout options; do
  # shellcheck disable=SC2086
  refuses 2 "$words" $trace --layout "$layout" $options
done <<'ROWS'
--layout: tp: expected 1 to be executed, found 2; what is executed: pp, vpp and ep|tp=2 pp=2
--layout: cp: expected 1|cp=2
--layout: etp: expected 1|etp=2
expected tp, cp, pp, vpp, ep or etp|qq=2
pp=1 would fit|pp=2|--ranks 3
ep: expected a divisor of 8, found 16|pp=2 ep=16
ep: GPUs of a stage: expected a divisor of 2|pp=2 ep=4|--ranks 4
pp=6 vpp=1 would fit|pp=9
at least one layer in each of the 4 virtual stages|pp=4|--layers 3
layers per stage: expected 4|pp=2:1,2|--layers 4
--layers: expected at most the trace's 6|pp=2|--layers 7
at most 256 ranks|pp=6 ep=64
--zero: expected 0 or 1 to be executed, found 2|pp=2|--zero 2
leaves experts where they are|pp=2 ep=2|--zero 1 --policy eplb
use 1f1b, interleaved or gpipe|pp=2|--pipeline dualpipe
use 1f1b, interleaved or gpipe|pp=2|--pipeline zb-h1
--pipeline|pp=2|--pipeline nonsense
several virtual stages|pp=2|--pipeline interleaved
an even number of stages|pp=3 vpp=2|--micro-batches 6
use ep or eplb|pp=2|--policy ep,hecate
--schedule: expected serial|pp=2|--schedule deepspeed
--schedule: expected serial|pp=2|--schedule best
--ep: means nothing|pp=2|--ep 2
--esp|pp=2|--esp 2
--mp|pp=2|--mp 2
--virtual|pp=2|--virtual
--out|pp=2|--out folder
expected cpu or mpi|pp=2|--backend nccl
--warmup|pp=2|--steps 2 --warmup 2
ROWS
refuses 2 "at most the 3 devices of cluster" $trace --layout "pp=2 ep=2" --cluster "1x3 nvlink=1G flops=1T mem=1G"
refuses 2 "--pipeline: expected --layout" $trace --pipeline gpipe
refuses 2 "--zero: expected --layout" $trace --zero 1
[ ! -e folder ] || fail "something written"
[ "$failures" -eq 0 ]
