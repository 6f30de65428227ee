#!/bin/bash
# The gate on this machine: the law passes, the three broken ones fail on the same session; and one broken law, in a
# session of its own, makes the command fail. Sessions that are noisy in every attempt are skipped, and counted as that.
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

"$tool" gate --self-test --json >"$folder/stdout" 2>"$folder/stderr"; code=$?
[ $code -eq 77 ] && skip "$(sed 's/^hecate-validate: gate: skipped: //' "$folder/stderr")"
[ $code -eq 0 ] || fail "the gate, or a broken law that it lets through: exit $code"
grep -q '"verdict": "passed"' "$folder/stdout" || fail "no verdict"
[ "$(grep -c '"broken": "' "$folder/stdout")" -eq 3 ] || fail "not three broken laws"
grep -o '"error": {[^}]*}' "$folder/stdout" | head -n 1

"$tool" gate --break mean_compute --seed 2 >"$folder/stdout" 2>"$folder/stderr"; code=$?
[ $code -eq 77 ] && skip "the broken law: $(sed 's/^hecate-validate: gate: skipped: //' "$folder/stderr")"
[ $code -eq 1 ] || fail "--break mean_compute: exit $code"
grep -q 'where mean_compute matters' "$folder/stderr" || fail "--break mean_compute: another reason"
