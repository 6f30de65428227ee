#!/usr/bin/env python3
"""Training iterations across hosts: predicted by every network law, measured under MPI.

    validate/hosts/iterations.py BUILD [--over openmpi] [--rounds 3] [--seed 1] [--only WORD] [--stamp TEXT]

Hosts are those of exchanges.py, with NICs of 1 MB/s: an iteration takes seconds, of which computing is below 1 % in the median. Rate and
latency of a NIC are fitted to three bare exchanges of two hosts. Nothing is fitted to an iteration, a load, an uplink or a slow
NIC. hecate-run executes each policy, hecate-sim predicts the same iterations. That both move the same bytes is verified.
Prints Markdown. Exit codes: 0 done, 1 a run failed, 2 bad usage, 77 no rights here."""
import argparse
import gzip
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile

import exchanges as x

x.RATE = 1e6  # with 4 MB/s and 40 processes on two cores, an iteration took up to 15 % longer than alone
TOKENS, LAYERS, STEPS = 128, 2, 5  # a rank's; records of the trace, the first warms up
# Small experts: copies of some are worth it at these rates. Numbers have 4 bytes, as the executor's.
MODEL = {"name": "hosts", "layers": LAYERS, "d_model": 128, "d_ffn": 16, "ffn_matrices": 3, "experts": 16, "top_k": 2, "heads": 4,
         "seq_len": TOKENS, "dtype_bytes": 4, "grad_bytes": 4, "optimizer_bytes": 8}
DEVICE = "flops=40G eff=1 hbm=10G mem=8G nvlink=1G tile=8"  # of a core; computing is so short that it need not be right
JOB = ["--ranks", str(x.N), "--tokens", str(TOKENS), "--warmup", "1", "--t", "3"]
SERIAL = "ep ep-balanced fastermoe smartmoe flexmoe lplb symi"
OVERLAPPED = "fsdp prophet hecate laer joint"
# load, cluster, phase, schedule, policies: plans of those under slow NICs do not depend on the links. Forward under the uplink is
# without an all-reduce.
CASES = [("skewed", "flat", "train", "published", f"{SERIAL} {OVERLAPPED}"), ("skewed", "flat", "train", "pipemoe", "ep flexmoe"),
         ("recorded", "flat", "train", "published", f"ep fastermoe smartmoe lplb {OVERLAPPED}"),
         ("skewed", "uplink", "train", "published", f"{SERIAL} {OVERLAPPED}"),
         ("skewed", "uplink", "forward", "published", f"{SERIAL} {OVERLAPPED}"),
         ("skewed", "slow nic_in", "train", "published", "ep ep-balanced smartmoe flexmoe lplb fsdp symi laer"),
         ("skewed", "slow nic_out", "train", "published", "ep ep-balanced smartmoe flexmoe lplb fsdp symi laer"),
         ("skewed", "half rate", "train", "published", "ep lplb fsdp laer")]


# ---- Loads ----

def shorten(source, target):
    """The first layers and records of a trace."""
    with (gzip.open if source.suffix == ".gz" else open)(source, "rt") as lines:
        header = json.loads(next(lines)) | {"layers": LAYERS}
        header.pop("transitions", None)
        records = [json.loads(next(lines)) for _ in range(STEPS)]
    target.write_text("".join(json.dumps(r) + "\n" for r in [header, *(r | {"layers": r["layers"][:LAYERS]} for r in records)]))


def make_loads(build, folder, seed):
    made = folder / "made.jsonl"
    subprocess.run([build / "hecate-trace", "synth", "--workload", "lognormal", "--sigma", "1.5", "--drift", "1:0.96,5:0.89",
                    "--layers", str(LAYERS), "--experts", "16", "--top-k", "2", "--source-ranks", str(x.N), "--tokens", str(TOKENS),
                    "--iterations", "12", "--seed", str(seed + 4), "--out", made], check=True, stdout=subprocess.DEVNULL)
    shorten(made, folder / "skewed.jsonl")
    shorten(x.ROOT / "traces/charlm-e16-noaux.jsonl.gz", folder / "recorded.jsonl")
    (folder / "model.json").write_text(json.dumps(MODEL))


# ---- Prediction, measurement ----

def line_of(cluster, rate, latency):
    extra, share, _ = x.CLUSTERS[cluster]
    return f"{x.N}x1 nic={rate * share:.0f}@{1e6 * latency:.3f}us {extra.format(rate=f'{rate:.0f}')} {DEVICE}"


def predict(a, case, fitted, law, factor=1.0):
    """{policy: (seconds, bytes)}; plans are made for the fitted rates, whatever the law"""
    load, cluster, phase, schedule, policies = case
    slow = x.CLUSTERS[cluster][2]
    words = [a.build / "hecate-sim", a.folder / f"{load}.jsonl", "--model", a.folder / "model.json", *JOB, "--policy",
             policies.replace(" ", ","), "--phase", phase, "--schedule", schedule, "--law", law, "--cluster", line_of(cluster, factor * fitted[0], fitted[1])]
    words += ["--slow", ",".join("link=" + one for one in slow)] if slow else []
    out = subprocess.run([*words, "--json"], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"iterations: hecate-sim: {out.stderr}")
    return {p["name"]: (p["iteration_s"]["median"], p["bytes"]) for p in json.loads(out.stdout)["policies"]}


def measure(a, mpi, case, policy, fitted):
    load, cluster, phase, schedule, _ = case
    found = mpi.run([a.build / "hecate-run", a.folder / f"{load}.jsonl", "--model", a.folder / "model.json", *JOB, "--steps", str(STEPS),
                     "--policy", policy, "--phase", phase, "--schedule", schedule, "--cluster", line_of(cluster, *fitted), "--backend", "mpi",
                     "--timeout", "120", "--json"], 300)
    return found["policies"][0]


def moves(found, predicted):
    return all(abs(found["bytes"][k] - n) <= 1 for k, n in predicted[1].items())


def rows_of(a, mpi, case, fitted):
    """Rounds over all policies, each in another order: whatever the machine does meanwhile hits all alike. `joint` prices its plans
    by the law: hecate-run by alpha_beta. Where another law plans otherwise, it predicts another program: no row."""
    load, cluster, phase, schedule, names = case
    names, seconds, draw = names.split(), {}, random.Random(a.seed)
    predicted = {law: predict(a, case, fitted, law) for law in x.LAWS}
    predicted |= {k: predict(a, case, fitted, "max_min", f) for k, f in x.CONTROLS.items()}
    for _ in range(a.rounds):
        for policy in draw.sample(names, len(names)):
            found = measure(a, mpi, case, policy, fitted)
            if not moves(found, predicted["alpha_beta"][policy]):
                sys.exit(f"iterations: {policy}, {cluster}: executed and predicted move different bytes: "
                         f"{found['bytes']}, {predicted['alpha_beta'][policy][1]}")
            seconds.setdefault(policy, []).append(found)
            print(f"{mpi.kind}: {policy}, {load}, {cluster}: {1e3 * found['iteration_s']['median']:.0f} ms, "
                  f"max_min {1e3 * predicted['max_min'][policy][0]:.0f}", file=sys.stderr)
    for policy in names:
        if not all(moves(seconds[policy][0], predicted[law][policy]) for law in x.LAWS):
            print(f"{mpi.kind}: {policy}, {load}, {cluster}: laws plan otherwise: no row", file=sys.stderr)
            continue
        each = [f["iteration_s"]["median"] for f in seconds[policy]]
        middle = statistics.median(each)
        yield {"case": f"{policy}{', ' + schedule if schedule != 'published' else ''}", "load": load,
               "cluster": cluster + (", forward" if phase == "forward" else ""),
               "measured": middle, "spread": (max(each) - min(each)) / middle,
               "compute": statistics.median(f["compute_s"] for f in seconds[policy]) / middle,
               **{column: predicted[column][policy][0] for column in predicted}}


def all_rows(a, over):
    rows, fitted, mpi = [], None, x.Mpi(a.build, over)
    for cluster in x.CLUSTERS:
        here = [c for c in CASES if c[1] == cluster and a.only in ", ".join(c[:4])]
        if not here and cluster != "flat":
            continue
        x.up(cluster)
        if cluster == "flat":
            fitted = x.fit({b: statistics.median(mpi.measure(x.pair(b), x.FIT_ROUNDS)) for b in x.PAIR_BYTES})
        for case in here:
            rows += rows_of(a, mpi, case, fitted)
    return rows, fitted


# ---- The report ----

def order(rows, column):
    """Of policies with the same load and cluster, measured more than 5 % apart: pairs predicted in that order."""
    right = n = 0
    for k, b in enumerate(rows):
        for c in rows[:k]:
            same = (b["load"], b["cluster"]) == (c["load"], c["cluster"])
            if same and abs(b["measured"] - c["measured"]) > 0.05 * min(b["measured"], c["measured"]):
                n += 1
                right += (b["measured"] > c["measured"]) == (b[column] > c[column])
    return f"{right} of {n}"


def report(over, rows, fitted, seed):
    rate, latency = fitted
    worst = x.quantile([x.error(r, "max_min") for r in rows], 0.9)
    seen = all(statistics.median(x.error(r, name) for r in rows) > worst for name in x.CONTROLS)
    print(f"\n## Over {over}\n\nFitted to exchanges of two hosts: {rate / 1e6:.3f} MB/s and {1e3 * latency:.2f} ms.")
    print(f"Cores: computing took {100 * statistics.median(r['compute'] for r in rows):.1f} % of an iteration (median; at most "
          f"{100 * max(r['compute'] for r in rows):.1f} %). Spread of the rounds: {100 * statistics.median(r['spread'] for r in rows):.1f} % "
          f"(median).\n")
    print("| law | median error | 90 % interval | p90 | worst | bias | pairs of policies in order |\n|---|---|---|---|---|---|---|")
    for name in [*x.LAWS, *x.CONTROLS]:
        print(f"| {name if name in x.LAWS else f'*max_min, {name}*'} | {x.summary(rows, name, seed, order)} |")
    print(f"\nNegative controls: a wrong rate is {'seen' if seen else 'NOT SEEN'}: the median error with it is "
          f"{'above' if seen else 'not above'} the p90 of max_min, {100 * worst:.1f} %.\n")
    print("| policy | load | cluster | measured, ms | spread | max_min | alpha_beta |\n|---|---|---|---|---|---|---|")
    for r in rows:
        cells = " | ".join(f"{100 * (r[law] / r['measured'] - 1):+.1f} %" for law in x.LAWS[:2])
        print(f"| {r['case']} | {r['load']} | {r['cluster']} | {1e3 * r['measured']:.0f} | {100 * r['spread']:.1f} % | {cells} |")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--over", default="openmpi")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="", help="loads, clusters and schedules that have this word, the fit aside")
    p.add_argument("--stamp", default="", help="date and commit")
    a = p.parse_args()
    a.build = a.build.resolve()
    a.over = a.over.split(",")
    if not set(a.over) <= {"openmpi", "mpich"}:
        p.error("--over: expected openmpi, mpich")
    return a


def main():
    a = arguments()
    if os.geteuid() != 0:
        print("iterations: expected root, who alone may make network namespaces", file=sys.stderr)
        return 77
    probe = x.Probe()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    with tempfile.TemporaryDirectory() as folder:
        a.folder = pathlib.Path(folder)
        make_loads(a.build, a.folder, a.seed)
        try:
            probe.start()
            results = {over: all_rows(a, over) for over in a.over}
        finally:
            probe.over = True
            x.hosts("down")
    words = [w for k, w in enumerate(sys.argv[2:]) if w != "--stamp" and sys.argv[k + 1] != "--stamp"]
    print(f"# Iterations across hosts: predicted against measured\n\n{a.stamp}\n\n`validate/hosts/iterations.py build {' '.join(words)}`\n")
    print(f"Four hosts with NICs of {x.RATE / 1e6:g} MB/s, as network namespaces of one machine with {os.cpu_count()} cores: TCP and MPI "
          f"are real, cables are not.\nTraining iterations of {LAYERS} MoE layers with {TOKENS} tokens a rank, each policy under its published "
          f"schedule or the one named. A measurement is the median of {STEPS - 1} iterations,\nand of {a.rounds} rounds. Errors: predicted / "
          f"measured - 1. Load \"skewed\" is log-normal with sigma 1.5, \"recorded\" the first of charlm-e16-noaux.\nRate and latency are fitted "
          f"to bare exchanges of two hosts. All else is predicted.")
    print(f"Cores: a process that sleeps 5 ms woke up {x.quantile(probe.late, 0.5):.1f} ms late (median; p99 "
          f"{x.quantile(probe.late, 0.99):.1f} ms), load {os.getloadavg()[1]:.0f}.\nCluster \"half rate\" shows that cores are no limit: else it "
          f"would be predicted too slow.")
    for over, (rows, fitted) in results.items():
        report(over, rows, fitted, a.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
