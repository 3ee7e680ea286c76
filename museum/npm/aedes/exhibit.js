'use strict'
// Clients publish to a topic that they subscribed to: the broker writes acknowledgement and message separately.
// Usage: node exhibit.js [no-delay]
const net = require('node:net')
const { once } = require('node:events')
const { Aedes } = require('aedes')

const EXCHANGES = 30
const [CONNACK, PUBLISH, PUBACK, SUBACK] = [2, 3, 4, 9]
const noDelay = process.argv[2] === 'no-delay'

// All packets here are shorter than 128 bytes.
const packet = (type, ...parts) => {
  const rest = Buffer.concat(parts.map((part) => Buffer.from(part)))
  return Buffer.concat([Buffer.from([type, rest.length]), rest])
}
const text = (value) => [0, value.length, ...Buffer.from(value)]

function onPacket (socket, callback) {
  let input = Buffer.alloc(0)
  socket.on('data', (data) => {
    input = Buffer.concat([input, data])
    while (input.length >= 2 && input.length >= 2 + input[1]) {
      const type = input[0] >> 4
      input = input.subarray(2 + input[1])
      callback(type)
    }
  })
}

// A plain client: one write per packet, TCP_NODELAY set. It publishes again when both answers are there.
async function publish (port, name) {
  const socket = net.connect({ port, host: '127.0.0.1', noDelay: true })
  const waiting = new Set([CONNACK])
  let sent = 0
  onPacket(socket, (type) => {
    waiting.delete(type)
    if (waiting.size) return
    if (type === CONNACK) {
      waiting.add(SUBACK)
      socket.write(packet(0x82, [0, 1], text(name), [0]))
    } else if (sent < EXCHANGES) {
      waiting.add(PUBACK).add(PUBLISH)
      socket.write(packet(0x32, text(name), [0, ++sent], 'hello'))
    } else {
      socket.end(packet(0xe0))
    }
  })
  socket.write(packet(0x10, text('MQTT'), [4, 2, 0, 60], text(name)))
  await once(socket, 'close')
}

async function main () {
  const broker = await Aedes.createBroker()
  const server = net.createServer({ noDelay }, broker.handle).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([publish(port, 'one'), publish(port, 'two')])
  server.close()
  broker.close()
}

main()
