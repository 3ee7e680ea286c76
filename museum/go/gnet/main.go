// A gnet server that acknowledges a command at once and sends the result from a goroutine, as its documentation
// advises for whatever takes time. An innocent client asks it over two kept connections.
package main

import (
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet"
)

const accepted, result = "accepted\n", "done: 42\n"

type server struct{ *gnet.EventServer }

func (server) OnInitComplete(gnet.Server) gnet.Action {
	go func() {
		ask("127.0.0.1:7002")
		ask("127.0.0.1:7002")
		os.Exit(0)
	}()
	return gnet.None
}

func (server) React(_ []byte, conn gnet.Conn) ([]byte, gnet.Action) {
	time.AfterFunc(time.Millisecond, func() { _ = conn.AsyncWrite([]byte(result)) })
	return []byte(accepted), gnet.None
}

// ask sends 30 commands over one connection, each in one write, and reads each answer to its end.
func ask(address string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, len(accepted)+len(result))
	for range 30 {
		if _, err := conn.Write([]byte("compute\n")); err != nil {
			log.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			log.Fatal(err)
		}
	}
}

func main() {
	log.Fatal(gnet.Serve(server{}, "tcp://127.0.0.1:7002"))
}
