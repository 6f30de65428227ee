"""What a trainer's own operations take on this machine, as a cluster file and a model file for hecate-sim.

    cluster, model = calibrate(model, batch, out="trainer")     # trainer-cluster.json, trainer-model.json
    hecate-sim trace.jsonl.gz --cluster trainer-cluster.json --model trainer-model.json

Computing is measured as seconds of work (_watch.moment): the time in which a rank had a processor, whoever else wanted it. So
ranks that share processors are no special case: `cores` in the file says how many there are, and the simulator deals them
out. All ranks work at the same time, so what they take from each other's caches and memory is in it.

Parts of whole steps, between two waits for others, are taken as they are: the window before a layer, routing, and what is left
of a step. The experts are measured alone, since their rows differ: a layer's own code on made-up rows of several sizes. They
come as in a step: over an exchange, and to another layer each time, so neither rows nor weights lie in a cache already.
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

import torch
import torch.distributed as dist

from .._library import BadInput
from ..planner import Guest
from ._watch import cores, moment, parts, work_s
from .moe import MoELayer
from .store import guests_of

ROWS = (1, 8, 32, 128, 256, 512, 1024, 2048)
ALWAYS = 1e15  # a size that nothing reaches: the curve up to it is flat
SEGMENTS = ("begin", "window", "routes", "experts", "head", "experts backward", "window backward", "end")


def _segments(parallel, batch, steps):
    """{segment: seconds of work in a step, step: wall seconds}: medians of this rank."""
    found = {what: [] for what in SEGMENTS + ("step",)}
    for k in range(steps + 1):  # the first one warms up
        parallel.exchange.log, begin = [], moment()
        batch()
        end, log, parallel.exchange.log = moment(), parallel.exchange.log, None
        split = parts(log, begin, end, parallel.layers)
        if "experts backward" not in split:
            raise BadInput("calibrate: expected batch() to run forward and backward through every MoE layer once")
        for what in SEGMENTS if k > 0 else ():
            found[what].append(split[what][1])
        if k > 0:
            found["step"].append(end[0] - begin[0])
    return {what: statistics.median(times) for what, times in found.items()}


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
        receive = torch.zeros(self.layer.parallel.exchange.size, self.layer.parallel.experts, dtype=torch.long)
        receive[0, self.kept[:n]] = rows
        x, ones = self.arrived(n * rows).requires_grad_(), self.arrived(n * rows)
        begin = moment()
        for which in ("before", "added"):
            guests_of(self.plan, self.layer.layer, which)
        out = self.layer._compute(x, receive, [*self.came, *came])
        forward = work_s(begin)
        begin = moment()
        out.backward(ones)
        backward = work_s(begin)
        self.store.weight.grad = None
        return forward, backward

    def curves(self, rounds):
        """([fixed forward, backward], {rows: [forward, backward] of one expert}): medians of this rank, above what a layer
        takes that no row came to."""
        sizes = {rows: max(1, len(self.kept) if rows <= 128 else 1) for rows in ROWS}
        taken = {rows: [] for rows in (0,) + ROWS}
        for k in range(rounds + 1):
            for i, rows in enumerate(taken):
                self.turn(k + i)
                replicated, self.store.replicated = self.store.replicated, False
                dist.barrier(group=self.layer.parallel.exchange.group)
                times = self.timed(sizes.get(rows, 0), rows)
                taken[rows] += [times] if k > 0 else []
                self.store.replicated = replicated
        self.turn(0)
        medians = {rows: [statistics.median(t) for t in zip(*times)] for rows, times in taken.items()}
        fixed = medians.pop(0)
        return fixed, {rows: [max(1e-9, (t - f) / sizes[rows]) for t, f in zip(times, fixed)] for rows, times in medians.items()}


def _copies(bench, rounds):
    """Seconds of gathers, of the gradients' way back, and of the sum over resident copies, where every rank has 1, 2 .. experts
    of its neighbour: {"gather": {experts: wall seconds}, "scatter": .., "replica": .., "guest": {experts: work of a pass
    with them}, "sum": {experts: work of the sum}}."""
    store, exchange = bench.store, bench.layer.parallel.exchange
    size, kept = exchange.size, _everywhere(exchange, store.kept)
    found = {what: {} for what in ("gather", "scatter", "replica", "guest", "sum")}

    def add(what, n, function):
        dist.barrier(group=exchange.group)
        begin = time.perf_counter()
        made = function()
        found[what].setdefault(n, []).append(time.perf_counter() - begin)
        return made

    for n in (n for n in (1, 2, 4) if n <= min(map(len, kept))):
        guests = sorted(Guest(e, owner, ((owner + 1) % size,)) for owner in range(size) for e in kept[owner][:n])
        shared = copy.copy(store)
        keepers = {e: [r] for r in range(size) for e in kept[r]}
        keepers.update({e: sorted({r, (r + 1) % size}) for r in range(size) for e in kept[r][:n]})
        shared.place([keepers[e] for e in range(len(keepers))])
        grad = torch.zeros(len(shared.kept), store.row_length)
        own = torch.zeros(len(store.kept), store.row_length)
        for _ in range(rounds):
            came, moved = add("gather", n, lambda: store.gather_end(store.gather_start(guests)))
            add("scatter", n, lambda: store.scatter_end(store.scatter_start(came, moved), own))
            since = moment()
            add("replica", n, lambda: shared.sum_end(shared.sum_start(grad), grad))
            found["sum"].setdefault(n, []).append(work_s(since))
            work = sum(bench.timed(0, 0, [(came, _Local(moved.experts))]))
            found["guest"].setdefault(n, []).append(work)
    last = _over_ranks(exchange, {(what, n): (statistics.median(t),) for what, of in found.items() for n, t in of.items()}, max)
    return {what: {n: last[what, n][0] for n in of} for what, of in found.items()}


def _of_optimizer(bench, rounds):
    """Seconds of work that clipping and the optimizer's step take for an expert of a layer: twice as many as kept, less
    those kept."""
    optimizers, store = bench.layer.parallel.optimizers, bench.store
    n, taken = max(1, len(store.kept)), {}
    for optimizer in optimizers[:1]:
        for times in (1, 2):
            weight = torch.nn.Parameter(torch.zeros(times * n, store.row_length, dtype=store.weight.dtype))
            wanted = inspect.signature(type(optimizer)).parameters
            alone = type(optimizer)([weight], **{k: v for k, v in optimizer.defaults.items() if k in wanted})
            for k in range(rounds + 1):
                weight.grad = torch.ones_like(weight)
                begin = moment()
                torch.linalg.vector_norm(weight.grad)
                weight.grad.mul_(1.0)
                alone.step()
                taken.setdefault(times, []).extend([work_s(begin)] if k > 0 else [])
    found = {times: statistics.median(of) for times, of in taken.items()}
    own = max(0.0, found[2] - found[1]) / n if found else 0.0
    return _over_ranks(bench.layer.parallel.exchange, {0: (own,)})[0][0]


def _of_each(times, fixed=0.0):
    """Seconds of an expert: the line from nothing through {experts: seconds above fixed} that is off least."""
    return max(0.0, sum(n * (s - fixed) for n, s in times.items()) / sum(n * n for n in times)) if times else 0.0


MEETINGS = 8


def _meeting(bench, seconds, crowd, rounds):
    """Wall seconds of an exchange without rows to which all ranks come from so many seconds of work, beyond that work: the last
    rank's, median of the rounds."""
    exchange, x = bench.layer.parallel.exchange, torch.zeros(64, 64)
    size, found = exchange.size, []
    row = torch.zeros(size, bench.x.shape[1])
    for _ in range(rounds):
        dist.barrier(group=exchange.group)
        begin, worked = time.perf_counter(), 0.0
        for _ in range(MEETINGS):
            since = moment()
            while work_s(since) < seconds:
                torch.mm(x, x)
            worked += work_s(since)
            exchange.rows("calibrate", row, [1] * size, [1] * size)
        found.append((time.perf_counter() - begin, worked))
    took, worked = (statistics.median(t) for t in zip(*found))
    took = _over_ranks(exchange, {0: (took,)}, max)[0][0]
    worked = _over_ranks(exchange, {0: (worked,)}, statistics.mean)[0][0]
    return max(0.0, took - worked * crowd) / MEETINGS


def _everywhere(exchange, own):
    made = [None] * exchange.size
    dist.all_gather_object(made, own, group=exchange.group)
    return made


def _collectives(bench, dense, rounds):
    """Wall seconds, the last rank's, medians of the rounds: {"counts": .., "all-reduce": of `dense` numbers, "all", "one", "pair":
    {bytes of the busiest port: ..}, "busy": processors of a rank that are at work meanwhile}."""
    exchange, width = bench.layer.parallel.exchange, bench.x.shape[1]
    size, rank = exchange.size, exchange.rank
    own, gradient = torch.zeros(bench.layer.parallel.experts, dtype=torch.int64), torch.zeros(dense)
    patterns = {"all": lambda s, d: s != d, "one": lambda s, d: d == 0 and s != 0, "pair": lambda s, d: (s, d) == (0, 1)}
    found, busy = {}, [0.0, 0.0]

    def add(name, function):
        dist.barrier(group=exchange.group)
        begin, work = time.perf_counter(), time.process_time()
        function()
        took = time.perf_counter() - begin
        found.setdefault(name, []).append(took)
        return took, time.process_time() - work

    for _ in range(rounds):
        add("counts", lambda: exchange.counts("calibrate", 0, 0, False, own))
        add("all-reduce", lambda: dist.all_reduce(gradient, group=exchange.group))
        for rows in (8, 64, 256, 1024):
            for name, goes in patterns.items():
                send = [rows * goes(rank, other) for other in range(size)]
                receive = [rows * goes(other, rank) for other in range(size)]
                data, port = torch.zeros(sum(send), width), 4 * width * rows * (size - 1 if name != "pair" else 1)
                took, worked = add((name, port), lambda: exchange.rows("calibrate", data, send, receive))
                if name == "all":
                    busy = [busy[0] + worked, busy[1] + took]
    last = _over_ranks(exchange, {name: (statistics.median(t),) for name, t in found.items()}, max)
    made = {name: last[name][0] for name in ("counts", "all-reduce")}
    made.update({kind: {name[1]: s for name, (s,) in last.items() if name[0] == kind} for kind in patterns})
    made["busy"] = _over_ranks(exchange, {0: (busy[0] / busy[1],)})[0][0]
    return made


def _over_ranks(exchange, own, of=statistics.median):
    everywhere = _everywhere(exchange, own)
    return {name: tuple(of(ranks[name][i] for ranks in everywhere) for i in range(len(own[name]))) for name in own}


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


def _copy_curves(copies, fixed, link, expert_bytes, crowd):
    """By seconds of the link. What a guest takes of the layer's own work is in the way back of its gradient. crowd: ranks of a
    processor."""
    bandwidth, latency = link
    points = lambda of, share, more=lambda n: 0: _rising((latency + n * expert_bytes * share / bandwidth, s + more(n))
                                                         for n, s in of.items())
    guest = lambda n: crowd * max(0.0, copies["guest"][n] - sum(fixed))
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


def calibrate(model, batch, group=None, out=None, steps=10, rounds=7):
    """Measures, and returns (cluster, model) as dicts, the same on every rank.

    model    has MoELayers of one ExpertParallel, without activation checkpointing
    batch    a function that trains one step as the trainer does, step() of the ExpertParallel included
    group    the ranks: those of the ExpertParallel, which is the default
    out      "trainer": rank 0 writes trainer-cluster.json and trainer-model.json"""
    layers = [m for m in model.modules() if isinstance(m, MoELayer)]
    if not layers:
        raise BadInput("calibrate: expected MoELayers in the model, found none")
    parallel, exchange, seen = layers[0].parallel, layers[0].parallel.exchange, []
    if group is not None and group is not exchange.group:
        raise BadInput("calibrate: expected the group of the ExpertParallel")
    hook = layers[0].register_forward_pre_hook(lambda layer, given: seen.append(given[0].detach()))
    work = {name: (s,) for name, s in _segments(parallel, batch, steps).items()}
    hook.remove()
    work = {name: s for name, (s,) in _over_ranks(exchange, work).items()}
    windows = max(1, len(layers) - 1)
    times = {"window": windows, "window backward": windows, "routes": len(layers)}
    work = {name: s / times.get(name, 1) for name, s in work.items()}
    plan = parallel.plan
    parallel._end()
    own = {id(w) for w in parallel.parameters()}
    dense = sum(p.numel() for p in model.parameters() if id(p) not in own)
    bench = _Experts(layers, seen[-1], plan)
    tokens, wires = len(bench.x), _collectives(bench, dense, rounds)
    ranks, d_model, processors = exchange.size, parallel.d_model, _processors(exchange)
    crowd = max(1.0, ranks / processors)
    wires["meet"] = _meeting(bench, work["window"], crowd, rounds) if ranks > 1 else 0.0
    fixed, experts = bench.curves(rounds)
    fixed = _over_ranks(exchange, {0: tuple(fixed)})[0]
    experts = _over_ranks(exchange, {rows: tuple(times) for rows, times in experts.items()})
    copies = _copies(bench, rounds) if ranks > 1 and bench.store.slices == 1 else {"gather": {}}
    kept_s = (_of_each(copies.get("guest", {}), sum(fixed)) + _of_each(copies.get("sum", {})) + _of_optimizer(bench, rounds))
    expert_params = parallel.stores[0].parameters_of_expert
    matrices = max(2, min(3, len(parallel.shapes)))
    d_ffn = expert_params // (matrices * d_model)
    attention = max(1, dense // len(layers))
    shape = {"name": "trainer", "layers": len(layers), "d_model": d_model, "d_ffn": d_ffn, "ffn_matrices": matrices,
             "experts": parallel.experts, "top_k": parallel.top_k, "heads": 1, "d_head": 1, "attention_params": attention,
             "seq_len": 2, "tokens_per_rank": tokens, "dtype_bytes": bench.store.weight.element_size(),
             "grad_bytes": 4, "optimizer_bytes": 8, "attention": "full", "notes": "made by hecate.torch.calibrate"}
    update = shape["grad_bytes"] + 2 * shape["optimizer_bytes"] + shape["dtype_bytes"]  # read and written, of a parameter
    optimizer = (kept_s, len(layers) * parallel.experts / ranks, update * expert_params,
                 update * len(layers) * (attention + d_model * parallel.experts))
    flops = {"attention": 2.0 * attention + 8, "gate": 2.0 * d_model * parallel.experts,
             "expert": 2.0 * matrices * d_model * d_ffn}
    link = bandwidth, latency = _link([(b, s) for kind in ("all", "one", "pair") for b, s in wires[kind].items()])
    wires["meet"] = max(latency, wires["meet"]) if ranks > 1 else 0.0
    # Of a rank's share of the processors: what its transfers take while they last, beyond processors that are left over.
    share = max(0.0, wires["busy"] - max(0, processors - ranks) / ranks) * crowd
    cluster = {"name": "trainer", "nodes": 1, "devices_per_node": ranks, "cores": min(ranks, processors),
               "nvlink": {"bandwidth": bandwidth, "latency": latency},
               "device": {"flops": flops["expert"] * ROWS[-1] / experts[ROWS[-1]][0], "flops_efficiency": 1,
                          "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks, "launch_s": 1e-6,
                          "gemm_tile": 1, "comm_share": min(0.99, share)},
               "plan": {"a_s": 0, "b_s": 0},
               "measured": _curves(work, fixed, experts, wires, link, flops, len(layers), ranks, crowd, optimizer) +
               _copy_curves(copies, fixed, link, expert_params * shape["dtype_bytes"], crowd),
               "machine": {"cores": os.cpu_count(), "system": platform.platform(), "torch": torch.__version__},
               "calibration": {"by": "hecate.torch.calibrate", "step_s": work["step"], "window_s": work["window"] * crowd,
                               "meet_s": (4 * len(layers) * wires["meet"] + 2 * (wires["counts"] + wires["meet"] - latency)) / crowd,
                               "work_s": work, "copies_s": {k: list(v.items()) for k, v in copies.items()},
                               "wires_s": {k: list(v.items()) if isinstance(v, dict) else v
                                           for k, v in wires.items()},
                               "layer_s": list(fixed), "kept_s": kept_s, "steps": steps, "rounds": rounds}}
    made = [cluster, shape]
    dist.broadcast_object_list(made, src=dist.get_global_rank(exchange.group, 0), group=exchange.group)
    if out is not None and exchange.rank == 0:
        for what, document in zip(("cluster", "model"), made):
            with open("%s-%s.json" % (out, what), "w") as file:
                json.dump(document, file, indent=1)
    return tuple(made)
