// The page of mysteries: recorded captures as ladders, a question about each, and an answer to check. The score stays
// in the browser.

import { DATA } from "./data.js";
import { drawLadder, milliseconds } from "./ladder.js";
import { element } from "./panels.js";

const STORE = "nagle-lab mysteries";
const BELOW = 1.25; // of the time shown: room for the last arrows, one below the other

// What would be seen if the answer were true: the reply to an answer that is not.
const EXPECTED = {
  server:
    "Then the client's bare ACK would come late, and new data of the server behind it: at once at the server, a round trip later elsewhere.",
  client:
    "Then the server's bare ACK would come late, and new data of the client behind it: at once at the client, a round trip later elsewhere.",
  server_think:
    "Then no data of the server would be under way while it is silent, and its reply would come as a whole.",
  client_think:
    "Then everything the client sent would have been acknowledged long before, or its data would not follow the ACK.",
  retransmission: "Then the same bytes would leave twice: compare the column of bytes.",
  delayed_ack:
    "Then the data would not follow the late ACK: it would come when the program writes, sooner or later than that.",
  nagle_round_trip: "Then every ACK would take as long as this one, for the path takes that long.",
  window: "Then the data sent would fill the receiver's window, and more would follow only as the window opens.",
  cork: "Then the data would leave by the sender's own clock, 200 ms or more after it was written, and no ACK would come right before it.",
};

function stored() {
  try {
    return JSON.parse(localStorage.getItem(STORE)) ?? {};
  } catch {
    return {}; // a browser may refuse to store for a page from a disk
  }
}

function store(answers) {
  try {
    localStorage.setItem(STORE, JSON.stringify(answers));
  } catch {
    // then the score is that of this visit
  }
}

export function showMysteries() {
  const answers = stored();
  const place = document.getElementById("mysteries-list");
  const score = () => {
    const done = DATA.mysteries.filter((one) => one.name in answers);
    const right = done.filter((one) => answers[one.name] === one.truth).length;
    document.getElementById("score").textContent = done.length
      ? `Score: ${right} of ${done.length} answered, first answers count.`
      : "";
  };
  const drawings = DATA.mysteries.map((one, i) => {
    const box = element("section", "", "mystery");
    box.append(element("h2", `Mystery ${i + 1}`), element("p", one.story));
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.id = `mystery-${i}`;
    svg.setAttribute("class", "ladder");
    svg.setAttribute("role", "img");
    const body = element("div", "", "body");
    const drawing = element("div", "", "drawing");
    drawing.append(svg);
    body.append(drawing, framesOf(one));
    box.append(body, question(one, i, answers, score));
    place.append(box);
    return () => draw(svg, one);
  });
  const all = () => drawings.forEach((one) => one());
  all();
  addEventListener("resize", all);
  document.getElementById("forget").addEventListener("click", () => {
    for (const name of Object.keys(answers)) delete answers[name];
    store(answers);
    for (const form of place.querySelectorAll("form")) {
      form.reset();
      form.querySelector(".reply").replaceChildren();
    }
    score();
  });
  score();
}

function draw(svg, one) {
  const { frames } = one;
  const last = frames.at(-1).us;
  const segments = frames.map((frame, number) => ({
    number,
    from: frame.from,
    at: frame.us,
    arrives: frame.us,
    size: frame.size,
    flags: frame.flags,
  }));
  drawLadder(
    svg,
    { segments, holds: [], delays: [], duration: last },
    {
      width: Math.floor(svg.parentElement.clientWidth),
      height: 480,
      from: -last * 0.02,
      to: last * BELOW,
      now: last * BELOW,
      timed: true,
      names: { client: "client", server: "server" },
      label: `Ladder of ${frames.length} recorded segments; the table beside it has them as text`,
    },
  );
}

function framesOf(one) {
  const box = element("div", "", "scroll");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Frames");
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const name of ["frame", "ms", "from", "bytes", "ACK of"]) head.append(element("th", name));
  const body = table.createTBody();
  for (const frame of one.frames) {
    const row = body.insertRow();
    const bytes = frame.size ? `${frame.seq}–${frame.seq + frame.size - 1}` : frame.flags;
    row.append(
      element("td", String(frame.frame), "figure"),
      element("td", milliseconds(frame.us), "figure"),
      element("td", frame.from),
      element("td", bytes),
      element("td", frame.ack ? String(frame.ack) : ""),
    );
  }
  box.append(table);
  return box;
}

function question(one, i, answers, score) {
  const form = element("form");
  const field = element("fieldset");
  field.append(element("legend", one.asks));
  one.choices.forEach((choice, j) => {
    const label = element("label");
    const input = element("input");
    Object.assign(input, { type: "radio", name: `answer-${i}`, value: j, required: true });
    label.append(input, ` ${choice.text}`);
    field.append(label);
  });
  const button = element("button", "Check my answer");
  const reply = element("p", "", "reply");
  reply.setAttribute("role", "status");
  field.append(button, reply);
  form.append(field);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const choice = one.choices[Number(new FormData(form).get(`answer-${i}`))];
    if (!(one.name in answers)) answers[one.name] = choice.truth;
    store(answers);
    score();
    const right = choice.truth === one.truth;
    reply.replaceChildren(
      element("strong", right ? "Right. " : "Not this. "),
      right ? one.lesson : EXPECTED[choice.truth],
    );
  });
  return form;
}
