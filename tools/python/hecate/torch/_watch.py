"""Clocks, and what the time of a step went into."""
import collections
import os
import time

import torch


def moment():
    """(seconds, seconds of work): wall clock; what this thread had a processor for, which others cannot take. With a GPU the
    work is the GPU's: both are the wall clock once it has finished."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        at = time.perf_counter()
        return at, at
    return time.perf_counter(), time.thread_time()


def work_s(since):
    return max(1e-9, moment()[1] - since[1])


# Waits by the first word of their names; what comes between them by the wait that ended last.
WAITS = {"layer": "counts", "step": "counts", "SparseAllGather": "gather", "SparseReduceScatter": "scatter", "sum": "copies",
         "re-sharding": "moves", "sending": "dispatch"}
AFTER = {"step": "begin", "layer": "routes", "dispatch": "experts", "combine": "window", "combine backward": "experts backward",
         "dispatch backward": "window backward"}


def parts(log, begin, end, layers):
    """{part: [wall seconds, seconds of work]} of a step, whose sums are the step's. log: Exchange's. Parts:

    begin, window, routes, experts, head, experts backward, window backward, end    computing, in this order: up to the first
              layer's counts; from a layer to the next one's counts; from the counts to the dispatch; ...; between the last
              layer's forward and backward; after the first layer's backward, with the optimizer
    counts, dispatch, combine, gather, scatter, copies, moves, norm                 waiting in collectives, for late ranks too
    planner, recorder                                                               of hecate"""
    found, at, now = collections.defaultdict(lambda: [0.0, 0.0]), begin, "begin"

    def add(part, since, until):
        found[part][0] += until[0] - since[0]
        found[part][1] += until[1] - since[1]

    for what, came, left in log:
        add(now, at, came)
        word, layer = what.split()[0], what.split()[-1]
        if what.endswith(", backward"):
            word, layer = word + " backward", what.split()[-2][:-1]
        add(WAITS.get(word, word.replace(" backward", "")), came, left)
        at = left
        if word in AFTER:
            now = AFTER[word]
        if word == "combine" and int(layer) == layers - 1:
            now = "head"
        elif word == "dispatch backward" and layer == "0":
            now = "end"
    add(now, at, end)
    return found


def timed_step(parallel, batch):
    """The parts of a step that batch() trains."""
    log, begin = [], moment()
    parallel.exchange.log = log
    batch()
    end, parallel.exchange.log = moment(), None
    return parts(log, begin, end, parallel.layers)


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
