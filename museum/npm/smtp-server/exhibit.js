'use strict'
// Clients that use PIPELINING send several commands in one write; the server writes a reply to each.
const net = require('node:net')
const { once } = require('node:events')
const { SMTPServer } = require('smtp-server')

const EXCHANGES = 30
const GREETING = ['EHLO client']
const LETTER = ['RSET', 'MAIL FROM:<me@example.org>', 'RCPT TO:<you@example.org>']

// A plain client: one write for each group of commands, TCP_NODELAY set. It goes on when all replies are there.
async function ask (port) {
  const socket = net.connect({ port, host: '127.0.0.1', noDelay: true })
  let input = ''
  let sent = 0
  let expected = 1 // the server speaks first
  socket.on('data', (data) => {
    input += data
    if (!input.endsWith('\r\n') || (input.match(/^\d{3} /gm) || []).length < expected) return
    if (sent > EXCHANGES) return socket.end()
    const commands = sent++ ? LETTER : GREETING
    input = ''
    expected = commands.length
    socket.write(`${commands.join('\r\n')}\r\n`)
  })
  await once(socket, 'close')
}

async function main () {
  const server = new SMTPServer({ authOptional: true, hideSTARTTLS: true })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.server.address()
  await Promise.all([ask(port), ask(port)])
  server.close()
}

main()
