"use strict";
// One slide at a time; without this script all of them, one below the other.
const slides = [...document.querySelectorAll("section")];
const STEPS = {ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1,
  Home: -slides.length, End: slides.length};
let here = 0;

function turn(to) {
  here = Math.min(Math.max(to, 0), slides.length - 1);
  slides.forEach((slide, i) => slide.classList.toggle("here", i === here));
  history.replaceState(null, "", `#${here + 1}`);
}

function fromAddress() {
  turn((parseInt(location.hash.slice(1), 10) || 1) - 1);
}

// What is too long for its place is squeezed to it, while all slides are shown: what is not shown has no length.
document.querySelectorAll("text[data-most]").forEach((text) => {
  text.removeAttribute("textLength");
  if (text.getComputedTextLength() <= Number(text.dataset.most)) return;
  text.setAttribute("textLength", text.dataset.most);
  text.setAttribute("lengthAdjust", "spacingAndGlyphs");
});
document.body.classList.add("paged");
addEventListener("hashchange", fromAddress);
addEventListener("keydown", (event) => {
  if (event.key in STEPS && !event.ctrlKey && !event.altKey && !event.metaKey) {
    event.preventDefault();
    turn(here + STEPS[event.key]);
  }
});
addEventListener("click", (event) => turn(here + (event.clientX < innerWidth / 3 ? -1 : 1)));
fromAddress();
