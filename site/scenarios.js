// How the programs of each scenario write: from the values of a variant (scenario.toml) to a setup of the model.
//
// Which writes a program makes is the program's doing, not TCP's; what TCP makes of them is the model's. Each function
// says where its sizes come from. `lab` is the name of the lab in scenario.toml; it tells which kernel setting differs.

const ETHERNET = 1448; // payload of a full segment at MTU 1500: less IPv4, TCP and its timestamps
const LOOPBACK = 65483; // at MTU 65536 (Linux takes no larger MSS than 65495)
const MTU_65535 = 65483;
const digits = (value) => String(value).length;

const quickack = (end) => ({ [end]: { quickack: true } });

function writes(total, chunk) {
  // a relay that reads and writes so much at a time
  const parts = [];
  for (let left = total; left > 0; left -= chunk) parts.push(`write ${Math.min(left, chunk)}`);
  return parts.join(", ");
}

// nginx's ngx_http_write_filter: the header is in memory, the file goes by sendfile(), a write of its own. With
// tcp_nopush both leave corked; with sendfile off nginx reads 32 KiB at a time (output_buffers) and writes them with
// the header. ab's request has 103 B; the header has 235 B and the digits of Content-Length.
function nginxStatic(value, lab) {
  const header = 235 + digits(value.PAGE_BYTES);
  const first = Math.min(value.PAGE_BYTES, 32768);
  const rest = value.PAGE_BYTES - first;
  let reply = `write ${header}, write ${value.PAGE_BYTES}`;
  if (value.TCP_NOPUSH === "on") reply = `cork on, ${reply}, cork off`;
  if (lab.startsWith("sendfile-off")) reply = `write ${header + first}${rest ? `, write ${rest}` : ""}`;
  return {
    exchanges: value.REQUESTS / value.CONCURRENCY,
    keepalive: value.KEEPALIVE === "on",
    rtt: lab.startsWith("link") ? value.RTT_MS : 0.1,
    mss: lab === "sendfile-off-large-mtu" ? MTU_65535 : ETHERNET,
    client: {
      program: `write 103, read ${header + value.PAGE_BYTES}`,
      nagle: "minshall",
      quickack: /^(quickack-route|link-quickack)$/.test(lab),
      quicksocket: lab === "quickack-socket",
      pingpong: lab === "pingpong" ? 20 : 1, // pingpong.yaml
    },
    server: { program: `read 103, ${reply}`, nagle: value.TCP_NODELAY === "on" ? "off" : "minshall" },
  };
}

// redis_load.py: a SET of the key "nagle-lab" has 33 B and the digits of its length around the value; a GET has 28 B,
// its reply 5 B and the digits. The proxy reads up to CHUNK_BYTES and writes what it has read. `port` 6380 is the side
// of the proxy's client, 6379 that of Redis.
function redisProxy(value, lab, port) {
  const set = value.COMMAND === "set";
  const asked = set ? 33 + digits(value.VALUE_BYTES) + value.VALUE_BYTES : 28;
  const answered = set ? 5 : 5 + digits(value.VALUE_BYTES) + value.VALUE_BYTES;
  const direct = value.TARGET === "direct";
  const front = port === 6380;
  const nodelay = (side) => value.NODELAY === "both" || value.NODELAY === side;
  return {
    exchanges: value.REQUESTS / value.CONNECTIONS,
    mss: lab === "loopback" ? LOOPBACK : ETHERNET,
    client: {
      program: `${front || direct ? `write ${asked}` : writes(asked, value.CHUNK_BYTES)}, read ${answered}`,
      nagle: front || direct || nodelay("redis") ? "off" : "minshall",
    },
    server: {
      program: `read ${asked}, ${front ? writes(answered, value.CHUNK_BYTES) : `write ${answered}`}`,
      nagle: !front || nodelay("client") ? "off" : "minshall",
      quickack: lab === "quickack-route",
      pingpong: lab === "quickack-threshold" ? value.PINGPONG_THRESH : 1,
    },
  };
}

// frames.py: a frame has a header of 12 B. SUCCESS has 7 B of text; a confirm has none, and leaves alone or glued to
// the next message. The broker sets TCP_NODELAY.
function messageQueue(value, lab) {
  const message = 12 + value.BODY_BYTES;
  const glued = value.CONFIRM === "glued";
  const nodelay = value.TCP_NODELAY !== "off";
  return {
    exchanges: value.MESSAGES / value.CONNECTIONS,
    client: {
      program: glued ? `write ${message + 12}, read 19` : `write ${message}, read 19, write 12`,
      nagle: nodelay ? "off" : "minshall",
    },
    server: {
      program: glued ? `read ${message + 12}, write 19` : `read ${message}, write 19, read 12`,
      nagle: "off",
      quickack: lab === "quickack-route",
      quicksocket: lab === "broker-quickack",
      pingpong: lab === "quickack-threshold" ? value.PINGPONG_THRESH : 1,
    },
  };
}

// Node's http: head and the chunk "foo" leave together (98 B with keep-alive), "bar" and the last chunk in a write of
// their own, 13 B, unless end() comes in the same tick; the answer has 128 B. A server of Node 20 sets TCP_NODELAY.
function nodeKeepalive(value, lab) {
  const parts = value.END === "same-tick" ? "write 111" : "write 98, write 13";
  return {
    exchanges: value.REQUESTS / value.CONNECTIONS,
    keepalive: value.KEEPALIVE === "on",
    client: { program: `${parts}, read 128`, nagle: value.NODELAY === "off" ? "minshall" : "off" },
    server: {
      program: "read 111, write 128",
      nagle: "off",
      ...(lab === "quickack-route" ? quickack("server").server : {}),
    },
  };
}

// nginx towards its upstream. ngx_http_read_client_request_body: what came with the header (client_header_buffer_size,
// 1 KiB) is the body's beginning; the rest is read into a buffer of client_body_buffer_size, or of its own size where
// it is less than a quarter larger. Unbuffered, each buffer is written as it is read; buffered, a body that did not
// fit goes in two: the buffer from memory, the rest from a file. TCP_NODELAY is set upstream only where unbuffered.
function unbufferedProxy(value, lab) {
  const body = value.BODY_BYTES;
  const asked = 50 + digits(body); // upload.py's request line and headers
  const head = 56 + digits(body); // nginx's own, towards "application"
  const buffer = { "8k": 8192, "64k": 65536, "640k": 655360 }[value.BODY_BUFFER];
  const early = Math.min(body, 1024 - asked);
  const rest = body - early;
  const fits = rest < buffer + (buffer >> 2);
  const buffered = value.REQUEST_BUFFERING === "on";
  const bridge = lab.startsWith("bridge");
  let parts;
  if (value.PIECE_BYTES) {
    const first = Math.min(value.PIECE_BYTES, body);
    const more = Math.ceil((body - first) / value.PIECE_BYTES);
    parts = `write ${head + first}`;
    for (let i = 1; i <= more; i += 1) {
      parts += `, pause ${value.INTERVAL_US / 1000}, write ${Math.min(value.PIECE_BYTES, body - first - (i - 1) * value.PIECE_BYTES)}`;
    }
  } else if (fits) {
    parts = `write ${head + body}`;
  } else if (buffered) {
    parts = `write ${head + buffer}, write ${body - buffer}`;
  } else {
    parts = `write ${head + early + buffer}, ${writes(rest - buffer, buffer)}`;
  }
  return {
    exchanges: value.REQUESTS / value.CONCURRENCY,
    mss: bridge ? ETHERNET : LOOPBACK,
    client: { program: `${parts}, read 111`, nagle: value.TCP_NODELAY === "on" && !buffered ? "off" : "minshall" },
    server: { program: `read ${head + body}, write 111`, quickack: lab === "bridge-quickack" },
  };
}

const SCENARIOS = {
  "nginx-static": nginxStatic,
  "redis-proxy": redisProxy,
  "message-queue": messageQueue,
  "node-keepalive": nodeKeepalive,
  "unbuffered-proxy": unbufferedProxy,
};

// The setup of a variant, as data.js has it, with some values changed. Throws where the scenario is not known here.
export function setupOfVariant(scenario, variant, changed = {}) {
  const make = SCENARIOS[scenario];
  if (!make) throw new Error(`scenarios.js does not say how the programs of ${scenario} write`);
  const setup = make({ ...variant.values, ...changed }, variant.lab, variant.port);
  return { ...setup, exchanges: Math.max(1, Math.floor(setup.exchanges)) };
}
