"""Records what the routers of a PyTorch model choose, as a trace for hecate-sim.

    recorder = hecate.Recorder("run.jsonl.gz", experts=64, top_k=2, model="Mixtral-8x7B")
    recorder.attach(m for name, m in model.named_modules() if name.endswith(".gate"))
    for batch in data:
        ...                 # forward, backward, optimizer
        recorder.step()     # on every rank: one record an iteration
    recorder.close()

Routers are modules whose output is top-k indices (whole numbers, the last axis top_k long) or logits over the experts.
Of logits the top_k are taken; of a tuple the first tensor that is either. An index of -1 counts for no expert. Order
of attach: order of layers. Where torch.distributed is initialised every rank is a source, and rank 0 of `group`
writes. Ranks with data of their own must be in it, once each (not tensor-parallel copies of the same tokens). Counted
is what routers chose, before a capacity drops.

Until close() the trace is PATH.part; it stays that where a run fails, and reads as far as it goes. What was at PATH stays until
then.

A forward pass that is run again (activation recomputation) is counted again: detach, or let `wanted()` say when to count.
Needs PyTorch, and nothing else beside the standard library; counting costs one bincount and one copy of `experts` numbers
to the host a layer."""
import gzip
import json
import operator
import os

PHASES = ("train", "prefill", "decode", "prefill+decode", "forward")


def _whole(what, value, low, high, why=""):
    try:
        if low <= operator.index(value) <= high:
            return operator.index(value)
    except TypeError:
        pass
    raise ValueError("%s: expected a whole number from %d to %d%s, found %r" % (what, low, high, why, value))


def _text(what, value):
    """One that a trace may hold, or None."""
    plain = isinstance(value, str) and not any(ord(c) < 32 or 0xd800 <= ord(c) < 0xe000 for c in value)
    if value is None or plain:
        return value
    raise ValueError("%s: expected text without control characters, found %r" % (what, value))


class Recorder:
    def __init__(self, path, experts, top_k, model=None, name=None, phase="train", group=None, wanted=None):
        self.path, self.group = os.fspath(path), group
        self.experts = _whole("experts", experts, 1, 2**31 - 1)
        self.top_k = _whole("top_k", top_k, 1, self.experts, " (the experts)")
        if phase is not None and phase not in PHASES:
            raise ValueError("phase: expected one of %s, found %r" % (", ".join(PHASES), phase))
        about = {"model": _text("model", model), "name": _text("name", name), "phase": phase}
        self.about = {key: value for key, value in about.items() if value}
        self.wanted = wanted or (lambda: True)
        self.counts, self.hooks, self.out, self.iteration, self.last = [], [], None, 0, 0

    def attach(self, routers):
        """Forward hooks on these modules, a layer each."""
        for router in routers:
            layer = len(self.counts)
            self.counts.append([0] * self.experts)
            self.hooks.append(router.register_forward_hook(
                lambda module, inputs, output, layer=layer: self.count(layer, output)))
        return self

    def detach(self):
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def chosen(self, output):
        """The indices of experts in what a router returned."""
        tensors = output if isinstance(output, (tuple, list)) else [output]
        for tensor in tensors:
            if not hasattr(tensor, "is_floating_point") or len(tensor.shape) == 0:
                continue
            if not tensor.is_floating_point() and tensor.shape[-1] == self.top_k:
                return tensor
            if tensor.is_floating_point() and tensor.shape[-1] == self.experts:
                return tensor.topk(self.top_k, dim=-1).indices
        shapes = [tuple(t.shape) for t in tensors if hasattr(t, "shape")]
        raise ValueError("router: expected indices [.., %d] or logits [.., %d] in its output, found tensors of %s" %
                         (self.top_k, self.experts, shapes))

    def count(self, layer, output):
        import torch
        if not self.wanted():
            return
        chosen = self.chosen(output).reshape(-1) + 1  # -1: no expert (padding, a token that was masked)
        counted = torch.bincount(chosen, minlength=self.experts + 1).tolist()[1:]
        if len(counted) > self.experts:
            raise ValueError("router of layer %d: expected experts below %d, found %d" %
                             (layer, self.experts, len(counted) - 1))
        self.counts[layer] = [a + b for a, b in zip(self.counts[layer], counted)]

    def gather(self):
        """counts[layer][expert] of every source, in order of ranks, on the rank that writes; None on the others."""
        import torch
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return [self.counts]
        ranks = [None] * distributed.get_world_size(self.group)
        distributed.all_gather_object(ranks, self.counts, group=self.group)
        return ranks if distributed.get_rank(self.group) == 0 else None

    def step(self, iteration=None):
        """Ends an iteration (all its micro-batches): a record of what was counted since the last one. `iteration`: its number,
        which never falls; default: one more than the last."""
        if iteration is not None:
            self.iteration = _whole("iteration", iteration, self.last, 2**53, " (they are in order)")
        sources = self.gather()
        if sources is not None:
            if self.out is None:
                self.begin(len(sources))
            layers = [[source[layer] for source in sources] for layer in range(len(self.counts))]
            self.write({"iter": self.iteration, "layers": layers})
        self.counts = [[0] * self.experts for _ in self.counts]
        self.last, self.iteration = self.iteration, self.iteration + 1

    def begin(self, sources):
        if not self.counts:
            raise ValueError("recorder: expected routers (attach), found none")
        self.out = (gzip.open if self.path.endswith(".gz") else open)(self.path + ".part", "wt")
        self.write(dict(format="hecate-trace", version=1, layers=len(self.counts), experts=self.experts,
                        top_k=self.top_k, source_ranks=sources, layout="layer x source_rank x expert",
                        counted="before_drop", source="hecate.Recorder", **self.about))

    def write(self, record):
        self.out.write(json.dumps(record, separators=(",", ":")) + "\n")

    def close(self, complete=True):
        self.detach()
        if self.out is not None:
            self.out.close()
            self.out = None
            if complete:
                os.replace(self.path + ".part", self.path)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close(complete=error[0] is None)
