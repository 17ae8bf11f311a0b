"use strict";
// Convergence and communication: the same curves along rounds, bytes or seconds.
const ALONG = { rounds: "round", bytes: "MiB sent, down and up", seconds: "seconds of training" };

function drawCurves(place, suite, what, along, log, steep) {
  const traces = suite.curves.flatMap((curve, i) => {
    const values = curve.what[what];
    if (!values) return [];
    const name = suite.series[i].label;
    return banded(curve[along], values, i, short(name, 48), {
      hovertemplate: "%{x:.4g}: %{y:.4g}<extra>" + safe(name) + "</extra>",
    });
  });
  const y = what === "train_loss" ? "training loss" : what === "asr_mean" ? "attack success, %" : suite.axis;
  plot(place, traces, { xaxis: axis(ALONG[along], scaled(log)), yaxis: axis(y, scaled(steep)), height: 470, hovermode: "closest" });
}

// Whether an error falls so far that only a logarithmic axis shows where it ends.
function steep(suite) {
  const values = suite.curves.flatMap((curve) => (curve.what.mean ? curve.what.mean.mean : [])).filter((v) => v > 0);
  return !suite.higher && values.length > 0 && Math.max(...values) > 20 * Math.min(...values);
}

tabs.push({
  name: "convergence", title: "Convergence", has: (suite) => suite.curves.some((curve) => curve.rounds.length > 1),
  draw(panel, suite) {
    const keys = Object.keys(report.curves).filter((key) => suite.curves.some((curve) => curve.what[key]));
    const ways = Object.keys(ALONG).filter((way) => suite.curves.some((curve) => curve[way].some((v) => v !== null)));
    const state = { what: keys[0], along: "rounds", steep: steep(suite) }, place = plotPlace("Curves over rounds", 470);
    const redraw = () => drawCurves(place, suite, state.what, state.along, false, state.steep);
    const band = suite.curves.some((curve) => curve.band === "seeds")
      ? "The band is one standard deviation over seeds." : "The band is one standard deviation over clients.";
    panel.append(card("Convergence", "Mean over " + suite.whose + ". " + band + " Click a name in the legend to hide it.",
      controls(buttons("show", keys.map((key) => report.curves[key]), (i) => { state.what = keys[i]; redraw(); }),
        buttons("against", ways, (i) => { state.along = ways[i]; redraw(); }),
        buttons("scale", SCALES, (i) => { state.steep = i === 1; redraw(); }, state.steep ? 1 : 0)), place));
    redraw();
  },
});

// The first point of a curve that is as good as the target, with what it took to get there.
function reached(suite, curve, target) {
  const values = curve.what.mean ? curve.what.mean.mean : [];
  const at = values.findIndex((v) => v !== null && (suite.higher ? v >= target : v <= target));
  return at < 0 ? null : { round: curve.rounds[at], bytes: curve.bytes[at], seconds: curve.seconds[at] };
}

function easiestTarget(suite) {
  const best = suite.curves.map((curve) => (curve.what.mean ? curve.what.mean.mean : []).filter((v) => v !== null))
    .filter((values) => values.length).map((values) => (suite.higher ? Math.max(...values) : Math.min(...values)));
  const target = suite.higher ? Math.min(...best) : Math.max(...best);
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(target) || 1)));
  return (suite.higher ? Math.floor : Math.ceil)(target * 10 ** digits) / 10 ** digits;
}

tabs.push({
  name: "communication", title: "Communication", has: (suite) => suite.curves.some((curve) => curve.bytes.some((v) => v)),
  draw(panel, suite) {
    const place = plotPlace("Metric against bytes", 470), rows = element("div", {});
    const target = element("input", { type: "number", step: "any", value: easiestTarget(suite), "aria-label": "target" });
    const fill = () => {
      const value = Number(target.value);
      rows.replaceChildren(plainTable(["method", "MiB", "rounds", "seconds"], suite.series.map((one, i) => {
        const there = reached(suite, suite.curves[i], value);
        return [one.label, ...(there ? [number(there.bytes), number(there.round), number(there.seconds)] : ["not reached", "–", "–"])];
      })));
    };
    target.addEventListener("input", fill);
    panel.append(card(suite.metric + " against bytes", "Mean over " + suite.whose + " on test data against all bytes sent so far.",
      controls(buttons("scale", SCALES, (i) => drawCurves(place, suite, "mean", "bytes", i === 1, steep(suite)))), place));
    panel.append(card("To reach a target", "The first evaluated round at which the mean over seeds on test data is as good as the target. "
      + "At first the target is what every method reaches.", controls(element("label", {}, suite.metric, target)), rows));
    drawCurves(place, suite, "mean", "bytes", false, steep(suite));
    fill();
  },
});
