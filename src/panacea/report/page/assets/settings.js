"use strict";
// Configuration and environment; tables to copy.
function differences(settings) {
  const wide = settings.runs.length <= 6;
  if (!settings.differ.length) return element("p", { class: "note", text: settings.runs.length > 1 ? "The runs differ in nothing." : "One run: nothing to compare." });
  const header = wide ? ["key", ...settings.runs] : ["key", "values"];
  const rows = settings.differ.map(([key, ...values]) => {
    const counts = new Map();
    values.forEach((value) => counts.set(value, (counts.get(value) || 0) + 1));
    const common = [...counts.entries()].sort((a, b) => b[1] - a[1])[0][0];
    const cells = wide ? values.map((value) => element("td", { class: value === common ? null : "differs", text: value || "–" }))
      : [element("td", { text: [...counts.entries()].map(([value, many]) => (value || "not set") + " (" + many + ")").join(", ") })];
    return element("tr", {}, element("td", { text: key }), ...cells);
  });
  return element("div", { class: "wide" }, element("table", { class: "left" },
    element("thead", {}, element("tr", {}, ...header.map((text) => element("th", { scope: "col", text })))), element("tbody", {}, ...rows)));
}

tabs.push({
  name: "configuration", title: "Configuration", after: "fairness", has: () => true,
  draw(panel, suite) {
    const settings = suite.settings;
    panel.append(card("What differs between the runs", settings.runs.length > 6 ? "In brackets: in how many runs." : "Marked where a run is not like most.", differences(settings)));
    const some = (wanted) => settings.same.filter(([key]) => wanted(key));
    const environment = some((key) => key.startsWith("environment.")), methods = some((key) => key.includes(":"));
    const config = some((key) => !key.startsWith("environment.") && !key.includes(":"));
    const list = (rows, cut) => element("div", { class: "tall" }, element("dl", {}, ...rows.flatMap(([key, value]) => [element("dt", { text: key.slice(cut) }), element("dd", { text: value })])));
    panel.append(element("div", { class: "two" },
      card("Configuration in common", "", list(config, 0)),
      element("div", {}, card("Environment in common", "", list(environment, "environment.".length)),
        methods.length ? card("Parameters of the methods", "", list(methods, 0)) : null)));
    panel.append(card("Every run's config.yaml", "", ...settings.texts.map(({ name, text }) =>
      element("details", {}, element("summary", { text: name }), element("pre", { tabindex: 0, text })))));
  },
});

function copyText(text, button, label) {
  const done = (worked) => { button.textContent = worked ? "copied" : "select and copy"; setTimeout(() => { button.textContent = label; }, 1500); };
  const oldWay = () => {
    const field = element("textarea", { text });
    document.body.append(field);
    field.select();
    const worked = document.execCommand("copy");
    field.remove();
    done(worked);
  };
  if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(() => done(true), oldWay);
  else oldWay();
}

tabs.push({
  name: "tables", title: "Tables", after: "configuration", has: () => true,
  draw(panel, suite) {
    for (const table of Object.values(suite.tables)) {
      const shown = element("textarea", { readonly: true, "aria-label": table.title, text: table.copies.CSV });
      const kinds = Object.keys(table.copies);
      let kind = "CSV";
      const copy = element("button", { class: "plain", type: "button", text: "copy", onclick: () => copyText(table.copies[kind], copy, "copy") });
      panel.append(card(table.title, table.note, controls(buttons("as", kinds, (i) => { kind = kinds[i]; shown.value = table.copies[kind]; }), copy), shown));
    }
  },
});
