//! lettre, sending 30 mails over each of two connections to an innocent mail server.
//! `exhibit nodelay` opens the stream itself, sets TCP_NODELAY on it and hands it to lettre.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use lettre::address::Envelope;
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::extension::ClientId;

const MAIL: &[u8] =
    b"From: a@museum.example\r\nTo: b@museum.example\r\nSubject: hello\r\n\r\nHello!\r\n";

/// Answers each command, and each mail at its lone dot, in one write.
fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    stream.write_all(b"220 museum.example\r\n").unwrap();
    let mut line = String::new();
    let mut in_mail = false;
    while reader.read_line(&mut line).unwrap() > 0 {
        if !in_mail && line == "DATA\r\n" {
            in_mail = true;
            stream.write_all(b"354 go ahead\r\n").unwrap();
        } else if !in_mail || line == ".\r\n" {
            in_mail = false;
            stream.write_all(b"250 museum.example\r\n").unwrap();
        }
        line.clear();
    }
}

async fn connect(address: SocketAddr, nodelay: bool) -> AsyncSmtpConnection {
    let hello = ClientId::Domain("localhost".into());
    if nodelay {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let stream: Box<dyn AsyncTokioStream> = Box::new(stream);
        AsyncSmtpConnection::connect_with_transport(stream, &hello)
            .await
            .unwrap()
    } else {
        AsyncSmtpConnection::connect_tokio1(address, None, &hello, None, None)
            .await
            .unwrap()
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
    let from = "a@museum.example".parse().unwrap();
    let to = "b@museum.example".parse().unwrap();
    let envelope = Envelope::new(Some(from), vec![to]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for _ in 0..2 {
            let mut connection = connect(address, nodelay).await;
            for _ in 0..30 {
                connection.send(&envelope, MAIL).await.unwrap();
            }
            connection.quit().await.unwrap();
        }
    });
}
