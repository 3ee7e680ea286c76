'use strict'
// A directory answers each search with an entry and with "done": two small writes. Usage: node exhibit.js [no-delay]
const net = require('node:net')
const { once } = require('node:events')
const ldap = require('ldapjs')

const EXCHANGES = 30
const DONE = 0x65
const noDelay = process.argv[2] === 'no-delay'

// All values here are shorter than 128 bytes.
const tlv = (tag, ...parts) => {
  const value = Buffer.concat(parts.map((part) => Buffer.from(part)))
  return Buffer.concat([Buffer.from([tag, value.length]), value])
}
const search = (id) => tlv(0x30, tlv(0x02, [id]), tlv(0x63,
  tlv(0x04, 'cn=me'), tlv(0x0a, [0]), tlv(0x0a, [0]), tlv(0x02, [0]), tlv(0x02, [0]), tlv(0x01, [0]),
  tlv(0x87, 'objectClass'), tlv(0x30)))

function createServer () {
  // With a router the application gets each connection before ldapjs does.
  const router = (socket) => server.newConnection(socket.setNoDelay(true))
  const server = ldap.createServer(noDelay ? { connectionRouter: router } : {})
  server.search('cn=me', (request, response) => {
    response.send({ dn: 'cn=me', attributes: { objectClass: ['person'], cn: ['me'] } })
    response.end()
  })
  return server
}

// A plain client: one write per search, TCP_NODELAY set.
async function ask (port) {
  const socket = net.connect({ port, host: '127.0.0.1', noDelay: true })
  let input = Buffer.alloc(0)
  let sent = 0
  const next = () => sent < EXCHANGES ? socket.write(search(++sent)) : socket.end()
  socket.on('data', (data) => {
    input = Buffer.concat([input, data])
    while (input.length >= 2 && input.length >= 2 + input[1]) {
      const type = input[5]
      input = input.subarray(2 + input[1])
      if (type === DONE) next()
    }
  })
  next()
  await once(socket, 'close')
}

const server = createServer()
server.listen(0, '127.0.0.1', async () => {
  const { port } = server.address()
  await Promise.all([ask(port), ask(port)])
  server.close()
})
