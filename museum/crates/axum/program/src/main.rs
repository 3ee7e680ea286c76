//! An axum server that streams three words a millisecond apart, as a language model does its tokens, and an innocent
//! client that asks it over two kept connections. `exhibit nodelay` sets TCP_NODELAY the way axum's documentation does.

use std::convert::Infallible;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use axum::serve::ListenerExt;
use axum::Router;
use futures_util::stream;
use tokio::net::TcpListener;

async fn words() -> Body {
    let words = ["always", "the", "algorithm"].into_iter();
    Body::from_stream(stream::unfold(words, |mut words| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        words.next().map(|word| (Ok::<_, Infallible>(word), words))
    }))
}

/// Asks 30 times over one connection: each request in one write, each reply read to its last chunk.
fn ask(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    for _ in 0..30 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: museum\r\n\r\n")
            .unwrap();
        while line != "0\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        reader.read_line(&mut line).unwrap();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let nodelay = env::args().nth(1).as_deref() == Some("nodelay");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = thread::spawn(move || {
        ask(address);
        ask(address);
    });
    let app = Router::new().route("/", get(words));
    if nodelay {
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
    } else {
        tokio::spawn(async move { axum::serve(listener, app).await });
    }
    tokio::task::spawn_blocking(|| client.join().unwrap())
        .await
        .unwrap();
}
