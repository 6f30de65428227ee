#!/usr/bin/env bash
# Colours at a terminal only, unless NO_COLOR or TERM say no; and there the bytes are those of a pipe but for the escapes.
source "$(dirname "$0")/../support/tool.sh"
if ! command -v python3 >/dev/null; then
  echo "SKIPPED terminal: no python3 to make one"
  exit 77
fi
cat >terminal.py <<'P'
import fcntl, os, pty, struct, sys, termios, tty
child, end = pty.fork()
if child == 0:
    tty.setraw(1)  # no carriage returns
    if "WIDE" in os.environ:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(os.environ["WIDE"]), 0, 0))
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
head -n 4 "$sample" >few.jsonl
sim=(hecate-sim few.jsonl --policy ep,hecate)
at_terminal yes "${sim[@]}"
# Progress may have been shown there, and was wiped before the report.
plain there.txt | sed 's/^hecate-sim: .*hecate-sim 0/hecate-sim 0/' | diff - piped.txt >diff.txt || fail "other bytes at a terminal: $(head -c 500 diff.txt)"
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

# Prose is as wide as a narrow terminal, and at most 100 columns; a table keeps its lines.
widest() { # of lines of prose: those that no table has
  WIDE=$1 NO_COLOR=1 python3 terminal.py "$build/${sim[0]}" "${sim[@]:1}" >there.txt || fail "a terminal of $1 columns"
  plain there.txt | sed 's/^hecate-sim: .*hecate-sim 0/hecate-sim 0/' | grep -vE '^(policy|bound|ep|hecate) |^Written' |
    awk '{ if (length > max) max = length } END { print max }'
}
for columns in 60 80 100; do
  [ "$(widest $columns)" -le $columns ] && [ "$(widest $columns)" -gt $((columns * 9 / 10)) ] || fail "$columns columns: lines of $(widest $columns)"
done
[ "$(widest 200)" -le 100 ] || fail "200 columns: lines of $(widest 200)"

# What takes long says at a terminal where it is.
printf '{"trace": "few.jsonl", "policy": ["ep"], "model": "tiny"}' >spec.json
printf 'layer,expert,count\n0,0,3\n0,1,2\n' >log.csv
cat >until.py <<'P'
# until.py WORDS COMMAND...: reads until the line of progress has the words, then presses Ctrl-C. Prints what is left on the
# screen: the text behind the last wipe.
import os, pty, signal, sys, tty
child, end = pty.fork()
if child == 0:
    tty.setraw(1)
    if "PIPED" in os.environ:  # only stderr is the terminal
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    os.execv(sys.argv[2], sys.argv[2:])
out, asked = b"", False
while True:
    try:
        some = os.read(end, 65536)
    except OSError:
        break
    if not some:
        break
    out += some
    if not asked and sys.argv[1].encode() in out:
        asked = True
        os.kill(child, signal.SIGINT)
status = os.waitpid(child, 0)[1]
if not asked:
    sys.exit("no %r: %r" % (sys.argv[1], out[-300:]))
if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGINT:
    sys.exit("ended with status %d" % status)
sys.stdout.buffer.write(out[out.rindex(b"\r\x1b[K") + 4:])
P

# until_line 'words of the progress' 'what Ctrl-C leaves' command...
until_line() {
  python3 until.py "$1" "$build/$3" "${@:4}" >left.txt 2>err.txt || fail "${*:3}: $(cat err.txt)"
  [[ $(cat left.txt) == $2 ]] || fail "${*:3}: Ctrl-C left: $(cat -v left.txt)"
}
until_line "hecate-trace: writing, " "" hecate-trace synth --workload zipf --iterations 1000000000 --out endless.jsonl
until_line " h left" "" hecate-trace synth --workload zipf --iterations 1000000000 --out endless.jsonl
[ -z "$(ls | grep endless)" ] || fail "Ctrl-C left $(ls)"
until_line " of 20 iterations, " "" hecate-sim "$sample" --micro-batches 20 --law max_min --threads 3 --out stopped
[ ! -e stopped ] || fail "Ctrl-C left $(find stopped)"
PIPED=1 until_line " of 20 iterations, " "" hecate-sim "$sample" --micro-batches 20 --law max_min --threads 3
until_line "hecate-sim: simulating" "" hecate-sim "$sample" --micro-batches 20 --law max_min --threads 1 --warmup 0
printf '{"trace": "%s", "policy": "all", "law": "max_min", "micro_batches": 20, "tokens": [1024, 4096]}' "$sample" >long.json
until_line " rows, " "hecate-sim sweep: * rows done; the same command goes on from there" hecate-sim sweep long.json --out interrupted
planners=(hecate-bench planners --policy lplb,laer --iterations 2)
# Where the terminal cannot wipe a line, nothing that has to be wiped. Words without blanks: paths are relative.
for terminal in dumb ''; do
  for command in "${planners[*]}" "hecate-sim few.jsonl --policy ep,hecate" "hecate-sim sweep spec.json --out swept" \
    "hecate-trace import log.csv --top-k 1 --out log.jsonl"; do
    read -ra words <<<"$command"
    TERM=$terminal python3 terminal.py "$build/${words[0]}" "${words[@]:1}" >there.txt || fail "$command: exit code $? at a terminal"
    grep -q $'[\r\x1b]' there.txt && fail "TERM=$terminal $command: $(head -c 200 there.txt | cat -v)"
  done
done
"$build/${planners[0]}" "${planners[@]:1}" >piped.txt 2>err.txt && [ ! -s err.txt ] || fail "progress where there is no terminal: $(cat err.txt)"
python3 terminal.py "$build/${planners[0]}" "${planners[@]:1}" >there.txt || fail "${planners[*]} at a terminal"
[ "$(tr '\r' '\n' <there.txt | sed 's/\x1b\[[0-9;]*[mK]//g' | grep -c '^lplb  ')" -eq 2 ] || fail "the table at a terminal: $(cat there.txt)"

[ $failures -eq 0 ] || exit 1
echo "all tests of terminals passed"
