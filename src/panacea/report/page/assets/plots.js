"use strict";
// One look for all figures.
function layout(changes) {
  const line = { gridcolor: css("--grid"), zerolinecolor: css("--grid"), linecolor: css("--line"), automargin: true };
  const base = {
    font: { family: "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif", size: 13, color: css("--ink") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 60, r: 16, t: 12, b: 48 },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 }, align: "left" },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } }, height: 400,
  };
  const made = { ...base, ...changes };
  for (const name of ["xaxis", "yaxis"]) made[name] = { ...line, ...(changes[name] || {}) };
  return made;
}

function axis(title, changes) {
  return { title: { text: safe(title), standoff: 8 }, ...changes };
}

const CONFIG = {
  displaylogo: false, responsive: true, showTips: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { format: "svg", scale: 1 },
};

// Draw into `place`, an element on the page; drawing again replaces what was there.
function plot(place, traces, changes) {
  return Plotly.react(place, traces, layout(changes), CONFIG);
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

function runName(suite, run) {
  const one = suite.series[run.series];
  return one.label + (one.seeds.length > 1 || suite.series.length > 1 ? ", seed " + run.seed : "");
}
