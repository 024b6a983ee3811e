// The answer: outcome, reasons, what it could have seen, and the interval of
// the difference beside the margin.
"use strict";

(() => {
const {make, percent, given} = isoloss;

const kMarks = {PASS: "\u2713", FAIL: "\u2717", INVALID: "!", INCONCLUSIVE: "?"};

isoloss.badge = (outcome, text = outcome) =>
  make("span", {class: "badge " + outcome.toLowerCase()}, `${kMarks[outcome] ?? "\u2013"} ${text}`);

function answers(reading) {
  const column = (title, sentences) => !sentences || sentences.length === 0 ? null :
    make("div", {}, make("h4", {}, title), make("ul", {}, sentences.map((text) => make("li", {}, text))));
  return make("div", {class: "answers"}, column("Why", reading.reasons),
    column("What it could have seen", reading.could_have_seen),
    column("Where it holds", reading.holds_for), column("What to do next", reading.next));
}

/** One row of the interval picture: {name, lower, mean, upper, dots, arm}. */
function intervalRows(data, verdict, test) {
  const check = verdict.checks.find((one) => one.name === test && one.gates && one.value !== null);
  const rows = [];
  const key = test === "held_out" ? "held_out_percent" : "final_window_percent";
  const arms = data.arms.map((arm) => arm.name);
  const place = (name) => Math.max(0, arms.indexOf(name));
  if (check && check.unit === "%") {
    rows.push({name: verdict.candidate.arm, role: "candidate", mean: check.value, lower: check.lower, upper: check.upper,
      dots: (verdict.final_window?.seeds ?? []).map((seed) => ({seed: seed.seed, value: seed[key]})),
      arm: place(verdict.candidate.arm)});
  }
  const beside = [...(verdict.controls?.null_arms ?? []).map((arm) => ({...arm, role: "null arm"})),
    ...(verdict.controls?.control ? [{...verdict.controls.control, role: "control"}] : [])];
  for (const arm of beside) {
    const found = arm.tests.find((one) => one.name === test);
    if (found) rows.push({name: arm.arm, role: arm.role, mean: found.mean, lower: found.lower, upper: found.upper,
      dots: [], arm: place(arm.arm)});
  }
  return rows.filter((row) => Number.isFinite(row.mean));
}

function intervalPicture(rows, margin, title, baseline) {
  // Text of a picture that shrinks would be too small to read on a phone.
  const narrow = window.innerWidth < 640;
  const kWidth = narrow ? 340 : 560, kLeft = narrow ? 90 : 130, kRight = 20, kRow = 34, kTop = 12;
  const longest = narrow ? 12 : 18;
  const height = kTop + rows.length * kRow + 44;
  const ends = rows.flatMap((row) => [row.lower, row.upper, row.mean, ...row.dots.map((dot) => dot.value)])
    .filter(Number.isFinite);
  const reach = 1.1 * Math.max(1.2 * (margin ?? 0), ...ends.map(Math.abs), 1e-6);
  const x = (value) => kLeft + (value + reach) / (2 * reach) * (kWidth - kLeft - kRight);
  const bottom = kTop + rows.length * kRow;
  const describe = (row) => `${row.name} (${row.role}): ${percent(row.mean)}` +
    (Number.isFinite(row.lower) ? `, interval ${percent(row.lower)} to ${percent(row.upper)}` : "");
  const svg = make("svg", {viewBox: `0 0 ${kWidth} ${height}`, class: "intervals", role: "img",
    "aria-label": `${title}. ${rows.map(describe).join("; ")}.` + (margin ? ` The margin is ${margin} %.` : "")});
  // Between the ends of a narrow margin there is no room for their labels.
  const tight = margin && x(margin) - x(0) < 50;
  if (margin) {
    svg.append(make("rect", {x: x(-margin), y: kTop - 6, width: x(margin) - x(-margin), height: bottom - kTop + 6,
      fill: "var(--margin-band)"}));
    for (const side of [-margin, margin]) {
      svg.append(make("line", {x1: x(side), x2: x(side), y1: kTop - 6, y2: bottom, stroke: "var(--pass)",
        "stroke-dasharray": "4 3"}));
      svg.append(make("text", {x: x(side), y: bottom + 16, class: "quiet",
        "text-anchor": !tight ? "middle" : side < 0 ? "end" : "start"}, percent(side, 2)));
    }
  }
  svg.append(make("line", {x1: x(0), x2: x(0), y1: kTop - 6, y2: bottom, stroke: "var(--quiet)"}),
    tight ? "" : make("text", {x: x(0), y: bottom + 16, "text-anchor": "middle", class: "quiet"}, "0"),
    make("text", {x: x(-reach), y: bottom + 36, class: "quiet"}, `\u2190 better than ${baseline}`),
    make("text", {x: x(reach), y: bottom + 36, "text-anchor": "end", class: "quiet"}, "worse \u2192"));
  rows.forEach((row, i) => {
    const y = kTop + i * kRow + kRow / 2;
    const colour = `var(--arm-${row.arm % 6})`;
    const name = row.name.length > longest ? row.name.slice(0, longest - 1) + "\u2026" : row.name;
    svg.append(make("g", {}, make("title", {}, describe(row)),
      make("text", {x: kLeft - 10, y: y - 1, "text-anchor": "end"}, name),
      make("text", {x: kLeft - 10, y: y + 12, "text-anchor": "end", class: "quiet", style: "font-size:10px"}, row.role),
      ...row.dots.filter((dot) => Number.isFinite(dot.value)).map((dot) =>
        make("circle", {cx: x(dot.value), cy: y, r: 3.5, fill: colour, opacity: 0.4},
          make("title", {}, `seed ${dot.seed}: ${percent(dot.value)}`))),
      Number.isFinite(row.lower) ? make("line", {x1: x(row.lower), x2: x(row.upper), y1: y, y2: y, stroke: colour,
        "stroke-width": 4, "stroke-linecap": "round"}) : null,
      make("circle", {cx: x(row.mean), cy: y, r: 6, fill: colour, stroke: "var(--panel)", "stroke-width": 1.5})));
  });
  return make("div", {class: "figure"}, make("h4", {}, title), svg);
}

function intervalPictures(data, verdict) {
  const margin = verdict.policy.margin_tokens_percent > 0 ? null : verdict.policy.margin_percent;
  const pictures = [["final_window", "Final loss against the margin"], ["held_out", "Held-out loss against the margin"]]
    .map(([test, title]) => [intervalRows(data, verdict, test), title])
    .filter(([rows]) => rows.length > 0)
    .map(([rows, title]) => intervalPicture(rows, margin, title, verdict.baseline.arm));
  if (pictures.length === 0) return [];
  return [make("div", {class: "two"}, pictures),
    make("p", {class: "about-figure"}, "Bars are intervals over seeds, faint dots are single seeds, and the green band is " +
      "the margin. A candidate passes if its whole bar lies within the band; the control must lie outside.")];
}

const statement = (check) => {
  const unit = check.unit ? " " + check.unit : "";
  const value = given(check, "value");
  const shown = value === null ? "" : " " + (check.unit === "%" ? percent(value) : isoloss.number(value) + unit);
  const limit = given(check, "limit");
  const against = limit === null ? "" : `, ${check.relation}${isoloss.number(limit)}${unit}`;
  return check.quantity + shown + against;
};

/** What people call a check; one of another program has its id alone. */
const titleOf = (data, id) => Object.hasOwn(data.check_titles, id) ? data.check_titles[id] : id.replaceAll("_", " ");

function checks(data, verdict) {
  const row = (check) => {
    const outcome = check.gates ? isoloss.badge(check.outcome) : make("span", {class: "badge none"}, "not needed");
    return make("tr", {class: check.gates ? null : "quiet-row"}, make("td", {}, outcome),
      make("th", {scope: "row", title: check.name}, titleOf(data, check.name)), make("td", {class: "level"}, check.level),
      make("td", {class: "words"}, statement(check),
        check.evidence ? make("span", {class: "quiet-text"}, ` (${check.evidence})`) : null,
        check.next ? make("div", {}, `Next: ${check.next}`) : null));
  };
  const severity = {INVALID: 0, FAIL: 1, INCONCLUSIVE: 2, PASS: 3};
  const all = [...verdict.checks].sort((a, b) => (b.gates - a.gates) || severity[a.outcome] - severity[b.outcome]);
  const bad = all.filter((check) => check.gates && check.outcome !== "PASS").length;
  return make("details", {open: bad > 0},
    make("summary", {}, `${verdict.checks.length} checks` + (bad ? `, ${bad} of which do not pass` : "")),
    isoloss.titled(`Checks of ${verdict.candidate.arm} against ${verdict.baseline.arm}`, make("table", {class: "checks"},
      make("thead", {}, make("tr", {}, ["outcome", "check", "level", "what was found"].map((name) =>
        make("th", {scope: "col", class: name === "level" ? name : null}, name)))),
      make("tbody", {}, all.map(row)))));
}

function arms(verdict) {
  const both = [verdict.baseline, verdict.candidate];
  const row = (name, key, digits = 4) => {
    const values = both.map((arm) => given(arm, key));
    if (values.every((value) => value === null)) return null;
    return [name, ...values.map((value) => value === null ? "" :
      typeof value === "number" ? isoloss.number(value, digits) : value)];
  };
  return isoloss.table("Both arms, means over seeds", ["quantity", ...both.map((arm) => arm.arm)],
    [row("recipe", "recipe"), row("loss of the final window, nats", "final_loss_nats"),
      row("held-out loss, nats", "held_out_loss_nats"), row("gradient norm of the final window", "final_grad_norm"),
      row("busiest expert over mean", "final_load_max_over_mean", 2), row("experts without tokens", "final_dead_experts", 2),
      row("quantised GEMMs per step", "quantized_gemms_per_step"), row("steps per second of one run", "steps_per_second", 2),
    ].filter((one) => one !== null));
}

function warnings(verdict) {
  if (verdict.warnings.length === 0) return null;
  return make("div", {class: "notice"}, make("h4", {}, "Warnings"),
    make("ul", {}, verdict.warnings.map((text) => make("li", {}, text))));
}

/** What rules that other projects' users know say of runs that they trained. */
function peers(verdict) {
  if (!verdict.peers?.length) return null;
  return make("details", {}, make("summary", {}, "Rules of other projects, which decide nothing here"),
    isoloss.table("Rules of other projects", ["rule", "accepts", "what it asks", "source"],
      verdict.peers.map((peer) => [peer.name, `${peer.accepted} of ${peer.judged}`, peer.rule, peer.source])));
}

/** Files of earlier versions have no sentences. */
const kNoReading = {headline: "An earlier version of isoloss gave this verdict, without sentences. Its numbers follow."};

function card(data, verdict) {
  const reading = verdict.reading ?? kNoReading;
  return make("article", {class: `panel verdict ${verdict.outcome.toLowerCase()}`,
      "aria-label": `Verdict on ${verdict.candidate.arm}`},
    make("h3", {}, isoloss.badge(verdict.outcome), ` ${verdict.candidate.arm} against ${verdict.baseline.arm}`),
    make("p", {class: "headline"}, reading.headline), ...intervalPictures(data, verdict), answers(reading),
    warnings(verdict), checks(data, verdict), peers(verdict),
    make("details", {}, make("summary", {}, "Both arms in numbers"), arms(verdict)));
}

isoloss.verdictSection = function (data) {
  const children = data.verdicts.length > 0 ? data.verdicts.map((verdict) => card(data, verdict)) :
    [make("p", {class: "notice"}, "These runs have no verdict: the page shows what they recorded. ",
      make("code", {}, "isoloss gate"), " judges them.")];
  return isoloss.section("verdict", "Verdict", ...children,
    make("p", {class: "quiet-text"}, data.runs_note)); // what was left out or thinned
};
})();
