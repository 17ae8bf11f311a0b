"use strict";
// Tabs: made once, drawn when first shown, worked by mouse, keyboard and address.
const ORDER = ["overview", "convergence", "clients", "graph", "embeddings", "collaboration", "novel", "robustness", "communication", "fairness", "configuration", "tables"];
tabs.sort((a, b) => ORDER.indexOf(a.name) - ORDER.indexOf(b.name));

const page = { suite: 0, shown: "overview", drawn: new Set() };
const list = document.getElementById("tabs"), panels = document.getElementById("panels");

function available() {
  return tabs.filter((tab) => tab.has(report.suites[page.suite]));
}

function show(name, focus) {
  const there = available();
  const tab = there.find((one) => one.name === name) || there[0];
  page.shown = tab.name;
  for (const one of there) {
    const button = document.getElementById("tab-" + one.name), panel = document.getElementById("panel-" + one.name), chosen = one === tab;
    button.setAttribute("aria-selected", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    panel.hidden = !chosen;
    if (chosen && focus) button.focus();
  }
  if (!page.drawn.has(tab.name)) {
    page.drawn.add(tab.name);
    tab.draw(document.getElementById("panel-" + tab.name), report.suites[page.suite]);
  }
  if (location.hash !== "#" + tab.name) history.replaceState(null, "", "#" + tab.name);
  document.querySelectorAll("#panel-" + tab.name + " .js-plotly-plot").forEach((place) => Plotly.Plots.resize(place)); // the window may have changed
}

function build() {
  const suite = report.suites[page.suite];
  document.querySelectorAll(".js-plotly-plot").forEach((place) => Plotly.purge(place));
  page.drawn.clear();
  const there = available();
  list.replaceChildren(...there.map((tab) => element("button", {
    role: "tab", type: "button", id: "tab-" + tab.name, "aria-controls": "panel-" + tab.name, text: tab.title, onclick: () => show(tab.name, false),
  })));
  panels.replaceChildren(...there.map((tab) => element("div", {
    role: "tabpanel", id: "panel-" + tab.name, "aria-labelledby": "tab-" + tab.name, hidden: true,
  })));
  const methods = new Set(suite.series.map((one) => one.method));
  document.getElementById("title").textContent = suite.title;
  document.getElementById("subtitle").textContent = suite.runs.length + (suite.runs.length > 1 ? " runs" : " run") + " · " + [...methods].join(", ") + " · " + suite.metric;
  show(page.shown, false);
}

list.addEventListener("keydown", (event) => {
  const there = available(), at = there.findIndex((tab) => tab.name === page.shown);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: there.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  show(there[(to + there.length) % there.length].name, true);
});

const tools = document.getElementById("tools");
if (report.suites.length > 1) tools.append(chooser("data set", report.suites.map((suite) => suite.title), (i) => { page.suite = i; build(); }));
tools.append(element("button", { class: "plain", type: "button", text: "dark", onclick: (event) => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  event.target.textContent = dark() ? "light" : "dark";
  build();
} }));
document.getElementById("footer").textContent = "Written by panacea " + report.version + ". This page is complete in itself: it loads nothing and sends nothing.";
window.addEventListener("hashchange", () => show(location.hash.slice(1), false));
if (location.hash.length > 1) page.shown = location.hash.slice(1);
build();
window.addEventListener("load", () => setTimeout(() => {
  loadLibrary();
  document.documentElement.dataset.ready = String(Math.round(performance.now())); // milliseconds until all was drawn
}));
