"""hecate.torch.hf: tiny Mixtral, Qwen3-MoE and OLMoE made from their configurations, where transformers 5 can be imported. Else a
model with their interface as written down here. The same loss, gradients and weights as without hecate, under a policy that
copies experts and one that moves them."""
import copy
import os
import tempfile

import ranks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import hecate
from hecate.torch import hf

EXPERTS, D, FFN, TOP_K, VOCABULARY, LENGTH = 8, 16, 24, 2, 40, 12

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
try:
    import transformers
    if int(transformers.__version__.split(".")[0]) < 5:
        raise ImportError("transformers 5 expected, found " + transformers.__version__)
except ImportError as error:
    transformers = None
    print("SKIPPED torch (transformers): %s; its interface as written down was used" % error)


class Stated(nn.Module):
    """A language model whose sparse blocks are as in transformers 5."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_up_proj, self.down_proj = nn.Parameter(torch.empty(EXPERTS, 2 * FFN, D)), nn.Parameter(torch.empty(EXPERTS, D, FFN))
            self.act_fn = F.silu

        def forward(self, x, chosen, weights):
            out = torch.zeros_like(x)
            for e in range(EXPERTS):
                token, place = (chosen == e).nonzero(as_tuple=True)
                gate, up = F.linear(x[token], self.gate_up_proj[e]).chunk(2, -1)
                done = F.linear(self.act_fn(gate) * up, self.down_proj[e])
                out = out.index_add(0, token, done * weights[token, place, None])
            return out

    class Gate(nn.Module):
        top_k = TOP_K

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(EXPERTS, D))

        def forward(self, x):
            logits = F.linear(x, self.weight)
            weights, chosen = logits.softmax(-1).topk(TOP_K, -1)
            return logits, weights / weights.sum(-1, keepdim=True), chosen

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = Stated.Gate(), Stated.Experts()

        def forward(self, x):
            _, weights, chosen = self.gate(x.view(-1, D))
            return self.experts(x.view(-1, D), chosen, weights).view_as(x)

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, D), nn.Linear(D, VOCABULARY)
        self.mlp = nn.ModuleList(self.Block() for _ in range(2))

    def forward(self, ids, labels):
        x = self.embed(ids)
        for block in self.mlp:
            x = x + block(F.layer_norm(x, (D,)))
        return F.cross_entropy(self.head(x[:, :-1]).flatten(0, 1), labels[:, 1:].flatten())


def real(kind):
    names = {"Mixtral": dict(num_local_experts=EXPERTS, intermediate_size=FFN),
             "Qwen3Moe": dict(num_experts=EXPERTS, moe_intermediate_size=FFN, norm_topk_prob=True, head_dim=8),
             "Olmoe": dict(num_experts=EXPERTS, intermediate_size=FFN)}
    config = getattr(transformers, kind + "Config")(
        vocab_size=VOCABULARY, hidden_size=D, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        num_experts_per_tok=TOP_K, pad_token_id=0, bos_token_id=1, eos_token_id=2, attn_implementation="eager", experts_implementation="eager",
        **names[kind])
    return getattr(transformers, kind + "ForCausalLM")(config)


def loss_of(model, ids):
    out = model(ids, labels=ids)
    return out if torch.is_tensor(out) else out.loss


def same_as(rank, size, kind, policy):
    torch.manual_seed(4)
    theirs = (real(kind) if kind else Stated()).double().train()
    for p in theirs.parameters():
        nn.init.uniform_(p, -0.3, 0.3)
    ours = copy.deepcopy(theirs)
    before = {n: p for n, p in ours.named_parameters() if n.split(".")[-1] in hf.WEIGHTS}
    parallel = hf.replace(ours, policy, tokens=2 * LENGTH, window_s=1e-3)
    assert [k for k in hf.weights(ours)] == list(before) and all(torch.equal(v, before[k]) for k, v in hf.weights(ours).items())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (theirs, ours)]
    parallel.attach(optimizers[1])
    own, moved, guests = {id(p) for p in parallel.parameters()}, 0, 0
    generator = torch.Generator().manual_seed(1)
    for step in range(5):
        ids = torch.randint(3, VOCABULARY, (size, 2, LENGTH), generator=generator)[rank]
        losses = []
        for model, optimizer in zip((theirs, ours), optimizers):
            optimizer.zero_grad()
            if model is ours:
                parallel.step()
                moved += len(parallel.planner.moves())
            losses.append(loss_of(model, ids))
            losses[-1].backward()
            if model is ours:
                guests += sum(len(parallel.plan.guests(layer)) for layer in range(2))
            for p in model.parameters():
                if p.grad is not None and id(p) not in own:
                    dist.all_reduce(p.grad)
                    p.grad /= size
            optimizer.step()
        assert abs(losses[0] - losses[1]) < 1e-12 * losses[0], (kind, policy, step, losses)
    wanted = {n: p for n, p in theirs.named_parameters() if n.split(".")[-1] in hf.WEIGHTS}
    for name, weight in hf.weights(ours).items():
        assert (weight - wanted[name]).abs().max() < 1e-12 and (weight - before[name]).abs().max() > 1e-6, name
    assert guests > 0 if policy.startswith("hecate") else moved > 0, (policy, guests, moved)
    try:
        hf.replace(ours, tokens=40)
        raise AssertionError("replaced twice")
    except hecate.BadInput as error:
        assert "found none" in str(error)


def loads(rank, size, kind, folder, policy):
    """load is from_pretrained and replace, to the bit, and the rest of the experts is nowhere."""
    cls = transformers.AutoModelForCausalLM if kind == "Mixtral" else getattr(transformers, kind + "ForCausalLM")
    whole = cls.from_pretrained(folder)
    theirs = hf.replace(whole, policy, tokens=2 * LENGTH)
    ours, parallel = hf.load(cls, folder, policy, tokens=2 * LENGTH)
    assert not any(p.is_meta for p in ours.parameters())
    wanted, found = dict(whole.named_parameters()), dict(ours.named_parameters())
    assert list(found) == list(wanted) and all(torch.equal(p, found[n]) and p.dtype == found[n].dtype for n, p in wanted.items())
    assert sum(len(s.kept) for s in parallel.stores) == sum(len(s.kept) for s in theirs.stores) < EXPERTS * 2
    assert all(torch.equal(v, hf.weights(whole)[n]) for n, v in hf.weights(ours).items())
    ids = torch.randint(3, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(rank))
    losses = []
    for model, p in ((whole, theirs), (ours, parallel)):
        p.step()
        losses.append(loss_of(model, ids))
        losses[-1].backward()
    assert torch.equal(*losses), losses


if __name__ == "__main__":
    for kind in ("Mixtral", "Qwen3Moe", "Olmoe") if transformers else ():
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(5)
            real(kind).save_pretrained(folder)
            ranks.run(4, loads, kind, folder, "hecate")
    for kind in ("Mixtral", "Qwen3Moe", "Olmoe") if transformers else (None,):
        for policy in ("hecate-published:t=2", "eplb:period=2"):
            ranks.run(4, same_as, kind, policy)
    print("all passed")
