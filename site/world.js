// Two programs, two kernels and a path, in time. simulate(setup) runs them and returns what happened.

import { Kernel } from "./kernel.js";
import { Program, parse } from "./program.js";

const MS = 1000;
const MOST_EVENTS = 60_000;
const END = { nagle: "minshall", delack: 40, quick: 16, pingpong: 1, quickack: false, quicksocket: false };

// What is not said otherwise: Linux's own values, on a local network. Times in ms, but call and wake in µs.
export const DEFAULTS = Object.freeze({
  client: { ...END, program: "write 103, read 853" },
  server: { ...END, program: "read 103, write 238, write 615" },
  exchanges: 4,
  keepalive: true,
  mss: 1448,
  window: 65535 * 64,
  rtt: 0.1,
  hz: 250,
  call: 10,
  wake: 30, // a system call; from data's arrival until the program that waits for it runs
});

export function setupOf(changes) {
  const { client, server, ...rest } = changes;
  return {
    ...DEFAULTS,
    ...rest,
    client: { ...DEFAULTS.client, ...client },
    server: { ...DEFAULTS.server, ...server },
  };
}

class World {
  constructor(setup) {
    this.setup = setup;
    this.now = 0;
    this.jiffy = 1e6 / setup.hz; // µs
    this.queue = []; // events, the next one last
    this.count = 0;
    this.log = [];
    this.segments = [];
    this.holds = [];
    this.delays = []; // of ACKs
    this.exchanges = [];
    this.connection = -1;
    this.ends = null;
  }

  // ---- the clock

  at(time, act) {
    const event = { time, act, number: this.count++, off: false };
    let place = this.queue.length;
    while (
      place &&
      (this.queue[place - 1].time < time ||
        (this.queue[place - 1].time === time && this.queue[place - 1].number < event.number))
    )
      place -= 1;
    this.queue.splice(place, 0, event);
    return event;
  }

  cancel(event) {
    if (event) event.off = true;
  }

  // When a kernel's timer fires that runs so long from now, µs: at a tick of the clock, never early (mod_timer).
  tick(wait) {
    return (Math.floor(this.now / this.jiffy) + Math.ceil(wait / this.jiffy) + 1) * this.jiffy;
  }

  run() {
    this.connect(0);
    while (this.queue.length) {
      const event = this.queue.pop();
      if (event.off) continue;
      if (this.count > MOST_EVENTS) throw new Error("too much happens: fewer exchanges, or fewer and larger writes");
      this.now = event.time;
      event.act();
      if (this.exchanges.length === this.setup.exchanges && this.isQuiet()) return;
    }
    const done = this.exchanges.length;
    if (done < this.setup.exchanges)
      throw new Error(
        `each program waits for the other, after ${done} exchange${done === 1 ? "" : "s"}: one reads more than is written`,
      );
  }

  isQuiet() {
    const { client, server } = this.ends;
    return [client, server].every(
      (end) => !end.outstanding.length && end.snd_nxt === end.write_seq && !end.scheduled,
    );
  }

  // ---- the path and the connections

  carry(segment) {
    segment.number = this.segments.push(segment) - 1;
    segment.connection = this.connection;
    segment.arrives = this.now + (this.setup.rtt * MS) / 2;
    const { client, server } = this.ends;
    const to = segment.from === "client" ? server : client;
    this.at(segment.arrives, () => to.receive(segment));
  }

  // RFC 9293 §3.5. The handshake is drawn; a new connection knows nothing of the one before.
  connect(from) {
    const { setup } = this;
    this.connection += 1;
    const make = (name) => new Kernel(name, setup[name], setup, this);
    const client = make("client");
    const server = make("server");
    this.ends = { client, server };
    const half = (setup.rtt * MS) / 2;
    const hands = [
      ["client", "SYN", 0],
      ["server", "SYN, ACK", half],
      ["client", "ACK", 2 * half],
    ];
    for (const [name, flags, after] of hands) {
      this.at(this.now + after, () => {
        const segment = {
          from: name,
          at: this.now,
          arrives: this.now + half,
          size: 0,
          seq: 0,
          ack: 0,
          flags,
          why: "handshake",
          connection: this.connection,
        };
        segment.number = this.segments.push(segment) - 1;
        this.note(
          this.ends[name],
          "handshake",
          `${name}: ${flags}`,
          "RFC 9293 §3.5; tcp_connect, tcp_conn_request",
          segment,
        );
      });
    }
    client.srtt = server.srtt = Math.max(2 * half, 1); // a sample each
    const rounds = setup.keepalive ? setup.exchanges : 1;
    const started = { time: 0 };
    client.program = new Program(parse(setup.client.program), client, this, rounds, (round) => {
      this.exchanges.push({
        number: from + round,
        connection: this.connection,
        inConnection: round,
        start: started.time,
        end: this.now,
      });
      started.time = this.now;
      if (!setup.keepalive && from + round + 1 < setup.exchanges)
        this.at(this.now + setup.call, () => this.connect(from + 1));
    });
    server.program = new Program(parse(setup.server.program), server, this, rounds, () => {});
    this.at(this.now + 2 * half + setup.wake, () => {
      started.time = this.now;
      client.program.advance();
    });
    this.at(this.now + 3 * half + setup.wake, () => server.program.advance());
  }

  // Data reached a kernel: its program wakes, reads, and may set TCP_QUICKACK again, which wears off.
  arrived(kernel) {
    this.at(this.now + this.setup.wake, () => {
      kernel.program.woken();
      if (kernel.options.quicksocket) kernel.setQuickAck();
    });
  }

  // ---- the log

  note(kernel, kind, text, cites, segment = null) {
    const states = this.ends && { client: this.ends.client.state(), server: this.ends.server.state() };
    this.log.push({ time: this.now, end: kernel.name, kind, text, cites, segment, ...states });
  }
}

// Run a setup → { log, segments, holds, exchanges, duration (µs), setup }. Throws an Error on a program that is wrong, or that waits for ever.
export function simulate(changes) {
  const setup = setupOf(changes);
  const world = new World(setup);
  world.run();
  for (const hold of world.holds) hold.stalls = isStall(hold);
  const { log, segments, holds, delays, exchanges } = world;
  return { log, segments, holds, delays, exchanges, duration: world.now, setup };
}

// A stall: Nagle's algorithm held data, and a delayed ACK let it go (docs/proof.md).
function isStall(hold) {
  return hold.why === "nagle" && hold.cause === "ack" && hold.ack.late;
}

// Exchanges as nagle-lab counts them: data of the client that is the first, or follows data of the server, and its
// answer. → which exchange each segment with data belongs to; how many were answered, and how many of those are not the
// first of their connection.
function countedExchanges(segments) {
  const of = new Map();
  let [connection, number, all, later] = [-1, -1, 0, 0];
  let asks = false;
  for (const segment of segments) {
    if (!segment.size || segment.again) continue;
    if (segment.connection !== connection) [connection, number, asks] = [segment.connection, -1, false];
    const asked = asks;
    asks = segment.from === "client";
    if (asks && !asked) number += 1;
    if (!asks && asked) all += 1;
    if (!asks && asked && number > 0) later += 1;
    of.set(segment, `${connection}/${number}`);
  }
  return { of, all, later };
}

// What a run comes to, in the terms of `nagle-lab analyze`: verdict, share of stalled exchanges, who held, packets.
export function verdictOf(run) {
  const stalls = run.holds.filter((hold) => hold.stalls);
  const holders = new Set(stalls.map((hold) => hold.by));
  const { of, all, later } = countedExchanges(run.segments);
  const stalled = new Set(stalls.map((hold) => of.get(hold.behind))).size;
  return {
    verdict: stalls.length ? "STALL" : "CLEAN",
    stalls: stalls.length,
    share: later ? Math.min(stalled / later, 1) : 0, // of the exchanges that follow another on their connection
    shareOfAll: all ? stalled / all : 0,
    heldBy: holders.size > 1 ? "both" : (stalls[0]?.by ?? null),
    packets: run.segments.length / Math.max(run.exchanges.length, 1),
  };
}
