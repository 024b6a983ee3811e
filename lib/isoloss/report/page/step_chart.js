// A chart over training steps. All of them share one range of steps: who zooms
// one zooms all.
"use strict";

(() => {
const {make} = isoloss;

/** More points than this say nothing more on a screen. */
const kBuckets = 700;
/** Steps over which people may smooth; odd, since each point is the middle. */
const kWidths = [1, 5, 21, 51, 201];

const range = {first: 0, last: 1, whole: [0, 1], charts: []};

/** Smallest and largest value of each of kBuckets parts of [from, to), in the
 *  order of their steps; all points if they are few. */
function thinned(steps, values, from, to) {
  const points = [];
  if (to - from <= 2 * kBuckets) {
    for (let i = from; i < to; ++i) points.push({x: steps[i], y: values[i]});
    return points;
  }
  const size = (to - from) / kBuckets;
  for (let bucket = 0; bucket < kBuckets; ++bucket) {
    const begin = from + Math.floor(bucket * size);
    const end = from + Math.floor((bucket + 1) * size);
    let low = begin, high = begin, gap = -1;
    for (let i = begin; i < end; ++i) {
      if (!Number.isFinite(values[i])) gap = i;
      if (!(values[i] >= values[low])) low = i;
      if (!(values[i] <= values[high])) high = i;
    }
    const chosen = [...new Set([low, high, ...(gap >= 0 ? [gap] : [])])].sort((a, b) => a - b);
    for (const i of chosen) points.push({x: steps[i], y: values[i]});
  }
  return points;
}

/** Mean over `width` steps around each point, each of which stands for some
 *  steps; what is not finite stays so. */
isoloss.smoothed = function (steps, values, width) {
  const stride = steps.length > 1 ? steps[1] - steps[0] : 1;
  const half = Math.floor(width / 2 / stride);
  if (half === 0) return values;
  const result = new Float64Array(values.length);
  let sum = 0, count = 0, from = 0, to = 0;
  for (let i = 0; i < values.length; ++i) {
    for (; to < values.length && to <= i + half; ++to) {
      if (Number.isFinite(values[to])) { sum += values[to]; ++count; }
    }
    for (; from < i - half; ++from) {
      if (Number.isFinite(values[from])) { sum -= values[from]; --count; }
    }
    result[i] = Number.isFinite(values[i]) && count > 0 ? sum / count : values[i];
  }
  return result;
};

/** A width that leaves about 15 independent points of the whole training. */
isoloss.usualSmoothing = () =>
  kWidths.filter((width) => width <= Math.max(1, (range.whole[1] - range.whole[0]) / 15)).at(-1);

/** First index whose step is not below `step`. */
function indexOf(steps, step) {
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1; else high = middle;
  }
  return low;
}

/** All steps. Who shows all of them goes on to do so. */
isoloss.setWholeRange = function (first, last) {
  const all = range.first === range.whole[0] && range.last === range.whole[1];
  range.whole = [first, Math.max(last, first + 1)];
  if (all) [range.first, range.last] = range.whole;
};

function zoomTo(first, last) {
  const [low, high] = range.whole;
  const least = Math.min(4, high - low);
  const width = Math.max(least, Math.min(last - first, high - low));
  range.first = Math.round(Math.max(low, Math.min(first, high - width)));
  range.last = Math.round(range.first + width);
  for (const chart of range.charts) chart.update();
}

function zoomBy(factor, centre = (range.first + range.last) / 2) {
  const width = (range.last - range.first) * factor;
  const share = (centre - range.first) / (range.last - range.first);
  zoomTo(centre - share * width, centre + (1 - share) * width);
}

/** A chart that is no longer on the page. */
isoloss.forget = function (chart) {
  if (!chart) return;
  chart.chart?.destroy();
  chart.chart = null;
  range.charts = range.charts.filter((one) => one !== chart);
};

/** Draws what the step chart has beside lines: bands, level lines, the cursor. */
const decorations = (owner) => ({
  id: "decorations",
  beforeDatasetsDraw(chart) {
    const {ctx, chartArea: area, scales: {x, y}} = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(area.left, area.top, area.width, area.height);
    ctx.clip();
    for (const band of owner.bands()) {
      const left = x.getPixelForValue(Math.max(band.from ?? x.min, x.min));
      const right = x.getPixelForValue(Math.min(band.to ?? x.max, x.max));
      const top = band.high === undefined ? area.top : y.getPixelForValue(band.high);
      const bottom = band.low === undefined ? area.bottom : y.getPixelForValue(band.low);
      ctx.fillStyle = isoloss.colour(band.colour);
      ctx.fillRect(left, top, right - left, bottom - top);
    }
    ctx.restore();
  },
  afterDatasetsDraw(chart) {
    const {ctx, chartArea: area, scales: {x}} = chart;
    if (owner.cursor === null) return;
    const at = x.getPixelForValue(owner.cursor);
    if (at < area.left || at > area.right) return;
    ctx.save();
    ctx.strokeStyle = isoloss.colour("quiet");
    ctx.beginPath();
    ctx.moveTo(at, area.top);
    ctx.lineTo(at, area.bottom);
    ctx.stroke();
    ctx.restore();
  },
});

isoloss.StepChart = class {
  /** options: id, title, about (what it shows, for everybody), unit(value),
   *  lines() gives [{label, steps, values, arm, thin, band, fill, exact}], bands() gives
   *  [{from, to, low, high, colour}], short, logY, fixed (always shows all
   *  steps). */
  constructor(options) {
    this.options = options;
    this.cursor = null;
    this.smoothing = options.smoothing || 1;
    this.logY = false;
    this.logX = false;
    this.build();
    isoloss.charts[options.id] = this;
    if (!options.fixed) range.charts.push(this);
  }

  /** The steps that it shows. */
  shown() { return this.options.fixed ? range.whole : [range.first, range.last]; }

  bands() { return this.options.bands ? this.options.bands() : []; }

  build() {
    const {id, title, about} = this.options;
    const keys = this.options.fixed ? "Arrow keys read values." :
      "Arrow keys read values, plus and minus zoom, 0 shows all steps.";
    this.canvas = make("canvas", {id, "aria-hidden": "true"});
    this.box = make("div", {
      class: this.options.short ? "canvas-box short" : "canvas-box", tabindex: "0", role: "group",
      "aria-label": `${title}. ${about} ${keys}`,
      keydown: (event) => this.onKey(event),
    }, this.canvas);
    this.readout = make("p", {class: "readout"}, "Point at the chart, or focus it and press an arrow key, to read values.");
    this.legend = make("ul", {class: "legend"});
    this.numbers = make("details", {toggle: () => this.numbers.open && this.fillNumbers()},
      make("summary", {}, "Show the numbers"));
    this.element = make("div", {class: "figure"}, make("h3", {}, title),
      make("p", {class: "about-figure"}, about), this.tools(), this.box, this.readout, this.legend, this.numbers);
    this.listenToPointer();
  }

  tools() {
    const button = (label, name, action) =>
      make("button", {type: "button", "aria-label": `${name}, ${this.options.title}`, click: action}, label);
    const widths = kWidths;
    if (this.options.fixed) return "";
    return make("div", {class: "tools"},
      button("+", "Zoom in", () => zoomBy(0.5)), button("\u2212", "Zoom out", () => zoomBy(2)),
      button("All steps", "Show all steps", () => zoomTo(...range.whole)),
      this.options.smoothing === false ? null : isoloss.choice("Smoothing",
        widths.map((width) => width === 1 ? "none" : `mean of ${width} steps`),
        (i) => { this.smoothing = widths[i]; this.update(); },
        widths.indexOf(this.smoothing)),
      this.options.logY ? isoloss.toggle("Log scale", false, (on) => { this.logY = on; this.update(); }) : null,
      isoloss.toggle("Log steps", false, (on) => { this.logX = on; this.update(); }),
      this.options.extra ? this.options.extra(this) : null);
  }

  /** Draws it once it is on the page; Chart.js measures its box. */
  start() {
    this.chart = new Chart(this.canvas, {
      type: "line",
      data: {datasets: []},
      options: {
        animation: false, parsing: false, normalized: true, responsive: true, maintainAspectRatio: false,
        spanGaps: false, events: [],
        plugins: {legend: {display: false}, tooltip: {enabled: false}},
        elements: {point: {radius: 0}, line: {tension: 0}},
        scales: {x: {}, y: {}},
      },
      plugins: [decorations(this)],
    });
    this.update();
  }

  axis(type, title) {
    return {
      type, title: {display: title !== "", text: title, color: isoloss.colour("quiet")},
      grid: {color: isoloss.colour("grid"), borderColor: isoloss.colour("line")},
      ticks: {color: isoloss.colour("quiet"), maxTicksLimit: 8},
    };
  }

  update() {
    if (!this.chart) return;
    this.lines = this.options.lines(this).map((line) =>
      ({...line, values: line.exact ? line.values : isoloss.smoothed(line.steps, line.values, this.smoothing)}));
    this.chart.data.datasets = this.lines.map((line) => this.dataset(line));
    const {scales} = this.chart.options;
    const [first, last] = this.shown();
    scales.x = {...this.axis(this.logX ? "logarithmic" : "linear", "step"),
      min: this.logX ? Math.max(1, first) : first, max: last};
    scales.y = this.axis(this.logY ? "logarithmic" : "linear", this.options.unitName ?? "");
    scales.y.ticks = {...scales.y.ticks, callback: isoloss.tick};
    this.chart.update("none");
    this.drawLegend();
    if (this.numbers.open) this.fillNumbers();
  }

  dataset(line) {
    const style = isoloss.armStyle(line.arm);
    const [first, last] = this.shown();
    const from = Math.max(0, indexOf(line.steps, first) - 1);
    const to = Math.min(line.steps.length, indexOf(line.steps, last + 1) + 1);
    const few = to - from <= 12;
    return {
      label: line.label,
      data: thinned(line.steps, line.values, from, to),
      borderColor: line.band ? "transparent" : line.thin ? isoloss.faded(style.colour, 0.35) : style.colour,
      backgroundColor: isoloss.faded(style.colour, line.band ? 0.18 : 1),
      fill: line.fill ?? false,
      borderWidth: line.thin ? 1 : 2.2,
      borderDash: line.thin ? [] : style.dash,
      pointRadius: few && !line.band ? (line.thin ? 2 : 4) : 0,
      clip: 6,
      // The lowest is on top: the dashes of later arms over the solid baseline.
      order: (line.band ? 3 : line.thin ? 2 : 1) - line.arm / 1000,
    };
  }

  drawLegend() {
    const shown = this.lines.filter((line) => !line.thin && !line.band);
    this.legend.replaceChildren(...shown.map((line) => {
      const style = isoloss.armStyle(line.arm);
      return make("li", {}, make("svg", {width: 30, height: 10, "aria-hidden": "true"},
        make("line", {x1: 1, x2: 29, y1: 5, y2: 5, stroke: style.colour, "stroke-width": 2.5,
          "stroke-dasharray": style.dash.join(" ")})), line.label);
    }), ...(this.options.legend ?? []).map((note) => make("li", {},
      make("svg", {width: 30, height: 12, "aria-hidden": "true"},
        make("rect", {x: 0, y: 0, width: 30, height: 12, fill: isoloss.colour(note.colour)})), note.text)));
  }

  /** The values at the step that is nearest to `step`. */
  read(step, aloud = false) {
    const reference = this.lines.find((line) => line.steps.length > 0);
    if (!reference) return;
    const at = indexOf(reference.steps, step);
    const before = reference.steps[Math.max(0, at - 1)];
    const after = reference.steps[Math.min(at, reference.steps.length - 1)];
    this.cursor = step - before < after - step ? before : after;
    const parts = this.lines.filter((line) => !line.thin && !line.band).map((line) => {
      const i = indexOf(line.steps, this.cursor);
      const there = line.steps[i] === this.cursor;
      return `${line.label}: ${there ? this.options.unit(line.values[i]) : "no value"}`;
    });
    this.readout.textContent = `Step ${this.cursor}. ${parts.join("; ")}`;
    if (aloud) isoloss.say(this.readout.textContent);
    this.chart.draw();
  }

  onKey(event) {
    const steps = this.lines.find((line) => line.steps.length > 0)?.steps ?? [];
    const at = this.cursor === null ? indexOf(steps, range.first) - 1 : indexOf(steps, this.cursor);
    const jump = event.shiftKey ? 10 : 1;
    const moves = {ArrowRight: at + jump, ArrowLeft: at - jump, Home: 0, End: steps.length - 1};
    if (event.key in moves) {
      if (steps.length === 0) return;
      const to = steps[Math.max(0, Math.min(moves[event.key], steps.length - 1))];
      if (!this.options.fixed && (to < range.first || to > range.last)) {
        const half = (range.last - range.first) / 2;
        zoomTo(to - half, to + half);
      }
      this.read(to, true);
    } else if (this.options.fixed) return;
    else if (event.key === "+" || event.key === "=") zoomBy(0.5, this.cursor ?? undefined);
    else if (event.key === "-") zoomBy(2, this.cursor ?? undefined);
    else if (event.key === "0") zoomTo(...range.whole);
    else return;
    event.preventDefault();
  }

  stepAt(event) {
    const {x} = this.chart.scales;
    return x.getValueForPixel(event.clientX - this.box.getBoundingClientRect().left);
  }

  /** Moving reads values, dragging zooms, a double click shows all. */
  listenToPointer() {
    let from = null, mark = null;
    const left = (event) => event.clientX - this.box.getBoundingClientRect().left;
    this.box.addEventListener("pointerdown", (event) => {
      if (!this.options.fixed && event.pointerType === "mouse" && event.button === 0) from = {pixel: left(event), step: this.stepAt(event)};
    });
    this.box.addEventListener("pointermove", (event) => {
      if (!this.chart) return;
      this.read(this.stepAt(event));
      if (from === null) return;
      if (mark === null) this.box.append(mark = make("div", {class: "selection"}));
      mark.style.left = `${Math.min(from.pixel, left(event))}px`;
      mark.style.width = `${Math.abs(left(event) - from.pixel)}px`;
    });
    const end = (event) => {
      if (from !== null && event.type === "pointerup" && Math.abs(left(event) - from.pixel) > 8) {
        const steps = [from.step, this.stepAt(event)].sort((a, b) => a - b);
        zoomTo(...steps);
      }
      if (mark !== null) mark.remove();
      from = mark = null;
    };
    this.box.addEventListener("pointerup", end);
    this.box.addEventListener("pointerleave", end);
    this.box.addEventListener("dblclick", () => zoomTo(...range.whole));
    this.box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey || this.options.fixed) return;
      event.preventDefault();
      zoomBy(event.deltaY > 0 ? 1.25 : 0.8, this.stepAt(event));
    }, {passive: false});
  }

  /** A table of at most 21 of the steps that are shown. */
  fillNumbers() {
    const lines = this.lines.filter((line) => !line.thin && !line.band);
    const all = lines.length === 0 ? [] : Array.from(lines[0].steps)
      .filter((step) => step >= this.shown()[0] && step <= this.shown()[1]);
    const kRows = 21;
    const steps = all.length <= kRows ? all : Array.from({length: kRows},
      (_, i) => all[Math.round(i * (all.length - 1) / (kRows - 1))]);
    const value = (line, step) => {
      const i = indexOf(line.steps, step);
      return line.steps[i] === step ? this.options.unit(line.values[i]) : "";
    };
    const table = isoloss.table(`${this.options.title}: ${steps.length} of ${all.length} steps`,
      ["step", ...lines.map((line) => line.label)],
      steps.map((step) => [String(step), ...lines.map((line) => value(line, step))]));
    this.numbers.replaceChildren(this.numbers.firstElementChild, table);
  }
};
})();
