"""The experts of one layer: what this rank keeps, in one contiguous parameter, and the guests of a micro-batch.

    weight [kept, P]        rows of the experts that this rank keeps, ascending: homes and resident copies
    guests [n, S * P]       experts gathered for one micro-batch

With S slices (policies that cut every expert over all ranks) a row is this rank's slice. Else S = 1 and a row is an expert.
P is the parameters of an expert, filled up to a multiple of the slices. Rows never mix in an element-wise optimizer (SGD,
Adam), so its state moves with them."""
import contextlib
from typing import Dict, List, Tuple

import torch
from torch.utils import _python_dispatch

from .._library import BadInput
from ..planner import Guest


def kept_by(placement, layer: int) -> List[List[int]]:
    """[experts]: the ranks that keep the expert between iterations, home and residents, ascending; with slices the homes."""
    homes = placement.homes[layer].tolist()
    if isinstance(homes[0], list):
        return [sorted(set(ranks)) for ranks in homes]
    at, rank, kind = (list(a) for a in placement.copies(layer))
    return [sorted({homes[e]} | {int(rank[i]) for i in range(at[e], at[e + 1]) if kind[i] == 0})
            for e in range(len(homes))]


def _unseen(function):
    """Selective activation checkpointing keeps results of a block by the order of its operations. A gather is started in the
    block before, and in its own when that is computed again: it must not count. PyTorch has no public way to say so."""
    def hidden(*arguments):
        with getattr(_python_dispatch, "_disable_current_modes", contextlib.nullcontext)():
            return function(*arguments)
    return hidden


def guests_of(plan, layer: int, which: str) -> List[Guest]:
    """As Plan.guests; with slices every copy is a guest that gathers from all ranks (owner -1)."""
    if plan.planner.slices == 1:
        return plan.guests(layer, which)
    at, rank, _ = plan.copies(layer)
    receivers = [sorted({int(r) for r in rank[at[e]:at[e + 1]]}) for e in range(len(at) - 1)]
    return [Guest(e, -1, tuple(to)) for e, to in enumerate(receivers) if to and which != "added"]


class Transfers:
    """What one gather moves, seen from this rank: rows `send` of the weight to each rank, and experts `receive` that come."""

    def __init__(self, guests: List[Guest], row_of: Dict[int, int], rank: int, ranks: int, slices: int):
        self.send_rows: List[int] = []
        self.n_send, self.n_receive = [0] * ranks, [0] * ranks
        self.experts = [g.expert for g in guests if rank in g.receivers]
        self.any = bool(guests)
        for to in range(ranks):
            rows = [row_of[g.expert] for g in guests if to in g.receivers and g.owner in (rank, -1)]
            self.send_rows += rows
            self.n_send[to] = len(rows)
        for source in range(ranks):
            self.n_receive[source] = sum(rank in g.receivers and g.owner in (source, -1) for g in guests)
        if slices == 1:  # they come by source, then expert: that is their order
            self.experts = [g.expert for source in range(ranks) for g in guests
                            if rank in g.receivers and g.owner == source]


class ExpertStore(torch.nn.Module):
    """weight: see above, `torch.nn.Parameter` in `dtype`. Guests and compute are in `compute_dtype`. Gradients of
    guests travel in it and are summed in `dtype`, in ascending order of ranks. Gradients are multiplied by `scale`."""

    def __init__(self, layer, planner, exchange, parameters, dtype, compute_dtype, device, scale):
        super().__init__()
        self.layer, self.planner, self.exchange = layer, planner, exchange
        self.compute_dtype, self.scale = compute_dtype, scale
        self.slices = planner.slices
        self.parameters_of_expert = parameters
        self.row_length = -(-parameters // self.slices)
        self.place(kept_by(planner, layer))
        self.weight = torch.nn.Parameter(torch.zeros(len(self.kept), self.row_length, dtype=dtype, device=device))

    def place(self, keepers):
        """keepers: kept_by. The weight is somebody else's work."""
        self.keepers = keepers
        self.kept = [e for e, ranks in enumerate(keepers) if self.exchange.rank in ranks]
        self.row_of = {e: row for row, e in enumerate(self.kept)}
        self.replicated = self.slices == 1 and any(len(ranks) > 1 for ranks in keepers)

    def homes(self) -> List[int]:
        """Experts of which this rank's row counts (in norms, checkpoints): the lowest rank that keeps it, or its slice."""
        return [e for e in self.kept if self.slices > 1 or self.keepers[e][0] == self.exchange.rank]

    def of_homes(self, rows):
        """Of tensors like the weight the rows of homes; not copied where all are."""
        homes = self.homes()
        return rows if len(homes) == len(self.kept) else rows[[self.row_of[e] for e in homes]]

    def cut(self, flat):
        """This rank's row of an expert's parameters [parameters]."""
        padded = torch.nn.functional.pad(flat, (0, self.row_length * self.slices - flat.numel()))
        return padded.view(self.slices, self.row_length)[self.exchange.rank if self.slices > 1 else 0]

    @torch.no_grad()
    def fill(self, expert, flat):
        if expert in self.row_of:
            self.weight.data[self.row_of[expert]] = self.cut(flat.to(self.weight))

    # ---- Guests ----

    @torch.no_grad()
    @_unseen
    def gather_start(self, guests):
        """SparseAllGather; returns what gather_end takes. None: nothing moves."""
        if not guests:
            return None
        moved = Transfers(guests, self.row_of, self.exchange.rank, self.exchange.size, self.slices)
        rows = self.weight[moved.send_rows].to(self.compute_dtype)
        received, work = self.exchange.rows("SparseAllGather of layer %d" % self.layer, rows, moved.n_send,
                                            moved.n_receive, aside=True, later=True)
        return moved, received, work, rows

    @_unseen
    def gather_end(self, started):
        """[n, slices * row_length] of the guests, and their experts."""
        moved, received, work, _ = started
        self.exchange.wait("SparseAllGather of layer %d" % self.layer, work)
        if self.slices > 1:
            received = received.view(self.slices, -1, self.row_length).transpose(0, 1).reshape(len(moved.experts), -1)
        return received, moved

    @torch.no_grad()
    def scatter_start(self, grad, moved):
        """SparseReduceScatter of the guests' gradients; returns what scatter_end takes."""
        if self.slices > 1:
            grad = grad.view(-1, self.slices, self.row_length).transpose(0, 1).reshape(-1, self.row_length)
        received, work = self.exchange.rows("SparseReduceScatter of layer %d" % self.layer, grad, moved.n_receive,
                                            moved.n_send, aside=True, later=True)
        return moved, received, work, grad

    @torch.no_grad()
    def scatter_end(self, started, into):
        moved, received, work, _ = started
        self.exchange.wait("SparseReduceScatter of layer %d" % self.layer, work)
        first = 0
        for n in moved.n_send:  # of one rank every expert at most once: no row twice in an index_add
            rows = torch.tensor(moved.send_rows[first:first + n], dtype=torch.long, device=into.device)
            into.index_add_(0, rows, received[first:first + n].to(into.dtype))
            first += n

    @torch.no_grad()
    def sum_start(self, grad):
        """Every keeper of an expert sends its gradient to the others; returns what sum_end takes. None: every expert has one."""
        if not self.replicated:
            return None
        own, size = self.exchange.rank, self.exchange.size
        shared = [[e for e in self.kept if r in self.keepers[e] and len(self.keepers[e]) > 1] for r in range(size)]
        n = [len(experts) for experts in shared]
        rows = grad[[self.row_of[e] for experts in shared for e in experts]]
        received, work = self.exchange.rows("sum of resident copies of layer %d" % self.layer, rows, n, n, aside=True, later=True)
        return shared, shared[own], received, work, rows

    @torch.no_grad()
    def sum_end(self, started, grad):
        """In place: the sum of all keepers' gradients, in the same order, so the same bits on each."""
        if started is None:
            return
        shared, own, received, work, _ = started
        self.exchange.wait("sum of resident copies of layer %d" % self.layer, work)
        rows_of = lambda experts: torch.tensor([self.row_of[e] for e in experts], dtype=torch.long, device=grad.device)
        grad.index_fill_(0, rows_of(own), 0)
        for experts, part in zip(shared, received.split(list(map(len, shared)))):  # of one rank every expert at most once
            grad.index_add_(0, rows_of(experts), part)

    def add_gradient(self, grad):
        """A micro-batch's gradient [kept, P] of this rank's keeping, returned guests included, summed over keepers."""
        grad = grad.mul_(self.scale) if self.scale != 1 else grad
        if self.weight.grad is None:
            self.weight.grad = grad
        else:
            self.weight.grad += grad

    # ---- Re-sharding ----

    @torch.no_grad()
    def reshard(self, moves: List[Tuple[int, int, int]], keepers, states):
        """moves: (source, destination, expert), ascending. states: the optimizers' state of the weight, whose tensors of its
        shape move along."""
        grad = self.weight.grad
        if grad is not None and bool(grad.any()):
            raise BadInput("layer %d: experts move at this step, but gradients were not zeroed; call optimizer.zero_grad() "
                           "before ExpertParallel.step()" % self.layer)
        self.weight.grad = None
        exchange, row_of = self.exchange, self.row_of
        send = [[row_of[e] for s, d, e in moves if s == exchange.rank and d == to] for to in range(exchange.size)]
        come = [[e for s, d, e in moves if s == source and d == exchange.rank] for source in range(exchange.size)]
        old = dict(self.row_of)
        self.place(keepers)
        come_rows = [self.row_of[e] for experts in come for e in experts]
        stay = [(row, old[e]) for row, e in enumerate(self.kept) if e in old]

        def moved(tensor):
            rows = tensor[[row for rows in send for row in rows]]
            received = exchange.rows("re-sharding of layer %d" % self.layer, rows, list(map(len, send)), list(map(len, come)))
            new = tensor.new_empty(len(self.kept), self.row_length)
            new[[row for row, _ in stay]] = tensor[[row for _, row in stay]]
            new[come_rows] = received
            return new

        shape = self.weight.shape
        for state in states:
            for name in sorted(state):
                if torch.is_tensor(state[name]) and state[name].dim() > 0 and state[name].shape == shape:
                    state[name] = moved(state[name])
        self.weight.data = moved(self.weight.data)

    # ---- Checkpoints: experts whole, whatever the slices ----

    def _carriers(self):
        """With slices: expert e is put together on rank e mod ranks, and cut there."""
        guests = [Guest(e, -1, (e % self.exchange.size,)) for e in range(len(self.keepers))]
        return Transfers(guests, self.row_of, self.exchange.rank, self.exchange.size, self.slices)

    @torch.no_grad()
    def whole(self, tensor):
        """{expert: [parameters]} of rows like the weight's, every expert on one rank. A collective."""
        if self.slices == 1:
            return {e: tensor[self.row_of[e]] for e in self.homes()}
        moved = self._carriers()
        rows = self.exchange.rows("experts of layer %d" % self.layer, tensor[moved.send_rows], moved.n_send, moved.n_receive)
        flat = rows.view(self.slices, -1, self.row_length).transpose(0, 1).reshape(len(moved.experts), -1)
        return {e: flat[i, :self.parameters_of_expert] for i, e in enumerate(moved.experts)}

    def wanted(self):
        """Experts that put needs on this rank."""
        return self.kept if self.slices == 1 else self._carriers().experts

    @torch.no_grad()
    def put(self, tensor, experts):
        """The reverse of whole; experts: {expert: [parameters]} of `wanted`. A collective."""
        if self.slices == 1:
            for e in self.kept:
                tensor[self.row_of[e]] = experts[e]
            return
        moved, width = self._carriers(), self.row_length * self.slices
        flat = tensor.new_zeros(len(moved.experts), width)
        for i, e in enumerate(moved.experts):
            flat[i, :self.parameters_of_expert] = experts[e]
        rows = flat.view(-1, self.slices, self.row_length).transpose(0, 1).reshape(-1, self.row_length)
        tensor[moved.send_rows] = self.exchange.rows("experts of layer %d" % self.layer, rows, moved.n_receive, moved.n_send)

    @torch.no_grad()
    def full(self):
        """[experts, parameters] on every rank: for tests and export. A collective."""
        pieces = [None] * self.exchange.size
        mine = {e: flat.cpu() for e, flat in self.whole(self.weight.data).items()}
        torch.distributed.all_gather_object(pieces, mine, group=self.exchange.group)
        return torch.stack([next(piece[e] for piece in pieces if e in piece) for e in range(len(self.keepers))])
