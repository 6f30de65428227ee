"""DeepSpeed-MoE: the experts of deepspeed.moe.layer.MoE run by hecate. One call before deepspeed.initialize:

    parallel = hecate.torch.deepspeed.replace(model, "hecate", tokens=batch * length)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)   # the dense part
    experts = torch.optim.AdamW(parallel.parameters())
    parallel.attach(experts)
    parallel.step(k)                                             # before the forward pass of micro-batch k
    engine.backward(loss); engine.step()
    experts.step(); experts.zero_grad()                          # where the engine made a step

Each MoE keeps its gate: auxiliary loss, capacity, dropped tokens, noise, the residual MLP and the counts stay. An expert is any
module; its parameters, biases too, become a row of hecate's. DeepSpeed sees no parameter of the experts, and no MoE: the
optimizer needs no groups of expert parameters.

    ZeRO 1 and 2           work for the dense part. ZeRO 3 does not: it cuts parameters before `replace` can take them.
    gradient_clipping      of the engine counts the dense part only. parallel.clip_grad_norm_(parallel.parameters(), norm) clips
                           the experts. Without ZeRO and with the engine's clipping off, one norm over both:
                           parallel.clip_grad_norm_(parallel.parameters() + list(model.parameters()), norm) before engine.step().
    accumulation           engine's backward divides the loss by the steps, and so scales the experts' gradients as well.
    checkpoints            engine.save_checkpoint has the dense part, hecate.torch.save(folder, torch.nn.Module(), experts,
                           parallel) the experts.
    refused                ep_size above 1 (hecate is in its place), Tutel, experts with buffers, parameters shared by experts.
    not covered            loss scaling of fp16, tensor parallelism.

Every rank must have all experts, equal. Written for deepspeed 0.19.8."""
import copy
import inspect
import math

import torch
from torch.func import functional_call

from .._library import BadInput
from .moe import ExpertParallel, MoELayer


def find(model):
    """[(parent, name, MoE)], in order of layers."""
    return [(parent, name, m) for parent in model.modules() for name, m in parent.named_children()
            if hasattr(getattr(getattr(m, "deepspeed_moe", None), "experts", None), "deepspeed_experts")]


class Block(torch.nn.Module):
    """In the place of MoE, with its parts and forward. To DeepSpeed it is no MoE: ZeRO would look for parameters of experts."""

    def __init__(self, moe):
        super().__init__()
        self.__dict__.update(moe.__dict__)
        self.kind = type(moe)

    def forward(self, hidden_states, used_token=None):
        return self.kind.forward(self, hidden_states, used_token)


class Routed(torch.nn.Module):
    """In the place of DeepSpeed's MOELayer."""

    def __init__(self, parallel, layer, gate):
        super().__init__()
        self.gate, self.hidden, self.l_aux, self.exp_counts = gate, (MoELayer(parallel, layer, torch.nn.Identity()),), None, None

    def train(self, mode=True):
        self.hidden[0].train(mode)
        return super().train(mode)

    def forward(self, hidden_states, used_token=None):
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        # Routes [k, n], their expert -1 where the token was dropped.
        self.l_aux, _, _, expert, _, weight, self.exp_counts = self.gate(x, used_token, True)
        kept, token = expert >= 0, torch.arange(len(x), device=x.device).expand_as(expert)
        return self.hidden[0].assigned(x, token[kept], expert[kept].long(), weight[kept]).view_as(hidden_states)


def _sizes(moe):
    experts, routed = list(moe.deepspeed_moe.experts.deepspeed_experts), moe.deepspeed_moe
    if len(experts) != moe.num_experts or getattr(routed, "use_tutel", False):
        raise BadInput("deepspeed.replace: expected all %d experts on every rank (ep_size=1) and no Tutel, found %d" %
                       (moe.num_experts, len(experts)))
    if "sparse_routes" not in inspect.signature(routed.gate.forward).parameters:
        raise BadInput("deepspeed.replace: expected a gate with sparse_routes, as of deepspeed 0.19")
    named = [(name, tuple(p.shape)) for name, p in experts[0].named_parameters()]
    if any([(name, tuple(p.shape)) for name, p in e.named_parameters()] != named for e in experts) or any(e.state_dict().keys() != dict(
            named).keys() for e in experts):
        raise BadInput("deepspeed.replace: expected experts alike, with parameters that are not shared and no buffers")
    if any(p.numel() == 0 or hasattr(p, "ds_id") for p in experts[0].parameters()):
        raise BadInput("deepspeed.replace: expected whole parameters; ZeRO 3 is not supported")
    return len(experts), routed.gate.wg.in_features, routed.gate.k, tuple(named)


def replace(model, policy="hecate", *, tokens, group=None, dtype=torch.float32, compute_dtype=None, **options):
    """Replaces the experts of all MoE modules and returns their ExpertParallel. dtype: of master weights; compute_dtype: default the
    model's. options: of ExpertParallel and hecate.Planner."""
    found = find(model)
    if not found:
        raise BadInput("deepspeed.replace: expected deepspeed.moe.layer.MoE in the model, found none")
    sizes = {_sizes(moe) for _, _, moe in found}
    if len(sizes) > 1:
        raise BadInput("deepspeed.replace: expected layers alike, found experts of %s" % sorted(map(str, sizes)))
    n, d_model, top_k, named = sizes.pop()
    first = found[0][2].deepspeed_moe.experts.deepspeed_experts[0]
    pattern, sample = copy.deepcopy(first).to("meta"), next(first.parameters())

    def expert(matrices, x):
        y = functional_call(pattern, {name: w for (name, _), w in zip(named, matrices)}, (x,))
        return y[0] if isinstance(y, tuple) else y  # DeepSpeed leaves a bias that comes along out, too

    shapes = [shape for _, shape in named]
    d_ffn = max(1, sum(math.prod(s) for s in shapes if len(s) > 1) // (d_model * max(2, sum(len(s) > 1 for s in shapes))))
    parallel = ExpertParallel(policy, layers=len(found), experts=n, top_k=top_k, d_model=d_model, d_ffn=d_ffn, tokens=tokens,
                              group=group, expert=expert, shapes=shapes, dtype=dtype, compute_dtype=compute_dtype or sample.dtype,
                              device=sample.device, **options)
    parallel.names = [name for name, _ in named]
    for layer, (parent, name, moe) in enumerate(found):
        for e, module in enumerate(moe.deepspeed_moe.experts.deepspeed_experts):
            parallel.stores[layer].fill(e, torch.cat([p.detach().reshape(-1) for p in module.parameters()]))
        moe.deepspeed_moe = Routed(parallel, layer, moe.deepspeed_moe.gate).train(moe.training)
        setattr(parent, name, Block(moe))
    return parallel


def weights(model):
    """{name: tensor} of all experts, named as in the model before `replace`, on every rank. A collective."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, Routed):
            layer = module.hidden[0]
            for e, flat in enumerate(layer.experts.full()):
                for key, w in zip(layer.parallel.names, layer._matrices(flat)):
                    found["%s.experts.deepspeed_experts.%d.%s" % (name, e, key)] = w
    return found
