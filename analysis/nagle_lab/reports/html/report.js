"use strict";
// A segment or mark that is pointed at, tapped or focused shows its tip, and lights up wherever its frame is drawn.
// Each drawing is one stop of the Tab key; the arrow keys go from mark to mark inside it.
(() => {
  const tip = document.getElementById("tip");
  const marks = (svg) => [...svg.querySelectorAll("[data-tip]")];
  const place = (mark) => {
    const at = mark.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left + at.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
    const below = at.bottom + 10;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below + tip.offsetHeight < innerHeight ? below : Math.max(8, at.top - tip.offsetHeight - 10)}px`;
  };
  let shown = null;
  const hide = () => {
    shown = null;
    tip.hidden = true;
    document.querySelectorAll(".lit").forEach((mark) => mark.classList.remove("lit"));
  };
  const show = (mark) => {
    hide();
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    shown = mark;
    place(mark);
    if (mark.dataset.frame) {
      document.querySelectorAll(`[data-frame="${CSS.escape(mark.dataset.frame)}"]`).forEach((m) => m.classList.add("lit"));
    }
  };
  const move = (mark, event) => {
    const all = marks(mark.ownerSVGElement);
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = all[Math.min(all.length - 1, Math.max(0, all.indexOf(mark) + step))];
    mark.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
  document.querySelectorAll("svg").forEach((svg) => {
    marks(svg).forEach((mark, i) => {
      mark.tabIndex = i ? -1 : 0;
      mark.addEventListener("pointerenter", () => show(mark));
      mark.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
      mark.addEventListener("click", () => { mark.focus(); show(mark); });
      mark.addEventListener("focus", () => show(mark));
      mark.addEventListener("blur", hide);
      mark.addEventListener("keydown", (event) => (event.key === "Escape" ? hide() : move(mark, event)));
    });
  });
  // What is too long for its place is squeezed to it; what is not shown has no length yet.
  const printed = 13; // the size of letters on paper, see report.css: it comes after beforeprint
  const fit = (size) => document.querySelectorAll("text[data-most]").forEach((text) => {
    const shown = parseFloat(getComputedStyle(text.ownerSVGElement).fontSize);
    text.removeAttribute("textLength");
    if (text.getComputedTextLength() * (size || shown) / shown <= Number(text.dataset.most)) return;
    text.setAttribute("textLength", text.dataset.most);
    text.setAttribute("lengthAdjust", "spacingAndGlyphs");
  });
  fit();
  ["resize", "afterprint"].forEach((name) => addEventListener(name, () => fit()));
  addEventListener("beforeprint", () => fit(printed));
  addEventListener("toggle", () => fit(), true);
  addEventListener("scroll", () => shown && place(shown), { passive: true });
})();
