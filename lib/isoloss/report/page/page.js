// Draws the page from the data in it.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  function add(tag, text) {
    const element = document.createElement(tag);
    element.textContent = text;
    page.appendChild(element);
  }
  add("h1", data.title);
  for (const verdict of data.verdicts) {
    add("p", verdict.reading ? verdict.reading.headline : verdict.outcome);
  }
  for (const arm of data.arms) {
    add("p", arm.name + " (" + arm.role + "): " + arm.runs.length + " runs");
  }
  add("p", data.runs_note);
})();
