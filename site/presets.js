// The presets: everything in data.js that the model can run, by a name that a link can hold.

import { setupOfVariant } from "./scenarios.js";
import { DEFAULTS, setupOf } from "./world.js";

const MOST = 6; // exchanges to look at; the predictions run all of them

// → [{ group, entries: [{ name, label, title, text: [paragraph], recorded, ends, setup }] }]; nothing was recorded of one's own
export function presetsOf(data) {
  const incidents = Object.entries(data.scenarios).map(([scenario, one]) => ({
    group: `Incident ${one.incident}: ${one.title}`,
    entries: Object.entries(one.variants).map(([name, variant]) => ({
      name: `${scenario}/${name}`,
      label: name,
      title: one.title,
      ends: one.programs,
      text: name === one.stalled ? [one.story, variant.teaches] : [variant.teaches],
      recorded: recordedText(variant.recorded, variant.heldBy),
      setup: () => setupOfVariant(scenario, variant),
    })),
  }));
  const kinds = {
    lookalikes: "Look-alikes, recorded",
    families: "Families of misleading traffic, recorded",
    stacks: "Other TCP stacks, recorded",
  };
  const cases = Object.entries(kinds).map(([folder, group]) => ({
    group,
    entries: Object.entries(data.cases)
      .filter(([, one]) => one.setup && one.folder.split("/")[1] === folder)
      .map(([name, one]) => ({
        name: `${folder}/${name}`,
        label: name,
        title: name,
        text: [one.why],
        recorded: recordedText(one.recorded, one.recorded.heldBy),
        setup: () => one.setup,
      })),
  }));
  const museum = Object.entries(data.museum.registries).map(([registry, title]) => ({
    group: `Museum: released software, ${title}`,
    entries: Object.entries(data.museum.exhibits)
      .filter(([exhibit]) => exhibit.split("/")[0] === registry)
      .flatMap(([exhibit, one]) => ["bad", "good"].map((half) => exhibitEntry(exhibit, one, half))),
  }));
  const own = { group: "Your own", entries: [{ name: "", label: "from the start", setup: () => DEFAULTS }] };
  return [...incidents, ...cases, ...museum, own].filter((one) => one.entries.length);
}

function exhibitEntry(exhibit, one, half) {
  const recorded = half === "bad" ? { verdict: "STALL", ...one.recorded } : { verdict: "CLEAN" };
  return {
    name: `museum/${exhibit}/${half}`,
    label: `${one.software} ${one.halves[half]}`,
    title: one.what,
    text: [half === "bad" ? one.why : one.remedy],
    recorded: recordedText(recorded, one.heldBy, "exchanges"),
    setup: () => one[half],
  };
}

function recordedText({ verdict, share, stalls }, heldBy, of = "later exchanges") {
  const part = share ? `, ${Math.round(share * 100)}% of the ${of}` : "";
  const counted = stalls ? `, ${Number(stalls.toFixed(1))} per connection` : "";
  return verdict === "STALL" ? `STALL${part}${counted}, held by ${heldBy === "both" ? "both ends" : `the ${heldBy}`}` : "CLEAN";
}

// The setup that a preset's name stands for, with few enough exchanges to look at; null: there is none.
export function presetSetup(presets, name) {
  const entry = presets.flatMap((group) => group.entries).find((one) => one.name === name);
  if (!entry) return null;
  const setup = setupOf(entry.setup());
  return { ...setup, exchanges: Math.min(setup.exchanges, MOST) };
}
