# Sourced by tests that drive a tool from outside, whose argument is the build folder. They run in an empty folder of their
# own; $build, $source_dir and $sample are absolute. `tool` is the command under test: an array, set by the test.
#
#   fail WHAT...               says so and counts it: a test ends with [ $failures -eq 0 ]
#   refuses CODE PART ARGS...  exit code CODE, nothing on stdout, one line on stderr that has PART
#   has WORDS [FILE]           the output of the last command, or FILE, has WORDS
#   value FILE EXPRESSION      of the JSON document d in FILE, in Python
#   expect FILE EXPRESSION VALUE
#   has_children               whether /proc lists the children of a process
#   await_children PID N       returns when process PID has N children, or is gone, which is a failure; sets $children
set -u
build=$(cd "$1" && pwd)
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
needs_python=$(grep -cE '(expect|value|python3) ' "$0")
sample=$source_dir/traces/sample-synthetic.jsonl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
cd "$work" || exit 1

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

refuses() {
  local code=$1 part=$2
  shift 2
  "${tool[@]}" "$@" >out.txt 2>err.txt
  local got=$?
  [ $got -eq "$code" ] || fail "exit code $got, expected $code: $*"
  [ ! -s out.txt ] || fail "something on stdout: $*"
  [ "$(wc -l <err.txt)" -eq 1 ] || fail "$(wc -l <err.txt) lines on stderr: $*: $(head -c 300 err.txt)"
  grep -qF -- "$part" err.txt || fail "\"$(head -c 300 err.txt)\" says nothing of \"$part\": $*"
}

has() {
  grep -qF -- "$1" "${2:-out.txt}" || fail "${2:-out.txt} says nothing of \"$1\""
}

has_children() { [ -e "/proc/$$/task/$$/children" ]; }

await_children() {
  until children=$(cat "/proc/$1/task/$1/children" 2>/dev/null) && [ "$(wc -w <<<"$children")" -eq "$2" ]; do
    kill -0 "$1" 2>/dev/null || { fail "process $1 ended before it had $2 children: $(head -c 300 err.txt)"; return; }
    sleep 0.01
  done
}

if command -v python3 >/dev/null; then
  # The interpreter itself: what PATH has may be a script that looks for it each time, which takes longer than most of what is asked.
  [ "$needs_python" = 0 ] || interpreter=$(python3 -c 'import sys; print(sys.executable)')
  python3() { command "${interpreter:-python3}" "$@"; }
  value() { python3 -S -E -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2" 2>&1; }
  expect() { [ "$(value "$1" "$2")" = "$3" ] || fail "$1: $2 is $(value "$1" "$2" | tail -1), expected $3"; }
else
  echo "SKIPPED json: no python3"
  value() { :; }
  expect() { :; }
fi
