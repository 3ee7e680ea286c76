'use strict'
// A client gets requests with QoS 1 and publishes replies: PUBACK and PUBLISH are two small writes.
// Usage: node exhibit.js [no-delay]
const net = require('node:net')
const { once } = require('node:events')
const mqtt = require('mqtt')

const EXCHANGES = 30
const [CONNECT, PUBLISH, SUBSCRIBE, DISCONNECT] = [1, 3, 8, 14]
const noDelay = process.argv[2] === 'no-delay'

// All packets here are shorter than 128 bytes.
const packet = (type, ...parts) => {
  const rest = Buffer.concat(parts.map((part) => Buffer.from(part)))
  return Buffer.concat([Buffer.from([type, rest.length]), rest])
}
const request = (id) => packet(0x32, [0, 8], 'requests', [0, id], 'hello')

// A small scripted broker: one write for each answer, TCP_NODELAY set.
function serve (socket) {
  let input = Buffer.alloc(0)
  let requests = 0
  socket.on('data', (data) => {
    input = Buffer.concat([input, data])
    while (input.length >= 2 && input.length >= 2 + input[1]) {
      const type = input[0] >> 4
      const id = input.subarray(2, 4)
      input = input.subarray(2 + input[1])
      if (type === CONNECT) socket.write(packet(0x20, [0, 0]))
      if (type === SUBSCRIBE) socket.write(Buffer.concat([packet(0x90, id, [1]), request(++requests)]))
      if (type === PUBLISH && requests < EXCHANGES) socket.write(request(++requests))
      if (type === DISCONNECT) socket.end()
    }
  })
}

async function work (port) {
  const client = noDelay
    ? new mqtt.MqttClient(() => net.connect({ port, host: '127.0.0.1', noDelay: true }), {})
    : mqtt.connect({ port, host: '127.0.0.1' })
  await once(client, 'connect')
  client.subscribe('requests', { qos: 1 })
  await new Promise((resolve) => {
    let seen = 0
    client.on('message', () => {
      setTimeout(() => { // stands for the work itself; within the same tick both would leave in one write
        client.publish('replies', 'world')
        if (++seen === EXCHANGES) resolve()
      }, 5)
    })
  })
  await client.endAsync()
}

async function main () {
  const server = net.createServer({ noDelay: true }, serve).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([work(port), work(port)])
  server.close()
}

main()
