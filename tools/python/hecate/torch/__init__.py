"""FSSDP in a PyTorch trainer: experts are kept once, copied where a policy of hecate says so, and moved with their optimizer
state. Pure Python over torch.distributed (gloo, NCCL); PyTorch 2.1 or newer.

    from hecate.torch import ExpertParallel, MoELayer

docs/torch.md is the guide."""
try:
    import torch
except ModuleNotFoundError:
    raise ImportError("hecate.torch: expected PyTorch 2.1 or newer, found none (pip install torch numpy)") from None

if tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) < (2, 1):
    raise ImportError("hecate.torch: expected PyTorch 2.1 or newer, found %s" % torch.__version__)

from .calibrate import calibrate  # noqa: E402
from .checkpoint import latest, load, save  # noqa: E402
from .moe import ExpertParallel, MoELayer, TopK, gelu_expert, swiglu_expert  # noqa: E402
from .recorder import Recorder  # noqa: E402

__all__ = ["ExpertParallel", "MoELayer", "TopK", "Recorder", "save", "load", "latest", "calibrate", "gelu_expert", "swiglu_expert"]
