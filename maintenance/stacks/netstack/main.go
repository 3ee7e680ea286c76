// One end of a recorded case, with the TCP of gVisor's netstack on the device tap0.
// netstack-peer server|client nagle|nodelay - CONNECTIONS EXCHANGES STEP...; see stack_cases.py.
// Netstack has no delayed ACK that could be set: the third argument says nothing.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const nic = 1

var (
	ours  = tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4([4]byte{10, 78, 0, 2}), Port: 7000}
	linux = tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4([4]byte{10, 78, 0, 1}), Port: 7000}
)

// A write: how many bytes the connection has sent after it, its size, and when it was made (CLOCK_REALTIME, ns).
type write [3]int64

// What is said of a connection: the client's port, and all writes of this end.
type log struct {
	Port   int     `json:"port"`
	Writes []write `json:"writes"`
}

// check ends the program when something failed.
func check(what string, err any) {
	if fmt.Sprint(err) != "<nil>" {
		fmt.Fprintln(os.Stderr, what, err)
		os.Exit(1)
	}
}

// newStack makes a stack on tap0, with Nagle's algorithm on or off for all its connections.
func newStack(nagle bool) *stack.Stack {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	delay := tcpip.TCPDelayEnabled(nagle)
	check("Nagle:", s.SetTransportProtocolOption(tcp.ProtocolNumber, &delay))
	tap, err := tun.OpenTAP("tap0")
	check("tap0:", err)
	link, err := fdbased.New(&fdbased.Options{
		FDs: []int{tap}, MTU: 1500, EthernetHeader: true, Address: tcpip.LinkAddress("\x02\x00\x00\x00\x00\x02"),
	})
	check("link:", err)
	check("NIC:", s.CreateNIC(nic, link))
	address := tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: ours.Addr, PrefixLen: 24},
	}
	check("address:", s.AddProtocolAddress(nic, address, stack.AddressProperties{}))
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return s
}

// converse makes all exchanges of one connection.
func converse(conn net.Conn, exchanges int, steps []string) []write {
	writes := []write{}
	sent := int64(0)
	for range exchanges {
		for _, step := range steps {
			size := number(step[1:])
			switch step[0] {
			case 'w':
				sent += int64(size)
				writes = append(writes, write{sent, int64(size), time.Now().UnixNano()})
				data := make([]byte, size)
				_, err := conn.Write(data)
				check("write:", err)
			case 'r':
				_, err := io.ReadFull(conn, make([]byte, size))
				check("read:", err)
			case 'p':
				time.Sleep(time.Duration(size) * time.Millisecond)
			}
		}
	}
	return writes
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check("number:", err)
	return n
}

func main() {
	server, nagle := os.Args[1] == "server", os.Args[2] == "nagle"
	connections, exchanges, steps := number(os.Args[4]), number(os.Args[5]), os.Args[6:]
	s := newStack(nagle)
	var listener *gonet.TCPListener
	if server {
		var err error
		listener, err = gonet.ListenTCP(s, ours, ipv4.ProtocolNumber)
		check("listen:", err)
	}
	fmt.Println("ready")
	logs := []log{}
	for range connections {
		var conn net.Conn
		var err error
		if server {
			conn, err = listener.Accept()
		} else {
			conn, err = gonet.DialTCP(s, linux, ipv4.ProtocolNumber)
		}
		check("connection:", err)
		client := conn.LocalAddr()
		if server {
			client = conn.RemoteAddr()
		}
		writes := converse(conn, exchanges, steps)
		if server { // the client closes first
			_, err = io.Copy(io.Discard, conn)
			check("end:", err)
		}
		check("close:", conn.Close())
		logs = append(logs, log{client.(*net.TCPAddr).Port, writes})
	}
	time.Sleep(100 * time.Millisecond) // the last ACKs
	check("log:", json.NewEncoder(os.Stdout).Encode(logs))
}
