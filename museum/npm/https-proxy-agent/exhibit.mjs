// Requests through a CONNECT proxy, head and body of each in two writes. Usage: node exhibit.mjs [no-delay]
import http from 'node:http'
import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import { HttpsProxyAgent } from 'https-proxy-agent'

const EXCHANGES = 30
const options = process.argv[2] === 'no-delay' ? { noDelay: true } : {}

async function ask (port) {
  const agent = new HttpsProxyAgent(`http://127.0.0.1:${port}`, { keepAlive: true, maxSockets: 1, ...options })
  for (let i = 0; i < EXCHANGES; i++) {
    const request = http.request('http://example.org/', { agent, method: 'POST' })
    request.flushHeaders()
    await setTimeout(1) // stands for the making of the body
    request.end('hello')
    const [response] = await once(request, 'response')
    await once(response.resume(), 'end')
  }
  agent.destroy()
}

// Stands for the proxy and for what is behind it, with one write per reply. Node's HTTP servers set TCP_NODELAY.
const proxy = http.createServer((request, response) => request.resume().on('end', () => response.end('hello')))
proxy.on('connect', (request, socket) => {
  socket.write('HTTP/1.1 200 Connected\r\n\r\n')
  proxy.emit('connection', socket)
})
await once(proxy.listen(0, '127.0.0.1'), 'listening')
const { port } = proxy.address()
await Promise.all([ask(port), ask(port)])
proxy.close()
