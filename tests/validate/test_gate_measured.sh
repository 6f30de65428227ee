#!/bin/bash
# The gate on this machine, in a minute and a half at most. The law passes and the three broken ones are outside on the same
# session. And one broken law, in a session of its own, makes the command fail. The time may be over before intervals
# are narrow enough, or something else may disturb most of what is measured. Then it is skipped with the intervals that
# were reached.
set -u
tool=$1/hecate-validate
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
skip() { echo "SKIPPED validate.gate_measured: $1"; exit 77; }
fail() { echo "FAILED: $1"; cat "$folder/stdout" "$folder/stderr"; exit 1; }

"$tool" gate --stored-only >"$folder/stdout" 2>"$folder/stderr" || fail "stored predictions"
grep -Eq '^HEC_SANITIZE:[A-Z]*=.+' "$1/CMakeCache.txt" && skip "times under a sanitizer mean nothing"
grep -Eq '^HEC_COVERAGE:BOOL=(ON|1|TRUE|YES)' "$1/CMakeCache.txt" && skip "times with coverage counters mean nothing"
grep -Eq '^CMAKE_BUILD_TYPE:[A-Z]*=Debug' "$1/CMakeCache.txt" && skip "times without optimisation mean nothing"
[ "$(nproc)" -ge 2 ] || skip "needs a core for each of 2 ranks"

# A verdict, whatever the machine does: skipped needs a reason with an interval in it.
said() { sed -n 's/^hecate-validate: gate: skipped after //p' "$folder/stderr"; }
skipped() {
  said | grep -Eq 'disturbed, median error .* \[.*\]: .+' || fail "skipped without its interval and a reason"
  skip "$1$(said)"
}

"$tool" gate --self-test --within 50s --json >"$folder/stdout" 2>"$folder/stderr"; code=$?
[ $code -eq 77 ] && skipped ""
[ $code -eq 0 ] || fail "the gate, or a broken law that it lets through: exit $code"
grep -q '"verdict": "passed"' "$folder/stdout" || fail "no verdict"
[ "$(grep -c '"broken": "' "$folder/stdout")" -eq 3 ] || fail "not three broken laws"
grep -o '"error": {[^}]*}' "$folder/stdout" | head -n 1

"$tool" gate --break mean_compute --within 35s --seed 2 >"$folder/stdout" 2>"$folder/stderr"; code=$?
[ $code -eq 77 ] && skipped "the broken law: "
[ $code -eq 1 ] || fail "--break mean_compute: exit $code"
grep -q 'where mean_compute matters' "$folder/stderr" || fail "--break mean_compute: another reason"
