// Puts the page together.
"use strict";

(() => {
const {make} = isoloss;

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

isoloss.data = JSON.parse(document.getElementById("data").textContent);
isoloss.decode(isoloss.data);
isoloss.startTheme();
build(isoloss.data);
document.documentElement.dataset.ready = "true";
})();
