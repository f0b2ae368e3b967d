"use strict";
/* Draws figures from numbers, for the report and for the pages of the service. Readers can point, zoom and hide curves
   with mouse, touch or keyboard. Nothing is loaded from elsewhere. */
const qccfCharts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { left: 64, right: 14, top: 8, bottom: 42 };
  const HEIGHT = 260;
  const BAR = 0.6; /* width of a bar, in categories */
  const observers = new WeakMap();

  const element = (name, attributes = {}, parent = null, text = "") => {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  };
  const html = (name, className, parent, text = "") => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  };
  const ink = (colour) => (colour === "#000000" ? "currentColor" : colour);

  const shown = (value, percent) => {
    if (value === null || value === undefined) return "–";
    if (percent) return (100 * value).toFixed(1) + " %";
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 1e5 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
    return String(Number(value.toPrecision(4)));
  };

  const linearTicks = (low, high, wanted, integers) => {
    const rough = (high - low) / wanted || 1;
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    let step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || power;
    if (integers) step = Math.max(1, Math.round(step));
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) ticks.push(Number((k * step).toPrecision(12)));
    return ticks;
  };
  const logTicks = (low, high) => {
    const ticks = [];
    const few = Math.log10(high / low) < 1.5;
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (const m of few ? [1, 2, 5] : [1]) {
        const tick = Number((m * Math.pow(10, e)).toPrecision(6));
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    return ticks;
  };

  const marker = (kind, x, y, size, colour, parent) => {
    const paths = {
      "^": `M${x},${y - size}L${x + size},${y + size}L${x - size},${y + size}Z`,
      v: `M${x},${y + size}L${x + size},${y - size}L${x - size},${y - size}Z`,
      "<": `M${x - size},${y}L${x + size},${y - size}L${x + size},${y + size}Z`,
      ">": `M${x + size},${y}L${x - size},${y - size}L${x - size},${y + size}Z`,
      s: `M${x - size},${y - size}h${2 * size}v${2 * size}h${-2 * size}Z`,
      D: `M${x},${y - size * 1.2}L${x + size * 1.2},${y}L${x},${y + size * 1.2}L${x - size * 1.2},${y}Z`,
      x: `M${x - size},${y - size}L${x + size},${y + size}M${x - size},${y + size}L${x + size},${y - size}`,
      "+": `M${x - size},${y}L${x + size},${y}M${x},${y - size}L${x},${y + size}`,
    };
    if (!(kind in paths)) return element("circle", { cx: x, cy: y, r: size, fill: colour }, parent);
    const open = kind === "x" || kind === "+";
    return element("path", { d: paths[kind], fill: open ? "none" : colour, stroke: colour, "stroke-width": open ? 1.8 : 0 }, parent);
  };

  /* A long name below a bar: policy and codec on a line each; what is still too long ends with an ellipsis. */
  const HEAD = 17;
  const headLines = (name) => name.split(/(?<=,) /).map((line) => (line.length > HEAD ? line.slice(0, HEAD - 1) + "…" : line));

  class Panel {
    constructor(spec, chart, parent, label) {
      this.spec = spec;
      this.chart = chart;
      this.zoomed = null;
      this.cursor = null;
      this.root = html("div", "panel", parent);
      const head = html("h4", "", this.root, spec.title);
      const tools = html("span", "tools", head);
      for (const [sign, name, act] of [
        ["+", "Zoom in", () => this.scale(0.6)],
        ["−", "Zoom out", () => this.scale(1 / 0.6)],
        ["↺", "Reset zoom", () => this.reset()],
      ]) {
        const button = html("button", "", tools, sign);
        button.type = "button";
        button.setAttribute("aria-label", `${name}: ${spec.title}`);
        button.title = name;
        button.addEventListener("click", act);
      }
      this.svg = element("svg", { class: "plot", tabindex: "0", role: "group", "aria-label": `${label}, ${spec.title}. ` +
        `${spec.yLabel} against ${spec.xLabel}. Arrow keys read values, plus and minus zoom, 0 resets.` }, this.root);
      this.tip = html("div", "tip", this.root);
      this.tip.setAttribute("role", "status");
      this.tip.hidden = true;
      this.listen();
    }

    visible() { return this.spec.series.filter((s) => !this.chart.hidden.has(s.name)); }

    extent() {
      const { spec } = this;
      const xs = [], ys = [];
      for (const s of [...spec.series, ...(spec.beside || [])]) { /* `beside`: of a figure that shares the axes */
        s.x.forEach((x) => x !== null && xs.push(x));
        if (this.chart.hidden.has(s.name) && this.visible().length) continue;
        if (s.kind === "bars") ys.push(0);
        for (const column of [s.y, s.low, s.high]) column.forEach((y) => y !== null && ys.push(y));
      }
      spec.references.forEach((r) => ys.push(r.y));
      let [x0, x1] = xs.length ? [Math.min(...xs), Math.max(...xs)] : [0, 1];
      let [y0, y1] = ys.length ? [Math.min(...ys), Math.max(...ys)] : [0, 1];
      if (spec.categories.length) [x0, x1] = [-0.5, spec.categories.length - 0.5];
      else if (spec.xLog) [x0, x1] = x0 === x1 ? [x0 / 2, x1 * 2] : [x0 / Math.pow(x1 / x0, 0.03), x1 * Math.pow(x1 / x0, 0.03)];
      else { const pad = 0.02 * (x1 - x0) || 0.5; x0 -= pad; x1 += pad; }
      const flat = y1 - y0 <= 1e-3 * Math.max(Math.abs(y0), Math.abs(y1)); // four digits would not tell its ticks apart
      const pad = flat ? Math.abs(0.05 * y1) || 0.5 : 0.05 * (y1 - y0);
      const floor = y0 >= 0 && y0 - pad < 0 ? 0 : y0 - pad;
      return spec.yRange ? [x0, x1, ...spec.yRange] : [x0, x1, floor, y1 + pad];
    }

    few() {
      const xs = [...new Set(this.spec.series.flatMap((s) => s.x))];
      return xs.length <= 6 ? xs : null;
    }

    render() {
      const width = Math.max(240, this.root.clientWidth || 400);
      const { svg, spec } = this;
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      svg.setAttribute("height", HEIGHT);
      const [x0, x1, y0, y1] = (this.domain = this.zoomed || this.extent());
      const longest = Math.max(0, ...spec.categories.map((name) => name.length));
      const crowded = longest * 7 + 6 > (width - MARGIN.left - MARGIN.right) / (spec.categories.length || 1);
      const heads = spec.categories.map((name) => (crowded ? headLines(name) : [name]));
      const lines = Math.max(1, ...heads.map((one) => one.length));
      const right = width - MARGIN.right, bottom = HEIGHT - (crowded ? 2 : 1) * MARGIN.bottom - (crowded ? 12 * (lines - 1) : 0);
      const log = spec.xLog ? Math.log : (v) => v;
      this.px = (x) => MARGIN.left + ((log(x) - log(x0)) / (log(x1) - log(x0))) * (right - MARGIN.left);
      this.py = (y) => bottom - ((y - y0) / (y1 - y0)) * (bottom - MARGIN.top);
      this.fromPx = (p) => {
        const part = (p - MARGIN.left) / (right - MARGIN.left);
        return spec.xLog ? Math.exp(log(x0) + part * (log(x1) - log(x0))) : x0 + part * (x1 - x0);
      };
      this.fromPy = (p) => y0 + ((bottom - p) / (bottom - MARGIN.top)) * (y1 - y0);
      this.frame = { right, bottom, width };

      const clip = `clip-${this.chart.key}-${this.chart.panels.indexOf(this)}`;
      const cut = element("clipPath", { id: clip }, element("defs", {}, svg));
      element("rect", { x: MARGIN.left, y: MARGIN.top, width: right - MARGIN.left, height: bottom - MARGIN.top }, cut);
      for (const tick of linearTicks(y0, y1, 5, false)) {
        element("line", { class: "grid", x1: MARGIN.left, x2: right, y1: this.py(tick), y2: this.py(tick) }, svg);
        const label = spec.percent ? Number((100 * tick).toPrecision(6)) + " %" : shown(tick, false);
        element("text", { x: MARGIN.left - 6, y: this.py(tick) + 4, "text-anchor": "end" }, svg, label);
      }
      const ticks = spec.categories.length ? spec.categories.map((_, k) => k)
        : spec.xLog ? (this.few() || logTicks(x0, x1)) : linearTicks(x0, x1, Math.min(6, width / 80), spec.integers);
      for (const tick of ticks) {
        if (tick < x0 || tick > x1) continue;
        element("line", { class: "axis", x1: this.px(tick), x2: this.px(tick), y1: bottom, y2: bottom + 4 }, svg);
        const [x, y] = [this.px(tick), bottom + 17];
        const text = element("text", crowded ? { x: x + 8, y, "text-anchor": "end", transform: `rotate(-35 ${x + 8} ${y})` } : { x, y, "text-anchor": "middle" }, svg);
        if (!spec.categories.length) { text.textContent = shown(tick, false); continue; }
        heads[tick].forEach((line, k) => element("tspan", k ? { x: x + 8, dy: 13 } : {}, text, line));
        element("title", {}, text, spec.categories[tick]);
      }
      element("line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }, svg);
      element("line", { class: "axis", x1: MARGIN.left, x2: MARGIN.left, y1: MARGIN.top, y2: bottom }, svg);
      element("text", { x: (MARGIN.left + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, svg, spec.xLabel);
      const middle = (MARGIN.top + bottom) / 2;
      element("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, svg, spec.yLabel);

      const ground = element("g", { class: "curves", "clip-path": `url(#${clip})` }, svg);
      for (const reference of spec.references) {
        const y = this.py(reference.y);
        element("line", { class: "reference", x1: MARGIN.left, x2: right, y1: y, y2: y }, ground);
        element("text", { x: right - 2, y: y - 3, "text-anchor": "end" }, ground, reference.name);
      }
      for (const s of this.visible()) this.drawSeries(s, ground);
      this.overlay = element("g", {}, svg);
      if (this.cursor !== null) this.point(this.cursor);
    }

    drawSeries(s, parent) {
      const colour = ink(s.colour);
      if (s.kind === "bars") return this.drawBars(s, colour, parent);
      const at = (column, k) => `${this.px(s.x[k]).toFixed(1)},${this.py(column[k]).toFixed(1)}`;
      const known = s.x.map((_, k) => k).filter((k) => s.x[k] !== null && s.y[k] !== null);
      const banded = s.low.length ? known.filter((k) => s.low[k] !== null && s.high[k] !== null) : [];
      if (banded.length && s.kind === "line") {
        const path = "M" + banded.map((k) => at(s.low, k)).join("L") + "L" + [...banded].reverse().map((k) => at(s.high, k)).join("L") + "Z";
        element("path", { d: path, fill: colour, opacity: 0.16 }, parent);
      } else for (const k of banded) element("path", { d: `M${at(s.low, k)}L${at(s.high, k)}`, stroke: colour, "stroke-width": 1.5 }, parent);
      if (s.kind === "line" && known.length > 1)
        element("path", { d: "M" + known.map((k) => at(s.y, k)).join("L"), fill: "none", stroke: colour, "stroke-width": 2, "stroke-linejoin": "round" }, parent);
      const every = s.kind === "line" ? Math.max(1, Math.floor(known.length / 8)) : 1;
      const group = element("g", s.kind === "line" ? {} : { opacity: 0.8 }, parent);
      known.forEach((k, n) => { if (n % every === 0) marker(s.marker, this.px(s.x[k]), this.py(s.y[k]), s.kind === "line" ? 3.6 : 3.4, colour, group); });
    }

    drawBars(s, colour, parent) {
      s.x.forEach((x, k) => {
        if (s.y[k] === null) return;
        const left = this.px(x - BAR / 2), width = this.px(x + BAR / 2) - left;
        const bar = (y, attributes) => element("rect", { x: left, width, y: this.py(y), height: Math.max(0, this.py(0) - this.py(y)), ...attributes }, parent);
        bar(s.y[k], { fill: colour, opacity: 0.55 });
        if (s.hatched && s.hatched.length && s.hatched[k] !== null) bar(s.hatched[k], { fill: colour, opacity: 0.65 });
        if (s.low.length && s.low[k] !== null) {
          const middle = this.px(x), [low, high] = [this.py(s.low[k]), this.py(s.high[k])];
          element("path", { d: `M${middle - 5},${low}h10M${middle},${low}V${high}M${middle - 5},${high}h10`, stroke: "currentColor", "stroke-width": 1.5, fill: "none" }, parent);
        }
      });
    }

    stops() {
      const [x0, x1] = this.domain;
      const xs = new Set();
      for (const s of this.visible()) s.x.forEach((x) => { if (x !== null && x >= x0 && x <= x1) xs.add(this.spec.categories.length ? Math.round(x) : x); });
      return [...xs].sort((a, b) => a - b);
    }

    point(x) {
      this.cursor = x;
      this.overlay.replaceChildren();
      const rows = [];
      for (const s of this.visible()) {
        const slack = this.spec.categories.length ? 0.5 : 1e-9 * Math.max(1, Math.abs(x));
        s.x.forEach((other, k) => {
          if (other === null || Math.abs(other - x) > slack || s.y[k] === null) return;
          rows.push([s, k]);
          element("circle", { cx: this.px(other), cy: this.py(s.y[k]), r: 4.5, fill: "none", stroke: ink(s.colour), "stroke-width": 2 }, this.overlay);
        });
      }
      const at = this.px(x);
      element("line", { class: "cursor", x1: at, x2: at, y1: MARGIN.top, y2: this.frame.bottom }, this.overlay);
      this.tip.replaceChildren();
      const name = this.spec.categories.length ? this.spec.categories[x] : shown(x, false);
      html("b", "", this.tip, `${this.spec.xLabel}: ${name}`);
      for (const [s, k] of rows.slice(0, 12)) {
        const row = html("div", "", this.tip);
        html("span", "swatch", row).style.background = ink(s.colour);
        const ends = s.low.length && s.low[k] !== null ? ` [${shown(s.low[k], this.spec.percent)}, ${shown(s.high[k], this.spec.percent)}]` : "";
        row.append(`${s.name}: ${shown(s.y[k], this.spec.percent)}${ends}`);
      }
      this.tip.hidden = rows.length === 0;
      const scale = this.svg.clientWidth / this.frame.width;
      const left = at * scale;
      const onRight = left + this.tip.offsetWidth + 16 < this.svg.clientWidth;
      this.tip.style.left = `${Math.max(0, onRight ? left + 10 : left - this.tip.offsetWidth - 10)}px`;
      this.tip.style.top = `${this.svg.offsetTop + 12}px`;
    }

    leave() { this.cursor = null; if (this.overlay) this.overlay.replaceChildren(); this.tip.hidden = true; }
    reset() { this.zoomed = null; this.leave(); this.render(); }

    scale(factor) {
      const [x0, x1, y0, y1] = this.domain;
      const log = this.spec.xLog ? Math.log : (v) => v, exp = this.spec.xLog ? Math.exp : (v) => v;
      const centre = this.cursor !== null ? log(this.cursor) : (log(x0) + log(x1)) / 2;
      this.zoomed = [exp(centre - (centre - log(x0)) * factor), exp(centre + (log(x1) - centre) * factor), y0, y1];
      this.render();
    }

    place(event) {
      const box = this.svg.getBoundingClientRect();
      const scale = this.frame.width / box.width;
      return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    }

    listen() {
      const { svg } = this;
      let start = null, box = null;
      const read = (px) => {
        const stops = this.stops();
        if (!stops.length || px < MARGIN.left - 10) return this.leave();
        this.point(stops.reduce((best, x) => (Math.abs(this.px(x) - px) < Math.abs(this.px(best) - px) ? x : best)));
      };
      svg.addEventListener("pointermove", (event) => {
        const [px, py] = this.place(event);
        if (start) {
          const [a, b] = start;
          if (!box) box = element("rect", { class: "box" }, this.overlay);
          for (const [key, value] of Object.entries({ x: Math.min(a, px), y: Math.min(b, py), width: Math.abs(px - a), height: Math.abs(py - b) })) box.setAttribute(key, value);
          return;
        }
        read(px);
      });
      svg.addEventListener("pointerdown", (event) => {
        if (event.pointerType !== "mouse") return read(this.place(event)[0]);
        if (event.button !== 0) return;
        start = this.place(event);
        this.leave();
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointerup", (event) => {
        if (!start) return;
        const [a, b] = start, [px, py] = this.place(event);
        start = null;
        if (box) { box.remove(); box = null; }
        if (Math.abs(px - a) < 8 || Math.abs(py - b) < 8) return;
        const xs = [this.fromPx(a), this.fromPx(px)].sort((p, q) => p - q), ys = [this.fromPy(b), this.fromPy(py)].sort((p, q) => p - q);
        this.zoomed = [...xs, ...ys];
        this.render();
      });
      // Touch: the values stay on the screen when the finger is lifted.
      svg.addEventListener("pointerleave", (event) => { if (!start && event.pointerType === "mouse") this.leave(); });
      svg.addEventListener("dblclick", () => this.reset());
      svg.addEventListener("blur", () => this.leave());
      svg.addEventListener("keydown", (event) => {
        const stops = this.stops();
        const here = stops.indexOf(this.cursor);
        const moves = { ArrowRight: here + 1, ArrowLeft: here < 0 ? stops.length - 1 : here - 1, Home: 0, End: stops.length - 1 };
        if (event.key in moves && stops.length) this.point(stops[Math.min(stops.length - 1, Math.max(0, moves[event.key]))]);
        else if (event.key === "+" || event.key === "=") this.scale(0.6);
        else if (event.key === "-") this.scale(1 / 0.6);
        else if (event.key === "0" || event.key === "Escape") this.reset();
        else return;
        event.preventDefault();
      });
    }
  }

  /* Draws a chart into a figure with `.legend` and `.panels`, in place of the one that is there. Names in `hidden` are
     switched off. */
  const build = (spec, figure = document.getElementById(spec.key), hidden = new Set()) => {
    const chart = { key: figure.id || spec.key, hidden, panels: [] };
    const names = new Map();
    for (const panel of spec.panels) for (const s of panel.series) if (!names.has(s.name)) names.set(s.name, s);
    const legend = figure.querySelector(".legend");
    const parent = figure.querySelector(".panels");
    observers.get(figure)?.disconnect();
    legend.replaceChildren();
    parent.replaceChildren();
    if (names.size > 1) for (const [name, s] of names) {
      const button = html("button", "", legend);
      button.type = "button";
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      const sample = element("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, button);
      if (s.kind === "line") element("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: ink(s.colour), "stroke-width": 2 }, sample);
      marker(s.marker, 13, 6, 4, ink(s.colour), sample);
      button.append(name);
      button.addEventListener("click", () => {
        const off = !chart.hidden.has(name);
        off ? chart.hidden.add(name) : chart.hidden.delete(name);
        button.setAttribute("aria-pressed", String(!off));
        chart.panels.forEach((panel) => { panel.leave(); panel.render(); });
      });
    }
    for (const panel of spec.panels) chart.panels.push(new Panel(panel, chart, parent, spec.title));
    const draw = () => chart.panels.forEach((panel) => panel.render());
    // A figure in a fold has no width until the fold opens.
    let width = 0;
    const fit = () => { if (parent.clientWidth && parent.clientWidth !== width) { width = parent.clientWidth; draw(); } };
    draw();
    fit();
    const observer = new ResizeObserver(fit);
    observer.observe(parent);
    observers.set(figure, observer);
    return draw;
  };

  return { build, element, html, ink, marker, shown };
})();
