"""Runs the checks one after the other, each in a process forked from this one, which has imported PyTorch.

    check_all.py EXAMPLE     tools/python/examples/train_moe.py

Exit code 77: this Python has no PyTorch 2.1 with torch.distributed, or no numpy.

Where packages with their MoE layers are: HECATE_TORCHTITAN, HECATE_TRANSFORMERS, HECATE_MEGATRON, HECATE_DEEPSPEED."""
import gc
import os
import runpy
import socket
import sys
import traceback

try:
    import numpy  # noqa: F401
    import torch
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 1) or not torch.distributed.is_available():
        sys.exit(77)
except ImportError:
    sys.exit(77)
import torch.distributed.checkpoint  # noqa: F401

import hecate.torch  # noqa: F401


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


CHECKS = (("parity", "ep,hecate,eplb,flexmoe,laer,joint"), ("training",), ("titan",), ("titan_trainer",), ("hf",), ("megatron",), ("deepspeed",),
          ("measure", free_port()), ("example",) + tuple(sys.argv[1:]))
PACKAGES = dict(titan="HECATE_TORCHTITAN", titan_trainer="HECATE_TORCHTITAN", hf="HECATE_TRANSFORMERS", megatron="HECATE_MEGATRON", deepspeed="HECATE_DEEPSPEED")


def run(name, *arguments):
    """Whether the check passed."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_%s.py" % name)
    package = os.environ.get(PACKAGES.get(name, ""))
    if package:
        sys.path.append(package)
    sys.argv = [path, *arguments]
    try:
        runpy.run_path(path, run_name="__main__")
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code)
        code = int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    gc.freeze()
    failed = []
    for check in CHECKS:
        if not run(*check):
            print("FAILED: check_%s.py" % check[0], flush=True)
            failed.append(check[0])
    sys.exit("failed: " + ", ".join(failed) if failed else 0)
