// A producer of RabbitMQ's Go stream client that sends two batches in a row and waits until both are confirmed,
// 30 times over each of two connections. The broker behind it is innocent and confirms both in one write.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"log"
	"net"
	"strconv"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// Commands of the stream protocol; a reply has the highest bit set.
const (
	publish          = 2
	confirm          = 3
	querySequence    = 5
	metadata         = 15
	peerProperties   = 17
	saslHandshake    = 18
	saslAuthenticate = 19
	tune             = 20
	open             = 21
	heartbeat        = 23
	reply            = 0x8000
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func text(s string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)
}

// frame puts together one frame of version 1.
func frame(command int, fields ...any) []byte {
	var body bytes.Buffer
	for _, field := range append([]any{uint16(command), uint16(1)}, fields...) {
		check(binary.Write(&body, binary.BigEndian, field))
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(body.Len())), body.Bytes()...)
}

// serve speaks as much of the stream protocol as a producer needs; each reply is one write.
func serve(conn net.Conn, port int) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	ok := uint16(1)
	var published []byte // the publishing ids not yet confirmed
	for {
		var size uint32
		if binary.Read(reader, binary.BigEndian, &size) != nil {
			return
		}
		request := make([]byte, size)
		_, err := io.ReadFull(reader, request)
		check(err)
		command, rest := int(binary.BigEndian.Uint16(request))&^reply, request[4:]
		var answer []byte
		switch command {
		case tune, heartbeat:
		case publish: // publisher, number of messages (1), publishing id, message
			published = append(published, rest[5:13]...)
			if len(published) == 2*8 {
				answer = frame(confirm, rest[0], uint32(2), published)
				published = nil
			}
		case peerProperties:
			answer = frame(reply|command, rest[:4], ok, uint32(1), text("version"), text("3.9.0"))
		case saslHandshake:
			answer = frame(reply|command, rest[:4], ok, uint32(1), text("PLAIN"))
		case saslAuthenticate:
			answer = append(frame(reply|command, rest[:4], ok), frame(tune, uint32(1<<20), uint32(60))...)
		case open:
			answer = frame(reply|command, rest[:4], ok, uint32(2), text("advertised_host"), text("127.0.0.1"),
				text("advertised_port"), text(strconv.Itoa(port)))
		case metadata: // one broker; one stream, which it leads
			answer = frame(reply|command, rest[:4], uint32(1), uint16(0), text("127.0.0.1"), uint32(port),
				uint32(1), text("museum"), ok, uint16(0), uint32(0))
		case querySequence:
			answer = frame(reply|command, rest[:4], ok, uint64(0))
		default: // declare, delete, close
			answer = frame(reply|command, rest[:4], ok)
		}
		if answer != nil {
			_, err = conn.Write(answer)
			check(err)
		}
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	port := listener.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			conn, err := listener.Accept()
			check(err)
			go serve(conn, port)
		}
	}()
	environment, err := stream.NewEnvironment(stream.NewEnvironmentOptions().SetHost("127.0.0.1").SetPort(port))
	check(err)
	batch := func(body string) []message.StreamMessage {
		return []message.StreamMessage{amqp.NewMessage([]byte(body))}
	}
	for range 2 {
		producer, err := environment.NewProducer("museum", nil)
		check(err)
		confirmed := producer.NotifyPublishConfirmation()
		for range 30 {
			check(producer.BatchSend(batch("an order")))
			check(producer.BatchSend(batch("its invoice")))
			<-confirmed
		}
		check(producer.Close())
	}
	check(environment.Close())
}
