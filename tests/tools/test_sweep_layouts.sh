#!/bin/bash
# hecate-sim sweep over layouts: a row is what hecate-sim says of that layout; the same bytes for any number of threads, shards and
# interruptions. What a training step does not have is refused; a layout that does not divide is a row with its reason.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
tool=("$sim" sweep)
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE SLURM_PROCID SLURM_STEP_NUM_TASKS
"$build/hecate-trace" synth --workload zipf --layers 2 --experts 8 --source-ranks 8 --tokens 512 --iterations 10 --out e8.jsonl || fail synth
"$sim" --preset gpt-moe-s >model.json || fail "--preset"
cat >spec.json <<'END'
{"trace": "e8.jsonl", "model": "mixtral-8x7b", "cluster": "4x8 gpu=h100 nics=8", "policy": ["ep", "eplb", "hecate"],
 "layout": ["ep=8", "tp=2 pp=2 ep=4", "pp=2 vpp=2 ep=8", "ep=3"], "zero": [1, 3], "micro_batch": ["auto", 2],
 "recipe": ["precision=bf16 recompute=norm+act", "megatron-core-moe-zoo"], "seq": 2048, "global_batch": 64}
END

# ---- Threads, shards, a journal ----
"${tool[@]}" spec.json --count >out.txt || fail count
has "96 configurations: 4 layout x 2 micro_batch x 2 recipe x 2 zero x 3 policy"
"${tool[@]}" spec.json --out whole --report whole.html --threads 1 >out.txt 2>err.txt || fail "sweep: $(cat err.txt)"
has "96 rows, 24 of configurations that cannot run"
[ -s err.txt ] && fail "progress without a terminal: $(head -c 200 err.txt)"
"${tool[@]}" spec.json --out three --threads 3 >out.txt && cmp -s three.csv whole.csv && cmp -s three.json whole.json || fail "other bytes with 3 threads"
for i in 0 1; do "${tool[@]}" spec.json --out part --shard $i/2 >out.txt || fail "shard $i"; done
"${tool[@]}" merge part.part-?-of-2 --out merged >out.txt && cmp -s merged.csv whole.csv && cmp -s merged.json whole.json || fail "merged: other bytes"
head -n 20 part.part-1-of-2 >resumed.part-1-of-2.journal # 19 rows, the rest is computed
"${tool[@]}" spec.json --out resumed --shard 1/2 >out.txt 2>err.txt || fail resume
has " rows taken over from resumed.part-1-of-2.journal" err.txt
cmp -s resumed.part-1-of-2 part.part-1-of-2 || fail "resumed: other bytes"

# ---- Rows against hecate-sim ----
check_row() { # CONDITION ARGS...
  local condition=$1
  shift
  "$sim" e8.jsonl "$@" --json >one.json 2>err.txt || { fail "hecate-sim $*: $(cat err.txt)"; return; }
  command -v python3 >/dev/null || return
  python3 - "$condition" <<'END' >out.txt 2>&1 || fail "not hecate-sim's: $(tail -3 out.txt)"
import json, sys
rows = [r for r in json.load(open("whole.json"))["rows"] if eval(sys.argv[1])]
one = json.load(open("one.json"))
assert len(rows) == len(one["policies"]) == 3, (len(rows), len(one["policies"]))
for r, p in zip(rows, one["policies"]):
    assert r["policy"] == p["name"] and (r["pipeline_used"], r["model_used"], r["gpu_used"]) == (one["pipeline"], one["model"], one["gpu"])
    assert (r["gpus_used"], r["micro_batches"], r["records"]) == (one["layout"]["gpus"], one["micro_batches"], one["records"])
    assert r["balanced"] == {"step_s": one["balanced"]["step_s"], "mfu": one["balanced"]["mfu"], "fits": one["balanced"]["memory"]["fits"]}
    for key in ("step_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "gpu_hours_per_1e12_tokens", "bubble_share",
                "dispatch_share", "tensor_share", "data_share", "gather_share", "moves_share", "speedup_vs_ep", "overload_factor"):
        assert r[key] == p[key], (r["policy"], key, r[key], p[key])
    for key in ("peak_bytes", "margin_bytes", "fits", "stage"):
        assert r["memory"][key] == p["memory"][key], (r["policy"], key)
END
}
job=(--model mixtral-8x7b --cluster "4x8 gpu=h100 nics=8" --policy ep,eplb,hecate --seq 2048 --global-batch 64)
check_row 'r["layout"]=="tp=2 pp=2 ep=4" and r["zero"]==1 and r["micro_batch"]==2 and "=" in r["recipe"]' \
  "${job[@]}" --layout "tp=2 pp=2 ep=4" --zero 1 --micro-batch 2 --recipe "precision=bf16 recompute=norm+act"
check_row 'r["layout"]=="pp=2 vpp=2 ep=8" and r["zero"]==3 and r["micro_batch"]=="auto" and r["recipe"]=="megatron-core-moe-zoo"' \
  "${job[@]}" --layout "pp=2 vpp=2 ep=8" --zero 3 --recipe megatron-core-moe-zoo
expect whole.json '{r["error"] for r in d["rows"] if r["layout"] == "ep=3"}' \
  "{'layout: ep: GPUs of a stage: expected a divisor of 32, found 3; ep=2 would fit'}"
expect whole.json 'sum("error" in r for r in d["rows"])' 24
expect whole.json 'len({r["step_s"] for r in d["rows"] if "error" not in r}) > 40' True

# ---- The page names the best row, and calls times what they are ----
has "the time of a training step" whole.html
best=$(value whole.json 'max((r for r in d["rows"] if r.get("memory", {}).get("fits")), key=lambda r: r["tokens_per_s_per_gpu"])["layout"]')
grep -q "Most tokens/s per GPU, .*layout ${best:-[a-z]}" whole.html || fail "the page does not name $best"
# How far off published runs were stands in the page and beside each row.
expect whole.json 'all(r["error_factor"] > 1 for r in d["rows"] if "error" not in r)' True
grep -q "<p>These are predictions: nine of ten published runs took between 1/" whole.html || fail "the page has no band"

# ---- Set-ups and models as files: read once, beside the spec ----
mkdir near
cat >near/job.json <<'END'
{"name": "mine", "model": "mixtral-8x7b", "cluster": "2x8 gpu=h100 nics=8", "layout": "ep=8", "seq": 1024, "global_batch": 32}
END
echo '{"trace": "../e8.jsonl", "setup": "job.json", "layout": ["auto", "pp=2 ep=4"], "policy": "ep"}' >near/spec.json
"${tool[@]}" near/spec.json --out near.json >out.txt 2>err.txt || fail "a set-up file: $(cat err.txt)"
expect near.json '[(r["gpus_used"], r["seq_used"], r["micro_batches"]) for r in d["rows"]]' "[(16, 1024, 2), (16, 1024, 4)]"
cp near/spec.json near/journal.json
"${tool[@]}" near/spec.json --out shards --shard 0/2 >out.txt || fail "a shard of set-ups"
sed -i 's/"seq": 1024/"seq": 2048/' near/job.json
cp shards.part-0-of-2 shards.part-0-of-2.journal
refuses 2 "not of this sweep" near/spec.json --out shards --shard 0/2
cp model.json near/own.json
sed -i 's/mixtral-8x7b/own.json/' near/job.json
refuses 2 "it names another file" near/spec.json
sed -i 's/own.json/mixtral-8x7b/; s/gpu=h100/gpu=dev.json/' near/job.json
refuses 2 "it names another file" near/spec.json
# A device file is relative to the cluster's file, and in a line to the spec.
mkdir -p near/clusters
"$sim" --preset a100 >near/dev.json && "$sim" --preset h100 >near/clusters/dev.json || fail "no devices"
echo '{"nodes": 2, "devices_per_node": 8, "nics": 8, "gpu": "dev.json"}' >near/clusters/mine.json
echo '{"trace": "../e8.jsonl", "model": "mixtral-8x7b", "policy": "ep", "layout": "ep=8", "global_batch": 32, "cluster":
  ["clusters/mine.json", "2x8 gpu=h100 nics=8", "2x8 gpu=dev.json nics=8", "2x8 gpu=a100 nics=8"]}' >near/devices.json
"${tool[@]}" near/devices.json --out devices.json >out.txt 2>err.txt || fail "device files: $(cat err.txt)"
expect devices.json '[r["step_s"] for r in d["rows"]]' "$(value devices.json '[d["rows"][i]["step_s"] for i in (1, 1, 3, 3)]')"
expect devices.json 'd["rows"][0]["step_s"] < d["rows"][2]["step_s"], d["rows"][2]["cluster"]' "(True, '2x8 gpu=dev.json nics=8')"

# ---- What does not combine ----
try() { # PART KEYS
  printf '{"trace": "e8.jsonl", %s}' "$2" >bad.json
  refuses 2 "bad.json:1: $1" bad.json --out unmade
}
try "law: network laws of flows are not used with --layout" '"layout": "ep=8", "law": "max_min"'
try "schedule: means nothing beside --layout" '"layout": "ep=8", "schedule": "published"'
try "collective: means nothing beside --layout" '"setup": "job.json", "collective": "auto"'
try "tokens: means nothing beside --layout; --seq" '"layout": "ep=8", "tokens": 512'
try "seq: expected layout or setup beside it" '"seq": 4096'
try "zero: expected layout or setup beside it" '"zero": [1, 2]'
try "policy[1]: expected a policy that runs" '"layout": "ep=8", "policy": ["ep", "ideal"]'
try "layout[1]: expected what some job can have" '"layout": ["ep=8", "xp=8"]'
try "recompute: expected what some job can have" '"layout": "ep=8", "recompute": "some"'
try "pipeline[0]: expected what some job can have" '"layout": "ep=8", "pipeline": ["1f2b"]'
try "zero: expected a whole number from 0 to 3" '"layout": "ep=8", "zero": 4'
try "setup: expected a set-up" '"setup": "absent.json"'
ls unmade.* >/dev/null 2>&1 && fail "something was written for a bad spec"

[ $failures -eq 0 ] || exit 1
echo "sweep over layouts: all passed"
