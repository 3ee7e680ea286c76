//! A ureq agent that posts 30 times over each of two kept connections to an innocent server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

const BODY: &str = "{\"museum\": \"of nagle-lab\"}";
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Reads each request to its end, then answers it in one write.
fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).unwrap() == 0 {
                return;
            }
        }
        let mut body = [0; BODY.len()];
        reader.read_exact(&mut body).unwrap();
        assert_eq!(body, BODY.as_bytes());
        stream.write_all(REPLY).unwrap();
    }
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    for _ in 0..2 {
        let agent = ureq::agent();
        for _ in 0..30 {
            let reply = agent.post(&url).send_string(BODY).unwrap();
            assert_eq!(reply.into_string().unwrap(), "ok");
        }
    }
}
