"""hecate.torch.titan against torchtitan's own MoE layer, where torchtitan can be imported, and against its interface written down
here. The same loss and gradients, under a policy that copies experts."""
import os

import ranks
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn

import hecate
from hecate.torch import titan

D, FFN, EXPERTS, TOP_K, LAYERS = 16, 32, 8, 2, 2

try:
    from torchtitan.models.common.linear import Linear
    from torchtitan.models.common.moe import GroupedExperts, MoE, RoutedExperts, TokenChoiceTopKRouter
    from torchtitan.models.common.token_dispatcher import LocalTokenDispatcher
except ImportError as error:
    MoE = None
    print("SKIPPED torch (torchtitan): %s; its interface as written down was used" % error)


class Stated(nn.Module):
    """What titan.replace needs of torchtitan's MoE, in its arithmetic but the data type."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1_EFD = nn.Parameter(torch.empty(EXPERTS, FFN, D))
            self.w2_EDF = nn.Parameter(torch.empty(EXPERTS, D, FFN))
            self.w3_EFD = nn.Parameter(torch.empty(EXPERTS, FFN, D))

        def init_states(self):
            for weight in self.parameters():
                nn.init.trunc_normal_(weight, std=0.02)

    class Routed(nn.Module):
        class Dispatcher:
            top_k = TOP_K

        def __init__(self):
            super().__init__()
            self.token_dispatcher, self.inner_experts = self.Dispatcher(), Stated.Experts()

        def forward(self, x_BLD, scores_BLK, ids_BLK, counts_E):
            x, out, w = x_BLD.flatten(0, 1), torch.zeros_like(x_BLD.flatten(0, 1)), self.inner_experts
            scores, ids = scores_BLK.flatten(0, 1), ids_BLK.flatten(0, 1)
            assert torch.equal(counts_E, torch.bincount(ids.flatten(), minlength=EXPERTS))
            for e in range(EXPERTS):
                token, place = (ids == e).nonzero(as_tuple=True)
                h = F.silu(x[token] @ w.w1_EFD[e].T) * (x[token] @ w.w3_EFD[e].T)
                out = out.index_add(0, token, (h @ w.w2_EDF[e].T) * scores[token, place].unsqueeze(1))
            return out.view_as(x_BLD)

    def __init__(self):
        super().__init__()
        self.gate, self.routed_experts = nn.Linear(D, EXPERTS, bias=False), self.Routed()

    def forward(self, x_BLD):
        scores = self.gate(x_BLD).softmax(-1)
        ids = scores.topk(TOP_K, -1).indices
        return self.routed_experts(x_BLD, scores.gather(-1, ids), ids, torch.bincount(ids.flatten(), minlength=EXPERTS))


def real():
    return MoE.Config(
        num_experts=EXPERTS, load_balance_coeff=None,
        routed_experts=RoutedExperts.Config(
            inner_experts=GroupedExperts.Config(dim=D, hidden_dim=FFN, num_experts=EXPERTS,
                                                param_init=dict.fromkeys(titan.WEIGHTS, nn.init.trunc_normal_)),
            token_dispatcher=LocalTokenDispatcher.Config(num_experts=EXPERTS, top_k=TOP_K)),
        router=TokenChoiceTopKRouter.Config(num_experts=EXPERTS, top_k=TOP_K, score_func="softmax",
                                            gate=Linear.Config(in_features=D, out_features=EXPERTS))).build()


def same_as(rank, size, build, dtype, compute, limit):
    def model():
        made = nn.Sequential(*(build() for _ in range(LAYERS))).to(dtype)
        torch.manual_seed(4)
        for p in made.parameters():
            nn.init.uniform_(p, -0.3, 0.3)
        return made

    theirs, ours = model(), model()
    parallel = titan.replace(ours, "hecate-published:t=2", tokens=40, compute_dtype=compute, window_s=1e-3, mean=False)
    parallel.step()
    x = torch.randn(size, 2, 20, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    losses = [m(x[rank]).square().mean() for m in (theirs, ours)]
    for loss in losses:
        loss.backward()
    assert abs(losses[0] - losses[1]) < limit * losses[0], losses
    assert any(parallel.plan.guests(layer) for layer in range(LAYERS))
    for layer, store in enumerate(parallel.stores):
        inner = theirs[layer].routed_experts.inner_experts
        wanted = torch.cat([getattr(inner, name).grad.flatten(1) for name in titan.WEIGHTS], 1)
        dist.all_reduce(wanted)
        off = (store.weight.grad - wanted[store.kept]).abs().max() / wanted.abs().max()
        assert off < limit, (layer, off)
    try:
        titan.replace(ours, tokens=40)
        raise AssertionError("replaced twice")
    except hecate.BadInput as error:
        assert "found none" in str(error)


def own_experts(rank, size, build, folder):
    """From the meta device: a rank's rows are those of the whole layer, initialised and from a checkpoint; nothing else of it stays."""
    def model(device):
        with torch.device(device):
            return nn.Sequential(*(build() for _ in range(LAYERS)))

    whole, ours = model("cpu"), model("meta")
    parallel = titan.replace(ours, "hecate", tokens=40, device="cpu")
    ours.to_empty(device="cpu")

    def same():
        for layer, store in enumerate(parallel.stores):
            inner = whole[layer].routed_experts.inner_experts
            flat = torch.cat([getattr(inner, name).flatten(1) for name in titan.WEIGHTS], 1)
            assert torch.equal(store.weight, flat[store.kept]) and len(store.kept) == EXPERTS // size, layer
            assert all(weight.is_meta for weight in ours[layer].routed_experts.original[0].parameters())

    for layer in range(LAYERS):
        torch.manual_seed(3 * 1000003 + layer)
        whole[layer].routed_experts.inner_experts.init_states()
    titan.fill(ours, seed=3)
    same()
    assert not any("original" in name or "inner" in name for name in ours.state_dict())
    for p in whole.parameters():
        nn.init.uniform_(p)
    for p in whole.parameters():
        dist.broadcast(p.data, 0)
    dcp.save(whole.state_dict(), checkpoint_id=folder)
    titan.fill(ours, folder)
    same()


if __name__ == "__main__":
    ranks.run(4, same_as, Stated, torch.float64, None, 1e-12)
    if MoE is not None:
        ranks.run(4, same_as, real, torch.float32, torch.bfloat16, 2e-2)
    ranks.run(4, own_experts, real if MoE is not None else Stated, os.path.join(os.getcwd(), "titan"))
    print("all passed")
