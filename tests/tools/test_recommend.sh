#!/bin/bash
# hecate-sim recommend: what is recommended is a set-up that runs and takes what was said; the same input gives the same bytes;
# what cannot be answered is said.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
tool=("$sim" recommend)

"$build/hecate-trace" synth --workload W1 --experts 8 --top-k 2 --layers 4 --out trace.jsonl >/dev/null || fail "no trace"
job=(trace.jsonl --model mixtral-8x7b --cluster "4x8 gpu=h100" --global-batch 128 --policy ep,eplb,hecate)

"$sim" recommend "${job[@]}" --json --setup-out best.json --flags-out flags.txt >once.json || fail "recommend"
"$sim" recommend "${job[@]}" --json >twice.json && cmp -s once.json twice.json || fail "other bytes the second time"
"$sim" trace.jsonl --setup best.json --policy ep,eplb,hecate --json >run.json || fail "the set-up does not run: $(cat best.json)"
python3 - <<'P' || fail "the recommendation"
import json
r, run = json.load(open("once.json")), json.load(open("run.json"))
best = r["ranked"][0]
assert all(a["step_s"] <= b["step_s"] for a, b in zip(r["ranked"], r["ranked"][1:])), "not sorted"
assert all(row["fits"] for row in r["ranked"]), "does not fit"
assert abs(best["balanced_step_s"] / run["balanced"]["step_s"] - 1) < 1e-9, (best["balanced_step_s"], run["balanced"]["step_s"])
steps = {p["name"]: p["step_s"] for p in run["policies"]}
assert abs(best["step_s"] / min(steps.values()) - 1) < 1e-9, (best["step_s"], steps)
assert abs(best["ep_step_s"] / steps["ep"] - 1) < 1e-9
assert best["policy"] in steps and best["layout"] in r["recommendation"]
assert 0 <= r["confidence"]["stays_first"] <= r["confidence"]["constants_changed"]
assert r["searched"]["fit"] <= r["searched"]["predicted"]
words = open("flags.txt").read().split()
assert words.count("--global-batch-size") == 1 and words[words.index("--global-batch-size") + 1] == "128"
P

# What runs today stands beside it.
"$sim" recommend "${job[@]}" --layout "pp=8 ep=4" >today.txt || fail "today"
grep -q "What runs today takes" today.txt && grep -q "pp=8 ep=4 (today)" today.txt || fail "today is not in: $(cat today.txt)"

refuses 2 "global-batch" trace.jsonl --model mixtral-8x7b --cluster "4x8 gpu=h100"
refuses 2 "expected a trace" --model mixtral-8x7b
refuses 2 "global batch" trace.jsonl --model mixtral-8x7b --cluster "97x1 gpu=h100" --global-batch 64
refuses 1 "fits into the memory" trace.jsonl --model mixtral-8x22b --cluster "1x8 gpu=h100" --global-batch 64 --setup-out none.json
[ ! -e none.json ] || fail "a set-up of nothing"

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
