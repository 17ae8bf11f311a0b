"use strict";
// The client graph, and the map of embeddings over rounds.
const WORDS = {
  novel: "novel", malicious: "attacks", n_train: "train samples", n_val: "validation samples", n_test: "test samples", val_metric: "validation",
  final_metric: "last round", final_local: "after local steps", asr: "attack success", hops: "hops to an attacker", degree: "neighbours",
};
function word(key) { return WORDS[key] || key.replace(/_/g, " "); }

// All numbers of a run by client: what it has, and how it did.
function columnsOf(suite, run) {
  return { [suite.metric]: run.metric, ...suite.clients[run.table].columns, ...(run.details || {}) };
}

function rowText(suite, run, i) {
  const lines = Object.entries(columnsOf(suite, run)).filter(([, values]) => values[i] !== null)
    .map(([key, values]) => word(key) + ": " + (key === "novel" || key === "malicious" ? (values[i] ? "yes" : "no") : number(values[i])));
  return "<b>" + safe(suite.clients[run.table].names[i]) + "</b><br>" + lines.map(safe).join("<br>");
}

function clientRow(suite, run, i) {
  const list = element("dl", {});
  for (const [key, values] of Object.entries(columnsOf(suite, run))) {
    if (values[i] === null) continue;
    const shown = key === "novel" || key === "malicious" ? (values[i] ? "yes" : "no") : number(values[i]);
    list.append(element("dt", { text: word(key) }), element("dd", { text: shown }));
  }
  return element("div", {}, element("h2", { text: suite.clients[run.table].names[i] }), list);
}

// Something to colour clients by: a column of the run, or the difference to another series with the same seed.
function colourings(suite, run) {
  const usable = Object.entries(columnsOf(suite, run)).filter(([key, values]) => !["novel", "malicious"].includes(key)
    && new Set(values.filter((v) => v !== null)).size > 1 || key === suite.metric);
  const found = usable.map(([key, values]) => ({ name: word(key), values }));
  for (const other of suite.runs) {
    if (other.seed !== run.seed || other.series === run.series || other.table !== run.table) continue;
    const values = run.metric.map((v, i) => (v === null || other.metric[i] === null ? null : v - other.metric[i]));
    found.push({ name: suite.metric + " minus that of " + suite.series[other.series].label, values, centred: true });
  }
  return found;
}

const SCALE = [[0, "#440154"], [0.25, "#3b528b"], [0.5, "#21918c"], [0.75, "#5ec962"], [1, "#f0dc1e"]];
const BOTH = [[0, "#d55e00"], [0.5, "#f2f2f2"], [1, "#0072b2"]];

function nodeTrace(suite, run, ids, x, y, by, size, sought) {
  const columns = suite.clients[run.table].columns, names = suite.clients[run.table].names;
  const known = by.values.filter((v) => v !== null), far = Math.max(...known.map(Math.abs), 1e-9);
  const hit = (i) => sought && names[i].toLowerCase().includes(sought.toLowerCase());
  return {
    type: "scatter", mode: "markers", x, y, customdata: ids, text: ids.map((i) => rowText(suite, run, i)), hovertemplate: "%{text}<extra></extra>",
    marker: {
      size: ids.map((i) => (hit(i) ? size * 1.9 : size)), color: ids.map((i) => by.values[i]), colorscale: by.centred ? BOTH : SCALE,
      cmin: by.centred ? -far : Math.min(...known), cmax: by.centred ? far : Math.max(...known) === Math.min(...known) ? Math.max(...known) + 1 : Math.max(...known),
      symbol: ids.map((i) => (columns.malicious && columns.malicious[i] ? "x" : columns.novel[i] ? "square" : "circle")),
      line: { width: ids.map((i) => (hit(i) ? 3 : 0.8)), color: ids.map((i) => (hit(i) ? "#d55e00" : "#44505c")) }, opacity: 1,
      colorbar: { title: { text: safe(short(by.name, 40)), side: "right" }, thickness: 12, len: 0.7, outlinewidth: 0 },
      showscale: true,
    },
  };
}

function drawGraph(place, suite, run, by, sought, chosen) {
  const graph = suite.graphs[run.graph], x = [], y = [];
  for (let k = 0; k < graph.edges.length; k += 2) {
    x.push(graph.x[graph.edges[k]], graph.x[graph.edges[k + 1]], null);
    y.push(graph.y[graph.edges[k]], graph.y[graph.edges[k + 1]], null);
  }
  const n = graph.x.length, strength = Math.min(0.55, Math.max(0.1, 14 / Math.sqrt(graph.edges.length / 2 || 1)));
  const edges = { type: "scatter", mode: "lines", x, y, hoverinfo: "skip", line: { width: 0.8, color: css("--soft") }, opacity: strength };
  const size = Math.min(17, Math.max(6, 200 / Math.sqrt(n)));
  const hidden = { visible: false, showgrid: false, zeroline: false };
  plot(place, [edges, nodeTrace(suite, run, graph.x.map((_, i) => i), graph.x, graph.y, by, size, sought)], {
    xaxis: hidden, yaxis: { ...hidden, ...(graph.even ? { scaleanchor: "x" } : {}) }, showlegend: false, height: 620, dragmode: "pan",
    margin: { l: 8, r: 8, t: 8, b: 8 }, hovermode: "closest",
  }, true, () => {
    place.removeAllListeners("plotly_click");
    place.on("plotly_click", (event) => { if (event.points[0].customdata !== undefined) chosen(event.points[0].customdata); });
  });
}

tabs.push({
  name: "graph", title: "Graph", has: (suite) => suite.runs.some((run) => run.graph !== null),
  draw(panel, suite) {
    const runs = suite.runs.filter((run) => run.graph !== null), place = plotPlace("The client graph", 620), state = { run: bestRun(suite, runs), by: 0, sought: "" };
    const row = element("div", { "aria-live": "polite" }), colours = element("span", {}), about = element("p", { class: "note" });
    const show = (i) => row.replaceChildren(clientRow(suite, runs[state.run], i));
    const redraw = () => {
      const run = runs[state.run], choices = colourings(suite, run), graph = suite.graphs[run.graph];
      state.by = Math.min(state.by, choices.length - 1);
      colours.replaceChildren(chooser("colour by", choices.map((c) => short(c.name, 60)), (i) => { state.by = i; redraw(); }, state.by));
      about.textContent = graph.x.length + " clients, " + graph.all.toLocaleString("en") + " links" + (graph.edges.length / 2 < graph.all ? ", " + (graph.edges.length / 2).toLocaleString("en") + " of them drawn" : "")
        + "; " + (graph.map ? "each where it is on the map" : "linked clients are near each other") + ". Circles train, squares are novel, crosses attack. Drag to move, scroll to zoom.";
      drawGraph(place, suite, run, choices[state.by], state.sought, show);
    };
    const find = element("input", { type: "text", placeholder: "part of a name", oninput: () => {
      state.sought = find.value.trim();
      const at = state.sought ? suite.clients[runs[state.run].table].names.findIndex((name) => name.toLowerCase().includes(state.sought.toLowerCase())) : -1;
      redraw();
      if (at >= 0) show(at);
    } });
    const worst = runs[state.run].metric.map((v, i) => [v, i]).filter(([v]) => v !== null).sort((a, b) => (suite.higher ? a[0] - b[0] : b[0] - a[0]));
    panel.append(element("div", { class: "side" },
      card("Who is related to whom", "", controls(chooser("run", runs.map((run) => runName(suite, run)), (i) => { state.run = i; redraw(); }, state.run), colours), place, about),
      element("div", {}, card("Find a client", "", controls(element("label", {}, "name", find))),
        element("section", { class: "card" }, row, element("p", { class: "note", text: "Click a client to see its row." })))));
    redraw();
    if (worst.length) show(worst[0][1]);
  },
});

function drawEmbeddings(place, suite, run, at, by, extent) {
  const made = run.embeddings, values = extent.values, m = made.clients.length, start = 2 * m * at;
  const x = made.clients.map((_, k) => values[start + 2 * k]), y = made.clients.map((_, k) => values[start + 2 * k + 1]);
  plot(place, [nodeTrace(suite, run, made.clients, x, y, by, Math.min(14, Math.max(6, 170 / Math.sqrt(m))), "")], {
    xaxis: axis("first principal direction", { range: extent.x }), yaxis: axis("second", { range: extent.y }), showlegend: false, height: 560, hovermode: "closest",
  });
}

function extentOf(made) {
  const values = unpack(made), x = [Infinity, -Infinity], y = [Infinity, -Infinity];
  values.forEach((v, k) => { const range = k % 2 ? y : x; range[0] = Math.min(range[0], v); range[1] = Math.max(range[1], v); });
  const wider = ([a, b]) => [a - 0.06 * (b - a || 1), b + 0.06 * (b - a || 1)];
  return { values, x: wider(x), y: wider(y) };
}

tabs.push({
  name: "embeddings", title: "Embeddings", has: (suite) => suite.runs.some((run) => run.embeddings),
  draw(panel, suite) {
    const runs = suite.runs.filter((run) => run.embeddings), place = plotPlace("Map of embeddings", 560), colours = element("span", {}), said = element("output", {});
    const state = { run: bestRun(suite, runs), by: 0, at: 0, timer: null };
    const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "evaluated round", oninput: () => { state.at = Number(slider.value); redraw(); } });
    let extent = null;
    const redraw = () => {
      const run = runs[state.run], choices = colourings(suite, run);
      state.by = Math.min(state.by, choices.length - 1);
      colours.replaceChildren(chooser("colour by", choices.map((c) => short(c.name, 60)), (i) => { state.by = i; redraw(); }, state.by));
      slider.value = state.at;
      said.textContent = "round " + run.embeddings.rounds[state.at];
      drawEmbeddings(place, suite, run, state.at, choices[state.by], extent);
    };
    const pick = (i) => {
      state.run = i;
      extent = extentOf(runs[i].embeddings);
      slider.max = runs[i].embeddings.rounds.length - 1;
      state.at = runs[i].embeddings.rounds.length - 1;
      redraw();
    };
    const play = element("button", { class: "plain", type: "button", text: "play", onclick: () => {
      if (state.timer) { clearInterval(state.timer); state.timer = null; play.textContent = "play"; return; }
      play.textContent = "stop";
      const last = runs[state.run].embeddings.rounds.length - 1;
      if (state.at === last) state.at = -1;
      state.timer = setInterval(() => {
        state.at += 1;
        redraw();
        if (state.at >= last || !place.isConnected) play.click();
      }, 350);
    } });
    const coloured = colourings(suite, runs[0]).findIndex((c) => c.name === "group" || c.name === "first feature");
    state.by = Math.max(coloured, 0);
    panel.append(card("What the server knows of its clients", "Embeddings after the encoder, the mean over clients taken off, in the two directions "
      + "in which those of the last round vary most; the directions are the same in every round.",
      controls(chooser("run", runs.map((run) => runName(suite, run)), pick, state.run), colours), place, controls(play, slider, said)));
    pick(state.run);
  },
});
