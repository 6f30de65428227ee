"""torchtitan's own trainer with experts that hecate runs. One line in a config_registry.py, whose functions torchtitan's
--config names:

    def my_model_by_hecate():
        return hecate.torch.titan_trainer.configured(my_model(), "hecate")

FSDP2 keeps the dense part. Written for torchtitan 0.3.0."""
import dataclasses
import functools
import re

import torch
from torch.distributed.fsdp import fully_shard
from torchtitan.distributed import fsdp, utils

from .._library import BadInput
from . import titan

EXPERTS = "routed_experts.experts.weight"  # how the names of their parameters end


def configured(config, policy="hecate", **options):
    """A configuration of torchtitan's Trainer -> one whose experts hecate runs. The given one stays as it is.
    options: of ExpertParallel and hecate.Planner; experts compute in training.mixed_precision_param."""
    given = type(config)

    class Trainer(_trainer(given._owner, policy, options)):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(given):
            pass

    made = Trainer.Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.init})
    made.optimizer = dataclasses.replace(config.optimizer, param_groups=_apart(config.optimizer.param_groups))
    return made


def _apart(groups):
    """The experts are in a group of their own: FSDP2's parameters and others do not mix in one."""
    group = next((g for g in groups if re.search(g.pattern, "layers.0.moe." + EXPERTS)), None)
    if group is None:
        raise BadInput("titan_trainer: expected a group of parameters whose pattern finds layers.0.moe.%s, found none" % EXPERTS)
    at = next(i for i, g in enumerate(groups) if g is group)
    return [*groups[:at], dataclasses.replace(group, pattern=re.escape(EXPERTS) + "$"), *groups[at:]]


def _check(config):
    p = config.parallelism
    for name in ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree", "expert_parallel_degree"):
        if getattr(p, name) != 1:
            raise BadInput("titan_trainer: parallelism.%s: expected 1, found %s" % (name, getattr(p, name)))
    if config.checkpoint.enable:
        raise BadInput("titan_trainer: checkpoint.enable: torchtitan's checkpoints do not know of experts that move; leave it off "
                       "and use hecate.torch.save and load")
    if config.validator.enable:
        raise BadInput("titan_trainer: validator.enable: validation between steps is not supported")
    if not config.training.disable_cuda_graphs or config.compile.enable:
        raise BadInput("titan_trainer: expected training.disable_cuda_graphs, and no compile: what a step exchanges depends on its loads")


def _trainer(base, policy, options):
    class ByHecate(base):
        def __init__(self, config):
            _check(config)
            training, spec = config.training, config.model_spec
            made = {"compute_dtype": getattr(torch, training.mixed_precision_param), **options}

            def parallelize(model, **how):
                self.experts = titan.replace(model, policy, tokens=training.local_batch_size * training.seq_len,
                                             device=self.device, **made)
                fsdp.fully_shard = functools.partial(fully_shard, ignored_params=set(self.experts.parameters()))
                try:
                    return spec.parallelize_fn(model, **how)
                finally:
                    fsdp.fully_shard = fully_shard

            super().__init__(dataclasses.replace(config, model_spec=dataclasses.replace(spec, parallelize_fn=parallelize)))
            titan.fill(self.model_parts[0], seed=config.debug.seed or 0)
            for optimizer in self.optimizers.optimizers:
                self.experts.attach(optimizer)

        def train_step(self, data_iterator):
            self.micro_batch, clip = 0, utils.clip_grad_norm_
            utils.clip_grad_norm_ = lambda parameters, max_norm, **_: self.experts.clip_grad_norm_(parameters, max_norm)
            try:
                return super().train_step(data_iterator)
            finally:
                utils.clip_grad_norm_ = clip

        def forward_backward_step(self, **batch):
            self.experts.step(self.micro_batch)
            self.micro_batch += 1
            return super().forward_backward_step(**batch)

    return ByHecate
