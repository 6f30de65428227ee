"""Processes of a torch.distributed job (gloo), forked from one that has imported torch, for the tests of hecate.torch."""
import gc
import os
import signal
import sys
import tempfile
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist


def run(size, function, *arguments, may_die=(), group=True):
    """function(rank, size, *arguments) on every rank; with `group` in the job's process group. Where a rank fails the others are
    ended, and so is the test; ranks of may_die may end in any way."""
    sys.stdout.flush()
    gc.collect()
    gc.freeze()  # ranks do not look through what is here already: every page of it would be copied
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                os._exit(_child(rank, size, group and os.path.join(folder, "meeting"), function, arguments))
            children.append(child)
        running = set(children)
        while running:
            child, status = os.wait()
            running.discard(child)
            if status != 0 and children.index(child) not in may_die:
                for other in running:
                    os.kill(other, signal.SIGKILL)
                sys.exit("%s%s: rank %d failed" % (function.__name__, arguments, children.index(child)))


def _child(rank, size, meeting, function, arguments):
    try:
        torch.set_num_threads(1)
        if meeting:
            dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=size,
                                    timeout=timedelta(minutes=10))
        function(rank, size, *arguments)
        sys.stdout.flush()
        return 0
    except BaseException:
        traceback.print_exc()
        return 1


def adapted(make, adapter, experts_in, policy, dtype, **options):
    """A model as it was made, and one whose experts an adapter replaced, with equal weights. The adapted one's experts; and the first
    one's weights of experts, which have `experts_in` in their names."""
    theirs = make().to(dtype)
    torch.manual_seed(4)
    for p in theirs.parameters():
        torch.nn.init.uniform_(p, -0.3, 0.3)
    ours = make().to(dtype)
    ours.load_state_dict(theirs.state_dict())
    parallel = adapter.replace(ours, policy, dtype=dtype, **options)
    named = {n: p for n, p in theirs.named_parameters() if experts_in in n}
    assert list(adapter.weights(ours)) == list(named)
    assert all(torch.equal(w, named[n]) for n, w in adapter.weights(ours).items())
    return theirs, ours, parallel, named
