#!/bin/bash
# hecate-run train as a user meets it: exit codes and messages, the JSON document, the trace that it records.
source "$(dirname "$0")/../support/tool.sh"
run=$build/hecate-run
if ! "$run" train --help 2>/dev/null | grep -q -- --text; then
  echo "SKIPPED tools.train: there is no hecate-run with the command train"
  exit 77
fi
text=$source_dir/LICENSE
small=(--layers 2 --experts 4 --d-model 16 --d-ffn 16 --heads 2 --seq-len 16 --tokens 32 --ranks 2)

# Other than in tool.sh a run may have printed its head before it fails. So: refuses CODE PART ARGS...: that exit code,
# one line on stderr that has PART.
refuses() {
  local code=$1 part=$2
  shift 2
  "$run" train "$@" >out 2>err
  local found=$?
  [ "$found" = "$code" ] || fail "$*: expected exit code $code, found $found"
  [ "$(wc -l <err)" = 1 ] || fail "$*: expected one line on stderr, found $(cat err)"
  grep -qF -- "$part" err || fail "$*: expected \"$part\", found $(cat err)"
}

refuses 2 "expected --text FILE"
refuses 2 "nowhere.txt: cannot be opened" --text nowhere.txt
refuses 2 "ideal cannot train: it is a bound" --text "$text" --policy ideal
refuses 2 'experts in shards beside --esp 2 (ep, ep-balanced), found "hecate"' --text "$text" --esp 2
refuses 2 "--esp: expected a divisor of the 4 ranks" --text "$text" --esp 3 --policy ep
refuses 2 "ep-balanced cannot train: it forces loads" --text "$text" --policy ep-balanced
refuses 2 "--tokens: expected a multiple of the sequence length (48, --seq-len), found 256" --text "$text" --seq-len 48
refuses 2 "--heads: expected a divisor of --d-model (64), found 3" --text "$text" --heads 3
refuses 2 'must not be seen, found "full"' --text "$text" --attention full
refuses 2 '(s2:shards=N,local=N,block=N,dense=N) or "window:local=N,dense=N", found "half"' --text "$text" --attention half
refuses 2 "--attention s2:shards=5: shards: expected at most the heads" --text "$text" --attention s2:shards=5
refuses 2 'expected exactly one policy, found "ep,hecate"' --text "$text" --policy ep,hecate
refuses 2 'or with K M G T, found "12Q"' --text "$text" --memory 12Q
refuses 2 "--virtual: expected backend cpu and transport shm" --text "$text" --virtual --transport emulated
refuses 1 "--check: the run diverged in step " --text "$text" --steps 20 --virtual --check --lr 1 \
  --layers 4 --experts 4 --d-model 64 --d-ffn 64 --heads 2 --seq-len 16 --tokens 32 --ranks 2
refuses 2 'expected one of softmax, gshard, sigmoid, xmoe, expert-choice, found "top"' --text "$text" --gate top
refuses 2 '--gate gshard: expected capacity=VALUE, group=VALUE, found "rank=4"' --text "$text" --gate gshard:rank=4
refuses 2 'capacity: expected a number from 0.001 to 1e+06, found "x"' --text "$text" --gate gshard:capacity=x
refuses 2 "expected top-k 2 of at least 2 experts, found 3 of 16" --text "$text" --gate gshard --top-k 3
refuses 2 "group: expected a divisor of the tokens of a rank (256), found 100" --text "$text" --gate expert-choice:group=100
refuses 2 '--balance: expected none, aux=COEFFICIENT (0 to 1000) or bias=RATE (0 to 1), found "bias=2"' --text "$text" \
  --balance bias=2
refuses 2 "--balance bias: gate gshard does not" --text "$text" --gate gshard --balance bias=0.01
refuses 2 "--balance aux: gate expert-choice is balanced" --text "$text" --gate expert-choice --aux 0.01
refuses 2 "--aux: expected --balance or --aux, found both" --text "$text" --aux 0.1 --balance none
"$run" train --gate list >gates || fail "--gate list"
for gate in softmax gshard sigmoid xmoe expert-choice; do
  grep -q "^  $gate " gates || fail "--gate list: no $gate in $(cat gates)"
done
[ "$("$run" train --list)" = "$("$run" --list)" ] || fail "train --list differs from --list"
printf 'aaaa' >one.txt
refuses 2 "expected a text of at least two different characters" --text one.txt
printf 'abab' >short.txt
refuses 2 "--text: expected at least a sequence and the character after it (65, --seq-len), found 4 characters" --text short.txt
refuses 1 "the stated capacity of a rank is 100000 bytes" --text "$text" --memory 100K --record gone.jsonl --virtual
refuses 2 "--ranks" --text "$text" --ranks 257
refuses 2 "--virtual" --text "$text" "${small[@]}" --virtual --transport paced
refuses 2 GB --text "$text" --d-model 65536 --d-ffn 65536
# What is written at the end is looked at before the first step: nothing may be printed.
mkdir folder
for record in no-such-folder/out.jsonl folder - ""; do
  refuses 2 "--record $record" --text "$text" "${small[@]}" --steps 1 --record "$record"
  [ ! -s out ] || fail "--record $record: trained before it was refused"
done
(ulimit -f 1 && "$run" train --text "$text" "${small[@]}" --steps 20 --record limited.jsonl 2>&1 >/dev/null | cat >err)
grep -q 'rank 0, in .*: the temporary file of the loads cannot be written: File too large' err || fail "a file size limit: $(cat err)"
[ -z "$(ls -A | grep limited)" ] || fail "left behind past a file size limit: $(ls -A)"

# Losses that cannot be printed: before the first step nothing runs; later, the trace is still worth having.
if [ -w /dev/full ]; then
  "$run" train --text "$text" "${small[@]}" --steps 3 --record full.jsonl >/dev/full 2>err
  [ $? -eq 1 ] || fail "writing to a full device"
  grep -q 'standard output: cannot be written: No space left' err || fail "a full device: $(cat err)"
  [ ! -e full.jsonl ] || fail "trained though the head could not be printed"
fi
(ulimit -f 1 && "$run" train --text "$text" "${small[@]}" --steps 40 --print-every 1 2>&1 >lines | cat >err)
grep -q 'standard output: cannot be written: File too large' err || fail "losses that were lost: $(cat err)"

# Closed descriptors: no pipe of ours becomes standard output.
"$run" train --text "$text" "${small[@]}" --steps 3 --json --record closed.jsonl <&- >&- 2>err
[ $? -eq 1 ] || fail "a closed standard output"
grep -q 'standard output: cannot be written: Bad file descriptor' err || fail "closed descriptors: $(cat err)"
[ -s closed.jsonl ] || fail "no trace beside a closed standard output"

# The command in the trace: values lose their folders, options stay.
"$run" train --text="$text" "${small[@]}" --steps 1 --record=./command.jsonl >/dev/null || fail "--option=VALUE"
grep -q ' --text=LICENSE .*--record=command.jsonl' command.jsonl || fail "notes: $(head -c 1500 command.jsonl)"
[ -e gone.jsonl ] && fail "a trace was left by a run that failed"

"$run" train --text "$text" "${small[@]}" --steps 12 --check --virtual --esp 2 --policy ep >out || fail "experts in shards: exit $?"
grep -q "^check *passed" out || fail "experts in shards: $(cat out)"
"$run" train --text "$text" "${small[@]}" --steps 12 --check --virtual --attention s2:shards=2,local=4,block=2 \
  --record sharded.jsonl >out 2>err || fail "train with s2: $(cat err)"
grep -qF '\"attention\":\"s2:shards=2,local=4,block=2\"' sharded.jsonl ||
  grep -qF '"attention":"s2:shards=2,local=4,block=2"' sharded.jsonl || fail "no s2 in the trace: $(head -c 900 sharded.jsonl)"
"$run" --virtual --steps 1 --policy ep sharded.jsonl >out 2>err || fail "a trace of s2: $(cat err)"
grep -q "attention s2:shards=2,local=4,block=2$" out || fail "not the trace's attention: $(head -4 out)"

"$run" train --text "$text" "${small[@]}" --steps 3 --check --json --virtual --record loads.jsonl.gz >out 2>err ||
  fail "train: $(cat err)"
[ -s err ] && fail "train --json: something on stderr: $(cat err)"
for part in '"tool": "hecate-run train ' '"seed": 1' '"steps": 3' '"virtual": true' '"window_steps": 10' '"limits": \['; do
  grep -q "$part" out || fail "train --json: no $part in $(cat out)"
done
grep -q '"passed": true' out || fail "train --check: $(cat out)"
"$build/hecate-trace" info loads.jsonl.gz >info || fail "the recorded trace cannot be read"
grep -q 'charlm-e4-LICENSE-3' info || fail "info: no default name: $(cat info)"
grep -q '2 MoE layers x 4 experts, top-2, 2 source ranks' info || fail "info: $(cat info)"
grep -q 'loads  *recorded' info || fail "info: $(cat info)"
"$build/hecate-sim" loads.jsonl.gz --json >sim.json || fail "the recorded trace cannot be simulated"

# Gates: what they are called in the report, what they do to loads.
"$run" train --text "$text" "${small[@]}" --steps 3 --check --json --virtual --gate gshard:capacity=0.5 --balance aux=0.25 >out ||
  fail "train --gate gshard: $(cat out)"
for part in '"gate": "gshard:capacity=0.5"' '"aux": 0.25' '"dropped_share": \[0\.[0-9]*, ' '"expert_overload_mean": [1-9]' \
  '"no_expert_share": \[' '"passed": true'; do
  grep -q "$part" out || fail "train --gate gshard --json: no $part in $(cat out)"
done
"$run" train --text "$text" "${small[@]}" --steps 2 --policy ep --gate expert-choice --record chosen.jsonl >out ||
  fail "train --gate expert-choice: $(cat out)"
grep -q 'expert choice is not causal' out || fail "train --gate expert-choice: no caution in $(cat out)"
grep -q '^mean    overload of ranks 1.000, of experts 1.000; [0-9.]*% of tokens without an expert$' out || fail "loads: $(cat out)"
grep -q 'Gate expert-choice, bias' chosen.jsonl || fail "notes: $(head -c 1500 chosen.jsonl)"
"$run" train --text "$text" "${small[@]}" --steps 2 --gate sigmoid --balance bias=0.01 >out || fail "train --gate sigmoid"
grep -q '^gate    sigmoid, choice biased by 0.01 a step' out || fail "train --gate sigmoid: $(cat out)"

# What the policy went without is said, and which gates take what.
"$run" train --text "$text" "${small[@]}" --steps 2 --policy moetuner >out || fail "moetuner"
grep -q '^policy  experts stood as in ep' out || fail "no note of the policy: $(tail -n 5 out)"
"$run" train --text "$text" "${small[@]}" --steps 2 --policy exflow --json | grep -q '"note": "experts stand as in ep' ||
  fail "no note of the policy in JSON"
"$run" train --gate list >out || fail "--gate list"
tr -s ' \n' ' ' <out >joined # lines are wrapped
grep -q ' capacity=X [^=]*; default 1 ' joined && grep -q ' temperature=X [^=]*; default learned' joined ||
  fail "--gate list does not explain its keys: $(cat out)"
for words in "train --help" --help --list "train --gate list"; do
  # shellcheck disable=SC2086 # words
  # backends have a line each, however long: scripts read them
  "$run" $words | awk 'length > 120 && !/available/ { exit 1 }' || fail "hecate-run $words: a line is wider than 120 columns"
done
# A sharp gate passes the check on more than one rank: its windows are shorter.
"$run" train --text "$text" --steps 10 --gate xmoe:temperature=0.02 --ranks 4 --virtual --check >out ||
  fail "xmoe at temperature 0.02: $(grep -A3 check out)"
grep -q 'of at most 2 steps' out || fail "windows of a sharp gate: $(grep windows out)"

# The same losses under another policy and with threads, up to rounding: compared to five digits.
losses() {
  "$run" train --text "$text" "${small[@]}" --steps 3 --print-every 1 "$@" | awk '$1 ~ /^[0-9]+$/ {print $1, $2}'
}
losses --policy ep >a
losses --policy hecate --threads >b
[ "$(wc -l <a)" = 3 ] || fail "expected three lines of losses, found $(cat a)"
awk 'NR == FNR {of[$1] = $2; next} ($2 - of[$1]) ^ 2 > 4e-8 {exit 1}' a b || fail "losses differ: $(paste a b)"

# Checkpoints: half a run and its other half have the losses of a whole one, to the last digit; the trace has all steps. The same
# under MPI, where a run may go on that began here.
source "$source_dir/tests/support/mpi.sh"
saved=(--text "$text" "${small[@]}" --policy hecate --balance aux=0.01)
"$run" train "${saved[@]}" --steps 12 --json --record whole.jsonl >whole.json 2>err || fail "a whole run: $(cat err)"
"$run" train "${saved[@]}" --steps 5 --json --checkpoint ck --checkpoint-every 2 --resume >first.json 2>err || fail "first half: $(cat err)"
[ "$(ls ck)" = step-00000005 ] || fail "checkpoints: $(ls ck)"
cp -r ck ck-openmpi && cp -r ck ck-mpich
resumed() { # FOLDER STEPS FIRST: of out.json
  expect out.json "d['first_step'], len(d['loss'])" "($3, $(($2 - $3 + 1)))"
  [ "$(value out.json "d['loss']")" = "$(value whole.json "d['loss'][$3 - 1:$2]")" ] || fail "$1: the losses are others"
}
"$run" train "${saved[@]}" --steps 12 --json --checkpoint ck --resume --record again.jsonl >out.json 2>err || fail "second half: $(cat err)"
resumed ck 12 6
[ "$(grep -c iter again.jsonl)" = 12 ] && [ "$(tail -n +2 again.jsonl)" = "$(tail -n +2 whole.jsonl)" ] ||
  fail "the trace of a run that went on has $(grep -c iter again.jsonl) steps, or others"
refuses 2 "--resume: expected --checkpoint DIR" --text "$text" --resume
refuses 2 "ck: it has step 12 of a run; add --resume" "${saved[@]}" --checkpoint ck
refuses 2 "--steps: expected at least the 12 of the checkpoint in ck, found 11" "${saved[@]}" --checkpoint ck --resume --steps 11
before=$(find ck -type f -exec cksum {} +)
"$run" train "${saved[@]}" --checkpoint ck --resume --steps 12 >out.txt 2>&1 || fail "a job that has ended: exit code $?"
has "all 12 steps are in ck: nothing to do"
[ "$(find ck -type f -exec cksum {} +)" = "$before" ] || fail "a job that has ended wrote into its checkpoint"
# others OLD NEW: the options, with one value changed
others() { local word; for word in "${saved[@]}"; do [ "$word" = "$1" ] && word=$2; printf '%s\n' "$word"; done; }
differs() { # OPTION OLD NEW MESSAGE
  local words
  mapfile -t words < <(others "$2" "$3")
  refuses 2 "made with $1 $4" "${words[@]}" --checkpoint ck --resume
}
differs --experts 4 2 "4, this run has 2"
differs --policy hecate ep "hecate, this run has ep"
differs --balance aux=0.01 aux=0.02 "aux=0.01,bias=0, this run has aux=0.02,bias=0"
differs --text "$text" "$source_dir/README.md" "$(wc -c <"$text") characters"
refuses 2 "made with --seed 1, this run has 2" "${saved[@]}" --checkpoint ck --resume --seed 2
refuses 2 "nowhere/ck: no folder for checkpoints" "${saved[@]}" --checkpoint nowhere/ck
refuses 2 "one.txt: no folder for checkpoints: Not a directory" "${saved[@]}" --checkpoint one.txt
printf x | dd of=ck/step-00000012/rank-0001 bs=1 seek=1000 conv=notrunc 2>dd.txt
refuses 2 "ck/step-00000012/rank-0001: damaged: its check sum does not fit" "${saved[@]}" --checkpoint ck --resume --steps 20
# A folder that another run has. The lock is that process's alone, so a shell cannot take it.
mkdir -p busy && python3 -c 'import fcntl, subprocess, sys
held = open("busy/.lock", "w")
fcntl.lockf(held, fcntl.LOCK_EX)
sys.exit(subprocess.run(sys.argv[1:]).returncode)' "$run" train "${saved[@]}" --steps 2 --checkpoint busy >out 2>err
[ $? -eq 2 ] && grep -q "busy: another run writes its checkpoints there" err && [ "$(ls busy)" = "" ] || fail "a folder in use: $(cat err)"
# A disk that is full: said, and the checkpoint before is still there.
"$run" train "${saved[@]}" --steps 2 --checkpoint tight >out 2>err || fail "two steps: $(cat err)"
(ulimit -f 8 && "$run" train "${saved[@]}" --steps 4 --checkpoint tight --resume 2>&1 >/dev/null | cat >err)
grep -q 'tight/step-00000004.part/rank-000[01]: cannot be written: File too large' err || fail "a full disk: $(cat err)"
"$run" train "${saved[@]}" --steps 4 --checkpoint tight --resume --json >out.json 2>err || fail "after a full disk: $(cat err)"
resumed tight 4 3
[ "$(ls tight)" = step-00000004 ] || fail "left in tight: $(ls tight)"
for kind in openmpi mpich; do
  has_mpi $kind || continue
  timeout -k 5 300 "$launcher" -n 2 "$run" train "${saved[@]}" --backend mpi --steps 9 --json --checkpoint ck-$kind --resume \
    --record $kind.jsonl >out.json 2>err </dev/null || fail "$kind: going on: $(cat err)"
  resumed ck-$kind 9 6
  [ "$(tail -n +2 $kind.jsonl)" = "$(sed -n 2,10p whole.jsonl)" ] || fail "$kind: the trace has other steps"
  timeout -k 5 300 "$launcher" -n 2 "$run" train "${saved[@]}" --backend mpi --steps 12 --json --checkpoint ck-$kind --resume \
    >out.json 2>err </dev/null || fail "$kind: going on again: $(cat err)"
  resumed ck-$kind 12 10
done

# A rank that is killed: the steps before are in the trace, and it can be read. When that happens does not matter.
mkfifo printed
"$run" train "${saved[@]}" --steps 100000 --print-every 1 --record died.jsonl >printed 2>err &
pid=$!
exec 3<printed
while read -r step _ <&3 && [ "$step" != 4 ]; do :; done
if has_children && [ -n "$step" ]; then
  kill -9 "$(cut -d' ' -f2 "/proc/$pid/task/$pid/children")"
  cat <&3 >rest
  wait $pid
  [ $? = 1 ] || fail "a run whose rank was killed: expected exit code 1"
  grep -q 'rank 1 was killed by signal 9.*; died.jsonl has the loads of the [0-9]* finished steps' err || fail "killed: $(cat err)"
  "$build/hecate-trace" info died.jsonl >info || fail "the trace of a run whose rank was killed cannot be read"
  [ "$(grep -c iter died.jsonl)" -ge 4 ] || fail "died.jsonl has $(grep -c iter died.jsonl) steps"
fi
kill $pid 2>/dev/null
exec 3<&-

[ "$failures" = 0 ]
