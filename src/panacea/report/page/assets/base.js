"use strict";
// Small helpers: elements, choices, colours. Text reaches the page through textContent only: names are not ours.
const report = JSON.parse(document.getElementById("data").textContent);
const tabs = []; // {name, title, has(suite), draw(panel, suite)}; each file adds its own

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "text") made.textContent = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function card(title, note, ...children) {
  return element("section", { class: "card" }, element("h2", { text: title }), ...children,
    note ? element("p", { class: "note", text: note }) : null);
}

// A list to choose from. `options` are texts; `changed` gets the place of the chosen one.
function chooser(label, options, changed, chosen = 0) {
  const list = element("select", { onchange: () => changed(list.selectedIndex) },
    ...options.map((text, i) => element("option", { text, selected: i === chosen })));
  return element("label", {}, label, list);
}

// A few buttons of which one is pressed.
function buttons(label, options, changed, chosen = 0) {
  const group = element("span", { class: "choice", role: "group", "aria-label": label });
  options.forEach((text, i) => group.append(element("button", {
    type: "button", text, "aria-pressed": String(i === chosen),
    onclick: () => {
      [...group.children].forEach((other, j) => other.setAttribute("aria-pressed", String(i === j)));
      changed(i);
    },
  })));
  return element("label", {}, label, group);
}

function controls(...children) {
  return element("div", { class: "controls" }, ...children);
}

function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1 ? value.toFixed(2) : value.toPrecision(3);
}

// Plotly reads a little HTML in labels; a name must not be read as any.
function safe(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function short(text, most = 34) {
  const letters = [...String(text)];
  if (letters.length <= most) return String(text);
  const first = Math.floor(most / 3); // cut in the middle: labels differ at their ends
  return letters.slice(0, first).join("") + "…" + letters.slice(first + 1 - most).join("");
}

const DASHES = ["solid", "dash", "dot", "dashdot"];
const MARKS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"];
function colour(i) { return dark() && report.colours[i % report.colours.length] === "#000000" ? "#ffffff" : report.colours[i % report.colours.length]; }
function dash(i) { return DASHES[Math.floor(i / report.colours.length) % DASHES.length]; }
function mark(i) { return MARKS[i % MARKS.length]; }
function dark() { return document.documentElement.dataset.theme === "dark"; }
function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// `made` is what `packed` in Python made: small whole numbers in base64.
function unpack(made) {
  const bytes = Uint8Array.from(atob(made.data), (letter) => letter.charCodeAt(0));
  const codes = made.kind === "u1" ? bytes : new Uint16Array(bytes.buffer);
  return Float64Array.from(codes, (code) => made.low + code * made.step);
}

function tableOf(table, colours) {
  const marks = new Map(table.marks.map(([row, column, what]) => [row + "," + column, what]));
  const head = element("tr", {}, ...table.header.map((text) => element("th", { scope: "col", text })));
  const body = table.rows.map((row, i) => element("tr", {}, ...row.map((text, j) => {
    const cell = element("td", { class: marks.get(i + "," + j) || null });
    if (j === 0 && colours) cell.append(element("span", { class: "dot", style: "background:" + colour(i) }));
    cell.append(text);
    return cell;
  })));
  return element("div", { class: "wide" },
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

function plainTable(header, rows) {
  return tableOf({ header, rows: rows.map((row) => row.map(String)), marks: [] });
}
