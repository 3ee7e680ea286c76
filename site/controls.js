// The options of the page: one table, from which the form, the comparison and the link are made.

import { parse } from "./program.js";
import { DEFAULTS, setupOf } from "./world.js";

const NAGLE = { minshall: "Minshall's, as in Linux", rfc896: "RFC 896", off: "off (TCP_NODELAY)" };
const DELACK = [0, 10, 40, 100, 200];

function ofEnd(end) {
  const name = end === "client" ? "client" : "server";
  return [
    { path: `${end}.nagle`, label: "Nagle's algorithm", of: end, kind: "choice", choices: NAGLE },
    {
      path: `${end}.delack`,
      label: "delayed-ACK timer",
      of: end,
      kind: "choice",
      choices: Object.fromEntries(DELACK.map((ms) => [ms, `${ms} ms${ms ? "" : ": at once"}`])),
      number: true,
    },
    { path: `${end}.quick`, label: "quick ACKs at the start", of: end, kind: "number", least: 0, most: 16, step: 1 },
    {
      path: `${end}.pingpong`,
      label: "interactive after answers",
      of: end,
      kind: "number",
      least: 0,
      most: 255,
      step: 1,
      help: "net.ipv4.tcp_pingpong_thresh; 0: always",
    },
    {
      path: `${end}.quickack`,
      label: "route with quickack 1",
      of: end,
      kind: "flag",
      help: `the ${name} never delays an ACK`,
    },
    { path: `${end}.quicksocket`, label: "TCP_QUICKACK after each read", of: end, kind: "flag" },
  ];
}

const PROGRAM_HELP = "write N, write N more, read N, pause MS, cork on, cork off, quickack; 9x write N";

export const CONTROLS = [
  {
    path: "client.program",
    label: "client's program, per exchange",
    of: "programs",
    kind: "program",
    help: PROGRAM_HELP,
  },
  {
    path: "server.program",
    label: "server's program, per exchange",
    of: "programs",
    kind: "program",
    help: PROGRAM_HELP,
  },
  { path: "exchanges", label: "exchanges", of: "programs", kind: "number", least: 1, most: 50, step: 1 },
  { path: "keepalive", label: "keep-alive: one connection for all", of: "programs", kind: "flag" },
  ...ofEnd("client"),
  ...ofEnd("server"),
  {
    path: "mss",
    label: "MSS, bytes",
    of: "path",
    kind: "number",
    least: 88,
    most: 65483,
    step: 1,
    help: "1448: Ethernet; 65483: loopback",
  },
  { path: "rtt", label: "round trip, ms", of: "path", kind: "number", least: 0.01, most: 1000, step: "any" },
  {
    path: "hz",
    label: "kernel's clock, Hz",
    of: "path",
    kind: "choice",
    choices: { 100: "100", 250: "250", 1000: "1000" },
    number: true,
  },
];

export const GROUPS = {
  programs: "Programs",
  client: "Client's kernel",
  server: "Server's kernel",
  path: "Path and clock",
};

// A program with runs of writes made one, or corked. Pauses within a run go with it.
export function rewritten(text, how) {
  const out = [];
  let run = [];
  const flush = () => {
    const sizes = run.filter((part) => part.startsWith("write")).map((part) => Number(part.split(" ")[1]));
    if (sizes.length < 2) out.push(...run);
    else if (how === "once") out.push(`write ${sizes.reduce((sum, size) => sum + size, 0)}`);
    else out.push("cork on", ...run, "cork off");
    run = [];
  };
  for (const part of parse(text).map(wordsOf)) {
    if (/^(write|pause)/.test(part) && (run.length || part.startsWith("write"))) run.push(part);
    else {
      flush();
      out.push(part);
    }
  }
  flush();
  return out.join(", ");
}

// A server that answers each write of a request, not only the whole, with a byte. As it is where the client does not
// write several times and then read, or the server reads otherwise.
export function answeringEach(setup) {
  const client = parse(setup.client.program);
  const server = parse(setup.server.program);
  const first = client.findIndex((step) => step.do !== "write");
  const sizes = client.slice(0, first).map((step) => step.size);
  const whole = sizes.reduce((sum, size) => sum + size, 0);
  if (sizes.length < 2 || client[first].do !== "read" || server[0].do !== "read" || server[0].size !== whole)
    return setup;
  const read = { do: "read", size: client[first].size + sizes.length - 1 };
  const asked = [...client.slice(0, first), read, ...client.slice(first + 1)];
  const parts = sizes.flatMap((size, i) => [
    { do: "read", size },
    ...(i < sizes.length - 1 ? [{ do: "write", size: 1 }] : []),
  ]);
  const told = put(setup, "client.program", asked.map(wordsOf).join(", "));
  return put(told, "server.program", [...parts, ...server.slice(1)].map(wordsOf).join(", "));
}

function wordsOf(step) {
  if (step.do === "pause") return `pause ${step.least}${step.most === step.least ? "" : `-${step.most}`}`;
  if ("on" in step) return `${step.do} ${step.on ? "on" : "off"}`;
  return step.size ? `${step.do} ${step.size}${step.more ? " more" : ""}` : step.do;
}

// What a comparison may change: name → [label, function of the setup].
const set = (path, value) => (setup) => put(setup, path, value);
const program = (end, how) => (setup) => put(setup, `${end}.program`, rewritten(setup[end].program, how));
export const CHANGES = {
  "server-nodelay": ["server sets TCP_NODELAY", set("server.nagle", "off")],
  "client-nodelay": ["client sets TCP_NODELAY", set("client.nagle", "off")],
  "both-nagle": [
    "Nagle's algorithm on, at both ends",
    (setup) => put(put(setup, "client.nagle", "minshall"), "server.nagle", "minshall"),
  ],
  rfc896: ["RFC 896 at both ends", (setup) => put(put(setup, "client.nagle", "rfc896"), "server.nagle", "rfc896")],
  "server-once": ["server writes once", program("server", "once")],
  "client-once": ["client writes once", program("client", "once")],
  "server-cork": ["server corks its writes", program("server", "cork")],
  "server-answers": ["server answers each write", answeringEach],
  "client-quickack": ["client acknowledges at once", set("client.quickack", true)],
  "server-quickack": ["server acknowledges at once", set("server.quickack", true)],
  "delack-200": ["delayed ACKs of 200 ms", (setup) => put(put(setup, "client.delack", 200), "server.delack", 200)],
  "no-keepalive": ["a connection per exchange", set("keepalive", false)],
  "rtt-20": ["a round trip of 20 ms", set("rtt", 20)],
  loopback: ["MSS of loopback", set("mss", 65483)],
};

export function get(setup, path) {
  return path.split(".").reduce((value, key) => value[key], setup);
}

export function put(setup, path, value) {
  const [first, second] = path.split(".");
  return second ? { ...setup, [first]: { ...setup[first], [second]: value } } : { ...setup, [first]: value };
}

// A value as its control takes it. Throws an Error that names the control.
export function checked(control, value) {
  if (control.kind === "flag") return value === true || value === "1";
  if (control.kind === "program") {
    parse(value);
    return value;
  }
  if (control.kind === "choice") {
    if (!Object.hasOwn(control.choices, value))
      throw new Error(`${control.path}=${value}: one of ${Object.keys(control.choices).join(", ")}`);
    return control.number ? Number(value) : value;
  }
  const number = Number(value);
  const whole = control.step !== 1 || Number.isInteger(number);
  if (value === "" || !whole || !(number >= control.least && number <= control.most)) {
    throw new Error(`${control.label}: ${whole ? "" : "a whole number "}from ${control.least} to ${control.most}`);
  }
  return number;
}

// The page's state ↔ the fragment of its address: the preset, what was changed of it, what is compared, and the view.
export function toFragment(state, base) {
  const parts = new URLSearchParams();
  if (state.preset) parts.set("preset", state.preset);
  for (const control of CONTROLS) {
    const value = get(state.setup, control.path);
    if (value !== get(base, control.path))
      parts.set(control.path, typeof value === "boolean" ? Number(value) : value);
  }
  if (state.compare) parts.set("compare", state.compare);
  if (state.scale !== "fit") parts.set("scale", state.scale);
  parts.set("t", Math.round(state.time));
  return parts.toString();
}

// → { preset, setup, compare, scale, time, wrong }: what is not valid is left as it was, and listed in `wrong`.
export function fromFragment(fragment, presetSetup, scales) {
  const parts = new URLSearchParams(fragment);
  const wrong = [];
  let preset = parts.get("preset") ?? "";
  let base = presetSetup(preset);
  if (!base) {
    wrong.push(`preset=${preset}: there is none of that name`);
    preset = "";
    base = DEFAULTS;
  }
  let setup = setupOf(base);
  for (const control of CONTROLS) {
    if (!parts.has(control.path)) continue;
    try {
      setup = put(setup, control.path, checked(control, parts.get(control.path)));
    } catch (error) {
      wrong.push(error.message);
    }
  }
  const known = (name, of) => (Object.hasOwn(of, parts.get(name)) ? parts.get(name) : null);
  const compare = known("compare", CHANGES) ?? "";
  const scale = known("scale", scales) ?? "fit";
  const time = Number(parts.get("t") ?? -1);
  return { preset, setup, compare, scale, time: Number.isFinite(time) ? time : -1, wrong };
}
