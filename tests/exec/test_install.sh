#!/usr/bin/env bash
# What others' builds see. hecate is installed below a prefix with a blank in it. The example is built outside the tree
# through CMake and through pkg-config. It is run as processes, as threads and under mpirun. The header is C and C++ on
# its own; the library exports the functions of the header and nothing else. Usage: test_install.sh BUILD_DIR
source "$(dirname "$0")/../support/tool.sh"
if grep -qE '^HEC_(SANITIZE:STRING=.+|COVERAGE:BOOL=ON)$' "$build/CMakeCache.txt"; then
  echo "SKIPPED exec.install: an instrumented library needs instrumented users"
  exit 77
fi
folder=$work
prefix="$folder/a prefix"

cmake --install "$build" --prefix "$prefix" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
# Moved: nothing may remember where it was installed.
mv "$prefix" "$folder/another prefix"
prefix="$folder/another prefix"
header=$prefix/include/hecate/hecate.h
library=$(find "$prefix" -name 'libhecate.so')
libdir=$(dirname "$library")
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")

# Every function of the header is exported, and no other symbol.
sed -n 's/^HEC_API.*[ *]\(hec_[a-z_]*\)(.*/\1/p' "$header" | sort >"$folder/declared"
nm -D --defined-only "$library" | awk '{print $3}' | sort >"$folder/exported"
[ "$(wc -l <"$folder/declared")" -gt 25 ] || fail "only $(wc -l <"$folder/declared") functions in the header"
diff "$folder/declared" "$folder/exported" || fail "the library does not export the header's functions alone"
# What it is linked to has no licence that asks something of its users (library.cmake).
ldd "$library" | grep gsl && fail "the library is linked to GSL"
for name in "$prefix"/bin/hecate-sim; do
  "$name" --help >/dev/null || fail "$name does not run"
  "$name" "$prefix"/share/doc/hecate/traces/sample-synthetic.jsonl --policy ep >/dev/null || fail "no installed trace"
done

# What tools read without being given it comes along, wherever they are started.
(cd / && env -u HECATE_SHARED "$prefix/bin/hecate-validate" gate --stored-only >"$folder/log" 2>&1) || fail "gate: $(tail -n 3 "$folder/log")"
said=$(cd / && env -u HECATE_SHARED "$prefix/bin/hecate-validate" hardware 2>&1)
[[ $said == *"name a file with --cases"* ]] || fail "hardware: $said"
# The Python package that came along finds its own library, below this prefix.
said=$(cd / && env -u HECATE_LIBRARY PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$prefix/share/hecate/python" \
       python3 -m hecate 2>&1 | grep libhecate)
[[ $said == *" at $prefix/lib"* ]] || fail "the installed package: $said"
[ -e "$prefix/share/hecate/python/examples/train_moe.py" ] || fail "no example of training was installed"
mv "$prefix/share/hecate" "$folder/aside"
said=$("$prefix/bin/hecate-validate" gate --stored-only 2>&1) && fail "gate without its file"
[[ $said == *"not there, though it comes with hecate; name the file with --baseline"* ]] || fail "gate without its file: $said"

# Every link of the installed documents leads to something installed.
find "$prefix/share/doc" -name '*.md' >"$folder/documents"
[ "$(wc -l <"$folder/documents")" -gt 10 ] || fail "only $(wc -l <"$folder/documents") documents"
while read -r document; do
  sed 's/](/\n](/g' "$document" | sed -n 's/^](\([^)# ]*\).*/\1/p' | grep -v '^[a-z]*:' | while read -r link; do
    [ -z "$link" ] || [ -e "${document%/*}/$link" ] || echo "${document#"$prefix"/}: $link"
  done
done <"$folder/documents" >"$folder/dead"
[ ! -s "$folder/dead" ] || fail "dead links: $(cat "$folder/dead")"

# Manual pages of every tool and command, completion under the names that shells look for.
for page in hecate-sim hecate-sim-plan hecate-sim-sweep-merge hecate-run-alltoallv hecate-trace-synth hecate-validate-compare; do
  [ -s "$prefix/share/man/man1/$page.1" ] || fail "no manual page $page(1)"
done
for tool in "$prefix"/bin/hecate-*; do
  [ -s "$prefix/share/bash-completion/completions/${tool##*/}" ] || fail "no completion of ${tool##*/}"
done
[ -s "$prefix/share/zsh/site-functions/_hecate" ] || fail "no completion for zsh"

# The header on its own, in both languages, with every warning.
echo '#include <hecate/hecate.h>' >"$folder/alone.c"
"$compiler" -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$prefix/include" "$folder/alone.c" ||
  fail "the header is no C99"
if command -v c++ >/dev/null; then
  printf '#include <hecate/hecate.h>\nint main() { return hec_version()[0] == 0; }\n' >"$folder/alone.cpp"
  c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -I "$prefix/include" "$folder/alone.cpp" -o "$folder/cpp" \
    -L "$libdir" -lhecate && LD_LIBRARY_PATH=$libdir "$folder/cpp" || fail "a C++ program does not build or run"
else
  echo "SKIPPED exec.install (C++): no c++"
fi

# runs WHAT COMMAND...: says that every number is right, and each of the four ranks what it sent.
runs() {
  "${@:2}" >"$folder/out" 2>"$folder/err" </dev/null || fail "$1: exit $?: $(cat "$folder/err")"
  grep -q "every number as the plain loop's" "$folder/err" || fail "$1 said: $(cat "$folder/err")"
  [ "$(grep -cE '^rank [0-3]: sent [1-9][0-9]* bytes' "$folder/out")" -ge 1 ] || fail "$1: $(cat "$folder/out")"
}

cp -r "$prefix/share/doc/hecate/tools/example" "$folder/example" || fail "the example is not installed"
cmake -S "$folder/example" -B "$folder/built" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$folder/log" 2>&1 && cmake --build "$folder/built" >>"$folder/log" 2>&1 ||
  { cat "$folder/log"; fail "the example does not build with find_package(hecate)"; }
runs "through CMake" "$folder/built/example"
runs "as threads" "$folder/built/example" threads

export PKG_CONFIG_PATH=$libdir/pkgconfig
flags=$(pkg-config --cflags --libs hecate) || fail "pkg-config does not find hecate"
mapfile -d '' words < <(xargs printf '%s\0' <<<"$flags") # quoted as for a shell
"$compiler" "$folder/example/main.c" "${words[@]}" -o "$folder/plain" || fail "the example does not build: $flags"
export LD_LIBRARY_PATH=$libdir
runs "through pkg-config" "$folder/plain"
said=$("$folder/plain" 2>&1 >/dev/null)
[ "${said%%:*}" = "hecate $(pkg-config --modversion hecate)" ] || fail "versions: $said, $(pkg-config --modversion hecate)"

source "$source_dir/tests/support/mpi.sh"
for kind in openmpi mpich; do
  has_mpi $kind "$prefix/lib/hecate" || continue
  runs "under $launcher" timeout -k 5 300 "$launcher" -n 4 "$folder/plain" mpi
  runs "under $launcher, chain" timeout -k 5 300 "$launcher" -n 4 "$folder/plain" mpi chain
done
[ "$failures" -eq 0 ]
