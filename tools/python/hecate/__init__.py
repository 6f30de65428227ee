"""hecate: compares expert placement policies for Mixture-of-Experts models, from Python.

    import hecate
    found = hecate.simulate(counts, cluster="p4d-4x8", policies=["ep", "eplb", "hecate"], top_k=2)
    for row in found["policies"]:
        print(row["name"], row["iteration_s"]["median"])

`found` is the document of `hecate-sim --json`: libhecate makes it, the same code as the program. Standard library only;
numpy arrays are taken where numpy is. hecate.Recorder writes what PyTorch routers choose as a trace; hecate.Planner
plans for trainers, and hecate.torch trains by it."""
from ._library import RELEASE as __version__
from ._library import BadInput, Error, Failed, policies, version
from .planner import Guest, Move, Plan, Planner
from .recorder import Recorder
from .simulation import simulate, simulate_json, trace_text

__all__ = ["simulate", "simulate_json", "trace_text", "Recorder", "Planner", "Plan", "Guest", "Move", "policies",
           "version", "Error", "BadInput", "Failed"]
