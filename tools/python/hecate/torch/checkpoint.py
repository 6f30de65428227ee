"""Checkpoints with torch.distributed.checkpoint. Experts stand in them by their number, so they load on any number of ranks
and under any policy.

    FOLDER/step-00000100/    a complete checkpoint; while it is written its name ends in .part

What is in one: model.NAME and optimizer.NAME.STATE of dense parameters; experts.LAYER.weight.EXPERT [parameters] and
experts.LAYER.STATE.EXPERT, or experts.LAYER.STATE where it is one number for all. And about: JSON with the planner's
state, the iteration, the optimizer's groups, and what the caller adds."""
import base64
import json
import os
import re
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from .._library import BadInput
from .store import kept_by


def latest(folder):
    """The iteration of the newest complete checkpoint, or None."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    steps = [int(m.group(1)) for m in (re.fullmatch(r"step-(\d+)", name) for name in names) if m]
    return max(steps, default=None)


def _shape(parallel):
    return [parallel.layers, parallel.experts, parallel.stores[0].parameters_of_expert]


def _dense(model, parallel):
    own = {id(weight) for weight in parallel.parameters()}
    return {name: p for name, p in model.named_parameters() if id(p) not in own}


def _state(model, optimizer, parallel):
    """What is saved, by key: tensors of this rank. A collective where experts are in slices."""
    own = {id(weight) for weight in parallel.parameters()}
    names = {name for name, p in model.named_parameters(remove_duplicate=False) if id(p) in own}
    state = {"model." + name: t for name, t in model.state_dict().items() if name not in names and torch.is_tensor(t)}
    for name, p in _dense(model, parallel).items():
        for key, value in optimizer.state.get(p, {}).items():
            if torch.is_tensor(value):
                state["optimizer.%s.%s" % (name, key)] = value
    for store in parallel.stores:
        about = {"weight": store.weight.data, **optimizer.state.get(store.weight, {})}
        for key in sorted(about):
            value, at = about[key], "experts.%d.%s" % (store.layer, key)
            if torch.is_tensor(value) and value.dim() > 0:
                state.update({"%s.%d" % (at, e): flat.clone() for e, flat in store.whole(value).items()})
            elif torch.is_tensor(value):
                state[at] = value
    return state


def save(folder, model, optimizer, parallel, keep=2, **more):
    """Between two iterations, on every rank. The folder is shared by all ranks; the `keep` newest checkpoints stay. more:
    whole numbers, text ..., returned by load."""
    parallel._end()
    group, rank = parallel.exchange.group, dist.get_rank()
    path = os.path.join(folder, "step-%08d" % parallel.iteration)
    state = _state(model, optimizer, parallel)
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    planner = parallel.planner.state_dict()
    about = {"iteration": parallel.iteration, "groups": groups, "more": more, "shape": _shape(parallel),
             "planner": {"iteration": planner["iteration"], "state": base64.b64encode(planner["state"]).decode()}}
    state["about"] = torch.frombuffer(bytearray(json.dumps(about, default=float).encode()), dtype=torch.uint8)
    if rank == 0:
        os.makedirs(folder, exist_ok=True)
        shutil.rmtree(path + ".part", ignore_errors=True)
    with parallel.exchange.waiting("checkpoint"):
        dist.barrier(group=group)
        dcp.save(state, checkpoint_id=path + ".part", process_group=group)
    if rank == 0:
        shutil.rmtree(path, ignore_errors=True)
        os.rename(path + ".part", path)
        for name in sorted(n for n in os.listdir(folder) if re.fullmatch(r"step-\d+", n))[:-keep]:
            shutil.rmtree(os.path.join(folder, name))
    with parallel.exchange.waiting("checkpoint"):
        dist.barrier(group=group)
    return path


def load(folder, model, optimizer, parallel, iteration=None):
    """The newest complete checkpoint of the folder, or that of an iteration. It is loaded into a model, optimizer and
    ExpertParallel that made no step yet, on any number of ranks. Returns what `more` was, or None where there is no
    checkpoint."""
    found = latest(folder) if iteration is None else iteration
    path = os.path.join(folder, "step-%08d" % (found or 0))
    there = os.path.isfile(os.path.join(path, ".metadata"))
    parallel.exchange.agree("load from %s" % folder, {"checkpoint": found, "there": there})  # the folder is shared by all ranks
    if found is None:
        return None
    if not there:
        raise BadInput("%s: expected a complete checkpoint, found none" % path)
    held = dcp.FileSystemReader(path).read_metadata().state_dict_metadata

    def read(state):
        with parallel.exchange.waiting("checkpoint"):
            dcp.load(state, checkpoint_id=path, process_group=parallel.exchange.group)

    state = {"about": torch.empty(held["about"].size, dtype=torch.uint8)}
    read(state)
    about = json.loads(bytes(state["about"].tolist()))
    if about["shape"] != _shape(parallel):
        raise BadInput("%s: expected %d layers of %d experts with %d parameters, found %d, %d and %d" %
                       ((path,) + tuple(_shape(parallel) + about["shape"])))
    about["planner"]["state"] = base64.b64decode(about["planner"]["state"])
    parallel.planner.load_state_dict(about["planner"])
    parallel.iteration = about["iteration"]
    _load_tensors(held, model, optimizer, parallel, read, path)
    for group_of, saved in zip(optimizer.param_groups, about["groups"]):
        group_of.update(saved)
    return about["more"]


def _load_tensors(held, model, optimizer, parallel, read, path):
    """held: the checkpoint's keys, with sizes and types."""
    def empty(key, device):
        return torch.empty(held[key].size, dtype=held[key].properties.dtype, device=device)

    dense = _dense(model, parallel)
    own = {id(weight) for weight in parallel.parameters()}
    names = {name for name, p in model.named_parameters(remove_duplicate=False) if id(p) in own}
    state = {"model." + name: t for name, t in model.state_dict().items() if name not in names and torch.is_tensor(t)}
    missing = sorted(key for key in state if key not in held)
    if missing:
        raise BadInput("%s: expected %s in the checkpoint; the model differs from the one that was saved" % (path, missing[0]))
    fresh = {}
    for name, p in dense.items():
        for key in (k for k in held if k.startswith("optimizer.%s." % name)):
            kind = key[len("optimizer.%s." % name):]
            if "." not in kind:
                shaped = tuple(held[key].size) == tuple(p.shape) and len(p.shape) > 0
                fresh[(p, kind)] = state[key] = torch.zeros_like(p) if shaped else empty(key, "cpu")
    rows = []
    for store in parallel.stores:
        store.place(kept_by(parallel.planner, store.layer))
        wanted, first = store.wanted(), "experts.%d." % store.layer
        kinds = sorted({key[len(first):].split(".")[0] for key in held if key.startswith(first)})
        for kind in kinds:
            if first + kind in held:
                fresh[(store.weight, kind)] = state[first + kind] = empty(first + kind, "cpu")
                continue
            experts = {e: empty("%s%s.%d" % (first, kind, e), store.weight.device) for e in wanted}
            state.update({"%s%s.%d" % (first, kind, e): flat for e, flat in experts.items()})
            rows.append((store, kind, experts))
    read(state)
    for store, kind, experts in rows:
        made = store.weight.new_zeros(len(store.kept), store.row_length)
        store.put(made, experts)
        if kind == "weight":
            store.weight.data, store.weight.grad = made, None
        else:
            fresh[(store.weight, kind)] = made
    for (p, kind), value in fresh.items():
        optimizer.state[p][kind] = value
