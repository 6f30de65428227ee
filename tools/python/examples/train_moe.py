"""Trains a small language model with experts on any text, bytes as tokens:

    torchrun --nproc-per-node 4 tools/python/examples/train_moe.py --policy hecate

Prints loss, tokens/s, overload (tokens of the busiest rank over the mean) and the share of time that ranks wait in
collectives. Writes a trace for hecate-sim. Goes on from the newest checkpoint after a kill. What is hecate's is
marked."""
import argparse
import glob
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from hecate.torch import ExpertParallel, MoELayer, Recorder, load, save  # hecate


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--policy", default="hecate", help="of hecate.policies()")
    parser.add_argument("--text", nargs="*", help="files; default: Python's own library")
    for name, value in (("layers", 4), ("experts", 16), ("top-k", 2), ("d-model", 64), ("d-ffn", 128), ("heads", 4),
                        ("length", 64), ("batch", 16), ("accumulate", 1), ("steps", 100), ("period", 20), ("save-every", 50)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--hot", type=float, default=0, help="added to the logits of two experts: skew on purpose")
    parser.add_argument("--recompute", action="store_true", help="activation checkpointing")
    parser.add_argument("--bf16", action="store_true", help="experts compute in bf16, master weights in fp32")
    parser.add_argument("--out", help="folder for trace and checkpoints")
    return parser.parse_args()


def read_text(files):
    files = files or sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:60]
    data = b"".join(open(name, "rb").read() for name in files)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


class Router(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.gate, self.top_k = nn.Linear(o.d_model, o.experts, bias=False), o.top_k
        self.register_buffer("bias", torch.zeros(o.experts).index_fill_(0, torch.tensor([0, 1]), o.hot))

    def forward(self, x):
        weights, chosen = (self.gate(x) + self.bias).softmax(-1).topk(self.top_k, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen


class Block(nn.Module):
    def __init__(self, o, parallel, layer):
        super().__init__()
        self.heads, self.norms = o.heads, nn.ModuleList(nn.LayerNorm(o.d_model) for _ in range(2))
        self.qkv, self.out = nn.Linear(o.d_model, 3 * o.d_model), nn.Linear(o.d_model, o.d_model)
        self.moe = MoELayer(parallel, layer, Router(o))  # hecate: instead of your MoE layer

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.moe(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, o, parallel):
        super().__init__()
        self.embed, self.place = nn.Embedding(256, o.d_model), nn.Embedding(o.length, o.d_model)
        self.blocks = nn.ModuleList(Block(o, parallel, i) for i in range(o.layers))
        self.norm, self.head, self.recompute = nn.LayerNorm(o.d_model), nn.Linear(o.d_model, 256), o.recompute

    def forward(self, tokens):
        x = self.embed(tokens) + self.place.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))


def batches(text, o, step, rank, ranks):
    """The same text for a step, whatever the number of ranks: [accumulate] of (tokens, next tokens)."""
    starts = torch.randint(len(text) - o.length - 1, (o.accumulate, o.batch), generator=torch.Generator().manual_seed(step))
    for row in starts[:, rank * o.batch // ranks:(rank + 1) * o.batch // ranks]:
        both = torch.stack([text[i:i + o.length + 1] for i in row.tolist()])
        yield both[:, :-1], both[:, 1:]


def main():
    o = options()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if o.batch % ranks != 0:
        sys.exit("--batch: expected a multiple of %d ranks, found %d" % (ranks, o.batch))
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if cuda else "cpu")
    if not cuda:
        torch.set_num_threads(1)
    torch.manual_seed(1)
    named = {} if o.policy in ("ep", "fsdp", "laer", "llep") else {"period": o.period}
    parallel = ExpertParallel(o.policy, layers=o.layers, experts=o.experts, top_k=o.top_k, d_model=o.d_model, d_ffn=o.d_ffn,
                              tokens=o.batch * o.length // ranks, device=device, window_s=1e-3,
                              compute_dtype=torch.bfloat16 if o.bf16 else None, **named)  # hecate
    model = Model(o, parallel).to(device)
    trained = DistributedDataParallel(parallel.ignore_in(model))  # hecate: DDP leaves the experts alone
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr)
    parallel.attach(optimizer)  # hecate: optimizer state moves with the experts
    first, recorder = 0, None
    if o.out:
        more = load(os.path.join(o.out, "checkpoints"), model, optimizer, parallel)  # hecate
        first = more["step"] if more else 0
        os.makedirs(o.out, exist_ok=True)
        recorder = Recorder(os.path.join(o.out, "trace-%06d.jsonl.gz" % first), parallel, name="train_moe")  # hecate
    text = read_text(o.text)
    begin, waited = time.perf_counter(), 0.0
    for step in range(first, o.steps):
        optimizer.zero_grad()
        total = torch.zeros(())
        for k, (tokens, wanted) in enumerate(batches(text, o, step, rank, ranks)):
            parallel.step(k)  # hecate: plans, moves experts
            logits = trained(tokens.to(device))
            loss = F.cross_entropy(logits.flatten(0, 1), wanted.to(device).flatten()) / o.accumulate
            loss.backward()
            total += loss.detach().cpu()
        parallel.clip_grad_norm_(model.parameters(), o.clip)  # hecate: the norm is over all experts
        optimizer.step()
        overload = parallel.overload()
        if o.out and (step + 1) % o.save_every == 0:
            save(os.path.join(o.out, "checkpoints"), model, optimizer, parallel, step=step + 1)  # hecate
        shown = torch.stack([total, torch.tensor(parallel.exchange.waited_s - waited)]).to(device)
        dist.all_reduce(shown)
        if rank == 0:
            took = time.perf_counter() - begin
            print("step %4d  loss %.6f  %6.0f tokens/s  overload %.2f  exposed communication %2.0f %%" %
                  (step, shown[0] / ranks, o.accumulate * o.batch * o.length / took, overload,
                   100 * shown[1] / ranks / took), flush=True)
        begin, waited = time.perf_counter(), parallel.exchange.waited_s
    if recorder:
        recorder.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
