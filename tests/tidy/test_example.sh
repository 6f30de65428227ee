#!/usr/bin/env bash
# "One file, one row". The policy, the law and the importer of CONTRIBUTING.md are taken as they stand there. Each is
# its file and its row and nothing else. They build and work like any other. The policy with a function that does not
# exist does not build. Usage: test_example.sh BUILD_DIR
. "$(dirname "$0")/../support/tool.sh"
guide=$source_dir/CONTRIBUTING.md
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

# example FILE LIST MACRO ROW: the file from the guide, the list with the row at its end.
example() {
  block "$1" >"$work/$4.c"
  if [ ! -s "$work/$4.c" ] || ! grep -qF "X($4)" "$guide"; then
    echo "FAILED: CONTRIBUTING.md has no $1, or no row of it"
    exit 1
  fi
  put "$1" <"$work/$4.c"
  awk -v macro="#define $3(X)" -v row="X($4)" '
    index($0, macro) == 1 {on = 1}
    on && !/\\$/ {$0 = $0 " " row; on = 0}
    {print}' "$source_dir/$2" | put "$2"
  [ "$(diff "$source_dir/$2" "$place/$2" | grep -c '^>')" -eq 1 ] || fail "the row is not the only change of $2"
}

make() {
  cmake --build "$build" --target "$@" >"$work/built.txt" 2>&1
}

example runtime/plan/policies/hottest.c runtime/plan/policy_list.h HEC_POLICY_LIST hottest
example sim/law_wire.c sim/simulate.h HEC_LAW_LIST wire
example traces/import/hits.c traces/import/importer.h HEC_IMPORTER_LIST hits

# The interface changes under the example: here the other way round.
sed 's/hec_history_row/hec_history_other_row/' "$work/hottest.c" | put runtime/plan/policies/hottest.c
make example-sim && fail "builds although it calls what does not exist"
put runtime/plan/policies/hottest.c <"$work/hottest.c"
make example-sim example-trace || { cat "$work/built.txt"; echo "FAILED: the examples of CONTRIBUTING.md do not build"; exit 1; }

tool=("$build/example-sim")
"${tool[@]}" --list >out.txt || fail "--list"
has "the hottest expert of the last record copied to every rank"
has "every transfer as if alone"
"$build/hecate-sim" --list | grep -qE '^ +(hottest|wire) ' && fail "the rows are in hecate-sim itself"
"${tool[@]}" "$sample" --policy ep,hottest,ideal --schedule published --json >out.json 2>err.txt || fail "$(cat err.txt)"
row='{p["name"]: p for p in d["policies"]}'
expect out.json "[p['name'] for p in d['policies']]" "['ep', 'hottest', 'ideal']"
expect out.json "$row['hottest']['schedule']" hecate
expect out.json "$row['ideal']['iteration_s']['median'] <= $row['hottest']['iteration_s']['median']" True
expect out.json "$row['hottest']['overload_factor']['median'] < $row['ep']['overload_factor']['median']" True
expect out.json "$row['hottest']['bytes']['gather'] > 0 == $row['ep']['bytes']['gather']" True
expect out.json "$row['hottest']['bytes']['gather'] == $row['hottest']['bytes']['scatter']" True
expect out.json "0.2 < $row['hottest']['speedup_vs_ep'] < 5" True
"${tool[@]}" "$sample" --policy ep,hottest:times=1000,hottest --json >out.json 2>err.txt || fail "$(cat err.txt)"
expect out.json "[p['name'] for p in d['policies']]" "['ep', 'hottest:times=1000', 'hottest']"
expect out.json "[p['bytes']['gather'] > 0 for p in d['policies']]" "[False, False, True]"
refuses 2 "--policy hottest: times: expected a number from 1 to 1000, found \"0\"" "$sample" --policy hottest:times=0
"${tool[@]}" plan "$sample" --policy hottest --layer 0 --iter 10 --stage decide --json >plan.json 2>err.txt ||
  fail "$(cat err.txt)"
expect plan.json "sum(len(c) > 1 for c in d['copies'])" 1
expect plan.json "max(len(c) for c in d['copies']) == len(d['tokens_per_rank'])" True

# The law: every policy takes less than with all in flight at once; where there is one transfer, the same.
for law in wire max_min; do
  "${tool[@]}" "$sample" --policy ep,hecate --law $law --json >$law.json 2>err.txt || fail "$(cat err.txt)"
done
for p in 0 1; do
  median="d['policies'][$p]['iteration_s']['median']"
  python3 -c "import sys; a, b = map(float, sys.argv[1:]); sys.exit(not 0 < a < b)" \
    "$(value wire.json "$median")" "$(value max_min.json "$median")" || fail "policy $p: wire is no faster than max_min"
done
for law in wire max_min; do # two ranks, forward: each has one transfer in flight
  "${tool[@]}" "$sample" --policy ep --phase forward --ranks 2 --cluster "2x1 nic=10G@5us flops=100T mem=80G" --law $law --json \
    >$law.json 2>err.txt || fail "$(cat err.txt)"
done
expect wire.json "d['policies'][0]['iteration_s']" "$(value max_min.json "d['policies'][0]['iteration_s']")"

# The importer: recognised, its counts, and what shared code says of a bad line.
tool=("$build/example-trace")
printf '{"step": 3, "hits": [[5, 0, 7, 4], [1, 2, 3, 10]]}\n{"step": 4, "hits": [[4, 4, 4, 4], [16, 0, 0, 0]]}\n' >log.jsonl
"${tool[@]}" import log.jsonl --top-k 2 --out imported.jsonl >out.txt 2>&1 || fail "import: $(cat out.txt)"
"$build/hecate-trace" info imported.jsonl >out.txt || fail "info: $(cat out.txt)"
tail -n +2 imported.jsonl | grep -qF '"layers":[[5,0,7,4],[1,2,3,10]]' || fail "counts of the first step: $(cat imported.jsonl)"
tail -n +2 imported.jsonl | grep -qF '"layers":[[4,4,4,4],[16,0,0,0]]' || fail "counts of the second step"
sed -i '2s/16/-16/' log.jsonl
refuses 2 "log.jsonl:2: hits[1][0]: expected a whole number" import log.jsonl --top-k 2 --out imported.jsonl
[ $failures -eq 0 ] && echo "the examples of CONTRIBUTING.md build and run"
[ $failures -eq 0 ]
