"""torchtitan's own trainer with and without hecate.torch.titan_trainer, where torchtitan can be imported: the same losses and norms
over some steps, with FSDP2, selective activation checkpointing, accumulation, clipping and AdamW.

It asks a GPU for its memory, and its attention has no backward pass on CPUs. Here both are answered otherwise (on_cpu)."""
import copy
import dataclasses
import glob
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import types
import zlib

import torch
import torch._dynamo
import torch._utils

import hecate

STEPS = 4
NOTHING = dict(get_device_name=lambda device=None: "cpu", memory_stats=lambda device=None: {}, reset_peak_memory_stats=lambda *a: None,
               get_device_properties=lambda device=None: types.SimpleNamespace(total_memory=1 << 30), empty_cache=lambda: None,
               set_device=lambda device: None, current_device=lambda: 0, device_count=lambda: 1)


def on_cpu():
    """Before torchtitan is imported."""
    torch._utils._get_available_device_type = lambda: "cpu"
    for name, function in NOTHING.items():
        setattr(torch.cpu, name, function)
    from torchtitan.distributed import fsdp
    from torchtitan.models.common.attention import FlexAttention

    def attention(q, k, v, *, scale, enable_gqa, **_):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa)
        return out, types.SimpleNamespace(lse=None)

    undivided = fsdp.disable_fsdp_gradient_division

    def summed(model):
        undivided(model)
        for module in model.modules():
            if hasattr(module, "set_force_sum_reduction_for_comms"):
                module.set_force_sum_reduction_for_comms(True)  # gloo has no sum that divides

    FlexAttention.compiled_flex_attn, fsdp.disable_fsdp_gradient_division = staticmethod(attention), summed


def write_text(folder):
    """A tokenizer and some text: Python's own library."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    files = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:12]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.train(files, trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=["<|begin|>", "<|end|>"]))
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as out:
        json.dump({"bos_token": "<|begin|>", "eos_token": "<|end|>"}, out)
    with open(os.path.join(folder, "text.jsonl"), "w") as out:
        for name in files:
            print(json.dumps({"text": open(name, errors="ignore").read()}), file=out)


def configuration(folder, size):
    from datasets import load_dataset
    from torchtitan.hf_datasets import DatasetConfig, text_datasets
    from torchtitan.models.qwen3 import config_registry, model_registry
    text_datasets.DATASETS["own"] = DatasetConfig(
        path=os.path.join(folder, "text.jsonl"), sample_processor=lambda sample: sample["text"],
        loader=lambda path: load_dataset("json", data_files=path, split="train", cache_dir=folder))
    config = config_registry.qwen3_debugmodel()
    config.model_spec = model_registry("debugmodel_moe", attn_backend="flex")
    config.model_spec.model.layers = config.model_spec.model.layers[:2]
    config.hf_assets_path, config.dataloader.dataset, config.debug.seed = folder, "own", 1
    config.loss.loss_fn.global_vocab_size = config.model_spec.model.vocab_size
    training = config.training
    training.local_batch_size, training.global_batch_size, training.seq_len, training.steps = 1, 2 * size, 48, STEPS
    training.disable_cuda_graphs, training.mixed_precision_param = True, "float32"
    return config


def level():
    """torchtitan's Trainer, whose first weights do not depend on the order in which they are drawn: the dense part's come from their
    names, the experts' are those of titan.fill."""
    from torch.distributed.tensor import distribute_tensor
    from torchtitan.trainer import Trainer
    from hecate.torch import titan

    @torch.no_grad()
    def put(parameter, whole):
        parameter.copy_(distribute_tensor(whole, parameter.device_mesh, parameter.placements))

    class Level(Trainer):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(Trainer.Config):
            pass

        def __init__(self, config):
            spec, experts = config.model_spec, []

            def parallelize(model, **how):
                experts.extend(copy.deepcopy(module.inner_experts) for _, _, module in titan.find(model))
                return spec.parallelize_fn(model, **how)

            super().__init__(dataclasses.replace(config, model_spec=dataclasses.replace(spec, parallelize_fn=parallelize)))
            for name, parameter in self.model_parts[0].named_parameters():
                name = name.replace("_checkpoint_wrapped_module.", "")
                if "routed_experts" not in name:
                    drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
                    put(parameter, 0.03 * drawn + ("norm" in name))
            for layer, (whole, (_, _, module)) in enumerate(zip(experts, titan.find(self.model_parts[0]))):
                whole.to_empty(device="cpu")
                with torch.random.fork_rng(), torch.no_grad():
                    torch.manual_seed(config.debug.seed * 1000003 + layer)
                    whole.init_states()
                for parameter, value in zip(module.inner_experts.parameters(), whole.parameters()):
                    put(parameter, value.detach())

    return Level


def rank(folder, policy):
    """A rank of a job, named by the environment as torchrun does."""
    import torch.distributed as dist
    from hecate.torch import titan_trainer
    config = configuration(folder, int(os.environ["WORLD_SIZE"]))
    config = level().Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.init})
    if policy != "none":
        config = titan_trainer.configured(config, policy, window_s=1e-3)
    trainer, found = config.build(), []
    step = trainer.forward_backward_step
    trainer.forward_backward_step = lambda **batch: found.append(step(**batch)) or found[-1]
    trainer.train()
    trainer.close()
    losses = torch.stack([loss.detach() for loss in found])
    dist.all_reduce(losses)
    if dist.get_rank() == 0:
        torch.save(losses, os.path.join(folder, policy))
    dist.destroy_process_group()


def losses(folder, policy, size=2):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        meeting = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]), WORLD_SIZE=str(size), OMP_NUM_THREADS="1",
                       PYTHONPATH=os.pathsep.join(sys.path))
    jobs = [subprocess.Popen([sys.executable, __file__, folder, policy], env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), **meeting))
            for r in range(size)]
    codes = [job.wait() for job in jobs]
    assert not any(codes), (policy, codes)
    return torch.load(os.path.join(folder, policy))


def refused(folder):
    from hecate.torch import titan_trainer
    for part, name, value, words in (("checkpoint", "enable", True, "use hecate.torch.save"), ("compile", "enable", True, "no compile"),
                                     ("validator", "enable", True, "validation between steps"),
                                     ("parallelism", "expert_parallel_degree", 2, "expected 1, found 2")):
        config = configuration(folder, 1)
        setattr(getattr(config, part), name, value)
        try:
            titan_trainer.configured(config, "ep").build()
            raise AssertionError(name)
        except hecate.BadInput as error:
            assert words in str(error), error


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_text(folder)
        refused(folder)
        plain, hecates, eps = (losses(folder, policy) for policy in ("none", "hecate", "ep"))
        off = max(float(((other - plain) / plain).abs().max()) for other in (hecates, eps))
        assert len(plain) == 2 * STEPS and plain[-1] < plain[0] and off < 1e-4, (plain, hecates, eps)
        print("torchtitan's trainer, 2 ranks, %d steps of 2 micro-batches: losses differ by %.1e" % (STEPS, off))


if __name__ == "__main__":
    if importlib.util.find_spec("torchtitan") is None:
        print("SKIPPED torch (torchtitan's trainer): no module torchtitan")
        sys.exit(0)
    torch._dynamo.config.disable = True
    torch.set_num_threads(1)
    on_cpu()
    rank(*sys.argv[1:]) if len(sys.argv) > 1 else main()
