// Puts the page together.
"use strict";

(() => {
const {make} = isoloss;

/** What asks for another page: which arms, runs and sections there are. */
const shapeOf = (data) => JSON.stringify([data.verdicts.length, data.arms.map((arm) =>
  [arm.name, arm.runs.map((run) => [run.seed, Object.keys(run.series)]), arm.tensors?.steps, arm.moe !== null])]);

/** A part that can't be drawn says so; the others are drawn all the same. */
function sectionOf(data, title, draw) {
  try {
    return draw(data);
  } catch (error) {
    return isoloss.section(title.toLowerCase().replaceAll(" ", "-"), title,
      make("p", {class: "notice"}, `This part can't be drawn from the data of this page: ${error.message}.`));
  }
}

function setRange(data) {
  const ends = data.arms.flatMap((arm) => arm.runs).filter((run) => run.steps.length > 0)
    .map((run) => [run.steps[0], run.steps[run.steps.length - 1]]);
  if (ends.length > 0) {
    isoloss.setWholeRange(Math.min(...ends.map(([first]) => first)), Math.max(...ends.map(([, last]) => last)));
  }
}

function build(data) {
  document.getElementById("run-title").textContent = data.title;
  isoloss.forgetAll();
  setRange(data);
  const sections = [["Verdict", isoloss.verdictSection], ["Training", isoloss.trainingSection],
    ["Quantised tensors", isoloss.tensorSection], ["Experts and exchange", isoloss.expertSection],
    ["Evidence", isoloss.evidenceSection], ["Recipes and provenance", isoloss.provenanceSection]]
    .map((part) => sectionOf(data, ...part)).filter((section) => section !== null);
  document.getElementById("main").replaceChildren(...sections);
  document.getElementById("sections").replaceChildren(...sections.map((section) =>
    make("a", {href: "#" + section.id}, section.querySelector("h2").textContent)));
  document.getElementById("about").textContent =
    `Written by ${data.program.version}, commit ${data.program.commit}. Numbers of the verdict are those of verdict.json.`;
  for (const chart of Object.values(isoloss.charts)) chart.start();
}

/** Takes what runs have logged since. Charts stay where they are as long as
 *  they show the same runs. */
function take(fresh) {
  isoloss.decode(fresh);
  const same = shapeOf(fresh) === shapeOf(isoloss.data);
  Object.assign(isoloss.data, fresh);
  if (!same) return build(isoloss.data);
  setRange(fresh);
  isoloss.showLive(fresh);
  for (const chart of Object.values(isoloss.charts)) chart.update();
  for (const redraw of isoloss.redraws) redraw();
}

/** Null if nobody answers. */
async function asked() {
  try {
    return await (await fetch("data.json", {cache: "no-store"})).json();
  } catch {
    return null;
  }
}

/** Asks again and again until the program that serves the page has ended. */
async function follow(data) {
  while (data.live && !data.live.ended) {
    await new Promise((wake) => setTimeout(wake, 1000 * data.live.refresh_seconds));
    const fresh = await asked();
    if (fresh === null) {
      return isoloss.say(document.getElementById("live-note").textContent =
        "The program that served this page has ended. The page shows what it sent last.");
    }
    take(fresh);
  }
}

isoloss.data = JSON.parse(document.getElementById("data").textContent);
isoloss.decode(isoloss.data);
isoloss.startTheme();
build(isoloss.data);
document.documentElement.dataset.ready = "true";
follow(isoloss.data);
})();
