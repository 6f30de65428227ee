"""chakra_check.py CHAKRA KINETO [SUMMARY POLICY]. A folder of Chakra execution traces, read by a decoder written from
the wire format's description. It is compared with the same iteration as kineto files, and with the traffic of
summary.json.

Checked: every SEND has its RECV of equal source, destination, tag and size, and no tag stands twice between two ranks.
Dependencies name nodes of the file and have no cycle. All ranks together can be replayed to the end, sends and receives and
collectives waiting for each other. Bytes per rank, peer and operation and durations are those of the kineto files; sums by
class are the summary's. Exit code 1 and a line per difference.
"""
import collections
import json
import os
import re
import sys

COMP, SEND, RECV, COLL = 4, 5, 6, 7
VALUE = {7: "int32", 9: "int64", 13: "uint64", 27: "bool", 29: "string"}
WANTED = {"is_cpu_op": "bool", "duration_ps": "int64", "num_ops": "int64", "tensor_size": "uint64", "comm_size": "int64",
          "comm_type": "int64", "comm_src": "int32", "comm_dst": "int32", "comm_tag": "int32", "pg_name": "string"}
CLASSES = {"dispatch": "dispatch", "combine": "combine", "SparseAllGather": "gather", "SparseReduceScatter": "scatter",
           "dense all-reduce": "dense", "migration": "migration", "expert AllGather": "dispatch",
           "expert ReduceScatter": "combine", "node dispatch": "dispatch", "node combine": "combine",
           "dispatch inside nodes": "dispatch", "combine inside nodes": "combine",
           "replica reduce-scatter": "replica", "replica all-gather": "replica", "tensor AllGather": "tensor",
           "tensor ReduceScatter": "tensor", "SparseAllGather (after the gate)": "gather", "SparseAllGather (re-materialisation)": "gather"}
failed = 0


def fail(what):
    global failed
    failed += 1
    if failed < 20:
        print("FAILED:", what)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            n, at = varint(data, at)
            if at + n > len(data):
                raise ValueError("a field goes past its message")
            value, at = data[at:at + n], at + n
        else:
            raise ValueError(f"wire type {key & 7}")
        yield key >> 3, value


def packed(data):
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def attribute(data):
    name = kind = value = None
    for field, v in fields(data):
        if field == 1:
            name = v.decode()
        else:
            kind, value = VALUE[field], v
    return name, kind, value


def node(data):
    n = {"deps": [], "attr": {}}
    for field, v in fields(data):
        if field in (1, 3, 6, 7):
            n[{1: "id", 3: "type", 6: "start", 7: "duration"}[field]] = v
        elif field == 2:
            n["name"] = v.decode()
        elif field == 5:
            n["deps"] += packed(v)
        elif field == 10:
            name, kind, value = attribute(v)
            if WANTED.get(name) != kind:
                fail(f"attribute {name} is {kind}")
            n["attr"][name] = value
        else:
            raise ValueError(f"field {field} of a node")
    return n


def read(path):
    data = open(path, "rb").read()
    at, messages = 0, []
    while at < len(data):
        n, at = varint(data, at)
        if at + n > len(data):
            raise ValueError("a message goes past the file")
        messages.append(data[at:at + n])
        at += n
    head = dict(fields(messages[0]))
    if head[1] != b"0.0.4":
        fail(f"{path}: version {head[1]}")
    return [node(m) for m in messages[1:]]


def check_graph(rank, nodes):
    ids = {n["id"] for n in nodes}
    if len(ids) != len(nodes) or min(ids) != 1:
        fail(f"rank {rank}: ids")
    for n in nodes:
        if any(d not in ids or d >= n["id"] for d in n["deps"]):
            fail(f"rank {rank}: dependencies of node {n['id']}")
        comm = n["type"] in (SEND, RECV)
        if comm != ("comm_tag" in n["attr"]) or (n["type"] == COLL) != ("comm_type" in n["attr"]):
            fail(f"rank {rank}: attributes of node {n['id']}: {n}")
        if comm and n["attr"]["comm_src" if n["type"] == SEND else "comm_dst"] != rank:
            fail(f"rank {rank}: node {n['id']} is another rank's")
        if abs(n["duration"] * 10**6 - n["attr"]["duration_ps"]) > 10**6:
            fail(f"rank {rank}: duration of node {n['id']}")


def ends(nodes, kind):
    key = ("comm_src", "comm_dst", "comm_tag", "comm_size")
    return collections.Counter((n["name"],) + tuple(n["attr"][k] for k in key) for n in nodes if n["type"] == kind)


def check_pairs(ranks):
    sends, recvs = collections.Counter(), collections.Counter()
    for nodes in ranks:
        sends += ends(nodes, SEND)
        recvs += ends(nodes, RECV)
    if sends != recvs:
        fail(f"{sum(((sends - recvs) + (recvs - sends)).values())} sends or receives without the other end")
    tags = collections.Counter(key[1:4] for key in sends.elements())
    if any(n > 1 for n in tags.values()):
        fail("a tag stands twice between two ranks")
    return sum(sends.values())


def replay(ranks):
    """Nodes whose dependencies are done are posted; both ends of a transfer, or all ranks of a collective, finish together."""
    waiting, users, ready = [], [], []
    for r, nodes in enumerate(ranks):
        waiting.append({n["id"]: len(n["deps"]) for n in nodes})
        users.append(collections.defaultdict(list))
        for n in nodes:
            for d in n["deps"]:
                users[r][d].append(n["id"])
            if not n["deps"]:
                ready.append((r, n["id"]))
    turn = [{} for _ in ranks]
    for r, nodes in enumerate(ranks):
        count = collections.Counter()
        for n in nodes:
            if n["type"] == COLL:
                group = n["attr"].get("pg_name", b"")
                turn[r][n["id"]] = (group, count[group])
                count[group] += 1
    members = collections.Counter(key for one in turn for key in one.values())
    met, done = collections.defaultdict(list), 0
    while ready:
        r, at = ready.pop()
        n = ranks[r][at - 1]
        a = n["attr"]
        together = [(r, at)]
        if n["type"] in (SEND, RECV):
            key = (a["comm_src"], a["comm_dst"], a["comm_tag"])
            met[key].append((r, at))
            together = met[key] if len(met[key]) == 2 else []
        elif n["type"] == COLL:
            key = turn[r][at]
            met[key].append((r, at))
            together = met[key] if len(met[key]) == members[key] else []
        for rank, one in together:
            done += 1
            for user in users[rank][one]:
                waiting[rank][user] -= 1
                if waiting[rank][user] == 0:
                    ready.append((rank, user))
    if done != sum(len(nodes) for nodes in ranks):
        fail(f"a replay stops after {done} of {sum(len(nodes) for nodes in ranks)} nodes")


def check_kineto(folder, ranks):
    for r, nodes in enumerate(ranks):
        events = [e for e in json.load(open(f"{folder}/rank{r}.json"))["traceEvents"]
                  if e["ph"] == "X" and "length ps" in e["args"]]
        sent, wanted = collections.Counter(), collections.Counter()
        for n in nodes:
            if n["type"] == SEND:
                sent[n["name"], n["attr"]["comm_dst"]] += n["attr"]["comm_size"]
        for e in events:
            if e["args"].get("Collective name") == "all_to_allv":
                for peer, size in enumerate(json.loads(e["args"]["In split size"])):
                    wanted[e["name"].split(": ", 1)[1], peer] += size
        if sent != +wanted:
            fail(f"rank {r}: bytes to peers differ from the kineto file")
        took = collections.Counter()
        for n in nodes:
            if n["type"] in (COMP, COLL):
                took[n["name"]] += n["attr"]["duration_ps"]
        wanted = collections.Counter()
        for e in events:
            if e["args"].get("Collective name") != "all_to_allv":
                wanted[e["name"].split(": ", 1)[-1]] += e["args"]["length ps"]
        if +took != wanted:
            fail(f"rank {r}: durations differ from the kineto file")


def check_summary(path, policy, ranks):
    row = [p for p in json.load(open(path))["policies"] if p["name"] == policy][0]
    total = collections.Counter()
    for nodes in ranks:
        for n in nodes:
            plain = re.sub(r"( backward)?( \d+/\d+)?$", "", n["name"])
            if n["type"] == SEND:
                total[CLASSES[plain]] += n["attr"]["comm_size"]
            elif n["type"] == COLL and n["attr"]["comm_type"] == 0:
                groups = int(n["attr"].get("pg_name", b"1:0").split(b":")[0])
                total["dense"] += 2 * (len(ranks) - groups) * n["attr"]["comm_size"] / len(ranks)
    for name in set(row["bytes"]) | set(total):
        value = row["bytes"].get(name, 0)
        if abs(total[name] - value) > 1e-9 * value + 0.5:
            fail(f"{policy}: {name}: {total[name]} bytes, the summary says {value}")


def main(chakra, kineto, summary=None, policy=None):
    ranks = [read(f"{chakra}/et.{r}.et") for r in range(len(os.listdir(chakra)))]
    for r, nodes in enumerate(ranks):
        check_graph(r, nodes)
    sends = check_pairs(ranks)
    replay(ranks)
    check_kineto(kineto, ranks)
    if summary:
        check_summary(summary, policy, ranks)
    print(f"{sum(len(nodes) for nodes in ranks)} nodes, {sends} transfers")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
