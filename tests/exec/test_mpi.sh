#!/usr/bin/env bash
# The MPI backend under the mpirun of Open MPI and of MPICH: random posts and chains, the collectives of a launch, and
# what happens when a rank fails, stops or dies. The work is done by program_mpi.c.
set -u
build=$1
program=$build/program_mpi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
n_run=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# Everything stays on this machine; memory that Open MPI keeps at the end is not ours to report.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader OMPI_MCA_oob_tcp_if_include=lo
export OMPI_MCA_plm_rsh_agent=/bin/false
unset HECATE_PLUGINS HECATE_MPI_UNIT

# mpi RANKS ARGUMENT...: runs the program within five minutes, of which it takes seconds
mpi() {
  timeout -k 5 300 "$launcher" -n "$1" "$program" "${@:2}" >"$folder/out" 2>"$folder/err" </dev/null
}

passes() {
  n_run=$((n_run + 1))
  mpi "$@" || fail "$launcher: $*: exit $?: $(tail -n 5 "$folder/err")"
  grep -qx "passed on $1 ranks" "$folder/out" || fail "$launcher: $*: did not say that it passed on $1 ranks"
}

# Processes that print their number and are still there (one that nobody waited for yet, a zombie, is gone).
alive() {
  local pid
  for pid in $(sed -n 's/^pid //p' "$folder/out"); do
    grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$pid/status" && echo "$pid"
  done
}

# fault WHAT 'words that some rank says': the job fails soon and leaves no process.
fault() {
  n_run=$((n_run + 1))
  mpi 3 "$1"
  local rc=$? left
  [ $rc -ne 0 ] && [ $rc -ne 124 ] || fail "$launcher: $1: exit $rc"
  [ -z "$2" ] || grep -qE -- "$2" "$folder/err" || fail "$launcher: $1: said: $(cat "$folder/err")"
  [ "$(grep -c '^pid' "$folder/out")" -gt 0 ] || fail "$launcher: $1: no rank came so far"
  for _ in $(seq 3000); do # as long as it may take on a busy machine
    left=$(alive)
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  fail "$launcher: $1: still there: $left"
  for pid in $left; do kill -9 "$pid"; done
}

for kind in openmpi mpich; do
  launcher=mpirun.$kind
  if ! command -v "$launcher" >/dev/null; then
    echo "SKIPPED mpi ($kind): $launcher is not installed"
    continue
  fi
  if [ ! -e "$build/hecate-mpi-$kind.so" ]; then
    echo "SKIPPED mpi ($kind): not built, no compiler of this MPI was found by cmake"
    continue
  fi
  for ranks in 1 2 3 4 8; do
    passes $ranks posts $((ranks * 17)) 8
    passes $ranks chains $((ranks * 19)) 6
    passes $ranks control 1 50
  done
  HECATE_MPI_UNIT=1000 passes 4 posts 5 8
  passes 3 large 7 9000000
  fault short 'rank 2: MPI: a message from rank 1 has 999 bytes instead of 1000'
  fault silent 'rank [02]: waited 1 s for rank 1'
  fault stopped 'rank [02]: waited 1 s for rank 1'
  fault wrong 'rank 1: a failure of the body'
  fault killed ''
done

# Without a plug-in, or with the launcher of another MPI, the reason is said; none of this needs MPI.
HECATE_PLUGINS=$folder OMPI_COMM_WORLD_SIZE=2 "$program" control >"$folder/out" 2>"$folder/err"
[ $? -ne 0 ] && grep -qE 'not built|sees one' "$folder/err" || fail "no MPI: said: $(cat "$folder/err")"

# srun says how many processes a step has; a batch script is one process, whatever its job has been granted.
SLURM_STEP_NUM_TASKS=2 "$program" control >"$folder/out" 2>"$folder/err"
[ $? -ne 0 ] && grep -qE 'not built|srun started 2 processes.*or srun --mpi=pmi' "$folder/err" ||
  fail "srun without PMI: said: $(cat "$folder/err")"
if [ "$n_run" -gt 0 ]; then
  SLURM_PROCID=0 SLURM_NTASKS=4 "$program" control 1 5 >"$folder/out" 2>"$folder/err" &&
    grep -qx 'passed on 1 ranks' "$folder/out" || fail "batch script of Slurm: said: $(cat "$folder/err")"
fi

[ "$n_run" -gt 0 ] || [ "$failures" -gt 0 ] || exit 77
[ "$failures" -eq 0 ]
