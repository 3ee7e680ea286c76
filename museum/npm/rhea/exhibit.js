'use strict'
// A server built on rhea settles each request, then sends its reply: two small writes.
// Usage: node exhibit.js [no-delay]
const { once } = require('node:events')
const rhea = require('rhea')

const EXCHANGES = 30
const options = process.argv[2] === 'no-delay' ? { tcp_no_delay: true } : {}

function serve () {
  const server = rhea.create_container()
  const replies = new Map()
  server.on('sender_open', ({ connection, sender }) => replies.set(connection, sender))
  server.on('message', ({ connection, message }) => {
    // The work is asynchronous, so rhea settles the request before the reply is sent.
    setImmediate(() => replies.get(connection).send({ body: `reply to ${message.body}` }))
  })
  return server.listen({ port: 0, host: '127.0.0.1', ...options })
}

// Asks again when the last request was both settled and answered. The client has TCP_NODELAY set.
async function ask (port) {
  const client = rhea.create_container()
  const connection = client.connect({ port, host: '127.0.0.1', reconnect: false, tcp_no_delay: true })
  connection.open_receiver('replies')
  const requests = connection.open_sender('requests')
  let [sent, settled, answered] = [0, 0, 0]
  const next = () => {
    if (settled < sent || answered < sent) return
    if (sent < EXCHANGES) requests.send({ body: `request ${++sent}` })
    else connection.close()
  }
  client.once('sendable', next)
  client.on('settled', () => { settled++; next() })
  client.on('message', () => { answered++; next() })
  await once(connection, 'connection_close')
}

async function main () {
  const server = serve()
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([ask(port), ask(port)])
  server.close()
}

main()
