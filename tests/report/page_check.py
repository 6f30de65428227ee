"""A second opinion on a page, by Python's own HTML parser: page_check.py PAGE [SUMMARY.json]. Tags are balanced, nothing
asks for anything, every SVG has a name, ids are unique. The policy has the digest of the script; the table of numbers is
the summary's, to the digit shown. Prints what is wrong, a line each."""
import base64
import hashlib
import html.parser
import json
import sys

VOID = {"meta", "br"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.ids, self.sections, self.text = [], [], [], [], []
        self.table, self.cell, self.in_numbers = [], None, False
        self.counts = {}
        self.policy, self.script = "", ""

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if len(values) != len(attributes):
            self.wrong.append(f"<{tag}> has an attribute twice")
        for name, value in attributes:
            if name in ("src", "href", "srcset", "action", "xlink:href") or name.startswith("on"):
                self.wrong.append(f"<{tag} {name}={value}>")
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy += values["content"]
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "section":
            self.sections.append(values.get("id"))
        if tag == "svg" and not (values.get("aria-label") and values.get("role") == "img"):
            self.wrong.append("an SVG without a name")
        if tag == "table" and values.get("id") == "numbers":
            self.in_numbers = True
        if self.in_numbers and tag == "tr":
            self.table.append([])
        if self.in_numbers and tag in ("td", "th"):
            self.table[-1].append("")
            self.cell = tag
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-1:]}")
        else:
            self.open.pop()
        if tag == "table":
            self.in_numbers = False
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        if self.in_numbers and self.cell:
            self.table[-1][-1] += data
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)
        elif self.open[-1] == "script":
            self.script += data


def close(shown, value):
    """`shown` is `value` rounded to its digits."""
    if value is None:
        return shown == "-"
    digits = len(shown.split(".")[1]) if "." in shown else 0
    return abs(float(shown) - value) <= 0.5000001 * 10 ** -digits


def check_numbers(page, summary):
    wrong, head = [], page.table[0]
    rows = {(row[0], row[1]): dict(zip(head, row)) for row in page.table[1:]}
    if len(rows) != len(summary["policies"]):
        wrong.append(f"{len(rows)} rows for {len(summary['policies'])} policies")
    for p in summary["policies"]:
        row = rows.get((p["name"], p["schedule"]))
        if row is None:
            wrong.append(f"no row {p['name']}")
            continue
        exposed, time = p["exposed_s"], p["iteration_s"]
        bound = p.get("bound_s")  # of what was executed: none
        wanted = {"median, ms": 1e3 * time["median"], "p95, ms": 1e3 * time["p95"], "mean, ms": 1e3 * time["mean"],
                  "speed over ep": p["speedup_vs_ep"], "bound, ms": None if bound is None else 1e3 * bound,
                  "compute, ms": 1e3 * p["compute_s"], "planning, ms": 1e3 * p["planning_s"],
                  "waiting, ms": 1e3 * p["wait_s"],
                  "exposed token traffic, ms": 1e3 * exposed["token"],
                  "exposed parameter traffic, ms": 1e3 * exposed["param"],
                  "exposed gradient traffic, ms": 1e3 * exposed["grad"],
                  "exposed migration, ms": 1e3 * exposed["migration"],
                  "start skew, ms": 1e3 * p.get("skew_s", 0), "overload, median": p["overload_factor"]["median"],
                  "overload, p95": p["overload_factor"]["p95"], "peak, GB": 1e-9 * p["peak_memory_bytes"]}
        if set(wanted) | {"policy", "schedule", "fits"} != set(head):
            wrong.append(f"columns {sorted(set(head) ^ set(wanted))}")
        wrong += [f"{p['name']}, {k}: {row[k]}, summary {v}" for k, v in wanted.items() if not close(row[k], v)]
        if row["fits"] != ("yes" if p["fits"] else "no"):
            wrong.append(f"{p['name']}: fits {row['fits']}")
    medians = [float(row[2]) for row in page.table[1:]]
    if medians != sorted(medians):
        wrong.append("rows are not sorted")
    return wrong


def main():
    source = open(sys.argv[1], encoding="utf-8", errors="strict").read()
    page = Page()
    page.feed(source)
    page.close()
    wrong = page.wrong + [f"<{tag}> is never closed" for tag in page.open]
    wrong += [f"id {one} twice" for one in set(page.ids) if page.ids.count(one) > 1]
    wrong += [f"\"{what}\"" for what in ("http:", "https:", "url(", "@import") if what in source]
    if page.counts.get("script") != 1:
        wrong.append(f"{page.counts.get('script')} scripts")
    digest = base64.b64encode(hashlib.sha256(page.script.encode()).digest()).decode()
    if f"script-src 'sha256-{digest}';" not in page.policy:
        wrong.append(f"the script's digest is {digest}, the policy {page.policy}")
    if len(sys.argv) > 2:
        wrong += check_numbers(page, json.load(open(sys.argv[2])))
    print("\n".join(wrong) if wrong else "sections: " + " ".join(page.sections))
    sys.exit(1 if wrong else 0)


main()
