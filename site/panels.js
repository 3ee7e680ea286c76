// What stands beside and below a ladder: the outcome, both kernels' state, the story, the list of events.

import { milliseconds } from "./ladder.js";
import { verdictOf } from "./world.js";

export function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

// The place of one run: outcome, ladder, states.
export function runBox({ title }, i, names) {
  const box = element("section", "", "run");
  box.setAttribute("aria-label", title || "Run");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.id = `ladder-${i}`;
  svg.setAttribute("class", "ladder");
  svg.setAttribute("role", "img");
  const drawing = element("div", "", "drawing");
  drawing.append(svg);
  const states = element("div", "", "states");
  states.id = `states-${i}`;
  const outcome = element("p", "", "outcome");
  const body = element("div", "", "body");
  body.append(drawing, states);
  if (title) box.append(element("h2", title));
  box.append(outcome, body);
  for (const end of ["client", "server"]) states.append(stateBox(end, names));
  return box;
}

const ROWS = [
  ["unacked", "unacknowledged"],
  ["held", "held"],
  ["owed", "ACK owed"],
  ["quick", "quick ACKs left"],
  ["interactive", "interactive"],
];
const RAW = ["snd_una", "snd_nxt", "snd_sml", "rcv_nxt"];

function stateBox(end, names) {
  const box = element("section", "", `state ${end}`);
  const name = names[end] === end ? `${end}'s kernel` : `${names[end]}'s kernel`;
  box.append(element("h3", name));
  const list = element("dl");
  for (const [key, label] of ROWS) {
    const value = element("dd");
    value.dataset.key = key;
    list.append(element("dt", label), value);
  }
  const raw = element("p", "", "raw");
  raw.dataset.key = "raw";
  box.append(list, raw);
  return box;
}

export function drawStates(place, run, now) {
  const line = run.log.findLast((one) => one.time <= now);
  for (const end of ["client", "server"]) {
    const state = line?.[end];
    const box = place.querySelector(`.${end}`);
    const show = (key, text, on = false) => {
      const value = box.querySelector(`[data-key=${key}]`);
      value.textContent = text;
      value.classList.toggle("on", on);
    };
    if (!state) {
      for (const [key] of ROWS) show(key, "–");
      continue;
    }
    const { held, timer } = state;
    show("unacked", `${state.unacked} B`, state.unacked > 0);
    show(
      "held",
      held
        ? `${state.queued} B for ${milliseconds(now - held.since, 1)} ms (${held.why === "cork" ? "cork" : "Nagle"})`
        : "nothing",
      Boolean(held),
    );
    show(
      "owed",
      state.owed
        ? `${state.owed} B${timer ? `, timer: ${milliseconds(Math.max(timer.until - now, 0), 1)} ms left` : ""}`
        : "none",
      state.owed > 0,
    );
    show("quick", String(state.quick));
    show("interactive", `${state.interactive ? "yes" : "no"} (${state.pingpong} answered)`, state.interactive);
    show("raw", RAW.map((key) => `${key} ${state[key]}`).join("  "));
  }
}

export function drawOutcome(place, runs) {
  for (const [i, { run }] of runs.entries()) {
    const outcome = verdictOf(run);
    const stalls = run.holds.filter((hold) => hold.stalls);
    const longest = Math.max(0, ...stalls.map((hold) => hold.until - hold.since));
    const time = run.exchanges.at(-1).end / run.exchanges.length;
    const verdict = element("strong", outcome.verdict, `verdict ${outcome.verdict.toLowerCase()}`);
    const said = stalls.length
      ? ` ${outcome.heldBy === "both" ? "Both ends hold" : `The ${outcome.heldBy} holds`} data until a delayed ACK: ${stalls.length} × in ${run.exchanges.length} exchanges, up to ${milliseconds(longest, 1)} ms.`
      : ` Nothing waits for a delayed ACK, in ${run.exchanges.length} exchange${run.exchanges.length > 1 ? "s" : ""}.`;
    place
      .querySelectorAll(".outcome")
      [i].replaceChildren(
        verdict,
        `${said} ${milliseconds(time, 2)} ms and ${outcome.packets.toFixed(1)} segments per exchange.`,
      );
  }
}

// The case's title and what was recorded, above the ladder; its story, below.
export function drawStory(heading, place, entry) {
  heading.replaceChildren();
  place.replaceChildren();
  if (!entry.recorded) return;
  const recorded = element("span", " Recorded: ", "note");
  recorded.append(element("b", entry.recorded));
  const title = element("h2", entry.title);
  title.append(recorded);
  heading.append(title);
  place.append(...entry.text.map(paragraph));
}

// Text in which `this` is code.
function paragraph(text) {
  const made = element("p");
  made.append(...text.split("`").map((part, i) => (i % 2 ? element("code", part) : part)));
  return made;
}

const MOST_LINES = 600;

export function drawList(place, runs) {
  place.replaceChildren();
  for (const { run, title } of runs) {
    const table = element("table");
    if (title) table.append(element("caption", title));
    const head = table.createTHead().insertRow();
    for (const name of ["ms", "what happens", "rule"]) head.append(element("th", name));
    const body = table.createTBody();
    for (const line of run.log.slice(0, MOST_LINES)) {
      const row = body.insertRow();
      row.append(
        element("td", milliseconds(line.time), "figure"),
        element("td", line.text),
        element("td", line.cites),
      );
    }
    place.append(table);
    if (run.log.length > MOST_LINES)
      place.append(element("p", `and ${run.log.length - MOST_LINES} more: fewer exchanges show all`));
  }
}
