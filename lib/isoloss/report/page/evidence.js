// Where runs part, what the oracle found, what the gate catches, who made the
// runs.
"use strict";

(() => {
const {make, given} = isoloss;

function divergences(data) {
  return data.verdicts.filter((verdict) => verdict.first_divergences.length > 0).map((verdict) => isoloss.table(
    `First step at which ${verdict.candidate.arm} differs from ${verdict.baseline.arm}`,
    ["seed", "step", "quantity", verdict.baseline.arm, verdict.candidate.arm],
    verdict.first_divergences.map((one) => one.step === null ? [String(one.seed), "", "equal to the last bit", "", ""] :
      [String(one.seed), String(one.step), one.quantity, String(given(one, "baseline")), String(given(one, "candidate"))])));
}

function tensorFindings(data) {
  return data.verdicts.filter((verdict) => verdict.tensors.length > 0).map((verdict) => isoloss.table(
    `Tensors of ${verdict.candidate.arm} that stand out from the null ensemble`,
    ["tensor and statistic", "step", "standard deviations", "adjusted p"],
    verdict.tensors.map((one) => [`${one.tensor} ${one.statistic}`, String(one.step), given(one, "z"), given(one, "adjusted_p")])));
}

function growth(data) {
  const {growth} = data;
  if (!growth) return null;
  const rows = (growth.operations ?? []).map((one) => [one.result, (one.inputs ?? []).join(", "), given(one, "error"),
    given(one, "input_error"), given(one, "growth"), given(one, "added")]);
  const first = growth.first_source;
  return make("div", {}, make("h3", {}, `Error growth from ${growth.run_a} to ${growth.run_b}, step ${growth.step}`),
    make("p", {}, growth.unmeasured ? growth.unmeasured : first ?
      `The first operation with equal inputs and another result computes ${first.result}.` : "No operation has equal inputs and another result."),
    rows.length === 0 ? null : isoloss.table("Which operation adds error, and which only passes it on",
      ["result", "inputs", "relative error", "of its inputs", "growth", "added"], rows));
}

function oracle(data) {
  return data.oracle.flatMap((probe) => [
    isoloss.table(`Oracle on ${probe.arm}, seed ${probe.seed}: ${probe.passed ? "rounding explains every element" :
      "elements that rounding does not explain"}`,
      ["case", "steps", "tensors", "elements", "flips", "flips expected", "not explained"],
      probe.cases.map((one) => [one.name, one.steps, one.tensors, one.elements, one.flips, one.expected_flips, one.other])),
    probe.worst.length === 0 ? null : isoloss.table(`Worst elements of ${probe.arm}, error over its bound`,
      ["tensor", "step", "row", "column", "value", "oracle's value", "ratio"],
      probe.worst.map((one) => [one.tensor, String(one.step), String(one.row), String(one.column),
        String(given(one, "value")), String(given(one, "expected")), given(one, "ratio")])),
  ]).filter((table) => table !== null);
}

isoloss.evidenceSection = function (data) {
  const children = [...divergences(data), growth(data), ...tensorFindings(data), ...oracle(data)]
    .filter((child) => child !== null);
  return children.length === 0 ? null : isoloss.section("evidence", "Evidence", ...children);
};

isoloss.provenanceSection = function (data) {
  const shown = ["tool_version", "commit", "compiler", "cpu_target", "experiment_digest", "config_digest",
    "corpus_description", "corpus_digest", "parameters", "steps_planned", "tokens_per_step", "ranks", "exchange", "routing",
    "perturbation", "numerics_digest"];
  const arms = data.arms;
  const runs = arms.flatMap((arm) => arm.runs.map((run) => [arm.name, arm.role, String(run.seed), run.file, run.state,
    String(run.recorded_steps), run.events.filter((event) => !["start", "finish", "cost"].includes(event.kind))
      .map((event) => `${event.kind}: ${event.text}`).join("; ")]));
  return isoloss.section("provenance", "Recipes and provenance",
    isoloss.table("Who made these runs", ["property", ...arms.map((arm) => arm.name)], shown.filter((key) =>
      arms.some((arm) => (arm.provenance[key] ?? "") !== "")).map((key) => [key.replaceAll("_", " "),
        ...arms.map((arm) => String(arm.provenance[key] ?? ""))])),
    make("details", {}, make("summary", {}, `${runs.length} runs`),
      isoloss.table("Runs", ["arm", "role", "seed", "file", "state", "steps", "events"], runs)),
    ...arms.map((arm) => make("details", {}, make("summary", {}, `Recipe of ${arm.name}: ${arm.recipe}`),
      make("pre", {tabindex: "0"}, arm.recipe_text))),
    make("details", {}, make("summary", {}, "The experiment"), make("pre", {tabindex: "0"}, data.experiment_text)));
};
})();
