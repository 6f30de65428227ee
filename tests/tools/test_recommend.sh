#!/bin/bash
# hecate-sim recommend: what is recommended is a set-up that runs and takes what was said. The same input gives the same bytes;
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
assert r["synthetic"] and "under the synthetic loads" in r["recommendation"]
words = open("flags.txt").read().split()
assert words.count("--global-batch-size") == 1 and words[words.index("--global-batch-size") + 1] == "128"
P

# ---- Files: each says the same job, what a framework cannot say is said, nobody's files are touched ----
"$sim" recommend "${job[@]}" --out change >out.txt || fail "--out"
has "what-to-change.md"
cmp -s change/setup.json best.json || fail "setup.json is not what --setup-out writes"
cmp -s change/recommendation.json once.json || fail "recommendation.json is not what --json prints"
[ "$(grep -v '^#' change/megatron.txt | tr '\n' ' ')" = "$(tr '\n' ' ' <flags.txt)" ] || fail "megatron.txt is not what --flags-out writes"
grep -q "Megatron Core 0.16" change/megatron.txt && grep -q "torchtitan 0.2.2" change/torchtitan.toml && grep -q "DeepSpeed 0.19" change/what-to-change.md ||
  fail "versions are not said"
python3 - <<'P' || fail "files for frameworks"
import json, re, tomllib
setup = json.load(open("change/setup.json"))
plain = json.load(open("change/recommendation.json"))["without_policy"]
layout = {"tp": 1, "cp": 1, "pp": 1, "ep": 1} | {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", plain["layout"])}
assert plain["policy"] == "ep" and plain["fits"], plain
dp = setup["gpus"] // (layout["tp"] * layout["cp"] * layout["pp"])
t = tomllib.load(open("change/torchtitan.toml", "rb"))
p = t["parallelism"]
assert [p[k] for k in ("tensor_parallel_degree", "context_parallel_degree", "pipeline_parallel_degree", "expert_parallel_degree",
                       "data_parallel_shard_degree")] == [layout["tp"], layout["cp"], layout["pp"], layout["ep"], dp], p
assert t["training"]["global_batch_size"] == 128
assert t["training"]["local_batch_size"] % plain["micro_batch"] == 0 and 128 % (t["training"]["local_batch_size"] * dp) == 0
flags = dict(line.split(" ", 1) for line in open("change/megatron.txt").read().split("\n") if line.startswith("--") and " " in line)
assert [int(flags[f]) for f in ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--expert-model-parallel-size")] == \
    [layout["tp"], layout["pp"], layout["ep"]], flags
confidence = json.load(open("change/recommendation.json"))["confidence"]
for part in (confidence["parts_of_the_trace"], confidence["other_network_law"]):
    assert 0 <= part["stays_first"] <= part["tried"] and (part["worst_regret"] > 0) == (part["stays_first"] < part["tried"]), part
assert confidence["parts_of_the_trace"]["tried"] == 4 and confidence["other_network_law"]["tried"] == 1
P
# The map is the policy's: with it the loads are as even as the policy makes them.
"$sim" recommend "${job[@]/%ep,eplb,hecate/ep,eplb}" --out map >/dev/null || fail "--out map"
policy=$(value map/recommendation.json 'd["ranked"][0]["policy"]')
[ "$policy" = eplb ] || fail "the recommended policy is $policy"
ranks=$(sed -n 's/.* ep=\([0-9]*\) .*/\1/p' map/setup.json)
"$sim" trace.jsonl --model mixtral-8x7b --ranks "$ranks" --cluster "1x8 gpu=h100" --placement map/eplb.json --policy ep,given --json >given.json ||
  fail "the map does not read back"
expect given.json '[p["overload_factor"]["median"] for p in d["policies"] if p["name"] == "given"][0] < 0.7 * [p["overload_factor"]["median"] for p in d["policies"] if p["name"] == "ep"][0]' True
# A pipeline is nothing that DeepSpeed's JSON can say; without one it is all there.
if [ "$(value change/recommendation.json '"pp=" in d["ranked"][0]["layout"]')" = True ]; then
  [ ! -e change/deepspeed.json ] && grep -q "deepspeed.json.*no file" change/what-to-change.md || fail "a DeepSpeed file without the pipeline"
fi
"$build/hecate-trace" synth --workload zipf --experts 128 --layers 2 --top-k 2 --iterations 14 --source-ranks 1 --tokens 65536 \
  --exponent 0.4 --out e128.jsonl >/dev/null || fail "no trace"
run_small=(e128.jsonl --model qwen3-30b-a3b --cluster "1x8 gpu=b200" --global-batch 64 --recipe zero=2)
"$sim" recommend "${run_small[@]}" --policy ep --out change >out.txt || fail "--out again"
[ ! -e change/eplb.json ] && grep -q "eplb.json.*no file" change/what-to-change.md || fail "a map of ep, or one of the run before"
expect change/deepspeed.json 'd["train_batch_size"] == d["train_micro_batch_size_per_gpu"] * d["gradient_accumulation_steps"] * (8 // d.get("tensor_parallel", {}).get("autotp_size", 1)), d["zero_optimization"]["stage"]' "(True, 2)"
"$sim" e128.jsonl --setup change/setup.json --policy ep --out change >/dev/null || fail "two commands into one folder"
"$sim" recommend "${run_small[@]}" --policy ep --out change >/dev/null || fail "a folder of two commands"
[ -s change/report.html ] && [ -s change/setup.json ] || fail "a command removed the other's files: $(ls change)"
mkdir -p theirs && echo mine >theirs/setup.json
refuses 2 "setup.json" "${job[@]}" --out theirs
[ "$(cat theirs/setup.json)" = mine ] && [ "$(ls theirs)" = setup.json ] || fail "a file of theirs was touched"

# What runs today stands beside it.
"$sim" recommend "${job[@]}" --layout "pp=8 ep=4" >today.txt || fail "today"
tr -s "\n " " " <today.txt | grep -q "What runs today takes .* as long, with balanced routing" && grep -q "pp=8 ep=4 (today)" today.txt || fail "today is not in: $(cat today.txt)"

refuses 2 "global-batch" trace.jsonl --model mixtral-8x7b --cluster "4x8 gpu=h100"
refuses 2 "expected a trace" --model mixtral-8x7b
refuses 2 "global batch" trace.jsonl --model mixtral-8x7b --cluster "97x1 gpu=h100" --global-batch 64
refuses 1 "fits into the memory" trace.jsonl --model mixtral-8x22b --cluster "1x8 gpu=h100" --global-batch 64 --setup-out none.json
[ ! -e none.json ] || fail "a set-up of nothing"

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
