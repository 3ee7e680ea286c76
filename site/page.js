// The simulator's page: the state, the form, the clock. What is drawn is in ladder.js and panels.js.

import { CHANGES, CONTROLS, GROUPS, checked, fromFragment, get, put, toFragment } from "./controls.js";
import { DATA } from "./data.js";
import { drawLadder, milliseconds } from "./ladder.js";
import { drawList, drawOutcome, drawStates, drawStory, element, runBox } from "./panels.js";
import { presetSetup, presetsOf } from "./presets.js";
import { simulate } from "./world.js";

const SCALES = { fit: "first exchanges", 1000000: "1 s", 100000: "100 ms", 10000: "10 ms", 1000: "1 ms" };
const SPEEDS = { 1: "as it is", 0.1: "10 × slower", 0.02: "50 × slower", 0.001: "1000 × slower" };
const FIRST = "nginx-static/nodelay-off";
const at = (id) => document.getElementById(id);

export function startSimulator() {
  const presets = presetsOf(DATA);
  const setupOfPreset = (name) => presetSetup(presets, name);
  const view = { state: null, runs: [], playing: false, from: 0 };

  // ---- the state

  function adopt(fragment) {
    const { wrong, ...state } = fromFragment(fragment, setupOfPreset, SCALES);
    view.state = state;
    say(wrong.join("; "));
    restart();
  }

  function say(wrong) {
    at("wrong").textContent = wrong;
    at("wrong").hidden = !wrong;
  }

  // Simulate again; an error leaves the former runs, and is said.
  function restart() {
    const { setup, compare } = view.state;
    try {
      const runs = [{ run: simulate(setup), title: compare ? "as it is" : "" }];
      if (compare) {
        const [label, change] = CHANGES[compare];
        const other = change(setup);
        const same = JSON.stringify(other) === JSON.stringify(setup);
        runs.push({ run: simulate(other), title: same ? `${label}: so it is already, or it cannot be` : label });
      }
      view.runs = runs;
    } catch (error) {
      say(error.message);
      return;
    }
    pause();
    view.duration = Math.max(...view.runs.map((one) => one.run.duration));
    if (view.state.time < 0 || view.state.time > view.duration) view.state.time = firstLook();
    at("time").max = Math.ceil(view.duration);
    at("runs").replaceChildren(...view.runs.map((one, i) => runBox(one, i, names())));
    at("runs").classList.toggle("two", view.runs.length > 1);
    view.from = 0;
    fillForm();
    drawStory(at("title"), at("story"), entry());
    drawOutcome(at("runs"), view.runs);
    if (at("listed").open) drawList(at("listed").querySelector("div"), view.runs);
    moveTo(view.state.time);
    writeAddress();
  }

  // Where a case is shown first: as its first stall ends, or after two exchanges.
  function firstLook() {
    const { run } = view.runs[0];
    const stall = run.holds.find((hold) => hold.stalls);
    return stall
      ? Math.min(stall.until + run.setup.rtt * 1000 + 20, run.duration)
      : run.exchanges[Math.min(1, run.exchanges.length - 1)].end;
  }

  const groupNow = () => presets.find(({ entries }) => entries.some((one) => one.name === view.state.preset));
  const entry = () => groupNow().entries.find((one) => one.name === view.state.preset);
  const names = () => entry().ends ?? { client: "client", server: "server" };

  function span() {
    if (view.state.scale !== "fit") return Number(view.state.scale);
    const run = view.runs[0].run;
    return Math.max(run.exchanges[Math.min(1, run.exchanges.length - 1)].end * 1.12, 1000);
  }

  // ---- time

  function moveTo(time, quietly = false) {
    view.state.time = Math.max(0, Math.min(time, view.duration));
    const wide = span();
    if (view.state.time > view.from + wide * 0.97 || view.state.time < view.from)
      view.from = Math.max(0, view.state.time - wide * 0.9);
    at("time").value = Math.round(view.state.time);
    at("time").setAttribute("aria-valuetext", `${milliseconds(view.state.time)} ms`);
    at("clock").textContent = `${milliseconds(view.state.time)} ms`;
    draw();
    if (!quietly) {
      const entryNow = lastEvent();
      at("event").replaceChildren(
        ...(entryNow
          ? [
              element("b", `${milliseconds(entryNow.time)} ms`),
              ` ${entryNow.text}. `,
              element("cite", entryNow.cites),
            ]
          : []),
      );
      clearTimeout(view.writing);
      view.writing = setTimeout(writeAddress, 150); // browsers allow some hundred changes a minute
    }
  }

  function writeAddress() {
    history.replaceState(null, "", `#${toFragment(view.state, setupOfPreset(view.state.preset))}`);
  }

  function draw() {
    const wide = span();
    for (const [i, { run }] of view.runs.entries()) {
      const svg = at(`ladder-${i}`);
      const width = Math.floor(svg.parentElement.clientWidth);
      drawLadder(svg, run, {
        width,
        height: Math.max(340, Math.min(innerHeight * 0.62, 900)),
        from: view.from,
        to: view.from + wide,
        now: view.state.time,
        names: names(),
        label: `Ladder of segments from ${milliseconds(view.from, 1)} to ${milliseconds(view.from + wide, 1)} ms; the list below has them as text`,
      });
      drawStates(at(`states-${i}`), run, view.state.time, names());
    }
  }

  // Steps go by moments of both runs together: what happens at once is one step.
  function moments() {
    return [...new Set(view.runs.flatMap((one) => one.run.log.map((line) => line.time)))].sort((a, b) => a - b);
  }

  function lastEvent() {
    const done = view.runs[0].run.log.filter((line) => line.time <= view.state.time);
    const weight = (line) => ["hold", "ack", "send", "delay"].indexOf(line.kind) + 1;
    const now = done.filter((line) => line.time === done.at(-1)?.time);
    return now.reduce((best, line) => (!best || weight(line) >= weight(best) ? line : best), null);
  }

  function step(by) {
    pause();
    const times = moments();
    const now = view.state.time;
    const next = by > 0 ? times.find((time) => time > now) : times.findLast((time) => time < now);
    moveTo(next ?? (by > 0 ? view.duration : 0));
  }

  function pause() {
    view.playing = false;
    at("play").textContent = "▶ play";
    at("play").setAttribute("aria-label", "Play");
  }

  function play() {
    if (view.state.time >= view.duration) moveTo(0);
    view.playing = true;
    at("play").textContent = "⏸ pause";
    at("play").setAttribute("aria-label", "Pause");
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) hop();
    else requestAnimationFrame((first) => run(first, first));
  }

  // Without motion: from moment to moment, one a second.
  function hop() {
    if (!view.playing) return;
    const next = moments().find((time) => time > view.state.time);
    if (next === undefined) {
      pause();
      return;
    }
    moveTo(next);
    setTimeout(hop, 1000);
  }

  function run(last, now) {
    if (!view.playing) return;
    const time = view.state.time + (now - last) * 1000 * Number(at("speed").value);
    const over = time >= view.duration;
    moveTo(time, !over);
    if (over) pause();
    else requestAnimationFrame((next) => run(now, next));
  }

  // ---- the form

  function buildForm() {
    const add = (select, choices) =>
      select.append(...Object.entries(choices).map(([value, text]) => new Option(text, value)));
    at("group").append(...presets.map(({ group }) => new Option(group)));
    add(at("compare"), Object.fromEntries(Object.entries(CHANGES).map(([name, [label]]) => [name, label])));
    add(at("speed"), SPEEDS);
    add(at("scale"), SCALES);
    at("speed").value = "0.02";
    for (const [group, title] of Object.entries(GROUPS)) {
      const box = element("fieldset");
      box.append(element("legend", title), ...CONTROLS.filter((one) => one.of === group).map(field));
      at("options").append(box);
    }
  }

  function field(control) {
    const label = element("label", control.kind === "flag" ? "" : control.label);
    const input = document.createElement(control.kind === "choice" ? "select" : "input");
    input.id = control.path;
    if (control.kind === "choice")
      for (const [value, text] of Object.entries(control.choices)) input.append(new Option(text, value));
    if (control.kind === "flag") input.type = "checkbox";
    if (control.kind === "number")
      Object.assign(input, { type: "number", min: control.least, max: control.most, step: control.step });
    if (control.kind === "program") Object.assign(input, { type: "text", spellcheck: false, autocomplete: "off" });
    label.className = control.kind;
    label.append(input);
    if (control.kind === "flag") label.append(control.label);
    if (control.help) {
      const help = element("small", control.help);
      help.id = `${control.path}-help`;
      input.setAttribute("aria-describedby", help.id);
      label.append(help);
    }
    input.addEventListener("change", () => changed(control, input));
    return label;
  }

  function changed(control, input) {
    try {
      const value = checked(control, control.kind === "flag" ? input.checked : input.value);
      input.setCustomValidity("");
      say("");
      view.state.setup = put(view.state.setup, control.path, value);
    } catch (error) {
      input.setCustomValidity(error.message);
      say(error.message);
      return;
    }
    view.state.time = -1;
    restart();
  }

  function fillForm() {
    const { setup, preset, compare, scale } = view.state;
    const base = setupOfPreset(preset);
    for (const control of CONTROLS) {
      const input = at(control.path);
      const value = get(setup, control.path);
      if (control.kind === "flag") input.checked = value;
      else input.value = value;
      input.closest("label").classList.toggle("changed", value !== get(base, control.path));
    }
    at("keep").hidden = !compare;
    fillCases();
    at("compare").value = compare;
    at("scale").value = scale;
  }

  // The cases of the group that the case is in.
  function fillCases() {
    const now = groupNow();
    if (view.group !== now) at("preset").replaceChildren(...now.entries.map((one) => new Option(one.label, one.name)));
    view.group = now;
    at("group").value = now.group;
    at("preset").value = view.state.preset;
  }

  // ---- what the reader does

  function choose(preset) {
    view.state = {
      preset,
      setup: setupOfPreset(preset),
      compare: view.state.compare,
      scale: view.state.scale,
      time: -1,
    };
    say("");
    restart();
  }

  function listen() {
    const on = (id, event, act) => at(id).addEventListener(event, act);
    on("group", "change", () => choose(presets[at("group").selectedIndex].entries[0].name));
    on("preset", "change", (event) => choose(event.target.value));
    on("compare", "change", (event) => {
      view.state.compare = event.target.value;
      restart();
    });
    on("keep", "click", keep);
    on("scale", "change", (event) => {
      view.state.scale = event.target.value;
      view.from = Math.max(0, view.state.time - span() * 0.9);
      moveTo(view.state.time);
    });
    on("reset", "click", () => choose(view.state.preset));
    on("start", "click", () => {
      pause();
      moveTo(0);
    });
    on("end", "click", () => {
      pause();
      moveTo(view.duration);
    });
    on("back", "click", () => step(-1));
    on("step", "click", () => step(1));
    on("play", "click", () => (view.playing ? (pause(), moveTo(view.state.time)) : play()));
    on("time", "input", (event) => {
      pause();
      moveTo(Number(event.target.value));
    });
    on("options", "submit", (event) => event.preventDefault());
    on("listed", "toggle", () => at("listed").open && drawList(at("listed").querySelector("div"), view.runs));
    on("copy", "click", copy);
    at("runs").addEventListener("pointermove", scrub);
    at("runs").addEventListener("pointerdown", scrub);
    document.addEventListener("keydown", keys);
    // The event has the link that was followed: the address may have been written again since then.
    addEventListener("hashchange", (event) => adopt(new URL(event.newURL).hash.slice(1)));
    addEventListener("resize", draw);
  }

  // What stands beside takes the place of what is compared.
  function keep() {
    view.state.setup = CHANGES[view.state.compare][1](view.state.setup);
    view.state.compare = "";
    view.state.time = -1;
    restart();
    at("compare").focus();
  }

  async function copy() {
    writeAddress();
    try {
      await navigator.clipboard.writeText(location.href);
      at("copied").textContent = "copied";
    } catch {
      at("copied").textContent = "the browser does not allow it: copy the address of this page";
    }
  }

  // The pointer on a ladder, pressed: its height is the time.
  function scrub(event) {
    const svg = event.target.closest("svg");
    if (!svg || !(event.buttons & 1)) return;
    pause();
    const box = svg.getBoundingClientRect();
    const part = Math.max(0, Math.min(1, (event.clientY - box.top - 46) / (box.height - 58)));
    moveTo(view.from + part * span());
  }

  function keys(event) {
    if (
      event.target.closest("input:not([type=range]), select, textarea, summary") ||
      event.altKey ||
      event.ctrlKey ||
      event.metaKey
    )
      return;
    if (event.key === " " && event.target.closest("button, a")) return;
    const act = {
      " ": () => at("play").click(),
      ArrowRight: () => step(1),
      ArrowLeft: () => step(-1),
      Home: () => at("start").click(),
      End: () => at("end").click(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  buildForm();
  listen();
  adopt(location.hash.slice(1) || `preset=${FIRST}`);
}
