"""The planner of libhecate: who holds which expert in each micro-batch, and who computes which tokens.

    planner = hecate.Planner("hecate", layers=4, experts=16, top_k=2, ranks=4)
    for iteration in range(steps):
        plan = planner.step(iteration)          # before the gates, from the loads of the past
        planner.moves()                         # experts whose home changed: move parameters and optimizer state
        for layer in range(4):
            plan.guests(layer, "before")        # copies to gather while attention runs
            plan.refine(layer, counts)          # counts[source][expert] of the gate, the same on every rank
            send, receive = plan.routes(layer, rank)
        plan.end()                              # the counts become history

Every rank runs a planner of its own on the same counts and gets the same plans; `digest` lets ranks compare. Arrays are
numpy's where numpy is there, else memoryviews of the same shape. Tokens are token-expert assignments. Mistakes raise
hecate.BadInput; libhecate does the work."""
import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ._library import BadInput, check, library

try:
    import numpy
except ImportError:
    numpy = None

AUTO = -1
WHICH = {"before": 0, "added": 1, "all": 2}
_U32 = range(2**32)
_i32, _i64, _f64, _p = ctypes.c_int32, ctypes.c_int64, ctypes.c_double, ctypes.POINTER


class _Options(ctypes.Structure):
    _fields_ = [("policy", ctypes.c_char_p), ("cluster", ctypes.c_char_p), ("n_ranks", _i32), ("n_layers", _i32),
                ("n_experts", _i32), ("top_k", _i32), ("d_model", _i32), ("d_ffn", _i32), ("n_matrices", _i32),
                ("param_bytes", _i32), ("grad_bytes", _f64), ("optimizer_bytes", _f64), ("tokens", _i32), ("n_heads", _i32),
                ("seq_len", _i32), ("forward_only", _i32), ("window_s", _f64), ("t", _i32), ("m", _i32), ("period", _i32),
                ("slots", _i32), ("ep", _i32)]


class _View(ctypes.Structure):
    _fields_ = [("n_layers", _i32), ("n_experts", _i32), ("n_ranks", _i32), ("n_slices", _i32), ("home", ctypes.c_void_p),
                ("copy_at", ctypes.c_void_p), ("copy_rank", ctypes.c_void_p), ("copy_kind", ctypes.c_void_p),
                ("copy_capacity", _i32), ("t", ctypes.c_void_p), ("m", ctypes.c_void_p), ("rematerialise", _i32),
                ("planned", _i32), ("window_s", _f64), ("expert_bytes", _f64), ("refines", _i32)]


class _Items(ctypes.Structure):
    _fields_ = [("n_items", _i32), ("expert", _p(_i32)), ("owner", _p(_i32)), ("receiver_at", _p(_i32)),
                ("receiver", _p(_i32))]


class _Move(ctypes.Structure):
    _fields_ = [(name, _i32) for name in ("source", "destination", "layer", "expert", "part", "n_parts", "state")]


class Move(NamedTuple):
    """`state` ("param", "optimizer") of an expert goes from rank to rank."""
    source: int
    destination: int
    layer: int
    expert: int
    state: str


class Guest(NamedTuple):
    """An expert's parameters go from the rank that keeps it to the receivers, ascending; its gradients come back."""
    expert: int
    owner: int
    receivers: Tuple[int, ...]


_ready = None


def _functions():
    """libhecate with the types of its planner's functions."""
    global _ready
    if _ready is None:
        lib, void, size = library(), ctypes.c_void_p, ctypes.c_size_t
        lib.hec_planner_defaults.restype = _Options
        for name, *arguments in (
                ("planner_open", _p(_Options), _p(void)), ("planner_begin", void, _i64, _i32, _p(void)),
                ("step_refine", void, _i32, void), ("step_count", void, _i32, void), ("step_end", void, void), ("step_guests", void, _i32, _i32, _p(_Items)),
                ("step_dispatch", void, _i32, void), ("step_routes", void, _i32, _i32, void, void),
                ("planner_save", void, void, size, _p(size)),
                ("planner_restore", void, ctypes.c_char_p, size, _p(_i32))):
            getattr(lib, "hec_" + name).argtypes = arguments
        for name, *arguments in (("planner_close", void), ("step_release", void), ("step_view", void, _p(_View)),
                                 ("planner_view", void, _p(_View))):
            getattr(lib, "hec_" + name).argtypes = arguments
            getattr(lib, "hec_" + name).restype = None
        lib.hec_planner_moves.argtypes, lib.hec_planner_moves.restype = [void, _p(size)], _p(_Move)
        for name in ("hec_planner_digest", "hec_step_digest"):
            getattr(lib, name).argtypes, getattr(lib, name).restype = [void], ctypes.c_uint64
        _ready = lib
    return _ready


def _array(address, kind, shape):
    """What stands at the address: numpy array or memoryview, not copied."""
    n = 1
    for length in shape:
        n *= length
    buffer = (kind * n).from_address(address)
    if numpy is not None:
        return numpy.frombuffer(buffer, dtype=kind).reshape(shape)
    return memoryview(buffer).cast("B").cast({_i32: "i", ctypes.c_uint8: "B"}[kind], shape=shape)


def _empty(shape):
    """uint32 of the shape, and its address."""
    if numpy is not None:
        made = numpy.empty(shape, dtype=numpy.uint32)
        return made, made.ctypes.data
    n = 1
    for length in shape:
        n *= length
    buffer = (ctypes.c_uint32 * n)()
    return memoryview(buffer).cast("B").cast("I", shape=shape), ctypes.addressof(buffer)


def _flat(nested):
    return [x for part in nested for x in _flat(part)] if hasattr(nested, "__iter__") else [nested]


def _counts(what, counts, shape):
    """Whole numbers of this shape as uint32: the owner of the memory, and its address."""
    n = 1
    for length in shape:
        n *= length
    if numpy is None:
        flat = _flat(counts.tolist() if hasattr(counts, "tolist") else counts)
        if len(flat) != n or any(int(x) != x or not 0 <= x < 2**32 for x in flat):
            raise BadInput("%s: expected %d counts of %s, whole numbers from 0, found %d numbers" % (what, n, shape, len(flat)))
        buffer = (ctypes.c_uint32 * n)(*map(int, flat))
        return buffer, ctypes.addressof(buffer)
    given = numpy.asarray(counts)
    if given.size != n or given.dtype.kind not in "iu":
        raise BadInput("%s: expected counts of shape %s, whole numbers, found %s of %s" %
                       (what, tuple(shape), given.dtype, given.shape))
    if given.dtype != numpy.uint32 and given.size and int(numpy.bitwise_or.reduce(given, axis=None)) not in _U32:
        raise BadInput("%s: expected counts from 0 to %d, found %d" % (what, _U32[-1], given.min() if given.min() < 0 else given.max()))
    given = numpy.ascontiguousarray(given, dtype=numpy.uint32)
    return given, given.ctypes.data


class _Placement:
    """Who keeps and who holds which expert; over a view of libhecate's."""

    @property
    def homes(self) -> Any:
        """[layers][experts] int32: the rank that keeps parameters and optimizer state; with slices (`planner.slices` > 1)
        [layers][experts][slices]. A view of the plan's memory."""
        v = self._seen()
        shape = (v.n_layers, v.n_experts) + ((v.n_slices,) if v.n_slices > 1 else ())
        return _array(v.home, _i32, shape)

    def copies(self, layer: int) -> Tuple[Any, Any, Any]:
        """(at [experts + 1], rank [..], kind [..]): expert e has copies at[e] .. at[e + 1] - 1 beside its home; kind 0 stays
        between iterations with its optimizer state, kind 1 is a guest of this micro-batch. Views of the plan's memory."""
        v = self._seen()
        if not 0 <= layer < v.n_layers:
            raise BadInput("copies: expected a layer below %d, found %d" % (v.n_layers, layer))
        at = _array(v.copy_at + 4 * layer * (v.n_experts + 1), _i32, (v.n_experts + 1,))
        n = at[v.n_experts]
        if n == 0:
            none = [] if numpy is None else numpy.empty(0, dtype=numpy.int32)
            return at, none, none
        return (at, _array(v.copy_rank + 4 * layer * v.copy_capacity, _i32, (n,)),
                _array(v.copy_kind + layer * v.copy_capacity, ctypes.c_uint8, (n,)))


class Plan(_Placement):
    """What one micro-batch is planned by. Several may be alive at once. Use it up to backward, then `release()` it (or let it
    go out of scope). What it says of homes holds until the next iteration's first step."""

    def __init__(self, planner: "Planner", handle: ctypes.c_void_p):
        self.planner, self._handle, self._lib = planner, handle, _functions()
        self._view = _View()
        self._lib.hec_step_view(handle, self._view)

    def __del__(self):
        self.release()

    def release(self) -> None:
        if self._handle is not None and self.planner._handle is not None:
            self._lib.hec_step_release(self._handle)
        self._handle = None

    def _seen(self):
        self._alive()
        return self._view

    def _alive(self):
        if self._handle is None:
            raise BadInput("plan: it was released")
        return self._handle

    @property
    def rematerialise(self) -> bool:
        """Guests are dropped after forward and gathered again in backward."""
        return bool(self._view.rematerialise)

    @property
    def digest(self) -> int:
        """Equal plans have equal digests, on every machine."""
        return self._lib.hec_step_digest(self._alive())

    def refine(self, layer: int, counts: Any) -> None:
        """After the layer's gate: counts [ranks][experts], what each rank sends to each expert. Policies with
        `planner.refines` may add copies now; for all it is what routes and dispatch need. May be repeated."""
        owner, address = _counts("refine", counts, self.planner.shape[1:])
        check(self._lib.hec_step_refine(self._alive(), layer, address))
        del owner

    def count(self, layer: int, counts: Any) -> None:
        """Instead of refine: the counts for routes, dispatch and history, and the policy adds no copies."""
        owner, address = _counts("count", counts, self.planner.shape[1:])
        check(self._lib.hec_step_count(self._alive(), layer, address))
        del owner

    def guests(self, layer: int, which: str = "all") -> List[Guest]:
        """Copies of this micro-batch, by expert: "before" (decided before the gate), "added" (by refine) or "all"."""
        if which not in WHICH:
            raise BadInput("guests: expected \"before\", \"added\" or \"all\", found %r" % (which,))
        items = _Items()
        check(self._lib.hec_step_guests(self._alive(), layer, WHICH[which], items))
        n = items.n_items
        at = items.receiver_at[:n + 1]
        receivers = items.receiver[:at[n]] if n else []
        return [Guest(expert, owner, tuple(receivers[at[i]:at[i + 1]]))
                for i, (expert, owner) in enumerate(zip(items.expert[:n], items.owner[:n]))]

    def dispatch(self, layer: int) -> Any:
        """[source][expert][rank] uint32: assignments of the source that the rank computes; after refine. A source's list of
        an expert's assignments is cut in ascending order of ranks. A new array of 4 * ranks^2 * experts bytes."""
        _, ranks, experts = self.planner.shape
        made, address = _empty((ranks, experts, ranks))
        check(self._lib.hec_step_dispatch(self._alive(), layer, address))
        return made

    def routes(self, layer: int, rank: int) -> Tuple[Any, Any]:
        """What one rank needs of dispatch: (send [expert][rank], receive [source][expert]) uint32."""
        _, ranks, experts = self.planner.shape
        send, send_at = _empty((experts, ranks))
        receive, receive_at = _empty((ranks, experts))
        check(self._lib.hec_step_routes(self._alive(), layer, rank, send_at, receive_at))
        return send, receive

    def end(self, counts: Any = None) -> None:
        """The counts become history; may come before backward. counts [layers][ranks][experts], or None: those given to
        refine, which then was called for every layer."""
        owner, address = (None, None) if counts is None else _counts("end", counts, self.planner.shape)
        check(self._lib.hec_step_end(self._alive(), address))
        del owner


class Planner(_Placement):
    """Plans placements of experts by a policy of hecate (hecate.policies()).

    policy           a name, with options: "hecate", "eplb:period=10".
    layers, experts  MoE layers; experts of a layer
    top_k            experts of a token
    ranks            ranks that hold experts
    cluster          a preset, a line "4x8 nvlink=300G@2us nic=50G@5us flops=312T mem=40G" or a file. Policies weigh
                     transfers by it. Default: nodes of 8 devices like a DGX H100
    d_model, d_ffn   sizes of an expert, which has matrices * d_model * d_ffn parameters (matrices 2: plain, 3: gated)
    tokens           of each rank in a micro-batch
    options          of hec_planner_options: param_bytes, grad_bytes, optimizer_bytes (per parameter), n_heads, seq_len,
                     window_s (seconds between two MoE layers), t, m, period, slots, ep, forward_only

    Equal arguments and equal counts give equal plans on every machine."""

    def __init__(self, policy: str = "hecate", *, layers: int, experts: int, top_k: int, ranks: int,
                 cluster: Optional[str] = None, d_model: int = 1024, d_ffn: int = 4096, matrices: int = 2,
                 tokens: int = 4096, **options: Any):
        self._handle = None
        lib = _functions()
        given = lib.hec_planner_defaults()
        if cluster is None:
            cluster = "%dx8 nvlink=450G@2us nic=50G@5us flops=400T mem=80G" % ((ranks + 7) // 8)
        named = dict(n_layers=layers, n_experts=experts, top_k=top_k, n_ranks=ranks, d_model=d_model, d_ffn=d_ffn,
                     n_matrices=matrices, tokens=tokens, **options)
        for name, value in named.items():
            if name in ("policy", "cluster") or name not in dict(_Options._fields_):
                raise BadInput("planner: expected options of hec_planner_options, found %r" % name)
            if name == "n_ranks" and value < 1:
                raise BadInput("ranks: expected at least 1, found %r" % value)
            setattr(given, name, value)
        given.policy, given.cluster = policy.encode(), str(cluster).encode()
        handle = ctypes.c_void_p()
        check(lib.hec_planner_open(given, handle))
        self._lib, self._handle, self.policy = lib, handle, policy
        self.shape = (layers, ranks, experts)
        self._last = -1
        view = self._seen()
        #: whether the policy looks at a layer's counts after its gate, and may add copies then
        self.refines: bool = bool(view.refines)
        #: an expert is cut into so many slices, each with a home of its own: 1, or ranks ("fsdp", "laer", "symi")
        self.slices: int = view.n_slices

    def _seen(self):
        """Before the first step: the first plan, or what was restored."""
        view = _View()
        self._lib.hec_planner_view(self._handle, view)
        return view

    def close(self) -> None:
        if self._handle is not None:
            self._lib.hec_planner_close(self._handle)
            self._handle = None

    def __del__(self):
        self.close()

    def step(self, iteration: Optional[int] = None, micro_batch: int = 0) -> Plan:
        """The decision before the gates, for all layers. `iteration` never falls; default: one more than the last (the same for
        a micro-batch after the first)."""
        if iteration is None:
            iteration = self._last + (micro_batch == 0)
        handle = ctypes.c_void_p()
        check(self._lib.hec_planner_begin(self._handle, iteration, micro_batch, handle))
        self._last = iteration
        return Plan(self, handle)

    def moves(self) -> List[Move]:
        """What the last step moved, by (source, destination, layer, expert): apply it before the layers run."""
        n = ctypes.c_size_t()
        found = self._lib.hec_planner_moves(self._handle, n)
        names = {0: "param", 2: "optimizer"}
        return [Move(m.source, m.destination, m.layer, m.expert, names[m.state]) for m in found[:n.value]]

    def state_dict(self) -> Dict[str, Any]:
        """Between two iterations; the same on every rank. {"state": bytes, "iteration": the last one's number}."""
        n = ctypes.c_size_t()
        check(self._lib.hec_planner_save(self._handle, None, 0, n))
        state = ctypes.create_string_buffer(n.value)
        check(self._lib.hec_planner_save(self._handle, state, n.value, n))
        return {"state": state.raw, "iteration": self._last}

    def load_state_dict(self, saved: Dict[str, Any]) -> bool:
        """Into a planner that made no step yet. True: the same policy and ranks, so all later plans are what they would have
        been. False: the past loads are taken over, homes are chosen by them in the next step."""
        same = ctypes.c_int32()
        check(self._lib.hec_planner_restore(self._handle, saved["state"], len(saved["state"]), same))
        self._last = saved["iteration"]
        return bool(same.value)
