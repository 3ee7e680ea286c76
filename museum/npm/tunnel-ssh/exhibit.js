'use strict'
// Clients ask a server through a tunnel, as programs ask a database behind an SSH host.
// Usage: node exhibit.js [no-delay]
const net = require('node:net')
const { once } = require('node:events')
const { Server, utils } = require('ssh2')
const { createTunnel } = require('tunnel-ssh')

const EXCHANGES = 30
const noDelay = process.argv[2] === 'no-delay'

// Stands for the SSH host and for the server behind it, with TCP_NODELAY set.
function serve () {
  const key = utils.generateKeyPairSync('ecdsa', { bits: 256 })
  return new Server({ hostKeys: [key.private] }, (client) => {
    client.setNoDelay(true)
    client.on('error', () => {})
    client.on('authentication', (attempt) => attempt.accept())
    client.on('tcpip', (accept) => {
      const channel = accept()
      channel.on('data', () => channel.write('world'))
      channel.on('end', () => channel.end())
    })
  })
}

// A plain client: one write per request, TCP_NODELAY set.
async function ask (port) {
  const socket = net.connect({ port, host: '127.0.0.1', noDelay: true })
  for (let i = 0; i < EXCHANGES; i++) {
    socket.write('hello')
    await once(socket, 'data')
  }
  socket.end()
  await once(socket.resume(), 'close')
}

async function work (port) {
  const host = { host: '127.0.0.1', port, username: 'guest', password: 'guest' }
  if (noDelay) host.sock = net.connect({ host: '127.0.0.1', port, noDelay })
  const [tunnel] = await createTunnel({ autoClose: true }, {}, host, { dstAddr: '127.0.0.1', dstPort: 3306 })
  await ask(tunnel.address().port)
}

async function main () {
  const server = serve().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([work(port), work(port)])
  server.close()
}

main()
