"""hecate.torch.megatron against Megatron-Core's own MoELayer, where megatron.core can be imported, and against its interface
written down here: the same loss and gradients. With Megatron's DDP and optimizers, plain and distributed, the same norms, losses and
weights over several steps.

Megatron makes its buffers on a GPU. Here OnCpu turns "cuda" into "cpu", so its own code runs, over gloo."""
import types

import ranks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

import hecate
from hecate.torch import megatron

D, FFN, EXPERTS, TOP_K, LAYERS, LENGTH = 16, 24, 8, 2, 2, 20
OPTIONS = dict(tokens=2 * LENGTH, window_s=1e-3)

try:
    import warnings
    warnings.simplefilter("ignore")
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.moe.token_dispatcher import MoETokenDispatcher
    from megatron.core.transformer.spec_utils import build_module
    from megatron.core.transformer.transformer_config import TransformerConfig
except ImportError as error:
    parallel_state = None
    print("SKIPPED torch (megatron-core): %s; its interface as written down was used" % error)


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.type and len(args) == 1:  # "torch.cuda.FloatTensor" is what Megatron asks for
            return function(*args).replace("torch.", "torch.cuda.")
        return function(*args, **kwargs)


def config(gated, **more):
    return dict(num_layers=LAYERS, hidden_size=D, num_attention_heads=2, num_moe_experts=EXPERTS, moe_router_topk=TOP_K,
                ffn_hidden_size=FFN, moe_ffn_hidden_size=FFN, add_bias_linear=False, gated_linear_unit=gated,
                activation_func=F.silu if gated else F.gelu, moe_router_load_balancing_type="none", **more)


class Stated(nn.Module):
    """What megatron.replace needs of MoELayer: its parts, the order of the six calls, and its arithmetic."""

    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(EXPERTS, D))

        def forward(self, x):
            scores = F.linear(x.view(-1, D), self.weight).softmax(-1)
            chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(1, scores.topk(TOP_K, -1).indices, True)
            chosen[::5, 0] = False  # a dropped token: the number of experts differs between tokens
            return scores * chosen, chosen

    class Dispatcher:
        def dispatch_preprocess(self, x, chosen, probs):
            self.shape, self.chosen = x.shape, chosen
            return x.view(-1, D), probs

        def token_dispatch(self, x, probs):
            return x, probs

        def dispatch_postprocess(self, x, probs):
            self.expert, self.token = self.chosen.T.nonzero(as_tuple=True)
            return x[self.token], self.chosen.sum(0), probs[self.token, self.expert]

        def combine_preprocess(self, y):
            return y.new_zeros(self.chosen.shape[0], D).index_add(0, self.token, y)

        def token_combine(self, y):
            return y

        def combine_postprocess(self, y):
            return y.view(self.shape)

    class Experts(nn.Module):
        class Expert(nn.Module):
            def __init__(self, gated):
                super().__init__()
                self.linear_fc1, self.linear_fc2 = nn.Linear(D, FFN * (1 + gated), bias=False), nn.Linear(FFN, D, bias=False)

        def __init__(self, gated):
            super().__init__()
            self.local_experts = nn.ModuleList(self.Expert(gated) for _ in range(EXPERTS))
            self.gated = gated

        def forward(self, x, tokens_per_expert, probs):
            out = []
            for e, x, p in zip(self.local_experts, x.split(tokens_per_expert.tolist()), probs.split(tokens_per_expert.tolist())):
                y = e.linear_fc1(x)
                y = F.silu(y[:, :FFN]) * y[:, FFN:] if self.gated else F.gelu(y)
                out.append(e.linear_fc2(y * p.unsqueeze(1)))
            return torch.cat(out), None

    def __init__(self, gated):
        super().__init__()
        self.config = types.SimpleNamespace(**config(gated))
        self.router, self.token_dispatcher, self.experts = self.Router(), self.Dispatcher(), self.Experts(gated)

    def forward(self, x):
        probs, chosen = self.router(x)
        d = self.token_dispatcher
        x, probs = d.dispatch_preprocess(x, chosen, probs)
        y, _ = self.experts(*d.dispatch_postprocess(*d.token_dispatch(x, probs)))
        return d.combine_postprocess(d.token_combine(d.combine_preprocess(y))), None


def real(gated):
    torch.cuda.current_device = lambda: "cpu"
    moe_utils.te_general_gemm = None  # Megatron-Core 0.16.1 misses it without Transformer Engine
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel()
    made = TransformerConfig(use_cpu_initialization=True, moe_grouped_gemm=False, moe_token_dispatcher_type="allgather",
                             **config(gated))
    return build_module(get_gpt_layer_local_spec(num_experts=EXPERTS, moe_grouped_gemm=False).submodules.mlp, made)


class Model(nn.Module):
    def __init__(self, build, gated):
        super().__init__()
        self.layers = nn.ModuleList(build(gated) for _ in range(LAYERS))
        self.config = self.layers[0].config

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(F.layer_norm(x, (D,)))[0]
        return x.square().mean()


def pair(build, gated, dtype, policy, **options):
    return ranks.adapted(lambda: Model(build, gated), megatron, ".local_experts.", policy, dtype, **OPTIONS, **options)


def same_as(rank, size, build, gated, policy):
    with OnCpu():
        theirs, ours, parallel, named = pair(build, gated, torch.float64, policy, mean=False)
        x = torch.randn(size, LENGTH, 2, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)[rank]
        parallel.step()
        losses = [m(x) for m in (theirs, ours)]
        for loss in losses:
            loss.backward()
        assert abs(losses[0] - losses[1]) < 1e-12 * losses[0], losses
        assert any(parallel.plan.guests(layer) for layer in range(LAYERS))
        for (n, p), q in zip(((n, p) for n, p in theirs.named_parameters() if n not in named), ours.parameters()):
            assert (p.grad - q.grad).abs().max() < 1e-12, n
        for layer, store in enumerate(parallel.stores):
            wanted = torch.stack([torch.cat([p.grad.flatten() for n, p in named.items() if n.startswith("layers.%d." % layer) and
                                             ".local_experts.%d." % e in n]) for e in range(EXPERTS)])
            dist.all_reduce(wanted)
            found, off = store.whole(store.weight.grad), 0
            for e, flat in found.items():
                off = max(off, (flat - wanted[e]).abs().max())
            assert found and off < 1e-12, (layer, off)
        if build is not Stated:
            wanted = [n for n, m in vars(MoETokenDispatcher).items() if getattr(m, "__isabstractmethod__", False)]
            assert len(wanted) == 6 and all(hasattr(ours.layers[0].token_dispatcher, n) for n in wanted), wanted
            saved = [key for layer in ours.layers for key in layer.sharded_state_dict() if not key.endswith("_extra_state")]
            assert saved == ["router.weight"] * LAYERS, saved  # what Megatron's checkpoint has of a layer
        try:
            megatron.replace(ours, **OPTIONS)
            raise AssertionError("replaced twice")
        except hecate.BadInput as error:
            assert "SequentialMLP" in str(error), error


def trained(rank, size, distributed, policy):
    """Megatron's DDP and optimizer over all of it, against the same over the dense part and hecate's experts."""
    with OnCpu():
        theirs, ours, parallel, named = pair(real, True, torch.float32, policy)
        models, optimizers = [], []
        for model, clip in ((theirs, 0.02), (ours, 0.0)):
            models.append(DistributedDataParallel(model.config, DistributedDataParallelConfig(
                use_distributed_optimizer=distributed), model))
            optimizers.append(get_megatron_optimizer(OptimizerConfig(
                optimizer="adam", adam_eps=1e-3, lr=1e-2, weight_decay=0.0, use_distributed_optimizer=distributed, clip_grad=clip,
                params_dtype=torch.float32), [models[-1]]))
        experts = torch.optim.AdamW(parallel.parameters(), lr=1e-2, eps=1e-3, weight_decay=0.0)
        parallel.attach(experts)
        moved, generator = 0, torch.Generator().manual_seed(2)
        for step in range(6):
            found = []
            x = torch.randn(2, size, LENGTH, 2, D, generator=generator)[:, rank]
            for model, optimizer in zip(models, optimizers):
                model.zero_grad_buffer()
                optimizer.zero_grad()
                experts.zero_grad()
                for k in range(2):
                    if model is models[1]:
                        parallel.step(k)
                        moved += len(parallel.planner.moves())
                    with model.no_sync() if k == 0 else torch.enable_grad():
                        loss = model(x[k])
                        loss.backward()
                model.finish_grad_sync()
                if model is models[0]:
                    found.append((loss.item(), optimizer.step()[1]))
                else:
                    norm = megatron.clip_grad_norm_(model, optimizer, parallel, 0.02)
                    found.append((loss.item(), float(norm)))
                    optimizer.step()
                    experts.step()
            assert found[0][1] > 0.02, "nothing was clipped"
            for a, b in zip(*found):
                assert abs(a - b) < 1e-5 * abs(a), (step, found)
        now = dict(theirs.named_parameters())
        for n, w in list(megatron.weights(ours).items()) + [(n, p) for n, p in ours.named_parameters()]:
            assert (w - now[n]).abs().max() < 1e-5, (n, (w - now[n]).abs().max())
        assert policy.startswith("hecate") or moved > 0


if __name__ == "__main__":
    for gated in (True, False):
        ranks.run(4, same_as, Stated, gated, "hecate-published:t=2")
    if parallel_state is not None:
        for gated in (True, False):
            ranks.run(4, same_as, real, gated, "hecate-published:t=2")
        for distributed in (False, True):
            for policy in ("hecate-published:t=2", "eplb:period=2"):
                ranks.run(4, trained, distributed, policy)
    print("all passed")
