"""kineto_check.py FOLDER...: files of ranks as PyTorch's profiler writes them.

Of each file. Its fields. Then HolisticTraceAnalysis' (HTA) breakdown and overlap from its events, by formulas written
anew here from HTA's description. They are held against the unions that hecate took from the timeline ("hecate", in
picoseconds). Within 1 %, or 2 us where that is more, or 1 us for each pause between kernels: events begin and end at
whole microseconds. Where HTA itself can be imported its own numbers are held to the same. Exit code 1 and a line per
difference; prints "hta VERSION" or "no hta", and the worst error. """
import json
import re
import sys

NCCL = re.compile(r"^nccl.*Kernel")
LEAST_US = 2.0
worst = 0.0
failed = 0


def fail(what):
    global failed
    failed += 1
    print("FAILED:", what)


def union(intervals):
    total, last = 0, None
    for begin, end in sorted(intervals):
        if last is None or begin > last:
            total += end - begin
            last = end
        elif end > last:
            total += end - last
            last = end
    return total


def read(folder, rank):
    text = open(f"{folder}/rank{rank}.json").read()
    found = [re.search(r'"rank":\s+(\d+)', line) for line in text.split("\n")]
    found = [m for m in found if m]
    if not found or int(found[0].group(1)) != rank:
        fail(f"{folder}: rank{rank}.json does not say its rank as HTA looks for it")
    return json.loads(text)


def fields(folder, rank, n_ranks, d):
    info = d["distributedInfo"]
    if d["schemaVersion"] != 1 or info["rank"] != rank or info["world_size"] != n_ranks or not info["backend"]:
        fail(f"{folder} rank {rank}: header {info}")
    steps = [e for e in d["traceEvents"] if e["name"].startswith("ProfilerStep#")]
    if len(steps) != 1 or steps[0]["cat"] != "user_annotation":
        fail(f"{folder} rank {rank}: {len(steps)} steps")
    busy = {}
    for e in d["traceEvents"]:
        if e["ph"] == "M":
            continue
        args = e["args"]
        if e["ph"] != "X" or type(e["ts"]) is not int or type(e["dur"]) is not int or e["dur"] < 0:
            fail(f"{folder} rank {rank}: {e}")
        if e["cat"] == "kernel":
            if not all(key in args for key in ("stream", "device", "correlation", "External id")):
                fail(f"{folder} rank {rank}: arguments of {e}")
            if abs(e["ts"] * 10**6 - args["begin ps"]) > 500000 or args["length ps"] <= 0:
                fail(f"{folder} rank {rank}: times of {e}")
            if e["ts"] < busy.get(args["stream"], 0):
                fail(f"{folder} rank {rank}: two at once on a stream: {e}")
            busy[args["stream"]] = e["ts"] + e["dur"]
        elif "stream" in args:
            fail(f"{folder} rank {rank}: a stream of the host: {e}")
        if bool(NCCL.match(e["name"])) != ("Collective name" in args):
            fail(f"{folder} rank {rank}: name and collective of {e}")
        if args.get("Collective name") == "all_to_allv":
            for key, size in (("In split size", "In msg nelems"), ("Out split size", "Out msg nelems")):
                split = json.loads(args[key])
                if len(split) != n_ranks or sum(split) != args[size] or split[rank] != 0:
                    fail(f"{folder} rank {rank}: {key} of {e}")


def breakdown(d):
    kernels = [e for e in d["traceEvents"] if e["ph"] == "X" and "stream" in e["args"]]
    spans = lambda some: [(e["ts"], e["ts"] + e["dur"]) for e in some]
    comm = spans(e for e in kernels if NCCL.match(e["name"]))
    comp = spans(e for e in kernels if not NCCL.match(e["name"]))
    whole = max(e for _, e in comm + comp) - min(b for b, _ in comm + comp)
    busy = union(comm + comp)
    both = union(comm) + union(comp) - busy
    return {"compute": union(comp), "idle": whole - busy, "non-compute": busy - union(comp), "whole": whole,
            "overlap %": 100 * both / union(comm) if comm else 0.0}


def ours(d):
    m = d["hecate"]
    whole = m["last_ps"] - m["first_ps"]
    return {"compute": m["compute_ps"] / 1e6, "idle": m["idle_ps"] / 1e6, "whole": whole / 1e6,
            "non-compute": (whole - m["compute_ps"] - m["idle_ps"]) / 1e6,
            "overlap %": 100 * m["both_ps"] / m["communication_ps"] if m["communication_ps"] else 0.0}


def pauses(d):
    """How many pauses there are between kernels: each end of one is rounded by half a microsecond."""
    kernels = sorted((e["ts"], e["ts"] + e["dur"]) for e in d["traceEvents"] if e["ph"] == "X" and "stream" in e["args"])
    n, last = 0, kernels[0][1]
    for begin, end in kernels:
        n, last = n + (begin > last), max(last, end)
    return n


def compare(what, theirs, mine, n_pauses):
    global worst
    for key, value in mine.items():
        # A share is held to one point.
        least = 1.0 if key == "overlap %" else max(0.01 * value, LEAST_US, n_pauses)
        off = abs(theirs[key] - value)
        if not off <= least:
            fail(f"{what}: {key} is {theirs[key]}, hecate says {value}")
        if value > 100 * LEAST_US or key == "overlap %":
            worst = max(worst, off / 100 if key == "overlap %" else off / value)


def by_hta(folder, mine, n_pauses):
    from hta.trace_analysis import TraceAnalysis
    trace = TraceAnalysis(trace_dir=folder)
    times = trace.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = trace.get_comm_comp_overlap(visualize=False).set_index("rank")
    if sorted(times.index) != list(range(len(mine))):
        fail(f"{folder}: HTA sees ranks {sorted(times.index)}")
    for rank in times.index:
        row = times.loc[rank]
        compare(f"HTA, {folder} rank {rank}",
                {"compute": row["compute_time(us)"], "idle": row["idle_time(us)"], "whole": row["kernel_time(us)"],
                 "non-compute": row["non_compute_time(us)"],
                 "overlap %": overlap.loc[rank, "comp_comm_overlap_pctg"]}, mine[rank], n_pauses[rank])


def main(folders):
    import os
    try:
        import logging
        import warnings
        warnings.filterwarnings("ignore")
        logging.disable(logging.CRITICAL)
        import hta.trace_analysis  # noqa: F401
        from importlib.metadata import version
        name = "hta " + version("HolisticTraceAnalysis")
    except ImportError:
        name = "no hta"
    for folder in folders:
        n_ranks = len(os.listdir(folder))
        files = [read(folder, r) for r in range(n_ranks)]
        mine, n_pauses = [ours(d) for d in files], [pauses(d) for d in files]
        for rank, d in enumerate(files):
            fields(folder, rank, n_ranks, d)
            compare(f"{folder} rank {rank}", breakdown(d), mine[rank], n_pauses[rank])
        if name != "no hta":
            by_hta(folder, mine, n_pauses)
    print(f"{name}, worst error {100 * worst:.3f} %")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
