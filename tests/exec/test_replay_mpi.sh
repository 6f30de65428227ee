#!/usr/bin/env bash
# Every policy replayed under the mpirun of Open MPI and of MPICH on 1, 2, 3, 4 and 8 ranks: program_replay.c.
set -u
build=$1
program=$build/program_replay
failures=0 n_run=0
sample=$(cd "$(dirname "$0")/../.." && pwd)/traces/sample-synthetic.jsonl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader OMPI_MCA_oob_tcp_if_include=lo
export OMPI_MCA_plm_rsh_agent=/bin/false
unset HECATE_PLUGINS HECATE_MPI_UNIT

for kind in openmpi mpich; do
  launcher=mpirun.$kind
  if ! command -v "$launcher" >/dev/null; then
    echo "SKIPPED replay_mpi ($kind): $launcher is not installed"
    continue
  fi
  if [ ! -e "$build/hecate-mpi-$kind.so" ]; then
    echo "SKIPPED replay_mpi ($kind): not built, no compiler of this MPI was found by cmake"
    continue
  fi
  for ranks in 1 2 3 4 8; do
    n_run=$((n_run + 1))
    said=$(timeout -k 5 300 "$launcher" -n $ranks "$program" $((ranks * 1000)) $((ranks < 8 ? 6 : 3)) 2>&1 </dev/null)
    rc=$?
    [ $rc = 0 ] && grep -qx "passed on $ranks ranks" <<<"$said" && continue
    echo "FAILED: $launcher -n $ranks: exit $rc: $said"
    failures=$((failures + 1))
  done
  # Rank 0 alone cannot start: the others, which wait for it already, are not left waiting.
  trace=$(dirname "$0")/../../traces/sample-synthetic.jsonl
  cannot_start() {
    said=$(timeout -k 5 300 "$launcher" -n 2 "$build/hecate-run" "$@" no-such-folder/x --backend mpi 2>&1 </dev/null)
    rc=$?
    [ $rc = 2 ] && grep -q '^hecate-run.*no-such-folder/x: expected' <<<"$said" && return
    echo "FAILED: $launcher -n 2 hecate-run $* no-such-folder/x: exit $rc: $said"
    failures=$((failures + 1))
  }
  cannot_start "$trace" --steps 2 --tokens 16 --policy ep --out
  cannot_start train --text "$trace" --steps 2 --record
  # More ranks than cores: said on stderr and beside the numbers, as the other backend does.
  ranks=$(($(nproc) + 1))
  [ $ranks -le 16 ] || continue
  timeout -k 5 300 "$launcher" -n $ranks "$build/hecate-run" "$sample" --backend mpi --policy ep --steps 2 \
    >"$work/out" 2>"$work/err" </dev/null
  if ! grep -q "times are of $ranks ranks on $((ranks - 1)) core" "$work/err" ||
    ! grep -q "fewer cores than ranks" "$work/out"; then
    echo "FAILED: $launcher -n $ranks says nothing of too few cores: $(head -c 500 "$work/err")"
    failures=$((failures + 1))
  fi
done
[ "$n_run" -gt 0 ] || [ "$failures" -gt 0 ] || exit 77
[ "$failures" -eq 0 ]
