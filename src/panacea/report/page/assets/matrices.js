"use strict";
// Whose models are mixed into whose, and how alike the models are.
const MATRICES = {
  weights: { title: "collaboration weights", note: "Row: whose model; column: what is mixed into it, and how much.", label: "weight" },
  similarity: { title: "similarity of models", note: "Cosine between clients' models, their common mean taken off.", label: "cosine" },
};

function drawMatrix(place, suite, run, kind) {
  const made = run[kind], n = made.clients.length, values = unpack(made), names = made.clients.map((i) => safe(short(suite.clients[run.table].names[i], 24)));
  const z = Array.from({ length: n }, (_, i) => Array.from(values.slice(i * n, i * n + n)));
  const shared = kind === "similarity";
  const size = Math.min(720, Math.max(420, 9 * n));
  const ticks = n <= 60 ? { tickvals: names.map((_, i) => i), ticktext: names, tickfont: { size: 9 } } : { title: { text: "clients, ordered by " + safe(made.order) } };
  plot(place, [{
    type: "heatmap", z, colorscale: shared ? BOTH : SCALE, ...(shared ? { zmin: -1, zmax: 1 } : { zmin: 0 }),
    colorbar: { title: { text: MATRICES[kind].label, side: "right" }, thickness: 12, outlinewidth: 0 },
    customdata: z.map((_, i) => names.map((name) => [names[i], name])), hovertemplate: "%{customdata[0]} " + (shared ? "and" : "takes from") + " %{customdata[1]}: %{z:.3f}<extra></extra>",
  }], {
    height: size, xaxis: { ...ticks, constrain: "domain", tickangle: -90, showgrid: false, zeroline: false },
    yaxis: { ...ticks, autorange: "reversed", scaleanchor: "x", constrain: "domain", showgrid: false, zeroline: false },
  });
}

tabs.push({
  name: "collaboration", title: "Collaboration", has: (suite) => suite.runs.some((run) => run.weights || run.similarity),
  draw(panel, suite) {
    const views = suite.runs.flatMap((run) => Object.keys(MATRICES).filter((kind) => run[kind]).map((kind) => ({ run, kind })));
    views.sort((a, b) => Object.keys(MATRICES).indexOf(a.kind) - Object.keys(MATRICES).indexOf(b.kind));
    const draw = (place, note, i) => {
      const { run, kind } = views[i];
      note.textContent = MATRICES[kind].note + " Clients are ordered by " + run[kind].order + ".";
      drawMatrix(place, suite, run, kind);
    };
    const names = views.map(({ run, kind }) => MATRICES[kind].title + ": " + runName(suite, run));
    const best = (kind) => { // the best series that has such a matrix
      const some = views.filter((view) => view.kind === kind);
      return some.length ? [views.indexOf(some[bestRun(suite, some.map((view) => view.run))])] : [];
    };
    const both = Object.keys(MATRICES).flatMap(best);
    const shown = both.length > 1 || views.length === 1 ? both : [both[0], both[0] === 0 ? 1 : 0];
    const cards = shown.map((first) => {
      const place = plotPlace("Matrix over clients", 420), note = element("p", { class: "note" });
      return { first, place, note, made: card("Between clients", "", controls(chooser("show", names, (i) => draw(place, note, i), first)), place, note) };
    });
    panel.append(element("div", { class: cards.length > 1 ? "two" : "" }, ...cards.map((one) => one.made)));
    cards.forEach((one) => draw(one.place, one.note, one.first));
  },
});
