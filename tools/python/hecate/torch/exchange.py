"""Collectives of the group, with the time that the caller waited in them, and one kind of exception when a rank is lost."""
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException  # no Exception, so `except Exception` misses it

from .._library import BadInput, Failed
from ._watch import moment


class Exchange:
    """group: the ranks that share the experts. Sparse collectives run on a second group of the same ranks, so that they go on
    beside those of the model."""

    def __init__(self, group=None):
        if not dist.is_initialized():
            raise BadInput("hecate.torch: torch.distributed is not initialised (run under torchrun, then init_process_group)")
        self.group = group if group is not None else dist.group.WORLD
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        members = dist.get_process_group_ranks(self.group)
        # Every rank of the world makes the same groups, whatever group of experts it is in.
        everywhere = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, members)
        self.aside = None
        for ranks in sorted(set(map(tuple, everywhere))):
            made = dist.new_group(list(ranks))
            if list(ranks) == members:
                self.aside = made
        self.waited_s = 0.0  #: seconds that this rank waited in collectives: exposed communication
        self.log = None  #: a list while somebody measures: (what, moment it began, moment it ended); see _watch.parts

    @contextmanager
    def timed(self, what):
        begin = None if self.log is None else moment()
        try:
            yield
        finally:
            if begin and self.log is not None:
                self.log.append((what, begin, moment()))

    @contextmanager
    def waiting(self, what):
        begin = time.perf_counter()
        try:
            with self.timed(what):
                yield
        except (RuntimeError, CheckpointException) as error:
            raise Failed("rank %d: %s failed; another rank stopped, or the network did: %s" %
                         (self.rank, what, str(error).splitlines()[0])) from error
        finally:
            self.waited_s += time.perf_counter() - begin

    def rows(self, what, rows, send, receive, aside=False, later=False):
        """all-to-all of rows [n, ..]: send[r] rows to rank r, receive[r] from it, in order of ranks. later: the received rows
        and what waits for them."""
        received = rows.new_empty((sum(receive),) + rows.shape[1:])
        with self.waiting(what):
            work = dist.all_to_all_single(received, rows.contiguous(), list(receive), list(send),
                                          group=self.aside if aside else self.group, async_op=later)
        return (received, work) if later else received

    def wait(self, what, work):
        with self.waiting(what):
            work.wait()

    def gather(self, what, numbers):
        """[ranks, ..] of every rank's numbers."""
        everywhere = numbers.new_empty((self.size,) + numbers.shape)
        with self.waiting(what):
            dist.all_gather_into_tensor(everywhere.view(-1), numbers.contiguous().view(-1), group=self.group)
        return everywhere

    def counts(self, what, tag, digest, wrong, own):
        """[ranks, experts] of every rank's counts. tag: where the program is; digest: of the plan in force. BadInput on every
        rank where ranks are elsewhere, have other plans, or one of them says `wrong`."""
        about = torch.tensor([tag, digest >> 32, digest & 0xffffffff, int(wrong)], device=own.device)
        everywhere = self.gather(what, torch.cat([own, about])).cpu()
        tags, digests, wrongs = everywhere[:, -4], everywhere[:, -3:-1], everywhere[:, -1]
        if (tags != tags[0]).any():
            rank = int((tags != tags[0]).nonzero()[0])
            say = [("step()" if t < 0 else "layer %d" % t) for t in (int(tags[0]), int(tags[rank]))]
            raise BadInput("%s: expected every rank at the same place, found rank 0 at %s and rank %d at %s" %
                           (what, say[0], rank, say[1]))
        if (digests != digests[0]).any():
            rank = int((digests != digests[0]).any(1).nonzero()[0])
            raise BadInput("%s: the plan of rank %d differs from rank 0's; every rank must call step() alike and restore the "
                           "same planner state" % (what, rank))
        if wrongs.any():
            raise BadInput("%s: the router of rank %d chose an expert outside 0 .. %d" %
                           (what, int(wrongs.nonzero()[0]), own.numel() - 1))
        return everywhere[:, :-4]

    def agree(self, what, value):
        """BadInput on every rank where the ranks' values differ."""
        everywhere = [None] * self.size
        with self.waiting(what):
            dist.all_gather_object(everywhere, value, group=self.group)
        for rank, other in enumerate(everywhere):
            if other != everywhere[0]:
                raise BadInput("%s: expected the same on every rank, found %s on rank 0 and %s on rank %d" %
                               (what, everywhere[0], other, rank))


class _Rows(torch.autograd.Function):
    """Exchange.rows with a gradient: the same rows the other way."""

    @staticmethod
    def forward(ctx, rows, exchange, what, send, receive, beside):
        ctx.exchange, ctx.what, ctx.send, ctx.receive, ctx.beside = exchange, what, send, receive, beside
        return exchange.rows(what, rows, send, receive)

    @staticmethod
    def backward(ctx, grad):
        if ctx.beside is None:
            back = ctx.exchange.rows(ctx.what + ", backward", grad, ctx.receive, ctx.send)
        else:
            work, sending = ctx.beside
            back, travels = ctx.exchange.rows(sending, grad, ctx.receive, ctx.send, later=True)
            work()
            ctx.exchange.wait(ctx.what + ", backward", travels)
        return back, None, None, None, None, None


def exchange_rows(rows, exchange, what, send, receive, beside=None):
    """beside: (what to do while the gradients travel, the name of their start)."""
    return _Rows.apply(rows, exchange, what, send, receive, beside)
