// Clients behind a SOCKS proxy send head and body of each request in two small writes, with TCP_NODELAY set. Usage:
// node exhibit.mjs [no-delay]
import http from 'node:http'
import net from 'node:net'
import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import socks from 'simple-socks'

const EXCHANGES = 30
const connectionOptions = (options, destination, origin, callback) => callback(null, { ...options, noDelay: true })
const options = process.argv[2] === 'no-delay' ? { connectionOptions } : {}

async function connect (proxy, port) {
  const socket = net.connect({ port: proxy, host: '127.0.0.1', noDelay: true })
  socket.write(Buffer.from([5, 1, 0]))
  await once(socket, 'data')
  socket.write(Buffer.from([5, 1, 0, 1, 127, 0, 0, 1, port >> 8, port & 255]))
  await once(socket, 'data')
  return socket
}

async function ask (proxy, port) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
  const socket = await connect(proxy, port)
  agent.createConnection = () => socket
  for (let i = 0; i < EXCHANGES; i++) {
    const request = http.request({ agent, host: '127.0.0.1', port, method: 'POST' })
    request.flushHeaders()
    await setTimeout(4) // stands for the making of the body
    request.end('hello')
    const [response] = await once(request, 'response')
    await once(response.resume(), 'end')
  }
  socket.end()
}

const server = http.createServer((request, response) => request.resume().on('end', () => response.end('hello')))
await once(server.listen(0, '127.0.0.1'), 'listening')
const proxy = socks.createServer(options)
await once(proxy.listen(0, '127.0.0.1'), 'listening')
await Promise.all([1, 2].map(() => ask(proxy.address().port, server.address().port)))
proxy.close()
server.close()
