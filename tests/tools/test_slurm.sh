#!/bin/bash
# tools/hosts-slurm: bad words are told, exit codes come through, nothing is left after kill -9. On its Slurm. A sweep as a job array
# with two killed tasks has the bytes of a single run. Ranks under srun compute what one rank does
# (validate/hosts/slurm.sh).
source "$(dirname "$0")/../support/tool.sh"
tool=("$source_dir/tools/hosts-slurm")
unset SLURM_CONF

refuses 2 "expected LINE -- COMMAND..., found 1 words" "2x1 nic=10M"
refuses 2 "expected LINE -- COMMAND..., found 2 words" "2x1 nic=10M" hostname
refuses 2 'expected LINE -- COMMAND, found "--mpi"' --mpi openmpi
"${tool[@]}" --help | grep -q "Exit codes" || fail "no help"
"$source_dir/validate/hosts/slurm.sh" "$build" 100 >out.txt 2>err.txt
[ $? = 2 ] && grep -q "a multiple of 8" err.txt || fail "100 rows: $(cat err.txt)"

"${tool[@]}" "2x1 nic=10M" -- sh -c 'sinfo -h -o %D; exit 3' >out.txt 2>err.txt </dev/null
code=$?
if [ $code = 77 ]; then
  echo "SKIPPED slurm: $(sed 's/^hosts-slurm: //' err.txt): that a sweep as a job array survives, and srun"
  [ $failures -eq 0 ] || exit 1
  exit 77
fi
[ $code = 3 ] || fail "exit code $code, expected that of the command: $(cat err.txt)"
[ "$(cat out.txt)" = 2 ] || fail "not two nodes: $(cat out.txt)"
refuses 2 "HOSTSxRANKS first" "two nic=10M" -- true
refuses 2 "expected nic=RATE" "2x1" -- true

# ---- Nothing is left ----
# Processes of a namespace of processes, of which the command tells the name.
left() { readlink /proc/[0-9]*/ns/pid 2>/dev/null | grep -cxF "$space"; }
mkfifo started
for signal in KILL TERM; do
  "${tool[@]}" "2x1 nic=10M" -- sh -c "readlink /proc/self/ns/pid >$work/started; exec sleep 600" 2>err.txt </dev/null &
  run=$!
  read -r -t 120 space <started || fail "the command does not start: $(cat err.txt)"
  [ "$(left)" -ge 4 ] || fail "$(left) processes, expected munged, slurmctld and two slurmd at least"
  kill -$signal $run
  wait $run 2>/dev/null
  for ((k = 0; k < 600; k++)); do
    [ "$(left)" != 0 ] || break
    sleep 0.1
  done
  [ "$(left)" = 0 ] || fail "kill -$signal leaves $(left) processes"
done

# ---- What a user runs first ----
if [ -e "$build/hecate-mpi-openmpi.so" ] && command -v mpirun.openmpi >/dev/null; then
  "${tool[@]}" "2x1 nic=100M" -- salloc -n 2 "$source_dir/tools/cluster-check" --build "$build" --steps check,exchange \
    --out "$work/found" >out.txt 2>err.txt </dev/null || fail "cluster-check: $(tail -n 5 out.txt err.txt)"
  has "| hosts | passed | 2 x 1 ranks, started by srun --mpi=pmix |" found/page.md
  has "2 policies on 2 ranks compute what one rank computes" found/page.md
  has "every byte right" found/page.md
fi

# ---- A sweep, and ranks ----
"$source_dir/validate/hosts/slurm.sh" "$build" 96 >out.txt 2>err.txt </dev/null || fail "validate/hosts/slurm.sh: $(cat out.txt err.txt)"
has "the array's parts, merged"
[ "$(grep -c 'the same bytes' out.txt)" = 2 ] || fail "not twice the same bytes: $(cat out.txt)"
[ "$(grep -cE 'killed in its first run \| [1-9][0-9]* of [0-9]* rows taken over' out.txt)" = 2 ] || fail "two tasks: $(cat out.txt)"
sed -n 's/^| \(srun.*\) | SKIPPED: \(.*\) |$/SKIPPED slurm: \1: \2/p' out.txt

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
