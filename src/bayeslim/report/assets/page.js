"use strict";
// Two things move on this page: the colour scheme, and the numbers beside the pruning slider.
const root = document.documentElement;

const toggle = document.getElementById("theme");
toggle.addEventListener("click", () => {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  toggle.setAttribute("aria-pressed", String(!dark));
});

const slider = document.getElementById("threshold");
if (slider) {
  const steps = JSON.parse(document.getElementById("steps").textContent);
  const cursor = document.getElementById("cursor");
  const update = () => {
    const step = steps[Number(slider.value)];
    for (const place of document.querySelectorAll("[data-show]")) {
      place.textContent = step.show[place.dataset.show];
    }
    cursor.setAttribute("transform", `translate(${step.x} 0)`);
    slider.setAttribute("aria-valuetext", `threshold ${step.show.threshold}, ${step.show.sparsity} removed`);
  };
  slider.addEventListener("input", update);
  update();
}
