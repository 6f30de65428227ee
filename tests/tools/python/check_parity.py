"""hecate.torch against dense data parallelism. Every policy on 4 gloo processes, the same data, a model of two MoE layers whose
dense twin holds all experts on every rank. Losses and experts must be equal to rounding: with accumulation, activation
checkpointing, clipping, re-sharding in between. Loads with all experts cold but few, one hot, and a hot one that changes.

    check_parity.py POLICIES [RANKS]
    check_parity.py --report [STEPS [POLICIES]]     a table: 200 steps under six policies, fp64 and fp32, with accumulation,
                                                    activation checkpointing and clipping together; first all experts
                                                    are cold but two, then one is hot, then a hot one that changes"""
import sys

import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.utils import checkpoint as recomputation

from hecate.torch import ExpertParallel, MoELayer, TopK
from hecate.torch.store import guests_of

LIMITS = {torch.float64: 1e-12, torch.float32: 1e-5}
LOADS = ("cold", "hot", "moving")
LAYERS, EXPERTS, TOP_K, D, FFN, TOKENS = 2, 8, 2, 12, 20, 24


class Router(TopK):
    """Adds `bias` [experts] to the logits: what makes experts hot."""

    def forward(self, x):
        weights, chosen = (self.gate(x) + self.bias.to(x)).softmax(-1).topk(self.top_k, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen


class DenseMoE(nn.Module):
    """The same layer with every expert here."""

    def __init__(self, weights, shapes, expert):
        super().__init__()
        self.weight, self.shapes, self.expert = nn.Parameter(weights.clone()), shapes, expert
        self.router = Router(D, EXPERTS, TOP_K)

    def forward(self, x):
        flat = x.reshape(-1, D)
        weights, chosen = self.router(flat)
        sizes = [a * b for a, b in self.shapes]
        out = torch.zeros_like(flat)
        for e in range(EXPERTS):
            token, place = (chosen == e).nonzero(as_tuple=True)
            matrices = [m.view(s) for m, s in zip(self.weight[e].split(sizes), self.shapes)]
            done = self.expert(matrices, flat[token]) * weights[token, place].unsqueeze(1)
            out = out.index_add(0, token, done)
        return out.view_as(x)


def selective():
    """Keeps results of these by the order of calls, so a block must make the same ones when it is computed again. Copies are
    gathered then that came before the block at first."""
    kept = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.index.Tensor, torch.ops.aten.lift_fresh.default]
    return {"context_fn": lambda: recomputation.create_selective_checkpoint_contexts(kept)}


SELECTIVE = selective() if hasattr(recomputation, "create_selective_checkpoint_contexts") else {}  # PyTorch 2.4


class Model(nn.Module):
    def __init__(self, moe, recompute=False):
        super().__init__()
        self.mix = nn.ModuleList(nn.Linear(D, D) for _ in range(LAYERS))
        self.moe = nn.ModuleList(moe(i) for i in range(LAYERS))
        self.head, self.recompute = nn.Linear(D, D), recompute

    def block(self, i, x):
        x = x + torch.tanh(self.mix[i](x))
        return x + self.moe[i](x)

    def forward(self, x, y):
        for i in range(LAYERS):
            how = SELECTIVE if i % 2 == 1 else {}
            x = recomputation.checkpoint(self.block, i, x, use_reentrant=False, **how) if self.recompute else self.block(i, x)
        return (self.head(x) - y).pow(2).mean()


def bias_of(load, step):
    bias = torch.zeros(EXPERTS)
    if load == "cold":  # two experts get everything, the others no token
        bias[[0, 1]] = 40
    elif load == "hot":
        bias[3] = 4
    else:
        bias[step // 2 % EXPERTS] = 4
    return bias


def load_at(load, step, steps):
    """"all": each load for a third of the steps."""
    return load if load != "all" else LOADS[min(2, 3 * step // steps)]


def train(model, steps, load, rank, size, accumulate, clip, before, optimizer, parallel=None):
    losses = []
    generator = torch.Generator().manual_seed(5)
    dtype = next(model.parameters()).dtype
    for step in range(steps):
        optimizer.zero_grad()
        for moe in model.moe:
            moe.router.bias = bias_of(load_at(load, step, steps), step)
        total = 0
        for k in range(accumulate):
            x, y = torch.randn(2, size, TOKENS, D, generator=generator, dtype=torch.float64).to(dtype)
            before(k)
            loss = model(x[rank], y[rank]) / accumulate
            loss.backward()
            total += loss.detach()
        own = {id(p) for p in parallel.parameters()} if parallel else set()
        dense = [p.grad for p in model.parameters() if id(p) not in own]  # data parallelism by hand: what DDP does
        mean = torch.cat([grad.flatten() for grad in dense])
        dist.all_reduce(mean)
        for grad, part in zip(dense, mean.div_(size).split([grad.numel() for grad in dense])):
            grad.copy_(part.view_as(grad))
        if parallel and clip:
            assert parallel.clip_grad_norm_(model.parameters(), clip) > clip
        elif clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        dist.all_reduce(total)
        losses.append(float(total) / size)
    return losses


_dense = {}  # what the dense twin lost in training, and the twin


def case(policy, dtype, load, accumulate, recompute, clip, rank, size, steps, limit=None):
    options = dict(period=2) if policy.split(":")[0] in MOVES else {}
    parallel = ExpertParallel(policy, layers=LAYERS, experts=EXPERTS, top_k=TOP_K, d_model=D, d_ffn=FFN, tokens=TOKENS,
                              expert="swiglu", dtype=dtype, window_s=1e-3, **options)

    def router():
        torch.manual_seed(9)
        return Router(D, EXPERTS, TOP_K)

    torch.manual_seed(3)
    model = Model(lambda i: MoELayer(parallel, i, router()), recompute).to(dtype)
    make = lambda m: torch.optim.AdamW(m.parameters(), lr=3e-3)
    about = (dtype, load, accumulate, recompute, clip, size, steps)
    if about not in _dense:  # every policy starts with the same weights, so its twin is the same
        dense = Model(lambda i: DenseMoE(parallel.stores[i].full(), parallel.shapes, parallel.expert), recompute).to(dtype)
        dense.load_state_dict({n: p for n, p in model.state_dict().items() if "experts" not in n}, strict=False)
        start = dense.moe[0].weight.data.clone()
        _dense[about] = train(dense, steps, load, rank, size, accumulate, clip, lambda k: None, make(dense)), dense
        assert (dense.moe[0].weight.data - start).abs().max() > 1e-3, "the experts learn nothing"
    wanted, dense = _dense[about]
    optimizer = make(model)
    parallel.attach(optimizer)
    moved, guests = [0], [0]

    def before(k):
        if parallel.plan:
            guests[0] += sum(len(g.receivers) for i in range(LAYERS) for g in guests_of(parallel.plan, i, "all"))
        parallel.step(k)
        moved[0] += len(parallel.planner.moves())

    got = train(model, steps, load, rank, size, accumulate, clip, before, optimizer, parallel)
    limit = limit or LIMITS[dtype]
    all_off = [abs(a - b) / abs(b) for a, b in zip(got, wanted)]
    off = max(all_off)
    assert off < limit, (policy, dtype, load, off, got, wanted)
    if dtype == torch.float64 and steps < 20:
        for store, layer in zip(parallel.stores, dense.moe):
            assert torch.allclose(store.full(), layer.weight.data, rtol=0, atol=1e-10), (policy, load)
    return all_off if load == "all" else off, moved[0], guests[0]


MOVES = ("hecate", "hecate-rm", "hecate-published", "eplb", "flexmoe", "smartmoe")  # with these loads
EITHER = ("joint",)  # weighs whether copies pay, which with experts this small they may not
COPIES = ("hecate", "hecate-published", "hecate-rm", "laer", "llep", "fsdp", "symi")
# Type, load, micro-batches, recomputed, clipped to, steps: to behind the first time that experts move, or the second hot expert.
# Every policy has the first, which has all at once, and one of the others.
CASES = [(torch.float64, "moving", 2, True, 0.05, 5), (torch.float64, "cold", 1, False, 0, 4), (torch.float32, "hot", 2, False, 0.05, 4)]


def every_policy(rank, size, policies):
    for k, policy in enumerate(policies):
        all_moved, all_guests, name = 0, 0, policy.split(":")[0]
        for dtype, load, accumulate, recompute, clip, steps in (CASES[0], CASES[1 + k % 2]):
            off, moved, guests = case(policy, dtype, load, accumulate, recompute, clip, rank, size, steps)
            if rank == 0:
                print("%-12s %-8s %-6s accumulate %d recompute %d clip %g: %.1e of the loss, %d moves, %d guests" %
                      (policy, str(dtype)[6:], load, accumulate, recompute, clip, off, moved, guests), flush=True)
            all_moved, all_guests = all_moved + moved, all_guests + guests
        assert name in EITHER or (all_moved > 0) == (name in MOVES), (policy, all_moved)
        assert name in EITHER or (all_guests > 0) == (name in COPIES), (policy, all_guests)


REPORTED = ("ep", "eplb", "flexmoe", "laer", "hecate", "joint")


def report(rank, size, steps, policies):
    """A row a policy: the largest relative difference of the loss under each load. Says which are over the limit, and fails."""
    say = (lambda *words: print(*words, flush=True)) if rank == 0 else lambda *words: None
    say("largest relative difference of the loss to dense data parallelism: %d steps, %d ranks, 2 micro-batches, activations\n"
        "recomputed, gradients clipped; limits 1e-12 (float64), 1e-5 (float32)" % (steps, size))
    say("%-24s %-8s %9s %9s %9s %7s %7s" % (("policy", "type") + LOADS + ("moves", "guests")))
    over = 0
    for dtype in LIMITS:
        for policy in policies:
            off, moved, guests = case(policy, dtype, "all", 2, True, 0.05, rank, size, steps, limit=float("inf"))
            worst = [max(off[i] for i in range(steps) if load_at("all", i, steps) == load) for load in LOADS]
            wrong = max(worst) >= LIMITS[dtype]
            over += wrong
            say("%-24s %-8s %9.1e %9.1e %9.1e %7d %7d%s" % (policy, str(dtype)[6:], *worst, moved, guests,
                                                           "  OVER" if wrong else ""))
    say("%d over the limit" % over)
    assert over == 0


if __name__ == "__main__":
    if sys.argv[1] == "--report":
        ranks.run(4, report, int((sys.argv[2:] + [200])[0]), sys.argv[3].split(",") if len(sys.argv) > 3 else REPORTED)
    else:
        ranks.run(int(sys.argv[2]) if len(sys.argv) > 2 else 4, every_policy, sys.argv[1].split(","))
        print("all passed")
