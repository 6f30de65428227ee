#!/bin/bash
# hecate-sim recommend on generated small jobs: with fewer policies, one micro-batch or a stated recipe it finds nothing faster than
# without; with a faster network nothing slower.
source "$(dirname "$0")/../support/tool.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 0; }

cat >jobs.py <<'END'
import itertools, json, os, random, subprocess, sys
build, N_JOBS = sys.argv[1], 10 * int(os.environ.get("HECATE_TEST_CASES", "1"))
POLICIES = ["ep", "eplb", "hecate", "fsdp", "micromoe", "lplb"]
MODELS = [("mixtral-8x7b", 8, 2), ("gpt2-xl-moe", 8, 2), ("olmoe", 64, 8), ("gpt-oss-20b", 32, 4)]
LOADS = [["zipf", "--exponent", "0.3"], ["zipf", "--exponent", "0.8"], ["lognormal", "--sigma", "0.5"], ["lognormal", "--sigma", "1.5"],
         ["hot-expert-set"]]
RECIPES = ["dispatcher=alltoall", "dispatcher=deepep", "recompute=none", "recompute=norm+act", "recompute=full", "zero=1", "zero=3",
           "zero=3 recompute=full dispatcher=alltoall"]
choose = random.Random(7)

def recommended(job, nic, policies, *how):
    trace, model, nodes, near, gpu, nics, batch, seq = job
    run = subprocess.run([build + "/hecate-sim", "recommend", trace, "--model", model, "--cluster", f"{nodes}x{near} gpu={gpu} nics={nics} nic={nic}G",
                          "--global-batch", str(batch), "--seq", str(seq), "--policy", ",".join(policies), "--json", *how],
                         capture_output=True, text=True)
    if run.returncode == 1 and "fits into the memory" in run.stderr or run.returncode == 2 and "no layout divides" in run.stderr:
        return None  # nothing is left
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)["ranked"][0]

def generate(i):
    model, experts, top_k = choose.choice(MODELS)
    nodes, near = choose.choice([(1, 8), (2, 4), (1, 4)])
    job = (f"{i}.jsonl", model, nodes, near, choose.choice(["h100", "b200", "h200"]), choose.choice([1, near]), choose.choice([16, 32, 64]),
           choose.choice([1024, 2048]))
    subprocess.run([build + "/hecate-trace", "synth", "--workload", *choose.choice(LOADS), "--experts", str(experts), "--top-k", str(top_k),
                    "--layers", "2", "--iterations", "8", "--source-ranks", "4", "--tokens", "1024", "--seed", str(i), "--out", job[0]],
                   check=True, capture_output=True)
    return job

jobs = compared = failures = 0
for i in itertools.count():
    job = generate(i)
    free = recommended(job, 50, POLICIES)
    if not free:
        continue
    restricted = [("fewer policies", ["ep", *choose.sample(POLICIES[1:], 2)], [])]
    restricted += [(f"micro-batch {n}", POLICIES, ["--micro-batch", str(n)]) for n in choose.sample([1, 2, 4, 8], 2)]
    restricted += [(recipe, POLICIES, ["--recipe", recipe]) for recipe in choose.sample(RECIPES, 3)]
    for name, policies, how in restricted:
        found = recommended(job, 50, policies, *how)
        compared += found is not None
        if found and found["step_s"] < free["step_s"]:
            print(f"{job}, {name}: {found['layout']} {found['micro_batch']} {found['policy']} takes {found['step_s']}, unrestricted {free}")
            failures += 1
    fast = recommended(job, 100, POLICIES)
    if fast["step_s"] > free["step_s"]:
        print(f"{job}, a faster network: {fast['step_s']} with {fast}, slower one {free}")
        failures += 1
    jobs += 1
    if jobs == N_JOBS:
        break
print(f"{jobs} jobs, {compared} restrictions, {failures} failures")
sys.exit(failures > 0)
END
python3 jobs.py "$build" || fail "a restriction finds more, or a faster network less"

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
