//! A rumqttc client that answers requests: it acknowledges each one (QoS 1), then publishes the answer.
//! The broker is innocent: it sends the next request when the answer is there, 30 times over each of two connections.
//! `exhibit nodelay` sets NetworkOptions::set_tcp_nodelay.

use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use rumqttc::{Client, Event, MqttOptions, NetworkOptions, Packet, QoS};

const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const SUBSCRIBE: u8 = 8;

/// Reads one packet (all are shorter than 128 bytes) and tells its kind.
fn read_packet(stream: &mut TcpStream) -> u8 {
    let mut header = [0; 2];
    stream.read_exact(&mut header).unwrap();
    let mut rest = vec![0; header[1] as usize];
    stream.read_exact(&mut rest).unwrap();
    header[0] >> 4
}

fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    assert_eq!(read_packet(&mut stream), CONNECT);
    stream.write_all(&[0x20, 2, 0, 0]).unwrap();
    assert_eq!(read_packet(&mut stream), SUBSCRIBE);
    stream.write_all(&[0x90, 3, 0, 1, 1]).unwrap();
    for number in 1..=30 {
        let request = [
            b"\x32\x11\x00\x07request\x00",
            [number].as_slice(),
            b"museum",
        ]
        .concat();
        stream.write_all(&request).unwrap();
        while read_packet(&mut stream) != PUBLISH {}
    }
}

fn main() {
    let nodelay = env::args().nth(1).as_deref() == Some("nodelay");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let broker = thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            serve(stream.unwrap());
        }
    });
    for _ in 0..2 {
        let (client, mut connection) =
            Client::new(MqttOptions::new("exhibit", "127.0.0.1", port), 10);
        let mut options = NetworkOptions::new();
        options.set_tcp_nodelay(nodelay);
        connection.eventloop.set_network_options(options);
        client.subscribe("request", QoS::AtLeastOnce).unwrap();
        for event in connection.iter().map_while(Result::ok) {
            // until the broker closes
            if let Event::Incoming(Packet::Publish(_)) = event {
                client
                    .publish("answer", QoS::AtMostOnce, false, "of nagle-lab")
                    .unwrap();
            }
        }
    }
    broker.join().unwrap();
}
