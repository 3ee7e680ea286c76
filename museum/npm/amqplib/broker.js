'use strict'
// A small scripted AMQP 0-9-1 peer: it delivers a request, and the next one as soon as a reply was published.
// Every answer leaves in one write, with TCP_NODELAY set.
const net = require('node:net')

const u16 = (n) => Buffer.from([n >> 8, n & 255])
const u32 = (n) => Buffer.from([0, 0, n >> 8, n & 255])
const u64 = (n) => Buffer.concat([u32(0), u32(n)])
const short = (text) => Buffer.concat([Buffer.from([text.length]), Buffer.from(text)])
const long = (text) => Buffer.concat([u32(text.length), Buffer.from(text)])

function frame (type, channel, ...parts) {
  const payload = Buffer.concat(parts)
  return Buffer.concat([Buffer.from([type]), u16(channel), u32(payload.length), payload, Buffer.from([0xce])])
}

const method = (channel, cls, id, ...args) => frame(1, channel, u16(cls), u16(id), ...args)

function deliver (channel, tag) {
  const body = Buffer.from(`request ${tag}`)
  return Buffer.concat([
    method(channel, 60, 60, short('consumer'), u64(tag), Buffer.from([0]), short(''), short('requests')),
    frame(2, channel, u16(60), u16(0), u64(body.length), u16(0)),
    frame(3, channel, body)
  ])
}

// What to answer to each method (class.id) of the client that expects an answer.
const answers = {
  10.11: () => method(0, 10, 30, u16(10), Buffer.from([0, 2, 0, 0]), u16(0)), // start-ok: tune
  '10.40': () => method(0, 10, 41, short('')), // connection.open
  '10.50': () => method(0, 10, 51), // connection.close
  '20.10': (channel) => method(channel, 20, 11, long('')), // channel.open
  '20.40': (channel) => method(channel, 20, 41), // channel.close
  '60.20': (channel) => Buffer.concat([method(channel, 60, 21, short('consumer')), deliver(channel, 1)]) // consume
}

module.exports = (exchanges) => net.createServer({ noDelay: true }, (socket) => {
  let input = Buffer.alloc(0)
  let replies = 0
  let greeted = false
  socket.on('error', () => {})
  socket.on('data', (data) => {
    input = Buffer.concat([input, data])
    if (!greeted) {
      if (input.length < 8) return
      greeted = true
      input = input.subarray(8)
      socket.write(method(0, 10, 10, Buffer.from([0, 9]), u32(0), long('PLAIN'), long('en_US')))
    }
    while (input.length >= 7 && input.length >= 8 + input.readUInt32BE(3)) {
      const [type, channel, size] = [input[0], input.readUInt16BE(1), input.readUInt32BE(3)]
      const payload = input.subarray(7, 7 + size)
      input = input.subarray(8 + size)
      if (type === 1) {
        const answer = answers[`${payload.readUInt16BE(0)}.${payload.readUInt16BE(2)}`]
        if (answer) socket.write(answer(channel))
      } else if (type === 3 && ++replies < exchanges) {
        socket.write(deliver(channel, replies + 1))
      }
    }
  })
})
