"""Timelines in Perfetto itself: perfetto_check.py UI FILE...

UI is a folder with Perfetto's user interface (its index.html). It is served from this machine to a headless Chromium, which
opens each file as a user does (#!/?url=). What Perfetto then holds is asked of its own SQL engine and compared with the file.
No error of import, every event with its process, thread, name, begin and length, every counter with its values. With "-" as UI
the files alone are looked at: whole nanoseconds, and no two events of a thread overlap (Perfetto drops one of them)."""
import collections
import functools
import http.server
import json
import os
import sys
import threading
import time

from browser import Browser

QUERY = """const done = arguments[1];
window.app.trace.engine.query(arguments[0]).then(result => {
  const columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(columns.map(name => { const value = row.get(name); return typeof value === "bigint" ? String(value) : value; }));
  done(rows);
}).catch(error => done(String(error)));"""
FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """select p.pid, p.name, t.name, s.name, s.ts, s.dur from slice s join thread_track k on s.track_id = k.id
join thread t using (utid) join process p using (upid)"""
COUNTERS = """select p.pid, k.name, c.ts, c.value from counter c join process_counter_track k on c.track_id = k.id
join process p using (upid)"""


def ns(us):
    exact = round(us * 1000)
    if abs(us * 1000 - exact) > 1e-3:
        raise ValueError(f"{us} us is not whole nanoseconds")
    return exact


def read(path):
    """Slices and counters of a file, each as a multiset of rows like those of the queries."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {(e["name"], e["pid"], e["tid"] if e["name"] == "thread_name" else 0): e["args"]["name"]
             for e in events if e["ph"] == "M"}
    slices, counters = collections.Counter(), collections.Counter()
    for e in events:
        if e["ph"] == "X":
            process, thread = names.get(("process_name", e["pid"], 0)), names.get(("thread_name", e["pid"], e["tid"]))
            slices[(e["pid"], process, thread, e["name"], ns(e["ts"]), ns(e["dur"]))] += 1
        if e["ph"] == "C":
            for name, value in e["args"].items():
                counters[(e["pid"], f"{e['name']} {name}", ns(e["ts"]), float(value))] += 1
    return slices, counters


def overlaps(slices):
    """Two events of a thread that overlap without one being inside the other."""
    stacks = collections.defaultdict(list)
    for pid, _, thread, name, begin, length in sorted(slices.elements(), key=lambda s: (s[0], str(s[2]), s[4], -s[5])):
        around = stacks[pid, thread]
        while around and around[-1][0] <= begin:
            around.pop()
        if around and begin + length > around[-1][0]:
            return f"{name} at {begin} ns begins inside {around[-1][1]} and ends after it (process {pid}, {thread})"
        around.append((begin + length, name))
    return None


class Server(http.server.ThreadingHTTPServer):
    """The user interface, and under /trace/N the files."""

    def __init__(self, folder, files):
        self.files = files
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.path.startswith("/trace/"):
            super().do_GET()
            return
        with open(self.server.files[int(self.path.split("/")[2])], "rb") as file:
            data = file.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def query(browser, sql):
    rows = browser.wait(QUERY, sql)
    if isinstance(rows, str):
        sys.exit(f"Perfetto refuses a query: {rows}")
    return rows


def load(browser, port, index):
    browser.visit("about:blank")
    browser.visit(f"http://127.0.0.1:{port}/#!/?url=http://127.0.0.1:{port}/trace/{index}")
    for _ in range(1200):
        if browser.run("return !!(window.app && window.app.trace && window.app.trace.engine && !window.app.isLoadingTrace)"):
            return
        time.sleep(0.25)
    sys.exit("Perfetto does not load the file within five minutes: " +
             str(browser.run("return document.body.innerText.slice(0, 300)")))


def same(path, what, held, wanted):
    if held != wanted:
        sys.exit(f"{path}: {what}: of {wanted.total()} Perfetto has not {(wanted - held).total()}, such as "
                 f"{next(iter(wanted - held), None)}; it has beside them {(held - wanted).total()}, such as "
                 f"{next(iter(held - wanted), None)}")


def main():
    ui, files = sys.argv[1], sys.argv[2:]
    contents = [read(path) for path in files]
    for path, (slices, _) in zip(files, contents):
        found = overlaps(slices)
        if found or not slices:
            sys.exit(f"{path}: {found or 'no event'}")
    if ui == "-":
        return
    server, browser = Server(ui, files), Browser()
    try:
        for i, (path, (slices, counters)) in enumerate(zip(files, contents)):
            load(browser, server.server_port, i)
            faults = query(browser, FAULTS)
            if faults:
                sys.exit(f"{path}: Perfetto: {faults}")
            held = [(int(r[0]), r[1], r[2], r[3], int(r[4]), int(r[5])) for r in query(browser, SLICES)]
            same(path, "events", collections.Counter(held), slices)
            held = [(int(r[0]), r[1], int(r[2]), float(r[3])) for r in query(browser, COUNTERS)]
            same(path, "counters", collections.Counter(held), counters)
            print(f"{os.path.basename(path)}: {slices.total()} events, {counters.total()} values of counters")
        print("Perfetto", browser.run("return document.body.dataset.perfetto_version || document.title"))
    finally:
        browser.close()
        server.shutdown()


main()
