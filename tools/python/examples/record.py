"""Records the routers of a model and simulates what was recorded. The model here is two modules that return top-2 indices of
8 experts; in a trainer take them from model.named_modules()."""
import random

import torch

import hecate

random.seed(1)


def batch():
    return torch.Tensor([random.sample(range(8), 2) for _ in range(64)])


routers = [torch.Module([batch() for _ in range(4)]) for _ in range(2)]
with hecate.Recorder("recorded.jsonl.gz", experts=8, top_k=2, name="example") as recorder:
    recorder.attach(routers)
    for iteration in range(4):
        for router in routers:
            router()  # forward; then backward and optimizer
        recorder.step()
found = hecate.simulate("recorded.jsonl.gz", policies="ep,hecate", cluster="1x2 nvlink=300G@2us flops=312T mem=40G",
                        model="gpt-moe-s")
print([(row["name"], row["iteration_s"]["median"]) for row in found["policies"]])
