// An evio server that acknowledges a command at once and calls Wake when the result is there, a millisecond later.
// An innocent client asks it over two kept connections. "exhibit tcp" listens on evio's own sockets, "exhibit tcp-net" on those of Go's net package.
package main

import (
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/tidwall/evio"
)

const accepted, result = "accepted\n", "done: 42\n"

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
	var events evio.Events
	events.Serving = func(server evio.Server) evio.Action {
		go func() {
			ask("127.0.0.1:7001")
			ask("127.0.0.1:7001")
			os.Exit(0)
		}()
		return evio.None
	}
	events.Data = func(conn evio.Conn, in []byte) ([]byte, evio.Action) {
		if in == nil { // woken
			return []byte(result), evio.None
		}
		time.AfterFunc(time.Millisecond, conn.Wake)
		return []byte(accepted), evio.None
	}
	log.Fatal(evio.Serve(events, os.Args[1]+"://127.0.0.1:7001"))
}
