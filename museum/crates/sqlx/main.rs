//! sqlx on MySQL, executing a statement that it is not to keep prepared, 30 times over each of two connections.
//! The server behind it is innocent and answers each command in one write.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use sqlx::{Connection, MySqlConnection};

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const PREPARE: u8 = 0x16;
const CLOSE: u8 = 0x19;

/// A packet of MySQL's protocol: its length in three bytes, its number, its content.
fn packet(number: u8, content: &[u8]) -> Vec<u8> {
    let mut packet = (content.len() as u32).to_le_bytes().to_vec();
    packet[3] = number;
    packet.extend_from_slice(content);
    packet
}

fn read_packet(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).ok()?;
    let mut content = vec![0; u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize];
    stream.read_exact(&mut content).ok()?;
    Some((header[3], content))
}

fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let greeting = [
        b"\x0a8.0.0\0\x01\0\0\0abcdefgh\0".as_slice(), // version, connection, first half of the salt
        b"\x08\xa2\x2d\x02\0\x08\0\x15", // capabilities, character set, status, length of the salt
        b"\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0",
    ];
    stream.write_all(&packet(0, &greeting.concat())).unwrap();
    while let Some((number, command)) = read_packet(&mut stream) {
        let reply = match (number, command[0]) {
            (0, CLOSE) => continue,
            (0, PREPARE) => b"\0\x01\0\0\0\0\0\0\0\0\0\0".as_slice(), // statement 1: no columns, no parameters
            _ => OK,
        };
        stream.write_all(&packet(number + 1, reply)).unwrap();
    }
}

async fn run(url: &str) {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    for _ in 0..30 {
        sqlx::query("DO 1")
            .persistent(false)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    connection.close_hard().await.unwrap();
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "mysql://museum@{}/museum?ssl-mode=DISABLED",
        listener.local_addr().unwrap()
    );
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
        run(&url).await;
        run(&url).await;
    });
}
