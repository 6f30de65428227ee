"""Tables of what one GPU takes, in the form that `hecate-validate calibrate --from` fits cost laws to (docs/devices.md):

    python -m hecate.torch.measure --gpu NAME --out DIR                        gemm, moe_ffn, attention, elementwise
    torchrun --nproc-per-node 8 -m hecate.torch.measure --gpu NAME --out DIR   collectives, of 2, 4 and 8 GPUs of a node

Every row is PyTorch's own call in bfloat16: torch.mm, grouped_mm, scaled_dot_product_attention, torch.distributed. Calls
run one after another on several copies of the weights, so that no cache holds them; on a GPU a CUDA graph replays them,
and backward is eager. A row is the median of REPEATS readings. No fp8, no exchange across nodes: those laws stay those of
the sister. Without a GPU it times the CPU, which shows that it works and nothing else."""
import argparse
import csv
import os
import random
import time
from pathlib import Path
from typing import Callable, Iterator, List, Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

REPEATS, COPIES, CALLS = 7, 5, 10
M = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PRODUCTS = ((1024, 1024), (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (3072, 2048), (2048, 1536), (12288, 6144))
EXPERTS = ((2048, 768, 8, 128, 1), (2048, 768, 8, 128, 8), (4096, 1536, 8, 128, 8), (4096, 14336, 2, 8, 1),
           (4096, 14336, 2, 8, 4), (7168, 2048, 8, 256, 8), (7168, 2048, 8, 256, 32))  # hidden, inter, top_k, n, ranks
TOKENS = (128, 512, 2048, 8192, 32768)
HEADS = ((16, 16, 64), (32, 8, 128), (32, 32, 128), (64, 8, 128))  # heads, key/value heads, width
SEQUENCES = ((1, 512), (8, 512), (1, 2048), (4, 2048), (1, 8192))  # how many, how long
FLOATS = tuple(1 << n for n in range(18, 29))
BYTES = tuple(1 << n for n in range(10, 31))
DRAWS = 5
grouped_mm = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)  # public since PyTorch 2.10


def device() -> torch.device:
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")


def timed(call: Callable[[int], object], graph: bool = True) -> float:
    """Seconds of one call(i); i tells which copy of the weights."""
    cuda = device().type == "cuda"
    def burst():
        for i in range(CALLS):
            call(i % COPIES)
    burst()
    if cuda:
        torch.cuda.synchronize()
        if graph:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                burst()
            burst = captured.replay
            burst()
    readings = []
    for _ in range(REPEATS):
        if cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            burst()
            end.record()
            end.synchronize()
            readings.append(begin.elapsed_time(end) / 1000)
        else:
            start = time.perf_counter()
            burst()
            readings.append(time.perf_counter() - start)
    return sorted(readings)[REPEATS // 2] / CALLS


def new(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=device(), dtype=torch.bfloat16)


def gemm() -> Iterator[dict]:
    for n, k in PRODUCTS:
        weights = [new(n, k) for _ in range(COPIES)]
        for m in M:
            x = new(m, k)
            yield dict(dtype="bf16", m=m, n=n, k=k, seconds=timed(lambda i: x @ weights[i].t()), framework="torch")


def drawn(tokens: int, top_k: int, experts: int, ep: int, power: float, chance: random.Random) -> List[int]:
    """Rows of the experts on the busiest of `ep` ranks: the rule of moe_ffn.csv (docs/devices.md)."""
    if power == 0:
        return [tokens * top_k // experts] * (experts // ep)
    low, high = (0.01, 2.0) if tokens * top_k <= experts else (1.0, 0.8 * tokens)
    low, high = low ** (1 - power), high ** (1 - power)
    value = [((high - low) * chance.random() + low) ** (1 / (1 - power)) for _ in range(experts)]
    rows = [min(tokens, round(v / sum(value) * tokens * top_k)) for v in value]
    lost, held = tokens * top_k - sum(rows), experts // ep
    rows = max((rows[r * held:(r + 1) * held] for r in range(ep)), key=sum)
    for e in range(held) if lost > 0 else ():  # choices that the rule gives to the busiest rank's experts, in order
        taken = round(min(lost, tokens) * (1 - rows[e] / tokens))
        rows[e], lost = rows[e] + taken, lost - taken
    return rows


def expert_layer(rows: List[int], tokens: int, hidden: int, weights: list) -> Callable[[int], object]:
    x, n = new(tokens, hidden), sum(rows)
    token = torch.arange(n, device=device()) % tokens
    ends = torch.tensor(rows, device=device()).cumsum(0).to(torch.int32)
    scale = torch.rand(n, 1, device=device(), dtype=torch.bfloat16)

    def run(i: int):
        up, down = weights[i]
        gate, value = grouped_mm(x[token], up, offs=ends).chunk(2, dim=-1)
        out = grouped_mm(F.silu(gate) * value, down, offs=ends)
        return torch.zeros_like(x).index_add(0, token, out * scale)
    return run


def moe_ffn() -> Iterator[dict]:
    chance = random.Random(1)
    for hidden, inter, top_k, experts, ep in EXPERTS:
        weights = [(new(experts // ep, hidden, 2 * inter), new(experts // ep, inter, hidden)) for _ in range(2)] * COPIES
        for tokens in TOKENS:
            for distribution, power, draws in (("balanced", 0, 1), ("pl1.2", 1.2, DRAWS)):
                if power == 0 and tokens * top_k % experts:
                    continue
                runs = [timed(expert_layer(drawn(tokens, top_k, experts, ep, power, chance), tokens, hidden, weights))
                        for _ in range(draws)]
                yield dict(dtype="bf16", num_tokens=tokens, hidden=hidden, inter=inter, topk=top_k, num_experts=experts,
                           moe_tp=1, moe_ep=ep, distribution=distribution, seconds=sum(runs) / draws,
                           kernel="torch_grouped_mm", framework="torch", flag=0)


def attention() -> Iterator[dict]:
    for heads, kv_heads, width in HEADS:
        for batch, seq in SEQUENCES:
            q, k, v = (new(batch, n, seq, width).requires_grad_() for n in (heads, kv_heads, kv_heads))
            for causal in (1, 0):
                def forward(_i=0):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=kv_heads != heads)

                with torch.no_grad():
                    row = dict(dtype="bf16", direction="fwd", causal=causal, batch=batch, seq=seq, heads=heads,
                               kv_heads=kv_heads, head_dim=width, head_dim_v=width, seconds=timed(forward),
                               kernel="torch_sdpa", source="torch")
                yield row
                out, grad = forward(), new(batch, heads, seq, width)
                seconds = timed(lambda i: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True), graph=False)
                yield dict(row, direction="bwd", seconds=seconds)


def elementwise() -> Iterator[dict]:
    width = 4096
    for n in FLOATS:
        x, y, gain = new(n // width, width), new(n // width, width), new(width)
        for op, pieces, call in (("add", 3, lambda i: torch.add(x, y)),
                                 ("input_layernorm", 2, lambda i: F.rms_norm(x, (width,), gain)),
                                 ("mlp_act", 3, lambda i: F.silu(x) * y)):
            yield dict(op=op, min_bytes=2 * pieces * n, seconds=timed(call))


def collectives() -> Iterator[dict]:
    """Of the first 2, 4, ... ranks; by every rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for ranks in [n for n in (2, 4, 8) if n <= world]:
        group = dist.new_group(list(range(ranks)))
        for size in BYTES if rank < ranks else ():
            whole, part = new(size // 2), new(size // 2 // ranks)
            out = torch.empty_like(whole)
            for op, call in (("all_reduce", lambda i: dist.all_reduce(out, group=group)),
                             ("all_gather", lambda i: dist.all_gather_into_tensor(out, part, group=group)),
                             ("reduce_scatter", lambda i: dist.reduce_scatter_tensor(part, whole, group=group)),
                             ("all_to_all", lambda i: dist.all_to_all_single(out, whole, group=group))):
                seconds = timed(call, graph=False)
                yield dict(cluster="own-node", op=op, ranks=ranks, nodes=1, bytes=size, seconds=seconds,
                           library=dist.get_backend(group))
        dist.barrier()


def write(gpu: str, out: Path, table: Callable[[], Iterator[dict]]) -> None:
    rows = [dict(gpu=gpu, **row) for row in table()]
    if not many() or dist.get_rank() == 0:
        with open(out / (table.__name__ + ".csv"), "x", newline="") as file:
            lines = csv.DictWriter(file, rows[0].keys())
            lines.writeheader()
            lines.writerows(rows)
        print("%s/%s.csv: %d rows" % (out, table.__name__, len(rows)), flush=True)


def many() -> bool:
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


def shrink() -> None:
    """Sizes that a CPU is through with in seconds."""
    globals().update(REPEATS=1, CALLS=1, DRAWS=1, M=(16, 64, 256), PRODUCTS=((64, 64), (256, 128)), TOKENS=(64, 128),
                     EXPERTS=((32, 64, 2, 8, 1), (32, 64, 2, 8, 4)), HEADS=((2, 1, 16),), SEQUENCES=((1, 32), (2, 64)),
                     FLOATS=(1 << 14, 1 << 16), BYTES=(1 << 10, 1 << 14))


def main(arguments: Optional[List[str]] = None) -> None:
    said = argparse.ArgumentParser(prog="python -m hecate.torch.measure", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    said.add_argument("--gpu", required=True, metavar="NAME", help="the device's name, as in its file for --device")
    said.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for the tables, made if it is not there")
    said.add_argument("--small", action="store_true", help="small sizes, to see that it works: such numbers mean nothing")
    o = said.parse_args(arguments)
    if o.small:
        shrink()
    cuda = device().type == "cuda"
    tables = [collectives] if many() else [gemm, moe_ffn, attention, elementwise]
    there = [table.__name__ for table in tables if (o.out / (table.__name__ + ".csv")).exists()]
    if there:
        said.error("--out: expected a folder without %s.csv, found it in %s" % (there[0], o.out))
    if grouped_mm is None:
        said.error("expected PyTorch 2.8 or newer, which has grouped_mm, found %s" % torch.__version__)
    if cuda:
        torch.cuda.set_device(device())
    if many():
        dist.init_process_group("nccl" if cuda else "gloo")
    if not cuda and (not many() or dist.get_rank() == 0):
        print("no GPU: the CPU is timed", flush=True)
    o.out.mkdir(parents=True, exist_ok=True)
    for table in tables:
        write(o.gpu, o.out, table)
    if many():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
