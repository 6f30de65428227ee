"""What the Python package must do; run by tests/tools/test_python.sh in an empty folder. Arguments: hecate-sim, a trace."""
import array
import gzip
import json
import os
import subprocess
import sys
import traceback

import hecate

SIM, SAMPLE = sys.argv[1:3]
failures = 0


def check(what, holds):
    global failures
    if not holds:
        failures += 1
        print("FAILED: %s (line %d)" % (what, traceback.extract_stack()[-2].lineno))


def raises(kind, part, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        check("%r says nothing of %r" % (str(error), part), part in str(error))
    else:
        check("%s is raised, with %r" % (kind.__name__, part), False)


def program(trace, *words):
    return subprocess.run([SIM, trace, "--json", *words], stdout=subprocess.PIPE, check=True).stdout.decode()


# ---- The library and the program give the same bytes ----
small = ["--policy", "ep,eplb,hecate,ideal", "--warmup", "2"]
options = dict(policies=["ep", "eplb", "hecate", "ideal"], warmup=2)
check("a file", hecate.simulate_json(SAMPLE, **options) == program(SAMPLE, *small))
check("laws, schedules, flags", hecate.simulate_json(SAMPLE, policies="ep,hecate", law="max_min", schedule=["serial", "hecate"],
                                                     cluster="p4d-4x8", ranks=8, check=True, threads=1, nonmoe_scale=2) ==
      program(SAMPLE, "--policy", "ep,hecate", "--law", "max_min", "--schedule", "serial,hecate", "--cluster", "p4d-4x8",
              "--ranks=8", "--check", "--threads", "1", "--nonmoe-scale", "2"))
check("kinds of attention", hecate.simulate_json(SAMPLE, policies="ep,hecate", attention="full,causal") ==
      program(SAMPLE, "--policy", "ep,hecate", "--attention", "full,causal"))
counts = [[[4, 0, 1, 1], [1, 7, 0, 2]], [[3, 3, 1, 0], [2, 2, 2, 4]]]
text = hecate.trace_text(counts, 2, name="mine.jsonl")
with open("mine.jsonl", "w") as out:
    out.write(text)
box = dict(cluster="1x2 nvlink=300G@2us flops=312T mem=40G", model="tiny")
words = ["--cluster", box["cluster"], "--model", "tiny"]
check("counts", hecate.simulate_json(counts, top_k=2, name="mine.jsonl", **box) == program("mine.jsonl", *words))

# ---- The planner ----
def dispatched(plan, layer):
    """By hand from the plan: all of an expert's tokens to its only holder."""
    homes = plan.homes.tolist()[layer]
    return [[[n * (homes[e] == r) for r in range(2)] for e, n in enumerate(row)] for row in counts[layer]]


planner = hecate.Planner("ep", layers=2, experts=4, top_k=2, ranks=2, cluster=box["cluster"])
check("even homes", planner.homes.tolist() == [[0, 0, 1, 1]] * 2 and planner.slices == 1 and not planner.refines)
plan = planner.step()
plan.refine(0, counts[0])
plan.count(1, counts[1])
for layer in range(2):
    check("dispatch", plan.dispatch(layer).tolist() == dispatched(plan, layer))
    send, receive = plan.routes(layer, 1)
    check("routes", send.tolist() == dispatched(plan, layer)[1] and
          receive.tolist() == [[to[1] for to in row] for row in dispatched(plan, layer)])
check("no guests", plan.guests(0) == [] and len(plan.copies(0)[1]) == 0 and planner.moves() == [])
plan.end()
raises(hecate.BadInput, "ended before", plan.end)
hot = [[[900, 900, 1, 1]] * 2] * 2
planner = hecate.Planner("hecate:period=1,t=0", layers=2, experts=4, top_k=2, ranks=2, cluster=box["cluster"])
saved, digests = None, []
for i in range(4):
    plan = planner.step(i)
    digests.append(plan.digest)
    if i == 2:
        check("the hot experts part", sorted(plan.homes.tolist()[0][:2]) == [0, 1])
    plan.end(hot)
    if i == 1:
        saved = planner.state_dict()
restored = hecate.Planner("hecate:period=1,t=0", layers=2, experts=4, top_k=2, ranks=2, cluster=box["cluster"])
check("the same planner", restored.load_state_dict(saved))
check("goes on", [restored.step(2).digest] == digests[2:3])
everywhere = hecate.Planner("hecate-published:t=1", layers=2, experts=4, top_k=2, ranks=2, cluster=box["cluster"], window_s=1.0)
check("a guest", everywhere.step().guests(0, "before") == [hecate.Guest(0, 0, (1,))])
raises(hecate.BadInput, "counts", plan.refine, 0, [[1, 2, 3]])
raises(hecate.BadInput, "counts", plan.refine, 0, [[1, 2, 3, -4], [0, 0, 0, 0]])
raises(hecate.BadInput, "counts", plan.refine, 0, [[1, 2, 3, 2**32], [0, 0, 0, 0]])
raises(hecate.BadInput, "layer from 0 to 1", plan.refine, 2, hot[0])
raises(hecate.BadInput, "policy: expected one of", hecate.Planner, "nonesuch", layers=1, experts=4, top_k=1, ranks=2)
raises(hecate.BadInput, "'colour'", hecate.Planner, layers=1, experts=4, top_k=1, ranks=2, colour=1)
plan.release()
raises(hecate.BadInput, "released", plan.refine, 0, hot[0])

# ---- Shapes of counts ----
one = hecate.simulate_json(counts, top_k=2, policies="ep", **box)
lines = [json.loads(line) for line in text.splitlines()]
check("the header", lines[0]["layers"] == 2 and lines[0]["experts"] == 4 and lines[0]["source_ranks"] == 2 and lines[0]["top_k"] == 2)
check("the record", lines[1:] == [{"iter": 0, "layers": counts}])
flat = [[5, 7, 1, 3], [5, 5, 3, 4]]
check("totals", json.loads(hecate.trace_text(flat).splitlines()[0])["source_ranks"] == 1)
check("totals of several", len(hecate.trace_text([flat, flat, flat], axes="iterations,layers,experts").splitlines()) == 4)
check("records", len(hecate.trace_text([counts, counts]).splitlines()) == 3)
check("tuples, arrays of Python", hecate.trace_text([array.array("i", row) for row in flat]) == hecate.trace_text(flat))
check("memory", hecate.trace_text(memoryview(array.array("B", range(8)).tobytes()).cast("B", (2, 4))) ==
      hecate.trace_text([[0, 1, 2, 3], [4, 5, 6, 7]]))
try:
    import numpy
    as_array = numpy.array(counts, dtype=numpy.int64)
    check("numpy", hecate.simulate_json(as_array, top_k=2, policies="ep", **box) == one)
    check("numpy, a list of arrays", hecate.trace_text([numpy.array(v, dtype=numpy.uint32) for v in counts]) == hecate.trace_text(counts))
    check("numpy, whole floats", hecate.trace_text(as_array.astype(float)) == hecate.trace_text(counts))
except ImportError:
    print("SKIPPED python (numpy): not installed")
raises(ValueError, "counts[0][1]: expected a whole number, found 0.5", hecate.trace_text, [[1, 0.5]])
raises(hecate.BadInput, "counts[1][0][1]: expected a whole number, found 2.5", hecate.simulate, [counts[0], [[1, 2.5]]], **box)
raises(ValueError, "counts[0][0]: expected a whole number, found nan", hecate.trace_text, [[float("nan")]])
raises(TypeError, "counts[1][0]: expected a whole number, found 'x'", hecate.trace_text, [[1], ["x"]])
raises(ValueError, "found 1 dimensions", hecate.trace_text, [1, 2])
raises(ValueError, "axes", hecate.trace_text, counts, axes="layers,experts")

# ---- The document ----
# What the C function documents of its arguments: told, not crashed on.
import ctypes
from hecate import _library
lib, one_word, out = _library.library(), (ctypes.c_char_p * 1)(b"--top-k=2"), ctypes.c_void_p()
for what, arguments in (("n_options", (b"x", 1, b"x", one_word, -1, ctypes.byref(out))),
                        ("n_options", (b"x", 1, b"x", None, 1, ctypes.byref(out))),
                        ("name", (b"x", 1, None, one_word, 0, ctypes.byref(out))),
                        ("json", (b"x", 1, b"x", one_word, 0, None))):
    check("hec_simulate: " + what, lib.hec_simulate(*arguments) == 2 and lib.hec_error().decode().startswith(what))

found = hecate.simulate(counts, policies=["ep", "hecate"], top_k=2, **box)
check("rows", [row["name"] for row in found["policies"]] == ["ep", "hecate"])
check("top_k is said", not any("top-k: 1" in said for said in found["defaults_taken"]))
found_by_default = hecate.simulate(counts, policies=["ep", "hecate"], **box)
check("no top_k is said", "top-k: 1, hecate.simulate's own (counts do not say it" in found_by_default["defaults_taken"][0])
check("no top_k beside a trace", not any("counts do not say" in said for said in
                                         hecate.simulate("mine.jsonl", policies="ep", **box)["defaults_taken"]))
check("a time", found["policies"][0]["iteration_s"]["median"] > 0)
check("all but given", len(hecate.simulate(counts, top_k=2, **box)["policies"]) >= 30)
with open("map.json", "w") as out:
    json.dump({"physical_to_logical_map": [[0, 1, 2, 3], [3, 2, 1, 0]]}, out)
check("a placement", hecate.simulate(counts, policies="ep", placement="map.json", top_k=2, **box)["policies"][0]["name"] == "given")

# ---- Errors, and that what comes after them works ----
raises(hecate.BadInput, "--policy: expected", hecate.simulate, counts, policies="nobody", **box)
raises(ValueError, 'unknown option "--polices"', hecate.simulate, counts, polices="ep", **box)
raises(hecate.BadInput, "--ranks", hecate.simulate, counts, ranks="many", **box)
raises(hecate.BadInput, "--check: takes no value", hecate.simulate, counts, check="yes", **{**box, "threads": None})
for key in ("json", "out", "list", "help", "version", "timeline_iter"):
    raises(hecate.BadInput, 'unknown option "--%s"' % key.replace("_", "-"), hecate.simulate, counts, **{key: "1"}, **box)
raises(hecate.BadInput, "nowhere.jsonl", hecate.simulate, "nowhere.jsonl")
raises(hecate.BadInput, "found \"-\"", hecate.simulate, "-")
raises(hecate.BadInput, "ragged:2", hecate.simulate, [[1, 2], [3]], name="ragged", **box)
raises(hecate.BadInput, "expected", hecate.simulate, [[1, -2]], **box)
raises(hecate.BadInput, "name: expected text that UTF-8 has, found '\\ud800'", hecate.simulate, counts, name="\ud800", **box)
raises(hecate.BadInput, "option: expected text that UTF-8 has", hecate.simulate, counts, policies="\ud800", **box)
raises(hecate.BadInput, "option: expected no zero byte", hecate.simulate, counts, policies="ep\0x", **box)
raises(hecate.BadInput, "name: expected no zero byte", hecate.simulate, counts, name="a\0b", **box)
raises(hecate.BadInput, "expected policies or policy, found both", hecate.simulate, counts, policies=["ep"], policy="ep", **box)
raises(hecate.BadInput, "nowhere?.jsonl", hecate.simulate, "nowhere\udcff.jsonl")
check("policy for policies", hecate.simulate_json(counts, policy="ep", top_k=2, **box) == one)
check("after errors", hecate.simulate_json(counts, top_k=2, policies="ep", **box) == one)
check("version", hecate.version() == hecate.__version__)
check("policies", "hecate" in hecate.policies() and "given" not in hecate.policies() and all(hecate.policies().values()))

endless = []
endless.append(endless)
raises(hecate.BadInput, "lists without end", hecate.simulate, endless)
raises(hecate.BadInput, "counts[0][1]: expected a whole number, found inf", hecate.simulate, [[1, 10**5000]])
raises(hecate.BadInput, "--cluster: expected a value", hecate.simulate, [[1, 2]], cluster=True, policies=["ep"])

# ---- The recorder, over a stand-in for torch ----
import torch

logits = torch.Tensor([[0.1, 0.9, 0.5, 0.0], [0.7, 0.1, 0.8, 0.2]])
first = torch.Module([torch.Tensor([[0, 1], [1, 2], [3, 1]])] * 2)
second = torch.Module([(torch.Tensor([[0.25, 0.75], [0.5, 0.5]]), torch.Tensor([[2, 3], [3, 0]])), (logits, None)])
with hecate.Recorder("run.jsonl.gz", experts=4, top_k=2, model="tiny", name="run") as recorder:
    recorder.attach([first, second])
    for _ in range(2):
        first(), second()
        recorder.step()
    check("hooks are there", len(first.hooks) == 1)
check("hooks are gone", not first.hooks and not second.hooks)
with gzip.open("run.jsonl.gz", "rt") as trace:
    head, *records = [json.loads(line) for line in trace]
check("recorded: header", head["layers"] == 2 and head["source_ranks"] == 1 and head["counted"] == "before_drop" and head["model"] == "tiny")
check("recorded: counts", [r["layers"] for r in records] == [[[[1, 3, 1, 1]], [[1, 0, 1, 2]]], [[[1, 3, 1, 1]], [[1, 1, 2, 0]]]])
check("recorded: iterations", [r["iter"] for r in records] == [0, 1])
check("recorded: read", hecate.simulate("run.jsonl.gz", policies="ep", **box)["policies"][0]["name"] == "ep")

torch.distributed.size = 3
ranks = [hecate.Recorder("ranks.jsonl", experts=4, top_k=1) for _ in range(3)]
routers = [torch.Module([torch.Tensor([[r], [3]])] * 4) for r in range(3)]
for recorder, router in zip(ranks, routers):
    recorder.attach([router])
for iteration in (10, 20):
    for torch.distributed.rank in (2, 1, 0):
        routers[torch.distributed.rank](), routers[torch.distributed.rank]()  # two micro-batches
        ranks[torch.distributed.rank].step(iteration)
for recorder in ranks:
    recorder.close()
with open("ranks.jsonl") as trace:
    head, *records = [json.loads(line) for line in trace]
check("ranks: header", head["source_ranks"] == 3)
check("ranks: counts", [r["layers"] for r in records] == [[[[2, 0, 0, 2], [0, 2, 0, 2], [0, 0, 2, 2]]]] * 2)
check("ranks: iterations", [r["iter"] for r in records] == [10, 20])
torch.distributed.size = 0

raises(ValueError, "indices [.., 2] or logits [.., 4]", hecate.Recorder("x", 4, 2).chosen, torch.Tensor([[1, 2, 3]]))
odd = hecate.Recorder("x", 4, 1).attach([torch.Module([torch.Tensor([[7]])])])
raises(ValueError, "expected experts below 4, found 7", odd.count, 0, torch.Tensor([[7]]))
raises(ValueError, "expected routers (attach)", hecate.Recorder("x", 4, 1).step)
odd.count(0, torch.Tensor([[-1], [2], [-1]]))
check("no expert", odd.counts == [[0, 0, 1, 0]])
for words, about in (("experts: expected a whole number from 1", dict(experts=0, top_k=1)),
                     ("top_k: expected a whole number from 1 to 4 (the experts), found 9", dict(experts=4, top_k=9)),
                     ("top_k: expected a whole number from 1 to 4 (the experts), found 1.5", dict(experts=4, top_k=1.5)),
                     ("phase: expected one of train, ", dict(experts=4, top_k=1, phase="xx")),
                     ("name: expected text", dict(experts=4, top_k=1, name="a\0b")),
                     ("name: expected text", dict(experts=4, top_k=1, name="\ud800")),
                     ("model: expected text", dict(experts=4, top_k=1, model=5))):
    raises(ValueError, words, lambda: hecate.Recorder("x", **about))
with open("kept.jsonl", "w") as old:
    old.write("old")
try:
    with hecate.Recorder("kept.jsonl", experts=4, top_k=1) as failing:
        failing.attach([torch.Module([torch.Tensor([[1]])])])
        failing.step(5)
        failing.step(5)
        raises(ValueError, "iteration: expected a whole number from 5", failing.step, 3)
        raises(ValueError, "found 6.5", failing.step, 6.5)
        check("iterations", failing.iteration == 6)
        raise KeyError("of the training run")
except KeyError:
    pass
with open("kept.jsonl") as kept, open("kept.jsonl.part") as part:
    check("a failed run keeps the old trace", kept.read() == "old")
    check("and what it recorded", len(part.readlines()) == 3)
os.replace("kept.jsonl.part", "kept.jsonl")
check("which can be read", hecate.simulate("kept.jsonl", policies="ep", **box)["policies"][0]["name"] == "ep")
quiet = hecate.Recorder("x", 4, 1, wanted=lambda: False)
quiet.attach([torch.Module([])])
quiet.count(0, torch.Tensor([[1]]))
check("not wanted", quiet.counts == [[0, 0, 0, 0]])

print("all passed" if failures == 0 else "%d failures" % failures)
sys.exit(1 if failures else 0)
