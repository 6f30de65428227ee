#!/bin/bash
# report.html as tools write it. Of a comparison with the numbers of summary.json, of 32 ranks and 24 layers under 2
# MB, of a sweep whole and merged. The same bytes from anywhere, hostile names harmless. The page itself: test_page.c.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
tool=("$sim")
few=few.jsonl # the committed sample's first three iterations, for what all policies do
head -n 4 "$sample" >$few
python=$(command -v python3)
[ -n "$python" ] || echo "SKIPPED parser: no python3"

# page SECTIONS FILE [SUMMARY]
page() {
  local sections=$1
  shift
  [ -n "$python" ] || return 0
  "$python" "$source_dir/tests/report/page_check.py" "$@" >page.txt 2>&1 || fail "$*: $(head -5 page.txt)"
  [ "$(cat page.txt)" = "sections: $sections" ] || fail "$*: $(head -5 page.txt)"
}

all="ranking iterations overload traffic memory timeline assumed"
"$sim" $few --full --out one >out.txt 2>err.txt || fail "$(cat err.txt)"
has "one/report.html"
page "$all" one/report.html one/summary.json
"$sim" $few >first.txt 2>err.txt || fail "$(cat err.txt)"
sed -n '/^Fastest that fits/,/^$/{/^[^ ]/p}' first.txt | tr '\n' ' ' >verdict.txt # the first screen's sentences, in one line
sed -n '/id="verdict"/,/^<\/div>/s/^<p>\(.*\)<\/p>$/\1/p' one/report.html | grep -v '^Practically' | head -8 | tr '\n' ' ' >page-verdict.txt
[ -s verdict.txt ] && cmp -s verdict.txt page-verdict.txt || fail "the page says \"$(cat page-verdict.txt)\""
has "synthetic loads" one/report.html
has "simulated, not measured" one/report.html

# The same bytes from another folder, by another path, in another locale and time zone.
mkdir elsewhere && cp $few elsewhere/other.jsonl
(cd elsewhere && LC_ALL=de_DE.UTF-8 LANG=de_DE.UTF-8 TZ=Asia/Tokyo "$sim" other.jsonl --out two >/dev/null) || fail "elsewhere"
cmp -s one/report.html elsewhere/two/report.html || fail "the page depends on where it is made"
grep -qF "$work" one/report.html && fail "a path of this machine"
grep -qF "$source_dir" one/report.html && fail "a path of the sources"

# Options: one iteration asked for, several schedules, several kinds of attention, forward, skew, experts in shards.
for options in "--policy ep,eplb,hecate --timeline-iter 2" "--policy ep,hecate --schedule serial,pipemoe,hecate" "--attention full,s2:local=64 --policy ep" \
  "--phase forward --policy ep,eplb" "--skew rank=2:500us --policy ep,hecate" "--esp 4 --schedule published" "--law max_min --policy ep,hecate" \
  "--policy ideal" "--ranks 8 --policy ep"; do
  read -ra words <<<"$options"
  "$sim" $few "${words[@]}" --out options >out.txt 2>err.txt || fail "$options: $(cat err.txt)"
  charts=$all
  [ "$options" = "--policy ideal" ] && charts=${all/traffic /} # it sends nothing: no empty chart
  page "$charts" options/report.html options/summary.json
done

# 32 ranks and 24 layers, every policy: under 2 MB, and the page says what it left out of the timeline.
"$build/hecate-trace" synth --workload lognormal --layers 24 --experts 64 --top-k 2 --source-ranks 32 --tokens 512 \
  --iterations 2 --seed 3 --out big.jsonl >out.txt 2>err.txt || fail "synth: $(cat err.txt)"
"$sim" big.jsonl --ranks 32 --schedule published --out big >out.txt 2>err.txt || fail "big: $(cat err.txt)"
page "$all" big/report.html big/summary.json
size=$(wc -c <big/report.html)
[ "$size" -lt 2000000 ] || fail "$size bytes for 32 ranks and 24 layers"
has "is drawn as what takes most of it" big/report.html

# Two hundred rows: those that are drawn one by one are few, which the page says.
head -n 3 $few >two.jsonl # rows are meant, not iterations
"$sim" two.jsonl --schedule serial,hecate,laer,pipemoe,tutel,lina,hiermoe --out many >out.txt 2>err.txt || fail "many: $(cat err.txt)"
page "$all" many/report.html many/summary.json
has "rows are drawn one by one: the fastest, and the baseline" many/report.html
size=$(wc -c <many/report.html)
[ "$size" -lt 2000000 ] || fail "$size bytes for two hundred rows"
grep -qF "drawn one by one" one/report.html && fail "a page of few rows leaves some out"

# A trace that calls itself a script; a path that does.
name='</title><script>alert(1)</script><img src=x onerror=alert(2)>'
sed "1s|\"name\":\"[^\"]*\"|\"name\":\"$name\"|" "$sample" >hostile.jsonl
"$sim" hostile.jsonl --policy ep,hecate --out hostile >out.txt 2>err.txt || fail "hostile: $(cat err.txt)"
page "$all" hostile/report.html
has '&#60;script&#62;alert(1)&#60;/script&#62;' hostile/report.html
[ "$(grep -o '<script' hostile/report.html | wc -l)" -eq 1 ] || fail "a script of the trace's"
sed '1s|"name":"[^"]*",||' "$sample" >'<script>path'
"$sim" '<script>path' --policy ep --out path >out.txt 2>err.txt || fail "path: $(cat err.txt)"
page "$all" path/report.html

# Of an execution: what needs the rows alone, in words that say that it was measured.
run=$build/hecate-run
quick=("$sample" --ranks 2 --layers 2 --steps 4 --tokens 64 --virtual --policy ep,eplb,hecate)
"$run" "${quick[@]}" --check --out ran >out.txt 2>err.txt || fail "hecate-run: $(cat err.txt)"
has "ran/report.html (open in a browser)"
page "ranking iterations overload assumed" ran/report.html ran/summary.json
has '<span class="tag dim">measured</span>' ran/report.html
has "<dd>passed, all rows, against a dense reference</dd>" ran/report.html
has "transfers are imitated" ran/report.html
has "$(grep '^Fastest in virtual time' out.txt)" ran/report.html
for words in simulated "lower bound" "network law" "reference rows"; do
  grep -qF "$words" ran/report.html && fail "\"$words\" of what was measured"
done
"$run" "${quick[@]}" --out ran --timeline-format kineto >out.txt 2>err.txt || fail "hecate-run: $(cat err.txt)"
has "ran/report.html"
has "<dd>not asked (--check)</dd>" ran/report.html
if [ "$(nproc)" -lt 4 ]; then
  "$run" "$sample" --ranks 4 --layers 1 --steps 2 --tokens 16 --policy ep,eplb --out ran >out.txt 2>err.txt || fail "$(cat err.txt)"
  has "No fastest is named" ran/report.html
  grep -qF 'class="bar best"' ran/report.html && fail "a best where none is named"
fi

# A sweep, whole, and merged of two shards: the same page.
cat >spec.json <<END
{"trace": {"synth": {"workload": "zipf", "layers": 2, "experts": 8, "top_k": 2, "source_ranks": 4, "tokens": 128,
                     "iterations": 4, "seed": 7}},
 "policy": ["ep", "eplb", "hecate"], "ranks": [4],
 "cluster": ["1x4 nvlink=300G@2us flops=312T mem=40G", "1x4 nvlink=3G@2us flops=312T mem=40G"],
 "model": "tiny", "tokens": [128, 1024, 4096], "schedule": ["published", "pipemoe"]}
END
"$sim" sweep spec.json --out whole.csv --report whole.html >out.txt 2>err.txt || fail "sweep: $(cat err.txt)"
has "<p>These are predictions: the rates of 1x4 " whole.html
has " are data sheets and assumptions, not measured on your machine.</p>" whole.html
has whole.html
page "regime assumed" whole.html
for i in 0 1; do
  "$sim" sweep spec.json --shard $i/2 --out parts >/dev/null 2>err.txt || fail "shard: $(cat err.txt)"
done
"$sim" sweep merge parts.part-0-of-2 parts.part-1-of-2 --report merged.html >out.txt 2>err.txt || fail "merge: $(cat err.txt)"
cmp -s whole.html merged.html || fail "a merged sweep has another page"
[ "$(grep -o '<td class="g' whole.html | wc -l)" -eq 6 ] || fail "not 6 cells in the map"
has "<li>not modelled by alpha_beta: " whole.html
refuses 2 "--report" sweep spec.json --shard 0/2 --out parts --report no.html
refuses 2 "--report" sweep spec.json --report nowhere/deep.html
refuses 2 "--report" sweep spec.json --report "$work"
if [ -n "$python" ]; then # who wins, from the rows
  "$python" - >wins.txt <<'END'
import csv
cells = {}
for row in csv.DictReader(open("whole.csv")):
    name = f'{row["policy"]}/{row["schedule_used"]}'
    if row["fits"] == "true":
        cells.setdefault((row["cluster"], row["tokens"]), {}).setdefault(name, float(row["iteration_median_s"]))
won = {}
for cell in cells.values():
    best = min(cell, key=lambda name: (cell[name],))
    won[best] = won.get(best, 0) + 1
first = max(won, key=lambda name: won[name])
print(f"{first} in {won[first]} of {len(cells)} cells")
END
  grep -qF "$(cat wins.txt)" whole.html || fail "the page does not say \"$(cat wins.txt)\""
  # the speed over ep of every cell's winner is the CSV's: of grids that are one, their lowest and highest
  "$python" - >ratios.txt 2>&1 <<'END' || fail "not speedup_vs_ep: $(tail -3 ratios.txt)"
import csv, re
best = {}
for row in csv.DictReader(open("whole.csv")):
    cell = (row["cluster"], row["tokens"])
    if row["fits"] == "true" and (cell not in best or float(row["iteration_median_s"]) < float(best[cell]["iteration_median_s"])):
        best[cell] = row
wanted = sorted(float(row["speedup_vs_ep"]) for row in best.values())
found = sorted(float(x) for x in re.findall(r"<small>([0-9.]+)x as fast as ep/[a-z]+</small>", open("whole.html").read()))
assert len(found) == len(wanted) == 6, (found, wanted)
assert all(abs(a - b) <= 0.00501 * max(1, b) for a, b in zip(found, wanted)), (found, wanted)
END
fi
[ $failures -eq 0 ]
