"use strict";
// Overview, fairness and novel clients: tables with a figure each.
function dots(place, suite, key, title, height) {
  const points = suite.overview.points;
  const order = suite.series.map((_, i) => i).filter((i) => points[i][key] !== null).reverse();
  const labels = order.map((i) => safe(short(suite.series[i].label)));
  const seeds = { x: [], y: [], c: [] };
  order.forEach((i, at) => (key === "mean" ? points[i].seeds : []).forEach((value) => {
    seeds.x.push(value); seeds.y.push(at); seeds.c.push(colour(i));
  }));
  const bars = order.map((i) => {
    const p = points[i];
    if (key !== "mean") return [0, 0];
    return [Math.min(p.around || 0, suite.higher ? 100 - p.mean : Infinity), p.around || 0];
  });
  const traces = [{
    type: "scatter", mode: "markers", x: seeds.x, y: seeds.y, marker: { size: 7, color: seeds.c, opacity: 0.4 },
    hovertemplate: "one seed: %{x:.4g}<extra></extra>",
  }, {
    type: "scatter", mode: "markers", x: order.map((i) => points[i][key]), y: order.map((_, at) => at),
    error_x: { type: "data", array: bars.map((b) => b[0]), arrayminus: bars.map((b) => b[1]), thickness: 1.6, width: 5, color: css("--soft") },
    marker: { size: 12, color: order.map(colour), symbol: order.map(mark), line: { width: 1, color: css("--card") } },
    text: labels, hovertemplate: "%{text}: %{x:.4g}<extra></extra>",
  }];
  plot(place, traces, {
    height: height || Math.max(190, 70 + 34 * order.length), showlegend: false, margin: { l: 20, r: 20, t: 8, b: 46 },
    xaxis: axis(title || suite.axis), yaxis: { tickvals: order.map((_, at) => at), ticktext: labels, range: [-0.6, order.length - 0.4], zeroline: false },
  });
}

function testsCard(suite) {
  const tests = suite.tables.tests;
  return tests ? card(tests.title, tests.note, tableOf(tests, false)) : null;
}

tabs.push({
  name: "overview", title: "Overview", has: () => true,
  draw(panel, suite) {
    const cards = suite.overview.cards.map((one) => element("div", { class: "card" },
      element("b", { text: one.value }), element("span", { text: one.name }), element("small", { text: one.note })));
    const main = suite.tables.main, place = plotPlace("Mean of every method");
    panel.append(...report.notes.map((note) => element("p", { class: "warning", text: note })));
    panel.append(element("div", { class: "cards" }, ...cards));
    panel.append(card(main.title, main.note, tableOf(main, true)));
    const many = suite.series.length > 1;
    if (many) {
      panel.append(card("At a glance", "Large: mean over seeds, with one standard deviation over seeds; small: single seeds.", place));
      dots(place, suite, "mean");
    }
    const tests = testsCard(suite);
    if (tests) panel.append(tests);
  },
});

tabs.push({
  name: "novel", title: "Novel clients", after: "collaboration", has: (suite) => Boolean(suite.tables.novel),
  draw(panel, suite) {
    const novel = suite.tables.novel, glance = plotPlace("Novel clients by method"), links = plotPlace("Metric of novel clients against their links");
    panel.append(card(novel.title, novel.note, tableOf(novel, false)));
    const degrees = novelByDegree(suite);
    panel.append(element("div", { class: degrees.length ? "two" : "" },
      card("Every novel client", "Clients of all seeds; the dotted line is the mean.", glance),
      degrees.length ? card("Against the number of links", "Does a newcomer with more neighbours get a better model?", links) : null));
    drawViolins(glance, suite, "novel", false);
    if (degrees.length) plot(links, degrees, { xaxis: axis("neighbours"), yaxis: axis(suite.axis), height: 430 });
  },
});

function novelClients(suite, series) {
  const found = [];
  suite.runs.filter((run) => run.series === series).forEach((run) => {
    const columns = suite.clients[run.table].columns, names = suite.clients[run.table].names;
    run.metric.forEach((value, i) => {
      if (value !== null && columns.novel[i]) found.push({ value, degree: columns.degree ? columns.degree[i] : null, name: names[i], seed: run.seed });
    });
  });
  return found;
}

function novelByDegree(suite) {
  return suite.series.map((one, i) => {
    const clients = novelClients(suite, i).filter((c) => c.degree !== null);
    return {
      type: "scatter", mode: "markers", name: safe(short(one.label)), x: clients.map((c) => c.degree), y: clients.map((c) => c.value),
      marker: { color: colour(i), symbol: mark(i), size: 8, opacity: 0.65 },
      text: clients.map((c) => safe(c.name) + ", seed " + c.seed), hovertemplate: "%{text}<br>%{x} neighbours: %{y:.4g}<extra></extra>",
    };
  }).filter((trace) => new Set(trace.x).size > 1);
}

tabs.push({
  name: "fairness", title: "Fairness", after: "communication", has: () => true,
  draw(panel, suite) {
    const fair = suite.tables.fairness, scatter = plotPlace("Mean against spread"), deciles = plotPlace("Worst decile by method");
    panel.append(card(fair.title, fair.note, tableOf(fair, true)));
    panel.append(element("div", { class: "two" },
      card("Mean against spread", suite.higher ? "Best is top left: a high mean with little spread over clients." : "Best is bottom left: a low error with little spread over clients.", scatter),
      card("The worst tenth of the clients", "Mean over them and over seeds.", deciles)));
    plot(scatter, suite.series.map((one, i) => ({
      type: "scatter", mode: "markers", name: safe(short(one.label)), x: [suite.overview.points[i].std], y: [suite.overview.points[i].mean],
      marker: { color: colour(i), symbol: mark(i), size: 14 }, hovertemplate: "spread %{x:.4g}, mean %{y:.4g}<extra>" + safe(one.label) + "</extra>",
    })), { xaxis: axis("standard deviation over clients", { rangemode: "tozero" }), yaxis: axis(suite.axis), height: 380 });
    dots(deciles, suite, "worst", "worst decile: " + suite.axis, 380);
  },
});
