"""hecate.Recorder over PyTorch itself; run by tests/tools/test_python.sh in an empty folder, where PyTorch is. What routers
return in the forms that models have, against counts made here; then two processes under torch.distributed (gloo)."""
import gzip
import json
import os
import sys

import torch
import torch.multiprocessing

import hecate

EXPERTS, TOP_K, TOKENS = 8, 2, 50


class Gate(torch.nn.Module):
    """form: what it returns."""

    def __init__(self, form):
        super().__init__()
        self.form, self.gate, self.counts = form, torch.nn.Linear(16, EXPERTS, bias=False), [0] * EXPERTS

    def forward(self, x):
        logits = self.gate(x)
        weights, indices = logits.softmax(-1).topk(TOP_K, dim=-1)
        for expert in indices.flatten().tolist():
            self.counts[expert] += 1
        routing_map = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, indices, True)
        probabilities = torch.zeros_like(logits).scatter_(-1, indices, weights)
        return {"logits": logits, "half": logits.bfloat16(), "indices": indices, "batched": indices.reshape(2, -1, TOP_K),
                "weights and indices": (weights, indices), "indices as int32": (indices.int(), weights),
                "probabilities and map": (probabilities, routing_map)}[self.form]

    def take(self):
        counts, self.counts = self.counts, [0] * EXPERTS
        return counts


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as trace:
        head, *records = [json.loads(line) for line in trace]
    return head, [record["layers"] for record in records]


def forms():
    # "half" may break ties of rounded logits otherwise: its choice is its own
    gates = [Gate(form) for form in ("logits", "indices", "batched", "weights and indices", "indices as int32",
                                     "probabilities and map")]
    wanted = []
    with hecate.Recorder("forms.jsonl.gz", experts=EXPERTS, top_k=TOP_K) as recorder:
        recorder.attach(gates)
        for _ in range(3):
            for gate in gates:
                gate(torch.randn(TOKENS, 16))
            recorder.step()
            wanted.append([[gate.take()] for gate in gates])
        recorder.count(0, torch.tensor([[3, -1], [-1, -1], [0, 3]]))
        assert recorder.counts[0] == [1, 0, 0, 2, 0, 0, 0, 0], recorder.counts
        recorder.counts[0] = [0] * EXPERTS
        half = Gate("half")
        recorder.count(0, half(torch.randn(TOKENS, 16)))
        assert sum(recorder.counts[0]) == TOKENS * TOP_K, recorder.counts
    head, found = read("forms.jsonl.gz")
    assert head["layers"] == len(gates) and head["source_ranks"] == 1, head
    assert found == wanted, (found, wanted)


def gradients():
    gate = Gate("logits")
    with hecate.Recorder("gradients.jsonl", experts=EXPERTS, top_k=TOP_K) as recorder:
        recorder.attach([gate])
        gate(torch.randn(TOKENS, 16)).sum().backward()
        recorder.step()
    assert gate.gate.weight.grad is not None
    assert read("gradients.jsonl")[1] == [[[gate.take()]]]


def rank(index, size):
    torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath("meeting"), rank=index,
                                         world_size=size)
    torch.manual_seed(index)
    gate = Gate("logits")
    recorder = hecate.Recorder("ranks.jsonl", experts=EXPERTS, top_k=TOP_K).attach([gate])
    for _ in range(2):
        gate(torch.randn(TOKENS, 16))
        recorder.step()
        with open("counts-%d" % index, "a") as out:
            print(json.dumps(gate.take()), file=out)
    recorder.close()
    torch.distributed.destroy_process_group()


def ranks():
    torch.multiprocessing.start_processes(rank, (2,), nprocs=2, start_method="fork")  # importing it takes seconds
    head, found = read("ranks.jsonl")
    own = [[json.loads(line) for line in open("counts-%d" % index)] for index in range(2)]
    assert head["source_ranks"] == 2, head
    assert found == [[[own[0][i], own[1][i]]] for i in range(2)], (found, own)


if __name__ == "__main__":
    torch.manual_seed(7)
    forms()
    gradients()
    if torch.distributed.is_available():
        ranks()
    else:
        print("SKIPPED python (torch.distributed): this PyTorch has none")
    print("all passed on PyTorch", torch.__version__)
    sys.exit(0)
