"""hecate.torch in training jobs of gloo processes: checkpoints on other numbers of ranks, and one that is killed; DDP and bf16. What
the recorder writes; memory; mistakes, each with one exception on every rank."""
import json
import math
import os
import signal
import sys
import weakref

import check_parity as parity
import ranks
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from check_parity import D, EXPERTS, FFN, LAYERS, TOKENS, TOP_K
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before PyTorch 2.6
    fully_shard = None

import hecate
from hecate.torch import ExpertParallel, MoELayer, Recorder, checkpoint, latest, load, save
from hecate.torch.store import guests_of

# And on how many ranks the checkpoint of 4 is loaded.
POLICIES = (("hecate:period=2", (4, 2)), ("eplb:period=2", (4, 8)), ("laer", (4,)))
SEQUENCES = 8


def make(policy, size, **options):
    given = dict(layers=LAYERS, experts=EXPERTS, top_k=TOP_K, d_model=D, d_ffn=FFN, tokens=SEQUENCES * TOKENS // size,
                 expert="swiglu", dtype=torch.float64, window_s=1e-3)
    parallel = ExpertParallel(policy, **{**given, **options})
    torch.manual_seed(3)
    model = parity.Model(lambda i: MoELayer(parallel, i, parity.Router(D, EXPERTS, TOP_K))).to(given["dtype"])
    for moe in model.moe:
        moe.router.bias = parity.bias_of("hot", 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    parallel.attach(optimizer)
    return parallel, model, optimizer


def batch(step, rank, size):
    x, y = torch.randn(2, SEQUENCES, TOKENS, D, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    own = slice(rank * SEQUENCES // size, (rank + 1) * SEQUENCES // size)
    return x[own], y[own]


def steps(parallel, model, optimizer, first, end, rank, size, trained=None):
    """The losses of these steps; dense parameters by DDP, unless somebody else has them in `trained`."""
    group, losses = parallel.exchange.group, []
    if trained is None:
        trained = DistributedDataParallel(parallel.ignore_in(model), process_group=group)
    for step in range(first, end):
        optimizer.zero_grad()
        parallel.step()
        loss = trained(*batch(step, rank, size))
        loss.backward()
        parallel.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, group=group)
        losses.append(float(total) / size)
    return losses


# ---- Checkpoints ----


def first_part(rank, size, policy, folder):
    parallel, model, optimizer = make(policy, size)
    steps(parallel, model, optimizer, 0, 5, rank, size)
    save(os.path.join(folder, "saved"), model, optimizer, parallel, step=5)
    losses = steps(parallel, model, optimizer, 5, 8, rank, size)
    if rank == 0:
        with open(os.path.join(folder, "losses.json"), "w") as out:
            json.dump(losses, out)


def second_part(rank, size, policy, folder, same):
    parallel, model, optimizer = make(policy, size)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(7)  # all of it must come from the checkpoint
    assert load(os.path.join(folder, "saved"), model, optimizer, parallel) == {"step": 5}
    losses = steps(parallel, model, optimizer, 5, 8, rank, size)
    wanted = json.load(open(os.path.join(folder, "losses.json")))
    assert losses == wanted if same else max(abs(a - b) for a, b in zip(losses, wanted)) < 1e-12, (size, losses, wanted)


def killed(rank, size, folder, when):
    """Dies in its second save. "one": one rank in the middle of its file, and the others must be told. "all": every
    rank there. "written": when all is written but nothing renamed."""
    parallel, model, optimizer = make("hecate", size)
    steps(parallel, model, optimizer, 0, 2, rank, size)
    save(folder, model, optimizer, parallel, step=2)
    steps(parallel, model, optimizer, 2, 3, rank, size)
    write = torch.distributed.checkpoint.save

    def save_and_die(*arguments, **named):
        write(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    def half_a_file(writer, plan, planner):
        with open(os.path.join(str(writer.path), "__%d_0.distcp" % rank), "wb") as out:
            out.write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    if when == "written":
        checkpoint.dcp.save = save_and_die
    elif when == "all" or rank == 1:
        torch.distributed.checkpoint.FileSystemWriter.write_data = half_a_file
    if when != "one":
        save(folder, model, optimizer, parallel, step=3)
    else:
        refused(hecate.Failed, "another rank stopped", lambda: save(folder, model, optimizer, parallel, step=3))


def after_kill(rank, size, folder):
    parallel, model, optimizer = make("hecate", size)
    assert load(folder, model, optimizer, parallel) == {"step": 2}
    if rank == 0:
        assert latest(folder) == 1 and any(name.endswith(".part") for name in os.listdir(folder)), os.listdir(folder)
    steps(parallel, model, optimizer, 2, 3, rank, size)
    save(folder, model, optimizer, parallel, step=3)
    assert latest(folder) == 2
    elsewhere = folder if rank != 2 else folder + "-elsewhere"
    refused(hecate.BadInput, "expected the same on every rank", lambda: load(elsewhere, *_reorder(make("hecate", size))))
    refused(hecate.BadInput, "expected a complete checkpoint", lambda: load(folder, *_reorder(make("hecate", size)), iteration=7))
    refused(hecate.BadInput, "expected 2 layers of 6 experts", lambda: load(folder, *_reorder(make("ep", size, experts=6))))


def _reorder(made):
    parallel, model, optimizer = made
    return model, optimizer, parallel


# ---- Others ----


def in_bf16(rank, size):
    losses = []
    for compute in (None, torch.bfloat16):
        parallel, model, optimizer = make("hecate-published:t=2", size, compute_dtype=compute)
        losses.append(steps(parallel, model, optimizer, 0, 6, rank, size))
        assert all(weight.dtype == torch.float64 for weight in parallel.parameters())
    assert 0 < max(abs(a - b) for a, b in zip(*losses)) < 1e-2 * losses[0][0], losses


def composed(rank, size):
    """Experts over the dimension `ep` of a mesh, whose other dimension has other stages of a pipeline; the dense part by DDP, by FSDP2
    and, in one stage, compiled, with copies after the gate and without: the same losses."""
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("stage", "ep"))
    ep, stage = mesh["ep"], mesh.get_local_rank("stage")
    losses, norms = {}, {}
    for dense in ("ddp", "fsdp2", "compiled"):
        parallel, model, _ = make("hecate:period=2", size // 2, group=ep.get_group(), refine=dense != "fsdp2")
        if dense == "compiled" and stage == 1:  # it takes seconds
            continue
        ddp = lambda: DistributedDataParallel(parallel.ignore_in(model), process_group=ep.get_group())
        if dense == "fsdp2":
            for part in [*model.mix, model.head]:
                fully_shard(part, mesh=ep)
            trained = fully_shard(model, mesh=ep, ignored_params=set(parallel.parameters()))
        else:
            trained = torch.compile(ddp(), backend="aot_eager") if dense == "compiled" else ddp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        parallel.optimizers = [optimizer]
        losses[dense] = steps(parallel, model, optimizer, 0, 3, ep.get_local_rank(), size // 2, trained)
        parallel.step()
        trained(*batch(3, ep.get_local_rank(), size // 2)).backward()
        norms[dense] = [float(parallel.clip_grad_norm_(model.parameters(), 1e9, kind)) for kind in (2.0, math.inf)]
    for dense in losses:
        assert all(abs(a - b) < 1e-12 for a, b in zip(losses[dense] + norms[dense], losses["ddp"] + norms["ddp"])), (losses, norms)
    both = [None] * size
    dist.all_gather_object(both, losses["ddp"])
    assert all(other == both[0] for other in both), both


def recorded(rank, size, folder):
    parallel, model, optimizer = make("hecate", size)
    recorder = Recorder(os.path.join(folder, "trace.jsonl"), parallel, name="test")
    wanted = []
    for step in range(3):
        for k in range(2):  # one record for both micro-batches
            parallel.step(k)
            model(*batch(2 * step + k, rank, size)).backward()
            wanted += [parallel.counts.clone()]
    recorder.close()
    if rank == 0:
        head, *records = [json.loads(line) for line in open(os.path.join(folder, "trace.jsonl"))]
        assert head["layers"] == LAYERS and head["source_ranks"] == size and head["top_k"] == TOP_K, head
        assert [r["iter"] for r in records] == [0, 1, 2]
        for i, record in enumerate(records):
            assert torch.equal(torch.tensor(record["layers"]), wanted[2 * i] + wanted[2 * i + 1]), record
        assert sum(map(sum, records[0]["layers"][0])) == 2 * SEQUENCES * TOKENS * TOP_K


class Gathered:
    """Bytes of the guests that came to this rank and are still there."""

    def __init__(self, parallel):
        self.tensors = []
        for store in parallel.stores:
            store.gather_end = self.seen(store.gather_end)

    def seen(self, gather_end):
        def end(started):
            guests, moved = gather_end(started)
            self.tensors.append(weakref.ref(guests))
            return guests, moved
        return end

    def held(self):
        return sum(t().untyped_storage().nbytes() for t in self.tensors if t() is not None)


def memory(rank, size):
    """The paper's sections 7 and 9.6 (reference hecate.md), in bytes of a rank: parameters, gradients and two moments of an equal part
    of all layers' experts; beside them the parameters of this rank's guests, which re-materialisation frees
    after forward; after the step nothing of guests."""
    expert, came = 8 * 3 * D * FFN, 0
    for policy in ("ep", "hecate:period=2", "hecate-rm:period=2"):
        parallel, model, optimizer = make(policy, size, t=2, m=2)
        gathered = Gathered(parallel)
        steps(parallel, model, optimizer, 0, 5, rank, size)
        held = [[weight.data, weight.grad] + [t for t in optimizer.state[weight].values() if t.dim() > 0]
                for weight in parallel.parameters()]
        bytes_of = [sum(tensors[i].untyped_storage().nbytes() for tensors in held) for i in range(4)]
        assert set(map(len, held)) == {4} and len(set(bytes_of)) == 1, bytes_of
        assert bytes_of[0] == LAYERS * EXPERTS // size * expert, (policy, size, bytes_of)
        assert gathered.held() == 0, gathered.held()
        optimizer.zero_grad()
        plan, loss = parallel.step(), model(*batch(5, rank, size))
        guests = sum(rank in g.receivers for i in range(LAYERS) for g in guests_of(plan, i, "all"))
        assert gathered.held() == (0 if plan.rematerialise else guests * expert), (policy, size, guests, gathered.held())
        loss.backward()
        came += guests if policy != "ep" else 0
        assert guests == 0 or policy != "ep"
    came = torch.tensor(came)
    dist.all_reduce(came)
    assert came > 0 or size == 1, "no guests"


# ---- Mistakes ----


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError("nothing was raised: " + words)


def mistakes(rank, size):
    bad = hecate.BadInput
    refused(bad, "expected the same on every rank", lambda: make("ep" if rank else "hecate", size))
    refused(bad, "policy: expected one of", lambda: make("nonesuch", size))
    refused(bad, "ep", lambda: make("ep", size, ep=3))
    parallel, model, optimizer = make("hecate", size)
    x, y = batch(0, rank, size)
    refused(bad, "step() before the forward pass", lambda: model(x, y))
    parallel.step()
    refused(bad, "found rank 0 at layer 0 and rank 1 at step()", lambda: parallel.step() if rank == 1 else model(x, y))
    parallel, model, optimizer = make("hecate", size)
    parallel.step(iteration=5)
    model.moe[0].router.forward = lambda flat: (torch.ones(len(flat), TOP_K).double(),
                                                torch.full((len(flat), TOP_K), EXPERTS if rank == 2 else 0))
    refused(bad, "router of rank 2 chose an expert outside 0 .. 7", lambda: model(x, y))
    parallel, model, optimizer = make("eplb:period=1", size)
    steps(parallel, model, optimizer, 0, 1, rank, size)
    refused(bad, "zero_grad()", parallel.step)
    parallel, model, optimizer = make("eplb:period=1", size)
    steps(parallel, model, optimizer, 0, 1, rank, size)
    optimizer.zero_grad()
    parallel.optimizers = []
    refused(bad, "expected attach(optimizer) before experts move", parallel.step)
    parallel, model, optimizer = make("ep", size)
    parallel.step()
    refused(bad, "expected parallel.ignore_in(model)", lambda: DistributedDataParallel(model)(x, y))
    if fully_shard:
        parallel, model, optimizer = make("ep", size)
        fully_shard(model)
        refused(bad, "expected ignored_params=set(parallel.parameters())", parallel.step)
    assert repr(bad) == "<class 'hecate.BadInput'>", bad  # as a traceback names it
    refused(bad, "expected the same on every rank", lambda: make("ep", size, experts=EXPERTS + (rank == 3)))
    parallel, model, optimizer = make("hecate:period=1", size)
    steps(parallel, model, optimizer, 0, 1, rank, size)
    optimizer.zero_grad()
    parallel.counts[:, :, 5] += 10000 * (rank == 1)  # rank 1 has another history
    refused(bad, "the plan of rank 1 differs from rank 0's", lambda: (parallel.step(), model(x, y)))


def rank_dies(rank, size, where, folder):
    """Between two steps, in the backward pass when the others wait for its rows, or while a checkpoint is loaded."""
    parallel, model, optimizer = make("hecate", size)
    steps(parallel, model, optimizer, 0, 1, rank, size)
    if where == "load":
        save(folder, model, optimizer, parallel, step=1)
        fresh = _reorder(make("hecate", size))
    if rank == 1 and where != "backward":
        os._exit(9)
    if where == "load":
        refused(hecate.Failed, "another rank stopped", lambda: load(folder, *fresh))
        return
    optimizer.zero_grad()

    def step():
        parallel.step()
        loss = model(*batch(1, rank, size))
        if rank == 1:
            os._exit(9)
        loss.backward()
    refused(hecate.Failed, "another rank stopped", step)


def in_turn(rank, size, *calls):
    """One job does them one after the other: its ranks take longer to start than most of them."""
    for function, *arguments in calls:
        function(rank, size, *arguments)


if __name__ == "__main__":
    here = os.getcwd()
    folders = [os.path.join(here, "run%d" % i) for i in range(len(POLICIES))]
    for folder in folders:
        os.mkdir(folder)
    saved = [(size, policy, folder) for (policy, sizes), folder in zip(POLICIES, folders) for size in sizes]
    loaded = {n: [(second_part, policy, folder, n == 4) for size, policy, folder in saved if size == n] for n in (2, 4, 8)}
    ranks.run(4, in_turn, *[(first_part, policy, folder) for (policy, _), folder in zip(POLICIES, folders)], (in_bf16,),
              (recorded, here), (memory,), (mistakes,))
    if fully_shard:
        ranks.run(4, composed)
    else:
        print("SKIPPED tools.torch: FSDP2, which this PyTorch does not have as torch.distributed.fsdp.fully_shard")
    ends = (("one", [1]), ("all", range(4)), ("written", range(4)))
    for when, may_die in ends:
        ranks.run(4, killed, os.path.join(here, when), when, may_die=may_die)
    ranks.run(4, in_turn, *loaded[4], *[(after_kill, os.path.join(here, when)) for when, _ in ends])
    ranks.run(2, in_turn, *loaded[2], (memory,))
    ranks.run(8, in_turn, *loaded[8])
    for where in ("step", "backward", "load"):
        ranks.run(4, rank_dies, where, os.path.join(here, "dies"), may_die=[1])
    print("all passed")
    sys.exit(0)
