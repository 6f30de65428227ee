#!/usr/bin/env bash
# What a training job takes from its cluster, from outside: links bound every dispatcher and every gather by their bytes,
# memory and latency are the cluster's, what a step does not use is refused, and so is a precision that the GPU lacks.
source "$(dirname "$0")/../support/tool.sh"
tool=("$build/hecate-sim")
"$build/hecate-trace" synth --workload zipf --experts 128 --layers 2 --top-k 2 --iterations 4 --source-ranks 1 \
  --tokens 65536 --exponent 0.4 --out t.jsonl >/dev/null 2>err.txt || fail "synth: $(cat err.txt)"
# Writes x/NAME.txt for: NAME CLUSTER'S-WORDS LAYOUT RECIPE POLICIES
mkdir x
run() {
  "${tool[@]}" t.jsonl --model qwen3-30b-a3b --cluster "8x8 gpu=h100 $2" --layout "$3" --seq 4096 --global-batch 64 \
    --micro-batch 1 --recipe "$4" --policy "$5" --json >"x/$1.txt" 2>err.txt || fail "exit code $?: $*: $(cat err.txt)"
}
same() { [ "$(value "x/$1.txt" '[p["step_s"] for p in d["policies"]]')" = "$(value "x/$2.txt" '[p["step_s"] for p in d["policies"]]')" ]; }
slower() { # FILE than OTHER
  [ "$(value "x/$1.txt" 'd["balanced"]["step_s"] > 1.02 * json.load(open("x/'"$2"'.txt"))["balanced"]["step_s"]')" = True ] ||
    fail "$1: $(value "x/$1.txt" 'd["balanced"]["step_s"]') s is not slower than $2"
}

# ---- Dispatchers: by hand, each of 4096 tokens goes to 2.5 other nodes of 4 at least, 4 KB a time, there and back, forward and
# backward, 48 layers ----
for by in alltoall allgather deepep hybridep; do
  run $by "nics=8 nic=5G" ep=32 "dispatcher=$by overlap=off" ep
  run $by-shared "nics=1 nic=40G" ep=32 "dispatcher=$by overlap=off" ep
  run $by-native "nics=8" ep=32 "dispatcher=$by overlap=off" ep
  expect x/$by.txt 'd["balanced"]["dispatch_share"] * d["balanced"]["step_s"] > 4096 * 2.5 * 4096 / 5e9 * 4 * 48' True
  same $by $by-shared || fail "$by: eight GPUs behind a NIC of 40 GB/s are not those with 5 GB/s each"
  slower $by $by-native
done
for by in deepep hybridep; do
  run $by-near "nics=8 nvlink=20G" ep=8 "dispatcher=$by overlap=off" ep
  run $by-near-native "nics=8" ep=8 "dispatcher=$by overlap=off" ep
  slower $by-near $by-near-native
done

# ---- Gathers: experts of 57 GB in three passes enter each node, all but an eighth of them, at 8 GB/s ----
hand='3 * 2 * 48 * 128 * 3 * 2048 * 768 * 7 / 8 / 8e9'
run one "nics=8 nic=1G" ep=1 "zero=3 recompute=none dp-overlap=off" ep
for ep in 8 32 64; do
  run fsdp$ep "nics=8 nic=1G" ep=$ep "zero=3 recompute=none dp-overlap=off" ep,fsdp
  expect x/fsdp$ep.txt '[p["step_s"] > '"$hand"' for p in d["policies"] if p["name"] == "fsdp"]' '[True]'
  expect x/fsdp$ep.txt '[0.85 < p["step_s"] / json.load(open("x/one.txt"))["step_s"] < 1.25 for p in d["policies"] if p["name"] == "fsdp"]' '[True]'
  expect x/fsdp$ep.txt '[p["data_share"] > 0.8 for p in d["policies"] if p["name"] == "fsdp"]' '[True]'
done
expect x/one.txt 'd["data_share"] > 0.8 and d["step_s"] > '"$hand" True
# In a pipeline too: with 8 micro-batches eight times as much of the dense part as with one.
for zero in 1 3; do
  run pp$zero "nics=8 nic=1G" "pp=8 ep=8" "zero=$zero recompute=none dp-overlap=off graph=full" ep
done
expect x/pp3.txt 'd["micro_batches"]' 8
slower pp3 pp1
expect x/pp3.txt 'd["data_share"] > 0' True

# ---- Memory, NVLink, efficiency and latency are the cluster's ----
run plain "nics=8" "tp=8 ep=32" "overlap=off graph=full" ep
run mem "nics=8 mem=40G" "tp=8 ep=32" "overlap=off graph=full" ep
expect x/mem.txt 'd["memory"]["device_bytes"] * 2 == json.load(open("x/plain.txt"))["memory"]["device_bytes"]' True
# Policies copy into the room that the step leaves: its state is shared out and it computes again, which they do not count themselves.
"$build/hecate-trace" synth --workload zipf --experts 128 --layers 48 --top-k 2 --iterations 4 --source-ranks 1 \
  --tokens 65536 --exponent 0.8 --out t48.jsonl >/dev/null 2>err.txt || fail "synth: $(cat err.txt)"
"${tool[@]}" t48.jsonl --model qwen3-30b-a3b --cluster "8x8 gpu=h100 nics=8 mem=40G" --layout ep=8 --seq 4096 --global-batch 512 \
  --micro-batch 4 --recipe "zero=3 recompute=full" --policy ep,hecate-rm,hecate --json >x/room.txt || fail "room"
expect x/room.txt '[(p["memory"]["fits"], p["memory"]["parts"]["copies"] > 0) for p in d["policies"]]' '[(True, False), (True, True), (True, True)]'
for words in nvlink=50G nvlink_eff=0.1 nic_eff=0.05 nic=50G@20ms; do
  run "$words" "nics=8 $words" "tp=8 ep=32" "overlap=off graph=full" ep
  slower "$words" plain
done
run same "nics=8 nic=50G nvlink=450G mem=80G" "tp=8 ep=32" "overlap=off graph=full" ep
same same plain || fail "rates of the data sheet, said once more, change the step"
for words in pxn=1 through=1 sm=0.1 step=1.2 plan=5us p2p=32:4 slow=3:0.5; do
  refuses 2 "${words%%=*}= means nothing beside --layout" t.jsonl --layout ep=8 --cluster "8x8 gpu=h100 nics=8 $words"
done
refuses 2 "a latency of nvlink= means nothing beside --layout" t.jsonl --layout ep=8 --cluster "8x8 gpu=h100 nvlink=450G@2us"
echo '{"nodes": 2, "devices_per_node": 8, "nics": 8, "gpu": "h100", "devices": [{"device": 3, "speed": 0.5}]}' >slow.json
refuses 2 "all alike beside --layout" t.jsonl --layout ep=8 --cluster slow.json

# ---- Precisions that a GPU lacks ----
for precision in fp8 fp8-block mxfp8; do
  refuses 2 "expected one that GPU a100 has (bf16), found $precision" t.jsonl --layout ep=8 --cluster "1x8 gpu=a100" --precision $precision
done
run fp8-block "nics=8" ep=8 "precision=fp8-block" ep
refuses 2 "expected one that GPU h100 has (bf16, fp8, fp8-block), found mxfp8" t.jsonl --layout ep=8 --cluster "1x8 gpu=h100" --precision mxfp8
expect x/fp8-block.txt 'any("does not tell fp8, fp8-block and mxfp8 apart" in a for a in d["assumed"])' True
[ $failures -eq 0 ]
