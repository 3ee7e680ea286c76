//! A tokio-tungstenite client that sends two messages and waits for what they bring, 30 times over each of two
//! connections; the server behind them is innocent. `exhibit nodelay` asks connect_async for it.

use std::env;
use std::net::{TcpListener, TcpStream};
use std::thread;

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::{connect_async_with_config, tungstenite};
use tungstenite::Message;

/// Answers every second message, in one write.
fn serve(stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut socket = tungstenite::accept(stream).unwrap();
    while socket.read().is_ok_and(|message| message.is_text()) {
        socket.read().unwrap();
        socket.send(Message::text("{\"price\": 42}")).unwrap();
    }
}

fn main() {
    let nodelay = env::args().nth(1).as_deref() == Some("nodelay");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
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
        for _ in 0..2 {
            let (mut socket, _) = connect_async_with_config(&url, None, nodelay)
                .await
                .unwrap();
            for _ in 0..30 {
                socket
                    .send(Message::text("{\"select\": \"museum\"}"))
                    .await
                    .unwrap();
                socket
                    .send(Message::text("{\"quote\": \"now\"}"))
                    .await
                    .unwrap();
                socket.next().await.unwrap().unwrap();
            }
            socket.close(None).await.unwrap();
        }
    });
}
