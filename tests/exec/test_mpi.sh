#!/usr/bin/env bash
# The MPI backend under the mpirun of Open MPI and of MPICH. Random posts, the collectives of a launch, and
# what happens when a rank fails, stops or dies. The work is done by program_mpi.c.
source "$(dirname "$0")/../support/tool.sh"
source "$source_dir/tests/support/mpi.sh"
program=$build/program_mpi
n_run=0

# mpi RANKS ARGUMENT...: runs the program within five minutes, of which it takes seconds
mpi() {
  timeout -k 5 300 "$launcher" -n "$1" "$program" "${@:2}" >out.txt 2>err.txt </dev/null
}

passes() {
  n_run=$((n_run + 1))
  mpi "$@" || fail "$launcher: $*: exit $?: $(tail -n 5 err.txt)"
  grep -qx "passed on $1 ranks" out.txt || fail "$launcher: $*: did not say that it passed on $1 ranks"
}

# Processes that print their number and are still there (one that nobody waited for yet, a zombie, is gone).
alive() {
  local pid
  for pid in $(sed -n 's/^pid //p' out.txt); do
    grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$pid/status" && echo "$pid"
  done
}

# fault WHAT 'words that some rank says': the job fails soon and leaves no process.
fault() {
  n_run=$((n_run + 1))
  mpi 3 "$1"
  local rc=$? left
  [ $rc -ne 0 ] && [ $rc -ne 124 ] || fail "$launcher: $1: exit $rc"
  [ -z "$2" ] || grep -qE -- "$2" err.txt || fail "$launcher: $1: said: $(cat err.txt)"
  [ "$(grep -c '^pid' out.txt)" -gt 0 ] || fail "$launcher: $1: no rank came so far"
  for _ in $(seq 3000); do # as long as it may take on a busy machine
    left=$(alive)
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  fail "$launcher: $1: still there: $left"
  for pid in $left; do kill -9 "$pid"; done
}

for kind in openmpi mpich; do
  has_mpi $kind || continue
  for ranks in 1 2 3 8; do
    passes $ranks posts $((ranks * 17)) 10
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
HECATE_PLUGINS=$work OMPI_COMM_WORLD_SIZE=2 "$program" posts >out.txt 2>err.txt
[ $? -ne 0 ] && grep -qE 'not built|sees one' err.txt || fail "no MPI: said: $(cat err.txt)"

# srun says how many processes a step has; a batch script is one process, whatever its job has been granted.
SLURM_STEP_NUM_TASKS=2 "$program" posts >out.txt 2>err.txt
[ $? -ne 0 ] && grep -qE 'not built|srun started 2 processes.*or srun --mpi=pmi' err.txt ||
  fail "srun without PMI: said: $(cat err.txt)"
if [ "$n_run" -gt 0 ]; then
  SLURM_PROCID=0 SLURM_NTASKS=4 "$program" posts 1 2 >out.txt 2>err.txt &&
    grep -qx 'passed on 1 ranks' out.txt || fail "batch script of Slurm: said: $(cat err.txt)"
fi

[ "$n_run" -gt 0 ] || [ "$failures" -gt 0 ] || exit 77
[ "$failures" -eq 0 ]
