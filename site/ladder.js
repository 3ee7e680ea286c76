// A ladder of a run, up to a moment, in a window of time: SVG, to scale. Nothing is computed here but places.

const SVG = "http://www.w3.org/2000/svg";
const TOP = 46; // px, for the names of the ends

function make(parent, name, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
}

export function milliseconds(us, digits = 3) {
  return (us / 1000).toFixed(digits);
}

// What the segments of a run are to its stalls: number → trigger, late or release.
function partsOf(run) {
  const parts = new Map();
  for (const hold of run.holds.filter((one) => one.stalls)) {
    if (hold.behind) parts.set(hold.behind.number, "trigger");
    parts.set(hold.ack.number, "late");
    const release = run.segments.find((one) => one.number > hold.ack.number && one.from === hold.by && one.size);
    if (release) parts.set(release.number, "release");
  }
  return parts;
}

// How far below its moment each arrow is drawn (number → px), so that none lies on the one above it.
function movedDown(segments, y, least) {
  const down = new Map();
  let free = -Infinity;
  for (const segment of segments) {
    const place = Math.max(y(segment.at), free);
    down.set(segment.number, place - y(segment.at));
    free = place + least;
  }
  return down;
}

// Draw `run` into `svg`: width and height in px, the window from–to and the moment `now` in µs, names of the ends.
// `timed`: arrows have their times beside them, and are moved down where they would lie on one another.
export function drawLadder(svg, run, { width, height, from, to, now, names, label, timed = false }) {
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("aria-label", label);
  const narrow = width < 480;
  const left = narrow ? 54 : 74;
  const right = narrow
    ? Math.max(left + 70, width - 168)
    : Math.min(left + 520, width - 13 * parseFloat(getComputedStyle(svg).fontSize));
  const x = { client: left, server: right };
  const y = (time) => TOP + ((time - from) / (to - from)) * (height - TOP - 12);
  const clip = make(make(svg, "defs"), "clipPath", { id: `${svg.id}-clip` });
  make(clip, "rect", { x: 0, y: TOP - 4, width, height: height - TOP + 4 });
  const parts = partsOf(run);
  axis(svg, { from, to, y, left, right, height });
  for (const end of ["client", "server"]) {
    make(svg, "line", { class: "life", x1: x[end], x2: x[end], y1: TOP - 8, y2: height });
    make(
      svg,
      "text",
      { class: "end", x: x[end], y: 20, "text-anchor": end === "client" ? "start" : "end" },
      names[end],
    );
    make(
      svg,
      "text",
      { class: "muted small", x: x[end], y: 35, "text-anchor": end === "client" ? "start" : "end" },
      end === names[end] ? "" : end,
    );
  }
  const drawn = make(svg, "g", { "clip-path": `url(#${svg.id}-clip)` });
  waits(drawn, run, { from, to, now, x, y });
  const shown = run.segments.filter((one) => one.at <= now && one.arrives >= from && one.at <= to);
  const line = parseFloat(getComputedStyle(svg).fontSize) * 1.2;
  const down = timed ? movedDown(shown, y, line) : new Map();
  const placed = (segment) => y(segment.at) + (down.get(segment.number) ?? 0);
  for (const segment of shown) {
    const moved = (time) => y(time) + (down.get(segment.number) ?? 0);
    arrow(drawn, segment, parts.get(segment.number), { now, x, y: moved });
  }
  const edge = y(Math.min(now, to));
  if (!timed) make(svg, "line", { class: "now", x1: left - 10, x2: right + 10, y1: edge, y2: edge });
  labels(svg, shown, parts, { placed, line, right, width, height, timed });
}

function axis(svg, { from, to, y, left, right, height }) {
  const span = to - from;
  const step =
    [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1e6, 2e6, 5e6].find(
      (one) => (one / span) * (height - TOP) >= 46,
    ) ?? 1e7;
  const digits = step < 100 ? 2 : step < 1000 ? 1 : 0;
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    make(svg, "line", { class: "grid", x1: left - 5, x2: right, y1: y(time), y2: y(time) });
    make(
      svg,
      "text",
      { class: "tick muted", x: left - 9, y: y(time) + 5, "text-anchor": "end" },
      milliseconds(time, digits),
    );
  }
  make(svg, "text", { class: "muted small", x: left - 9, y: 20, "text-anchor": "end" }, "ms");
}

// Bars on the lifelines: a hold on the end that holds, a delayed ACK on the end that owes it.
function waits(svg, run, { from, to, now, x, y }) {
  const bars = [
    ...run.holds.map((one) => ({ ...one, from: one.since, kind: one.why === "nagle" ? "holding" : "corking" })),
    ...run.delays.map((one) => ({ ...one, kind: "delaying" })),
  ];
  for (const bar of bars) {
    const until = Math.min(bar.until ?? run.duration, now, to);
    if (bar.from > until || until < from) continue;
    const side = bar.by === "client" ? -1 : 1;
    const place = x[bar.by];
    make(svg, "rect", {
      class: bar.kind,
      x: place - 5,
      width: 10,
      y: y(Math.max(bar.from, from)),
      height: Math.max(y(until) - y(Math.max(bar.from, from)), 1),
    });
    if (y(until) - y(bar.from) > 60 && bar.from <= now) {
      const words =
        bar.kind === "holding" ? `holds ${bar.bytes} B` : bar.kind === "corking" ? "corked" : "delays its ACK";
      const middle = (y(Math.max(bar.from, from)) + y(until)) / 2;
      make(
        svg,
        "text",
        {
          class: `said ${bar.kind}`,
          x: place - side * 11,
          y: middle + (bar.kind === "delaying" ? 5 : -11),
          "text-anchor": side < 0 ? "start" : "end",
        },
        words,
      );
    }
  }
}

function arrow(svg, segment, part, { now, x, y }) {
  const done = Math.min(1, (now - segment.at) / Math.max(segment.arrives - segment.at, 1));
  const x1 = x[segment.from];
  const away = x[segment.from === "client" ? "server" : "client"];
  const x2 = x1 + (away - x1) * done;
  const y1 = y(segment.at);
  const y2 = y(segment.at + (segment.arrives - segment.at) * done);
  const group = make(svg, "g", {
    class: `seg ${part ?? (segment.size ? "data" : "ack")}`,
    "data-number": segment.number,
  });
  make(group, "line", { class: "arrow", x1, x2, y1, y2 });
  const angle = (Math.atan2(y2 - y1, x2 - x1) * 180) / Math.PI;
  make(group, "path", {
    class: "head",
    d: "M0 0L-10 -4.5L-10 4.5Z",
    transform: `translate(${x2} ${y2}) rotate(${angle})`,
  });
}

// What each segment is, beside the ladder, in order; where they are dense, moved apart and joined to their lines. What
// finds no room is counted.
function labels(svg, segments, parts, { placed, line, right, width, height, timed }) {
  const room = Math.floor((height - TOP) / line);
  const shown = segments.length > room ? segments.slice(-room + 1) : segments;
  const places = [];
  let free = TOP - 4;
  for (const segment of shown) {
    const place = Math.max(placed(segment), free, TOP - 4);
    places.push(place);
    free = place + line;
  }
  for (let i = places.length - 1, most = height - 6; i >= 0; i -= 1, most -= line)
    places[i] = Math.min(places[i], most);
  if (shown.length < segments.length) {
    make(
      svg,
      "text",
      { class: "muted small", x: width - 4, y: 20, "text-anchor": "end" },
      `${segments.length - shown.length} not labelled`,
    );
  }
  shown.forEach((segment, i) => {
    const true_y = Math.max(placed(segment), TOP - 4);
    make(svg, "path", {
      class: "leader",
      d: `M${right + 7} ${true_y}L${right + 22} ${places[i]}L${right + 27} ${places[i]}`,
    });
    const part = parts.get(segment.number);
    const word = { trigger: "trigger", late: "late ACK", release: "release" }[part] ?? "";
    const size = segment.size ? `${segment.size} B` : part === "late" ? "" : segment.flags;
    const mark = segment.from === "client" ? "→" : "←";
    const words = [timed ? milliseconds(segment.at, 1) : "", mark, size, word].filter(Boolean).join(" ");
    const text = make(svg, "text", { class: `label ${part ?? ""}`, x: right + 31, y: places[i] + 5 }, words);
    make(text, "title", {}, `${milliseconds(segment.at)} ms, from the ${segment.from}`);
  });
}
