#!/bin/bash
# hecate-validate calibrate and compare from outside, with a model so small that it takes seconds. Exit codes, files whole or
# absent, documents that parse, a calibration that can be used again. Nothing here judges a time.
source "$(dirname "$0")/../support/tool.sh"
tool=("$build/hecate-validate")
[ "$(nproc)" -ge 2 ] && where=() || where=(--virtual)
small=(--model tiny --tokens 16 --repeat 2 "${where[@]}")

# However busy the machine is, there is an answer.
accepts() {
  "${tool[@]}" "$@" >out.txt 2>err.txt || fail "exit $?: $*"
  [ -s err.txt ] && fail "something on stderr: $*: $(head -c 300 err.txt)"
  [ -s out.txt ] || fail "nothing on stdout: $*"
}

# Wrong input: said before anything runs.
refuses 2 "expected a trace" compare
refuses 2 missing.jsonl compare missing.jsonl
refuses 2 "--policy" compare "$sample" --policy nonsense
refuses 2 "only bounds" compare --random 2 --policy ideal
refuses 2 "--stamp" compare --random 2 --stamp x
refuses 2 "--out" compare --random 2 --out "$sample"
refuses 2 "--out" calibrate --out .
refuses 2 "--transport" calibrate --transport nonsense
refuses 2 "nonsense" calibrate --model nonsense
refuses 2 "--phase" calibrate --phase nonsense
for time in 0 0s -1m 2d 1m30s m 1e9; do
  refuses 2 "--within: expected a number from 0.001 to 1000000 seconds, or with s m h" compare --random 2 --within=$time
done
refuses 2 "would take turns" calibrate --model tiny --ranks $(($(nproc) + 1))
refuses 2 "would take turns" compare --random 2 --model tiny --ranks $(($(nproc) + 1))
refuses 2 "experts in shards beside --esp 2" compare --random 2 --model tiny "${where[@]}" --esp 2
refuses 2 "--esp: expected a divisor of the 2 ranks" calibrate --model tiny "${where[@]}" --esp 3
refuses 2 "calibration knows no leaf" calibrate --model tiny "${where[@]}" \
  --cluster "2x1 nic=1G leaf=1 uplink=1G flops=1G mem=1G"
for option in --cluster --calibration; do
  refuses 2 none.json compare --random 2 "${small[@]}" $option none.json
done
echo '{"nodes":1,"devices_per_node":2,"nvlink":{"bandwidth":1e9},"device":{"flops":1e9,"memory_bytes":1e9}}' >plain.json
refuses 2 "expected a cluster file of hecate-validate calibrate" compare --random 2 "${small[@]}" --calibration plain.json

# A calibrated cluster fits the model it was measured with; of the ranks there are, as many as it has devices.
curves() {
  "$build/hecate-sim" "$sample" --full --cluster here.json --policy ep "$@" >out.txt 2>err.txt
}

# Calibration: a table; a cluster file, alone on stdout with --json, that hecate-sim takes.
accepts calibrate "${small[@]}" --out here.json
has "Written: here.json"
has "attention         backward"
has "planning"
has "disturbed"
[ "$(ls -A)" = "$(printf 'err.txt\nhere.json\nout.txt\nplain.json')" ] || fail "left behind: $(ls -A)"
expect here.json 'sorted(set(["name","nodes","device","plan","measured","machine","calibration"]) - set(d))' '[]'
expect here.json 'd["calibration"]["probe_s"] > 0, d["calibration"]["error"]["interval"][0] <= d["calibration"]["error"]["interval"][1], d["calibration"]["level_within"] > 0' "(True, True, True)"
expect here.json 'len(d["machine"]["date"]), d["machine"]["backend"], d["calibration"]["seed"]' "(20, 'cpu', 1001)"
accepts calibrate "${small[@]}" --json
mv out.txt again.json
expect again.json 'd["calibration"]["cases"]' "$(value here.json 'd["calibration"]["cases"]')"
accepts calibrate "${small[@]}"
has "Not kept"
for file in here.json again.json; do
  "$build/hecate-sim" "$sample" --full --model tiny --ranks 2 --cluster $file --policy ep >out.txt 2>err.txt ||
    fail "hecate-sim --cluster $file: $(cat err.txt)"
done
curves --model tiny --ranks 2 || fail "hecate-sim: $(cat err.txt)"
has "computing: measured curves of cluster"
curves --model gpt-moe-s --ranks 2 || fail "hecate-sim: $(cat err.txt)"
has "no measured curve of cluster"
curves --model tiny && fail "16 sources on 2 devices"
has "choose --ranks 2 or a larger --cluster" err.txt

# Comparison of random configurations; whatever plans and cases are made of is decided by the seed and the calibration.
compare=(compare --random 4 "${small[@]}" --calibration here.json)
accepts "${compare[@]}" --out one --stamp "a day" --json
cmp -s out.txt one/summary.json || fail "--json and summary.json differ"
[ "$(cd one && echo *)" = "compare.md report.html summary.csv summary.json timeline.json" ] || fail "in --out: $(ls -A one)"
accepts "${compare[@]}" --out two --json
decided='[(p["case"], p["iter"], p["program"]) for p in d["points"]], d["fitted"], d["predicted"], d["command"], d["defaults_taken"]'
[ "$(value one/summary.json "$decided")" = "$(value two/summary.json "$decided")" ] || fail "cases or plans differ between runs"
accepts "${compare[@]}" --seed 2 --json
[ "$(value one/summary.json 'd["predicted"]')" != "$(value out.txt 'd["predicted"]')" ] || [ -z "$(value out.txt 1)" ] ||
  fail "--seed changes nothing"
expect one/summary.json 'len(d["policies"]), len(d["points"]), d["random"], d["trace"]' "(4, 4, True, None)"
expect one/summary.json 'sorted(set(["version","machine","policies","error","kendall_tau","kendall_tau_5pct","fitted","controls","contaminated"]) - set(d))' '[]'
expect one/summary.json 'set(d["fitted"]) & set(d["predicted"])' 'set()'
expect one/summary.json 'len(d["fitted"]) > 0, d["calibration"]["file"]' "(True, 'here.json')"
expect one/summary.json '[c["name"] for c in d["controls"]]' "['mean_compute', 'mean_bytes', 'flat_rate']"
expect one/summary.json 'all(p["predicted_s"] > 0 for p in d["points"])' True
expect one/summary.json 'all(k["kind"] and k["predicted_s"] >= 0 for p in d["policies"] for k in p["kinds"])' True
expect one/summary.json 'sum(d["pairs"].values()) <= 6, sorted(d["pairs"]), sorted(d["regret"])' \
  "(True, ['right', 'too_close', 'wrong'], ['measured_best', 'predicted_best', 'share', 'told_apart'])"
expect one/summary.json 'all(e["interval"][0] <= e["median"] <= e["interval"][1] and e["p90_interval"][0] <= e["p90"] <= e["p90_interval"][1] for e in [d["error"]] + [p["error"] for p in d["policies"]])' True
expect one/summary.json 'all(p["measured_interval"][0] <= p["measured_s"] <= p["measured_interval"][1] for p in d["policies"])' True
expect one/summary.json '0 <= d["disturbed"] <= 1, d["within_s"], d["time_over"], d["rounds"], d["rounds_most"], d["inconclusive"]' "(True, 120, False, 2, 2, 0)"
expect one/timeline.json 'len(d["traceEvents"]) > 0' True
has ", predicted" one/timeline.json
has ", measured" one/timeline.json
[ "$(wc -l <one/summary.csv)" -eq 5 ] || fail "summary.csv: $(cat one/summary.csv)"
has "a day" one/compare.md
has "hecate-validate compare --random 4" one/compare.md
grep -q -- "--out" one/compare.md && fail "where it was written is in compare.md"

# Timelines of ranks: what was predicted and what was measured, each in a folder of its own.
for format in kineto chakra; do
  accepts "${compare[@]}" --out ranks-$format --timeline-format $format
  has "timelines of each rank below ranks-$format/$format"
  [ "$(ls ranks-$format/$format | wc -l)" -eq 8 ] && [ "$(ls ranks-$format/$format/*-predicted | grep -c '[01]')" -ge 8 ] ||
    fail "$format: $(find ranks-$format/$format)"
  [ -z "$(find ranks-$format/$format -type f -empty)" ] && [ ! -e ranks-$format/timeline.json ] || fail "$format: $(find ranks-$format)"
done
for of in ranks-chakra/chakra/*; do
  [ -s "$of/et.0.et" ] && [ -s "$of/et.1.et" ] && [ -s "ranks-kineto/kineto/${of##*/}/rank1.json" ] || fail "$of: $(ls ranks-*)"
done
grep -q timeline-format ranks-chakra/compare.md && fail "how timelines were written is in compare.md"
for which in predicted measured; do # too short for the rounding of kineto_check.py, which test_timeline_formats.sh has
  of=$(echo ranks-kineto/kineto/*-$which/rank1.json | cut -d ' ' -f 1)
  has ", $which" "$of"
  expect "$of" 'd["distributedInfo"]["rank"], d["distributedInfo"]["world_size"], len(d["traceEvents"]) > 10' "(1, 2, True)"
done
refuses 2 "--timeline-format: expected one of chrome, kineto, chakra" "${compare[@]}" --out x --timeline-format nonsense
refuses 2 "--timeline-format: expected --out DIR" "${compare[@]}" --timeline-format kineto

# Policies on a trace, calibrated in the same run.
accepts compare "$sample" "${small[@]}" --steps 2 --policy ep,eplb,hecate
has "ep, serial, 16 tokens"
has "Fitted on"
has "predicted"
has "Negative controls"
has "pace     speed of the cores, found by probes"
has "disturbed"
has "95 % interval"
has "not told apart"
grep -q "^Predicted within .* \[" out.txt || fail "no verdict with its interval: $(tail -3 out.txt)"

# The time given is over before anything could be executed: said, and no failure. What calibration needs, it takes.
accepts compare "$sample" --model tiny --tokens 16 "${where[@]}" --policy ep,eplb --within 0.001s --json
expect out.txt 'd["time_over"], d["error"]["median"], d["kendall_tau"], d["rounds"], d["inconclusive"] == len(d["points"])' "(True, None, None, 0, True)"
accepts compare "$sample" --model tiny --tokens 16 "${where[@]}" --policy ep,eplb --within 0.001s
has "Nothing can be said: there was no time to execute anything; give more with --within"
accepts compare "$sample" "${small[@]}" --steps 1 --policy ep,hecate --json
expect out.txt '[p["name"] for p in d["policies"]], len(d["points"]), d["calibration"]["file"]' "(['ep', 'hecate'], 2, None)"

# Imitated links and virtual time say what they do not validate.
if [ "$(nproc)" -ge 2 ]; then
  accepts compare --random 2 --model tiny --tokens 16 --repeat 1 --transport emulated
  has "emulated network: validates compute, waiting and order, not the network"
fi
accepts compare --random 2 --model tiny --tokens 16 --repeat 1 --ranks 3 --virtual
has "virtual time: validates compute, waiting and order, not the network"

# Experts in shards: calibrated so, predicted and executed.
accepts calibrate --model tiny --tokens 16 --repeat 2 --ranks 4 --virtual --esp 2 --out shards.json
accepts compare --random 2 --model tiny --tokens 16 --repeat 1 --ranks 4 --virtual --esp 2 --policy ep --calibration shards.json --out sharded
grep -q "expert AllGather" sharded/timeline.json || fail "no AllGather of shards" # on a busy machine too small for the table
has "groups of 2 ranks"
refuses 2 "another model shape" compare --random 2 --model tiny --tokens 16 --ranks 4 --virtual --calibration shards.json

# A calibration of something else is refused.
refuses 2 "another model shape" compare --random 2 --model cpu-512 --tokens 16 "${where[@]}" --calibration here.json
if [ "$(nproc)" -ge 2 ]; then
  refuses 2 "expected one of backend cpu and transport emulated" compare --random 2 --model tiny --transport emulated \
    --calibration here.json
fi
refuses 2 "calibration" compare --random 2 --model tiny --virtual --ranks 3 --calibration here.json
refuses 2 "expected a folder" compare --random 2 "${small[@]}" --out -
sed 's/"backward": true/"backward": false/' here.json >forward.json # as a calibration of the forward phase is
refuses 2 "forward phase alone" compare --random 2 "${small[@]}" --calibration forward.json
accepts compare --random 1 "${small[@]}" --calibration here.json --seed 9007199253740991 --json

# Pipeline stages: steps are compared, of pieces and what goes between them; what has no meaning beside a layout is refused.
steps=(compare "$sample" --model tiny --tokens 16 --repeat 1 --steps 2 --micro-batches 4)
if [ "$(nproc)" -ge 2 ]; then
  for row in "pp=2 1f1b 2" "pp=2_vpp=2 interleaved 4" "ep=2 1f1b 2"; do
    read -r layout pipeline layers <<<"$row"
    accepts "${steps[@]}" --layout "${layout//_/ }" --policy ep,eplb --json
    expect out.txt 'd["layout"].split(", ")[-1], d["ranks"], [(p["name"], p["schedule"], p["points"]) for p in d["policies"]]' \
      "('4 micro-batches', 2, [('ep', '$pipeline', 2), ('eplb', '$pipeline', 2)])"
    expect out.txt '[p["conclusive"] and p["predicted_s"] > 0 and p["measured_s"] > 0 for p in d["points"]]' '[True, True, True, True]'
    expect out.txt '[k["kind"] for k in d["policies"][0]["kinds"] if k["kind"] != "between stages"]' \
      "['forward of a stage', 'backward of a stage', 'end of a step']"
    expect out.txt '"between stages" in [k["kind"] for k in d["policies"][0]["kinds"]]' "$([[ $layout = pp=2* ]] && echo True || echo False)"
    expect out.txt '[c["failed"] for c in d["controls"] if c["failed"] is not None]' '[]' # controls break operations, not pieces
    expect out.txt "len([w for w in d['defaults_taken'] if w.startswith('layers: $layers,')])" 1
  done
  accepts "${steps[@]}" --layout "ep=2" --zero 1 --policy ep --json
  expect out.txt 'd["layout"].split(", ")[-2:], len(d["points"])' "(['ZeRO-1', '4 micro-batches'], 2)"
  accepts "${steps[@]}" --layout "pp=2" --policy ep --out stages
  has "inside a stage the schedule is serial"
  has "forward of a stage" stages/report.html
  expect stages/timeline.json 'len([e for e in d["traceEvents"] if e.get("ph") == "X"]) > 0' True
fi
refuses 2 "--pipeline: expected --layout" "${steps[@]:0:2}" --pipeline gpipe
refuses 2 "--zero: expected --layout" "${steps[@]:0:2}" --zero 1
refuses 2 "--micro-batches: expected --layout" "${steps[@]}"
refuses 2 "expected a trace beside --layout" compare --random 2 --layout "pp=2"
refuses 2 "--virtual" "${steps[@]}" --layout "pp=2" --virtual
refuses 2 "tp: expected 1" "${steps[@]}" --layout "tp=2"
refuses 2 "use ep or eplb" "${steps[@]}" --layout "pp=2" --policy hecate
refuses 2 "would take turns" "${steps[@]}" --layout "pp=2" --ranks $((2 * $(nproc)))

# No room for the results: exit code 1 and nothing that looks whole; what was there stays.
for command in "compare --random 2 --out limited" "calibrate --out kept.json"; do
  echo old >kept.json
  (ulimit -f 1 && "${tool[@]}" $command "${small[@]}" >out.txt 2>err.txt)
  [ $? -eq 1 ] || fail "$command past a file size limit: $(cat err.txt)"
  [ -z "$(ls -A limited 2>/dev/null)" ] || fail "left behind past a file size limit: $(ls -A limited)"
  [ "$(cat kept.json)" = old ] || fail "$command: a file that was there is lost"
done
if [ -w /dev/full ]; then
  "${tool[@]}" compare --random 2 "${small[@]}" --json >/dev/full 2>err.txt
  [ $? -eq 1 ] || fail "writing to a full device"
fi

# Ctrl-C: ends soon, nobody is left, nothing is written.
"${tool[@]}" compare --random 50 --model tiny --tokens 64 --repeat 500 "${where[@]}" --out stopped >out.txt 2>err.txt &
parent=$!
if has_children; then
  await_children $parent 2
  kill -TERM $parent
  wait $parent
  [ $? -eq 143 ] || fail "a stopped comparison: exit code is not that of the signal"
  for pid in $children; do # a rank that is left lets this test never end
    while [ -e "/proc/$pid" ]; do sleep 0.01; done
  done
  [ ! -s out.txt ] && [ ! -e stopped ] || fail "output of a comparison that was stopped"
else
  kill $parent 2>/dev/null
  echo "SKIPPED stopped comparison: the list of children is not to be had"
fi

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
