#!/usr/bin/env bash
# Colours at a terminal only, unless NO_COLOR or TERM say no; and there the bytes are those of a pipe but for the escapes.
source "$(dirname "$0")/../support/tool.sh"
if ! command -v python3 >/dev/null; then
  echo "SKIPPED terminal: no python3 to make one"
  exit 77
fi
cat >terminal.py <<'P'
import os, pty, sys, tty
child, end = pty.fork()
if child == 0:
    tty.setraw(1)  # no carriage returns
    os.execv(sys.argv[1], sys.argv[1:])
out = b""
while True:
    try:
        some = os.read(end, 65536)
    except OSError:
        break
    if not some:
        break
    out += some
sys.stdout.buffer.write(out)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
P

printf '0 1000\n2000 0\n' >two
plain() { sed 's/\x1b\[[0-9;]*[mK]//g' "$1" | tr -d '\r'; }

# at_terminal 'yes|no' command...: whether what it prints there has colours; its bytes are else those of a pipe.
at_terminal() {
  local wanted=$1
  shift
  python3 terminal.py "$build/$1" "${@:2}" >there.txt || fail "$*: exit code $? at a terminal"
  "$build/$1" "${@:2}" >piped.txt 2>err.txt || fail "$*: exit code $?"
  grep -q $'\x1b' piped.txt && fail "$*: escapes in a pipe"
  if grep -q $'\x1b\\[[0-9;]*m' there.txt; then found=yes; else found=no; fi
  [ $found = "$wanted" ] || fail "$*: colours: $found, expected $wanted"
}

export TERM=xterm-256color
unset NO_COLOR
sim=(hecate-sim "$sample" --policy ep,hecate)
at_terminal yes "${sim[@]}"
# Progress is shown at a terminal too, before the report.
plain there.txt | sed 's/^.* iterations\(hecate-sim 0\)/\1/' | diff - piped.txt >diff.txt || fail "other bytes at a terminal: $(head -c 500 diff.txt)"
NO_COLOR=1 at_terminal no "${sim[@]}"
NO_COLOR=0 at_terminal no "${sim[@]}"
NO_COLOR='' at_terminal yes "${sim[@]}"
TERM=dumb at_terminal no "${sim[@]}"
TERM='' at_terminal no "${sim[@]}"
at_terminal no "${sim[@]}" --json
at_terminal no hecate-sim --help
at_terminal yes hecate-sim flows two --cluster p4d-4x8
at_terminal yes hecate-run alltoallv two --check --iterations 2
at_terminal no hecate-run alltoallv two --check --iterations 2 --json

# What takes long says at a terminal where it is.
printf '{"trace": "%s", "policy": ["ep"], "model": "tiny"}' "$sample" >spec.json
printf 'layer,expert,count\n0,0,3\n0,1,2\n' >log.csv
planners=(hecate-bench planners --policy lplb,laer --iterations 2)
at_terminal no "${planners[@]}"
for words in "lplb, 8 ranks, 256 experts: 1 of 3" "lplb, 8 ranks, 32 experts: 2 of 3" "laer, 64 ranks, 32 experts: 3 of 3"; do
  has "$words" there.txt
  grep -qF "$words" piped.txt err.txt && fail "progress where there is no terminal"
done
# Where the terminal cannot wipe a line, nothing that has to be wiped. Words without blanks: paths are relative.
cp "$sample" sample.jsonl
for terminal in dumb ''; do
  for command in "${planners[*]}" "hecate-sim sample.jsonl --policy ep,hecate" "hecate-sim sweep spec.json --out swept" \
    "hecate-trace import log.csv --top-k 1 --out log.jsonl"; do
    read -ra words <<<"$command"
    TERM=$terminal python3 terminal.py "$build/${words[0]}" "${words[@]:1}" >there.txt || fail "$command: exit code $? at a terminal"
    grep -q $'[\r\x1b]' there.txt && fail "TERM=$terminal $command: $(head -c 200 there.txt | cat -v)"
  done
done
python3 terminal.py "$build/${planners[0]}" "${planners[@]:1}" >there.txt || fail "${planners[*]} at a terminal"
[ "$(tr '\r' '\n' <there.txt | sed 's/\x1b\[[0-9;]*[mK]//g' | grep -c '^lplb  ')" -eq 2 ] || fail "the table at a terminal: $(cat there.txt)"

[ $failures -eq 0 ] || exit 1
echo "all tests of terminals passed"
