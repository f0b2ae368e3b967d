"use strict";
/* The OpenAPI description as a page: every operation with its parameters, its body, its answers, and a form to try it. */
(async () => {
  const { html } = qccfCharts;
  const description = await (await fetch("/openapi.json")).json();
  document.getElementById("about").textContent = description.info.summary;
  const root = document.getElementById("operations");
  const MOST = 4000;

  const example = (schema) => {
    if (schema.examples) return schema.examples[0];
    if (schema.default !== undefined) return schema.default;
    if (schema.anyOf) return example(schema.anyOf[0]);
    if (schema.type === "object") return Object.fromEntries(Object.entries(schema.properties || {}).filter(([key]) => (schema.required || []).includes(key) || schema.properties[key].examples).map(([key, value]) => [key, example(value)]));
    if (schema.type === "array") return [example(schema.items || {})];
    return schema.type === "string" ? "" : schema.type === "integer" || schema.type === "number" ? Math.max(schema.minimum ?? 1, 1) : null;
  };

  const table = (parent, heads, rows) => {
    const made = html("table", "", html("div", "wide", parent));
    const head = html("tr", "", html("thead", "", made));
    for (const text of heads) html("th", "", head, text).scope = "col";
    const body = html("tbody", "", made);
    for (const row of rows) { const line = html("tr", "", body); for (const text of row) html("td", "", line, text); }
  };

  const operation = (path, method, about) => {
    const fold = html("details", "operation", root);
    fold.id = about.operationId;
    const head = html("summary", "", fold);
    html("span", "method", head, method.toUpperCase());
    html("code", "", head, path);
    const words = (about.description || "").replace(/\s+/g, " ");
    head.append(` ${words.split(". ")[0].replaceAll("`", "").replace(/\.$/, "")}.`);
    const text = html("p", "", fold);
    words.split("`").forEach((part, k) => { k % 2 ? html("code", "", text, part) : text.append(part); });
    const parameters = about.parameters || [];
    const fields = new Map();
    if (parameters.length) {
      const form = html("div", "", fold);
      for (const parameter of parameters) {
        const label = html("label", "knob", form, `${parameter.name} (${parameter.in}${parameter.required ? "" : ", optional"})`);
        const field = html("input", "", label);
        field.placeholder = parameter.schema?.default ?? "";
        fields.set(parameter, field);
      }
    }
    const schema = about.requestBody?.content["application/json"]?.schema;
    let area = null;
    if (schema) {
      const inner = html("details", "", fold);
      html("summary", "", inner, "Schema of the body");
      html("pre", "", inner, JSON.stringify(schema, null, 1));
      area = html("textarea", "", fold);
      area.setAttribute("aria-label", "Body");
      area.spellcheck = false;
      area.value = JSON.stringify(example(schema), null, 1);
    }
    const send = html("button", "", html("p", "actions", fold), "Send");
    send.type = "button";
    const output = html("pre", "", fold);
    output.setAttribute("aria-live", "polite");
    output.hidden = true;
    let running = null;
    send.addEventListener("click", async () => {
      if (running) { running.abort(); return; }
      let address = path;
      const query = new URLSearchParams();
      for (const [parameter, field] of fields) {
        if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, encodeURIComponent(field.value));
        else if (field.value) query.append(parameter.name, field.value);
      }
      output.hidden = false;
      output.textContent = "…";
      running = new AbortController();
      send.textContent = "Stop";
      try {
        const body = area ? JSON.parse(area.value) : undefined;
        const answer = await qccf.request(address + (query.size ? `?${query}` : ""), { method: method.toUpperCase(), body, signal: running.signal });
        const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
        /* Events never end: what has come so far is shown. */
        for (let text = "", part = {}; !part.done; text += part.value || "") {
          output.textContent = `${answer.status}\n${text.slice(0, MOST)}${text.length > MOST ? " …" : ""}`;
          part = reader ? await reader.read() : { done: true };
          if (part.done) break;
        }
      } catch (error) {
        if (error.name === "AbortError") output.append("\nStopped.");
        else output.textContent = `${error.status || ""}\n${error.message}`;
      }
      running = null;
      send.textContent = "Send";
    });
    const answers = Object.entries(about.responses).map(([status, one]) => [status, one.description]);
    const inner = html("details", "", fold);
    html("summary", "", inner, "Answers");
    table(inner, ["status", "meaning"], answers);
  };

  for (const [path, methods] of Object.entries(description.paths)) for (const [method, about] of Object.entries(methods)) operation(path, method, about);
})();
