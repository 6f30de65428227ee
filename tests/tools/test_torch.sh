#!/usr/bin/env bash
# hecate.torch on gloo processes: equal to dense data parallelism under six policies; checkpoints, mistakes and the recorder
# (tests/tools/python says what). The training example, whose trace hecate-sim reads. With $HECATE_TORCH_PYTHON, else the
# first python3 that has PyTorch 2.1.
source "$(dirname "$0")/../support/tool.sh"
if grep -qE '^HEC_SANITIZE:STRING=.+' "$build/CMakeCache.txt"; then
  echo "SKIPPED tools.torch: an instrumented library needs an instrumented Python"
  exit 77
fi
checks=$source_dir/tests/tools/python package=$source_dir/tools/python
export PYTHONDONTWRITEBYTECODE=1 HECATE_LIBRARY=$build/libhecate.so PYTHONPATH=$package:$checks

# In one process that forks for each: importing PyTorch takes seconds. 77, 127: not with this Python.
for python in "${HECATE_TORCH_PYTHON:-}" python3 /usr/bin/python3 none; do
  [ "$python" != none ] || { echo "SKIPPED tools.torch: no Python with PyTorch 2.1 and numpy (HECATE_TORCH_PYTHON)"; exit 77; }
  "$python" "$checks/check_all.py" "$package/examples/train_moe.py" >out.txt 2>&1
  rc=$?
  [ $rc = 77 ] || [ $rc = 127 ] || break
done
[ $rc = 0 ] || fail "check_all.py: $(tail -20 out.txt)"
grep ^SKIPPED out.txt
for first in 000000 000004; do
  "$build/hecate-sim" "out/trace-$first.jsonl.gz" --policy ep,hecate >out.txt 2>&1 || fail "hecate-sim: $(tail -5 out.txt)"
done
# Tables of a GPU: the laws read every row, but of kernels for which the preset has none.
"$build/hecate-validate" hardware --cases measured --json >found.json || fail "hardware: tables of hecate.torch.measure"
expect found.json 'len(d["rows"]), sorted({(r["file"], r["why_not"].split(",")[0].split(";")[0]) for r in d["rows"] if "why_not" in r})' \
  "(36, [('collectives.csv', 'library: the law covers NCCL'), ('elementwise.csv', 'device h100 has no constants for law memory'), ('moe_ffn.csv', 'device h100 has no constants for law grouped')])"
# Predicted against trained: that it runs and counts, not what it finds, which depends on the machine. With no time it takes the
# fewest rounds. The package and libhecate are those that came with the program.
env -u PYTHONPATH -u HECATE_LIBRARY HECATE_TORCH_PYTHON=$python "$build/hecate-validate" trainer --json --policy ep,hecate --hot 2 --within 0.001 --layers 2 --d-model 32 \
  --d-ffn 64 --batch 4 --length 16 --out trainer >found.json 2>out.txt || fail "hecate-validate trainer: $(tail -5 out.txt)"
expect found.json '[(r["policy"], r["steps"], r["predicted_s"] > 0, r["measured_s"] > 0) for r in d["rows"]], d["rounds"]' \
  "([('ep', 3, True, True), ('hecate', 3, True, True)], 3)"
# One pair, whose order is counted only where the measurement tells it. Every error has an interval.
expect found.json '([(p["policies"], (p["order"] == "not apart") == (p["low"] <= 1 <= p["high"])) for p in d["pairs"]],
  all(r["error_range"][0] <= r["error_range"][1] for r in d["rows"]), d["error"]["low"] <= d["error"]["high"])' \
  "([(['ep', 'hecate'], True)], True, True)"
# The control is no row. It is measured before and after every step of another, whose readings are relative to it.
"$python" - <<'EOF' || fail "readings: the pace is not taken out"
import math
from hecate.torch import validate
pace = [1, 4, 4, 9]
control = [(p * 0.3, p * 0.1) for p in pace]
case = [(0.6 * math.sqrt(pace[i] * pace[i + 1]), 0) for i in (0, 2)]
assert all(abs(r - 2) < 1e-12 for r in validate.readings(case, control, [[0], [2]], 0))
rows = [{"policy": p, "hot": 1, "predicted_s": s} for p, s in (("a", 1), ("b", 2))]
order = lambda a, b: validate.contest(rows, [a, b], 0, 1)["order"]
assert order([1.0, 1.1, 1.2], [2.0, 2.1, 2.2]) == "right" and order([2.0, 2.1, 2.2], [1.0, 1.1, 1.2]) == "wrong"
assert order([1.0, 2.2, 1.2, 2.0], [2.0, 1.1, 2.2, 1.0]) == "not apart"
# What a machine at half its pace took is the same calibration, once divided by that pace.
from hecate.torch.calibrate import _in_steps, _medians
found = _medians([[{"meet": 1.0, "sum 1": 0.5}, {"meet": 2.0, "sum 1": 1.5}]], range(2), [(1.0, 1.0), (2.0, 3.0)])
assert found == {"meet": 1.0, "sum 1": 0.5}, found
# Experts that take twice as long in steps as alone.
steps = [[({"experts": 2 * 0.5 + 2 * (3 + 5), "experts backward": 2 * 0.5 + 4 * (3 + 5)}, [30, 50])]]
assert _in_steps(steps, [0], 2, (0.5, 0.5), {10: (1.0, 2.0), 100: (10.0, 20.0)}) == [2.0, 2.0]
EOF
[ -s trainer/control.jsonl ] || fail "the control's trace"
expect found.json '[sorted({"experts", "planner", "recorder"} & set(r["parts"])) for r in d["rows"]][1]' "['experts', 'planner', 'recorder']"
"$build/hecate-sim" trainer/ep-hot2.jsonl --cluster trainer/trainer-cluster.json --model trainer/trainer-model.json --policy ep >out.txt 2>&1 ||
  fail "hecate-sim with the calibration: $(tail -5 out.txt)"
HECATE_TORCH_PYTHON=nowhere "$build/hecate-validate" trainer >out.txt 2>&1 && fail "a Python from nowhere"
has "set HECATE_TORCH_PYTHON"
cp "$build/hecate-validate" alone # without what came with it
env -u PYTHONPATH HECATE_TORCH_PYTHON=$python ./alone trainer >out.txt 2>&1 && fail "a program without its package"
has "No module named 'hecate'; set HECATE_TORCH_PYTHON to a Python that has PyTorch 2.1 and numpy, or PYTHONPATH to"
[ "$(wc -l <out.txt)" -eq 1 ] || fail "one line was expected: $(cat out.txt)"
HECATE_LIBRARY=nowhere.so HECATE_TORCH_PYTHON=$python "$build/hecate-validate" trainer >out.txt 2>&1 && fail "no libhecate"
has "libhecate was not found (nowhere.so"
[ "$(wc -l <out.txt)" -eq 1 ] || fail "one line was expected: $(cat out.txt)"
[ $failures -eq 0 ] || exit 1
echo "all passed"
