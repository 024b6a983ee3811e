// Curves over steps: losses of all arms and seeds, paired differences, held-out
// losses, gradient norms.
"use strict";

(() => {
const {make, percent} = isoloss;

/** Decoded once: arm.runs[i].steps, .values.loss_nats, ... */
isoloss.decode = function (data) {
  data.arms.forEach((arm, index) => {
    arm.index = index;
    for (const run of arm.runs) {
      run.steps = isoloss.steps(run.step);
      run.values = {};
      for (const [name, text] of Object.entries(run.series)) run.values[name] = isoloss.floats(text);
    }
  });
};

/** Values of `key` at the steps that all runs have. */
function aligned(runs, key) {
  const count = Math.min(...runs.map((run) => run.steps.length));
  const first = runs[0].steps.slice(0, count);
  if (runs.every((run) => first.every((step, i) => run.steps[i] === step))) {
    return {steps: first, values: runs.map((run) => run.values[key])};
  }
  const places = runs.map((run) => new Map(run.steps.map((step, i) => [step, i])));
  const steps = runs[0].steps.filter((step) => places.every((place) => place.has(step)));
  return {steps, values: runs.map((run, r) => steps.map((step) => run.values[key][places[r].get(step)]))};
}

/** Mean, smallest and largest over runs at each step that all of them have. */
isoloss.across = function (runs, key) {
  const whole = runs.filter((run) => run.values[key]);
  if (whole.length === 0) return null;
  const {steps, values} = aligned(whole, key);
  const [mean, low, high] = [0, 1, 2].map(() => new Float64Array(steps.length));
  for (let i = 0; i < steps.length; ++i) {
    const at = values.map((of) => of[i]);
    mean[i] = at.reduce((sum, value) => sum + value, 0) / at.length;
    low[i] = Math.min(...at);
    high[i] = Math.max(...at);
  }
  return {steps, mean, low, high, runs: whole};
};

/** Lines of one recorded quantity: a mean for each arm, and its seeds. */
function linesOf(data, key) {
  const lines = [];
  for (const arm of data.arms) {
    const all = isoloss.across(arm.runs, key);
    if (all === null) continue;
    const many = all.runs.length > 1;
    lines.push({label: many ? `${arm.name} (mean of ${all.runs.length} seeds)` : `${arm.name} (seed ${all.runs[0].seed})`,
      steps: all.steps, values: all.mean, arm: arm.index});
    if (!many) continue;
    for (const run of all.runs) {
      lines.push({label: `${arm.name}, seed ${run.seed}`, steps: run.steps, values: run.values[key], arm: arm.index,
        thin: true});
    }
  }
  return lines;
}

/** 100 (c - b) / b of each seed that both arms have, and their mean. */
isoloss.pairedDifference = function (data, pair) {
  const arm = (name) => data.arms.find((one) => one.name === name);
  const [baseline, candidate] = [arm(pair.baseline), arm(pair.candidate)];
  const runs = [];
  for (const seed of pair.seeds) {
    const b = baseline?.runs.find((run) => run.seed === seed);
    const c = candidate?.runs.find((run) => run.seed === seed);
    if (!b?.values.loss_nats || !c?.values.loss_nats) continue;
    const {steps, values: [ofB, ofC]} = aligned([b, c], "loss_nats");
    const difference = Float64Array.from(steps, (_, i) => 100 * (ofC[i] - ofB[i]) / ofB[i]);
    runs.push({seed, steps, values: {difference}});
  }
  const all = isoloss.across(runs, "difference");
  return all === null ? null : {...all, arm: candidate.index};
};

const isRecorded = (data, key) => data.arms.some((arm) => arm.runs.some((run) => run.values[key]));

function lossChart(data) {
  if (!isRecorded(data, "loss_nats")) return null;
  let seeds = true;
  return new isoloss.StepChart({
    id: "loss", title: "Training loss", unitName: "nats", logY: true,
    about: "Mean of each arm in bold, single seeds as thin lines. Drag over the chart to zoom.",
    unit: (value) => isoloss.number(value),
    lines: () => linesOf(data, "loss_nats").filter((line) => seeds || !line.thin),
    extra: (chart) => isoloss.toggle("Seeds", true, (on) => { seeds = on; chart.update(); }),
  });
}

/** Lines of the envelope of good runs, if an ensemble was given. */
function envelopeLines(data) {
  const envelope = data.null_envelope;
  if (!envelope) return [];
  return [["null envelope, lower end", envelope.lower, false], ["null envelope, upper end", envelope.upper, "-1"]]
    .map(([label, text, fill]) => ({label, steps: envelope.step, values: isoloss.floats(text), arm: 2, band: true, fill,
      exact: true}));
}

function spreadLines(difference, name, arm) {
  return [["least of " + name, difference.low, false], ["most of " + name, difference.high, "-1"]]
    .map(([label, values, fill]) => ({label, steps: difference.steps, values, arm, band: true, fill}));
}

/** Differences of all pairs; computed again only for new data. */
function differencesOf(data) {
  if (data.differences?.of !== data.arms) {
    data.differences = {of: data.arms, all: data.pairs.map((pair) => ({pair, all: isoloss.pairedDifference(data, pair)}))
      .filter((one) => one.all !== null)};
  }
  return data.differences.all;
}

function differenceChart(data) {
  const differences = differencesOf(data);
  if (differences.length === 0) return null;
  const shown = new Set(differences.filter((one) => one.pair.role !== "control").map((one) => one.pair.candidate));
  const margin = differences[0].pair.margin_percent;
  const window = differences[0].pair.window;
  const legend = [];
  if (margin && window) legend.push({colour: "margin-band", text: `margin \u00b1${margin} %, judged over steps ${window[0]} to ${window[1]}`});
  if (differences.some((one) => one.pair.role === "null")) {
    legend.push({colour: "grid", text: "range over seeds of arms that differ by chance alone"});
  }
  if (data.null_envelope) legend.push({colour: "grid", text: `null envelope of ${data.null_envelope.source}`});
  const lines = () => differencesOf(data).filter((one) => shown.has(one.pair.candidate)).flatMap(({pair, all}) => {
    const mean = {label: `${pair.candidate} \u2212 ${pair.baseline} (mean of ${all.runs.length})`, steps: all.steps,
      values: all.mean, arm: all.arm};
    if (pair.role === "null") return [...spreadLines(all, pair.candidate, all.arm), mean];
    return [mean, ...(all.runs.length > 1 ? all.runs : []).map((run) => ({label: `${pair.candidate}, seed ${run.seed}`,
      steps: run.steps, values: run.values.difference, arm: all.arm, thin: true}))];
  }).concat(envelopeLines(data));
  const chart = new isoloss.StepChart({
    id: "difference", title: "Paired difference of the loss", unitName: "% of the baseline's loss",
    about: "Each seed against the same seed of the baseline. Above zero is worse. Smoothing shows a trend below the noise of single steps.",
    unit: (value) => percent(value), lines, legend, smoothing: isoloss.usualSmoothing(),
    bands: () => margin && window ? [{from: window[0], to: window[1], low: -margin, high: margin, colour: "margin-band"}] : [],
    extra: (owner) => make("span", {class: "group"}, differences.length < 2 ? [] : differences.map((one) =>
      isoloss.toggle(one.pair.candidate, shown.has(one.pair.candidate), (on) => {
        if (on) shown.add(one.pair.candidate); else shown.delete(one.pair.candidate);
        owner.update();
      }))),
  });
  return chart;
}

/** Of step 0 nothing was learnt; it would hide all that follows. */
function trainedEvaluations(run) {
  const {step, loss_nats} = run.held_out ?? {step: [], loss_nats: []};
  const from = step.findIndex((one) => one > 0);
  return from < 0 ? {steps: [], values: {}} :
    {...run, steps: step.slice(from), values: {held_out: loss_nats.slice(from).map((value) => value ?? NaN)}};
}

function heldOutChart(data) {
  const lines = () => data.arms.flatMap((arm) => {
    const runs = arm.runs.map(trainedEvaluations).filter((run) => run.steps.length > 0);
    if (runs.length === 0) return [];
    const all = isoloss.across(runs, "held_out");
    return [{label: `${arm.name} (mean of ${runs.length})`, steps: all.steps, values: all.mean, arm: arm.index, exact: true}];
  });
  if (lines().length === 0) return null;
  return new isoloss.StepChart({id: "held-out", title: "Held-out loss", unitName: "nats", short: true, smoothing: false,
    about: "Loss on text that no run was trained on, mean over seeds, after step 0.", unit: (value) => isoloss.number(value), lines});
}

function plainChart(data, key, options) {
  if (!isRecorded(data, key)) return null;
  return new isoloss.StepChart({short: true, unit: (value) => isoloss.number(value), lines: () => linesOf(data, key),
    ...options});
}

isoloss.trainingSection = function (data) {
  const charts = [differenceChart(data), lossChart(data), heldOutChart(data),
    plainChart(data, "grad_norm", {id: "grad-norm", title: "Gradient norm before clipping", logY: true,
      about: "A rise that one arm alone shows often comes before its loss diverges."})].filter((chart) => chart !== null);
  if (charts.length === 0) return null;
  const [wide, short] = [charts.filter((chart) => !chart.options.short), charts.filter((chart) => chart.options.short)];
  return isoloss.section("training", "Training", ...wide.map((chart) => chart.element),
    make("div", {class: "two"}, short.map((chart) => chart.element)));
};

isoloss.loadChart = (data) => plainChart(data, "expert_load_max_over_mean", {id: "expert-load",
  title: "Busiest expert over the mean", unitName: "times the mean",
  about: "1 is perfect balance. The worst MoE layer of each step."});
})();
