"""Processes of a torch.distributed job (gloo), forked from one that has imported torch, for the tests of hecate.torch."""
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
