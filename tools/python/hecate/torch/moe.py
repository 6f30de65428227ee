"""FSSDP for PyTorch: ExpertParallel plans and keeps the experts, MoELayer is the layer."""
import math
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.nn.functional as F

from .._library import BadInput
from ..planner import Planner
from .exchange import Exchange, exchange_rows
from .store import ExpertStore, guests_of, kept_by


def gelu_expert(weights, x):
    """Two matrices: [d_ffn, d_model], [d_model, d_ffn]."""
    return F.linear(F.gelu(F.linear(x, weights[0])), weights[1])


def swiglu_expert(weights, x):
    """Three: gate and up [d_ffn, d_model], down [d_model, d_ffn]."""
    return F.linear(F.silu(F.linear(x, weights[0])) * F.linear(x, weights[1]), weights[2])


class _Guests:
    """Of one layer in a micro-batch: the gather that was started ahead; used: by the first forward pass; recomputed: there was
    another (activation checkpointing)."""

    def __init__(self):
        self.started, self.used, self.recomputed = None, False, False


class _Materialise(torch.autograd.Function):
    """weight -> (nothing, the matrices of the experts that have tokens, one after the other) in the compute dtype. used: their
    (set, row); set 0 is kept here, then guests before the gate, guests added after it. Backward puts the gradients together
    and starts the SparseReduceScatter, but not before the rows are on their way back (ExpertParallel._meanwhile)."""

    @staticmethod
    def forward(ctx, weight, layer, came, used):
        ctx.layer, ctx.came, ctx.used, store = layer, came, used, layer.experts
        kept = weight.to(store.compute_dtype) if weight.dtype != store.compute_dtype else weight
        sets = [kept] + [guests for guests, _ in came]
        return (weight.new_zeros(()), *(matrix for which, row in used for matrix in layer._matrices(sets[which][row])))

    @staticmethod
    def backward(ctx, _, *grads):
        layer, came, used, store = ctx.layer, ctx.came, ctx.used, ctx.layer.experts

        def put_together():
            own = layer._joined(store.weight, store.weight.dtype, 0, used, grads)
            started = [store.scatter_start(layer._joined(guests, store.compute_dtype, i + 1, used, grads), moved)
                       for i, (guests, moved) in enumerate(came) if moved.any]
            layer.parallel._returns(store, own, started)

        layer.parallel._later(put_together)
        return None, None, None, None


class _Again(torch.autograd.Function):
    """Re-materialisation: guests are freed after forward, and gathered again before the backward pass of the experts."""

    @staticmethod
    def forward(ctx, y, store, plan, came, guests):
        ctx.store, ctx.plan, ctx.came, ctx.guests = store, plan, came, guests
        return y.view_as(y)

    @staticmethod
    def backward(ctx, grad):
        if ctx.guests.recomputed:  # backward runs through the recomputed pass, which has its own
            return grad, None, None, None, None
        for (tensor, moved), which in zip(ctx.came, ("before", "added")):
            if moved.any:
                fresh, _ = ctx.store.gather_end(ctx.store.gather_start(guests_of(ctx.plan, ctx.store.layer, which)))
                tensor.untyped_storage().resize_(tensor.numel() * tensor.element_size())
                tensor.data.copy_(fresh)  # what is saved for backward sees it, and its version counter does not
        return grad, None, None, None, None


class ExpertParallel:
    """The experts of all MoE layers of a model, kept once and copied where a policy of hecate says so.

        parallel = ExpertParallel("hecate", layers=4, experts=16, top_k=2, d_model=64, d_ffn=128, tokens=512)
        model = Model(moe=lambda i: MoELayer(parallel, i))
        optimizer = torch.optim.AdamW(model.parameters())
        parallel.attach(optimizer)                 # its state moves with the experts
        for batch in data:
            optimizer.zero_grad()
            parallel.step()                        # plan, re-shard
            loss(model(batch)).backward()          # dense gradients: DDP or FSDP2, as ever
            parallel.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    policy          a name of hecate.policies(), with options
    group           ranks that share the experts; default: all
    tokens          of a rank in a micro-batch. More or fewer are allowed, policies weigh by it.
    dtype           of parameters and optimizer (master weights); compute_dtype: of experts at work, default the same
    expert          "gelu", "swiglu", or a function (weights, x [n, d_model]) with `shapes`, the weights' shapes
    mean            gradients are divided by the ranks of `data_ranks` (default: the group), as DDP does
    refine          False: the policy adds no copies after the gate
    rematerialise   None: as the policy says; True: guests are gathered again in backward
    planner         further options of hecate.Planner: cluster, window_s, period, t, m, slots, ep ...
    Every rank makes it with the same arguments; BadInput on every rank where they differ."""

    def __init__(self, policy: str = "hecate", *, layers: int, experts: int, top_k: int, d_model: int, d_ffn: int, tokens: int,
                 group=None, expert: Any = "gelu", shapes: Optional[Sequence[Sequence[int]]] = None,
                 dtype=torch.float32, compute_dtype=None, device=None, mean: bool = True, data_ranks: Optional[int] = None,
                 refine: bool = True, rematerialise: Optional[bool] = None, seed: int = 0, **planner: Any):
        self.exchange = Exchange(group)
        self.layers, self.experts, self.top_k, self.d_model = layers, experts, top_k, d_model
        kinds = {"gelu": (gelu_expert, [(d_ffn, d_model), (d_model, d_ffn)]),
                 "swiglu": (swiglu_expert, [(d_ffn, d_model), (d_ffn, d_model), (d_model, d_ffn)])}
        problem = None
        try:
            if not callable(expert) and expert not in kinds:
                raise BadInput("expert: expected \"gelu\", \"swiglu\" or a function, found %r" % (expert,))
            self.expert, self.shapes = (expert, [tuple(s) for s in shapes]) if callable(expert) else kinds[expert]
            compute_dtype = compute_dtype or dtype
            bytes_of = torch.empty(0, dtype=compute_dtype).element_size()
            self.planner = Planner(policy, layers=layers, experts=experts, top_k=top_k, ranks=self.exchange.size,
                                   d_model=d_model, d_ffn=d_ffn, matrices=max(2, min(3, len(self.shapes))), tokens=tokens,
                                   param_bytes=bytes_of, grad_bytes=bytes_of, **planner)
        except (BadInput, TypeError) as error:  # said after the ranks have compared: no rank waits for another
            problem = error
        self.exchange.agree("ExpertParallel", dict(
            policy=policy, layers=layers, experts=experts, top_k=top_k, d_model=d_model, d_ffn=d_ffn, tokens=tokens,
            dtype=str(dtype), compute_dtype=str(compute_dtype), seed=seed, refine=refine, mean=mean,
            problem=problem and str(problem), planner=sorted(planner.items())))
        if problem:
            raise problem
        self.refine, self._rematerialise = refine, rematerialise
        sizes = [math.prod(shape) for shape in self.shapes]
        scale = 1 / (data_ranks or self.exchange.size) if mean else 1
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.stores = [ExpertStore(layer, self.planner, self.exchange, sum(sizes), dtype, compute_dtype, device, scale)
                       for layer in range(layers)]
        self.plan, self.counts, self.iteration = None, torch.zeros(layers, self.exchange.size, experts, dtype=torch.int64), -1
        self.optimizers: List[torch.optim.Optimizer] = []
        self.recorders: List[Any] = []
        self._guests, self._pending, self._put_off, self._queued = {}, [], [], False
        self._trained, self._left_alone = False, None
        self._offsets = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        self.reset_parameters(seed)

    def reset_parameters(self, seed: int) -> None:
        """The same weights for any number of ranks: an expert's generator has a seed of its own. Uniform as
        torch.nn.Linear's."""
        for store in self.stores:
            for expert in store.kept:
                generator = torch.Generator().manual_seed((seed * 1000003 + store.layer) * 1000003 + expert)
                flat = torch.cat([(torch.rand(math.prod(shape), generator=generator, dtype=torch.float64) * 2 - 1) /
                                  math.sqrt(shape[-1]) for shape in self.shapes])
                store.fill(expert, flat)

    def parameters(self) -> List[torch.nn.Parameter]:
        """One a layer [experts kept here, parameters]. Their rows move; the objects stay."""
        return [store.weight for store in self.stores]

    def ignore_in(self, model: torch.nn.Module) -> torch.nn.Module:
        """Tells DistributedDataParallel to leave the experts alone; before it wraps the model. For FSDP2: fully_shard(...,
        ignored_params=set(parallel.parameters()))."""
        own = {id(weight) for weight in self.parameters()}
        names = [name for name, weight in model.named_parameters() if id(weight) in own]
        torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
        return model

    def _check_ignored(self):
        """DDP would average experts that are not the same on all ranks. Looked up once for each DDP that runs the model."""
        ddp = getattr(torch.nn.parallel.DistributedDataParallel, "_active_ddp_module", None)
        if ddp is None or ddp is self._left_alone or self.exchange.size == 1:
            return
        own = {id(weight) for weight in self.parameters()}
        if any(id(weight) in own for weight in getattr(ddp, "_module_parameters", ())):
            raise BadInput("DistributedDataParallel: expected parallel.ignore_in(model) inside it, found experts that it would average "
                           "over ranks")
        self._left_alone = ddp

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Its state of the experts moves with them. Element-wise optimizers only: SGD, Adam, AdamW, Adagrad, RMSprop."""
        self.optimizers.append(optimizer)

    # ---- A micro-batch ----

    def step(self, micro_batch: int = 0, iteration: Optional[int] = None):
        """Before the forward pass of a micro-batch; 0 begins an iteration, in which experts may move. Returns the plan."""
        if any(hasattr(weight, "to_local") for weight in self.parameters()):
            raise BadInput("fully_shard: expected ignored_params=set(parallel.parameters()), found experts that it sharded")
        self._end()
        if micro_batch == 0:
            self.iteration = self.iteration + 1 if iteration is None else iteration
        with self.exchange.timed("planner"):
            self.plan = self.planner.step(self.iteration, micro_batch)
            moves = self.planner.moves()
        self.exchange.counts("step of iteration %d" % self.iteration, -1 - micro_batch, self.plan.digest, False,
                             torch.zeros(self.experts, dtype=torch.int64, device=self.stores[0].weight.device))
        if moves:
            self._reshard(moves)
        self.counts.zero_()
        self._guests = {}
        self._prefetch(0)
        return self.plan

    def _end(self):
        """The counts of the micro-batch before become history."""
        if self.plan is None:
            return
        with self.exchange.timed("recorder"):
            for recorder in self.recorders:
                recorder.add(self.iteration, self.counts)
        with self.exchange.timed("planner"):
            self.plan.end(self.counts.numpy())
        self.plan = None

    def _reshard(self, moves):
        for store in self.stores:
            own = [(m.source, m.destination, m.expert) for m in moves if m.layer == store.layer and m.state == "param"]
            keepers = kept_by(self.plan, store.layer)
            if own or keepers != store.keepers:
                if self._trained and not self.optimizers:
                    raise BadInput("ExpertParallel: expected attach(optimizer) before experts move, for their state moves with them")
                store.reshard(own, keepers, [optimizer.state.get(store.weight, {}) for optimizer in self.optimizers])

    def _prefetch(self, layer):
        """Starts the gather of a layer's guests, once."""
        if layer < self.layers and layer not in self._guests:
            self._guests[layer] = guests = _Guests()
            guests.started = self.stores[layer].gather_start(guests_of(self.plan, layer, "before"))

    def rematerialise(self, plan) -> bool:
        return plan.rematerialise if self._rematerialise is None else self._rematerialise

    def overload(self) -> float:
        """Tokens of the busiest rank over the mean, the mean over the layers, of the micro-batch that was just computed."""
        found = []
        for layer in range(self.layers):
            work = self.plan.dispatch(layer).sum((0, 1))
            found.append(float(work.max() * len(work) / max(1, work.sum())))
        return sum(found) / len(found)

    # ---- Gradients ----

    def _later(self, work):
        """In backward: to do while rows travel, at the latest at the end of the pass."""
        self._put_off.append(work)
        if not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    @torch.no_grad()
    def _meanwhile(self):
        put_off, self._put_off = self._put_off, []
        for work in put_off:
            work()

    def _returns(self, store, own, started):
        """In backward: the gradient of a layer is complete once `started` has come; added at the end of the pass. Where no guest
        returns, the sum over resident copies starts now."""
        self._pending.append((store, own, started, None if started else store.sum_start(own)))

    def _finish(self):
        self._trained = True
        self._meanwhile()
        pending, self._pending, self._queued = self._pending, [], False
        for store, own, started, summed in pending:
            for scatter in started:
                store.scatter_end(scatter, own)
            store.sum_end(store.sum_start(own) if started else summed, own)
            store.add_gradient(own)

    @torch.no_grad()
    def clip_grad_norm_(self, parameters, max_norm: float, norm_type: float = 2.0, beside: float = 0.0) -> torch.Tensor:
        """torch.nn.utils.clip_grad_norm_ over dense parameters (the same on every rank) and all experts of all ranks. Returns
        the norm. beside: the norm of further gradients, which the caller scales."""
        own = {id(weight): store for weight, store in zip(self.parameters(), self.stores)}
        parameters = [p for p in parameters if p.grad is not None]
        infinite = norm_type == math.inf
        reduction = torch.distributed.ReduceOp.MAX if infinite else torch.distributed.ReduceOp.SUM
        power = (lambda g: g.abs().max() if g.numel() else g.new_zeros(())) if infinite else (
            lambda g: torch.linalg.vector_norm(g, norm_type).double().pow(norm_type))

        def joined(values):
            zero = torch.zeros((), dtype=torch.float64, device=self.stores[0].weight.device)
            return torch.stack([zero] + [value.double() for value in values]).max() if infinite else sum(values, zero)

        total = joined(power(store.of_homes(store.weight.grad)) for store in self.stores if store.weight.grad is not None)
        with self.exchange.waiting("norm of the gradients"):
            torch.distributed.all_reduce(total, group=self.exchange.group, op=reduction)
        dense = {}  # by the process groups that have the shards of the gradient
        for p in parameters:
            if id(p) not in own:
                dense.setdefault(_shard_groups(p.grad), []).append(power(_local(p.grad)))
        for groups, values in dense.items():
            value = joined(values)
            for group in groups:
                with self.exchange.waiting("norm of the gradients"):
                    torch.distributed.all_reduce(value, group=group, op=reduction)
            total = joined([total, value])
        total = total.clamp(min=beside) if infinite else total + beside ** norm_type
        norm = total if infinite else total.pow(1 / norm_type)
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for p in parameters:
            _local(p.grad).mul_(factor.to(p.grad.dtype))
        return norm


def _local(grad):
    """Of FSDP2's gradients (DTensor) this rank's shard."""
    return grad.to_local() if hasattr(grad, "to_local") else grad


def _shard_groups(grad):
    if not hasattr(grad, "to_local"):
        return ()
    return tuple(grad.device_mesh.get_group(i) for i, placement in enumerate(grad.placements) if placement.is_shard())


class _Flight:
    """One forward pass of a layer: plan, send, receive, order (places of the assignments as they are sent), token (of
    each). And came and guests of the experts."""


class MoELayer(torch.nn.Module):
    """x [.., d_model] -> [.., d_model]: router, dispatch, experts, combine.

    router   a module from [n, d_model] to (weights [n, top_k], experts [n, top_k]); default: softmax over a linear layer,
             the top_k of it made to sum to 1. Its parameters are dense: DDP or FSDP2 reduces them."""

    def __init__(self, parallel: ExpertParallel, layer: int, router: Optional[Callable] = None):
        super().__init__()
        if not 0 <= layer < parallel.layers:
            raise BadInput("MoELayer: expected a layer below %d, found %d" % (parallel.layers, layer))
        self.parallel, self.layer = parallel, layer
        self.experts = parallel.stores[layer]
        self.router = router if router is not None else TopK(parallel.d_model, parallel.experts, parallel.top_k)

    def forward(self, x):
        weights, chosen = self.router(x.reshape(-1, x.shape[-1]))
        return self.route(x.reshape(-1, x.shape[-1]), weights, chosen).view_as(x)

    @torch.compiler.disable
    def route(self, x, weights, chosen):
        """x [n, d_model] through its chosen experts [n, top_k], summed by weights [n, top_k]."""
        token = torch.arange(len(chosen), device=x.device).repeat_interleave(chosen.shape[1])
        return self.assigned(x, token, chosen.reshape(-1), weights.reshape(-1))

    @torch.compiler.disable
    def assigned(self, x, token, expert, weight):
        """The same of any assignments [m]: token[i], a row of x, goes to expert[i] and comes back times weight[i]."""
        flight = self.depart(token, expert)
        back = self.come_back(flight, self.compute(flight, self.dispatch(flight, x)))
        return self.land(flight, back, weight, torch.zeros_like(x))

    # The stages of a pass, one by one for trainers that have them apart.

    def depart(self, token, expert):
        """The counts of all ranks into the plan; where the assignments go."""
        self.parallel._check_ignored()
        flight = _Flight()
        flight.send, flight.receive, flight.plan = self._plan(expert)
        flight.order = _by_destination(expert, flight.send)
        flight.token = token[flight.order]
        flight.n_send, flight.n_receive = flight.send.sum(0).tolist(), flight.receive.sum(1).tolist()
        return flight

    def dispatch(self, flight, x):
        """Rows that came here, by source, then expert."""
        return exchange_rows(x[flight.token], self.parallel.exchange, "dispatch of layer %d" % self.layer, flight.n_send,
                             flight.n_receive, (self.parallel._meanwhile, "sending of layer %d" % self.layer))

    def compute(self, flight, rows):
        flight.came, flight.guests = self._guests_here(flight.plan)
        return self._compute(rows, flight.receive, flight.came)

    def come_back(self, flight, done):
        """Assignments of this rank, in the order of flight.token."""
        back = exchange_rows(done, self.parallel.exchange, "combine of layer %d" % self.layer, flight.n_receive, flight.n_send)
        came, guests = flight.came, flight.guests
        if came and self.parallel.rematerialise(flight.plan) and torch.is_grad_enabled() and not guests.recomputed:
            back = _Again.apply(back, self.experts, flight.plan, came, guests)
            for tensor, _ in came:
                tensor.untyped_storage().resize_(0)
        return back

    def land(self, flight, back, weight, onto):
        weighted = back * weight[flight.order].unsqueeze(1).to(back.dtype)
        return onto.index_add(0, flight.token, weighted.to(onto.dtype))

    def _plan(self, flat):
        """The counts of all ranks into the plan; the rows that this rank sends [expert, rank] and gets [source, expert]."""
        parallel, plan = self.parallel, self.parallel.plan
        if plan is None:
            raise BadInput("MoELayer: expected ExpertParallel.step() before the forward pass")
        wrong = flat.numel() > 0 and bool(((flat < 0) | (flat >= parallel.experts)).any())
        own = torch.bincount(flat.clamp(0, parallel.experts - 1), minlength=parallel.experts)
        counts = parallel.exchange.counts("layer %d" % self.layer, self.layer, 0, wrong, own)
        if self.training:
            parallel.counts[self.layer] = counts
        with parallel.exchange.timed("planner"):
            (plan.refine if parallel.refine else plan.count)(self.layer, counts.numpy())
            send, receive = plan.routes(self.layer, parallel.exchange.rank)
        return torch.from_numpy(send.astype("int64")), torch.from_numpy(receive.astype("int64")), plan

    def _compute(self, rows, receive, came):
        """The experts' work on rows [n, d_model], which stand by source, then expert."""
        store = self.experts
        where = {} if store.slices > 1 else {e: (0, row) for e, row in store.row_of.items()}
        for i, (_, moved) in enumerate(came):
            where.update({e: (i + 1, row) for row, e in enumerate(moved.experts)})
        experts, n_rows = receive.shape[1], receive.sum(0).tolist()
        source = torch.arange(receive.numel()).repeat_interleave(receive.reshape(-1)) % experts
        order = torch.argsort(source, stable=True).to(rows.device)
        busy = [e for e in range(experts) if n_rows[e] > 0]
        nothing, *matrices = _Materialise.apply(store.weight, self, came, [where[e] for e in busy])
        outputs, n = [], len(self.parallel.shapes)
        for k, x in enumerate(rows[order].split([n_rows[e] for e in busy])):
            outputs.append(self.parallel.expert(matrices[k * n:(k + 1) * n], x.to(store.compute_dtype)))
        if not outputs:  # no token came; backward still passes here, so that every rank exchanges
            outputs = [rows[:0]]
        done = _Joined.apply(torch.cat(outputs).to(rows.dtype), nothing)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order), device=order.device)
        return done[inverse]

    def _guests_here(self, plan):
        """Waits for the gathers of the layer, and starts the next layer's."""
        parallel, store = self.parallel, self.experts
        parallel._prefetch(self.layer)
        guests = parallel._guests[self.layer]
        if guests.used:
            guests.recomputed = True
            guests.started = store.gather_start(guests_of(plan, self.layer, "before"))
        guests.used, started, guests.started = True, guests.started, None
        added = store.gather_start(guests_of(plan, self.layer, "added"))
        if self.training and torch.is_grad_enabled():
            parallel._prefetch(self.layer + 1)  # while this layer's experts and the next one's attention run
        return [store.gather_end(gather) for gather in (started, added) if gather is not None], guests

    def _joined(self, like, dtype, which, used, grads):
        """[rows of `like`] the gradients of a set's matrices; of experts without tokens 0."""
        n, whole = len(self.parallel.shapes), torch.zeros_like(like, dtype=dtype)
        for k, (of, row) in enumerate(used):
            for matrix, grad in zip(self._matrices(whole[row]) if of == which else (), grads[k * n:(k + 1) * n]):
                matrix.copy_(grad)
        return whole

    def _matrices(self, flat):
        offsets = self.parallel._offsets
        return [flat[offsets[i]:offsets[i + 1]].view(shape) for i, shape in enumerate(self.parallel.shapes)]


class _Joined(torch.autograd.Function):
    """Keeps a layer to which no token came in the graph: every rank takes part in every backward exchange."""

    @staticmethod
    def forward(ctx, done, nothing):
        return done.view_as(done)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class TopK(torch.nn.Module):
    def __init__(self, d_model, experts, top_k):
        super().__init__()
        self.gate, self.top_k = torch.nn.Linear(d_model, experts, bias=False), top_k

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(self.top_k, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen


def _by_destination(flat, send):
    """Places of the assignments [m] in the order in which they are sent: by rank, then expert, then place. send [expert, rank]: how
    many go where, cut in ascending order of ranks."""
    experts, ranks = send.shape
    by_expert = torch.argsort(flat, stable=True)
    part = torch.arange(experts * ranks).repeat_interleave(send.reshape(-1))
    key = (part % ranks) * experts + part // ranks
    return by_expert[torch.argsort(key, stable=True).to(by_expert.device)]
