#!/usr/bin/env python3
"""Exchanges across hosts: predicted by every network law, measured over real TCP.

    validate/hosts/exchanges.py BUILD [--over sockets,openmpi,mpich] [--rounds 5] [--seed 1] [--only WORD] [--stamp TEXT]

Hosts are network namespaces of tools/hosts, so this needs root. NICs have 4 MB/s. Each exchange is measured over plain sockets
(the network alone) and under MPI (hecate-run alltoallv). Rate and latency of a NIC are fitted, for each medium by itself, to
exchanges of two hosts, and once more where a latency is set. Nothing else is fitted: all other exchanges, uplinks, slow NICs and other rates are predictions.
Prints Markdown. Exit codes: 0 done, 1 a run failed, 2 bad usage, 77 no rights here."""
import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import random
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = ROOT / "tools/hosts"
LAWS = ("max_min", "alpha_beta", "nccl_rounds")
RATE, N = 4e6, 4
NAME = f"x{os.getpid() % 10 ** 9}"
WARMUP = 2  # exchanges that are not counted: connections find their rate

# name: line of tools/hosts without the NIC's rate; share of that rate; slow links
CLUSTERS = {
    "flat": ("", 1, []),
    "half rate": ("", 0.5, []),  # were cores the limit, this would be predicted too slow
    "uplink": ("leaf=2 uplink={rate}", 1, []),
    "slow nic_in": ("", 1, ["nic_in:node1:0.5"]),
    "slow nic_out": ("", 1, ["nic_out:node2:0.4"]),
    "10 ms": ("", 1, []),
}
LATE = {"10 ms": "@10ms"}  # fitted by themselves: calibration has to find the latency that was set, and from it the knee


# ---- What is exchanged ----

def matrix(cell):
    return [[0 if i == j else int(cell(i, j)) for j in range(N)] for i in range(N)]


def flows_of(bytes_of, start=0.0):
    """From the host after its own on, as hecate's executor begins."""
    return [(i, (i + k) % N, bytes_of[i][(i + k) % N], start)
            for k in range(1, N) for i in range(N) if bytes_of[i][(i + k) % N]]


def staggered(m):
    """What each host sends, 50 ms after what the one before it sends"""
    return [(matrix(lambda i, j: m[i][j] * (i == h)), 0.05 * h) for h in range(N)]


def all_cases(seed):
    """(name, cluster, matrices with their starts)"""
    draw = random.Random(seed)
    skewed = [matrix(lambda i, j: 4e5 * draw.lognormvariate(0, 1)) for _ in range(6)]
    uniform = matrix(lambda i, j: 4e5)
    incast, outcast = matrix(lambda i, j: 6e5 * (j == 0)), matrix(lambda i, j: 6e5 * (i == 3))
    cases = [("uniform", "flat", [(uniform, 0)]), ("uniform, small", "flat", [(matrix(lambda i, j: 6e4), 0)]),
             ("incast", "flat", [(incast, 0)]), ("outcast", "flat", [(outcast, 0)]),
             ("ring", "flat", [(matrix(lambda i, j: 1.2e6 * (j == (i + 1) % N)), 0)]),
             ("incast beside a pair", "flat", [(matrix(lambda i, j: 6e5 * (j == 0) + 6e5 * (i == 1 and j == 2)), 0)]),
             ("uniform", "half rate", [(matrix(lambda i, j: 2e5), 0)]), ("skewed 0", "half rate", [(skewed[0], 0)]),
             ("uniform", "uplink", [(uniform, 0)]), ("across", "uplink", [(matrix(lambda i, j: 8e5 * (j == (i + 2) % N)), 0)]),
             ("inside", "uplink", [(matrix(lambda i, j: 8e5 * (j == i ^ 1)), 0)]), ("incast", "uplink", [(incast, 0)]),
             ("uniform", "slow nic_in", [(uniform, 0)]), ("uniform", "slow nic_out", [(uniform, 0)]),
             *((name, "10 ms", [(m, 0)]) for name, m in [("uniform", uniform), ("uniform, small", matrix(lambda i, j: 6e4)),
                                                         ("incast", incast), ("skewed 0", skewed[0]), ("skewed 3", skewed[3])]),
             ("ring, small", "10 ms", [(matrix(lambda i, j: 4e4 * (j == (i + 1) % N)), 0)]),
             ("two at once", "flat", [(skewed[4], 0), (skewed[5], 0)]),
             ("uniform and ring at once", "flat", [(uniform, 0), (matrix(lambda i, j: 5e5 * (j == (i + 1) % N)), 0)]),
             ("second 0.1 s later", "flat", [(skewed[2], 0), (skewed[3], 0.1)]),
             ("two at once", "uplink", [(skewed[0], 0), (skewed[1], 0)]),
             ("second 0.1 s later", "uplink", [(incast, 0), (outcast, 0.1)]),
             ("each host 50 ms later", "flat", staggered(uniform)), ("each host 50 ms later", "uplink", staggered(skewed[2]))]
    for k, m in enumerate(skewed):
        cases += [(f"skewed {k}", c, [(m, 0)]) for c in ("flat", "uplink", "slow nic_in", "slow nic_out")[:4 if k < 2 else 2]]
    return cases


FIT_ROUNDS = 9  # all predictions rest on these: a busy moment must not decide
PAIR_BYTES = (64000, 400000, 1600000)  # both directions between two hosts: what is fitted


def pair(size):
    return [(matrix(lambda i, j: size * (i + j == 1)), 0)]


# ---- The cluster ----

def hosts(*words):
    run = subprocess.run([HOSTS, *words[:1], "--name", NAME, *words[1:]], stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"hosts {words[0]}: {run.stderr}")


def up(cluster):
    extra, share, slow = CLUSTERS[cluster]
    hosts("down")
    hosts("up", f"{N}x1 nic={int(RATE * share)}{LATE.get(cluster, '')} {extra.format(rate=int(RATE))}",
          *(word for one in slow for word in ("--slow", one)))


def processes():
    for h in range(N):
        out = subprocess.run(["ip", "netns", "pids", f"hecate-{NAME}-{h}"], capture_output=True, text=True)
        yield from map(int, out.stdout.split())


def enter(host):
    fd = os.open(f"/run/netns/hecate-{NAME}-{host}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)


# ---- Sockets: all hosts' ends in one process, so that one clock sees all ----

class Sockets:
    def __init__(self):
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.listeners, self.ends = [], {}
        for h in range(N):
            enter(h)
            self.listeners.append(socket.create_server((f"10.77.0.{h + 1}", 6000), backlog=64))
        self.home = home

    def connect(self, k, i, j):
        if (k, i, j) in self.ends:
            return
        enter(i)
        out = socket.socket()
        out.connect((f"10.77.0.{j + 1}", 6000))
        into, _ = self.listeners[j].accept()
        out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        out.setblocking(False)
        into.setblocking(False)
        self.ends[k, i, j] = (out, into)

    def once(self, flows):
        """flows: {(k, i, j): (bytes, start)}. Seconds until the last byte is there."""
        data = memoryview(bytes(1 << 16))
        to_send = {f: n for f, (n, _) in flows.items()}
        to_get = dict(to_send)
        later = sorted(flows, key=lambda f: flows[f][1])
        ready = selectors.EpollSelector()
        for f in flows:
            ready.register(self.ends[f][1], selectors.EVENT_READ, (False, f))
        begin = time.monotonic()
        while to_get:
            while later and time.monotonic() - begin >= flows[later[0]][1]:
                ready.register(self.ends[later[0]][0], selectors.EVENT_WRITE, (True, later.pop(0)))
            wait = max(flows[later[0]][1] - (time.monotonic() - begin), 0) if later else 10
            for key, _ in ready.select(wait):
                sends, f = key.data
                if sends:
                    try:
                        to_send[f] -= self.ends[f][0].send(data[:to_send[f]])
                    except BlockingIOError:
                        continue
                    if to_send[f] == 0:
                        ready.unregister(self.ends[f][0])
                else:
                    to_get[f] -= len(self.ends[f][1].recv(min(to_get[f], 1 << 18)))
                    if to_get[f] == 0:
                        ready.unregister(self.ends[f][1])
                        del to_get[f]
        return time.monotonic() - begin

    def measure(self, parts, rounds):
        flows = {(k, i, j): (n, start) for k, (m, start) in enumerate(parts) for i, j, n, start in flows_of(m, start)}
        for f in flows:
            self.connect(*f)
        return [self.once(flows) for _ in range(WARMUP + rounds)][WARMUP:]

    def close(self):
        for end in [*self.listeners, *(e for two in self.ends.values() for e in two)]:
            end.close()
        libc = ctypes.CDLL(None)
        libc.setns(self.home, 0x40000000)
        os.close(self.home)


# ---- MPI ----

class Mpi:
    # Hosts of their own would not wait for whatever else runs here. Ranks that wait sleep, so this takes nothing from others.
    FIRST = ("nice", "-n", "-15")

    def __init__(self, build, kind, late=False):
        """late: ranks leave a barrier some latencies apart, so all start by the clock that hosts of one machine share"""
        self.build, self.kind, self.late = build, kind, late

    def measure(self, parts, rounds):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "matrix.txt")
            if len(parts) > 1 or self.late:
                return self.at_once(parts, rounds, pathlib.Path(folder))
            file.write_text("\n".join(" ".join(map(str, row)) for row in parts[0][0]) + "\n")
            found = self.run([self.build / "hecate-run", "alltoallv", file, "--backend", "mpi", "--iterations", str(rounds),
                              "--warmup", str(WARMUP), "--check", "--json"])
        assert found["check"]["passed"]
        return [found["time_s"]["min"], found["time_s"]["median"], found["time_s"]["max"]]

    def at_once(self, parts, rounds, folder):
        """By a small program: hecate-run has one exchange at a time, and its ranks begin when they leave a barrier."""
        subprocess.run([f"mpicc.{self.kind}", "-O2", "-o", folder / "at_once", ROOT / "validate/hosts/at_once.c"], check=True)
        flows = [f"{k}:{i}:{j}:{n}:{s}" for k, (m, at) in enumerate(parts) for i, j, n, s in flows_of(m, at)]
        return self.run([folder / "at_once", str(WARMUP + rounds), *flows])[WARMUP:]

    def run(self, words, limit_s=300):
        """What the command says as JSON."""
        command = [HOSTS, "mpirun", "--name", NAME, "--mpi", self.kind, *self.FIRST, *words]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            run = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
            try:
                return self.await_result(run, out, err, limit_s)
            finally:  # what it says is enough
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
                for pid in processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    @staticmethod
    def await_result(run, out, err, limit_s):
        def text(file):  # the command writes to the same open file: to seek in it would move where it writes
            return os.pread(file.fileno(), 1 << 26, 0).decode()

        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            ended = run.poll() is not None
            try:
                return json.loads(text(out))
            except json.JSONDecodeError:
                if ended:
                    break
            time.sleep(0.05)
        why = f"no result in {limit_s} s" if run.poll() is None else f"ended with status {run.poll()} and no result"
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {' '.join(map(str, run.args))}: {text(err)[-600:] or why}")

    def close(self):
        pass


# ---- Prediction ----

def links_and_routes(cluster, rate, latency):
    """As of tools/hosts: the case files of hecate-sim flows, for exchanges that start at different times."""
    extra, share, slow = CLUSTERS[cluster]
    bandwidth = {f"nic_{d}:node{h}": rate * share for h in range(N) for d in ("out", "in")}
    for one in slow:
        name, part = one.rsplit(":", 1)
        bandwidth[name] *= float(part)
    if extra:
        bandwidth.update({f"leaf_{d}:leaf{k}": rate for k in range(2) for d in ("up", "down")})

    def route(i, j):
        across = [f"leaf_up:leaf{i // 2}", f"leaf_down:leaf{j // 2}"] if extra and i // 2 != j // 2 else []
        return [f"nic_out:node{i}", *across, f"nic_in:node{j}"]
    links = [{"id": k, "bandwidth": v, "latency": latency if k.startswith("nic_out") else 0} for k, v in bandwidth.items()]
    return links, [{"src": f"h{i}", "dst": f"h{j}", "links": route(i, j)} for i in range(N) for j in range(N) if i != j]


def predict(build, cluster, parts, rate, latency, law):
    """alpha_beta is of one exchange: two are predicted as if each were alone."""
    if law == "alpha_beta" and len(parts) > 1:
        return max(start + predict(build, cluster, [(m, 0)], rate, latency, law) for m, start in parts)
    extra, share, slow = CLUSTERS[cluster]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "case.json" if len(parts) > 1 else "matrix.txt")
        words = []
        if len(parts) > 1:
            links, routes = links_and_routes(cluster, rate, latency)
            flows = [{"src": f"h{i}", "dst": f"h{j}", "bytes": n, "start": s} for m, at in parts for i, j, n, s in flows_of(m, at)]
            file.write_text(json.dumps({"hosts": [f"h{i}" for i in range(N)], "links": links, "routes": routes, "flows": flows}))
        else:
            file.write_text("\n".join(" ".join(map(str, row)) for row in parts[0][0]) + "\n")
            line = f"{N}x1 nic={rate * share:.0f}@{latency * 1e6:.3f}us {extra.format(rate=f'{rate:.0f}')}"
            words = ["--cluster", line + " flops=1G mem=1G"]
            words += ["--slow", ",".join("link=" + one for one in slow)] if slow else []
        out = subprocess.run([build / "hecate-sim", "flows", file, *words, "--law", law, "--json"], capture_output=True, text=True)
        if out.returncode != 0:
            sys.exit(f"exchanges: hecate-sim flows: {out.stderr}")
        return json.loads(out.stdout)["makespan"]


def fit(measured):
    """seconds = latency + bytes / rate, squares of relative errors least. measured: {bytes: seconds}"""
    s = [sum(w * x ** p * y ** q for x, y in measured.items() for w in [1 / y ** 2])
         for p, q in ((0, 0), (1, 0), (2, 0), (0, 1), (1, 1))]
    slope = (s[0] * s[4] - s[1] * s[3]) / (s[0] * s[2] - s[1] ** 2)
    return 1 / slope, max((s[3] - slope * s[1]) / s[0], 0)


# ---- Do cores matter? ----

class Probe(threading.Thread):
    """How late a process that sleeps 5 ms wakes up, all along."""

    def __init__(self):
        super().__init__(daemon=True)
        self.late, self.over = [], False

    def run(self):
        while not self.over:
            begin = time.monotonic()
            time.sleep(0.005)
            self.late.append(1e3 * (time.monotonic() - begin) - 5)
            time.sleep(0.02)


# ---- The report ----

def quantile(values, q):
    values = sorted(values)
    at = q * (len(values) - 1)
    return values[int(at)] + (at % 1) * (values[min(int(at) + 1, len(values) - 1)] - values[int(at)])


def error(row, column):
    return abs(row[column] / row["measured"] - 1)


def order(rows, column):
    """Pairs that were measured more than 5 % apart: how many are predicted in that order."""
    right = n = 0
    for k, a in enumerate(rows):
        for b in rows[:k]:
            if abs(a["measured"] - b["measured"]) > 0.05 * min(a["measured"], b["measured"]):
                n += 1
                right += (a["measured"] > b["measured"]) == (a[column] > b[column])
    return f"{right} of {n}"


def summary(rows, column, seed, in_order=order):
    errors = [error(r, column) for r in rows]
    draw = random.Random(seed)
    medians = [statistics.median(draw.choices(errors, k=len(errors))) for _ in range(2000)]
    bias = statistics.median(r[column] / r["measured"] - 1 for r in rows)
    return (f"{100 * statistics.median(errors):.1f} % | {100 * quantile(medians, 0.05):.1f} .. {100 * quantile(medians, 0.95):.1f} % | "
            f"{100 * quantile(errors, 0.9):.1f} % | {100 * max(errors):.1f} % | {100 * bias:+.1f} % | {in_order(rows, column)}")


CONTROLS = {"rate of NICs 20 % too high": 1.2, "rate of NICs 20 % too low": 0.8}


def report(over, rows, fits, seed):
    print(f"\n## Over {over}\n\nFitted to exchanges of two hosts, {', '.join(f'{b / 1e3:.0f}' for b in PAIR_BYTES)} kB each way:")
    for cluster, (rate, latency) in fits.items():
        print(f"\n- {cluster}: {rate / 1e6:.3f} MB/s and {1e3 * latency:.2f} ms; knee at {rate * latency / 1e3:.0f} kB")
    print()
    print("| law | median error | 90 % interval | p90 | worst | bias | pairs in order |\n|---|---|---|---|---|---|---|")
    for law in LAWS:
        print(f"| {law} | {summary(rows, law, seed)} |")
    for name in CONTROLS:
        print(f"| *max_min, {name}* | {summary(rows, name, seed)} |")
    worst = quantile([error(r, "max_min") for r in rows], 0.9)
    seen = all(statistics.median(error(r, name) for r in rows) > worst for name in CONTROLS)
    print(f"\nNegative controls: a wrong rate is {'seen' if seen else 'NOT SEEN'}: the median error with it is "
          f"{'above' if seen else 'not above'} the p90 of max_min, {100 * worst:.1f} %.\n")
    print("| exchange | cluster | measured, ms | spread | max_min | alpha_beta | nccl_rounds |\n|---|---|---|---|---|---|---|")
    for r in rows:
        cells = " | ".join(f"{100 * (r[law] / r['measured'] - 1):+.1f} %" for law in LAWS)
        print(f"| {r['case']} | {r['cluster']} | {1e3 * r['measured']:.1f} | {100 * r['spread']:.1f} % | {cells} |")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--over", default="sockets,openmpi,mpich")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="", help="exchanges and clusters that have this word, the fit aside")
    p.add_argument("--stamp", default="", help="date and commit")
    a = p.parse_args()
    a.build = a.build.resolve()
    a.over = a.over.split(",")
    if not set(a.over) <= {"sockets", "openmpi", "mpich"}:
        p.error("--over: expected sockets, openmpi, mpich")
    return a


def measure(a, over):
    """Cluster by cluster; the fit needs the first one."""
    cases = [c for c in all_cases(a.seed) if a.only in f"{c[0]}, {c[1]}"]
    rows, fits, fitted = [], {}, None
    for cluster in CLUSTERS:  # those with a latency last
        here = [c for c in cases if c[1] == cluster]
        if not here and cluster != "flat":
            continue
        up(cluster)
        medium = Sockets() if over == "sockets" else Mpi(a.build, over, cluster in LATE)
        try:
            if cluster == "flat" or cluster in LATE:
                fitted = fit({b: statistics.median(medium.measure(pair(b), FIT_ROUNDS)) for b in PAIR_BYTES})
                fits[cluster] = fitted
            for name, _, parts in here:
                seconds = medium.measure(parts, a.rounds)
                middle = statistics.median(seconds)
                row = {"case": name, "cluster": cluster, "measured": middle, "spread": (max(seconds) - min(seconds)) / middle}
                row |= {law: predict(a.build, cluster, parts, *fitted, law) for law in LAWS}
                row |= {k: predict(a.build, cluster, parts, fitted[0] * f, fitted[1], "max_min") for k, f in CONTROLS.items()}
                rows.append(row)
                print(f"{over}: {name}, {cluster}: {1e3 * middle:.0f} ms", file=sys.stderr)
        finally:
            medium.close()
    return rows, fits


def main():
    a = arguments()
    if os.geteuid() != 0:
        print("exchanges: expected root, who alone may make network namespaces", file=sys.stderr)
        return 77
    probe = Probe()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    try:
        probe.start()
        results = {over: measure(a, over) for over in a.over}
    finally:
        probe.over = True
        hosts("down")
    words = [w for k, w in enumerate(sys.argv[2:]) if w != "--stamp" and sys.argv[k + 1] != "--stamp"]
    print(f"# Exchanges across hosts: predicted against measured\n\n{a.stamp}\n\n`validate/hosts/exchanges.py build {' '.join(words)}`\n")
    print(f"Four hosts with NICs of {RATE / 1e6:g} MB/s, as network namespaces of one machine with {os.cpu_count()} cores: TCP and MPI "
          f"are real, cables are not.\nMedians of {a.rounds} exchanges after {WARMUP}. Errors: predicted / measured - 1. "
          f"Rate and latency are fitted to two hosts, all else is predicted.")
    print(f"Cores: a process that sleeps 5 ms woke up {quantile(probe.late, 0.5):.1f} ms late (median; p99 {quantile(probe.late, 0.99):.1f} ms), "
          f"load {os.getloadavg()[1]:.0f}.\nCluster \"half rate\" shows that cores are no limit: else it would be predicted too slow.")
    for over, (rows, fits) in results.items():
        report(over, rows, fits, a.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
