"""torchtitan: its routed experts run by hecate. One call between building the model and parallelising its dense part:

    model.init_states()
    parallel = hecate.torch.titan.replace(model, "hecate", tokens=batch * seq_len)
    # then DDP or FSDP of the rest: ignored_params=set(parallel.parameters())

Every RoutedExperts of the model becomes one that plans, dispatches, computes and combines. It is a module with
`token_dispatcher` and `inner_experts`, whose weights are w1_EFD, w2_EDF, w3_EFD. Router, shared experts, the bias of
the load balancer and activation checkpointing stay as they are. Weights are taken over. So the model must have its own
on every rank, equal and whole (no DTensor: torchtitan's ep, tp and cp of the experts stay 1). Written for torchtitan
0.3.0; its experts compute in bfloat16, so that is the default of compute_dtype."""
import torch

from .._library import BadInput
from .moe import ExpertParallel, MoELayer

WEIGHTS = ("w1_EFD", "w3_EFD", "w2_EDF")  # gate, up, down: the order of swiglu_expert


def find(model):
    """[(parent, name, module)] of the routed experts, in order of layers."""
    found = []
    for parent in model.modules():
        for name, module in parent.named_children():
            if hasattr(module, "token_dispatcher") and hasattr(module, "inner_experts"):
                found.append((parent, name, module))
    return found


class RoutedExperts(MoELayer):
    """In the place of torchtitan's, with its forward and the methods that torchtitan calls on modules."""

    def __init__(self, parallel, layer):
        super().__init__(parallel, layer, router=torch.nn.Identity())

    def forward(self, x, scores, chosen, tokens_per_expert=None):
        """x [B, L, D], scores and chosen [B, L, top_k] -> [B, L, D]."""
        top_k = chosen.shape[-1]
        flat = x.reshape(-1, x.shape[-1])
        return self.route(flat, scores.reshape(-1, top_k), chosen.reshape(-1, top_k)).view_as(x)

    def init_states(self, *, buffer_device=None):
        """The weights were taken over from the model."""

    def parallelize(self, parallel_dims):
        """The experts are in parallel already."""


def replace(model, policy="hecate", *, tokens, group=None, dtype=None, compute_dtype=torch.bfloat16, **options):
    """Replaces the routed experts of all layers, and returns their ExpertParallel, whose step() comes before every forward pass.
    dtype: of master weights, default the model's. options: of ExpertParallel and hecate.Planner."""
    found = find(model)
    if not found:
        raise BadInput("titan.replace: expected modules with token_dispatcher and inner_experts in the model, found none")
    sizes = set()
    for _, _, module in found:
        weights = [getattr(module.inner_experts, name, None) for name in WEIGHTS]
        if any(type(weight) is not torch.nn.Parameter for weight in weights) or weights[0].is_meta:
            raise BadInput("titan.replace: expected plain weights %s in inner_experts; call it after init_states() and before "
                           "parallelize()" % ", ".join(WEIGHTS))
        sizes.add(tuple(weights[0].shape) + (module.token_dispatcher.top_k,))
    if len(sizes) > 1:
        raise BadInput("titan.replace: expected layers alike, found experts of %s" % sorted(sizes))
    experts, d_ffn, d_model, top_k = sizes.pop()
    sample = found[0][2].inner_experts.w1_EFD
    parallel = ExpertParallel(policy, layers=len(found), experts=experts, top_k=top_k, d_model=d_model, d_ffn=d_ffn,
                              tokens=tokens, group=group, expert="swiglu", dtype=dtype or sample.dtype,
                              compute_dtype=compute_dtype, device=sample.device, **options)
    for layer, (parent, name, module) in enumerate(found):
        for e in range(experts):
            flat = torch.cat([getattr(module.inner_experts, weight).detach()[e].reshape(-1) for weight in WEIGHTS])
            parallel.stores[layer].fill(e, flat)
        setattr(parent, name, RoutedExperts(parallel, layer).train(module.training))
    return parallel
