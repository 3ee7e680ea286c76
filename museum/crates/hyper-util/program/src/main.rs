//! hyper-util's client, posting a body that comes in two pieces a millisecond apart, 30 times over each of two kept
//! connections to an innocent server. `exhibit nodelay` sets HttpConnector::set_nodelay.

use std::convert::Infallible;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::Request;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Reads each request to its last chunk, then answers it in one write.
fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 0 {
        if line == "0\r\n" {
            reader.read_line(&mut line).unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .unwrap();
        }
        line.clear();
    }
}

async fn post(url: &str, nodelay: bool) {
    let mut connector = HttpConnector::new();
    if nodelay {
        connector.set_nodelay(true);
    }
    let client = Client::builder(TokioExecutor::new()).build(connector);
    for _ in 0..30 {
        let pieces = stream::unfold(["one", "two"].into_iter(), |mut pieces| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let piece = pieces.next()?;
            Some((
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece.as_bytes()))),
                pieces,
            ))
        });
        let request = Request::post(url)
            .body(StreamBody::new(Box::pin(pieces)))
            .unwrap();
        let reply = client.request(request).await.unwrap();
        assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "ok");
    }
}

fn main() {
    let nodelay = env::args().nth(1).as_deref() == Some("nodelay");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
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
        post(&url, nodelay).await;
        post(&url, nodelay).await;
    });
}
