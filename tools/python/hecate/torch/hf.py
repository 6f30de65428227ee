"""Hugging Face Transformers: the experts of Mixtral, Qwen3-MoE, OLMoE and models built alike, run by hecate. One call:

    model = AutoModelForCausalLM.from_pretrained(...)
    parallel = hecate.torch.hf.replace(model, "hecate", tokens=batch * length)
    trained = DistributedDataParallel(parallel.ignore_in(model))
    parallel.attach(optimizer)
    parallel.step()                              # before every forward pass

In transformers 5 a sparse block has `gate` and `experts` and calls experts(x, chosen, weights). The weights of
`experts` are gate_up_proj [E, 2 F, D] and down_proj [E, D, F]. Only `experts` is replaced: gate, shared experts, the
auxiliary loss and activation checkpointing stay. Weights are kept; every rank must have loaded them whole. Where that is
too much memory, `load` keeps a rank's own experts while it reads, and has one layer whole at a time:

    model, parallel = hecate.torch.hf.load(AutoModelForCausalLM, folder, "hecate", tokens=batch * length)

`weights` gives them back. Written for transformers 5.24."""
import os
from unittest import mock

import torch
import torch.nn.functional as F

from .._library import BadInput
from .moe import ExpertParallel, MoELayer

WEIGHTS = ("gate_up_proj", "down_proj")


def find(model):
    """[(block, experts)] in order of layers."""
    found = []
    for block in model.modules():
        experts = getattr(block, "experts", None)
        if all(torch.is_tensor(getattr(experts, name, None)) for name in WEIGHTS) and hasattr(block, "gate"):
            found.append((block, experts))
    return found


class Experts(MoELayer):
    """In the place of `experts`, with its forward."""

    def __init__(self, parallel, layer):
        super().__init__(parallel, layer, router=torch.nn.Identity())

    def forward(self, x, chosen, weights):
        """x [n, D], chosen and weights [n, top_k] -> [n, D]."""
        return self.route(x, weights, chosen)


def _sizes(block, experts, meta):
    for name in WEIGHTS:
        weight = getattr(experts, name)
        if type(weight) is not torch.nn.Parameter or weight.is_meta != meta or weight.dim() != 3:
            raise BadInput("hf.replace: expected %s as a plain parameter of 3 dimensions; call it before DDP, FSDP or device_map"
                           % name)
    if any(getattr(experts, name, None) is not None for name in ("gate_up_proj_bias", "down_proj_bias")):
        raise BadInput("hf.replace: expected experts without bias")
    n, double, d_model = experts.gate_up_proj.shape
    if experts.down_proj.shape != (n, d_model, double // 2):
        raise BadInput("hf.replace: expected gate_up_proj [E, 2 F, D] and down_proj [E, D, F], found %s and %s" %
                       (tuple(experts.gate_up_proj.shape), tuple(experts.down_proj.shape)))
    top_k = next((m.top_k for m in (block.gate, block) if hasattr(m, "top_k")), None)
    if top_k is None:
        raise BadInput("hf.replace: expected top_k in the gate or the block")
    return n, double // 2, d_model, top_k, experts.gate_up_proj.dtype


def _parallel(model, policy, tokens, group, dtype, compute_dtype, device, options, meta=False):
    """(find(model), an ExpertParallel for it)."""
    found = find(model)
    if not found:
        raise BadInput("hf.replace: expected blocks with a gate and experts that have %s and %s (transformers 5), found none" % WEIGHTS)
    sizes = {_sizes(block, experts, meta) for block, experts in found}
    if len(sizes) > 1:
        raise BadInput("hf.replace: expected layers alike, found experts of %s" % sorted(map(str, sizes)))
    n, d_ffn, d_model, top_k, own = sizes.pop()
    act = getattr(found[0][1], "act_fn", F.silu)

    def gated(matrices, x):  # gate and up stand one after the other in gate_up_proj
        return F.linear(act(F.linear(x, matrices[0])) * F.linear(x, matrices[1]), matrices[2])

    return found, ExpertParallel(policy, layers=len(found), experts=n, top_k=top_k, d_model=d_model, d_ffn=d_ffn, tokens=tokens,
                                 group=group, expert=gated, shapes=[(d_ffn, d_model), (d_ffn, d_model), (d_model, d_ffn)],
                                 dtype=dtype or own, compute_dtype=compute_dtype or own, device=device or found[0][1].down_proj.device,
                                 **options)


def _fill(store, weights):
    """weights: {name: [experts, ..] or {expert: ..}} of the layer."""
    for e in store.kept:
        store.fill(e, torch.cat([weights[name][e].reshape(-1) for name in WEIGHTS]))


def replace(model, policy="hecate", *, tokens, group=None, dtype=None, compute_dtype=None, **options):
    """Replaces the experts of all sparse blocks, and returns their ExpertParallel. dtype: of master weights, default the
    model's; compute_dtype: of experts at work, default the model's. options: of ExpertParallel and hecate.Planner."""
    found, parallel = _parallel(model, policy, tokens, group, dtype, compute_dtype, None, options)
    for layer, (block, experts) in enumerate(found):
        _fill(parallel.stores[layer], {name: getattr(experts, name).detach() for name in WEIGHTS})
        block.experts = Experts(parallel, layer).train(block.training)
    return parallel


def load(cls, name, policy="hecate", *, tokens, group=None, dtype=None, compute_dtype=None, device="cpu", pretrained=None, **options):
    """(cls.from_pretrained(name, **pretrained), its ExpertParallel), as replace makes it, but a rank keeps its own experts only.
    cls: a class of transformers for this model, or AutoModelForCausalLM."""
    import transformers
    from transformers import core_model_loading as loading
    config = transformers.AutoConfig.from_pretrained(name)
    own = (pretrained or {}).get("dtype") or getattr(config, "dtype", None) or torch.float32
    with torch.device("meta"):
        skeleton = cls.from_config(config) if hasattr(cls, "from_config") else cls(config)
    _, parallel = _parallel(skeleton.to(own), policy, tokens, group, dtype, compute_dtype, device, options, meta=True)
    layer_of = {n: find(skeleton).index((skeleton.get_submodule(n.rpartition(".")[0]), m))
                for n, m in skeleton.named_modules() if any(m is experts for _, experts in find(skeleton))}
    set_param, waiting = loading.set_param_for_module, {}

    def keep_own(model, target, param, *rest):
        module, _, weight = target.rpartition(".")
        if module in layer_of and weight in WEIGHTS:
            store, of = parallel.stores[layer_of[module]], waiting.setdefault(module, {})
            of[weight] = {e: param[e].clone() for e in store.kept}
            if len(of) == len(WEIGHTS):
                _fill(store, waiting.pop(module))
            param = torch.empty_like(param, device="meta")
        return set_param(model, target, param, *rest)

    # Read in turn: beside threads that read ahead, a whole model would be in memory.
    with mock.patch.dict(os.environ, HF_DEACTIVATE_ASYNC_LOAD="1"), mock.patch.object(loading, "set_param_for_module", keep_own):
        model = cls.from_pretrained(name, **(pretrained or {}))
    for layer, (block, experts) in enumerate(find(model)):
        if not all(getattr(experts, weight).is_meta for weight in WEIGHTS):
            raise BadInput("hf.load: expected weights of all experts in %s" % name)
        block.experts = Experts(parallel, layer).train(block.training)
    return model, parallel


def weights(model):
    """{name: tensor} of all experts, named as in the model before `replace`, on every rank. A collective. With the rest of
    model.state_dict() it is what save_pretrained(state_dict=...) of the original model takes."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, Experts):
            flat, (f, d) = module.experts.full(), module.parallel.shapes[0]
            found[name + ".gate_up_proj"] = flat[:, :2 * f * d].reshape(-1, 2 * f, d)
            found[name + ".down_proj"] = flat[:, 2 * f * d:].reshape(-1, d, f)
    return found
