//! A tiny_http server and an innocent client that asks it over two kept connections.
//! `exhibit nodelay` sets TCP_NODELAY on the listener, which accepted sockets inherit on Linux.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use socket2::{Domain, Socket, Type};
use tiny_http::{Response, Server};

const BODY: [u8; 1200] = [b'x'; 1200];

fn listener(nodelay: bool) -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_tcp_nodelay(nodelay).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(16).unwrap();
    socket.into()
}

/// Asks 30 times over one connection: each request in one write, each reply read to its end.
fn ask(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..30 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: museum\r\n\r\n")
            .unwrap();
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        let mut body = [0; BODY.len()];
        reader.read_exact(&mut body).unwrap();
        assert_eq!(body, BODY);
    }
}

fn main() {
    let nodelay = env::args().nth(1).as_deref() == Some("nodelay");
    let listener = listener(nodelay);
    let address = listener.local_addr().unwrap();
    let server = Server::from_listener(listener, None).unwrap();
    thread::spawn(move || {
        for request in server.incoming_requests() {
            request.respond(Response::from_data(BODY)).unwrap();
        }
    });
    ask(address);
    ask(address);
}
