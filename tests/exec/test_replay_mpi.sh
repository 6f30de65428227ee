#!/usr/bin/env bash
# Every policy replayed under the mpirun of Open MPI and of MPICH on 1, 2, 3, 4 and 8 ranks: program_replay.c. Pipeline stages likewise.
source "$(dirname "$0")/../support/tool.sh"
source "$source_dir/tests/support/mpi.sh"
n_run=0

for kind in openmpi mpich; do
  has_mpi $kind || continue
  for ranks in 1 2 3 4 8; do
    n_run=$((n_run + 1))
    said=$(timeout -k 5 300 "$launcher" -n $ranks "$build/program_replay" $((ranks * 1000)) $((ranks < 8 ? 4 : 2)) 2>&1 </dev/null)
    rc=$?
    [ $rc = 0 ] && grep -qx "passed on $ranks ranks" <<<"$said" && continue
    fail "$launcher -n $ranks: exit $rc: $said"
  done
  # Pipeline stages: 4 ranks as pp=2 ep=2, plain and interleaved, 8 as pp=2 ep=2 dp=2 with ZeRO-1. Ranks are the launcher's.
  for row in "4 pp=2_ep=2 ep,eplb" "4 pp=2_vpp=2_ep=2 ep" "8 pp=2_ep=2 ep --zero 1"; do
    read -r ranks layout policies options <<<"$row"
    n_run=$((n_run + 1))
    # shellcheck disable=SC2086
    timeout -k 5 300 "$launcher" -n "$ranks" "$build/hecate-run" "$sample" --layout "${layout//_/ }" --backend mpi --tokens 16 \
      --steps 2 --policy "$policies" $options --check --json >out.txt 2>err.txt </dev/null || fail "$launcher: $row: $(head -c 300 err.txt)"
    expect out.txt 'd["backend"], d["layout"]["ranks"], {p["check"]["passed"] for p in d["policies"]}' "('mpi', $ranks, {True})"
  done
  timeout -k 5 300 "$launcher" -n 3 "$build/hecate-run" "$sample" --layout "pp=2" --backend mpi >out.txt 2>err.txt </dev/null
  rc=$?
  { [ $rc = 2 ] && grep -q 'pp=1 would fit' err.txt; } || fail "$launcher -n 3, pp=2: exit $rc: $(head -c 300 err.txt)"
  # Rank 0 alone cannot start: the others, which wait for it already, are not left waiting.
  cannot_start() {
    said=$(timeout -k 5 300 "$launcher" -n 2 "$build/hecate-run" "$@" no-such-folder/x --backend mpi 2>&1 </dev/null)
    rc=$?
    [ $rc = 2 ] && grep -q '^hecate-run.*no-such-folder/x: expected' <<<"$said" && return
    fail "$launcher -n 2 hecate-run $* no-such-folder/x: exit $rc: $said"
  }
  cannot_start "$sample" --steps 2 --tokens 16 --policy ep --out
  cannot_start train --text "$sample" --steps 2 --record
  # More ranks than cores: said on stderr and beside the numbers, as the other backend does.
  ranks=$(($(nproc) + 1))
  [ $ranks -le 16 ] || continue
  timeout -k 5 300 "$launcher" -n $ranks "$build/hecate-run" "$sample" --backend mpi --policy ep --steps 2 --tokens 16 \
    >out.txt 2>err.txt </dev/null
  has "times are of $ranks ranks on $((ranks - 1)) core" err.txt
  has "fewer cores than ranks"
done
[ "$n_run" -gt 0 ] || [ "$failures" -gt 0 ] || exit 77
[ "$failures" -eq 0 ]
