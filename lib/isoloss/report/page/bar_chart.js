// A chart of counts, with its numbers as a table.
"use strict";

(() => {
const {make} = isoloss;

isoloss.BarChart = class {
  /** options: id, title, about, labels, xName, yName, sets() gives
   *  [{label, values, arm}]. */
  constructor(options) {
    this.options = options;
    this.canvas = make("canvas", {id: options.id, role: "img", "aria-label": `${options.title}. ${options.about}`});
    this.element = make("div", {class: "figure"}, make("h3", {}, options.title),
      make("p", {class: "about-figure"}, options.about), make("div", {class: "canvas-box short"}, this.canvas),
      make("details", {}, make("summary", {}, "Show the numbers"), isoloss.table(options.title,
        [options.xName, ...options.sets().map((set) => set.label)],
        options.labels.map((label, i) => [label, ...options.sets().map((set) => set.values[i])]))));
  }

  start() {
    this.chart = new Chart(this.canvas, {type: "bar", data: {labels: this.options.labels, datasets: []},
      options: {animation: false, responsive: true, maintainAspectRatio: false, scales: {x: {}, y: {}},
        plugins: {legend: {labels: {}}}}});
    isoloss.charts[this.options.id] = this;
    this.update();
  }

  update() {
    if (!this.chart) return;
    const axis = (name) => ({title: {display: true, text: name, color: isoloss.colour("quiet")},
      grid: {color: isoloss.colour("grid"), borderColor: isoloss.colour("line")},
      ticks: {color: isoloss.colour("quiet")}, beginAtZero: true});
    this.chart.data.datasets = this.options.sets().map((set) => ({label: set.label, data: set.values,
      backgroundColor: isoloss.armStyle(set.arm).colour}));
    this.chart.options.scales = {x: axis(this.options.xName), y: axis(this.options.yName)};
    this.chart.options.plugins.legend.labels.color = isoloss.colour("text");
    this.chart.update("none");
  }
};
})();
