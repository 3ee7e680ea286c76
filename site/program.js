// What a program does in an exchange, in the words of the system calls: "read 84, write 238, pause 20, write 615".

const MOST_BYTES = 1 << 20;
const MOST_PAUSE = 10_000; // ms
const MOST_STEPS = 200;

// Text → steps: { do, size } for write and read ({ more } for a write that says so), { do, least, most } for pause (ms),
// { do, on } for cork, nodelay; { do } for quickack. Throws an Error that says which word is not understood.
export function parse(text) {
  const steps = text
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean)
    .flatMap(step);
  if (!steps.length) throw new Error("a program needs a step, as in: write 84, read 853");
  if (steps.length > MOST_STEPS) throw new Error(`at most ${MOST_STEPS} steps`);
  return steps;
}

function step(part) {
  let match;
  if ((match = /^(\d+) ?x +(.+)$/.exec(part))) {
    return Array.from({ length: Math.min(Number(match[1]), MOST_STEPS + 1) }, () =>
      match[2].split(";").flatMap((one) => step(one.trim())),
    ).flat();
  }
  if ((match = /^(write|read) (\d+)( more)?$/.exec(part)) && !(match[1] === "read" && match[3])) {
    const size = Number(match[2]);
    if (!size || size > MOST_BYTES) throw new Error(`${part}: from 1 to ${MOST_BYTES} bytes`);
    return [{ do: match[1], size, more: Boolean(match[3]) }];
  }
  if ((match = /^pause (\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?$/.exec(part))) {
    const least = Number(match[1]);
    const most = match[2] === undefined ? least : Number(match[2]);
    if (least > most || most > MOST_PAUSE) throw new Error(`${part}: at most ${MOST_PAUSE} ms, the shorter first`);
    return [{ do: "pause", least, most }];
  }
  if ((match = /^(cork|nodelay) (on|off)$/.exec(part))) return [{ do: match[1], on: match[2] === "on" }];
  if (part === "quickack") return [{ do: "quickack" }];
  throw new Error(
    `“${part}”: known are write N, write N more, read N, pause MS, pause MS-MS, cork on|off, nodelay on|off, quickack, 9x write N`,
  );
}

// What all writes of a program come to, bytes.
export function written(text) {
  return parse(text).reduce((sum, one) => sum + (one.do === "write" ? one.size : 0), 0);
}

// A program that runs its steps once per exchange. Reading, it takes whatever there is, as most programs do.
export class Program {
  constructor(steps, kernel, world, rounds, onRound) {
    Object.assign(this, { steps, kernel, world, rounds, onRound });
    this.next = 0;
    this.round = 0;
    this.have = 0; // bytes read and not used yet
    this.reading = false;
    this.busy = false;
  }

  // Run on until a step waits.
  advance() {
    while (!this.busy) {
      if (this.next === this.steps.length) {
        this.next = 0;
        this.onRound(this.round);
        this.round += 1;
      }
      if (this.round === this.rounds) return;
      if (!this.take(this.steps[this.next])) return;
      this.next += 1;
    }
  }

  // Do one step; false: it waits for data.
  take(one) {
    const { kernel, world } = this;
    this.reading = one.do === "read";
    if (one.do === "read") {
      this.have += kernel.read();
      if (this.have < one.size) return false;
      this.have -= one.size;
    } else if (one.do === "write") {
      this.wait(world.setup.call); // a system call takes its time; what it sends leaves at its beginning
      kernel.write(one.size, one.more);
    } else if (one.do === "pause") {
      // Spread evenly between the two, and the same in every run: multiples of the golden ratio, modulo 1.
      const part = (this.round * 0.6180339887) % 1;
      this.wait((one.least + (one.most - one.least) * part) * 1000);
    } else if (one.do === "cork") {
      kernel.cork(one.on);
    } else if (one.do === "nodelay") {
      kernel.options = { ...kernel.options, nagle: one.on ? "off" : "minshall" };
      if (one.on) kernel.push("nodelay", null);
    } else {
      kernel.setQuickAck();
    }
    return true;
  }

  wait(time) {
    this.busy = true;
    this.world.at(this.world.now + time, () => {
      this.busy = false;
      this.advance();
    });
  }

  // Data arrived: a program that waits for it is woken.
  woken() {
    if (this.reading && !this.busy) this.advance();
  }
}
