"""Hugging Face Transformers: the experts of Mixtral, Qwen3-MoE, OLMoE and models built alike, run by hecate. One call:

    model = AutoModelForCausalLM.from_pretrained(...)
    parallel = hecate.torch.hf.replace(model, "hecate", tokens=batch * length)
    trained = DistributedDataParallel(parallel.ignore_in(model))
    parallel.attach(optimizer)
    parallel.step()                              # before every forward pass

In transformers 5 a sparse block has `gate` and `experts` and calls experts(x, chosen, weights). The weights of
`experts` are gate_up_proj [E, 2 F, D] and down_proj [E, D, F]. Only `experts` is replaced: gate, shared experts, the
auxiliary loss and activation checkpointing stay. Weights are kept; every rank must have loaded them whole. `weights`
gives them back. Written for transformers 5.24."""
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


def _sizes(block, experts):
    for name in WEIGHTS:
        weight = getattr(experts, name)
        if type(weight) is not torch.nn.Parameter or weight.is_meta or weight.dim() != 3:
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


def replace(model, policy="hecate", *, tokens, group=None, dtype=None, compute_dtype=None, **options):
    """Replaces the experts of all sparse blocks, and returns their ExpertParallel. dtype: of master weights, default the
    model's; compute_dtype: of experts at work, default the model's. options: of ExpertParallel and hecate.Planner."""
    found = find(model)
    if not found:
        raise BadInput("hf.replace: expected blocks with a gate and experts that have %s and %s (transformers 5), found none" % WEIGHTS)
    sizes = {_sizes(block, experts) for block, experts in found}
    if len(sizes) > 1:
        raise BadInput("hf.replace: expected layers alike, found experts of %s" % sorted(map(str, sizes)))
    n, d_ffn, d_model, top_k, own = sizes.pop()
    act = getattr(found[0][1], "act_fn", F.silu)

    def gated(matrices, x):  # gate and up stand one after the other in gate_up_proj
        return F.linear(act(F.linear(x, matrices[0])) * F.linear(x, matrices[1]), matrices[2])

    parallel = ExpertParallel(policy, layers=len(found), experts=n, top_k=top_k, d_model=d_model, d_ffn=d_ffn, tokens=tokens,
                              group=group, expert=gated, shapes=[(d_ffn, d_model), (d_ffn, d_model), (d_model, d_ffn)],
                              dtype=dtype or own, compute_dtype=compute_dtype or own, device=found[0][1].down_proj.device, **options)
    for layer, (block, experts) in enumerate(found):
        for e in range(n):
            flat = torch.cat([getattr(experts, name).detach()[e].reshape(-1) for name in WEIGHTS])
            parallel.stores[layer].fill(e, flat)
        block.experts = Experts(parallel, layer).train(block.training)
    return parallel


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
