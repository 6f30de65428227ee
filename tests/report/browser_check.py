"""Pages in a headless Chromium: browser_check.py COMPARISON SWEEP VALIDATION. No error on the console, no request but
for the file, every chart there and drawn. Nothing is wider than the window at 390 and 1440 pixels. Hover, keys,
choosing, theme and enlarging do what they say. Without script and in print everything is still there. Prints what is
wrong, a line each."""
import json
import os
import sys
import time

from browser import Browser

wrong = []


def want(condition, what):
    if not condition:
        wrong.append(what)


def check_log(b, name):
    for entry in b.log("browser"):
        wrong.append(f"{name}: console: {entry['message'][:200]}")
    for entry in b.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] != "Network.requestWillBeSent":
            continue
        url, kind = message["params"]["request"]["url"], message["params"].get("type")
        want(url.startswith("file://") and kind in ("Document", None), f"{name}: request of {kind} {url[:100]}")


def check_widths(b, name):
    for width in (390, 1440):
        b.size(width, 900)
        wide = b.run("return document.documentElement.scrollWidth")
        want(wide <= width, f"{name}: {wide} pixels wide in a window of {width}")
        empty = b.run("""return Array.from(document.querySelectorAll("main svg")).filter(function (s) {
          var box = s.getBoundingClientRect(), hidden = s.closest(".off") || s.closest("details:not([open])");
          return !hidden && (box.width < 50 || box.height < 8); }).length""")
        want(empty == 0, f"{name}: {empty} empty pictures at {width} pixels")


def box(b, selector):
    b.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
    return b.run("""var r = document.querySelector(arguments[0]).getBoundingClientRect();
      return [r.left, r.top, r.width, r.height]""", selector)


def tip(b):
    return b.run("""var t = document.getElementById('tip');
      return getComputedStyle(t).display === 'none' ? '' : t.textContent""")


def focus(b, selector):
    """With the scrolling over, whose event comes with a later frame and hides values."""
    b.wait("""var one = document.querySelector(arguments[0]), done = arguments[1];
      one.focus();
      requestAnimationFrame(function () { requestAnimationFrame(function () { setTimeout(done, 0); }); });""", selector)


def hover(b, selector, x, y):
    left, top, width, height = box(b, selector)
    for attempt in range(200):  # scrolling, which hides values, may still be going on
        b.hover(left + x * width + attempt % 2, top + y * height)
        if tip(b):
            break
        time.sleep(0.05)
    return tip(b)


def press(b, selector):
    left, top, width, height = box(b, selector)
    b.click(left + width / 2, top + height / 2)


def visible(b, of):
    return b.run("""var all = document.querySelectorAll('[data-of="' + arguments[0] + '"]');
      return Array.from(all).filter(function (one) { return !one.classList.contains("off"); }).length""", of)


def check_comparison(b, path):
    b.open(path)
    sections = b.run("return Array.from(document.querySelectorAll('section')).map(function (s) { return s.id; })")
    want(sections == "ranking iterations overload traffic memory timeline assumed".split(), f"sections {sections}")
    for chart in sections[:-1]:
        drawn = b.run("return document.querySelectorAll('#' + arguments[0] + ' svg *').length", chart)
        want(drawn > 2, f"{chart}: nothing drawn")
        says = b.run("return document.querySelector('#' + arguments[0] + ' .says').textContent.length", chart)
        want(says > 20, f"{chart} says nothing")
    # values under the pointer
    shown = hover(b, "#ranking .bar:not(.axis) svg", 0.1, 0.5)
    want("compute" in shown and "ms" in shown, f"ranking: {shown!r}")
    shown = hover(b, "#iterations svg", 0.5, 0.5)
    want("iteration" in shown and "ms" in shown, f"iterations: {shown!r}")
    last = b.run("return Array.from(document.querySelectorAll('#iterations .xs span')).pop().textContent")
    runs = b.run("return document.querySelector('[data-iters]').getAttribute('data-iters')").rstrip(";").split(";")
    ids = [int(r.split()[0]) + k * int(r.split()[1]) for r in runs for k in range(int(r.split()[2]))]
    want(int(last) in ids[-8:], f"the axis ends at {last}, iterations at {ids[-1]}")
    shown = hover(b, "#iterations svg", 0.999, 0.5)
    want(f"iteration {ids[-1]}:" in shown, f"last iteration {ids[-1]}: {shown!r}")
    shown = hover(b, "#iterations svg", 0.001, 0.5)
    want(f"iteration {ids[0]}:" in shown, f"first iteration {ids[0]}: {shown!r}")
    shown = hover(b, "#overload svg", 0.1, 0.02)
    want("layer 0" in shown and "times the mean" in shown, f"overload: {shown!r}")
    shown = hover(b, "#overload .panel:not(.off) svg", 0.95, 0.9)
    want("iteration" in shown and "times the mean" in shown, f"overload over iterations: {shown!r}")
    shown = hover(b, "#traffic .panel:not(.off) svg", 0.99, 0.01)
    want("from rank 0" in shown and "to rank" in shown and shown.rstrip().endswith("B"), f"traffic: {shown!r}")
    shown = hover(b, "#memory .panel:not(.off) svg", 0.4, 0.5)
    want("GB" in shown and "activations" in shown, f"memory: {shown!r}")
    timeline = "#timeline .panel:not(.off) svg"
    shown = hover(b, timeline, 0.5, 0.02)
    want(shown.startswith("critical path: "), f"path: {shown!r}")
    shown = hover(b, timeline, 0.05, 0.95)
    want(shown.startswith("rank "), f"timeline: {shown!r}")
    # the same by keys
    focus(b, "#overload svg")
    b.key("\ue014", "\ue014", "\ue015")  # right, right, down
    for attempt in range(200):  # the pointer, from under which the page has moved, may hide values once more
        if tip(b):
            break
        time.sleep(0.05)
        b.key("\ue012", "\ue014")  # left and back
    want("layer 2" in tip(b), f"keys: {tip(b)!r}")
    b.key("\ue00c")  # escape
    want(tip(b) == "", "escape does not hide")
    # eight policies in a chart, the others on demand; a name says what it is
    total = b.run("return document.querySelectorAll('#numbers tbody tr').length")
    want(visible(b, "iterations") == 8, f"{visible(b, 'iterations')} lines of {total}")
    for chart in ("ranking", "memory"):
        count = b.run("""return Array.from(document.querySelectorAll('#' + arguments[0] + ' .bar:not(.axis)'))
          .filter(function (one) { return !one.closest('details:not([open])'); }).length""", chart)
        want(count == 8, f"{chart}: {count} bars")
        press(b, f"#{chart} .fold > summary")
        shown = b.run("""return Array.from(document.querySelectorAll('#' + arguments[0] + ' .bar:not(.axis)'))
          .filter(function (one) { return one.getBoundingClientRect().height > 5; }).length""", chart)
        want(shown == total, f"{chart}: {shown} of {total} bars when asked for")
        press(b, f"#{chart} .fold > summary")
    name = b.run("return document.querySelector('#ranking .bar:not(.axis) b').textContent")
    shown = hover(b, "#ranking .bar:not(.axis) b", 0.5, 0.5)
    want("; schedule " in shown and len(shown) > 30, f"{name} explains itself as {shown!r}")
    axis = "return document.querySelector('#iterations .ys').textContent"
    before = b.run(axis)
    press(b, "#iterations .fold > summary")
    press(b, '#iterations .chip[data-n="%d"]' % b.run("""return Number(Array.from(document.querySelectorAll(
      '#iterations g.off')).sort(function (x, y) { return x.dataset.high - y.dataset.high; }).pop().dataset.i)"""))
    want(b.run(axis) != before, "the axis does not follow a line that is chosen")
    inside = b.run("""var svg = document.querySelector('#iterations svg').getBoundingClientRect();
      return Array.from(document.querySelectorAll('#iterations g[data-low]:not(.off) polyline')).every(function (one) {
        var box = one.getBoundingClientRect(); return box.top > svg.top - 3 && box.bottom < svg.bottom + 3; })""")
    want(inside, "a line that is chosen leaves the picture")
    press(b, '#iterations .fold .chip[aria-pressed="true"]')
    press(b, "#iterations .fold > summary")
    want(b.run(axis) == before, f"the axis does not come back: {before} {b.run(axis)}")
    # choosing
    for of in ("iterations", "overload", "traffic", "memory", "timeline"):
        before = visible(b, of)
        press(b, f'.chip[data-for="{of}"][aria-pressed="true"]')
        want(visible(b, of) == before - 1, f"{of}: a chip hides nothing")
        pressed = b.run("return document.activeElement.getAttribute('aria-pressed')")
        want(pressed == "false", f"{of}: a chip stays pressed")
        b.key("\ue007")  # enter, on the same chip
        want(visible(b, of) == before, f"{of}: a chip shows nothing")
    press(b, '[data-all="traffic"][data-on="0"]')
    want(visible(b, "traffic") == 0, "none hides not all")
    press(b, '[data-all="traffic"][data-on="1"]')
    want(visible(b, "traffic") == b.run("return document.querySelectorAll('#traffic .panel').length"), "all shows not all")
    # enlarging
    whole = b.run("return document.querySelector(arguments[0]).getAttribute('viewBox')", timeline)
    press(b, "#timeline .panel:not(.off) [data-do=in]")
    half = b.run("return document.querySelector(arguments[0]).getAttribute('viewBox')", timeline)
    want(int(half.split()[2]) * 2 == int(whole.split()[2]), f"closer: {half} of {whole}")
    ticks = b.run("return document.querySelector('#timeline .panel:not(.off) .xs').textContent")
    press(b, "#timeline .panel:not(.off) [data-do=right]")
    moved = b.run("return document.querySelector(arguments[0]).getAttribute('viewBox')", timeline)
    want(int(moved.split()[0]) > int(half.split()[0]), f"later: {moved}")
    now = b.run("return document.querySelector('#timeline .panel:not(.off) .xs').textContent")
    want(ticks != now, "the axis stays")
    focus(b, timeline)
    b.key("0")
    want(b.run("return document.querySelector(arguments[0]).getAttribute('viewBox')", timeline) == whole, "0: not the whole")
    # theme
    for dark in (False, True):
        b.run("document.documentElement.removeAttribute('data-theme')")
        b.media(dark=dark)
        before = b.run("return getComputedStyle(document.documentElement).backgroundColor")
        want(before == ("rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)"), f"dark {dark}: {before}")
        press(b, "#theme")
        after = b.run("return getComputedStyle(document.documentElement).backgroundColor")
        want(before != after, "the theme does not change")
        press(b, "#theme")
    b.media(media="print", dark=True)
    want(b.run("return getComputedStyle(document.querySelector('.chips')).display") == "none", "chips in print")
    want(b.run("return getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)", "dark print")
    shown = b.run("return document.querySelector('#numbers').getBoundingClientRect().height")
    closed = b.run("return !document.querySelector('details.numbers').open")
    want(closed and shown > 100, f"the closed table is {shown} high in print")
    b.media(media="", dark=False)
    # a phone: a long name leaves the button as it is
    b.size(390, 844)
    b.run("document.querySelector('h1').textContent = 'a-name-without-any-blank-'.repeat(8)")
    wide, high, line = b.run("""var t = document.querySelector('#theme'), r = t.getBoundingClientRect();
      return [r.right, r.height, parseFloat(getComputedStyle(t).fontSize)];""")
    want(wide <= 390 and high < 2.5 * line, f"phone: the button ends at {wide}, is {high} high")
    b.size(1440, 900)


def check_width_is_used(b, path):
    b.size(1400, 900)
    b.open(path)
    used = b.run("return document.querySelector('main').getBoundingClientRect().width")
    want(used > 1300, f"{used} of 1400 pixels are used")
    top = b.run("return document.querySelector('#verdict').getBoundingClientRect().top")
    want(top < 200, f"the verdict begins {top} pixels down")
    b.size(1440, 900)


def check_map_on_phone(b, path):
    b.size(300, 844)  # on 390 it fits
    b.open(path)
    cut = b.run("""return Array.from(document.querySelectorAll('#regime .scroll')).map(function (box) {
      var hint = box.nextElementSibling;
      return [box.scrollWidth > box.clientWidth + 1, getComputedStyle(hint).display !== 'none']; })""")
    want(any(one[0] for one in cut), "no map is wider than a small phone: the test proves nothing")
    want(all(one[0] == one[1] for one in cut), f"maps that scroll and hints: {cut}")
    b.size(1440, 900)


def check_without_script(path):
    b = Browser(script=False)
    try:
        b.open(path)
        b.size(1440, 900)
        b.shot(os.path.join(os.environ.get("TMPDIR", "."), "without.png"))
        # no script of ours can ask: the browser's own view of the page is asked for
        tree = b.cdp("DOM.getDocument", {"depth": -1})
        html = [node for node in tree["root"]["children"] if node["nodeName"] == "HTML"][0]
        want("data-script" not in html["attributes"], "a script ran")
        wanted = {"nodeId": tree["root"]["nodeId"], "selector": "details.panel[open] svg"}
        nodes = b.cdp("DOM.querySelectorAll", wanted)["nodeIds"]
        want(len(nodes) >= 6, f"{len(nodes)} pictures open without script")
        for node in nodes:
            size = b.cdp("DOM.getBoxModel", {"nodeId": node})["model"]
            want(size["width"] > 50 and size["height"] > 8, "an empty picture without script")
    finally:
        b.close()


def main():
    comparison, sweep, validation = sys.argv[1:4]
    b = Browser()
    try:
        b.size(1440, 900)
        b.blank()
        check_comparison(b, comparison)
        check_log(b, "comparison")
        pages = (("comparison", comparison, "ranking"), ("sweep", sweep, "regime"), ("validation", validation, "kinds"))
        for name, path, section in pages:
            b.open(path)
            check_widths(b, name)
            check_width_is_used(b, path)
            check_log(b, name)
            want(b.run("return !!document.getElementById(arguments[0])", section), f"{name}: no {section}")
        check_map_on_phone(b, sweep)
        # the policy holds: what a page must not do fails
        b.open(comparison)
        b.log("browser")
        b.run("""var s = document.createElement('script'), i = document.createElement('img');
          s.textContent = 'window.broken = 1'; document.body.appendChild(s);
          i.src = 'file:///nowhere.png'; document.body.appendChild(i);""")
        want(b.run("return window.broken === undefined"), "a foreign script runs")
        want(any("Content Security Policy" in entry["message"] for entry in b.log("browser")), "no policy is enforced")
    finally:
        b.close()
    check_without_script(comparison)
    print("\n".join(wrong) if wrong else "as it should be")
    sys.exit(1 if wrong else 0)


main()
