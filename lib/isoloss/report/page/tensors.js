// The heat map of quantised operands, and what one of them did over the steps.
"use strict";

(() => {
const {make} = isoloss;

/** What the map can show. `worse` says which end is coloured; values that lie
 *  closer than `span` do not use the whole scale of colours. One of the `whole`
 *  tensor has no orientation. */
const kMeasures = [
  {key: "sqnr_db", name: "SQNR, dB", worse: "low", span: 6, digits: 1,
    about: "Signal over quantisation error of each operand. 6 dB are one bit; colour marks the lowest."},
  {key: "saturated%", name: "saturated, %", worse: "high", span: 1, digits: 3,
    about: "Elements beyond the largest value of the format under their scale."},
  {key: "underflows%", name: "underflow, %", worse: "high", span: 1, digits: 3,
    about: "Elements that are not zero, but become zero."},
  {key: "kurtosis", whole: true, name: "kurtosis", worse: "high", span: 10, digits: 1,
    about: "Fourth moment over squared variance of the operand before it is quantised: 3 is a normal distribution, more means outliers."},
  {key: "dynamic_range", whole: true, name: "dynamic range, bits", worse: "high", span: 16, digits: 1,
    about: "log2 of the largest over the smallest magnitude of the whole tensor, before it is quantised."},
];

/** Operands of a GEMM site in both orientations, and which products read them. */
const kColumns = [
  {operand: "activation", suffix: "", title: "activation, rows", product: "fprop"},
  {operand: "activation", suffix: "_columnwise", title: "activation, columns", product: "wgrad"},
  {operand: "weight", suffix: "", title: "weight, rows", product: "fprop"},
  {operand: "weight", suffix: "_columnwise", title: "weight, columns", product: "dgrad"},
  {operand: "gradient", suffix: "", title: "gradient, rows", product: "dgrad"},
  {operand: "gradient", suffix: "_columnwise", title: "gradient, columns", product: "wgrad"},
];

/** Statistics of an arm, decoded when they are first asked for. */
function statistic(tensors, key) {
  tensors.decoded ??= {};
  if (!tensors.statistics[key]) return null;
  return tensors.decoded[key] ??= isoloss.floats(tensors.statistics[key]);
}

const valuesOf = (tensors, measure, suffix) => statistic(tensors, measure.key + (measure.whole ? "" : suffix));

const valueAt = (tensors, values, step, tensor) =>
  values === null || tensor === undefined ? NaN : values[step * tensors.tensors.length + tensor];

function mixed(from, to, share) {
  const part = (colour, at) => parseInt(colour.slice(at, at + 2), 16);
  return "#" + [1, 3, 5].map((at) => Math.round(part(from, at) + share * (part(to, at) - part(from, at)))
    .toString(16).padStart(2, "0")).join("");
}

/** A name that may be broken after its dots. */
const breakable = (name) => name.split(/(?<=\.)/).flatMap((part) => [part, make("wbr")]);

class HeatMap {
  constructor(data) {
    this.arms = data.arms.filter((arm) => arm.tensors !== null && arm.tensors.tensors.length > 0);
    this.measures = kMeasures.filter((measure) => this.arms.some((arm) => arm.tensors.statistics[measure.key]));
    // The first arm that quantises anything is what people come for.
    this.arm = Math.max(0, this.arms.findIndex((arm) => arm.role === "candidate"));
    this.measure = 0;
    this.step = 0;
    this.filter = "";
    this.chosen = null;
    this.element = make("div");
    this.table = make("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Heat map of operands"});
    this.about = make("p", {class: "about-figure"});
    this.detail = make("div", {class: "detail"});
    isoloss.heatMap = this;
  }

  get tensors() { return this.arms[this.arm].tensors; }

  build() {
    const steps = make("span");
    this.showSteps = () => steps.replaceChildren(isoloss.choice("Step", this.tensors.steps.map(String),
      (i) => { this.step = i; this.draw(); }, this.step));
    this.showSteps();
    const search = make("input", {type: "search", size: 16, input: () => { this.filter = search.value; this.draw(); }});
    this.element.append(make("div", {class: "tools"},
      isoloss.choice("Arm", this.arms.map((arm) => arm.name), (i) => {
        this.arm = i;
        this.step = 0;
        this.showSteps();
        this.draw();
      }, this.arm),
      isoloss.choice("Show", this.measures.map((measure) => measure.name), (i) => { this.measure = i; this.draw(); }),
      steps, make("label", {}, "Only sites with", search)), this.about, this.table, this.detail);
    this.draw();
    return this.element;
  }

  /** GEMM sites in the order of computation: module, and the place of each operand. */
  sites() {
    const sites = new Map();
    this.tensors.tensors.forEach((tensor, i) => {
      if (!sites.has(tensor.module)) sites.set(tensor.module, {module: tensor.module, operands: {}});
      sites.get(tensor.module).operands[tensor.operand] = i;
    });
    return [...sites.values()].filter((site) => site.operands.activation !== undefined &&
      site.module.includes(this.filter));
  }

  draw() {
    const measure = this.measures[this.measure];
    const sites = this.sites();
    const columns = kColumns.map((column) => ({...column, values: valuesOf(this.tensors, measure, column.suffix)}));
    const value = (site, column) => valueAt(this.tensors, column.values, this.step, site.operands[column.operand]);
    const all = sites.flatMap((site) => columns.map((column) => value(site, column))).filter(Number.isFinite);
    const low = Math.min(...all), high = Math.max(...all);
    const span = Math.max(measure.span, high - low);
    const badness = (x) => (measure.worse === "low" ? high - x : x - low) / span;
    this.about.textContent = `${measure.about} Seed ${this.tensors.seed}, step ${this.tensors.steps[this.step]}. ` +
      (all.length === 0 ? "This arm quantises none of these operands." : "Choose a cell for its history and its scales.");
    const strongest = document.documentElement.dataset.theme === "dark" ? 0.5 : 0.6;
    const cell = (site, column) => {
      const x = value(site, column);
      if (Number.isNaN(x)) return make("td", {class: "empty"}, make("span", {"aria-label": "not quantised"}, "\u00b7"));
      const button = make("button", {type: "button", click: () => this.choose(site, column),
        "aria-label": `${site.module}, ${column.title}: ${isoloss.number(x, measure.digits)}`,
        "aria-pressed": String(this.chosen?.module === site.module && this.chosen?.title === column.title),
      }, isoloss.number(x, measure.digits));
      button.style.background = mixed(isoloss.colour("ground"), isoloss.colour("arm-1"),
        Number.isFinite(x) ? strongest * badness(x) : 0);
      return make("td", {}, button);
    };
    this.table.replaceChildren(make("table", {class: "heat", "aria-label": `${measure.name} of each operand of each GEMM`},
      make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "GEMM"), columns.map((column) =>
        make("th", {scope: "col"}, `${column.title} (${column.product})`)))),
      make("tbody", {keydown: (event) => this.onKey(event)}, sites.map((site) =>
        make("tr", {}, make("th", {scope: "row"}, breakable(site.module)), columns.map((column) => cell(site, column)))))));
  }

  /** Arrow keys walk from cell to cell. */
  onKey(event) {
    const moves = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]};
    const move = moves[event.key];
    const cell = event.target.closest("td");
    if (!move || !cell) return;
    event.preventDefault();
    const rows = [...this.table.querySelectorAll("tbody tr")];
    let row = rows.indexOf(cell.parentElement), column = [...cell.parentElement.children].indexOf(cell);
    for (;;) {
      row += move[0];
      column += move[1];
      const next = rows[row]?.children[column];
      if (!next) return;
      const button = next.querySelector("button");
      if (button) return button.focus();
    }
  }

  choose(site, column) {
    this.chosen = {module: site.module, title: column.title};
    this.draw();
    [...this.table.querySelectorAll("button[aria-pressed=true]")].at(0)?.focus();
    const measure = this.measures[this.measure];
    const name = `${site.module}, ${column.title}`;
    this.detail.replaceChildren(make("h3", {}, name), make("div", {class: "two"},
      this.history(site, column, measure), this.scales(site, column)));
    this.historyChart.start();
    this.drawScales?.();
  }

  /** Where each arm that has this tensor has it. */
  placesOf(site, column) {
    return this.arms.map((arm) => ({arm, place: arm.tensors.tensors.findIndex((tensor) =>
      tensor.module === site.module && tensor.operand === column.operand)})).filter(({place}) => place >= 0);
  }

  history(site, column, measure) {
    const lines = () => this.placesOf(site, column).map(({arm, place}) => {
      const values = valuesOf(arm.tensors, measure, column.suffix);
      return {label: arm.name, arm: arm.index, steps: arm.tensors.steps, exact: true,
        values: arm.tensors.steps.map((_, i) => valueAt(arm.tensors, values, i, place))};
    }).filter((line) => line.values.some(Number.isFinite));
    isoloss.forget(this.historyChart);
    this.historyChart = new isoloss.StepChart({id: "tensor-history", title: `${measure.name} over the steps`, short: true,
      smoothing: false, fixed: true, about: "At the steps whose statistics were logged, of every arm that quantises this operand.",
      unit: (value) => isoloss.number(value, measure.digits), lines});
    return this.historyChart.element;
  }

  /** How many blocks have which E8M0 scale, at the step that is shown. */
  scales(site, column) {
    const side = column.suffix === "" ? "rowwise" : "columnwise";
    const step = this.tensors.steps[this.step];
    const found = this.placesOf(site, column).map(({arm, place}) => {
      const at = arm.tensors.steps.indexOf(step);
      return {arm, counts: at < 0 ? [] : arm.tensors.e8m0?.[side]?.[at]?.[place] ?? []};
    }).filter(({counts}) => counts.length > 0);
    this.drawScales = null;
    if (found.length === 0) return make("p", {class: "quiet-text"}, "This operand has no E8M0 scales at this step.");
    const bytes = found.flatMap(({counts}) => counts.map(([byte]) => byte));
    const [first, last] = [Math.min(...bytes), Math.max(...bytes)];
    const labels = Array.from({length: last - first + 1}, (_, i) => first + i);
    const exponent = (byte) => byte === 255 ? "NaN" : `2^${byte - 127}`;
    const sets = found.map(({arm, counts}) => {
      const all = new Map(counts);
      return {arm, values: labels.map((byte) => all.get(byte) ?? 0)};
    });
    const chart = new isoloss.BarChart({id: "scales", title: `Scales of its blocks at step ${step}`,
      about: "Number of blocks with each E8M0 scale.", labels: labels.map(exponent), xName: "scale", yName: "blocks",
      sets: () => sets.map(({arm, values}) => ({label: arm.name, values, arm: arm.index}))});
    this.drawScales = () => chart.start();
    return chart.element;
  }
}

isoloss.tensorSection = function (data) {
  const map = new HeatMap(data);
  if (map.arms.length === 0 || map.measures.length === 0) return null;
  return isoloss.section("tensors", "Quantised tensors", map.build());
};
})();
