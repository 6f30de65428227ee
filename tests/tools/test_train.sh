#!/bin/bash
# hecate-run train as a user meets it: exit codes and messages, the JSON document, the trace that it records.
set -u
build=$(cd "$1" && pwd)
run=$build/hecate-run
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
if ! "$run" train --help 2>/dev/null | grep -q -- --text; then
  echo "SKIPPED tools.train: there is no hecate-run with the command train"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
cd "$work" || exit 1
text=$source_dir/LICENSE
small=(--layers 2 --experts 4 --d-model 16 --d-ffn 16 --heads 2 --seq-len 16 --tokens 32 --ranks 2)

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refuses CODE PART ARGS...: that exit code, one line on stderr that has PART.
refuses() {
  local code=$1 part=$2
  shift 2
  "$run" train "$@" >out 2>err
  local found=$?
  [ "$found" = "$code" ] || fail "$*: expected exit code $code, found $found"
  [ "$(wc -l <err)" = 1 ] || fail "$*: expected one line on stderr, found $(cat err)"
  grep -qF -- "$part" err || fail "$*: expected \"$part\", found $(cat err)"
}

refuses 2 "expected --text FILE"
refuses 2 "nowhere.txt: cannot be opened" --text nowhere.txt
refuses 2 "ideal cannot train: it is a bound" --text "$text" --policy ideal
refuses 2 "ep-balanced cannot train: it forces loads" --text "$text" --policy ep-balanced
refuses 2 "expected a multiple of the sequence length (48), found 256" --text "$text" --seq-len 48
refuses 2 "--heads: expected a divisor of --d-model (64), found 3" --text "$text" --heads 3
printf 'aaaa' >one.txt
refuses 2 "expected a text of at least two different characters" --text one.txt
printf 'abab' >short.txt
refuses 2 "the text has 4 characters" --text short.txt
refuses 1 "the stated capacity of a rank is 100000 bytes" --text "$text" --memory 100000 --record gone.jsonl
refuses 1 "no-such-folder" --text "$text" "${small[@]}" --steps 1 --record no-such-folder/out.jsonl
[ -e gone.jsonl ] && fail "a trace was left by a run that failed"

"$run" train --text "$text" "${small[@]}" --steps 3 --check --json --record loads.jsonl.gz >out 2>err ||
  fail "train: $(cat err)"
[ -s err ] && fail "train --json: something on stderr: $(cat err)"
grep -q '"passed": true' out || fail "train --check: $(cat out)"
"$build/hecate-trace" info loads.jsonl.gz >info || fail "the recorded trace cannot be read"
grep -q '2 MoE layers x 4 experts, top-2, 2 source ranks' info || fail "info: $(cat info)"
grep -q 'loads  *recorded' info || fail "info: $(cat info)"
"$build/hecate-sim" loads.jsonl.gz --json >sim.json || fail "the recorded trace cannot be simulated"

# The same losses under another policy and with threads, up to rounding: compared to five digits.
losses() {
  "$run" train --text "$text" "${small[@]}" --steps 3 --print-every 1 "$@" | awk '$1 ~ /^[0-9]+$/ {print $1, $2}'
}
losses --policy ep >a
losses --policy hecate --threads >b
[ "$(wc -l <a)" = 3 ] || fail "expected three lines of losses, found $(cat a)"
awk 'NR == FNR {of[$1] = $2; next} ($2 - of[$1]) ^ 2 > 4e-8 {exit 1}' a b || fail "losses differ: $(paste a b)"

[ "$failures" = 0 ]
