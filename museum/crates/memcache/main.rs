//! The memcache client, storing 30 values over each of two connections to an innocent server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

const VALUE: &str = "a value of thirty bytes or so";

/// Speaks as much of memcached's binary protocol as `set` takes: a header of 24 bytes says how long
/// the rest of a request is, and a header alone answers it, in one write.
fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut header = [0; 24];
    while stream.read_exact(&mut header).is_ok() {
        let length = u32::from_be_bytes(header[8..12].try_into().unwrap());
        let mut rest = vec![0; length as usize];
        stream.read_exact(&mut rest).unwrap();
        let mut reply = [0; 24];
        reply[0] = 0x81;
        reply[1] = header[1];
        stream.write_all(&reply).unwrap();
    }
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("memcache://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    for _ in 0..2 {
        let mut client = memcache::Client::new(url.as_str()).unwrap();
        for number in 0..30 {
            client.set(&format!("key-{number}"), VALUE, 60).unwrap();
        }
    }
}
