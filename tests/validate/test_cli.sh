#!/bin/bash
# hecate-validate from outside: bad usage, JSON alone on stdout, a whole file or none.
set -u
tool=$1/hecate-validate
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() { echo "FAILED: $1"; failures=$((failures + 1)); }

for arguments in "" "nonsense" "published --nonsense" "published --cluster-a nonsense" \
                 "published --synthetic --trace x" "published --trace $folder" "published more" \
                 "published --system nonsense" "published --system llep --trace x" \
                 "published --system all --cluster-a p3dn-4x8" "published --system llep --out $folder/none/x" \
                 "hardware more" "hardware --cases $folder" "hardware --cases $folder/none" "hardware --out $folder" \
                 "outcomes --nonsense" "outcomes --cases $folder/none.json" "outcomes --cases $folder" \
                 "compare" "compare --nonsense" "compare $folder/none.jsonl" "compare $folder" "compare --random 0" \
                 "calibrate --nonsense" "calibrate more" "calibrate --repeat 0" "calibrate --backend nonsense" \
                 "outcomes --cluster nonsense" "outcomes --model nonsense" "outcomes more" \
                 "gate more" "gate --break nonsense" "gate --baseline $folder/none.json" "gate --baseline $folder" \
                 "gate --out $folder" "gate --self-test --break flat_rate" "gate --transport nonsense" \
                 "gate --stored-only --self-test" "gate --stored-only --break flat_rate" \
                 "gate --stored-only --calibrated $folder/x" "gate --stored-only --within 2m" "gate --stored-only --seed 7" \
                 "gate --stored-only --transport shm" "gate --update $folder/x --json" \
                 "gate --update $folder/x --out $folder/y" "gate --update $folder/x --stored-only"; do
  message=$("$tool" $arguments 2>&1 >"$folder/stdout"); code=$?
  [ $code -eq 2 ] || fail "'$arguments': exit $code"
  [ "$(echo "$message" | wc -l)" -eq 1 ] || fail "'$arguments': $message"
  [ -s "$folder/stdout" ] && fail "'$arguments' wrote to stdout"
done
"$tool" --help | grep -q published || fail "--help"
groups=$("$tool" --help | awk '/^This machine|^Others. numbers|^  (calibrate|gate|hardware|published) / {printf "%s ", $1}')
[ "$groups" = "This calibrate gate Others' hardware published " ] || fail "--help: in groups: $groups"
"$tool" gate --help | grep -q '^Exit codes: 0 passed.*, 1 failed, 2 .*, 77 skipped' || fail "gate --help says nothing of exit codes"
for command in calibrate compare; do
  "$tool" $command --list >"$folder/list" || fail "$command --list: exit $?"
  for part in backends "transports of backend cpu" policies schedules clusters models; do
    grep -q "^$part" "$folder/list" || fail "$command --list says nothing of $part"
  done
  "$tool" $command --backend list >"$folder/list" || fail "$command --backend list: exit $?"
  grep -q '^backends' "$folder/list" && ! grep -q '^transports' "$folder/list" || fail "$command --backend list"
  "$tool" $command --help all >"$folder/help"
  grep -q 'stand-in\|hecate-run --list' "$folder/help" && fail "$command --help"
  tr -s ' \n' ' ' <"$folder/help" | grep -q 'calibration finds the rates' || fail "$command --help says nothing of the links"
  grep -q '^Exit code 1\|Exit code 1:' "$folder/help" || fail "$command --help says nothing of exit codes"
done
"$tool" calibrate --help all | grep -q 'default: from the trace' && fail "calibrate takes no trace"
"$tool" compare --help | grep -q '^  shm  *how well' || fail "compare --help says nothing of what transports answer"
"$tool" published --help | grep -q -- --quick || fail "published --help"

HECATE_SHARED=$folder "$tool" published --quick --json --out "$folder/report.md" >"$folder/a.json" 2>"$folder/stderr" ||
  fail "published --quick"
[ -s "$folder/stderr" ] && fail "something on stderr: $(cat "$folder/stderr")"
head -c1 "$folder/a.json" | grep -q '{' || fail "stdout is not JSON"
grep -q '"trace": null' "$folder/a.json" || fail "a trace where there is none"
grep -q '^# The published numbers' "$folder/report.md" || fail "report.md"
HECATE_SHARED=$folder "$tool" published --quick --out "$folder/none/report.md" >/dev/null 2>&1
[ $? -eq 2 ] || fail "--out into a folder that is not there"
"$tool" published --system list --json >"$folder/list.json" && grep -q '"name": "lplb"' "$folder/list.json" &&
  [ "$(head -c1 "$folder/list.json")" = '{' ] || fail "--system list --json is not JSON: $(head -c 200 "$folder/list.json")"
"$tool" published --system lplb --quick >"$folder/terms" && grep -q 'Who wins.*same' "$folder/terms" || fail "terms are not defined"

# Other systems: every row of the list runs, an unknown one with where the list is.
"$tool" published --system nonsense 2>&1 | grep -q 'that "hecate-validate published --system list" lists, found "nonsense"' || fail "--system nonsense"
"$tool" published --system list >"$folder/list" || fail "--system list: exit $?"
HECATE_SHARED=$folder/none "$tool" published --system all --quick --json --out "$folder/systems.md" >"$folder/a.json" \
  2>"$folder/stderr" || fail "published --system all"
[ -s "$folder/stderr" ] && fail "something on stderr: $(cat "$folder/stderr")"
for system in $(sed '1d;$d;s/ .*//' "$folder/list"); do
  grep -q "^## $system: " "$folder/systems.md" || fail "systems.md says nothing of $system"
  grep -q "\"name\": \"$system\"" "$folder/a.json" || fail "the JSON says nothing of $system"
done
grep -q '^| all | [0-9]* | ' "$folder/systems.md" || fail "systems.md has no overview"
tail -1 "$folder/systems.md" | grep -q '^All: of [0-9]* numbers' || fail "systems.md has no summary"
grep -q 'below the folder of recorded data' "$folder/systems.md" || fail "nothing skipped without recorded data"
root=$(dirname "$0")/../..
HECATE_SHARED=$folder/none "$tool" published --system hecate --quick --json >"$folder/b.json" || fail "--system hecate"
grep -q '"paper": "arXiv 2502.02581v1"' "$folder/b.json" || fail "--system hecate is not the FSSDP paper"

# The project's own data is found wherever a tool is started; recorded data below HECATE_SHARED, else beside the project.
(cd / && "$tool" gate --stored-only >"$folder/stdout" 2>"$folder/stderr") || fail "gate started elsewhere: $(cat "$folder/stderr")"
for command in hardware outcomes; do
  beside=$(cd "$root/.." && ls shared/cases/$command/*.json 2>/dev/null | head -n 1)
  (cd / && env -u HECATE_SHARED "$tool" $command >"$folder/stdout" 2>"$folder/stderr"); code=$?
  [ $code -eq $([ -n "$beside" ] && echo 0 || echo 2) ] || fail "$command started elsewhere: exit $code, $(cat "$folder/stderr")"
done

# Measurements: none by default where there is no shared folder; made-up ones hold, those of a law twice as fast do not.
cases=$(dirname "$0")/cases/hardware_law.json
message=$(HECATE_SHARED=$folder "$tool" hardware 2>&1 >"$folder/stdout"); code=$?
[ $code -eq 2 ] || fail "hardware without measurements: exit $code"
echo "$message" | grep -q -- "--cases" || fail "hardware without measurements: $message"
"$tool" hardware --cases "$cases" --json --stamp "a day" --out "$folder/hardware.md" >"$folder/a.json" 2>"$folder/stderr" ||
  fail "hardware: exit $?"
[ -s "$folder/stderr" ] && fail "something on stderr: $(cat "$folder/stderr")"
head -c1 "$folder/a.json" | grep -q '{' || fail "hardware --json is not JSON"
grep -q '"passed": true' "$folder/a.json" || fail "hardware --json"
grep -q '^a day' "$folder/hardware.md" || fail "hardware --stamp"
"$tool" hardware --cases "$cases" --stamp "a day" --out "$folder/again.md" >"$folder/short" || fail "hardware: exit $?"
cmp -s "$folder/again.md" "$folder/hardware.md" || fail "two runs differ"
"$tool" hardware --cases "$cases" --details >"$folder/long" || fail "hardware --details: exit $?"
sed -n 5p "$folder/short" | grep -q 'required bounds hold' || fail "hardware: the verdict is not first"
grep -q '^[|#]\|\*\*' "$folder/short" && fail "hardware: Markdown on the terminal"
grep -q '^n0alll ' "$folder/long" && ! grep -q '^n0alll ' "$folder/short" || fail "hardware --details: rows"
sed 's/nvlink=100G/nvlink=300G/; s/nic=10G/nic=30G/' "$cases" >"$folder/fast.json"
message=$("$tool" hardware --cases "$folder/fast.json" 2>&1 >"$folder/stdout"); code=$?
[ $code -eq 1 ] || fail "a law that is too fast: exit $code"
[ "$(echo "$message" | wc -l)" -eq 1 ] || fail "a law that is too fast: $message"
grep -q 'does not hold' "$folder/stdout" || fail "a law that is too fast: no report"

# outcomes: 0 where order and ratios hold, 1 with the report where they do not, 2 without a file
here=$(cd "$(dirname "$0")" && pwd)
links="2x2 nvlink=1000P nic=1000P flops=52.4288M mem=40G hbm=1000P eff=1 tile=1 a=0us c=0us launch=0us"
outcomes() {
  "$tool" outcomes --model "$here/outcomes_small_model.json" --cluster "$links" "$@" >"$folder/stdout" 2>"$folder/stderr"
}
outcomes --cases "$here/outcomes_small.json" --json --stamp "a stamp" --out "$folder/outcomes.md" || fail "outcomes: exit $?"
[ -s "$folder/stderr" ] && fail "outcomes: something on stderr: $(cat "$folder/stderr")"
head -c1 "$folder/stdout" | grep -q '{' && grep -q '"passed": true' "$folder/stdout" || fail "outcomes: JSON"
grep -q '^# Outcomes of a real system' "$folder/outcomes.md" && grep -q 'a stamp' "$folder/outcomes.md" ||
  fail "outcomes.md"
sed 's/"step_s": 13.26/"step_s": 9/' "$here/outcomes_small.json" >"$folder/order.json"
outcomes --cases "$folder/order.json"; code=$?
[ $code -eq 1 ] && grep -q 'order of the methods is not kept' "$folder/stderr" || fail "outcomes, other order: exit $code"
grep -q 'NOT KEPT' "$folder/stdout" || fail "outcomes, other order: no report"
HECATE_SHARED=$folder outcomes; code=$?
[ $code -eq 2 ] && grep -q "$folder/cases/outcomes" "$folder/stderr" || fail "outcomes without a file: exit $code"
grep -q HECATE_SHARED "$folder/stderr" || fail "outcomes without a file: $(cat "$folder/stderr")"
outcomes --cases "$here/outcomes_small.json" --quick || fail "outcomes --quick: exit $?"
sed -n 3p "$folder/stdout" | grep -q '^Order of the methods: kept' || fail "outcomes: the verdict is not first"
grep -q '^Rank by rank' "$folder/stdout" && fail "outcomes: rank by rank without --details"
outcomes --cases "$here/outcomes_small.json" --quick --details && grep -q '^Rank by rank' "$folder/stdout" ||
  fail "outcomes --details"

# gate without measuring: 0 with the stored predictions, 1 when one of them, or a law's input, is another. An update is
# the same file again, and notices configurations on which no broken law would show
"$tool" gate --stored-only --out "$folder/gate.md" --stamp "a day" >"$folder/stdout" 2>&1 || fail "gate --stored-only: exit $?"
grep -q '^Verdict: \*\*passed' "$folder/stdout" && [ "$(grep -c '^| [a-z].*, skew ' "$folder/stdout")" -eq 48 ] ||
  fail "gate --stored-only: $(head -c 300 "$folder/stdout")"
grep -q '^a day' "$folder/gate.md" && cmp -s "$folder/stdout" "$folder/gate.md" || fail "gate --stored-only --out"
"$tool" gate --stored-only --json >"$folder/stdout" 2>&1 || fail "gate --stored-only --json: exit $?"
[ "$(head -c1 "$folder/stdout")" = '{' ] && grep -q '"verdict": "passed"' "$folder/stdout" &&
  [ "$(grep -o '"moved": ' "$folder/stdout" | wc -l)" -eq 48 ] || fail "gate --stored-only --json"
"$tool" gate --update "$folder/gate.json" && cmp -s "$folder/gate.json" validate/gate/gate.json || fail "gate --update: another file"
sed 's/"bandwidth": [0-9.]*/"bandwidth": 99000000.0/' validate/gate/gate-cluster.json >"$folder/gate-cluster.json"
message=$("$tool" gate --stored-only --baseline "$folder/gate.json" 2>&1 >"$folder/stdout"); code=$?
[ $code -eq 1 ] && echo "$message" | grep -q 'predictions are not the stored ones' || fail "gate, slower links: $code $message"
grep -q '^Verdict: \*\*failed\*\*: .*not the stored ones' "$folder/stdout" || fail "gate, slower links: no report"
sed '/^   "predicted_s"/d; /^   "skew"/s/,$//; /^   "control_s"/,/^   }/d; /^   "trained_s"/d' validate/gate/gate.json >"$folder/empty.json"
message=$("$tool" gate --stored-only --json --baseline "$folder/empty.json" 2>&1 >"$folder/stdout"); code=$?
[ $code -eq 1 ] && echo "$message" | grep -q 'no stored predictions' || fail "gate, nothing stored: $code $message"
grep -q '"verdict": "failed"' "$folder/stdout" && grep -q '"moved_most": null' "$folder/stdout" || fail "gate, nothing stored"
sed 's/"skew": [0-9]*/"skew": 0/' validate/gate/gate.json >"$folder/gate.json"
cp validate/gate/gate-cluster.json "$folder"
cp validate/gate/gate.json "$folder/based.json"
for option in --update --calibrated; do # not over the cluster that the baseline names
  message=$("$tool" gate --baseline "$folder/based.json" $option "$folder/../$(basename "$folder")/gate-cluster.json" 2>&1 >"$folder/stdout"); code=$?
  [ $code = 2 ] && [[ $message == *"expected a file that is no input, found the baseline's cluster"* ]] || fail "gate $option over its cluster: $code, $message"
  cmp -s validate/gate/gate-cluster.json "$folder/gate-cluster.json" || fail "gate $option: wrote over the cluster"
done
message=$("$tool" gate --stored-only --baseline "$folder/gate.json" 2>&1); code=$?
[ $code -eq 1 ] && echo "$message" | grep -q 'must be chosen anew' || fail "gate, no skew: $code $message"
sed 's/"skew": [0-9]*/"skew": -1/' validate/gate/gate.json >"$folder/gate.json"
message=$("$tool" gate --stored-only --baseline "$folder/gate.json" 2>&1); code=$?
[ $code -eq 2 ] && echo "$message" | grep -q 'cases\[0\].skew' || fail "gate, negative skew: $code $message"
sed '1,/"trained_s"/{/"trained_s"/d}' validate/gate/gate.json | sed '1,/^   },$/s/^   },$/   }/' >"$folder/gate.json"
message=$("$tool" gate --stored-only --baseline "$folder/gate.json" 2>&1); code=$?
[ $code -eq 2 ] && echo "$message" | grep -q 'gate.json:[0-9]*: cases\[0\]: expected "trained_s" beside "predicted_s"' ||
  fail "gate, no trained_s: $code $message"
[ $failures -eq 0 ]
