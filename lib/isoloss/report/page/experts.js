// Who got which tokens: load of experts, flips of the routing, bytes between
// ranks.
"use strict";

(() => {
const {make} = isoloss;

/** A matrix whose cells are shaded by their share of the largest. */
isoloss.shadedMatrix = function (caption, rows, columns, values, digits = 0) {
  const most = Math.max(...values.flat().filter(Number.isFinite), 1e-30);
  return isoloss.titled(caption, make("table", {class: "cells"},
    make("thead", {}, make("tr", {}, make("td"), columns.map((name) => make("th", {scope: "col"}, name)))),
    make("tbody", {}, values.map((row, i) => make("tr", {}, make("th", {scope: "row"}, rows[i]),
      row.map((value) => make("td", {style: `background: color-mix(in srgb, var(--arm-0) ${
        Math.round(45 * Math.max(0, value) / most)}%, var(--ground))`}, isoloss.number(value, digits))))))));
};

/** Tokens of each expert over its layer's mean, in parts of training. */
function loadMatrices(arm) {
  const {moe} = arm;
  const all = isoloss.floats(moe.tokens_per_expert);
  const tables = [];
  for (let layer = 0; layer < moe.layers; ++layer) {
    const rows = moe.steps.map((_, part) => {
      const from = (part * moe.layers + layer) * moe.experts;
      const tokens = Array.from(all.subarray(from, from + moe.experts));
      const mean = tokens.reduce((sum, value) => sum + value, 0) / moe.experts;
      return tokens.map((value) => value / mean);
    });
    const shown = Array.from({length: moe.experts}, (_, expert) => rows.map((row) => row[expert]));
    tables.push(isoloss.shadedMatrix(
      `${arm.name}, MoE layer ${layer + 1} of ${moe.layers}, seed ${moe.seed}: tokens of each expert (row) over the mean, ` +
      "by the step at which a part of training begins (column)",
      shown.map((_, expert) => `expert ${expert}`), moe.steps.map(String), shown, 2));
  }
  return tables;
}

function loads(data) {
  const arms = () => data.arms.filter((arm) => arm.moe);
  if (arms().length === 0) return null;
  let shown = 0;
  return isoloss.drawnWhenOpen("Load of every expert", () => {
    const place = make("div");
    const show = (i) => place.replaceChildren(...loadMatrices(arms()[shown = i]));
    show(shown);
    return [make("div", {class: "tools"}, isoloss.choice("Arm", arms().map((arm) => arm.name), show, shown)), place];
  });
}

/** The mean of an arm's pairs, and each pair. */
function flipLines(flips, arm) {
  const runs = flips.filter((one) => one.candidate === arm.name).map((one) =>
    ({seed: one.seed, steps: one.step, values: {percent: one.percent}}));
  if (runs.length === 0) return [];
  const all = isoloss.across(runs, "percent");
  const mean = {label: `${arm.name} (mean of ${runs.length})`, steps: all.steps, values: all.mean, arm: arm.index};
  return [mean, ...(runs.length > 1 ? runs : []).map((run) => ({label: `${arm.name}, seed ${run.seed}`, steps: run.steps,
    values: run.values.percent, arm: arm.index, thin: true}))];
}

function flipsChart(data) {
  if (data.routing_flips.length === 0) return null;
  return new isoloss.StepChart({id: "flips", title: "Routing that differs from the baseline's", short: true,
    unitName: "% of choices", about: "Share of (token, slot) choices that went to another expert, same seed.",
    unit: (value) => `${isoloss.number(value, 2)} %`,
    lines: () => data.arms.flatMap((arm) => flipLines(data.routing_flips, arm))});
}

function exchangeMatrix(arm) {
  const {ranks, seed, steps} = arm.exchange;
  const bytes = isoloss.floats(arm.exchange.bytes_by_pair);
  const names = Array.from({length: ranks}, (_, rank) => `rank ${rank}`);
  const rows = names.map((_, from) => Array.from(bytes.subarray(from * ranks, (from + 1) * ranks), (b) => b / 1024));
  return isoloss.shadedMatrix(
    `${arm.name}, seed ${seed}: KiB from each rank (row) to each rank (column), all ${steps} steps`, names, names, rows, 0);
}

function exchanges(data) {
  return data.arms.filter((arm) => arm.exchange && arm.exchange.ranks > 1).map(({name}) =>
    isoloss.drawnWhenOpen(`Bytes between ranks: ${name}`, () => [exchangeMatrix(data.arms.find((arm) => arm.name === name))]));
}

isoloss.expertSection = function (data) {
  const charts = [isoloss.loadChart(data), flipsChart(data)].filter((chart) => chart !== null);
  const children = [loads(data), ...exchanges(data)].filter((child) => child !== null);
  if (charts.length === 0 && children.length === 0) return null;
  return isoloss.section("experts", "Experts and exchange",
    make("div", {class: "two"}, charts.map((chart) => chart.element)), ...children);
};
})();
