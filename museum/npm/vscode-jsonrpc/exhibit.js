'use strict'
// Asks a JSON-RPC server over TCP, as an editor asks a language server. Usage: node exhibit.js [no-delay]
const net = require('node:net')
const { once } = require('node:events')
const rpc = require('vscode-jsonrpc/node')

const EXCHANGES = 30
const noDelay = process.argv[2] === 'no-delay'

// A plain server: one write per reply, TCP_NODELAY set.
function serve (socket) {
  let input = ''
  socket.on('data', (data) => {
    input += data
    const head = /^Content-Length: (\d+)\r\n\r\n/.exec(input)
    if (!head || input.length < head[0].length + Number(head[1])) return
    const { id } = JSON.parse(input.slice(head[0].length))
    input = ''
    const reply = JSON.stringify({ jsonrpc: '2.0', id, result: 'world' })
    socket.write(`Content-Length: ${reply.length}\r\n\r\n${reply}`)
  })
}

async function ask (port) {
  const socket = net.connect({ port, host: '127.0.0.1', noDelay })
  await once(socket, 'connect')
  const connection = rpc.createMessageConnection(socket, socket)
  connection.listen()
  for (let i = 0; i < EXCHANGES; i++) await connection.sendRequest('hello', i)
  connection.dispose()
  socket.end()
}

async function main () {
  const server = net.createServer({ noDelay: true }, serve).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([ask(port), ask(port)])
  server.close()
}

main()
