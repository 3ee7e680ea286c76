'use strict'
// Prepares, executes and closes statements: nothing answers the close, and the next prepare is a second small write.
const net = require('node:net')
const { once } = require('node:events')
const mysql = require('mysql2/promise')

const EXCHANGES = 30

const u32 = (n) => [n & 255, n >> 8, 0, 0]
const frame = (sequence, ...parts) => {
  const payload = Buffer.concat(parts.map((part) => Buffer.from(part)))
  return Buffer.concat([Buffer.from([payload.length, 0, 0, sequence]), payload])
}

// A small scripted MySQL server: it lets everyone in, and statements have neither parameters nor results.
function serve (socket) {
  const [QUIT, PREPARE, EXECUTE] = [0x01, 0x16, 0x17]
  const ok = (sequence) => frame(sequence, [0, 0, 0, 2, 0, 0, 0])
  const salt = 'saltsaltsaltsaltsalt'
  // Capabilities: 4.1 protocol, connect with a database, secure connection, authentication plug-in.
  socket.write(frame(0, [10], '8.0.0\0', u32(1), salt.slice(0, 8), [0], [0x09, 0x82], [45], [2, 0], [0x08, 0x00],
    [21], Buffer.alloc(10), salt.slice(8), [0], 'mysql_native_password\0'))
  let input = Buffer.alloc(0)
  let statements = 0
  let greeted = false
  socket.on('error', () => {})
  socket.on('data', (data) => {
    input = Buffer.concat([input, data])
    while (input.length >= 4 && input.length >= 4 + input.readUIntLE(0, 3)) {
      const [sequence, command] = [input[3] + 1, input[4]]
      input = input.subarray(4 + input.readUIntLE(0, 3))
      if (!greeted || command === EXECUTE) socket.write(ok(sequence))
      else if (command === PREPARE) socket.write(frame(1, [0], u32(++statements), [0, 0, 0, 0, 0, 0, 0]))
      else if (command === QUIT) socket.end()
      greeted = true
    }
  })
}

async function query (port) {
  const connection = await mysql.createConnection({ host: '127.0.0.1', port, user: 'guest' })
  for (let i = 0; i < EXCHANGES; i++) {
    const statement = await connection.prepare(`DO ${i}`)
    await statement.execute([])
    await statement.close()
  }
  await connection.end()
}

async function main () {
  const server = net.createServer({ noDelay: true }, serve).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  await Promise.all([query(port), query(port)])
  server.close()
}

main()
