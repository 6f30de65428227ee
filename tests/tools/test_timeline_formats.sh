#!/usr/bin/env bash
# --timeline-format: files of ranks for trace analysis (kineto) and for simulators of networks (chakra). They are read
# back by programs that share nothing with what writes them. HolisticTraceAnalysis itself where python3, or
# $HECATE_HTA_PYTHON, has it.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
run=$build/hecate-run
tool=("$sim")
here=$source_dir/tests/tools
command -v python3 >/dev/null || { echo "SKIPPED timeline_formats: no python3"; exit 77; }
python=${HECATE_HTA_PYTHON:-python3}

head -n 2 "$sample" >one.jsonl # one record: its traffic is the summary's
eight=(--ranks 8 --cluster "2x4 nvlink=300G@2us nic=25G@5us flops=312T mem=40G")

# draws FOLDER OPTIONS...: the same iteration in both forms
draws() {
  local to=$1
  shift
  for format in kineto chakra; do
    "$sim" one.jsonl "${eight[@]}" "$@" --out "$to-$format" --timeline-format $format >out.txt 2>err.txt || fail "$format: $* ($(head -c 300 err.txt))"
    [ ! -e "$to-$format/timeline.json" ] || fail "timeline.json beside files of ranks"
    has "below $to-$format/$format"
    mkdir -p "$to" && rm -rf "${to:?}/$format" && mv "$to-$format/$format" "$to" && cp "$to-$format/summary.json" "$to"
  done
}

# equals FOLDER: what the two say of every row in it
equals() {
  local row
  for row in "$1"/chakra/*; do
    row=${row##*/}
    python3 "$here/chakra_check.py" "$1/chakra/$row" "$1/kineto/$row" "$1/summary.json" "${row%%-under-*}" >check.txt ||
      fail "$1, $row: $(tail -n 5 check.txt)"
  done
  python3 "$here/kineto_check.py" "$1"/kineto/* >check.txt || fail "$1: $(tail -n 5 check.txt)"
}

rows=ep,hecate,hecate-rm,laer,lplb,hiermoe,symi,janus
draws all --policy $rows
[ "$(ls all/kineto | wc -l)" -eq 8 ] || fail "rows: $(ls all/kineto)"
[ "$(ls all/kineto/ep | wc -l)" -eq 8 ] && [ -s all/kineto/ep/rank7.json ] || fail "$(ls all/kineto/ep)"
[ "$(ls all/chakra/ep | wc -l)" -eq 8 ] && [ -s all/chakra/ep/et.7.et ] || fail "$(ls all/chakra/ep)"
equals all
for options in "--schedule pipemoe" "--schedule lina" "--schedule hecate --collective chain" "--mp 2" "--esp 2" \
  "--micro-batches 2" "--phase forward" "--skew rank=3:2ms"; do
  # shellcheck disable=SC2086
  draws some --policy ep $options
  equals some
done
draws some --policy hecate,hecate-rm --law max_min
equals some
draws some --policy hecate --collective chain
equals some
draws some --policy hecate --collective two_level
equals some

# HTA itself.
if "$python" -c 'import hta.trace_analysis' 2>/dev/null; then
  "$python" "$here/kineto_check.py" all/kineto/{ep,hecate,hiermoe,laer} some/kineto/* >check.txt 2>err.txt ||
    fail "HTA: $(tail -n 5 check.txt) $(tail -n 3 err.txt)"
  grep -q '^hta ' check.txt || fail "HTA did not run: $(tail -n 1 check.txt)"
  tail -n 1 check.txt
else
  echo "SKIPPED timeline_formats (hta): no HolisticTraceAnalysis; its formulas, written anew, were used"
fi

# The checks see what is wrong: each damage is found.
damage() {
  rm -rf bad && cp -r all bad
  python3 - "$1" <<'P'
import json, sys
what = sys.argv[1]
path = "bad/kineto/hecate/rank3.json"
if what in ("lost", "renamed", "shifted", "rank"):
    d = json.load(open(path))
    kernels = [e for e in d["traceEvents"] if e.get("cat") == "kernel" and e["dur"] > 300]
    e = kernels[len(kernels) // 2]
    if what == "lost": # the longest: a short one may be hidden by others whole
        d["traceEvents"].remove(max(kernels, key=lambda k: k["dur"]))
    if what == "renamed":
        for e in kernels:
            e["name"] = e["name"].replace("ncclDevKernel", "kernel")
    if what == "shifted":
        e["ts"] += 1
    if what == "rank":
        d["distributedInfo"]["rank"] = 4
    json.dump(d, open(path, "w"), indent=1)
else:
    path = "bad/chakra/hecate/et.3.et"
    data = bytearray(open(path, "rb").read())
    if what == "cut":
        del data[-7:]
    if what == "tag":
        at = data.rindex(b"comm_tag") + len(b"comm_tag") + 1
        data[at] ^= 1
    if what == "size":
        at = data.index(b"comm_size", data.index(b"\x18\x05")) + len(b"comm_size") + 1
        data[at] ^= 1
    if what == "type": # a SEND becomes a RECV
        at = data.index(b"\x18\x05")
        data[at + 1] = 6
    if what == "byte":
        data[len(data) // 2] ^= 0x10
    open(path, "wb").write(data)
P
}
for what in lost renamed shifted rank; do
  damage $what
  python3 "$here/kineto_check.py" bad/kineto/hecate >check.txt 2>&1 && fail "kineto, $what: not seen"
done
for what in cut tag size type byte; do
  damage $what
  python3 "$here/chakra_check.py" bad/chakra/hecate bad/kineto/hecate bad/summary.json hecate >check.txt 2>&1 &&
    fail "chakra, $what: not seen"
done

# By execution: rank 0 hands the files over; names of NCCL's kernels on CPUs too, for HTA knows no others.
for format in kineto chakra; do
  "$run" one.jsonl --ranks 4 --layers 2 --steps 1 --virtual --policy ep,hecate --out ran-$format --timeline-format $format >out.txt 2>err.txt ||
    fail "hecate-run, $format: $(head -c 300 err.txt)"
done
[ ! -e ran-kineto/timeline.json ] && [ "$(ls ran-kineto/kineto/hecate | wc -l)" -eq 4 ] || fail "hecate-run: $(find ran-kineto)"
python3 "$here/kineto_check.py" ran-kineto/kineto/* >check.txt || fail "hecate-run: $(tail -n 5 check.txt)"
for row in ep hecate; do # the two runs took different times
  python3 - "$here" ran-chakra/chakra/$row <<'P' >check.txt || fail "hecate-run, chakra: $(tail -n 3 check.txt)"
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import chakra_check as c
ranks = [c.read(f"{sys.argv[2]}/et.{r}.et") for r in range(4)]
for r, nodes in enumerate(ranks):
    c.check_graph(r, nodes)
c.check_pairs(ranks)
c.replay(ranks)
sys.exit(c.failed > 0)
P
done

# The default is what it was; the same bytes each time.
"$sim" one.jsonl --policy ep,hecate --out plain >/dev/null && "$sim" one.jsonl --policy ep,hecate --out named --timeline-format chrome >/dev/null
cmp -s plain/timeline.json named/timeline.json && [ ! -e named/chrome ] || fail "chrome is not the default"
"$sim" one.jsonl "${eight[@]}" --policy $rows --out again --timeline-format kineto >/dev/null && diff -r all/kineto again/kineto >/dev/null || fail "kineto: other bytes"
"$sim" one.jsonl "${eight[@]}" --policy $rows --out again --timeline-format chakra >/dev/null && diff -r all/chakra again/chakra >/dev/null || fail "chakra: other bytes"

# Of runs in other formats nothing stays; what is somebody's own does.
echo mine >again/compare.md
refuses 2 "again/compare.md: hecate did not write this file" one.jsonl --policy ep --out again
rm again/compare.md
"$sim" one.jsonl --policy ep --out again >/dev/null && [ "$(ls again)" = "$(printf 'report.html\nsummary.csv\nsummary.json\ntimeline.json')" ] ||
  fail "other formats: $(ls again)"
mkdir -p again/chakra && : >again/chakra/notes.txt
"$sim" one.jsonl --policy ep --out again --timeline-format kineto >/dev/null && [ "$(ls again)" = "$(printf 'chakra\nkineto\nreport.html\nsummary.csv\nsummary.json')" ] ||
  fail "other formats: $(ls again)"
rm -r again/chakra

# The folder is of one run: nothing of an earlier one stays, and where a run fails it is as it was.
"$sim" one.jsonl --policy ep --ranks 4 --out again --timeline-format kineto >/dev/null || fail "a second run into the folder"
[ "$(ls again/kineto)" = ep ] && [ "$(ls again/kineto/ep | wc -l)" -eq 4 ] || fail "left over: $(find again/kineto | head)"
mkdir -p again/kineto.part/hecate && : >again/kineto.part/hecate/rank0.json
refuses 2 "no iteration 77" one.jsonl --policy ep --out again --timeline-format kineto --timeline-iter 77
[ ! -e again/kineto.part ] && [ "$(ls again/kineto/ep | wc -l)" -eq 4 ] || fail "after a failure: $(find again)"
echo mine >again/kineto/ep/notes.txt
sha256sum again/kineto/ep/* again/summary.json >before.txt
refuses 2 "expected nothing but timelines of ranks in it, found notes.txt" one.jsonl --policy ep --out again --timeline-format kineto
sha256sum -c --quiet before.txt || fail "refused, yet something was touched"
rm again/kineto/ep/notes.txt
# A folder in the way of one file is seen before any is renamed; so is a link, and what it points to stays.
rm again/report.html && mkdir again/report.html
sha256sum again/kineto/ep/* again/summary.json >before.txt
refuses 2 "found a folder report.html in it" one.jsonl --policy ep,hecate --out again --timeline-format kineto
sha256sum -c --quiet before.txt || fail "half of a new run beside half of an old one"
mkdir -p aside/ep && : >aside/ep/et.0.et && ln -s ../aside again/linked && rmdir again/report.html
mv again/linked again/kineto.part
refuses 2 "again/kineto.part: cannot be replaced, expected nothing but timelines of ranks in it, found a link" one.jsonl --policy ep --out again --timeline-format kineto
mv again/kineto.part again/chakra
refuses 2 "again/chakra: cannot be replaced, expected nothing but timelines of ranks in it, found a link" one.jsonl --policy ep --out again --timeline-format chakra
[ -e aside/ep/et.0.et ] || fail "a file behind a link was removed"
: >file && mkdir -p blocked && cp file blocked/chakra.part
refuses 2 blocked/chakra.part one.jsonl --policy ep --out blocked --timeline-format chakra
[ ! -e blocked/summary.json ] || fail "a summary without its timelines"

# Two runs into one folder that end at the same time: the later one says that it waits, and touches nothing until then. What
# the earlier one has in place already and not yet in its manifest is no reason to refuse the folder.
for format in kineto chrome; do
  mkdir -p twice/kineto.part/ep
  exec 9<twice && flock 9
  : >twice/kineto.part/ep/rank0.json
  mkdir -p twice/kineto/ep && : >twice/kineto/ep/rank1.json && : >twice/summary.csv
  "$sim" one.jsonl --policy ep --out twice --timeline-format $format >out.txt 2>err.txt 9<&- &
  pid=$!
  until grep -q "note: --out twice: another run is writing there; waiting" err.txt; do
    kill -0 $pid 2>/dev/null || { fail "$format: does not say that it waits: $(cat err.txt)"; break; }
    sleep 0.01
  done
  [ -e twice/kineto.part/ep/rank0.json ] && [ ! -e twice/summary.json ] || fail "the other run's files: $(find twice)"
  rm -r twice/kineto twice/summary.csv
  exec 9<&-
  wait $pid || fail "$format: once the other is gone: $(cat err.txt)"
  [ -e twice/summary.json ] || fail "$format: once the other is gone: $(find twice)"
  rm -r twice
done
for ((i = 0; i < 8; i++)); do # of whichever comes last, all files
  "$sim" one.jsonl --policy ep --ranks 4 --out twice --timeline-format kineto >/dev/null 2>&1 &
  "$sim" one.jsonl --policy hecate --ranks 8 --out twice --timeline-format kineto >/dev/null 2>&1 || fail "beside another"
  wait $! || fail "the other"
  policy=$(sed -n '2s/,.*//p' twice/summary.csv)
  [ "$(ls twice)" = "$(printf 'kineto\nreport.html\nsummary.csv\nsummary.json')" ] || fail "two runs left: $(ls twice)"
  [ "$(ls twice/kineto)" = "$policy" ] || fail "of two runs: $policy, and $(ls twice/kineto)"
done

# A run that waited for one that failed, and took the folder it had made away, makes it anew.
mkdir gone
exec 9<gone && flock 9 && : >gone.txt
"$sim" one.jsonl --policy ep --ranks 4 --out gone --timeline-format kineto >/dev/null 2>gone.txt 9<&- &
until grep -q "another run is writing there" gone.txt || ! kill -0 $! 2>/dev/null; do sleep 0.01; done
rmdir gone
exec 9<&-
wait $! || fail "waited: $(cat gone.txt)"
grep -q "another run is writing there" gone.txt || fail "did not wait: $(cat gone.txt)"
[ "$(ls gone)" = "$(printf 'kineto\nreport.html\nsummary.csv\nsummary.json')" ] || fail "waited: left $(ls gone)"

# What a killed run left: its part, and what it had moved aside, which comes back unless something is in its place.
rm -r twice && "$sim" one.jsonl --policy ep --ranks 4 --out twice --timeline-format kineto >/dev/null || fail "a run"
mv twice/kineto twice/kineto.old && mkdir -p twice/kineto.part/ep && : >twice/kineto.part/ep/rank0.json
"$sim" one.jsonl --policy ep --ranks 4 --out twice --timeline-format kineto >/dev/null || fail "after a killed run"
[ "$(ls twice)" = "$(printf 'kineto\nreport.html\nsummary.csv\nsummary.json')" ] || fail "left over: $(ls twice)"
mkdir twice/kineto.old && echo mine >twice/kineto.old/notes.txt
refuses 2 "twice/kineto.old: cannot be replaced, expected nothing but timelines" one.jsonl --policy ep --out twice --timeline-format kineto

# A signal while they are written leaves nothing, whatever thread is writing.
set -m # without job control a command in the background ignores SIGINT
for signal in INT TERM; do
  for files in 0 2 9; do # written when it comes
    rm -rf stopped
    "$sim" one.jsonl --schedule published --out stopped --timeline-format kineto >/dev/null 2>&1 &
    pid=$!
    until [ -e stopped/kineto.part ] && [ "$(find stopped/kineto.part -type f 2>/dev/null | wc -l)" -ge $files ] ||
      ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill -$signal $pid 2>/dev/null
    wait $pid
    code=$?
    case $code in
      0) [ -e stopped/summary.json ] || fail "$signal: no summary" ;; # it was done already
      130 | 143) # nothing, or all of it
        { [ ! -e stopped ] || { [ -e stopped/summary.json ] && [ ! -e stopped/kineto.part ]; }; } ||
          fail "$signal after $files files: left $(find stopped | head -3)"
        ;;
      *) fail "$signal: exit code $code" ;;
    esac
  done
done
set +m

refuses 2 "--timeline-format: expected one of chrome, kineto, chakra" one.jsonl --out x --timeline-format nonsense
refuses 2 "--timeline-format: expected --out DIR" one.jsonl --timeline-format kineto
tool=("$run")
refuses 2 "--timeline-format: expected one of chrome, kineto, chakra" one.jsonl --out x --timeline-format nonsense
refuses 2 "--timeline-format: expected --out DIR" one.jsonl --timeline-format kineto

[ $failures -eq 0 ]
