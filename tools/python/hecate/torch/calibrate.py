"""What a trainer's own operations take on this machine, as a cluster file and a model file for hecate-sim.

    cluster, model = calibrate(model, batch, out="trainer")     # trainer-cluster.json, trainer-model.json
    hecate-sim trace.jsonl.gz --cluster trainer-cluster.json --model trainer-model.json

Measured are medians of two kinds. Whole steps are taken apart at the MoE layers: window before a layer, and what is
left of a step. Single operations are measured at several sizes. Computing is measured one rank after another, so a
time is that of a rank alone; how much slower ranks are together is `cores`. Collectives are measured with all ranks.
Time in which a rank had no processor is taken out where there is a core a rank: then others had it."""
import json
import os
import platform
import statistics

import torch
import torch.distributed as dist

from .._library import BadInput
from ._watch import Watch, now, own_cores
from .moe import MoELayer, _by_destination

ROWS = (1, 8, 32, 128, 512, 2048)
ALWAYS = 1e15  # a size that nothing reaches: the curve up to it is flat


def _windows(layers, batch, steps):
    """Seconds of whole steps: {"forward": window before a layer, "backward": ..., "rest": .., "step": ..}; medians."""
    marks = []

    def enter(layer, given):
        marks[-1]["in", layer.layer] = now()
        x, step, at = given[0], marks[-1], layer.layer
        if x.requires_grad:
            x.register_hook(lambda grad: step.__setitem__(("grad in", at), now()))

    def leave(layer, given, out):
        marks[-1]["out", layer.layer] = now()
        step, at = marks[-1], layer.layer
        if out.requires_grad:
            out.register_hook(lambda grad: step.__setitem__(("grad out", at), now()))

    hooks = [h for layer in layers for h in (layer.register_forward_pre_hook(enter), layer.register_forward_hook(leave))]
    for _ in range(steps + 1):  # the first one warms up
        marks.append({"begin": now()})
        batch()
        marks[-1]["end"] = now()
    for hook in hooks:
        hook.remove()
    n, found = len(layers), {"forward": [], "backward": [], "rest": [], "step": [], "moe": []}
    for m in marks[1:]:
        if ("grad in", 0) not in m:
            raise BadInput("calibrate: expected batch() to run forward and backward through every MoE layer once")
        forward = [m["in", i] - m["out", i - 1] for i in range(1, n)]
        backward = [m["grad out", i - 1] - m["grad in", i] for i in range(1, n)]
        layers_s = (m["out", n - 1] - m["in", 0]) + (m["grad in", 0] - m["grad out", n - 1])
        found["forward"] += forward
        found["backward"] += backward
        found["step"].append(m["end"] - m["begin"])
        window = statistics.median(forward) + statistics.median(backward) if n > 1 else 0
        found["rest"].append(max(0.0, found["step"][-1] - layers_s - window))  # layer 0 has a window, too
        found["moe"].append((layers_s - sum(forward) - sum(backward)) / n)
    return {what: statistics.median(times) if times else 1e-9 for what, times in found.items()}


class _Bench:
    """Operations of a layer on made-up tokens, forward and backward: {name: function that returns seconds (forward, backward)}."""

    def __init__(self, layer, x):
        self.layer, self.parallel, self.exchange = layer, layer.parallel, layer.parallel.exchange
        self.x = torch.randn_like(x.detach().reshape(-1, x.shape[-1]))
        self.kept = max(1, layer.parallel.experts // self.exchange.size)
        n, k = len(self.x), layer.parallel.top_k
        self.chosen = torch.arange(n * k).reshape(n, k) % layer.parallel.experts
        send = torch.zeros(layer.parallel.experts, self.exchange.size, dtype=torch.long)
        send[:, 0] = torch.bincount(self.chosen.flatten(), minlength=layer.parallel.experts)
        self.send = send
        self.operations = {"gate": self.gate, "permute": self.permute, "unpermute": self.unpermute, "plan": self.plan,
                           "product": self.product}
        for rows in ROWS:
            self.operations["expert", rows] = lambda rows=rows: self.expert(rows)

    def timed(self, function, *tensors):
        leaves = [t.detach().requires_grad_() for t in tensors]
        watch = Watch()
        out = function(*leaves)
        forward, grad = watch.lap(), torch.ones_like(out)
        watch.start()
        out.backward(grad)
        return forward, watch.lap()

    def gate(self):
        for p in self.layer.router.parameters():
            p.grad = None
        times = self.timed(lambda x: self.layer.router(x)[0].sum(), self.x)
        for p in self.layer.router.parameters():
            p.grad = None
        return times

    def permute(self):
        def function(x):
            torch.bincount(self.chosen.reshape(-1), minlength=self.parallel.experts)
            return x[_by_destination(self.chosen.reshape(-1), self.send) // self.chosen.shape[1]]
        return self.timed(function, self.x)

    def unpermute(self):
        order = _by_destination(self.chosen.reshape(-1), self.send)
        token = order // self.chosen.shape[1]
        back, weights = self.x[token], torch.ones(self.chosen.shape, dtype=self.x.dtype)
        return self.timed(lambda b, w: torch.zeros_like(self.x).index_add(0, token, b * w.reshape(-1)[order].unsqueeze(1)),
                          back, weights)

    def plan(self):
        counts = torch.full((self.exchange.size, self.parallel.experts), len(self.x) // self.parallel.experts + 1)
        plan = self.parallel.planner.step(self.parallel.iteration, 1)  # a further micro-batch: nothing moves
        watch = Watch()
        plan.refine(0, counts.numpy())
        plan.routes(0, self.exchange.rank)
        took = watch.lap()
        plan.release()
        return took, 0.0

    def expert(self, rows):
        """Seconds an expert: one at work of few, as many as a rank keeps of one size."""
        store, n = self.layer.experts, self.kept if rows <= 128 else 1
        weight = torch.zeros(n, store.parameters_of_expert, dtype=store.compute_dtype)
        x = self.x[:1].expand(n * rows, -1).contiguous()

        def function(weight, x):
            order = torch.argsort(torch.arange(n).repeat_interleave(rows), stable=True)
            parts, matrices = x[order].split([rows] * n), weight.unbind(0)
            done = torch.cat([self.parallel.expert(self.layer._matrices(matrices[e]), parts[e].to(weight.dtype)) for e in range(n)])
            inverse = torch.empty_like(order)
            inverse[order] = torch.arange(len(order))
            return done.to(x.dtype)[inverse]
        return tuple(t / n for t in self.timed(function, weight, x))

    def product(self):
        """What shows how ranks slow each other down: a millisecond or so of GEMMs."""
        a = torch.ones(256, 256)
        watch = Watch()
        for _ in range(20):
            a @ a
        return watch.lap(), 0.0


def _alone(bench, rounds):
    """{operation: (forward, backward)}: medians over rounds, then over ranks. A rank at a time."""
    exchange, found = bench.exchange, {name: [] for name in bench.operations}
    for turn in range(rounds * exchange.size):
        dist.barrier(group=exchange.group)
        if turn % exchange.size == exchange.rank:
            for name, operation in bench.operations.items():
                found[name].append(operation())
    return _over_ranks(exchange, {name: tuple(map(statistics.median, zip(*times[min(1, rounds - 1):])))
                                  for name, times in found.items()})


def _over_ranks(exchange, own):
    everywhere = [None] * exchange.size
    dist.all_gather_object(everywhere, own, group=exchange.group)
    return {name: tuple(statistics.median(ranks[name][i] for ranks in everywhere) for i in range(len(own[name])))
            for name in own}


def _together(bench, sizes, rounds):
    """Collectives, and the product on all ranks at once. {"counts": s, "product": s, bytes sent to others: s}."""
    exchange, width = bench.exchange, bench.x.shape[1]
    own = torch.zeros(bench.parallel.experts, dtype=torch.int64)
    found = {}

    def add(name, function):
        dist.barrier(group=exchange.group)
        watch = Watch()
        function()
        found.setdefault(name, []).append(watch.lap())

    for _ in range(rounds):
        add("counts", lambda: exchange.counts("calibrate", 0, 0, False, own))
        add("product", bench.product)
        for rows in sizes:
            data = torch.zeros(rows * exchange.size, width)
            add((exchange.size - 1) * rows * width * 4, lambda: exchange.rows("calibrate", data, [rows] * exchange.size,
                                                                              [rows] * exchange.size))
    return {name: s for name, (s,) in _over_ranks(exchange, {n: (statistics.median(t),) for n, t in found.items()}).items()}


def _link(times):
    """(bytes/s, seconds) of the line through {bytes: seconds} that is off least in relation to each."""
    weighted = [(1 / s ** 2, b, s) for b, s in times.items()]
    w, wb, ws = (sum(p * v for p, v in ((q[0], 1 if i == 0 else q[i]) for q in weighted)) for i in range(3))
    wbb, wbs = sum(q * b * b for q, b, s in weighted), sum(q * b * s for q, b, s in weighted)
    slope = (w * wbs - wb * ws) / (w * wbb - wb * wb)
    slope = max(slope, 1e-12)
    return 1 / slope, max(1e-7, (ws - slope * wb) / w)


def _flat(kind, backward, s, **more):
    return dict(kind=kind, backward=backward, points=[[1e-12, max(s, 1e-9)], [ALWAYS, max(s, 1e-9) * (1 + 1e-9)]], **more)


def _rising(points):
    """Times never fall with size: noise is no law."""
    highest, made = 0.0, []
    for x, s in points:
        highest = max(highest, s, 1e-9)
        made.append([x, highest])
    return made


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
    own_cores(exchange.size)
    hook = layers[0].register_forward_pre_hook(lambda layer, given: seen.append(given[0].detach()))
    whole = _windows(layers, batch, steps)
    hook.remove()
    whole = {name: s for name, (s,) in _over_ranks(exchange, {n: (s,) for n, s in whole.items()}).items()}
    parallel._end()
    bench = _Bench(layers[0], seen[-1])
    tokens = len(bench.x)
    together = _together(bench, (8, 64, 256, 1024), rounds)
    alone = _alone(bench, rounds)
    slower = max(1.0, together["product"] / alone["product"][0])
    ranks, d_model = exchange.size, parallel.d_model
    expert_params = parallel.stores[0].parameters_of_expert
    own = {id(w) for w in parallel.parameters()}
    dense = sum(p.numel() for p in model.parameters() if id(p) not in own)
    matrices = max(2, min(3, len(parallel.shapes)))
    d_ffn = expert_params // (matrices * d_model)
    attention = max(1, dense // len(layers))
    shape = {"name": "trainer", "layers": len(layers), "d_model": d_model, "d_ffn": d_ffn, "ffn_matrices": matrices,
             "experts": parallel.experts, "top_k": parallel.top_k, "heads": 1, "d_head": 1, "attention_params": attention,
             "seq_len": 2, "tokens_per_rank": tokens, "dtype_bytes": bench.layer.experts.weight.element_size(),
             "grad_bytes": 4, "optimizer_bytes": 8, "attention": "full", "notes": "made by hecate.torch.calibrate"}
    flops = {"attention": 2.0 * attention + 8, "gate": 2.0 * d_model * parallel.experts,
             "expert": 2.0 * matrices * d_model * d_ffn}
    bandwidth, latency = _link({b: s for b, s in together.items() if not isinstance(b, str)})
    curves = []
    for backward in (False, True):
        times = 1 + backward
        point = lambda kind, s: dict(kind=kind, backward=backward, flops_per_row=times * flops[kind],
                                     points=[[1, max(s, 1e-9)], [ALWAYS, max(s, 1e-9) * (1 + 1e-9)]])
        curves.append(point("attention", whole["backward" if backward else "forward"] / slower))
        curves.append(point("gate", alone["gate"][backward]))
        curves.append(dict(kind="expert", backward=backward, flops_per_row=times * flops["expert"],
                           points=_rising((rows, alone["expert", rows][backward]) for rows in ROWS)))
        curves += [_flat(kind, backward, alone[kind][backward]) for kind in ("permute", "unpermute")]
    curves.append(_flat("optimizer", True, whole["rest"] / slower))
    curves.append(_flat("optimizer", False, whole["rest"] / slower))
    if ranks > 1:
        curves += [dict(kind="counts", ranks=ranks, points=[[1e-12, together["counts"]], [ALWAYS, together["counts"] * (1 + 1e-9)]]),
                   dict(kind="all-reduce", ranks=ranks, points=[[1e-12, 1e-9], [ALWAYS, 2e-9]])]  # is in what is left of a step
    cluster = {"name": "trainer", "nodes": 1, "devices_per_node": ranks, "cores": ranks / slower,
               "nvlink": {"bandwidth": bandwidth, "latency": latency},
               "device": {"flops": flops["expert"] * ROWS[-1] / alone["expert", ROWS[-1]][0], "flops_efficiency": 1,
                          "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks, "launch_s": 1e-6,
                          "gemm_tile": 1},
               "plan": {"a_s": alone["plan"][0], "b_s": 0}, "measured": curves,
               "machine": {"cores": os.cpu_count(), "system": platform.platform(), "torch": torch.__version__},
               "calibration": {"by": "hecate.torch.calibrate", "step_s": whole["step"], "window_s": whole["forward"],
                               "layer_s": whole["moe"], "rest_s": whole["rest"], "slower_together": slower,
                               "steps": steps, "rounds": rounds}}
    made = [cluster, shape]
    dist.broadcast_object_list(made, src=dist.get_global_rank(exchange.group, 0), group=exchange.group)
    if out is not None and exchange.rank == 0:
        for what, document in zip(("cluster", "model"), made):
            with open("%s-%s.json" % (out, what), "w") as file:
                json.dump(document, file, indent=1)
    return tuple(made)
