// The page of predictions: the model is run here, in the browser, and stands beside what was recorded.

import { DATA } from "./data.js";
import { element } from "./panels.js";
import { predictions } from "./predictions.js";

const KINDS = {
  variant: [
    "Every variant of the incidents",
    "docs/matrix.html",
    "The matrix: share of the exchanges that follow another on their connection.",
  ],
  size: [
    "Every size of the sweeps",
    "docs/sweeps.html",
    "RACE: fewer than 90% of the exchanges stall, for the time between a program's writes decides; the model runs them with writes straight behind each other, and 2 ms apart.",
  ],
  case: [
    "Recorded cases",
    "docs/proof.html",
    "Look-alikes, families of misleading traffic, other TCP stacks; the number of stalls is per connection.",
  ],
  exhibit: [
    "Exhibits of the museum",
    "docs/museum.html",
    "Released software, with the sizes it writes: share of the exchanges, or, where a connection also has others, its number of stalls.",
  ],
};

function said(one) {
  const share = one.share === undefined ? "" : `, ${Math.round(one.share * 100)}%`;
  const counted = one.share === undefined && one.stalls ? `, ${Number(one.stalls.toFixed(1))}` : "";
  return `${one.verdict}${one.verdict === "CLEAN" ? "" : share + counted}${one.heldBy ? `, ${one.heldBy}` : ""}`;
}

// What is no link is text: sizes have no preset of their own.
function nameOf(row) {
  const preset = {
    variant: `${row.of}/${row.name}`,
    case: `${row.of}/${row.name}`,
    exhibit: `museum/${row.of}/${row.name}`,
  }[row.kind];
  if (!preset) return element("span", `${row.name}, ${row.size} B`);
  const link = element("a", row.name);
  link.href = `index.html#${new URLSearchParams({ preset })}`;
  return link;
}

export function showPredictions() {
  const rows = predictions(DATA);
  const right = rows.filter((row) => row.agrees).length;
  document.getElementById("sum").textContent = `${right} of ${rows.length} predictions agree with what was recorded.`;
  const place = document.getElementById("tables");
  for (const [kind, [title, page, about]] of Object.entries(KINDS)) {
    const mine = rows.filter((row) => row.kind === kind);
    const heading = element("h2", title);
    const source = element("a", "recorded");
    source.href = page;
    const note = element("p", `${about} `);
    note.append(source);
    const box = element("div", "", "scroll");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", title);
    const table = element("table");
    const head = table.createTHead().insertRow();
    for (const name of ["of", "name", "predicted", "recorded", ""]) head.append(element("th", name));
    const body = table.createTBody();
    for (const row of mine) {
      const line = body.insertRow();
      const name = element("td");
      name.append(nameOf(row));
      line.append(
        element("td", row.of),
        name,
        element("td", said(row.predicted)),
        element("td", said(row.recorded)),
        element("td", row.agrees ? "agrees" : "DIFFERS"),
      );
      if (!row.agrees) line.className = "differs";
    }
    box.append(table);
    place.append(heading, note, box);
  }
  const list = document.getElementById("cannot");
  for (const [name, one] of Object.entries(DATA.cases)) {
    if (one.cannot) list.append(element("dt", `${one.folder.split("/")[1]}/${name}`), element("dd", one.cannot));
  }
  for (const [name, reason] of Object.entries(DATA.museum.cannot))
    list.append(element("dt", `museum/${name}`), element("dd", reason));
}
