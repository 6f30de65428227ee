"""From counts to the document of hecate-sim --json."""
import ctypes
import json
import operator
import os

from ._library import BadInput, check, library

AXES = {2: "layers,experts", 3: "layers,sources,experts", 4: "iterations,layers,sources,experts"}


def _lists(value):
    """Nested lists of whole numbers, of lists, tuples, numpy arrays, tensors, or what has the buffer protocol."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    elif not isinstance(value, (list, tuple, int, float)):
        try:
            value = memoryview(value).tolist()
        except TypeError:
            pass
    if isinstance(value, (list, tuple)):
        return [_lists(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError("counts: expected whole numbers, found %r" % (value,)) from None


def _depth(value):
    depth = 0
    while isinstance(value, list):
        depth += 1
        value = value[0] if value else 0
    return depth


def trace_text(counts, top_k=1, axes=None, **header):
    """A trace (hecate-trace, JSON Lines) of counts[layers][experts] or [layers][sources][experts] of one iteration, or of
    several: [iterations][layers][sources][experts], and with axes="iterations,layers,experts" totals of several. Counts
    are (token, expert) assignments; `top_k` is the number of experts of a token. `header`: name, model, phase, ..."""
    counts = _lists(counts)
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
    for key, value in options.items():
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


def _options(cluster, policies, options):
    if "policy" in options:
        if policies is not None:
            raise BadInput("policy: expected policies or policy, found both")
        policies = options.pop("policy")
    return dict(cluster=cluster, policy=policies, **options)


def simulate_json(counts, cluster=None, policies=None, top_k=1, axes=None, name="counts", **options):
    """As simulate, the document as text: what hecate-sim --json prints, byte for byte."""
    lib = library()
    if isinstance(counts, (str, os.PathLike)):
        text, length, name = None, 0, os.fspath(counts)
    else:
        _bytes("name", name)
        text = trace_text(counts, top_k, axes, name=name).encode()
        length = len(text)
    words = [_bytes("option", w) for w in _words(_options(cluster, policies, options))]
    document = ctypes.c_void_p()
    check(lib.hec_simulate(text, length, _bytes("name", name), (ctypes.c_char_p * len(words))(*words), len(words),
                           ctypes.byref(document)))
    try:
        return ctypes.string_at(document).decode()
    finally:
        lib.hec_simulate_free(document)


def simulate(counts, cluster=None, policies=None, top_k=1, axes=None, name="counts", **options):
    """Every policy on the counts, simulated; the document of hecate-sim --json as a dict.

    counts    nested lists, numpy arrays or tensors (see trace_text), or the path of a trace
    cluster   a preset ("p4d-4x8"), a line ("4x8 nvlink=300G ...") or a file; default: hecate-sim's
    policies  names, or None for all
    top_k     experts of a token, with counts
    options   those of hecate-sim: model="gpt-moe-s", ranks=16, tokens=4096, schedule="hecate", law="max_min",
              placement="expert_map.json", threads=1, ...

    Raises hecate.BadInput, whose message names what is wrong, or hecate.Failed."""
    return json.loads(simulate_json(counts, cluster, policies, top_k, axes, name, **options))
