"use strict";
/* What the pages share: requests with the token, events, downloads, messages. */
const qccf = (() => {
  const { html, element } = qccfCharts;
  const TOKEN = "qccf-token";
  const EVENTS = "text/event-stream";

  class Refused extends Error {
    constructor(status, sentence) { super(sentence); this.status = status; }
  }

  /* Asks for the token once; all requests that need it wait. */
  let asking = null;
  const askToken = (refused) => asking ??= new Promise((resolve) => {
    const dialog = html("dialog", "", document.body);
    const form = html("form", "", dialog);
    if (refused) html("p", "refused", form, "The service refused this token: check it and try again.").setAttribute("role", "alert");
    html("p", "", form, "This service needs a token. It is kept until this tab is closed.");
    const label = html("label", "", form, "Token ");
    const field = html("input", "", label);
    field.type = "password";
    field.autocomplete = "off";
    const button = html("button", "", html("p", "actions", form), "Use this token");
    button.type = "submit";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(TOKEN, field.value.trim());
      dialog.close();
      dialog.remove();
      asking = null;
      resolve();
    });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.showModal();
  });

  const request = async (path, { body, accept, signal, method } = {}) => {
    for (;;) {
      const headers = { accept: accept || "application/json" };
      const token = sessionStorage.getItem(TOKEN);
      if (token) headers.authorization = `Bearer ${token}`;
      if (body !== undefined) headers["content-type"] = "application/json";
      let answer;
      try {
        answer = await fetch(path, { method: method || (body === undefined ? "GET" : "POST"), headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Refused(0, "The service does not answer: is it still running?");
      }
      if (answer.status === 401) {
        if (sessionStorage.getItem(TOKEN) === token) await askToken(token !== null); /* else another request has asked meanwhile */
        continue;
      }
      if (!answer.ok) {
        const refused = await answer.json().catch(() => ({}));
        throw new Refused(answer.status, refused.detail || `The service answered with status ${answer.status}.`);
      }
      return answer;
    }
  };
  const json = async (path, options) => (await request(path, options)).json();

  /* Calls `on(name, data)` for every event until the stream ends. */
  const events = async (path, options, on) => {
    const answer = await request(path, { ...options, accept: EVENTS });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const lines = part.split("\n");
        const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
        if (field("data") !== undefined) on(field("event"), JSON.parse(field("data")));
      }
    }
  };

  const pause = (seconds, signal) => new Promise((resolve) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); });
  });

  const toast = (text) => {
    document.querySelectorAll(".toast").forEach((one) => one.remove());
    const made = html("div", "toast", document.body, text);
    made.setAttribute("role", "status");
    setTimeout(() => made.remove(), 4000);
  };
  const copy = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = html("textarea", "", document.body, text);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    toast(`${what} copied.`);
  };
  const save = (blob, name) => {
    const link = html("a", "", document.body);
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => { URL.revokeObjectURL(link.href); link.remove(); }, 1000);
  };

  /* The panels of a figure as one SVG file: colours and fonts of the page are written into it. */
  const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"];
  /* Lines of at most so many characters; a longer word is cut. */
  const wrapped = (text, most) => {
    const lines = [""];
    for (let word of text.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + 1 + word.length > most) lines.push("");
      for (; word.length > most; word = word.slice(most)) { lines.splice(-1, 1, word.slice(0, most), ""); }
      lines.push(`${lines.pop()} ${word}`.trim());
    }
    return lines;
  };
  const figureFile = (figure, title) => {
    const plots = [...figure.querySelectorAll("svg.plot")];
    const width = Math.max(...plots.map((plot) => plot.viewBox.baseVal.width));
    const heads = [...figure.querySelectorAll(".legend button")].filter((one) => one.getAttribute("aria-pressed") !== "false");
    const page = getComputedStyle(document.body);
    const file = element("svg", { xmlns: "http://www.w3.org/2000/svg", "font-family": "sans-serif", color: page.color });
    const ground = element("rect", { width: "100%", height: "100%", fill: page.backgroundColor }, file);
    const full = Math.max(width + 8, 480);
    let top = 22;
    for (const line of wrapped(title, Math.floor((full - 24) / 7.5))) {
      element("text", { x: 12, y: top, "font-size": 13, fill: page.color }, file, line);
      top += 18;
    }
    let left = 12;
    for (const head of heads) {
      const size = 46 + 7 * head.textContent.length;
      if (left > 12 && left + size > full) { left = 12; top += 18; }
      const swatch = head.querySelector("svg").cloneNode(true);
      for (const [key, value] of Object.entries({ x: left, y: top - 6, width: 26, height: 12 })) swatch.setAttribute(key, value);
      file.appendChild(swatch);
      element("text", { x: left + 32, y: top + 4, "font-size": 12, fill: page.color }, file, head.textContent);
      left += size;
    }
    top += 18;
    for (const plot of plots) {
      const copied = plot.cloneNode(true);
      const [from, to] = [plot, copied].map((one) => [...one.querySelectorAll("*")]);
      from.forEach((one, k) => { for (const name of STYLES) { const value = getComputedStyle(one)[name]; if (value) to[k].setAttribute(name, value); } });
      const height = plot.viewBox.baseVal.height;
      element("text", { x: 12, y: top + 14, "font-size": 13, "font-weight": 600, fill: page.color }, file, plot.closest(".panel").querySelector("h4").firstChild.textContent);
      for (const [key, value] of Object.entries({ x: 0, y: top + 20, width: plot.viewBox.baseVal.width, height })) copied.setAttribute(key, value);
      file.appendChild(copied);
      top += height + 34;
    }
    file.setAttribute("viewBox", `0 0 ${full} ${top}`);
    file.setAttribute("width", full);
    file.setAttribute("height", top);
    ground.setAttribute("height", top);
    return new Blob([new XMLSerializer().serializeToString(file)], { type: "image/svg+xml" });
  };

  /* Numbers with a prefix of their unit: 0.0123 J is 12.3 mJ. */
  const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"]];
  const digits = (value) => {
    const rounded = Number(value.toPrecision(3));
    return Math.abs(rounded) >= 1000 ? Math.round(rounded).toLocaleString("en") : String(rounded);
  };
  const prefixOf = (value) => PREFIXES.find(([size]) => Math.abs(value) >= 0.9995 * size) || (value ? PREFIXES.at(-1) : [1, ""]);
  const quantity = (value, unit) => {
    if (value === null || value === undefined) return "–";
    const [size, prefix] = prefixOf(value);
    return `${digits(value / size)} ${prefix}${unit}`;
  };
  const percent = (value) => (value === null || value === undefined ? "–" : `${digits(100 * value)} %`);
  const duration = (seconds) => {
    if (seconds === null || seconds === undefined) return "–";
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return seconds < 172800 ? `${digits(seconds / 3600)} h` : `${digits(seconds / 86400)} d`;
  };

  return { Refused, request, json, events, pause, toast, copy, save, figureFile, quantity, prefixOf, percent, duration, digits };
})();
