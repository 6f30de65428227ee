"""Predicts the training example's iteration under several policies, runs it, and compares: what hecate-validate trainer runs.

    hecate-validate trainer --policy ep,eplb,hecate

A machine changes its pace from minute to minute, computing otherwise than exchanges. So all is measured in one job of gloo
processes, interleaved: a round has one step of every case, one round of the calibration, and a step of the control between any
two of them. The control is a model in training too, and nothing in the table: it is the probe, of the same kind of work.

    reading of a case = its step / the geometric mean of the control's steps before and after it
    measured          = the median of its readings * the control's median step
    calibration       = medians of readings, each divided by the pace of the control around it, work by work, wall by wall
    predicted         = simulated / the control simulated * the control's median step

So a prediction is one of how much a case takes more or less than the control; the control's own steps are a calibration of the
level. The error without that is shown too. Intervals come from resampling rounds, of the calibration as well. Measuring stops
when every reading's median is known within NARROW, or when the time is over: it looks at widths only."""
import argparse
import importlib.util
import itertools
import json
import math
import os
import random
import socket
import statistics
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hecate
from hecate.torch import ExpertParallel, Recorder
from hecate.torch._watch import cores, timed_step
from hecate.torch.calibrate import Calibration, documents


NARROW, ROUNDS_MIN, DRAWS = 0.02, 10, 200
HECATE = ("planner", "recorder")
WORK = ("begin", "window", "routes", "head", "window backward", "end")
SHOWN = {"experts": ("experts", "experts backward"), "other work": WORK, "tokens": ("counts", "dispatch", "combine"),
         "copies": ("gather", "scatter", "copies", "moves")}


def computing(split):
    return sum(split[part][1] for part in WORK + SHOWN["experts"])


def adamw(parameters):
    """Fused: plain AdamW takes roots by MKL, for which those of experts without a token, zeros, take 13 times as long."""
    parameters = list(parameters)
    try:
        return torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    except RuntimeError:  # PyTorch before 2.4 has none for CPUs
        return torch.optim.AdamW(parameters, lr=1e-3)


def refuse(text):
    print("hecate-validate trainer: " + text, file=sys.stderr)
    sys.exit(2)


def options(text):
    """Of hecate-validate trainer, which checks them one by one: a JSON object with its options as keys."""
    o = argparse.Namespace(**{key.replace("-", "_"): value for key, value in json.loads(text).items()})
    here = os.path.dirname(os.path.abspath(__file__))
    o.example = o.example or os.path.join(here, "..", "..", "examples", "train_moe.py")
    if not os.path.isfile(o.example):
        refuse("--example: expected the path of train_moe.py, found nothing at %s" % o.example)
    o.ranks = o.ranks or max(2, cores())
    if o.batch % o.ranks:
        refuse("--batch: expected a multiple of %d ranks, found %d" % (o.ranks, o.batch))
    known = hecate.policies()
    for policy in o.policy.split(","):
        if policy.split(":")[0] not in known:
            refuse("--policy: %s is not known; hecate-sim --list policies has all" % policy)
    return o


class Case:
    """A model in training under one policy and skew."""

    def __init__(self, o, example, policy, hot, folder, cluster=None, control=False):
        self.policy, self.hot, self.step = policy, hot, 0
        self.times, self.parts, self.overload = [], [], []  # times: (wall, work), means of the ranks
        torch.manual_seed(1)
        self.o = argparse.Namespace(**vars(o), top_k=2, heads=4, accumulate=1, recompute=False)
        self.o.hot = hot
        self.parallel = ExpertParallel(policy, layers=o.layers, experts=o.experts, top_k=2, d_model=o.d_model, d_ffn=o.d_ffn,
                                       tokens=o.batch * o.length // o.ranks, device="cpu", cluster=cluster,
                                       optimizer_bytes=8, n_heads=4, seq_len=o.length, period=o.period)
        self.model = example.Model(self.o, self.parallel)
        self.trained = DistributedDataParallel(self.parallel.ignore_in(self.model))
        self.optimizer = adamw(self.model.parameters())
        self.parallel.attach(self.optimizer)
        self.example, self.text = example, example.read_text(None)
        name = "control" if control else "%s-hot%g" % (policy.replace(":", "-").replace("=", ""), hot)
        self.trace = os.path.join(folder, name + ".jsonl")
        self.recorder = Recorder(self.trace, self.parallel, name="%s, hot %g" % (policy, hot))

    def one(self):
        """A step, as the example makes it."""
        tokens, wanted = next(self.example.batches(self.text, self.o, self.step, dist.get_rank(), dist.get_world_size()))
        self.optimizer.zero_grad()
        self.parallel.step()
        logits = self.trained(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
        self.parallel.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1

    def run(self, calibration=None):
        """A step, until the slowest rank is through it."""
        dist.barrier()
        begin = time.perf_counter()
        split = timed_step(self.parallel, self.one)
        dist.barrier()
        took = torch.tensor((time.perf_counter() - begin, computing(split)), dtype=torch.float64)
        dist.all_reduce(took)
        self.times.append((took / self.o.ranks).tolist())
        self.parts.append(split)
        self.overload.append(self.parallel.overload())
        if calibration:
            calibration.add(split)

    def where(self):
        """{part: [wall seconds, seconds of work]} of a step, means over steps and ranks; of planner and recorder those of the rank
        that worked most: rank 0 writes the trace. "work": computing of the median step."""
        own = {part: [statistics.mean(step[part][i] for step in self.parts) for i in (0, 1)]
               for part in {part for step in self.parts for part in step}}
        own["work"] = [0, statistics.median(map(computing, self.parts))]
        everywhere = [None] * self.o.ranks
        dist.all_gather_object(everywhere, own)
        return {part: [(max if part in HECATE else statistics.mean)(rank.get(part, (0, 0))[i] for rank in everywhere) for i in (0, 1)]
                for part in sorted({part for rank in everywhere for part in rank})}


def rank_of_job(o, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ends = time.monotonic() + o.within
    spec = importlib.util.spec_from_file_location("train_moe", o.example)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    control = Case(o, example, "ep", 2.0, folder, control=True)
    calibration = Calibration(control.model)
    calibration.step(control.one)
    file = os.path.join(folder, "first-cluster.json")
    for _ in range(5):  # what the planners of the cases know; the first round warms up
        control.run(calibration)
        calibration.round()
    first = documents(calibration.readings())[0]  # it says the window: planners and the simulator must plan alike
    if dist.get_rank() == 0:
        json.dump(first, open(file, "w"))
    dist.barrier()
    cases = [Case(o, example, policy, float(hot), folder, file)
             for hot in o.hot.split(",") for policy in o.policy.split(",")]
    for case in cases:
        case.one()
    order, machine, at = random.Random(1), Machine(), []  # at: of each round, the control's last step before each turn
    control.times, calibration.steps, calibration.rounds = [], calibration.steps[:1], calibration.rounds[:1]
    control.run(calibration)
    while True:
        where = {}
        for turn in order.sample(range(len(cases) + 1), len(cases) + 1):
            where[turn] = len(control.times) - 1
            cases[turn].run() if turn < len(cases) else calibration.round()
            control.run(calibration)
        at.append([where[turn] for turn in range(len(cases) + 1)])
        if enough(cases, control, at, ends):
            break
    for case in cases + [control]:
        case.recorder.close()
    found = {"readings": calibration.readings(), "at": at, "others": machine.others(), "cases": [
        {"policy": c.policy, "hot": c.hot, "trace": c.trace, "times": c.times, "parts": c.where(),
         "overload": statistics.median(c.overload)} for c in cases + [control]]}
    if dist.get_rank() == 0:
        with open(os.path.join(folder, "job.json"), "w") as out:
            json.dump(found, out)
    dist.destroy_process_group()


def around(control, i):
    """(wall, work) of the control's steps i and i + 1."""
    return tuple(math.sqrt(a * b) for a, b in zip(control[i], control[i + 1]))


def readings(case, control, at, turn):
    """Of each round, a case's step over the control's around it. A geometric mean, for noise is skewed."""
    return [wall / around(control, where[turn])[0] for (wall, _), where in zip(case, at)]


def enough(cases, control, at, ends):
    """Decided by rank 0."""
    done = [time.monotonic() > ends]
    if len(at) >= ROUNDS_MIN and not done[0]:
        widths = [interval(readings(case.times, control.times, at, turn)) for turn, case in enumerate(cases)]
        done = [all(high / low < (1 + NARROW) ** 2 for low, high in widths)]
    dist.broadcast_object_list(done, src=0)
    return done[0] and len(at) >= 3


class Machine:
    """What others take of the processors, from now on, as Linux counts it."""

    def __init__(self):
        self.begin = self._now()

    def _now(self):
        try:
            with open("/proc/stat") as file:
                ticks = [int(n) for n in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return 0.0, 0.0, 0.0
        idle = ticks[3] + ticks[4]
        return sum(ticks), sum(ticks) - idle, time.process_time() * os.sysconf("SC_CLK_TCK")

    def others(self):
        """Their share; every rank calls it. 0 where the system does not say."""
        all_, busy, own = (now - then for now, then in zip(self._now(), self.begin))
        own = torch.tensor(own)
        dist.all_reduce(own)
        return max(0.0, (busy - own.item()) / all_) if all_ else 0.0


def interval(values, seed=1):
    """95 % of the median, by resampling."""
    draw = random.Random(seed)
    return middle([statistics.median(draw.choices(values, k=len(values))) for _ in range(DRAWS)])


def middle(drawn):
    """95 % of the draws."""
    drawn = sorted(drawn)
    return drawn[len(drawn) // 40], drawn[-1 - len(drawn) // 40]


def predicted(o, case, cluster, model):
    """The row of hecate-sim."""
    return hecate.simulate(case["trace"], cluster=cluster, model=model, policies=[case["policy"]], warmup=0, schedule="published",
                           collective="direct", ranks=o.ranks, period=o.period)["policies"][0]


def simulated(o, job, folder, draw=lambda n: range(n)):
    """(seconds of an iteration, seconds of computing, overload) of each case, the control last."""
    control, at = job["cases"][-1]["times"], job["at"]
    level = [statistics.median(of) for of in zip(*control)]
    pace = [[now / usual for now, usual in zip(around(control, where[-1]), level)] for where in at]
    cluster, model = documents(job["readings"], pace, draw)
    alone = dict(cluster, cores=o.ranks, device=dict(cluster["device"], comm_share=0))  # every rank has a processor to itself
    files = [os.path.join(folder, "trainer-%s.json" % what) for what in ("cluster", "model", "alone")]
    for name, document in zip(files, (cluster, model, alone)):
        with open(name, "w") as out:
            json.dump(document, out, indent=1)
    met = cluster["calibration"]["meet_s"]  # stands with computing, but is none
    shared, apart = ([predicted(o, case, cluster, files[1]) for case in job["cases"]] for cluster in (files[0], files[2]))
    return [(a["iteration_s"]["median"], b["compute_s"] - met, a["overload_factor"]["median"]) for a, b in zip(shared, apart)]


def judge(o, job, folder):
    """Rows of the table, of which the control is none. What was trained is simulated whole; the medians are of the same run."""
    *cases, control = job["cases"]
    level, work_level = (statistics.median(of) for of in zip(*control["times"]))
    said, rng = simulated(o, job, folder), random.Random(1)
    with tempfile.TemporaryDirectory() as drawn:
        others = [[s / step[-1][0] for s, *_ in step] for step in (
            simulated(o, job, drawn, lambda n: rng.choices(range(n), k=n)) for _ in range(DRAWS))]
    rows, read = [], [readings(case["times"], control["times"], job["at"], turn) for turn, case in enumerate(cases)]
    for i, (case, ratios) in enumerate(zip(cases, read)):
        measured, (low, high) = statistics.median(ratios), interval(ratios)
        drawn = [others[k][i] / statistics.median(rng.choices(ratios, k=len(ratios))) - 1 for k in range(DRAWS)]
        work = statistics.median(work for _, work in case["times"])
        error = said[i][0] / said[-1][0] / measured - 1
        rows.append({"policy": case["policy"], "hot": case["hot"], "predicted_s": said[i][0] / said[-1][0] * level,
                     "measured_s": measured * level, "low_s": low * level, "high_s": high * level, "steps": len(ratios),
                     "error": error, "error_range": middle(drawn), "parts": case["parts"], "work_s": work,
                     "overload": case["overload"], "overload_said": said[i][2],
                     "error_without_control": said[i][0] / (measured * level) - 1,
                     "work_error": said[i][1] / said[-1][1] * work_level / work - 1})
    pairs = [contest(rows, read, a, b) for a, b in itertools.combinations(range(len(rows)), 2) if rows[a]["hot"] == rows[b]["hot"]]
    errors = [abs(r["error"]) for r in rows]
    nearest = [0 if r["error_range"][0] < 0 < r["error_range"][1] else min(map(abs, r["error_range"])) for r in rows]
    farthest = [max(map(abs, r["error_range"])) for r in rows]
    plain = [abs(r["error_without_control"]) for r in rows]
    tens = statistics.quantiles([wall / level for wall, _ in control["times"]], n=10)
    return {"rows": rows, "pairs": pairs, "rounds": len(job["at"]), "control_s": level, "pace": level / said[-1][0],
            "error": {"median": statistics.median(errors), "low": statistics.median(nearest), "high": statistics.median(farthest),
                      "worst": max(errors)}, "without_control": {"median": statistics.median(plain), "worst": max(plain)},
            "machine": {"others": job["others"], "control_p10": tens[0], "control_p90": tens[-1]},
            "ranks": o.ranks, "cores": cores()}


def contest(rows, read, a, b):
    """Whether the readings of two cases, round by round, tell them apart, and if so, whether their order was predicted."""
    ratios = [x / y for x, y in zip(read[a], read[b])]
    low, high = interval(ratios)
    measured, said = statistics.median(ratios), rows[a]["predicted_s"] / rows[b]["predicted_s"]
    order = "not apart" if low <= 1 <= high else "right" if (measured < 1) == (said < 1) else "wrong"
    return {"hot": rows[a]["hot"], "policies": [rows[a]["policy"], rows[b]["policy"]], "measured": measured, "low": low,
            "high": high, "predicted": said, "order": order}


ORDERS = {"not apart": "cannot be told apart", "right": "order as predicted", "wrong": "order NOT as predicted"}


def show(found):
    print("%-12s %5s %13s %13s %21s %7s %15s %8s" % (
        "policy", "hot", "predicted, ms", "measured, ms", "95 % of the median", "error", "95 % of it", "of work"))
    for r in found["rows"]:
        print("%-12s %5g %13.1f %13.1f %10.1f to %7.1f %5.0f %% %5.0f to %3.0f %% %6.0f %%" %
              (r["policy"], r["hot"], 1e3 * r["predicted_s"], 1e3 * r["measured_s"], 1e3 * r["low_s"], 1e3 * r["high_s"],
               100 * r["error"], *(100 * e for e in r["error_range"]), 100 * r["work_error"]))
    percent = lambda of, *names: tuple(100 * of[name] for name in names)
    print("error: median %.1f %% (%.1f to %.1f %%), worst %.1f %%" % percent(found["error"], "median", "low", "high", "worst"))
    print("without the control (ep, hot 2), whose steps took %+.1f %% beside its own prediction: median %.1f %%, worst %.1f %%" %
          (100 * found["pace"] - 100, *percent(found["without_control"], "median", "worst")))
    for p in found["pairs"]:
        print("hot %g: %s takes %.2f of %s (%.2f to %.2f), predicted %.2f: %s" % (
            p["hot"], p["policies"][0], p["measured"], p["policies"][1], p["low"], p["high"], p["predicted"], ORDERS[p["order"]]))
    for r in found["rows"]:
        if abs(r["overload"] - r["overload_said"]) > 0.2 * r["overload"]:  # planners had the first calibration, this has all
            print("%s, hot %g: plans differ: an overload of %.2f was simulated, of %.2f trained" %
                  (r["policy"], r["hot"], r["overload_said"], r["overload"]))
    print("%d ranks on %d cores, %d rounds; others took %.0f %% of the cores, and steps of the control %.0f to %.0f %%\n"
          "of their median (10th to 90th percentile)" %
          (found["ranks"], found["cores"], found["rounds"], *percent(found["machine"], "others", "control_p10", "control_p90")))

    print("\nwhere a step goes, ms, means of the ranks; planner and recorder in %% of the work\n%-12s %5s" % ("policy", "hot"),
          *("%10s" % name for name in (*SHOWN, *HECATE)))
    for r in found["rows"]:
        of = lambda part, i: r["parts"].get(part, (0, 0))[i]
        print("%-12s %5g" % (r["policy"], r["hot"]), *("%10.1f" % (1e3 * sum(of(p, 0) for p in SHOWN[name])) for name in SHOWN),
              *("%8.2f %%" % (100 * of(part, 1) / r["work_s"]) for part in HECATE))


def launch(o, folder):
    """A process a rank, by torch.distributed's environment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    jobs = []
    for rank in range(o.ranks):
        sys.stdout.flush()
        job = os.fork()  # importing PyTorch takes seconds, and this process has
        if job == 0:
            os.dup2(2, 1)
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(o.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            os._exit(_rank(o, folder))
        jobs.append(job)
    if any([os.waitpid(job, 0)[1] != 0 for job in jobs]):
        sys.exit("hecate-validate trainer: a rank failed")


def _rank(o, folder):
    """The exit code of a rank."""
    try:
        rank_of_job(o, folder)
        return 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()


def main(text):
    o = options(text)
    with tempfile.TemporaryDirectory() as made:
        folder = o.out or made
        os.makedirs(folder, exist_ok=True)
        launch(o, folder)
        found = judge(o, json.load(open(os.path.join(folder, "job.json"))), folder)
    print(json.dumps(found, indent=1)) if o.json else show(found)


if __name__ == "__main__":
    main(sys.argv[1])
