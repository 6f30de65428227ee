#!/usr/bin/env bash
# The tools against bad, huge, empty and hostile input. Exit 2 (bad input) or 1 (the machine failed), one line that says
# why, nothing on stdout, nothing written half. And what is unusual but valid works.
set -u
sim=$1/hecate-sim
synth=("$1/hecate-trace" synth)
bench=$1/hecate-bench
sample=traces/sample-synthetic.jsonl
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
line="flops=312T mem=40G nvlink=300G@2us nic=50G@5us"

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refused CODE 'words on stderr' command...
refused() {
  local code=$1 words=$2
  shift 2
  "$@" >"$folder/stdout" 2>"$folder/stderr" </dev/null
  local got=$?
  [ $got -eq "$code" ] || fail "$*: exit $got, wanted $code: $(head -c 500 "$folder/stderr")"
  grep -qF -- "$words" "$folder/stderr" || fail "$*: said: $(head -c 500 "$folder/stderr")"
  [ "$(wc -l <"$folder/stderr")" -eq 1 ] || fail "$*: not one line"
  [ "$(tr -d '\n\040-\176\200-\377' <"$folder/stderr" | wc -c)" -eq 0 ] || fail "$*: control characters in the message"
  [ ! -s "$folder/stdout" ] || fail "$*: wrote to stdout"
}

# works 'words on stdout' command...
works() {
  local words=$1
  shift
  "$@" >"$folder/stdout" 2>"$folder/stderr" </dev/null || fail "$*: exit $?: $(head -c 500 "$folder/stderr")"
  grep -qF -- "$words" "$folder/stdout" || fail "$*: did not print: $words"
  grep -qiE '[^a-z](nan|inf)[^a-z]' "$folder/stdout" && fail "$*: printed a number that is none"
  [ ! -s "$folder/stderr" ] || fail "$*: stderr: $(head -c 500 "$folder/stderr")"
}

# trace NAME 'header fields' records... writes $folder/NAME
trace() {
  local name=$1 fields=$2
  shift 2
  printf '{"format":"hecate-trace","version":1,%s}\n' "$fields" >"$folder/$name"
  [ $# -eq 0 ] || printf '%s\n' "$@" >>"$folder/$name"
}

# ---- options; what is no number, the kinds and the dashes: test_args.c ----
for beyond in ranks=0 ranks=65537 tokens=0 tokens=1e18 micro-batches=0 warmup=-1 period=0 t=-1 t=1000001 slots=0 esp=0 mp=0 \
  threads=0 threads=1025 nonmoe-scale=0x1p0; do
  refused 2 "--${beyond%=*}: expected" "$sim" $sample "--$beyond"
done
refused 2 'ranks: expected at most the 64 devices' "$sim" $sample --ranks 65536
refused 2 '--slots: expected at least 8, so that 4 ranks can hold 32 experts, found 7' "$sim" $sample --slots 7 --ranks 4
refused 2 '--esp: expected a divisor of the 16 ranks' "$sim" $sample --esp 3 --policy ep
refused 2 'experts in shards beside --esp 2 (ep, ep-balanced), found' "$sim" $sample --esp 2 --policy ep,eplb
refused 2 '--esp: expected a divisor of the 4 ranks' "$1/hecate-run" $sample --esp 3 --policy ep
refused 2 'experts in shards beside --esp 2 (ep, ep-balanced), found' "$1/hecate-run" $sample --esp 2
refused 2 '--mp: expected a divisor of the 16 ranks' "$sim" $sample --mp 3 --policy ep
refused 2 '--mp: expected a divisor of the 4 ranks' "$1/hecate-run" $sample --mp 3 --policy ep
refused 2 '--mp: sharded s2 attention is simulated only' "$1/hecate-run" $sample --mp 2 --policy ep --attention s2
refused 2 'unknown option "--mp"' "$1/hecate-validate" compare $sample --mp 2 # not calibrated, so not offered
train=("$1/hecate-run" train --text README.md --steps 1 --virtual)
refused 2 '--top-k: expected at most the --experts (16), found 99' "${train[@]}" --top-k 99
refused 2 '--tokens: expected a multiple of the sequence length (48, --seq-len), found 256' "${train[@]}" --seq-len 48
refused 2 '--text: expected at least a sequence and the character after it (65537, --seq-len)' "${train[@]}" --seq-len 65536 --tokens 65536
refused 2 '--attention s2:shards=9: shards: expected at most the heads' "${train[@]}" --attention s2:shards=9
refused 2 '--cluster nope' "${train[@]}" --cluster nope
refused 2 '--balance: aux is given twice' "${train[@]}" --balance aux=0.1,aux=0.2
refused 2 'temperature: expected a number from 0.01' "${train[@]}" --gate xmoe:temperature=0x1
refused 2 '--cluster-a nope: expected' "$1/hecate-validate" published --quick --cluster-a nope
refused 2 '--cluster-b nope: expected' "$1/hecate-validate" published --quick --cluster-b nope
refused 2 '--tokens: expected enough for loads that drift' "$bench" planners --tokens 1 --policy lplb
refused 2 '--peer: expected a program' "$bench" network --ranks 4 --peer ""
refused 2 '--peer: expected --law max_min' "$bench" network --ranks 4 --peer true --law alpha_beta
works '1 run (synthetic' "$bench" network --ranks 4 --runs 1
refused 2 'law: expected one of' "$bench" network --ranks 4 --law none
refused 2 '--schedule: expected one of the' "$sim" $sample --schedule ,
refused 2 '--policy: expected all alone or a list of policies, found "all,ep"' "$sim" $sample --policy all,ep
refused 2 '--schedule: expected one of the' "$sim" $sample --schedule serial,none
refused 2 '--schedule: "serial" is named twice' "$sim" $sample --schedule serial,serial
refused 2 '--schedule: expected one of the' "$sim" $sample --schedule serial,
refused 2 '--drift: expected LAG:CORRELATION' "${synth[@]}" --workload zipf --drift 1:0x1p-1 --out "$folder/none"
for knots in ' 1:0.9' 1:0.9,,5:0.8 01:0.9 +1:0.9; do
  refused 2 "--drift: expected LAG:CORRELATION" "${synth[@]}" --workload zipf "--drift=$knots" --out "$folder/none"
done
sed 's/"top_k": *2/"top_k": 65/' models/presets/moe-gpt-moe-s.json >"$folder/cap3.json"
refused 2 "$folder/cap3.json: top_k: expected at most" "$sim" $sample --policy ep --model "$folder/cap3.json"
sed 's/"seq_len": *2048/"seq_len": 2048, "attention": "s2:shards=12"/; s/"attention": "full",//; s/"heads": 12/"heads": 12/' \
  models/presets/moe-gpt-moe-s.json >"$folder/s2.json"
refused 2 "($folder/s2.json has 12 heads)" "$sim" $sample --policy ep --model "$folder/s2.json" --attention s2:shards=13

# ---- outputs that cannot be written: bad input, everywhere ----
refused 2 "--out $folder/no/x: expected" "${synth[@]}" --workload W0 --out "$folder/no/x"
refused 2 "--out $folder/no/x: expected" "$sim" $sample --policy ep --out "$folder/no/x"
refused 2 "--out $folder/no/x/y: expected" "$1/hecate-run" $sample --policy ep --out "$folder/no/x/y"
refused 2 "--record $folder/no/x: expected" "${train[@]}" --record "$folder/no/x"
for command in calibrate gate hardware outcomes published 'published --system lplb'; do
  # shellcheck disable=SC2086 # the system is a second word
  refused 2 "--out $folder/no/x: expected" "$1/hecate-validate" $command --out "$folder/no/x"
done
refused 2 "--update $folder/no/x: expected" "$1/hecate-validate" gate --update "$folder/no/x"
refused 2 "--calibrated $folder/no/x: expected" "$1/hecate-validate" gate --calibrated "$folder/no/x"

refused 2 '--policy: expected' "$sim" $sample --policy ,
refused 2 'named twice' "$sim" $sample --policy ep,ep
refused 2 '--model none: expected a preset' "$sim" $sample --model none
refused 2 'found a directory' "$sim" $sample --model "$folder"
refused 2 '--cluster none: expected a preset' "$sim" $sample --cluster none
refused 2 '--nowhere: cannot be opened' "$sim" --policy ep -- --nowhere # behind "--" there are no options
refused 2 '--help: cannot be opened' "$sim" -- --help
works '"policies"' "$sim" --policy ep --json -- $sample
works 'overload' "${synth[0]}" info -- $sample
refused 2 'expected a trace file' "$sim"
refused 2 'found "recomend" (did you mean "recommend"?)' "$sim" recomend $sample --model gpt-moe-s
refused 2 'no iteration is left to report' "$sim" $sample --warmup 20 --policy ep
refused 2 'expected --out DIR' "$sim" $sample --timeline-iter 3
refused 2 'the trace has no iteration 999' "$sim" $sample --policy ep --timeline-iter 999 --out "$folder/none"
[ ! -e "$folder/none" ] || fail "a refused command made its folder"
refused 2 'the trace has no iteration 999' "$sim" plan $sample --policy ep --layer 0 --iter 999
refused 2 '--layer: expected 0 to 5' "$sim" plan $sample --policy ep --layer 6 --iter 3
refused 2 'assignments' "$sim" $sample --tokens 100000000 --ranks 32
refused 2 '--policy: expected' "$bench" --policy none --no-trace
refused 2 '--law: expected' "$bench" --law none --no-trace

refused 2 '--experts: expected' "$bench" --experts 2 --no-trace
refused 2 '--shape: expected a model preset' "${synth[@]}" --workload W0 --shape none --out "$folder/none"
works '"policies"' "$bench" --no-trace --json --ranks 7 --layers 2 --experts 5 --iterations 2
refused 2 '--backend: expected' "$bench" collectives --backend none
refused 2 '--min is above --max' "$bench" collectives --min 2 --max 1
refused 2 '--ranks: expected' "$bench" collectives --ranks 1
works '"collective": "spRS"' "$bench" collectives --json --ranks 3 --repeats 5 --max 1
refused 2 '--policy: expected a planner with an instance here, found "eplb"' "$bench" planners --policy eplb
works '"within"' "$bench" planners --json --iterations 2 --policy laer,lplb
works 'sigma' "$bench" planners --iterations 2 --policy micromoe
works '"cpu_greatest_s"' "$bench" executor --json --repeats 2 --operations 1000
works '"partition_s"' "$bench" fsmoe --json --stride 100

# ---- files that are no traces ----
refused 2 'cannot be opened' "$sim" "$folder/absent"
refused 2 'found a directory' "$sim" "$folder"
refused 2 'found end of file' "$sim" /dev/null
refused 2 "begins with '{'" "$sim" "$sim"
works "Fastest that fits" bash -c 'cat "$1" | "$0" - --policy ep --full' "$sim" "$sample"
printf '{"a":%0100000d' 0 | tr 0 '[' >"$folder/nested"
refused 2 'nesting' "$sim" "$folder/nested"
head -c 5000 $sample >"$folder/cut"
refused 2 'found end of file' "$sim" "$folder/cut"

# ---- traces with errors: one of each place; the others are in tests/traces/test_trace_read.c ----
tiny='"layers":1,"experts":2,"top_k":1'
trace bad "$tiny" '{"iter":0,"layers":[[-1,2]]}'
refused 2 "$folder/bad:2: layers[0][0]: expected a whole number from 0 to 4294967295, found -1" "$sim" "$folder/bad"
refuse_header() { # 'words' 'fields'
  trace bad "$2" '{"iter":0,"layers":[[1,2]]}'
  refused 2 "$1" "$sim" "$folder/bad"
}
refuse_header 'layers: expected' '"layers":4294967296,"experts":2,"top_k":1'
refuse_header 'shape": expected an object' "$tiny"',"shape":"/dev/zero"' # a trace may not name files
refuse_header 'expected a member "name"' "$tiny"',"shape":{}'

# ---- counts and times beyond what is counted ----
four="$tiny"',"source_ranks":4'
most='[4294967295,4294967295]'
trace bad "$four" "{\"iter\":0,\"layers\":[[$most,$most,$most,$most]]}"
refused 2 'choose with --tokens' "$sim" "$folder/bad"
refused 2 "$folder/bad:2: layer 0, expert 0: the sources put on rank 0 hold" "$sim" "$folder/bad" --ranks 2 --tokens 5
refused 2 'more than 2^32-1' "$sim" "$folder/bad" --ranks 2 --tokens 5
trace huge "$tiny" "{\"iter\":0,\"layers\":[$most]}"
works 'scaled to it' "$sim" "$folder/huge" --full
big='[536870911,0]'
trace late "$four" '{"iter":0,"layers":[[[1,0],[0,0],[0,0],[0,0]]]}' "{\"iter\":1,\"layers\":[[$big,$big,$big,$big]]}"
for law in alpha_beta max_min; do # the later record is too long for the clock, the first one says nothing of it
  refused 2 'simulated time below' "$sim" "$folder/late" --law $law --cluster "1x4 flops=1M mem=1G nvlink=1K hbm=1K"
done
{ trace many "$tiny"; for i in $(seq 4097); do echo '{"iter":4,"layers":[[1,2]]}'; done; } >"$folder/records"
cat "$folder/records" >>"$folder/many"
refused 2 'at most 4096 records of one iteration' "$sim" "$folder/many" --policy ep

# ---- clusters ----
refused 2 'column 5' "$sim" $sample --cluster '4x8 flops=nan mem=40G nvlink=300G nic=50G' # others: tests/models/test_cluster.c
refused 2 'too slow' "$sim" $sample --cluster '4x8 flops=1 mem=1 nvlink=1 nic=1'
for text in '' '[]' '{"name":1}' '{"name":"a","name":"b"}' '{"nodes":1e999}'; do
  printf '%s' "$text" >"$folder/json"
  refused 2 "$folder/json" "$sim" $sample --cluster "$folder/json"
  refused 2 "$folder/json" "$sim" $sample --model "$folder/json"
done
refused 2 'at most 67108864 bytes' "$sim" $sample --cluster /dev/zero

# ---- flows ----
flows='{"hosts":["a","b"],"links":[{"id":"l","bandwidth":1e9,"latency":1e-6}],"routes":[{"src":"a","dst":"b","links":["l"]}],"flows":[{"src":"a","dst":"b","bytes":100,"start":0}]}'
printf '%s' "$flows" >"$folder/flows"
works '"makespan"' "$sim" flows "$folder/flows" --json
refused 2 'expected one of' "$sim" flows "$folder/flows" --law ''
printf '%s' "${flows/1e9/0}" >"$folder/flows" # others: tests/sim/test_flows.c
refused 2 'bandwidth: expected' "$sim" flows "$folder/flows"
refused 2 'found a directory' "$sim" flows "$folder"

# ---- output ----
small=("$sim" "$sample" --policy ep,hecate)
echo old >"$folder/file"
refused 2 'expected a folder, found a file' "${small[@]}" --out "$folder/file"
refused 2 'No such file or directory' "${small[@]}" --out "$folder/no/such"
refused 2 'No such file or directory' "${small[@]}" --out ''
refused 1 'standard output: cannot be written' bash -c 'exec "$@" >/dev/full' bash "${small[@]}"
refused 1 'standard output: cannot be written' bash -c 'exec "$@" >/dev/full' bash "$sim" --list
works 'Written' "${small[@]}" --warmup 4 --out "$folder/kept"
cat "$folder"/kept/* >"$folder/kept.before"
refused 1 'File too large' bash -c 'ulimit -f 8; exec "$@"' bash "${small[@]}" --out "$folder/kept"
cat "$folder"/kept/* | cmp -s - "$folder/kept.before" || fail "a run that could not write touched earlier files"
works 'Written' "${small[@]}" --out "$folder/with spaces"
[ "$(ls "$folder/with spaces")" = "$(printf 'report.html\nsummary.csv\nsummary.json\ntimeline.json')" ] || fail "--out: other files"
# What could not be removed at once, the next run removes; what a living process writes stays.
begin_endless() {
  "${synth[@]}" --workload zipf --iterations 100000000 --out "$folder/endless" 2>/dev/null &
  writer=$!
  until [ -e "$folder/endless.$writer.part" ] || ! kill -0 $writer; do sleep 0.01; done
}
end_endless() {
  kill -KILL $writer
  wait $writer 2>/dev/null # until then its process is there
}
begin_endless
kill -TERM $writer
wait $writer
[ $? -eq 143 ] || fail "SIGTERM: exit $?"
[ -z "$(find "$folder" -name '*.part')" ] || fail "temporary files are left"
[ ! -e "$folder/endless" ] || fail "an interrupted run left its file"
for _ in 1 2; do
  begin_endless
  end_endless
  [ "$(echo "$folder"/endless*)" = "$folder/endless.$writer.part" ] || fail "after kill -9: $(ls "$folder"/endless*)"
done
begin_endless
"${synth[@]}" --workload zipf --iterations 2 --layers 2 --out "$folder/endless" >/dev/null || fail "synth beside another"
[ "$(echo "$folder"/endless*)" = "$folder/endless $folder/endless.$writer.part" ] || fail "left: $(ls "$folder"/endless*)"
end_endless
"${synth[@]}" --workload zipf --iterations 2 --layers 2 --out "$folder/endless" >/dev/null || fail "synth after another"
for file in summary.json timeline.json; do : >"$folder/with spaces/$file.$writer.part"; done
works 'Written' "${small[@]}" --out "$folder/with spaces"
[ -z "$(find "$folder" -name '*.part')" ] || fail "a killed run's files stay: $(find "$folder" -name '*.part')"

# ---- what messages quote does nothing to a terminal ----
esc=$'\e]0;owned\a\e[2J'
printf '{"name":"%s","x":1}' "$esc" >"$folder/$esc.json"
trace "$esc.jsonl" '"layers":1,"experts":2,"top_k":1,"'"$esc"'":1' '{"iter":0,"layers":[[7,x]]}'
for arguments in "$esc" "$folder/$esc.jsonl" "$sample --model $folder/$esc.json" "$sample --policy $esc" "--$esc" "plan --$esc"; do
  # shellcheck disable=SC2086
  refused 2 '?]0;owned??[2J' "$sim" $arguments
done

# ---- a folder, a device or nothing where a file is read: one error that says so ----
mkdir "$folder/a folder"
n=0
while read -r command; do
  n=$((n + 1)) # two of the four each, the next command the others
  [ $((n % 2)) = 0 ] && files=("$folder/a folder" /dev/null) || files=(/dev/zero "$folder/none")
  for file in "${files[@]}"; do
    read -ra words <<<"$command"
    words[0]=$1/${words[0]}
    refused 2 "$file" timeout 300 "${words[@]/FILE/$file}"
  done
done <<E
hecate-sim FILE
hecate-sim $sample --cluster FILE
hecate-sim $sample --model FILE
hecate-sim $sample --policy given --placement FILE
hecate-sim plan FILE --policy ep --iter 1 --layer 0
hecate-sim flows FILE
hecate-sim flows FILE --cluster dgx-h100
hecate-sim sweep FILE
hecate-sim sweep merge FILE --out $folder/merged.csv
hecate-sim breakeven --cluster FILE
hecate-run FILE
hecate-run alltoallv FILE
hecate-run train --text FILE --steps 1
hecate-trace info FILE
hecate-trace convert FILE --out $folder/converted
hecate-trace import FILE --out $folder/imported
hecate-trace import FILE --format csv-counts --out $folder/imported
hecate-trace import FILE --format npy-routed-experts --out $folder/imported
hecate-validate compare FILE
hecate-validate compare $sample --model tiny --tokens 16 --virtual --calibration FILE
hecate-validate hardware --cases FILE
hecate-validate outcomes --cases FILE
hecate-validate published --system hecate --trace FILE
E
[ ! -e "$folder/merged.csv" ] && [ ! -e "$folder/converted" ] && [ ! -e "$folder/imported" ] || fail "something was written"
for words in "sweep merge" "flows --cluster dgx-h100" sweep; do
  # shellcheck disable=SC2086
  refused 2 directory "$sim" $words "$folder/a folder"
done
refused 2 directory "$1/hecate-run" alltoallv "$folder/a folder"
refused 2 'at most 67108864 ' "$sim" sweep /dev/zero

# ---- unusual but valid ----
trace one '"layers":1,"experts":1,"top_k":1' '{"iter":0,"layers":[[7]]}'
works 'Fastest' "$sim" "$folder/one" --full --check
works 'Fastest' "$sim" "$folder/one" --full --check --ranks 1 --cluster "1x1 flops=1T mem=100G nvlink=1G"
trace zero "$four" '{"iter":0,"layers":[[[0,0],[0,0],[0,0],[0,0]]]}' '{"iter":1,"layers":[[[0,0],[9,0],[0,0],[0,0]]]}'
works 'Fastest' "$sim" "$folder/zero" --full --check
works 'Fastest' "$sim" "$folder/zero" --full --check --ranks 32 --micro-batches 3 # more ranks than experts
row='[10,11,12,13,14]'
three="[$row,$row,$row]"
trace odd '"layers":2,"experts":5,"top_k":5,"source_ranks":3' "{\"iter\":0,\"layers\":[$three,$three]}" \
  "{\"iter\":1000000000000000,\"layers\":[$three,$three]}" "{\"iter\":1000000000000000,\"layers\":[$three,$three]}" \
  "{\"iter\":9007199254740991,\"layers\":[$three,$three]}"
for law in alpha_beta max_min; do
  for collective in direct two_level chain; do # ranks fill no node, divide no experts
    works '"fits"' "$sim" "$folder/odd" --json --check --law $law --schedule serial,hecate --collective $collective \
      --ranks 7 --cluster "2x5 $line"
  done
done
works '"iter": 9007199254740991' "$sim" plan "$folder/odd" --policy hecate --layer 1 --iter 9007199254740991 --json
policies=$("$sim" --list | awk '$1 == "schedules" {exit} /^  [a-z]/ {print $1}' | grep -vx given) # needs a file: test_placement.sh
works '"policies"' "$sim" "$folder/odd" --json --check --policy "$(tr '\n' , <<<"$policies" | sed 's/,*$//')" --period 1 --slots 2 --t 999999
for policy in $policies; do
  grep -qF "\"name\": \"$policy\"" "$folder/stdout" || fail "nothing of $policy"
done
for policy in $policies; do
  works "\"policy\": \"$policy\"" "$sim" plan "$folder/odd" --policy "$policy" --layer 0 --iter 0 --m 0 --json
done
for option in '--t paper' '--m 0' '--m 1000000' '--slots 1000000' '--nonmoe-scale 1e-6' '--nonmoe-scale 1e6' \
  '--phase forward' '--tokens 1' '--warmup 2' '--ranks 3'; do
  works '"fits"' "$sim" "$folder/odd" --json --check --schedule published $option
done
works '"fits"' "$sim" "$folder/odd" --json --check --cluster "4x8 flops=1e21 mem=1e18 nvlink=1e18@0s nic=1e18@0 hbm=1e18 a=0 c=0 launch=0 plan=0@0"
works '"fits"' "$sim" "$folder/odd" --json --check --cluster "4x8 $line plan=10s@10s launch=10s slow=1:1e-6 sm=0.99"
works '"fits"' "$sim" "$folder/odd" --json --cluster "1x2050 $line"
counts=$(seq -s, 1500)
trace wide '"layers":1,"experts":1500,"top_k":8' "{\"iter\":0,\"layers\":[[$counts]]}" "{\"iter\":1,\"layers\":[[$counts]]}"
works '"fits"' "$sim" "$folder/wide" --json --ranks 16 --t 100 --m 3 --schedule published
trace named "$tiny"',"name":"a\"b\n\u20ac","notes":"\ud83d\ude00"' '{"iter":0,"label":"x\"\n","layers":[[3,4]]}'
works '"trace": "a\"b\u000a€"' "$sim" "$folder/named" --json
trace $'\xff"' "$tiny" '{"iter":0,"layers":[[3,4]]}' # a path of any bytes is still JSON
works '\"",' "$sim" "$folder/"$'\xff"' --json
iconv -f UTF-8 -t UTF-16 "$folder/stdout" >/dev/null 2>&1 || fail "JSON that is not UTF-8"

# ---- what is written is no input, and nothing is written twice ----
own=$folder/own
mkdir "$own"
head -n 2 $sample >"$own/summary.json"
cp "$own/summary.json" "$own/t.csv"
ln "$own/t.csv" "$own/hard"
ln -s t.csv "$own/soft"
echo "{\"trace\":\"$own/t.csv\",\"policy\":\"ep\"}" >"$own/spec"
echo '{}' >"$own/c.json"
(cd "$own" && sha256sum ./*) >"$folder/before"
refused 2 'expected a file that is no input, found the trace' "$sim" "$own/summary.json" --out "$own"
refused 2 'expected a file that is no input, found the trace' "$1/hecate-run" "$own/summary.json" --out "$own"
refused 2 'expected a file that is no input, found the trace' "$1/hecate-validate" compare "$own/summary.json" --out "$own"
refused 2 'expected a file that is no input, found --cluster' "$1/hecate-validate" calibrate --cluster "$own/c.json" --out "$own/c.json"
plan=("$sim" plan "$own/t.csv" --policy ep --iter 0)
for name in t.csv hard soft; do
  refused 2 'expected a file that is no input, found the trace' "${plan[@]}" --export eplb --out "$own/$name"
  refused 2 'expected a file that is no input, found the trace' "${plan[@]}" --layer 0 --write-matrix "$own/$name"
  refused 2 'expected a file that is no input, found --text' "$1/hecate-run" train --steps 1 --text "$own/t.csv" --record "$own/$name"
done
refused 2 'expected a file that is no input, found the spec' "$sim" sweep "$own/spec" --report "$own/spec"
refused 2 't.csv: ' "$sim" sweep "$own/spec" --out "$own/t.csv"
refused 2 'expected a file that is not written already, found --out' "$sim" sweep "$own/spec" --out "$own/a.csv" --report "$own/a.csv"
refused 2 'expected a file that is not written already, found --out' "$sim" sweep "$own/spec" --out "$own/a" --report "$own/./a.json"
refused 2 'expected a file that is not written already, found --out' "$sim" sweep "$own/spec" --out "$own/a" --report "$own/a.journal"
for name in b.csv b.json b.part-0-of-2; do
  echo mine >"$own/$name"
  [ "$name" = "${name#*part}" ] && shard=() || shard=(--shard 0/2)
  refused 2 "$name: hecate did not write this file; move it" "$sim" sweep "$own/spec" --out "$own/b" "${shard[@]}"
  grep -qx mine "$own/$name" || fail "$name is gone"
  rm "$own/$name"
done
refused 2 'expected a file that is no input, found the part' "$sim" sweep merge "$own/spec" --report "$own/spec"
refused 2 'expected a file that is no input, found --cases' "$1/hecate-validate" outcomes --cases "$own/c.json" --out "$own/c.json"
refused 2 'expected a file that is no input, found --cases' "$1/hecate-validate" hardware --cases "$own/c.json" --out "$own/c.json"
refused 2 'expected a file that is no input, found --trace' "$1/hecate-validate" published --trace "$own/t.csv" --out "$own/t.csv"
refused 2 'expected a file that is no input, found --baseline' "$1/hecate-validate" gate --baseline "$own/c.json" --out "$own/c.json"
(cd "$own" && sha256sum ./*) | cmp -s - "$folder/before" || fail "refused, yet something was written: $(ls "$own")"

if [ $failures -ne 0 ]; then
  echo "$failures failures"
  exit 1
fi
echo "all passed"
