"""Megatron-Core: the routed experts of its MoELayer run by hecate. One call before Megatron wraps the model:

    parallel = hecate.torch.megatron.replace(model, "hecate", tokens=micro_batch * seq_length)
    model = DistributedDataParallel(config, ddp_config, model)            # Megatron's, and its optimizer: the dense part
    optimizer = get_megatron_optimizer(optimizer_config, [model])         # clip_grad=0 in its configuration
    experts = torch.optim.AdamW(parallel.parameters())
    parallel.attach(experts)
    parallel.step(k)                                                      # before the forward pass of micro-batch k
    ...                                                                   # after finalize_model_grads or finish_grad_sync:
    megatron.clip_grad_norm_(model, optimizer, parallel, 1.0)
    optimizer.step(); experts.step()

In each MoELayer `token_dispatcher` becomes a Dispatcher, with the six methods of Megatron's, and `experts` becomes Experts. The rest
stays: router, auxiliary losses, shared experts, dropped tokens, recomputation. What is supported:

    main_grad              Megatron sees no parameter of the experts: they are in none of its buffers. hecate reduces their
                           gradients in backward and leaves them in .grad, divided by the ranks.
    distributed optimizer  for the dense part. The states of experts are in shards, with the experts.
    sharded state          Megatron's checkpoint has the dense part. hecate.torch.save(folder, torch.nn.Module(), experts,
                           parallel) has the experts, their optimizer and the planner: write both at the same iteration.
    refused                bias, fp8, fp4, a latent size, moe_apply_probs_on_input, overlapped shared experts, grouped
                           GEMM. Also expert tensor and expert model parallelism above 1: hecate is in its place.
    not covered            calculate_per_token_loss, delayed weight gradients, loss scaling of fp16, CUDA graphs, tensor and
                           pipeline parallelism.

Every rank must have all experts, equal. Written for Megatron-Core 0.16.1 and its SequentialMLP. Its experts are
modules with linear_fc1 [2 F, D] (gate, up; [F, D] without a gate) and linear_fc2 [D, F]."""
import torch
import torch.nn.functional as F

from .._library import BadInput
from .moe import ExpertParallel, MoELayer


def find(model):
    """The MoELayers, in order of layers."""
    return [m for m in model.modules() if hasattr(m, "token_dispatcher") and hasattr(m, "experts") and hasattr(m, "router")]


class Dispatcher:
    """In the place of Megatron's. No module, so that Megatron finds no parameter here."""

    def __init__(self, parallel, layer):
        self.layer, self.shared_experts, self.cudagraph_attrs = MoELayer(parallel, layer, torch.nn.Identity()), None, []
        self.flight = self.weight = self.onto = None

    def dispatch_preprocess(self, hidden_states, routing_map, probs):
        """hidden_states [.., D], routing_map and probs [n, E]: a token has as many experts as the map says."""
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        token, expert = routing_map.nonzero(as_tuple=True)
        self.flight, self.onto = self.layer.depart(token, expert), torch.zeros_like(hidden_states)
        self.weight = probs[token, expert]
        return x, probs

    def token_dispatch(self, hidden_states, probs):
        return self.layer.dispatch(self.flight, hidden_states), probs

    def dispatch_postprocess(self, hidden_states, probs):
        return hidden_states, self.flight.receive.sum(0), probs

    def combine_preprocess(self, hidden_states):
        return hidden_states

    def token_combine(self, hidden_states):
        return self.layer.come_back(self.flight, hidden_states)

    def combine_postprocess(self, hidden_states):
        onto = self.onto.view(-1, self.onto.shape[-1])
        return self.layer.land(self.flight, hidden_states, self.weight, onto).view_as(self.onto)


class Experts(torch.nn.Module):
    """In the place of Megatron's. Router weights are applied when tokens are back: without bias that is the same."""

    def __init__(self, dispatcher):
        super().__init__()
        self.hidden = (dispatcher,)

    def train(self, mode=True):
        self.hidden[0].layer.train(mode)
        return super().train(mode)

    def forward(self, hidden_states, tokens_per_expert, probs):
        return self.hidden[0].layer.compute(self.hidden[0].flight, hidden_states), None


def _sizes(layer):
    config = layer.config
    for name, wanted in (("add_bias_linear", False), ("fp8", None), ("fp4", None), ("moe_latent_size", None),
                         ("moe_apply_probs_on_input", False), ("moe_shared_expert_overlap", False),
                         ("expert_tensor_parallel_size", 1), ("expert_model_parallel_size", 1), ("glu_linear_offset", 0.0),
                         ("activation_func_clamp_value", None)):
        if getattr(config, name, wanted) not in (wanted, None):
            raise BadInput("megatron.replace: expected %s %s, found %s" % (name, wanted, getattr(config, name)))
    experts = getattr(layer.experts, "local_experts", None)
    if not experts or not all(hasattr(e, "linear_fc1") and hasattr(e, "linear_fc2") for e in experts):
        raise BadInput("megatron.replace: expected a SequentialMLP, found %s" % type(layer.experts).__name__)
    fc1, fc2 = experts[0].linear_fc1.weight, experts[0].linear_fc2.weight
    if config.num_moe_experts != len(experts) or fc1.shape[0] != fc2.shape[1] * (2 if config.gated_linear_unit else 1):
        raise BadInput("megatron.replace: expected all %d experts whole on every rank, found %d with linear_fc1 %s and linear_fc2 %s" %
                       (config.num_moe_experts, len(experts), tuple(fc1.shape), tuple(fc2.shape)))
    return len(experts), fc2.shape[1], fc2.shape[0], config.moe_router_topk, fc1.dtype, config.gated_linear_unit, config.activation_func


def replace(model, policy="hecate", *, tokens, group=None, dtype=torch.float32, compute_dtype=None, **options):
    """Replaces the routed experts and returns their ExpertParallel. group: the ranks of data parallelism. dtype: of master
    weights; compute_dtype: default the model's. options: of ExpertParallel and hecate.Planner."""
    found = find(model)
    if not found:
        raise BadInput("megatron.replace: expected MoELayers with router, token_dispatcher and experts, found none")
    sizes = {_sizes(layer) for layer in found}
    if len(sizes) > 1:
        raise BadInput("megatron.replace: expected layers alike, found experts of %s" % sorted(map(str, sizes)))
    n, d_ffn, d_model, top_k, own, gated, act = sizes.pop()

    def expert(matrices, x):
        y = F.linear(x, matrices[0])
        y = act(y[..., :d_ffn]) * y[..., d_ffn:] if gated else act(y)
        return F.linear(y, matrices[1])

    parallel = ExpertParallel(policy, layers=len(found), experts=n, top_k=top_k, d_model=d_model, d_ffn=d_ffn, tokens=tokens,
                              group=group, expert=expert, shapes=[(d_ffn * (2 if gated else 1), d_model), (d_model, d_ffn)],
                              dtype=dtype, compute_dtype=compute_dtype or own, device=next(model.parameters()).device, **options)
    for layer, module in enumerate(found):
        for e, mlp in enumerate(module.experts.local_experts):
            parallel.stores[layer].fill(e, torch.cat([w.weight.detach().reshape(-1) for w in (mlp.linear_fc1, mlp.linear_fc2)]))
        module.token_dispatcher = Dispatcher(parallel, layer)
        module.experts = Experts(module.token_dispatcher).train(module.training)
    return parallel


def clip_grad_norm_(model, optimizer, parallel, max_norm):
    """Scales the gradients of Megatron's model, already reduced, and of all experts by one factor. Returns the norm over both."""
    optimizer.prepare_grads()
    norm = parallel.clip_grad_norm_(parallel.parameters(), max_norm, beside=optimizer.get_grad_norm())
    model.scale_gradients(min(1.0, max_norm / (float(norm) + 1e-6)))
    return norm


def weights(model):
    """{name: tensor} of all experts, named as in the model before `replace`, on every rank. A collective."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, Experts):
            layer = module.hidden[0].layer
            for e, flat in enumerate(layer.experts.full()):
                for fc, w in zip(("linear_fc1", "linear_fc2"), layer._matrices(flat)):
                    found["%s.local_experts.%d.%s.weight" % (name, e, fc)] = w
    return found
