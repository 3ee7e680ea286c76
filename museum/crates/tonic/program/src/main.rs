//! A tonic server that streams three messages a millisecond apart, and an innocent client that asks for them over two
//! kept connections. `exhibit nodelay` sets TCP_NODELAY where tonic listens to it, on TcpIncoming.

use std::convert::Infallible;
use std::env;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::transport::server::TcpIncoming;
use tonic::transport::Server;

/// A gRPC message of three bytes: not compressed, its length, its content.
const MESSAGE: &[u8] = b"\0\0\0\0\x03abc";

async fn answer(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(0))]);
    let frames = [
        Frame::data(Bytes::from_static(MESSAGE)),
        Frame::data(Bytes::from_static(MESSAGE)),
        Frame::data(Bytes::from_static(MESSAGE)),
        Frame::trailers(trailers),
    ];
    let body = stream::unfold(frames.into_iter(), |mut frames| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        frames
            .next()
            .map(|frame| (Ok::<_, Infallible>(frame), frames))
    });
    let mut response = Response::new(Body::new(StreamBody::new(body)));
    response
        .headers_mut()
        .insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// Calls 30 times over one connection and reads each reply to its trailers.
async fn ask(address: SocketAddr) {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..30 {
        let request = Request::post(format!("http://{address}/museum.Museum/Words"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        client = client.ready().await.unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let mut body = response.await.unwrap().into_body();
        while let Some(message) = body.data().await {
            assert_eq!(message.unwrap(), MESSAGE);
        }
        assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let nodelay = env::args().nth(1).as_deref() == Some("nodelay");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = tower::service_fn(answer);
    let server = Server::builder().tcp_nodelay(true);
    if nodelay {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(async move { server.serve_with_incoming(service, incoming).await });
    } else {
        let incoming = TcpListenerStream::new(listener);
        tokio::spawn(async move { server.serve_with_incoming(service, incoming).await });
    }
    ask(address).await;
    ask(address).await;
}
