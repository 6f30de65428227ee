#!/usr/bin/env bash
# Training jobs of hecate-sim. A set-up is its options spelled out, every preset runs, the figures follow from each
# other. Natural routing is never faster than balanced, --measured anchors, mistakes say what would fit.
source "$(dirname "$0")/../support/tool.sh"
tool=("$build/hecate-sim")
for experts in 8 128 256 384; do
  "$build/hecate-trace" synth --workload zipf --experts $experts --layers 2 --top-k 2 --iterations 4 --source-ranks 1 \
    --tokens 65536 --exponent 0.4 --out e$experts.jsonl >/dev/null 2>err.txt || fail "synth $experts: $(cat err.txt)"
done
run() {
  "${tool[@]}" "$@" >out.txt 2>err.txt || fail "exit code $?: $*: $(cat err.txt)"
  [ ! -s err.txt ] || fail "something on stderr: $*: $(head -c 300 err.txt)"
}
figures='step_s tokens_per_s_per_gpu model_tflops_per_gpu mfu gpu_hours_per_1e12_tokens bubble_share dispatch_share'

# ---- Every preset ----
trace_of() {
  case $1 in
  mixtral*) echo e8.jsonl ;;
  deepseek-v3*) echo e256.jsonl ;;
  kimi-k2*) echo e384.jsonl ;;
  *) echo e128.jsonl ;;
  esac
}
names=$(for file in "$source_dir"/models/presets/setup-*.json; do basename "$file" .json; done | sed 's/^setup-//')
[ "$(wc -w <<<"$names")" -ge 17 ] || fail "presets of set-ups: $names"
for name in $names; do
  run "$(trace_of "$name")" --setup "$name" --policy ep --json
  # tokens/s/GPU and GPU hours follow from the step; ep is never faster than balanced routing.
  expect out.txt "[what for what, holds in {
    'figures': all(0 <= x[f] < 1e9 for f in '$figures'.split() for x in (d, d['balanced'])),
    'setup': d['setup'] == '$name',
    'tokens': abs(d['tokens_per_s_per_gpu'] * d['step_s'] * d['layout']['gpus'] / d['global_batch'] / d['seq'] - 1) < 1e-9,
    'hours': abs(d['gpu_hours_per_1e12_tokens'] * 3600 * d['tokens_per_s_per_gpu'] / 1e12 - 1) < 1e-9,
    'balanced': d['step_s'] >= d['balanced']['step_s'] > 0,
    'shares': all(0 <= x['mfu'] < 1 and 0 <= x['bubble_share'] < 1 for x in (d, d['balanced'])),
    'rows': [p['name'] for p in d['policies']] == ['ep'] and d['policies'][0]['step_s'] == d['step_s'],
    'memory': all(abs(sum(m['parts'].values()) / m['peak_bytes'] - 1) < 1e-9 for m in (d['memory'], d['balanced']['memory'])),
    'dense': d['layout']['tp'] * d['layout']['cp'] * d['layout']['dp'] * d['layout']['pp'] == d['layout']['gpus'],
    'experts': d['layout']['etp'] * d['layout']['ep'] * d['layout']['edp'] * d['layout']['pp'] == d['layout']['gpus'],
  }.items() if not holds]" "[]"
done

# ---- A set-up is its options, spelled out; a printed one is the same; options win ----
"${tool[@]}" --preset setup-qwen3-235b-256-h100 >mine.json || fail "--preset"
run e128.jsonl --setup mine.json --policy ep,eplb,hecate --json && mv out.txt file.txt
run e128.jsonl --setup qwen3-235b-256-h100 --policy ep,eplb,hecate --json && mv out.txt preset.txt
cmp -s file.txt preset.txt || fail "a printed preset is another job"
run e128.jsonl --model qwen3-235b-a22b --cluster "32x8 gpu=h100 nics=8" --layout "tp=4 pp=8 vpp=4 ep=8 etp=1" --seq 4096 \
  --global-batch 2048 --micro-batch 1 --recipe "precision=bf16 dispatcher=deepep graph=none overlap=off recompute=none" \
  --policy ep,eplb,hecate --json
mv out.txt options.txt
[ "$(value file.txt '{k: v for k, v in d.items() if k != "setup"}')" = "$(value options.txt '{k: v for k, v in d.items() if k != "setup"}')" ] ||
  fail "options spelled out are another job: $(diff file.txt options.txt | head -5)"
run e128.jsonl --setup mine.json --global-batch 4096 --recipe "precision=fp8" --layout "tp=2 pp=8 ep=16" --pipeline 1f1b --policy ep --json
expect out.txt 'd["global_batch"], d["layout"]["tp"], d["layout"]["ep"], d["layout"]["vpp"], d["pipeline"]' "(4096, 2, 16, 1, '1f1b')"
expect out.txt '"precision=fp8 dispatcher=deepep" in d["recipe"]' True
run e128.jsonl --setup mine.json --precision fp8 --dispatcher alltoall --recompute norm+act --zero 2 --policy ep --json && mv out.txt short.txt
run e128.jsonl --setup mine.json --recipe "zero=2 precision=fp8 dispatcher=alltoall recompute=norm+act" --policy ep --json
cmp -s short.txt out.txt || fail "--precision and the like are no parts of --recipe"
refuses 2 "--zero: expected a whole number from 0 to 3" e128.jsonl --setup mine.json --zero 4
refuses 2 "recipe: zero: expected 0, 1, 2, 3, found \"4\"" e128.jsonl --setup mine.json --recipe zero=4

# ---- A config.json: which key gave what is said; what it leaves open is the recipe's ----
hf='"hidden_size": 256, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 4, "num_experts": 128, "num_experts_per_tok": 2'
echo "{\"model_type\": \"olmoe\", $hf}" >olmoe.json
run e128.jsonl --model olmoe.json --layout ep=8 --policy ep --json
expect out.txt '[("d_ffn from intermediate_size" in a, "optimizer" in a) for a in d["assumed"] if a.startswith("model shape: ")]' "[(True, False)]"
echo "{\"model_type\": \"qwen3_moe\", \"moe_intermdiate_size\": 64, $hf}" >slip.json
refuses 2 'expected a member "moe_intermediate_size", found none; the nearest there is "moe_intermdiate_size"' e128.jsonl --model slip.json --layout ep=8

# ---- Megatron-LM cuts experts as it cuts the rest; here they are whole unless etp says so ----
for layout in "tp=2 ep=8" "tp=2 ep=8 etp=1" "ep=8"; do
  run e128.jsonl --model qwen3-30b-a3b --layout "$layout" --policy ep --json
  expect out.txt '[a for a in d["assumed"] if "etp" in a]' "$([ "$layout" = "tp=2 ep=8" ] && echo '["etp=1 (Megatron-LM'"'"'s own default is tp, here 2)"]' || echo "[]")"
done

# ---- Memory on the screen: a column of the full table; tensors, allocator and libraries are what is needed ----
job=(e128.jsonl --setup mine.json --policy ep,eplb)
run "${job[@]}" --json && mv out.txt memory.json
run "${job[@]}" && mv out.txt short.txt
grep -q "needed (GiB)" short.txt && fail "the short table has a column of memory"
run "${job[@]}" --full
while read -r name needed; do
  grep -Eq "^$name .*x +$needed( |$)" out.txt || fail "the full table says nothing of $name and $needed GiB: $(cat out.txt)"
done < <(value memory.json '"\n".join("%s %.1f" % (p["name"], (p["memory"]["reserved_bytes"] + p["memory"]["outside_bytes"]) / 2**30) for p in d["policies"])')
parts=$(value memory.json '"tensors %.1f, allocator %.1f, CUDA and NCCL %.1f GiB" % tuple(b / 2**30 for m in [d["memory"]] for b in (m["peak_bytes"], m["reserved_bytes"] - m["peak_bytes"], m["outside_bytes"]))')
tr -s "\n " " " <out.txt >line.txt
has "$parts" line.txt

# ---- Capacity: what is dropped is not computed, and no FLOP of it counted; balanced routing drops nothing ----
job=(e128.jsonl --setup mine.json --recipe graph=full --policy ep)
run "${job[@]}" --json && mv out.txt all.txt
run "${job[@]}" --capacity 1.25 --json && mv out.txt some.txt
expect some.txt '0.01 < d["policies"][0]["dropped_share"] < 0.9' True
expect some.txt 'abs(d["policies"][0]["computed_tokens_per_s_per_gpu"] / d["policies"][0]["tokens_per_s_per_gpu"] + d["policies"][0]["dropped_share"] - 1) < 1e-9' True
[ "$(value some.txt 'd["balanced"]')" = "$(value all.txt 'd["balanced"]')" ] || fail "a capacity changes balanced routing"
if command -v python3 >/dev/null; then
  python3 - <<'END' >why.txt 2>&1 || fail "FLOPs of a capacity: $(tail -1 why.txt)"
import json
a, b = (json.load(open(f))["policies"][0] for f in ("all.txt", "some.txt"))
per_token = [p["model_tflops_per_gpu"] / p["tokens_per_s_per_gpu"] * 1e12 for p in (a, b)]
experts = 6 * 94 * 8 * 3 * 4096 * 1536  # Qwen3-235B-A22B: layers, top-k, matrices of an expert
assert abs(per_token[0] - per_token[1] - b["dropped_share"] * experts) < 1e-6 * experts, (per_token, b["dropped_share"])
assert b["step_s"] < a["step_s"] and "dropped_share" not in a
END
fi
run "${job[@]}" --capacity 1.25 && has "at capacity 1.25, "
run "${job[@]}" --capacity 1e6 --json
[ "$(value out.txt 'd["policies"]')" = "$(value all.txt 'd["policies"]')" ] || fail "a capacity that nobody reaches changes something"
sed 's/"mtp"/"capacity": 1.25, "mtp"/; t; s/"seq"/"capacity": 1.25, "seq"/' mine.json >capped.json
run e128.jsonl --setup capped.json --recipe graph=full --policy ep --json && cmp -s out.txt some.txt || fail "capacity in a set-up"
refuses 2 "--capacity: expected" "${job[@]}" --capacity 0.5
run e128.jsonl --setup mine.json --gpus 512 --policy ep --json
expect out.txt 'd["layout"]["dp"]' 16

# ---- What was not said is said ----
run e8.jsonl --model mixtral-8x7b --layout ep=8 --cluster "2x8 gpu=h100" --policy ep --json
expect out.txt 'any("one NIC a node" in a for a in d["assumed"]), d["layout"]["gpus"], d["band"]["of"]' "(True, 16, 'assumed')"
# A file of one's own device is found again for the groups of a layout, and a scaled device is called so.
"${tool[@]}" --preset h100 | sed 's/"name": "h100"/"name": "own"/' >own.json
for gpu in h100 own.json; do
  run e8.jsonl --model mixtral-8x7b --layout ep=8 --cluster "2x8 gpu=$gpu nics=8" --policy ep,hecate --json
  mv out.txt $gpu.txt
done
[ "$(value own.json.txt '[p["step_s"] for p in d["policies"]]')" = "$(value h100.txt '[p["step_s"] for p in d["policies"]]')" ] ||
  fail "a device's own file prices another step"
# So is a file of a version whose laws had fewer constants, and what it lacks is said.
sed -z 's/,\n *"masked": [01],\n *"latent": [0-9]*//g' own.json >older.json
for of in "--layout ep=8" "--ranks 8"; do
  # shellcheck disable=SC2086
  run e8.jsonl --model mixtral-8x7b $of --cluster "2x8 gpu=older.json nics=8" --policy ep --json
  [[ $(cat out.txt) == *"GPU own: its file has no attention masked, attention latent; terms"* ]] || fail "$of: an older device file"
done
run e8.jsonl --model mixtral-8x7b --layout ep=8 --cluster "2x8 gpu=gb200 nics=8" --policy ep --json
expect out.txt '[a for a in d["assumed"] if "scaled" in a]' "['GPU gb200: costs measured on b200, scaled by data sheets']"
run e8.jsonl --model mixtral-8x7b --layout ep=8 --cluster h800 --gpus 128 --policy ep --json
expect out.txt 'any("128 GPUs in nodes like those of cluster h800, which has 64" in a for a in d["assumed"])' True
run e8.jsonl --setup mixtral-8x7b-64-h100 --recipe "graph=none overlap=off dispatch=bf16 fused=off recompute=none grads=bf16 head=last fabric=infiniband" --policy ep --json
expect out.txt 'd["band"]["of"], any(a.startswith("recipe") for a in d["assumed"])' "('stated', False)"
run e8.jsonl --setup mixtral-8x7b-64-h100 --recipe fabric=efa --policy ep --json
expect out.txt 'd["band"]["of"], d["band"]["nine_of_ten_factor"]' "('fabric', 3.5)"
refuses 2 "seq: expected" e8.jsonl --setup mixtral-8x22b-128-h100 --seq 1

# ---- Rows: sorted, ep always among them, references never ----
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy eplb,ep-balanced --json
expect out.txt '[p["name"] for p in d["policies"]]' "['eplb', 'ep']"
run e8.jsonl --setup mixtral-8x22b-128-h100
has "balanced routing"
has "band:"
has "published:"
[ "$(awk '/^policy/ {on = 1; next} on && NF == 0 {exit} on' out.txt | wc -l)" -le 6 ] || fail "more than six rows"
awk '/^policy/ {on = 1; next} on && NF == 0 {exit} on {sub(/balanced routing/, "balanced"); print $2}' out.txt >steps.txt
sort -g -c steps.txt || fail "rows are not sorted by step time: $(cat steps.txt)"
[ "$(awk 'length > 110' out.txt | wc -l)" -eq 0 ] || fail "lines above 110 columns"
"${tool[@]}" e8.jsonl --setup mixtral-8x22b-128-h100 --threads 1 --json >one.txt
"${tool[@]}" e8.jsonl --setup mixtral-8x22b-128-h100 --threads 3 --json >three.txt
cmp -s one.txt three.txt || fail "the number of threads changes the result"

# ---- What is chosen or odd is said ----
python3 - <<'P'
import json
lines = open("e8.jsonl").read().split("\n")
open("one.jsonl", "w").write("\n".join(lines[:2]) + "\n")
empty = json.loads(lines[2])
empty["layers"][0] = [[0] * len(row) for row in empty["layers"][0]]
open("two.jsonl", "w").write("\n".join(lines[:2] + [json.dumps(empty)]) + "\n")
P
run one.jsonl --model mixtral-8x7b --layout "pp=3 ep=8" --policy ep
tr -s "\n " " " <out.txt | grep -q "32 layers in stages of pp=3:11,11,10" || fail "stages are not said: $(cat out.txt)"
tr -s "\n " " " <out.txt | grep -q "policies have seen it before" || fail "one record is not said: $(cat out.txt)"
run two.jsonl --model mixtral-8x7b --layout "pp=2 ep=8" --policy ep
tr -s "\n " " " <out.txt | grep -q "policies have seen 1 before" || fail "two records: $(cat out.txt)"
tr -s "\n " " " <out.txt | grep -q "; 1 of the [0-9]* layers in these records have no tokens" || fail "a layer without tokens: $(cat out.txt)"
grep -q "layers in stages" out.txt && fail "even stages are nothing to say"

# ---- Anchored by a run of the user's own ----
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep,eplb --json && mv out.txt plain.txt
step=$(value plain.txt 'd["step_s"]')
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep,eplb --measured "step=10s" --json
expect out.txt 'abs(d["step_s"] - 10) < 1e-9 and abs(d["factor"] * '"$step"' - 10) < 1e-9' True
expect out.txt 'd["policies"][1]["speedup_vs_ep"] - '"$(value plain.txt 'd["policies"][1]["speedup_vs_ep"]')"' < 1e-9' True
factor=$(value out.txt 'd["factor"]')
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep,eplb --measured "factor=$factor" --json
expect out.txt 'abs(d["step_s"] - 10) < 1e-6' True
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep --measured "step=5000ms routing=balanced" --json
expect out.txt 'abs(d["balanced"]["step_s"] - 5) < 1e-9' True
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep --measured "step=10min"
has "WARNING: the factor is outside 0.7 to 1.4"
tr -s "\n " " " <out.txt >line.txt
has "Check etp, vpp, dispatcher, micro-batch and recompute first." line.txt
grep -q "nine of ten" out.txt && fail "a band, although the run is not the one described"
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep,eplb --measured "step=6s"
flat() { tr -s "\n " " " <out.txt; }
flat | grep -q "6 s with ep is your measurement. [0-9.]* to [0-9.]* s with eplb. Where times are relative" || fail "band of a measured run: $(cat out.txt)"
flat | grep -q "narrows it" && fail "nothing narrows a measured run"
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep --measured "factor=1.1"
grep -q WARNING out.txt && fail "a factor of 1.1 is no reason to warn"
for text in "step=" "step=-1s" "step=3h" "19.7s" "step=1s factor=2" "routing=balanced" "step=1s speed=2"; do
  refuses 2 "--measured: expected \"step=19.7s\"" e8.jsonl --setup mixtral-8x22b-128-h100 --measured "$text"
done

# ---- Mistakes ----
refuses 2 "pp=2 would fit" e128.jsonl --setup qwen3-235b-256-h100 --layout "pp=3 ep=8"
refuses 2 "ep: expected a divisor of 128, found 256; ep=128 would fit" e128.jsonl --model qwen3-30b-a3b --layout ep=256 --gpus 256
refuses 2 "expected at most as many virtual stages as the model has layers (48), found 64" e128.jsonl --model qwen3-30b-a3b --layout "pp=64" --gpus 64
refuses 2 "2048 would fit" e128.jsonl --setup qwen3-235b-256-h100 --global-batch 2047
refuses 2 "expected records of 256 experts, as model deepseek-v3 has, found 128" e128.jsonl --setup deepseek-v3-2048-h800
refuses 2 "--setup" e8.jsonl --setup nosuch
refuses 2 "--layout or --setup" e8.jsonl --gpus 8
refuses 2 "--tokens" e8.jsonl --setup mixtral-8x7b-64-h100 --tokens 8
refuses 2 "--micro-batches" e8.jsonl --setup mixtral-8x7b-64-h100 --micro-batches 2
refuses 2 "--schedule" e8.jsonl --setup mixtral-8x7b-64-h100 --schedule serial
refuses 2 "links of 1 MB/s and more, found 8 bytes/s" e8.jsonl --model mixtral-8x7b --layout ep=8 --cluster "2x8 gpu=h100 nic=8"
refuses 2 "write mem=80G, not mem=80" e8.jsonl --model mixtral-8x7b --layout ep=8 --cluster "1x8 gpu=h100 nics=8 mem=80"
refuses 2 "expected gpu=NAME" e8.jsonl --model mixtral-8x7b --layout ep=8 --cluster "1x8 nvlink=300G flops=312T mem=40G"
refuses 2 "--pipeline: expected" e8.jsonl --setup mixtral-8x7b-64-h100 --pipeline zigzag
refuses 2 "pipeline dualpipe: expected" e8.jsonl --setup mixtral-8x7b-64-h100 --pipeline dualpipe --layout "pp=4 vpp=2 ep=8"
echo '{"layout": "tp=2",
 "gpus": "many"}' >bad.json
refuses 2 "bad.json:2: gpus" e8.jsonl --setup bad.json

# ---- Files: the same figures in all of them, timelines as long as the step, nobody's files are touched ----
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep,eplb,hecate --json --out files && mv out.txt printed.json
cmp -s printed.json files/summary.json || fail "summary.json is not what --json prints"
python3 - <<'P' || fail "files of a training job"
import csv, json
d = json.load(open("files/summary.json"))
rows = {r["policy"]: r for r in csv.DictReader(open("files/summary.csv"))}
assert list(rows) == ["balanced routing"] + [p["name"] for p in d["policies"]], list(rows)
for p in d["policies"]:
    for key in ("step_s", "mfu", "bubble_share", "dispatch_share", "speedup_vs_ep"):
        assert float(rows[p["name"]][key]) == p[key], (p["name"], key)
    assert float(rows[p["name"]]["peak_bytes"]) == p["memory"]["peak_bytes"]
assert float(rows["balanced routing"]["step_s"]) == d["balanced"]["step_s"]
best = min(d["policies"], key=lambda p: p["step_s"])["name"]
ends, pieces, named = {}, {}, {}
for e in json.load(open("files/timeline.json"))["traceEvents"]:
    if e["ph"] == "M" and e["name"] == "process_name":
        named[e["pid"]] = e["args"]["name"].split(": stage ")
    if e["ph"] == "X":
        row = named[e["pid"]][0]
        ends[row] = max(ends.get(row, 0), e["ts"] + e["dur"])
        if e["tid"] == 0 and e["name"].startswith("forward"):
            pieces[row] = pieces.get(row, 0) + 1
steps = {"balanced routing": d["balanced"]["step_s"], **{p["name"]: p["step_s"] for p in d["policies"]}}
assert set(ends) == {"balanced routing", "ep", best}, ends
assert all(abs(ends[row] / 1e6 / steps[row] - 1) < 1e-6 for row in ends), (ends, steps)
assert all(n == d["layout"]["pp"] * d["layout"]["vpp"] * d["micro_batches"] for n in pieces.values()), pieces
P
python3 "$source_dir/tests/report/page_check.py" files/report.html >check.txt || fail "report.html: $(cat check.txt)"
for words in 'id="steps"' 'id="stages"' 'id="stage-memory"' "A step takes" "balanced routing" "not modelled" "memory, GiB"; do
  grep -q -- "$words" files/report.html || fail "report.html has no $words"
done
grep -oE "[0-9] [kMGT]B" files/report.html && fail "report.html has other units of memory than the screen"
# Groups with the same records in another order need as much memory: the page and summary.json speak of the same one.
"$build/hecate-trace" synth --workload zipf --exponent 0.6 --layers 48 --experts 128 --top-k 8 --iterations 6 --out long.jsonl.gz >/dev/null 2>&1
run long.jsonl.gz --model qwen3-30b-a3b --cluster "64x8 gpu=h100 nics=8" --layout "tp=2 pp=4 vpp=3 ep=16" --global-batch 2048 --seq 4096 \
  --policy ep,eplb --out groups
python3 - <<'P' || fail "moments of a peak"
import json, re
d, page = json.load(open("groups/summary.json")), open("groups/report.html").read()
held = re.findall(r"([a-z][a-z -]*) holds [0-9.]+ GiB at most, on stage \d+ at ([0-9.]+) (m?s)\.", page)
peaks = [("balanced routing", d["balanced"])] + [(p["name"], p) for p in d["policies"]]
scale = {"s": 1, "ms": 1e3}
assert held == [(name, "%.3g" % (scale[h[2]] * of["memory"]["at_s"]), h[2]) for h, (name, of) in zip(held, peaks)] and len(held) == 3, held
P
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep,eplb,hecate --json --out files
cmp -s printed.json files/summary.json || fail "a second run into the folder"
for format in kineto chakra; do
  run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep,eplb --out ranks-$format --timeline-format $format
  [ "$(ls ranks-$format/$format)" = "$(printf 'balanced\nep\neplb')" ] && [ "$(ls ranks-$format/$format/ep | wc -l)" -eq 8 ] ||
    fail "$format: $(ls -R ranks-$format)"
done
for row in balanced ep eplb; do
  python3 "$source_dir/tests/tools/chakra_check.py" ranks-chakra/chakra/$row ranks-kineto/kineto/$row >check.txt ||
    fail "chakra, $row: $(tail -n 5 check.txt)"
done
python3 "$source_dir/tests/tools/kineto_check.py" ranks-kineto/kineto/* >check.txt || fail "kineto: $(tail -n 5 check.txt)"
run e8.jsonl --setup mixtral-8x22b-128-h100 --policy ep --measured "step=10s" --json --out files
expect files/summary.json 'abs(d["step_s"] - 10) < 1e-9' True
mkdir -p theirs && echo mine >theirs/report.html
refuses 2 "report.html" e8.jsonl --setup mixtral-8x7b-64-h100 --out theirs
[ "$(cat theirs/report.html)" = mine ] && [ "$(ls theirs)" = report.html ] || fail "a file of theirs was touched"
refuses 2 "--timeline-iter" e8.jsonl --setup mixtral-8x7b-64-h100 --out fresh --timeline-iter 3
[ ! -e fresh ] || fail "a folder was made"
[ $failures -eq 0 ]
