'use strict'
// A service publishes an event for each request and then its reply: two small writes.
const net = require('node:net')
const { once } = require('node:events')
const NATS = require('nats')

const EXCHANGES = 30

// A small scripted NATS server: one write for each message, TCP_NODELAY set.
function serve (socket) {
  let input = ''
  let id = ''
  let replies = 0
  const request = () => socket.write(`MSG requests ${id} replies 5\r\nhello\r\n`)
  socket.on('error', () => {})
  socket.on('data', (data) => {
    input += data
    const lines = input.split('\r\n')
    input = lines.pop()
    for (const line of lines) {
      if (line === 'PING') socket.write('PONG\r\n')
      if (line.startsWith('SUB ')) id = line.split(' ').at(-1)
      if (line.startsWith('SUB ') || (line === 'world' && ++replies < EXCHANGES)) request()
    }
  })
  socket.write('INFO {"server_id":"peer","version":"1.0.0","max_payload":1048576}\r\n')
}

async function work (port) {
  const client = NATS.connect({ url: `nats://127.0.0.1:${port}` })
  await once(client, 'connect')
  await new Promise((resolve) => {
    let seen = 0
    client.subscribe('requests', (message, reply) => {
      client.publish('events', 'started')
      setTimeout(() => { // stands for the work itself
        client.publish(reply, 'world')
        if (++seen === EXCHANGES) client.flush(resolve)
      }, 1)
    })
  })
  client.close()
}

async function main () {
  const server = net.createServer({ noDelay: true }, serve).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([work(port), work(port)])
  server.close()
}

main()
