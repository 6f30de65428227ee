#!/usr/bin/env bash
# tools/cluster-check from outside: what is missing is told; hosts that do not fit are told; results and exchanges are checked for
# real. What predictions say comes onto the page, from a stand-in of hecate-validate; the file to send has the page and no more.
# shellcheck disable=SC2016 # single quotes on purpose: other shells expand these
. "$(dirname "$0")/../support/tool.sh"
. "$source_dir/tests/support/mpi.sh"
tool=("$source_dir/tools/cluster-check" --build "$build")
unset SLURM_JOB_ID

# ---- Words ----
"${tool[@]}" --help >out.txt 2>err.txt || fail "--help: exit $?"
for option in --launch --build --out --model --seconds --steps; do has "  $option "; done
refuses 2 "unknown option --what" --what
refuses 2 "--seconds: expected a number, found soon" --seconds soon
refuses 2 "--steps: found bench" --steps bench
refuses 2 "--out: expected a value" --out

# ---- What is missing ----
# script NAME TEXT: a stand-in.
script() {
  printf '#!/bin/sh\n%s\n' "$2" >"$1"
  chmod +x "$1"
}
# nothing PART ARGS...: exit code 77, the reason on stdout, and no folder.
nothing() {
  local part=$1
  shift
  "${tool[@]}" "$@" >out.txt 2>err.txt
  local rc=$?
  [ $rc -eq 77 ] || fail "exit code $rc, expected 77: $*: $(head -c 300 out.txt err.txt)"
  has "SKIPPED cluster-check: "
  has "$part"
  [ ! -e cluster-check ] || fail "a folder is left: $*"
}
mkdir bin
PATH=$work/bin:$PATH
nothing "there is no hecate-run in $work: build hecate" --build "$work"
nothing '"false" does not start processes: exit code 1' --launch false
nothing '"env" starts one process; expected at least 2' --launch env
# A launcher of made-up hosts: NAME CORES a rank.
script two 'printf "host\ta\tX, 4 cores\t4\nhost\tb\tX, 4 cores\t4\nhost\tb\tX, 4 cores\t4\n"'
nothing "expected as many ranks on each host, found: a: 1 b: 2" --launch "$work/two"
script two 'printf "host\ta\tX, 1 cores\t1\nhost\ta\tX, 1 cores\t1\n"'
nothing "expected a core for each rank, found 2 ranks on hosts with 1 cores" --launch "$work/two"
export SLURM_JOB_ID=7
script bin/srun 'echo "srun: error: no controller"; exit 1'
nothing "SLURM_JOB_ID is set, but srun does not work: srun: error: no controller"
script bin/srun 'echo none'
nothing "module load"
unset SLURM_JOB_ID

# ---- One machine ----
"${tool[@]}" --steps check,exchange --out found >out.txt 2>err.txt || fail "one machine: exit $?: $(tail -5 out.txt err.txt)"
[ "$(tail -n 1 out.txt)" = "3 passed, 0 failed, 3 skipped" ] || fail "last line: $(tail -n 1 out.txt)"
has "1 host, 2 ranks on each: " found/page.md
has "| check | passed | 2 policies on 2 ranks compute what one rank computes |" found/page.md
has "every byte right |" found/page.md
has "| compare | skipped | not asked for |" found/page.md
[ "$(tar -tzf found.tar.gz | sort | tr '\n' ' ')" = "found/ found/matrix.txt found/page.md " ] || fail "sent: $(tar -tzf found.tar.gz)"
refuses 2 "found is there already" --out found
rm -r found
refuses 2 "found.tar.gz is there already" --out found

# ---- Predictions ----
mkdir made
cp "$build/hecate-run" "$build/hecate-bench" made/
script made/hecate-validate 'echo "$*" >>lines.txt
while [ $# -gt 0 ]; do [ "$1" != --out ] || out=$2; shift; done
case $out in *.json) echo "{}" >"$out"; exit; esac
mkdir -p "$out"; printf "# Predicted against measured\n\n## Operations\n" >"$out/compare.md"
printf "{\n  \"disturbed\": 0.125,\n  \"error\": {\n    \"median\": %s,\n    \"p90\": 0.09\n  }\n}\n" "$(cat median)" >"$out/summary.json"'
tool=("$source_dir/tools/cluster-check" --build "$work/made")
echo 0.042 >median
"${tool[@]}" --steps compare,calibrate --out good >out.txt 2>err.txt || fail "stand-in: $(tail -5 out.txt err.txt)"
has "| compare | passed | ten configurations: median error 4.2 %, 90th percentile 9.0 %; 12.5 % of the iterations were disturbed |" good/page.md
has "### Operations" good/page.md
has "| calibrate | passed | cluster.json, for --cluster of hecate-sim |" good/page.md
[ "$(grep -c -- '--random 10 --within 240s' lines.txt)" = 1 ] || fail "words: $(cat lines.txt)"
[ "$(grep -c -- '--within 90s' lines.txt)" = 1 ] || fail "words: $(cat lines.txt)"
tar -tzf good.tar.gz | grep -qx good/cluster.json || fail "no cluster file is sent"
echo null >median
"${tool[@]}" --steps compare --out bad >out.txt 2>err.txt
[ $? = 1 ] || fail "nothing was executed, and nothing failed"
has "| compare | failed | nothing could be executed in 240 s; try --model tiny" bad/page.md
script made/hecate-validate 'echo "hecate-validate: no such thing" >&2; exit 2'
"${tool[@]}" --steps compare --out worse >out.txt 2>err.txt
[ $? = 1 ] || fail "a step failed, and the exit code is 0"
has "| compare | failed | exit code 2: hecate-validate: no such thing |" worse/page.md

# ---- Ranks of MPI, and predictions for real: whether there was time for them is the machine's business ----
if has_mpi openmpi; then
  tool=("$source_dir/tools/cluster-check" --build "$build")
  "${tool[@]}" --launch "$launcher -n 2" --steps check,compare --model tiny --seconds 30 --out real >out.txt 2>err.txt
  has "| hosts | passed | 1 x 2 ranks, started by $launcher -n 2 |" real/page.md
  has "| check | passed | 2 policies on 2 ranks" real/page.md
  grep -qE '^\| compare \| (passed \| ten configurations: median error [0-9.]+ %|failed \| (nothing could be executed in|not done in time))' \
    real/page.md || fail "compare: $(grep '^| compare' real/page.md)"
fi

[ "$failures" -eq 0 ]
