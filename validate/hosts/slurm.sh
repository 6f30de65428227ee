#!/usr/bin/env bash
# A sweep as a job array of a real Slurm, and ranks under srun. One task of the array is queued again, another loses its
# host.
#   validate/hosts/slurm.sh BUILD [ROWS]     ROWS: of the sweep, a multiple of 8 (default 2000, some three minutes on two cores)
# Prints Markdown. Exit code 1: something differs; 77: no rights or no Slurm here. Needs what tools/hosts-slurm needs.
set -u
self=$(readlink -f -- "${BASH_SOURCE[0]}")
root=$(dirname -- "$self")/../..
failed=0
wrong() {
  echo "WRONG: $*"
  failed=1
}
row() { printf '| %s | %s |\n' "$@"; }

# ---- On host 0 ----

# 4 policies and 2 clusters, the rest are numbers of tokens.
spec() {
  printf '{"trace": {"synth": {"workload": "lognormal", "top_k": 2, "layers": 4, "experts": 32, "source_ranks": 16, "tokens": 1024,
    "iterations": 12, "seed": 7}}, "policy": ["ep", "eplb", "hecate", "fastermoe"], "ranks": 16, "tokens": [%s],
    "cluster": ["p4d-4x8", "2x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G"]}\n' "$(seq -s, 1000 $((999 + $1 / 8)))"
}

# The job script is the one of the guide, word for word. Its hecate-sim is this one. Tasks 2 and 3 stop in their first
# run once rows are in the journal. So they cannot be done before they are killed.
job_script() {
  mkdir bin
  PATH=$work/bin:$PATH
  cat >bin/hecate-sim <<SIM
#!/bin/bash
"$build/hecate-sim" "\$@" --threads 1 &
if [ \$SLURM_ARRAY_TASK_ID -ge 2 ] && [ -z "\${SLURM_RESTART_COUNT:-}" ]; then
  until [ "\$(wc -l <result.part-\$SLURM_ARRAY_TASK_ID-of-4.journal)" -gt $((rows / 16)) ]; do sleep 0.01; done 2>/dev/null
  kill -STOP \$!
  hostname >stopped-\$SLURM_ARRAY_TASK_ID
fi
wait \$!
SIM
  chmod +x bin/hecate-sim
  awk '/^```/ { if (array) exit; block = ""; array = 0; next } { block = block $0 "\n" } /^#SBATCH --array/ { array = 1 }
    END { printf "%s", block }' "$root/docs/clusters-real.md" >job.sh
  grep -q 'hecate-sim sweep' job.sh || wrong "docs/clusters-real.md has no job script of an array"
}

await() {
  local k
  for ((k = 0; k < 18000; k++)); do
    "$@" && return
    sleep 0.1
  done
  wrong "not in half an hour: $*"
  tail -n 5 task-*.log /run/slurm/controller.log 2>/dev/null
  exit 1
}
# Slurm holds back a task that it queues again for two minutes; an update of its start time lets it go. A squeue that the
# controller of a busy machine does not answer lists nothing, too.
all_done() {
  local task left
  for task in $(squeue -hr -t pending -o %i); do scontrol update "JobId=$task" StartTime=now; done
  left=$(squeue -h) && [ -z "$left" ]
}

# Task 2 is queued again, as a cluster does for a job of more weight. Task 3 loses its host.
array() {
  local began=$SECONDS job victim k
  job_script
  job=$(sbatch --parsable job.sh) || exit 1
  await test -s stopped-2
  await test -s stopped-3
  victim=$(cat stopped-3)
  if [ "$victim" = host0 ]; then wrong "task 3 is on the controller's host"; fi
  scontrol requeue "${job}_2"
  "$root/tools/hosts" kill "${victim#host}"
  await all_done
  for k in 2 3; do
    row "task $k, killed in its first run" "$(grep -ho '[0-9]* of [0-9]* rows taken over' task-$k.log || echo "NOTHING taken over")"
    grep -q "rows taken over" task-$k.log || wrong "task $k: $(cat task-$k.log)"
  done
  row "array of 4 tasks" "$((SECONDS - began)) s"
  same "the array's parts" result
}

# same WHAT NAME: the parts of the output NAME, merged, are the bytes of the single run.
same() {
  "$build/hecate-sim" sweep merge "$2".part-*-of-4 --out "$2-merged" >/dev/null || wrong "merge of $2"
  if cmp -s single.csv "$2-merged.csv" && cmp -s single.json "$2-merged.json"; then
    row "$1, merged: $(wc -c <single.csv) bytes of CSV and $(wc -c <single.json) of JSON" "the same bytes"
  else
    row "$1, merged" "OTHER BYTES"
    failed=1
  fi
}

ranks() {
  local mpi=$1 plugin=$2 said
  if [ ! -e "$build/hecate-mpi-$plugin.so" ] || ! command -v "mpirun.$plugin" >/dev/null; then
    row "srun --mpi=$mpi hecate-run" "SKIPPED: $plugin is not installed, or no plug-in for it was built"
    return
  fi
  said=$(timeout -k 5 200 srun --mpi="$mpi" -N 3 -n 3 "$build/hecate-run" "$root/traces/sample-synthetic.jsonl" --backend mpi \
    --policy ep,hecate --steps 2 --tokens 16 --check 2>&1 </dev/null)
  if [ "$(grep -c ' passed ' <<<"$said")" = 2 ]; then
    row "srun --mpi=$mpi -N 3 hecate-run --backend mpi --check" "passed, with $plugin"
  else
    wrong "srun --mpi=$mpi: $(tail -n 5 <<<"$said")"
  fi
}

on_host_0() {
  local began=$SECONDS
  printf '| what | result |\n|---|---|\n'
  row "Slurm, nodes" "$(srun --version), $(sinfo -h -o %D)"
  spec "$rows" >spec.json
  "$build/hecate-sim" sweep spec.json --out single >/dev/null || exit 1
  row "sweep of $(($(wc -l <single.csv) - 1)) rows as one process" "$((SECONDS - began)) s"
  array
  srun -n 4 --overcommit "$build/hecate-sim" sweep spec.json --out step --threads 1 >step.log || wrong "a sweep under srun"
  same "srun -n 4 hecate-sim sweep" step
  ranks pmix openmpi
  ranks pmi2 mpich
  exit $failed
}

# ---- Command line ----

build=$(cd "${1:?expected the build folder}" && pwd) || exit 2
rows=${2:-2000}
[[ $rows =~ ^[1-9][0-9]*$ && $((rows % 8)) = 0 && $rows -ge 64 ]] || {
  echo "slurm: ROWS: expected a multiple of 8, at least 64, found \"$rows\"" >&2
  exit 2
}
if [ "${3:-}" = on-host-0 ]; then
  work=$PWD
  on_host_0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
cd "$work" || exit 1
"$root/tools/hosts-slurm" "4x2 nic=100M" -- "$self" "$build" "$rows" on-host-0 </dev/null &
wait $!
