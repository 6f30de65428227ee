#!/bin/bash
# Out of memory: every allocation of every command fails once (fail_allocations.c says what must hold then).
source "$(dirname "$0")/../support/tool.sh"
fail_allocations=$build/libhec_fail_allocations.so
[ -e "$fail_allocations" ] && getconf GNU_LIBC_VERSION >/dev/null 2>&1 || {
  echo "SKIPPED memory.commands: needs glibc and a build without sanitizers"
  exit 77
}
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE SLURM_PROCID SLURM_STEP_NUM_TASKS
in=$work/in
mkdir "$in" "$work/runs"
sim=$build/hecate-sim trace=$build/hecate-trace validate=$build/hecate-validate run=$build/hecate-run
box="1x2 nvlink=300G flops=1T mem=40G"
synth=(synth --workload zipf --layers 2 --experts 4 --top-k 2 --source-ranks 2 --tokens 8 --iterations 2)
n_allocations=0

# Functions are bound before the runs: each is a process forked from there.
survives() { # COMMAND...
  env LD_BIND_NOW=1 TMPDIR="$work/runs" HEC_FAIL_ALLOCATIONS=1 LD_PRELOAD="$fail_allocations" "$@" >out.txt 2>err.txt ||
    fail "$*: $(head -c 2000 out.txt err.txt)"
  [ -z "$(ls -A "$work/runs")" ] || fail "$*: left $(find "$work/runs" | head)"
  n_allocations=$((n_allocations + $(sed -n 's/^\([0-9]*\) allocations.*/\1/p' out.txt | grep . || echo 0)))
}

cd "$in" || exit 1
"$trace" "${synth[@]}" --out t.jsonl
gzip -k t.jsonl
"$sim" --preset tiny >model.json
"$sim" --preset p4d-4x8 >cluster.json
printf '0 5\n7 0\n' >matrix.txt
cat >spec.json <<END
{"trace": ["t.jsonl.gz", {"synth": {"workload": "zipf", "layers": 2, "experts": 4, "top_k": 2, "source_ranks": 2,
           "tokens": 8, "iterations": 2}}],
 "model": "model.json", "cluster": "$box", "policy": "hecate", "schedule": "published", "ranks": [2, 64]}
END
cat >gpu.json <<END
{"trace": "t.jsonl.gz", "model": "model.json", "cluster": "cluster.json", "policy": "ep", "ranks": 2}
END
for i in 0 1; do "$sim" sweep spec.json --shard $i/2 --out p >/dev/null; done
cd "$work" || exit 1

survives "$sim" "$in/t.jsonl.gz" --model "$in/model.json" --cluster "$in/cluster.json" --policy ep,hecate --ranks 2
# With one thread the cost is linear in what a command does until it writes (fail_allocations.c), so this runs all policies,
# schedules, and laws. What several threads do: the command above and a sweep.
survives "$sim" "$in/t.jsonl" --cluster "$box" --model tiny --threads 1
survives "$sim" "$in/t.jsonl" --policy ep,hecate --cluster "$box" --model tiny --threads 1 --out o
survives "$sim" "$in/t.jsonl" --policy ep,hecate --cluster "$box" --model tiny --threads 1 --out o --timeline-format chakra
survives "$sim" --list
survives "$sim" --help
survives "$sim" plan "$in/t.jsonl" --policy hecate --iter 1 --layer 0 --cluster "$box" --json
survives "$sim" plan "$in/t.jsonl" --policy hecate --iter 1 --cluster "$box" --export vllm-ascend --out map.json
survives "$sim" flows "$source_dir/tests/sim/cases/incast.json"
survives "$sim" flows "$in/matrix.txt" --cluster "$box"
survives "$sim" breakeven --cluster "$box" --model tiny
survives "$sim" sweep "$in/spec.json" --count
survives "$sim" sweep "$in/spec.json" --threads 1 --shard 0/2 --out s # rows of the journal are those of the part
survives "$sim" sweep "$in/spec.json" --threads 2 --out s --report s.html
survives "$sim" sweep "$in/gpu.json" --threads 1 --out s # a preset of the GPU is read, which takes most allocations
survives "$sim" sweep merge "$in/p.part-0-of-2" "$in/p.part-1-of-2" --out s
survives "$trace" "${synth[@]}" --out t.jsonl.gz
survives "$trace" synth --workload lognormal --drift 1:0.9 --layers 2 --experts 8 --top-k 2 --source-ranks 2 --tokens 64 \
  --iterations 4 --out t.jsonl
survives "$trace" info "$in/t.jsonl" --json
survives "$trace" convert "$in/t.jsonl" --out t.json.gz
for folder in "$source_dir"/tests/traces/import/*/; do # every importer
  read -ra options <"$folder/options"
  cp -r "$folder" "$in/import"
  rm "$in/import/options" "$in/import/expected.jsonl"
  survives "$trace" import "$in/import" "${options[@]}" --name x --out o.jsonl
  rm -r "$in/import"
done
survives "$trace" import --list
export HECATE_BLAS=gsl # OpenBLAS writes to memory that it did not get
survives "$run" "$in/t.jsonl" --ranks 2 --steps 1 --tokens 8 --policy ep # in the launcher and in the ranks
survives "$run" "$in/t.jsonl" --ranks 2 --steps 1 --tokens 8 --policy hecate --json
survives "$run" alltoallv "$in/matrix.txt" --iterations 1 --warmup 0
survives "$validate" hardware --cases "$source_dir/tests/validate/cases/hardware_law.json" --out report.md

[ $failures -eq 0 ] || exit 1
echo "memory: all passed, $n_allocations allocations"
