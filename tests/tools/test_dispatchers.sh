#!/usr/bin/env bash
# --dispatcher of an iteration. What it says and refuses, its key in JSON, the axis of sweeps, and that an all-to-all by name is
# what runs without it. What travels and how long it takes: tests/program/test_dispatched.c.
source "$(dirname "$0")/../support/tool.sh"
command -v python3 >/dev/null || exit 77
"$build/hecate-trace" synth --workload zipf --layers 2 --experts 16 --top-k 2 --source-ranks 16 --ranks 16 --tokens 512 --iterations 2 \
  --out loads.jsonl >out.txt 2>err.txt || fail "synth: $(cat err.txt)"
tool=("$build/hecate-sim")
job=(loads.jsonl --model mixtral-8x7b --policy ep --cluster "2x8 gpu=h100 nics=8")
run() {
  "${tool[@]}" "${job[@]}" "$@" >out.txt 2>err.txt || fail "exit code $?: $*: $(cat err.txt)"
}
refused() { # WORDS ARGS...
  local words=$1
  shift
  "$@" >out.txt 2>err.txt && fail "not refused: $*"
  grep -qF -- "$words" err.txt || fail "expected $words: $(cat err.txt)"
}

run --json && mv out.txt plain.json
run --dispatcher alltoall --json && cmp -s out.txt plain.json || fail "an all-to-all by name is another one"
expect plain.json '"dispatcher" in d, "DeepEP" in d["not_modelled"]' "(False, True)"
run --dispatcher deepep --check --json && cp out.txt deepep.json
expect out.txt 'd["dispatcher"], "DeepEP" in d["not_modelled"]' "('deepep', False)"
expect out.txt 'any("24 of 132 SMs" in x for x in d["defaults_taken"])' True
run --dispatcher deepep --dispatch-precision fp8 --json
expect out.txt 'any("fp8" in x for x in d["defaults_taken"])' True
expect out.txt "round(d['policies'][0]['bytes']['dispatch'] / $(value deepep.json 'd["policies"][0]["bytes"]["dispatch"]'), 3)" 0.758 # half at 33/64
refused 'expected one of alltoall, allgather, deepep, hybridep (did you mean "deepep"?), found "deepp"' "${tool[@]}" "${job[@]}" --dispatcher deepp
refused 'found a100-40, for which nobody has published times' "${tool[@]}" loads.jsonl --policy ep --cluster p4d-4x8 --dispatcher deepep
refused 'which names no GPU' "${tool[@]}" loads.jsonl --policy ep --cluster "2x8 flops=312T nvlink=300G nic=50G mem=40G" --dispatcher hybridep
refused 'expected dispatcher deepep beside it, found alltoall' "${tool[@]}" "${job[@]}" --dispatch-sms 8
refused 'expected less than the 132 SMs of h100, found 132' "${tool[@]}" "${job[@]}" --dispatcher deepep --dispatch-sms 132
refused 'expected whole experts, found --esp 2' "${tool[@]}" "${job[@]}" --dispatcher deepep --esp 2
refused 'expected one of bf16, fp8 (did you mean "fp8"?), found "fp4"' "${tool[@]}" "${job[@]}" --dispatch-precision fp4
refused 'unknown option "--dispatcher"; hecate-sim has it' "$build/hecate-run" loads.jsonl --dispatcher deepep

# A sweep has it as an axis, and a row of it is the run of that name.
cat >spec.json <<'S'
{"trace": "loads.jsonl", "model": "mixtral-8x7b", "cluster": "2x8 gpu=h100 nics=8", "policy": "ep",
 "dispatcher": ["alltoall", "deepep"], "dispatch_precision": ["auto"]}
S
"$build/hecate-sim" sweep spec.json --out rows >out.txt 2>err.txt || fail "sweep: $(cat err.txt)"
expect rows.json '[(r["dispatcher"], r["iteration_s"]["median"]) for r in d["rows"]]' "$(python3 -c '
import json
print([(n, json.load(open(f))["policies"][0]["iteration_s"]["median"]) for n, f in (("alltoall", "plain.json"), ("deepep", "deepep.json"))])')"
sed -i s/deepep/deepp/ spec.json
refused 'deepp' "$build/hecate-sim" sweep spec.json --out rows
[ $failures -eq 0 ]
