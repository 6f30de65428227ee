"""Predicts the training example's iteration under several policies, runs it, and compares: what hecate-validate trainer runs.

    hecate-validate trainer --policy ep,eplb,hecate

One job of gloo processes calibrates, trains every case in turns of a few steps, and calibrates again. The prediction is by the
mean of both calibrations, for the loads that were trained on. The cases that are judged are not the one that was calibrated on.

That one, the control, takes turns with them. A machine changes its pace between calibration and measurement, and a step takes
more than its parts. Both meet the control as well: what it was predicted wrong by is taken out of every prediction. It is one
factor for all, which is shown, as is the error without it."""
import argparse
import importlib.util
import json
import os
import random
import socket
import statistics
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hecate
from hecate.torch import ExpertParallel, Recorder, calibrate
from hecate.torch._watch import cores, delay_s, moment, own_cores, parts


HECATE = ("planner", "recorder")
WORK = ("begin", "window", "routes", "head", "window backward", "end")
SHOWN = {"experts": ("experts", "experts backward"), "other work": WORK, "tokens": ("counts", "dispatch", "combine"),
         "copies": ("gather", "scatter", "copies", "moves")}


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
    """A model in training under one policy and skew; `run` goes on for some steps."""

    def __init__(self, o, example, policy, hot, folder, cluster=None, window_s=1e-3, control=False):
        self.policy, self.hot, self.step, self.times, self.parts = policy, hot, 0, [], []
        torch.manual_seed(1)
        self.o = argparse.Namespace(**vars(o), top_k=2, heads=4, accumulate=1, recompute=False)
        self.o.hot = hot
        self.parallel = ExpertParallel(policy, layers=o.layers, experts=o.experts, top_k=2, d_model=o.d_model, d_ffn=o.d_ffn,
                                       tokens=o.batch * o.length // o.ranks, device="cpu", window_s=window_s, cluster=cluster,
                                       optimizer_bytes=8, n_heads=4, seq_len=o.length, period=o.period)
        self.model = example.Model(self.o, self.parallel)
        self.trained = DistributedDataParallel(self.parallel.ignore_in(self.model))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
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

    def run(self, steps):
        for k in range(steps):
            dist.barrier()
            delay, begin, self.parallel.exchange.log = delay_s(), moment(), []
            self.one()
            end, log, self.parallel.exchange.log = moment(), self.parallel.exchange.log, None
            dist.barrier()  # the step of the slowest rank
            took = torch.tensor((moment()[0] - begin[0], delay_s() - delay), dtype=torch.float64)
            dist.all_reduce(took)
            if k > 0:
                self.times.append((took / self.o.ranks).tolist())
                self.parts.append(parts(log, begin, end, self.o.layers))


    def where(self):
        """{part: [wall seconds, seconds of work]} of a step, means over steps and ranks; of planner and recorder those of the rank
        that worked most: rank 0 writes the trace. "work": computing of the median step."""
        own = {part: [statistics.mean(step[part][i] for step in self.parts) for i in (0, 1)]
               for part in {part for step in self.parts for part in step}}
        own["work"] = [0, statistics.median(sum(step[part][1] for part in WORK + SHOWN["experts"]) for step in self.parts)]
        everywhere = [None] * self.o.ranks
        dist.all_gather_object(everywhere, own)
        return {part: [(max if part in HECATE else statistics.mean)(rank.get(part, (0, 0))[i] for rank in everywhere) for i in (0, 1)]
                for part in sorted({part for rank in everywhere for part in rank})}


def rank_of_job(o, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    own_cores(o.ranks)
    spec = importlib.util.spec_from_file_location("train_moe", o.example)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    control = Case(o, example, "ep", 2.0, folder, control=True)
    calibrations = [calibrate(control.model, control.one)]
    file = os.path.join(folder, "first-cluster.json")
    if dist.get_rank() == 0:
        json.dump(calibrations[0][0], open(file, "w"))
    dist.barrier()
    window = calibrations[0][0]["calibration"]["window_s"]
    cases = [Case(o, example, policy, float(hot), folder, file, window) for hot in o.hot.split(",") for policy in o.policy.split(",")]
    order = random.Random(1)
    for _ in range(o.rounds):
        for i, case in enumerate(order.sample(cases, len(cases))):
            if i % 2 == 0:  # every prediction rests on the control: it has more steps than a case
                control.run(o.block)
            case.run(o.block)
    cases.append(control)
    calibrations.append(calibrate(control.model, control.one))
    for case in cases:
        case.recorder.close()
    where = [case.where() for case in cases]
    if dist.get_rank() == 0:
        with open(os.path.join(folder, "job.json"), "w") as out:
            json.dump({"calibrations": calibrations, "cases": [
                {"policy": c.policy, "hot": c.hot, "trace": c.trace, "times": c.times, "parts": parts}
                for c, parts in zip(cases, where)]}, out)
    dist.destroy_process_group()


def mean(a, b):
    """Of two calibrations: numbers by number, the rest is the first's."""
    if isinstance(a, dict):
        return {k: mean(a[k], b[k]) for k in a}
    if isinstance(a, list):
        return [mean(x, y) for x, y in zip(a, b)]
    return (a + b) / 2 if isinstance(a, float) or isinstance(b, float) else a


def interval(values, seed=1):
    """95 % of the median, by resampling."""
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(400))
    return medians[10], medians[389]


def predicted(o, case, cluster, model):
    """The row of hecate-sim."""
    return hecate.simulate(case["trace"], cluster=cluster, model=model, policies=[case["policy"]], warmup=0, schedule="published",
                           collective="direct", ranks=o.ranks, period=o.period)["policies"][0]


def judge(o, job, folder):
    """Rows of the table, of which the control is none. What was trained is simulated whole; the medians are of the same run."""
    cluster, model = (mean(a, b) for a, b in zip(*job["calibrations"]))
    alone = dict(cluster, cores=o.ranks, device=dict(cluster["device"], comm_share=0))  # every rank has a processor to itself
    met = cluster["calibration"]["meet_s"]  # stands with computing, but is none
    files = [os.path.join(folder, "trainer-%s.json" % what) for what in ("cluster", "model", "alone")]
    for name, document in zip(files, (cluster, model, alone)):
        with open(name, "w") as out:
            json.dump(document, out, indent=1)
    rows = []
    for case in job["cases"]:
        times = [wall - without for wall, without in case["times"]]  # without a processor, which others had
        measured, said = statistics.median(times), predicted(o, case, *files[:2])["iteration_s"]["median"]
        work = case["parts"]["work"][1]  # the median step's, as the prediction
        low, high = interval(times)
        rows.append({"policy": case["policy"], "hot": case["hot"], "predicted_s": said, "measured_s": measured, "low_s": low,
                     "high_s": high, "steps": len(times), "work_s": work, "parts": case["parts"],
                     "work_said_s": predicted(o, case, files[2], files[1])["compute_s"] - met})
    control, rows = rows[-1], rows[:-1]
    pace, work_pace = control["measured_s"] / control["predicted_s"], control["work_s"] / control["work_said_s"]
    without = [abs(r["predicted_s"] / r["measured_s"] - 1) for r in rows]
    for r in rows:
        r["predicted_s"] *= pace
        r["error"] = r["predicted_s"] / r["measured_s"] - 1
        r["work_error"] = r.pop("work_said_s") * work_pace / r["work_s"] - 1
    errors = sorted(abs(r["error"]) for r in rows)
    pairs = [(a, b) for i, a in enumerate(rows) for b in rows[i + 1:] if a["hot"] == b["hot"]]
    told = [(a, b) for a, b in pairs if a["high_s"] < b["low_s"] or b["high_s"] < a["low_s"]]
    right = lambda some: sum((a["predicted_s"] < b["predicted_s"]) == (a["measured_s"] < b["measured_s"]) for a, b in some)
    lost = statistics.median(without / wall for case in job["cases"] for wall, without in case["times"])
    drift = job["calibrations"][1][0]["calibration"]["step_s"] / job["calibrations"][0][0]["calibration"]["step_s"] - 1
    return {"rows": rows, "error": {"median": statistics.median(errors), "worst": errors[-1]}, "pace": pace,
            "without_pace": {"median": statistics.median(without), "worst": max(without)}, "pairs": len(pairs),
            "pairs_in_order": right(pairs), "pairs_told_apart": len(told), "pairs_told_apart_in_order": right(told),
            "drift": drift, "without_processor": lost, "ranks": o.ranks, "cores": cores()}


def show(found):
    print("%-12s %5s %13s %13s %21s %7s %8s" % ("policy", "hot", "predicted, ms", "measured, ms", "95 % of the median", "error",
                                               "of work"))
    for r in found["rows"]:
        print("%-12s %5g %13.1f %13.1f %10.1f to %7.1f %5.0f %% %6.0f %%" %
              (r["policy"], r["hot"], 1e3 * r["predicted_s"], 1e3 * r["measured_s"], 1e3 * r["low_s"], 1e3 * r["high_s"],
               100 * r["error"], 100 * r["work_error"]))
    print("error: median %.1f %%, worst %.1f %%" % (100 * found["error"]["median"], 100 * found["error"]["worst"]))
    print("every prediction is put at the pace of the control (ep, hot 2), whose steps took %+.1f %% beside its own prediction;\n"
          "without that the error is: median %.1f %%, worst %.1f %%" %
          (100 * found["pace"] - 100, *(100 * found["without_pace"][of] for of in ("median", "worst"))))
    print("order: %d of %d pairs; of the %d pairs that the measurement tells apart, %d" %
          (found["pairs_in_order"], found["pairs"], found["pairs_told_apart"], found["pairs_told_apart_in_order"]))
    print("%d ranks on %d cores; steps of the second calibration took %+.0f %%;\n"
          "of the time of a step %.0f %% was taken out: others had the processor" %
          (found["ranks"], found["cores"], 100 * found["drift"], 100 * found["without_processor"]))


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
