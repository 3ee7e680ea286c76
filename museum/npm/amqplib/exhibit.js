'use strict'
// A worker acknowledges each request, then publishes its reply: two small writes. Usage: node exhibit.js [no-delay]
const { once } = require('node:events')
const amqp = require('amqplib')
const createBroker = require('./broker.js')

const EXCHANGES = 30
const noDelay = process.argv[2] === 'no-delay'

async function work (port) {
  const connection = await amqp.connect({ hostname: '127.0.0.1', port }, { noDelay })
  const channel = await connection.createChannel()
  await new Promise((resolve) => {
    let seen = 0
    channel.consume('requests', (message) => {
      channel.ack(message)
      channel.sendToQueue('replies', Buffer.from(`reply to ${message.content}`))
      if (++seen === EXCHANGES) resolve()
    })
  })
  await channel.close()
  await connection.close()
}

async function main () {
  const broker = createBroker(EXCHANGES).listen(0, '127.0.0.1')
  await once(broker, 'listening')
  const { port } = broker.address()
  await Promise.all([work(port), work(port)])
  broker.close()
}

main()
