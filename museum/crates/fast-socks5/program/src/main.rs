//! A SOCKS proxy of fast-socks5 between an innocent client, whose requests come in two segments a millisecond apart,
//! and an innocent server: 30 exchanges over each of two connections. `exhibit nodelay` asks run_tcp_proxy for it.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use fast_socks5::server::{run_tcp_proxy, DnsResolveHelper, Socks5ServerProtocol};

const HEAD: &[u8] = b"a head of twenty-two..";
const BODY: &[u8] = b"and a body";
const REPLY: &[u8] = b"a reply";

/// Reads head and body, then answers in one write.
fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut request = [0; HEAD.len() + BODY.len()];
    while stream.read_exact(&mut request).is_ok() {
        stream.write_all(REPLY).unwrap();
    }
}

async fn proxy(stream: tokio::net::TcpStream, nodelay: bool) {
    stream.set_nodelay(true).unwrap();
    let protocol = Socks5ServerProtocol::accept_no_auth(stream).await.unwrap();
    let (protocol, _, target) = protocol
        .read_command()
        .await
        .unwrap()
        .resolve_dns()
        .await
        .unwrap();
    run_tcp_proxy(protocol, &target, Duration::from_secs(5), nodelay)
        .await
        .unwrap();
}

fn ask(proxy: SocketAddr, server: SocketAddr) {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    let [high, low] = server.port().to_be_bytes();
    stream
        .write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low])
        .unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    for _ in 0..30 {
        stream.write_all(HEAD).unwrap();
        thread::sleep(Duration::from_millis(1));
        stream.write_all(BODY).unwrap();
        stream.read_exact(&mut [0; REPLY.len()]).unwrap();
    }
}

fn main() {
    let nodelay = env::args().nth(1).as_deref() == Some("nodelay");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(proxy(stream, nodelay));
            }
        });
        let client = tokio::task::spawn_blocking(move || {
            ask(address, server);
            ask(address, server);
        });
        client.await.unwrap();
    });
}
