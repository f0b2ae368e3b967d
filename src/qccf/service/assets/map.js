"use strict";
/* The cell from above: clients at their places. They can be dragged with mouse, finger or arrow keys if `onMove` is given. */
const qccfMap = (() => {
  const { element } = qccfCharts;
  const SIZE = 380, EDGE = 22;
  const STEP_M = 10;

  /* Light to dark: few to many bits. */
  const SCALE = ["#8ab8d8", "#5b9bc8", "#3a80b5", "#20659b", "#0c4a7c", "#062f54"];
  const shade = (value, low, high) => SCALE[Math.min(SCALE.length - 1, Math.max(0, Math.floor(((value - low) / (high - low || 1)) * SCALE.length)))];

  class CellMap {
    constructor(parent, label, { onMove = null, onPoint = () => {} } = {}) {
      this.svg = element("svg", { class: onMove ? "map" : "map fixed", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": label }, parent);
      this.onMove = onMove;
      this.onPoint = onPoint;
      this.cell = null;
      this.held = false;
      this.waiting = null;
    }

    get scale() { return (SIZE / 2 - EDGE) / this.cell.radius_m; }
    place([x, y]) { return [SIZE / 2 + x * this.scale, SIZE / 2 - y * this.scale]; }

    /* The nearest place inside the ring, in decimetres. */
    clamp([x, y]) {
      const far = Math.hypot(x, y) || 1e-9;
      const low = this.cell.distance_min_m + 0.2, high = this.cell.radius_m - 0.2;
      const factor = Math.min(Math.max(far, low), high) / far;
      const round = (value) => Number((value * factor).toFixed(1));
      return far === 1e-9 ? [low, 0] : [round(x), round(y)];
    }

    /* `cell` as the service answers; `values` are the bits of each client, `never` those that cannot upload. */
    draw(cell, { bits = [], never = [], away = [] } = {}) {
      if (this.held) { this.waiting = [cell, { bits, never, away }]; return; } /* not under somebody's hand */
      const focused = this.svg.contains(document.activeElement) ? document.activeElement.dataset.client : null;
      this.cell = cell;
      this.svg.replaceChildren();
      const middle = SIZE / 2;
      element("circle", { class: "ring", cx: middle, cy: middle, r: cell.radius_m * this.scale }, this.svg);
      for (const part of [1 / 3, 2 / 3]) element("circle", { class: "inner", cx: middle, cy: middle, r: cell.radius_m * part * this.scale }, this.svg);
      element("path", { class: "base", d: `M${middle},${middle - 9}l6,15h-12z` }, this.svg);
      element("text", { class: "mark", x: middle, y: SIZE - 6, "text-anchor": "middle" }, this.svg, `radius ${Number(cell.radius_m.toPrecision(4))} m`);
      const known = bits.filter((one) => one !== null && one !== undefined);
      const [low, high] = [Math.min(...known), Math.max(...known)];
      const largest = Math.max(...cell.dataset_sizes);
      const shrink = cell.positions_m.length > 40 ? 0.6 : 1;
      cell.positions_m.forEach((position, k) => {
        const [x, y] = this.place(position);
        const group = element("g", { class: away[k] ? "client away" : "client", transform: `translate(${x},${y})`, "data-client": k }, this.svg);
        const radius = shrink * (6 + 7 * Math.sqrt(cell.dataset_sizes[k] / largest));
        const value = bits[k];
        element("circle", { r: radius, fill: never.includes(k) ? "#7f7f7f" : value === null || value === undefined ? "#7f7f7f" : shade(value, low, high) }, group);
        if (shrink === 1) element("text", {}, group, String(k));
        if (never.includes(k)) element("path", { class: "never", d: `M${-radius},${-radius}L${radius},${radius}M${-radius},${radius}L${radius},${-radius}` }, group);
        this.listen(group, k);
        if (focused === String(k)) group.focus();
      });
    }

    listen(group, k) {
      const describe = () => this.onPoint(k);
      group.setAttribute("tabindex", "0");
      group.setAttribute("role", "img");
      group.setAttribute("aria-label", `Client ${k}, ${Math.round(Math.hypot(...this.cell.positions_m[k]))} m from the base station` + (this.onMove ? ". Arrow keys move it." : ""));
      group.addEventListener("focus", describe);
      group.addEventListener("pointerenter", describe);
      if (!this.onMove) return;
      const at = (event) => {
        const box = this.svg.getBoundingClientRect(), unit = SIZE / box.width;
        return [((event.clientX - box.left) * unit - SIZE / 2) / this.scale, (SIZE / 2 - (event.clientY - box.top) * unit) / this.scale];
      };
      let moved = false;
      const put = (position) => {
        this.cell.positions_m[k] = this.clamp(position);
        const [x, y] = this.place(this.cell.positions_m[k]);
        group.setAttribute("transform", `translate(${x},${y})`);
        moved = true;
        describe();
      };
      const release = () => {
        if (!this.held) return;
        this.held = false;
        group.classList.remove("dragged");
        if (moved) this.onMove(this.cell.positions_m.map((one) => this.clamp(one)));
        else if (this.waiting) this.draw(...this.waiting);
        this.waiting = null;
        moved = false;
      };
      group.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        this.held = true;
        moved = false;
        group.classList.add("dragged");
        group.setPointerCapture(event.pointerId);
        event.preventDefault();
        group.focus();
      });
      group.addEventListener("pointermove", (event) => { if (this.held) put(at(event)); });
      group.addEventListener("pointerup", release);
      group.addEventListener("pointercancel", release);
      const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      group.addEventListener("keydown", (event) => {
        if (!(event.key in steps)) return;
        event.preventDefault();
        const size = event.shiftKey ? STEP_M / 10 : STEP_M;
        const [x, y] = this.cell.positions_m[k];
        put([x + size * steps[event.key][0], y + size * steps[event.key][1]]);
        this.onMove(this.cell.positions_m.map((one) => this.clamp(one)));
      });
    }
  }

  return { CellMap };
})();
