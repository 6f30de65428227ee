#!/usr/bin/env bash
# "Adding a policy touches two files": the example of CONTRIBUTING.md as it stands there, its file and its row and nothing
# else changed, builds and is compared like any other policy; the same with a function that does not exist does not build.
# Usage: test_example.sh BUILD_DIR
. "$(dirname "$0")/../support/tool.sh"
guide=$source_dir/CONTRIBUTING.md
list=runtime/plan/policy_list.h
file=runtime/plan/policies/hottest.c
place=$build/example

# The first fenced block of the guide after the line that ends with `NAME`:
block() {
  awk -v name="\`$1\`:" '!on && substr($0, length($0) - length(name) + 1) == name {on = 1; next}
    on && /^```$/ {exit} fenced {print} on && /^```c$/ {fenced = 1}' "$guide"
}

# put PATH < TEXT: written only when it differs, so that nothing is built twice.
put() {
  mkdir -p "$(dirname "$place/$1")"
  cat >"$work/new"
  cmp -s "$work/new" "$place/$1" || cp "$work/new" "$place/$1"
}

make() {
  cmake --build "$build" --target example-sim >"$work/built.txt" 2>&1
}

block $file >"$work/example.c"
row=$(block $list | sed -n 's/^ *\(X([a-z_]*)\)$/\1/p')
if [ ! -s "$work/example.c" ] || [ "$row" != "X(hottest)" ]; then
  echo "FAILED: CONTRIBUTING.md has no example, or no row"
  exit 1
fi
last=$(sed -n 's/^ *\(X([a-z_]*)\)$/\1/p' "$source_dir/$list") # of the list: the one without a backslash
sed "s/^ *$last\$/  $last \\\\\n  $row/" "$source_dir/$list" | put $list
[ "$(diff "$source_dir/$list" "$place/$list" | grep -c '^>')" -eq 2 ] || fail "the row is not the only change of the list"

# The interface changes under the example: here the other way round.
sed 's/hec_history_row/hec_history_other_row/' "$work/example.c" | put $file
make && fail "builds although it calls what does not exist"
put $file <"$work/example.c"
make || { cat "$work/built.txt"; echo "FAILED: the example of CONTRIBUTING.md does not build"; exit 1; }

tool=("$build/example-sim")
"${tool[@]}" --list >out.txt || fail "--list"
has "the hottest expert of the last record copied to every rank"
"$build/hecate-sim" --list | grep -q hottest && fail "the row is in hecate-sim itself"
"${tool[@]}" "$sample" --policy ep,hottest,ideal --json >out.json 2>err.txt || fail "$(cat err.txt)"
row='{p["name"]: p for p in d["policies"]}'
expect out.json "[p['name'] for p in d['policies']]" "['ep', 'hottest', 'ideal']"
expect out.json "$row['hottest']['schedule']" hecate
expect out.json "$row['ideal']['iteration_s']['median'] <= $row['hottest']['iteration_s']['median']" True
expect out.json "$row['hottest']['overload_factor']['median'] < $row['ep']['overload_factor']['median']" True
expect out.json "$row['hottest']['bytes']['gather'] > 0 == $row['ep']['bytes']['gather']" True
expect out.json "$row['hottest']['bytes']['gather'] == $row['hottest']['bytes']['scatter']" True
expect out.json "0.2 < $row['hottest']['speedup_vs_ep'] < 5" True
"${tool[@]}" plan "$sample" --policy hottest --layer 0 --iter 10 --stage decide --json >plan.json 2>err.txt ||
  fail "$(cat err.txt)"
expect plan.json "sum(len(c) > 1 for c in d['copies'])" 1
expect plan.json "max(len(c) for c in d['copies']) == len(d['tokens_per_rank'])" True
[ $failures -eq 0 ] && echo "the example of CONTRIBUTING.md builds and runs"
[ $failures -eq 0 ]
