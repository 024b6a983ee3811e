// What every part of the page uses: elements, numbers as text, columns of data.
"use strict";

const isoloss = {charts: {}};

/** An element with attributes and children; text is never markup. */
isoloss.make = function (tag, attributes = {}, ...children) {
  const svg = /^(svg|g|rect|line|circle|path|text|title)$/.test(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
                      : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === "") continue;
    element.append(child);
  }
  return element;
};

/** base64 of little-endian float32 as numbers. */
isoloss.floats = function (base64) {
  const text = atob(base64);
  const view = new DataView(new ArrayBuffer(text.length));
  for (let i = 0; i < text.length; ++i) view.setUint8(i, text.charCodeAt(i));
  const values = new Float32Array(text.length / 4);
  for (let i = 0; i < values.length; ++i) values[i] = view.getFloat32(4 * i, true);
  return values;
};

/** Steps of a run: a list, or first, stride and count. */
isoloss.steps = function (step) {
  if (step.list) return step.list;
  return Array.from({length: step.count}, (_, i) => step.first + i * step.stride);
};

isoloss.number = function (value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Inf" : "-Inf";
  const size = Math.abs(value);
  if (size < 1e15 && (Number.isInteger(value) || size >= 1e4)) return Math.round(value).toLocaleString("en-GB");
  if (size < 1e-3 || size >= 1e15) return value.toExponential(2);
  return value.toFixed(digits);
};

/** A tick of an axis: no digits that say nothing. */
isoloss.tick = (value) => String(Number(value.toPrecision(4)));

isoloss.percent = function (value, digits = 3) {
  if (value === null || value === undefined) return "unknown";
  if (!Number.isFinite(value)) return isoloss.number(value);
  return `${value > 0 ? "+" : ""}${value.toFixed(digits)} %`;
};

/** The number of a key of verdict.json: what is not finite stands in KEY_text. */
isoloss.given = function (object, key) {
  const text = object[key + "_text"];
  if (text !== undefined) return text === "nan" ? NaN : text === "inf" ? Infinity : -Infinity;
  return object[key];
};

/** Rows of `table`: a head, then cells; numbers stand to the right. */
isoloss.table = function (caption, head, rows) {
  const {make} = isoloss;
  const cell = (tag, value, extra = {}) => {
    const numeric = typeof value === "number";
    const shown = numeric ? isoloss.number(value) : value;
    const words = typeof value === "string" && value.length > 40;
    return make(tag, {class: numeric ? "number" : words ? "words" : null, ...extra}, shown ?? "");
  };
  return isoloss.titled(caption, make("table", {},
    make("thead", {}, make("tr", {}, head.map((name) => make("th", {scope: "col"}, name)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((value, i) =>
      i === 0 ? cell("th", value, {scope: "row"}) : cell("td", value)))))));
};

/** A table with a title that is not squeezed into its width; it scrolls alone. */
isoloss.titled = function (title, table) {
  table.setAttribute("aria-label", title);
  return isoloss.make("div", {}, isoloss.make("p", {class: "table-title", "aria-hidden": "true"}, title),
    isoloss.make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": title}, table));
};

/** What can be opened and is drawn while it is open. `draw` gives its children. */
isoloss.drawnWhenOpen = function (summary, draw) {
  const {make} = isoloss;
  const place = make("div");
  const show = () => element.open && place.replaceChildren(...draw());
  const element = make("details", {toggle: show}, make("summary", {}, summary), place);
  return element;
};

/** A section with a heading, which the bar on top links to. */
isoloss.section = function (id, title, ...children) {
  return isoloss.make("section", {id, "aria-labelledby": id + "-title"},
    isoloss.make("h2", {id: id + "-title"}, title), ...children);
};

isoloss.say = function (text) {
  document.getElementById("live").textContent = text;
};

isoloss.choice = function (label, values, onChange, chosen = 0) {
  const {make} = isoloss;
  const select = make("select", {change: () => onChange(Number(select.value))},
    values.map((name, i) => make("option", {value: i, selected: i === chosen}, name)));
  return make("label", {}, label, select);
};

isoloss.toggle = function (label, pressed, onChange) {
  const button = isoloss.make("button", {type: "button", "aria-pressed": String(pressed), click: () => {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    onChange(now);
  }}, label);
  return button;
};
