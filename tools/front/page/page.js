/* What the page does beyond standing there: theme, choosing policies, values under the pointer (or under a cursor
 * moved with the arrow keys), and a timeline that can be enlarged. Everything drawn is in the page without it; nothing
 * is requested. What it reads: data-* attributes and the coordinates of what is drawn. */
(function () {
  "use strict";
  var root = document.documentElement, tip = document.getElementById("tip");
  root.setAttribute("data-script", "");

  function all(selector, from) { return Array.prototype.slice.call((from || document).querySelectorAll(selector)); }
  function number(element, name) { return Number(element.getAttribute("data-" + name) || 0); }
  function clamp(value, min, max) { return Math.max(min, Math.min(max, value)); }

  /* ---- Theme ---- */
  var theme = document.getElementById("theme");
  function isDark() {
    var set = root.getAttribute("data-theme");
    return set ? set === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  }
  theme.addEventListener("click", function () { root.setAttribute("data-theme", isDark() ? "light" : "dark"); });

  /* ---- Choosing: a chip shows and hides everything with its data-of and data-i ---- */
  all(".panel").forEach(function (panel) {
    panel.classList.toggle("off", !panel.open);
    panel.open = true;
    panel.firstElementChild.tabIndex = -1;
  });
  function press(chip, on) {
    chip.setAttribute("aria-pressed", String(on));
    var of = chip.getAttribute("data-for"), i = chip.getAttribute("data-n");
    all('[data-of="' + of + '"][data-i="' + i + '"]').forEach(function (one) {
      one.classList.toggle("off", !on);
      if (one.ownerSVGElement) fit(one.ownerSVGElement);
    });
  }
  all(".chip").forEach(function (chip) {
    chip.addEventListener("click", function () { press(chip, chip.getAttribute("aria-pressed") !== "true"); });
  });
  all("[data-all]").forEach(function (button) {
    button.addEventListener("click", function () {
      var of = button.getAttribute("data-all"), on = button.getAttribute("data-on") === "1";
      all('.chip[data-for="' + of + '"]').forEach(function (chip) { press(chip, on); });
    });
  });

  /* ---- Lines: the axis goes from the lowest to the highest line that is shown ---- */
  function step(range) { /* 1, 2 or 5 times a power of ten, about six of them in `range` */
    var wanted = range / 6, power = Math.pow(10, Math.floor(Math.log(wanted) / Math.LN10)), over = wanted / power;
    return power * (over < 1.5 ? 1 : over < 3.5 ? 2 : over < 7.5 ? 5 : 10);
  }
  function digitsOf(by) { return Math.max(0, -Math.floor(Math.log(by) / Math.LN10 + 1e-9)); }
  function fit(svg) {
    var low = Infinity, high = -Infinity, from = number(svg, "low"), to = number(svg, "high");
    all("g[data-low]", svg).forEach(function (line) {
      if (line.classList.contains("off")) return;
      low = Math.min(low, number(line, "low"));
      high = Math.max(high, number(line, "high"));
    });
    if (low > high) return;
    var by = step(high - low || high || 1), height = svg.viewBox.baseVal.height, width = svg.viewBox.baseVal.width;
    low = Math.floor(low / by + 1e-9) * by;
    high = Math.max(Math.ceil(high / by - 1e-9) * by, low + by);
    var scale = (to - from) / (high - low), move = height - height * (from - low) / (high - low) - height * scale;
    svg.fitted = {scale: scale, move: move};
    svg.querySelector(".lines").setAttribute("transform", "matrix(1 0 0 " + scale + " 0 " + move + ")");
    var labels = svg.parentNode.querySelector(".ys"), grid = "", n = Math.round((high - low) / by);
    labels.textContent = "";
    for (var k = 0; k <= n; k++) {
      var label = document.createElement("span");
      label.textContent = (low + k * by).toFixed(digitsOf(by));
      label.style.top = 100 * (1 - k / n) + "%";
      labels.appendChild(label);
      if (k > 0 && k < n) grid += "M0 " + Math.round(height * (1 - k / n)) + "h" + width;
    }
    svg.querySelector(".grid").setAttribute("d", grid);
  }

  /* ---- Tables that are wider than the page ---- */
  function measure() {
    all(".scroll").forEach(function (box) { box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1); });
  }
  window.addEventListener("resize", measure);
  all("details").forEach(function (one) { one.addEventListener("toggle", measure); });
  measure();

  /* ---- Values ---- */
  var letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  function packed(svg, index) { /* three letters a value, in units of data-scale */
    var text = svg.getAttribute("data-v"), value = 0;
    for (var k = 0; k < 3; k++) value = value * 64 + letters.indexOf(text[3 * index + k]);
    return value * number(svg, "scale");
  }
  function bytes(value, base) {
    var units = base === 1024 ? ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] : ["B", "kB", "MB", "GB", "TB", "PB"], unit = 0;
    while (value >= 999.5 && unit < 5) { value /= base; unit++; }
    return (unit === 0 ? value.toFixed(0) : value.toPrecision(3)) + " " + units[unit];
  }
  function shown(svg, value) {
    var unit = svg.getAttribute("data-unit");
    return unit === "B" || unit === "iB" ? bytes(value, unit === "B" ? 1000 : 1024) : value.toFixed(number(svg, "digits") || 2) + " " + unit;
  }
  function iteration(place) { /* what the trace calls it: "first step count;" of every run */
    var holder = document.querySelector("[data-iters]"), left = place, found = place + 1;
    (holder ? holder.getAttribute("data-iters") : "").split(";").filter(Boolean).some(function (one) {
      var run = one.split(" ").map(Number);
      found = run[0] + left * run[1];
      left -= run[2];
      return left < 0;
    });
    return found;
  }
  function place(svg, axis, index) { /* "layer 3", "iterations 5 to 8", or the label beside the row */
    var name = svg.getAttribute("data-" + axis), step = number(svg, axis + "step") || 1,
        from = number(svg, axis + "from");
    if (!name) return svg.parentNode.querySelectorAll(".ys span")[index].textContent;
    var first = from + index * step, last = Math.min(first + step - 1, number(svg, axis + "last") || Infinity);
    if (name === "iteration") { first = iteration(first - 1); last = iteration(last - 1); }
    return step > 1 && last > first ? name + "s " + first + " to " + last : name + " " + first;
  }
  var tell = {
    heat: function (svg, x, y) {
      var w = number(svg, "w"), h = number(svg, "h"), column = clamp(Math.floor(x * w), 0, w - 1),
          row = clamp(Math.floor(y * h), 0, h - 1);
      return place(svg, "y", row) + ", " + place(svg, "x", column) + ": " + shown(svg, packed(svg, row * w + column));
    },
    area: function (svg, x) {
      var w = number(svg, "w"), h = number(svg, "h"), column = clamp(Math.floor(x * w), 0, w - 1), sum = 0, parts = "",
          names = svg.getAttribute("data-names").split("|");
      for (var k = 0; k < h; k++) {
        var value = packed(svg, k * w + column);
        sum += value;
        if (value > 0) parts = "\n" + names[k] + " " + shown(svg, value) + parts;
      }
      var ms = (column + 0.5) / w * number(svg, "end");
      return "at " + ms.toFixed(number(svg, "digits")) + " ms: " + shown(svg, sum) + parts;
    },
    lines: function (svg, x, y) {
      var box = svg.viewBox.baseVal, best = null, fitted = svg.fitted || {scale: 1, move: 0};
      all("polyline", svg).forEach(function (line) {
        if (line.closest(".off")) return;
        for (var i = 0; i < line.points.numberOfItems; i++) {
          var p = line.points.getItem(i), dx = (p.x / box.width - x) * 3,
              dy = (p.y * fitted.scale + fitted.move) / box.height - y,
              far = dx * dx + dy * dy;
          if (!best || far < best.far) best = {far: far, line: line, p: p};
        }
      });
      if (!best) return "";
      var share = 1 - best.p.y / box.height, low = number(svg, "low"), high = number(svg, "high"),
          steps = number(svg, "n") - 1, at = iteration(Math.round(best.p.x / box.width * steps));
      return best.line.getAttribute("data-name") + ", iteration " + at + ": " + shown(svg, low + share * (high - low));
    },
    bars: function (svg, x, y, target) {
      return target && target.getAttribute ? target.getAttribute("data-t") || "" : "";
    },
    spans: function (svg, x, y) {
      var view = svg.viewBox.baseVal, column = view.x + x * view.width, row = y * view.height, found = "",
          per = number(svg, "end") / number(svg, "w"), digits = number(svg, "digits"), rank = Math.floor(row / 8);
      var ranks = svg.getAttribute("data-ranks").split(" "), lane = clamp(Math.floor((row - 8 * rank - 1) / 2), 0, 2);
      if (row < 8) {
        steps(svg).forEach(function (s) {
          if (column >= s.x && column < s.x + s.w)
            found = "critical path: " + s.name + (s.layer < 0 ? "" : ", layer " + s.layer) + " on rank " + s.rank +
              ", " + (s.x * per).toFixed(digits) + " to " + ((s.x + s.w) * per).toFixed(digits) + " ms";
        });
        return found;
      }
      all("path[data-name]", svg).forEach(function (path) {
        parse(path).forEach(function (s) {
          if (s.y === 8 * rank + 2 + 2 * lane && column >= s.x && column < s.x + s.w)
            found = path.getAttribute("data-name") + ", " + (s.x * per).toFixed(digits) + " to " +
              ((s.x + s.w) * per).toFixed(digits) + " ms";
        });
      });
      return "rank " + (ranks[rank - 1] || "?") + ": " +
        (found || "nothing on this lane, at " + (column * per).toFixed(digits) + " ms");
    }
  };
  function parse(path) { /* "M x y h w m x 0 h w ...": the intervals of a path, read once */
    if (path.spans) return path.spans;
    var x = 0, y = 0, out = [];
    path.getAttribute("d").replace(/([Mmh])(-?\d+)(?: (-?\d+))?/g, function (whole, what, a, b) {
      if (what === "M") { x = Number(a); y = Number(b); }
      if (what === "m") x += Number(a);
      if (what === "h") { out.push({x: x, y: y, w: Number(a)}); x += Number(a); }
    });
    path.spans = out;
    return out;
  }
  function steps(svg) { /* "x w role layer rank;..." */
    if (svg.steps) return svg.steps;
    var names = svg.getAttribute("data-names").split("|");
    svg.steps = (svg.getAttribute("data-path") || "").split(";").filter(Boolean).map(function (one) {
      var v = one.split(" ").map(Number);
      return {x: v[0], w: v[1], name: names[v[2]], layer: v[3], rank: v[4]};
    });
    return svg.steps;
  }

  /* ---- Pointer and keys ---- */
  function show(text, x, y) {
    tip.textContent = text;
    tip.style.display = text ? "block" : "none";
    var wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = clamp(x + 14, 4, Math.max(4, window.innerWidth - wide - 6)) + "px";
    tip.style.top = (y + 18 + high > window.innerHeight ? y - high - 10 : y + 18) + "px";
  }
  function hide() { tip.style.display = "none"; }
  all("svg[data-kind]").forEach(function (svg) {
    var kind = svg.getAttribute("data-kind"), cursor = {x: 0, y: 0};
    if (kind === "bars")
      all("title", svg).forEach(function (title) {
        title.parentNode.setAttribute("data-t", title.textContent);
        title.parentNode.removeChild(title);
      });
    function at(x, y, target, event) {
      var box = svg.getBoundingClientRect();
      show(tell[kind](svg, x, y, target), event ? event.clientX : box.left + x * box.width,
        event ? event.clientY : box.top + y * box.height);
    }
    svg.addEventListener("pointermove", function (event) {
      var box = svg.getBoundingClientRect();
      at((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height, event.target, event);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    if (kind === "bars" || kind === "spans") return;
    svg.addEventListener("keydown", function (event) {
      var dx = {ArrowLeft: -1, ArrowRight: 1}[event.key] || 0, dy = {ArrowUp: -1, ArrowDown: 1}[event.key] || 0;
      var w = number(svg, "w") || number(svg, "n") || 50, h = kind === "heat" ? number(svg, "h") : 25;
      if (!dx && !dy) { if (event.key === "Escape") hide(); return; }
      event.preventDefault();
      cursor = {x: clamp(cursor.x + dx, 0, w - 1), y: clamp(cursor.y + dy, 0, h - 1)};
      at((cursor.x + 0.5) / w, (cursor.y + 0.5) / h, null, null);
    });
  });
  window.addEventListener("scroll", hide, {passive: true});

  /* What a name is, under the pointer, or where a key has moved to it */
  all("[title]").forEach(function (one) {
    var about = one.getAttribute("title");
    one.setAttribute("data-about", about);
    one.removeAttribute("title");
    one.addEventListener("pointerenter", function (event) { show(about, event.clientX, event.clientY); });
    one.addEventListener("pointerleave", hide);
    one.addEventListener("focus", function () {
      var box = one.getBoundingClientRect();
      if (one.matches(":focus-visible")) show(about, box.left, box.bottom - 14);
    });
    one.addEventListener("blur", hide);
  });

  /* ---- The timeline ---- */
  all('svg[data-kind="spans"]').forEach(function (svg) {
    var w = number(svg, "w"), h = svg.viewBox.baseVal.height, end = number(svg, "end"), from = 0, to = w, drag = null;
    var ticks = svg.parentNode.querySelector(".xs"), tools = svg.parentNode.parentNode.querySelector(".zoom");
    function draw() {
      svg.setAttribute("viewBox", from + " 0 " + (to - from) + " " + h);
      while (ticks.firstChild) ticks.removeChild(ticks.firstChild);
      var low = from / w * end, high = to / w * end, by = step(high - low), digits = digitsOf(by);
      for (var k = Math.ceil(low / by - 1e-9); k * by <= high * (1 + 1e-9); k++) {
        var tick = document.createElement("span");
        tick.textContent = (k * by).toFixed(digits);
        tick.style.left = 100 * (k * by - low) / (high - low) + "%";
        ticks.appendChild(tick);
      }
    }
    function window_(center, width) {
      width = clamp(width, Math.min(40, w), w);
      from = Math.round(clamp(center - width / 2, 0, w - width));
      to = Math.round(from + width);
      draw();
      hide();
    }
    function zoom(factor, center) { window_(center === undefined ? (from + to) / 2 : center, (to - from) * factor); }
    function move(share) { window_((from + to) / 2 + share * (to - from), to - from); }
    var actions = {"in": function () { zoom(0.5); }, out: function () { zoom(2); }, left: function () { move(-0.3); },
      right: function () { move(0.3); }, whole: function () { window_(w / 2, w); }};
    all("button", tools).forEach(function (button) {
      button.addEventListener("click", actions[button.getAttribute("data-do")]);
    });
    svg.addEventListener("keydown", function (event) {
      var action = {"+": "in", "=": "in", "-": "out", "0": "whole", ArrowLeft: "left", ArrowRight: "right"}[event.key];
      if (action && !event.ctrlKey && !event.metaKey) { event.preventDefault(); actions[action](); }
    });
    svg.addEventListener("wheel", function (event) {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      var box = svg.getBoundingClientRect(), share = (event.clientX - box.left) / box.width,
          at = from + share * (to - from);
      var factor = (event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8;
      window_(at + (0.5 - share) * (to - from) * factor, (to - from) * factor);
    }, {passive: false});
    svg.addEventListener("pointerdown", function (event) {
      if (event.pointerType === "touch" || event.button !== 0) return;
      drag = {x: event.clientX, from: from, to: to};
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", function (event) {
      if (!drag) return;
      var by = (drag.x - event.clientX) / svg.getBoundingClientRect().width * (drag.to - drag.from);
      window_((drag.from + drag.to) / 2 + by, drag.to - drag.from);
    });
    svg.addEventListener("pointerup", function () { drag = null; });
  });
})();
