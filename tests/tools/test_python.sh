#!/usr/bin/env bash
# The Python package. Installed by pip without any index, it gives the bytes of hecate-sim --json through libhecate,
# takes counts in every shape, and says what is wrong. It records routers (over a stand-in for PyTorch, and over
# PyTorch where it is). Its examples run.
source "$(dirname "$0")/../support/tool.sh"
if ! command -v python3 >/dev/null || ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))'; then
  echo "SKIPPED tools.python: no Python 3.8"
  exit 77
fi
if grep -qE '^HEC_SANITIZE:STRING=.+' "$build/CMakeCache.txt"; then
  echo "SKIPPED tools.python: an instrumented library needs an instrumented Python"
  exit 77
fi
package=$source_dir/tools/python
export PYTHONDONTWRITEBYTECODE=1 HECATE_LIBRARY=$build/libhecate.so PATH=$build:$PATH
version=$(sed -n 's/^#define HECATE_VERSION_[A-Z]* //p' "$source_dir/runtime/exec/package/hecate.h" | paste -sd.)
[ "$(sed -n 's/^version = "\(.*\)"/\1/p' "$package/pyproject.toml")" = "$version" ] || fail "version of pyproject.toml"
[ "$(cd "$package" && PYTHONDONTWRITEBYTECODE=1 python3 -c 'import hecate; print(hecate.__version__)')" = "$version" ] || fail "version of the package"

if python3 -m pip --version >/dev/null 2>&1; then
  python3 -m pip install --no-index --no-cache-dir --disable-pip-version-check --root-user-action=ignore --target site "$package" \
    >out.txt 2>&1 || fail "pip install: $(tail -5 out.txt)"
  [ -e site/hecate/recorder.py ] && [ -e "site/hecate-$version.dist-info/RECORD" ] || fail "pip installed something else"
  export PYTHONPATH=$work/site
else
  echo "SKIPPED python (pip): not installed"
  export PYTHONPATH=$package
fi
checks=$source_dir/tests/tools/python stand_in=$source_dir/tests/tools/python/stand_in
# With the standard library alone where python3 has no numpy, and then in a Python that has it, too.
check() {
  PYTHONPATH=$PYTHONPATH:$stand_in "$1" "$checks/check.py" "$build/hecate-sim" "$sample" >out.txt 2>&1 ||
    fail "check.py: $(tail -20 out.txt)"
}
check python3
if grep -q '^SKIPPED python (numpy)' out.txt; then
  with_numpy=
  for python in "${HECATE_HTA_PYTHON:-}" /usr/bin/python3; do
    [ -n "$with_numpy" ] || ! "$python" -c 'import numpy' 2>/dev/null || with_numpy=$python
  done
  [ -z "$with_numpy" ] || check "$with_numpy"
fi
grep '^SKIPPED' out.txt

# Examples, as they stand.
cp "$sample" trace.jsonl
for example in "$package"/examples/{compare,record}.py; do # train_moe.py: test_torch.sh
  PYTHONPATH=$PYTHONPATH:$stand_in python3 "$example" >example.txt 2>&1 || fail "$(basename "$example"): $(tail -5 example.txt)"
  [ -s example.txt ] || fail "$(basename "$example") prints nothing"
done

# PyTorch itself, of whichever Python has it.
with_torch=
for python in python3 /usr/bin/python3; do
  [ -n "$with_torch" ] || ! "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' 2>/dev/null || with_torch=$python
done
if [ -z "$with_torch" ]; then
  echo "SKIPPED python (PyTorch): not installed; the recorder ran over a stand-in"
else
  "$with_torch" "$checks/check_torch.py" >out.txt 2>&1 || fail "check_torch.py: $(tail -20 out.txt)"
  grep '^SKIPPED' out.txt
  "$with_torch" "$package/examples/record.py" >out.txt 2>&1 || fail "record.py over PyTorch: $(tail -5 out.txt)"
  has "('hecate', "
fi

# The wheel of tools/wheel brings the library: in a fresh environment, with no compiler, no build, no
# GSL and nothing of Debian's cJSON.
if command -v objdump >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null; then
  wheel=$("$source_dir/tools/wheel" wheel "$build" 2>err.txt) || fail "tools/wheel: $(tail -5 err.txt)"
  # By the pip that is here, if it can: an environment with one of its own takes seconds to make.
  pip=(python3 -m pip --python fresh/bin/python) without=--without-pip
  "${pip[@]:0:3}" --help 2>/dev/null | grep -q -- '--python ' || pip=(fresh/bin/pip) without=
  # shellcheck disable=SC2086 # nothing where it is empty
  python3 -m venv $without fresh && (unset PYTHONPATH && "${pip[@]}" install --no-index --no-cache-dir --disable-pip-version-check -q "$wheel") >out.txt 2>&1 ||
    fail "pip install $wheel: $(tail -5 out.txt)"
  (unset HECATE_LIBRARY PYTHONPATH && PATH=$work/fresh/bin && python -m hecate) >out.txt 2>&1 || fail "python -m hecate: $(cat out.txt)"
  has "libhecate    $version at $work/fresh/lib"
  has "hecate.torch not available: "
  (unset HECATE_LIBRARY PYTHONPATH && PATH=$work/fresh/bin && python -c 'import hecate; p = hecate.Planner("hecate", layers=1, experts=4, top_k=1, ranks=2)
p.step(0); print("planned", len(p.homes.tolist()[0])); print(hecate.simulate([[4, 3, 2, 1]], cluster="1x2 nvlink=1G@1us flops=1G mem=1G",
policies=["ep"], model="gpt-moe-s", top_k=1)["policies"][0]["name"])
from hecate import _library; print({line.split()[-1].split("/")[-1]: line.split()[-1] for line in open("/proc/self/maps") if "libgsl" in line or "libcjson" in line})') >out.txt 2>&1 ||
    fail "the wheel: $(cat out.txt)"
  has "planned 4"
  has "{'libcjson.so.1': '$work/fresh/lib"
  ! grep -q libgsl out.txt || fail "the wheel brings GSL: $(cat out.txt)"
  [ -s fresh/lib/python3*/site-packages/hecate-*.dist-info/licenses/libcjson.so.1.copyright ] || ! command -v dpkg >out.txt ||
    fail "no licence of cJSON"
else
  echo "SKIPPED python (wheel): no objdump or no venv"
fi
python3 -m hecate >out.txt 2>&1 && has "libhecate    $version at $HECATE_LIBRARY" || fail "python -m hecate: $(cat out.txt)"
HECATE_LIBRARY=nowhere.so python3 -m hecate >out.txt 2>&1 && fail "python -m hecate without the library"
has "libhecate was not found (nowhere.so"

# The library is found beside hecate-sim, and a library that is not there is said to be so.
(unset HECATE_LIBRARY && python3 -c 'import hecate; print(hecate.version())') >out.txt 2>&1 && has "$version" || fail "beside hecate-sim: $(cat out.txt)"
HECATE_LIBRARY=nowhere.so python3 -c 'import hecate; hecate.version()' >out.txt 2>&1 && fail "a library from nowhere"
has "libhecate was not found (nowhere.so"
python3 -c 'import hecate' || fail "import needs the library"
[ -z "$(find "$package" -name '__pycache__' -o -name '*.egg-info' -o -name build -o -name '*.pyc')" ] || fail "something was left in $package"
[ $failures -eq 0 ] || exit 1
echo "all passed"
