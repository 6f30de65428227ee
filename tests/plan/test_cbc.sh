#!/usr/bin/env bash
# How CBC's library is opened, with stand-ins for it: by nobody whose policies solve nothing. One that lacks functions, or
# is no library, is as if there were none, and the row says so. Where the real one is, the row says what it did.
set -euo pipefail
sim=$1/hecate-sim
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}
if ! command -v cc >/dev/null; then
  echo "SKIPPED plan.cbc: no C compiler for the stand-ins"
  exit 77
fi

cat >"$folder/cbc.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void load(void) {
  FILE *mark = fopen(getenv("MARK"), "w");
  if (mark)
    fclose(mark);
}
void *Cbc_newModel(void) { abort(); }
END
mkdir "$folder/lacks" "$folder/none"
cc -shared -fPIC -o "$folder/lacks/libCbcSolver.so.3" "$folder/cbc.c"
echo "not a library" >"$folder/none/libCbcSolver.so.3"

# simulate FOLDER POLICY: what hecate-sim says with this folder's library.
simulate() {
  rm -f "$folder/mark"
  MARK=$folder/mark LD_LIBRARY_PATH=$1 "$sim" traces/sample-synthetic.jsonl --policy "$2" --json
}
simulate "$folder/lacks" ep,eplb,exflow >/dev/null || fail "policies that solve nothing: exit $?"
[ ! -e "$folder/mark" ] || fail "a policy that solves nothing opens the library"
simulate "$folder/lacks" moetuner >"$folder/lacks.json" || fail "a library that lacks functions: exit $?"
[ -e "$folder/mark" ] || fail "moetuner does not look for the library"
grep -q 'heuristics alone: no solver here' "$folder/lacks.json" || fail "a library that lacks functions is used"
simulate "$folder/none" moetuner >"$folder/none.json" || fail "a file that is no library: exit $?"
# The loader may go on to a real one.
grep -qE 'heuristics alone: no solver here|bettered by CBC in' "$folder/none.json" || fail "a file that is no library: no note"

if PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libCbcSolver\.so\.3 '; then
  "$sim" traces/sample-synthetic.jsonl --policy moetuner --json >"$folder/real.json"
  grep -q 'bettered by CBC in' "$folder/real.json" || fail "CBC is installed and not used"
  "$sim" traces/sample-synthetic.jsonl --policy moetuner --json | cmp -s - "$folder/real.json" || fail "other bytes the second time"
  # Executed: planned by the solver on every rank, computed by the library that hecate chose.
  "$1/hecate-run" traces/sample-synthetic.jsonl --policy moetuner --ranks 2 --layers 2 --tokens 32 --steps 12 --check \
    >"$folder/run" 2>&1 || fail "hecate-run: exit $?: $(tail -n 3 "$folder/run")"
  grep -q 'bettered by CBC in' "$folder/run" || fail "hecate-run does not use CBC: $(cat "$folder/run")"
  ! grep -q 'another library had opened it' "$folder/run" || fail "CBC's BLAS came before hecate's"
else
  echo "SKIPPED plan.cbc (real): no CBC on this machine (Debian: coinor-libcbc3)"
fi
exit $failed
