// Light and dark: colours come from the style sheet, so that canvases follow it.
"use strict";

/** Colour of a name of page.css, such as "arm-1". */
isoloss.colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/** `colour` (#rrggbb) with an opacity. */
isoloss.faded = function (colour, opacity) {
  const part = (from) => parseInt(colour.slice(from, from + 2), 16);
  return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${opacity})`;
};

/** Arms keep their colour and their dashes over the whole page. */
isoloss.armStyle = function (index) {
  const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3], [1, 4], [5, 2]];
  return {colour: isoloss.colour(`arm-${index % 6}`), dash: dashes[index % 6]};
};

isoloss.setTheme = function (theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
  document.getElementById("theme").setAttribute("aria-label",
    theme === "dark" ? "Switch to light colours" : "Switch to dark colours");
  for (const chart of Object.values(isoloss.charts)) chart.update();
  isoloss.heatMap?.draw();
};

isoloss.startTheme = function () {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = false;
  const follow = () => chosen || isoloss.setTheme(system.matches ? "dark" : "light");
  follow();
  system.addEventListener("change", follow);
  document.getElementById("theme").addEventListener("click", () => {
    chosen = true;
    isoloss.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  });
  // Paper is white, narrow, and nobody opens what is closed on it.
  let before = null;
  const resize = () => Object.values(isoloss.charts).forEach((chart) => chart.chart?.resize());
  window.addEventListener("beforeprint", () => {
    before = {theme: document.documentElement.dataset.theme,
      closed: [...document.querySelectorAll("#verdict details:not([open]), #experts details:not([open])")]};
    for (const one of before.closed) one.open = true;
    isoloss.setTheme("light");
    resize();
  });
  window.addEventListener("afterprint", () => {
    if (!before) return;
    for (const one of before.closed) one.open = false;
    isoloss.setTheme(before.theme);
    resize();
  });
};
