"""From counts to the document of hecate-sim --json."""
import ctypes
import json
import numbers
import operator
import os

from ._library import BadInput, check, library

TOP_K = 1  # of counts, which do not say it
AXES = {2: "layers,experts", 3: "layers,sources,experts", 4: "iterations,layers,sources,experts"}


class _NotWhole(Exception):
    """An entry that is no whole number, and where it is: indices, gathered on the way out."""

    def __init__(self, value):
        super().__init__(value)
        self.value, self.at = value, []


def _lists(value):
    """Nested lists of whole numbers, of lists, tuples, numpy arrays, tensors, or what has the buffer protocol."""
    if hasattr(value, "tolist"):
        if getattr(getattr(value, "dtype", None), "kind", "i") not in "iufO":  # numpy's: whole, unsigned, float, objects
            raise BadInput("counts: expected whole numbers, found an array of %s" % value.dtype)
        value = value.tolist()
    elif not isinstance(value, (list, tuple, int, float)):
        try:
            value = memoryview(value).tolist()
        except TypeError:
            pass
    if isinstance(value, (list, tuple)):
        found = []
        for i, v in enumerate(value):
            try:
                found.append(_lists(v))
            except _NotWhole as inside:
                inside.at.insert(0, i)
                raise
        return found
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        whole = operator.index(value)
    except TypeError:
        raise _NotWhole(value) from None
    if whole.bit_length() > 64:
        raise _NotWhole(float("inf") if whole > 0 else -float("inf"))  # Python may refuse to write it
    return whole


def _whole(counts):
    try:
        return _lists(counts)
    except RecursionError:
        raise BadInput("counts: expected 2 to 4 axes, found lists without end") from None
    except _NotWhole as wrong:
        kind = BadInput if isinstance(wrong.value, numbers.Number) else TypeError
        raise kind("counts%s: expected a whole number, found %r" %
                   ("".join("[%d]" % i for i in wrong.at), wrong.value)) from None


def _depth(value):
    depth = 0
    while isinstance(value, list):
        depth += 1
        value = value[0] if value else 0
    return depth


def trace_text(counts, top_k=TOP_K, axes=None, **header):
    """A trace (hecate-trace, JSON Lines) of counts, whose axes their number says:

    2   [layers][experts]                         one iteration, totals over all sources
    3   [layers][sources][experts]                one iteration, sources (ranks that send tokens) apart
    3   [iterations][layers][experts]             with axes="iterations,layers,experts", and only then: totals of several
    4   [iterations][layers][sources][experts]    several

    Counts are (token, expert) assignments, whole numbers; `top_k` is the number of experts of a token. `header`: name,
    model, phase, ..."""
    counts = _whole(counts)
    depth = _depth(counts)
    axes = axes or AXES.get(depth)
    known = set(AXES.values()) | {"iterations,layers,experts"}
    if axes not in known or len(axes.split(",")) != depth:
        raise ValueError("counts: expected axes %s, found %d dimensions%s" %
                         (" or ".join(sorted(known)), depth, " and axes %r" % axes if axes else ""))
    records = counts if axes.startswith("iterations") else [counts]
    first = records[0] if records else []
    sources = axes.endswith("sources,experts")
    row = first[0] if first else []
    experts = len(row[0] if sources and row else row)
    head = {"format": "hecate-trace", "version": 1, "layers": len(first), "experts": experts, "top_k": top_k,
            "source_ranks": len(row) if sources else 1,
            "layout": "layer x source_rank x expert" if sources else "layer x expert"}
    head.update(header)
    lines = [json.dumps(head)]
    lines += [json.dumps({"iter": i, "layers": layers}, separators=(",", ":")) for i, layers in enumerate(records)]
    return "\n".join(lines) + "\n"


def _words(options):
    """hecate-sim's words: tokens=4096 is --tokens=4096, nonmoe_scale=2 is --nonmoe-scale=2, check=True is --check."""
    words = []
    for key, value in sorted(options.items(), key=lambda option: option[1] is True):  # else one takes the next for its value
        if value is None or value is False:
            continue
        word = "--" + key.replace("_", "-")
        if value is not True:
            if isinstance(value, (list, tuple)):
                value = ",".join(str(v) for v in value)
            word += "=" + (os.fspath(value) if isinstance(value, os.PathLike) else str(value))
        words.append(word)
    return words


def _bytes(what, text):
    """What goes to the library: UTF-8, and paths of any bytes as Python has them."""
    try:
        found = str(text).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadInput("%s: expected text that UTF-8 has, found %r" % (what, text)) from None
    if b"\0" in found:
        raise BadInput("%s: expected no zero byte, found %r" % (what, text))
    return found


def _is_path(counts):
    return isinstance(counts, (str, os.PathLike))


def _options(cluster, policies, options):
    if "policy" in options:
        if policies is not None:
            raise BadInput("policy: expected policies or policy, found both")
        policies = options.pop("policy")
    return dict(cluster=cluster, policy=policies, **options)


def simulate_json(counts, cluster=None, policies=None, top_k=None, axes=None, name="counts", **options):
    """As simulate, the document as text: what hecate-sim --json prints, byte for byte."""
    lib = library()
    if _is_path(counts):
        text, length, name = None, 0, os.fspath(counts)
    else:
        _bytes("name", name)
        text = trace_text(counts, TOP_K if top_k is None else top_k, axes, name=name).encode()
        length = len(text)
    words = [_bytes("option", w) for w in _words(_options(cluster, policies, options))]
    document = ctypes.c_void_p()
    check(lib.hec_simulate(text, length, _bytes("name", name), (ctypes.c_char_p * len(words))(*words), len(words),
                           ctypes.byref(document)))
    try:
        return ctypes.string_at(document).decode()
    finally:
        lib.hec_simulate_free(document)


def simulate(counts, cluster=None, policies=None, top_k=None, axes=None, name="counts", **options):
    """Every policy on the counts, simulated; the document of hecate-sim --json as a dict.

    counts    nested lists, numpy arrays or tensors, or the path of a trace; three axes are [layers][sources][experts] of one
              iteration, for totals of several say axes="iterations,layers,experts" (all shapes: trace_text)
    cluster   a preset ("p4d-4x8"), a line ("4x8 nvlink=300G ...") or a file; default: hecate-sim's
    policies  names, or None for all
    top_k     experts of a token, with counts; default 1, which `defaults_taken` of the document then says
    options   those of hecate-sim: model="gpt-moe-s", ranks=16, tokens=4096, schedule="hecate", law="max_min",
              placement="expert_map.json", threads=1, ...

    Raises hecate.BadInput, whose message names what is wrong, or hecate.Failed."""
    found = json.loads(simulate_json(counts, cluster, policies, top_k, axes, name, **options))
    if top_k is None and not _is_path(counts):
        found["defaults_taken"].insert(0, "top-k: %d, hecate.simulate's own (counts do not say it, and below they are the "
                                          "trace); choose with top_k" % TOP_K)
    return found
