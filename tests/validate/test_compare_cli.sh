#!/bin/bash
# hecate-validate calibrate and compare from outside, with a model so small that it takes seconds: exit codes, files whole or
# absent, documents that parse, a calibration that can be used again. Nothing here judges a time.
set -u
build=$(cd "$1" && pwd)
tool=$build/hecate-validate
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
sample=$source_dir/traces/sample-synthetic.jsonl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
cd "$work" || exit 1
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
[ "$(nproc)" -ge 2 ] && where=() || where=(--virtual)
small=(--model tiny --tokens 16 --repeat 2 "${where[@]}")

# refuses PART ARGS...: exit code 2, nothing on stdout, one line on stderr that has PART.
refuses() {
  local part=$1
  shift
  "$tool" "$@" >out.txt 2>err.txt
  local got=$?
  [ $got -eq 2 ] || fail "exit code $got, expected 2: $*"
  [ ! -s out.txt ] || fail "something on stdout: $*"
  [ "$(wc -l <err.txt)" -eq 1 ] || fail "$(wc -l <err.txt) lines on stderr: $*: $(head -c 300 err.txt)"
  grep -qF -- "$part" err.txt || fail "\"$(head -c 300 err.txt)\" says nothing of \"$part\": $*"
}

# A machine that is busy with something else may refuse to be calibrated: tried again, then skipped, never a failure.
skipped() {
  echo "SKIPPED compare_cli: this machine is too busy to be calibrated: $(cat err.txt)"
  [ $failures -eq 0 ] && exit 77
  exit 1
}
accepts() {
  for _ in 1 2 3 4 5; do
    "$tool" "$@" >out.txt 2>err.txt && break
    grep -q "calibration: refused" err.txt || break
  done
  grep -q "calibration: refused" err.txt && skipped
  [ -s err.txt ] && fail "something on stderr: $*: $(head -c 300 err.txt)"
  [ -s out.txt ] || fail "nothing on stdout: $*"
}
has() {
  grep -qF -- "$1" "${2:-out.txt}" || fail "${2:-out.txt} says nothing of \"$1\""
}
if command -v python3 >/dev/null; then
  value() { python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2" 2>&1; }
  expect() { [ "$(value "$1" "$2")" = "$3" ] || fail "$1: $2 is $(value "$1" "$2" | tail -1), expected $3"; }
else
  echo "SKIPPED json: no python3"
  value() { :; }
  expect() { :; }
fi

# Wrong input: said before anything runs.
refuses "expected a trace" compare
refuses missing.jsonl compare missing.jsonl
refuses "--policy" compare "$sample" --policy nonsense
refuses "only bounds" compare --random 2 --policy ideal
refuses "--stamp" compare --random 2 --stamp x
refuses "--out" compare --random 2 --out "$sample"
refuses "--out" calibrate --out .
refuses "--transport" calibrate --transport nonsense
refuses "nonsense" calibrate --model nonsense
refuses "--phase" calibrate --phase nonsense
refuses "would take turns" calibrate --model tiny --ranks $(($(nproc) + 1))
refuses "would take turns" compare --random 2 --model tiny --ranks $(($(nproc) + 1))
refuses "calibration knows no leaf" calibrate --model tiny "${where[@]}" \
  --cluster "2x1 nic=1G leaf=1 uplink=1G flops=1G mem=1G"
for option in --cluster --calibration; do
  refuses none.json compare --random 2 "${small[@]}" $option none.json
done
echo '{"nodes":1,"devices_per_node":2,"nvlink":{"bandwidth":1e9},"device":{"flops":1e9,"memory_bytes":1e9}}' >plain.json
refuses "expected a cluster file of hecate-validate calibrate" compare --random 2 "${small[@]}" --calibration plain.json

# A calibrated cluster fits the model it was measured with; of the ranks there are, as many as it has devices.
curves() {
  "$build/hecate-sim" "$sample" --cluster here.json --policy ep "$@" >out.txt 2>err.txt
}

# Calibration: a table; a cluster file, alone on stdout with --json, that hecate-sim takes.
accepts calibrate "${small[@]}" --out here.json
has "Written: here.json"
has "attention         backward"
has "planning"
has "disturbed"
[ "$(ls -A)" = "$(printf 'err.txt\nhere.json\nout.txt\nplain.json')" ] || fail "left behind: $(ls -A)"
expect here.json 'sorted(set(["name","nodes","device","plan","measured","machine","calibration"]) - set(d))' '[]'
expect here.json 'len(d["machine"]["date"]), d["machine"]["backend"], d["calibration"]["seed"]' "(20, 'cpu', 1001)"
accepts calibrate "${small[@]}" --json
mv out.txt again.json
expect again.json 'd["calibration"]["cases"]' "$(value here.json 'd["calibration"]["cases"]')"
accepts calibrate "${small[@]}"
has "Not kept"
for file in here.json again.json; do
  "$build/hecate-sim" "$sample" --model tiny --ranks 2 --cluster $file --policy ep >out.txt 2>err.txt ||
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
[ "$(cd one && echo *)" = "compare.md summary.csv summary.json timeline.json" ] || fail "in --out: $(ls -A one)"
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
  "(True, ['right', 'too_close', 'wrong'], ['measured_best', 'predicted_best', 'share'])"
expect one/timeline.json 'len(d["traceEvents"]) > 0' True
has ", predicted" one/timeline.json
has ", measured" one/timeline.json
[ "$(wc -l <one/summary.csv)" -eq 5 ] || fail "summary.csv: $(cat one/summary.csv)"
has "a day" one/compare.md
has "hecate-validate compare --random 4" one/compare.md
grep -q -- "--out" one/compare.md && fail "where it was written is in compare.md"

# Policies on a trace, calibrated in the same run.
accepts compare "$sample" "${small[@]}" --steps 2 --policy ep,eplb,hecate
has "ep, serial, 16 tokens"
has "fitted on"
has "predicted"
has "negative controls"
has "pace       speed of the cores, found by probes"
has "disturbed"
grep -q "^Predicted within\|^Nothing can be said" out.txt || fail "no verdict: $(tail -3 out.txt)"
accepts compare "$sample" "${small[@]}" --steps 1 --policy ep,hecate --json
expect out.txt '[p["name"] for p in d["policies"]], len(d["points"]), d["calibration"]["file"]' "(['ep', 'hecate'], 2, None)"

# Imitated links and virtual time say what they do not validate.
if [ "$(nproc)" -ge 2 ]; then
  accepts compare --random 2 --model tiny --tokens 16 --repeat 1 --transport emulated
  has "emulated network: validates compute, waiting and order, not the network"
fi
accepts compare --random 2 --model tiny --tokens 16 --repeat 1 --ranks 3 --virtual
has "virtual time: validates compute, waiting and order, not the network"

# A calibration of something else is refused.
refuses "another model shape" compare --random 2 --model cpu-512 --tokens 16 "${where[@]}" --calibration here.json
if [ "$(nproc)" -ge 2 ]; then
  refuses "expected one of backend cpu and transport emulated" compare --random 2 --model tiny --transport emulated \
    --calibration here.json
fi
refuses "calibration" compare --random 2 --model tiny --virtual --ranks 3 --calibration here.json
refuses "expected a folder" compare --random 2 "${small[@]}" --out -
sed 's/"backward": true/"backward": false/' here.json >forward.json # as a calibration of the forward phase is
refuses "forward phase alone" compare --random 2 "${small[@]}" --calibration forward.json
accepts compare --random 1 "${small[@]}" --calibration here.json --seed 9007199253740991 --json

# No room for the results: exit code 1 and nothing that looks whole; what was there stays.
for command in "compare --random 2 --out limited" "calibrate --out kept.json"; do
  echo old >kept.json
  (ulimit -f 1 && "$tool" $command "${small[@]}" >out.txt 2>err.txt)
  [ $? -eq 1 ] || fail "$command past a file size limit: $(cat err.txt)"
  [ -z "$(ls -A limited 2>/dev/null)" ] || fail "left behind past a file size limit: $(ls -A limited)"
  [ "$(cat kept.json)" = old ] || fail "$command: a file that was there is lost"
done
if [ -w /dev/full ]; then
  "$tool" compare --random 2 "${small[@]}" --json >/dev/full 2>err.txt
  [ $? -eq 1 ] || fail "writing to a full device"
fi

# Ctrl-C: ends soon, nobody is left, nothing is written.
"$tool" compare --random 50 --model tiny --tokens 64 --repeat 500 "${where[@]}" --out stopped >out.txt 2>err.txt &
parent=$!
children=
for _ in $(seq 2000); do
  children=$(cat /proc/$parent/task/$parent/children 2>/dev/null)
  [ "$(echo "$children" | wc -w)" -ge 2 ] && break
  sleep 0.005
done
if [ "$(echo "$children" | wc -w)" -ge 2 ]; then
  kill -TERM $parent
  wait $parent
  [ $? -eq 143 ] || fail "a stopped comparison: exit code is not that of the signal"
  for _ in $(seq 400); do
    alive=
    for pid in $children; do [ ! -e "/proc/$pid" ] || alive=$pid; done
    [ -z "$alive" ] && break
    sleep 0.005
  done
  [ -z "$alive" ] || fail "rank $alive is left"
  [ ! -s out.txt ] && [ ! -e stopped ] || fail "output of a comparison that was stopped"
else
  kill $parent 2>/dev/null
  echo "SKIPPED stopped comparison: the list of children is not to be had"
fi

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
