#!/usr/bin/env bash
# hecate-trace import from outside. Each folder of import/ is a format: files as its recorder would write them, `options`,
# and `expected.jsonl`, counted by hand. Then files damaged in one place each: exit 2, one line that names file and field,
# no output, nothing left behind.
# Usage: test_import.sh BUILD_DIR
. "$(dirname "$0")/../support/tool.sh"
tool=("$build/hecate-trace")
fixtures=$source_dir/tests/traces/import
n_damaged=0
instead=() # options in the fixture's stead

# fresh FORMAT: its files alone in ./in, its options in `options`
fresh() {
  rm -rf in
  mkdir in
  format=$1
  cp -r "$fixtures/$format/." in/
  rm -f in/options in/expected.jsonl
  read -ra options <"$fixtures/$format/options"
  [ ${#instead[@]} -eq 0 ] || options=("${instead[@]}")
}

# damage FILE COMMAND 'words of the message': COMMAND changes a copy of FILE, which it gets as $f
damage() {
  local file=$1 command=$2 words=$3
  fresh "$format"
  f=in/$file
  cp "$f" before.bin 2>/dev/null
  eval "$command" || fail "$format: $command: failed"
  if [ -e "$f" ] && cmp -s before.bin "$f" && [ "$command" = "${command#cp}" ]; then fail "$format: $command: changed nothing"; fi
  rm -f o.jsonl*
  refuses 2 "$words" import in --format "$format" "${options[@]}" --out o.jsonl
  grep -q "in/" err.txt || fail "$format: $command: the message names no file: $(cat err.txt)"
  [ -z "$(find . -name 'o.jsonl*')" ] || fail "$format: $command: output was left: $(find . -name 'o.jsonl*')"
  n_damaged=$((n_damaged + 1))
}

n_formats=0
for folder in "$fixtures"/*/; do
  fresh "$(basename "$folder")"
  n_formats=$((n_formats + 1))
  "${tool[@]}" import in "${options[@]}" --name "$format" --out o.jsonl >out.txt 2>err.txt ||
    fail "$format: $(cat err.txt)"
  diff "$folder/expected.jsonl" o.jsonl || fail "$format: other counts"
  [ ! -s err.txt ] || fail "$format: something on stderr: $(cat err.txt)"
  has "from      $format: "
  has "written   o.jsonl"
  "${tool[@]}" info o.jsonl >/dev/null || fail "$format: info refuses what import wrote"
  "${tool[@]}" import in "${options[@]}" --name "$format" --out - 2>err.txt | cmp - o.jsonl || fail "$format: - differs"
  has "written   -" err.txt
  [ -z "$(find . -name '*.part' -o -name '*.spool')" ] || fail "$format: temporary files are left"
done
[ "$n_formats" -eq "$("${tool[@]}" import --list | grep -c '^  [a-z]')" ] || fail "a format has no fixture, or a fixture no format"

for cases in "$source_dir"/tests/traces/import/*.damage; do
  format=$(basename "$cases" .damage)
  n_damaged=0
  . "$cases"
  instead=()
  [ $n_damaged -ge 10 ] || fail "$format: only $n_damaged damaged variants"
done

tool=("$build/hecate-trace" import)
refuses 2 "expected files, a folder or a pattern"
refuses 2 "expected --out FILE" "$fixtures"
refuses 2 "--format: expected one of the 10 names that \"hecate-trace import --list\" lists, found \"x\"" --format x in --out o
refuses 2 "none: cannot be opened" none --out o
refuses 2 "no*ne: cannot be opened: no file is named so" 'no*ne' --out o
refuses 2 "-: expected a format of hecate-trace import --list" - --out o </dev/null
refuses 2 "unknown option \"--wrong\"" in --wrong
mkdir empty
refuses 2 "empty: expected files of a format" empty --out o
echo '{"a": 1}' >plain.json
refuses 2 "plain.json: expected a format of hecate-trace import --list" plain.json --out o
printf 'PK\003\004zip' >d.pt
refuses 2 "SGLang's .pt becomes JSON by" d.pt --out o
[ ! -e o ] || fail "a refused import wrote its output"

# Files that people try first: each refusal names the next step, and that step works.
makes() { "${tool[@]}" "$@" --out o.jsonl >out.txt 2>err.txt || fail "the next step, $*: $(cat err.txt)"; }
echo ' [2026-01-01 10:00:00] iteration 10/ 500 | consumed samples: 2560 | lm loss: 1.134E+01 | load_balancing_loss: 1.02E+00 |' >train.log
refuses 2 "train.log: expected a format of hecate-trace import --list, found a text log of Megatron-LM" train.log --out o
refuses 2 "train with --moe-routing-trace-path DIR, then hecate-trace import DIR --experts E" train.log --top-k 2 --out o
makes "$fixtures/megatron-router-trace/router_trace_rank0.jsonl" --experts 4
echo 'INFO 01-01 10:00:10 [eplb_state.py:420] EPLB step: 100: avg_tokens=12.50, max_tokens=40, balancedness=0.3125' >server.log
refuses 2 "vLLM: start it with --enable-return-routed-experts, save the responses as FILE, then hecate-trace import FILE --experts E" server.log --out o
echo '[2026-01-01 12:00:00 TP0] Decode batch, #running-req: 1, #token: 100, gen throughput (token/s): 12' >sglang.log
refuses 2 "send requests with return_routed_experts, save the responses as FILE, then hecate-trace import FILE --experts E" sglang.log --out o
printf 'step\tlayer\texpert\tcount\n0\t0\t0\t5\n' >loads.tsv
refuses 2 "loads.tsv: expected a format of hecate-trace import --list, found a table with tabs; commas are read: tr '\\t' , <FILE >FILE.csv" loads.tsv --top-k 1 --out o
tr '\t' ';' <loads.tsv >loads.csv
refuses 2 "loads.csv: expected a format of hecate-trace import --list, found a table with semicolons; commas are read: tr ';' , <FILE >FILE.csv" loads.csv --top-k 1 --out o
refuses 2 "loads.csv:1: layer: expected a column of this name, found none; fields are separated by semicolons" --format csv-counts loads.csv --top-k 1 --out o
printf 'PAR1\025\004' >loads.parquet
refuses 2 "found a Parquet file; python3 -c \"import pandas" loads.parquet --out o
head -n 1 "$fixtures/json-routed-experts/responses.jsonl" >FILE
makes FILE --experts 4
printf 'step,layer,e0,e1,e2\n0,0,10,20,30\n0,1,5,5,50\n1,0,1,2,3\n1,1,3,2,1\n' >wide.csv
refuses 2 "wide.csv: expected a format of hecate-trace import --list, found a table with other columns (step,layer,e0,e1,e2)" wide.csv --top-k 1 --out o
eval "$(sed 's/.*column per expert: //' err.txt) wide.csv" >long.csv
makes long.csv --top-k 1
tail -n +2 o.jsonl | grep -qxF '{"iter":1,"layers":[[1,2,3],[3,2,1]]}' || fail "counts of wide.csv: $(cat o.jsonl)"
# Misspelt columns, also of a table of ranks; one that is not there.
columns() { # columns NAMES 'words of the message'
  printf '%s\n0,0,0,5\n1,0,0,3\n' "$1" >columns.csv
  refuses 2 "$2" columns.csv --top-k 1 --out o
}
columns step,layer,exprt,count 'columns.csv:1: expert: expected a column of this name, found none, but "exprt" (did you mean "expert"?)'
columns step,layr,exprt,count 'columns.csv:1: layer: expected a column of this name, found none, but "layr" (did you mean "layer"?)'
columns step,layer,expert,n 'columns.csv:1: count: expected a column of this name, found none'
columns rnak,layer,iter,tokens 'columns.csv:1: rank: expected a column of this name, found none, but "rnak" (did you mean "rank"?)'
columns itr,layer,expert,count 'columns.csv:3: expert: expected every expert of a layer once in a step, found layer 0, expert 0 again; no column is named step, iter or iteration, but "itr" (did you mean "iter"?)'
sed -i '3s/0,0,3/0,1,3/' columns.csv
makes columns.csv --top-k 1
has 'left out  column "itr" (1, nearest known name: iter)'
npy() { # npy DESCR SHAPE
  local head="{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
  printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$head"
}
{ npy '<f4' '1, 1, 4' && printf '\0\0\200?\0\0\0@\0\0@@\0\0\200@'; } >logits.npy
refuses 2 "found '<f4', as logits are; expert ids are the K largest of each token: numpy.save(" logits.npy --experts 4 --out o
echo '{"step": 0, "layer": 0, "router_logits": [[0.5, -1.25, 2, 0.125]]}' >logits.jsonl
refuses 2 "logits.jsonl: expected a format of hecate-trace import --list, found logits; expert ids are the K largest" logits.jsonl --experts 4 --out o
# What the message says to do works: its NumPy, where there is NumPy, and its command.
save=$(grep -oE 'numpy\.save\(.*\)' err.txt) step=$(grep -oE 'import ids\.npy .*' err.txt)
if python3 -c 'import numpy' 2>/dev/null; then
  python3 -c "import numpy; logits = numpy.load('logits.npy'); K = 2; $save" || fail "the message's $save"
else
  { npy '|i1' '1, 1, 2' && printf '\2\3'; } >ids.npy
fi
read -ra words <<<"${step/--experts E/--experts 4}"
makes "${words[@]:1}"
tail -n +2 o.jsonl | grep -qxF '{"iter":0,"layers":[[0,0,1,1]]}' || fail "ids of logits: $(cat o.jsonl)"
{ npy '<u2' '1, 2, 4' && printf '\012\0\024\0\036\0\050\0\031\0\031\0\031\0\031\0'; } >counts.npy
refuses 2 "steps,layers,experts (counts: 1 steps, 2 layers, 4 experts)" counts.npy --experts 4 --out o
refuses 2 "expected an expert from 0 to 3, found 10; if these are counts of tokens: --axes steps,layers,experts" counts.npy --experts 4 --axes tokens,layers,top_k --out o
makes counts.npy --experts 4 --top-k 2 --axes steps,layers,experts
tail -n +2 o.jsonl | grep -qxF '{"iter":0,"layers":[[10,20,30,40],[25,25,25,25]]}' || fail "counts: $(cat o.jsonl)"


# Nothing goes over what is read, named or not.
fresh harmoeny
cp in/data.json kept.json
refuses 2 "in/data.json: expected a file that is no input, found the input in/data.json itself" in --format harmoeny --out in/data.json
cmp -s kept.json in/data.json || fail "an input was overwritten"

printf 'step,rank,layer,expert,num_tokens\n0,0,0,0,3\n0,0,0,1,2\n0,1,0,0,1\n0,1,0,1,4\n' >ranks.csv
makes ranks.csv --top-k 1
tail -n +2 o.jsonl | grep -qxF '{"iter":0,"layers":[[[3,2],[1,4]]]}' || fail "ranks in a column: $(cat o.jsonl)"
cp ranks.csv load_rank0.csv # its name has a rank: the column is not read
refuses 2 "rank0.csv:4: expert: expected every expert of a layer once in a step, found layer 0, expert 0 again" load_rank0.csv --top-k 1 --out o
refuses 2 "ranks.csv:5: rank: expected from 0 to 0 (--ranks), found 1" ranks.csv --top-k 1 --ranks 1 --out o
printf '0,1,0,1,4\n' >>ranks.csv
refuses 2 "ranks.csv:6: expert: expected every expert of a layer once in a step and rank, found layer 0, expert 1 again" ranks.csv --top-k 1 --out o
printf 'step,rank,layer,expert,num_tokens\n0,0,0,0,3\n0,0,0,1,2\n0,1,0,0,1\n0,1,0,1,4\n1,2,0,0,1\n' >ranks.csv
refuses 2 "ranks.csv:6: rank: expected from 0 to 1, as in the first step, found 2" ranks.csv --top-k 1 --out o
printf 'step,rank,layer,expert,num_tokens\n0,0,0,0,3\n0,0,0,1,2\n0,1,0,0,1\n' >ranks.csv
refuses 2 "expected a line for every expert of every layer and rank in step 0, found 3 for 4, none for layer 0, rank 1, expert 1: sort" ranks.csv --top-k 1 --out o

# Inputs: files, a pattern, a folder above, gzip, standard input; all the same trace.
fresh megatron-router-trace
imports() { "${tool[@]}" "$@" --name "$format" --out o.jsonl >out.txt 2>err.txt || fail "$*: $(cat err.txt)"; }
same() { cmp o.jsonl "$fixtures/$format/expected.jsonl" || fail "other counts: $*"; }
mkdir above
mv in above/run
imports above && same a folder above
imports 'above/run/router_trace_rank*' && same a pattern
imports above/run/*1.jsonl above/run/*0.jsonl && same files
gzip above/run/*0.jsonl
imports above && same gzip
gunzip above/run/*.gz
cp above/run/router_trace_rank0.jsonl one.jsonl
"${tool[@]}" --format "$format" --name x --out a.jsonl - <one.jsonl >out.txt 2>&1 || fail "standard input: $(cat out.txt)"
imports one.jsonl && sed 's/"name":"[^"]*"/"name":"x"/' o.jsonl | cmp - a.jsonl || fail "standard input differs"
imports above --counted after_drop --phase prefill --model m --sum --from 1
head -n 1 o.jsonl | grep -q '"model":"m","phase":"prefill".*"counted":"after_drop"' || fail "header: $(head -n 1 o.jsonl)"
tail -n +2 o.jsonl | grep -qx '{"iter":1,"layers":\[\[\[2,1,2,1\],\[2,1,0,1\]\],.*' || fail "sum: $(cat o.jsonl)"
imports above
has "assumed   one pipeline stage (--pp)"
has "assumed   ranks 0 to 1 are all there are (--ranks N checks)"
has "layers    1, 3 of the recorder are 0 to 1 here"
has "layers    the last 1 here: MTP blocks, taken as MoE layers like the others"
imports above --ranks 2 --pp 1
! grep -q "assumed" out.txt || fail "assumed what was said: $(cat out.txt)"
imports above --renumber --pp 2
has "trace     6 layers, 4 experts, top-2, totals"
has "layers    of 2 pipeline stages are behind each other here: stage 0 is 0 to 2, stage 1 is 3 to 5"
has "left out  transitions between layers: "
echo old >kept.jsonl
refuses 2 "rank 2: expected files of ranks 0 to 2 (--ranks), found 2 of them" above --ranks 3 --out kept.jsonl
refuses 2 "--pp: expected a number that divides the 2 ranks, found 3" above --pp 3 --out kept.jsonl
refuses 2 "--counted: expected one of before_drop, after_drop" above --counted never --out kept.jsonl
refuses 2 "--phase: expected train, prefill" above --phase x --out kept.jsonl
refuses 2 "steps: expected at least one from --from to --until, found none" above --from 7 --out kept.jsonl
refuses 2 "logit_shape[1]: expected 5 (--experts), found 4" above --experts 5 --out kept.jsonl
refuses 2 "none/x: expected a file that can be written" above --out none/x
refuses 1 "cannot be written" above --out /dev/full
[ "$(cat kept.jsonl)" = old ] || fail "a failed import touched the output that was there"
cp "$fixtures/vllm-eplb/load.jsonl" above/run/
refuses 2 "above: expected files of one format, found megatron-router-trace (above/run/router_trace_rank0.jsonl) and vllm-eplb" above --out o
refuses 2 "load.jsonl: expected megatron-router-trace like the first file" above/run/router_trace_rank0.jsonl above/run/load.jsonl --out o
imports above --format megatron-router-trace && same --format
refuses 2 "top_k: expected --top-k N, as files of vllm-eplb do not say it" above/run/load.jsonl --out o
refuses 2 "top_k: expected at most 4 (the experts), found 5" above/run/load.jsonl --top-k 5 --out o
"${tool[@]}" above/run/router_trace_rank0.jsonl --out o.jsonl >out.txt || fail "one rank"
has "assumed   rank 0 is all there is (--ranks N checks)"

fresh megatron-tokens-per-expert
imports in --top-k 2 --pp 2
has "layers    of 2 pipeline stages are behind each other here: stage 0 is 0 to 1, stage 1 is 2 to 3"
! grep -q "of the recorder" out.txt || fail "stages have numbers of their own: $(cat out.txt)"

# Names of the trace: folders that are ranks name nothing. Files of one format that has no ranks follow each other.
fresh harmoeny
"${tool[@]}" in --top-k 1 --out o.jsonl >out.txt || fail harmoeny
grep -q '"name":"in"' o.jsonl || fail "name: $(head -n 1 o.jsonl)"
! grep -q "all there are" out.txt || fail "world_size was not read: $(cat out.txt)"
rm in/data.json
(cd in && "${tool[@]}" . --top-k 1 --out ../o.jsonl >../out.txt) || fail "harmoeny ."
grep -q '"name":"harmoeny"' o.jsonl || fail "name: $(head -n 1 o.jsonl)"
has "assumed   ranks 0 to 1 are all there are (--ranks N checks)"
fresh vllm-eplb
mv in/load.jsonl in/rank0.jsonl
cp in/rank0.jsonl in/rank1.jsonl
"${tool[@]}" in --top-k 2 --out o.jsonl >out.txt || fail vllm-eplb
has "4 records, iterations 0 to 3"
has "assumed   files follow each other in time, whatever ranks their names have"
sed -E '1s|"model": "[^"]*"|"model": "another"|' in/rank0.jsonl >in/rank1.jsonl
refuses 2 'rank1.jsonl:1: model: expected "' in --top-k 2 --out o
has 'as before, found "another"' err.txt
"${tool[@]}" in --top-k 2 --model both --out o.jsonl >out.txt || fail "vllm-eplb, --model: $(cat out.txt)"
for fact in num_ranks num_redundant_experts; do # of one server all
  sed -E "1s/(\"$fact\": )[0-9]+/\\17/" in/rank0.jsonl >in/rank1.jsonl
  refuses 2 "rank1.jsonl:1: $fact: expected " in --top-k 2 --out o
  has " (as before), found 7" err.txt
done
sed 1d in/rank0.jsonl | sed -E 's/"step"/"num_ranks": 4, "step"/' >in/rank1.jsonl
rm in/rank0.jsonl
"${tool[@]}" in --top-k 2 --out o.jsonl >out.txt 2>err.txt || fail "vllm-eplb, earlier form: $(cat err.txt)"
sed -i '2s/"num_ranks": 4/"num_ranks": 2/' in/rank1.jsonl
refuses 2 "rank1.jsonl:2: num_ranks: expected 4 (as before), found 2" in --top-k 2 --out o
cp "$fixtures/vllm-eplb/load.jsonl" in/rank0.jsonl
sed -i '1s/org/\\u001b[31m\\u009b/' in/rank0.jsonl
"${tool[@]}" in/rank0.jsonl --top-k 2 --name $'a\033b\nc' --out o.jsonl >out.txt || fail "control characters"
head -n 1 o.jsonl | grep -q '"name":"a?b?c".*"model":"?\[31m?' || fail "control characters: $(head -n 1 o.jsonl)"
printf '[[1.0, 2], [3, 40.00], [0.0, 0.0]]' >weights.json
"${tool[@]}" weights.json --top-k 1 --axes layers,experts --out o.jsonl >out.txt 2>&1 || fail "whole weights: $(cat out.txt)"
[ "$(tail -n 1 o.jsonl)" = '{"iter":0,"layers":[[1,2],[3,40]]}' ] || fail "weights: $(tail -n 1 o.jsonl)"
printf '[[1.0, 2], [3, 40.05]]' >weights.json
refuses 2 "weights.json:1: [1][1]: expected a whole number from 0 to 4294967295 (7 or 7.0; no shares or averages), found 40.05" weights.json --top-k 1 --axes layers,experts --out o
printf 'step,layer,expert,count\n1,0,0,4\n1,0,1,4\n1,3,0,5\n1,3,1,3\n2,0,0,4\n2,0,1,4\n2,3,0,8\n2,3,1,0\n' >totals.csv
"${tool[@]}" totals.csv --top-k 2 --out o.jsonl >out.txt || fail totals
! grep -q '^tokens' out.txt || fail "totals are alike: $(cat out.txt)"
sed -i '8s/8$/0/' totals.csv
"${tool[@]}" totals.csv --top-k 2 --out o.jsonl >out.txt || fail "a layer without tokens"
has "tokens    layers of a step differ, first in step 2: layer 0 has 8 assignments, layer 3 has 0; taken as recorded"
"${tool[@]}" totals.csv --top-k 2 --counted after_drop --out o.jsonl >out.txt || fail "dropped tokens"
! grep -q '^tokens' out.txt || fail "dropped tokens differ: $(cat out.txt)"
sed -i '6s/4$/7/; 8s/0$/11/' totals.csv
"${tool[@]}" totals.csv --top-k 2 --out o.jsonl >out.txt || fail "more tokens"
has "tokens    from 4 to 6 in a record, over all ranks; the first has 4, by which hecate-sim goes (--tokens)"
printf 'rank,method,model,layer,iter,tokens\n0,a\033[31m,m\r,0,0,5\n0,b,m,0,0,5\n' >control.csv
refuses 2 "method: expected --method, as there are several, found a?[31m and b" control.csv --top-k 1 --out o
for what in method model; do # in files of their own, too
  printf 'rank,%s,layer,iter,tokens\n0,a,0,0,5\n' $what >several0.csv
  sed 's/,a,/,b,/' several0.csv >several1.csv
  refuses 2 "several1.csv:2: $what: expected --$what, as there are several, found a and b" several0.csv several1.csv --top-k 1 --out o
  "${tool[@]}" several0.csv several1.csv --$what a --top-k 1 --out o.jsonl >out.txt 2>err.txt &&
    fail "--$what a: $(cat out.txt)" # the second file has none of it
  has "several1.csv" err.txt
done
printf 'layer,expert,count\n1,0,1\n1,1,2\n3,0,1\n3,1,2\n' >gaps.csv
"${tool[@]}" gaps.csv --top-k 1 --out o.jsonl >out.txt || fail gaps
has "layers    1, 3 of the recorder are 0 to 1 here"
! grep -q first-layer out.txt || fail "no number of first layers has gaps"
sed -i 's/^3/2/' gaps.csv
"${tool[@]}" gaps.csv --top-k 1 --out o.jsonl >out.txt || fail gaps
has "layers    1 to 2 of the recorder are 0 to 1 here (hecate-sim plan --export: --first-layer 1)"
sed -i 's/^2/0/' gaps.csv
"${tool[@]}" gaps.csv --top-k 1 --out o.jsonl >out.txt || fail gaps
! grep -q "^layers" out.txt || fail "layers have their own numbers: $(cat out.txt)"
# Layers are evenly spaced, behind dense ones; any other hole is named, as an error or as what was left out of the numbers.
layers() { echo layer,expert,count && for i in "$@"; do echo "$i,0,1"; done; }
layers {0..16} {18..47} >hole.csv
refuses 2 "hole.csv: layer: expected layer 17, as layers are 1 apart (--gaps takes them as they come), found layer 18" hole.csv --top-k 1 --out o
imports hole.csv --top-k 1 --gaps
has "layers    0 to 16, 18 to 47 of the recorder are 0 to 46 here"
sed 's/^16,0,1$/&\n17,0,0/' hole.csv >dense.csv # it has a line, so it is there
imports dense.csv --top-k 1
has "left out  layer 17: without tokens in the first step that has some, so dense"
layers $(seq 3 2 61) >second.csv
imports second.csv --top-k 1
has "layers    3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61 of the recorder are 0 to 29 here"
sed -i '/^31,/d' second.csv
refuses 2 "second.csv: layer: expected layer 31, as layers are 2 apart (--gaps takes them as they come), found layer 33" second.csv --top-k 1 --out o
(layers 1 3 5 && echo 0,0,0) >some-dense.csv
imports some-dense.csv --top-k 1
fresh trtllm
imports in/* && same files with what is beside them
imports 'in/rank*' && same what is beside a pattern
refuses 2 "in/meta_info.json: expected files of a format" in/meta_info.json --out o
"$build/hecate-sim" o.jsonl --policy ep --full >sim.txt 2>&1 || fail "hecate-sim refuses what import wrote: $(cat sim.txt)"
tr -s '\n ' ' ' <sim.txt | grep -q "forward only, because the trace records prefill+decode (--phase train: backward too)" ||
  fail "hecate-sim does not say how the backward pass is had"
[ -z "$(find . -name '*.part' -o -name '*.spool')" ] || fail "temporary files are left"

# Several tables of ranks: one after another in time, each of all ranks.
printf 'rank,layer,iter,tokens\n0,0,0,5\n1,0,0,7\n0,0,1,5\n1,0,1,7\n' >a.csv
sed 's/,5$/,6/; s/,0,1,/,0,3,/; s/,0,0,/,0,2,/' a.csv >b.csv
imports a.csv b.csv --top-k 1
[ "$(tail -n +2 o.jsonl)" = '{"iter":0,"layers":[[5,7]]}
{"iter":1,"layers":[[5,7]]}
{"iter":2,"layers":[[6,7]]}
{"iter":3,"layers":[[6,7]]}' ] || fail "two tables: $(cat o.jsonl)"
for n in 1 2; do # large enough to be noticed where memory is written behind its end
  echo rank,layer,iter,tokens >big-$n.csv
  for i in {0..2}; do for l in {0..49}; do for r in {0..7}; do echo "$r,$l,$((3 * n + i)),$((n + r))"; done; done; done >>big-$n.csv
done
imports big-1.csv big-2.csv --top-k 1
has "trace     50 layers, 8 experts, top-1, totals over all ranks; 6 records, iterations 0 to 5"
printf 'rank,layer,iter,tokens\n2,0,0,5\n3,0,0,7\n' >c.csv
refuses 2 "c.csv: rank: expected ranks 0 to 1 as in the first file (files are one after another in time), found up to 3" a.csv c.csv --top-k 1 --out o
refuses 2 "c.csv: rank: expected ranks 0 to 1 as in" a.csv c.csv --top-k 1 --ep 2 --out o
refuses 2 "c.csv: rank: expected ranks 0 to 1 as in" a.csv b.csv c.csv --top-k 1 --ep 1 --out o

sed 's/,0,2,/,0,1,/' b.csv >c.csv
refuses 2 "c.csv:2: step: expected one behind 1, the last of a.csv (files follow each other in time), found 1" a.csv c.csv --top-k 1 --out o
for what in method model; do # some with the column, some without
  sed "s/^rank/$what,rank/; s/^[01]/x,&/" b.csv >kind.csv
  sed "s/^rank/$what,rank/; s/^[01]/x,&/" a.csv >a-kind.csv
  name=${what/model/model_name}
  refuses 2 "kind.csv:1: $name: expected no column of this name as in the first file, found one" a.csv kind.csv --top-k 1 --out o
  refuses 2 "b.csv:1: $name: expected a column of this name as in the first file, found none" a-kind.csv b.csv --top-k 1 --out o
  sed -i '2s/^x//' kind.csv
  refuses 2 "kind.csv:2: $what: expected a name, found \"\"" kind.csv --top-k 1 --out o
done
refuses 2 "a.csv:1: method: expected a column of this name (--method), found none" a.csv --method FSDP --top-k 1 --out o
imports a.csv --model FSDP --top-k 1 # it names the model

# Columns that are named twice, or by two of their names: which is meant?
printf 'layer,expert,step,count,count\n0,0,0,5,6\n' >twice.csv
refuses 2 "twice.csv:1: count: expected one column of count|tokens|token_count|num_tokens, found count too" twice.csv --top-k 1 --out o
printf 'layer,expert,step,count,iter\n0,0,0,5,6\n' >twice.csv
refuses 2 "twice.csv:1: iter: expected one column of step|iter|iteration, found step too" twice.csv --top-k 1 --out o
printf 'rank,layer,iter,tokens,rank\n0,0,0,5,6\n' >twice.csv
refuses 2 "twice.csv:1: rank: expected one column of rank, found rank too" twice.csv --top-k 1 --out o

# Tables as pandas writes them: an index without a name, floats; without the experts that have no tokens, where asked.
printf ',step,layer,expert,count\n0,0,0,0,5.0\n1,0,0,1,3.00\n2,1,0.0,1,8.0\n' >pandas.csv
refuses 2 "pandas.csv:4: line: expected a line for every expert of every layer in step 1, found 1 for 2, none for layer 0, expert 0: sort the file by step (--gaps: those without one have no tokens)" pandas.csv --top-k 1 --out o
imports pandas.csv --top-k 1 --gaps
has "assumed   experts without a line have no tokens"
[ "$(tail -n +2 o.jsonl)" = '{"iter":0,"layers":[[5,3]]}
{"iter":1,"layers":[[0,8]]}' ] || fail "pandas: $(cat o.jsonl)"
for word in 5. 5.01 .0 5.0.0 5.0x; do
  sed "2s/5.0/$word/" pandas.csv >float.csv
  refuses 2 "float.csv:2: count: expected a whole number from 0 to 4294967295, found \"$word\"" float.csv --top-k 1 --out o
done

# Steps are as far apart as the first two: every tenth is no hole, one that is missing is.
steps() { echo step,layer,expert,count && for i in "$@"; do echo "$i,0,0,1"; done; }
steps 0 10 20 30 >steps.csv
imports steps.csv --top-k 1
has "4 records, iterations 0 to 30"
steps 0 1 2 17 >steps.csv
refuses 2 "steps.csv:5: step: expected 3, as steps are 1 apart (--gaps takes them as they come), found 17" steps.csv --top-k 1 --out o
imports steps.csv --top-k 1 --gaps
has "4 records, iterations 0 to 17"
imports steps.csv --top-k 1 --until 2
imports steps.csv --top-k 1 --from 2
steps 40 45 51 >tens.csv
refuses 2 "tens.csv:4: step: expected 50, as steps are 5 apart" tens.csv --top-k 1 --out o
imports steps.csv tens.csv --top-k 1 --gaps
has "7 records, iterations 0 to 6"
# The next file goes on; a hole between them is a file that is missing.
steps 40 45 50 >part1.csv
steps 55 60 >part2.csv
imports part1.csv part2.csv --top-k 1
has "5 records, iterations 0 to 4"
steps 60 65 >part2.csv
refuses 2 "part2.csv:2: step: expected 55, as steps are 5 apart" part1.csv part2.csv --top-k 1 --out o
imports part1.csv part2.csv --top-k 1 --gaps

# Pipes are read once, from their first byte, and stay in the order in which they are named. Larger than a pipe holds.
fresh vllm-eplb
map=$(sed -n '2s/.*"p2l_map": *\(\[\[[^]]*\], *\[[^]]*\]\]\).*/\1/p' in/load.jsonl)
head -n 1 in/load.jsonl >long.jsonl
for i in {0..1999}; do echo "{\"record_type\":\"eplb_load_stats\",\"version\":1,\"step\":$i,\"expert_load\":[[10,1,5,2,9,3],[2,8,1,3,4,$i]],\"p2l_map\":$map}"; done >>long.jsonl
"$build/hecate-trace" import long.jsonl --top-k 2 --name x --out a.jsonl >out.txt 2>err.txt || fail "long: $(cat err.txt)"
[ "$(wc -l <a.jsonl)" -eq 2001 ] && [ "$(wc -c <long.jsonl)" -gt 80000 ] || fail "long: $(wc -lc a.jsonl long.jsonl)"
mkfifo pipe
for form in '<(cat long.jsonl)' '<(gzip -c long.jsonl)' 'pipe' '- <long.jsonl' '/dev/stdin <<<"$(cat long.jsonl)"' \
  '- --format vllm-eplb <long.jsonl' '<(cat long.jsonl) --format vllm-eplb'; do
  [ "${form#pipe}" = "$form" ] || cat long.jsonl >pipe &
  eval "timeout 300 \"\${tool[@]}\" $form --top-k 2 --name x --out o.jsonl" >out.txt 2>err.txt || fail "$form: $(cat err.txt)"
  cmp a.jsonl o.jsonl || fail "$form: other records"
done
wait
imports <(cat a.csv) --top-k 1 && head -n 1 o.jsonl | grep -q '"name":"vllm-eplb"' || fail "name: $(head -n 1 o.jsonl)"
"${tool[@]}" <(cat a.csv) --top-k 1 --out o.jsonl >out.txt && head -n 1 o.jsonl | grep -q '"name":"csv-ranks"' ||
  fail "a stream's name: $(head -n 1 o.jsonl)"
imports <(cat a.csv) <(cat b.csv) --top-k 1
tail -n 2 o.jsonl | grep -c 6,7 | grep -qx 2 || fail "pipes in another order: $(cat o.jsonl)"
refuses 2 ":2: step: expected one behind 3, the last of /dev/fd/" <(cat b.csv) <(cat a.csv) --top-k 1 --out o
sed 's/,0,0,/,0,4,/; s/,0,1,/,0,5,/' a.csv >d.csv
imports <(cat b.csv) <(cat d.csv) --top-k 1
tail -n 2 o.jsonl | grep -c 5,7 | grep -qx 2 || fail "pipes in another order: $(cat o.jsonl)"
fresh trtllm
refuses 2 "-: expected a file, as its parts are read where they lie, found a stream" - --format trtllm --experts 4 --top-k 2 --out o <in/rank0.safetensors

# Layers beyond any model's: an error at once, not memory and time of their square.
(echo layer,expert,count && seq -f %.0f,0,1 0 4096) >wide.csv
refuses 2 "wide.csv:4098: layer: expected at most 4096 layers, found more" wide.csv --top-k 1 --out o
sed -i '$d' wide.csv
imports wide.csv --top-k 1
has "trace     4096 layers"
echo '{"routed_experts":""}' >flat.jsonl
refuses 2 "--layers: expected" flat.jsonl --layers 1048576 --experts 1 --top-k 1 --out o

# Kilobytes of gzip that unpack to numbers without end: an error while they are read, not memory.
zeros() { yes "$1" | head -n "$2" | tr -d '\n'; }
bomb() { # bomb FILE FORMAT BEFORE AFTER 'words of the message'
  (printf '%s' "$3" && zeros 0,0,0,0, 300000 && printf '0%s\n' "$4") | gzip >"$1.gz"
  refuses 2 "$1.gz:1: $5, found more" "$1.gz" --format "$2" --top-k 1 --out o
}
tpe='{"iter":0,"block":"decoder","layer":0,"tpe":[['
bomb counts.json eplb-json '{"logical_count":[[' ']]}' 'logical_count[0]: expected at most 1048576 counts'
bomb rank0.jsonl megatron-tokens-per-expert "$tpe" ']]}' 'tpe[0]: expected at most 1048576 counts'
bomb load.jsonl vllm-eplb '{"record_type":"eplb_load_stats","expert_load":[[' ']]}' 'expert_load[0]: expected at most 1048576 counts'
bomb router_trace_rank0.jsonl megatron-router-trace '{"top_indices":[[' ']]}' 'top_indices[0]: expected at most 1048576 experts'
(echo layer,expert,count && yes 0,0,0 | head -n 4194305) | gzip -1 >lines.csv.gz
refuses 2 "lines.csv.gz:4194306: line: expected at most 4194304 lines of a step, found more" lines.csv.gz --top-k 1 --out o

# The same file twice, by whatever names: its records would count twice.
fresh vllm-eplb
cp in/load.jsonl one.jsonl
ln -s one.jsonl soft.jsonl
ln one.jsonl hard.jsonl
mkdir loop
ln -s ../loop loop/loop
cp one.jsonl loop/
refuses 2 "one.jsonl: expected every file once, found the same one as one.jsonl" one.jsonl one.jsonl --top-k 2 --out o
refuses 2 "soft.jsonl: expected every file once, found the same one as one.jsonl" one.jsonl soft.jsonl --top-k 2 --out o
refuses 2 "one.jsonl: expected every file once, found the same one as hard.jsonl" hard.jsonl in one.jsonl --top-k 2 --out o
refuses 2 "in/load.jsonl: expected every file once, found the same one as in/load.jsonl" in in/load.jsonl --top-k 2 --out o
refuses 2 "expected every file once, found the same one as loop/lo" loop --top-k 2 --out o
refuses 2 "-: expected every file once, found the same one as one.jsonl" one.jsonl - --top-k 2 --out o <one.jsonl
refuses 2 "-: expected every file once, found the same one as -" - - --top-k 2 --out o <one.jsonl
(cat one.jsonl >pipe) &
refuses 2 "pipe: expected every file once, found the same one as pipe" pipe pipe --top-k 2 --out o
wait
imports one.jsonl in --top-k 2

# Output over input: refused, and the input stays.
cp one.jsonl kept.jsonl
for out in one.jsonl ./one.jsonl soft.jsonl hard.jsonl; do
  refuses 2 "--out $out: expected a file that is no input, found the input one.jsonl itself" one.jsonl --top-k 2 --out $out
done
refuses 2 "--out in/load.jsonl: expected a file that is no input, found the input in/load.jsonl itself" in --top-k 2 --out in/load.jsonl
refuses 2 "--out one.jsonl: expected a file that is no input" - --top-k 2 --out one.jsonl <one.jsonl
cmp one.jsonl kept.jsonl && cmp in/load.jsonl kept.jsonl || fail "an input was written over"
"${tool[@]}" one.jsonl --top-k 2 --out /dev/null >out.txt 2>err.txt || fail "/dev/null: $(cat err.txt)"

# Folders: what lies too deep is named, and a file that is empty is not passed over.
mkdir -p deep/a/b
cp one.jsonl deep/a/b/
refuses 2 "deep: expected files of a format of hecate-trace import --list, found none in it and the folders in it (deep/a/b lies deeper)" deep --top-k 2 --out o
refuses 2 "deep: expected files of vllm-eplb (" deep --format vllm-eplb --top-k 2 --out o
has "found none in it and the folders in it (deep/a/b lies deeper)" err.txt
imports deep/a --top-k 2
cp one.jsonl deep/one.jsonl
ln -s nothing deep/latest
ln -s nothing deep/a/old
mkfifo deep/a/control
imports deep --top-k 2
has "left out  not read, as no files or in folders that lie deeper: deep/a/control, deep/a/old, deep/latest, deep/a/b"
for made in 'ln -s nothing' mkfifo; do # named like the others: a part of the recording
  for place in deep deep/a; do
    $made $place/two.jsonl
    refuses 2 "$place/two.jsonl: expected a file of vllm-eplb, found a" deep --top-k 2 --out o
    refuses 2 "$place/two.jsonl: expected a file of vllm-eplb, found a" deep --format vllm-eplb --top-k 2 --out o
    rm $place/two.jsonl
  done
done
fresh trtllm
rm in/meta_info.json
ln -s nothing in/meta_info.json
refuses 2 "in/meta_info.json: expected a file of trtllm, found a link to nothing" in --experts 3 --top-k 2 --out o
for format in npy-routed-experts json-routed-experts eplb-json; do
  fresh $format
  imports in "${options[@]}"
  file=$(find in -type f | sort | head -n 1)
  : >"in/0-empty.${file##*.}"
  refuses 2 "in/0-empty.${file##*.}: expected a file of $format, found an empty one" in "${options[@]}" --out o
done


# A file that is named as the others but for its number is one of them, whatever it begins with; other files are named.
for format in npy-routed-experts eplb-json vllm-eplb; do
  fresh $format
  file=$(find in -type f | sort | head -n 1)
  suffix=.${file##*.}
  mv "$file" "in/part-7$suffix"
  imports in "${options[@]}"
  printf '{"x": 1}' | tee "in/part-12$suffix" >"in/other$suffix"
  refuses 2 "in/part-12$suffix: expected $format like in/part-7$suffix, as their names differ in numbers alone, found something else (--format $format says" in "${options[@]}" --out o
  rm "in/part-12$suffix"
  imports in "${options[@]}"
  has "left out  named alike but not begun so: in/other$suffix"
done

# Of a response with several choices each is a request: who has no experts is counted.
fresh json-routed-experts
sed -i '1s/"index": 1, "routed_experts"/"index": 1, "text"/' in/responses.jsonl
imports in "${options[@]}"
has 'left out  requests with "routed_experts: missing" (1), "routed_experts: null" (1)'
sed -i '1s/"text": "k[^"]*"/"routed_experts": null/' in/responses.jsonl
imports in "${options[@]}"
has 'left out  requests with "routed_experts: null" (2)'
fresh json-routed-experts # choices beside the experts have none
sed -i '2s/{/{"choices": [{"index": 0}, {"index": 1}], /' in/responses.jsonl
imports in "${options[@]}"
has 'left out  request with "routed_experts: null" (1)'

# Memory is that of a step: a file eight times as long takes no more (a sanitizer's own store apart).
export ASAN_OPTIONS=quarantine_size_mb=1:${ASAN_OPTIONS-}
for format in megatron-router-trace megatron-tokens-per-expert vllm-eplb eplb-json npy-routed-experts harmoeny csv-counts; do
  for size in 2M 16M; do
    "$build/hecate-bench" import --format $format --bytes $size --folder . --json >$size.json 2>err.txt ||
      fail "hecate-bench import $format: $(cat err.txt)"
  done
  expect 2M.json 'd["importers"][0]["format"]' $format
  expect 16M.json 'd["importers"][0]["peak_bytes"] - json.load(open("2M.json"))["importers"][0]["peak_bytes"] < 6e6' True
done
[ -z "$(find . -name 'hecate-bench*')" ] || fail "hecate-bench left files"

echo "$n_formats formats"
[ $failures -eq 0 ]
