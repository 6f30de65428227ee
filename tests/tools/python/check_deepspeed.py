"""hecate.torch.deepspeed against deepspeed.moe.layer.MoE, where deepspeed can be imported, and against its interface written down
here: the same loss and gradients with dropped tokens. With DeepSpeed's engine, without ZeRO and with ZeRO 1 and 2, the same losses and
weights over several steps."""
import os

import ranks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import hecate
from hecate.torch import deepspeed as adapter

D, FFN, EXPERTS, TOP_K, LAYERS, LENGTH = 16, 24, 8, 2, 2, 40
OPTIONS = dict(tokens=LENGTH, window_s=1e-3)

os.environ.update(DS_ACCELERATOR="cpu", DS_SKIP_CUDA_CHECK="1")
try:
    import logging
    import deepspeed
    from deepspeed.moe.layer import MoE
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
except ImportError as error:
    deepspeed = None
    print("SKIPPED torch (deepspeed): %s; its interface as written down was used" % error)


class Expert(nn.Module):
    """With biases, which DeepSpeed's experts may have."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(D, FFN), nn.Linear(FFN, D)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Stated(nn.Module):
    """What deepspeed.replace needs of MoE, in its arithmetic but the data type of the gate and of capacity."""

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.wg, self.k = nn.Linear(D, EXPERTS, bias=False), TOP_K

        def forward(self, x, used_token=None, sparse_routes=False):
            scores = self.wg(x).softmax(-1)
            weights, chosen = scores.topk(TOP_K, -1)
            chosen = chosen.clone()
            chosen[1::4, 1] = -1  # dropped
            kept = weights * (chosen >= 0)
            counts = torch.bincount(chosen[chosen >= 0], minlength=EXPERTS)
            return (scores.mean(0) * counts).sum(), None, EXPERTS, chosen.T.int(), None, (kept / kept.sum(-1, keepdim=True)).T, counts

    class Routed(nn.Module):
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.deepspeed_experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

        def __init__(self):
            super().__init__()
            self.gate, self.experts = Stated.Gate(), self.Experts()

        def forward(self, x, used_token=None):
            out, flat = torch.zeros_like(x).view(-1, D), x.reshape(-1, D)
            self.l_aux, _, _, chosen, _, weights, self.exp_counts = self.gate(flat, used_token, True)
            for e, expert in enumerate(self.experts.deepspeed_experts):
                k, token = (chosen == e).nonzero(as_tuple=True)
                out = out.index_add(0, token, expert(flat[token]) * weights[k, token].unsqueeze(1))
            return out.view_as(x)

    def __init__(self):
        super().__init__()
        self.num_experts, self.deepspeed_moe = EXPERTS, self.Routed()

    def forward(self, x, used_token=None):
        return self.deepspeed_moe(x, used_token), self.deepspeed_moe.l_aux, self.deepspeed_moe.exp_counts


def real():
    return MoE(D, Expert(), EXPERTS, k=TOP_K, capacity_factor=0.75, use_residual=True, top2_2nd_expert_sampling=False)


class Model(nn.Module):
    def __init__(self, build):
        super().__init__()
        self.layers = nn.ModuleList(build() for _ in range(LAYERS))

    def forward(self, x):
        aux = 0
        for layer in self.layers:
            y, l_aux, _ = layer(F.layer_norm(x, (D,)))
            x, aux = x + y, aux + l_aux
        return x.square().mean() + 0.01 * aux


def pair(build, dtype, policy, **options):
    return ranks.adapted(lambda: Model(build), adapter, ".deepspeed_experts.", policy, dtype, **OPTIONS, **options)


def same_as(rank, size, build, policy, dtype, limit):
    theirs, ours, parallel, named = pair(build, dtype, policy, mean=False)
    if build is real:
        deepspeed.init_distributed("gloo", verbose=False)
        for m in theirs.layers:
            m.set_deepspeed_parallelism()
    x = torch.randn(size, 2, LENGTH // 2, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)[rank].to(dtype)
    parallel.step()
    losses = [m(x) for m in (theirs, ours)]
    for loss in losses:
        loss.backward()
    assert abs(losses[0] - losses[1]) < limit * losses[0], losses
    assert any(parallel.plan.guests(layer) for layer in range(LAYERS))
    assert parallel.counts[:, rank].sum() < LAYERS * LENGTH * TOP_K, "nothing was dropped"
    dense = {n: p for n, p in theirs.named_parameters() if n not in named}
    for n, p in ours.named_parameters():
        assert (p.grad - dense[n].grad).abs().max() < limit, n
    wanted = {n: p.grad.clone() for n, p in named.items()}
    for n in wanted:
        dist.all_reduce(wanted[n])
    for layer, store in enumerate(parallel.stores):
        for e, flat in store.whole(store.weight.grad).items():
            one = torch.cat([g.flatten() for n, g in wanted.items()
                             if n.startswith("layers.%d." % layer) and ".deepspeed_experts.%d." % e in n])
            assert (flat - one).abs().max() < limit, (layer, e)
    try:
        adapter.replace(ours, **OPTIONS)
        raise AssertionError("replaced twice")
    except hecate.BadInput as error:
        assert "found none" in str(error)


def trained(rank, size, stage, policy):
    """DeepSpeed's engine over all of it, against the engine over the dense part and hecate's experts."""
    os.environ["LOCAL_RANK"] = str(rank)
    deepspeed.init_distributed("gloo", verbose=False)
    theirs, ours, parallel, named = pair(real, torch.float32, policy)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": stage},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "eps": 1e-3, "weight_decay": 0.0, "torch_adam": True}},
              "steps_per_print": 1000000, "zero_allow_untested_optimizer": True}
    groups = split({"params": list(theirs.parameters()), "name": "parameters"})  # DeepSpeed wants experts in groups of their own
    engines = [deepspeed.initialize(model=m, model_parameters=p, config=config)[0]
               for m, p in ((theirs, groups), (ours, ours.parameters()))]
    experts = torch.optim.AdamW(parallel.parameters(), lr=1e-2, eps=1e-3, weight_decay=0.0)
    parallel.attach(experts)
    moved, generator = 0, torch.Generator().manual_seed(2)
    for step in range(6):
        x = torch.randn(2, size, 2, LENGTH // 2, D, generator=generator)[:, rank]
        for k in range(2):
            parallel.step(k)
            moved += len(parallel.planner.moves())
            losses = []
            for engine in engines:
                loss = engine(x[k])
                engine.backward(loss)
                engine.step()
                losses.append(loss.item())
            assert abs(losses[0] - losses[1]) < 1e-5 * losses[0], (step, k, losses)
        experts.step()
        experts.zero_grad()
    now = dict(theirs.named_parameters())
    for n, w in list(adapter.weights(ours).items()) + list(ours.named_parameters()):
        assert (w - now[n]).abs().max() < 1e-5, (n, (w - now[n]).abs().max())
    assert policy.startswith("hecate") or moved > 0


if __name__ == "__main__":
    ranks.run(4, same_as, Stated, "hecate-published:t=2", torch.float64, 1e-12)
    if deepspeed is not None:
        ranks.run(4, same_as, real, "hecate-published:t=2", torch.float32, 1e-5)
        for stage in (0, 1, 2):
            for policy in ("hecate-published:t=2", "eplb:period=2"):
                ranks.run(4, trained, stage, policy)
    print("all passed")
