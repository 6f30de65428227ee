"""What a trainer's own operations take on this machine, as a cluster file and a model file for hecate-sim.

    cluster, model = calibrate(model, batch, out="trainer")     # trainer-cluster.json, trainer-model.json
    hecate-sim trace.jsonl.gz --cluster trainer-cluster.json --model trainer-model.json

Computing is measured as seconds of work (_watch.moment): the time in which a rank had a processor, whoever else wanted it. So
ranks that share processors are no special case: `cores` in the file says how many there are, and the simulator deals them
out. All ranks work at the same time, so what they take from each other's caches and memory is in it.

Parts of whole steps, between two waits for others, are taken as they are: the window before a layer, routing, and what is left
of a step. The experts are measured alone, since their rows differ: a layer's own code on made-up rows of several sizes. They
come as in a step: over an exchange, and to another layer each time, so neither rows nor weights lie in a cache already. What
they took in the whole steps, for the rows that came there, says how much longer they take in a step: all sizes are put at that.
Collectives are measured in wall time: all ranks to all, all to one, and one to one. What processors do meanwhile is
`comm_share`: a transfer beside computing is not free. These ranks begin together. In a step they come from computing, late
by what the system's scheduler does with them, most where ranks share processors. So meetings are measured too, after work."""
import copy
import inspect
import json
import os
import platform
import statistics
import time
import types

import numpy
import torch
import torch.distributed as dist

from .._library import BadInput
from ..planner import Guest
from ._watch import cores, moment, timed_step, work_s
from .moe import MoELayer
from .store import guests_of

ROWS = (1, 8, 32, 128, 256, 512, 1024, 2048)
WAYS = ("forward", "backward")
ALWAYS = 1e15  # a size that nothing reaches: the curve up to it is flat
SEGMENTS = ("begin", "window", "routes", "experts", "head", "experts backward", "window backward", "end")


class _Local:
    """Guests that came from nowhere, whose gradients go nowhere."""

    def __init__(self, experts):
        self.experts, self.any = experts, False


class _Experts:
    """Layers' experts on made-up rows, without guests: seconds of work (forward, backward) of a pass. plan: in which a pass looks
    for guests."""

    def __init__(self, layers, x, plan):
        self.layers, self.x, self.plan = layers, x.detach().reshape(-1, x.shape[-1]), plan
        self.turn(0)

    def turn(self, k):
        """The k-th layer's."""
        self.layer = self.layers[k % len(self.layers)]
        self.store, parallel = self.layer.experts, self.layer.parallel
        self.kept, self.came, store = self.store.kept, [], self.store
        if store.slices > 1:  # a rank has no expert whole, but those that came
            self.kept = list(range(max(1, parallel.experts // parallel.exchange.size)))
            self.came = [(torch.zeros(len(self.kept), store.slices * store.row_length, dtype=store.compute_dtype), _Local(self.kept))]

    def arrived(self, n):
        """n rows that came from all ranks alike."""
        exchange = self.layer.parallel.exchange
        of_each = [-(-n // exchange.size)] * exchange.size
        return exchange.rows("calibrate", self.x[:1].expand(sum(of_each), -1), of_each, of_each)[:n]

    def timed(self, n, rows, came=()):
        """n of the kept experts get so many rows each. came: guests, which get none."""
        parallel = self.layer.parallel
        receive = torch.zeros(parallel.exchange.size, parallel.experts, dtype=torch.long)
        receive[0, self.kept[:n]] = rows
        x, ones = self.arrived(n * rows).requires_grad_(), self.arrived(n * rows)
        replicated, self.store.replicated, parallel._queued = self.store.replicated, False, True
        begin = moment()
        for which in ("before", "added"):
            guests_of(self.plan, self.layer.layer, which)
        out = self.layer._compute(x, receive, [*self.came, *came])
        forward = work_s(begin)
        begin = moment()
        out.backward(ones)
        parallel._meanwhile()
        backward = work_s(begin)
        parallel._pending.clear()  # what follows a step's backward pass is none of its experts
        self.store.replicated, parallel._queued = replicated, False
        return forward, backward

    def read(self, found, k):
        """Adds seconds of work of the k-th round: "fixed forward" and "fixed backward" of a layer that no row came to; of one
        expert above that, "forward ROWS" and "backward ROWS"."""
        sizes = {rows: max(1, len(self.kept) if rows <= 128 else 1) for rows in ROWS}
        fixed = None
        for i, rows in enumerate((0,) + ROWS):
            self.turn(k + i)
            dist.barrier(group=self.layer.parallel.exchange.group)
            times = self.timed(sizes.get(rows, 0), rows)
            fixed = fixed or times
            for way, t, f in zip(WAYS, times, fixed):
                found.update({"%s %d" % (way, rows): (t - f) / sizes[rows]} if rows > 0 else {"fixed " + way: t})
        self.turn(0)


def _read_copies(bench, found):
    """Adds wall seconds of gathers, of the gradients' way back, and of the sum over resident copies: "gather N", "scatter N",
    "replica N", where every rank has N = 1, 2 .. experts of its neighbour. And seconds of work: "sum N", and "guest N" that they
    add to a pass."""
    store, exchange = bench.store, bench.layer.parallel.exchange
    size, kept = exchange.size, _everywhere(exchange, store.kept)

    def add(what, n, function):
        dist.barrier(group=exchange.group)
        begin = time.perf_counter()
        made = function()
        found["%s %d" % (what, n)] = time.perf_counter() - begin
        return made

    for n in (n for n in (1, 2, 4) if n <= min(map(len, kept))):
        guests = sorted(Guest(e, owner, ((owner + 1) % size,)) for owner in range(size) for e in kept[owner][:n])
        shared = copy.copy(store)
        keepers = {e: [r] for r in range(size) for e in kept[r]}
        keepers.update({e: sorted({r, (r + 1) % size}) for r in range(size) for e in kept[r][:n]})
        shared.place([keepers[e] for e in range(len(keepers))])
        grad = torch.zeros(len(shared.kept), store.row_length)
        own = torch.zeros(len(store.kept), store.row_length)
        came, moved = add("gather", n, lambda: store.gather_end(store.gather_start(guests)))
        add("scatter", n, lambda: store.scatter_end(store.scatter_start(came, moved), own))
        since = moment()
        add("replica", n, lambda: shared.sum_end(shared.sum_start(grad), grad))
        found["sum %d" % n] = work_s(since)
        alone = sum(bench.timed(0, 0))
        found["guest %d" % n] = sum(bench.timed(0, 0, [(came, _Local(moved.experts))])) - alone


def _read_optimizer(bench, alone, found):
    """Adds seconds of work that clipping and the optimizer's step take for an expert of a layer: twice as many as kept, less
    those kept. alone: kept between rounds, {times: an optimizer of its own}."""
    store, times_s = bench.store, {}
    n = max(1, len(store.kept))
    for optimizer in bench.layer.parallel.optimizers[:1]:
        for times in (1, 2):
            if times not in alone:
                weight = torch.nn.Parameter(torch.zeros(times * n, store.row_length, dtype=store.weight.dtype))
                wanted = inspect.signature(type(optimizer)).parameters
                alone[times] = type(optimizer)([weight], **{k: v for k, v in optimizer.defaults.items() if k in wanted})
            weight = alone[times].param_groups[0]["params"][0]
            weight.grad = torch.ones_like(weight)
            begin = moment()
            torch.linalg.vector_norm(weight.grad)
            weight.grad.mul_(1.0)
            alone[times].step()
            times_s[times] = work_s(begin)
    found["optimizer"] = (times_s[2] - times_s[1]) / n if times_s else 0.0


def _of_each(times):
    """Seconds of an expert: the line from nothing through {experts: seconds} that is off least."""
    return max(0.0, sum(n * s for n, s in times.items()) / sum(n * n for n in times)) if times else 0.0


MEETINGS = 8


def _read_meeting(bench, seconds, crowd, found):
    """Adds "meet": wall seconds of an exchange without rows to which all ranks come from so many seconds of work, beyond that
    work."""
    exchange, x = bench.layer.parallel.exchange, torch.zeros(64, 64)
    row = torch.zeros(exchange.size, bench.x.shape[1])
    dist.barrier(group=exchange.group)
    begin, worked = time.perf_counter(), 0.0
    for _ in range(MEETINGS):
        since = moment()
        while work_s(since) < seconds:
            torch.mm(x, x)
        worked += work_s(since)
        exchange.rows("calibrate", row, [1] * exchange.size, [1] * exchange.size)
    found["meet"] = (time.perf_counter() - begin - worked * crowd) / MEETINGS


def _everywhere(exchange, own):
    made = [None] * exchange.size
    dist.all_gather_object(made, own, group=exchange.group)
    return made


def _read_collectives(bench, dense, found):
    """Adds wall seconds: "counts", "all-reduce" of `dense` numbers, "all BYTES", "one BYTES", "pair BYTES" of the busiest port.
    And "busy": processors of a rank that are at work meanwhile."""
    exchange, width = bench.layer.parallel.exchange, bench.x.shape[1]
    size, rank = exchange.size, exchange.rank
    own, gradient = torch.zeros(bench.layer.parallel.experts, dtype=torch.int64), torch.zeros(dense)
    patterns = {"all": lambda s, d: s != d, "one": lambda s, d: d == 0 and s != 0, "pair": lambda s, d: (s, d) == (0, 1)}
    busy = [0.0, 0.0]

    def add(name, function):
        dist.barrier(group=exchange.group)
        begin, work = time.perf_counter(), time.process_time()
        function()
        found[name] = time.perf_counter() - begin
        return found[name], time.process_time() - work

    add("counts", lambda: exchange.counts("calibrate", 0, 0, False, own))
    add("all-reduce", lambda: dist.all_reduce(gradient, group=exchange.group))
    for rows in (8, 64, 256, 1024):
        for name, goes in patterns.items():
            send = [rows * goes(rank, other) for other in range(size)]
            receive = [rows * goes(other, rank) for other in range(size)]
            data, port = torch.zeros(sum(send), width), 4 * width * rows * (size - 1 if name != "pair" else 1)
            took, worked = add("%s %d" % (name, port), lambda: exchange.rows("calibrate", data, send, receive))
            if name == "all":
                busy = [busy[0] + worked, busy[1] + took]
    found["busy"] = busy[0] / busy[1]


def _processors(exchange):
    """Of all hosts that ranks are on."""
    return sum(dict(_everywhere(exchange, (platform.node(), cores()))).values())


def _link(times):
    """(bytes/s, seconds) of the line through (bytes, seconds) that is off least in relation to each."""
    weighted = [(1 / s ** 2, b, s) for b, s in times]
    w, wb, ws = (sum(p * v for p, v in ((q[0], 1 if i == 0 else q[i]) for q in weighted)) for i in range(3))
    wbb, wbs = sum(q * b * b for q, b, s in weighted), sum(q * b * s for q, b, s in weighted)
    slope = (w * wbs - wb * ws) / (w * wbb - wb * wb)
    slope = max(slope, 1e-12)
    return 1 / slope, max(1e-7, (ws - slope * wb) / w)


def _rising(points):
    """Times never fall with size: noise is no law."""
    highest, made = 0.0, []
    for x, s in points:
        highest = max(highest, s, 1e-9)
        made.append([x, highest])
    return made


def _copy_curves(copies, link, expert_bytes, crowd):
    """By seconds of the link. What a guest takes of the layer's own work is in the way back of its gradient. crowd: ranks of a
    processor."""
    bandwidth, latency = link
    points = lambda of, share, more=lambda n: 0: _rising((latency + n * expert_bytes * share / bandwidth, s + more(n))
                                                         for n, s in of.items())
    guest = lambda n: crowd * max(0.0, copies["guest"][n])
    nothing = _level(1e-12, 0)
    return [dict(kind="gather", backward=False, points=points(copies["gather"], 1)),  # exchanges: in both directions
            dict(kind="scatter", backward=False, points=points(copies["scatter"], 1, guest)),
            dict(kind="replica scatter", backward=False, points=points(copies["replica"], 0.5)),
            dict(kind="replica gather", backward=False, points=nothing),
            dict(kind="reduce", backward=True, points=nothing)] if copies["gather"] else []


def _optimizer(rest, kept_s, kept, expert_bytes, dense_bytes):
    """By the bytes that a program counts: what is left of a step, in which a rank keeps so many experts. One more, a resident
    copy, takes kept_s more: its gradient is put together and added up, clipped, and the optimizer steps."""
    points = [(n, rest + (n - kept) * kept_s) for n in (0, kept, 2 * kept, 10**6 * kept)]
    return _rising((max(1.0, dense_bytes + n * expert_bytes), s) for n, s in points)


def _curves(work, fixed, experts, wires, link, flops, layers, ranks, crowd, optimizer):
    """What the cluster file has measured. Operations that stand inside a segment take no time of their own. The trainer's exchanges
    take the time of a meeting even where no row has to travel, which a program leaves out: it stands with the permutations,
    and the exchanges have only what rows add. So do the counts of step() and the norm, with what is left of a step. optimizer: of _optimizer, all but `rest`."""
    bandwidth, latency = link if ranks > 1 else (1.0, 0.0)
    meet, late = wires["meet"] / crowd, max(0.0, wires["meet"] - latency)  # late: what work before it adds to a meeting
    rest = max(0.0, work["begin"] + work["head"] + work["end"] - work["window"] - work["window backward"])  # layer 0 has a window
    rest += 2 * (wires["counts"] + late) / crowd if ranks > 1 else 0
    made = []
    for backward in (False, True):
        known = dict(backward=backward)
        flat = lambda kind, s: dict(kind=kind, points=_level(1e-12, s), **known)
        rows = lambda kind, points: dict(kind=kind, flops_per_row=(1 + backward) * flops[kind], points=points, **known)
        made += [rows("attention", _level(1, work["window backward" if backward else "window"])), rows("gate", _level(1, 0)),
                 rows("expert", _rising((n, times[backward]) for n, times in experts.items())),
                 flat("permute", fixed[backward] + meet + (0 if backward else work["routes"])), flat("unpermute", meet),
                 dict(kind="optimizer", points=_optimizer(rest, *optimizer), **known)]
    if ranks > 1:
        made.append(dict(kind="token exchange", backward=False, points=[[latency, 1e-9], [latency + 1, 1]]))
        made += [dict(kind=kind, ranks=ranks, points=_level(1e-12, s))
                 for kind, s in (("counts", wires["counts"] + late), ("all-reduce", wires["all-reduce"] / layers))]
    return made


def _level(first, s):
    """A curve that is the same everywhere."""
    return [[first, max(s, 1e-9)], [ALWAYS, max(s, 1e-9) * (1 + 1e-9)]]


class Calibration:
    """Readings, taken one by one: of whole steps, and of rounds, in each of which every operation is timed once."""

    def __init__(self, model, group=None):
        self.layers = [m for m in model.modules() if isinstance(m, MoELayer)]
        if not self.layers:
            raise BadInput("calibrate: expected MoELayers in the model, found none")
        self.parallel, self.exchange = self.layers[0].parallel, self.layers[0].parallel.exchange
        if group is not None and group is not self.exchange.group:
            raise BadInput("calibrate: expected the group of the ExpertParallel")
        own = {id(w) for w in self.parallel.parameters()}
        self.dense = sum(p.numel() for p in model.parameters() if id(p) not in own)
        self.processors = _processors(self.exchange)
        self.crowd = max(1.0, self.exchange.size / self.processors)
        self.steps, self.rounds, self.alone, self.plan, self.bench = [], [], {}, None, None

    def step(self, batch):
        """Trains one; the first one warms up."""
        seen = []
        hook = self.layers[0].register_forward_pre_hook(lambda layer, given: seen.append(given[0].detach()))
        self.add(timed_step(self.parallel, batch))
        hook.remove()
        self.bench = self.bench or _Experts(self.layers, seen[-1], self.parallel.plan)

    def add(self, split):
        """The parts of a step."""
        if "experts backward" not in split:
            raise BadInput("calibrate: expected batch() to run forward and backward through every MoE layer once")
        windows = max(1, len(self.layers) - 1)
        times = {"window": windows, "window backward": windows, "routes": len(self.layers)}
        wall = sum(of[0] for of in split.values())
        came = [row for layer in range(len(self.layers))
                for row in self.parallel.plan.dispatch(layer)[:, :, self.exchange.rank].sum(0).tolist() if row > 0]
        self.steps.append((dict({what: split[what][1] / times.get(what, 1) for what in SEGMENTS}, step=wall), came))

    def round(self):
        """After a step; the first round warms up."""
        if self.parallel.plan is not None:
            self.bench.plan = self.parallel.plan
            self.parallel._end()
        found, bench = {}, self.bench
        bench.turn(0)
        _read_collectives(bench, self.dense, found)
        window = statistics.mean(_everywhere(self.exchange, statistics.median(work["window"] for work, _ in self.steps)))
        _read_meeting(bench, window, self.crowd, found)
        bench.read(found, len(self.rounds))
        if self.exchange.size > 1 and bench.store.slices == 1:
            _read_copies(bench, found)
        _read_optimizer(bench, self.alone, found)
        self.rounds.append(found)

    def readings(self):
        """What `documents` needs, the same on every rank."""
        parallel, bench = self.parallel, self.bench
        everywhere = _everywhere(self.exchange, (self.steps[1:], self.rounds[1:]))
        steps, rounds = zip(*everywhere)
        return {"steps": steps, "rounds": rounds, "layers": len(self.layers), "d_model": parallel.d_model, "top_k": parallel.top_k,
                "experts": parallel.experts, "expert_params": bench.store.parameters_of_expert, "matrices": len(parallel.shapes),
                "dtype_bytes": bench.store.weight.element_size(), "dense": self.dense, "tokens": len(bench.x),
                "ranks": self.exchange.size, "processors": self.processors}


OF_WORK = ("forward", "backward", "fixed", "optimizer", "guest", "sum")  # the rest is wall time
OF_ALL = ("forward", "backward", "fixed", "optimizer", "busy")  # ranks work alike; of the rest the last rank's


def _medians(readings, chosen, pace=None):
    """{name: seconds} of the chosen rounds of [rank][round] {name: seconds}. pace: of each round (of wall time, of work)."""
    found = {}
    for name in readings[0][0]:
        word = name.split()[0]
        by_rank = [statistics.median(rank[k][name] / (pace[k][word in OF_WORK] if pace and word != "busy" else 1) for k in chosen)
                   for rank in readings]
        found[name] = (statistics.median if word in OF_ALL else max)(by_rank)
    return found


def _in_steps(steps, chosen, layers, fixed, experts):
    """[forward, backward]: experts in steps over the same experts alone, for the rows that came. In steps memory comes fresh from
    the system, and other work has had the caches. Medians of the chosen steps of [rank][step] (seconds of parts, rows)."""
    sizes, found = sorted(experts), []
    for i, part in enumerate(("experts", "experts backward")):
        alone = lambda rows: numpy.interp(rows, sizes, [experts[n][i] for n in sizes]).sum()
        of = [sum(rank[k][0][part] - layers * fixed[i] for rank in steps) / max(1e-9, sum(alone(rank[k][1]) for rank in steps))
              for k in chosen]
        found.append(min(2.0, max(0.5, statistics.median(of))))
    return found


def documents(readings, pace=None, draw=lambda n: range(n)):
    """(cluster, model) as dicts, of Calibration.readings. pace: of each round, (of wall time, of work), which its readings are
    divided by. draw: which of n readings count, for resampling."""
    r = types.SimpleNamespace(**readings)
    chosen = draw(len(r.steps[0]))
    work = {name: statistics.median(statistics.median(rank[k][0][name] for k in chosen) for rank in r.steps)
            for name in r.steps[0][0][0]}
    found = _medians(r.rounds, draw(len(r.rounds[0])), pace)
    of = lambda word: {int(name.split()[1]): s for name, s in found.items() if name.split()[0] == word and " " in name}
    crowd, ranks, d_model = max(1.0, r.ranks / r.processors), r.ranks, r.d_model
    wires = {"counts": found["counts"], "all-reduce": found["all-reduce"], "busy": found["busy"], "meet": 0.0,
             **{kind: of(kind) for kind in ("all", "one", "pair")}}
    fixed = tuple(found["fixed " + way] for way in WAYS)
    experts = {rows: [max(1e-9, of(way)[rows]) for way in WAYS] for rows in ROWS}
    beside = _in_steps(r.steps, chosen, r.layers, fixed, experts)
    experts = {rows: [s * more for s, more in zip(times, beside)] for rows, times in experts.items()}
    copies = {kind: of(kind) for kind in ("gather", "scatter", "replica", "guest", "sum")}
    kept_s = _of_each(copies["guest"]) + _of_each(copies["sum"]) + max(0.0, found["optimizer"])
    matrices = max(2, min(3, r.matrices))
    d_ffn = r.expert_params // (matrices * d_model)
    attention = max(1, r.dense // r.layers)
    shape = {"name": "trainer", "layers": r.layers, "d_model": d_model, "d_ffn": d_ffn, "ffn_matrices": matrices,
             "experts": r.experts, "top_k": r.top_k, "heads": 1, "d_head": 1, "attention_params": attention,
             "seq_len": 2, "tokens_per_rank": r.tokens, "dtype_bytes": r.dtype_bytes,
             "grad_bytes": 4, "optimizer_bytes": 8, "attention": "full", "notes": "made by hecate.torch.calibrate"}
    update = shape["grad_bytes"] + 2 * shape["optimizer_bytes"] + shape["dtype_bytes"]  # read and written, of a parameter
    optimizer = (kept_s, r.layers * r.experts / ranks, update * r.expert_params,
                 update * r.layers * (attention + d_model * r.experts))
    flops = {"attention": 2.0 * attention + 8, "gate": 2.0 * d_model * r.experts,
             "expert": 2.0 * matrices * d_model * d_ffn}
    link = bandwidth, latency = _link([(b, s) for kind in ("all", "one", "pair") for b, s in wires[kind].items()])
    wires["meet"] = max(latency, found["meet"]) if ranks > 1 else 0.0
    # Of a rank's share of the processors: what its transfers take while they last, beyond processors that are left over.
    share = max(0.0, wires["busy"] - max(0, r.processors - ranks) / ranks) * crowd
    cluster = {"name": "trainer", "nodes": 1, "devices_per_node": ranks, "cores": min(ranks, r.processors),
               "nvlink": {"bandwidth": bandwidth, "latency": latency},
               "device": {"flops": flops["expert"] * ROWS[-1] / experts[ROWS[-1]][0], "flops_efficiency": 1,
                          "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks, "launch_s": 1e-6,
                          "gemm_tile": 1, "comm_share": min(0.99, share)},
               "plan": {"a_s": 0, "b_s": 0},
               "measured": _curves(work, fixed, experts, wires, link, flops, r.layers, ranks, crowd, optimizer) +
               _copy_curves(copies, link, r.expert_params * r.dtype_bytes, crowd),
               "machine": {"cores": os.cpu_count(), "system": platform.platform(), "torch": torch.__version__},
               "calibration": {"by": "hecate.torch.calibrate", "step_s": work["step"], "window_s": work["window"] * crowd,
                               "meet_s": (4 * r.layers * wires["meet"] + 2 * (wires["counts"] + wires["meet"] - latency)) / crowd,
                               "work_s": work, "copies_s": {k: list(v.items()) for k, v in copies.items()},
                               "wires_s": {k: list(v.items()) if isinstance(v, dict) else v
                                           for k, v in wires.items()},
                               "layer_s": list(fixed), "in_steps": beside, "kept_s": kept_s,
                               "steps": len(r.steps[0]), "rounds": len(r.rounds[0])}}
    return cluster, shape


def calibrate(model, batch, group=None, out=None, steps=10, rounds=7):
    """Measures, and returns (cluster, model) as dicts, the same on every rank.

    model    has MoELayers of one ExpertParallel, without activation checkpointing
    batch    a function that trains one step as the trainer does, step() of the ExpertParallel included
    group    the ranks: those of the ExpertParallel, which is the default
    out      "trainer": rank 0 writes trainer-cluster.json and trainer-model.json"""
    readings = Calibration(model, group)
    for _ in range(steps + 1):
        readings.step(batch)
    for _ in range(rounds + 1):
        readings.round()
    made = documents(readings.readings())
    if out is not None and readings.exchange.rank == 0:
        for what, document in zip(("cluster", "model"), made):
            with open("%s-%s.json" % (out, what), "w") as file:
                json.dump(document, file, indent=1)
    return made
