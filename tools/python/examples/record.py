"""Records the routers of a PyTorch model and simulates what was recorded. The model here is two linear gates over 8 experts,
which return logits; in a trainer take the modules from model.named_modules()."""
import torch

import hecate

torch.manual_seed(1)
gates = [torch.nn.Linear(16, 8, bias=False) for _ in range(2)]
with hecate.Recorder("recorded.jsonl.gz", experts=8, top_k=2, name="example") as recorder:
    recorder.attach(gates)
    for iteration in range(4):
        for gate in gates:
            gate(torch.randn(64, 16))  # forward; then backward and optimizer
        recorder.step()
found = hecate.simulate("recorded.jsonl.gz", policies="ep,hecate", cluster="1x2 nvlink=300G@2us flops=312T mem=40G",
                        model="gpt-moe-s")
print([(row["name"], row["iteration_s"]["median"]) for row in found["policies"]])
