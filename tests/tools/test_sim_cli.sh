#!/bin/bash
# hecate-sim as a user meets it: exit codes and messages for wrong input, outputs whole and repeatable.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
tool=("$sim")

accepts() {
  case $1 in plan | flows | sweep | breakeven) ;; *) set -- "$@" --full ;; esac
  "$sim" "$@" >out.txt 2>err.txt || fail "exit code $?: $* ($(head -c 300 err.txt))"
  [ ! -s err.txt ] || fail "something on stderr: $*: $(head -c 300 err.txt)"
}

small=small.jsonl
few=few.jsonl # the committed sample's first three iterations, for what all policies do
head -n 4 "$sample" >$few
header='{"format":"hecate-trace","version":1,"name":"s","layers":1,"experts":3,"top_k":1,"source_ranks":2,"layout":"layer x source_rank x expert","unit":"token-expert assignments"}'
{
  echo "$header"
  for i in 1 2 3; do echo "{\"iter\":$i,\"layers\":[[[4,0,$i],[1,7,0]]]}"; done
} >$small

{ echo "$header"; echo '{"iter":1,"layers":[[[4294967295,0,0],[4294967295,0,0]]]}'; } >huge.jsonl
refuses 2 "tokens per rank" huge.jsonl --ranks 1

{ echo "$header"; echo '{"iter":0,"layers":[[[0,0,0],[0,0,0]]]}'; echo '{"iter":1,"layers":[[[4,0,8],[1,7,4]]]}'; } >late.jsonl
accepts late.jsonl --policy ep && has "tokens per rank: 12 (the trace's own number, of the first record that has any)"

# What a trace is too short for, and what its rows know in advance: of the rows shown.
head -n 2 $small >one.jsonl
accepts one.jsonl --policy ep,eplb,hecate && has "history: no load is known before the only iteration: eplb, hecate have nothing to"
accepts one.jsonl --policy ep && ! grep -q "history:" out.txt || fail "ep needs no history"
accepts $small --policy ep,eplb && has "history: 3 iterations, no load known before the first"
# Nothing fits: what would help; a forward pass has no optimizer to shard.
tiny=(--cluster "1x2 nvlink=300G flops=312T mem=1M" --policy ep)
advice() { "$sim" $small "${tiny[@]}" "$@" >out.txt || fail "exit code $?: $*"; tr -s "\n " " " <out.txt | grep -q "may fit: see hecate-sim recommend"; }
advice || fail "no advice where nothing fits: $(cat out.txt)"
advice --phase forward && fail "a forward pass is no training job: $(cat out.txt)"
"$build/hecate-trace" synth --workload W0 --layers 2 --experts 4 --source-ranks 2 --tokens 64 --iterations 12 --affinity 0.5 --out follows.jsonl >out.txt || fail "no trace with transitions"
accepts follows.jsonl --policy ep,eplb && ! grep -q "transitions:" out.txt || fail "a note on transitions that no row uses: $(cat out.txt)"
accepts follows.jsonl --policy ep,exflow && has "transitions: exflow places experts by counts of"
# balanced and compute slow: most rows are as fast as the fastest
accepts follows.jsonl --policy all --cluster "4x8 nvlink=300G@2us nvlink_eff=0.72 nic=50G@10us nic_eff=0.89 flops=312T eff=0.32 hbm=1321.75G mem=40G"
[ "$(awk 'length > 110' out.txt | wc -l)" -eq 0 ] || fail "a line wider than the tables: $(awk 'length > 110' out.txt)"
grep -A 1 '^  Within 0.5 % of it:' out.txt | tail -n 1 | grep -q '^    .*%' || fail "no long list to wrap: $(tail -n 12 out.txt)"

# Presets as files: what is printed is read as the preset is.
for name in tiny pcie-box; do
  accepts --preset $name
  cmp -s out.txt "$source_dir"/models/presets/*-$name.json || fail "--preset $name: not its file"
done
refuses 2 '--preset: expected a model, cluster, device, setup-NAME or recipe-NAME of --list, found "none"' --preset none

# Names of files and in files steer no terminal.
escape='a\u001b[31mb\nc\u009b2J'
placed=$'map\x1b[2J\n.json'
given="\"name\": \"$escape\""
for kind in cluster-pcie-box moe-tiny; do
  text=$(<"$source_dir/models/presets/$kind.json")
  name="\"name\": \"${kind#*-}\""
  [[ $text == *"$name"* ]] || fail "$kind.json has another name"
  printf '%s\n' "${text/"$name"/"$given"}" >$kind.json
done
echo '{"physical_to_logical_map":[[0,1,2,0]]}' >"$placed"
accepts $small --cluster ./cluster-pcie-box.json --model ./moe-tiny.json --policy ep --placement "$placed"
has "model    a?[31mb?c??2J: " && has "cluster  a?[31mb?c??2J: " && has "as in map?[2J?.json (format eplb)"
accepts plan "$sample" --policy ep --iter 9 --export eplb --out "other-$placed" && has "other-map?[2J?.json: where the experts"
accepts $small --policy ep --placement "$placed" --out $'d\x1b[2J' && has "Written: d?[2J/report.html"
LC_ALL=C tr -d '\n -~' <out.txt >left.txt
[ ! -s left.txt ] || fail "bytes that are no text: $(od -c left.txt | head -n 2)"

# Options.
refuses 2 "expected a trace"
for option in --attention --cluster --model --policy --schedule --law --collective --phase --t; do
  refuses 2 nonsense $small $option nonsense
  refuses 2 "$option" $small $option
done
refuses 2 nonsense $small --policy ep,nonsense
refuses 2 "once, found" $small --attention s2:shards=0
refuses 2 "at most the heads" $small --attention s2:shards=9999
refuses 2 "found \"full\" twice" $small --attention full,s2:local=64,block=64,full
refuses 2 "at most 4 kinds" $small --attention full,causal,s2,s2:shards=2,s2:shards=4
refuses 2 'found ""' $small --attention full,,causal
refuses 2 'found ""' $small --attention causal,
refuses 2 'found "local=2"' $small --attention local=2,causal
refuses 2 multiple $small --attention causal,s2:local=65
refuses 2 bogus $small --policy ideal --schedule bogus
refuses 2 slow $small --cluster "1x2 nvlink=1 flops=1 mem=1"
refuses 2 --timeline-iter $small --timeline-iter 77 --out t77
[ ! -e t77/timeline.json ] && [ ! -e t77/summary.json ] || fail "something written for an iteration that is not there"
refuses 2 "--slow: expected a rank from 0 to 1" $small --slow rank=2:0.5
refuses 2 "--slow: expected a factor" $small --slow rank=1:2
refuses 2 "--slow: expected a link that messages between ranks 0 to 1 cross" $small --slow link=nic_out:node3:0.5
refuses 2 '--slow: given twice, the second time "rank=0:0.5"; several in one: S[,S...]' $small --slow rank=1:0.5 --slow rank=0:0.5
refuses 2 "--skew: expected a time" $small --skew rank=1:500
refuses 2 "--skew: expected a rank" plan $small --policy ep --layer 0 --iter 1 --skew rank=2:1us
refuses 2 "--slow: expected" breakeven --slow link=nic_out:node9:0.5
refuses 2 nowhere $small --json --out nowhere/deep
refuses 2 $small $small --out $small

# What is right.
for value in --help --version --list; do
  "$sim" $value >out.txt 2>&1 || fail "$value"
  [ -s out.txt ] || fail "$value says nothing"
done
accepts $small
accepts $small --ranks 2 --cluster "1x2 nvlink=1G flops=1T mem=1G" --check
accepts $small --ranks 16 --phase forward --check
accepts $small --micro-batches 3 --law max_min --check --schedule serial
accepts $small --tokens 7 --policy ep,ideal --collective chain
accepts $small --timeline-iter 2 --out drawn

# A layer's dispatch as a traffic matrix, and what the network makes of it: reads back, and is what the plan says it moves.
wide="2x4 nvlink=300G@2us nic=50G@5us nics=2 flops=100T mem=40G"
accepts plan "$sample" --policy ep --layer 1 --iter 5 --cluster "$wide" --ranks 8 --write-matrix moved.txt --json && mv out.txt plan.json
[ "$(awk '{ for (i = 1; i <= NF; i++) if (i != NR) n += $i } END { print n " " NR " " NF }' moved.txt)" = \
  "$(value plan.json 'd["bytes"]["dispatch"]') 8 8" ] || fail "the matrix is not the dispatch: $(head -c 300 moved.txt)"
for law in alpha_beta max_min nccl_rounds; do
  accepts flows moved.txt --cluster "$wide" --law $law --json && mv out.txt flows-$law.json
  expect flows-$law.json 'd["algbw"] * d["makespan"] - d["size_bytes"] < 1e-6 * d["size_bytes"]' True
  expect flows-$law.json 'abs(d["busbw"] / d["algbw"] - 7 / 8) < 1e-12' True
  expect flows-$law.json 'sum(f["bytes"] for f in d["flows"])' "$(value plan.json 'd["bytes"]["dispatch"]')"
done
expect flows-max_min.json "d['makespan'] >= $(value flows-alpha_beta.json 'd["makespan"]') * (1 - 1e-12)" True
accepts flows moved.txt --cluster "$wide" --slow link=nic_out:node0:0.5 && has "algbw" && has "nic_out:node0"
accepts flows moved.txt --cluster "$wide" --law alpha_beta && has "all flows are one exchange"
printf '0 0\n0 0\n' >zeros.txt
accepts flows zeros.txt --cluster "$wide" && has "size 0 bytes of the busiest rank, algbw - GB/s, busbw - GB/s"
accepts flows zeros.txt --cluster "$wide" --json && expect out.txt '(d["size_bytes"], d["algbw"], d["busbw"])' "(0, None, None)"
printf '0 1000\n0 0\n' >thousand.txt
accepts flows thousand.txt --cluster "1x2 nvlink=7M flops=1T mem=1G" && has "algbw 0.007 GB/s, busbw 0.0035 GB/s"
refuses 2 "moved.txt" flows moved.txt
refuses 2 "at most the 2 devices" flows moved.txt --cluster "1x2 nvlink=1G flops=1T mem=1G"
refuses 2 "--slow" flows moved.txt --slow link=nic_out:node0:0.5
refuses 2 "--slow: expected links only" flows moved.txt --cluster "$wide" --slow rank=1:0.5
refuses 2 "--slow: expected a kind" flows moved.txt --cluster "1x8 nvlink=1G flops=1T mem=1G" --slow link=nic_out:node0:0.5
printf '0 1\n2 x\n' >bad.txt && refuses 2 'bad.txt:2:3: expected whole bytes' flows bad.txt --cluster "$wide"
refuses 2 "--write-matrix nowhere" plan "$sample" --policy ep --layer 0 --iter 5 --write-matrix nowhere/deep/m.txt

# Stragglers: said, later than without, the same under the engine; the skew is no waiting; bounds have none.
line="1x2 nvlink=100G@2us flops=1T mem=40G"
accepts $small --policy ep,ideal --cluster "$line" --json && mv out.txt plain.json
accepts $small --policy ep,ideal --cluster "$line" --slow rank=1:0.5,link=port_out:device0:0.5 --skew rank=1:700us --json --check
mv out.txt slow.json
has "stragglers: rank 1 computes at 0.5 of its speed; link port_out:device0 carries 0.5 of its bandwidth; rank 1 begins 700 us late" slow.json
expect plain.json '[p.get("skew_s") for p in d["policies"]]' "[None, None]"
expect slow.json '["%.6g" % p.get("skew_s", 0) for p in d["policies"]]' "['0.00035', '0']"
late() { value "$1" 'd["policies"][0]["iteration_s"]["median"]'; }
awk -v a="$(late plain.json)" -v b="$(late slow.json)" 'BEGIN { exit !(b > a + 0.0007) }' || fail "slow: $(late plain.json) $(late slow.json)"
accepts $small --policy ep --cluster "$line" --skew rank=1:700us && has "start skew: for 0.35"
accepts plan $small --policy ep --layer 0 --iter 1 --slow rank=1:0.5 --json
gzip -c $small >small.gz && accepts small.gz

# Kinds of attention: the first is the report's; as when it is the only one; less attention, less window, less time.
kinds="full,causal,s2:local=64,shards=4"
accepts "$sample" --policy ep,hecate,laer --attention $kinds --json --check --out kinds && mv out.txt kinds.json
accepts "$sample" --policy ep,hecate,laer --attention full --json && mv out.txt full.json
diff full.json kinds.json | grep -q '^<' && fail "a list of kinds changes what is said of the first"
values() { sed -n 's/.*"attentions"/&/; s/.*"'"$1"'": \([0-9.e+-]*\).*/\1/p' kinds.json; }
accepts "$sample" --policy ep,hecate,laer --attention $kinds && mv out.txt kinds.txt
awk 'length > 110 { exit 1 }' kinds.txt || fail "a line of the table of kinds is wider than 110 columns"
grep -q '^1  full ' kinds.txt && grep -q '^3  s2:shards=4,local=64,block=64 ' kinds.txt || fail "no table of kinds"
awk '$1 == "hecate" && NF == 10 { n++ } END { exit n != 1 }' kinds.txt || fail "no row of hecate in the table of kinds"
values attention_context | sed 1d | sort -g -r -C || fail "contexts: $(values attention_context)"
values window_s | sed 1d | sort -g -r -u -C || fail "windows: $(values window_s)"
[ "$(values window_s | wc -l)" -eq 4 ] || fail "kinds: $(values window_s)"
accepts "$sample" --policy ep --attention s2 --model gpt-moe-s && accepts "$sample" --policy ep --attention causal,full

# Standard input counts like the file; an option that would do nothing is refused; gathers of slices leave out one's own.
"$sim" "$sample" --policy ep,hecate --json >file.json && "$sim" - --policy ep,hecate --json <"$sample" >pipe.json
cmp -s file.json pipe.json || fail "standard input gives other numbers"
gzip -c "$sample" | "$sim" plan - --policy ep --layer 0 --iter 3 >/dev/null || fail "plan from a pipe"

# Threads share the policies: the same bytes for any number of them, wherever the trace comes from; one bad record is one
# message.
for threads in 1 5; do
  accepts $few --json --out t$threads --threads $threads --schedule published,serial && mv out.txt t$threads.json
  cmp -s t1.json t$threads.json || fail "$threads threads: another document"
  for file in summary.json summary.csv timeline.json; do
    cmp -s t1/$file t$threads/$file || fail "$threads threads: another $file"
  done
done
gzip -c $few | "$sim" - --json --out piped --schedule published,serial >pipe.json
cmp -s t1.json pipe.json && cmp -s t1/timeline.json piped/timeline.json || fail "gzip by a pipe and all cores: other bytes"
sed '5s/\[\[\[/[[[-1,/' "$sample" >bad-record.jsonl && refuses 2 bad-record.jsonl:5 bad-record.jsonl --threads 4
if command -v script >/dev/null; then
  script -qec "'$sim' $few --policy ep,eplb --schedule published --threads 2" /dev/null >seen.txt </dev/null
  "$sim" $few --policy ep,eplb --schedule published | head -1 | grep -qF -f - seen.txt || fail "no table on a terminal: $(head -c 300 seen.txt)"
fi
refuses 2 "standard input" - </dev/null
gathered=$(("$("$sim" "$sample" --policy fsdp --phase forward --json | sed -n 's/.*"gather": \([0-9]*\).*/\1/p')" / 6))
"$sim" plan "$sample" --policy fsdp --layer 0 --iter 3 --phase forward --json | grep -q "\"gather\": $gathered," ||
  fail "plan and summary differ in what fsdp gathers"
# The first screen: at most six rows, each once, by time; nothing wider than the whole table; the fastest row is the verdict's.
"$sim" $few >first.txt && "$sim" $few --full >full.txt || fail "the first screen"
awk '/^policy / {on = 1; next} !NF || /^x bound:/ {on = 0} on && $1 != "bound" {print $1, $(NF - 4)}' first.txt >rows.txt
[ "$(wc -l <rows.txt)" -le 5 ] && grep -q "^bound " first.txt && [ "$(cut -d" " -f1 rows.txt | sort -u | wc -l)" -eq "$(wc -l <rows.txt)" ] ||
  fail "rows of the first screen: $(cat rows.txt)"
sort -k2,2n -s rows.txt | cmp -s - rows.txt || fail "rows are not sorted: $(cat rows.txt)"
awk '/^policy / {on = 1; next} !NF {on = 0} on {print $3}' full.txt >medians.txt
[ "$(wc -l <medians.txt)" -ge 30 ] && sort -n medians.txt | cmp -s - medians.txt || fail "rows of --full are not sorted: $(cat medians.txt)"
# The fastest rows again under max_min. What the verdict says of their order follows from the times: all stay, the fastest alone
# stays, or another is the fastest, and then both are named.
cat >crossed.py <<'P'
import json, sys
check, words = json.load(open(sys.argv[1]))["cross_check"], " ".join(open(sys.argv[2]).read().split())
there = sorted(check["rows"], key=lambda r: r["other_s"])
own = min(there, key=lambda r: r["own_s"])
say = lambda r: "%s (schedule %s) %.3f ms" % (r["name"], r["schedule"], 1e3 * r["other_s"])
stay = there == sorted(there, key=lambda r: r["own_s"])
if stay:
    kind, expected = "all", "the %d fastest keep their order." % len(there)
elif there[0] == own:
    kind, expected = "first", "%s stays the fastest of %d, %.3f ms before %s with %.3f ms; the others change places." % (
        own["name"], len(there), 1e3 * own["other_s"], there[1]["name"], 1e3 * there[1]["other_s"])
else:
    kind, expected = "none", "the order changes. The fastest there is %s, before %s. The laws disagree: measure both." % (say(there[0]), say(own))
assert check["order_stays"] == stay and "Checked under law max_min, which shares links exactly: " + expected in words, (expected, words)
print(kind)
P
crossed() {
  "$sim" $few "${@:2}" --json >cross.json && "$sim" $few "${@:2}" >cross.txt || fail "cross-check: ${*:2}"
  [ "$(python3 crossed.py cross.json cross.txt)" = "$1" ] || fail "cross-check: not $1: ${*:2}"
}
crossed all --cluster dgx-h100 --ranks 16 --policy ep,hecate,fsdp
crossed first --cluster h800 --policy ep,janus,joint,laer,fsdp
crossed none --tokens 512 --policy ep,eplb-no-replicas,joint
# x bound is the row's time over the bound of its own kind. The line under the table has ep's where the row `bound` has another.
zcat "$source_dir/traces/charlm-e16-noaux.jsonl.gz" | head -n 51 >noaux.jsonl
"$sim" noaux.jsonl --model gpt-moe-s --tokens 4096 --policy ep,fsdp --ranks 16 >out.txt
tr '\n' ' ' <out.txt >line.txt # the line under the table may be broken anywhere
ep=$(awk '/^ep / {print $3, $5}' out.txt) bound=$(sed -n 's/.* x bound: .*[ :] ep *\([0-9.]*\) ms.*/\1/p' line.txt)
awk -v of="$ep ${bound:-0}" 'BEGIN {split(of, v); d = v[3] > 0 ? v[1] / v[3] - v[2] : 1; exit !(d < 0.006 && d > -0.006)}' ||
  fail "the bound of ep: $(cat out.txt)"
"$sim" "$sample" --policy eplb,llep >out.txt
grep -q '^vs ep is "-": ep was not compared' out.txt || fail "an empty column without its reason"
grep -qF '..' out.txt && fail "a sentence that ends twice"
# What a line leaves open is assumed, and said.
"$sim" "$sample" --policy ep --ranks 4 --cluster "2x2 gpu=h100" | grep -q '^assumed: .*NICs' || fail "nics of a line"
"$sim" "$sample" --policy ep --ranks 4 --cluster "2x2 gpu=h100 nics=2" | grep -q '^assumed: .*PXN' || fail "pxn of a line"
"$sim" "$sample" --policy ep --ranks 4 --cluster "2x2 gpu=h100 nics=2 pxn=1" | grep -qE 'NICs|PXN' && fail "nics and pxn of a line that has them"
# One list of what is not modelled: the first screen's is that of JSON.
"$sim" "$sample" --policy ep --json | sed -n 's/.*"not_modelled": "\(.*\)",/\1/p' >missing.txt
sed -n '/^not modelled:/,/^more:/p' first.txt | grep -v '^more:' | tr -s ' \n' '  ' | sed 's/^not modelled: //; s/ $//' | grep -qxFf missing.txt ||
  fail "not modelled: $(cat missing.txt)"
[ "$(grep -o '^Fastest that fits[^:]*: [^ ,(]*' first.txt)" = "$(grep -o '^Fastest that fits[^:]*: [^ ,(]*' full.txt)" ] || fail "two verdicts"
grep -q "^$(sed -n 's/^Fastest that fits[^:]*: \([^ ,(]*\).*/\1/p' first.txt) " rows.txt && grep -q '^ep ' rows.txt || fail "no row of the fastest, or of ep"
awk 'length > 100 { exit 1 }' first.txt || fail "a line of the first screen is wider than 100 columns"
for words in "not modelled: pipeline parallelism" "^assumed: .*model shape"; do grep -q "$words" first.txt || fail "no \"$words\""; done
"$sim" "$sample" --policy ep --schedule published | grep -q '^Only ep was compared (schedule serial): .* ms per iteration' || fail "ep alone"
# What a policy went without is said.
"$sim" "$sample" --policy exflow,moetuner --json >notes.json
grep -q '"note": "groups: .*: the second problem is skipped' notes.json || fail "moetuner does not say what it skipped"
grep -q '"note": "experts stand as in ep: the trace has no transitions' notes.json || fail "exflow does not say what it lacks"

# What a schedule chose is said, where it chooses.
two_nodes="2x2 nvlink=1G nic=1G flops=1T mem=40G"
accepts "$sample" --ranks 4 --cluster "$two_nodes" --policy ep,eplb --schedule tutel --json && mv out.txt tutel.json
counted=$(awk '/"degrees"/ { on = 1; next } /}/ { on = 0 } on { sum += $2 } END { print sum / 2 }' tutel.json)
[ "$(sed -n 's/.*"2dh": \([0-9]*\).*/\1/p' tutel.json | sort -n | head -n 1)" -gt 0 ] || fail "2DH was not tried"
accepts "$sample" --ranks 4 --cluster "$two_nodes" --policy ep,eplb --schedule tutel
grep -q "^tutel: degree 1 in [0-9]* of $counted layers in [0-9]* iterations.*; 2dh in [0-9]* (ep, eplb)$" out.txt ||
  fail "what tutel chose: $(grep -a '^tutel:' out.txt)"
accepts "$sample" --policy ep --schedule pipemoe
grep -q '^pipemoe: degree [0-9]* in \([0-9]*\) of \1 layers in [0-9]* iterations (ep)$' out.txt || fail "what pipemoe chose"
accepts "$sample" --policy ep --schedule serial && grep -q '^serial: degree' out.txt && fail "serial chooses nothing"
slow_between="4x4 nvlink=300G nic=1G flops=312T mem=40G"
accepts "$sample" --cluster "$slow_between" --policy ep,eplb --schedule hiermoe
grep -q '^hiermoe: rows once per node in [1-9][0-9]* of [0-9]* layers in [0-9]* iterations' out.txt || fail "what hiermoe chose"
accepts "$sample" --cluster "$slow_between" --policy ep --schedule hiermoe --json
grep -q '"layers_by_node": [1-9]' out.txt || fail "hiermoe does not count layers in JSON"

"$sim" plan "$sample" --policy moetuner --layer 0 --iter 3 >out.txt && has "moetuner: experts stood as in ep"
"$sim" plan "$sample" --policy moetuner --layer 0 --iter 3 --json >out.txt && has '"note": "experts stood as in ep'

# Schedules: every policy under each, pairs that come twice once; a row's numbers are those it has alone.
accepts "$sample" --policy ep,hecate,ideal --schedule published,serial,pipemoe --json && mv out.txt list.json
expect list.json '[p["name"]+" "+p["schedule"] for p in d["policies"]]' \
  "['ep serial', 'ep pipemoe', 'hecate hecate', 'hecate serial', 'hecate pipemoe', 'ideal ideal']"
accepts "$sample" --policy hecate --schedule pipemoe --json && mv out.txt alone.json
expect list.json 'd["policies"][4]["iteration_s"]' "$(value alone.json 'd["policies"][0]["iteration_s"]')"
accepts "$sample" --policy ep,eplb --schedule serial,pipemoe && has "ep/pipemoe " && has "eplb/serial "
has "as fast as ep/serial, mostly by"
accepts "$sample" --policy ep,eplb --schedule serial && ! grep -q 'ep/serial' out.txt || fail "one schedule, and rows name it twice"
# Experts in shards: all means those that run so, and the others are named.
accepts $few --esp 2 && has "left out, which do not run with experts in shards (--esp): ep-capacity, ideal" && has "ep-balanced "
awk 'length > 110 { exit 1 }' out.txt || fail "a line of the table with --esp is wider than 110 columns"
# The table of kinds of attention has the row that times are compared to.
accepts "$sample" --policy ep,hecate --attention causal,s2
[ "$(grep -c '^ep ' out.txt)" -eq 3 ] || fail "no row of ep in the table of kinds: $(grep '^ep ' out.txt)"
# Help and lists fit a terminal.
for words in --help --list "plan --help" "flows --help" "breakeven --help"; do
  # shellcheck disable=SC2086 # words
  "$sim" $words | awk 'length > 120 { exit 1 }' || fail "hecate-sim $words: a line is wider than 120 columns"
done

# The traces in traces/README.md, which users start from.
awk '/^```/ { inside = !inside && /^```$/; n += inside; next } inside { print > "readme" n ".jsonl" }' \
  "$source_dir/traces/README.md"
for i in 1 2; do accepts readme$i.jsonl --policy ep; done

# Every policy under every schedule, twice: the same bytes; JSON that parses; the table says that it is synthetic.
accepts $few --out one && mv out.txt table.txt
grep -q synthetic table.txt || fail "the table does not say synthetic"
# full.txt: another run's, without files.
cmp -s <(grep -v "^Written: " table.txt) full.txt || fail "two tables differ"
cp -r one kept
accepts $few --json --out one && mv out.txt one.json
for file in summary.json summary.csv timeline.json report.html; do
  [ -s one/$file ] || fail "$file is missing"
  cmp -s one/$file kept/$file || fail "two $file differ"
done
cmp -s one.json one/summary.json || fail "--json and summary.json differ"
[ "$(ls -A one | wc -l)" -eq 5 ] && [ -s one/.hecate-files ] || fail "more than four files and their list in --out: $(ls -A one)"
if command -v python3 >/dev/null; then
  for file in one/summary.json one/timeline.json; do
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' $file 2>err.txt || fail "$file is not JSON: $(tail -n 1 err.txt)"
  done
else
  echo "SKIPPED json.load: no python3"
fi

# plan
accepts plan $small --policy ep --layer 0 --iter 2 --json && mv out.txt plan.json
for key in policy layer iter t m owner copies tokens_per_rank overload_factor bytes; do
  grep -q "\"$key\"" plan.json || fail "plan has no \"$key\""
done
accepts plan $small --policy eplb --layer 0 --iter 3 --stage decide
accepts plan $small --policy smartmoe --layer 0 --iter 3 --reshard --json
refuses 2 expected plan
refuses 2 nonsense plan $small --policy nonsense --layer 0 --iter 2
refuses 2 --policy plan $small --policy ep,ideal --layer 0 --iter 2
refuses 2 --stage plan $small --policy ep --layer 0 --iter 2 --stage later

# flows
accepts flows "$source_dir/tests/sim/cases/incast.json" --json && mv out.txt flows.json
accepts flows "$source_dir/tests/sim/cases/incast.json" --json && cmp -s out.txt flows.json || fail "two flows differ"
grep -q '"makespan"' flows.json || fail "flows has no makespan"
refuses 2 "" flows

# A full disk or a closed pipe is a failure of the run.
if [ -w /dev/full ]; then
  "$sim" $small --json >/dev/full 2>err.txt
  [ $? -eq 1 ] || fail "writing to a full device"
fi

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
