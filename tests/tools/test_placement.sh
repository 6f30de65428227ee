#!/usr/bin/env bash
# Placements in and out: three files by hand that say the same, each as the row `given`. What `plan --export` writes is
# what was read, and what Python's own readers make of it. Damaged files: tests/plan/test_placement_damaged.c.
source "$(dirname "$0")/../support/tool.sh"
tool=("$build/hecate-sim")
from=$source_dir/tests/tools/placements
{
  echo '{"format":"hecate-trace","version":1,"layers":2,"experts":6,"top_k":1,"source_ranks":4,"layout":"layer x source_rank x expert"}'
  for i in 1 2 3; do
    echo "{\"iter\":$i,\"layers\":[[[4,0,$i,1,0,9],[1,7,0,0,2,3],[$i,1,1,1,5,5],[0,2,0,8,3,1]],[[3,3,1,0,$i,7],[2,2,2,4,4,0],[6,1,0,1,2,4],[5,0,9,0,0,0]]]}"
  done
} >loads.jsonl
common=(loads.jsonl --cluster "1x4 nvlink=300G@2us flops=312T mem=40G" --model tiny)
accepts() { "${tool[@]}" "$@" >out.txt 2>err.txt || fail "exit code $?: $*: $(cat err.txt)"; }

# ---- The same placement in three formats ----
for file in eplb.json vllm_ascend.json tensorrt_llm.yaml; do
  cp "$from/$file" .
  accepts "${common[@]}" --placement $file --policy ep,eplb --json
  mv out.txt $file.out
  expect $file.out '[p["name"] for p in d["policies"]]' "['given', 'ep', 'eplb']"
  expect $file.out '"as in '$file' (format" in d["policies"][0]["note"]' True
  expect $file.out 'all("speedup_vs_given" in p for p in d["policies"])' True
  expect $file.out 'd["policies"][0]["speedup_vs_given"]' 1
  accepts plan "${common[@]}" --policy given --placement $file --iter 1 --layer 1 --json
  expect out.txt 'd["owner"]' "[1, 1, 0, 2, 3, 0]"
  expect out.txt 'd["copies"]' "[[1], [1], [0], [2], [3], [0, 2, 3]]"
  accepts plan "${common[@]}" --policy given --placement $file --iter 1 --layer 0 --json
  expect out.txt 'd["copies"]' "[[0, 3], [0], [1], [1, 3], [2], [2]]"
  # Evenly over all slots by turns, by hand. Expert 0, slots on ranks 0 and 3: 4 of source 0 are halved. 1 of source 1
  # begins with the second slot, 1 of source 2 with the first: 3 and 3. Expert 3, ranks 1 and 3: 1, 1 of sources 0 and
  # 2 on rank 1, 8 halved: 6 and 4. Alone: expert 1, 10 on rank 0; 2, 2 on rank 1; 4 and 5, 10 + 18 on rank 2.
  expect out.txt 'd["tokens_per_rank"]' "[13, 8, 28, 7]"
done
sed 's/_list"/_list" /g' vllm_ascend.json >named-nothing && accepts "${common[@]}" --placement named-nothing --policy ep
value() { python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2" 2>&1; }
for other in vllm_ascend.json tensorrt_llm.yaml; do
  [ "$(value eplb.json.out '[d["policies"][0][k] for k in ("iteration_s","overload_factor","peak_memory_bytes") if k in d["policies"][0]]')" = \
    "$(value $other.out '[d["policies"][0][k] for k in ("iteration_s","overload_factor","peak_memory_bytes") if k in d["policies"][0]]')" ] ||
    fail "$other gives other numbers than eplb.json"
done
accepts "${common[@]}" --placement eplb.json --policy ep,ideal --full && has "as fast as given, the placement of today" || cat out.txt
accepts "${common[@]}" --placement eplb.json --policy ep && tr -s '\n ' ' ' <out.txt | grep -q ' assumed:.*ranks of the placement' || fail "ranks of a map that names none"
accepts "${common[@]}" --placement eplb.json --policy ep --ranks 4 && ! grep -q 'ranks of the placement' out.txt || fail "ranks that were given"
accepts "${common[@]}" --placement eplb.json --policy given,ep && [ "$(grep -c '^given .*serial' out.txt)" -eq 1 ] || fail "given stands twice"
accepts "${common[@]}" --policy all --full && ! grep -q '^given' out.txt || fail "all has given without a placement"
accepts "${common[@]}" --placement eplb.json --full && grep -q '^given' out.txt && grep -q '^moetuner' out.txt || fail "all with a placement"
refuses 2 "--policy given: expected --placement FILE" "${common[@]}" --policy given
refuses 2 "--policy given: expected --placement FILE" plan "${common[@]}" --policy given --iter 1 --layer 0
refuses 2 "--placement: expected --policy given" plan "${common[@]}" --policy ep --placement eplb.json --iter 1 --layer 0
refuses 2 "--first-layer: expected --placement FILE beside it, found none" "${common[@]}" --policy ep --first-layer 0
refuses 2 "--first-layer: expected --placement FILE or --export FORMAT" plan "${common[@]}" --policy ep --iter 1 --layer 0 --first-layer 3
"$build/hecate-run" loads.jsonl --policy ep --ranks 4 --virtual --first-layer 1 >out.txt 2>err.txt
[ $? -eq 2 ] && has "--first-layer: expected --placement FILE" err.txt || fail "hecate-run --first-layer: $(cat err.txt)"
refuses 2 "nowhere.json: cannot be opened" "${common[@]}" --placement nowhere.json
refuses 2 "expected a placement, found a directory" "${common[@]}" --placement "$work"
: >empty && refuses 2 "empty: expected a placement of a known format" "${common[@]}" --placement empty
echo '{"logical_count": [[1,2]]}' >load.json && refuses 2 "load.json: expected a placement of a known format" "${common[@]}" --placement load.json
refuses 2 "which numbers MoE layers alone: leave it out" "${common[@]}" --placement vllm_ascend.json --first-layer 3
"$build/hecate-run" loads.jsonl --placement eplb.json --policy ep --ranks 4 --virtual --check --layers 1 >out.txt 2>err.txt ||
  fail "hecate-run: $(cat err.txt)"
grep -q '^given .*passed .*, exact' out.txt || fail "hecate-run does not check given: $(cat out.txt)"

# ---- Out ----
for format in eplb vllm-ascend tensorrt-llm; do
  for file in eplb.json vllm_ascend.json tensorrt_llm.yaml; do
    accepts plan "${common[@]}" --policy given --placement $file --iter 1 --export $format --out "out-$format"
    has "format $format"
    accepts plan "${common[@]}" --policy given --placement "out-$format" --iter 2 --layer all --export $format --out again
    cmp -s "out-$format" again || fail "$format read and written differs from what was read"
    [ ! -e "first-$format" ] || cmp -s "out-$format" "first-$format" || fail "$format from $file is another"
    mv "out-$format" "first-$format"
  done
done
expect first-eplb 'd["physical_to_logical_map"]' "[[0, 1, 2, 3, 4, 5, 0, 3], [2, 5, 0, 1, 3, 5, 4, 5]]"
expect first-vllm-ascend '[[v["device_expert"] for v in l["device_list"]] for l in d["layer_list"]]' \
  "[[[0, 1], [2, 3], [4, 5], [0, 3]], [[2, 5], [0, 1], [3, 5], [4, 5]]]"
expect first-vllm-ascend '(d["moe_layer_count"], [l["layer_id"] for l in d["layer_list"]], d["layer_list"][1]["device_count"])' "(2, [0, 1], 4)"
if python3 -c 'import yaml' 2>/dev/null; then
  python3 -c 'import json,yaml; json.dump(yaml.safe_load(open("first-tensorrt-llm")), open("yaml.json", "w"))'
  expect yaml.json 'd' "{'initial_global_assignments': {'0': [0, 1, 2, 3, 4, 5, 0, 3], '1': [2, 5, 0, 1, 3, 5, 4, 5]}, 'layer_updates_per_iter': 0, 'num_slots': 8}"
  # What PyYAML writes in its other ways is read as well.
  for style in None False; do
    python3 -c "import yaml; yaml.dump(yaml.safe_load(open('tensorrt_llm.yaml')), open('styled.yaml', 'w'), default_flow_style=$style, width=20)"
    accepts plan "${common[@]}" --policy given --placement styled.yaml --iter 1 --export tensorrt-llm --out again
    cmp -s again first-tensorrt-llm || fail "PyYAML's style $style is read otherwise"
  done
else
  echo "SKIPPED placement (yaml): no PyYAML"
fi
# Comments behind keys, slots and numbers; before them there is a blank.
cat >said.yaml <<'EOF'
--- # a file
initial_global_assignments:  # of the model's layers
  3: # the first
  - 0 # of rank 0
  - 1
  - 2
  - 3
  - 4
  - 5
  - 0
  - 3
  4:   [2, 5, 0, 1, 3, 5, 4, 5] # inline
layer_updates_per_iter: 0 # none
num_slots: 8 # two a rank
EOF
accepts plan "${common[@]}" --policy given --placement said.yaml --iter 1 --export tensorrt-llm --out again
cmp -s again first-tensorrt-llm || fail "comments change a placement"
sed 's/0 # of/0#of/' said.yaml >said-no.yaml
refuses 2 'said-no.yaml:4: initial_global_assignments[3][0]: expected' "${common[@]}" --placement said-no.yaml
sed 's/- 0 # of/-0 # of/' said.yaml >said-no.yaml
refuses 2 'said-no.yaml:4: initial_global_assignments[3]: expected "- " and an expert, found "-0"' "${common[@]}" --placement said-no.yaml
# Dense layers are counted where the format does.
accepts plan "${common[@]}" --policy given --placement eplb.json --iter 1 --export tensorrt-llm --out dense --first-layer 0
cmp -s dense first-tensorrt-llm || fail "--first-layer 0 is another file"
accepts plan "${common[@]}" --policy given --placement tensorrt_llm.yaml --first-layer 3 --iter 1 --export tensorrt-llm --out dense
has "  3: [0, 1" dense
refuses 2 'tensorrt_llm.yaml:2: initial_global_assignments: expected layer 2, the first MoE layer (--first-layer), found "3:"' "${common[@]}" --placement tensorrt_llm.yaml --first-layer 2
accepts plan "${common[@]}" --policy given --placement tensorrt_llm.yaml --first-layer 3 --iter 1 --export eplb --out dense
expect dense 'd["physical_to_logical_map"]' \
  "[[0, 1, 2, 3, 4, 5, 0, 1], [0, 1, 2, 3, 4, 5, 0, 1], [0, 1, 2, 3, 4, 5, 0, 1], [0, 1, 2, 3, 4, 5, 0, 3], [2, 5, 0, 1, 3, 5, 4, 5]]"
refuses 2 "physical_to_logical_map: expected an array of the trace's 2 MoE layers after 0 dense ones (--first-layer: 3, if it numbers the dense ones, too), found" \
  "${common[@]}" --placement dense
refuses 2 "after 3 dense ones (--first-layer: leave it out, this file has MoE layers alone), found" \
  "${common[@]}" --placement eplb.json --first-layer 3
accepts "${common[@]}" --placement dense --first-layer 3 --policy ep
# A policy's plan: read back it is the row that exported it, to the picosecond, where it does not move on.
accepts plan "$sample" --policy eplb --iter 15 --export eplb --out eplb.plan
accepts "$sample" --policy eplb --placement eplb.plan --json
expect out.txt 'd["policies"][0]["iteration_s"] == d["policies"][1]["iteration_s"]' True
# One past the last record: after all of them. Of a trace cut behind iteration 1 that is the plan of iteration 2 of the whole.
head -n 2 "$sample" >one.jsonl
accepts plan one.jsonl --policy eplb --iter 1 --export eplb --out start
[ "$(tr '\n' ' ' <out.txt | grep -c "eplb: no load before iteration 1 is known: it places as it begins")" -eq 1 ] || fail "silent: $(cat out.txt)"
accepts plan one.jsonl --policy ep --iter 1 --export eplb --out of-ep && [ "$(wc -l <out.txt)" -eq 1 ] || fail "ep needs no load: $(cat out.txt)"
accepts plan one.jsonl --policy eplb --iter 2 --export eplb --out after && has "after all records; the tokens are those of iteration 1 once more"
accepts plan "$sample" --policy eplb --iter 2 --export eplb --out of-two && ! grep -q "^eplb:" out.txt || fail "a note: $(cat out.txt)"
cmp -s after of-two || fail "the plan after all records is not that of the next iteration"
! cmp -s after start || fail "a record changes nothing"
accepts plan one.jsonl --policy eplb --iter 2 --layer 0 --json && expect out.txt '"after all records" in d["note"]' True
sum=$(python3 -c 'import json; print(sum(sum(s) for s in json.loads(open("one.jsonl").readlines()[1])["layers"][0]))')
expect out.txt 'sum(d["tokens_per_rank"])' "$sum"
accepts plan "$sample" --policy eplb --iter 21 --layer 0 &&
  tr -s '\n ' ' ' <out.txt | grep -q "no decision was due at iteration 21: it places as it decided at iteration 2;" || fail "decided when: $(cat out.txt)"
accepts plan "$sample" --policy eplb --iter 21 --export eplb --out of-21 && cmp -s of-21 of-two || fail "not as decided at 2"
accepts plan "$sample" --policy eplb --iter 21 --layer 0 --period 1 && ! grep -q "no decision" out.txt || fail "--period 1: $(tail -3 out.txt)"
refuses 2 "--iter: the trace has no iteration 3; its last is 1, and 2 plans after all records" plan one.jsonl --policy eplb --iter 3 --layer 0
# What a format cannot say.
refuses 2 "--export eplb: expected as many slots on every rank" plan "$sample" --policy hecate --iter 9 --export eplb --out never
refuses 2 "--export: expected a plan of whole experts" plan "$sample" --policy fsdp --iter 9 --export vllm-ascend --out never
accepts plan "$sample" --policy hecate --iter 9 --export vllm-ascend --out ragged && has "copies that are gathered for one micro-batch"
has "vllm-ascend itself loads"
accepts "$sample" --policy ep --placement ragged
refuses 2 "--first-layer: expected 0 or nothing beside --export vllm-ascend" plan "$sample" --policy ep --iter 9 --export vllm-ascend --out never --first-layer 1
refuses 2 "--export: expected one of eplb, vllm-ascend, tensorrt-llm" plan "$sample" --policy ep --iter 9 --export json --out never
refuses 2 "--export: expected --out FILE" plan "$sample" --policy ep --iter 9 --export eplb
refuses 2 "--out: expected --export FORMAT" plan "$sample" --policy ep --iter 9 --layer 0 --out never
refuses 2 "--out nowhere/never" plan "$sample" --policy ep --iter 9 --export eplb --out nowhere/never
refuses 2 "--json: expected --layer L" plan "$sample" --policy ep --iter 9 --export eplb --out never --json
refuses 2 '--layer: expected a whole number from 0 (all is for --export), found "all"' plan "$sample" --policy ep --iter 9 --layer all
refuses 2 '--layer: expected a whole number' plan "$sample" --policy ep --iter 9 --layer -1
[ ! -e never ] || fail "a refused export left a file"
accepts plan "$sample" --policy ep --iter 9 --export eplb --out both --layer 2 --json && [ -s both ] || fail "--export beside --layer"
expect out.txt 'd["layer"]' 2
[ $failures -eq 0 ] || exit 1
echo "all passed"
