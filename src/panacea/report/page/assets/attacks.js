"use strict";
// Robustness: against the share of attackers, and by distance from them.
function drawRatios(place, suite, what) {
  const traces = suite.attacks.curves.flatMap((curve, i) => {
    const values = curve.what[what];
    if (!values) return [];
    const limit = suite.higher ? 100 : Infinity;
    const band = {
      mean: values.mean,
      low: values.mean.map((v, k) => (v === null || values.around[k] === null ? null : Math.max(0, v - values.around[k]))),
      high: values.mean.map((v, k) => (v === null || values.around[k] === null ? null : Math.min(limit, v + values.around[k]))),
    };
    return banded(curve.ratios, band, i, short(curve.label, 48), { hovertemplate: "share %{x}: %{y:.4g}<extra>" + safe(curve.label) + "</extra>" });
  });
  plot(place, traces, { xaxis: axis("share of training clients that attack"), yaxis: axis(what === "asr_mean" ? "attack success, %" : suite.axis), height: 430 });
}

function drawDamage(place, suite, damage) {
  const rows = damage.rows, x = rows.map((row) => row.hops + (row.hops === "not linked" ? "" : row.hops === "1" ? " hop" : " hops"));
  const one = (name, values, hue, symbol) => ({
    type: "scatter", mode: "lines+markers", name, x, y: values, line: { color: hue, width: 2 }, marker: { symbol, size: 9 },
    customdata: rows.map((row) => row.clients), hovertemplate: "%{x}: %{y:.4g} (%{customdata} clients)<extra></extra>",
  });
  const traces = [{ ...one("under attack", rows.map((row) => row.mean), "#d55e00", "circle"), error_y: {
    type: "data", array: rows.map((row) => Math.min(row.std, suite.higher ? 100 - row.mean : Infinity)), arrayminus: rows.map((row) => Math.min(row.std, row.mean)), thickness: 1, width: 4,
  } }];
  if (rows.some((row) => row.clean !== null)) traces.push(one("the same clients without attack", rows.map((row) => row.clean), "#0072b2", "square"));
  plot(place, traces, { xaxis: axis("from the nearest attacker", { type: "category" }), yaxis: axis(suite.axis), height: 380 });
}

tabs.push({
  name: "robustness", title: "Robustness", after: "novel", has: (suite) => Object.keys(suite.attacks).length > 0,
  draw(panel, suite) {
    const { curves, damage, refused, measures } = suite.attacks;
    if (curves.length) {
      const keys = Object.keys(measures).filter((key) => curves.some((curve) => curve.what[key])), place = plotPlace("Metric against the share of attackers", 430);
      panel.append(card("Against the share of attackers", "Mean over seeds; the band is one standard deviation over seeds.",
        controls(buttons("show", keys.map((key) => measures[key]), (i) => drawRatios(place, suite, keys[i]))), place));
      drawRatios(place, suite, keys[0]);
      panel.append(card(suite.tables.attacks.title, suite.tables.attacks.note, tableOf(suite.tables.attacks, true)));
    }
    if (damage.length) {
      const place = plotPlace("Damage by distance", 380), rows = element("div", {});
      const show = (i) => {
        drawDamage(place, suite, damage[i]);
        rows.replaceChildren(plainTable(["hops", "clients", "mean", "± clients", "without attack", "change"], damage[i].rows.map((row) => [
          row.hops, row.clients, number(row.mean), number(row.std), number(row.clean), number(row.change)])));
      };
      const last = damage.length - 1;
      panel.append(card("Damage by distance", "Honest training clients by the number of links to the nearest attacker, clients of all seeds; ± is one standard deviation over them.",
        controls(chooser("setting", damage.map((one) => suite.series[one.series].label), show, last)), place, rows));
      show(last);
    }
    if (refused.length) {
      panel.append(card("Uploads that the server refused", "", plainTable(["setting", "reason", "uploads"],
        refused.flatMap((one) => Object.entries(one.reasons).map(([why, count]) => [suite.series[one.series].label, why, count])))));
    }
  },
});
