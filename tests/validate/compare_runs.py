#!/usr/bin/env python3
"""How far `hecate-validate compare` can be trusted: many short runs against a long one, in silence and with a neighbour.

    tests/validate/compare_runs.py BUILD OUT [--runs 20] [--within 2m] [--long 8m] [--transport emulated] [--policy ...]

Runs one long reference with nothing else on the machine, then short ones without a neighbour. Then it runs short ones
with one that takes half a core in bursts (program_neighbour). Every run is one file in OUT; those that are there are
not run again, so the experiment can be stopped and continued. Then prints a table. Each run's error and interval,
whether the interval holds the long run's error, its ranking, how disturbed it was, its wall time. Some 45 minutes;
leave the machine alone meanwhile. Exit code 1: a run failed."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--runs", type=int, default=20, help="short runs, half of them with a neighbour (default 20)")
    p.add_argument("--within", default="2m", help="of a short run (default 2m)")
    p.add_argument("--long", default="8m", help="of the reference (default 8m)")
    p.add_argument("--transport", default="emulated")
    p.add_argument("--policy", default="ep,eplb,hecate", help="default ep,eplb,hecate")
    p.add_argument("--trace", default=str(ROOT / "traces/charlm-e16-noaux.jsonl.gz"))
    p.add_argument("--report", action="store_true", help="print what is there, run nothing")
    return p.parse_args()


def execute(a, name, seed, busy, options):
    """One run into OUT/name.json, unless it is there."""
    path = a.out / f"{name}.json"
    if path.exists():
        return
    command = [a.build / "hecate-validate", "compare", a.trace, "--policy", a.policy, "--transport", a.transport,
               "--seed", str(seed), "--json", *options]
    neighbour = None
    if busy:
        neighbour = subprocess.Popen([a.build / "program_neighbour", str(seed)], stdin=subprocess.PIPE)
    load = os.getloadavg()[0]
    begin = time.monotonic()
    run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    wall_s = time.monotonic() - begin
    if neighbour:
        neighbour.stdin.close()
        neighbour.wait()
    if run.returncode != 0:
        sys.exit(f"{name}: exit code {run.returncode}: {run.stderr.strip()}")
    kept = {"name": name, "busy": busy, "wall_s": wall_s, "load_before": load, "summary": json.loads(run.stdout)}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(kept))
    part.rename(path)
    print(f"{name}: {wall_s:.0f} s", file=sys.stderr, flush=True)


def names(a):
    idle = (a.runs + 1) // 2
    return [(f"idle-{i + 1:02d}" if i < idle else f"busy-{i - idle + 1:02d}", i) for i in range(a.runs)]


def read(path):
    return json.loads(path.read_text()) if path.exists() else None


def percent(value):
    return "-" if value is None else f"{100 * value:.2f}"


def row(run, truth):
    s = run["summary"]
    error, interval, pairs = s["error"]["median"], s["error"]["interval"], s["pairs"]
    holds = interval is not None and truth is not None and interval[0] <= truth <= interval[1]
    low, high = interval or (None, None)
    ranking = "WRONG" if pairs["wrong"] else "right" if pairs["right"] else "not told apart"
    print(f"| {run['name']} | {percent(error)} [{percent(low)}, {percent(high)}] | {'yes' if holds else 'NO'} | {ranking}: "
          f"{pairs['right']} right, {pairs['wrong']} wrong, {pairs['too_close']} not told apart | "
          f"{percent(s['disturbed'])} | {s['rounds']} to {s['rounds_most']} | {run['wall_s']:.0f} |")
    return holds, pairs["wrong"] == 0


def report(a):
    long = read(a.out / "long.json")
    truth = long["summary"]["error"]["median"] if long else None
    print("| run | median error, % [interval] | holds the long run's | ranking | disturbed, % | rounds | wall, s |")
    print("|---|---|---|---|---|---|---|")
    if long:
        row(long, truth)
    for kind in ("idle", "busy"):
        held = ranked = n = 0
        longest = 0.0
        for name, _ in names(a):
            run = read(a.out / f"{name}.json")
            if not run or not name.startswith(kind):
                continue
            holds, right = row(run, truth)
            n += 1
            held += holds
            ranked += right
            longest = max(longest, run["wall_s"])
        print(f"| **{kind}** | | {held} of {n} | {ranked} of {n} without a wrong pair | | | at most {longest:.0f} |")


def main():
    a = arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    if not a.report:
        execute(a, "long", 1000, False, ["--within", a.long, "--repeat", "1000"])
        for name, i in names(a):
            execute(a, name, i + 1, name.startswith("busy"), ["--within", a.within])
    report(a)


if __name__ == "__main__":
    main()
