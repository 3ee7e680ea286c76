// A StayRTR cache with three prefixes, and an innocent router that asks for them over two kept connections.
// "exhibit tcp" uses the plain listener with TCP_NODELAY asked for, "exhibit tls" the TLS one.
package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log"
	"math/big"
	"net"
	"net/netip"
	"os"
	"time"

	rtr "github.com/bgp/stayrtr/lib"
)

const address = "127.0.0.1:8282"

// resetQuery asks for everything (RFC 8210, section 5.4).
var resetQuery = []byte{1, rtr.PDU_ID_RESET_QUERY, 0, 0, 0, 0, 0, 8}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func dial(secure bool) net.Conn {
	for range 50 {
		if conn, err := net.Dial("tcp", address); err == nil {
			if secure {
				return tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			return conn
		}
		time.Sleep(20 * time.Millisecond)
	}
	log.Fatal("the cache does not listen")
	return nil
}

// ask queries 30 times over one connection, each in one write, and reads each answer to its End of Data.
func ask(secure bool) {
	conn := dial(secure)
	defer conn.Close()
	reader := bufio.NewReader(conn)
	header := make([]byte, 8)
	for range 30 {
		_, err := conn.Write(resetQuery)
		check(err)
		for header[1] = 0; header[1] != rtr.PDU_ID_END_OF_DATA; {
			_, err = io.ReadFull(reader, header)
			check(err)
			_, err = reader.Discard(int(binary.BigEndian.Uint32(header[4:])) - len(header))
			check(err)
		}
	}
}

func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	plain := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, plain, plain, &key.PublicKey, key)
	check(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func main() {
	secure := os.Args[1] == "tls"
	events := &rtr.DefaultRTREventHandler{}
	server := rtr.NewServer(rtr.ServerConfiguration{
		ProtocolVersion: rtr.PROTOCOL_VERSION_1,
		KeepDifference:  3,
		EnableNODELAY:   true,
	}, nil, events)
	events.SetSDManager(server)
	server.AddData([]rtr.SendableData{
		&rtr.VRP{Prefix: netip.MustParsePrefix("192.0.2.0/24"), ASN: 64496, MaxLen: 24},
		&rtr.VRP{Prefix: netip.MustParsePrefix("198.51.100.0/24"), ASN: 64497, MaxLen: 24},
		&rtr.VRP{Prefix: netip.MustParsePrefix("203.0.113.0/24"), ASN: 64498, MaxLen: 24},
	})
	if secure {
		go server.StartTLS(address, &tls.Config{Certificates: []tls.Certificate{certificate()}})
	} else {
		go server.Start(address)
	}
	ask(secure)
	ask(secure)
}
