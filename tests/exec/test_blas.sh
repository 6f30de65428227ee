#!/usr/bin/env bash
# How hecate loads OpenBLAS, with stand-ins for the library. One knows only an old core until it is told, one knows a
# new core. One crashes when it is loaded, one is something else, and there may be none that can be opened.
set -euo pipefail
build=$1
test=$build/test.exec
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if ! command -v cc >/dev/null; then
  echo "SKIPPED exec.blas: no C compiler for the stand-ins"
  exit 77
fi

cat > "$folder/blas.c" <<'END'
#include <stdlib.h>
static const char *core;
__attribute__((constructor)) static void load(void) {
#ifdef CRASH
  abort();
#endif
  core = getenv("OPENBLAS_CORETYPE") ? getenv("OPENBLAS_CORETYPE") : CORE;
  if (!getenv("OPENBLAS_NUM_THREADS"))
    core = "threaded";
}
#ifndef STRANGER
const char *openblas_get_corename(void) { return core; }
#endif
const char *openblas_get_config(void) { return "OpenBLAS 9.9.9 STAND_IN"; }
void cblas_sgemm(void) {}
END

# says NAME FLAGS... : what hecate says about a library made with these flags.
says() {
  local name=$1
  shift
  mkdir -p "$folder/$name"
  cc -shared -fPIC "$@" -o "$folder/$name/libopenblas.so.0" "$folder/blas.c"
  run "$folder/$name"
}
run() {
  env -u OPENBLAS_CORETYPE -u OPENBLAS_NUM_THREADS -u HECATE_BLAS LD_LIBRARY_PATH="$1" "$test" blas_library |
    sed -n 2p || true
}
failed=0
# expect FOUND PATTERN
expect() {
  # shellcheck disable=SC2053 # a pattern on purpose
  if [[ $1 != $2 ]]; then
    echo "expected $2, found $1"
    failed=1
  fi
}

if grep -qw avx512vl /proc/cpuinfo 2>/dev/null && grep -qw avx512dq /proc/cpuinfo; then
  better=SkylakeX
elif grep -qw avx2 /proc/cpuinfo 2>/dev/null && grep -qw fma /proc/cpuinfo; then
  better=Haswell
else
  better=
fi
if [[ -n $better ]]; then
  expect "$(says old '-DCORE="Prescott"')" "OpenBLAS 9.9.9, core $better (set by hecate: detected Prescott), 1 thread"
else
  expect "$(says old '-DCORE="Prescott"')" "OpenBLAS 9.9.9, core Prescott, 1 thread"
fi
expect "$(says new '-DCORE="Zen"')" "OpenBLAS 9.9.9, core Zen, 1 thread"
expect "$(says crash '-DCORE="Zen"' -DCRASH)" "GSL CBLAS * (slow: OpenBLAS was not found)"
expect "$(says stranger '-DCORE="Zen"' -DSTRANGER)" "GSL CBLAS * (slow: OpenBLAS was not found)"
mkdir "$folder/none"
echo "not a library" > "$folder/none/libopenblas.so.0"
case $(run "$folder/none") in
"OpenBLAS "* | "GSL CBLAS "*) ;; # the loader may go on to a real one
*)
  echo "a file that is no library: $(run "$folder/none")"
  failed=1
  ;;
esac
exit $failed
