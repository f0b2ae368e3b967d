"use strict";
/* The planner: one or two settings, each with its knobs, its cell and its plan. The address holds the settings. */
(async () => {
  const { html, build } = qccfCharts;
  const FIRST_SEEDS = 2; /* shown first; the other cells follow */
  const START_ROUNDS = 30;
  const REMARKS = 2; /* shown at once; the others are folded */
  const POSITIONS = "cell.positions_m";
  const PROFILE = "devices.profile";
  const MIX = "devices.mix";
  const FIRST_MIX = { "pixel-2": 1, "raspberry-pi-4": 1 };
  const byId = (id) => document.getElementById(id);

  const offered = await qccf.json("/v1/options");
  const fresh = (preset = "femnist") => ({ preset, settings: { "federation.rounds": Math.min(START_ROUNDS, offered.presets[preset]["federation.rounds"]) }, policies: offered.default_policies, codecs: [], seeds: 6 });

  /* A setting from the address; what it does not know is refused by the service with a sentence. */
  const read = (text) => {
    try {
      const given = JSON.parse(text);
      const preset = given.preset in offered.presets ? given.preset : "femnist";
      const names = (list, known) => (Array.isArray(list) ? list.filter((one) => known.includes(one)) : null);
      return {
        preset,
        settings: given.settings && typeof given.settings === "object" ? { ...given.settings } : fresh(preset).settings,
        policies: names(given.policies, offered.policies) || offered.default_policies,
        codecs: names(given.codecs, offered.codecs) || [],
        seeds: Math.min(50, Math.max(1, Math.round(Number(given.seeds)) || 6)),
      };
    } catch {
      return null;
    }
  };
  const address = new URLSearchParams(location.hash.slice(1));
  const scenes = { a: null, b: null };
  let edited = "a";

  class Scene {
    constructor(name, setting) {
      this.name = name;
      this.setting = setting;
      this.hidden = new Set();
      this.cell = null;
      this.plan = null;
      this.abort = null;
      const root = (this.root = html("article", "scene-view", byId("scenes")));
      this.title = html("h2", "", root, `Setting ${name.toUpperCase()}`);
      this.status = html("p", "status", root);
      this.status.setAttribute("role", "status");
      this.refused = html("p", "refused", root);
      this.refused.setAttribute("role", "alert");
      this.refused.hidden = true;
      const upper = html("div", "upper", root);
      const left = html("div", "", upper);
      this.map = new qccfMap.CellMap(left, "The cell from above", { onMove: (positions) => this.change(POSITIONS, positions), onPoint: (k) => this.describe(k) });
      this.info = html("p", "client-info", left);
      this.info.setAttribute("aria-live", "polite");
      this.redraw = html("button", "", left, "Draw positions again");
      this.redraw.type = "button";
      this.redraw.addEventListener("click", () => this.change(POSITIONS, undefined));
      const right = html("div", "", upper);
      this.table = html("div", "wide", right);
      this.never = html("div", "", right);
      this.health = html("div", "", right);
      this.figure = html("figure", "chart", root);
      this.figure.id = `plan-${name}`;
      html("div", "legend", this.figure).setAttribute("role", "group");
      html("div", "panels", this.figure);
      this.caption = html("figcaption", "", this.figure);
    }

    get body() {
      const { preset, settings, policies, codecs, seeds } = this.setting;
      return { preset, settings, policies, ...(codecs.length ? { codecs } : {}), seeds };
    }

    value(path) { return path in this.setting.settings ? this.setting.settings[path] : offered.presets[this.setting.preset][path]; }

    /* The shares of profiles; none where all clients have one profile. */
    get mix() { return this.setting.settings[MIX] || (PROFILE in this.setting.settings ? {} : offered.presets[this.setting.preset][MIX]); }

    get isPaper() { return !Object.keys(this.mix).length && this.value(PROFILE) === "paper"; }

    /* One profile or a mix takes the place of the other, and of the figures of the paper's device. */
    changeDevices(profile, mix) {
      const settings = { ...this.setting.settings };
      for (const path of [PROFILE, MIX, ...(profile === "paper" ? [] : papers)]) delete settings[path];
      if (mix) settings[MIX] = mix;
      else if (profile) settings[PROFILE] = profile;
      this.setting = { ...this.setting, settings };
      update(this);
    }

    change(path, value) {
      const settings = { ...this.setting.settings };
      if (value === undefined || (path !== POSITIONS && value === offered.presets[this.setting.preset][path])) delete settings[path];
      else settings[path] = value;
      if (path === "federation.num_clients") delete settings[POSITIONS];
      if (path === "cell.radius_m" && settings[POSITIONS]) delete settings[POSITIONS];
      this.setting = { ...this.setting, settings };
      update(this);
    }

    /* The cell at once, the plan of few cells soon, the plan of all cells when it is ready. */
    async refresh() {
      this.abort?.abort();
      const abort = (this.abort = new AbortController());
      const { signal } = abort;
      try {
        if (!this.setting.policies.length) throw new qccf.Refused(422, "Choose at least one policy.");
        this.root.setAttribute("aria-busy", "true");
        const { preset, settings, seeds, codecs } = this.body;
        this.say("Planning …");
        const coded = codecs ? { ...settings, "codec.name": codecs[0] } : settings;
        const cell = await qccf.json("/v1/cell", { body: { preset, settings: coded }, signal });
        this.cell = cell;
        this.showCell();
        const wanted = [...new Set([Math.min(FIRST_SEEDS, seeds), seeds])];
        for (const count of wanted) {
          this.plan = await this.planned({ ...this.body, seeds: count }, signal);
          this.refused.hidden = true;
          this.show(count);
        }
        this.root.setAttribute("aria-busy", "false");
      } catch (error) {
        if (error.name === "AbortError") return;
        this.say("");
        this.refused.textContent = error.message;
        this.refused.hidden = false;
        this.plan = null;
        this.table.replaceChildren();
        this.health.replaceChildren();
        this.figure.hidden = true;
        if (this.cell) this.showCell();
        this.root.setAttribute("aria-busy", "false");
        if (!(error instanceof qccf.Refused)) throw error;
      }
    }

    async planned(body, signal) {
      let result = null;
      await qccf.events("/v1/plan", { body, signal }, (name, data) => {
        if (name === "progress") this.say(`Planning ${body.seeds} ${body.seeds === 1 ? "cell" : "cells"}`, data.done / data.total);
        if (name === "error") throw new qccf.Refused(422, data.detail);
        if (name === "result") result = data;
      });
      if (!result) throw new qccf.Refused(0, "The plan ended without a result.");
      return result;
    }

    say(text, share = null) {
      this.status.textContent = text;
      if (share === null) return;
      const bar = html("progress", "", this.status);
      bar.value = share;
      bar.before(" ");
    }

    show(count) {
      const { plan } = this;
      this.say(`${count} random ${count === 1 ? "cell" : "cells"}, ${this.value("federation.rounds")} rounds` + (count < this.setting.seeds ? "; more cells follow" : "") + (count > 1 ? "; ± is the 95 % interval of the mean over cells." : "."));
      this.figure.hidden = false;
      drawFigures();
      this.caption.textContent = count > 1 ? "Lines are means over cells, bands their 95 % intervals. The lower part of a bar is computing." : "One cell, so there are no intervals. The lower part of a bar is computing.";
      this.showTable(plan.rows);
      this.health.replaceChildren();
      const list = html("ul", "remarks", this.health);
      for (const sentence of plan.health.slice(0, REMARKS)) html("li", "", list, sentence);
      if (plan.health.length > REMARKS) {
        const fold = html("details", "small", this.health);
        html("summary", "", fold, `${plan.health.length - REMARKS} more remarks about these decisions`);
        const rest = html("ul", "remarks", fold);
        for (const sentence of plan.health.slice(REMARKS)) html("li", "", rest, sentence);
      }
      this.showCell();
    }

    /* With the axes of the other setting, so that both can be compared. */
    draw(other) {
      const beside = (panel) => other?.plan?.chart.panels.find((one) => one.title === panel.title);
      const panels = this.plan.chart.panels.map((panel) => {
        const twin = beside(panel);
        const yRange = panel.yRange && twin?.yRange ? [Math.min(panel.yRange[0], twin.yRange[0]), Math.max(panel.yRange[1], twin.yRange[1])] : panel.yRange;
        return { ...panel, yRange, beside: twin?.series || [] };
      });
      build({ ...this.plan.chart, panels }, this.figure, this.hidden);
    }

    showTable(rows) {
      const heads = ["Policy", "Energy", "Per upload", "Bits", "Partici\u00adpation", "Latency", "Late"];
      const table = html("table", "results-table");
      const head = html("tr", "", html("thead", "", table));
      heads.forEach((text, k) => { html("th", k ? "number" : "", head, text).scope = "col"; });
      const tbody = html("tbody", "", table);
      const least = Math.min(...rows.map((row) => row.energy_j.mean ?? Infinity));
      for (const row of rows) {
        const line = html("tr", "", tbody);
        const name = html("th", "", line);
        name.scope = "row";
        html("span", "swatch", name).style.background = qccfCharts.ink(row.colour);
        name.append(row.label);
        const cells = [
          this.number(row.energy_j, "J"), this.number(row.upload_j, "J"), this.number(row.bits, ""),
          this.number(row.participation, "%"), this.number(row.latency_s, "s"), this.number(row.missed, "%"),
        ];
        cells.forEach((cell, k) => {
          cell.dataset.head = heads[k + 1];
          line.appendChild(cell);
        });
        if (row.energy_j.mean === least) cells[0].style.fontWeight = 600;
      }
      this.table.replaceChildren(table);
    }

    number({ mean, half }, unit) {
      const cell = html("td", "number");
      if (mean === null) { cell.textContent = "–"; return cell; }
      const [size, prefix] = unit === "%" ? [0.01, ""] : unit ? qccf.prefixOf(mean) : [1, ""];
      cell.textContent = qccf.digits(mean / size) + (unit ? ` ${prefix}${unit}` : "");
      const known = half > 1e-9 * Math.abs(mean) ? half : 0; /* less is rounding */
      if (half !== null) html("span", "half", cell, ` ± ${Number((known / size).toPrecision(2))}`);
      return cell;
    }

    /* The bits of the first policy in the first cell colour the clients. */
    showCell() {
      const first = this.plan?.clients[0];
      const fits = first && first.bits.length === this.cell.positions_m.length;
      const never = this.cell.never.map((one) => one.client);
      this.map.draw(this.cell, { bits: fits ? first.bits : [], never });
      this.redraw.hidden = !(POSITIONS in this.setting.settings);
      this.info.textContent = (fits ? `The first cell; darker clients upload with more bits (${first.label}). ` : "") + "Drag a client, or move it with the arrow keys.";
      this.never.replaceChildren();
      if (!never.length) return;
      html("p", "small", this.never, `${never.length} of ${this.cell.positions_m.length} clients can never upload in the first cell:`);
      const list = html("ul", "never-list", this.never);
      for (const { client, why } of this.cell.never.slice(0, 8)) html("li", "", list, `Client ${client}: ${why}`);
      if (never.length > 8) html("li", "", list, `and ${never.length - 8} more.`);
    }

    describe(k) {
      const { cell, plan } = this;
      const parts = [
        `Client ${k}: ${Math.round(Math.hypot(...cell.positions_m[k]))} m, ${Math.round(cell.dataset_sizes[k])} samples`,
        `mean rate ${qccf.quantity(cell.mean_rates_bps[k], "b/s")} at its last place`,
      ];
      for (const one of plan?.clients.slice(0, 2) || []) if (one.bits[k] !== null && k < one.bits.length) parts.push(`${one.label}: ${qccf.digits(one.bits[k])} bits, ${one.uploads[k]} uploads`);
      const why = cell.never.find((one) => one.client === k)?.why;
      this.info.textContent = parts.join("; ") + (why ? `. It can never upload: ${why}` : ".");
    }

    /* The same plan on the command line. */
    get command() {
      const { preset, settings, policies, codecs, seeds } = this.setting;
      const quoted = (text) => (/^[\w.,:=+/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
      const parts = ["qccf plan", preset, `--seeds ${seeds}`, `--policy ${policies.join(",")}`];
      if (codecs.length) parts.push(`--codec ${quoted(codecs.join(","))}`);
      const toml = (value) => (typeof value === "string" ? value : Array.isArray(value) || typeof value !== "object" ? JSON.stringify(value) : `{${Object.entries(value).map(([name, one]) => `${name} = ${one}`).join(", ")}}`);
      for (const [path, value] of Object.entries(settings)) parts.push(`--set ${quoted(`${path}=${toml(value)}`)}`);
      return parts.join(" ");
    }
  }

  /* Controls */

  const drawFigures = () => {
    const { a, b } = scenes;
    for (const [scene, other] of [[a, b], [b, a]]) if (scene?.plan && !scene.figure.hidden) scene.draw(other);
  };

  const knobs = new Map();
  const current = () => scenes[edited];

  const papers = offered.knobs.filter((knob) => knob.paper).map((knob) => knob.path);

  /* A profile for all clients, or "mix" and a share for each profile. */
  const addShares = (names, select, parent) => {
    html("option", "", select, "mix").value = MIX;
    const part = html("div", "shares", parent);
    part.setAttribute("role", "group");
    part.setAttribute("aria-label", "Shares of devices");
    const fields = new Map();
    for (const name of names) {
      const row = html("div", "knob", part);
      const label = html("label", "", row, name);
      const field = html("input", "", html("span", "value", row));
      label.htmlFor = field.id = `share-${name}`;
      Object.assign(field, { type: "number", min: 0, step: "any" });
      fields.set(name, field);
      field.addEventListener("change", () => {
        const shares = [...fields].map(([one, { value }]) => [one, Number(value)]).filter(([, share]) => share > 0);
        if (shares.length) current().changeDevices(null, Object.fromEntries(shares));
        else showControls();
      });
    }
    select.addEventListener("change", () => {
      const scene = current();
      if (select.value !== MIX) scene.changeDevices(select.value, null);
      else scene.changeDevices(null, Object.keys(offered.presets[scene.setting.preset][MIX]).length ? null : FIRST_MIX);
    });
    return () => {
      const { mix } = current();
      const mixed = Object.keys(mix).length > 0;
      if (mixed) select.value = MIX;
      part.hidden = !mixed;
      for (const [name, field] of fields) field.value = mix[name] || 0;
    };
  };

  const addKnob = (knob, parent) => {
    const root = html("div", "knob", parent);
    const label = html("label", "", root, knob.label);
    const id = (label.htmlFor = `knob-${knob.path}`);
    root.title = knob.about;
    const holder = html("span", "value", root);
    if (knob.choices.length) {
      const select = html("select", "", holder);
      select.id = id;
      for (const name of knob.choices) html("option", "", select, name).value = name;
      if (knob.path === PROFILE) {
        const showShares = addShares(knob.choices, select, parent);
        knobs.set(knob.path, { root, show: (value) => { select.value = value; showShares(); } });
        return;
      }
      const asBoolean = knob.choices.includes("true");
      select.addEventListener("change", () => current().change(knob.path, asBoolean ? select.value === "true" : select.value));
      knobs.set(knob.path, { root, show: (value) => { select.value = String(value); } });
      return;
    }
    const field = html("input", "", holder);
    field.type = "number";
    field.id = id;
    field.step = "any";
    html("span", "unit", holder, knob.unit);
    const slider = html("input", "", root);
    slider.type = "range";
    slider.min = 0;
    slider.max = 1000;
    slider.setAttribute("aria-label", `${knob.label}${knob.unit ? ` in ${knob.unit}` : ""}`);
    const [low, high] = knob.log ? [Math.log(knob.low), Math.log(knob.high)] : [knob.low, knob.high];
    const tidy = (shown) => (knob.whole ? Math.round(shown) : Number(shown.toPrecision(3)));
    const fromSlider = () => { const at = low + (slider.value / 1000) * (high - low); return tidy(knob.log ? Math.exp(at) : at); };
    const store = (shown) => current().change(knob.path, knob.whole ? Math.round(shown * knob.scale) : Number((shown * knob.scale).toPrecision(12)));
    const move = (shown) => { slider.value = 1000 * (((knob.log ? Math.log(Math.max(shown, 1e-12)) : shown) - low) / (high - low)); };
    slider.addEventListener("input", () => { field.value = fromSlider(); slider.setAttribute("aria-valuetext", `${field.value} ${knob.unit}`); });
    slider.addEventListener("change", () => store(fromSlider()));
    /* One step of the slider may be less than one client or one digit: an arrow key goes to the next value that differs. */
    slider.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const before = tidy(Number(field.value));
      for (let at = Number(slider.value) + step; at >= 0 && at <= 1000; at += step) {
        slider.value = at;
        if (step * (fromSlider() - before) > 0) { store(fromSlider()); return; }
      }
      move(before);
    });
    field.addEventListener("change", () => { if (field.value !== "" && Number.isFinite(Number(field.value))) store(Number(field.value)); else showControls(); });
    knobs.set(knob.path, { root, show: (value) => {
      field.placeholder = typeof value === "string" ? value : "";
      if (typeof value === "string") { field.value = ""; slider.value = 0; slider.setAttribute("aria-valuetext", value); return; }
      const shown = Number((value / knob.scale).toPrecision(7));
      field.value = shown;
      move(shown);
      slider.setAttribute("aria-valuetext", `${shown} ${knob.unit}`);
    } });
  };
  const addNames = (parent, names, key) => {
    for (const name of names) {
      const label = html("label", "", parent);
      const box = html("input", "", label);
      box.type = "checkbox";
      box.value = name;
      label.append(` ${name}`);
      box.addEventListener("change", () => {
        const scene = current();
        const chosen = [...parent.querySelectorAll("input:checked")].map((one) => one.value);
        scene.setting = { ...scene.setting, [key]: chosen };
        scene.hidden.clear();
        update(scene);
      });
    }
  };
  const showControls = () => {
    const scene = current();
    byId("preset").value = scene.setting.preset;
    byId("seeds").value = scene.setting.seeds;
    for (const [path, { root, show }] of knobs) {
      show(scene.value(path));
      root.hidden = papers.includes(path) && !scene.isPaper;
      root.classList.toggle("changed", path in scene.setting.settings || (path === PROFILE && MIX in scene.setting.settings));
    }
    for (const [id, chosen] of [["policies", scene.setting.policies], ["codecs", scene.setting.codecs.length ? scene.setting.codecs : [scene.value("codec.name")]]])
      for (const box of byId(id).querySelectorAll("input")) box.checked = chosen.includes(box.value);
    byId("edit-a").setAttribute("aria-pressed", String(edited === "a"));
    byId("edit-b").setAttribute("aria-pressed", String(edited === "b"));
    byId("edit-b").textContent = scenes.b ? "Setting B" : "Add setting B";
    byId("drop-b").hidden = !scenes.b;
    byId("scenes").classList.toggle("two", Boolean(scenes.b));
    for (const one of Object.values(scenes)) if (one) {
      one.root.classList.toggle("edited", one === scene);
      one.title.hidden = !scenes.b;
    }
  };
  const writeAddress = () => {
    const parts = new URLSearchParams();
    for (const [name, scene] of Object.entries(scenes)) if (scene) parts.set(name, JSON.stringify(scene.setting));
    history.replaceState(null, "", `#${parts}`);
  };
  const update = (scene) => {
    writeAddress();
    showControls();
    scene.refresh();
  };

  for (const name of Object.keys(offered.presets)) html("option", "", byId("preset"), name).value = name;
  byId("preset").addEventListener("change", (event) => {
    const scene = current();
    scene.setting = { ...fresh(event.target.value), policies: scene.setting.policies, codecs: scene.setting.codecs, seeds: scene.setting.seeds };
    update(scene);
  });
  for (const group of new Set(offered.knobs.map((knob) => knob.group))) {
    const part = html("details", "group", byId("knobs"));
    html("summary", "", part, group);
    for (const knob of offered.knobs) if (knob.group === group) addKnob(knob, part);
  }
  /* On a phone the groups are folded, so that the results are near. */
  const wide = matchMedia("(min-width: 60rem)").matches;
  for (const group of document.querySelectorAll(".group")) group.open = wide;
  addNames(byId("policies"), offered.policies, "policies");
  addNames(byId("codecs"), offered.codecs, "codecs");
  byId("seeds").addEventListener("change", (event) => {
    const scene = current();
    scene.setting = { ...scene.setting, seeds: Math.min(50, Math.max(1, Math.round(Number(event.target.value)) || 1)) };
    update(scene);
  });
  byId("edit-a").addEventListener("click", () => { edited = "a"; showControls(); });
  byId("edit-b").addEventListener("click", () => {
    edited = "b";
    if (scenes.b) { showControls(); return; }
    scenes.b = new Scene("b", structuredClone(scenes.a.setting));
    update(scenes.b);
  });
  byId("drop-b").addEventListener("click", () => {
    scenes.b.abort?.abort();
    scenes.b.root.remove();
    scenes.b = null;
    edited = "a";
    writeAddress();
    showControls();
    drawFigures();
  });
  byId("reset").addEventListener("click", () => {
    const scene = current();
    scene.setting = fresh(scene.setting.preset);
    scene.hidden.clear();
    update(scene);
  });
  byId("copy-link").addEventListener("click", () => qccf.copy(location.href, "Link"));
  byId("copy-command").addEventListener("click", () => qccf.copy(current().command, "Command"));
  byId("save-toml").addEventListener("click", async () => {
    try {
      const answer = await qccf.request("/v1/settings", { body: current().body, accept: "application/toml" });
      qccf.save(await answer.blob(), "qccf-plan.toml");
    } catch (error) {
      qccf.toast(error.message);
    }
  });
  byId("save-figure").addEventListener("click", () => {
    const scene = current();
    if (!scene.plan) { qccf.toast("There is no plan to draw."); return; }
    qccf.save(qccf.figureFile(scene.figure, scene.command), "qccf-plan.svg");
  });

  scenes.a = new Scene("a", read(address.get("a")) || fresh());
  if (address.get("b")) {
    const second = read(address.get("b"));
    if (second) scenes.b = new Scene("b", second);
  }
  showControls();
  for (const scene of Object.values(scenes)) scene?.refresh();
  /* A shared link that is followed in the same tab; any other target is a place on this page. */
  window.addEventListener("hashchange", () => {
    if (new URLSearchParams(location.hash.slice(1)).get("a")) { location.reload(); return; }
    writeAddress();
    byId("results").focus();
  });
})();
