// Loaded by every Node.js that a traced command starts: say, before each write to a socket, which line makes it.
// A mark is a system call that cannot succeed and whose path contains the information: strace sees it in the thread
// that writes, right before the write. nagle_lab/guard/tracing/strace_output.py explains its format.
"use strict";

const fs = require("node:fs");
const net = require("node:net");
const { fileURLToPath } = require("node:url");

const rmdirSync = fs.rmdirSync; // saved before the program can replace it
const MOST_FRAMES = 60;
const MOST_OF_LIBRARIES = 8;
const MOST_OF_PROGRAM = 8;
const PLUMBING = /^node:(internal\/(streams|stream_base_commons|process|timers|async_hooks)|net$|events$|domain$)/;
const waiting = new WeakMap(); // socket → lines of writes that Node.js has not yet passed to the kernel

function mark(words) {
  const path = "/proc/nagle-lab;" + words.map((word) => String(word).replace(/[;\0]/g, ",")).join(";");
  const limit = Error.stackTraceLimit;
  try {
    Error.stackTraceLimit = 0; // for the error below
    rmdirSync(path);
  } catch {
    // It cannot succeed.
  } finally {
    Error.stackTraceLimit = limit;
  }
}

// The calls on the stack as [file, line, function], innermost first.
function stack() {
  const before = { limit: Error.stackTraceLimit, prepare: Error.prepareStackTrace };
  try {
    Error.stackTraceLimit = MOST_FRAMES;
    Error.prepareStackTrace = (_, sites) => sites;
    const sites = new Error().stack;
    return sites.map((site) => {
      let file = site.getFileName() || "";
      if (file.startsWith("file://")) file = fileURLToPath(file);
      return [file, site.getLineNumber() || 0, site.getFunctionName() || ""];
    });
  } finally {
    Error.stackTraceLimit = before.limit;
    Error.prepareStackTrace = before.prepare;
  }
}

// For a library's file the path inside node_modules.
function shortened([file, line, name]) {
  const at = file.lastIndexOf("/node_modules/");
  const short = at < 0 ? file : file.slice(at + "/node_modules/".length);
  return [short.length > 200 ? "…" + short.slice(-200) : short, line, name];
}

// The libraries' frames, innermost first and without plumbing, up to the program's frames, and then these.
function places() {
  const found = [];
  const internal = [];
  const program = [];
  let plumbing; // the innermost; a write by stream.pipe() has no other frame
  for (const frame of stack()) {
    const [file] = frame;
    if (!file || file === __filename) continue;
    if (isProgram(frame)) {
      if (program.length < MOST_OF_PROGRAM) program.push(frame);
    } else if (program.length) {
      continue;
    } else if (file.startsWith("node:")) {
      if (PLUMBING.test(file)) plumbing ??= frame;
      else if (!found.length) internal.push(frame);
    } else if (found.length < MOST_OF_LIBRARIES) {
      found.push(frame);
    }
  }
  if (found.length) return [...found, ...program];
  if (program.length || internal.length) return [...internal.slice(0, program.length ? 1 : MOST_OF_LIBRARIES), ...program];
  return plumbing ? [plumbing] : [];
}

function isProgram([file]) {
  return !file.startsWith("node:") && !file.includes("/node_modules/");
}

function lengthOf(writev, data, encoding) {
  try {
    if (!writev) return Buffer.byteLength(data, encoding);
    return data.reduce((sum, part) => sum + Buffer.byteLength(part.chunk ?? part, part.encoding), 0);
  } catch {
    return 0;
  }
}

function guarded(action) {
  try {
    action();
  } catch {
    // The program continues as it would without us.
  }
}

function tell(socket, length, call, frames) {
  const fd = socket.encrypted ? -1 : (socket._handle?.fd ?? -1);
  const words = frames.flatMap(shortened);
  mark([fd, socket.encrypted ? 0 : length, call, ...words]);
}

function note(socket, call) {
  guarded(() => {
    const calls = waiting.get(socket) ?? [];
    if (calls.length < 100) calls.push([call, places()]);
    waiting.set(socket, calls);
  });
}

const { _writeGeneric, setNoDelay } = net.Socket.prototype;

for (const call of ["write", "end"]) {
  const original = net.Socket.prototype[call];
  net.Socket.prototype[call] = function (...args) {
    if (call === "write" || (args.length && typeof args[0] !== "function" && args[0] != null)) note(this, call);
    return original.apply(this, args);
  };
}

net.Socket.prototype._writeGeneric = function (writev, data, encoding, cb) {
  guarded(() => {
    if (this.connecting) return; // it is called again once connected
    const calls = waiting.get(this) ?? [["write", places()]];
    waiting.delete(this);
    const [call, frames] = calls.find(([, frames]) => frames.some(isProgram)) ?? calls[0];
    tell(this, lengthOf(writev, data, encoding), call, frames);
  });
  return _writeGeneric.call(this, writev, data, encoding, cb);
};

net.Socket.prototype.setNoDelay = function (...args) {
  guarded(() => tell(this, 0, "setsockopt", places()));
  return setNoDelay.apply(this, args);
};

mark(["hook", "node"]);
