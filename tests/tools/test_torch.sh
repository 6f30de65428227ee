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
# Predicted against trained: that it runs and counts, not what it finds, which depends on the machine.
# The package and libhecate are those that came with the program.
env -u PYTHONPATH -u HECATE_LIBRARY HECATE_TORCH_PYTHON=$python "$build/hecate-validate" trainer --json --policy ep,hecate --hot 2 --rounds 1 --block 3 --layers 2 --d-model 32 \
  --d-ffn 64 --batch 4 --length 16 --out trainer >found.json 2>out.txt || fail "hecate-validate trainer: $(tail -5 out.txt)"
expect found.json '[(r["policy"], r["steps"], r["predicted_s"] > 0, r["measured_s"] > 0) for r in d["rows"]]' \
  "[('ep', 2, True, True), ('hecate', 2, True, True)]"
expect found.json 'd["pairs"]' 1
# The control is no row; what it was predicted wrong by is taken out of every row, by one factor.
expect found.json '(d["pace"] > 0, max(abs(r["error"] + 1 - r["predicted_s"] / r["measured_s"]) for r in d["rows"]) < 1e-12,
  abs(max(abs(r["predicted_s"] / d["pace"] / r["measured_s"] - 1) for r in d["rows"]) - d["without_pace"]["worst"]) < 1e-9)' "(True, True, True)"
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
