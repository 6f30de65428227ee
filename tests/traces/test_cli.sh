#!/usr/bin/env bash
# hecate-trace from outside: exit codes, one message, nothing half written, stdin and gzip.
set -u
tool=$1/hecate-trace
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect CODE 'words on stderr' arguments... ; usage errors print exactly one line and nothing on stdout
expect() {
  local code=$1 words=$2
  shift 2
  "$tool" "$@" >"$folder/out" 2>"$folder/err" </dev/null
  local got=$?
  [ $got -eq "$code" ] || fail "$*: exit $got, wanted $code: $(cat "$folder/err")"
  [ -z "$words" ] || grep -qF -- "$words" "$folder/err" || fail "$*: said: $(cat "$folder/err")"
  if [ "$code" -ne 0 ]; then
    [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "$*: not one line: $(cat "$folder/err")"
    [ ! -s "$folder/out" ] || fail "$*: wrote to stdout"
  fi
}

says() { # says 'words on stdout' arguments...
  local words=$1
  shift
  "$tool" "$@" >"$folder/out" 2>"$folder/err" </dev/null || fail "$*: exit $?: $(cat "$folder/err")"
  grep -qF -- "$words" "$folder/out" || fail "$*: did not print: $words"
}

says "usage: hecate-trace COMMAND" --help
says "hecate-trace $(sed -n 's/^#define HECATE_VERSION_[A-Z]* //p' "$(dirname "$0")/../../runtime/exec/package/hecate.h" | paste -sd.)" --version
says "Examples" info --help
says "Examples" synth --help
says "rotating-hot-spot" synth -h
expect 2 "expected a command"
expect 2 'expected a command (info, import, convert, synth), found "nonsense"' nonsense
expect 2 "info: expected a trace" info
expect 2 'unknown option "--wrong"; see hecate-trace info --help' info --wrong x
expect 2 "--ranks: expected a value" info --ranks
expect 2 'unexpected argument "b"' info a b
expect 2 '--ranks: expected a whole number from 1 to 1048576, found "0"' info --ranks 0 x
expect 2 '--ranks: expected a whole number from 1 to 1048576, found "2x"' info --ranks 2x x
expect 2 '--lags: expected up to 16 whole numbers from 1 to 1000 with commas, found "1,0"' info --lags 1,0 x
expect 2 "cannot be opened" info "$folder/none"
expect 2 "found a directory" info "$folder"
expect 2 "begins with '{'" info "$tool"
expect 2 "--workload: expected one" synth
expect 2 "found W9" synth --workload W9 --out "$folder/x"
expect 2 "expected --out FILE" synth --workload W0
expect 2 "expected LAG:CORRELATION" synth --workload zipf --drift 1=2 --out "$folder/x"
expect 2 'unexpected argument "extra"' synth --workload W0 --out "$folder/x" extra
expect 2 '--sigma: expected a number from 0 to 20, found "one"' synth --workload zipf --sigma one --out "$folder/x"
expect 1 "cannot be written" synth --workload W0 --iterations 1 --out /dev/full
expect 2 "expected a file that can be written" synth --workload W0 --out "$folder/none/x"
[ ! -e "$folder/x" ] || fail "a refused command wrote its file"

small=(--layers 2 --experts 8 --source-ranks 4 --tokens 64 --iterations 12)
echo old >"$folder/kept"
expect 2 "--drift" synth --workload lognormal "${small[@]}" --drift 1:0.1,2:0.99 --out "$folder/kept"
[ "$(cat "$folder/kept")" = old ] || fail "a failed run touched its output"

for workload in W0 W1 W2 W3 W4 W5 W6 W7 lognormal zipf; do
  expect 0 "" synth --workload $workload "${small[@]}" --out "$folder/t.jsonl"
  expect 0 "" synth --workload $workload "${small[@]}" --out "$folder/t.jsonl.gz"
  gzip -dc "$folder/t.jsonl.gz" | cmp - "$folder/t.jsonl" || fail "$workload: gzip holds other bytes"
  "$tool" synth --workload $workload "${small[@]}" --out - | cmp - "$folder/t.jsonl" || fail "$workload: not repeatable"
  "$tool" info "$folder/t.jsonl" >"$folder/plain" || fail "$workload: info"
  grep -q '^synthetic ' "$folder/plain" || fail "$workload: does not say synthetic"
  "$tool" info - <"$folder/t.jsonl.gz" | cmp - "$folder/plain" || fail "$workload: info of a packed stream differs"
  says '"synthetic": true' info --json "$folder/t.jsonl"
done
"$tool" info "$folder/t.jsonl" | grep -q '^transitions  *none$' || fail "info: does not say that there are no transitions"
says '"transitions": false' info --json "$folder/t.jsonl"
expect 0 "" synth --workload zipf "${small[@]}" --affinity 0.8 --out "$folder/a.jsonl"
says "between 2 layers, counted over iterations 1 to 1" info "$folder/a.jsonl"
says '"transitions": true' info --json "$folder/a.jsonl"
says '"affinity":0.8' info "$folder/a.jsonl"
"$tool" synth --workload zipf "${small[@]}" --affinity 0.8 --out - | cmp - "$folder/a.jsonl" || fail "affinity: not repeatable"
tail -n +2 "$folder/a.jsonl" >"$folder/loads"
"$tool" synth --workload zipf "${small[@]}" --out - | tail -n +2 | cmp - "$folder/loads" || fail "affinity changes the loads"
expect 2 "--affinity: expected a number from 0 to 1, found \"1.5\"" synth --workload zipf --affinity 1.5 --out "$folder/x"
expect 2 "--affinity: expected a number from 0 to 1, found \"-1\"" synth --workload zipf --affinity -1 --out "$folder/x"
expect 2 "--layers (with --affinity): expected" synth --workload zipf --layers 1 --affinity 1 --out "$folder/x"
sed '1s/"transitions":\[\[/"transitions":[[[1],/' "$folder/a.jsonl" >"$folder/bad.jsonl"
expect 2 "bad.jsonl:1: transitions[0][0]: expected 8 counts, found 1" info "$folder/bad.jsonl"
cat "$folder/t.jsonl.gz" >"$folder/cut.gz"
truncate -s -5 "$folder/cut.gz"
expect 2 "truncated" info "$folder/cut.gz"
[ -z "$(find "$folder" -name '*.part')" ] || fail "temporary files are left"

says "synthetic" info traces/sample-synthetic.jsonl
says '"synthetic": true' info --json traces/sample-synthetic.jsonl

if [ $failures -ne 0 ]; then
  echo "$failures failures"
  exit 1
fi
echo "all passed"
