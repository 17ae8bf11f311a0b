"use strict";
// Every client's own result: violins, the share of clients below a value, sorted bars.
function members(suite, run, who) {
  const columns = suite.clients[run.table].columns;
  return run.metric.map((value, i) => ({ value, i })).filter(({ value, i }) => value !== null
    && (who === "novel" ? columns.novel[i] : !columns.novel[i] && !(columns.malicious && columns.malicious[i])));
}

function pooled(suite, series, who) {
  return suite.runs.filter((run) => run.series === series).flatMap((run) => members(suite, run, who).map(({ value, i }) => ({
    value, name: suite.clients[run.table].names[i], seed: run.seed,
  })));
}

function drawViolins(place, suite, who, log) {
  const every = suite.series.map((_, i) => i);
  plot(place, every.map((i) => {
    const clients = pooled(suite, i, who);
    return {
      type: log ? "box" : "violin", x: clients.map(() => i), y: clients.map((c) => c.value), name: safe(suite.series[i].label), width: 0.85,
      line: { color: colour(i), width: 1.3 }, fillcolor: colour(i) + "30",
      ...(log ? {} : { box: { visible: true, width: 0.12 }, meanline: { visible: true }, spanmode: "hard" }),
      [log ? "boxpoints" : "points"]: clients.length > 400 ? (log ? "outliers" : false) : "all", pointpos: 0, jitter: 0.9, marker: { size: 3, opacity: 0.35 },
      text: clients.map((c) => safe(c.name) + ", seed " + c.seed), hoveron: "points", hovertemplate: "%{text}: %{y:.4g}<extra></extra>",
    };
  }), { xaxis: seriesAxis(suite, every), yaxis: axis(suite.axis, scaled(log)), showlegend: false, height: 430 });
}

function drawShares(place, suite, who, log) {
  const all = suite.series.flatMap((_, i) => pooled(suite, i, who).map((c) => c.value));
  const from = all.reduce((a, b) => Math.min(a, b), Infinity), to = all.reduce((a, b) => Math.max(a, b), -Infinity);
  plot(place, suite.series.map((one, i) => {
    const values = pooled(suite, i, who).map((c) => c.value).sort((a, b) => a - b);
    return {
      type: "scatter", mode: "lines", x: [from, ...values, to], y: [0, ...values.map((_, k) => (100 * (k + 1)) / values.length), 100], name: safe(short(one.label, 40)),
      line: { shape: "hv", color: colour(i), width: 2.2, dash: dash(i) }, hovertemplate: "%{y:.0f} % of clients have at most %{x:.4g}<extra>" + safe(one.label) + "</extra>",
    };
  }), { xaxis: axis(suite.axis, scaled(log)), yaxis: axis("share of clients, %", { range: [0, 101] }), height: 430 });
}

function drawBars(place, suite, run) {
  const table = suite.clients[run.table];
  const all = run.metric.map((value, i) => ({ value, i })).filter((c) => c.value !== null).sort((a, b) => a.value - b.value);
  const kind = ({ i }) => (table.columns.malicious && table.columns.malicious[i] ? 2 : table.columns.novel[i] ? 1 : 0);
  const traces = ["training clients", "novel clients", "attackers"].map((name, k) => {
    const some = all.map((c, rank) => ({ ...c, rank })).filter((c) => kind(c) === k);
    return {
      type: "bar", name, x: some.map((c) => c.rank), y: some.map((c) => c.value), marker: { color: ["#0072b2", "#e69f00", "#5f6b7a"][k], line: { width: 0 } },
      text: some.map((c) => safe(table.names[c.i])), textposition: "none", hovertemplate: "%{text}: %{y:.4g}<extra></extra>",
    };
  }).filter((trace) => trace.x.length);
  const few = all.length <= 80;
  plot(place, traces, {
    xaxis: axis("clients, the " + (suite.higher ? "worst" : "best") + " first", few
      ? { tickvals: all.map((_, rank) => rank), ticktext: all.map((c) => safe(short(table.names[c.i], 14))), tickangle: -90, tickfont: { size: 9 } } : {}),
    yaxis: axis(suite.axis), bargap: all.length > 150 ? 0 : 0.15, height: 430,
  });
}

tabs.push({
  name: "clients", title: "Clients", has: (suite) => suite.runs.length > 0,
  draw(panel, suite) {
    const violins = plotPlace("Distribution over clients"), shares = plotPlace("Share of clients"), bars = plotPlace("Sorted clients");
    const groups = ["training"];
    if (suite.tables.novel) groups.push("novel");
    const state = { who: groups[0], log: suite.skewed };
    const redraw = () => { drawViolins(violins, suite, state.who, state.log); drawShares(shares, suite, state.who, state.log); };
    panel.append(controls(groups.length > 1 ? buttons("clients", groups, (i) => { state.who = groups[i]; redraw(); }) : null,
      suite.higher ? null : buttons("scale", SCALES, (i) => { state.log = i === 1; redraw(); }, suite.skewed ? 1 : 0)));
    panel.append(element("div", { class: "two" },
      card("Distribution over clients", "Every client's own model on its own test data, clients of all seeds.", violins),
      card("Share of clients up to a value", suite.higher ? "Further right is better." : "Further left is better.", shares)));
    panel.append(card("One run, client by client", "", controls(chooser("run", suite.runs.map((run) => runName(suite, run)), (i) => drawBars(bars, suite, suite.runs[i]), bestRun(suite, suite.runs))), bars));
    redraw();
    drawBars(bars, suite, suite.runs[bestRun(suite, suite.runs)]);
  },
});
