//! A warp server with one small file, and an innocent client that asks for it over two kept connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

fn connect(address: SocketAddr) -> TcpStream {
    for _ in 0..50 {
        if let Ok(stream) = TcpStream::connect(address) {
            return stream;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the server does not listen");
}

/// Asks 30 times over one connection: each request in one write, each reply read to its end.
fn ask(address: SocketAddr, length: usize) {
    let mut stream = connect(address);
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
        reader.read_exact(&mut vec![0; length]).unwrap();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    tokio::spawn(warp::serve(warp::fs::file("page.html")).run(address));
    let length = std::fs::metadata("page.html").unwrap().len() as usize;
    tokio::task::spawn_blocking(move || {
        ask(address, length);
        ask(address, length);
    })
    .await
    .unwrap();
}
