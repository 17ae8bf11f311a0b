"use strict";
// One look for all figures.
function layout(changes) {
  const line = { gridcolor: css("--grid"), zerolinecolor: css("--grid"), linecolor: css("--line"), automargin: true };
  const base = {
    font: { family: "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif", size: 13, color: css("--ink") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 60, r: 16, t: 12, b: 48 },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 }, align: "left" },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } }, height: 400,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--accent") },
  };
  const made = { ...base, ...changes };
  for (const name of ["xaxis", "yaxis"]) made[name] = { ...line, ...(changes[name] || {}) };
  return made;
}

// An axis with a place for every series; long names are broken at their commas.
function seriesAxis(suite, chosen) {
  const many = chosen.length > 5;
  return {
    tickvals: chosen.map((_, at) => at), ticktext: chosen.map((i) => safe(short(suite.series[i].label, many ? 30 : 44)).replace(/, /g, many ? ", " : "<br>")),
    tickangle: many ? -40 : 0, range: [-0.6, chosen.length - 0.4], zeroline: false, showgrid: false,
  };
}

function axis(title, changes) {
  return { title: { text: safe(title), standoff: 8 }, ...changes };
}

// Only these buttons: the library has one that sends a figure away, which is not for us to offer.
const CONFIG = {
  displaylogo: false, responsive: true, showTips: false, displayModeBar: "hover", toImageButtonOptions: { format: "svg", scale: 1 },
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
};

// Draw into `place`, an element on the page; drawing again replaces what was there. `after` is called when it is done.
const waiting = []; // what is to be drawn when the library is there
function plot(place, traces, changes, scroll = false, after = null) {
  if (!window.Plotly) {
    waiting.push(() => plot(place, traces, changes, scroll, after));
    return;
  }
  Plotly.react(place, traces, layout(changes), { ...CONFIG, scrollZoom: scroll });
  if (after) after();
}

function scaled(log) { return log ? { type: "log", dtick: "D2" } : { type: "linear" }; }

const SCALES = ["linear", "logarithmic"];

// The library is large. It lies in the page as text and is run once the page can be read, so that nobody waits for it.
function loadLibrary() {
  const text = document.getElementById("library");
  document.head.append(element("script", { text: text.textContent }));
  text.remove();
  waiting.splice(0).forEach((draw) => draw());
}

function plotPlace(label, height) {
  return element("div", { class: "plot", role: "img", "aria-label": label, style: height ? "min-height:" + height + "px" : null });
}

// A curve with its band, as two traces.
function banded(x, values, i, name, changes) {
  const known = values.low && values.low.some((v) => v !== null);
  const hue = colour(i);
  const traces = [];
  if (known) {
    const at = x.map((_, k) => k).filter((k) => values.low[k] !== null && values.high[k] !== null && x[k] !== null);
    traces.push({
      x: [...at.map((k) => x[k]), ...at.map((k) => x[k]).reverse()],
      y: [...at.map((k) => values.high[k]), ...at.map((k) => values.low[k]).reverse()],
      fill: "toself", fillcolor: hue + "26", line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false,
      legendgroup: String(i), type: "scatter",
    });
  }
  traces.push({
    x, y: values.mean, name: safe(name), legendgroup: String(i), type: "scatter",
    mode: x.length < 25 ? "lines+markers" : "lines", line: { color: hue, width: 2.2, dash: dash(i) },
    marker: { symbol: mark(i), size: 6 }, ...changes,
  });
  return traces;
}

// The place of the first run of the best series among some runs: what a reader wants to see first.
function bestRun(suite, runs) {
  const worth = (run) => (suite.higher ? 1 : -1) * (suite.overview.points[run.series].mean ?? (suite.higher ? -Infinity : Infinity));
  return runs.reduce((best, run, i) => (worth(run) > worth(runs[best]) ? i : best), 0);
}

function runName(suite, run) {
  const one = suite.series[run.series];
  return one.label + (one.seeds.length > 1 || suite.series.length > 1 ? ", seed " + run.seed : "");
}
