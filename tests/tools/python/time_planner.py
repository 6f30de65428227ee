"""What the planner takes of a layer through Python, in microseconds of this thread's processor: decision before the gate, refine, and
routes of a rank. Not a test: prints a table.

    HECATE_LIBRARY=build/libhecate.so PYTHONPATH=tools/python python3 tests/tools/python/time_planner.py \
        [RANKS EXPERTS [SPREAD [CORRELATION]]]

SPREAD: of popularity, a Dirichlet distribution's concentration (default 0.3; smaller: more skewed). CORRELATION: of the logarithm of
an expert's popularity from one iteration to the next (default 1: loads stand still)."""
import statistics
import sys
import time

import numpy

import hecate

POLICIES, LAYERS, ITERATIONS, TOKENS, TOP_K = ("ep", "eplb", "flexmoe", "laer", "hecate", "joint"), 4, 20, 4096, 8


def times(policy, ranks, experts, spread=0.3, correlation=1):
    """Medians of (decide, refine, routes) of a layer."""
    planner = hecate.Planner(policy, layers=LAYERS, experts=experts, top_k=TOP_K, ranks=ranks, d_model=2048, d_ffn=1408,
                             tokens=TOKENS, window_s=1e-3)
    random = numpy.random.default_rng(1)
    logs, found = numpy.log(random.dirichlet(numpy.full(experts, spread)) + 1e-12), ([], [], [])
    mean, deviation = logs.mean(), logs.std()
    for iteration in range(ITERATIONS):
        popular = numpy.exp(logs) / numpy.exp(logs).sum()
        if correlation < 1:
            news = random.normal(0, deviation * (1 - correlation ** 2) ** 0.5, experts)
            logs = mean + correlation * (logs - mean) + news
        counts = random.multinomial(TOKENS * TOP_K, popular, size=(LAYERS, ranks))
        at = time.thread_time()
        plan = planner.step(iteration)
        found[0].append((time.thread_time() - at) / LAYERS)
        for layer in range(LAYERS):
            at = time.thread_time()
            plan.refine(layer, counts[layer])
            refined = time.thread_time()
            plan.routes(layer, 0)
            found[1].append(refined - at)
            found[2].append(time.thread_time() - refined)
        plan.end(counts)
    return [1e6 * statistics.median(of) for of in found]


if __name__ == "__main__":
    sizes, loads = [int(n) for n in sys.argv[1:3]] or [64, 256], [float(x) for x in sys.argv[3:5]]
    print("%d ranks, %d experts; microseconds a layer\n%-10s %9s %9s %9s %9s" %
          (*sizes, "policy", "decide", "refine", "routes", "together"))
    for name in POLICIES:
        taken = times(name, *sizes, *loads)
        print("%-10s %9.0f %9.0f %9.0f %9.0f" % (name, *taken, sum(taken)), flush=True)
