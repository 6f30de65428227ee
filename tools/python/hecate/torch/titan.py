"""torchtitan: its routed experts run by hecate. One call between building the model and parallelising its dense part:

    model.init_states()
    parallel = hecate.torch.titan.replace(model, "hecate", tokens=batch * seq_len)
    # then DDP or FSDP of the rest: ignored_params=set(parallel.parameters()). In its own trainer: titan_trainer

Every RoutedExperts of the model becomes one that plans, dispatches, computes and combines. It is a module with
`token_dispatcher` and `inner_experts`, whose weights are w1_EFD, w2_EDF, w3_EFD. Router, shared experts, the bias of
the load balancer and activation checkpointing stay as they are. Weights are taken over. So the model must have its own
on every rank, equal and whole (no DTensor: torchtitan's ep, tp and cp of the experts stay 1).

Where all experts of all layers are too much for a rank, replace them while the model is on the meta device, as
torchtitan builds it. Then a rank never has more than its own experts and those of one layer:

    parallel = hecate.torch.titan.replace(model, "hecate", tokens=batch * seq_len, device="cuda")
    model.to_empty(device="cuda")
    model.init_states()
    hecate.torch.titan.fill(model)             # or fill(model, folder): experts of a checkpoint

Written for torchtitan 0.3.0; its experts compute in bfloat16, so that is the default of compute_dtype."""
import torch
import torch.distributed.checkpoint as dcp

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

    def __init__(self, parallel, layer, original=None):
        super().__init__(parallel, layer, router=torch.nn.Identity())
        self.original = [original]  # on the meta device, for fill; in a list, so that it is no part of the model
        self.experts.num_experts = parallel.experts

    @property
    def inner_experts(self):
        """What torchtitan asks for their number and parameters."""
        return self.experts

    def forward(self, x, scores, chosen, tokens_per_expert=None):
        """x [B, L, D], scores and chosen [B, L, top_k] -> [B, L, D]."""
        top_k = chosen.shape[-1]
        flat = x.reshape(-1, x.shape[-1])
        return self.route(flat, scores.reshape(-1, top_k), chosen.reshape(-1, top_k)).view_as(x)

    def init_states(self, *, buffer_device=None):
        """The weights were taken over from the model, or come by fill."""

    def parallelize(self, parallel_dims):
        """The experts are in parallel already."""


def _take(store, inner):
    """This rank's experts of a layer, out of all."""
    for e in store.kept:
        store.fill(e, torch.cat([getattr(inner, weight).detach()[e].reshape(-1) for weight in WEIGHTS]))


def fill(model, folder=None, seed=0):
    """Own experts of a model that replace took on the meta device: as torchtitan initialises them, the same for any number of ranks,
    or from a checkpoint by torch.distributed.checkpoint, whose keys are the model's names. On every rank, before DDP or FSDP
    wraps the model where `folder` is given. One layer at a time is whole in memory."""
    for name, module in model.named_modules():
        if not isinstance(module, RoutedExperts) or module.original[0] is None:
            continue
        inner = module.original[0].to_empty(device=module.experts.weight.device)
        if folder is not None:
            dcp.load({"%s.inner_experts.%s" % (name, weight): getattr(inner, weight).data for weight in WEIGHTS}, checkpoint_id=folder)
        else:
            with torch.random.fork_rng():
                torch.manual_seed(seed * 1000003 + module.layer)
                inner.init_states()
        _take(module.experts, inner)
        inner.to(device="meta")


def replace(model, policy="hecate", *, tokens, group=None, dtype=None, compute_dtype=torch.bfloat16, device=None, mean=False,
            **options):
    """Replaces the routed experts of all layers, and returns their ExpertParallel, whose step() comes before every forward pass.
    dtype: of master weights, default the model's. device: where the experts go if the model is on the meta device.
    options: of ExpertParallel and hecate.Planner. mean: as in its trainer, which divides the loss by the tokens of all ranks,
    gradients are summed; with DDP, which divides them, say mean=True."""
    found = find(model)
    if not found:
        raise BadInput("titan.replace: expected modules with token_dispatcher and inner_experts in the model, found none")
    sizes = set()
    for _, _, module in found:
        weights = [getattr(module.inner_experts, name, None) for name in WEIGHTS]
        if any(type(weight) is not torch.nn.Parameter or weight.is_meta != (device is not None) for weight in weights):
            raise BadInput("titan.replace: expected plain weights %s in inner_experts; call it after init_states() and before "
                           "parallelize(), or on the meta device with device=" % ", ".join(WEIGHTS))
        sizes.add(tuple(weights[0].shape) + (module.token_dispatcher.top_k,))
    if len(sizes) > 1:
        raise BadInput("titan.replace: expected layers alike, found experts of %s" % sorted(sizes))
    experts, d_ffn, d_model, top_k = sizes.pop()
    sample = found[0][2].inner_experts.w1_EFD
    parallel = ExpertParallel(policy, layers=len(found), experts=experts, top_k=top_k, d_model=d_model, d_ffn=d_ffn,
                              tokens=tokens, group=group, expert="swiglu", dtype=dtype or sample.dtype,
                              compute_dtype=compute_dtype, device=device or sample.device, mean=mean, **options)
    for layer, (parent, name, module) in enumerate(found):
        if device is None:
            _take(parallel.stores[layer], module.inner_experts)
        original = module.inner_experts if device is not None else None
        setattr(parent, name, RoutedExperts(parallel, layer, original).train(module.training))
    return parallel
