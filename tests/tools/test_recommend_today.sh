#!/bin/bash
# hecate-sim recommend beside what runs today: it is never slower, whatever the search had time for. What is printed is what a run
# by hand predicts. What nobody stated is said.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
tool=("$sim" recommend)
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 0; }

"$build/hecate-trace" synth --workload zipf --exponent 0.8 --experts 128 --layers 48 --top-k 8 --iterations 60 --source-ranks 1 \
  --tokens 65536 --out wide.jsonl >/dev/null || fail "no trace"
job=(wide.jsonl --model qwen3-30b-a3b --cluster "4x8 gpu=h100 nics=8" --global-batch 256)
policies=ep,eplb,hecate

# ---- Its rows are what a run by hand predicts, though the search had time for a few records of the trace ----
"$sim" recommend "${job[@]}" --policy $policies --micro-batch 2 --within 1s --json --setup-out best.json >short.json || fail "recommend"
[ "$(value short.json 'd["searched"]["records"] < d["searched"]["records_of_a_step"]')" = True ] || fail "time for all: $(value short.json 'd["searched"]')"
cat >by_hand.py <<'P'
import json, subprocess, sys
sim, policies, found, *job = sys.argv[1:]
r = json.load(open(found))
def hand(*how):
    run = json.loads(subprocess.run([sim, *job, "--policy", policies, "--json", *how], check=True, capture_output=True).stdout)
    return {p["name"]: p for p in run["policies"]}
for row in r["ranked"] + [r["without_policy"]]:
    rows = hand("--layout", row["layout"] if "=" in row["layout"] else "ep=1", "--micro-batch", str(row["micro_batch"]), "--recipe", row["recipe"])
    for key, policy in (("step_s", row["policy"]), ("ep_step_s", "ep")):
        assert row[key] == rows[policy]["step_s"], (row["layout"], policy, row[key], rows[policy]["step_s"])
    assert abs(row["memory_gib"] * 2**30 / sum(rows[row["policy"]]["memory"][k] for k in ("reserved_bytes", "outside_bytes")) - 1) < 1e-12, row
best = r["ranked"][0]
assert json.loads(subprocess.run([sim, job[0], "--setup", "best.json", "--policy", policies, "--json"], check=True,
                                 capture_output=True).stdout)["balanced"]["step_s"] == best["balanced_step_s"]
P
python3 by_hand.py "$sim" $policies short.json "${job[@]}" || fail "other times by hand"

# ---- What runs today is tried with every policy: here micro-batches of 24, which no search tries ----
cat >setup.json <<'END'
{"name": "today", "model": "gpt-oss-20b", "cluster": "2x8 gpu=h100 nics=8", "gpus": 16, "layout": "ep=8", "seq": 256, "global_batch": 768,
 "micro_batch": 24}
END
"$build/hecate-trace" synth --workload lognormal --experts 32 --top-k 4 --layers 2 --iterations 8 --source-ranks 4 --out e32.jsonl >/dev/null || fail "no trace"
"$sim" e32.jsonl --setup setup.json --json >hand.json && "$sim" recommend e32.jsonl --setup setup.json --json >today.json || fail "today"
python3 - <<'P' || fail "what runs today is faster than what is recommended"
import json
fitting = [p for p in json.load(open("hand.json"))["policies"] if p["memory"]["fits"] and not p.get("dropped_share")]
best, today = json.load(open("today.json"))["ranked"][0], min(fitting, key=lambda p: p["step_s"])
assert best["step_s"] <= today["step_s"], (best, today["name"], today["step_s"])
P
# ---- With data-sheet rates of the links: the rows as a run by hand has them, whose cluster says nvlink_eff=1 nic_eff=1 ----
cat >sheet.py <<'P'
import json, subprocess, sys
sim, found, screen, cluster, *job = sys.argv[1:]
r = json.load(open(found))
def hand(row):
    how = ["--layout", row["layout"] if "=" in row["layout"] else "ep=1", "--micro-batch", str(row["micro_batch"]), "--recipe", row["recipe"]]
    run = json.loads(subprocess.run([sim, *job, "--cluster", cluster + " nvlink_eff=1 nic_eff=1", "--policy", "ep", "--json", *how], check=True,
                                    capture_output=True).stdout)
    return run["policies"][0]["step_s"]
steps = [hand(row) for row in r["ranked"]]
law, best, words = r["confidence"]["other_network_law"], min(range(len(steps)), key=steps.__getitem__), " ".join(open(screen).read().split())
assert any("dispatcher=deepep" in row["recipe"] for row in r["ranked"]), "this test wants a row with deepep"
assert abs(law["worst_regret"] - (steps[0] / steps[best] - 1)) < 1e-6, (law, steps)
assert (law["stays_first"] == 1) == (best == 0) and law["faster_row"] == (best + 1 if best else 0), (law, steps)
assert ("If links reach their data-sheet rates, row %d (%s" % (best + 1, r["ranked"][best]["layout"].split()[0]) in words) == (best > 0), words
P
"$build/hecate-trace" synth --workload zipf --exponent 0.1 --experts 128 --top-k 8 --layers 2 --iterations 4 --source-ranks 4 --out even.jsonl >/dev/null || fail "no trace"
# CLUSTER RECIPE JOB...: a recipe leaves fewer to search.
sheet() {
  "$sim" recommend "${@:3}" --cluster "$1" --recipe "$2" --policy ep --out sheet >sheet.txt || fail "data-sheet rates"
  python3 sheet.py "$sim" sheet/recommendation.json sheet.txt "${1% nvlink_eff*}" "${@:3}" || fail "another order with data-sheet rates: $*"
  expect sheet/recommendation.json 'd["confidence"]["other_network_law"]["faster_row"] > 1' True
}
sheet "16x8 gpu=h100 nics=8" "dispatcher=deepep recompute=full" even.jsonl --model qwen3-235b-a22b --global-batch 512
sheet "4x8 gpu=h100 nics=8 nvlink_eff=0.1" "dispatch=bf16" e32.jsonl --model gpt-oss-20b --global-batch 128

# ---- A dispatcher that nobody stated ----
small=(e32.jsonl --model gpt-oss-20b --cluster "4x8 gpu=h100 nics=8" --global-batch 128 --policy ep)
"$sim" recommend "${small[@]}" --layout "pp=2 ep=16" --out assumed >assumed.txt || fail "assumed"
tr -s "\n " " " <assumed.txt >line.txt
has "Its dispatcher alltoall is assumed; --recipe dispatcher= says another." line.txt
dispatcher=$(value assumed/recommendation.json '[w for w in d["today_with_that_dispatcher"]["recipe"].split() if w.startswith("dispatcher=")][0]')
has "With dispatcher ${dispatcher#*=} it takes" line.txt
"$sim" "${small[@]}" --layout "pp=2 ep=16" --recipe "$dispatcher" --json >with.json || fail "with its dispatcher"
[ "$(value assumed/recommendation.json 'd["today_with_that_dispatcher"]["step_s"]')" = "$(value with.json 'd["policies"][0]["step_s"]')" ] || fail "another time with $dispatcher"
# A measured run has a narrow band for runs of its recipe alone. Here the first row has another one.
step=$(value assumed/recommendation.json 'd["today"]["step_s"]')
"$sim" recommend "${small[@]}" --layout "pp=2 ep=16" --measured "step=${step}s" --out measured | tr -s "\n " " " >line.txt || fail "measured"
has "The recipe of the first row differs from the measured run's in recompute, zero. So its band is that of runs without a measured one. Where main settings of the recipe are not stated, half" line.txt
expect measured/recommendation.json 'd["confidence"]["half_within"] > 0.05' True
"$sim" recommend "${small[@]}" --layout "pp=2 ep=16" --recipe dispatcher=alltoall >stated.txt || fail "stated"
# JSON has the assumptions of the screen. A recipe that is stated as a whole has none.
tr -s "\n " " " <assumed.txt >line.txt
expect assumed/recommendation.json '"assumed: %s not searched:" % "; ".join(d["assumed"]) in open("line.txt").read()' True
expect assumed/recommendation.json 'd["assumed"][-1].startswith("recipe: precision=bf16 dispatch=bf16 ")' True
stated="precision=bf16 dispatch=bf16 overlap=off graph=none fused=off grads=fp32 dp-overlap=on head=last fabric=infiniband"
"$sim" recommend "${small[@]}" --seq 4096 --recipe "$stated" --json >all.json || fail "all stated"
expect all.json 'd["assumed"]' "[]"
! grep -q "is assumed;" stated.txt || fail "a stated dispatcher is called assumed"

# ---- Products so small that the host launches them more slowly than they run: that is said, and a CUDA graph ends it ----
cut=("${small[@]}" --layout "tp=8 pp=2 ep=8")
"$sim" recommend "${cut[@]}" --out cut >cut.txt && "$sim" recommend "${cut[@]}" --recipe graph=full >graph.txt || fail "tp=8"
tr -s "\n " " " <cut.txt >line.txt
has "of today's step is waiting for the host, which launches kernels more slowly than they run." line.txt
grep -q "(today).*: the host launches kernels more slowly than they run$" cut.txt || fail "today's reason: $(grep "(today)" cut.txt)"
[ "$(value cut/recommendation.json 'd["today"]["why"]')" = "the host launches kernels more slowly than they run" ] || fail "its reason in JSON"
! grep -q "host" graph.txt || fail "the host of a CUDA graph: $(grep host graph.txt)"

# ---- Words of the table are explained below it ----
tr -s "\n " " " <assumed.txt >line.txt
has "step (s) even (s) policy" line.txt
has "columns: step (s): a training step with the loads of this trace. even (s): the same step if every expert got the same number of tokens" line.txt
has "its busiest GPU gets more tokens, and all wait for it" assumed.txt

# ---- The screen says what was asked; a model is not guessed ----
head -3 assumed.txt | tr "\n" " " | tr -s " " >head.txt
for words in "model gpt-oss-20b on 32 GPUs (4x8 gpu=h100 nics=8)" "a step of 128 sequences of 4096 tokens"; do has "$words" head.txt; done
refuses 2 "--model: expected the model" e32.jsonl --cluster "4x8 gpu=h100" --global-batch 128
sed '1s/"name"/"model":"gpt-oss-20b","name"/' e32.jsonl >named.jsonl
"$sim" recommend named.jsonl --cluster "4x8 gpu=h100" --global-batch 128 --policy ep --micro-batch 1 --recipe recompute=none >named.txt || fail "a trace that names its model"
has "model gpt-oss-20b on 32 GPUs" named.txt

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
