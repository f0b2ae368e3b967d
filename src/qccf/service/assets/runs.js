"use strict";
/* The runs: a list, one run live, or several beside each other. The address names the chosen runs. */
(() => {
  const { html, element, build } = qccfCharts;
  const byId = (id) => document.getElementById(id);
  const LIST_S = 5;
  const RETRY_S = 3;
  let stop = null; /* ends what the last address started */

  const spark = (values, parent, label) => {
    const known = values.map((value, k) => [k, value]).filter(([, value]) => value !== null);
    const svg = element("svg", { class: "spark", viewBox: "0 0 112 29", role: "img", "aria-label": label }, parent);
    if (known.length < 2) return;
    const ys = known.map(([, value]) => value), low = Math.min(...ys), high = Math.max(...ys);
    const at = ([k, value]) => `${(2 + (108 * k) / (values.length - 1)).toFixed(1)},${(26 - (23 * (value - low)) / (high - low || 1)).toFixed(1)}`;
    element("path", { d: `M${known.map(at).join("L")}` }, svg);
  };
  const refuse = (error) => {
    if (error.name === "AbortError") return;
    byId("refused").textContent = error.message;
    byId("refused").hidden = false;
  };
  /* Tries again while the service does not answer, as when it is started anew. What it refuses is final. */
  const patiently = async (signal, act) => {
    for (;;) {
      try {
        const done = await act();
        byId("refused").hidden = true;
        return done;
      } catch (error) {
        if (error.name === "AbortError" || (error.status && error.status < 500)) throw error;
        refuse(error instanceof qccf.Refused ? error : new Error("The connection to the service was lost; trying again."));
        await qccf.pause(RETRY_S, signal);
        signal.throwIfAborted();
      }
    }
  };
  const progress = (run) => `${run.rounds} of ${run.planned_rounds}`;

  const HEADS = ["", "Run", "Status", "Rounds", "Accuracy", "Energy", "Bits", "Late", "Course"];
  const showList = (runs, chosen) => {
    const root = byId("list");
    root.replaceChildren();
    html("h1", "", root, "Runs");
    if (!runs.length) {
      html("p", "", root, "There are no runs below this folder yet. Start one: qccf run quick");
      return;
    }
    const compare = html("button", "", html("p", "actions", root), "Compare");
    compare.type = "button";
    const ready = () => { compare.disabled = chosen.size < 2; compare.textContent = chosen.size > 1 ? `Compare ${chosen.size} runs` : "Compare: choose two or more"; };
    compare.addEventListener("click", () => { location.hash = `run=${[...chosen].join(",")}`; });
    const table = html("table", "run-list", html("div", "wide", root));
    const head = html("tr", "", html("thead", "", table));
    for (const text of HEADS) html("th", "", head, text).scope = "col";
    const body = html("tbody", "", table);
    for (const run of runs) {
      const line = html("tr", "", body);
      line.dataset.run = run.id;
      const box = html("input", "", html("td", "", line));
      box.type = "checkbox";
      box.setAttribute("aria-label", `Compare ${run.name}`);
      box.disabled = run.rounds === undefined;
      box.checked = chosen.has(run.id);
      box.addEventListener("change", () => { box.checked ? chosen.add(run.id) : chosen.delete(run.id); ready(); });
      const name = html("th", "", line);
      name.scope = "row";
      if (run.rounds === undefined) name.append(run.name);
      else html("a", "", name, run.name).href = `#run=${run.id}`;
      const cell = (k, text) => { const made = html("td", "", line, text); made.dataset.head = HEADS[k]; return made; };
      html("span", `badge ${run.status}`, cell(2), run.status);
      if (run.rounds === undefined) { const why = cell(3, run.detail); why.colSpan = 6; why.className = "detail"; delete why.dataset.head; continue; }
      cell(3, progress(run) + (run.eta_s !== null ? `, ${qccf.duration(run.eta_s)} left` : ""));
      cell(4, run.kind === "plan" ? "planned" : qccf.percent(run.test_accuracy));
      cell(5, qccf.quantity(run.energy_j, "J"));
      cell(6, run.mean_bits === null ? "–" : qccf.digits(run.mean_bits));
      cell(7, qccf.percent(run.missed));
      spark(run.spark.main, cell(8), run.kind === "plan" ? "bits over rounds" : "accuracy over rounds");
    }
    ready();
  };

  const listPage = async (signal) => {
    byId("list").hidden = false;
    byId("detail").hidden = true;
    const chosen = new Set();
    let last = "";
    while (!signal.aborted) {
      const runs = await patiently(signal, () => qccf.json("/v1/runs", { signal }));
      const text = JSON.stringify(runs);
      if (text !== last) keepingFocus(() => showList(runs, chosen));
      last = text;
      await qccf.pause(LIST_S, signal);
    }
  };
  /* The element that has the focus is made anew with the list. */
  const keepingFocus = (draw) => {
    const focused = byId("list").contains(document.activeElement) ? document.activeElement : null;
    const row = focused?.closest("tr")?.dataset.run;
    draw();
    const place = row ? `tr[data-run="${row}"]` : ".actions";
    if (focused) byId("list").querySelector(`${place} ${focused.localName}`)?.focus({ preventScroll: true });
  };

  const query = (names) => names.map((name) => `run=${encodeURIComponent(name)}`).join("&");
  const frame = (root) => {
    const figure = html("figure", "chart", root);
    figure.id = "run-figure";
    html("div", "legend", figure).setAttribute("role", "group");
    html("div", "panels", figure);
    return figure;
  };
  const backLink = (root) => { html("a", "button", html("p", "actions", root), "← All runs").href = "#"; };
  const openReport = async (names) => {
    qccf.toast("The report is being made …");
    try {
      const answer = await qccf.request(`/v1/report?${query(names)}`, { accept: "text/html" });
      qccf.save(await answer.blob(), "report.html");
    } catch (error) {
      qccf.toast(error.message);
    }
  };
  const reportButton = (parent, names) => {
    const button = html("button", "", parent, "Report");
    button.type = "button";
    /* A page of its own without a token; a link cannot carry one, so that with a token the report is saved as a file. */
    button.addEventListener("click", () => (sessionStorage.getItem("qccf-token") ? openReport(names) : window.open(`/v1/report?${query(names)}`, "_blank", "noopener")));
  };

  const tiles = (root, run) => {
    const facts = {
      Status: run.status,
      Rounds: progress(run),
      "Time left": run.status === "running" ? qccf.duration(run.eta_s) : "–",
      Accuracy: run.kind === "plan" ? "planned" : qccf.percent(run.test_accuracy),
      Energy: qccf.quantity(run.energy_j, "J"),
      "Bits per parameter": run.mean_bits === null ? "–" : qccf.digits(run.mean_bits),
      "Late uploads": qccf.percent(run.missed),
      "Seconds per round": run.seconds_per_round === null ? "–" : qccf.digits(run.seconds_per_round),
    };
    root.replaceChildren();
    for (const [name, value] of Object.entries(facts)) {
      const tile = html("div", "", root);
      html("dt", "", tile, name);
      html("dd", "", tile, value);
    }
  };

  const onePage = async (name, signal) => {
    const root = byId("detail");
    const load = () => Promise.all([qccf.json(`/v1/runs/${encodeURIComponent(name)}`, { signal }), qccf.json(`/v1/charts?${query([name])}`, { signal })]);
    const [run, firstChart] = await patiently(signal, load);
    root.replaceChildren();
    root.className = "run-view";
    backLink(root);
    html("h1", "", root, run.name);
    html("p", "small", root, `Policy ${run.policy}, codec ${run.codec}, seed ${run.seed}.`);
    const actions = html("p", "actions", root);
    reportButton(actions, [name]);
    const figureButton = html("button", "", actions, "Download figure");
    figureButton.type = "button";
    for (const table of ["rounds", "clients"]) {
      const button = html("button", "", actions, `${table}.parquet`);
      button.type = "button";
      button.addEventListener("click", async () => {
        const answer = await qccf.request(`/v1/runs/${encodeURIComponent(name)}/${table}?format=parquet`, { accept: "*/*" });
        qccf.save(await answer.blob(), `${table}.parquet`);
      });
    }
    const facts = html("dl", "tiles", root);
    const health = html("ul", "remarks", root);
    const upper = html("div", "upper", root);
    const left = html("div", "", upper);
    const map = new qccfMap.CellMap(left, "The cell from above", { onPoint: (k) => describe(k) });
    const info = html("p", "client-info", left);
    const figure = frame(html("div", "", upper));
    figureButton.addEventListener("click", () => qccf.save(qccf.figureFile(figure, run.name), "qccf-run.svg"));
    const fold = html("details", "fold", root);
    html("summary", "", fold, "Settings");
    html("pre", "", fold, JSON.stringify(run.scenario, null, 1));
    const hidden = new Set();
    let cell = run.cell;
    const describe = (k) => {
      info.textContent = `Client ${k}: ${Math.round(Math.hypot(...cell.positions_m[k]))} m, ${Math.round(cell.dataset_sizes[k])} samples, ${cell.uploads[k]} uploads, ${cell.missed[k]} late` + (cell.bits[k] === null ? "." : `, ${qccf.digits(cell.bits[k])} bits on average.`);
    };
    const draw = (now, chart) => {
      tiles(facts, now);
      cell = now.cell;
      left.hidden = cell === null; /* its path loss is code that is not loaded here */
      upper.classList.toggle("plain", cell === null);
      if (cell) map.draw(cell, { bits: cell.bits, away: cell.last_participated.map((on) => !on) });
      info.textContent = "Darker clients upload with more bits; pale ones sat out the last round.";
      health.replaceChildren();
      for (const sentence of now.health) html("li", "", health, sentence);
      build(chart, figure, hidden);
      root.dataset.rounds = now.rounds;
    };
    draw(run, firstChart);
    let busy = false, again = false;
    const refresh = async () => {
      if (busy) { again = true; return; }
      busy = true;
      try {
        do {
          again = false;
          draw(...(await patiently(signal, load)));
        } while (again);
      } finally {
        busy = false;
      }
    };
    /* The service ends a stream after an hour; the first event of the next one brings what was missed. */
    while (!signal.aborted) {
      await patiently(signal, () => qccf.events(`/v1/runs/${encodeURIComponent(name)}/events`, { signal }, () => { refresh().catch(refuse); }));
      await qccf.pause(RETRY_S, signal);
    }
  };

  const severalPage = async (names, signal) => {
    const root = byId("detail");
    root.className = "";
    const [chart, ...runs] = await Promise.all([qccf.json(`/v1/charts?${query(names)}`, { signal }), ...names.map((name) => qccf.json(`/v1/runs/${encodeURIComponent(name)}`, { signal }))]);
    root.replaceChildren();
    backLink(root);
    html("h1", "", root, `${names.length} runs`);
    const actions = html("p", "actions", root);
    reportButton(actions, names);
    const button = html("button", "", actions, "Download figure");
    button.type = "button";
    const table = html("table", "run-list", html("div", "wide", root));
    const heads = ["Run", "Policy", "Codec", "Status", "Rounds", "Accuracy", "Energy", "Bits", "Late"];
    const head = html("tr", "", html("thead", "", table));
    for (const text of heads) html("th", "", head, text).scope = "col";
    const body = html("tbody", "", table);
    for (const run of runs) {
      const line = html("tr", "", body);
      const first = html("th", "", line);
      first.scope = "row";
      html("a", "", first, run.name).href = `#run=${run.id}`;
      const values = [run.policy, run.codec, run.status, progress(run), qccf.percent(run.test_accuracy), qccf.quantity(run.energy_j, "J"), run.mean_bits === null ? "–" : qccf.digits(run.mean_bits), qccf.percent(run.missed)];
      values.forEach((value, k) => { html("td", "", line, value).dataset.head = heads[k + 1]; });
    }
    const figure = frame(root);
    button.addEventListener("click", () => qccf.save(qccf.figureFile(figure, names.length + " runs"), "qccf-runs.svg"));
    build(chart, figure);
  };

  const route = () => {
    stop?.abort();
    stop = new AbortController();
    byId("refused").hidden = true;
    const names = (new URLSearchParams(location.hash.slice(1)).get("run") || "").split(",").filter(Boolean);
    const page = names.length === 0 ? listPage(stop.signal) : names.length === 1 ? onePage(names[0], stop.signal) : severalPage(names, stop.signal);
    byId("list").hidden = names.length > 0;
    byId("detail").hidden = names.length === 0;
    page.catch(refuse);
  };
  window.addEventListener("hashchange", route);
  route();
})();
