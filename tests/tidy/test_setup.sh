#!/usr/bin/env bash
# tools/setup.sh and the scripts on it: what is missing is named exactly, nothing is installed without leave, tests are
# counted as announced. Packages are made to miss by a PATH that holds only what the case allows.
# shellcheck disable=SC2016 # single quotes on purpose: other shells expand these
set -uo pipefail
unset CC
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
n_failed=0

# expect NAME EXPECTED FOUND
expect() {
  [ "$2" = "$3" ] && return
  printf 'FAILED %s\n--- expected\n%s\n--- found\n%s\n' "$1" "$2" "$3"
  n_failed=$((n_failed + 1))
}

# bin NAME COMMAND...: a folder for PATH with links to these commands.
bin() {
  local dir=$scratch/$1 command
  mkdir -p "$dir"
  shift
  for command in bash env dirname readlink sed sort head tail cat id sleep mktemp rm "$@"; do
    ln -sf "$(command -v "$command")" "$dir/$command"
  done
  echo "$dir"
}

# Records that it was called; apt must never run in a test.
fake() {
  printf '#!/bin/sh\necho "%s $*" >>"%s/calls"\nexit %s\n' "$2" "$scratch" "$3" >"$1/$2"
  chmod +x "$1/$2"
}
all="build-essential cmake ninja-build pkg-config libgsl-dev libcjson-dev check libsubunit-dev zlib1g-dev"

bare=$(bin bare)
found=$(PATH=$bare bash -c '. "$0/tools/setup.sh"; hec_missing' "$root" | tr '\n' ' ')
expect "a bare machine misses everything" "$all " "$found"

fake "$bare" apt-get 0
for tool in quickstart check; do
  found=$(PATH=$bare "$root/tools/$tool" --no-install 2>&1)
  expect "$tool stops" 1 $?
  expect "$tool prints the line" "Some packages are missing. Install them as root, then run this again:
  apt-get install -y --no-install-recommends $all" "$found"
done
expect "apt was not called" "" "$(cat "$scratch/calls" 2>/dev/null)"

# With leave, apt gets that very line once, and an installation that brings nothing is an error, not a loop.
printf '#!/bin/sh\n[ "$1" = -u ] && echo 0\n' >"$scratch/id"
chmod +x "$scratch/id"
ln -sf "$scratch/id" "$bare/id"
found=$(PATH=$bare "$root/tools/check" 2>&1)
expect "an installation in vain stops" 1 $?
case $found in *"Still missing or too old after the installation: $all"*) ;; *) expect "it says what is missing" "$all" "$found" ;; esac
expect "apt is called twice" "apt-get -q -o DPkg::Lock::Timeout=120 update
apt-get install -y --no-install-recommends $all -q -o DPkg::Lock::Timeout=120" "$(cat "$scratch/calls")"

# Not root, and sudo asks for a password: the same as --no-install.
printf '#!/bin/sh\n[ "$1" = -u ] && echo 1000\n' >"$scratch/id"
fake "$bare" sudo 1
: >"$scratch/calls"
PATH=$bare "$root/tools/check" >/dev/null 2>&1
expect "without sudo it stops" 1 $?
expect "only sudo was asked" "sudo -n true" "$(cat "$scratch/calls")"

# One library missing names one package; an old cmake counts as missing.
some=$(bin some cc pkg-config)
printf '#!/bin/sh\necho "cmake version 3.18.4"\n' >"$some/cmake"
printf '#!/bin/sh\n[ "$2" != libcjson ]\n' >"$some/pkg-config.new"
rm "$some/pkg-config" && mv "$some/pkg-config.new" "$some/pkg-config"
printf '#!/bin/sh\n' >"$some/ninja"
chmod +x "$some"/{cmake,pkg-config,ninja}
found=$(PATH=$some:/usr/bin:/bin bash -c '. "$0/tools/setup.sh"; hec_missing' "$root" | tr '\n' ' ')
expect "one library, one old tool" "cmake libcjson-dev " "$found"

# Optional packages: without leave it says what it does without and goes on. With leave only what is missing is asked for,
# and an installation in vain is no error either.
: >"$scratch/calls"
found=$(PATH=$bare bash -c '. "$0/tools/setup.sh"; hec_may_install=no; hec_optional openmpi-bin mpich' "$root" 2>&1)
expect "optional packages stop nothing" "0 Going on without optional packages: openmpi-bin mpich" "$? $found"
expect "and ask nobody" "" "$(cat "$scratch/calls")"
printf '#!/bin/sh\n[ "$1" = -u ] && echo 0\n' >"$scratch/id"
ln -sf /bin/true "$bare/true"
ln -sf /bin/true "$bare/mpirun.mpich"
found=$(PATH=$bare bash -c '. "$0/tools/setup.sh"; hec_optional openmpi-bin mpich' "$root" 2>&1)
expect "optional packages in vain" "0 Installing what is optional: apt-get install -y --no-install-recommends openmpi-bin
Going on without optional packages: openmpi-bin" "$? $found"
expect "apt is asked for the missing one" "apt-get install -y --no-install-recommends openmpi-bin -q -o DPkg::Lock::Timeout=120" \
  "$(cat "$scratch/calls")"

# A name that setup.sh cannot look for is a mistake of whoever asks for it, and stops; .ci/run and tools/check know all theirs.
found=$(PATH=$bare bash -c '. "$0/tools/setup.sh"; hec_may_install=no; hec_optional mpich2' "$root" 2>&1)
expect "an unknown optional package stops" "1 hec_optional_missing: what is mpich2 for?" "$? $found"
mapfile -t optional < <(sed -e ':line' -e '/\\$/{N;s/\\\n//;b line' -e '}' "$root/.ci/run" "$root/tools/check" |
  sed -n 's/^hec_optional \([^#]*\).*/\1/p' | xargs -n 1)
case " ${optional[*]} " in *" mpich "*" chromium "*" libopenblas0-serial "*) ;; *) expect "their names are read" "all" "${optional[*]}" ;; esac
for name in "${optional[@]}"; do
  found=$(bash -c '. "$0/tools/setup.sh"; hec_optional_missing "$1"' "$root" "$name" 2>&1)
  expect "$name is looked for" 0 $?
  case $found in "" | "$name") ;; *) expect "$name is there or named" "$name" "$found" ;; esac
done

# Usage.
for tool in tools/quickstart tools/check; do
  "$root/$tool" --help | grep -q '^usage: ' || expect "$tool --help" "usage: ..." "something else"
  "$root/$tool" --no-such >/dev/null 2>&1
  expect "$tool refuses an unknown option" 2 $?
done

# The count: 7 announced; two pass, one of them with two skips inside. One exits 77 with its reason, one without; one
# fails, one runs out of time, one is never reported.
cat >"$scratch/out" <<'END'
      Start  1: a.plain
 1/7 Test  #1: a.plain ..........................   Passed    0.07 sec
 2/7 Test #12: a.with_skips .....................   Passed  100.07 sec
3/7 Test #3: b.says_why .......................***Skipped   0.00 sec
4/7 Test #4: b.silent .........................***Skipped   0.00 sec
5/7 Test #5: c.broken .........................***Failed    0.01 sec
SKIPPED in the output of a failure: is read from the log, not from here
6/7 Test #6: c.slow ...........................***Timeout  10.02 sec
END
cat >"$scratch/log" <<'END'
1/7 Test: a.plain
an output
2/7 Test: a.with_skips
SKIPPED recorded loads: ../shared is absent
SKIPPED hardware: no GPU: none found
3/7 Test: b.says_why
SKIPPED the whole program: no clang
4/7 Test: b.silent
END
found=$(bash -c '. "$0/tools/setup.sh"; hec_count "$1/out" "$1/log"' "$root" "$scratch")
expect "the count" "FAILED c.broken
FAILED c.slow
FAILED 1 tests that ctest did not report
Skipped:
  recorded loads: ../shared is absent
  hardware: no GPU: none found
  the whole program: no clang
  b.silent: exit code 77, no reason given
2 passed, 3 failed, 4 skipped" "$found"

# Several runs: a test that fails now and then is named with how often; one that always passes is not.
mkdir -p "$scratch/runs" "$scratch/tests/Testing/Temporary"
: >"$scratch/tests/Testing/Temporary/LastTest.log"
cat >"$scratch/runs/ctest" <<END
#!/bin/sh
echo "1/2 Test #1: a.plain .......   Passed    0.07 sec"
echo run >>$scratch/n_runs
if [ "\$(wc -l <$scratch/n_runs)" = 2 ]; then
  echo "2/2 Test #2: b.by_chance ....***Failed    0.01 sec"
  exit 8
fi
echo "2/2 Test #2: b.by_chance ....   Passed    0.01 sec"
END
chmod +x "$scratch/runs/ctest"
found=$(PATH=$scratch/runs:$PATH bash -c '. "$0/tools/setup.sh"; hec_test_times 3 "$1/tests"; echo "$?, $n_passed $n_failed $n_skipped"' "$root" "$scratch" 2>&1 | grep -v "Test #")
expect "three runs" "
Skipped: none
run 1 of 3: 2 passed, 0 failed, 0 skipped

FAILED b.by_chance
Skipped: none
run 2 of 3: 1 passed, 1 failed, 0 skipped

Skipped: none
run 3 of 3: 2 passed, 0 failed, 0 skipped

b.by_chance failed in 1 of 3 runs
1, 2 1 0" "$found"

if command -v shellcheck >/dev/null; then
  cd "$root" && shellcheck -x tools/quickstart tools/check tools/setup.sh .ci/run tests/tidy/test_setup.sh ||
    n_failed=$((n_failed + 1))
else
  echo "SKIPPED shellcheck: it is not installed"
fi

[ "$n_failed" = 0 ]
