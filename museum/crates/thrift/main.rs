//! A Thrift server in Rust with framed transports, and an innocent client that calls it over two kept connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use thrift::protocol::{
    TBinaryInputProtocolFactory, TBinaryOutputProtocolFactory, TFieldIdentifier, TInputProtocol,
    TMessageIdentifier, TMessageType, TOutputProtocol, TStructIdentifier, TType,
};
use thrift::server::{TProcessor, TServer};
use thrift::transport::{TFramedReadTransportFactory, TFramedWriteTransportFactory};

/// A frame that calls `answer` with no arguments, in Thrift's binary protocol.
const CALL: &[u8] = b"\0\0\0\x13\x80\x01\0\x01\0\0\0\x06answer\0\0\0\x01\0";

struct Answer;

impl TProcessor for Answer {
    fn process(
        &self,
        input: &mut dyn TInputProtocol,
        output: &mut dyn TOutputProtocol,
    ) -> thrift::Result<()> {
        let call = input.read_message_begin()?;
        input.skip(TType::Struct)?;
        input.read_message_end()?;
        output.write_message_begin(&TMessageIdentifier::new(
            call.name,
            TMessageType::Reply,
            call.sequence_number,
        ))?;
        output.write_struct_begin(&TStructIdentifier::new("answer_result"))?;
        output.write_field_begin(&TFieldIdentifier::new("success", TType::I32, 0))?;
        output.write_i32(42)?;
        output.write_field_end()?;
        output.write_field_stop()?;
        output.write_struct_end()?;
        output.write_message_end()?;
        output.flush()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    for _ in 0..50 {
        if let Ok(stream) = TcpStream::connect(address) {
            return stream;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the server does not listen");
}

/// Calls 30 times over one connection: each call in one write, each reply read to its end.
fn ask(address: SocketAddr) {
    let mut stream = connect(address);
    stream.set_nodelay(true).unwrap();
    for _ in 0..30 {
        stream.write_all(CALL).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut reply = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut reply).unwrap();
        assert!(reply.ends_with(&[42, 0]));
    }
}

fn main() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    thread::spawn(move || {
        TServer::new(
            TFramedReadTransportFactory::new(),
            TBinaryInputProtocolFactory::new(),
            TFramedWriteTransportFactory::new(),
            TBinaryOutputProtocolFactory::new(),
            Answer,
            2,
        )
        .listen(address)
        .unwrap();
    });
    ask(address);
    ask(address);
}
