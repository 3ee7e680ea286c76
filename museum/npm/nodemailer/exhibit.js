'use strict'
// Sends letters over pooled SMTP connections: the text of a letter and the line that ends it are two small writes.
const net = require('node:net')
const { once } = require('node:events')
const nodemailer = require('nodemailer')

const LETTERS = 30

// A small scripted SMTP server: one write for each reply.
function serve (socket) {
  let input = ''
  let data = false
  socket.on('error', () => {})
  socket.write('220 localhost ESMTP\r\n')
  socket.on('data', (chunk) => {
    input += chunk
    const end = data ? '\r\n.\r\n' : '\r\n'
    if (!input.endsWith(end)) return
    const command = input.slice(0, 4)
    input = ''
    if (data) socket.write('250 Accepted\r\n')
    else if (command === 'DATA') socket.write('354 Go ahead\r\n')
    else socket.write('250 OK\r\n')
    data = !data && command === 'DATA'
    if (command === 'QUIT') socket.end()
  })
}

async function post (port) {
  const transport = nodemailer.createTransport({
    host: '127.0.0.1', port, ignoreTLS: true, pool: true, maxConnections: 1, maxMessages: Infinity
  })
  for (let i = 0; i < LETTERS; i++) {
    await transport.sendMail({ from: 'me@example.org', to: 'you@example.org', subject: `Letter ${i}`, text: 'Hello' })
  }
  transport.close()
}

async function main () {
  const server = net.createServer({ noDelay: true }, serve).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([post(port), post(port)])
  server.close()
}

main()
