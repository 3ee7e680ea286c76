'use strict'
// Posts streams: the head of a request and its body are written separately.
const http = require('node:http')
const { once } = require('node:events')
const { Readable } = require('node:stream')
const { Client } = require('undici')

const EXCHANGES = 30

async function ask (port) {
  const client = new Client(`http://127.0.0.1:${port}`)
  for (let i = 0; i < EXCHANGES; i++) {
    const { body } = await client.request({ path: '/', method: 'POST', body: Readable.from([Buffer.from('hello')]) })
    await once(body.resume(), 'end')
  }
  client.close()
}

async function main () {
  // Node's HTTP servers set TCP_NODELAY, and this reply is one write.
  const server = http.createServer((request, response) => request.resume().on('end', () => response.end('world')))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address()
  await Promise.all([ask(port), ask(port)])
  server.close()
}

main()
