#!/usr/bin/env bash
# What is accepted is what is described. Every option of every command stands in its help, its manual page and its completion,
# and what stands there is accepted. Every command has an example, and every example parses or runs.
source "$(dirname "$0")/../support/tool.sh"
PATH=$build:$PATH
shopt -s extglob
export LC_ALL=C.UTF-8

# compare_command.c looks at its words again, to print how to repeat a run.
if grep -nE 'str(n|)cmp\(argv\[[^]]*\], *"-|getopt' "$source_dir"/tools/*.c "$source_dir"/tools/*/*.c | grep -vE '/(args_parse|compare_command)\.c:'; then
  fail "options parsed beside the table of args.h"
fi

# The first help: at most ten options, each as in the whole help, and where there are more, how to see them.
check_first() {
  local own=$(grep -cE '^  --[a-z]' first.txt) all=$(grep -cE '^  --[a-z]' help.txt)
  if cmp -s first.txt help.txt; then
    [ "$all" -le 11 ] || fail "$* --help: $((all - 1)) options at once"
    return
  fi
  grep -q "^  --help all  *all $((all - 1)) options" first.txt || fail "$* --help: does not lead to --help all"
  [ "$own" -le 12 ] && [ "$own" -lt "$all" ] || fail "$* --help: $((own - 2)) options first"
  grep -E '^  --[a-z]' first.txt | grep -vE '^  --(help|version)' | grep -vxFf help.txt && fail "$* --help: not as in --help all"
}

# check_options COMMAND...: rows of completion, help and page say the same, and all of it is accepted. All options at once,
# in either form (what a value may be is test_args.c's).
check_options() {
  local page=$build/man/man1/$(echo "$*" | tr ' ' -).1 name kind value least values words last apart=() joined=() n=0
  "$@" --help >first.txt 2>err.txt || fail "$* --help: exit code $?"
  "$@" --help all >help.txt 2>>err.txt || fail "$* --help all: exit code $?"
  "$@" --help=man >page.1 2>>err.txt || fail "$* --help=man: exit code $?"
  "$@" --help=complete >rows.txt 2>>err.txt || fail "$* --help=complete: exit code $?"
  [ ! -s err.txt ] || fail "$*: something on stderr: $(head -c 300 err.txt)"
  head -n 1 help.txt | grep -q "^usage: $1" || fail "$* --help: $(head -n 1 help.txt)"
  check_first "$@"
  [ "$(awk 'length > 100' help.txt | grep -vc '[^ ]\{100\}')" -eq 0 ] || echo "note: $* --help has lines above 100 columns"
  cmp -s page.1 "$page" || fail "$page is not what $* prints"
  while IFS=$'\x1f' read -r kind name value least values words; do
    n=$((n + 1))
    grep -qE "^  $name( |\$)" help.txt || fail "$*: $name is not in the help"
    grep -qF -- "\\fB${name//-/\\-}\\fR" page.1 || fail "$*: $name is not in the page"
    case $kind in
    flag) apart+=("$name") joined+=("$name") ;;
    *)
      if [ "$kind" = word ]; then least=${values%% *} least=${least:-word}; fi
      apart+=("$name" "$least") joined+=("$name=$least") last=$name
      ;;
    esac
  done < <(sed -n 's/^option\t//p' rows.txt | awk -F'\t' -v OFS=$'\x1f' '{print $2, $1, $3, $4, $5, $6}')
  "$@" "${apart[@]}" --help all >out.txt 2>&1 && cmp -s out.txt help.txt || fail "$* ${apart[*]}: $(head -c 300 out.txt)"
  "$@" "${joined[@]}" --help=all >out.txt 2>&1 && cmp -s out.txt help.txt || fail "$* ${joined[*]}: $(head -c 300 out.txt)"
  if [ -n "${last-}" ]; then
    "$@" "$last" >out.txt 2>err.txt
    [ $? -eq 2 ] && grep -qF -- "$last: expected a value" err.txt || fail "$* $last: without a value: $(head -c 300 err.txt)"
  fi
  [ "$n" -eq "$(grep -cE '^  --[a-z]' <(grep -vE '^  --help, --version' help.txt))" ] || fail "$*: the help has options that are no rows"
  "$@" --no-such-option --help >out.txt 2>err.txt
  [ $? -eq 2 ] && grep -q -- '"--no-such-option"; see' err.txt || fail "$* --no-such-option: $(head -c 300 err.txt)"
  for name in NAME SYNOPSIS DESCRIPTION OPTIONS "EXIT STATUS" "SEE ALSO"; do
    grep -q "^\.SH $name\$" page.1 || fail "$*: its page has no $name"
  done
  if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww -z page.1 2>&1 | grep -vE 'cannot (adjust|break) line' >out.txt
    [ ! -s out.txt ] || fail "$*: groff: $(head -n 3 out.txt)"
  fi
}

# Examples are the lines of the help that begin with two blanks and a command, after "Examples".
check_examples() {
  sed -n '/^Examples$/,/^Exit codes/s/^  \(\(mpirun [^h]*\)\{0,1\}hecate-.*\)$/\1/p' help.txt >own.txt
  cat own.txt >>examples.txt
  [ -s own.txt ] || fail "$*: no example"
}

: >examples.txt
for tool in hecate-sim hecate-run hecate-trace hecate-validate hecate-bench; do
  check_options $tool
  commands=$(sed -n 's/^command\t\([^\t]*\)\t.*/\1/p' rows.txt)
  [ -n "$commands" ] || fail "$tool names no commands"
  [ "$(sed -n '/^option/p' rows.txt)" = "" ] || check_examples $tool
  while read -r command; do
    # shellcheck disable=SC2086
    check_options $tool $command
    check_examples "$tool $command"
    grep -q "^\\\\fB$tool\\\\fR(1)" <(sed 's/\\-/-/g' page.1) || fail "$tool $command: its page does not lead to $tool(1)"
  done <<<"$commands"
  $tool --version >version.txt || fail "$tool --version: exit code $?"
  [[ $(head -n 1 version.txt) =~ ^$tool\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "--version: $(head -n 1 version.txt)"
  for word in compiler build MPI CUDA CBC NLopt; do
    grep -qE "^$word +[^ ]" version.txt || fail "$tool --version does not say $word"
  done
done
[ ! -e "$build/hecate-mpi-openmpi.so" ] || grep -q '^MPI .*openmpi' version.txt || fail "--version: $(cat version.txt)"

# The words of an example, unquoted as a shell does it; nothing in them is run.
split() { mapfile -d '' words < <(xargs printf '%s\0' <<<"$1"); }

# Every example parses: what stands before --help was accepted.
while read -r line; do
  split "${line##mpirun -n +([0-9]) }"
  set -- "${words[@]}"
  "$@" --help >out.txt 2>&1 && head -n 1 out.txt | grep -q '^usage: ' || fail "example \"$line\": $(head -c 300 out.txt)"
done <examples.txt
[ "$(wc -l <examples.txt)" -ge 40 ] || fail "only $(wc -l <examples.txt) examples"

# Those of the simulator and of hecate-trace run, on files of the names that they have, and the small ones of others.
# Iteration 12 is the last that an example names. Those that name none have one iteration; made loads have 60.
mkdir traces run whole && head -n 13 "$sample" >whole/trace.jsonl && head -n 2 "$sample" >trace.jsonl
gzip -k trace.jsonl
cp "$source_dir/tests/sim/cases/incast.json" case.json
awk 'BEGIN {for (i = 0; i < 4; i++) {for (j = 0; j < 4; j++) printf "%d ", 1000 * i + j; print ""}}' >matrix.txt
sed 's|"traces": *\[[^]]*\]|"traces": ["trace.jsonl"]|' "$source_dir/traces/sample-sweep.json" >traces/sample-sweep.json
cp traces/sample-sweep.json spec.json
hecate-sim plan trace.jsonl --policy ep --iter 1 --export vllm-ascend --out expert_map.json >out.txt || fail "no placement"
hecate-trace convert trace.jsonl --out trace.json >out.txt
fixtures=$source_dir/tests/traces/import # of 4 experts and top-2: the numbers of these examples are others
cp -r "$fixtures/megatron-router-trace" run/router_trace
cp "$fixtures/vllm-eplb/load.jsonl" eplb_load_0.jsonl
n_run=0
while read -r line; do
  case $line in
  mpirun* | *"--backend nccl"* | *"--cluster this-machine.json"* | *part-*) continue ;;
  "hecate-sim sweep"*) continue ;; # tests/tools/test_sweep.sh
  "hecate-sim recommend"*) continue ;; # tests/tools/test_recommend.sh: its traces have the experts of their models
  hecate-sim* | hecate-trace* | "hecate-run alltoallv"*) ;;
  *) continue ;;
  esac
  n_run=$((n_run + 1))
  cp "$([[ $line == *--iter* ]] && echo whole/)trace.jsonl" "traces/${sample##*/}"
  [[ $line != *--iter* ]] || line=${line/ trace.jsonl/ whole/trace.jsonl}
  [[ $line != "hecate-trace synth"* || $line == *--iterations* ]] || line+=" --iterations 60"
  [[ $line != "hecate-trace import"* ]] || line=$(sed 's/--experts 64/--experts 4/; s/--top-k 8/--top-k 2/' <<<"$line")
  split "$line"
  set -- "${words[@]}"
  timeout 300 "$@" >out.txt 2>err.txt </dev/null || fail "example \"$line\": exit code $?: $(head -c 300 err.txt)"
done <examples.txt
[ $n_run -ge 12 ] || fail "only $n_run examples ran"

# A benchmark called bare begins at once, and says first where its options are.
hecate-bench >out.txt 2>err.txt &
until grep -q '$' err.txt || ! kill -0 $! 2>/dev/null; do sleep 0.01; done
kill $!
wait $! 2>/dev/null
[ "$(cat err.txt)" = "hecate-bench: times every policy; options and other benchmarks: hecate-bench --help" ] || fail "hecate-bench: $(cat err.txt)"
hecate-bench --iterations 1 --no-trace --policy ep --ranks 4 --layers 2 >out.txt 2>err.txt && [ ! -s err.txt ] || fail "hecate-bench with options: $(cat err.txt)"

# Values that completion knows are accepted.
values_of() { "${@:2}" --help=complete | awk -F'\t' -v option="$1" '$1 == "option" && $2 == option {print $6}'; }
head -n 4 "$sample" >few.jsonl
quick=(hecate-sim few.jsonl --ranks 4 --tokens 64)
for option in --law --collective --cluster --model --phase --schedule --attention; do
  [ -n "$(values_of $option hecate-sim)" ] || fail "completion knows no values of $option"
  for value in $(values_of $option hecate-sim); do
    "${quick[@]}" --policy hecate $option "$value" >out.txt 2>err.txt || ! grep -qE 'expected one of|nor a file|unknown' err.txt ||
      fail "$option $value, of completion, is refused: $(head -c 300 err.txt)"
  done
done
policies=$(values_of --policy hecate-sim | tr ' ' '\n' | grep -vx all)
hecate-sim few.jsonl --tokens 64 --schedule published --placement expert_map.json --policy "$(tr '\n' , <<<"$policies" | sed 's/,*$//')" >out.txt 2>err.txt ||
  fail "the policies of completion: $(head -c 300 err.txt)"
[ "$(wc -w <<<"$policies")" -ge 30 ] || fail "completion knows few policies"
for value in $(values_of --workload hecate-trace synth); do
  hecate-trace synth --workload "$value" --iterations 1 --layers 1 --out - >out.txt 2>err.txt || fail "--workload $value: $(cat err.txt)"
done
hecate-run --backend list >out.txt
for value in $(values_of --backend hecate-run); do
  [ "$value" = list ] || has "  $value "
done

hecate-trace import --list >importers.txt
for value in $(values_of --format hecate-trace import); do
  grep -q "^  $value " importers.txt || fail "--format $value, of completion, is no importer"
done
[ "$(values_of --format hecate-trace import | wc -w)" -eq "$(grep -c '^  [a-z]' importers.txt)" ] || fail "completion knows not all importers"
for value in $(values_of --form hecate-trace convert); do
  hecate-trace convert trace.jsonl --form "$value" --out formed >out.txt 2>err.txt || fail "--form $value: $(cat err.txt)"
done
for value in $(values_of --counted hecate-trace import); do
  hecate-trace import "$fixtures/csv-counts" --top-k 2 --counted "$value" --out counted >out.txt 2>err.txt
  ! grep -q -- "--counted: expected" err.txt || fail "--counted $value: $(cat err.txt)"
done

# Policies that run in shards are those that a refusal lists.
sharded=$(hecate-sim "$sample" --esp 2 --policy eplb 2>&1 | sed -n 's/.* beside --esp 2 (\(.*\)), found.*/\1/p')
[ -n "$sharded" ] || fail "--esp 2 --policy eplb is not refused"
hecate-sim --help all | grep -A 2 '^  --esp ' | tr -s ' \n' '  ' | grep -q "policies ${sharded//, / and })" || fail "the help of --esp: expected $sharded"

# bash completes commands, options and values.
source "$source_dir/tools/completion/hecate.bash"
completes() { # 'expected words' words of the line, the last one unfinished
  COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
  _hecate
  [ "${COMPREPLY[*]}" = "$1" ] || fail "bash completes \"${*:2}\" by \"${COMPREPLY[*]}\", expected \"$1\""
}
completes "plan" hecate-sim pl
completes "merge" hecate-sim sweep me
completes "--write-matrix" hecate-sim plan trace --wr
completes "nccl_rounds" hecate-sim --law nc
completes "vllm-ascend" hecate-sim plan trace --export v
completes "trtllm" hecate-trace import log --format tr
completes "before_drop" hecate-trace import log --counted b
completes "jsonl json" hecate-trace convert a --form j
completes "ep,hecate-rm" hecate-sim --policy ep,hecate-r
completes "max_min" hecate-sim --law = ma
completes "serial,pipemoe" hecate-sim trace --schedule serial,pi
completes "full,causal" hecate-sim trace --attention full,c
completes "" hecate-run trace --schedule serial,pi # one
completes "ep,hecate-rm" hecate-sim --policy = ep,hecate-r
completes "--policy=hecate-rm" hecate-sim --policy=hecate-r
completes "--policy=ep,hecate-rm" hecate-sim --policy=ep,hecate-r
completes "--cluster=spec.json" hecate-sim --cluster=spe
completes "emulated" hecate-run alltoallv matrix.txt --transport em
completes "case.json" hecate-sim flows cas
completes "spec.json" hecate-sim --cluster spe
completes "--idle-share" hecate-trace synth --idl
completes "hardware" hecate-validate har
bash -n "$source_dir/tools/completion/hecate.bash" || fail "completion of bash"
# zsh's own functions of completion stand in here for themselves: they print what they are given.
zsh_offers() { # zsh_offers EXPECTED WORD..: the last word is the one at the cursor
  local expected=$1
  shift
  zsh -f -c 'fpath=("$1" $fpath); autoload -Uz _hecate; shift
    compadd() { print -rl -- ${(P)2} } # compadd -a names
    compset() { return 0 }
    _describe() { print -rl -- ${(P)@[-1]} }
    _files() { print -r -- FILES }
    words=("$@") CURRENT=$#; _hecate' zsh "$source_dir/tools/completion" "$@" >offered.txt 2>&1
  grep -q "^$expected" offered.txt || fail "zsh: $*: no $expected in $(cat offered.txt)"
}
if command -v zsh >/dev/null; then
  zsh -n "$source_dir/tools/completion/_hecate" || fail "completion of zsh"
  zsh_offers hecate-rm hecate-sim --policy ""
  zsh_offers p4d-4x8 hecate-sim trace --cluster=""
  zsh_offers --policy: hecate-sim --
  zsh_offers import: hecate-trace ""
  zsh_offers --experts: hecate-trace import --
  zsh_offers merge: hecate-sim sweep ""
  zsh_offers FILES hecate-sim trace ""
else
  echo "SKIPPED help (zsh): not installed"
fi

[ $failures -eq 0 ] || exit 1
echo "$(wc -l <examples.txt) examples, $n_run of them run; all passed"
