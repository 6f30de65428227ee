#!/bin/bash
# hecate-sim recommend against every layout of small jobs: a sweep simulates them all under the loads, with every micro-batch,
# recomputation, ZeRO level and policy. What is recommended may be 2 % slower than the fastest, with a policy and without.
source "$(dirname "$0")/../support/tool.sh"
sim=$build/hecate-sim
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 0; }

synth() { "$build/hecate-trace" synth --source-ranks 4 --tokens 1024 --iterations 10 --layers 2 "$@" >/dev/null || fail "synth $*"; }
synth --workload hot-expert-set --hot-share 0.6 --experts 8 --out hot.jsonl
synth --workload lognormal --experts 8 --out lognormal.jsonl
synth --workload lognormal --sigma 1.5 --experts 32 --top-k 4 --out skewed.jsonl
synth --workload zipf --exponent 0.8 --experts 64 --top-k 8 --out zipf.jsonl

cat >regret.py <<'END'
import itertools, json, subprocess, sys
sim, trace, model, layers, heads, experts, cluster, batch, micro, zero, recipe, names, uneven = sys.argv[1:]  # micro, zero: 0: it is searched
layers, heads, experts, batch, micro, zero = int(layers), int(heads), int(experts), int(batch), int(micro), int(zero)
uneven = uneven == "uneven"
nodes, near = (int(n) for n in cluster.split()[0].split("x"))
gpus, policies = nodes * near, names.split(",")

def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]

def even(parts):
    return parts <= layers and (layers % parts == 0 or (layers + 2) % parts == 0)

def splits(parts):  # even, or with a shorter last part
    yield ""
    for last in range(max(0, layers // parts - 3), layers // parts if parts > 1 and uneven else 0):
        each, longer = divmod(layers - last, parts - 1)
        yield ":" + ",".join([str(each)] * (parts - 1 - longer) + [str(each + 1)] * longer + [str(last)])

def layouts():
    for tp, pp, etp in itertools.product((1, 2, 4, 8), divisors(gpus), (1, 2, 4, 8)):
        stage = gpus // pp
        if tp > near or etp > near or stage % tp or heads % tp or pp > layers:
            continue
        for ep in divisors(experts):
            if stage % (ep * etp) == 0:
                for vpp in range(1, 13 if pp > 1 else 2):
                    for split in splits(pp * vpp) if vpp == 1 or even(pp * vpp) else []:
                        yield f"tp={tp} pp={pp}{split} vpp={vpp} ep={ep} etp={etp}"

job = {"trace": trace, "model": model, "cluster": cluster, "global_batch": batch, "recipe": recipe}
rows = []
for level in [zero] if zero else [1, 3]:
    spec = dict(job, policy=policies, layout=[t for t in layouts() if level == 1 or " pp=1 " in t], micro_batch=[micro] if micro else [1, 2, 4],
                zero=[level], recompute=["none", "norm+act", "norm+moe", "full"])
    json.dump(spec, open("spec.json", "w"))
    subprocess.run([sim, "sweep", "spec.json", "--out", "all"], check=True, stdout=subprocess.DEVNULL)
    rows += [r for r in json.load(open("all.json"))["rows"] if "error" not in r and r["memory"]["fits"]]
r = json.loads(subprocess.run([sim, "recommend", trace, "--model", model, "--cluster", cluster, "--global-batch", str(batch),
                               "--recipe", recipe + (f" zero={zero}" if zero else ""), "--policy", ",".join(policies), "--json",
                               *(["--micro-batch", str(micro)] if micro else [])], check=True, capture_output=True).stdout)

def simulated(choice):  # by a run of its own
    layout = choice["layout"] if "=" in choice["layout"] else "ep=1"
    run = json.loads(subprocess.run([sim, trace, "--model", model, "--cluster", cluster, "--global-batch", str(batch), "--layout", layout,
                                     "--micro-batch", str(choice["micro_batch"]), "--recipe", choice["recipe"], "--policy",
                                     ",".join(policies), "--json"], check=True, capture_output=True).stdout)
    return next(p["step_s"] for p in run["policies"] if p["name"] == choice["policy"])

for choice, of in ((r["ranked"][0], rows), (r["without_policy"], [row for row in rows if row["policy"] == "ep"])):
    best, got = min(of, key=lambda row: row["step_s"]), simulated(choice)
    regret = got / best["step_s"] - 1
    s = r["searched"]
    print(f"{model}, {trace}: {len(rows)} rows fit; {choice['layout']} with {choice['policy']} is {100 * regret:.2f} % slower than",
          best["layout"], best["micro_batch"], best["recompute"], best["zero"], best["policy"], f"({best['step_s']:.4f} s);", s)
    if regret > 0.02 or abs(choice["step_s"] / got - 1) > 1e-9:
        sys.exit(f"regret {regret:.4f}, {choice['step_s']} against {got}")
END
regret() { python3 regret.py "$sim" "$@" "${uneven:-}" || fail "regret: $*"; }

alltoall="precision=bf16 dispatcher=alltoall graph=full grads=bf16"
charlm=$source_dir/traces/charlm-e16-noaux.jsonl.gz # recorded
regret hot.jsonl mixtral-8x7b 32 32 8 "2x8 gpu=h100 nics=8" 32 1 1 "$alltoall" ep,eplb,hecate,fsdp
regret lognormal.jsonl gpt2-xl-moe 48 25 8 "2x4 gpu=h100 nics=1" 32 0 1 "$alltoall" ep,hecate,fsdp,micromoe
uneven=uneven regret skewed.jsonl gpt-oss-20b 24 64 32 "1x8 gpu=h100" 16 1 1 "$alltoall overlap=on" ep,eplb,hecate,lplb
regret zipf.jsonl olmoe 16 16 64 "2x4 gpu=h100 nics=4" 32 2 0 "precision=bf16 dispatcher=deepep graph=none grads=bf16" ep,eplb,hecate,fsdp
regret "$charlm" phi-3.5-moe 32 32 16 "2x4 gpu=b200 nics=4" 32 0 1 "$alltoall" ep,smartmoe,laer,eplb

[ $failures -eq 0 ] || exit 1
echo "all command-line tests passed"
