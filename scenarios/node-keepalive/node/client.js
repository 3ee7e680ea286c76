#!/usr/bin/env node
// The client: POSTs one after the other, each body written in two pieces.
//
//   client configuration        POST to ourselves with the settings below and print what the kernel says of the socket
//   client load HOST PORT N C   N POSTs over C connections; the last line is the report, as JSON
//
//   NODELAY=off|default|set     http.Agent({noDelay: false}); not mentioned; or off, then socket.setNoDelay(true)
//   KEEPALIVE=on|off            http.Agent({keepAlive: …})
//   END=next-tick|same-tick     when end('bar') follows write('foo')
'use strict';
const http = require('http');
const { spawn } = require('child_process');
const { once } = require('events');
const { performance } = require('perf_hooks');

const { NODELAY = 'off', KEEPALIVE = 'on', END = 'next-tick' } = process.env;

const agent = new http.Agent({
  keepAlive: KEEPALIVE === 'on',
  ...(NODELAY === 'default' ? {} : { noDelay: false }),
});

// POST `foobar` in two pieces and return, once the answer is complete, the socket it came on.
async function post(host, port) {
  const request = http.request({ host, port, method: 'POST', agent });
  if (NODELAY === 'set') request.on('socket', (socket) => socket.setNoDelay(true));
  request.write('foo');
  if (END === 'next-tick') process.nextTick(() => request.end('bar'));
  else request.end('bar');
  const [response] = await once(request, 'response');
  const { socket } = response;
  let body = '';
  for await (const data of response) body += data;
  if (body !== 'foobar') throw new Error(`the server answered ${JSON.stringify(body)}`);
  return socket;
}

// Node has no getsockopt(): a child process that inherits the socket asks the kernel.
async function kernelNodelay(socket) {
  const ask = 'open(S, "+<&=3") && print unpack("i", getsockopt(S, IPPROTO_TCP, TCP_NODELAY)) ? 1 : 0';
  const stdio = ['ignore', 'pipe', 'inherit', socket];
  const child = spawn('perl', ['-MSocket=IPPROTO_TCP,TCP_NODELAY', '-e', ask], { stdio });
  let answer = '';
  for await (const data of child.stdout) answer += data;
  return answer;
}

async function configuration() {
  const server = http.createServer((request, response) => request.pipe(response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = await post('127.0.0.1', server.address().port);
  console.log(`connection TCP_NODELAY=${await kernelNodelay(socket)} KEEPALIVE=${KEEPALIVE} END=${END}`);
  agent.destroy();
  server.close();
}

// POST `requests` times, one after the other, and return the milliseconds each took.
async function postAll(host, port, requests) {
  const tookMs = [];
  for (let i = 0; i < requests; i += 1) {
    const started = performance.now();
    await post(host, port);
    tookMs.push(performance.now() - started);
  }
  return tookMs;
}

async function load(host, port, requests, connections) {
  const shares = Array.from({ length: connections }, (_, i) => Math.floor((requests + i) / connections));
  const started = performance.now();
  const tookMs = (await Promise.all(shares.map((share) => postAll(host, port, share)))).flat().sort((a, b) => a - b);
  const durationS = (performance.now() - started) / 1000;
  agent.destroy();
  const rounded = (value) => Number(value.toFixed(3));
  const nearestRank = (percent) => tookMs[Math.ceil((tookMs.length * percent) / 100) - 1];
  console.log(JSON.stringify({
    version: `Node.js ${process.version} http.request`,
    requests,
    complete: tookMs.length,
    failed: requests - tookMs.length,
    requests_per_s: rounded(tookMs.length / durationS),
    mean_ms: rounded(tookMs.reduce((sum, ms) => sum + ms, 0) / tookMs.length),
    duration_s: rounded(durationS),
    percentiles_ms: Object.fromEntries([50, 90, 99, 100].map((percent) => [percent, rounded(nearestRank(percent))])),
  }));
}

const [command, host, port, requests, connections] = process.argv.slice(2);
const work = command === 'configuration'
  ? configuration()
  : load(host, Number(port), Number(requests), Number(connections));
work.catch((error) => {
  console.error(`client: ${error.message}`);
  process.exit(1);
});
