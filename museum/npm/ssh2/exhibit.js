'use strict'
// A client runs one command after another over an SSH connection, as `echo hello | ssh host cat` would.
// Usage: node exhibit.js [no-delay]
const { once } = require('node:events')
const { Client, Server, utils } = require('ssh2')

const COMMANDS = 20
const noDelay = process.argv[2] === 'no-delay'

// The peer is ssh2 too, with TCP_NODELAY set: it answers when the command's input has ended.
function serve () {
  const key = utils.generateKeyPairSync('ecdsa', { bits: 256 })
  return new Server({ hostKeys: [key.private] }, (client) => {
    client.setNoDelay(true)
    client.on('error', () => {})
    client.on('authentication', (attempt) => attempt.accept())
    client.on('session', (accept) => accept().on('exec', (accept) => {
      const channel = accept()
      channel.resume().on('end', () => {
        channel.exit(0)
        channel.end('hello')
      })
    }))
  })
}

function run (client) {
  return new Promise((resolve, reject) => client.exec('cat', (error, channel) => {
    if (error) return reject(error)
    channel.resume().on('close', resolve)
    channel.end('hello')
  }))
}

async function work (port) {
  const client = new Client()
  client.connect({ host: '127.0.0.1', port, username: 'guest', password: 'guest' })
  if (noDelay) client.setNoDelay(true)
  await once(client, 'ready')
  for (let i = 0; i < COMMANDS; i++) await run(client)
  client.end()
  await once(client, 'close')
}

async function main () {
  const server = serve().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([work(port), work(port)])
  server.close()
}

main()
