#!/usr/bin/env python3
"""Writes the cases of this folder. Their finish times are exact: progressive filling in rational arithmetic, rounded once
to a double at the end. Usage: make_cases.py FOLDER (needs nothing but Python's standard library)."""
import json, random, sys
from fractions import Fraction


def rates(flows, capacity):
    """flows: {f: [link, ...]} -> {f: rate}: raise all, hold those on a full link, repeat."""
    rate, held = {f: Fraction(0) for f in flows}, set()
    while len(held) < len(flows):
        room = {}
        for l in {l for f in flows if f not in held for l in flows[f]}:
            used = sum(rate[f] * flows[f].count(l) for f in flows)
            room[l] = (capacity[l] - used) / sum(flows[f].count(l) for f in flows if f not in held)
        rise = min(room.values())
        full = {l for l in room if room[l] == rise}
        for f in set(flows) - held:
            rate[f] += rise
        held |= {f for f in flows if f not in held and full & set(flows[f])}
    return rate


def solve(case):
    capacity = {l["id"]: Fraction(l["bandwidth"]) for l in case["links"]}
    latency = {l["id"]: Fraction(l["latency"]) for l in case["links"]}
    route = {(r["src"], r["dst"]): r["links"] for r in case["routes"]}
    path = [route[f["src"], f["dst"]] for f in case["flows"]]
    start = [Fraction(f["start"]) + sum(latency[l] for l in p) for f, p in zip(case["flows"], path)]
    left = {f: Fraction(case["flows"][f]["bytes"]) for f in range(len(path))}
    finish, now = {}, Fraction(0)
    while left:
        for f in [f for f in left if start[f] <= now and (left[f] == 0 or not path[f])]:
            finish[f] = now
            del left[f]
        running = {f: path[f] for f in left if start[f] <= now}
        rate = rates(running, capacity)
        ends = [now + left[f] / rate[f] for f in running] + [start[f] for f in left if start[f] > now]
        if not ends:
            break
        step = min(ends) - now
        for f in running:
            left[f] -= rate[f] * step
        now += step
    for f, flow in enumerate(case["flows"]):
        flow["finish"] = float(finish[f])


def links(names, bandwidth, latency=0.0):
    return [{"id": n, "bandwidth": bandwidth, "latency": latency} for n in names]


def flow(src, dst, size, start=0.0):
    return {"src": src, "dst": dst, "bytes": size, "start": start}


def switch(n, bandwidth=1e10, latency=0.0):
    hosts = [f"h{i}" for i in range(n)]
    ports = links([f"up{i}" for i in range(n)] + [f"down{i}" for i in range(n)], bandwidth, latency)
    routes = [{"src": hosts[s], "dst": hosts[d], "links": [f"up{s}", f"down{d}"]}
              for s in range(n) for d in range(n) if s != d]
    return {"hosts": hosts, "links": ports, "routes": routes}


def incast():
    case = switch(5)
    case["flows"] = [flow(f"h{i}", "h0", i * 1000000) for i in range(1, 5)] + [flow("h1", "h2", 2500000)]
    return case


def shared_nic():
    n, hosts = 8, [f"gpu{i}" for i in range(8)]
    case = {"hosts": hosts, "routes": [], "flows": [],
            "links": links([f"nvup{i}" for i in range(n)] + [f"nvdown{i}" for i in range(n)], 3e11)
            + [{"id": f"nic{way}{node}", "bandwidth": 2.5e10 if node else 5e10, "latency": 0.0}
               for way in ("up", "down") for node in range(2)]}
    draw = random.Random(5)
    for s in range(n):
        for d in range(n):
            if s != d:
                nic = [] if s // 4 == d // 4 else [f"nicup{s // 4}", f"nicdown{d // 4}"]
                case["routes"].append({"src": hosts[s], "dst": hosts[d], "links": [f"nvup{s}", *nic, f"nvdown{d}"]})
                case["flows"].append(flow(hosts[s], hosts[d], draw.randrange(1, 2000000)))
    return case


def staggered():
    case, draw = switch(7, 2.5e10), random.Random(6)
    case["flows"] = [flow(f"h{s}", f"h{d}", draw.randrange(1, 4000000), draw.randrange(10**9) * 1e-12)
                     for s in range(7) for d in range(7) if s != d]
    return case


def latency():
    case, draw = switch(6, 1.25e10), random.Random(7)
    for i, link in enumerate(case["links"]):
        link["latency"] = (i % 5) * 7e-6
    case["flows"] = [flow(f"h{s}", f"h{d}", draw.choice([0, 17, 4096, 65536, 500000]), draw.choice([0.0, 1e-5]))
                     for s in range(6) for d in range(6) if s != d]
    return case


def multi_hop():
    hosts = [f"n{i}" for i in range(6)]
    case = {"hosts": hosts, "links": [{"id": f"hop{i}", "bandwidth": (3 + i * i) * 1e9, "latency": 2e-6} for i in range(5)],
            "routes": [{"src": hosts[a], "dst": hosts[b], "links": [f"hop{i}" for i in range(a, b)]}
                       for a in range(6) for b in range(a + 1, 6)]}
    case["flows"] = [flow(r["src"], r["dst"], 100000 * (1 + k * 7 % 11), 1e-4 * (k % 3)) for k, r in enumerate(case["routes"])]
    return case


def parallel():
    case, draw = switch(3, 1e9), random.Random(8)
    case["routes"][0]["links"] = []  # h0 -> h1 crosses nothing
    case["flows"] = [flow(f"h{s}", f"h{d}", draw.randrange(1000000), draw.choice([0.0, 0.0, 2.5e-4]))
                     for s, d in [(0, 2), (0, 2), (0, 2), (1, 2), (1, 2), (2, 0), (2, 0), (0, 1), (1, 0), (1, 0), (1, 0)]]
    case["flows"].append(flow("h1", "h2", 0, 1e-4))
    return case


def tree():
    """12 hosts, 4 leaves, two unequal core links; a pair always takes the same core link."""
    n, draw = 12, random.Random(9)
    hosts = [f"h{i}" for i in range(n)]
    case = {"hosts": hosts, "routes": [], "flows": []}
    case["links"] = [{"id": f"{way}{i}", "bandwidth": draw.choice([1e10, 2.5e10, 5e10]), "latency": 5e-7}
                     for way in ("up", "down") for i in range(n)]
    case["links"] += links([f"leaf{way}{i}" for way in ("up", "down") for i in range(4)], 4e10, 1e-6)
    case["links"] += [{"id": f"core{i}", "bandwidth": 6e10 - 2e10 * i, "latency": 1.5e-6} for i in range(2)]
    for s in range(n):
        for d in range(n):
            if s == d:
                continue
            core = [] if s // 3 == d // 3 else [f"leafup{s // 3}", f"core{(3 * s + d) % 2}", f"leafdown{d // 3}"]
            case["routes"].append({"src": hosts[s], "dst": hosts[d], "links": [f"up{s}", *core, f"down{d}"]})
            if draw.random() < 0.6:
                case["flows"].append(flow(hosts[s], hosts[d], int(1 + 5e6 * draw.random() ** 3), draw.randrange(400) * 1e-6))
    return case


def write(folder, name, case):
    solve(case)
    head = {"name": name, "makespan": max(f["finish"] for f in case["flows"]), "hosts": case["hosts"]}
    parts = [f' "{k}": {json.dumps(v)}' for k, v in head.items()]
    for key in ("links", "routes", "flows"):
        parts.append(f' "{key}": [\n  ' + ",\n  ".join(json.dumps(x) for x in case[key]) + "\n ]")
    with open(f"{folder}/{name}.json", "w") as out:
        out.write("{\n" + ",\n".join(parts) + "\n}\n")


for maker in (incast, shared_nic, staggered, latency, multi_hop, parallel, tree):
    write(sys.argv[1], maker.__name__, maker())
