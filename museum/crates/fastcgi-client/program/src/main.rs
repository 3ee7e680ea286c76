//! fastcgi-client on kept connections, as to php-fpm, with an innocent application behind them.
//! `exhibit nodelay` sets TCP_NODELAY on the stream that is handed to the client.

use std::env;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use fastcgi_client::{Client, Params, Request};

const FORM: &str = "museum=of+nagle-lab";
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const END_REQUEST: u8 = 3;

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut record = vec![1, kind, 0, 1, 0, content.len() as u8, 0, 0];
    record.extend_from_slice(content);
    record
}

/// Reads records up to the empty one that ends a request's body, then answers in one write.
fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let page = [
        record(STDOUT, b"Content-Type: text/plain\r\n\r\n......ok"),
        record(STDOUT, b""),
        record(END_REQUEST, &[0; 8]),
    ]
    .concat();
    let mut header = [0; 8];
    while reader.read_exact(&mut header).is_ok() {
        let length = u16::from_be_bytes([header[4], header[5]]) as usize;
        let mut rest = vec![0; length + header[6] as usize];
        reader.read_exact(&mut rest).unwrap();
        if header[1] == STDIN && length == 0 {
            stream.write_all(&page).unwrap();
        }
    }
}

async fn ask(address: SocketAddr, nodelay: bool) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(nodelay).unwrap();
    let mut client = Client::new_keep_alive_tokio(stream);
    for _ in 0..30 {
        let params = Params::default()
            .request_method("POST")
            .content_type("application/x-www-form-urlencoded")
            .content_length(FORM.len())
            .script_name("/index.php")
            .script_filename("/srv/index.php")
            .request_uri("/index.php");
        let reply = client
            .execute(Request::new(params, FORM.as_bytes()))
            .await
            .unwrap();
        assert!(reply.stdout.unwrap().ends_with(b"ok"));
    }
}

fn main() {
    let nodelay = env::args().nth(1).as_deref() == Some("nodelay");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    runtime.block_on(async {
        ask(address, nodelay).await;
        ask(address, nodelay).await;
    });
}
