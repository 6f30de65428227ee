"""Digests of the plans of many problems: every policy on several clusters, group shapes, loads and options. Two versions of the
library plan alike where this prints the same. Not a test: for changes that must not change plans.

    HECATE_LIBRARY=build/libhecate.so PYTHONPATH=tools/python python3 tests/tools/python/plan_digests.py [POLICY,...] > after.txt

A line is a problem, a digest of all its plans (decided, refined, routes of a rank, saved state), and what was added."""
import hashlib
import sys

import numpy

import hecate

NVLINK, SLOW = "nvlink=450G@2us nic=50G@5us", "nvlink=100G@3us nic=6G@10us"
# (ranks, per node, experts, top_k, ep): the last node may be partly used; ep < ranks: several groups
SHAPES = ((1, 8, 8, 2, 0), (4, 4, 16, 2, 0), (6, 4, 16, 2, 0), (8, 2, 8, 2, 0), (16, 8, 64, 6, 0), (16, 8, 8, 2, 0),
          (16, 4, 32, 2, 8), (12, 8, 24, 4, 0), (24, 8, 128, 8, 12), (32, 8, 60, 4, 0), (64, 8, 256, 8, 0))
LOADS = ("flat", "skewed", "hot", "moving", "cold")


def counts_of(load, random, iteration, layers, ranks, experts, assignments):
    """[layers][ranks][experts] of one iteration."""
    popular = numpy.random.default_rng(7).dirichlet(numpy.full(experts, 0.3 if load != "flat" else 50.0), size=layers)
    if load == "hot":
        popular = 0.4 * popular
        popular[:, 1 % experts] += 0.6
    if load == "moving":
        popular = numpy.roll(popular, iteration, axis=1)
    if load == "cold":
        popular[:, experts // 2:] = 0
        popular /= popular.sum(axis=1, keepdims=True)
    return numpy.stack([random.multinomial(assignments, p / p.sum(), size=ranks) for p in popular])


def digest_of(policy, shape, load, cluster, options, iterations):
    """(digest of everything, guests that refine added)."""
    ranks, per_node, experts, top_k, ep = shape
    layers, tokens, seen, added = 2, 1024, hashlib.sha256(), 0
    planner = hecate.Planner(policy, layers=layers, experts=experts, top_k=top_k, ranks=ranks, tokens=tokens,
                             cluster="%dx%d %s flops=400T mem=80G" % ((ranks + per_node - 1) // per_node, per_node, cluster),
                             **({"ep": ep} if ep else {}), **options)
    random = numpy.random.default_rng(3)
    for iteration in range(iterations):
        counts = counts_of(load, random, iteration, layers, ranks, experts, tokens * top_k)
        plan = planner.step(iteration)
        seen.update(plan.digest.to_bytes(8, "little"))
        for layer in range(layers):
            plan.refine(layer, counts[layer])
            if planner.slices == 1 and planner.refines:
                added += sum(len(g.receivers) for g in plan.guests(layer, "added"))
            for part in plan.routes(layer, iteration % ranks):
                seen.update(part.tobytes())
        seen.update(plan.digest.to_bytes(8, "little"))
        plan.end(counts)
    seen.update(planner.state_dict()["state"])
    return seen.hexdigest()[:16], added


def main(policies):
    for shape in SHAPES:
        large = shape[0] * shape[2] > 4000
        for cluster, network in (("nvlink", NVLINK), ("slow", SLOW)):
            for sizes in ({"d_model": 1024, "d_ffn": 1024, "window_s": 1e-3}, {"d_model": 4096, "d_ffn": 4096},
                          {"d_model": 256, "d_ffn": 256, "window_s": 1e-4, "m": 2}, {"window_s": 2e-4, "forward_only": 1}):
                for load in LOADS:
                    if large and (load in ("flat", "cold") or cluster == "slow" and "forward_only" in sizes):
                        continue
                    for policy in policies:
                        name = "%s %s %s %s %s" % (policy, shape, cluster, sorted(sizes.items()), load)
                        try:
                            print(name, *digest_of(policy, shape, load, network, sizes, 4 if large else 7))
                        except hecate.BadInput as wrong:
                            print(name, "refused: %s" % wrong)
                        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1].split(",") if len(sys.argv) > 1 else [name for name in hecate.policies() if name != "given"])
